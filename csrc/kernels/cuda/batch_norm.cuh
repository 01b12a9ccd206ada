// The passes of batch norm over tensors whose channels lie in whole 16-byte packs: planes of one channel, or, channels
// last, lines of all of them. They compute in float; what a channel needs in the second pass is four floats.
#pragma once
#include "kernels/cuda/rows.cuh"
#include "kernels/norm.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace batch {

struct Tensors {
  const void *x, *dy;  // dy: null in the forward pass
  void* to;
  int64_t n, c, spatial;
  bool channels_last;
  Divider packs, channels;  // packs of a plane, or of a line; channels
};

// Forward: {sum d, sum d^2} of the deviations d from centre. Backward: {sum dy d, sum dy}.
template <class S, bool Backward>
struct Sums {
  static constexpr int V = pack_width<S>();
  using Line = Pack<S, V>;

  static __device__ __forceinline__ void add(float& a, float& b, float x, float dy, float centre) {
    const float d = x - centre;
    a += Backward ? dy * d : d;
    b += Backward ? dy : d * d;
  }
};

// Samples are cut into gridDim.y parts; a block sums one channel of a part.
template <class S, bool Backward, class Centre, class Put>
__global__ void __launch_bounds__(512) plane_sums(const __grid_constant__ Tensors t, Centre centre_of, Put put) {
  using Sums = Sums<S, Backward>;
  using Line = typename Sums::Line;
  __shared__ float shared[2][32];
  const int64_t channel = blockIdx.x, first = t.n * blockIdx.y / gridDim.y, last = t.n * (blockIdx.y + 1) / gridDim.y;
  const float centre = centre_of(channel);
  const Line *const x = static_cast<const Line*>(t.x), *const dy = static_cast<const Line*>(t.dy);
  const uint32_t packs = t.packs.divisor;
  float a = 0, b = 0;
  const auto total = static_cast<uint32_t>((last - first) * packs);
  constexpr int kLoads = 4;
  for (uint32_t base = threadIdx.x; base < total; base += blockDim.x * kLoads) {
    Line held[kLoads], grads[kLoads];
#pragma unroll
    for (int u = 0; u < kLoads; u++) {
      const uint32_t i = base + u * blockDim.x;
      if (i >= total) continue;
      const uint32_t sample = t.packs.quotient(i);
      const int64_t at = ((first + sample) * t.c + channel) * packs + (i - sample * packs);
      held[u] = x[at];
      if constexpr (Backward) grads[u] = dy[at];
    }
#pragma unroll
    for (int u = 0; u < kLoads; u++) {
      if (base + u * blockDim.x >= total) continue;
#pragma unroll
      for (int v = 0; v < Sums::V; v++)
        Sums::add(a, b, convert<float>(held[u].value[v]), Backward ? convert<float>(grads[u].value[v]) : 0.0f, centre);
    }
  }
  a = block_reduce(a, shared[0], 0.0f, Sum());
  b = block_reduce(b, shared[1], 0.0f, Sum());
  if (threadIdx.x == 0) put(blockIdx.y, channel, a, b);
}

// Channels last: a thread sums a pack of channels over every eighth line of a part.
template <class S, bool Backward, class Centre, class Put>
__global__ void __launch_bounds__(256) line_sums(const __grid_constant__ Tensors t, Centre centre_of, Put put) {
  using Sums = Sums<S, Backward>;
  using Line = typename Sums::Line;
  constexpr int V = Sums::V, kLines = 8;
  __shared__ float shared[2][kLines][32 * V + 1];
  const uint32_t packs = t.packs.divisor, pack = blockIdx.x * 32 + threadIdx.x;
  const int64_t lines = t.n * t.spatial, first = lines * blockIdx.y / gridDim.y,
                last = lines * (blockIdx.y + 1) / gridDim.y;
  const Line *const x = static_cast<const Line*>(t.x), *const dy = static_cast<const Line*>(t.dy);
  float a[V], b[V], centre[V];
#pragma unroll
  for (int v = 0; v < V; v++) {
    a[v] = b[v] = 0;
    centre[v] = pack < packs ? centre_of(int64_t{pack} * V + v) : 0.0f;
  }
  if (pack < packs) {
#pragma unroll 4
    for (int64_t line = first + threadIdx.y; line < last; line += kLines) {
      const Line held = x[line * packs + pack];
      Line grads;
      if constexpr (Backward) grads = dy[line * packs + pack];
#pragma unroll
      for (int v = 0; v < V; v++)
        Sums::add(a[v], b[v], convert<float>(held.value[v]), Backward ? convert<float>(grads.value[v]) : 0.0f,
                  centre[v]);
    }
  }
#pragma unroll
  for (int v = 0; v < V; v++) {
    shared[0][threadIdx.y][threadIdx.x * V + v] = a[v];
    shared[1][threadIdx.y][threadIdx.x * V + v] = b[v];
  }
  __syncthreads();
  const int column = static_cast<int>(threadIdx.y * 32 + threadIdx.x);
  const int64_t channel = int64_t{blockIdx.x} * 32 * V + column;
  if (column >= 32 * V || channel >= t.c) return;
  float sum_a = 0, sum_b = 0;
#pragma unroll
  for (int line = 0; line < kLines; line++) {
    sum_a += shared[0][line][column];
    sum_b += shared[1][line][column];
  }
  put(blockIdx.y, channel, sum_a, sum_b);
}

