// LDL factorisation on CUDA, a thread block for each matrix: J. R. Bunch and L. Kaufman, "Some stable methods for
// calculating inertia and solving symmetric linear systems" (Math. Comp. 1977). Only the lower triangle is used; pivots
// are LAPACK's: k > 0, rows exchanged with row k; two entries -k, a diagonal block of order two.
#include "kernels/cuda/linalg.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

// One matrix of the batch, by a whole block. Every function that a block calls ends with a barrier.
template <class T>
struct Item {
  using R = real_t<T>;
  const Mat<T>& a;
  int64_t item;
  bool hermitian;
  Candidate<R>* shared;

  __device__ T& at(int64_t i, int64_t j) const { return a.at(item, i, j); }
  __device__ T turned(T x) const { return conj_if(x, hermitian); }

  // The largest of f(i), first <= i < last, and its place.
  template <class F>
  __device__ Candidate<R> largest(int64_t first, int64_t last, const F& f) const {
    Candidate<R> best{R(0), first};
    for (int64_t i = first + threadIdx.x; i < last; i += kThreads) best = Larger()(best, Candidate<R>{size1(f(i)), i});
    best = block_reduce(best, shared, Candidate<R>{R(0), first}, Larger());
    __syncthreads();
    return best;
  }

  // Exchanges rows and columns kk < kp of the lower triangle, of which columns before k are done.
  __device__ void exchange_symmetric(int64_t k, int64_t kk, int64_t kp) const {
    for (int64_t i = kp + 1 + threadIdx.x; i < a.rows; i += kThreads) exchange(at(i, kk), at(i, kp));
    for (int64_t j = kk + 1 + threadIdx.x; j < kp; j += kThreads) {
      const T x = turned(at(j, kk));
      at(j, kk) = turned(at(kp, j));
      at(kp, j) = x;
    }
    if (threadIdx.x == 0) {
      at(kp, kk) = turned(at(kp, kk));
      exchange(at(kk, kk), at(kp, kp));
      if (kk != k) exchange(at(k + 1, k), at(kp, k));
    }
    __syncthreads();
  }

