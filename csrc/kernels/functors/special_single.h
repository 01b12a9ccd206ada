// Special functions in single precision: branch-free selects between polynomials, evaluated in double, so that loops
// over them vectorise (math.h tells the scheme). Coefficients are fits by tools/fit_special.py; the number beside
// each is its error. Double precision and CUDA take the series of special.h.
#pragma once
#include "kernels/functors/math.h"

namespace minitorch::special::single {
inline namespace MINITORCH_ARCH {
#if !defined(__CUDA_ARCH__)

using namespace math::detail;
using math::kPi;

// erfinv(y) / y as a function of w = -log(1 - y^2), 0 <= w < 106 (2^-30; the variables are those of M. Giles,
// "Approximating the erfinv function", 2010).
MT_HD double erfinv_quotient(double w) {
  constexpr double inner[] = {1.501409351110792,       0.24664027678526776,   -0.004177317810140035,
                              -0.001252708083622281,   0.00021825064939995,   -4.99588144876006e-06,
                              -3.4171152327450104e-06, 4.786448243400271e-07, 1.3691496015199152e-08,
                              -1.0854397093112376e-08, 8.327000821030813e-10, 1.2302888973120805e-10,
                              -2.1203565131819003e-11};
  constexpr double outer[] = {2.832976799290247,      1.001675254480953,       0.009445481403591534,
                              -0.00764312468878151,   0.005685501954696138,    -0.003564736955668509,
                              0.0014843926920903663,  -0.0001275586609508694,  -0.0002935127336917932,
                              0.00017263210575117839, -1.9727388592645793e-05, -7.603337366253229e-06};
  constexpr double far[] = {6.869019651195666,      1.0085956252836918,      -0.0005126497831393719,
                            6.27228719262906e-06,   6.049649791262431e-06,   -1.609110114978435e-06,
                            3.15781961767244e-07,   -5.7453057010713524e-08, 8.590120716662066e-09,
                            -7.665355426005277e-10, 1.6258274020978916e-10,  -6.664655970182526e-11,
                            8.416990748258119e-12};
  const double root = ::sqrt(w);
  const double value = root < 4.0 ? horner(root - 3.0, outer) : horner(root - 7.0, far);
  return w < 5.0 ? horner(w - 2.5, inner) : value;
}

MT_HD double erfinv(double y) {
  double value = y * erfinv_quotient(-log_normal<Precision::single>(1.0 - y * y));
  value = ::fabs(y) == 1.0 ? ::copysign(INFINITY, y) : value;
  return ::fabs(y) > 1.0 ? NAN : value;
}

// The quantile of the normal distribution: with y = 2p - 1, 1 - y^2 = 4p (1 - p) has no cancellation.
MT_HD double ndtri(double p) {
  double value =
      1.41421356237309504880 * (2.0 * p - 1.0) * erfinv_quotient(-log_normal<Precision::single>(4.0 * p * (1.0 - p)));
  value = p == 0.0 ? -INFINITY : value;
  value = p == 1.0 ? INFINITY : value;
  value = p < 0.0 ? NAN : value;
  return p > 1.0 ? NAN : value;
}

// exp(a^2) erfc(a) for a >= 0 in the variable of erfc_single (2^-32).
MT_HD double erfcx_positive(double a) {
  constexpr double c[] = {1.2329951186255526,    -0.13962111376213265,  0.015379652514656337,   0.06809693885725905,
                          -0.1010390813977985,   0.09373409380727189,   -0.06633020048068222,   0.037161413362401655,
                          -0.016198516244698414, 0.005047344723414027,  -0.0007558842570188051, -0.00022049658164202712,
                          0.0001482094691445721, -8.59703641317568e-06, -9.714709731988143e-06};
  a = a > 1e300 ? 1e300 : a;
  return horner((a - 4.0) / (a + 4.0), c) / (1.0 + 2.0 * a);
}
MT_HD double erfcx(double x) {
  const double tail = erfcx_positive(::fabs(x));
  return x < 0.0 ? 2.0 * exp_single(x * x) - tail : tail;
}

// log of the normal distribution: log(erfcx(t) / 2) - t^2 on the left, log(1 - upper tail) on the right.
MT_HD double log_ndtr(double x) {
  const double t = ::fabs(x) * 0.70710678118654752440;
  const double half = 0.5 * erfcx_positive(t), tail = half * exp_single(-t * t);
  const double logarithm = log_normal<Precision::single>(x > 0.0 ? 1.0 - tail : half);
  const double right = tail < 1e-5 ? -tail - 0.5 * tail * tail : logarithm;
  return x > 0.0 ? right : logarithm - t * t;
}

// exp(-a) I0(a) and exp(-a) I1(a) / a: rational up to 8 (2^-30), a polynomial in 8 / a over sqrt(a) beyond (2^-32).
MT_HD double i0e(double x) {
  constexpr double p[] = {0.9999999992950308,  0.15717831196623133,   0.22105996037033954,   0.03268141583353906,
                          0.00862261971516781, 0.0009655939323605084, 4.8548467828064973e-05};
  constexpr double q[] = {1.0,
                          1.1571782439470024,
                          0.6282392984729925,
                          0.2096967183847714,
                          0.047029369481527465,
                          0.00712090003848611,
                          0.000704613366179101,
                          8.6269545750919e-06};
  constexpr double large[] = {0.3989422803486322,    0.006233479883681495,  0.00043814994906031556,
                              5.818541636628315e-05, 6.649472707450951e-06, 1.1378270762918436e-05,
                              -8.08629031907445e-06, 4.305382686103718e-06};
  const double a = ::fabs(x);
  const bool near = a < 8.0;
  return (near ? horner(a, p) : horner(8.0 / a, large)) / (near ? horner(a, q) : ::sqrt(a));
}
MT_HD double i1e(double x) {
  constexpr double p[] = {0.4999999995830446,    -0.013564837521206716,  0.04135613460629292,    -0.0019391775207259305,
                          0.0004675631338293981, -7.661472357087017e-05, -1.2947652025449512e-06};
  constexpr double q[] = {1.0,
                          0.9728702558102666,
                          0.43058348484285125,
                          0.11032257587202722,
                          0.016537543830366905,
                          0.0009580341204062111,
                          -0.0001294725195743659,
                          -4.3764104877568926e-05};
  constexpr double large[] = {0.3989422804620052,     -0.018700427137961557,  -0.0007303235062842824,
                              -8.117193390756658e-05, -9.179381020590467e-06, -1.314210821984372e-05,
                              9.075710516015118e-06,  -4.845571173544486e-06};
  const double a = ::fabs(x);
  const bool near = a < 8.0;
  const double value = (near ? a * horner(a, p) : horner(8.0 / a, large)) / (near ? horner(a, q) : ::sqrt(a));
  return ::copysign(value, x);
}
// Float overflows long before exp_single does.
MT_HD double unscaled(double x, double scaled) {
  return ::fabs(x) == INFINITY ? ::copysign(INFINITY, scaled) : scaled * exp_single(::fabs(x));
}

MT_HD double i0(double x) { return unscaled(x, i0e(x)); }
MT_HD double i1(double x) { return unscaled(x, i1e(x)); }

// Sine and cosine of pi r for 0 <= r <= 1/2.
struct HalfTurn {
  double sine, cosine;
  MT_HD explicit HalfTurn(double r) {
    const bool outer = r > 0.25;
    const double angle = kPi * (outer ? 0.5 - r : r);
    const double s = sin_reduced<Precision::full>(angle, 0.0), c = cos_reduced<Precision::full>(angle, 0.0);
    sine = outer ? c : s;
    cosine = outer ? s : c;
  }
};

// log |Gamma(x)|. From 3 on Stirling's formula, (x - 1/2)(log(x) - 1) + log(2 pi / e) / 2, with its correction as a
// polynomial in 1/x^2 (2^-57); below, the recurrence leads to 1 + y in [1, 2), where it is y (y - 1) R(y) (2^-54). Left
// of zero reflection (AS 6.1.17), which leaves few digits near the zeros between the poles. In full precision, for
// those; and doubles take it from here.
MT_HD double lgamma(double x) {
  constexpr double r[] = {0.4831289505409809,     -0.14595989591430594,    0.06291140107456485,
                          -0.03130848750105327,   0.01679709863121395,     -0.009425622444829649,
                          0.005446457842219553,   -0.0032120742206072908,  0.0019229162321227923,
                          -0.001164411377219605,  0.0007115202752051298,   -0.00043803516132580534,
                          0.00027130273545114005, -0.0001685717945035172,  0.00010541715222185904,
                          -6.793733027397047e-05, 4.281642862794779e-05,   -2.148770252062576e-05,
                          1.3584275459130943e-05, -1.8527803997032962e-05, 1.1820969445467145e-05};
  constexpr double stirling[] = {0.0833333333333333,     -0.0027777777777198706, 0.0007936507724234067,
                                 -0.0005952350113118343, 0.0008415163778136668,  -0.0019068288114279443,
                                 0.006092364447572614,   -0.023023388614372777,  0.0813307211132798,
                                 -0.2070933006751568,    0.26180852870866445};
  const double a = ::fabs(x), inverse = 1.0 / a;
  const bool large = a >= 3.0, second = a >= 2.0, first = a >= 1.0;
  double base = first ? 1.0 : a, factor = first ? 1.0 : -1.0, y = first ? a - 1.0 : a;
  base = second ? a - 1.0 : base;
  y = second ? a - 2.0 : y;
  base = large ? a : base;
  factor = large ? a - 0.5 : factor;
  const double small = y * (y - 1.0) * horner(y - 0.5, r);
  const double beyond = 0.41893853320467274178 + inverse * horner(inverse * inverse, stirling);
  const bool subnormal = base < 2.2250738585072014e-308;
  // log(base), less one where Stirling's formula subtracts one: before rounding, or little would be left at 3.
  const LogReduction e(subnormal ? base * 0x1p54 : base);
  const double f = e.m - 1.0, k = subnormal ? e.k - 54.0 : e.k;
  const double tail = (0.5 * f * f - (log_correction<Precision::full>(f) + k * kLn2Lo)) - f;
  double value = factor * ((k * kLn2Hi - (large ? 1.0 : 0.0)) - tail) + (large ? beyond : small);

  const double sine = HalfTurn(::fabs(a - ((a + kRound) - kRound))).sine;
  double reflected = log_normal<Precision::full>(kPi / (a * sine)) - value;
  reflected = sine == 0.0 ? INFINITY : reflected;
  reflected = a >= 4503599627370496.0 ? INFINITY : reflected;  // every number from 2^52 on is an integer: a pole
  value = (x < 0.0) & (a > 1e-100) ? reflected : value;        // log |Gamma| is even in so small numbers
  value = a == INFINITY ? INFINITY : value;
  return x == 0.0 ? INFINITY : value;
}

// Its derivative: the same pieces, with the positive zero taken out of the polynomial (2^-52) and an asymptotic
// series in 1/x^2 (2^-55); psi(1 - x) - psi(x) = pi cot(pi x) (AS 6.3.7).
MT_HD double digamma(double x) {
  constexpr double r[] = {0.9510558760318328,     -0.4236274212814573,    0.24054248424078478,
                          -0.14840492305485808,   0.09498872445354183,    -0.06192213319072707,
                          0.0407608338843387,     -0.026975800029253667,  0.017907250563619775,
                          -0.011908146513976738,  0.007926972735646359,   -0.005280903066090605,
                          0.0035187504361950134,  -0.002337552647103118,  0.0015580749137213761,
                          -0.0010776863967234226, 0.0007184107969046378,  -0.00035476352053371977,
                          0.00023650171719339814, -0.0003783907897248858, 0.0002522590506964885};
  constexpr double asymptotic[] = {0.08333333333333287,   -0.0083333333323328,  0.003968253600942064,
                                   -0.004166613154056894, 0.007571670662698111, -0.020904992716699745,
                                   0.07768996902561713,   -0.32525222437397994, 1.2213863296286607,
                                   -3.2200812668413126,   4.15409568940603};
  constexpr double kZero = 1.4616321449683622, kZeroLow = 9.549995429965697e-17;
  const double a = x < 0.0 ? 1.0 - x : x;
  const bool large = a >= 3.0, second = a >= 2.0, first = a >= 1.0;
  double step = first ? 0.0 : -1.0, y = first ? a : a + 1.0;
  step = second ? 1.0 : step;
  y = second ? a - 1.0 : y;
  const double base = second ? a - 1.0 : a, inverse = 1.0 / (large ? a : base), z = inverse * inverse;
  const double small = ((y - kZero) - kZeroLow) * horner(y - 1.5, r) + step * inverse;
  const double beyond = log_normal<Precision::full>(a) - 0.5 * inverse - z * horner(z, asymptotic);
  double value = large ? beyond : small;
  value = a == INFINITY ? INFINITY : value;

  const double fraction = x - ((x + kRound) - kRound);
  const HalfTurn turn(::fabs(fraction));
  const double reflected = value - ::copysign(kPi * turn.cosine / turn.sine, fraction);
  value = x < 0.0 ? (fraction == 0.0 ? NAN : reflected) : value;
  return x == 0.0 ? ::copysign(INFINITY, -x) : value;
}

#endif
}  // namespace MINITORCH_ARCH
}  // namespace minitorch::special::single
