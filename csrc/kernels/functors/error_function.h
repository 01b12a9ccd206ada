// The error function, its complement and the normal distribution function in double precision: polynomials in the
// middle, and beyond it exp(-x^2) times a polynomial in (x - 4) / (x + 4), with what the rounding of their large parts
// loses. Errors in units in the last place: erf 0.9, erfc 1.1, the distribution function 3. Coefficients are fits by
// tools/fit_double.py and tools/fit_polynomials.py; the number beside each is its error. Host only.
#pragma once
#include "kernels/functors/compensated.h"
#include "kernels/functors/math.h"

#if !defined(__CUDA_ARCH__)
namespace minitorch::math {
inline namespace MINITORCH_ARCH {

namespace detail {

inline constexpr double kErfMiddle = 0.5;
inline constexpr DoubleDouble kSqrtHalf{0.70710678118654752440, -4.833646656726457e-17};
inline constexpr DoubleDouble kSqrtTwoOverPi{0.79788456080286535588, -4.98465440455546e-17};
inline constexpr DoubleDouble kTwoOverSqrtPi{1.1283791670955126, 1.533545961316588e-17};

// erf(a) - a for 0 <= a <= 1 (2^-55.5, of erf).
MT_HD double erf_tail(double a) {
  constexpr double c[] = {0.1283791670955126,      -0.3761263890318375,     0.11283791670954879,
                          -0.026866170645076792,   0.0052239776248180145,   -0.000854832698083379,
                          0.0001205533111164271,   -1.4925595266831182e-05, 1.6461000484121368e-06,
                          -1.6350312701054695e-07, 1.4659775274047436e-08,  -1.1372848856791674e-09,
                          5.957176147748911e-11};
  return a * horner(a * a, c);
}
// erf(x) / x - 2 / sqrt(pi), over x^2, for |x| <= 1/2 as a polynomial in x^2 (2^-58).
MT_HD double erf_rest(double z) {
  constexpr double c[] = {-0.37612638903183754,    0.112837916709551,      -0.026866170645104014,
                          0.0052239776243227015,   -0.0008548326792781157, 0.00012055306252594572,
                          -1.4923827486228955e-05, 1.6389390291205426e-06, -1.4786787853202602e-07};
  return horner(z, c);
}

// exp(x^2) erfc(x) for x = a + low > 0.47 (2^-56.7), in the variable of erfc_single.
MT_HD DoubleDouble erfcx_sum(double a, double low = 0.0) {
  constexpr double c[] = {
      -0.13962111684056247,   0.015379652102621643,    0.0680970542546866,      -0.10103906603642124,
      0.09373283499859335,    -0.06633036580940076,    0.03716751553286352,     -0.016197734092811125,
      0.005031970027222043,   -0.0007577730331235333,  -0.00019925701661029213, 0.00015062050752074772,
      -2.439786161433743e-05, -1.1218585463480423e-05, 5.706010467481433e-06,   2.8726853968617557e-07,
      -8.187612762314277e-07, 8.237168879670687e-08,   1.0259370062815846e-07,  -2.3113869974344738e-08,
      -9.374896893959269e-09, 3.353327477775269e-09,   -2.5221569320012464e-11};
  constexpr double c0 = 1.2329951186255526, c0_low = -5.0645956184480586e-17;
  // At a rounded so that the next three sums are exact; the rest by the derivative, 2 x g(x) - 2 / sqrt(pi).
  const double first = a + 4.0, near = first - 4.0, rest = (a - near) + low;
  const double second = 1.0 + 2.0 * near, inverse = 1.0 / (first * second);
  const double t = (near - 4.0) * second * inverse;
  DoubleDouble p = fast_sum(c0, t * horner(t, c));
  p.low += c0_low;
  DoubleDouble g = quotient(p, {second, 0.0}, first * inverse);
  g.low += rest * (2.0 * near * g.high - kTwoOverSqrtPi.high);
  return g;
}

// erf(x) for |x| <= 1/2, and for larger ones exp(-x^2) exp(x^2) erfc(|x|), both with what their roundings lose and the
// second without its factor 2^n, which may be too small for a double.
struct ErrorFunction {
  DoubleDouble middle, tail;
  double power, n;  // power 2^n = exp(-x^2)

  MT_HD explicit ErrorFunction(double x) {
    const DoubleDouble square = Product(x, x), lead = times(kTwoOverSqrtPi, x);
    middle = fast_sum(lead.high, lead.low + x * (square.high * erf_rest(square.high)));
    const ExpReduction e(-square.high, -square.low);
    const DoubleDouble p = exp_sum(e);
    power = p.high;
    tail = times(p, erfcx_sum(::fabs(x)));
    n = e.n;
  }
};

}  // namespace detail

MT_HD double erf(double x) {
  const double a = ::fabs(x), inner = a > 1.0 ? 1.0 : a, outer = a > 7.0 ? 7.0 : a;
  const detail::DoubleDouble square = detail::Product(outer, outer);
  const detail::ExpReduction e(-square.high, -square.low);
  const double far = detail::erfcx_sum(outer).join() * (e.exp() * detail::exp2_integer(e.n));
  const double value = a < 1.0 ? inner + detail::erf_tail(inner) : 1.0 - far;
  return x != x ? x : ::copysign(value, x);
}
MT_HD double erfc(double x) {
  const double y = detail::limited(x, 28.0);
  const detail::ErrorFunction f(y);
  const detail::DoubleDouble near = detail::fast_sum(1.0, -f.middle.high);
  const double far = detail::scaled(f.tail.join(), f.n), outer = y < 0.0 ? 2.0 - far : far;
  return ::fabs(y) < detail::kErfMiddle ? near.high + (near.low - f.middle.low) : outer;
}
MT_HD double erf_plain(double x) { return erf(x); }

// The distribution function of the normal distribution, and its tail to the last digits.
MT_HD double normal_cdf(double x) {
  using namespace detail;
  const double a = ::fabs(x), y = a > 39.0 ? 39.0 : a;
  const DoubleDouble argument = times(kSqrtHalf, y), square = Product(y, y);
  const ExpReduction e(-0.5 * square.high, -0.5 * square.low);
  const double tail = scaled(0.5 * e.exp() * erfcx_sum(argument.high, argument.low).join(), e.n);
  const double z = 0.5 * square.high,
               middle = 0.5 + (0.5 * kSqrtTwoOverPi.high + kSqrtHalf.high * 0.5 * z * erf_rest(z)) * x;
  const double outer = x < 0.0 ? tail : 1.0 - tail;
  return argument.high < kErfMiddle ? middle : outer;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::math
#endif
