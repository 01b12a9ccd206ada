// QR by Householder reflectors on CUDA. A thread block reduces a panel of kBlock columns of one matrix; the rest of the
// matrices is updated with the whole panel at once, in the compact form 1 - v t v^H of R. Schreiber and C. Van Loan, "A
// storage-efficient WY representation for products of Householder transformations" (SIAM J. Sci. Stat. Comput. 1989).
#include "kernels/cuda/linalg.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

// What stands below the diagonal in a column: its norm, both it and the diagonal element having been multiplied by
// `scale`, a power of two that keeps their squares within range.
struct Column {
  double norm, scale;
};

// A reflector h = 1 - tau v v^H with v[0] = 1 and h^H x = (beta, 0), beta real, as LAPACK's larfg, from x[0] and what
// follows: beta, tau, and the factor from scale * x[1..] to v[1..].
struct Reflector {
  Complex<double> tau, factor;
  double beta, scale;
  __device__ Reflector(Complex<double> first, Column rest) : tau(0.0), factor(0.0), beta(first.re), scale(rest.scale) {
    const Complex<double> alpha(first.re * scale, first.im * scale);
    if (rest.norm == 0 && alpha.im == 0) return;
    const double size = ::hypot(::hypot(alpha.re, alpha.im), rest.norm), scaled_beta = alpha.re >= 0 ? -size : size;
    tau = {(scaled_beta - alpha.re) / scaled_beta, -alpha.im / scaled_beta};
    factor = Complex<double>(1.0) / Complex<double>(alpha.re - scaled_beta, alpha.im);
    beta = scaled_beta / scale;
  }
};
template <class T>
__device__ __forceinline__ T narrowed(Complex<double> z) {
  if constexpr (is_complex_v<T>) {
    return T(z);
  } else {
    return static_cast<T>(z.re);
  }
}
template <class T>
__device__ __forceinline__ Complex<double> widened(T x) {
  return {static_cast<double>(real_part(x)), static_cast<double>(imag_part(x))};
}

// Column j below row j. Matrices of low rank leave columns that shrink to the least numbers there are, so the range of
// a number is not enough for its square or its reciprocal. The whole block takes part.
template <class T>
__device__ Column column_below(const Mat<T>& a, int64_t item, int64_t j, double* shared) {
  double sum = 0;
  for (int64_t i = j + 1 + threadIdx.x; i < a.rows; i += kThreads) sum += square(a.at(item, i, j));
  sum = block_reduce(sum, shared, 0.0, Sum());
  if (sum > 1e-270 && sum < 1e270) return {::sqrt(sum), 1.0};
  double largest = 0;
  for (int64_t i = j + threadIdx.x; i < a.rows; i += kThreads)
    largest =
        Max()(largest, Max()(::fabs(double{real_part(a.at(item, i, j))}), ::fabs(double{imag_part(a.at(item, i, j))})));
  largest = block_reduce(largest, shared, 0.0, Max());
  const double scale = largest > 0 && largest < 1e-130         ? 0x1p600
                       : largest > 1e130 && largest <= 1.7e308 ? 0x1p-600
                                                               : 1.0;
  sum = 0;
  for (int64_t i = j + 1 + threadIdx.x; i < a.rows; i += kThreads) {
    const double re = scale * real_part(a.at(item, i, j)), im = scale * imag_part(a.at(item, i, j));
    sum += re * re + im * im;
  }
  return {::sqrt(block_reduce(sum, shared, 0.0, Sum())), scale};
}

// Reduces the columns of a panel one by one; a warp brings one of the columns to the right up to date.
template <class T>
__global__ void __launch_bounds__(kThreads) factor_panel(const Mat<T> a, const Vec<T> tau) {
  __shared__ double shared[32];
  const int64_t item = blockIdx.x, m = a.rows, steps = min(a.rows, a.cols);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int64_t j = 0; j < steps; j++) {
    const Column below = column_below(a, item, j, shared);
    const Reflector h(widened(a.at(item, j, j)), below);
    const T t = narrowed<T>(h.tau), f = -conj_if(t, true);
    __syncthreads();
    if (threadIdx.x == 0) {
      tau.at(item, j) = t;
      a.at(item, j, j) = narrowed<T>(Complex<double>(h.beta));
    }
    if (t == T(0)) {
      __syncthreads();
      continue;
    }
    for (int64_t i = j + 1 + threadIdx.x; i < m; i += kThreads)
      a.at(item, i, j) = narrowed<T>(scaled(widened(a.at(item, i, j)), h.scale) * h.factor);
    __syncthreads();
    for (int64_t k = j + 1 + warp; k < a.cols; k += kThreads / 32) {
      T sum = lane == 0 ? a.at(item, j, k) : T(0);
      for (int64_t i = j + 1 + lane; i < m; i += 32) sum += conj_if(a.at(item, i, j), true) * a.at(item, i, k);
      const T w = f * warp_reduce(sum, Sum());
      if (lane == 0) a.at(item, j, k) += w;
      for (int64_t i = j + 1 + lane; i < m; i += 32) a.at(item, i, k) += a.at(item, i, j) * w;
    }
    __syncthreads();
  }
}

