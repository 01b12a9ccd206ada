// Factorisations against their definitions: products of the factors give the matrix back, orthogonal factors are
// orthogonal, solutions solve. Batches of three, orders on both sides of the block sizes, all four dtypes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "isas.h"
#include "memory.h"
#include "kernels/linalg.h"

namespace minitorch {
namespace {

template <class T>
double magnitude(T x) {
  if constexpr (is_complex_v<T>) {
    return std::hypot(static_cast<double>(x.re), static_cast<double>(x.im));
  } else {
    return std::abs(static_cast<double>(x));
  }
}
template <class T>
T adjoint(T x) {
  if constexpr (is_complex_v<T>) {
    return conj(x);
  } else {
    return x;
  }
}
template <class T>
real_t<T> real_part(T x) {
  if constexpr (is_complex_v<T>) {
    return x.re;
  } else {
    return x;
  }
}

// A batch of matrices, adjacent along rows or along columns.
template <class T>
struct Batch {
  int64_t count, rows, cols;
  bool by_columns;
  Vector<T> data;
  Batch(int64_t c, int64_t m, int64_t n, bool columns = true)
      : count(c),
        rows(m),
        cols(n),
        by_columns(columns),
        data(static_cast<size_t>(std::max<int64_t>(1, c * m * n)), T(0)) {}
  T& operator()(int64_t b, int64_t i, int64_t j) {
    return data[static_cast<size_t>(b * rows * cols + (by_columns ? j * rows + i : i * cols + j))];
  }
  TensorView view() {
    TensorView v{};
    v.data = reinterpret_cast<char*>(data.data());
    v.dtype = dtype_of<T>;
    v.ndim = 3;
    v.numel = count * rows * cols;
    v.sizes[0] = count, v.sizes[1] = rows, v.sizes[2] = cols;
    v.strides[0] = rows * cols, v.strides[1] = by_columns ? 1 : cols, v.strides[2] = by_columns ? rows : 1;
    return v;
  }
  // As a batch of vectors of length `cols`, and of numbers.
  TensorView vectors() {
    TensorView v = view();
    v.ndim = 2;
    v.sizes[1] = rows * cols, v.strides[1] = 1;
    return v;
  }
  TensorView numbers() {
    TensorView v = view();
    v.ndim = 1;
    return v;
  }
};

template <class T>
Batch<T> random_batch(int64_t count, int64_t m, int64_t n, unsigned seed, bool by_columns = true) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  Batch<T> a(count, m, n, by_columns);
  for (T& x : a.data) {
    if constexpr (is_complex_v<T>) {
      x.re = static_cast<real_t<T>>(normal(engine)), x.im = static_cast<real_t<T>>(normal(engine));
    } else {
      x = static_cast<T>(normal(engine));
    }
  }
  return a;
}
template <class T>
Batch<T> identity(int64_t count, int64_t n) {
  Batch<T> a(count, n, n);
  for (int64_t b = 0; b < count; b++)
    for (int64_t i = 0; i < n; i++) a(b, i, i) = T(1);
  return a;
}
template <class T>
Batch<T> product(Batch<T>& a, Batch<T>& b) {
  Batch<T> c(a.count, a.rows, b.cols);
  for (int64_t k = 0; k < a.count; k++)
    for (int64_t j = 0; j < b.cols; j++)
      for (int64_t l = 0; l < a.cols; l++) {
        const T x = b(k, l, j);
        for (int64_t i = 0; i < a.rows; i++) c(k, i, j) += a(k, i, l) * x;
      }
  return c;
}
template <class T>
Batch<T> adjoint(Batch<T>& a) {
  Batch<T> c(a.count, a.cols, a.rows);
  for (int64_t k = 0; k < a.count; k++)
    for (int64_t i = 0; i < a.rows; i++)
      for (int64_t j = 0; j < a.cols; j++) c(k, j, i) = adjoint(a(k, i, j));
  return c;
}
template <class T>
double distance(Batch<T>& a, Batch<T>& b) {
  double largest = 0;
  for (int64_t k = 0; k < a.count; k++)
    for (int64_t i = 0; i < a.rows; i++)
      for (int64_t j = 0; j < a.cols; j++) {
        const double d = magnitude(a(k, i, j) - b(k, i, j));
        if (!(d <= largest)) largest = d;
      }
  return largest;
}
// Rounding errors of a product of order n whose numbers are near 1.
template <class T>
double tolerance(int64_t n) {
  return 40 * static_cast<double>(std::numeric_limits<real_t<T>>::epsilon()) * static_cast<double>(n + 4);
}
template <class T>
Batch<T> positive(int64_t n, unsigned seed) {
  Batch<T> x = random_batch<T>(3, n, n, seed), h = adjoint(x), a = product(x, h);
  for (int64_t k = 0; k < 3; k++)
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j < n; j++)
        a(k, i, j) = a(k, i, j) * T(real_t<T>(1) / static_cast<real_t<T>>(n)) + (i == j ? T(1) : T(0));
  return a;
}
template <class T>
Batch<T> triangle(Batch<T>& a, bool upper, bool unit, int64_t m, int64_t n) {
  Batch<T> t(a.count, m, n);
  for (int64_t k = 0; k < a.count; k++)
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++)
        if (upper ? i <= j : i >= j) t(k, i, j) = i == j && unit ? T(1) : a(k, i, j);
  return t;
}

