// Double precision beyond what math.h needs for itself: branch free, from the same reductions and polynomials. The
// compensated logarithms are those of fdlibm (e_log2.c, e_log10.c, s_log1p.c) with selects in place of its branches.
#pragma once
#include "kernels/functors/compensated.h"
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

// log(1 + x + low): the logarithm of the rounded sum 1 + x, corrected for its rounding error.
MT_HD double log1p_full(double x, double low = 0.0) {
  const double u = 1.0 + x, back = u - 1.0;
  const double error = (1.0 - (u - back)) + (x - back);
  const LogReduction e(u);
  const double f = e.m - 1.0;
  const double correction = log_correction<Precision::full>(f) + (e.k * kLn2Lo + (error + low) / u);
  const double value = log_special(u, e.k * kLn2Hi - ((0.5 * f * f - correction) - f));
  return x == 0.0 ? x : value;
}

// expm1(x) / 4 for -746 <= x <= 710: a quarter does not overflow before the result does.
MT_HD DoubleDouble quarter_expm1(double x) {
  const ExpReduction e(x);
  const double scale = exp2_integer((e.n < -1000.0 ? -1000.0 : e.n) - 2.0), less = scale - 0.25;
  const DoubleDouble head = fast_sum(less, scale * e.r);
  const double tail = scale * (expm1_tail<Precision::full>(e.r) + (e.low + e.low * e.r));
  return fast_sum(head.high, (head.low + ((scale - less) - 0.25)) + tail);
}

// sinh and cosh of r + low, |r| <= ln2/2, beyond r and 1: the odd and even halves of expm1_tail.
struct HyperbolicReduction {
  double n, r, odd, even;
  MT_HD explicit HyperbolicReduction(double x) {
    constexpr double s[] = {0.16666666666666666,   0.008333333333333333,   0.00019841269841263304,
                            2.755731924720479e-06, 2.5052071109214447e-08, 1.6086622436215554e-10};
    constexpr double c[] = {0.5,
                            0.04166666666666668,
                            0.0013888888888879082,
                            2.480158733642132e-05,
                            2.755726330147475e-07,
                            2.0918129454967065e-09};
    const ExpReduction e(x);
    const double z = e.r * e.r;
    n = e.n;
    r = e.r;
    odd = r * z * horner(z, s) + e.low;
    even = z * horner(z, c) + r * e.low;
  }
};
// sinh(n ln2) and cosh(n ln2) over 2^n for an integer n >= 0.
struct HyperbolicPower {
  DoubleDouble sinh, cosh;
  MT_HD explicit HyperbolicPower(double n) {
    const double down = exp2_integer(-1.0 - 2.0 * (n > 500.0 ? 500.0 : n));
    sinh = fast_sum(0.5, -down);
    cosh = fast_sum(0.5, down);
  }
};

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
  y = y > 710.0 ? 710.0 : y;
  const double value = 4.0 * detail::quarter_expm1(y).join();
  return ::fabs(x) < 1e-290 ? x : value;
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
// The addition theorems: sinh(r + n ln2) = cosh(r) sinh(n ln2) + sinh(r) cosh(n ln2) has no division.
MT_HD double sinh(double x) {
  const double a = ::fabs(x);
  const detail::HyperbolicReduction h(a > 711.0 ? 711.0 : a);
  const detail::HyperbolicPower p(h.n);
  const detail::Product product(p.cosh.high, h.r);
  const detail::DoubleDouble head = detail::fast_sum(p.sinh.high, product.high);
  const double rest = p.cosh.high * h.odd + (p.sinh.high * h.even + p.sinh.low);
  const double value = detail::scaled(head.high + (head.low + (product.low + rest)), h.n);
  return ::copysign(a < 1e-290 ? a : value, x);
}
MT_HD double cosh(double x) {
  const double a = ::fabs(x);
  const detail::HyperbolicReduction h(a > 711.0 ? 711.0 : a);
  const detail::HyperbolicPower p(h.n);
  const detail::DoubleDouble head = detail::fast_sum(p.cosh.high, p.sinh.high * h.r);
  const double rest = p.sinh.high * h.odd + (p.cosh.high * h.even + p.cosh.low);
  return detail::scaled(head.high + (head.low + rest), h.n);
}
// With e = expm1(2|x|), e / (2 + e).
MT_HD double tanh(double x) {
  const double a = ::fabs(x);
  const detail::DoubleDouble e = detail::quarter_expm1(a > 20.0 ? 40.0 : 2.0 * a);
  const double value = detail::quotient(e, detail::add_to(0.5, e)).join();
  return ::copysign(a < 1e-290 ? a : value, x);
}
// log1p(2a / (1 - a)) / 2.
MT_HD double atanh(double x) {
  const double a = ::fabs(x), below = 1.0 - a;
  const detail::DoubleDouble q = detail::quotient({a + a, 0.0}, {below, (1.0 - below) - a});
  const double value = 0.5 * detail::log1p_full(q.high, q.low);
  const double inner = a == 1.0 ? INFINITY : value;
  return ::copysign(a > 1.0 ? NAN : inner, x);
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
