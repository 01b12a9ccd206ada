// The exponential of a matrix by scaling, a diagonal Padé approximant, and squaring: N. J. Higham, "The scaling and
// squaring method for the matrix exponential revisited" (SIAM J. Matrix Anal. Appl. 2005). The degree and the scaling
// are chosen for each matrix from its 1-norm. Everything is computed in double precision: the squarings magnify errors.
#include "kernels/cpu/linalg_blocks.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace linalg {
namespace {

// The numerator's coefficients for each degree, from the constant; those of the denominator alternate in sign. `limit`
// is the largest norm for which the degree gives double precision.
struct Degree {
  int degree;
  double limit;
  double coefficients[14];
};
constexpr Degree kDegrees[] = {
    {3, 1.495585217958292e-2, {120, 60, 12, 1}},
    {5, 2.539398330063230e-1, {30240, 15120, 3360, 420, 30, 1}},
    {7, 9.504178996162932e-1, {17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1}},
    {9, 2.097847961257068, {17643225600, 8821612800, 2075673600, 302702400, 30270240, 2162160, 110880, 3960, 90, 1}},
    {13,
     5.371920351148152,
     {64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
      670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1}},
};

template <class T>
double norm1(const Mat<T>& a) {
  double norm = 0;
  for (int64_t j = 0; j < a.cols; j++) {
    double sum = 0;
    for (int64_t i = 0; i < a.rows; i++)
      sum += is_complex_v<T> ? std::hypot(double{real_part(a(i, j))}, double{imag_part(a(i, j))})
                             : std::abs(double{real_part(a(i, j))});
    if (!(sum <= norm)) norm = sum;  // NaN stays
  }
  return norm;
}

template <class T>
void exponential(const Mat<T>& a) {
  using D = std::conditional_t<is_complex_v<T>, Complex<double>, double>;
  constexpr int last = 4;
  const int64_t n = a.rows, size = n * n;
  const double norm = norm1(a);
  if (!(norm <= std::numeric_limits<double>::max())) {
    const T value = norm != norm ? T(nan_of<real_t<T>>()) : nan_of<T>();  // an infinity spoils both parts
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j < n; j++) a(i, j) = value;
    return;
  }
  int which = 0;
  while (which < last && norm > kDegrees[which].limit) which++;
  const Degree& d = kDegrees[which];
  int squarings = 0;
  for (double scaled_norm = norm; scaled_norm > d.limit; scaled_norm /= 2) squarings++;

  Scratch<D> memory(7 * size);
  const auto matrix = [&](int64_t k) { return Mat<D>{memory.get() + k * size, n, n, 1, n}; };
  const Mat<D> x = matrix(0), square = matrix(1), odd = matrix(4), even = matrix(5), work = matrix(6);
  const double factor = std::ldexp(1.0, -squarings);
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < n; i++) x(i, j) = scaled(D(a(i, j)), factor);
  // Powers x^2, x^4, x^6; of degrees above 7 the upper coefficients are factored out as x^6 (...).
  const int powers = d.degree == 13 ? 3 : std::min(d.degree / 2, 3);
  multiply<D>(1, x, x, 0, square);
  for (int p = 1; p < powers; p++) multiply<D>(1, matrix(p), square, 0, matrix(p + 1));
  // sum of c[first + 2 k] x^(2 k) for k <= count, plus `added` if given
  const auto polynomial = [&](int first, int count, const Mat<D>& out, const D* added) {
    for (int64_t i = 0; i < size; i++) {
      D sum = added != nullptr ? added[i] : D(0);
      for (int k = count; k >= 1; k--) sum += scaled(memory[k * size + i], d.coefficients[first + 2 * k]);
      out.p[i] = sum;
    }
    for (int64_t i = 0; i < n; i++) out(i, i) += D(d.coefficients[first]);
  };
  const auto series = [&](int first, const Mat<D>& out) {
    const int terms = (d.degree - first) / 2;  // the highest power of x^2
    if (terms <= powers) return polynomial(first, terms, out, nullptr);
    // x^6 (c[first + 8] x^2 + ...), the constant term being part of the lower ones
    for (int64_t i = 0; i < size; i++) {
      D sum(0);
      for (int k = terms - powers; k >= 1; k--)
        sum += scaled(memory[k * size + i], d.coefficients[first + 2 * (powers + k)]);
      work.p[i] = sum;
    }
    multiply<D>(1, matrix(powers), work, 0, out);
    polynomial(first, powers, out, out.p);
  };
  series(1, even);
  multiply<D>(1, x, even, 0, odd);
  series(0, even);
  // (even - odd) r = even + odd
  for (int64_t i = 0; i < size; i++) {
    work.p[i] = even.p[i] - odd.p[i];
    x.p[i] = even.p[i] + odd.p[i];
  }
  Scratch<int32_t, 512> pivots(n);
  factor_lu(work, Vec<int32_t>{pivots.get(), 1});
  solve_lu(work, Vec<int32_t>{pivots.get(), 1}, x, MatrixOp::none);
  Mat<D> result = x, other = square;
  for (int i = 0; i < squarings; i++) {
    multiply<D>(1, result, result, 0, other);
    const Mat<D> done = other;
    other = result, result = done;
  }
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < n; i++) a(i, j) = T(result(i, j));
}

void matrix_exp(const TensorView& a) {
  dispatch_linalg("matrix_exp", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const double n = static_cast<double>(a.sizes[a.ndim - 1]);
    for_each_item(batch_count(a, 2), 20 * n * n * n, [&](int64_t i) { exponential(matrix_of<T>(a, i)); });
  });
}
MT_REGISTER_KERNEL(matrix_exp_kernel, &matrix_exp);

}  // namespace
}  // namespace linalg
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