template <class T>
class Linalg : public testing::Test {};
using LinalgTestTypes = testing::Types<float, double, Complex<float>, Complex<double>>;
TYPED_TEST_SUITE(Linalg, LinalgTestTypes);

TYPED_TEST(Linalg, TriangularSystemsInAllForms) {
  using T = TypeParam;
  on_each_isa([] {
    for (const auto [n, k] : {std::pair<int64_t, int64_t>{1, 1}, {5, 3}, {33, 70}, {100, 2}})
      for (int form = 0; form < 48; form += short_tests() ? 5 : 1) {
        const bool left = form & 1, upper = form & 2, unit = form & 4, columns = form & 8;
        const auto op = static_cast<MatrixOp>(form >> 4);
        Batch<T> t = random_batch<T>(3, n, n, 1, columns);
        for (T& x : t.data) x = x * T(real_t<T>(0.5) / static_cast<real_t<T>>(n));
        for (int64_t b = 0; b < 3; b++)
          for (int64_t i = 0; i < n; i++) t(b, i, i) = t(b, i, i) + T(2);
        Batch<T> x = left ? random_batch<T>(3, n, k, 2, !columns) : random_batch<T>(3, k, n, 2, !columns), b = x;
        triangular_solve_kernel({t.view(), b.view(), left, upper, unit, op});
        Batch<T> full = triangle(t, upper, unit, n, n), turned = op == MatrixOp::none ? full : adjoint(full);
        if (op == MatrixOp::transpose)
          for (T& y : turned.data) y = adjoint(y);
        Batch<T> back = left ? product(turned, b) : product(b, turned);
        EXPECT_LE(distance(back, x), tolerance<T>(n)) << n << " form " << form;
      }
  });
}

TYPED_TEST(Linalg, CholeskyGivesTheMatrixBack) {
  using T = TypeParam;
  on_each_isa([] {
    for (const int64_t n : {1, 5, 32, 33, 100})
      for (const bool upper : {false, true}) {
        Batch<T> a = positive<T>(n, 3), f = a;
        Batch<int32_t> info(3, 1, 1);
        for (int64_t i = 0; i < n; i++)  // the other triangle is not touched, nor read
          for (int64_t j = 0; j < n; j++)
            if (upper ? i > j : i < j) f(1, i, j) = T(77);
        cholesky_kernel(f.view(), info.numbers(), upper);
        for (int64_t i = 0; i < n; i++)
          for (int64_t j = 0; j < n; j++)
            if (upper ? i > j : i < j) EXPECT_EQ(f(1, i, j), T(77));
        Batch<T> t = triangle(f, upper, false, n, n), h = adjoint(t), back = upper ? product(h, t) : product(t, h);
        EXPECT_LE(distance(back, a), tolerance<T>(n)) << n;
        for (int64_t k = 0; k < 3; k++) EXPECT_EQ(info(k, 0, 0), 0);
        cholesky_inverse_kernel(f.view(), info.numbers(), upper);
        Batch<T> unit = product(a, f), one = identity<T>(3, n);
        EXPECT_LE(distance(unit, one), 4 * tolerance<T>(n)) << n;
      }
    for (const int64_t n : {7, 80}) {
      Batch<T> a = positive<T>(n, 3);
      a(1, n - 2, n - 2) = T(-1);
      Batch<int32_t> info(3, 1, 1);
      cholesky_kernel(a.view(), info.numbers(), false);
      EXPECT_EQ(info(0, 0, 0), 0);
      EXPECT_EQ(info(1, 0, 0), n - 1);
      EXPECT_EQ(info(2, 0, 0), 0);
    }
  });
}

