// Special functions in double precision: branch-free selects between polynomials whose last steps keep what their
// roundings lose, so that loops over them vectorise. Errors in units in the last place: Bessel functions 0.8, erfinv,
// ndtri and erfcx 1.5, log_ndtr 2. Coefficients are fits by tools/fit_double.py. CUDA takes the series of special.h.
#pragma once
#include "kernels/functors/error_function.h"
#include "kernels/functors/special_single.h"

#if !defined(__CUDA_ARCH__)
namespace minitorch::special::full {
inline namespace MINITORCH_ARCH {

using namespace math::detail;
using single::digamma;
using single::lgamma;

// erfinv(y) / y as in special_single.h, as far as the smallest double goes (2^-30).
MT_HD double erfinv_quotient(double w) {
  constexpr double farthest[] = {17.922978216409255,      1.0027414291166097,      -0.00010973731457807459,
                                 4.52427002505514e-06,    -1.8605248051287882e-07, 7.451962554696281e-09,
                                 -2.7645147630220755e-10, 8.335630647688896e-12,   -2.5802380692588176e-13,
                                 1.5166156889498028e-14,  1.1653848860115178e-15,  -2.8375774628950833e-16,
                                 1.2339229084660658e-17};
  const double root = ::sqrt(w);
  return root > 10.0 ? horner(root - 18.0, farthest) : single::erfinv_quotient(w);
}

// The x with erf(x) = a and erfc(x) = q = 1 - a, 0 <= a < 1: one of Halley's steps from a value good to 2^-30. Near
// zero a counts, further out q.
MT_HD DoubleDouble erf_inverse(double a, double q) {
  const bool tiny = q < 1e-290;
  const double w =
      (tiny ? 200 * 0.69314718055994530942 : 0.0) - log_normal<Precision::single>((tiny ? q * 0x1p200 : q) * (2.0 - q));
  const double x = a * erfinv_quotient(w);
  const ErrorFunction f(x);
  const double far = (scaled(q, -f.n) - f.tail.high) - f.tail.low;
  const double near = scaled((f.middle.high - a) + f.middle.low, -f.n);
  const double u = (x < kErfMiddle ? near : far) / (kTwoOverSqrtPi.high * f.power);
  return {x, u * (x * u) - u};
}

MT_HD double erfinv(double y) {
  const double a = ::fabs(y), value = erf_inverse(a, 1.0 - a).join();
  return ::copysign(a < 1.0 ? value : (a == 1.0 ? INFINITY : NAN), y);
}

// The quantile p of the normal distribution, -sqrt(2) erfc_inverse(2p).
MT_HD double ndtri(double p) {
  const bool left = p < 0.5;
  const double q = 2.0 * (left ? p : 1.0 - p), a = left ? 1.0 - q : 2.0 * p - 1.0;
  const DoubleDouble x = erf_inverse(a, q);
  const DoubleDouble r = times(DoubleDouble{2.0 * kSqrtHalf.high, 2.0 * kSqrtHalf.low}, x);
  double value = left ? -r.join() : r.join();
  value = p == 0.0 ? -INFINITY : value;
  value = p == 1.0 ? INFINITY : value;
  return (p >= 0.0) & (p <= 1.0) ? value : NAN;
}

MT_HD double erfcx(double x) {
  const double a = ::fabs(x), y = limited(x, 26.7);
  const DoubleDouble square = Product(y, y), g = erfcx_sum(a > 1e100 ? 1e100 : a);
  const ExpReduction e(square.high, square.low);
  const DoubleDouble power = exp_sum(e);
  // 1 - erf(x) in the middle, 2 exp(x^2) - erfcx(-x) left of it: powers of two are put back last
  const double back = exp2_integer(-1.0 - (e.n > 1000.0 ? 1000.0 : e.n));
  DoubleDouble m = times(kTwoOverSqrtPi, y);
  m = fast_sum(m.high, m.low + y * (square.high * erf_rest(square.high)));
  DoubleDouble rest = fast_sum(1.0, -m.high);
  rest.low -= m.low;
  const double near = times(power, rest).join();
  const DoubleDouble above = fast_sum(power.high, -back * g.high);
  const double left = above.high + (above.low + (power.low - back * g.low));
  const double right = a > 1e17 ? 0.56418958354775628695 / a : g.join();
  double value = x < 0.0 ? scaled(left, e.n + 1.0) : right;
  value = x < -26.65 ? INFINITY : value;
  return a < kErfMiddle ? near * exp2_integer(e.n) : value;
}

// log of the normal distribution function: far on the left log(erfcx(t) / 2) - t^2, log(1 - upper tail) on the right.
MT_HD double log_ndtr(double x) {
  const double a = ::fabs(x), y = a > 1e150 ? 1e150 : a, tail = math::normal_cdf(-a);
  const bool left = x < -37.0;
  const double scaled_tail = 0.5 * erfcx_sum(kSqrtHalf.high * y).join();
  const double logarithm = log_normal<Precision::full>(left ? scaled_tail : tail);
  const double far = a > 1e150 ? -INFINITY : logarithm - 0.5 * y * y, value = left ? far : logarithm;
  const double result = x > 0.0 ? log1p_full(-tail) : value;
  return x != x ? x : result;
}

// Horner's rule for positive numbers with the rounding errors of all its steps in the second part (S. Graillat, Ph.
// Langlois, N. Louvet, "Compensated Horner scheme", 2005).
template <int N>
MT_HD DoubleDouble compensated_horner(DoubleDouble x, const double (&c)[N]) {
  double r = c[N - 1], error = 0.0;
#pragma GCC unroll 32
  for (int i = N - 2; i >= 0; i--) {
    const Product p(r, x.high);
    const double sum = p.high + c[i], back = sum - p.high;
    const double lost = (p.high - (sum - back)) + (c[i] - back);
    error = error * x.high + (p.low + lost + r * x.low);
    r = sum;
  }
  return {r, error};
}

// Modified Bessel functions of the first kind: the ascending series in (x / 2)^2 up to 8 (AS 9.6.10), beyond that a
// polynomial in 16 / x - 1 times exp(x) / sqrt(x) (2^-58.5).
inline constexpr double kI0Series[] = {1.0,
                                       1.0,
                                       0.25,
                                       0.027777777777777776,
                                       0.001736111111111111,
                                       6.944444444444444e-05,
                                       1.9290123456790124e-06,
                                       3.936759889140842e-08,
                                       6.151187326782565e-10,
                                       7.594058428126624e-12,
                                       7.594058428126623e-14,
                                       6.276081345559193e-16,
                                       4.358389823304995e-18,
                                       2.5789288895295828e-20,
                                       1.3157800456783586e-22,
                                       5.8479113141260385e-25,
                                       2.2843403570804838e-27,
                                       7.904291893012054e-30,
                                       2.4395962632753253e-32,
                                       6.757884385804225e-35,
                                       1.6894710964510564e-37,
                                       3.8310002187098785e-40,
                                       7.915289708078262e-43,
                                       1.4962740468957016e-45,
                                       2.5976979980828152e-48,
                                       4.156316796932504e-51,
                                       6.14839762859838e-54,
                                       8.434015951438106e-57};
inline constexpr double kI1Series[] = {1.0,
                                       0.5,
                                       0.08333333333333333,
                                       0.006944444444444444,
                                       0.00034722222222222224,
                                       1.1574074074074073e-05,
                                       2.755731922398589e-07,
                                       4.920949861426052e-09,
                                       6.834652585313961e-11,
                                       7.594058428126623e-13,
                                       6.903689480115112e-15,
                                       5.230067787965994e-17,
                                       3.352607556388458e-19,
                                       1.842092063949702e-21,
                                       8.771866971189057e-24,
                                       3.654944571328774e-26,
                                       1.3437296218120491e-28,
                                       4.391273273895586e-31,
                                       1.2839980333028028e-33,
                                       3.3789421929021126e-36,
                                       8.045100459290744e-39,
                                       1.7413637357772174e-41,
                                       3.4414303078601135e-44,
                                       6.234475195398757e-47,
                                       1.0390791992331261e-49,
                                       1.5985833834355786e-52,
                                       2.2771843068882885e-55,
                                       3.0121485540850376e-58};
inline constexpr double kI0Large[] = {
    0.0033605519836678844,  0.00013621607439240856,  1.1143033788559087e-05,  1.4838475391383468e-06,
    2.9735993216471474e-07, 8.872278303607728e-08,   3.9324793517123454e-08,  2.1541699603632043e-08,
    7.563107589679047e-09,  -6.7023325619894366e-09, -1.3450608319883882e-08, -5.6022211783247e-09,
    7.687473295440412e-09,  8.006764881281122e-09,   -3.799241020140616e-09,  -7.1046429701883025e-09,
    1.9518431205146255e-09, 5.2159872385826355e-09,  -9.961827005971165e-10,  -3.0791787996480336e-09,
    4.1991218209463363e-10, 1.3291938884143105e-09,  -1.1746991110551324e-10, -3.6353603909526465e-10,
    1.556423962829591e-11,  4.655655751294525e-11};
inline constexpr double kI1Large[] = {
    -0.009749577193235758,   -0.00021923576383438729, -1.5038547198351201e-05, -1.8349101048965518e-06,
    -3.483856445811428e-07,  -1.000134929730233e-07,  -4.312819645562664e-08,  -2.336697227282623e-08,
    -8.435630024967513e-09,  6.687257309165881e-09,   1.4073201407347145e-08,  6.180080050252965e-09,
    -7.768471997806944e-09,  -8.488549054437278e-09,  3.7003762012994875e-09,  7.441519822394391e-09,
    -1.842354234931444e-09,  -5.438072168110142e-09,  9.265252428334351e-10,   3.2055586346236238e-09,
    -3.8986710944632543e-10, -1.3834389708637022e-09, 1.0940884042721056e-10,  3.784510012514866e-10,
    -1.4553819054184817e-11, -4.848238653363404e-11};
inline constexpr DoubleDouble kI0First{0.4021765094450081, -2.5469137991304108e-17},
    kI1First{0.38939845902587233, -4.422269466329674e-18};

struct BesselI {
  DoubleDouble near, far;  // far without exp(a)
  double a;
  template <int N, int M>
  MT_HD BesselI(double x, const double (&series)[N], DoubleDouble first, const double (&large)[M]) : a(::fabs(x)) {
    const double half = 0.5 * (a > 8.0 ? 8.0 : a);
    near = compensated_horner(Product(half, half), series);
    const double b = a == INFINITY ? 1.0 : a, root = ::sqrt(b), inverse = 1.0 / root;
    const double t = 16.0 * inverse * inverse - 1.0;
    DoubleDouble p = fast_sum(first.high, t * horner(t, large));
    p.low += first.low;
    far = quotient(p, {root, remainder(b, root, root) * (0.5 * inverse)}, inverse);
  }
  // near or far, times exp(power)
  MT_HD double join(double near_power, double far_power) const {
    const bool inside = a < 8.0;
    const double power = inside ? near_power : far_power;
    const DoubleDouble value = {inside ? near.high : far.high, inside ? near.low : far.low};
    const ExpReduction e(power);
    return scaled(times(exp_sum(e), value).join(), e.n);
  }
  MT_HD double plain() const {
    const double value = join(0.0, a > 720.0 ? 720.0 : a);
    return a > 720.0 ? INFINITY : value;
  }
  MT_HD double scaled_down() const {
    const double value = join(a < 8.0 ? -a : -8.0, 0.0);
    return a == INFINITY ? 0.0 : value;
  }
};
MT_HD BesselI bessel_i0(double x) { return {x, kI0Series, kI0First, kI0Large}; }
MT_HD BesselI bessel_i1(double x) {
  BesselI i(x, kI1Series, kI1First, kI1Large);
  i.near = times(i.near, 0.5 * i.a);
  return i;
}
MT_HD double i0(double x) { return bessel_i0(x).plain(); }
MT_HD double i1(double x) { return ::copysign(bessel_i1(x).plain(), x); }
MT_HD double i0e(double x) { return bessel_i0(x).scaled_down(); }
MT_HD double i1e(double x) { return ::copysign(bessel_i1(x).scaled_down(), x); }

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::special::full
#endif
