// LU factorisation with partial pivoting, recursive in the columns: S. Toledo, "Locality of reference in LU
// decomposition with partial pivoting" (SIAM J. Matrix Anal. Appl. 1997).
#include "kernels/cpu/linalg_blocks.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

constexpr int64_t kPanel = 16;  // columns that are eliminated one by one

// Exchanges rows of columns [0, c.cols) as pivots [first, last) say, in that order or backwards.
template <class T>
void exchange_rows(const Mat<T>& c, const Vec<int32_t>& pivots, int64_t first, int64_t last, bool backwards) {
  const int64_t grain = std::max<int64_t>(1, 16384 / (last - first + 1));
  parallel_for(c.cols, grain, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; j++)
      for (int64_t step = first; step < last; step++) {
        const int64_t i = backwards ? first + last - 1 - step : step, other = pivots[i] - 1;
        if (other == i) continue;
        const T x = c(i, j);
        c(i, j) = c(other, j), c(other, j) = x;
      }
  });
}

template <class T>
int64_t largest_in(const T* x, int64_t n) {
  using R = real_t<T>;
  constexpr int64_t L = 16;
  if (n > 0 && size1(x[0]) != size1(x[0])) return 0;  // as in LAPACK nothing is larger than a NaN that comes first
  R best[L];
  for (int64_t l = 0; l < L; l++) best[l] = R(-1);
  int64_t i = 0;
  for (; i + L <= n; i += L)
    for (int64_t l = 0; l < L; l++) {
      const R s = size1(x[i + l]);
      best[l] = s > best[l] ? s : best[l];
    }
  R top = R(-1);
  for (int64_t l = 0; l < L; l++) top = best[l] > top ? best[l] : top;
  for (int64_t k = i; k < n; k++) top = size1(x[k]) > top ? size1(x[k]) : top;
  for (int64_t k = 0; k < n; k++)
    if (size1(x[k]) == top) return k;
  return 0;  // all NaN
}

// As native's library has it: of an infinite complex number, conj(x) / |x|^2, which is NaN.
template <class T>
T reciprocal(T x) {
  if constexpr (is_complex_v<T>) {
    if (std::isinf(x.re) || std::isinf(x.im)) return nan_of<T>();
  }
  return T(1) / x;
}

// Rows are adjacent. Pivots count from the first row of a. Returns the first zero pivot, from 1.
template <class T>
int64_t factor_panel(const Mat<T>& a, const Vec<int32_t>& pivots) {
  using R = real_t<T>;
  const int64_t m = a.rows, n = a.cols, steps = std::min(m, n);
  int64_t info = 0;
  for (int64_t j = 0; j < steps; j++) {
    T* const col = &a(0, j);
    const int64_t p = j + largest_in(col + j, m - j);
    pivots[j] = static_cast<int32_t>(p + 1);
    if (col[p] == T(0)) {
      if (info == 0) info = j + 1;
    } else {
      if (p != j)
        for (int64_t k = 0; k < n; k++) {
          const T x = a(j, k);
          a(j, k) = a(p, k), a(p, k) = x;
        }
      if (size1(col[j]) >= std::numeric_limits<R>::min()) {
        scale(m - j - 1, reciprocal(col[j]), col + j + 1);
      } else {
        for (int64_t i = j + 1; i < m; i++) col[i] = col[i] / col[j];
      }
    }
    for (int64_t k = j + 1; k < n; k++) axpy(m - j - 1, -a(j, k), col + j + 1, &a(j + 1, k));
  }
  return info;
}

template <class T>
int64_t factor(const Mat<T>& a, const Vec<int32_t>& pivots) {
  const int64_t m = a.rows, n = a.cols, steps = std::min(m, n);
  if (n <= kPanel || m == 1) return factor_panel(a, pivots);
  const int64_t left = steps <= kPanel ? steps : (steps / 2 + kPanel - 1) / kPanel * kPanel, right = n - left;
  int64_t info = factor(a.block(0, 0, m, left), pivots);
  if (right == 0) return info;
  const Mat<T> beside = a.block(0, left, m, right), corner = a.block(left, left, m - left, right);
  exchange_rows(beside, pivots, 0, left, false);
  solve_triangular(a.block(0, 0, left, left), false, true, beside.block(0, 0, left, right));
  if (m == left) return info;
  multiply(-1, a.block(left, 0, m - left, left), beside.block(0, 0, left, right), 1, corner);
  const Vec<int32_t> rest{&pivots[left], pivots.stride};
  const int64_t later = factor(corner, rest);
  if (info == 0 && later != 0) info = later + left;
  for (int64_t i = left; i < steps; i++) pivots[i] += static_cast<int32_t>(left);
  exchange_rows(a.block(0, 0, m, left), pivots, left, steps, false);
  return info;
}

}  // namespace

