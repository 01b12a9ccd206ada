// Derivatives of gamma and Dirichlet samples by their parameters: how a sample moves when the parameter does and its
// quantile stays. Series near the ends of the support, saddle point expansions for large parameters, fitted rational
// corrections between (M. Jankowiak, F. Obermeyer, "Pathwise derivatives beyond the reparameterization trick", ICML
// 2018, whose fits these are). In double whatever the compute type.
#pragma once
#include "kernels/functors/special.h"

namespace minitorch::pathwise {
inline namespace MINITORCH_ARCH {

MT_HD double cubic(double x, const double (&c)[4]) { return c[0] + x * (c[1] + x * (c[2] + x * c[3])); }

// d sample / d alpha for a standard gamma variable.
MT_HD double gamma_slope(double alpha, double x) {
  if (x < 0.8) {  // the series of the lower incomplete gamma function and of its derivative by alpha
    double numerator = 1.0, denominator = alpha, cdf = 1.0 / alpha, derivative = 1.0 / (alpha * alpha);
    for (int i = 1; i <= 5; i++) {
      numerator *= -x / i;
      denominator += 1.0;
      cdf += numerator / denominator;
      derivative += numerator / (denominator * denominator);
    }
    const double power = ::pow(x, alpha), density = ::pow(x, alpha - 1.0) * ::exp(-x);
    const double slope = (::log(x) - special::digamma(alpha)) * power * cdf - power * derivative;
    const double result = -slope / density;
    return result != result ? 0.0 : result;
  }
  if (alpha > 8.0) {  // Rice's saddle point expansion
    if (0.9 * alpha <= x && x <= 1.1 * alpha) {
      const double square = alpha * alpha;
      const double first = 1.0 + 24.0 * alpha * (1.0 + 12.0 * alpha);
      const double second =
          1440.0 * square + 6.0 * x * (53.0 - 120.0 * x) - 65.0 * x * x / alpha + alpha * (107.0 + 3600.0 * x);
      return first * second / (1244160.0 * square * square);
    }
    const double scale = ::sqrt(8.0 * alpha), ratio = ::log(x / alpha);
    const double pole = scale / (alpha - x), power = ::pow(x - alpha - alpha * ratio, -1.5);
    const double both = x < alpha ? pole - power : pole + power;
    const double sum = ratio * both - ::sqrt(2.0 / alpha) * (alpha + x) / ((alpha - x) * (alpha - x));
    const double stirling = 1.0 + 1.0 / (12.0 * alpha) * (1.0 + 1.0 / (24.0 * alpha));
    return -stirling * x * sum / scale;
  }
  constexpr double c[3][8] = {
      {0.16009398, -0.094634809, 0.025146376, -0.0030648343, 1, 0.32668115, 0.10406089, 0.0014179084},
      {0.53487893, 0.1298071, 0.065735949, -0.0015649758, 0.16639465, 0.020070113, -0.0035938915, -0.00058392623},
      {0.040121004, -0.0065914022, -0.0026286047, -0.0013441777, 0.017050642, -0.0021309326, 0.00085092367,
       -1.5247877e-07}};
  const double u = ::log(x / alpha), v = ::log(alpha);
  double p[4], q[4];
  for (int i = 0; i < 4; i++) {
    p[i] = c[0][i] + u * (c[1][i] + u * c[2][i]);
    q[i] = c[0][4 + i] + u * (c[1][4 + i] + u * c[2][4 + i]);
  }
  return ::exp(cubic(v, p) / cubic(v, q));
}

// For a beta variable near 0, the derivative by alpha.
MT_HD double beta_slope_low(double x, double alpha, double beta) {
  const double factor = special::digamma(alpha) - special::digamma(alpha + beta) - ::log(x);
  double numerator = 1.0, series = 1.0 / alpha * (factor + 1.0 / alpha);
  for (int i = 1; i <= 10; i++) {
    numerator *= (i - beta) * x / i;
    const double denominator = alpha + i;
    series += numerator / denominator * (factor + 1.0 / denominator);
  }
  const double result = x * ::pow(1.0 - x, -beta) * series;
  return result != result ? 0.0 : result;
}
// The same by beta.
MT_HD double beta_slope_high(double x, double alpha, double beta) {
  const double factor = special::digamma(alpha + beta) - special::digamma(beta);
  double numerator = 1.0, betas = 1.0, slopes = 0.0, series = factor / alpha;
  for (int i = 1; i <= 8; i++) {
    numerator *= -x / i;
    slopes = slopes * (beta - i) + betas;
    betas *= beta - i;
    series += numerator / (alpha + i) * (slopes + factor * betas);
  }
  const double result = -::pow(1.0 - x, 1.0 - beta) * series;
  return result != result ? 0.0 : result;
}
// By alpha, both parameters large: Rice's expansion again, with its own form about the mean, where it is singular.
MT_HD double beta_slope_large(double x, double alpha, double beta) {
  const double total = alpha + beta, mean = alpha / total, deviation = ::sqrt(alpha * beta / (total + 1.0)) / total;
  if (mean - 0.1 * deviation <= x && x <= mean + 0.1 * deviation) {
    const double b2 = beta * beta, b3 = b2 * beta, b4 = b2 * b2;
    const double c0 = 47.0 * x * b4, c1 = (43.0 + 20.0 * (16.0 + 27.0 * beta) * x) * b3;
    const double c2 = 3.0 * (59.0 + 180.0 * beta - 90.0 * x) * b2;
    const double c3 = (453.0 + 1620.0 * beta * (1.0 - x) - 455.0 * x) * beta;
    const double c4 = 8.0 * (1.0 - x) * (135.0 * beta - 11.0);
    const double poly = c0 + alpha * (c1 + alpha * (c2 + alpha * (c3 + alpha * c4)));
    const double above = (1.0 + 12.0 * alpha) * (1.0 + 12.0 * beta) / (total * total);
    const double below = 12960.0 * alpha * alpha * alpha * b2 * (1.0 + 12.0 * total);
    return above / (1.0 - x) * poly / below;
  }
  const double prefactor = -x / ::sqrt(2.0 * alpha * beta / total);
  const double stirling = (1.0 + 1.0 / (12.0 * alpha) + 1.0 / (288.0 * alpha * alpha)) *
                          (1.0 + 1.0 / (12.0 * beta) + 1.0 / (288.0 * beta * beta)) /
                          (1.0 + 1.0 / (12.0 * total) + 1.0 / (288.0 * total * total));
  const double distance = alpha * (x - 1.0) + beta * x;
  const double first = (2.0 * alpha * alpha * (x - 1.0) + alpha * beta * (x - 1.0) - x * beta * beta) /
                       (::sqrt(2.0 * alpha / beta) * ::pow(total, 1.5) * distance * distance);
  const double half_log = 0.5 * ::log(alpha / (total * x)), pole = ::sqrt(8.0 * alpha * beta / total) / distance;
  const double entropy = beta * ::log(beta / (total * (1.0 - x))) + alpha * ::log(alpha / (total * x));
  const double power = ::pow(entropy, -1.5);
  return stirling * prefactor * (first + half_log * (pole + (x < mean ? power : -power)));
}

// d sample / d alpha / (1 - x) of one component x of a Dirichlet sample whose concentrations sum to `total`.
MT_HD double dirichlet_slope(double x, double alpha, double total) {
  const double beta = total - alpha, boundary = total * x * (1.0 - x);
  if (x <= 0.5 && boundary < 2.5) return beta_slope_low(x, alpha, beta);
  if (x >= 0.5 && boundary < 0.75) return -beta_slope_high(1.0 - x, beta, alpha);
  if (alpha > 6.0 && beta > 6.0) return beta_slope_large(x, alpha, beta);
  constexpr double c[2][3][3][4] = {
      {{{1.003668233, -0.01061107488, -0.0657888334, 0.01201642863},
        {0.6336835991, -0.3557432599, 0.05486251648, -0.001465281033},
        {-0.03276231906, 0.004474107445, 0.002429354597, -0.0001557569013}},
       {{0.221950385, -0.3187676331, 0.01799915743, 0.01074823814},
        {-0.2951249643, 0.06219954479, 0.01535556598, 0.001550077057},
        {0.02155310298, 0.004170831599, 0.001292462449, 6.976601077e-05}},
       {{-0.05980841433, 0.008441916499, 0.01085618172, 0.002319392565},
        {0.02911413504, 0.01400243777, -0.002721828457, 0.000751041181},
        {0.005900514878, -0.001936558688, -9.495446725e-06, 5.385558597e-05}}},
      {{{1, -0.02924021934, -0.04438342661, 0.007285809825},
        {0.6357567472, -0.3473456711, 0.05454656494, -0.002407477521},
        {-0.03301322327, 0.004845219414, 0.00231480583, -0.0002307248149}},
       {{0.5925320577, -0.1757678135, 0.01505928619, 0.000564515273},
        {0.1014815858, -0.06589186703, 0.01272886114, -0.0007316646956},
        {-0.007258481865, 0.001096195486, 0.0003934994223, -4.12701925e-05}},
       {{0.06469649321, -0.0236701437, 0.002902096474, -5.896963079e-05},
        {0.001925008108, -0.002869809258, 0.0008000589141, -6.063713228e-05},
        {-0.0003477407336, 6.959756487e-05, 1.097287507e-05, -1.650964693e-06}}},
  };
  const double u = ::log(x), a = ::log(alpha) - u, b = ::log(total) - a;
  double sums[2] = {0.0, 0.0}, by_u = 1.0;
  for (int i = 0; i < 3; i++) {
    double term = by_u;
    for (int j = 0; j < 3; j++) {
      for (int k = 0; k < 2; k++) sums[k] += term * cubic(b, c[k][i][j]);
      term *= a;
    }
    by_u *= u;
  }
  return sums[0] / sums[1] * x * (special::digamma(total) - special::digamma(alpha)) / beta;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::pathwise

namespace minitorch::functors {
inline namespace MINITORCH_ARCH {

MT_BINARY_FUNCTOR(StandardGammaGrad, static_cast<T>(pathwise::gamma_slope(a, b)))
template <class T>
struct DirichletGrad {
  MT_HD T operator()(T x, T alpha, T total) const { return static_cast<T>(pathwise::dirichlet_slope(x, alpha, total)); }
};

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::functors
