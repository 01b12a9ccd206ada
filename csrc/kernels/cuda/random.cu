// Distributions on CUDA, from Philox (philox.cuh).
#include "kernels/random.h"

#include <limits>

#include "kernels/cuda/draw.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

struct Args {
  int64_t numel;
  Space space;
  int64_t strides[kCudaDims];
  char* out;
  uint64_t seed, offset;
  double a, b;
  uint64_t range;
  int64_t base;
};

template <class T>
__device__ __forceinline__ T& element(const Args& a, int64_t i) {
  char* p = a.out;
  a.space.each(i, [&](int d, int64_t at) { p += at * a.strides[d]; });
  return *reinterpret_cast<T*>(p);
}

// draw(generator, V values) makes V values at a time; element li of a round is value li / threads of its thread.
template <class T, int V, class Value, class Draw, class Transform>
__global__ void __launch_bounds__(kThreads)
    draw_elements(const __grid_constant__ Args a, Draw draw, Transform transform) {
  const int64_t thread = blockIdx.x * int64_t{kThreads} + threadIdx.x, threads = int64_t{kThreads} * gridDim.x;
  philox::Generator generator(a.seed, thread, a.offset);
  for (int64_t base = thread; base - thread < a.numel; base += threads * V) {
    Value values[V];
    draw(generator, values);
#pragma unroll
    for (int v = 0; v < V; v++) {
      const int64_t i = base + v * threads;
      if (i < a.numel) element<T>(a, i) = transform(a, values[v]);
    }
  }
}

// What to fill, with the distribution's parameters in `args`.
struct Task {
  RandomState& state;
  const PointwiseView& view;
  Args args;
};

template <class T, int V, class Value, class Draw, class Transform>
void launch(const Task& task, const Draw& draw, const Transform& transform) {
  const PointwiseView& v = task.view;
  const unsigned grid = philox::grid(v.numel);
  const uint64_t rounds = static_cast<uint64_t>((v.numel - 1) / (int64_t{kThreads} * grid * V) + 1);
  const uint64_t offset = advance(task.state, rounds * 4);
  if (!has_small_offsets(v)) {  // the parts draw their own numbers, and native leaves those of the whole unused
    each_small_part(
        v, [&](const PointwiseView& part) { launch<T, V, Value>(Task{task.state, part, task.args}, draw, transform); });
    return;
  }
  Args a = task.args;
  a.numel = v.numel;
  a.space = Space(v.ndim, v.sizes, v.numel);
  for (int d = 0; d < v.ndim; d++) a.strides[d] = v.strides[0][d];
  a.out = v.data[0];
  a.seed = task.state.seed;
  a.offset = offset;
  draw_elements<T, V, Value><<<grid, kThreads, 0, cuda::current_stream()>>>(a, draw, transform);
}

// One real number a draw, in the element's compute type.
template <class T, class Draw, class Transform>
void real(const Task& task, const Draw& draw, const Transform& transform) {
  if constexpr (std::is_same_v<T, double>) {
    launch<T, 2, double>(task, draw, transform);
  } else {
    launch<T, 4, float>(task, draw, transform);
  }
}

// Native CUDA's transformations take the fast intrinsics for float.
__device__ __forceinline__ double fast_log(double x) { return ::log(x); }
__device__ __forceinline__ float fast_log(float x) { return __logf(x); }
__device__ __forceinline__ double fast_log1p(double x) { return ::log1p(x); }
__device__ __forceinline__ float fast_log1p(float x) { return __logf(1.0f + x); }
__device__ __forceinline__ double fast_exp(double x) { return ::exp(x); }
__device__ __forceinline__ float fast_exp(float x) { return __expf(x); }

template <class C>
__device__ __forceinline__ C half_epsilon() {
  return (std::is_same_v<C, double> ? C(2.220446049250313e-16) : C(1.1920929e-07f)) / 2;
}

