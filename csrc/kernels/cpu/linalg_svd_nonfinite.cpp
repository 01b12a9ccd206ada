// Singular values and vectors of matrices with infinities. LAPACK's gesdd first divides by the largest element, which
// leaves NaN of an infinity and zeros of everything else. What it then gives, numbers, NaN or the information that it
// does not converge, follows from which of its steps pass over zeros and which of its comparisons a NaN falsifies. The
// same steps are made here, on zeros and NaN.
#include <bit>

#include "kernels/cpu/linalg_blocks.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// Orders up to which the bidiagonal matrix is not divided, and up to which the reduction does not work in blocks.
constexpr int64_t kUndivided = 25;
template <class T>
constexpr int64_t kUnblocked = is_complex_v<T> ? 127 : 32;

template <class T>
void fill(const Mat<T>& a, T value) {
  for (int64_t j = 0; j < a.cols; j++)
    for (int64_t i = 0; i < a.rows; i++) a(i, j) = value;
}
template <class T>
void set_identity(const Mat<T>& a) {
  fill(a, T(0));
  for (int64_t i = 0; i < std::min(a.rows, a.cols); i++) a(i, i) = T(1);
}

// Whether a column gives a reflector of NaN, which then stand in it; else it is zero but for its first element.
template <class T>
bool reflects(const Mat<T>& column) {
  bool nonzero = imag_part(column(0, 0)) != 0;
  for (int64_t i = 1; i < column.rows; i++) nonzero |= !(column(i, 0) == T(0));
  if (nonzero) fill(column, nan_of<T>());
  return nonzero;
}
// The product of a reflector of NaN with a: zero columns at the end are left out if `short_of_zeros`, and all zeros
// where its vector is no more than its first element, which is one.
template <class T>
void reflect(const Mat<T>& a, bool short_of_zeros) {
  int64_t columns = short_of_zeros ? 0 : a.cols;
  for (int64_t j = 0; j < a.cols && short_of_zeros; j++)
    for (int64_t i = 0; i < a.rows; i++)
      if (!(a(i, j) == T(0))) columns = j + 1;
  for (int64_t j = 0; j < columns; j++)
    if (a.rows > 1 || !(a(0, j) == T(0))) fill(a.block(0, j, a.rows, 1), nan_of<T>());
}

// a = q r: its reflectors are applied whether they are the identity or not. Says which are NaN; r replaces a.
template <class T>
void factor_nonfinite(const Mat<T>& a, bool* is_nan) {
  for (int64_t k = 0; k < a.cols; k++) {
    is_nan[k] = reflects(a.block(k, k, a.rows - k, 1));
    for (int64_t j = k + 1; j < a.cols; j++) {
      bool spoiled = is_nan[k];
      for (int64_t i = k; i < a.rows; i++) spoiled |= !(a(i, j) == T(0));
      if (spoiled) fill(a.block(k, j, a.rows - k, 1), nan_of<T>());
    }
  }
  for (int64_t j = 0; j < a.cols; j++)
    for (int64_t i = j + 1; i < a.rows; i++) a(i, j) = T(0);
}

template <class T>
void bidiagonalise_nonfinite(const Mat<T>& a, double* d, double* e, bool* left, bool* right) {
  const int64_t m = a.rows, n = a.cols;
  for (int64_t i = 0; i < n; i++) {
    left[i] = reflects(a.block(i, i, m - i, 1));
    d[i] = static_cast<double>(real_part(a(i, i)));
    if (i + 1 == n) break;
    if (left[i]) reflect(a.block(i, i + 1, m - i, n - i - 1), true);
    right[i] = reflects(a.block(i, i + 1, 1, n - i - 1).t());
    e[i] = static_cast<double>(real_part(a(i, i + 1)));
    if (right[i]) reflect(a.block(i + 1, i + 1, m - i - 1, n - i - 1).t(), true);
  }
}

template <class T>
void exchange(const Mat<T>& x, const Mat<T>& y, double* d, int64_t i, int64_t j) {
  std::swap(d[i], d[j]);
  for (int64_t r = 0; r < x.rows; r++) std::swap(x(r, i), x(r, j));
  for (int64_t c = 0; c < y.cols; c++) std::swap(y(i, c), y(j, c));
}

// The QR iteration (bdsqr): x and y are identities of order n. Returns how many elements beside the diagonal stay.
template <class T>
int64_t iterate_nonfinite(int64_t n, double* d, double* e, const Mat<T>& x, const Mat<T>& y) {
  for (int64_t end = n; end > 1;) {
    int64_t first = end - 1;
    while (first > 0 && e[first - 1] != 0) first--;
    if (end - first > 2) {
      int64_t left = end - 1 - first;
      for (int64_t i = 0; i < first; i++) left += e[i] != 0;
      return left;
    }
    if (end - first == 2) {
      d[first] = d[first + 1] = kNan, e[first] = 0;
      fill(x.block(0, first, n, 2), T(std::numeric_limits<real_t<T>>::quiet_NaN()));
      fill(y.block(first, 0, 2, n), T(std::numeric_limits<real_t<T>>::quiet_NaN()));
    }
    end = first;
  }
  for (int64_t last = n - 1; last > 0; last--) {
    int64_t least = 0;
    for (int64_t j = 1; j <= last; j++)
      if (d[j] <= d[least]) least = j;
    if (least != last) exchange(x, y, d, least, last);
  }
  return 0;
}

