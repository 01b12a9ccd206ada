// Bessel functions of the first and second kind, modified ones, and Airy's function, in double whatever the compute
// type. J and Y are the C library's. Series are from M. Abramowitz, I. Stegun, "Handbook of Mathematical Functions" (AS
// below); the tables come from tools/fit_bessel.py.
#pragma once
#include "kernels/functors/special.h"

namespace minitorch::special {
inline namespace MINITORCH_ARCH {

// Clenshaw's recurrence.
template <int N>
MT_HD double chebyshev(double t, const double (&c)[N]) {
  double a = 0.0, b = 0.0;
  for (int i = N - 1; i > 0; i--) {
    const double next = 2.0 * t * a - b + c[i];
    b = a;
    a = next;
  }
  return t * a - b + c[0];
}

// K_0 or K_1, times exp(x) if `scaled`. Up to 2 the ascending series AS 9.6.13 and 9.6.11, with harmonic numbers.
MT_HD double bessel_k(int order, double x, bool scaled) {
  if (x == 0.0) return INFINITY;
  if (!(x > 0.0)) return NAN;
  if (x > 2.0) {
    if (x == INFINITY) return 0.0;
    // Chebyshev series in t of exp(x) sqrt(x) K(x).
    constexpr double large_k0[] = {
        1.2201515410329777,     -0.0314481013119645,     0.0015698838857300533,  -0.00012849549581627802,
        1.39498137188765e-05,   -1.8317555227191195e-06, 2.766813639445015e-07,  -4.660489897687948e-08,
        8.574034017414225e-09,  -1.6975345093890614e-09, 3.5773972814003283e-10, -7.957489244477396e-11,
        1.8559491149549264e-11, -4.514597883374519e-12,  1.1403405882073441e-12, -2.9800969231481784e-13,
        8.032890775068375e-14,  -2.2275133267462965e-14, 6.340076476276646e-15,  -1.848593377920907e-15,
        5.5120559994043335e-16, -1.6782311257549006e-16, 5.2103917776435543e-17, -1.6475805939842632e-17};
    constexpr double large_k1[] = {
        1.3603130952422213,      0.10392373657681724,    -0.002857816859622779,   0.00019521551847135162,
        -1.936197974166083e-05,  2.406484947837217e-06,  -3.5019606030878126e-07, 5.7410841254500495e-08,
        -1.0345762465678097e-08, 2.0150497551970347e-09, -4.1903547593419254e-10, 9.218315187605315e-11,
        -2.129967838427791e-11,  5.139639673482343e-12,  -1.2891739609498229e-12, 3.348419666052243e-13,
        -8.976705182010146e-14,  2.4771544242195988e-14, -7.0198370892147685e-15, 2.038703166239861e-15,
        -6.057047270643018e-16,  1.8380935752430455e-16, -5.689462849193648e-17,  1.7940510478863572e-17};
    const double t = 4.0 / x - 1.0;
    const double value = (order == 0 ? chebyshev(t, large_k0) : chebyshev(t, large_k1)) / ::sqrt(x);
    return scaled ? value : value * ::exp(-x);
  }
  constexpr double euler = 0.57721566490153286061;
  const double z = 0.25 * x * x, log_half = ::log(0.5 * x);
  double term = 1.0, harmonic = 0.0, sum;
  if (order == 0) {
    sum = -(log_half + euler);
    for (int k = 1; k < 20; k++) {
      term *= z / (k * k);
      harmonic += 1.0 / k;
      sum += term * (harmonic - (log_half + euler));
    }
  } else {
    sum = 0.5 - euler - log_half;
    for (int k = 1; k < 20; k++) {
      term *= z / (k * (k + 1.0));
      harmonic += 1.0 / k;
      sum += term * (harmonic + 0.5 / (k + 1.0) - euler - log_half);
    }
    sum = 1.0 / x - 0.5 * x * sum;
  }
  return scaled ? sum * ::exp(x) : sum;
}

// Ai. Between -11.5 and 2.09 a Taylor series about the nearest whole number, from Ai'' = x Ai; beyond, the asymptotic
// series AS 10.4.60 on the left.
MT_HD double airy_ai(double x) {
  if (!(x * x < INFINITY)) return NAN;
  if (x >= 2.09) {
    // In t, of exp(zeta) x^(1/4) Ai(x).
    constexpr double airy_tail[] = {
        0.27791472709862935,    -0.003974604466782267,   0.00018844233230265676, -1.5139145553925131e-05,
        1.6277079938920561e-06, -2.124613255828612e-07,  3.196091031824142e-08,  -5.367549773721327e-09,
        9.852325184295213e-10,  -1.9470927440073698e-10, 4.097278653880674e-11,  -9.10273979334055e-12,
        2.120857375473259e-12,  -5.154390569091291e-13,  1.3009367206082188e-13, -3.397474159620609e-14,
        9.15240780009071e-15,   -2.5365851923528393e-15, 7.21627003385596e-16,   -2.1031429429833665e-16,
        6.268552720108202e-17,  -1.9078601110153376e-17, 5.921328491143358e-18};
    const double zeta = 2.0 / 3.0 * x * ::sqrt(x);
    return chebyshev(4.0 / zeta - 1.0, airy_tail) * ::exp(-zeta) / ::sqrt(::sqrt(x));
  }
  if (x > -11.5) {
    // Ai and Ai' at -11, -10, ..., 2.
    static constexpr double airy_value[] = {
        -0.008759589255702381, 0.04024123848644319, -0.022133721547341403, -0.0527050503563862,  0.18428083525050565,
        -0.3291451736298231,   0.35076100902411433, -0.07026553294928951,  -0.37881429367765806, 0.22740742820168558,
        0.5355608832923521,    0.3550280538878172,  0.13529241631288141,   0.03492413042327438};
    static constexpr double airy_slope[] = {
        -1.0273278736645794,  0.99626504413279,    -0.9756639809263316, 0.9355609381983065,  -0.7710081684101265,
        0.3459354872813429,   0.32719281855444315, -0.7906285753685813, 0.3145837692165988,  0.618259020741691,
        -0.01016056711664521, -0.2588194037928068, -0.1591474412967932, -0.05309038443365363};
    const double center = ::rint(x), h = x - center;
    const int at = static_cast<int>(center) + 11;
    double before = 0.0, value = airy_value[at], slope = airy_slope[at], power = h, sum = value + slope * h;
    // Coefficients k - 1, k and k + 1 are before, value and slope.
    for (int k = 0; k < 30; k++) {
      const double next = (center * value + before) / ((k + 1.0) * (k + 2.0));
      before = value;
      value = slope;
      slope = next;
      power *= h;
      sum += next * power;
    }
    return sum;
  }
  const double a = -x, zeta = 2.0 / 3.0 * a * ::sqrt(a), z = 1.0 / zeta;
  double term = 1.0, even = 1.0, odd = 0.0;
  for (int k = 0; k < 24; k++) {
    term *= z * ((6.0 * k + 5.0) * (6.0 * k + 3.0) * (6.0 * k + 1.0)) / (216.0 * (k + 1.0) * (2.0 * k + 1.0));
    const double sign = (k + 1) / 2 % 2 == 0 ? 1.0 : -1.0;
    (k % 2 == 0 ? odd : even) += sign * term;
    if (term < kEpsilon) break;
  }
  const double phase = zeta + 0.25 * kPi;
  return (::sin(phase) * even - ::cos(phase) * odd) / (kSqrtPi * ::sqrt(::sqrt(a)));
}

MT_HD double spherical_bessel_j0(double x) {
  if (::fabs(x) == INFINITY) return 0.0;
  if (::fabs(x) >= 0.5) return ::sin(x) / x;
  const double z = x * x;
  double term = 1.0, sum = 1.0;
  for (int k = 1; k < 8; k++) {
    term *= -z / (2.0 * k * (2.0 * k + 1.0));
    sum += term;
  }
  return sum;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::special

namespace minitorch::functors {
inline namespace MINITORCH_ARCH {

MT_UNARY_FUNCTOR(AiryAi, static_cast<T>(special::airy_ai(x)))
MT_UNARY_FUNCTOR(BesselJ0, static_cast<T>(::j0(static_cast<double>(x))))
MT_UNARY_FUNCTOR(BesselJ1, static_cast<T>(::j1(static_cast<double>(x))))
MT_UNARY_FUNCTOR(BesselY0, static_cast<T>(::y0(static_cast<double>(x))))
MT_UNARY_FUNCTOR(BesselY1, static_cast<T>(::y1(static_cast<double>(x))))
MT_UNARY_FUNCTOR(BesselK0, static_cast<T>(special::bessel_k(0, x, false)))
MT_UNARY_FUNCTOR(BesselK1, static_cast<T>(special::bessel_k(1, x, false)))
MT_UNARY_FUNCTOR(ScaledBesselK0, static_cast<T>(special::bessel_k(0, x, true)))
MT_UNARY_FUNCTOR(ScaledBesselK1, static_cast<T>(special::bessel_k(1, x, true)))
MT_UNARY_FUNCTOR(SphericalBesselJ0, static_cast<T>(special::spherical_bessel_j0(x)))

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::functors