template <class T>
bool continuous(const Task& task, Distribution d) {
  switch (d) {
    case Distribution::uniform:
      real<T>(task, DrawUniform(), [] __device__(const Args& a, auto u) -> T {
        using C = decltype(u);
        const T low = convert<T>(static_cast<C>(a.a)), high = convert<T>(static_cast<C>(a.b));
        const C range = convert<C>(convert<T>(static_cast<C>(convert<C>(high) - convert<C>(low))));
        const T value = convert<T>(static_cast<C>(u * range + convert<C>(low)));
        return convert<C>(value) == convert<C>(high) ? low : value;
      });
      return true;
    case Distribution::normal:
      real<T>(task, DrawNormal(), [] __device__(const Args& a, auto z) -> T {
        using C = decltype(z);
        return convert<T>(static_cast<C>(z * static_cast<C>(a.b) + static_cast<C>(a.a)));
      });
      return true;
    case Distribution::log_normal:
      real<T>(task, DrawNormal(), [] __device__(const Args& a, auto z) -> T {
        using C = decltype(z);
        return convert<T>(fast_exp(static_cast<C>(z * static_cast<C>(a.b) + static_cast<C>(a.a))));
      });
      return true;
    case Distribution::cauchy:
      real<T>(task, DrawUniform(), [] __device__(const Args& a, auto u) -> T {
        using C = decltype(u);
        constexpr auto pi = C(3.14159265358979323846);
        const C median = static_cast<C>(a.a), sigma = static_cast<C>(a.b);
        if constexpr (std::is_same_v<C, double>) {
          return median + sigma * ::tan(pi * (u - 0.5));
        } else {
          constexpr float eps = 1.1920929e-07f;
          u = u > 1 - eps ? 1 - eps : u;
          u = u < eps ? eps : u;
          return convert<T>(median + sigma * __tanf(pi * (u - 0.5f)));
        }
      });
      return true;
    case Distribution::exponential:
      real<T>(task, DrawUniform(), [] __device__(const Args& a, auto u) -> T {
        using C = decltype(u);
        const C log = u >= 1 - half_epsilon<C>() ? -half_epsilon<C>() : fast_log(u);
        return convert<T>(static_cast<C>(C(-1) / static_cast<C>(a.a) * log));
      });
      return true;
    default: return false;
  }
}

template <class T>
bool discrete(Task task, Distribution d) {
  const auto in_range = [] __device__(const Args& a, auto word) -> T {
    return convert<T>(static_cast<int64_t>(static_cast<uint64_t>(word) % a.range + static_cast<uint64_t>(a.base)));
  };
  switch (d) {
    case Distribution::bernoulli:
      real<T>(task, DrawUniform(), [] __device__(const Args& a, auto u) -> T {
        return convert<T>(static_cast<float>(u < static_cast<decltype(u)>(a.a)));
      });
      return true;
    case Distribution::geometric:
      real<T>(task, DrawUniform(), [] __device__(const Args& a, auto u) -> T {
        using C = decltype(u);
        return convert<T>(static_cast<C>(::ceil(fast_log(u) / fast_log1p(-static_cast<C>(a.a)))));
      });
      return true;
    case Distribution::integers_range:
      if (task.args.range >= uint64_t{1} << 28) {
        launch<T, 2, uint64_t>(task, DrawWords(), in_range);
      } else {
        launch<T, 4, uint32_t>(task, DrawWords(), in_range);
      }
      return true;
    case Distribution::integers_full:
      launch<T, 2, uint64_t>(task, DrawWords(), [] __device__(const Args&, uint64_t word) -> T {
        return convert<T>(static_cast<int64_t>(word));
      });
      return true;
    case Distribution::integers: {
      Args& args = task.args;
      args.base = 0;
      if constexpr (std::is_same_v<T, double>) {
        args.range = (uint64_t{1} << 53) + 1;
      } else if constexpr (is_floating_v<T>) {
        args.range = (uint64_t{1} << (std::is_same_v<T, float> ? 24 : std::is_same_v<T, Half> ? 11 : 8)) + 1;
      } else if constexpr (std::is_same_v<T, bool>) {
        args.range = 2;
      } else {
        args.range = static_cast<uint64_t>(std::numeric_limits<T>::max()) + 1;
      }
      if (std::is_same_v<T, int64_t> || std::is_same_v<T, double>) {
        launch<T, 2, uint64_t>(task, DrawWords(), in_range);
      } else {
        launch<T, 4, uint32_t>(task, DrawWords(), in_range);
      }
      return true;
    }
    default: return false;
  }
}

