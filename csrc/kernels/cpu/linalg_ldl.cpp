// LDL factorisation of symmetric and Hermitian matrices with diagonal pivoting: J. R. Bunch and L. Kaufman, "Some
// stable methods for calculating inertia and solving symmetric linear systems" (Math. Comp. 1977). Only the lower
// triangle is used; pivots are LAPACK's: k > 0, rows exchanged with row k; two entries -k, a diagonal block of order
// two.
#include "kernels/cpu/linalg_blocks.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

// Position of the largest number in x[0..n).
template <class T>
int64_t largest_of(int64_t n, const T* x, int64_t stride, real_t<T>& size) {
  int64_t at = 0;
  size = 0;
  for (int64_t i = 0; i < n; i++)
    if (size1(x[i * stride]) > size) size = size1(x[i * stride]), at = i;
  return at;
}

template <class T>
MT_INLINE void exchange(T& a, T& b) {
  const T x = a;
  a = b, b = x;
}

// Exchanges rows and columns kk < kp of the lower triangle, of which columns before k are done.
template <class T>
void exchange_symmetric(const Mat<T>& a, int64_t k, int64_t kk, int64_t kp, bool hermitian) {
  for (int64_t i = kp + 1; i < a.rows; i++) exchange(a(i, kk), a(i, kp));
  for (int64_t j = kk + 1; j < kp; j++) {
    const T x = conj_if(a(j, kk), hermitian);
    a(j, kk) = conj_if(a(kp, j), hermitian);
    a(kp, j) = x;
  }
  a(kp, kk) = conj_if(a(kp, kk), hermitian);
  exchange(a(kk, kk), a(kp, kp));
  if (kk != k) exchange(a(k + 1, k), a(kp, k));
}

template <class T>
int64_t factor(const Mat<T>& a, const Vec<int32_t>& pivots, bool hermitian) {
  using R = real_t<T>;
  const R alpha = static_cast<R>((1 + std::sqrt(17.0)) / 8);
  const int64_t n = a.rows;
  int64_t info = 0, k = 0;
  while (k < n) {
    int64_t width = 1, kp = k;
    if (hermitian) a(k, k) = T(real_part(a(k, k)));
    const R diagonal = size1(a(k, k));
    R column = 0;
    const int64_t imax = k + 1 < n ? k + 1 + largest_of(n - k - 1, &a(k + 1, k), a.rs, column) : k;
    // As in native's library a NaN is a pivot of real numbers when no other is left, and then no pivot either.
    const bool lost = diagonal != diagonal && (is_complex_v<T> || k + 1 == n);
    if ((diagonal == 0 && column == 0) || lost) {
      if (info == 0) info = k + 1;
      pivots[k] = static_cast<int32_t>(k + 1);
      k++;
      continue;
    }
    if (!(diagonal >= alpha * column)) {
      R row = 0, below = 0;
      largest_of(imax - k, &a(imax, k), a.cs, row);
      if (imax + 1 < n) largest_of(n - imax - 1, &a(imax + 1, imax), a.rs, below);
      row = std::max(row, below);
      const R other = hermitian ? std::abs(real_part(a(imax, imax))) : size1(a(imax, imax));
      if (diagonal >= alpha * column * (column / row)) {
        kp = k;
      } else if (other >= alpha * row) {
        kp = imax;
      } else {
        kp = imax, width = 2;
      }
    }
    const int64_t kk = k + width - 1;
    if (kp != kk) exchange_symmetric(a, k, kk, kp, hermitian);
    if (hermitian) {
      a(k, k) = T(real_part(a(k, k)));
      a(kk, kk) = T(real_part(a(kk, kk)));
    }
    if (width == 1) {
      if (k + 1 < n) {
        T* const col = &a(k + 1, k);
        const T inverse = T(1) / a(k, k);
        for (int64_t j = k + 1; j < n; j++) axpy(n - j, -(inverse * conj_if(a(j, k), hermitian)), &a(j, k), &a(j, j));
        scale(n - k - 1, inverse, col);
        if (hermitian)
          for (int64_t j = k + 1; j < n; j++) a(j, j) = T(real_part(a(j, j)));
      }
      pivots[k] = static_cast<int32_t>(kp + 1);
    } else {
      // Rows (x, y) times the inverse of the block [e b; c d], b = c or conj(c).
      const T c = a(k + 1, k), b = conj_if(c, hermitian), p = a(k + 1, k + 1) / b, q = a(k, k) / c;
      const T t = T(1) / (p * q - T(1)), to_first = t / c, to_second = t / b;
      for (int64_t j = k + 2; j < n; j++) {
        const T x = a(j, k), y = a(j, k + 1);
        const T first = (x * p - y * (c / b)) * to_first, second = (y * q - x * (b / c)) * to_second;
        axpy(n - j, -conj_if(first, hermitian), &a(j, k), &a(j, j));
        axpy(n - j, -conj_if(second, hermitian), &a(j, k + 1), &a(j, j));
        a(j, k) = first, a(j, k + 1) = second;
        if (hermitian) a(j, j) = T(real_part(a(j, j)));
      }
      pivots[k] = pivots[k + 1] = -static_cast<int32_t>(kp + 1);
    }
    k += width;
  }
  return info;
}

