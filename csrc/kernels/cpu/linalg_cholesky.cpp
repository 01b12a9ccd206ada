// Cholesky factorisation, recursive: F. G. Gustavson, "Recursion leads to automatic variable blocking for dense linear
// algebra algorithms" (IBM J. Res. Dev. 1997). The upper form is the lower one of the transposed view.
#include "kernels/cpu/linalg_blocks.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

constexpr int64_t kIterated = 16;

// The lower triangle of a block, in a local copy with adjacent columns. Returns the order of the failing minor.
// `whole`: the block is all of the matrix.
template <class T>
int64_t factor_block(const Mat<T>& a, bool whole) {
  using R = real_t<T>;
  const int64_t n = a.rows;
  alignas(64) T l[kBlock * kBlock];
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = j; i < n; i++) l[j * kBlock + i] = a(i, j);
  int64_t info = 0;
  for (int64_t j = 0; j < n; j++) {
    T* const col = l + j * kBlock;
    const R d = real_part(col[j]);
    if (!(d > R(0))) {
      info = j + 1;
      break;
    }
    const R root = std::sqrt(d);
    col[j] = T(root);
    // Of small matrices native's library has the reciprocal root of a float by an iteration: of an infinity it is NaN.
    const bool lost = std::is_same_v<T, float> && whole && n <= kIterated && std::isinf(root);
    const R inverse = lost ? nan_of<R>() : R(1) / root;
    for (int64_t i = j + 1; i < n; i++) col[i] = scaled(col[i], inverse);
    for (int64_t k = j + 1; k < n; k++) {
      const T f = -conj_if(col[k], true);
      T* const other = l + k * kBlock;
      for (int64_t i = k; i < n; i++) other[i] += col[i] * f;
    }
  }
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = j; i < n; i++) a(i, j) = l[j * kBlock + i];
  return info;
}

// The lower triangle of c -= a a^H.
template <class T>
void subtract_square(const Mat<T>& a, const Mat<T>& c) {
  const int64_t n = c.rows;
  constexpr int64_t small = 2 * kBlock;
  if (n <= small) {
    alignas(64) T product[small * small];
    multiply<T>(1, a, a.h(), 0, Mat<T>{product, n, n, 1, small});
    for (int64_t j = 0; j < n; j++)
      for (int64_t i = j; i < n; i++) c(i, j) -= product[j * small + i];
    return;
  }
  const int64_t half = (n / 2 + kBlock - 1) / kBlock * kBlock, rest = n - half, k = a.cols;
  subtract_square(a.block(0, 0, half, k), c.block(0, 0, half, half));
  multiply<T>(-1, a.block(half, 0, rest, k), a.block(0, 0, half, k).h(), 1, c.block(half, 0, rest, half));
  subtract_square(a.block(half, 0, rest, k), c.block(half, half, rest, rest));
}

template <class T>
int64_t factor(const Mat<T>& a, bool whole = false) {
  const int64_t n = a.rows;
  if (n <= kBlock) return factor_block(a, whole);
  const int64_t half = (n / 2 + kBlock - 1) / kBlock * kBlock, rest = n - half;
  if (const int64_t info = factor(a.block(0, 0, half, half))) return info;
  // l21 l11^H = a21, which is conj(l11) l21^T = a21^T.
  const Mat<T> below = a.block(half, 0, rest, half);
  Mat<T> l = a.block(0, 0, half, half);
  l.conj = is_complex_v<T>;
  solve_triangular(l, false, false, below.t());
  subtract_square(below, a.block(half, half, rest, rest));
  const int64_t info = factor(a.block(half, half, rest, rest));
  return info == 0 ? 0 : info + half;
}

void cholesky(const TensorView& a, const TensorView& info, bool upper) {
  dispatch_linalg("cholesky", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const double n = static_cast<double>(a.sizes[a.ndim - 1]);
    for_each_item(batch_count(a, 2), n * n * n / 3, [&](int64_t i) {
      const Mat<T> m = matrix_of<T>(a, i);
      *batch_item<int32_t>(info, i, 0) = static_cast<int32_t>(factor(upper ? m.t() : m, true));
    });
  });
}

// (l l^H)^-1 = l^-H l^-1: two triangular solves from the identity, the second one made Hermitian from its lower half.
template <class T>
int64_t invert(const Mat<T>& a, bool upper) {
  const int64_t n = a.rows;
  for (int64_t i = 0; i < n; i++)
    if (a(i, i) == T(0)) return i + 1;
  const Mat<T> l = upper ? a.h() : a;  // upper: u^H u = l l^H with l = u^H
  Scratch<T> memory(n * n);
  memory.zero(n * n);
  const Mat<T> x{memory.get(), n, n, 1, n};
  for (int64_t i = 0; i < n; i++) x(i, i) = T(1);
  solve_triangular(l, false, false, x);
  solve_triangular(l.h(), true, false, x);
  for (int64_t j = 0; j < n; j++) {
    for (int64_t i = j; i < n; i++) {
      a(i, j) = x(i, j);
      a(j, i) = conj_if(x(i, j), true);
    }
    a(j, j) = T(real_part(x(j, j)));
  }
  return 0;
}

void cholesky_inverse(const TensorView& a, const TensorView& info, bool upper) {
  dispatch_linalg("cholesky_inverse", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const double n = static_cast<double>(a.sizes[a.ndim - 1]);
    for_each_item(batch_count(a, 2), 2 * n * n * n, [&](int64_t i) {
      *batch_item<int32_t>(info, i, 0) = static_cast<int32_t>(invert(matrix_of<T>(a, i), upper));
    });
  });
}

MT_REGISTER_KERNEL(cholesky_kernel, &cholesky);
MT_REGISTER_KERNEL(cholesky_inverse_kernel, &cholesky_inverse);

}  // namespace
}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