TYPED_TEST(Linalg, LuGivesTheMatrixBackAndSolves) {
  using T = TypeParam;
  on_each_isa([] {
    for (const auto [m, n] : {std::pair<int64_t, int64_t>{1, 1}, {7, 5}, {5, 7}, {33, 33}, {100, 70}, {40, 100}}) {
      const int64_t steps = std::min(m, n);
      Batch<T> a = random_batch<T>(3, m, n, 4), f = a;
      Batch<int32_t> pivots(3, steps, 1), info(3, 1, 1);
      lu_factor_kernel(f.view(), pivots.vectors(), info.numbers());
      Batch<T> l = triangle(f, false, true, m, steps), u = triangle(f, true, false, steps, n), back = product(l, u);
      for (int64_t k = 0; k < 3; k++) {
        EXPECT_EQ(info(k, 0, 0), 0);
        for (int64_t i = steps - 1; i >= 0; i--)
          for (int64_t j = 0; j < n; j++) std::swap(back(k, i, j), back(k, pivots(k, i, 0) - 1, j));
      }
      EXPECT_LE(distance(back, a), tolerance<T>(steps)) << m << "x" << n;
      for (const T& x : l.data) EXPECT_LE(magnitude(x), 1.5);
    }
    for (const int64_t n : {5, 70})
      for (const MatrixOp op : {MatrixOp::none, MatrixOp::transpose, MatrixOp::adjoint}) {
        Batch<T> a = positive<T>(n, 5), f = a, x = random_batch<T>(3, n, 3, 6, false), b = x;
        Batch<int32_t> pivots(3, n, 1), info(3, 1, 1);
        std::swap_ranges(&a.data[0], &a.data[static_cast<size_t>(n)], &a.data[static_cast<size_t>(n)]);
        f = a;
        lu_factor_kernel(f.view(), pivots.vectors(), info.numbers());
        lu_solve_kernel(f.view(), pivots.vectors(), b.view(), op);
        Batch<T> turned = op == MatrixOp::none ? a : adjoint(a);
        if (op == MatrixOp::transpose)
          for (T& y : turned.data) y = adjoint(y);
        Batch<T> back = product(turned, b);
        EXPECT_LE(distance(back, x), 10 * tolerance<T>(n));
      }
    Batch<T> singular = random_batch<T>(3, 40, 40, 7);
    for (int64_t i = 0; i < 40; i++) singular(1, i, 35) = T(0);
    Batch<int32_t> pivots(3, 40, 1), info(3, 1, 1);
    lu_factor_kernel(singular.view(), pivots.vectors(), info.numbers());
    EXPECT_EQ(info(0, 0, 0), 0);
    EXPECT_EQ(info(1, 0, 0), 36);
  });
}

