// What is built on sorted data on CUDA: runs of equal items, lexicographic order, membership.
#include "kernels/cuda/radix.cuh"
#include "kernels/sort.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

using ElementTypes = Types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t, float,
                           double, Half, BFloat16>;

constexpr int64_t kChunk = 4096;  // items of a block

// ---- Runs: blocks count the beginnings in their chunks, a scan says how many came before, and a second pass numbers
// them.

template <class T>
__device__ __forceinline__ bool begins(const RunsArgs& a, int64_t i) {
  using C = compute_t<T>;
  if (i == 0) return true;
  const T* const data = reinterpret_cast<const T*>(a.data);
  const T* const item = data + (a.order != nullptr ? a.order[i] : i) * a.width;
  const T* const previous = data + (a.order != nullptr ? a.order[i - 1] : i - 1) * a.width;
  for (int64_t k = 0; k < a.width; k++)
    if (!(convert<C>(item[k]) == convert<C>(previous[k]))) return true;
  return false;
}

template <class T>
__global__ void __launch_bounds__(kThreads) count_beginnings(const __grid_constant__ RunsArgs a, uint32_t* counts) {
  __shared__ uint32_t shared[32];
  const int64_t begin = blockIdx.x * kChunk, end = min(begin + kChunk, a.n);
  uint32_t count = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) count += begins<T>(a, i);
  count = block_reduce(count, shared, uint32_t{0}, Sum());
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    number_runs(const __grid_constant__ RunsArgs a, const int64_t* before, int64_t blocks) {
  __shared__ int warp_counts[kThreads / 32];
  const int64_t begin = blockIdx.x * kChunk, end = min(begin + kChunk, a.n);
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int64_t runs = before[blockIdx.x];
  for (int64_t base = begin; base < end; base += kThreads) {
    const int64_t i = base + threadIdx.x;
    const bool first = i < end && begins<T>(a, i);
    const unsigned ballot = __ballot_sync(0xffffffffu, first);
    __syncthreads();
    if (lane == 0) warp_counts[warp] = __popc(ballot);
    __syncthreads();
    int64_t run = runs - 1, total = 0;  // of the element before this warp's
    for (unsigned w = 0; w < kThreads / 32; w++) {
      if (w < warp) run += warp_counts[w];
      total += warp_counts[w];
    }
    run += __popc(ballot & (0xffffffffu >> (31 - lane)));
    if (first) a.starts[run] = i;
    if (i < end && a.inverse != nullptr) a.inverse[a.label != nullptr ? a.label[i] : i] = run;
    runs += total;
  }
  if (blockIdx.x == blocks - 1 && threadIdx.x == 0) {
    a.count[0] = runs;
    a.starts[runs] = a.n;
  }
}

void runs(const RunsArgs& a) {
  const cudaStream_t stream = cuda::current_stream();
  if (a.n == 0) {
    cuda::check(cudaMemsetAsync(a.count, 0, sizeof(int64_t), stream), "clearing a count");
    cuda::check(cudaMemsetAsync(a.starts, 0, sizeof(int64_t), stream), "clearing a start");
    return cuda::check_launch("clearing a count");
  }
  const int64_t blocks = ceil_div(a.n, kChunk);
  const Scratch memory(blocks * 12);
  auto* const before = memory.get<int64_t>();
  auto* const counts = reinterpret_cast<uint32_t*>(before + blocks);
  if (!dispatch(a.dtype, ElementTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const auto grid = static_cast<unsigned>(blocks);
        count_beginnings<T><<<grid, kThreads, 0, stream>>>(a, counts);
        radix::scan_counts(counts, before, blocks);
        number_runs<T><<<grid, kThreads, 0, stream>>>(a, before, blocks);
      }))
    missing_kernel("runs", name_of(a.dtype));
  cuda::check_launch("launching a search for runs");
}

// ---- The values of runs of single elements: the same two passes over packs of neighbours. --------------------------

constexpr int kRunPacks = 4;  // of a thread

