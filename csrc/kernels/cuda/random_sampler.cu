// Samplers by acceptance and rejection on CUDA, and the random leaky ReLU, with native CUDA's numbers.
//
// A decision hangs on the last bit, so the arithmetic is in the types that native computes in: constants without a
// suffix are double and carry a float expression over to double, those with one stay float beside doubles. Not native's
// are Poisson numbers of rates from 64 to 4000, where cuRAND inverts an unpublished approximation of the incomplete
// gamma function: the distribution and the numbers used up are the same, the samples are not.
#include "kernels/cuda/draw.cuh"
#include "kernels/random.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// Words of a stream, one at a time.
class Stream {
 public:
  __device__ Stream(uint64_t seed, uint64_t subsequence, uint64_t offset) : generator_(seed, subsequence, offset) {}

  __device__ uint32_t word() {
    if (used_ == 4) words_ = generator_.next(), used_ = 0;
    switch (used_++) {
      case 0: return words_.x;
      case 1: return words_.y;
      case 2: return words_.z;
      default: return words_.w;
    }
  }
  // In (0, 1].
  __device__ float uniform() { return philox::uniform(word()); }
  // In [0, 1), of 24 bits.
  __device__ float uniform_below_one() { return static_cast<float>(word() & 0xffffffu) * 5.9604645e-08f; }
  // In (0, 1).
  __device__ double uniform_inside() { return (word() + 0.5) * 2.3283064365386963e-10; }
  __device__ float normal() {
    if (waits_) {
      waits_ = false;
      return second_normal_;
    }
    const uint32_t x = word(), y = word();
    const float2 pair = philox::normal(x, y);
    second_normal_ = pair.y;
    waits_ = true;
    return pair.x;
  }
  // From four words; only for the first number of a stream.
  __device__ double wide_normal() { return philox::normal(generator_.next()).x; }

 private:
  philox::Generator generator_;
  uint4 words_;
  int used_ = 4;
  float second_normal_;  // if `waits_`: they come in pairs
  bool waits_ = false;
};

// Small rates by products of uniforms (D. Knuth, The Art of Computer Programming 2, 3.4.1), large ones by a normal
// number, those between by transformed rejection (W. Hörmann, "The transformed rejection method for generating Poisson
// random variables", Insurance: Mathematics and Economics 12, 1993: PTRS).
__device__ double poisson(Stream& stream, double rate) {
  if (rate < 64) {
    float product = ::expf(static_cast<float>(rate));
    double count = 0;
    for (product *= stream.uniform(); product > 1; product *= stream.uniform()) count += 1;
    return count;
  }
  if (!(rate <= 1e300)) return rate;  // infinite or NaN
  // Native's is an unsigned integer, and larger ones would end at 2^32.
  if (rate > 4000) return ::floor(::sqrt(rate) * stream.wide_normal() + rate + 0.5);
  const double log_rate = ::log(rate), b = 0.931 + 2.53 * ::sqrt(rate), a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), box = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double u = stream.uniform_inside() - 0.5, v = stream.uniform_inside(), edge = 0.5 - ::fabs(u);
    const double k = ::floor((2 * a / edge + b) * u + rate + 0.43);
    if (edge >= 0.07 && v <= box) return k;
    if (k < 0 || (edge < 0.013 && v > edge)) continue;
    if (::log(v * inverse_alpha / (a / (edge * edge) + b)) <= -rate + k * log_rate - ::lgamma(k + 1)) return k;
  }
}

// G. Marsaglia, W. Tsang, "A simple method for generating gamma variables", ACM TOMS 26, 2000. A concentration below
// one is raised by one and the result multiplied with a power of a uniform.
template <class C>
__device__ C gamma(Stream& stream, C alpha) {
  C scale = 1;
  if (alpha < 1) {
    if (alpha == 0) return 0;
    scale = ::pow(1 - static_cast<C>(stream.uniform()), 1 / alpha);
    alpha += 1;
  }
  const C d = alpha - 1.0f / 3.0f;
  if (!(d > 0)) return static_cast<C>(::nanf(""));
  const C c = 1 / ::sqrt(9 * d);
  while (true) {
    C x, y;
    do {
      x = static_cast<C>(stream.normal());
      y = 1 + c * x;
    } while (y <= 0);
    const C v = y * y * y, u = 1 - static_cast<C>(stream.uniform()), square = x * x;
    if (u < 1 - 0.0331f * square * square) return scale * d * v;
    if (::log(u) < 0.5f * square + d * (1 - v + ::log(v))) return scale * d * v;
  }
}