// Forward: y = (x - f.x) f.y + f.z. Backward: dx = dy f.y + (x - f.x) f.z + f.w. One float4 f a channel.
template <class S, bool Backward>
__global__ void __launch_bounds__(kThreads) apply(const __grid_constant__ Tensors t, const float4* factors) {
  constexpr int V = pack_width<S>();
  using Line = Pack<S, V>;
  const Line *const x = static_cast<const Line*>(t.x), *const dy = static_cast<const Line*>(t.dy);
  Line* const to = static_cast<Line*>(t.to);
  MT_GRID_LOOP(i, t.n * t.c * t.spatial / V) {
    const auto at = static_cast<uint32_t>(i);
    const uint32_t turn = t.packs.quotient(at);
    const uint32_t channel =
        t.channels_last ? (at - turn * t.packs.divisor) * V : turn - t.channels.quotient(turn) * t.channels.divisor;
    const Line held = x[i];
    Line grads, out;
    if constexpr (Backward) grads = dy[i];
    float4 f = factors[channel];
#pragma unroll
    for (int v = 0; v < V; v++) {
      if (v > 0 && t.channels_last) f = factors[channel + v];
      const float d = convert<float>(held.value[v]) - f.x;
      out.value[v] = convert<S>(Backward ? convert<float>(grads.value[v]) * f.y + d * f.z + f.w : d * f.y + f.z);
    }
    to[i] = out;
  }
}

// Whether these kernels take a tensor; then fills in what they need of its shape.
inline bool prepare(Tensors& t, DType dtype) {
  const auto size = static_cast<int64_t>(size_of(dtype));
  const int64_t run = t.channels_last ? t.c : t.spatial;
  if ((dtype != DType::F32 && !is_half(dtype)) || run * size % 16 != 0 || t.n * t.c * t.spatial >= int64_t{1} << 31 ||
      !rows::aligned({t.x, t.dy, t.to}))
    return false;
  t.packs = Divider(static_cast<uint32_t>(run * size / 16));
  t.channels = Divider(static_cast<uint32_t>(t.c));
  return true;
}

inline int64_t parts_for(const Tensors& t) {
  const int64_t wanted = int64_t{cuda::multiprocessors()} * 8;
  if (t.channels_last)
    return std::clamp<int64_t>(std::min(wanted / ceil_div(t.packs.divisor, 32), t.n * t.spatial / 64), 1, 1024);
  return std::clamp<int64_t>(std::min(ceil_div(wanted, t.c), t.n), 1, 1024);
}

// put(part, channel, a, b) is called once for every part and channel.
template <class S, bool Backward, class Centre, class Put>
void sums(const Tensors& t, int64_t parts, const Centre& centre, const Put& put) {
  const auto y = static_cast<unsigned>(parts);
  const cudaStream_t stream = cuda::current_stream();
  if (t.channels_last) {
    line_sums<S, Backward>
        <<<dim3(static_cast<unsigned>(ceil_div(t.packs.divisor, 32)), y), dim3(32, 8), 0, stream>>>(t, centre, put);
  } else {
    const int64_t work = ceil_div(t.n, parts) * t.packs.divisor;
    const auto threads = static_cast<unsigned>(std::clamp<int64_t>(ceil_div(work, 4 * 32) * 32, 32, 512));
    plane_sums<S, Backward><<<dim3(static_cast<unsigned>(t.c), y), threads, 0, stream>>>(t, centre, put);
  }
}

}  // namespace batch
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