// The elements of pack `number` of which each differs from the one before it, a bit each; `pack` receives the elements.
template <class T, int V>
__device__ __forceinline__ unsigned differences(const T* data, int64_t n, int64_t number, Pack<T, V>& pack) {
  using C = compute_t<T>;
  const int64_t first = number * V;
  if (first >= n) return 0;
  if (first + V <= n) {
    pack = reinterpret_cast<const Pack<T, V>*>(data)[number];
  } else {
    for (int v = 0; v < V && first + v < n; v++) pack.value[v] = data[first + v];
  }
  unsigned bits = 0;
  T previous = first > 0 ? data[first - 1] : pack.value[0];
#pragma unroll
  for (int v = 0; v < V; v++) {
    const bool differs = (first == 0 && v == 0) || !(convert<C>(pack.value[v]) == convert<C>(previous));
    if (first + v < n && differs) bits |= 1u << v;
    previous = pack.value[v];
  }
  return bits;
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads) count_differences(const T* data, int64_t n, uint32_t* counts) {
  __shared__ uint32_t shared[32];
  const int64_t begin = (blockIdx.x * int64_t{kRunPacks} * kThreads) + threadIdx.x;
  uint32_t count = 0;
#pragma unroll
  for (int u = 0; u < kRunPacks; u++) {
    Pack<T, V> pack;
    count += static_cast<uint32_t>(__popc(differences<T, V>(data, n, begin + u * kThreads, pack)));
  }
  count = block_reduce(count, shared, uint32_t{0}, Sum());
  if (threadIdx.x == 0) counts[blockIdx.x] = count;
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    write_run_values(const T* data, int64_t n, const int64_t* before, T* values) {
  __shared__ int warp_counts[kThreads / 32];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int64_t run = before[blockIdx.x];
  for (int u = 0; u < kRunPacks; u++) {
    Pack<T, V> pack;
    const int64_t number = (blockIdx.x * int64_t{kRunPacks} + u) * kThreads + threadIdx.x;
    const unsigned bits = differences<T, V>(data, n, number, pack);
    const int mine = __popc(bits);
    int upto = mine;  // of the lanes up to this one
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, upto, step);
      if (lane >= static_cast<unsigned>(step)) upto += other;
    }
    __syncthreads();
    if (lane == 31) warp_counts[warp] = upto;
    __syncthreads();
    int64_t at = run + upto - mine;
    for (unsigned w = 0; w < kThreads / 32; w++) {
      if (w < warp) at += warp_counts[w];
      run += warp_counts[w];
    }
#pragma unroll
    for (int v = 0; v < V; v++)
      if (bits >> v & 1) values[at++] = pack.value[v];
  }
}

__global__ void total_of(const int64_t* before, const uint32_t* counts, int64_t blocks, int64_t* total) {
  *total = before[blocks - 1] + counts[blocks - 1];
}

template <class T, int V>
void find_run_values(const T* data, int64_t n, int64_t* count, T* values) {
  const cudaStream_t stream = cuda::current_stream();
  const int64_t blocks = ceil_div(n, int64_t{kRunPacks} * kThreads * V);
  const Scratch memory(blocks * 12);
  auto* const before = memory.get<int64_t>();
  auto* const counts = reinterpret_cast<uint32_t*>(before + blocks);
  const auto grid = static_cast<unsigned>(blocks);
  count_differences<T, V><<<grid, kThreads, 0, stream>>>(data, n, counts);
  radix::scan_counts(counts, before, blocks);
  total_of<<<1, 1, 0, stream>>>(before, counts, blocks, count);
  if (values != nullptr) write_run_values<T, V><<<grid, kThreads, 0, stream>>>(data, n, before, values);
}

void run_values(const char* data, DType dtype, int64_t n, int64_t* count, char* values) {
  if (n == 0) {
    cuda::check(cudaMemsetAsync(count, 0, sizeof(int64_t), cuda::current_stream()), "clearing a count");
    return cuda::check_launch("clearing a count");
  }
  if (!dispatch(dtype, ElementTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const T* const x = reinterpret_cast<const T*>(data);
        T* const to = reinterpret_cast<T*>(values);
        if (reinterpret_cast<uintptr_t>(data) % 16 == 0) {
          find_run_values<T, pack_width<T>()>(x, n, count, to);
        } else {
          find_run_values<T, 1>(x, n, count, to);
        }
      }))
    missing_kernel("run_values", name_of(dtype));
  cuda::check_launch("launching a search for the values of runs");
}

// ---- Lexicographic order: sorts by one column after the other, the last column first; each keeps the order of equals.

__global__ void __launch_bounds__(kThreads) count_up(int64_t* order, int64_t n) { MT_GRID_LOOP(i, n) order[i] = i; }