TYPED_TEST(Linalg, QrIsOrthogonalTimesTriangular) {
  using T = TypeParam;
  on_each_isa([] {
    for (const auto [m, n] : {std::pair<int64_t, int64_t>{1, 1}, {7, 5}, {5, 7}, {33, 33}, {100, 70}, {40, 100}}) {
      const int64_t k = std::min(m, n);
      Batch<T> a = random_batch<T>(3, m, n, 8), f = a, tau(3, k, 1);
      qr_factor_kernel(f.view(), tau.vectors());
      Batch<T> q(3, m, m), r = triangle(f, true, false, m, n);
      for (int64_t b = 0; b < 3; b++)
        for (int64_t i = 0; i < m; i++)
          for (int64_t j = 0; j < k; j++) q(b, i, j) = f(b, i, j);
      qr_product_kernel(q.view(), tau.vectors());
      Batch<T> back = product(q, r), h = adjoint(q), unit = product(h, q), one = identity<T>(3, m);
      EXPECT_LE(distance(back, a), tolerance<T>(m)) << m << "x" << n;
      EXPECT_LE(distance(unit, one), tolerance<T>(m)) << m << "x" << n;
      for (int form = 0; form < 4; form++) {
        const bool left = form & 1, turned = form & 2;
        Batch<T> c = left ? random_batch<T>(3, m, 6, 9) : random_batch<T>(3, 6, m, 9), given = c;
        qr_multiply_kernel(f.view(), tau.vectors(), c.view(), left, turned);
        Batch<T>& factor = turned ? h : q;
        Batch<T> expected = left ? product(factor, given) : product(given, factor);
        EXPECT_LE(distance(c, expected), tolerance<T>(m)) << m << "x" << n << " form " << form;
      }
    }
  });
}

TYPED_TEST(Linalg, EigenvectorsOfHermitianMatrices) {
  using T = TypeParam;
  using R = real_t<T>;
  on_each_isa([] {
    for (const int64_t n : {1, 2, 6, 33, 65, 100})
      for (const bool upper : {false, true}) {
        if (short_tests() && n > 33) continue;
        Batch<T> x = random_batch<T>(3, n, n, 10), h = adjoint(x), a(3, n, n);
        for (size_t i = 0; i < a.data.size(); i++) a.data[i] = x.data[i] + h.data[i];
        for (int64_t i = 0; i < n; i++)
          for (int64_t j = 0; j < n; j++) a(2, i, j) = T(i == j ? 1 : 0);  // all eigenvalues equal
        Batch<T> v = a;
        for (int64_t i = 0; i < n; i++)
          for (int64_t j = 0; j < n; j++)
            if (upper ? i > j : i < j) v(1, i, j) = T(77);
        Batch<R> w(3, n, 1), only(3, n, 1);
        Batch<int32_t> info(3, 1, 1);
        Batch<T> scratch = v;
        eigh_kernel(w.vectors(), v.view(), info.numbers(), upper, true);
        eigh_kernel(only.vectors(), scratch.view(), info.numbers(), upper, false);
        Batch<T> av = product(a, v), vw = v, vh = adjoint(v), unit = product(vh, v), one = identity<T>(3, n);
        for (int64_t k = 0; k < 3; k++)
          for (int64_t j = 0; j < n; j++) {
            for (int64_t i = 0; i < n; i++) vw(k, i, j) = v(k, i, j) * T(w(k, j, 0));
            if (j > 0) EXPECT_LE(w(k, j - 1, 0), w(k, j, 0));
            EXPECT_NEAR(w(k, j, 0), only(k, j, 0), tolerance<T>(n));
          }
        EXPECT_LE(distance(av, vw), tolerance<T>(n)) << n;
        EXPECT_LE(distance(unit, one), tolerance<T>(n)) << n;
        EXPECT_EQ(info(0, 0, 0), 0);
      }
  });
}