// t of the compact form, from inner = v^H v and the factors tau.
template <class T>
__global__ void __launch_bounds__(kBlock)
    form_factor(const Mat<T> inner, const Vec<T> tau, bool conjugate, const Mat<T> t) {
  const int64_t item = blockIdx.x;
  const int k = static_cast<int>(t.rows), i = threadIdx.x;
  for (int j = 0; j < k; j++) {
    const T f = conj_if(tau.at(item, j), conjugate);
    T value = T(i == j ? 1 : 0) * f;
    if (i < j) {
      T sum(0);
      for (int l = i; l < j; l++) sum += t.at(item, i, l) * inner.at(item, l, j);
      value = -(f * sum);
    }
    if (i < k) t.at(item, i, j) = value;
    __syncthreads();
  }
}

template <class T>
void fill_reflectors(const Mat<T>& a, bool conjugate, const Mat<T>& v) {
  for_each_element(v.rows, v.cols, v.count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    v.at(item, i, j) = i < j ? T(0) : i == j ? T(1) : conj_if(a.at(item, i, j), conjugate);
  });
}

// c -= v op(t) v^H c for the reflectors in the columns of a.
template <class T>
void apply_panel(const Mat<T>& a, const Vec<T>& tau, bool adjoint, bool conjugate, const Mat<T>& c) {
  if (c.cols == 0 || c.rows == 0 || a.cols == 0 || c.count == 0) return;
  const int64_t k = a.cols, count = c.count;
  const Matrices<T> reflectors(a.rows, k, count), product(k, k, count), triangle(k, k, count), first(k, c.cols, count),
      second(k, c.cols, count);
  const Mat<T> v = reflectors.mat(), inner = product.mat(), t = triangle.mat(), x = first.mat(), y = second.mat();
  fill_reflectors(a, conjugate, v);
  multiply<T>(1, v.h(), v, 0, inner);
  form_factor<T><<<static_cast<unsigned>(count), kBlock, 0, cuda::current_stream()>>>(inner, tau, conjugate, t);
  multiply<T>(1, v.h(), c, 0, x);
  multiply<T>(1, adjoint ? t.h() : t, x, 0, y);
  multiply<T>(-1, v, y, 1, c);
}

template <class T>
void fill_identity(const Mat<T>& q) {
  for_each_element(q.rows, q.cols, q.count,
                   [=] __device__(int64_t item, int64_t i, int64_t j) { q.at(item, i, j) = T(i == j ? 1 : 0); });
}
template <class From, class To>
void copy_reflectors(const Mat<From>& from, const Mat<To>& to) {
  for_each_element(to.rows, to.cols, to.count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    if (i >= j) to.at(item, i, j) = cast<To>(from.at(item, i, j));
  });
}
template <class From, class To>
void copy_matrix(const Mat<From>& from, const Mat<To>& to) {
  for_each_element(to.rows, to.cols, to.count, [=] __device__(int64_t item, int64_t i, int64_t j) {
    to.at(item, i, j) = cast<To>(from.at(item, i, j));
  });
}
template <class From, class To>
void copy_vector(const Vec<From>& from, int64_t size, int64_t count, const Vec<To>& to) {
  for_each_element(size, 1, count,
                   [=] __device__(int64_t item, int64_t i, int64_t) { to.at(item, i) = cast<To>(from.at(item, i)); });
}

}  // namespace

template <class T>
void factor_qr(const Mat<T>& a, const Vec<T>& tau) {
  const int64_t m = a.rows, n = a.cols, steps = std::min(m, n);
  if (a.count == 0) return;
  for (int64_t j = 0; j < steps; j += kBlock) {
    const int64_t k = std::min<int64_t>(kBlock, n - j);
    const Mat<T> panel = a.block(j, j, m - j, k);
    factor_panel<T><<<static_cast<unsigned>(a.count), kThreads, 0, cuda::current_stream()>>>(panel, tau.from(j));
    if (j + k < n)
      apply_panel(panel.block(0, 0, m - j, std::min(k, m - j)), tau.from(j), true, false,
                  a.block(j, j + k, m - j, n - j - k));
  }
}

