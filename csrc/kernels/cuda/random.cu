// Distributions, permutations and dropout on CUDA, from Philox (philox.cuh).
#include "kernels/random.h"

#include <limits>

#include "kernels/cuda/philox.cuh"
#include "kernels/dropout.h"
#include "kernels/sort.h"

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

template <class T, int V, class Value, class Draw, class Transform>
void launch(RandomState& state, Args a, const Draw& draw, const Transform& transform) {
  const unsigned grid = philox::grid(a.numel);
  const uint64_t rounds = static_cast<uint64_t>((a.numel - 1) / (int64_t{kThreads} * grid * V) + 1);
  a.offset = philox::advance(state, rounds * 4);
  draw_elements<T, V, Value><<<grid, kThreads, 0, cuda::current_stream()>>>(a, draw, transform);
}

struct DrawUniform {
  __device__ void operator()(philox::Generator& g, float (&r)[4]) const {
    const uint4 w = g.next();
    r[0] = philox::uniform(w.x), r[1] = philox::uniform(w.y), r[2] = philox::uniform(w.z), r[3] = philox::uniform(w.w);
  }
  __device__ void operator()(philox::Generator& g, double (&r)[2]) const {
    const uint4 w = g.next();
    r[0] = philox::uniform(w.x, w.y), r[1] = philox::uniform(w.z, w.w);
  }
};
struct DrawNormal {
  __device__ void operator()(philox::Generator& g, float (&r)[4]) const {
    const uint4 w = g.next();
    const float2 p = philox::normal(w.x, w.y), q = philox::normal(w.z, w.w);
    r[0] = p.x, r[1] = p.y, r[2] = q.x, r[3] = q.y;
  }
  __device__ void operator()(philox::Generator& g, double (&r)[2]) const {
    const double2 p = philox::normal(g.next());
    r[0] = p.x, r[1] = p.y;
  }
};
struct DrawWords {
  __device__ void operator()(philox::Generator& g, uint32_t (&r)[4]) const {
    const uint4 w = g.next();
    r[0] = w.x, r[1] = w.y, r[2] = w.z, r[3] = w.w;
  }
  __device__ void operator()(philox::Generator& g, uint64_t (&r)[2]) const {
    const uint4 w = g.next();
    r[0] = static_cast<uint64_t>(w.x) << 32 | w.y;
    r[1] = static_cast<uint64_t>(w.z) << 32 | w.w;
  }
};

// One real number a draw, in the element's compute type.
template <class T, class Draw, class Transform>
void real(RandomState& state, const Args& a, const Draw& draw, const Transform& transform) {
  if constexpr (std::is_same_v<T, double>) {
    launch<T, 2, double>(state, a, draw, transform);
  } else {
    launch<T, 4, float>(state, a, draw, transform);
  }
}

template <class C>
__device__ __forceinline__ C half_epsilon() {
  return (std::is_same_v<C, double> ? C(2.220446049250313e-16) : C(1.1920929e-07f)) / 2;
}

