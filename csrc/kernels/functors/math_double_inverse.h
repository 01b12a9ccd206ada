// Double precision: tangent and inverse trigonometric functions, powers. Branch free. Errors in units in the last
// place: inverse functions 0.8, tan 1.1, pow 1.2; the coefficients are fits by tools/fit_polynomials.py.
#pragma once
#include "kernels/functors/compensated.h"

#if !defined(__CUDA_ARCH__)
namespace minitorch::math {
inline namespace MINITORCH_ARCH {

namespace detail {

// atan(low / high) = base + (rest + t) for 0 <= low <= high, finite, high > 0, as atan(c) + atan(t) with c = 0, 1/2 or
// 1 and t = (low - c high) / (high + c low), whose rounding is put back (|t| <= 7/16: 2^-57.9).
struct Arc {
  double base, t, rest;
  MT_HD Arc(double low, double high) {
    constexpr double c[] = {-0.3333333333333333,  0.1999999999999941,  -0.14285714285566806,  0.11111111096645038,
                            -0.09090908355602592, 0.07692285554889286, -0.06666241923359964,  0.05876946456755061,
                            -0.05216679739313656, 0.04492259293193656, -0.033128134256069586, 0.014773184616983806};
    const bool outer = low >= 0.4375 * high, last = low >= 0.6875 * high;
    const double middle = outer ? 0.5 : 0.0, at = last ? 1.0 : middle;
    const double above = low - at * high, below = high + at * low;
    t = above / below;
    const double z = t * t, rounding = remainder(above, t, below) / below;
    const double half = outer ? 0.46364760900080609 : 0.0, half_low = outer ? 2.26987774529616870924e-17 : 0.0;
    base = last ? 0.78539816339744828 : half;
    rest = t * z * horner(z, c) + (rounding + (last ? 3.06161699786838301793e-17 : half_low));
  }
};

inline constexpr double kHalfPiLow = 6.123233995736766e-17;

// arcsin(x) - x on [0, 1/2] (2^-58.6).
MT_HD double asin_tail(double x, double z) {
  constexpr double c[] = {0.16666666666666666,  0.07500000000000118,  0.044642857142551895,  0.03038194447553234,
                          0.02237215744350722,  0.017352816540325496, 0.01396378001220357,   0.011566459612121669,
                          0.009621842970100282, 0.009319560794767446, 0.0030448799094556773, 0.019554513336123378,
                          -0.01924167174674304, 0.02961201126495512};
  return x * z * horner(z, c);
}

// For |x| > 1/2, arcsin and arccos of a half angle: s = sqrt((1 - |x|) / 2) = s + low.
struct HalfAngle {
  double s, low;
  MT_HD explicit HalfAngle(double a) {
    const double z = 0.5 * (1.0 - a), root = ::sqrt(z);
    const double kept = bit_cast<double>(bit_cast<uint64_t>(root) & 0xffffffff00000000ULL);  // its square is exact
    const double error = (z - kept * kept) / (root + kept);
    s = kept;
    low = (z > 0.0 ? error : 0.0) + asin_tail(root, z);
  }
};

}  // namespace detail

// sin / cos, each with the error of its last addition, and the quotient's own.
MT_HD double tan(double x) {
  const detail::TrigReduction t(x);
  const double half = 0.5 * (t.r * t.r), main = 1.0 - half;
  const double s_tail = detail::sin_tail<detail::Precision::full>(t.r, t.lo), s = t.r + s_tail;
  const double c_tail = detail::cos_tail<detail::Precision::full>(t.r, t.lo), c = main + c_tail;
  const double s_low = (t.r - s) + s_tail, c_low = (main - c) + c_tail;
  const bool odd = t.odd();
  const double above = odd ? -c : s, below = odd ? s : c, quotient = above / below;
  const double above_low = odd ? -c_low : s_low, below_low = odd ? s_low : c_low;
  const double rest = (detail::remainder(above, quotient, below) + above_low) - quotient * below_low;
  return x == 0.0 ? x : quotient + rest / below;
}
MT_HD double atan(double x) {
  const double a = ::fabs(x), most = a < 1e200 ? a : 1e200;
  const bool steep = a > 1.0;
  const detail::Arc arc(steep ? 1.0 : a, steep ? most : 1.0);
  const double sum = (steep ? detail::kHalfPi - arc.base : arc.base);
  const double lost = steep ? (detail::kHalfPi - sum) - arc.base + detail::kHalfPiLow : 0.0;
  const double value = steep ? sum - (arc.t + (arc.rest - lost)) : sum + (arc.t + arc.rest);
  return ::copysign(x != x ? x : value, x);
}
MT_HD double atan2(double y, double x) {
  const double ay = ::fabs(y), ax = ::fabs(x);
  const bool steep = ay > ax;
  double low = steep ? ax : ay, high = steep ? ay : ax;
  low = high == INFINITY ? (low == INFINITY ? 1.0 : 0.0) : low;
  high = high == INFINITY || high == 0.0 ? 1.0 : high;
  // Where the smaller one is near the subnormal numbers, the rest of the quotient would be lost among them.
  const double wide = low < 0x1p-900 ? 0x1p400 : 1.0, up = high < 0x1p-500 ? 0x1p500 : wide;
  const double scale = high > 0x1p500 ? 0x1p-200 : up;
  const detail::Arc arc(low * scale, high * scale);
  // angle = constant ± (base + rest + t), the constant being 0, pi/2 or pi
  const bool left = ::copysign(1.0, x) < 0.0;
  const double flat = left ? 2.0 * detail::kHalfPi : 0.0, constant = steep ? detail::kHalfPi : flat;
  const double flat_low = left ? 2.0 * detail::kHalfPiLow : 0.0, constant_low = steep ? detail::kHalfPiLow : flat_low;
  const double sign = steep != left ? -1.0 : 1.0, base = sign * arc.base;
  const double sum = constant + base, lost = (constant - sum) + base + constant_low;
  double value = sum + (sign * arc.t + (sign * arc.rest + lost));
  value = x != x ? x : value;
  value = y != y ? y : value;
  return ::copysign(value, y);
}
MT_HD double asin(double x) {
  const double a = ::fabs(x);
  const detail::HalfAngle h(a);
  const double inner = a + detail::asin_tail(a, a * a);
  const double outer = (detail::kHalfPi - 2.0 * h.s) - (2.0 * h.low - detail::kHalfPiLow);
  return ::copysign(a > 0.5 ? outer : inner, x);
}
MT_HD double acos(double x) {
  const double a = ::fabs(x);
  const detail::HalfAngle h(a);
  const double inner = detail::kHalfPi - (x + (detail::asin_tail(x, a * a) - detail::kHalfPiLow));
  const double right = 2.0 * (h.s + h.low);
  const double left = (2.0 * detail::kHalfPi - 2.0 * h.s) - (2.0 * h.low - 2.0 * detail::kHalfPiLow);
  return a > 0.5 ? (x < 0.0 ? left : right) : inner;
}

// What pow has to know of its exponent: values for bases that are zero, infinite or NaN, and how the sign of the base
// enters. For one exponent and many bases it is made once, and the loop over the bases has no condition on it.
struct Exponent {
  double y, at_zero, at_infinity, at_nan, nan_of_y, nan_of_fraction, odd;
  MT_HD explicit Exponent(double y) : y(y) {
    const double not_zero = y > 0.0 ? 0.0 : INFINITY, not_infinity = y > 0.0 ? INFINITY : 0.0;
    at_zero = y == 0.0 ? 1.0 : not_zero;
    at_infinity = y == 0.0 ? 1.0 : not_infinity;
    at_nan = y == 0.0 ? 1.0 : NAN;
    nan_of_y = y != y ? NAN : 0.0;
    // From 2^53 on all numbers are even integers.
    const double a = ::fabs(y), small = a < 9007199254740992.0 ? a : 0.0;
    const double integer = ::trunc(small), half = ::trunc(small * 0.5), not_even = half + half != small ? 1.0 : 0.0;
    nan_of_fraction = integer == small ? 0.0 : NAN;
    odd = integer == small ? not_even : 0.0;
  }
};

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
// exp(y log|x|), the logarithm in two doubles to 2^-65: with f = m - 1 and s = f / (2 + f), z = s^2, it is
// 2 s (1 + z (1/3 + z q(z))), of which only q needs no second part. C99 Annex F's special cases as selects.
MT_HD double pow(double x, const Exponent& y) {
  using detail::Product;
  const double a = ::fabs(x);
  const bool tiny = a < 2.2250738585072014e-308;
  const detail::LogReduction reduced(tiny ? a * 18014398509481984.0 : a);
  const double k = tiny ? reduced.k - 54.0 : reduced.k, m = reduced.m, f = m - 1.0;
  const double below = 1.0 + m, below_low = m - (below - 1.0);
  const double s = f / below, s_low = (detail::remainder(f, s, below) - s * below_low) / below;
  const Product z(s, s);
  const double z_low = z.low + 2.0 * s * s_low;
  constexpr double c[] = {0.2,
                          0.14285714285714682,
                          0.11111111110828116,
                          0.09090909167657202,
                          0.07692297485447729,
                          0.06667402119112673,
                          0.05853124270461193,
                          0.058615255140488765};
  constexpr double third = 0.33333333333333331, third_low = 1.850371707708594e-17;
  const Product cubic(z.high, third);
  const double quintic = z.high * z.high * detail::horner(z.high, c);
  const double w = cubic.high + quintic;
  const double w_low = ((cubic.high - w) + quintic) + (cubic.low + (z.high * third_low + z_low * third));
  const double twice = 2.0 * s;
  const Product g(twice, w);
  const double l = twice + g.high;
  const double l_low = ((twice - l) + g.high) + (g.low + (twice * w_low + 2.0 * s_low * (1.0 + w)));
  const double whole = k * detail::kLn2Hi, sum = whole + l;
  const double rest = ((whole - sum) + l) + (l_low + k * detail::kLn2Lo), log = sum + rest,
               log_low = (sum - log) + rest;
  const Product product(y.y, log);
  double exponent = product.high < -746.0 ? -746.0 : product.high;
  exponent = exponent > 710.0 ? 710.0 : exponent;
  const double exponent_low = product.low + y.y * log_low;
  const detail::ExpReduction e(exponent, exponent == product.high ? exponent_low : 0.0);
  const double half_n = (e.n * 0.5 + detail::kRound) - detail::kRound;
  double r = (e.exp() * detail::exp2_integer(half_n)) * detail::exp2_integer(e.n - half_n);
  r = a == 1.0 ? 1.0 : r;  // and not NaN for an infinite y
  r = a == 0.0 ? y.at_zero : r;
  r = a == INFINITY ? y.at_infinity : r;
  r = x != x ? y.at_nan : r;
  r += y.nan_of_y;
  const double sign = 1.0 + y.odd * (::copysign(1.0, x) - 1.0);
  double factor = x < 0.0 ? sign + y.nan_of_fraction : sign;
  factor = a == INFINITY ? sign : factor;
  r *= factor;
  return x == 1.0 ? 1.0 : r;
}
MT_HD double pow(double x, double y) { return pow(x, Exponent(y)); }
#else
MT_HD double pow(double x, double y) { return ::pow(x, y); }
MT_HD double pow(double x, const Exponent& y) { return ::pow(x, y.y); }
#endif

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::math
#endif