// What the iteration returns for the halves of the halves of n rows and columns that are all NaN.
int64_t left_of_nan(int64_t n) {
  if (n > kUndivided) n >>= std::bit_width(static_cast<uint64_t>(n / (kUndivided + 1)));
  return n - 1;
}

// The singular values of a bidiagonal matrix (bdsdc) replace d.
template <class T>
int64_t decompose_bidiagonal(int64_t n, double* d, double* e, const Mat<T>& x, const Mat<T>& y) {
  set_identity(x), set_identity(y);
  if (n <= kUndivided) {
    if (const int64_t info = iterate_nonfinite(n, d, e, x, y)) return info;
  } else {
    constexpr double eps = std::numeric_limits<real_t<T>>::epsilon();
    for (int64_t i = 0; i < n; i++) d[i] = std::abs(d[i]) < eps ? eps : d[i];
    int64_t first = 0;
    for (int64_t i = 0; i + 1 < n; i++) {
      if (e[i] != 0 && i + 2 < n) continue;
      const int64_t rows = i + 1 - first;  // the last row is on its own even beside a NaN, which is not larger than eps
      if (rows > kUndivided) return left_of_nan(rows);
      if (const int64_t info = iterate_nonfinite(rows, d + first, e + first, x.block(first, first, rows, rows),
                                                 y.block(first, first, rows, rows)))
        return info;
      first = i + 1;
    }
  }
  for (int64_t i = 0; i + 1 < n; i++) {
    int64_t largest = i;
    for (int64_t j = i + 1; j < n; j++)
      if (d[j] > d[largest]) largest = j;
    if (largest != i) exchange(x, y, d, i, largest);
  }
  return 0;
}

// gesdd's choice to reduce a tall matrix to its triangular factor first.
template <class T>
bool is_tall(int64_t m, int64_t n) {
  return m >= (is_complex_v<T> ? 17 * n / 9 : 3 * n / 2);
}

}  // namespace

template <class T>
int64_t svd_nonfinite(const Mat<T>& given, const Mat<T>& u, const Vec<real_t<T>>& values, const Mat<T>& vh) {
  using R = real_t<T>;
  const int64_t m = given.rows, n = given.cols;
  Scratch<T, 8192> memory(m * n + n * n);
  Mat<T> a{memory.get(), m, n, 1, m};
  bool spoiled = false;  // elsewhere than in the first element
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < m; i++) {
      a(i, j) = scaled(given(i, j), R(0));
      spoiled |= i + j > 0 && !(a(i, j) == T(0));
    }
  if (n > kUnblocked<T> && spoiled) return left_of_nan(n - 1);  // blocks do not pass over zeros

  Scratch<bool> flags(3 * n);
  bool *const left = flags.get(), *const right = left + n, *const above = right + n;
  const bool tall = is_tall<T>(m, n);
  if (tall) {
    factor_nonfinite(a, above);
    a = a.block(0, 0, n, n);
  }
  Scratch<double, 2048> bidiagonal(2 * n);
  double *const d = bidiagonal.get(), *const e = d + n;
  bidiagonalise_nonfinite(a, d, e, left, right);
  const Mat<T> x{memory.get() + m * n, n, n, 1, n};
  if (const int64_t info = decompose_bidiagonal(n, d, e, x, vh)) return info;
  for (int64_t i = n - 2; i >= 0; i--)
    if (right[i]) reflect(vh.block(0, i + 1, n, n - i - 1).t(), false);
  for (int64_t i = 0; i < n; i++) values[i] = static_cast<R>(d[i] * std::numeric_limits<double>::infinity());

  const auto reflect_rows = [&](const Mat<T>& z) {
    for (int64_t i = n - 1; i >= 0; i--)
      if (left[i]) reflect(z.block(i, 0, z.rows - i, z.cols), false);
  };
  set_identity(u);
  if (!tall) {
    for (int64_t j = 0; j < n; j++)
      for (int64_t i = 0; i < n; i++) u(i, j) = x(i, j);
    reflect_rows(u);
    return 0;
  }
  reflect_rows(x);
  for (int64_t i = 0; i < n; i++)
    if (above[i]) fill(u.block(i, i, m - i, u.cols - i), nan_of<T>());
  Scratch<T, 8192> row(n);
  for (int64_t i = 0; i < m; i++) {
    for (int64_t k = 0; k < n; k++) row[k] = u(i, k);
    for (int64_t j = 0; j < n; j++) {
      T sum(0);
      for (int64_t k = 0; k < n; k++) sum += row[k] * x(k, j);
      u(i, j) = sum;
    }
  }
  return 0;
}

#define MT_SVD_NONFINITE(T) \
  template int64_t svd_nonfinite(const Mat<T>&, const Mat<T>&, const Vec<real_t<T>>&, const Mat<T>&);
MT_SVD_NONFINITE(float)
MT_SVD_NONFINITE(double)
MT_SVD_NONFINITE(Complex<float>)
MT_SVD_NONFINITE(Complex<double>)

}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
