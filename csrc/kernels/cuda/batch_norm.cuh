// The passes of batch norm over tensors whose channels lie in whole 16-byte packs: planes of one channel, or, channels
// last, lines of all of them. They compute in float, and a thread's sums are joined in double: where the element from
// which deviations are taken is far from the others, squares cancel. What a channel needs in the second pass is four
// floats.
//
// Channels last, a block works on a tile of up to 32 packs of a line and on as many lines at once as its threads cover,
// so that narrow lines fill warps too; a thread keeps its pack of channels, and what belongs to them, in registers.
#pragma once
#include "kernels/cuda/norm.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace batch {

constexpr int kLineThreads = 256;
// Blocks of lines on a multiprocessor: the gradients read two tensors, and hold twice as much.
template <bool Backward>
constexpr int kResident = Backward ? 2 : 3;

struct Tensors {
  const void *x, *dy;  // dy: null in the forward pass
  void* to;
  int64_t n, c, spatial;
  bool channels_last;
  Divider packs, channels;  // packs of a plane, or of a line; channels
};

// Adds what the elements of a pack give to two sums: forward {d, d^2} of the deviations d from centre, backward
// {dy d, dy}.
template <bool Backward>
__device__ __forceinline__ void add(float& a, float& b, float x, float dy, float centre) {
  const float d = x - centre;
  a += Backward ? dy * d : d;
  b += Backward ? dy : d * d;
}

// Samples are cut into gridDim.y parts; a block sums one channel of a part.
template <class S, bool Backward, class Centre>
__global__ void __launch_bounds__(512) plane_sums(const __grid_constant__ Tensors t, Centre centre_of, Pair* partial) {
  constexpr int V = pack_width<S>(), kLoads = 4;
  using Line = Pack<S, V>;
  __shared__ Pair shared[32];
  const int64_t channel = blockIdx.x, first = t.n * blockIdx.y / gridDim.y, last = t.n * (blockIdx.y + 1) / gridDim.y;
  const float centre = centre_of(channel);
  const Line *const x = static_cast<const Line*>(t.x), *const dy = static_cast<const Line*>(t.dy);
  const uint32_t packs = t.packs.divisor;
  float a = 0, b = 0;
  const auto total = static_cast<uint32_t>((last - first) * packs);
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
      float xs[V], gs[V], pack_a = 0, pack_b = 0;
      unpack(held[u], xs);
      if constexpr (Backward) unpack(grads[u], gs);
#pragma unroll
      for (int v = 0; v < V; v++) add<Backward>(pack_a, pack_b, xs[v], Backward ? gs[v] : 0.0f, centre);
      a += pack_a;  // sums of sums: fewer roundings on the way of each element
      b += pack_b;
    }
  }
  const Pair sums = block_reduce(Pair{a, b}, shared, Pair{0, 0}, AddPairs());
  if (threadIdx.x == 0) partial[blockIdx.y * t.c + channel] = sums;
}

