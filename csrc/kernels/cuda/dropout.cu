// Dropout on CUDA: draw, mask and scale in one pass, with native CUDA's numbers.
#include "kernels/dropout.h"

#include "kernels/cuda/draw.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

struct SavedState {
  uint64_t seed, offset;
  int64_t neighbours;
};

// The output, the mask when there is one, and the input. As in native CUDA a thread takes V neighbours at a time where
// that is possible (V > 1), and strides by the grid where it is not.
template <class T, int V, bool with_mask>
__global__ void __launch_bounds__(kThreads)
    dropout_elements(const __grid_constant__ PairArgs a, SavedState state, SavedState* saved, T keep, T scale) {
  constexpr int N = with_mask ? 3 : 2;
  constexpr int kDraws = V > 4 ? V / 4 : 1, kValues = V > 1 ? V : 4;
  const int64_t thread = blockIdx.x * int64_t{kThreads} + threadIdx.x, threads = int64_t{kThreads} * gridDim.x;
  if (thread == 0 && saved != nullptr) *saved = state;
  philox::Generator generator(state.seed, thread, state.offset);
  for (int64_t base = thread * V; base < a.numel; base += threads * kValues) {
    float u[kDraws][4];
#pragma unroll
    for (int d = 0; d < kDraws; d++) DrawUniform()(generator, u[d]);
#pragma unroll
    for (int k = 0; k < kValues; k++) {
      const int64_t i = V > 1 ? base + k : base + k * threads;
      if (i >= a.numel) break;
      char* p[N];
      addresses(a, i, p);
      const bool kept = u[k / 4][k % 4] < keep;
      store_as<T>(p[0], a.dtype[0], load_as<T>(p[N - 1], a.dtype[N - 1]) * (kept ? T(1) : T(0)) * scale);
      if constexpr (with_mask) *reinterpret_cast<bool*>(p[1]) = kept;
    }
  }
}

// The number that dropout_elements drew for element i of a launch of `threads`; `drawn` says which four words `words`
// holds.
__device__ __forceinline__ float draw_again(const SavedState& state, int64_t i, int64_t threads, int64_t& drawn,
                                            float (&words)[4]) {
  const int64_t v = state.neighbours;
  const int64_t group = i / v, thread = group % threads, turn = group / threads;
  const int64_t k = v > 1 ? i % v : turn % 4;
  const int64_t draw = v > 4 ? turn * (v / 4) + k / 4 : v > 1 ? turn : turn / 4;
  if (const int64_t at = draw * threads + thread; at != drawn) {
    philox::Generator generator(state.seed, thread, state.offset + draw * 4);
    DrawUniform()(generator, words);
    drawn = at;
  }
  return words[k % 4];
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_elements_again(const __grid_constant__ PairArgs a, const SavedState* saved, int64_t threads, T keep,
                           T scale) {
  const SavedState state = *saved;
  MT_GRID_LOOP(group, (a.numel + 3) / 4) {
    float words[4];
    int64_t drawn = -1;
    for (int64_t i = group * 4; i < min(group * 4 + 4, a.numel); i++) {
      char* p[2];
      addresses(a, i, p);
      const bool kept = draw_again(state, i, threads, drawn, words) < keep;
      store_as<T>(p[0], a.dtype[0], load_as<T>(p[1], a.dtype[1]) * (kept ? T(1) : T(0)) * scale);
    }
  }
}

// Neighbours of a thread: as many as 16 bytes hold, if the input is dense and aligned and nothing is left over.
int neighbours(const PointwiseView& v) {
  const int input = v.num_operands - 1;
  const auto size = static_cast<int64_t>(size_of(v.dtype[input]));
  int64_t dense = size;
  for (int d = 0; d < v.ndim; d++) {
    if (v.strides[input][d] != dense) return 1;
    dense *= v.sizes[d];
  }
  int64_t n = 16 / size;
  while (n > 1 &&
         (reinterpret_cast<uintptr_t>(v.data[input]) % static_cast<uintptr_t>(n * size) != 0 || v.numel % n != 0))
    n /= 2;
  return static_cast<int>(n);
}

// Native CUDA takes the reciprocal in the compute type, where native CPU rounds it to the input's.
template <class T>
T scale_of(double keep) {
  return keep == 0 ? T(0) : static_cast<T>(1.0 / static_cast<double>(static_cast<T>(keep)));
}

template <class T, bool with_mask>
void launch_dropout(const PointwiseView& v, const SavedState& state, char* saved, double keep) {
  const PairArgs a = pair_args<with_mask ? 3 : 2>(v);
  const auto start = [&](auto kernel) {
    kernel<<<philox::grid(v.numel), kThreads, 0, cuda::current_stream()>>>(
        a, state, reinterpret_cast<SavedState*>(saved), static_cast<T>(keep), scale_of<T>(keep));
  };
  switch (state.neighbours) {
    case 8: start(&dropout_elements<T, 8, with_mask>); break;
    case 4: start(&dropout_elements<T, 4, with_mask>); break;
    case 2: start(&dropout_elements<T, 2, with_mask>); break;
    default: start(&dropout_elements<T, 1, with_mask>);
  }
  cuda::check_launch("launching a dropout");
}

void dropout(RandomState& state, const PointwiseView& v, double keep, double /*scale*/, char* saved) {
  if (v.numel == 0) return;
  const auto rounds = static_cast<uint64_t>((v.numel - 1) / (int64_t{kThreads} * philox::grid(v.numel) * 4) + 1);
  const SavedState now{state.seed, advance(state, rounds * 4), neighbours(v)};
  const bool with_mask = v.num_operands == 3;
  if (v.dtype[0] == DType::F64) {
    with_mask ? launch_dropout<double, true>(v, now, saved, keep) : launch_dropout<double, false>(v, now, saved, keep);
  } else {
    with_mask ? launch_dropout<float, true>(v, now, saved, keep) : launch_dropout<float, false>(v, now, saved, keep);
  }
}

void dropout_again(const char* saved, const PointwiseView& v, double keep, double /*scale*/) {
  if (v.numel == 0) return;
  const int64_t threads = int64_t{kThreads} * philox::grid(v.numel);
  const auto run = [&](auto tag) {
    using T = typename decltype(tag)::type;
    dropout_elements_again<T><<<grid_for(ceil_div(v.numel, 4)), kThreads, 0, cuda::current_stream()>>>(
        pair_args<2>(v), reinterpret_cast<const SavedState*>(saved), threads, static_cast<T>(keep), scale_of<T>(keep));
  };
  v.dtype[0] == DType::F64 ? run(Tag<double>{}) : run(Tag<float>{});
  cuda::check_launch("launching a dropout's gradient");
}

MT_REGISTER_KERNEL(dropout_kernel, &dropout);
MT_REGISTER_KERNEL(dropout_again_kernel, &dropout_again);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
