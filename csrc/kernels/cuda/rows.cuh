// Rows that fit in the registers of a warp or a block: read once, 16 bytes at a time, used as often as needed. For
// kernels over rows of float or 16-bit floats, which compute in float.
#pragma once
#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace rows {

constexpr int kPacks = 4;  // 16-byte packs of a row that a thread holds, unless a kernel has another number

// Threads for each of the rows that a block works on: (32, 8) or (n, 1).
struct Grid {
  dim3 blocks, threads;
};
// Whether rows of `columns` elements of `size` bytes have whole packs and fit.
inline bool fits(int64_t columns, int64_t size, int packs = kPacks) {
  return columns > 0 && columns * size % 16 == 0 && columns * size <= int64_t{16} * packs * 1024;
}
inline bool aligned(std::initializer_list<const void*> pointers) {
  uintptr_t bits = 0;
  for (const void* p : pointers) bits |= reinterpret_cast<uintptr_t>(p);
  return bits % 16 == 0;
}
inline Grid grid_for_rows(int64_t rows, int64_t columns, int64_t size, int packs = kPacks) {
  const int64_t threads = ceil_div(ceil_div(columns * size, 16 * packs), 32) * 32;
  const bool by_warp = threads == 32;
  const int64_t blocks = std::min<int64_t>(by_warp ? ceil_div(rows, 8) : rows, int64_t{1} << 20);
  return {dim3(static_cast<unsigned>(blocks)), by_warp ? dim3(32, 8) : dim3(static_cast<unsigned>(threads), 1)};
}

// Calls f(row) for the rows of this thread's group.
template <class F>
__device__ __forceinline__ void for_each(int64_t rows, const F& f) {
  for (int64_t row = blockIdx.x * int64_t{blockDim.y} + threadIdx.y; row < rows; row += int64_t{gridDim.x} * blockDim.y)
    f(row);
}

template <class T, class F>
__device__ __forceinline__ T reduce(T value, T* shared, const T& identity, const F& combine) {
  return blockDim.y > 1 ? warp_reduce(value, combine) : block_reduce(value, shared, identity, combine);
}

// V neighbours of a vector of parameters, from element `at` on; `absent` for each without such a vector. It is stored
// as the row is, or as float.
template <class S, int V>
__device__ __forceinline__ void parameters(float (&to)[V], const void* from, DType dtype, int at, float absent) {
  if (from == nullptr) {
#pragma unroll
    for (int v = 0; v < V; v++) to[v] = absent;
  } else if (dtype == DType::F32) {
#pragma unroll
    for (int v = 0; v < V; v += 4) {
      const auto pack = *reinterpret_cast<const Pack<float, 4>*>(static_cast<const float*>(from) + at + v);
#pragma unroll
      for (int w = 0; w < 4; w++) to[v + w] = pack.value[w];
    }
  } else {
    unpack(*reinterpret_cast<const Pack<S, V>*>(static_cast<const S*>(from) + at), to);
  }
}

// This thread's elements of a row of storage type S.
template <class S, int N = kPacks>
struct Row {
  static constexpr int V = pack_width<S>();
  float x[N][V];

  // f(element, pack, place in the pack, column) for those inside the row.
  template <class F>
  __device__ __forceinline__ void each(int64_t columns, const F& f) {
#pragma unroll
    for (int u = 0; u < N; u++) {
      const int at = static_cast<int>(threadIdx.x + u * blockDim.x) * V;
      if (at < columns) {
#pragma unroll
        for (int v = 0; v < V; v++) f(x[u][v], u, v, at + v);
      }
    }
  }
  // f(elements of a pack, pack, column of its first).
  template <class F>
  __device__ __forceinline__ void each_pack(int64_t columns, const F& f) {
#pragma unroll
    for (int u = 0; u < N; u++) {
      const int at = static_cast<int>(threadIdx.x + u * blockDim.x) * V;
      if (at < columns) f(x[u], u, at);
    }
  }
  __device__ __forceinline__ void load(const void* data, int64_t offset, int64_t columns) {
    const S* const from = static_cast<const S*>(data) + offset;
    Pack<S, V> packs[N];
#pragma unroll
    for (int u = 0; u < N; u++) {
      const int at = static_cast<int>(threadIdx.x + u * blockDim.x) * V;
      if (at < columns) packs[u] = *reinterpret_cast<const Pack<S, V>*>(from + at);
    }
#pragma unroll
    for (int u = 0; u < N; u++) unpack(packs[u], x[u]);
  }
  __device__ __forceinline__ void store(void* data, int64_t offset, int64_t columns) const {
    S* const to = static_cast<S*>(data) + offset;
#pragma unroll
    for (int u = 0; u < N; u++) {
      const int at = static_cast<int>(threadIdx.x + u * blockDim.x) * V;
      if (at < columns) *reinterpret_cast<Pack<S, V>*>(to + at) = pack_of<S>(x[u]);
    }
  }
};

// The same as stored, where two rows as floats would not fit.
template <class S>
struct Packs {
  static constexpr int V = pack_width<S>();
  Pack<S, V> packs[kPacks];

  // f(pack, its number, column of its first element).
  template <class F>
  __device__ __forceinline__ void each(int64_t columns, const F& f) {
#pragma unroll
    for (int u = 0; u < kPacks; u++) {
      const int at = static_cast<int>(threadIdx.x + u * blockDim.x) * V;
      if (at < columns) f(packs[u], u, at);
    }
  }
  __device__ __forceinline__ void load(const void* data, int64_t offset, int64_t columns) {
    const S* const from = static_cast<const S*>(data) + offset;
    each(columns, [&](Pack<S, V>& pack, int, int at) { pack = *reinterpret_cast<const Pack<S, V>*>(from + at); });
  }
  __device__ __forceinline__ void store(void* data, int64_t offset, int64_t columns) {
    S* const to = static_cast<S*>(data) + offset;
    each(columns, [&](Pack<S, V>& pack, int, int at) { *reinterpret_cast<Pack<S, V>*>(to + at) = pack; });
  }
};

// Calls f(pack, count, column of its first) for the elements of a row of any alignment, whole 16-byte packs but for the
// ends, shared out over the threads of a block.
template <class S, class F>
__device__ __forceinline__ void stream(const S* row, int64_t n, const F& f) {
  constexpr int V = pack_width<S>();
  const auto offset = static_cast<int64_t>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(S));
  const int64_t head = min((V - offset) % V, n), packs = (n - head) / V, tail = head + packs * V;
  const int t = static_cast<int>(threadIdx.x);
  Pack<S, V> pack;
  if (t < head) {
    pack.value[0] = row[t];
    f(pack, 1, int64_t{t});
  }
#pragma unroll 2
  for (int64_t i = t; i < packs; i += blockDim.x) {
    pack = *reinterpret_cast<const Pack<S, V>*>(row + head + i * V);
    f(pack, V, head + i * V);
  }
  if (tail + t < n) {
    pack.value[0] = row[tail + t];
    f(pack, 1, tail + t);
  }
}

}  // namespace rows
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