// One right-hand side: l d l^T x = b, or l^H.
template <class T>
void solve(const Mat<T>& a, const Vec<int32_t>& pivots, const Vec<T>& x, bool hermitian) {
  const int64_t n = a.rows;
  for (int64_t k = 0; k < n;) {
    const int64_t width = pivots[k] > 0 ? 1 : 2, kp = (width == 1 ? pivots[k] : -pivots[k]) - 1, kk = k + width - 1;
    if (kp != kk) exchange(x[kk], x[kp]);
    for (int64_t w = k; w <= kk; w++)
      for (int64_t i = kk + 1; i < n; i++) x[i] -= a(i, w) * x[w];
    if (width == 1) {
      x[k] = x[k] / a(k, k);
    } else {
      const T c = a(k + 1, k), b = conj_if(c, hermitian), p = a(k, k) / c, q = a(k + 1, k + 1) / b;
      // The inverse of [e b; c d] times (x0, x1); its determinant is b c (p q - 1).
      const T t = p * q - T(1), first = x[k], second = x[k + 1];
      x[k] = (q * first - second) / (t * c);
      x[k + 1] = (p * second - first) / (t * b);
    }
    k += width;
  }
  for (int64_t k = n - 1; k >= 0;) {
    const int64_t width = pivots[k] > 0 ? 1 : 2, kp = (width == 1 ? pivots[k] : -pivots[k]) - 1;
    for (int64_t w = k; w > k - width; w--)
      for (int64_t i = k + 1; i < n; i++) x[w] -= conj_if(a(i, w), hermitian) * x[i];
    if (kp != k) exchange(x[k], x[kp]);
    k -= width;
  }
}

void ldl_factor(const TensorView& a, const TensorView& pivots, const TensorView& info, bool hermitian) {
  dispatch_linalg("ldl_factor", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const double n = static_cast<double>(a.sizes[a.ndim - 1]);
    for_each_item(batch_count(a, 2), n * n * n / 3, [&](int64_t i) {
      *batch_item<int32_t>(info, i, 0) =
          static_cast<int32_t>(factor(matrix_of<T>(a, i), vector_of<int32_t>(pivots, i), is_complex_v<T> && hermitian));
    });
  });
}

void ldl_solve(const TensorView& a, const TensorView& pivots, const TensorView& b, bool hermitian) {
  dispatch_linalg("ldl_solve", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const double n = static_cast<double>(a.sizes[a.ndim - 1]);
    for_each_item(batch_count(b, 2), 2 * n * static_cast<double>(b.numel), [&](int64_t i) {
      const Mat<T> f = matrix_of<T>(a, i), x = matrix_of<T>(b, i);
      for (int64_t j = 0; j < x.cols; j++)
        solve(f, vector_of<int32_t>(pivots, i), Vec<T>{&x(0, j), x.rs}, is_complex_v<T> && hermitian);
    });
  });
}

MT_REGISTER_KERNEL(ldl_factor_kernel, &ldl_factor);
MT_REGISTER_KERNEL(ldl_solve_kernel, &ldl_solve);

}  // namespace
}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
