// Histograms on CUDA: counts of integers, and of points between edges. Where the bins fit in shared memory a block
// counts there and adds what it found to the result at the end; more bins are counted in device memory, where they
// seldom meet. Counts are integers, so that their order does not show; weights add up in double.
#include "kernels/cuda/launch.cuh"
#include "kernels/sort.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int64_t kSharedBytes = 48 << 10;
constexpr int64_t kCopiesBytes = 12 << 10;  // few bins have a copy for each warp, which then seldom wait for each other
constexpr int kBatch = 4;                   // elements that a thread reads before it counts them

using Total = unsigned long long;

template <class Sum>
struct Counted {
  int64_t bin;  // negative: none
  Sum weight;
};

// Of(i) gives what element i counts as; Sum is uint32_t or double, Total that of the whole.
template <class Sum, class Total, class Of>
__global__ void __launch_bounds__(kThreads)
    count_in_blocks(const __grid_constant__ Of of, int64_t n, int bins, int copies, Total* totals) {
  extern __shared__ __align__(16) char memory[];
  Sum* const sums = reinterpret_cast<Sum*>(memory);
  const int pitch = bins | 1;  // copies of a bin lie in different banks
  for (int i = static_cast<int>(threadIdx.x); i < pitch * copies; i += kThreads) sums[i] = Sum(0);
  __syncthreads();
  Sum* const mine = sums + static_cast<int>(threadIdx.x / 32) % copies * pitch;
  const int64_t step = int64_t{kThreads} * gridDim.x;
  for (int64_t base = blockIdx.x * int64_t{kThreads} + threadIdx.x; base < n; base += step * kBatch) {
    Counted<Sum> found[kBatch];
#pragma unroll
    for (int u = 0; u < kBatch; u++) found[u] = base + u * step < n ? of(base + u * step) : Counted<Sum>{-1, Sum(0)};
#pragma unroll
    for (int u = 0; u < kBatch; u++)
      if (found[u].bin >= 0) atomicAdd(mine + found[u].bin, found[u].weight);
  }
  __syncthreads();
  for (int b = static_cast<int>(threadIdx.x); b < bins; b += kThreads) {
    Sum sum = 0;
    for (int k = 0; k < copies; k++) sum += sums[k * pitch + b];
    if (sum != Sum(0)) atomicAdd(totals + b, static_cast<Total>(sum));
  }
}
template <class Sum, class Total, class Of>
__global__ void __launch_bounds__(kThreads) count_in_memory(const __grid_constant__ Of of, int64_t n, Total* totals) {
  MT_GRID_LOOP(i, n) {
    const Counted<Sum> found = of(i);
    if (found.bin >= 0) atomicAdd(totals + found.bin, static_cast<Total>(found.weight));
  }
}

// totals[0 .. bins) = the sums of the weights that of(0 .. n) gives each bin.
template <class Sum, class Total, class Of>
void count_all(const Of& of, int64_t n, int64_t bins, Total* totals) {
  const cudaStream_t stream = cuda::current_stream();
  cuda::check(cudaMemsetAsync(totals, 0, static_cast<size_t>(bins) * sizeof(Total), stream), "clearing a histogram");
  if (n == 0) return cuda::check_launch("clearing a histogram");
  const auto size = static_cast<int64_t>(sizeof(Sum)), pitch = bins | 1;
  if (pitch * size > kSharedBytes) {
    count_in_memory<Sum, Total><<<grid_for(n), kThreads, 0, stream>>>(of, n, totals);
    return;
  }
  const auto copies = static_cast<int>(std::clamp<int64_t>(kCopiesBytes / (pitch * size), 1, kThreads / 32));
  // No more blocks than are resident, and each with more elements than bins to clear and to add up.
  const int64_t wanted = std::min(ceil_div(n, 4 * kThreads * kBatch), ceil_div(n, 4 * bins));
  const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, int64_t{cuda::multiprocessors()} * 4));
  count_in_blocks<Sum, Total><<<blocks, kThreads, static_cast<size_t>(pitch * copies * size), stream>>>(
      of, n, static_cast<int>(bins), copies, totals);
}

// ---- Integers ------------------------------------------------------------------------------------------------------

template <class T>
struct Integers {
  const T* elements;
  int64_t lowest, bins;
  __device__ __forceinline__ Counted<uint32_t> operator()(int64_t i) const {
    const int64_t x = static_cast<int64_t>(elements[i]) - lowest;
    return {x < bins ? x : int64_t{-1}, 1u};
  }
};

void count(const CountArgs& a) {
  if (!dispatch(a.dtype, Types<uint8_t, int8_t, int16_t, int32_t, int64_t>{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        count_all<uint32_t>(Integers<T>{reinterpret_cast<const T*>(a.elements), a.lowest, a.bins}, a.n, a.bins,
                            reinterpret_cast<Total*>(a.counts));
      }))
    missing_kernel("bincount", name_of(a.dtype));
  cuda::check_launch("launching a count");
}

