// Elementary functions as branch-free polynomials, so that loops over them vectorise.
//
// Single precision (but for exp, which has its own) is computed in double: the polynomials need only about 30 bits, no
// step needs a compensation, and the result is correctly rounded but for about one case in a hundred, with or without
// fused multiply-add. It costs less than single precision with compensation. Double precision has polynomials for the
// functions that models spend time in and libm for the rest. Coefficients are Chebyshev or rational least-squares fits,
// made in 50-digit arithmetic by tools/fit_polynomials.py; the number after each name is its error there. On a GPU all
// of it is CUDA's own library.
#pragma once
#include <math.h>  // not <cmath>: this one declares the overloads for float in the global namespace
#include <cstdint>

#include "core/half.h"
#include "core/macros.h"

namespace minitorch::math {
inline namespace MINITORCH_ARCH {

// clang-format off
// X(name): functions of one argument with the same name in libm.
#define MT_LIBM_UNARY(X)                                                                    \
  X(exp) X(exp2) X(expm1) X(log) X(log2) X(log10) X(log1p) X(sin) X(cos) X(tan) X(asin)     \
  X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) X(atanh) X(erf) X(erfc)
// clang-format on

inline constexpr double kPi = 3.14159265358979323846;

#if defined(__CUDA_ARCH__)

#define MT_DEFINE(name)                              \
  MT_HD float name(float x) { return ::name##f(x); } \
  MT_HD double name(double x) { return ::name(x); }
MT_LIBM_UNARY(MT_DEFINE)
#undef MT_DEFINE
MT_HD float atan2(float y, float x) { return ::atan2f(y, x); }
MT_HD double atan2(double y, double x) { return ::atan2(y, x); }
MT_HD float pow(float x, float y) { return ::powf(x, y); }
MT_HD double pow(double x, double y) { return ::pow(x, y); }
MT_HD float hypot(float x, float y) { return ::hypotf(x, y); }
MT_HD double hypot(double x, double y) { return ::hypot(x, y); }
template <class T>
MT_HD T erf_plain(T x) {
  return erf(x);
}
template <class T>
MT_HD T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}

#else

namespace detail {
using ::minitorch::detail::bit_cast;

inline constexpr double kLn2Hi = 6.93147180369123816490e-01;  // 33 bits: n * kLn2Hi is exact for |n| < 2^20
inline constexpr double kLn2Lo = 1.90821492927058770002e-10;
inline constexpr double kLog2e = 1.44269504088896340736;
inline constexpr double kHalfPi = 1.57079632679489661923;
// Adding and subtracting it rounds to an integer; after the addition the low mantissa bits hold that integer.
inline constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52

// Horner's rule, the constant coefficient first.
template <int N>
MT_HD double horner(double x, const double (&c)[N]) {
  double r = c[N - 1];
#pragma GCC unroll 24
  for (int i = N - 2; i >= 0; i--) r = r * x + c[i];
  return r;
}

// 2^n for an integer-valued n in [-1022, 1023].
MT_HD double exp2_integer(double n) {
  return bit_cast<double>((bit_cast<uint64_t>(n + kRound) << 52) + (uint64_t{1023} << 52));
}

enum class Precision { single, full };

// expm1(r) - r for |r| <= ln2/2 (single 2^-32, full 2^-61, of expm1).
template <Precision P>
MT_HD double expm1_tail(double r) {
  if constexpr (P == Precision::single) {
    constexpr double c[] = {0.5000000013457727,   0.16666666681614256,   0.04166646500604005,
                            0.008333310934448869, 0.0013933641031986701, 0.00019890980869750327};
    return r * r * horner(r, c);
  } else {
    constexpr double c[] = {0.5,
                            0.16666666666666666,
                            0.04166666666666668,
                            0.008333333333333333,
                            0.0013888888888879082,
                            0.00019841269841263304,
                            2.480158733642132e-05,
                            2.755731924720479e-06,
                            2.755726330147475e-07,
                            2.5052071109214447e-08,
                            2.0918129454967065e-09,
                            1.6086622436215554e-10};
    return r * r * horner(r, c);
  }
}
template <Precision P>
MT_HD double expm1_reduced(double r) {
  return r + expm1_tail<P>(r);
}

// Cody-Waite reduction x = n ln2 + r + low.
struct ExpReduction {
  double n, r, low;
  MT_HD explicit ExpReduction(double x) {
    n = (x * kLog2e + kRound) - kRound;
    const double first = x - n * kLn2Hi, rest = n * kLn2Lo;
    r = first - rest;
    low = (first - r) - rest;
  }
  // exp(r + low)
  MT_HD double exp() const { return 1.0 + (r + (expm1_tail<Precision::full>(r) + low)); }
};

// exp to single precision for any x; saturates beyond the range of float, far inside the range of double.
MT_HD double exp_single(double x) {
  x = x < -200.0 ? -200.0 : x;
  x = x > 200.0 ? 200.0 : x;
  const ExpReduction e(x);
  return (1.0 + expm1_reduced<Precision::single>(e.r)) * exp2_integer(e.n);
}

MT_HD double exp_full(double x) {
  double y = x < -746.0 ? -746.0 : x;
  y = y > 710.0 ? 710.0 : y;
  const ExpReduction e(y);
  const double half = (e.n * 0.5 + kRound) - kRound;  // in two steps, for subnormal results
  return (e.exp() * exp2_integer(half)) * exp2_integer(e.n - half);
}

// expm1 for -746 <= x <= 700, as a sum.
struct Expm1 {
  double high, low;
  MT_HD explicit Expm1(double x) {
    const ExpReduction e(x);
    const double scale = exp2_integer(e.n < -1000.0 ? -1000.0 : e.n);
    high = scale * e.r + (scale - 1.0);
    low = scale * (expm1_tail<Precision::full>(e.r) + (e.low + e.low * e.r));
  }
  MT_HD double sum() const { return high + low; }
};

// A positive normal x = 2^k m with m in [sqrt(1/2), sqrt(2)).
struct LogReduction {
  double k, m;
  MT_HD explicit LogReduction(double x) {
    const uint64_t bits = bit_cast<uint64_t>(x), one = uint64_t{1023} << 52;
    const uint64_t shifted = bits - 0x3fe6a09e667f3bcdULL + one;
    k = bit_cast<double>((shifted >> 52) | 0x4330000000000000ULL) - 4503599627371519.0;  // 2^52 + 1023
    m = bit_cast<double>(bits - ((shifted & 0xfff0000000000000ULL) - one));
  }
};

// log(1 + f) = f - f^2/2 + correction: with s = f/(2+f), log(1+f) = 2 atanh(s) (fdlibm's e_log.c explains the scheme).
template <Precision P>
MT_HD double log_correction(double f) {
  const double s = f / (2.0 + f), z = s * s, square = 0.5 * f * f;
  double r;
  if constexpr (P == Precision::single) {  // 2^-43
    constexpr double c[] = {0.3333333333368754, 0.19999999398668794, 0.14285877267957245, 0.11095700415154251,
                            0.09681326857101004};
    r = horner(z, c);
  } else {  // 2^-61
    constexpr double c[] = {0.3333333333333333,  0.2000000000000044,  0.14285714285401807, 0.11111111195856958,
                            0.09090897820066453, 0.07693119851407329, 0.06634386569328443, 0.06543313073920051};
    r = horner(z, c);
  }
  return s * (square + 2.0 * z * r);
}

// log of a positive normal double.
template <Precision P>
MT_HD double log_normal(double x) {
  const LogReduction e(x);
  const double f = e.m - 1.0;
  return e.k * kLn2Hi - ((0.5 * f * f - (log_correction<P>(f) + e.k * kLn2Lo)) - f);
}

// Puts the special cases of a logarithm around its value: NaN below zero, -inf at zero, inf and NaN themselves.
MT_HD double log_special(double x, double value) {
  value = x < INFINITY ? value : x;
  value = x == 0.0 ? -INFINITY : value;
  return x < 0.0 ? NAN : value;
}

template <Precision P>
MT_HD double log_any(double x) {
  if constexpr (P == Precision::single) {  // a subnormal float is a normal double
    return log_special(x, log_normal<P>(x));
  } else {
    const bool tiny = x < 2.2250738585072014e-308;
    const double value = log_normal<P>(tiny ? x * 18014398509481984.0 : x);
    return log_special(x, tiny ? value - 54 * 0.69314718055994530942 : value);
  }
}

// Sine and cosine of x = q pi/2 + r, |x| <= kTrigMax (beyond, functors take libm's; see Fallback in
// functors/pointwise.h).
inline constexpr double kTrigMax = 1e6;
struct TrigReduction {
  double r, lo;
  uint64_t q;
  MT_HD explicit TrigReduction(double x) {
    const double shifted = x * 0.63661977236758134308 + kRound, n = shifted - kRound;
    q = bit_cast<uint64_t>(shifted);
    // pi/2 in three parts of 33, 33 and 53 bits.
    const double first = x - n * 1.57079632673412561417e+00, w = n * 6.07710050630396597660e-11;
    const double second = first - w, tail = n * 2.02226624879595063154e-21;
    r = second - tail;
    lo = ((first - second) - w) + ((second - r) - tail);
  }
  MT_HD bool odd() const { return bit_cast<double>((q & 1) << 62) != 0.0; }
};
template <Precision P>
MT_HD double sin_reduced(double r, double lo) {
  const double z = r * r;
  if constexpr (P == Precision::single) {  // 2^-36
    constexpr double c[] = {-0.16666666663741367, 0.00833333183062943, -0.00019840063040804117, 2.7246868722877944e-06};
    return r + r * z * horner(z, c);
  } else {  // 2^-57
    constexpr double c[] = {-0.16666666666666666,   0.008333333333333331,    -0.00019841269841264821,
                            2.7557319219150783e-06, -2.5052106167335705e-08, 1.6058521349954986e-10,
                            -7.586094789672621e-13};
    return r + (r * z * horner(z, c) + lo * (1.0 - 0.5 * z));
  }
}
template <Precision P>
MT_HD double cos_reduced(double r, double lo) {
  const double z = r * r;
  if constexpr (P == Precision::single) {  // 2^-30
    constexpr double c[] = {0.04166666459882798, -0.0013888291300556933, 2.4545419078353295e-05};
    return (1.0 - 0.5 * z) + z * z * horner(z, c);
  } else {  // 2^-60
    constexpr double c[] = {0.041666666666666664,   -0.0013888888888887322, 2.4801587298651292e-05,
                            -2.755731721268659e-07, 2.0876134024090145e-09, -1.1381754653662937e-11};
    const double half = 0.5 * z, main = 1.0 - half;
    return main + (((1.0 - main) - half) + (z * z * horner(z, c) - r * lo));
  }
}
MT_HD double flip_sign(double x, uint64_t sign_in_bit_1) {
  return bit_cast<double>(bit_cast<uint64_t>(x) ^ ((sign_in_bit_1 & 2) << 62));
}
template <Precision P>
MT_HD double sin(double x) {
  const TrigReduction t(x);
  const double s = sin_reduced<P>(t.r, t.lo), c = cos_reduced<P>(t.r, t.lo);
  const double value = flip_sign(t.odd() ? c : s, t.q);
  return x == 0.0 ? x : value;
}
template <Precision P>
MT_HD double cos(double x) {
  const TrigReduction t(x);
  const double s = sin_reduced<P>(t.r, t.lo), c = cos_reduced<P>(t.r, t.lo);
  return flip_sign(t.odd() ? s : c, t.q + (t.odd() ? 1 : 0));
}

// atan on [0, 1] (2^-36).
MT_HD double atan_unit(double x) {
  constexpr double c[] = {0.9999999999887381,    -0.3333333295165722,  0.19999978336217084,  -0.1428522560816021,
                          0.11105306732424464,   -0.09049179093720577, 0.07495262378099696,  -0.06022196387937433,
                          0.04364658944281667,   -0.02600599597760862, 0.011427633277375594, -0.0031954252407363944,
                          0.00041922786011272897};
  return x * horner(x * x, c);
}
// asin on [0, 1/2] (2^-42).
MT_HD double asin_half(double x) {
  constexpr double c[] = {0.16666666666738633,  0.07499999953429712,  0.044642906474584965,
                          0.030379945210024933, 0.022412417726695433, 0.016902683886393575,
                          0.01686409027396012,  0.001067506315036312, 0.02834674523183333};
  const double z = x * x;
  return x + x * z * horner(z, c);
}
// erf(x) = x P(x^2) / Q(x^2) on |x| <= 3.96 (2^-28.6), where float has reached 1.
MT_HD double erf_single(double x) {
  constexpr double p[] = {1.1283791697859729,   0.1926885397623343,    0.055671399194791985,
                          0.004211680789783931, 0.0004086587830385657, 6.695467787012239e-06};
  constexpr double q[] = {1.0,
                          0.5040991998038158,
                          0.11736994839649335,
                          0.016256984223672555,
                          0.001414798490310916,
                          7.18756779328962e-05,
                          2.5506646377234185e-07};
  double z = x * x;
  z = z > 15.7 ? 15.7 : z;
  const double value = x * horner(z, p) / horner(z, q);
  return x * x >= 15.7 ? ::copysign(1.0, x) : value;
}
// erfc(x) = exp(-x^2) E(t) / (1 + 2x) for x >= 0 with t = (x-4)/(x+4) (2^-31; Shepherd and Laframboise, "Chebyshev
// approximation of (1+2x)exp(x^2)erfc x", Math. Comp. 36, 1981).
MT_HD double erfc_single(double x) {
  constexpr double c[] = {1.2329951186703114,   -0.13962111166615568, 0.015379642766675982,   0.06809681374084053,
                          -0.10103885987756042, 0.09373608059141741,  -0.06633139203611195,   0.03714864327833594,
                          -0.01619939929221016, 0.005084005527570462, -0.0007374951167361166, -0.00026241805201930954,
                          0.0001143988424097542};
  double a = ::fabs(x);
  a = a > 14.0 ? 14.0 : a;
  const double tail = exp_single(-a * a) * horner((a - 4.0) / (a + 4.0), c) / (1.0 + 2.0 * a);
  return x < 0.0 ? 2.0 - tail : tail;
}
// tanh(x) = x P(x^2) / Q(x^2) on |x| <= 9.1 (2^-34), where float has reached 1.
MT_HD double tanh_single(double x) {
  constexpr double p[] = {0.9999999999559934,    0.1409597736197665,     0.004421638508247756,
                          4.216240113825693e-05, 1.1053435192716154e-07, 3.634189763864399e-11};
  constexpr double q[] = {1.0,
                          0.4742931064935371,
                          0.029186008161551896,
                          0.000500004236950855,
                          2.593492221571358e-06,
                          2.927331754462334e-09};
  double z = x * x;
  z = z > 82.8 ? 82.8 : z;
  const double value = x * horner(z, p) / horner(z, q);
  return x * x >= 82.8 ? ::copysign(1.0, x) : value;
}
}  // namespace detail

// In single precision throughout, as what models spend most time in (error below 0.8 units in the last place):
// reduction and polynomial as in exp_single.
MT_HD float exp(float x) {
  constexpr float round = 12582912.0f;  // 1.5 * 2^23
  float y = x < -104.0f ? -104.0f : x;
  y = y > 89.0f ? 89.0f : y;
  const float n = (y * 1.44269504f + round) - round;
  const float r = (y - n * 0.693359375f) - n * -2.12194440e-4f;
  float q = 1.9890980e-4f;
  q = q * r + 1.3933641e-3f;
  q = q * r + 8.3333109e-3f;
  q = q * r + 4.1666465e-2f;
  q = q * r + 1.6666667e-1f;
  q = q * r + 0.5f;
  const float p = (q * (r * r) + r) + 1.0f;
  const float half = (n * 0.5f + round) - round;  // 2^n in two steps, for subnormal results
  const uint32_t one = 127u << 23;
  const float first = detail::bit_cast<float>((detail::bit_cast<uint32_t>(half + round) << 23) + one);
  const float second = detail::bit_cast<float>((detail::bit_cast<uint32_t>(n - half + round) << 23) + one);
  return (p * first) * second;
}
MT_HD double exp(double x) { return detail::exp_full(x); }
MT_HD float exp2(float x) {
  const double d = x, y = d < -200.0 ? -200.0 : (d > 200.0 ? 200.0 : d);
  const double n = (y + detail::kRound) - detail::kRound;
  const double r = (y - n) * 0.69314718055994530942;
  return static_cast<float>((1.0 + detail::expm1_reduced<detail::Precision::single>(r)) * detail::exp2_integer(n));
}
MT_HD float expm1(float x) {
  const double d = x, series = d * (1.0 + 0.5 * d);
  return static_cast<float>(::fabs(d) < 1e-5 ? series : detail::exp_single(d) - 1.0);
}
MT_HD float log(float x) { return static_cast<float>(detail::log_any<detail::Precision::single>(x)); }
MT_HD double log(double x) { return detail::log_any<detail::Precision::full>(x); }
MT_HD float log2(float x) { return static_cast<float>(detail::log_any<detail::Precision::single>(x) * detail::kLog2e); }
MT_HD float log10(float x) {
  return static_cast<float>(detail::log_any<detail::Precision::single>(x) * 0.43429448190325182765);
}
MT_HD float log1p(float x) {
  const double d = x;
  return static_cast<float>(::fabs(d) < 1e-5 ? d - 0.5 * d * d : detail::log_any<detail::Precision::single>(1.0 + d));
}
MT_HD float sin(float x) { return static_cast<float>(detail::sin<detail::Precision::single>(x)); }
MT_HD float cos(float x) { return static_cast<float>(detail::cos<detail::Precision::single>(x)); }
MT_HD double sin(double x) { return detail::sin<detail::Precision::full>(x); }
MT_HD double cos(double x) { return detail::cos<detail::Precision::full>(x); }
MT_HD float tan(float x) {
  const detail::TrigReduction t(x);
  const double s = detail::sin_reduced<detail::Precision::single>(t.r, t.lo);
  const double c = detail::cos_reduced<detail::Precision::single>(t.r, t.lo);
  return x == 0.0f ? x : static_cast<float>((t.odd() ? -c : s) / (t.odd() ? s : c));
}
MT_HD float asin(float x) {
  const double a = ::fabs(static_cast<double>(x));
  const bool outer = a > 0.5;
  const double value = detail::asin_half(outer ? ::sqrt(0.5 * (1.0 - a)) : a);
  return static_cast<float>(::copysign(outer ? detail::kHalfPi - 2.0 * value : value, static_cast<double>(x)));
}
MT_HD float acos(float x) {
  const double a = ::fabs(static_cast<double>(x));
  const bool outer = a > 0.5;
  const double value = detail::asin_half(outer ? ::sqrt(0.5 * (1.0 - a)) : a);
  const double positive = outer ? 2.0 * value : detail::kHalfPi - value;
  return static_cast<float>(x < 0.0f ? kPi - positive : positive);
}
MT_HD float atan(float x) {
  const double a = ::fabs(static_cast<double>(x));
  const bool outer = a > 1.0;
  const double value = detail::atan_unit((outer ? -1.0 : a) / (outer ? a : 1.0));
  return static_cast<float>(::copysign(outer ? detail::kHalfPi + value : value, static_cast<double>(x)));
}
MT_HD float atan2(float y, float x) {
  const double ay = ::fabs(static_cast<double>(y)), ax = ::fabs(static_cast<double>(x));
  const bool steep = ay > ax;
  const double low = steep ? ax : ay, high = steep ? ay : ax;
  double ratio = low / high;
  ratio = high == 0.0 ? 0.0 : ratio;
  ratio = low == INFINITY ? 1.0 : ratio;
  double angle = detail::atan_unit(ratio);
  angle = steep ? detail::kHalfPi - angle : angle;
  angle = ::copysign(1.0, static_cast<double>(x)) < 0.0 ? kPi - angle : angle;
  angle = x != x ? static_cast<double>(x) : angle;
  angle = y != y ? static_cast<double>(y) : angle;
  return static_cast<float>(::copysign(angle, static_cast<double>(y)));
}
MT_HD float sinh(float x) {
  const double d = x, e = detail::exp_single(::fabs(d));
  const double value = 0.5 * (e - 1.0 / e), series = ::fabs(d) * (1.0 + d * d * (1.0 / 6.0));
  return static_cast<float>(::copysign(::fabs(d) < 0.005 ? series : value, d));
}
MT_HD float cosh(float x) {
  const double e = detail::exp_single(::fabs(static_cast<double>(x)));
  return static_cast<float>(0.5 * (e + 1.0 / e));
}
MT_HD float tanh(float x) { return static_cast<float>(detail::tanh_single(x)); }
MT_HD double tanh(double x) {
  double a = ::fabs(x);
  a = a > 20.0 ? 20.0 : a;
  const double e = detail::Expm1(2.0 * a).sum();  // positive: the quotient then shrinks its error
  return ::copysign(e / (2.0 + e), x);
}
MT_HD float asinh(float x) {
  const double d = ::fabs(static_cast<double>(x));
  const double value = detail::log_any<detail::Precision::single>(d + ::sqrt(d * d + 1.0));
  const double series = d * (1.0 + d * d * (-1.0 / 6.0 + d * d * (3.0 / 40.0)));
  return static_cast<float>(::copysign(d < 0.01 ? series : value, static_cast<double>(x)));
}
MT_HD float acosh(float x) {
  const double d = x, value = detail::log_any<detail::Precision::single>(d + ::sqrt((d - 1.0) * (d + 1.0)));
  return static_cast<float>(d < 1.0 ? NAN : value);
}
MT_HD float atanh(float x) {
  const double d = ::fabs(static_cast<double>(x));
  const double value = 0.5 * detail::log_any<detail::Precision::single>((1.0 + d) / (1.0 - d));
  const double series = d * (1.0 + d * d * (1.0 / 3.0 + d * d * (1.0 / 5.0)));
  return static_cast<float>(::copysign(d < 0.01 ? series : (d > 1.0 ? NAN : value), static_cast<double>(x)));
}
MT_HD float erf(float x) { return static_cast<float>(detail::erf_single(x)); }
MT_HD float erfc(float x) { return static_cast<float>(detail::erfc_single(x)); }
// erf within 3e-7, for where it is added to 1 (GELU). The coefficients are positive: single precision loses little.
MT_HD float erf_plain(float x) {
  float z = x * x;
  z = z > 15.7f ? 15.7f : z;
  float p = 6.695467787012239e-06f;
  p = p * z + 0.0004086587830385657f;
  p = p * z + 0.004211680789783931f;
  p = p * z + 0.055671399194791985f;
  p = p * z + 0.1926885397623343f;
  p = p * z + 1.1283791697859729f;
  float q = 2.5506646377234185e-07f;
  q = q * z + 7.18756779328962e-05f;
  q = q * z + 0.001414798490310916f;
  q = q * z + 0.016256984223672555f;
  q = q * z + 0.11736994839649335f;
  q = q * z + 0.5040991998038158f;
  q = q * z + 1.0f;
  const float value = x * p / q;
  return z == 15.7f ? ::copysignf(1.0f, x) : value;
}
MT_HD double erf_plain(double x) { return ::erf(x); }
template <class T>
MT_HD T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}

