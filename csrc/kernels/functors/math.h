// Elementary functions as branch-free polynomials, so that loops over them vectorise.
//
// Single precision (but for exp, exp2 and log1p, which have their own) is computed in double, see polynomials.h. Double
// precision has polynomials for the functions that models spend time in and libm for the rest. On a GPU all of it is
// CUDA's own library.
#pragma once
#include "core/macros.h"
#include "kernels/functors/polynomials.h"

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
inline constexpr float kRoundSingle = 12582912.0f;  // 1.5 * 2^23
// p 2^n in two steps, for subnormal results.
MT_HD float scale_single(float p, float n) {
  const float half = (n * 0.5f + kRoundSingle) - kRoundSingle;
  const uint32_t one = 127u << 23;
  const float first = detail::bit_cast<float>((detail::bit_cast<uint32_t>(half + kRoundSingle) << 23) + one);
  const float second = detail::bit_cast<float>((detail::bit_cast<uint32_t>(n - half + kRoundSingle) << 23) + one);
  return (p * first) * second;
}
// exp(x) = 2^n (high + low), where `low` is what rounding to `high` lost.
struct ExpSingle {
  float n, high, low;
  MT_HD explicit ExpSingle(float x) {
    float y = x < -104.0f ? -104.0f : x;
    y = y > 89.0f ? 89.0f : y;
    n = (y * 1.44269504f + kRoundSingle) - kRoundSingle;
    const float r = (y - n * 0.693359375f) - n * -2.12194440e-4f;
    float q = 1.9890980e-4f;
    q = q * r + 1.3933641e-3f;
    q = q * r + 8.3333109e-3f;
    q = q * r + 4.1666465e-2f;
    q = q * r + 1.6666667e-1f;
    q = q * r + 0.5f;
    const float rest = q * (r * r) + r;
    high = rest + 1.0f;
    low = rest - (high - 1.0f);
  }
};
// p in log(1 + f) = f - f^2/2 + f^3 p (2^-28.5) for |f| < 0.42.
MT_HD float log1p_tail(float f) {
  float p = 6.971612e-2f;
  p = p * f - 1.1479734e-1f;
  p = p * f + 1.168542e-1f;
  p = p * f - 1.2425687e-1f;
  p = p * f + 1.4249058e-1f;
  p = p * f - 1.6667803e-1f;
  p = p * f + 2.0000716e-1f;
  p = p * f - 2.4999997e-1f;
  return p * f + 3.333333e-1f;
}
}  // namespace detail

// In single precision throughout, as what models spend most time in (error below 0.8 units in the last place):
// reduction and polynomial as in exp_single.
MT_HD float exp(float x) {
  const detail::ExpSingle e(x);
  return detail::scale_single(e.high, e.n);
}
MT_HD double exp(double x) { return detail::exp_full(x); }
// The remainder is exact; 2^r = 1 + r q(r), minimax on [-1/2, 1/2] to 2^-28 (error below 0.8 units in the last
// place, 1.1 without fused multiply-add).
MT_HD float exp2(float x) {
  float y = x < -152.0f ? -152.0f : x;
  y = y > 129.0f ? 129.0f : y;
  const float n = (y + detail::kRoundSingle) - detail::kRoundSingle, r = y - n;
  float q = 1.5321155e-4f;
  q = q * r + 1.3390162e-3f;
  q = q * r + 9.6185263e-3f;
  q = q * r + 5.5503623e-2f;
  q = q * r + 2.4022648e-1f;
  q = q * r + 6.9314718e-1f;
  return detail::scale_single(q * r + 1.0f, n);
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
// The logarithm of the rounded sum u = 2^k (1 + f), |f| < 0.42, and the first-order effect of the rounding; of the
// three terms of log(1 + f) the last one is small enough for single precision.
MT_HD float log1p(float x) {
  const float u = 1.0f + x, back = u - 1.0f;
  const float error = (1.0f - (u - back)) + (x - back);
  const uint32_t bits = detail::bit_cast<uint32_t>(u), shifted = bits - 0x3f3504f3u + (127u << 23);
  const int32_t exponent = static_cast<int32_t>(shifted >> 23) - 127;
  const float k = static_cast<float>(exponent);
  const float m = detail::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23));
  const bool near = exponent == 0;
  const float f = near ? x : m - 1.0f, rest = near ? 0.0f : error / u;
  const float p = detail::log1p_tail(f);
  const double wide = f, square = wide * wide, head = k * 0.69314718055994530942 + (wide - 0.5 * square);
  float value = static_cast<float>(head + (square * wide * p + rest));
  value = u < INFINITY ? value : u;
  value = u == 0.0f ? -INFINITY : value;
  value = u < 0.0f ? NAN : value;
  return x == 0.0f ? x : value;
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
// For quotients below 2^52: the difference is a number, so that a fused multiplication and addition gives it exactly.
// The quotient may have been rounded up to the next integer.
MT_HD double fmod_small(double a, double b) {
  const double da = ::fabs(a), db = ::fabs(b);
  double r = __builtin_fma(-::trunc(da / db), db, da);
  r = r < 0.0 ? r + db : r;
  r = db == INFINITY ? da : r;
  return ::copysign(r, a);
}
MT_HD bool fmod_is_small(double a, double b) { return ::fabs(a) < ::fabs(b) * 4503599627370496.0; }
MT_HD float hypot(float x, float y) {
  const double dx = x, dy = y, r = ::sqrt(dx * dx + dy * dy);
  return static_cast<float>(::fabs(dx) == INFINITY || ::fabs(dy) == INFINITY ? INFINITY : r);
}
#define MT_DEFINE(name) \
  MT_HD double name(double x) { return ::name(x); }
MT_DEFINE(acosh)
MT_DEFINE(asinh)
#undef MT_DEFINE

#endif  // __CUDA_ARCH__
#undef MT_LIBM_UNARY

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::math

#include "kernels/functors/math_double.h"  // these build on this one
#include "kernels/functors/math_double_inverse.h"
#include "kernels/functors/error_function.h"