// ---- Points between edges ------------------------------------------------------------------------------------------

template <class T>
__device__ __forceinline__ compute_t<T> rounded(compute_t<T> x) {
  return convert<compute_t<T>>(convert<T>(x));
}

// One dimension of the points; every step is rounded to T, as native's arithmetic on T is.
template <class T>
struct Axis {
  using C = compute_t<T>;
  const T* edges;
  int64_t bins;
  C low, high, width, number;
  __device__ Axis(const T* from, int64_t count) : edges(from), bins(count) {
    low = convert<C>(edges[0]);
    high = convert<C>(edges[bins]);
    width = rounded<T>(high - low);
    number = rounded<T>(static_cast<C>(bins));
  }
  __device__ __forceinline__ bool reached(int64_t edge, C x) const { return convert<C>(edges[edge]) <= x; }
  // The bin of x, or -1 outside the edges and for NaN.
  __device__ __forceinline__ int64_t bin(C x, BinSearch search) const {
    if (!(x >= low && x <= high)) return -1;
    int64_t at = 0;
    if (search == BinSearch::binary) {
      for (int64_t length = bins + 1; length > 1;) {
        const int64_t half = length / 2;
        at += reached(at + half, x) ? half : 0;
        length -= half;
      }
    } else {
      at = static_cast<int64_t>(rounded<T>(rounded<T>(rounded<T>(x - low) * number) / width));
      if (search == BinSearch::nearby) {
        at = min(max(at, int64_t{0}), bins - 1);
        const int64_t first = max(at - 1, int64_t{0}), last = min(at + 1, bins);
        at = first - 1;
        for (int64_t e = first; e <= last; e++) at += reached(e, x);
      }
    }
    return min(max(at, int64_t{0}), bins - 1);
  }
};

template <class T, class Sum, bool OneDimension>
struct Points {
  const T *points, *weights;
  int dims;
  BinSearch search;
  const T* edges[kMostHistogramDims];
  int64_t bins[kMostHistogramDims];

  __device__ __forceinline__ Counted<Sum> operator()(int64_t i) const {
    int64_t at = 0;
    const int count = OneDimension ? 1 : dims;
    for (int d = 0; d < count && at >= 0; d++) {
      const int64_t here = Axis<T>(edges[d], bins[d]).bin(convert<compute_t<T>>(points[i * count + d]), search);
      at = here < 0 ? -1 : at * bins[d] + here;
    }
    if constexpr (std::is_same_v<Sum, double>) {
      return {at, at < 0 ? 0.0 : static_cast<double>(convert<compute_t<T>>(weights[i]))};
    } else {
      return {at, Sum(1)};
    }
  }
};

template <class T, class Total>
__global__ void __launch_bounds__(kThreads) round_totals(const Total* totals, int64_t bins, T* hist) {
  MT_GRID_LOOP(b, bins) hist[b] = convert<T>(static_cast<compute_t<T>>(totals[b]));
}

template <class T, class Sum, class Total, bool OneDimension>
void count_points(const HistogramArgs& a) {
  Points<T, Sum, OneDimension> points{reinterpret_cast<const T*>(a.points),
                                      reinterpret_cast<const T*>(a.weights),
                                      static_cast<int>(a.dims),
                                      a.search,
                                      {},
                                      {}};
  int64_t bins = 1;
  for (int64_t d = 0; d < a.dims; d++) {
    points.edges[d] = reinterpret_cast<const T*>(a.edges[d]);
    bins *= points.bins[d] = a.bins[d];
  }
  if (bins == 0) return;
  const Scratch totals(bins * static_cast<int64_t>(sizeof(Total)));
  count_all<Sum>(points, a.n, bins, totals.get<Total>());
  round_totals<<<grid_for(bins), kThreads, 0, cuda::current_stream()>>>(totals.get<Total>(), bins,
                                                                        reinterpret_cast<T*>(a.hist));
}

void histogram(const HistogramArgs& a) {
  if (!dispatch(a.dtype, FloatingTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const auto run = [&](auto one) {
          constexpr bool kOne = decltype(one)::value;
          if (a.weights != nullptr) {
            count_points<T, double, double, kOne>(a);
          } else {
            count_points<T, uint32_t, Total, kOne>(a);
          }
        };
        if (a.dims == 1) {
          run(std::true_type{});
        } else {
          run(std::false_type{});
        }
      }))
    missing_kernel("histogram", name_of(a.dtype));
  cuda::check_launch("launching a histogram");
}

MT_REGISTER_KERNEL(count_kernel, &count);
MT_REGISTER_KERNEL(histogram_kernel, &histogram);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