using DiscreteTypes = Types<float, double, Half, BFloat16, uint8_t, int8_t, int16_t, int32_t, int64_t, bool>;

void distribution(RandomState& state, Distribution d, const PointwiseView& v, const DistributionParams& params) {
  if (v.numel == 0) return;
  Task task{state, v, {}};
  task.args.a = params.a;
  task.args.b = params.b;
  task.args.range = params.range;
  task.args.base = params.base;
  bool done = false;
  const bool known = d <= Distribution::exponential
                         ? dispatch(v.dtype[0], FloatingTypes{},
                                    [&](auto tag) { done = continuous<typename decltype(tag)::type>(task, d); })
                         : dispatch(v.dtype[0], DiscreteTypes{},
                                    [&](auto tag) { done = discrete<typename decltype(tag)::type>(task, d); });
  if (!known || !done) missing_kernel("random", name_of(v.dtype[0]));
  cuda::check_launch("launching a distribution");
}

void normal_fill(RandomState& state, char* data, DType dtype, int64_t n, double mean, double std) {
  PointwiseView v;
  v.ndim = v.num_outputs = v.num_operands = 1;
  v.numel = v.sizes[0] = n;
  v.data[0] = data;
  v.dtype[0] = v.compute = dtype;
  v.strides[0][0] = static_cast<int64_t>(size_of(dtype));
  distribution(state, Distribution::normal, v, {.a = mean, .b = std});
}

// ---- Bernoulli with a tensor of probabilities ----------------------------------------------------------------------

// Four neighbours take the first four words of a thread's stream. A probability outside [0, 1] is recorded for the next
// synchronisation.
template <class C>
__global__ void __launch_bounds__(kThreads) bernoulli_elements(const __grid_constant__ PairArgs a, uint64_t seed,
                                                               uint64_t offset, cuda::Fault* fault, const char* what) {
  MT_GRID_LOOP(group, (a.numel + 3) / 4) {
    float u[4];
    philox::Generator generator(seed, group, offset);
    DrawUniform()(generator, u);
    for (int k = 0; k < 4; k++) {
      const int64_t i = group * 4 + k;
      if (i >= a.numel) break;
      char* p[2];
      addresses(a, i, p);
      const C probability = load_as<C>(p[1], a.dtype[1]);
      if (!(probability >= 0 && probability <= 1)) cuda::report_fault(fault, what);
      store_as<float>(p[0], a.dtype[0], u[k] <= probability ? 1.0f : 0.0f);
    }
  }
}

void bernoulli_tensor(RandomState& state, const PointwiseView& v) {
  if (v.numel == 0) return;
  const auto start = [&](auto kernel) {
    kernel<<<grid_for((v.numel + 3) / 4), kThreads, 0, cuda::current_stream()>>>(
        pair_args<2>(v), state.seed, advance(state, 10), cuda::fault_record(),
        "bernoulli_: Expected 0 <= p && p <= 1 to be true, but got false.");
  };
  v.dtype[0] == DType::F64 ? start(&bernoulli_elements<double>) : start(&bernoulli_elements<float>);
  cuda::check_launch("launching bernoulli_");
}

MT_REGISTER_KERNEL(distribution_kernel, &distribution);
MT_REGISTER_KERNEL(normal_fill_kernel, &normal_fill);
MT_REGISTER_KERNEL(bernoulli_tensor_kernel, &bernoulli_tensor);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