// x^y as exp(y log|x|); C99 Annex F's special cases as selects.
MT_HD float pow(float x, float y) {
  const double dx = x, dy = y, a = ::fabs(dx), ay = ::fabs(dy);
  double r = detail::exp_single(dy * detail::log_special(a, detail::log_normal<detail::Precision::full>(a)));
  // Whether y is an integer, and odd: adding 2^52 rounds to one. Beyond 2^24 a float is an even integer.
  const double small = ay < 16777216.0 ? ay : 0.0;
  const double whole = (small + 4503599627370496.0) - 4503599627370496.0;
  const double half = (small * 0.5 + 4503599627370496.0) - 4503599627370496.0;
  // Selects between numbers, one condition each, are what GCC turns into vector code here.
  const double sign = half + half != small ? ::copysign(1.0, dx) : 1.0;  // unless y is even
  const double fraction = whole != small ? NAN : sign;                   // for a negative base
  const double odd_sign = whole != small ? 1.0 : sign;                   // for zero and infinity
  double factor = dx < 0.0 ? fraction : odd_sign;
  factor = ::fabs(dx) == INFINITY ? odd_sign : factor;
  factor = dx > 0.0 ? 1.0 : factor;
  r *= factor;
  r = dx == 1.0 ? 1.0 : r;
  const double unit = ay == INFINITY ? 1.0 : r;
  r = dx == -1.0 ? unit : r;
  r = dy == 0.0 ? 1.0 : r;
  return static_cast<float>(r);
}
MT_HD double pow(double x, double y) { return ::pow(x, y); }
// fmod for quotients below 2^29: then the truncated quotient times b is exact in double, and so is the difference.
// A quotient rounded up to an integer shows in the sign of the remainder.
MT_HD float fmod_small(float a, float b) {
  const double da = ::fabs(static_cast<double>(a)), db = ::fabs(static_cast<double>(b));
  const double quotient = ::trunc(da / db);
  double r = da - quotient * db;
  r = r < 0.0 ? r + db : r;
  r = db == INFINITY ? da : r;
  return ::copysignf(static_cast<float>(r), a);
}
MT_HD bool fmod_is_small(float a, float b) { return ::fabsf(a) < ::fabsf(b) * 536870912.0f; }
MT_HD float hypot(float x, float y) {
  const double dx = x, dy = y, r = ::sqrt(dx * dx + dy * dy);
  return static_cast<float>(::fabs(dx) == INFINITY || ::fabs(dy) == INFINITY ? INFINITY : r);
}
MT_HD double hypot(double x, double y) { return ::hypot(x, y); }
MT_HD double atan2(double y, double x) { return ::atan2(y, x); }

#define MT_DEFINE(name) \
  MT_HD double name(double x) { return ::name(x); }
MT_DEFINE(tan)
MT_DEFINE(asin)
MT_DEFINE(acos)
MT_DEFINE(atan)
MT_DEFINE(acosh)
MT_DEFINE(sinh)
MT_DEFINE(asinh)
MT_DEFINE(atanh)
MT_DEFINE(erf)
MT_DEFINE(erfc)
#undef MT_DEFINE

#endif  // __CUDA_ARCH__
#undef MT_LIBM_UNARY

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::math

#include "kernels/functors/math_double.h"  // builds on this one
