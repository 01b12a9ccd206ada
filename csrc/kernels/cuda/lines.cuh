// Copies of strided matrices into lines along one of their dimensions, which asynchronous copies and the copy engine
// want; through tiles in shared memory, so that neighbours are read together whichever way memory runs.
#pragma once
#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace lines {

constexpr int kTile = 32;

// Elements of a batch of matrices, by strides.
template <class W>
struct Matrices {
  const W* data;
  int64_t rows, depth;
  int64_t row, k, batch;  // strides
  __device__ __forceinline__ int64_t start(int64_t b, int64_t kk) const { return b * batch + kk * k; }
  bool across() const { return std::abs(row) < std::abs(k); }
};

// to[batch * to_batch + row * to_row + k] for all k below pitch; zeros from the source's depth on. From has data, rows,
// depth, the stride `row`, and start(batch, k): where rows begin, or negative where all are zeros. across: neighbours
// in memory are neighbours along the rows.
template <class W, class From>
__global__ void __launch_bounds__(256) copy_kernel(const __grid_constant__ From from, W* to, int64_t to_row,
                                                   int64_t to_batch, int64_t pitch, int64_t batch, bool across) {
  constexpr int kEach = kTile / 8;
  __shared__ W tile[kTile][kTile + 4 / sizeof(W)];
  const int lane = static_cast<int>(threadIdx.x) % kTile, line = static_cast<int>(threadIdx.x) / kTile;
  const int64_t k0 = int64_t{blockIdx.x} * kTile;
  for (int64_t b = blockIdx.z; b < batch; b += gridDim.z) {
    int64_t starts[kEach];
#pragma unroll
    for (int e = 0; e < kEach; e++) {
      const int64_t k = k0 + (across ? line + e * 8 : lane);
      starts[e] = k < from.depth && (across || e == 0) ? from.start(b, k) : -1;
    }
    for (int64_t r0 = int64_t{blockIdx.y} * kTile; r0 < from.rows; r0 += int64_t{gridDim.y} * kTile) {
#pragma unroll
      for (int e = 0; e < kEach; e++) {
        const int r = across ? lane : line + e * 8, k = across ? line + e * 8 : lane;
        const int64_t start = across ? starts[e] : starts[0];
        tile[r][k] = start >= 0 && r0 + r < from.rows ? from.data[start + (r0 + r) * from.row] : W{0};
      }
      __syncthreads();
#pragma unroll
      for (int e = 0; e < kEach; e++) {
        const int64_t r = r0 + line + e * 8, k = k0 + lane;
        if (r < from.rows && k < pitch) to[b * to_batch + r * to_row + k] = tile[line + e * 8][lane];
      }
      __syncthreads();
    }
  }
}

template <class W, class From>
void copy(const From& from, W* to, int64_t to_row, int64_t to_batch, int64_t pitch, int64_t batch, bool across) {
  // Blocks that go through many rows compute few starts; a few thousand of them fill the device.
  const int64_t columns = ceil_div(pitch, kTile), rows = ceil_div(from.rows, kTile);
  const int64_t down =
      std::clamp<int64_t>(4096 / std::max<int64_t>(columns * batch, 1), 1, std::min<int64_t>(rows, 65535));
  const dim3 grid(static_cast<unsigned>(columns), static_cast<unsigned>(down),
                  static_cast<unsigned>(std::min<int64_t>(batch, 65535)));
  copy_kernel<<<grid, 256, 0, cuda::current_stream()>>>(from, to, to_row, to_batch, pitch, batch, across);
}

// The same, to lines that follow each other, where `from` lies in lines already, only not at multiples of 16 bytes.
// pitch: a multiple of four bytes.
template <class W>
__global__ void __launch_bounds__(kThreads)
    realign_kernel(const __grid_constant__ Matrices<W> from, W* to, int64_t pitch) {
  constexpr int kWord = 4 / static_cast<int>(sizeof(W)), kPerThread = 4;
  for (int64_t r = blockIdx.y; r < from.rows; r += gridDim.y) {
    const W* const line = from.data + blockIdx.z * from.batch + r * from.row;
    W* const to_line = to + (blockIdx.z * from.rows + r) * pitch;
    Pack<W, kWord> held[kPerThread];
    const int64_t k0 = (int64_t{blockIdx.x} * kThreads * kPerThread + threadIdx.x) * kWord;
#pragma unroll
    for (int e = 0; e < kPerThread; e++)
#pragma unroll
      for (int w = 0; w < kWord; w++) {
        const int64_t k = k0 + e * kThreads * kWord + w;
        held[e].value[w] = k < from.depth ? line[k] : W{0};
      }
#pragma unroll
    for (int e = 0; e < kPerThread; e++) {
      const int64_t k = k0 + e * kThreads * kWord;
      if (k < pitch) *reinterpret_cast<Pack<W, kWord>*>(to_line + k) = held[e];
    }
  }
}

template <class W>
void realign(const Matrices<W>& from, W* to, int64_t pitch, int64_t batch) {
  constexpr int64_t kPerBlock = int64_t{kThreads} * 4 * (4 / sizeof(W));
  const dim3 grid(static_cast<unsigned>(ceil_div(pitch, kPerBlock)),
                  static_cast<unsigned>(std::min<int64_t>(from.rows, 65535)), static_cast<unsigned>(batch));
  realign_kernel<<<grid, kThreads, 0, cuda::current_stream()>>>(from, to, pitch);
}

}  // namespace lines
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
