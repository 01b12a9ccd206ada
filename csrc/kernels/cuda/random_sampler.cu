// Samplers by acceptance and rejection on CUDA, and the random leaky ReLU. Each element has a stream of Philox of its
// own, so that its draws depend on nothing but the seed and its place. The numbers are not native CUDA's, the
// distributions are.
#include <limits>

#include "kernels/cuda/draw.cuh"
#include "kernels/random.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr uint64_t kWordsReserved = 1 << 12;  // of each stream, for one call: rejections beyond them are not seen

class Draws {
 public:
  __device__ Draws(uint64_t seed, uint64_t element, uint64_t offset) : generator_(seed, element, offset) {}
  // In (0, 1).
  __device__ double uniform() {
    const uint4 w = generator_.next();
    return ((w.x >> 5) * 67108864.0 + (w.y >> 6) + 0.5) * (1.0 / 9007199254740992.0);
  }
  __device__ double normal() { return philox::normal(generator_.next()).x; }

 private:
  philox::Generator generator_;
};

// Products of uniforms for small rates, transformed rejection (W. Hörmann, "The transformed rejection method for
// generating Poisson random variables", Insurance: Mathematics and Economics 12, 1993: PTRS) for large ones.
__device__ double poisson(Draws& draws, double rate) {
  if (!(rate > 0)) return 0;
  if (rate < 10) {
    const double least = ::exp(-rate);
    double count = 0;
    for (double product = draws.uniform(); product > least; product *= draws.uniform()) count += 1;
    return count;
  }
  const double log_rate = ::log(rate), b = 0.931 + 2.53 * ::sqrt(rate), a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), box = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double u = draws.uniform() - 0.5, v = draws.uniform(), edge = 0.5 - ::fabs(u);
    const double k = ::floor((2 * a / edge + b) * u + rate + 0.43);
    if (edge >= 0.07 && v <= box) return k;
    if (k < 0 || (edge < 0.013 && v > edge)) continue;
    if (::log(v * inverse_alpha / (a / (edge * edge) + b)) <= -rate + k * log_rate - ::lgamma(k + 1)) return k;
    if (!(rate <= 1e300)) return rate;  // infinite
  }
}

// G. Marsaglia, W. Tsang, "A simple method for generating gamma variables", ACM TOMS 26, 2000. A concentration below
// one is raised by one and the result multiplied with a power of a uniform.
__device__ double gamma(Draws& draws, double alpha) {
  double scale = 1;
  if (!(alpha > 0)) return alpha == 0 ? 0 : ::nan("");
  if (alpha < 1) {
    scale = ::pow(draws.uniform(), 1 / alpha);
    alpha += 1;
  }
  const double d = alpha - 1.0 / 3, c = 1 / ::sqrt(9 * d);
  while (true) {
    double x, y;
    do {
      x = draws.normal();
      y = 1 + c * x;
    } while (y <= 0);
    const double v = y * y * y, u = draws.uniform(), square = x * x;
    if (u < 1 - 0.0331 * square * square || ::log(u) < 0.5 * square + d * (1 - v + ::log(v))) return scale * d * v;
    if (!(alpha <= 1e300)) return alpha;
  }
}

// The error of Stirling's formula for log k!.
__device__ double stirling_tail(double k) {
  if (k < 10) return ::lgamma(k + 1) - ((k + 0.5) * ::log(k + 1) - (k + 1) + 0.91893853320467274178);
  const double square = (k + 1) * (k + 1);
  return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1);
}

