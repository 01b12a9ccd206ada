// Philox4x32-10 (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with cuRAND's counters and
// transformations, and PyTorch's mapping of elements to threads: so a seed gives native CUDA's numbers.
#pragma once
#include "kernels/cuda/launch.cuh"
#include "kernels/random.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace philox {

template <int Rounds = 10>
__device__ __forceinline__ uint4 mix(uint4 counter, uint2 key) {
#pragma unroll
  for (int round = 0; round < Rounds; round++) {
    if (round > 0) {
      key.x += 0x9E3779B9u;
      key.y += 0xBB67AE85u;
    }
    const uint32_t high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
    const uint32_t high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
    counter = make_uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
  }
  return counter;
}
__device__ __forceinline__ uint2 halves(uint64_t x) {
  return make_uint2(static_cast<uint32_t>(x), static_cast<uint32_t>(x >> 32));
}
__device__ __forceinline__ uint4 halves(uint64_t x, uint64_t y) {
  return make_uint4(halves(x).x, halves(x).y, halves(y).x, halves(y).y);
}

// The stream of thread `subsequence`: groups of four words, the first at `offset` / 4.
class Generator {
 public:
  __device__ Generator(uint64_t seed, uint64_t subsequence, uint64_t offset)
      : key_(halves(seed)), position_(offset / 4), subsequence_(subsequence) {}

  __device__ uint4 next() {
    const uint4 words = mix(halves(position_, subsequence_), key_);
    if (++position_ == 0) subsequence_++;
    return words;
  }

 private:
  uint2 key_;
  uint64_t position_, subsequence_;
};

constexpr float kInverse = 2.3283064e-10f;                 // 2^-32
constexpr double kInverseDouble = 1.1102230246251565e-16;  // 2^-53

// In (0, 1].
__device__ __forceinline__ float uniform(uint32_t x) { return x * kInverse + kInverse / 2.0f; }
__device__ __forceinline__ double uniform(uint32_t x, uint32_t y) {
  const uint64_t z = static_cast<uint64_t>(x) ^ (static_cast<uint64_t>(y) << 21);
  return z * kInverseDouble + kInverseDouble / 2.0;
}

// Two normals from two words, by Box and Muller.
__device__ __forceinline__ float2 normal(uint32_t x, uint32_t y) {
  const float u = x * kInverse + kInverse / 2;
  const float v = y * (kInverse * 6.2831855f) + kInverse * 6.2831855f / 2;
  const float s = sqrtf(-2.0f * logf(u));
  float2 r;
  __sincosf(v, &r.x, &r.y);
  r.x *= s;
  r.y *= s;
  return r;
}
__device__ __forceinline__ double2 normal(uint4 w) {
  const uint64_t zx = static_cast<uint64_t>(w.x) ^ (static_cast<uint64_t>(w.y) << 21);
  const uint64_t zy = static_cast<uint64_t>(w.z) ^ (static_cast<uint64_t>(w.w) << 21);
  const double u = zx * kInverseDouble + kInverseDouble / 2.0;
  const double v = zy * (kInverseDouble * 2.0) + kInverseDouble;
  const double s = sqrt(-2.0 * log(u));
  double2 r;
  sincospi(v, &r.x, &r.y);
  r.x *= s;
  r.y *= s;
  return r;
}

// Blocks of 256 threads for `numel` elements: as many as are resident at once, at most.
inline unsigned grid(int64_t numel) {
  const int64_t resident = int64_t{cuda::multiprocessors()} * (cuda::threads_per_multiprocessor() / kThreads);
  return static_cast<unsigned>(std::min(resident, ceil_div(numel, kThreads)));
}

}  // namespace philox
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