template <class T>
__global__ void __launch_bounds__(kThreads)
    column_keys(const T* column, const int64_t* order, int64_t width, uint64_t* keys, int64_t n) {
  MT_GRID_LOOP(i, n) keys[i] = radix::ordered(column[order[i] * width]);
}

void lexicographic_order(int64_t* order, char* data, DType dtype, int64_t n, int64_t width) {
  if (n == 0) return;
  const cudaStream_t stream = cuda::current_stream();
  const Scratch memory(4 * n * 8);
  auto *keys = memory.get<uint64_t>(), *other_keys = keys + n;
  auto *items = memory.get<int64_t>() + 2 * n, *other_items = items + n;
  count_up<<<grid_for(n), kThreads, 0, stream>>>(items, n);
  if (!dispatch(dtype, ElementTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        for (int64_t k = width - 1; k >= 0; k--) {
          column_keys<<<grid_for(n), kThreads, 0, stream>>>(reinterpret_cast<const T*>(data) + k, items, width, keys,
                                                            n);
          radix::sort(keys, items, other_keys, other_items, n, radix::key_bytes<T>());
        }
      }))
    missing_kernel("lexicographic_order", name_of(dtype));
  cuda::check(cudaMemcpyAsync(order, items, n * sizeof(int64_t), cudaMemcpyDeviceToDevice, stream), "copying an order");
  cuda::check_launch("launching a lexicographic sort");
}

// ---- Membership: every element meets every test element, or with many of them it is searched among them, sorted
// ------

constexpr int64_t kFewTests = 32;

template <class T>
__global__ void __launch_bounds__(kThreads) find_members(const __grid_constant__ MembershipArgs a) {
  using C = compute_t<T>;
  const T *elements = reinterpret_cast<const T*>(a.elements), *tests = reinterpret_cast<const T*>(a.tests);
  MT_GRID_LOOP(i, a.n) {
    const C x = convert<C>(elements[i]);
    bool found = false;
    for (int64_t t = 0; t < a.m && !found; t++) found = x == convert<C>(tests[t]);
    a.output[i] = found != a.invert;
  }
}

template <class T>
using key_t = std::conditional_t<radix::key_bytes<T>() <= 4, uint32_t, uint64_t>;

template <class T>
__global__ void __launch_bounds__(kThreads) test_keys(const T* tests, key_t<T>* keys, int64_t* positions, int64_t n) {
  MT_GRID_LOOP(i, n) keys[i] = static_cast<key_t<T>>(radix::ordered(tests[i])), positions[i] = i;
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    search_members(const __grid_constant__ MembershipArgs a, const key_t<T>* keys) {
  const T* const elements = reinterpret_cast<const T*>(a.elements);
  MT_GRID_LOOP(i, a.n) {
    const auto x = convert<compute_t<T>>(elements[i]);
    const auto key = static_cast<key_t<T>>(radix::ordered(elements[i]));
    int64_t low = 0, high = a.m;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (keys[middle] < key) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const bool found = x == x && low < a.m && keys[low] == key;  // NaN is no member, not even of itself
    a.output[i] = found != a.invert;
  }
}

void membership(const MembershipArgs& a) {
  if (a.n == 0) return;
  const cudaStream_t stream = cuda::current_stream();
  if (!dispatch(a.dtype, ElementTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        using K = key_t<T>;
        if (a.m <= kFewTests) {
          find_members<T><<<grid_for(a.n), kThreads, 0, stream>>>(a);
          return;
        }
        const Scratch memory(2 * a.m * 8), key_memory(2 * a.m * static_cast<int64_t>(sizeof(K)));
        int64_t *positions = memory.get<int64_t>(), *other_positions = positions + a.m;
        K *keys = key_memory.get<K>(), *other_keys = keys + a.m;
        test_keys<T><<<grid_for(a.m), kThreads, 0, stream>>>(reinterpret_cast<const T*>(a.tests), keys, positions, a.m);
        radix::sort(keys, positions, other_keys, other_positions, a.m, radix::key_bytes<T>());
        search_members<T><<<grid_for(a.n), kThreads, 0, stream>>>(a, keys);
      }))
    missing_kernel("isin", name_of(a.dtype));
  cuda::check_launch("launching isin");
}

MT_REGISTER_KERNEL(runs_kernel, &runs);
MT_REGISTER_KERNEL(run_values_kernel, &run_values);
MT_REGISTER_KERNEL(lexicographic_order_kernel, &lexicographic_order);
MT_REGISTER_KERNEL(membership_kernel, &membership);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
