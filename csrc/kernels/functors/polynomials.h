// The polynomials behind math.h: exponential, logarithm, trigonometric and error functions on a reduced range, and the
// reductions to it.
//
// Single precision is computed in double: the polynomials need only about 30 bits, no step needs a compensation, and
// the result is correctly rounded but for about one case in a hundred, with or without fused multiply-add. It costs
// less than single precision with compensation. Coefficients are Chebyshev or rational least-squares fits, made in
// 50-digit arithmetic by tools/fit_polynomials.py; the number after each name is its error there. Host only.
#pragma once
#include <math.h>  // not <cmath>: this one declares the overloads for float in the global namespace
#include <cstdint>

#include "core/half.h"
#include "core/macros.h"

namespace minitorch::math {
inline namespace MINITORCH_ARCH {

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
#pragma GCC unroll 32
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

// Cody-Waite reduction x + more = n ln2 + r + low.
struct ExpReduction {
  double n, r, low;
  MT_HD explicit ExpReduction(double x, double more = 0.0) {
    n = (x * kLog2e + kRound) - kRound;
    const double first = x - n * kLn2Hi, rest = n * kLn2Lo - more;
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
// What sin(r + lo) is more than r.
template <Precision P>
MT_HD double sin_tail(double r, double lo) {
  const double z = r * r;
  if constexpr (P == Precision::single) {  // 2^-36
    constexpr double c[] = {-0.16666666663741367, 0.00833333183062943, -0.00019840063040804117, 2.7246868722877944e-06};
    return r * z * horner(z, c);
  } else {  // 2^-57
    constexpr double c[] = {-0.16666666666666666,   0.008333333333333331,    -0.00019841269841264821,
                            2.7557319219150783e-06, -2.5052106167335705e-08, 1.6058521349954986e-10,
                            -7.586094789672621e-13};
    return r * z * horner(z, c) + lo * (1.0 - 0.5 * z);
  }
}
template <Precision P>
MT_HD double sin_reduced(double r, double lo) {
  return r + sin_tail<P>(r, lo);
}
// What cos(r + lo) is more than 1 - r^2 / 2.
template <Precision P>
MT_HD double cos_tail(double r, double lo) {
  const double z = r * r;
  if constexpr (P == Precision::single) {  // 2^-30
    constexpr double c[] = {0.04166666459882798, -0.0013888291300556933, 2.4545419078353295e-05};
    return z * z * horner(z, c);
  } else {  // 2^-60
    constexpr double c[] = {0.041666666666666664,   -0.0013888888888887322, 2.4801587298651292e-05,
                            -2.755731721268659e-07, 2.0876134024090145e-09, -1.1381754653662937e-11};
    const double half = 0.5 * z, main = 1.0 - half;
    return ((1.0 - main) - half) + (z * z * horner(z, c) - r * lo);
  }
}
template <Precision P>
MT_HD double cos_reduced(double r, double lo) {
  return (1.0 - 0.5 * (r * r)) + cos_tail<P>(r, lo);
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

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::math