TYPED_TEST(Linalg, SingularValueDecompositions) {
  using T = TypeParam;
  using R = real_t<T>;
  on_each_isa([] {
    for (const auto [m, n] : {std::pair<int64_t, int64_t>{1, 1}, {7, 5}, {5, 7}, {33, 33}, {100, 70}, {40, 100}})
      for (const bool full : {false, true}) {
        if (short_tests() && std::max(m, n) > 33) continue;
        const int64_t k = std::min(m, n);
        Batch<T> a = random_batch<T>(3, m, n, 11);
        for (int64_t i = 0; i < m; i++)  // of low rank: equal columns
          for (int64_t j = 2; j < n; j++) a(1, i, j) = a(1, i, j % 2);
        for (int64_t i = 0; i < m; i++)
          for (int64_t j = 0; j < n; j++) a(2, i, j) = T(0);
        Batch<T> u(3, m, full ? m : k), vh(3, full ? n : k, n, false), given = a;
        Batch<R> s(3, k, 1), only(3, k, 1);
        Batch<int32_t> info(3, 1, 1);
        svd_kernel({a.view(), u.view(), s.vectors(), vh.view(), info.numbers(), true});
        svd_kernel({a.view(), u.view(), only.vectors(), vh.view(), info.numbers(), false});
        EXPECT_EQ(distance(a, given), 0);
        Batch<T> us(3, m, k), v(3, k, n);
        for (int64_t b = 0; b < 3; b++)
          for (int64_t j = 0; j < k; j++) {
            for (int64_t i = 0; i < m; i++) us(b, i, j) = u(b, i, j) * T(s(b, j, 0));
            for (int64_t i = 0; i < n; i++) v(b, j, i) = vh(b, j, i);
            EXPECT_GE(s(b, j, 0), R(0));
            if (j > 0) EXPECT_GE(s(b, j - 1, 0), s(b, j, 0));
            EXPECT_NEAR(s(b, j, 0), only(b, j, 0), tolerance<T>(m + n));
          }
        Batch<T> back = product(us, v), uh = adjoint(u), left = product(uh, u), vt = adjoint(vh),
                 right = product(vh, vt);
        Batch<T> one_left = identity<T>(3, u.cols), one_right = identity<T>(3, vh.rows);
        EXPECT_LE(distance(back, a), tolerance<T>(m + n)) << m << "x" << n;
        EXPECT_LE(distance(left, one_left), tolerance<T>(m)) << m << "x" << n;
        EXPECT_LE(distance(right, one_right), tolerance<T>(n)) << m << "x" << n;
        EXPECT_EQ(info(0, 0, 0), 0);
      }
  });
}

TYPED_TEST(Linalg, IndefiniteSystemsByLdl) {
  using T = TypeParam;
  on_each_isa([] {
    for (const int64_t n : {1, 2, 7, 40})
      for (const bool hermitian : {false, true}) {
        Batch<T> a = random_batch<T>(3, n, n, 12);
        for (int64_t k = 0; k < 3; k++)
          for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < i; j++) a(k, j, i) = hermitian ? adjoint(a(k, i, j)) : a(k, i, j);
            a(k, i, i) = k == 1 && i % 2 == 0 && n > 1 ? T(0) : T(real_part(a(k, i, i)));  // blocks of order two
          }
        Batch<T> f = a, x = random_batch<T>(3, n, 4, 13, false), b = x;
        for (int64_t i = 0; i < n; i++)
          for (int64_t j = i + 1; j < n; j++) f(0, i, j) = T(77);
        Batch<int32_t> pivots(3, n, 1), info(3, 1, 1);
        ldl_factor_kernel(f.view(), pivots.vectors(), info.numbers(), hermitian);
        ldl_solve_kernel(f.view(), pivots.vectors(), b.view(), hermitian);
        Batch<T> back = product(a, b);
        EXPECT_LE(distance(back, x), 200 * tolerance<T>(n)) << n;
        for (int64_t k = 0; k < 3; k++) EXPECT_EQ(info(k, 0, 0), 0);
      }
  });
}

TYPED_TEST(Linalg, EigenvectorsOfGeneralMatrices) {
  using T = TypeParam;
  using C = Complex<real_t<T>>;
  on_each_isa([] {
    for (const int64_t n : {1, 2, 3, 10, 50}) {
      Batch<T> a = random_batch<T>(3, n, n, 15);
      for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) a(1, i, j) = T(0);  // triangular
      Batch<C> wide(3, n, n), w(3, n, 1), only(3, n, 1), v(3, n, n);
      for (size_t i = 0; i < a.data.size(); i++) wide.data[i] = C(a.data[i]);
      Batch<int32_t> info(3, 1, 1);
      eig_kernel({a.view(), w.vectors(), v.view(), info.numbers(), true});
      eig_kernel({a.view(), only.vectors(), v.view(), info.numbers(), false});
      Batch<C> av = product(wide, v), vw = v;
      for (int64_t k = 0; k < 3; k++) {
        EXPECT_EQ(info(k, 0, 0), 0);
        C trace(0), sum(0), sum_only(0);
        for (int64_t j = 0; j < n; j++) {
          double norm = 0;
          for (int64_t i = 0; i < n; i++) {
            vw(k, i, j) = v(k, i, j) * w(k, j, 0);
            norm += magnitude(v(k, i, j)) * magnitude(v(k, i, j));
          }
          EXPECT_NEAR(norm, 1, tolerance<T>(n));
          trace += wide(k, j, j), sum += w(k, j, 0), sum_only += only(k, j, 0);
        }
        EXPECT_LE(magnitude(sum - trace), tolerance<T>(n));
        EXPECT_LE(magnitude(sum_only - trace), tolerance<T>(n));
      }
      EXPECT_LE(distance(av, vw), tolerance<T>(n)) << n;
    }
  });
}

