// What kernels that draw random numbers share: four or two values a step of the generator, operands of any layout, and
// views cut into parts as native CUDA cuts them.
#pragma once
#include <cstdlib>
#include <limits>

#include "kernels/cuda/philox.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {

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

// ---- Views beyond 32 bits: native cuts them in two until every part's elements and bytes are counted by 32 bits, and
// lets each part begin its streams anew (TensorIterator's with_32bit_indexing).

inline bool has_small_offsets(const PointwiseView& v) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (v.numel > most) return false;
  for (int k = 0; k < v.num_operands; k++) {
    int64_t end = 1;
    for (int d = 0; d < v.ndim; d++) end += (v.sizes[d] - 1) * v.strides[k][d];
    if (end > most) return false;
  }
  return true;
}

// The dimension that reaches furthest in memory.
inline int widest_dimension(const PointwiseView& v) {
  int widest = 0;
  int64_t most = -1;
  for (int d = v.ndim - 1; d >= 0; d--) {
    for (int k = 0; k < v.num_operands; k++) {
      const int64_t extent = (v.sizes[d] - 1) * std::abs(v.strides[k][d]);
      if (extent > most) most = extent, widest = d;
    }
  }
  return widest;
}

// Calls f(part) for each part, in native's order.
template <class F>
void each_small_part(const PointwiseView& v, const F& f) {
  if (has_small_offsets(v)) return f(v);
  const int d = widest_dimension(v);
  PointwiseView half = v;
  half.sizes[d] = v.sizes[d] / 2;
  half.numel = v.numel / v.sizes[d] * half.sizes[d];
  each_small_part(half, f);
  for (int k = 0; k < v.num_operands; k++) half.data[k] += half.sizes[d] * v.strides[k][d];
  half.sizes[d] = v.sizes[d] - half.sizes[d];
  half.numel = v.numel - half.numel;
  each_small_part(half, f);
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