template <class T>
bool continuous(RandomState& state, Distribution d, const Args& args) {
  switch (d) {
    case Distribution::uniform:
      real<T>(state, args, DrawUniform(), [] __device__(const Args& a, auto u) -> T {
        using C = decltype(u);
        const T low = convert<T>(static_cast<C>(a.a)), high = convert<T>(static_cast<C>(a.b));
        const T value = convert<T>(static_cast<C>(u * static_cast<C>(a.b - a.a) + convert<C>(low)));
        return convert<C>(value) == convert<C>(high) ? low : value;
      });
      return true;
    case Distribution::normal:
      real<T>(state, args, DrawNormal(), [] __device__(const Args& a, auto z) -> T {
        using C = decltype(z);
        return convert<T>(static_cast<C>(z * static_cast<C>(a.b) + static_cast<C>(a.a)));
      });
      return true;
    case Distribution::log_normal:
      real<T>(state, args, DrawNormal(), [] __device__(const Args& a, auto z) -> T {
        using C = decltype(z);
        return convert<T>(static_cast<C>(::exp(z * static_cast<C>(a.b) + static_cast<C>(a.a))));
      });
      return true;
    case Distribution::cauchy:
      real<T>(state, args, DrawUniform(), [] __device__(const Args& a, auto u) -> T {
        using C = decltype(u);
        constexpr C eps = std::is_same_v<C, double> ? C(2.220446049250313e-16) : C(1.1920929e-07f);
        u = u > 1 - eps ? 1 - eps : u;
        u = u < eps ? eps : u;
        return convert<T>(static_cast<C>(static_cast<C>(a.a) +
                                         static_cast<C>(a.b) * ::tan(C(3.14159265358979323846) * (u - C(0.5)))));
      });
      return true;
    case Distribution::exponential:
      real<T>(state, args, DrawUniform(), [] __device__(const Args& a, auto u) -> T {
        using C = decltype(u);
        const C log = u >= 1 - half_epsilon<C>() ? -half_epsilon<C>() : ::log(u);
        return convert<T>(static_cast<C>(C(-1) / static_cast<C>(a.a) * log));
      });
      return true;
    default: return false;
  }
}

template <class T>
bool discrete(RandomState& state, Distribution d, Args args) {
  constexpr bool wide = std::is_same_v<T, int64_t> || std::is_same_v<T, double> || std::is_same_v<T, float> ||
                        std::is_same_v<T, BFloat16>;
  const auto in_range = [] __device__(const Args& a, auto word) -> T {
    return convert<T>(static_cast<int64_t>(static_cast<uint64_t>(word) % a.range + static_cast<uint64_t>(a.base)));
  };
  switch (d) {
    case Distribution::bernoulli:
      real<T>(state, args, DrawUniform(), [] __device__(const Args& a, auto u) -> T {
        return convert<T>(static_cast<float>(u < static_cast<decltype(u)>(a.a)));
      });
      return true;
    case Distribution::geometric:
      real<T>(state, args, DrawUniform(), [] __device__(const Args& a, auto u) -> T {
        using C = decltype(u);
        return convert<T>(static_cast<C>(::ceil(::log(u) / ::log1p(-static_cast<C>(a.a)))));
      });
      return true;
    case Distribution::integers_range:
      if (wide && args.range >= uint64_t{1} << 28) {
        launch<T, 2, uint64_t>(state, args, DrawWords(), in_range);
      } else {
        launch<T, 4, uint32_t>(state, args, DrawWords(), in_range);
      }
      return true;
    case Distribution::integers_full:
      launch<T, 2, uint64_t>(state, args, DrawWords(), [] __device__(const Args&, uint64_t word) -> T {
        return convert<T>(static_cast<int64_t>(word));
      });
      return true;
    case Distribution::integers: {
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
        launch<T, 2, uint64_t>(state, args, DrawWords(), in_range);
      } else {
        launch<T, 4, uint32_t>(state, args, DrawWords(), in_range);
      }
      return true;
    }
    default: return false;
  }
}

using DiscreteTypes = Types<float, double, Half, BFloat16, uint8_t, int8_t, int16_t, int32_t, int64_t, bool>;

Args args_of(const RandomState& state, const PointwiseView& v) {
  Args a{};
  a.numel = v.numel;
  a.space = Space(v.ndim, v.sizes, v.numel);
  for (int d = 0; d < v.ndim; d++) a.strides[d] = v.strides[0][d];
  a.out = v.data[0];
  a.seed = state.seed;
  return a;
}

void distribution(RandomState& state, Distribution d, const PointwiseView& v, const DistributionParams& params) {
  if (v.numel == 0) return;
  Args a = args_of(state, v);
  a.a = params.a;
  a.b = params.b;
  a.range = params.range;
  a.base = params.base;
  bool done = false;
  const bool known = d <= Distribution::exponential
                         ? dispatch(v.dtype[0], FloatingTypes{},
                                    [&](auto tag) { done = continuous<typename decltype(tag)::type>(state, d, a); })
                         : dispatch(v.dtype[0], DiscreteTypes{},
                                    [&](auto tag) { done = discrete<typename decltype(tag)::type>(state, d, a); });
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
  v.host_operands = 0;
  distribution(state, Distribution::normal, v, {.a = mean, .b = std});
}