// The error of Stirling's formula for log k!, by Hörmann's table and series.
template <class C>
__device__ C stirling_tail(C k) {
  static constexpr C small[] = {0.08106146679532726,  0.04134069595540929, 0.02767792568499834, 0.02079067210376509,
                                0.01664469118982119,  0.01387612882307075, 0.01189670994589177, 0.01041126526197209,
                                0.009255462182712733, 0.008330563433362871};
  if (k < 10) return small[static_cast<int>(k)];
  const C square = (k + 1) * (k + 1);
  return static_cast<C>((1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1));
}

// Counts geometric gaps until they exceed n.
template <class C>
__device__ C binomial_by_gaps(Stream& stream, C n, C p) {
  const C log_failure = ::log1p(-p);
  C sum = 0, successes = 0;
  while (true) {
    const C gap = ::ceil(::log(static_cast<C>(stream.uniform_below_one())) / log_failure);
    sum += gap;
    if (sum > n) return successes;
    successes += 1;
  }
}

// W. Hörmann, "The generation of binomial random variates", J. Stat. Comput. Simul. 46, 1993: BTRS.
template <class C>
__device__ C binomial_by_rejection(Stream& stream, C n, C p) {
  const C deviation = ::sqrt(n * p * (1 - p));
  const C b = static_cast<C>(1.15 + 2.53 * deviation), a = static_cast<C>(-0.0873 + 0.0248 * b + 0.01 * p);
  const C center = static_cast<C>(n * p + 0.5), box = static_cast<C>(0.92 - 4.2 / b), odds = p / (1 - p);
  const C alpha = static_cast<C>((2.83 + 5.1 / b) * deviation), mode = ::floor((n + 1) * p);
  while (true) {
    const C u = static_cast<C>(static_cast<C>(stream.uniform_below_one()) - 0.5);
    C v = static_cast<C>(stream.uniform_below_one());
    const C edge = static_cast<C>(0.5 - ::fabs(u)), k = ::floor((2 * a / edge + b) * u + center);
    if (k < 0 || k > n) continue;
    if (edge >= 0.07 && v <= box) return k;
    v = ::log(v * alpha / (a / (edge * edge) + b));
    const C bound =
        static_cast<C>((mode + 0.5) * ::log((mode + 1) / (odds * (n - mode + 1))) +
                       (n + 1) * ::log((n - mode + 1) / (n - k + 1)) + (k + 0.5) * ::log(odds * (n - k + 1) / (k + 1)) +
                       stirling_tail(mode) + stirling_tail(n - mode) - stirling_tail(k) - stirling_tail(n - k));
    if (v <= bound) return k;
  }
}

template <class C>
__device__ C binomial(Stream& stream, C n, C p) {
  if (n <= 0 || p <= 0) return 0;
  if (p >= 1) return n;
  if (p != p || n != n) return static_cast<C>(::nanf(""));
  const C rarer = p <= 0.5 ? p : static_cast<C>(1.0 - p);
  const C k = n * rarer >= 10 ? binomial_by_rejection(stream, n, rarer) : binomial_by_gaps(stream, n, rarer);
  return p <= 0.5 ? k : n - k;
}

__global__ void __launch_bounds__(kThreads) poisson_elements(const __grid_constant__ PairArgs a, uint64_t seed,
                                                             uint64_t offset, cuda::Fault* fault, const char* what) {
  MT_GRID_LOOP(i, a.numel) {
    char* p[2];
    addresses(a, i, p);
    Stream stream(seed, i, offset);
    const double rate = load_as<double>(p[1], a.dtype[1]);
    if (!(rate >= 0)) cuda::report_fault(fault, what);
    const double count = poisson(stream, rate);
    if (a.dtype[0] == DType::F64) {
      *reinterpret_cast<double*>(p[0]) = count;
    } else {
      store_as<float>(p[0], a.dtype[0], static_cast<float>(count));
    }
  }
}

template <class C>
__global__ void __launch_bounds__(kThreads)
    gamma_elements(const __grid_constant__ PairArgs a, uint64_t seed, uint64_t offset) {
  constexpr C least = std::numeric_limits<C>::min();
  MT_GRID_LOOP(i, a.numel) {
    char* p[2];
    addresses(a, i, p);
    Stream stream(seed, i, offset);
    const C sample = gamma(stream, load_as<C>(p[1], a.dtype[1]));
    store_as<C>(p[0], a.dtype[0], least > sample ? least : sample);
  }
}

