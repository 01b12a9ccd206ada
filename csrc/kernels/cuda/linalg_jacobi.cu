// Eigenvalues of Hermitian matrices and singular values on CUDA by one-sided Jacobi rotations: pairs of columns are
// made orthogonal until all are (M. R. Hestenes, "Inversion of matrices by biorthogonalization and related results", J.
// SIAM 1958). In a round every column is in one pair, a warp each, so that all pairs of a round rotate at once. A
// Hermitian matrix is shifted until it is well-conditioned and positive; its eigenvectors are then its right singular
// vectors. Clusters of eigenvalues take many sweeps, whose rounding errors add up; so the rotations found are made
// orthogonal again and applied to the matrix itself before the last sweeps. Everything is computed in double precision.
#include <vector>

#include "kernels/cuda/linalg.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

constexpr int kMaxSweeps = 30;
constexpr int64_t kOneBlock = 64;  // matrices of at most so many columns are done by one thread block
constexpr double kFailed = 1e-9;
constexpr double kNothing = 1e-18;  // columns of smaller norm are zero; the largest number is near 1

// Relative to the norms: smaller products are zero, and a sweep without a larger one than `converged` is the last.
struct Limits {
  double zero, converged;
};
constexpr Limits kFine{4e-16, 2e-14}, kRough{1e-13, 1e-11};

// A round: in round r of n - 1 (n even), n - 1 meets r, and r + k meets r - k modulo n - 1. `offs`: what a sweep has
// met, 1 for an item that is not done and 2 for one that is far from it.
template <class D>
__device__ void rotate_pair(const Mat<D>& b, const Mat<D>& v, int64_t item, int64_t round, int64_t pair, Limits limits,
                            int* off) {
  const int64_t players = (b.cols + 1) / 2 * 2, others = players - 1;
  int64_t i = pair == 0 ? players - 1 : (round + pair) % others,
          j = pair == 0 ? round : (round - pair + others) % others;
  if (i > j) {
    const int64_t x = i;
    i = j, j = x;
  }
  if (j >= b.cols) return;
  const int lane = threadIdx.x % 32;
  double norm_i = 0, norm_j = 0;
  D product(0);
  for (int64_t r = lane; r < b.rows; r += 32) {
    const D x = b.at(item, r, i), y = b.at(item, r, j);
    norm_i += square(x), norm_j += square(y);
    product += conj_if(x, true) * y;
  }
  norm_i = warp_reduce(norm_i, Sum()), norm_j = warp_reduce(norm_j, Sum()), product = warp_reduce(product, Sum());
  const double size_i = ::sqrt(norm_i), size_j = ::sqrt(norm_j), size = ::sqrt(square(product)), both = size_i * size_j;
  if (!(size > limits.zero * both) || size_i <= kNothing || size_j <= kNothing) return;
  if (lane == 0 && size > limits.converged * both) atomicOr(off, size > kFailed * both ? 3 : 1);
  const double zeta = (norm_j - norm_i) / (2 * size);
  const double t = (zeta >= 0 ? 1.0 : -1.0) / (::fabs(zeta) + ::sqrt(1 + zeta * zeta));
  const double c = 1 / ::sqrt(1 + t * t), s = c * t;
  const D phase = scaled(conj_if(product, true), 1 / size);
  const auto rotate = [&](const Mat<D>& a) {
    for (int64_t r = lane; r < a.rows; r += 32) {
      const D x = a.at(item, r, i), y = phase * a.at(item, r, j);
      a.at(item, r, i) = scaled(x, c) - scaled(y, s);
      a.at(item, r, j) = scaled(x, s) + scaled(y, c);
    }
  };
  rotate(b);
  if (v.p != nullptr) rotate(v);
}

constexpr int kPairThreads = 128;
template <class D>
__global__ void __launch_bounds__(kPairThreads)
    rotate_round(const Mat<D> b, const Mat<D> v, int64_t round, int64_t pairs, Limits limits, int* offs) {
  const int64_t at = blockIdx.x * int64_t{kPairThreads / 32} + threadIdx.x / 32;
  if (at >= pairs * b.count) return;
  rotate_pair(b, v, at / pairs, round, at % pairs, limits, offs + at / pairs);
}

template <class D>
__global__ void __launch_bounds__(kThreads) rotate_whole(const Mat<D> b, const Mat<D> v, Limits limits, int* offs) {
  __shared__ int off;
  const int64_t pairs = (b.cols + 1) / 2, rounds = 2 * pairs - 1;
  int met = 0;
  for (int sweep = 0; sweep < kMaxSweeps; sweep++) {
    if (threadIdx.x == 0) off = 0;
    __syncthreads();
    for (int64_t round = 0; round < rounds; round++) {
      for (int64_t pair = threadIdx.x / 32; pair < pairs; pair += kThreads / 32)
        rotate_pair(b, v, blockIdx.x, round, pair, limits, &off);
      __syncthreads();
    }
    met = off;
    __syncthreads();
    if (met == 0) break;
  }
  if (threadIdx.x == 0) offs[blockIdx.x] = met;
}