// ---- Bernoulli with a tensor of probabilities ----------------------------------------------------------------------

struct PairArgs {
  int64_t numel;
  Space space;
  int64_t strides[3][kCudaDims];
  char* data[3];
  DType dtype[3];
};

template <int N>
PairArgs pair_args(const PointwiseView& v) {
  PairArgs a{};
  a.numel = v.numel;
  a.space = Space(v.ndim, v.sizes, v.numel);
  for (int k = 0; k < N; k++) {
    for (int d = 0; d < v.ndim; d++) a.strides[k][d] = v.strides[k][d];
    a.data[k] = v.data[k];
    a.dtype[k] = v.dtype[k];
  }
  return a;
}

template <int N>
__device__ __forceinline__ void addresses(const PairArgs& a, int64_t i, char* (&p)[N]) {
#pragma unroll
  for (int k = 0; k < N; k++) p[k] = a.data[k];
  a.space.each(i, [&](int d, int64_t at) {
#pragma unroll
    for (int k = 0; k < N; k++) p[k] += at * a.strides[k][d];
  });
}

__global__ void __launch_bounds__(kThreads)
    bernoulli_elements(const __grid_constant__ PairArgs a, uint64_t seed, uint64_t offset) {
  const int64_t thread = blockIdx.x * int64_t{kThreads} + threadIdx.x, threads = int64_t{kThreads} * gridDim.x;
  philox::Generator generator(seed, thread, offset);
  for (int64_t base = thread; base - thread < a.numel; base += threads * 4) {
    float u[4];
    DrawUniform()(generator, u);
    for (int k = 0; k < 4; k++) {
      const int64_t i = base + k * threads;
      if (i >= a.numel) break;
      char* p[2];
      addresses(a, i, p);
      const float probability = load_as<float>(p[1], a.dtype[1]);
      if (!(probability >= 0 && probability <= 1)) __trap();
      store_as<float>(p[0], a.dtype[0], u[k] <= probability ? 1.0f : 0.0f);
    }
  }
}

void bernoulli_tensor(RandomState& state, const PointwiseView& v) {
  if (v.numel == 0) return;
  const unsigned grid = philox::grid(v.numel);
  const auto rounds = static_cast<uint64_t>((v.numel - 1) / (int64_t{kThreads} * grid * 4) + 1);
  const uint64_t offset = philox::advance(state, rounds * 4);
  bernoulli_elements<<<grid, kThreads, 0, cuda::current_stream()>>>(pair_args<2>(v), state.seed, offset);
  cuda::check_launch("launching bernoulli_");
}

// ---- Permutations: random keys, sorted -----------------------------------------------------------------------------

__global__ void __launch_bounds__(kThreads) random_keys(int64_t* keys, int64_t n, uint64_t seed, uint64_t offset) {
  MT_GRID_LOOP(i, n) {
    philox::Generator generator(seed, i, offset);
    const uint4 w = generator.next();
    keys[i] = static_cast<int64_t>(static_cast<uint64_t>(w.x) << 32 | w.y);
  }
}

__global__ void __launch_bounds__(kThreads)
    spread_indices(const int64_t* from, char* to, DType dtype, int64_t stride, int64_t n) {
  MT_GRID_LOOP(i, n) store_as<int64_t>(to + i * stride, dtype, from[i]);
}

TensorView line(void* data, int64_t n) {
  TensorView v;
  v.data = static_cast<char*>(data);
  v.dtype = DType::I64;
  v.ndim = 1;
  v.numel = v.sizes[0] = n;
  v.strides[0] = 1;
  return v;
}