// Lines are cut into gridDim.y parts; a thread sums a pack of channels over every blockDim.y-th line of a part.
template <class S, bool Backward, class Centre>
__global__ void __launch_bounds__(kLineThreads, kResident<Backward>)
    line_sums(const __grid_constant__ Tensors t, Centre centre_of, Pair* partial) {
  constexpr int V = pack_width<S>(), kLoads = 4;
  using Line = Pack<S, V>;
  __shared__ float shared[2][kLineThreads * V];
  const uint32_t packs = t.packs.divisor, pack = blockIdx.x * blockDim.x + threadIdx.x;
  const int64_t lines = t.n * t.spatial, first = lines * blockIdx.y / gridDim.y,
                last = lines * (blockIdx.y + 1) / gridDim.y, stride = int64_t{blockDim.y} * packs;
  float a[V], b[V], centre[V];
#pragma unroll
  for (int v = 0; v < V; v++) {
    a[v] = b[v] = 0;
    centre[v] = pack < packs ? centre_of(int64_t{pack} * V + v) : 0.0f;
  }
  if (pack < packs) {
    int64_t line = first + threadIdx.y;
    const Line *x = static_cast<const Line*>(t.x) + line * packs + pack,
               *dy = static_cast<const Line*>(t.dy) + (Backward ? line * packs + pack : 0);
    for (; line + (kLoads - 1) * int64_t{blockDim.y} < last; line += kLoads * int64_t{blockDim.y}) {
      Line held[kLoads], grads[kLoads];
#pragma unroll
      for (int u = 0; u < kLoads; u++) {
        held[u] = x[u * stride];
        if constexpr (Backward) grads[u] = dy[u * stride];
      }
      float few_a[V] = {}, few_b[V] = {};  // as in plane_sums
#pragma unroll
      for (int u = 0; u < kLoads; u++) {
        float xs[V], gs[V];
        unpack(held[u], xs);
        if constexpr (Backward) unpack(grads[u], gs);
#pragma unroll
        for (int v = 0; v < V; v++) add<Backward>(few_a[v], few_b[v], xs[v], Backward ? gs[v] : 0.0f, centre[v]);
      }
#pragma unroll
      for (int v = 0; v < V; v++) {
        a[v] += few_a[v];
        b[v] += few_b[v];
      }
      x += kLoads * stride;
      if constexpr (Backward) dy += kLoads * stride;
    }
    for (; line < last; line += blockDim.y) {
      float xs[V], gs[V];
      unpack(*x, xs);
      if constexpr (Backward) unpack(*dy, gs);
#pragma unroll
      for (int v = 0; v < V; v++) add<Backward>(a[v], b[v], xs[v], Backward ? gs[v] : 0.0f, centre[v]);
      x += stride;
      if constexpr (Backward) dy += stride;
    }
  }
  const int columns = static_cast<int>(blockDim.x) * V,
            thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
#pragma unroll
  for (int v = 0; v < V; v++) {
    shared[0][thread * V + v] = a[v];
    shared[1][thread * V + v] = b[v];
  }
  __syncthreads();
  for (int column = thread; column < columns; column += static_cast<int>(blockDim.x * blockDim.y)) {
    const int64_t channel = int64_t{blockIdx.x} * columns + column;
    if (channel >= t.c) return;
    Pair sums{0, 0};
    for (int line = 0; line < static_cast<int>(blockDim.y); line++)
      sums = AddPairs()(sums, {shared[0][line * columns + column], shared[1][line * columns + column]});
    partial[blockIdx.y * t.c + channel] = sums;
  }
}

// Forward: y = (x - f.x) f.y + f.z. Backward: dx = dy f.y + (x - f.x) f.z + f.w. One float4 f a channel.
template <bool Backward>
__device__ __forceinline__ float applied(float x, float dy, const float4& f) {
  const float d = x - f.x;
  return Backward ? dy * f.y + (d * f.z + f.w) : d * f.y + f.z;
}

template <class S, bool Backward>
__global__ void __launch_bounds__(kThreads) plane_apply(const __grid_constant__ Tensors t, const float4* factors) {
  constexpr int V = pack_width<S>();
  using Line = Pack<S, V>;
  const Line *const x = static_cast<const Line*>(t.x), *const dy = static_cast<const Line*>(t.dy);
  MT_GRID_LOOP(i, t.n * t.c * t.spatial / V) {
    const uint32_t plane = t.packs.quotient(static_cast<uint32_t>(i));
    const float4 f = factors[plane - t.channels.quotient(plane) * t.channels.divisor];
    float xs[V], gs[V];
    unpack(x[i], xs);
    if constexpr (Backward) unpack(dy[i], gs);
#pragma unroll
    for (int v = 0; v < V; v++) xs[v] = applied<Backward>(xs[v], Backward ? gs[v] : 0.0f, f);
    static_cast<Line*>(t.to)[i] = pack_of<S>(xs);
  }
}