// The columns of b become orthogonal; v, if given, is multiplied by the same rotations. offs: bit 1 for items that are
// far from done.
template <class D>
void orthogonalise(const Mat<D>& b, const Mat<D>& v, Limits limits, int* offs) {
  const cudaStream_t stream = cuda::current_stream();
  if (b.cols <= kOneBlock) {
    rotate_whole<D><<<static_cast<unsigned>(b.count), kThreads, 0, stream>>>(b, v, limits, offs);
    return;
  }
  const int64_t pairs = (b.cols + 1) / 2;
  const auto grid = static_cast<unsigned>(ceil_div(pairs * b.count, kPairThreads / 32));
  std::vector<int> met(static_cast<size_t>(b.count));
  const size_t bytes = met.size() * sizeof(int);
  for (int sweep = 0; sweep < kMaxSweeps; sweep++) {
    cuda::check(cudaMemsetAsync(offs, 0, bytes, stream), "clearing flags");
    for (int64_t round = 0; round < 2 * pairs - 1; round++)
      rotate_round<D><<<grid, kPairThreads, 0, stream>>>(b, v, round, pairs, limits, offs);
    cuda::check_launch("launching rotations");
    cuda::read_back(met.data(), offs, static_cast<int64_t>(bytes), "reading flags");
    if (std::all_of(met.begin(), met.end(), [](int off) { return off == 0; })) return;
  }
}

// values[j] = the norm of column j of b, or with `a` the real part of b[:, j]^H a[:, j].
template <class D>
__global__ void __launch_bounds__(kThreads) column_products(const Mat<D> b, const Mat<D> a, double* values) {
  const int64_t at = blockIdx.x * int64_t{kThreads / 32} + threadIdx.x / 32;
  if (at >= b.cols * b.count) return;
  const int64_t item = at / b.cols, j = at % b.cols;
  double sum = 0;
  for (int64_t i = threadIdx.x % 32; i < b.rows; i += 32)
    sum += a.p != nullptr ? real_part(conj_if(b.at(item, i, j), true) * a.at(item, i, j)) : square(b.at(item, i, j));
  sum = warp_reduce(sum, Sum());
  if (threadIdx.x % 32 == 0) values[at] = a.p != nullptr ? sum : ::sqrt(sum);
}
template <class D>
void find_values(const Mat<D>& b, const Mat<D>& a, double* values) {
  const auto grid = static_cast<unsigned>(ceil_div(b.cols * b.count, kThreads / 32));
  column_products<D><<<grid, kThreads, 0, cuda::current_stream()>>>(b, a, values);
}
// order[k]: which of an item's n values is the k-th; NaN has no place, so values must be finite.
void find_order(const double* values, int64_t n, int64_t count, bool descending, int64_t* order) {
  for_each_element(n, count, 1, [=] __device__(int64_t, int64_t j, int64_t item) {
    const double* const v = values + item * n;
    const double own = v[j];
    int64_t rank = 0;
    for (int64_t k = 0; k < n; k++) rank += (descending ? v[k] > own : v[k] < own) || (v[k] == own && k < j);
    order[item * n + rank] = j;
  });
}

// ---- Hermitian matrices --------------------------------------------------------------------------------------------

// The shift of an item: twice a bound of its eigenvalues, the largest sum of a row's absolute values or the Frobenius
// norm.
template <class D>
__global__ void __launch_bounds__(kThreads) find_shifts(const Mat<D> a, double* shifts) {
  __shared__ double shared[32];
  const int64_t item = blockIdx.x;
  double largest = 0, squares = 0;
  for (int64_t j = threadIdx.x; j < a.cols; j += kThreads) {
    double sum = 0;
    for (int64_t i = 0; i < a.rows; i++) {
      const double size = square(a.at(item, i, j));
      sum += ::sqrt(size), squares += size;
    }
    largest = Max()(largest, sum);
  }
  largest = block_reduce(largest, shared, 0.0, Max());
  squares = block_reduce(squares, shared, 0.0, Sum());
  if (threadIdx.x == 0) shifts[item] = largest > 0 ? 2 * ::fmin(largest, ::sqrt(squares)) : 1.0;
}

