// Samplers by acceptance and rejection, and the random leaky ReLU. Each takes its draws from the Mersenne twister in
// native's order and rounds where native rounds, so that the same seed gives the same samples.
#include <cmath>
#include <limits>
#include <stdexcept>

#include "kernels/cpu/mt19937.h"
#include "kernels/cpu/pointwise_engine.h"
#include "kernels/random.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr double kPi = 3.141592653589793238463;

// A standard normal, by Box-Muller on two uniforms; the second value of a pair waits in the generator.
double next_normal(RandomState& s, Twister& t) {
  if (s.next_double_normal) {
    const double value = *s.next_double_normal;
    s.next_double_normal.reset();
    return value;
  }
  const double u1 = t.uniform(), u2 = t.uniform();
  const double r = std::sqrt(-2.0 * std::log1p(-u2)), theta = 2.0 * kPi * u1;
  s.next_double_normal = r * std::sin(theta);
  return r * std::cos(theta);
}

// Products of uniforms for small rates, transformed rejection (W. Hörmann, "The transformed rejection method for
// generating Poisson random variables", Insurance: Mathematics and Economics 12, 1993: PTRS) for large ones.
int64_t poisson(Twister& t, double rate) {
  if (!(rate >= 0)) throw std::runtime_error("invalid Poisson rate, expected rate to be non-negative");
  if (rate == 0) return 0;
  if (rate < 10) {
    const double least = std::exp(-rate);
    int64_t count = 0;
    for (double product = t.uniform(); product > least; product *= t.uniform()) count++;
    return count;
  }
  const double log_rate = std::log(rate);
  const double b = 0.931 + 2.53 * std::sqrt(rate), a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), box = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double u = t.uniform() - 0.5, v = t.uniform();
    const double edge = 0.5 - std::fabs(u);
    const auto k = static_cast<int64_t>(std::floor((2 * a / edge + b) * u + rate + 0.43));
    if (edge >= 0.07 && v <= box) return k;
    if (k < 0 || (edge < 0.013 && v > edge)) continue;
    int sign;
    const double log_factorial = ::lgamma_r(static_cast<double>(k) + 1, &sign);
    if (std::log(v) + std::log(inverse_alpha) - std::log(a / (edge * edge) + b) <=
        -rate + static_cast<double>(k) * log_rate - log_factorial)
      return k;
  }
}

// G. Marsaglia, W. Tsang, "A simple method for generating gamma variables", ACM TOMS 26, 2000. A concentration below
// one is raised by one and the result multiplied with a power of a uniform.
template <class T>
T gamma(RandomState& s, Twister& t, T alpha) {
  double scale = 1.0;
  if (alpha < T(1)) {
    if (alpha == T(0)) return T(0);
    scale *= std::pow(1 - t.uniform(), static_cast<double>(1.0f / alpha));
    alpha += 1.0f;
  }
  const double d = alpha - 1.0f / 3.0f, c = 1.0f / std::sqrt(9.0f * d);
  while (true) {
    double x, y;
    do {
      x = next_normal(s, t);
      y = 1.0f + c * x;
    } while (y <= 0);
    const double v = y * y * y, u = 1 - t.uniform(), square = x * x;
    if (u < 1.0f - 0.0331f * square * square || std::log(u) < 0.5f * square + d * (1.0f - v + std::log(v)))
      return static_cast<T>(scale * d * v);
  }
}

// The error of Stirling's formula for log k!.
double stirling_tail(double k) {
  constexpr double first[] = {0.0810614667953272,  0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
                              0.0166446911898211,  0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
                              0.00925546218271273, 0.00833056343336287};
  if (k < 10) return first[static_cast<int>(k)];
  const double square = (k + 1) * (k + 1);
  return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1);
}

// Counts geometric gaps: for few expected successes.
template <class T>
T binomial_by_gaps(Twister& t, T count, T p) {
  const double log_failure = static_cast<double>(std::log1p(-p));
  double sum = 0;
  T successes = 0;
  while (true) {
    sum += std::ceil(std::log(t.uniform()) / log_failure);
    if (sum > static_cast<double>(count)) return successes;
    successes += T(1);
  }
}