  // Calls f(i, j) for the lower triangle from row and column `first` on.
  template <class F>
  __device__ void each_below(int64_t first, const F& f) const {
    const int64_t rest = a.rows - first;
    for (int64_t n = threadIdx.x; n < rest * rest; n += kThreads) {
      const int64_t i = first + n % rest, j = first + n / rest;
      if (i >= j) f(i, j);
    }
    __syncthreads();
  }
  __device__ T kept(int64_t i, int64_t j, T x) const { return hermitian && i == j ? T(real_part(x)) : x; }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    factor_items(const Mat<T> a, const Vec<int32_t> pivots, const Vec<int32_t> info, bool hermitian, T* columns) {
  using R = real_t<T>;
  __shared__ Candidate<R> shared[32];
  const int64_t item = blockIdx.x, n = a.rows;
  const Item<T> m{a, item, hermitian, shared};
  T* const scaled_columns = columns + item * 2 * n;  // the multiples of one or two columns
  const R alpha = static_cast<R>((1 + 4.123105625617661) / 8);
  int64_t failed = 0, k = 0;
  while (k < n) {
    if (threadIdx.x == 0 && hermitian) m.at(k, k) = T(real_part(m.at(k, k)));
    __syncthreads();
    int64_t width = 1, kp = k;
    const R diagonal = size1(m.at(k, k));
    const auto column = m.largest(k + 1, n, [&](int64_t i) { return m.at(i, k); });
    if (diagonal == 0 && column.size == 0) {
      if (failed == 0) failed = k + 1;
      if (threadIdx.x == 0) pivots.at(item, k) = static_cast<int32_t>(k + 1);
      k++;
      continue;
    }
    if (!(diagonal >= alpha * column.size)) {
      const int64_t imax = column.at;
      const auto row = m.largest(k, imax, [&](int64_t j) { return m.at(imax, j); });
      const auto below = m.largest(imax + 1, n, [&](int64_t i) { return m.at(i, imax); });
      const R most = row.size > below.size ? row.size : below.size;
      const R other = hermitian ? ::fabs(real_part(m.at(imax, imax))) : size1(m.at(imax, imax));
      if (diagonal >= alpha * column.size * (column.size / most)) {
        kp = k;
      } else if (other >= alpha * most) {
        kp = imax;
      } else {
        kp = imax, width = 2;
      }
    }
    const int64_t kk = k + width - 1;
    __syncthreads();
    if (kp != kk) m.exchange_symmetric(k, kk, kp);
    if (threadIdx.x == 0) {
      if (hermitian) {
        m.at(k, k) = T(real_part(m.at(k, k)));
        m.at(kk, kk) = T(real_part(m.at(kk, kk)));
      }
      pivots.at(item, k) = static_cast<int32_t>(width == 1 ? kp + 1 : -kp - 1);
      if (width == 2) pivots.at(item, k + 1) = -static_cast<int32_t>(kp + 1);
    }
    __syncthreads();
    if (width == 1) {
      const T inverse = T(1) / m.at(k, k);
      for (int64_t i = k + 1 + threadIdx.x; i < n; i += kThreads) scaled_columns[i] = inverse * m.turned(m.at(i, k));
      __syncthreads();
      m.each_below(
          k + 1, [&](int64_t i, int64_t j) { m.at(i, j) = m.kept(i, j, m.at(i, j) - m.at(i, k) * scaled_columns[j]); });
      for (int64_t i = k + 1 + threadIdx.x; i < n; i += kThreads) m.at(i, k) = inverse * m.at(i, k);
    } else {
      // Rows (x, y) times the inverse of the block [e b; c d], b = c or conj(c).
      const T c = m.at(k + 1, k), b = m.turned(c), p = m.at(k + 1, k + 1) / b, q = m.at(k, k) / c;
      const T t = T(1) / (p * q - T(1)), to_first = t / c, to_second = t / b;
      for (int64_t i = k + 2 + threadIdx.x; i < n; i += kThreads) {
        const T x = m.at(i, k), y = m.at(i, k + 1);
        scaled_columns[i] = (x * p - y * (c / b)) * to_first;
        scaled_columns[n + i] = (y * q - x * (b / c)) * to_second;
      }
      __syncthreads();
      m.each_below(k + 2, [&](int64_t i, int64_t j) {
        const T x = m.at(i, j) - m.at(i, k) * m.turned(scaled_columns[j]);
        m.at(i, j) = m.kept(i, j, x - m.at(i, k + 1) * m.turned(scaled_columns[n + j]));
      });
      for (int64_t i = k + 2 + threadIdx.x; i < n; i += kThreads)
        m.at(i, k) = scaled_columns[i], m.at(i, k + 1) = scaled_columns[n + i];
    }
    __syncthreads();
    k += width;
  }
  if (threadIdx.x == 0) info.at(item, 0) = static_cast<int32_t>(failed);
}

// l d l^T x = b, or l^H; a warp for each right-hand side.
template <class T>
__global__ void __launch_bounds__(kThreads)
    solve_items(const Mat<T> a, const Vec<int32_t> pivots, const Mat<T> b, bool hermitian) {
  const int64_t warp = blockIdx.x * int64_t{kThreads / 32} + threadIdx.x / 32, n = a.rows;
  if (warp >= b.cols * b.count) return;
  const int64_t item = warp / b.cols, column = warp % b.cols;
  const int lane = threadIdx.x % 32;
  const auto x = [&](int64_t i) -> T& { return b.at(item, i, column); };
  const auto swap = [&](int64_t i, int64_t j) {
    if (i != j && j >= 0 && j < n && lane == 0) exchange(x(i), x(j));
    __syncwarp();
  };
  for (int64_t k = 0; k < n;) {
    const int32_t pivot = pivots.at(item, k);
    const int64_t width = pivot > 0 || k + 1 == n ? 1 : 2, kp = (pivot > 0 ? pivot : -pivot) - 1, kk = k + width - 1;
    swap(kk, kp);
    for (int64_t w = k; w <= kk; w++) {
      const T by = x(w);
      for (int64_t i = kk + 1 + lane; i < n; i += 32) x(i) -= a.at(item, i, w) * by;
    }
    __syncwarp();
    if (lane == 0) {
      if (width == 1) {
        x(k) = x(k) / a.at(item, k, k);
      } else {
        const T c = a.at(item, k + 1, k), d = conj_if(c, hermitian);
        const T p = a.at(item, k, k) / c, q = a.at(item, k + 1, k + 1) / d;
        // The inverse of [e b; c d] times (x0, x1); its determinant is b c (p q - 1).
        const T t = p * q - T(1), first = x(k), second = x(k + 1);
        x(k) = (q * first - second) / (t * c);
        x(k + 1) = (p * second - first) / (t * d);
      }
    }
    __syncwarp();
    k += width;
  }
  for (int64_t k = n - 1; k >= 0;) {
    const int32_t pivot = pivots.at(item, k);
    const int64_t width = pivot > 0 || k == 0 ? 1 : 2, kp = (pivot > 0 ? pivot : -pivot) - 1;
    for (int64_t w = k; w > k - width; w--) {
      T sum(0);
      for (int64_t i = k + 1 + lane; i < n; i += 32) sum += conj_if(a.at(item, i, w), hermitian) * x(i);
      sum = warp_reduce(sum, Sum());
      if (lane == 0) x(w) -= sum;
      __syncwarp();
    }
    swap(k, kp);
    k -= width;
  }
}

void ldl_factor(const TensorView& a, const TensorView& pivots, const TensorView& info, bool hermitian) {
  dispatch_linalg("ldl_factor", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_group({&a, &pivots, &info}, {2, 1, 0}, [&](const Group& g) {
      const Mat<T> m = matrix_of<T>(a, g, 0);
      const Matrices<T> columns(2, m.rows, m.count);
      factor_items<T><<<static_cast<unsigned>(m.count), kThreads, 0, cuda::current_stream()>>>(
          m, vector_of<int32_t>(pivots, g, 1), number_of<int32_t>(info, g, 2), is_complex_v<T> && hermitian,
          columns.template get<T>());
    });
  });
}

void ldl_solve(const TensorView& a, const TensorView& pivots, const TensorView& b, bool hermitian) {
  if (b.numel == 0) return;
  dispatch_linalg("ldl_solve", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_each_group({&b, &a, &pivots}, {2, 2, 1}, [&](const Group& g) {
      const Mat<T> x = matrix_of<T>(b, g, 0);
      const auto grid = static_cast<unsigned>(ceil_div(x.cols * x.count, kThreads / 32));
      solve_items<T><<<grid, kThreads, 0, cuda::current_stream()>>>(
          matrix_of<T>(a, g, 1), vector_of<int32_t>(pivots, g, 2), x, is_complex_v<T> && hermitian);
    });
  });
}

MT_REGISTER_KERNEL(ldl_factor_kernel, &ldl_factor);
MT_REGISTER_KERNEL(ldl_solve_kernel, &ldl_solve);

}  // namespace
}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