// x becomes the nearest orthogonal matrix, which it nearly is, by a step of Newton's and Schulz's iteration: x (3 - x^H
// x) / 2, in `work`. `product` is overwritten.
template <class D>
Mat<D> orthogonal(const Mat<D>& x, const Mat<D>& work, const Mat<D>& product) {
  multiply<D>(1, x.h(), x, 0, product);
  for_each_element(x.cols, x.cols, x.count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    product.at(item, i, j) = D(i == j ? 1.5 : 0.0) - scaled(product.at(item, i, j), 0.5);
  });
  multiply<D>(1, x, product, 0, work);
  return work;
}

template <class T>
void eigh_items(const Vec<real_t<T>>& w, const Mat<T>& v, const Vec<int32_t>& info, bool upper, bool vectors) {
  using D = Wide<T>;
  using R = real_t<T>;
  const int64_t n = v.rows, count = v.count;
  if (n == 0) return clear_info(info, count);
  if (n == 1) {  // the value of a number is the number, whether finite or not
    for_each_element(1, 1, count, [=] __device__(int64_t item, int64_t, int64_t) {
      w.at(item, 0) = real_part(v.at(item, 0, 0));
      if (vectors) v.at(item, 0, 0) = T(1);
      info.at(item, 0) = 0;
    });
    return;
  }
  const cudaStream_t stream = cuda::current_stream();
  const auto blocks = static_cast<unsigned>(count);
  const Matrices<D> memory_a(n, n, count), memory_b(n, n, count), memory_x(n, n, count), memory_y(n, n, count);
  const Scratch numbers(count * 2 * 8), memory_values(count * n * 8), memory_order(count * n * 8), flags(count * 4);
  double *const scales = numbers.get<double>(), *const shifts = scales + count,
                *const values = memory_values.get<double>();
  int64_t* const order = memory_order.get<int64_t>();
  int* const offs = flags.get<int>();
  const Mat<D> a = memory_a.mat(), b = memory_b.mat(), start = memory_x.mat();
  // The triangle not given is never looked at.
  for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    const bool here = upper ? i <= j : i >= j;
    D z = cast<D>(here ? v.at(item, i, j) : v.at(item, j, i));
    a.at(item, i, j) = i == j ? D(real_part(z)) : conj_if(z, !here);
  });
  find_scales<D><<<blocks, kThreads, 0, stream>>>(a, scales);
  for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    a.at(item, i, j) = scales[item] > 0 ? scaled(a.at(item, i, j), scales[item]) : D(0);
  });
  find_shifts<D><<<blocks, kThreads, 0, stream>>>(a, shifts);
  for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    b.at(item, i, j) = a.at(item, i, j) + D(i == j ? shifts[item] : 0.0);
    start.at(item, i, j) = D(i == j ? 1.0 : 0.0);
  });
  orthogonalise(b, start, kRough, offs);
  const Mat<D> x = orthogonal(start, memory_y.mat(), b);
  multiply<D>(1, a, x, 0, b);
  for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    b.at(item, i, j) += scaled(x.at(item, i, j), shifts[item]);
  });
  orthogonalise(b, x, kFine, offs);
  multiply<D>(1, a, x, 0, b);
  find_values(x, b, values);
  find_order(values, n, count, false, order);
  for_each_element(vectors ? n : 1, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    const bool good = scales[item] > 0;
    const int64_t from = order[item * n + j];
    const R nothing = static_cast<R>(::nan(""));
    if (vectors) v.at(item, i, j) = good ? cast<T>(x.at(item, i, from)) : T(nothing);
    if (i != 0) return;
    w.at(item, j) = good ? static_cast<R>(values[item * n + from] / scales[item]) : nothing;
    if (j == 0)
      info.at(item, 0) = static_cast<int32_t>(!good ? eigh_info_of_nan(n, vectors) : (offs[item] & 2 ? 1 : 0));
  });
}

void eigh(const TensorView& w, const TensorView& v, const TensorView& info, bool upper, bool vectors) {
  dispatch_linalg("eigh", v.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_group({&v, &w, &info}, {2, 1, 0}, [&](const Group& g) {
      eigh_items(vector_of<real_t<T>>(w, g, 1), matrix_of<T>(v, g, 0), number_of<int32_t>(info, g, 2), upper, vectors);
    });
  });
}

// ---- Singular values -----------------------------------------------------------------------------------------------

