// Double precision beyond what math.h needs for itself: branch free, from the same reductions and polynomials. The
// compensated logarithms are those of fdlibm (e_log2.c, e_log10.c, s_log1p.c) with selects in place of its branches.
#pragma once
#include "kernels/functors/math.h"

#if !defined(__CUDA_ARCH__)
namespace minitorch::math {
inline namespace MINITORCH_ARCH {

namespace detail {

// The logarithm of a positive normal number before its parts are joined: k ln2 + log(m), log(m) = hi + lo, where hi has
// few enough bits for its product with a constant of as many to be exact.
struct LogParts {
  double k, hi, lo;
  MT_HD explicit LogParts(double x) {
    const LogReduction e(x);
    const double f = e.m - 1.0, square = 0.5 * f * f;
    k = e.k;
    hi = bit_cast<double>(bit_cast<uint64_t>(f - square) & 0xffffffff00000000ULL);
    lo = ((f - hi) - square) + log_correction<Precision::full>(f);
  }
  // (k high + k low) + (hi + lo) (c + c_low)
  MT_HD double join(double high, double low, double c, double c_low) const {
    const double first = k * high, second = hi * c, sum = first + second;
    const double rest = k * low + (lo + hi) * c_low + lo * c;
    return (rest + ((first - sum) + second)) + sum;
  }
};

template <class F>
MT_HD double scaled_logarithm(double x, double of_scale, const F& join) {
  const bool tiny = x < 2.2250738585072014e-308;
  const double value = join(LogParts(tiny ? x * 18014398509481984.0 : x));
  return log_special(x, tiny ? value - of_scale : value);
}

// log(1 + x): the logarithm of the rounded sum, corrected for its rounding error.
MT_HD double log1p_full(double x) {
  const double u = 1.0 + x, back = u - 1.0;
  const double error = (1.0 - (u - back)) + (x - back);
  const LogReduction e(u);
  const double f = e.m - 1.0;
  const double correction = log_correction<Precision::full>(f) + (e.k * kLn2Lo + error / u);
  const double value = log_special(u, e.k * kLn2Hi - ((0.5 * f * f - correction) - f));
  return x == 0.0 ? x : value;
}

// exp(x) / 2 for x >= 0, without overflow before the result's.
MT_HD double exp_halved(double x) {
  const ExpReduction e(x > 712.0 ? 712.0 : x);
  const double half = (e.n * 0.5 + kRound) - kRound;
  return (e.exp() * exp2_integer(half - 1.0)) * exp2_integer(e.n - half);
}

}  // namespace detail

MT_HD double exp2(double x) {
  double y = x < -1080.0 ? -1080.0 : x;
  y = y > 1025.0 ? 1025.0 : y;
  const double n = (y + detail::kRound) - detail::kRound, half = (n * 0.5 + detail::kRound) - detail::kRound;
  const double p = 1.0 + detail::expm1_reduced<detail::Precision::full>((y - n) * 0.69314718055994530942);
  return (p * detail::exp2_integer(half)) * detail::exp2_integer(n - half);
}
MT_HD double expm1(double x) {
  double y = x < -746.0 ? -746.0 : x;
  y = y > 700.0 ? 700.0 : y;
  const double value = x > 700.0 ? detail::exp_full(x) : detail::Expm1(y).sum();
  return x == 0.0 ? x : value;
}
MT_HD double log2(double x) {
  return detail::scaled_logarithm(x, 54.0, [](const detail::LogParts& p) {
    return p.join(1.0, 0.0, 1.44269504072144627571e+00, 1.67517131648865118353e-10);
  });
}
MT_HD double log10(double x) {
  return detail::scaled_logarithm(x, 54 * 0.30102999566398119521, [](const detail::LogParts& p) {
    return p.join(3.01029995663611771306e-01, 3.69423907715893078616e-13, 4.34294481878168880939e-01,
                  2.50829467116452752298e-11);
  });
}
MT_HD double log1p(double x) { return detail::log1p_full(x); }
MT_HD double cosh(double x) {
  const double half = detail::exp_halved(::fabs(x));
  return half + 0.25 / half;
}
// With e = expm1(|x|), (e + e / (1 + e)) / 2 has no cancellation (fdlibm's e_sinh.c).
MT_HD double sinh(double x) {
  const double a = ::fabs(x);
  const detail::Expm1 parts(a > 700.0 ? 700.0 : a);
  const double e = parts.sum();
  const double value = a > 22.0 ? detail::exp_halved(a) : 0.5 * (parts.high + (parts.low + e / (1.0 + e)));
  return ::copysign(a == 0.0 || a != a ? a : value, x);
}
// log1p(2a / (1 - a)) / 2, the quotient below 1/2 as 2a + 2a a / (1 - a) (fdlibm's e_atanh.c).
MT_HD double atanh(double x) {
  const double a = ::fabs(x), twice = a + a, quotient = (a < 0.5 ? twice * a : twice) / (1.0 - a);
  const double value = 0.5 * detail::log1p_full(a < 0.5 ? twice + quotient : quotient);
  return ::copysign(a > 1.0 ? NAN : value, x);
}
// The root of the rounded sum of squares, corrected for the rounding of squares, sum and root. Of the two scales one
// keeps squares from overflowing and the other from vanishing.
MT_HD double hypot(double x, double y) {
  const double ax = ::fabs(x), ay = ::fabs(y), most = ax > ay ? ax : ay;
  const double up = most < 0x1p-500 ? 0x1p600 : 1.0, scale = most > 0x1p500 ? 0x1p-600 : up;
  const double low = (ax > ay ? ay : ax) * scale, high = most * scale;
  const double first = high * high, second = low * low, sum = first + second;
  const double errors =
      ((first - sum) + second) + (__builtin_fma(high, high, -first) + __builtin_fma(low, low, -second));
  const double root = ::sqrt(sum), rest = __builtin_fma(-root, root, sum) + errors;
  const double value = root == 0.0 ? 0.0 : (root + 0.5 * rest / root) / scale;
  return ax == INFINITY || ay == INFINITY ? INFINITY : value;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::math
#endif