template <class T>
int64_t factor_lu(const Mat<T>& a, const Vec<int32_t>& pivots) {
  return a.rows == 0 || a.cols == 0 ? 0 : factor(a, pivots);
}

template <class T>
void solve_lu(const Mat<T>& f, const Vec<int32_t>& pivots, const Mat<T>& x, MatrixOp op) {
  if (op == MatrixOp::none) {
    exchange_rows(x, pivots, 0, f.rows, false);
    solve_triangular(f, false, true, x);
    solve_triangular(f, true, false, x);
  } else {
    const Mat<T> t = op == MatrixOp::adjoint ? f.h() : f.t();
    solve_triangular(t, false, false, x);
    solve_triangular(t, true, true, x);
    exchange_rows(x, pivots, 0, f.rows, true);
  }
}

#define MT_LU_TEMPLATES(T)                                        \
  template int64_t factor_lu(const Mat<T>&, const Vec<int32_t>&); \
  template void solve_lu(const Mat<T>&, const Vec<int32_t>&, const Mat<T>&, MatrixOp);
MT_LU_TEMPLATES(float)
MT_LU_TEMPLATES(double)
MT_LU_TEMPLATES(Complex<float>)
MT_LU_TEMPLATES(Complex<double>)

namespace {

void lu_factor(const TensorView& a, const TensorView& pivots, const TensorView& info) {
  dispatch_linalg("lu_factor", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const double m = static_cast<double>(a.sizes[a.ndim - 2]), n = static_cast<double>(a.sizes[a.ndim - 1]);
    for_each_item(batch_count(a, 2), m * n * std::min(m, n), [&](int64_t i) {
      *batch_item<int32_t>(info, i, 0) =
          static_cast<int32_t>(factor_lu(matrix_of<T>(a, i), vector_of<int32_t>(pivots, i)));
    });
  });
}

void lu_solve(const TensorView& lu, const TensorView& pivots, const TensorView& b, MatrixOp op) {
  dispatch_linalg("lu_solve", lu.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const double n = static_cast<double>(lu.sizes[lu.ndim - 1]), k = static_cast<double>(b.sizes[b.ndim - 1]);
    for_each_item(batch_count(b, 2), 2 * n * n * k, [&](int64_t i) {
      solve_lu(matrix_of<T>(lu, i), vector_of<int32_t>(pivots, i), matrix_of<T>(b, i), op);
    });
  });
}

void unpack_pivots(const PointwiseView& v, int64_t n, int64_t largest, bool* valid) {
  bool good = true;
  for (int64_t item = 0; item < v.numel; item++) {
    int64_t offsets[2] = {}, rest = item;
    for (int d = 0; d < v.ndim; d++) {
      const int64_t i = rest % v.sizes[d];
      rest /= v.sizes[d];
      offsets[0] += i * v.strides[0][d], offsets[1] += i * v.strides[1][d];
    }
    int64_t* const permutation = reinterpret_cast<int64_t*>(v.data[0] + offsets[0]);
    const int32_t* const pivots = reinterpret_cast<const int32_t*>(v.data[1] + offsets[1]);
    for (int64_t i = 0; i < n; i++) {
      const int64_t other = pivots[i] - 1;
      if (other < 0 || other >= largest) {
        good = false;
        continue;
      }
      const int64_t x = permutation[i];
      permutation[i] = permutation[other], permutation[other] = x;
    }
  }
  *valid = good;
}

MT_REGISTER_KERNEL(lu_factor_kernel, &lu_factor);
MT_REGISTER_KERNEL(lu_solve_kernel, &lu_solve);
MT_REGISTER_KERNEL(unpack_pivots_kernel, &unpack_pivots);

}  // namespace
}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
