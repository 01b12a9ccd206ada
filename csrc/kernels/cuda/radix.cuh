// A stable radix sort of keys (K) with payloads (P), eight bits a pass, the least significant first: each block counts
// its tile's digits, a scan over (digit, block) says where each block's share of a digit begins, and blocks move their
// elements there in order (D. Merrill, A. Grimshaw, "High performance and scalable radix sorting", 2011).
#pragma once
#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace radix {

constexpr int kDigits = 256;
constexpr int64_t kTile = 4096;

template <class K>
__global__ void __launch_bounds__(kThreads)
    count_digits(const K* keys, int64_t n, int shift, uint32_t* counts, int64_t blocks) {
  __shared__ uint32_t bins[kDigits];
  bins[threadIdx.x] = 0;
  __syncthreads();
  const int64_t begin = blockIdx.x * kTile, end = min(begin + kTile, n);
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) atomicAdd(&bins[keys[i] >> shift & 0xff], 1u);
  __syncthreads();
  counts[threadIdx.x * blocks + blockIdx.x] = bins[threadIdx.x];
}

// ---- Exclusive sums of n counts into 64-bit offsets: the sums of chunks, their sums, and from those each chunk's own.

constexpr int kScanThreads = 1024;
constexpr int64_t kScanChunk = 8 * kScanThreads;

// Writes where each of [begin, end) begins, the first at `start`, and gives where the last ends.
template <class In>
__device__ int64_t scan_range(const In* counts, int64_t* offsets, int64_t start, int64_t begin, int64_t end) {
  __shared__ int64_t sums[kScanThreads];
  for (int64_t base = begin; base < end; base += kScanThreads) {
    const int64_t i = base + threadIdx.x;
    const int64_t mine = i < end ? static_cast<int64_t>(counts[i]) : 0;
    __syncthreads();
    sums[threadIdx.x] = mine;
    for (int step = 1; step < kScanThreads; step *= 2) {
      __syncthreads();
      const int64_t left = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
      __syncthreads();
      sums[threadIdx.x] += left;
    }
    __syncthreads();
    if (i < end) offsets[i] = start + sums[threadIdx.x] - mine;
    start += sums[kScanThreads - 1];
  }
  return start;
}
static __global__ void __launch_bounds__(kScanThreads) sum_chunks(const uint32_t* counts, int64_t* sums, int64_t n) {
  __shared__ int64_t shared[32];
  const int64_t begin = blockIdx.x * kScanChunk, end = min(begin + kScanChunk, n);
  int64_t sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kScanThreads) sum += counts[i];
  sum = block_reduce(sum, shared, int64_t{0}, Sum());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
static __global__ void __launch_bounds__(kScanThreads) scan_sums(const int64_t* sums, int64_t* starts, int64_t n) {
  scan_range(sums, starts, 0, 0, n);
}
static __global__ void __launch_bounds__(kScanThreads)
    scan_chunks(const uint32_t* counts, const int64_t* starts, int64_t* offsets, int64_t n) {
  const int64_t begin = blockIdx.x * kScanChunk;
  scan_range(counts, offsets, starts[blockIdx.x], begin, min(begin + kScanChunk, n));
}

inline void scan_counts(const uint32_t* counts, int64_t* offsets, int64_t n) {
  const int64_t chunks = ceil_div(n, kScanChunk);
  const Scratch memory(2 * chunks * 8);
  int64_t *const sums = memory.get<int64_t>(), *const starts = sums + chunks;
  const auto grid = static_cast<unsigned>(chunks);
  const cudaStream_t stream = cuda::current_stream();
  sum_chunks<<<grid, kScanThreads, 0, stream>>>(counts, sums, n);
  scan_sums<<<1, kScanThreads, 0, stream>>>(sums, starts, chunks);
  scan_chunks<<<grid, kScanThreads, 0, stream>>>(counts, starts, offsets, n);
}

// ---- Sorting -------------------------------------------------------------------------------------------------------

