// Special functions: gamma and zeta, error function relatives, modified Bessel functions. Series, continued fractions
// and asymptotic expansions from M. Abramowitz, I. Stegun, "Handbook of Mathematical Functions" (AS below), summed in
// double whatever the compute type. They iterate and branch, and do not vectorise; on the CPU the common ones have
// polynomials in special_single.h and special_double.h.
#pragma once
#include "kernels/functors/pointwise.h"
#include "kernels/functors/special_double.h"
#include "kernels/functors/special_single.h"

namespace minitorch::special {
inline namespace MINITORCH_ARCH {

inline constexpr double kEpsilon = 1.1102230246251565e-16;
inline constexpr double kSqrtPi = 1.77245385090551602730;
inline constexpr double kSqrt2 = 1.41421356237309504880;
using math::kPi;

MT_HD double lgamma(double x) {
#if defined(__CUDA_ARCH__)
  return ::lgamma(x);
#else
  return full::lgamma(x);
#endif
}

// Recurrence up to 10, then the asymptotic series (AS 6.3.18); reflection below zero (AS 6.3.7).
MT_HD double digamma(double x) {
  if (x == 0.0) return ::copysign(INFINITY, -x);
  double shift = 0.0;
  if (x < 0.0) {
    const double fraction = x - ::trunc(x);
    if (fraction == 0.0) return NAN;
    shift = -kPi / ::tan(kPi * fraction);
    x = 1.0 - x;
  }
  for (; x < 10.0; x += 1.0) shift -= 1.0 / x;
  if (x > 1e17) return ::log(x) + shift;
  const double z = 1.0 / (x * x);
  const double series =
      z *
      (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
  return ::log(x) - 0.5 / x - series + shift;
}

// The same for the derivative (AS 6.4.12, 6.4.7).
MT_HD double trigamma(double x) {
  double sign = 1.0, result = 0.0;
  if (x < 0.5) {
    sign = -1.0;
    const double s = ::sin(kPi * (x - ::rint(x)));
    result -= (kPi * kPi) / (s * s);
    x = 1.0 - x;
  }
  for (; x < 10.0; x += 1.0) result += 1.0 / (x * x);
  const double z = 1.0 / (x * x);
  result += (1.0 + 0.5 / x + z * (1.0 / 6 - z * (1.0 / 30 - z * (1.0 / 42 - z * (1.0 / 30 - z * (5.0 / 66)))))) / x;
  return sign * result;
}

// Hurwitz zeta by Euler-Maclaurin summation (AS 23.2): N terms, the integral of the rest, then Bernoulli corrections.
MT_HD double zeta(double x, double q) {
  if (x == 1.0) return INFINITY;
  if (!(x > 1.0)) return NAN;
  if (q <= 0.0) {
    if (q == ::floor(q)) return INFINITY;
    if (x != ::floor(x)) return NAN;
  }
  double sum = ::pow(q, -x), a = q, term = 0.0;
  for (int i = 0; i < 9 || a <= 9.0; i++) {
    a += 1.0;
    term = ::pow(a, -x);
    sum += term;
    if (::fabs(term) < kEpsilon * ::fabs(sum)) return sum;
  }
  sum += term * a / (x - 1.0) - 0.5 * term;
  // B_2k / (2k)!
  constexpr double bernoulli[] = {1.0 / 12,
                                  -1.0 / 720,
                                  1.0 / 30240,
                                  -1.0 / 1209600,
                                  1.0 / 47900160,
                                  -691.0 / 1307674368000,
                                  1.0 / 74724249600,
                                  -3617.0 / 10670622842880000,
                                  43867.0 / 5109094217170944000};
  double factor = x, power = term / a;
  for (int k = 0; k < 9; k++) {
    const double t = bernoulli[k] * factor * power;
    sum += t;
    if (::fabs(t) < kEpsilon * ::fabs(sum)) break;
    factor *= (x + (2 * k + 1)) * (x + (2 * k + 2));
    power /= a * a;
  }
  return sum;
}

// Regularised incomplete gamma functions P (lower) and Q (upper): the series AS 6.5.29 for x < a + 1, Legendre's
// continued fraction AS 6.5.31 beyond, by Lentz's method.
MT_HD double gamma_series(double a, double x) {
  double term = 1.0 / a, sum = term;
  for (double n = a + 1.0; n < a + 20000.0; n += 1.0) {
    term *= x / n;
    sum += term;
    if (term < sum * kEpsilon) break;
  }
  return sum * ::exp(a * ::log(x) - x - lgamma(a));
}
MT_HD double gamma_fraction(double a, double x) {
  constexpr double tiny = 1e-300;
  double b = x + 1.0 - a, c = 1.0 / tiny, d = 1.0 / b, h = d;
  for (int i = 1; i < 20000; i++) {
    const double an = -i * (i - a);
    b += 2.0;
    d = an * d + b;
    d = 1.0 / (::fabs(d) < tiny ? tiny : d);
    c = b + an / c;
    c = ::fabs(c) < tiny ? tiny : c;
    h *= d * c;
    if (::fabs(d * c - 1.0) < kEpsilon) break;
  }
  return h * ::exp(a * ::log(x) - x - lgamma(a));
}
MT_HD double igamma(double a, double x, bool upper) {
  if (!(x >= 0.0) || !(a >= 0.0)) return NAN;
  const double all = upper ? 0.0 : 1.0, none = upper ? 1.0 : 0.0;
  if (a == 0.0) return x > 0.0 ? all : NAN;
  if (x == 0.0) return none;
  if (::isinf(a)) return ::isinf(x) ? NAN : none;
  if (::isinf(x)) return all;
  if (x < a + 1.0) {
    const double p = gamma_series(a, x);
    return upper ? 1.0 - p : p;
  }
  const double q = gamma_fraction(a, x);
  return upper ? q : 1.0 - q;
}

#if defined(__CUDA_ARCH__)
// exp(x^2) erfc(x); beyond 26 the asymptotic series AS 7.1.23.
MT_HD double erfcx(double x) {
  if (x != x) return x;
  if (x > 26.0) {
    const double z = 0.5 / (x * x);
    return (1.0 - z * (1.0 - 3.0 * z * (1.0 - 5.0 * z * (1.0 - 7.0 * z)))) / (x * kSqrtPi);
  }
  if (x < -26.7) return INFINITY;
  const double square = x * x, rest = ::fma(x, x, -square);
  return ::exp(square) * (1.0 + rest) * ::erfc(x);
}

// The x with erfc(x) = q, 0 < q <= 1. M. Giles, "Approximating the erfinv function", 2010, starts it in the middle and
// the leading term of erfc's asymptote in the tail; Newton's method on log erfc finishes.
MT_HD double erfc_inverse(double q) {
  const double y = 1.0 - q, w = -::log(q * (2.0 - q));
  double x;
  if (w < 16.0) {
    const bool near = w < 5.0;
    const double t = near ? w - 2.5 : ::sqrt(w) - 3.0;
    constexpr double inner[] = {1.50140941,      0.246640727,    -0.00417768164, -0.00125372503, 0.00021858087,
                                -4.39150654e-06, -3.5233877e-06, 3.43273939e-07, 2.81022636e-08};
    constexpr double outer[] = {2.83297682,     1.00167406,    0.00943887047,  -0.0076224613,  0.00573950773,
                                -0.00367342844, 0.00134934322, 0.000100950558, -0.000200214257};
    double p = near ? inner[8] : outer[8];
    for (int i = 7; i >= 0; i--) p = p * t + (near ? inner[i] : outer[i]);
    x = p * y;
  } else {
    const double l = -::log(q);
    x = ::sqrt(l - 0.5 * ::log(kPi * l));
  }
  for (int i = 0; i < 3; i++) {
    if (q > 0.5) {
      const double u = (::erf(x) - y) * (0.5 * kSqrtPi) * ::exp(x * x);
      x -= u / (1.0 + x * u);
    } else {
      const double e = erfcx(x), f = ::log(e / q) - x * x;
      x += f * 0.5 * kSqrtPi * e;
    }
  }
  return x;
}
MT_HD double erfinv(double y) {
  const double a = ::fabs(y);
  if (!(a <= 1.0)) return NAN;
  if (a == 1.0) return ::copysign(INFINITY, y);
  if (a > 0.5) return ::copysign(erfc_inverse(1.0 - a), y);
  // In the middle y itself, not 1 - y, carries the accuracy.
  double x = a < 1e-8 ? a * (0.5 * kSqrtPi) : erfc_inverse(1.0 - a);
  if (a >= 1e-8) {
    const double u = (::erf(x) - a) * (0.5 * kSqrtPi) * ::exp(x * x);
    x -= u / (1.0 + x * u);
  }
  return ::copysign(x, y);
}
MT_HD double ndtri(double p) {
  if (!(p >= 0.0 && p <= 1.0)) return NAN;
  if (p == 0.0) return -INFINITY;
  if (p == 1.0) return INFINITY;
  return p <= 0.5 ? -kSqrt2 * erfc_inverse(2.0 * p) : kSqrt2 * erfinv(2.0 * p - 1.0);
}
MT_HD double log_ndtr(double x) {
  const double t = x / kSqrt2;
  return x < -1.0 ? ::log(0.5 * erfcx(-t)) - t * t : ::log1p(-0.5 * ::erfc(t));
}

// Modified Bessel functions of the first kind, order 0 or 1, for a >= 0: the ascending series AS 9.6.10. Terms and sum
// are kept in two doubles each: an error of (a / 2)^2 weighs a / 2 times as much in the sum, and the terms hand theirs
// on.
MT_HD double bessel_i_series(int order, double a) {
  const double half = 0.5 * a, z = half * half, z_low = ::fma(half, half, -z);
  double term = 1.0, term_low = 0.0, sum = 1.0, sum_low = 0.0;
  for (int k = 1; k < 200; k++) {
    const double divisor = k * (k + order);
    const double product = term * z, product_low = ::fma(term, z, -product) + (term * z_low + term_low * z);
    term = product / divisor;
    term_low = (::fma(-term, divisor, product) + product_low) / divisor;
    const double next = sum + term, back = next - sum;
    sum_low += (sum - (next - back)) + (term - back) + term_low;
    sum = next;
    if (term < 0.125 * kEpsilon * sum) break;
  }
  return (sum + sum_low) * (order == 0 ? 1.0 : half);
}
// The same times exp(-a) for large a: the asymptotic series AS 9.7.1.
MT_HD double bessel_i_far(int order, double a) {
  const double mu = 4.0 * order * order;
  double term = 1.0, rest = 0.0;  // beyond the 1, so that it is rounded to once
  for (int k = 1; k < 40; k++) {
    const double odd = 2.0 * k - 1.0, next = term * -(mu - odd * odd) / (8.0 * a * k);
    if (::fabs(next) > ::fabs(term)) break;
    term = next;
    rest += term;
    if (::fabs(term) < kEpsilon) break;
  }
  return (1.0 + rest) / ::sqrt(2.0 * kPi * a);
}
constexpr double kBesselFar = 25.0;

MT_HD double bessel_i_scaled(int order, double x) {
  const double a = ::fabs(x);
  const double value = a == INFINITY    ? 0.0
                       : a > kBesselFar ? bessel_i_far(order, a)
                                        : bessel_i_series(order, a) * ::exp(-a);
  return order == 0 ? value : ::copysign(value, x);
}
MT_HD double bessel_i(int order, double x) {
  const double a = ::fabs(x);
  double value = a;
  if (!(a > kBesselFar)) {
    value = bessel_i_series(order, a);
  } else if (a < 709.0) {
    value = bessel_i_far(order, a) * ::exp(a);
  } else if (a != INFINITY) {
    const double half = ::exp(0.5 * a);
    value = bessel_i_far(order, a) * half * half;
  }
  return order == 0 ? value : ::copysign(value, x);
}
MT_HD double i0(double x) { return bessel_i(0, x); }
MT_HD double i1(double x) { return bessel_i(1, x); }
MT_HD double i0e(double x) { return bessel_i_scaled(0, x); }
MT_HD double i1e(double x) { return bessel_i_scaled(1, x); }
#endif  // __CUDA_ARCH__

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::special

namespace minitorch::functors {
inline namespace MINITORCH_ARCH {

#if defined(__CUDA_ARCH__)
#define MT_SPECIAL_FUNCTOR(Name, function) MT_UNARY_FUNCTOR(Name, static_cast<T>(special::function(x)))
#else
// Polynomials of its own for each precision.
#define MT_SPECIAL_FUNCTOR(Name, function)                       \
  template <class T>                                             \
  struct Name {                                                  \
    MT_HD T operator()(T x) const {                              \
      if constexpr (std::is_same_v<T, float>)                    \
        return static_cast<float>(special::single::function(x)); \
      else                                                       \
        return special::full::function(x);                       \
    }                                                            \
  };
#endif
#if defined(__CUDA_ARCH__)
MT_SPECIAL_FUNCTOR(Lgamma, lgamma)
#else
template <class T>
struct Lgamma {
  MT_HD T operator()(T x) const { return static_cast<T>(special::single::lgamma(x)); }
  // Near the zeros between the poles reflection subtracts equal numbers; doubles have libm's value there.
  static MT_HD bool doubtful(T x, T value)
    requires std::is_same_v<T, double>
  {
    return (x < -2.0) & (::fabs(value) < 1.0);
  }
  MT_HD T corrected(T x) const {
    int sign;
    return ::lgamma_r(x, &sign);
  }
};
#endif
MT_SPECIAL_FUNCTOR(Digamma, digamma)
// At its poles native gives what the sine of a rounded multiple of pi leaves of infinity; so do we.
template <class T>
struct Trigamma {
  MT_HD T operator()(T x) const {
    if (!(x <= T(0) && x == ::floor(x))) return static_cast<T>(special::trigamma(x));
    const T pi = static_cast<T>(math::kPi), s = ::sin(pi * x);
    return (pi * pi) / (s * s) - static_cast<T>(special::trigamma(T(1) - x));
  }
};
MT_SPECIAL_FUNCTOR(Erfinv, erfinv)
MT_SPECIAL_FUNCTOR(Erfcx, erfcx)
MT_SPECIAL_FUNCTOR(Ndtri, ndtri)
MT_SPECIAL_FUNCTOR(LogNdtr, log_ndtr)
MT_SPECIAL_FUNCTOR(I0, i0)
MT_SPECIAL_FUNCTOR(I1, i1)
MT_SPECIAL_FUNCTOR(I0e, i0e)
MT_SPECIAL_FUNCTOR(I1e, i1e)
#undef MT_SPECIAL_FUNCTOR
MT_UNARY_FUNCTOR(Entr, x != x ? x : (x > T(0) ? -x * math::log(x) : (x == T(0) ? T(0) : T(-INFINITY))))
MT_BINARY_FUNCTOR(Zeta, static_cast<T>(special::zeta(a, b)))
MT_BINARY_FUNCTOR(Igamma, static_cast<T>(special::igamma(a, b, false)))
MT_BINARY_FUNCTOR(Igammac, static_cast<T>(special::igamma(a, b, true)))

template <class T>
struct Polygamma {  // s[0]: the order n >= 2; (-1)^(n+1) n! zeta(n+1, x)
  double n;
  MT_HD explicit Polygamma(const PointwiseParams& p) : n(p.s[0].to<double>()) {}
  MT_HD T operator()(T x) const {
    const double sign = ::fmod(n, 2.0) == 0.0 ? -1.0 : 1.0;
    return static_cast<T>(sign * ::exp(special::lgamma(n + 1.0)) * special::zeta(n + 1.0, x));
  }
};

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::functors
