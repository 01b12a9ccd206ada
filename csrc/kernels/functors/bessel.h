// Bessel functions of the first and second kind, modified ones, and Airy's function, in double whatever the compute
// type. J and Y are the C library's, but for large arguments on CUDA, where its lose digits. Series are from M.
// Abramowitz, I. Stegun, "Handbook of Mathematical Functions" (AS below); the tables come from tools/fit_bessel.py.
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

// J_n or Y_n, n = 0 or 1, for x >= 20: Hankel's expansion (AS 9.2.5 to 9.2.10), whose terms fall to 1e-17 there.
MT_HD double hankel(int order, double x, bool second) {
  double term = 1.0, p = 1.0, q = 0.0;
  for (int k = 1; k < 40; k++) {
    const double odd = 2.0 * k - 1.0;
    term *= (4.0 * order - odd * odd) / (8.0 * k * x);  // 4 n^2 is 4 n
    const double sign = k / 2 % 2 == 0 ? 1.0 : -1.0;
    (k % 2 == 0 ? p : q) += sign * term;
    if (::fabs(term) < kEpsilon) break;
  }
  // The cosine and sine of x - (2 n + 1) pi / 4, times the root of 2.
  const double s = ::sin(x), c = ::cos(x);
  const double cosine = order == 0 ? c + s : s - c, sine = order == 0 ? s - c : -s - c;
  return (second ? p * sine + q * cosine : p * cosine - q * sine) / (kSqrtPi * ::sqrt(x));
}

MT_HD double bessel_j(int order, double x) {
#if defined(__CUDA_ARCH__)
  const double size = ::fabs(x);
  if (size == INFINITY) return 0.0;
  if (size >= 20.0) {
    const double value = hankel(order, size, false);
    return order == 1 && x < 0.0 ? -value : value;
  }
#endif
  return order == 0 ? ::j0(x) : ::j1(x);
}
MT_HD double bessel_y(int order, double x) {
#if defined(__CUDA_ARCH__)
  if (x == INFINITY) return 0.0;
  if (x >= 20.0) return hankel(order, x, true);
#endif
  return order == 0 ? ::y0(x) : ::y1(x);
}

// K_0 or K_1, times exp(x) if `scaled`. Up to 1, where it cancels little, the ascending series AS 9.6.13
// and 9.6.11, with harmonic numbers.
MT_HD double bessel_k(int order, double x, bool scaled) {
  if (x == 0.0) return INFINITY;
  if (!(x > 0.0)) return NAN;
  if (x > 1.0) {
    if (x == INFINITY) return 0.0;
    // Chebyshev series in t of exp(x) sqrt(x) K(x).
    constexpr double large_k0[] = {
        1.1944330762167386,     -0.053855323307629495,   0.004362000068251702,   -0.0005521270349863234,
        8.959565555755952e-05,  -1.7138726856421186e-05, 3.695146089045472e-06,  -8.737284518980525e-07,
        2.225046272255236e-07,  -6.025216756376064e-08,  1.7186668629418083e-08, -5.1272057810909205e-09,
        1.5907351467912106e-09, -5.10958325791419e-10,   1.6929517419961088e-10, -5.7683063818637606e-11,
        2.0159542597761383e-11, -7.210940065346495e-12,  2.6349075982806445e-12, -9.819576891759296e-13,
        3.72695818784577e-13,   -1.4388149744180521e-13, 5.6436532735816866e-14, -2.2469288334596896e-14,
        9.072046991627365e-15,  -3.711589997838162e-15,  1.537582290719742e-15,  -6.445464362724762e-16,
        2.7324144482527955e-16, -1.1707837700385628e-16, 5.067869397943657e-17,  -2.215087912714289e-17,
        9.77208135793031e-18};
    constexpr double large_k1[] = {
        1.4532756675938414,      0.19051350202061165,    -0.008406706460495654,   0.0008815363164514389,
        -0.000129995769583983,   2.3441638979785087e-05, -4.853489413610226e-06,  1.1139969511197356e-06,
        -2.772707643805077e-07,  7.37247184977708e-08,   -2.0717892129028323e-08, 6.103966549420336e-09,
        -1.873778917957349e-09,  5.963886884453419e-10,  -1.96028004074301e-10,   6.632273899864202e-11,
        -2.3034250700407756e-11, 8.193082518369976e-12,  -2.9786645069974164e-12, 1.1049772078983365e-12,
        -4.1763277431648047e-13, 1.6061141914625803e-13, -6.277632672531289e-14,  2.4911830875182032e-14,
        -1.002779686252293e-14,  4.091059996919741e-15,  -1.690331071434488e-15,  7.068360792264328e-16,
        -2.9895680121763374e-16, 1.2781913900252084e-16, -5.521491188037584e-17,  2.4087033253210474e-17,
        -1.0606842599776099e-17};
    const double t = 2.0 / x - 1.0;
    const double value = (order == 0 ? chebyshev(t, large_k0) : chebyshev(t, large_k1)) / ::sqrt(x);
    return scaled ? value : value * ::exp(-x);
  }
  constexpr double euler = 0.57721566490153286061;
  const double z = 0.25 * x * x, log_half = ::log(0.5 * x);
  double term = 1.0, harmonic = 0.0, sum;
  if (order == 0) {
    sum = -(log_half + euler);
    for (int k = 1; k < 14; k++) {
      term *= z / (k * k);
      harmonic += 1.0 / k;
      sum += term * (harmonic - (log_half + euler));
    }
  } else {
    sum = 0.5 - euler - log_half;
    for (int k = 1; k < 14; k++) {
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
  double sum = 1.0;
  for (int k = 7; k > 0; k--) sum = 1.0 - sum * (z / (2.0 * k * (2.0 * k + 1.0)));
  return sum;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::special

namespace minitorch::functors {
inline namespace MINITORCH_ARCH {

MT_UNARY_FUNCTOR(AiryAi, static_cast<T>(special::airy_ai(x)))
MT_UNARY_FUNCTOR(BesselJ0, static_cast<T>(special::bessel_j(0, x)))
MT_UNARY_FUNCTOR(BesselJ1, static_cast<T>(special::bessel_j(1, x)))
MT_UNARY_FUNCTOR(BesselY0, static_cast<T>(special::bessel_y(0, x)))
MT_UNARY_FUNCTOR(BesselY1, static_cast<T>(special::bessel_y(1, x)))
MT_UNARY_FUNCTOR(BesselK0, static_cast<T>(special::bessel_k(0, x, false)))
MT_UNARY_FUNCTOR(BesselK1, static_cast<T>(special::bessel_k(1, x, false)))
MT_UNARY_FUNCTOR(ScaledBesselK0, static_cast<T>(special::bessel_k(0, x, true)))
MT_UNARY_FUNCTOR(ScaledBesselK1, static_cast<T>(special::bessel_k(1, x, true)))
MT_UNARY_FUNCTOR(SphericalBesselJ0, static_cast<T>(special::spherical_bessel_j0(x)))

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::functors