// Strips of kThreads elements in order; within a strip warp after warp, within a warp by lane.
template <class K, class P>
__global__ void __launch_bounds__(kThreads) move_digits(const K* keys, const P* payloads, K* keys_out, P* payloads_out,
                                                        int64_t n, int shift, const int64_t* offsets, int64_t blocks) {
  constexpr int kWarps = kThreads / 32;
  __shared__ int64_t next[kDigits];
  __shared__ uint32_t warp_counts[kWarps][kDigits];
  next[threadIdx.x] = offsets[threadIdx.x * blocks + blockIdx.x];
  const int64_t begin = blockIdx.x * kTile, end = min(begin + kTile, n);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t base = begin; base < end; base += kThreads) {
    const int64_t i = base + threadIdx.x;
    const bool live = i < end;
    const K key = live ? keys[i] : 0;
    const unsigned digit = live ? static_cast<unsigned>(key >> shift & 0xff) : kDigits;
    for (int w = 0; w < kWarps; w++) warp_counts[w][threadIdx.x] = 0;
    __syncthreads();
    const unsigned peers = __match_any_sync(0xffffffffu, digit);
    const int rank = __popc(peers & ((1u << lane) - 1));
    if (live && rank == 0) warp_counts[warp][digit] = static_cast<uint32_t>(__popc(peers));
    __syncthreads();
    if (live) {
      int64_t at = next[digit] + rank;
      for (int w = 0; w < warp; w++) at += warp_counts[w][digit];
      keys_out[at] = key;
      payloads_out[at] = payloads[i];
    }
    __syncthreads();
    uint32_t total = 0;
    for (int w = 0; w < kWarps; w++) total += warp_counts[w][threadIdx.x];
    next[threadIdx.x] += total;
    __syncthreads();
  }
}

// Sorts n pairs by the bytes [0, bytes) of their keys. The result is in `keys` and `payloads`; the second pair of
// arrays is scratch.
template <class K, class P>
void sort(K*& keys, P*& payloads, K*& keys_scratch, P*& payloads_scratch, int64_t n, int bytes) {
  const int64_t blocks = ceil_div(n, kTile);
  const Scratch memory(blocks * kDigits * 12);
  auto* offsets = memory.get<int64_t>();
  auto* counts = reinterpret_cast<uint32_t*>(offsets + blocks * kDigits);
  const cudaStream_t stream = cuda::current_stream();
  for (int byte = 0; byte < bytes; byte++) {
    const auto grid = static_cast<unsigned>(blocks);
    count_digits<<<grid, kThreads, 0, stream>>>(keys, n, byte * 8, counts, blocks);
    scan_counts(counts, offsets, blocks * kDigits);
    move_digits<<<grid, kThreads, 0, stream>>>(keys, payloads, keys_scratch, payloads_scratch, n, byte * 8, offsets,
                                               blocks);
    std::swap(keys, keys_scratch);
    std::swap(payloads, payloads_scratch);
  }
}

// An element as an unsigned integer in PyTorch's order: NaN above everything, -0.0 equal to 0.0.
template <class T>
__device__ __forceinline__ uint64_t ordered(T x) {
  if constexpr (std::is_same_v<T, double>) {
    if (x != x) return ~uint64_t{0};
    const auto bits = static_cast<uint64_t>(__double_as_longlong(x + 0.0));
    return bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
  } else if constexpr (is_floating_v<T>) {
    const float f = convert<float>(x);
    if (f != f) return 0xffffffffu;
    const uint32_t bits = __float_as_uint(f + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
  } else if constexpr (std::is_same_v<T, bool> || std::is_unsigned_v<T>) {
    return static_cast<uint64_t>(x);
  } else {
    using U = std::make_unsigned_t<T>;
    return static_cast<U>(static_cast<U>(x) ^ static_cast<U>(U{1} << (sizeof(T) * 8 - 1)));
  }
}
// Bytes of an ordered key that differ.
template <class T>
constexpr int key_bytes() {
  return is_half_v<T> ? 4 : static_cast<int>(sizeof(T));
}

}  // namespace radix
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