TYPED_TEST(Linalg, ExponentialsOfSumsThatCommute) {
  using T = TypeParam;
  using R = real_t<T>;
  on_each_isa([] {
    for (const int64_t n : {1, 4, 40}) {
      Batch<T> a = random_batch<T>(3, n, n, 14), half = a;
      for (size_t i = 0; i < a.data.size(); i++) {  // norms from tiny to those that are scaled
        const R size = static_cast<R>(i < a.data.size() / 3 ? 1e-3 : 1.0) / static_cast<R>(n);
        a.data[i] = a.data[i] * T(3 * size), half.data[i] = half.data[i] * T(R(1.5) * size);
      }
      for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) a(2, i, j) = T(i == j ? 8 : 0), half(2, i, j) = T(i == j ? 4 : 0);
      matrix_exp_kernel(a.view());
      matrix_exp_kernel(half.view());
      Batch<T> squared = product(half, half);
      for (int64_t i = 0; i < n; i++) {
        EXPECT_NEAR(real_part(a(2, i, i)), std::exp(8.0), std::exp(8.0) * tolerance<T>(1));
        a(2, i, i) = squared(2, i, i) = T(0);
      }
      EXPECT_LE(distance(squared, a), 20 * tolerance<T>(n)) << n;
    }
  });
}

TEST(LinalgPieces, PivotsBecomePermutations) {
  on_each_isa([] {
    Vector<int64_t> permutation(8);
    for (int64_t i = 0; i < 8; i++) permutation[static_cast<size_t>(i)] = i % 4;
    Vector<int32_t> pivots = {3, 2, 4, 4, 1, 4, 3, 4};
    PointwiseView v{};
    v.ndim = 1, v.num_outputs = 1, v.num_operands = 2, v.numel = v.sizes[0] = 2;
    v.data[0] = reinterpret_cast<char*>(permutation.data()), v.data[1] = reinterpret_cast<char*>(pivots.data());
    v.dtype[0] = DType::I64, v.dtype[1] = DType::I32;
    v.strides[0][0] = 32, v.strides[1][0] = 16;
    bool valid = false;
    unpack_pivots_kernel(v, 4, 4, &valid);
    EXPECT_TRUE(valid);
    const int64_t expected[] = {2, 1, 3, 0, 0, 3, 2, 1};
    for (size_t i = 0; i < 8; i++) EXPECT_EQ(permutation[i], expected[i]) << i;
    pivots[5] = 5;
    unpack_pivots_kernel(v, 4, 4, &valid);
    EXPECT_FALSE(valid);
  });
}

TEST(LinalgPieces, CrossProducts) {
  on_each_isa([] {
    Batch<int64_t> a(3, 5, 3, false), b(3, 5, 3, false), out(3, 5, 3, false);
    for (size_t i = 0; i < a.data.size(); i++)
      a.data[i] = static_cast<int64_t>(i * i % 17) - 5, b.data[i] = (int64_t{1} << 40) + static_cast<int64_t>(i);
    cross_kernel(out.view(), a.view(), b.view());
    for (int64_t k = 0; k < 3; k++)
      for (int64_t i = 0; i < 5; i++)
        for (int64_t j = 0; j < 3; j++) {
          const int64_t x = (j + 1) % 3, y = (j + 2) % 3;
          EXPECT_EQ(out(k, i, j), a(k, i, x) * b(k, i, y) - a(k, i, y) * b(k, i, x));
        }
  });
}

}  // namespace
}  // namespace minitorch
