// Sums of parts: where k is split over blocks, many parts of few results are added by more threads than there are
// results.
#pragma once
#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace parts {

constexpr int kFew = 8;  // parts that one thread may as well add

// The sum of [count][size] in place of the first part; eight threads share a result's parts, in a fixed order.
template <int W>
__global__ void __launch_bounds__(256) add_kernel(float* data, int64_t count, int64_t size) {
  __shared__ Pack<float, W> sums[8][32];
  const int lane = static_cast<int>(threadIdx.x) % 32, line = static_cast<int>(threadIdx.x) / 32;
  const int64_t at = (int64_t{blockIdx.x} * 32 + lane) * W;
  Pack<float, W> sum = {};
  if (at < size) {
#pragma unroll 4
    for (int64_t p = line; p < count; p += 8) {
      const auto part = *reinterpret_cast<const Pack<float, W>*>(data + p * size + at);
#pragma unroll
      for (int w = 0; w < W; w++) sum.value[w] += part.value[w];
    }
  }
  sums[line][lane] = sum;
  __syncthreads();
  if (line != 0 || at >= size) return;
#pragma unroll
  for (int p = 1; p < 8; p++)
#pragma unroll
    for (int w = 0; w < W; w++) sum.value[w] += sums[p][lane].value[w];
  *reinterpret_cast<Pack<float, W>*>(data + at) = sum;
}

// Returns how many parts are left to add.
inline int64_t add_many(float* data, int64_t count, int64_t size) {
  if (count <= kFew) return count;
  const bool packs = size % 4 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0;
  const auto grid = static_cast<unsigned>(ceil_div(size, packs ? 128 : 32));
  (packs ? &add_kernel<4> : &add_kernel<1>)<<<grid, 256, 0, cuda::current_stream()>>>(data, count, size);
  return 1;
}

}  // namespace parts
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