template <class S, bool Backward>
__global__ void __launch_bounds__(kLineThreads, kResident<Backward>)
    line_apply(const __grid_constant__ Tensors t, const float4* factors) {
  constexpr int V = pack_width<S>(), kLoads = 4;
  using Line = Pack<S, V>;
  const uint32_t packs = t.packs.divisor, pack = blockIdx.x * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  const int64_t lines = t.n * t.spatial, first = lines * blockIdx.y / gridDim.y,
                last = lines * (blockIdx.y + 1) / gridDim.y, step = blockDim.y;
  const Line *const x = static_cast<const Line*>(t.x), *const dy = static_cast<const Line*>(t.dy);
  float4 f[V];
#pragma unroll
  for (int v = 0; v < V; v++) f[v] = factors[int64_t{pack} * V + v];
  for (int64_t line = first + threadIdx.y; line < last; line += kLoads * step) {
    Line held[kLoads], grads[kLoads];
#pragma unroll
    for (int u = 0; u < kLoads; u++) {
      if (line + u * step >= last) continue;
      held[u] = x[(line + u * step) * packs + pack];
      if constexpr (Backward) grads[u] = dy[(line + u * step) * packs + pack];
    }
#pragma unroll
    for (int u = 0; u < kLoads; u++) {
      if (line + u * step >= last) continue;
      float xs[V], gs[V];
      unpack(held[u], xs);
      if constexpr (Backward) unpack(grads[u], gs);
#pragma unroll
      for (int v = 0; v < V; v++) xs[v] = applied<Backward>(xs[v], Backward ? gs[v] : 0.0f, f[v]);
      static_cast<Line*>(t.to)[(line + u * step) * packs + pack] = pack_of<S>(xs);
    }
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

// Lines: tiles of equal width across, `parts` down.
inline int64_t line_tiles(const Tensors& t) { return ceil_div(t.packs.divisor, 32); }
inline dim3 line_threads(const Tensors& t) {
  const auto across = static_cast<unsigned>(ceil_div(t.packs.divisor, line_tiles(t)));
  return dim3(across, kLineThreads / across);
}
inline dim3 line_blocks(const Tensors& t, int64_t parts) {
  return dim3(static_cast<unsigned>(line_tiles(t)), static_cast<unsigned>(parts));
}

// One round of resident blocks, unless the partial sums were more than an eighth of what is read.
template <bool Backward>
int64_t parts_for(const Tensors& t, DType dtype) {
  if (t.channels_last) {
    const auto size = static_cast<int64_t>(size_of(dtype));
    return std::clamp<int64_t>(
        std::min(int64_t{cuda::multiprocessors()} * kResident<Backward> / line_tiles(t), t.n * t.spatial * size / 64),
        1, 1024);
  }
  return std::clamp<int64_t>(std::min(ceil_div(int64_t{cuda::multiprocessors()} * 8, t.c), t.n), 1, 1024);
}

// Into partial[part * c + channel].
template <class S, bool Backward, class Centre>
void sums(const Tensors& t, int64_t parts, const Centre& centre, Pair* partial) {
  const cudaStream_t stream = cuda::current_stream();
  if (t.channels_last) {
    line_sums<S, Backward><<<line_blocks(t, parts), line_threads(t), 0, stream>>>(t, centre, partial);
  } else {
    const int64_t work = ceil_div(t.n, parts) * t.packs.divisor;
    const auto threads = static_cast<unsigned>(std::clamp<int64_t>(ceil_div(work, 4 * 32) * 32, 32, 512));
    const dim3 grid(static_cast<unsigned>(t.c), static_cast<unsigned>(parts));
    plane_sums<S, Backward><<<grid, threads, 0, stream>>>(t, centre, partial);
  }
}

template <class S, bool Backward>
void apply(const Tensors& t, const float4* factors) {
  const cudaStream_t stream = cuda::current_stream();
  if (t.channels_last) {
    // Two rounds of blocks, none of them with less than a load a thread.
    const int64_t blocks = int64_t{cuda::multiprocessors()} * kResident<Backward> * 2;
    const int64_t parts =
        std::clamp<int64_t>(std::min(blocks / line_tiles(t), ceil_div(t.n * t.spatial, line_threads(t).y)), 1, 65535);
    line_apply<S, Backward><<<line_blocks(t, parts), line_threads(t), 0, stream>>>(t, factors);
  } else {
    const int64_t packs = t.n * t.c * t.spatial / pack_width<S>();
    plane_apply<S, Backward><<<grid_for(packs), kThreads, 0, stream>>>(t, factors);
  }
}

}  // namespace batch
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