template <class T>
void apply_reflectors(const Mat<T>& v, const Vec<T>& tau, int64_t k, bool adjoint, bool conjugate, const Mat<T>& c) {
  const int64_t blocks = ceil_div(k, kBlock);
  for (int64_t step = 0; step < blocks; step++) {
    const int64_t j = (adjoint ? step : blocks - 1 - step) * kBlock, width = std::min<int64_t>(kBlock, k - j);
    apply_panel(v.block(j, j, v.rows - j, width), tau.from(j), adjoint, conjugate, c.block(j, 0, c.rows - j, c.cols));
  }
}

template <class T>
void form_product(const Mat<T>& v, const Vec<T>& tau, int64_t k, const Mat<T>& q) {
  fill_identity(q);
  for (int64_t step = ceil_div(k, kBlock) - 1; step >= 0; step--) {
    const int64_t j = step * kBlock, width = std::min<int64_t>(kBlock, k - j);
    // Columns before j are still those of the identity, which these reflectors leave alone.
    if (j < q.cols)
      apply_panel(v.block(j, j, v.rows - j, width), tau.from(j), false, false, q.block(j, j, q.rows - j, q.cols - j));
  }
}

#define MT_QR_TEMPLATES(T)                                                                          \
  template void factor_qr(const Mat<T>&, const Vec<T>&);                                            \
  template void apply_reflectors(const Mat<T>&, const Vec<T>&, int64_t, bool, bool, const Mat<T>&); \
  template void form_product(const Mat<T>&, const Vec<T>&, int64_t, const Mat<T>&);
MT_QR_TEMPLATES(float)
MT_QR_TEMPLATES(double)
MT_QR_TEMPLATES(Complex<float>)
MT_QR_TEMPLATES(Complex<double>)

namespace {

void qr_factor(const TensorView& a, const TensorView& tau) {
  if (a.numel == 0) return;
  dispatch_linalg("geqrf", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_group({&a, &tau}, {2, 1},
                   [&](const Group& g) { factor_qr(matrix_of<T>(a, g, 0), vector_of<T>(tau, g, 1)); });
  });
}

// Reflectors are multiplied in double whatever their type: the compact form's sums over whole columns, of products of
// which most cancel, lose in single precision what LAPACK, which applies one reflector after the other, keeps.
void qr_product(const TensorView& a, const TensorView& tau) {
  const int64_t k = tau.sizes[tau.ndim - 1];
  if (a.numel == 0) return;
  dispatch_linalg("orgqr", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    for_each_group({&a, &tau}, {2, 1}, [&](const Group& g) {
      const Mat<T> q = matrix_of<T>(a, g, 0);
      const Matrices<W> reflectors(q.rows, k, q.count), factors(k, 1, q.count);
      copy_reflectors(q, reflectors.mat());
      copy_vector(vector_of<T>(tau, g, 1), k, q.count, factors.vec());
      if constexpr (std::is_same_v<T, W>) {
        form_product(reflectors.mat(), factors.vec(), k, q);
      } else {
        const Matrices<W> product(q.rows, q.cols, q.count);
        form_product(reflectors.mat(), factors.vec(), k, product.mat());
        copy_matrix(product.mat(), q);
      }
    });
  });
}

// c q = (q^T c^T)^T, and q^T is the adjoint of the product of the conjugated reflectors.
void qr_multiply(const TensorView& a, const TensorView& tau, const TensorView& c, bool left, bool adjoint) {
  const int64_t k = tau.sizes[tau.ndim - 1];
  if (c.numel == 0) return;
  dispatch_linalg("ormqr", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    for_each_group({&c, &a, &tau}, {2, 2, 1}, [&](const Group& g) {
      const Mat<T> given = matrix_of<T>(c, g, 0), x = left ? given : given.t(), v = matrix_of<T>(a, g, 1);
      const Vec<T> factors = vector_of<T>(tau, g, 2);
      if constexpr (std::is_same_v<T, W>) {
        apply_reflectors(v, factors, k, left == adjoint, !left, x);
      } else {
        const Matrices<W> wide_v(v.rows, k, x.count), wide_factors(k, 1, x.count), wide_x(x.rows, x.cols, x.count);
        copy_reflectors(v, wide_v.mat());
        copy_vector(factors, k, x.count, wide_factors.vec());
        copy_matrix(x, wide_x.mat());
        apply_reflectors(wide_v.mat(), wide_factors.vec(), k, left == adjoint, !left, wide_x.mat());
        copy_matrix(wide_x.mat(), x);
      }
    });
  });
}

MT_REGISTER_KERNEL(qr_factor_kernel, &qr_factor);
MT_REGISTER_KERNEL(qr_product_kernel, &qr_product);
MT_REGISTER_KERNEL(qr_multiply_kernel, &qr_multiply);

}  // namespace
}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