// A thread's elements follow each other in its stream: as many as native's threads take in a kernel over three
// operands.
constexpr int kBinomialThreads = 128, kBinomialElements = 8;

template <class C>
__global__ void __launch_bounds__(kBinomialThreads)
    binomial_elements(const __grid_constant__ PairArgs a, uint64_t seed, uint64_t offset) {
  const int64_t first = blockIdx.x * int64_t{kBinomialThreads} * kBinomialElements + threadIdx.x;
  Stream stream(seed, blockIdx.x * int64_t{kBinomialThreads} + threadIdx.x, offset);
  for (int k = 0; k < kBinomialElements; k++) {
    const int64_t i = first + k * kBinomialThreads;
    if (i >= a.numel) break;
    char* p[3];
    addresses(a, i, p);
    store_as<C>(p[0], a.dtype[0], binomial(stream, load_as<C>(p[1], a.dtype[1]), load_as<C>(p[2], a.dtype[2])));
  }
}

void sampler(RandomState& state, Sampler sampler, const PointwiseView& v) {
  if (v.numel == 0) return;
  const cudaStream_t stream = cuda::current_stream();
  const bool wide = v.dtype[0] == DType::F64;
  if (sampler == Sampler::poisson) {
    poisson_elements<<<grid_for(v.numel), kThreads, 0, stream>>>(
        pair_args<2>(v), state.seed, advance(state, 20), cuda::fault_record(),
        "invalid Poisson rate, expected rate to be non-negative");
  } else if (sampler == Sampler::gamma) {
    const auto kernel = wide ? &gamma_elements<double> : &gamma_elements<float>;
    kernel<<<grid_for(v.numel), kThreads, 0, stream>>>(pair_args<2>(v), state.seed, advance(state, 10));
  } else {
    const auto kernel = wide ? &binomial_elements<double> : &binomial_elements<float>;
    const uint64_t offset = advance(state, 42);
    each_small_part(v, [&](const PointwiseView& part) {  // all from the same place, as in native
      const auto grid = static_cast<unsigned>(ceil_div(part.numel, int64_t{kBinomialThreads} * kBinomialElements));
      kernel<<<grid, kBinomialThreads, 0, stream>>>(pair_args<3>(part), state.seed, offset);
    });
  }
  cuda::check_launch("launching a sampler");
}

// V values a draw, dealt to the elements as those of a distribution are.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    leak(const T* x, T* noise, T* y, int64_t n, double lower, double range, uint64_t seed, uint64_t offset) {
  using C = compute_t<T>;
  const int64_t thread = blockIdx.x * int64_t{kThreads} + threadIdx.x, threads = int64_t{kThreads} * gridDim.x;
  philox::Generator generator(seed, thread, offset);
  for (int64_t base = thread; base < n; base += threads * V) {
    C u[V];
    DrawUniform()(generator, u);
#pragma unroll
    for (int k = 0; k < V; k++) {
      const int64_t i = base + k * threads;
      if (i >= n) break;
      const T given = x[i];
      const C in = convert<C>(given);
      if (in <= C(0)) {
        const T r = convert<T>(static_cast<C>(static_cast<double>(convert<C>(convert<T>(u[k]))) * range + lower));
        y[i] = convert<T>(in * convert<C>(r));
        noise[i] = r;
      } else {
        noise[i] = convert<T>(C(1));
        y[i] = given;
      }
    }
  }
}

void random_relu(RandomState& state, const RandomReluArgs& a) {
  if (a.n == 0) return;
  const unsigned grid = philox::grid(a.n);
  if (!dispatch(a.dtype, FloatingTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        constexpr int V = std::is_same_v<T, double> ? 2 : 4;
        const auto rounds = static_cast<uint64_t>((a.n - 1) / (int64_t{kThreads} * grid * V) + 1);
        leak<T, V><<<grid, kThreads, 0, cuda::current_stream()>>>(static_cast<const T*>(a.x), static_cast<T*>(a.noise),
                                                                  static_cast<T*>(a.y), a.n, a.lower, a.upper - a.lower,
                                                                  state.seed, advance(state, rounds * 4));
      }))
    missing_kernel("random_relu", name_of(a.dtype));
  cuda::check_launch("launching random_relu");
}

MT_REGISTER_KERNEL(sampler_kernel, &sampler);
MT_REGISTER_KERNEL(random_relu_kernel, &random_relu);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