void randperm(RandomState& state, const TensorView& result) {
  const int64_t n = result.numel;
  if (n == 0) return;
  const cudaStream_t stream = cuda::current_stream();
  const Scratch memory(3 * n * 8);
  auto* keys = memory.get<int64_t>();
  random_keys<<<grid_for(n), kThreads, 0, stream>>>(keys, n, state.seed, philox::advance(state, 4));
  sort_kernel(line(keys + n, n), line(keys + 2 * n, n), line(keys, n), 0, false);
  spread_indices<<<grid_for(n), kThreads, 0, stream>>>(
      keys + 2 * n, result.data, result.dtype, result.strides[0] * static_cast<int64_t>(size_of(result.dtype)), n);
  cuda::check_launch("launching randperm");
}

// ---- Dropout -------------------------------------------------------------------------------------------------------

struct SavedState {
  uint64_t seed, offset;
};

// The output, the mask when there is one, and the input. The state is given, or read from device memory.
template <class T, bool with_mask>
__global__ void __launch_bounds__(kThreads)
    dropout_elements(const __grid_constant__ PairArgs a, SavedState given, const SavedState* saved, T keep, T scale) {
  constexpr int N = with_mask ? 3 : 2;
  const int64_t thread = blockIdx.x * int64_t{kThreads} + threadIdx.x, threads = int64_t{kThreads} * gridDim.x;
  const SavedState state = saved == nullptr ? given : *saved;
  philox::Generator generator(state.seed, thread, state.offset);
  for (int64_t base = thread; base - thread < a.numel; base += threads * 4) {
    float u[4];
    DrawUniform()(generator, u);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int64_t i = base + k * threads;
      if (i >= a.numel) break;
      char* p[N];
      addresses(a, i, p);
      const bool kept = u[k] < static_cast<float>(keep);
      store_as<T>(p[0], a.dtype[0], load_as<T>(p[N - 1], a.dtype[N - 1]) * (kept ? scale : T(0)));
      if constexpr (with_mask) *reinterpret_cast<bool*>(p[1]) = kept;
    }
  }
}

void launch_dropout(const PointwiseView& v, SavedState given, const SavedState* saved, double keep, double scale) {
  const bool with_mask = v.num_operands == 3;
  const PairArgs a = with_mask ? pair_args<3>(v) : pair_args<2>(v);
  const unsigned grid = philox::grid(v.numel);
  const auto run = [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto start = [&](auto kernel) {
      kernel<<<grid, kThreads, 0, cuda::current_stream()>>>(a, given, saved, static_cast<T>(keep),
                                                            static_cast<T>(scale));
    };
    with_mask ? start(&dropout_elements<T, true>) : start(&dropout_elements<T, false>);
  };
  if (v.dtype[0] == DType::F64) {
    run(Tag<double>{});
  } else {
    run(Tag<float>{});
  }
  cuda::check_launch("launching a dropout");
}

void dropout(RandomState& state, const PointwiseView& v, double keep, double scale, char* saved) {
  if (v.numel == 0) return;
  const auto rounds = static_cast<uint64_t>((v.numel - 1) / (int64_t{kThreads} * philox::grid(v.numel) * 4) + 1);
  const SavedState now{state.seed, philox::advance(state, rounds * 4)};
  if (saved != nullptr)
    cuda::check(cudaMemcpyAsync(saved, &now, sizeof(now), cudaMemcpyHostToDevice, cuda::current_stream()),
                "saving a dropout's state");
  launch_dropout(v, now, nullptr, keep, scale);
}

void dropout_again(const char* saved, const PointwiseView& v, double keep, double scale) {
  if (v.numel == 0) return;
  launch_dropout(v, {}, reinterpret_cast<const SavedState*>(saved), keep, scale);
}

MT_REGISTER_KERNEL(distribution_kernel, &distribution);
MT_REGISTER_KERNEL(normal_fill_kernel, &normal_fill);
MT_REGISTER_KERNEL(bernoulli_tensor_kernel, &bernoulli_tensor);
MT_REGISTER_KERNEL(randperm_kernel, &randperm);
MT_REGISTER_KERNEL(dropout_kernel, &dropout);
MT_REGISTER_KERNEL(dropout_again_kernel, &dropout_again);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