// rows >= cols. u: rows x (cols or rows), vh: cols x cols. A tall matrix is reduced to its triangular factor first (T.
// F. Chan, ACM TOMS 1982). The orthogonal columns that the rotations leave, sorted, are decomposed by reflectors again:
// that gives left vectors for singular values of zero too, and the rest of a full basis.
template <class T>
void svd_items(const Mat<T>& given, const Mat<T>& u, const Vec<real_t<T>>& s, const Mat<T>& vh,
               const Vec<int32_t>& info, bool vectors) {
  using D = Wide<T>;
  using R = real_t<T>;
  const int64_t m = given.rows, n = given.cols, count = given.count;
  if (n == 0) return clear_info(info, count);
  const cudaStream_t stream = cuda::current_stream();
  const bool tall = m > n;
  const Scratch numbers(count * 8), memory_values(count * n * 8), memory_order(count * n * 8), flags(count * 4);
  double *const scales = numbers.get<double>(), *const values = memory_values.get<double>();
  int64_t* const order = memory_order.get<int64_t>();
  int* const offs = flags.get<int>();
  const Matrices<D> memory_a(m, n, count), memory_b(tall ? n : 0, n, count), memory_x(vectors ? n : 0, n, count);
  const Matrices<D> memory_tau(n, 1, count);
  const Mat<D> a = memory_a.mat(), b = tall ? memory_b.mat() : a, x = vectors ? memory_x.mat() : Mat<D>{};
  for_each_element(m, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    a.at(item, i, j) = cast<D>(given.at(item, i, j));
  });
  find_scales<D><<<static_cast<unsigned>(count), kThreads, 0, stream>>>(a, scales);
  for_each_element(m, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    a.at(item, i, j) = scales[item] > 0 ? scaled(a.at(item, i, j), scales[item]) : D(0);
  });
  if (tall) {
    factor_qr(a, memory_tau.vec());
    for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
      b.at(item, i, j) = i <= j ? a.at(item, i, j) : D(0);
    });
  }
  if (vectors)
    for_each_element(n, n, count,
                     [=] __device__(int64_t item, int64_t i, int64_t j) { x.at(item, i, j) = D(i == j ? 1.0 : 0.0); });
  orthogonalise(b, x, kFine, offs);
  find_values(b, Mat<D>{}, values);
  find_order(values, n, count, true, order);
  for_each_element(n, count, 1, [=] __device__(int64_t, int64_t j, int64_t item) {
    const bool good = scales[item] > 0;
    s.at(item, j) = static_cast<R>(good ? values[item * n + order[item * n + j]] / scales[item] : ::nan(""));
    if (j == 0) info.at(item, 0) = static_cast<int32_t>(scales[item] != scales[item] ? -4 : (offs[item] & 2 ? 1 : 0));
  });
  if (!vectors) return;
  for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    const D z = x.at(item, j, order[item * n + i]);
    vh.at(item, i, j) = scales[item] > 0 ? cast<T>(conj_if(z, true)) : T(static_cast<R>(::nan("")));
  });
  const Matrices<D> memory_c(n, n, count), memory_q(n, n, count), memory_tau2(n, 1, count), memory_u(m, u.cols, count);
  const Mat<D> c = memory_c.mat(), q = memory_q.mat(), full = memory_u.mat();
  for_each_element(n, n, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    // Columns that are zero but for rounding errors may become anything that is orthogonal to the others.
    const int64_t from = order[item * n + j];
    c.at(item, i, j) = values[item * n + from] > kNothing ? b.at(item, i, from) : D(0);
  });
  factor_qr(c, memory_tau2.vec());
  form_product(c, memory_tau2.vec(), n, q);
  for_each_element(m, u.cols, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    D z(i == j ? 1.0 : 0.0);
    if (i < n && j < n) z = scaled(q.at(item, i, j), real_part(c.at(item, j, j)) < 0 ? -1.0 : 1.0);
    full.at(item, i, j) = z;
  });
  if (tall) apply_reflectors(a, memory_tau.vec(), n, false, false, full);
  for_each_element(m, u.cols, count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    u.at(item, i, j) = scales[item] > 0 ? cast<T>(full.at(item, i, j)) : T(static_cast<R>(::nan("")));
  });
}

void svd(const SvdArgs& args) {
  const TensorView& u = args.vectors ? args.u : args.a;
  const TensorView& vh = args.vectors ? args.vh : args.a;
  dispatch_linalg("svd", args.a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_group({&args.a, &u, &args.s, &vh, &args.info}, {2, 2, 1, 2, 0}, [&](const Group& g) {
      const Mat<T> a = matrix_of<T>(args.a, g, 0), left = matrix_of<T>(u, g, 1), right = matrix_of<T>(vh, g, 3);
      const Vec<real_t<T>> s = vector_of<real_t<T>>(args.s, g, 2);
      const Vec<int32_t> info = number_of<int32_t>(args.info, g, 4);
      if (a.rows >= a.cols) {
        svd_items(a, left, s, right, info, args.vectors);
      } else {
        svd_items(a.t(), right.t(), s, left.t(), info, args.vectors);
      }
    });
  });
}

MT_REGISTER_KERNEL(eigh_kernel, &eigh);
MT_REGISTER_KERNEL(svd_kernel, &svd);

}  // namespace
}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