// W. Hörmann, "The generation of binomial random variates", J. Stat. Comput. Simul. 46, 1993: BTRS.
template <class T>
T binomial_by_rejection(Twister& t, T count, T p) {
  const double deviation = static_cast<double>(std::sqrt(count * p * (1 - p)));
  const double b = 1.15 + 2.53 * deviation, a = -0.0873 + 0.0248 * b + 0.01 * static_cast<double>(p);
  const double center = static_cast<double>(count * p) + 0.5, box = 0.92 - 4.2 / b;
  const double odds = static_cast<double>(p / (1 - p)), alpha = (2.83 + 5.1 / b) * deviation;
  const double mode = static_cast<double>(std::floor((count + 1) * p)), n = static_cast<double>(count);
  while (true) {
    const double u = t.uniform() - 0.5;
    double v = t.uniform();
    const double edge = 0.5 - std::fabs(u);
    const T drawn = static_cast<T>(std::floor((2 * a / edge + b) * u + center));
    if (drawn < 0 || drawn > count) continue;
    if (edge >= 0.07 && v <= box) return drawn;
    const double k = static_cast<double>(drawn);
    v = std::log(v * alpha / (a / (edge * edge) + b));
    const double bound = (mode + 0.5) * std::log((mode + 1) / (odds * (n - mode + 1))) +
                         (n + 1) * std::log((n - mode + 1) / (n - k + 1)) +
                         (k + 0.5) * std::log(odds * (n - k + 1) / (k + 1)) + stirling_tail(mode) +
                         stirling_tail(n - mode) - stirling_tail(k) - stirling_tail(n - k);
    if (v <= bound) return drawn;
  }
}

template <class T>
T binomial(Twister& t, T count, T p) {
  if (count <= T(0) || p <= T(0)) return T(0);
  if (p >= T(1)) return count;
  if (p != p) return T(NAN);
  const T rare = p <= T(0.5) ? p : static_cast<T>(1.0 - p);
  const T k = count * rare >= T(10) ? binomial_by_rejection(t, count, rare) : binomial_by_gaps(t, count, rare);
  return p <= T(0.5) ? k : count - k;
}

// draw(parameters' pointers) for each element, in the view's order; `draw` gives the value to store.
template <class Out, class F>
void serially(const PointwiseView& v, const F& draw) {
  for_each_row_in(v, 0, v.numel, [&](char* const* ptrs, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
      const char* in[2] = {};
      for (int k = 1; k < v.num_operands; k++) in[k - 1] = ptrs[k] + (v.ndim > 0 ? i * v.strides[k][0] : 0);
      *reinterpret_cast<Out*>(ptrs[0] + (v.ndim > 0 ? i * v.strides[0][0] : 0)) = draw(in);
    }
  });
}
template <class T>
MT_INLINE T value(const char* p) {
  return *reinterpret_cast<const T*>(p);
}

void sampler(RandomState& s, Sampler sampler, const PointwiseView& v) {
  Twister t(s.engine);
  const auto draw = [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (sampler == Sampler::poisson) {
      serially<T>(v, [&](const char* const* in) {
        return static_cast<T>(static_cast<float>(poisson(t, static_cast<double>(value<T>(in[0])))));
      });
    } else if constexpr (!is_half_v<T>) {
      const T least = std::numeric_limits<T>::min();
      if (sampler == Sampler::binomial)
        serially<T>(v, [&](const char* const* in) { return binomial(t, value<T>(in[0]), value<T>(in[1])); });
      else if (v.dtype[0] == v.dtype[1])
        serially<T>(v, [&](const char* const* in) { return std::max(least, gamma(s, t, value<T>(in[0]))); });
      else
        serially<double>(v, [&](const char* const* in) {
          return std::max(std::numeric_limits<double>::min(), gamma(s, t, static_cast<double>(value<T>(in[0]))));
        });
    } else {
      missing_kernel("sampler", name_of(v.dtype[1]));
    }
  };
  if (!dispatch(v.dtype[1], FloatingTypes{}, draw)) missing_kernel("sampler", name_of(v.dtype[1]));
}

void random_relu(RandomState& s, const RandomReluArgs& a) {
  Twister t(s.engine);
  const bool done = dispatch(a.dtype, FloatingTypes{}, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    const T* x = static_cast<const T*>(a.x);
    T *noise = static_cast<T*>(a.noise), *y = static_cast<T*>(a.y);
    for (int64_t i = 0; i < a.n; i++) {
      const C in = static_cast<C>(x[i]);
      if (in <= C(0)) {
        const C r = static_cast<C>(t.uniform() * (a.upper - a.lower) + a.lower);
        y[i] = static_cast<T>(in * r);
        noise[i] = static_cast<T>(r);
      } else {
        noise[i] = static_cast<T>(C(1));
        y[i] = x[i];
      }
    }
  });
  if (!done) missing_kernel("random_relu", name_of(a.dtype));
}

MT_REGISTER_KERNEL(sampler_kernel, &sampler);
MT_REGISTER_KERNEL(random_relu_kernel, &random_relu);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