// Geometric gaps for few expected successes; otherwise W. Hörmann, "The generation of binomial random variates",
// J. Stat. Comput. Simul. 46, 1993: BTRS.
__device__ double binomial(Draws& draws, double n, double p) {
  if (n <= 0 || p <= 0) return 0;
  if (p >= 1) return n;
  if (p != p || n != n) return ::nan("");
  const bool flipped = p > 0.5;
  if (flipped) p = 1 - p;
  const auto result = [&](double k) { return flipped ? n - k : k; };
  if (n * p < 10) {
    const double log_failure = ::log1p(-p);
    double sum = 0, successes = 0;
    while (true) {
      sum += ::ceil(::log(draws.uniform()) / log_failure);
      if (sum > n) return result(successes);
      successes += 1;
    }
  }
  const double deviation = ::sqrt(n * p * (1 - p)), b = 1.15 + 2.53 * deviation, a = -0.0873 + 0.0248 * b + 0.01 * p;
  const double center = n * p + 0.5, box = 0.92 - 4.2 / b, odds = p / (1 - p), alpha = (2.83 + 5.1 / b) * deviation;
  const double mode = ::floor((n + 1) * p);
  while (true) {
    const double u = draws.uniform() - 0.5, edge = 0.5 - ::fabs(u);
    double v = draws.uniform();
    const double k = ::floor((2 * a / edge + b) * u + center);
    if (k < 0 || k > n) continue;
    if (edge >= 0.07 && v <= box) return result(k);
    v = ::log(v * alpha / (a / (edge * edge) + b));
    const double bound = (mode + 0.5) * ::log((mode + 1) / (odds * (n - mode + 1))) +
                         (n + 1) * ::log((n - mode + 1) / (n - k + 1)) +
                         (k + 0.5) * ::log(odds * (n - k + 1) / (k + 1)) + stirling_tail(mode) +
                         stirling_tail(n - mode) - stirling_tail(k) - stirling_tail(n - k);
    if (v <= bound) return result(k);
  }
}

__global__ void __launch_bounds__(kThreads)
    sample_elements(const __grid_constant__ PairArgs a, Sampler sampler, uint64_t seed, uint64_t offset,
                    cuda::Fault* fault, const char* what) {
  MT_GRID_LOOP(i, a.numel) {
    char* p[3];
    addresses(a, i, p);
    Draws draws(seed, i, offset);
    const double first = load_as<double>(p[1], a.dtype[1]);
    double value;
    if (sampler == Sampler::poisson) {
      if (!(first >= 0)) cuda::report_fault(fault, what);
      value = poisson(draws, first);
    } else if (sampler == Sampler::binomial) {
      value = binomial(draws, first, load_as<double>(p[2], a.dtype[2]));
    } else {
      const double least = a.dtype[0] == DType::F64   ? 2.2250738585072014e-308
                           : a.dtype[0] == DType::F16 ? 6.103515625e-05
                                                      : 1.1754943508222875e-38;
      value = gamma(draws, first);
      if (value < least) value = least;
    }
    store_as<double>(p[0], a.dtype[0], value);
  }
}

void sampler(RandomState& state, Sampler sampler, const PointwiseView& v) {
  if (v.numel == 0) return;
  PairArgs args = pair_args<2>(v);
  if (v.num_operands > 2) {
    args = pair_args<3>(v);
  } else {
    args.data[2] = args.data[1], args.dtype[2] = args.dtype[1];
  }
  sample_elements<<<grid_for(v.numel), kThreads, 0, cuda::current_stream()>>>(
      args, sampler, state.seed, advance(state, kWordsReserved), cuda::fault_record(),
      "invalid Poisson rate, expected rate to be non-negative");
  cuda::check_launch("launching a sampler");
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    leak(const T* x, T* noise, T* y, int64_t n, double lower, double upper, uint64_t seed, uint64_t offset) {
  using C = compute_t<T>;
  MT_GRID_LOOP(group, (n + 3) / 4) {
    float u[4];
    philox::Generator generator(seed, group, offset);
    DrawUniform()(generator, u);
    for (int k = 0; k < 4; k++) {
      const int64_t i = group * 4 + k;
      if (i >= n) break;
      const T given = x[i];
      const C in = convert<C>(given);
      if (in <= C(0)) {
        const C r = static_cast<C>((1.0 - u[k]) * (upper - lower) + lower);
        y[i] = convert<T>(static_cast<C>(in * r));
        noise[i] = convert<T>(r);
      } else {
        noise[i] = convert<T>(C(1));
        y[i] = given;
      }
    }
  }
}

void random_relu(RandomState& state, const RandomReluArgs& a) {
  if (a.n == 0) return;
  if (!dispatch(a.dtype, FloatingTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        leak<T><<<grid_for((a.n + 3) / 4), kThreads, 0, cuda::current_stream()>>>(
            static_cast<const T*>(a.x), static_cast<T*>(a.noise), static_cast<T*>(a.y), a.n, a.lower, a.upper,
            state.seed, advance(state, 4));
      }))
    missing_kernel("random_relu", name_of(a.dtype));
  cuda::check_launch("launching random_relu");
}

MT_REGISTER_KERNEL(sampler_kernel, &sampler);
MT_REGISTER_KERNEL(random_relu_kernel, &random_relu);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
