// Segment reductions on CUDA: a thread an element of the result, or a warp where the elements of a segment follow each
// other in memory.
#include <limits>

#include "kernels/cuda/launch.cuh"
#include "kernels/segment.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// The lanes that share one element of the result.
template <int lanes>
struct Team {
  static constexpr int size = lanes;
  __device__ static __forceinline__ int lane() { return lanes == 1 ? 0 : static_cast<int>(threadIdx.x) % lanes; }
  template <class C, class F>
  __device__ static __forceinline__ C reduce(C value, const F& combine) {
    if constexpr (lanes == 1) {
      return value;
    } else {
      return warp_reduce(value, combine);
    }
  }
};

struct Column {
  int64_t result;  // offset in result
  int64_t first;   // offset in data of the segment's first element
  int64_t count;
};
__device__ __forceinline__ Column column_of(const SegmentArgs& a, int64_t i) {
  const int64_t at = i % a.inner, segment = i / a.inner, o = segment / a.segments, s = segment - o * a.segments;
  const int64_t* bounds = a.bounds + o * (a.segments + 1) + s;
  return {i, (o * a.length + bounds[0]) * a.inner + at, bounds[1] - bounds[0]};
}

template <class C>
__device__ __forceinline__ C neutral(SegmentReduction reduction) {
  switch (reduction) {
    case SegmentReduction::max: return -std::numeric_limits<C>::infinity();
    case SegmentReduction::min: return std::numeric_limits<C>::infinity();
    case SegmentReduction::prod: return C(1);
    default: return C(0);
  }
}

template <class C>
struct Combine {
  SegmentReduction reduction;
  __device__ __forceinline__ C operator()(C a, C b) const {
    switch (reduction) {
      case SegmentReduction::max: return a != a || a > b ? a : b;
      case SegmentReduction::min: return a != a || a < b ? a : b;
      case SegmentReduction::prod: return a * b;
      default: return a + b;
    }
  }
};

template <class T, class Team>
__global__ void __launch_bounds__(kThreads) reduce_segments(const __grid_constant__ SegmentArgs a, int64_t numel) {
  using C = compute_t<T>;
  const Combine<C> combine{a.reduction};
  const T* const x = static_cast<const T*>(a.data);
  MT_GRID_LOOP(i, numel * Team::size) {
    const Column column = column_of(a, i / Team::size);
    C sum = neutral<C>(a.reduction);
    if (a.has_initial && Team::lane() == 0) sum = static_cast<C>(a.initial);
    for (int64_t k = Team::lane(); k < column.count; k += Team::size)
      sum = combine(sum, convert<C>(x[column.first + k * a.inner]));
    sum = Team::reduce(sum, combine);
    if (a.reduction == SegmentReduction::mean) {
      if (column.count > 0) sum /= static_cast<C>(column.count);
      if (column.count == 0 && !a.has_initial) sum = std::numeric_limits<C>::quiet_NaN();
    }
    if (Team::lane() == 0) static_cast<T*>(a.result)[column.result] = convert<T>(sum);
  }
}

template <class T, class Team>
__global__ void __launch_bounds__(kThreads) segment_gradient(const __grid_constant__ SegmentArgs a, int64_t numel) {
  using C = compute_t<T>;
  MT_GRID_LOOP(i, numel * Team::size) {
    const Column column = column_of(a, i / Team::size);
    const T* const x = static_cast<const T*>(a.data) + column.first;
    T* const dx = static_cast<T*>(a.ddata) + column.first;
    const C result = convert<C>(static_cast<const T*>(a.result)[column.result]);
    const C g = convert<C>(static_cast<const T*>(a.dresult)[column.result]);
    const auto each = [&](const auto& f) {
      for (int64_t k = Team::lane(); k < column.count; k += Team::size) f(k);
    };
    if (a.reduction == SegmentReduction::sum || a.reduction == SegmentReduction::mean) {
      const T share = convert<T>(a.reduction == SegmentReduction::mean ? g / static_cast<C>(column.count) : g);
      each([&](int64_t k) { dx[k * a.inner] = share; });
    } else if (a.reduction == SegmentReduction::prod) {
      each([&](int64_t k) {
        const C v = convert<C>(x[k * a.inner]);
        C slope = g * result / v;
        if (v != v || v == C(0)) {  // the product of the others
          C others = a.has_initial ? static_cast<C>(a.initial) : C(1);
          for (int64_t m = 0; m < column.count; m++)
            if (m != k) others *= convert<C>(x[m * a.inner]);
          slope = g * others;
        }
        dx[k * a.inner] = convert<T>(slope);
      });
    } else {
      // Extremes share the gradient, when it is positive: native leaves a negative one undivided.
      const auto extreme = [&](int64_t k) {
        const C v = convert<C>(x[k * a.inner]);
        return v != v || v == result;
      };
      C extremes = C(0);
      each([&](int64_t k) { extremes += extreme(k) ? C(1) : C(0); });
      extremes = Team::reduce(extremes, Sum());
      const T share = convert<T>(extremes > C(1) && g > C(0) ? g / extremes : g);
      each([&](int64_t k) { dx[k * a.inner] = extreme(k) ? share : convert<T>(C(0)); });
    }
  }
}

// f(type's tag, team) and the launch's check.
template <class F>
void launch(const char* name, const SegmentArgs& a, const F& f) {
  const bool adjacent = a.inner < 32 && a.length > 4 * a.segments;
  if (!dispatch(a.dtype, FloatingTypes{}, [&](auto tag) { adjacent ? f(tag, Team<32>{}) : f(tag, Team<1>{}); }))
    missing_kernel(name, name_of(a.dtype));
  cuda::check_launch("launching a segment reduction");
}

void segment_reduce(const SegmentArgs& a) {
  const int64_t numel = a.outer * a.segments * a.inner;
  if (numel == 0) return;
  launch("segment_reduce", a, [&](auto tag, auto team) {
    reduce_segments<typename decltype(tag)::type, decltype(team)>
        <<<grid_for(numel * team.size), kThreads, 0, cuda::current_stream()>>>(a, numel);
  });
}
void segment_reduce_backward(const SegmentArgs& a) {
  const int64_t numel = a.outer * a.segments * a.inner;
  if (numel == 0) return;
  launch("segment_reduce_backward", a, [&](auto tag, auto team) {
    segment_gradient<typename decltype(tag)::type, decltype(team)>
        <<<grid_for(numel * team.size), kThreads, 0, cuda::current_stream()>>>(a, numel);
  });
}

// A block a row: each thread sums a piece of the lengths, the pieces' sums are scanned, and the bounds follow.
template <class T>
__global__ void __launch_bounds__(kThreads)
    find_bounds(const __grid_constant__ SegmentBoundsArgs a, int64_t segments, bool* failed) {
  __shared__ int64_t sums[kThreads];
  const int t = static_cast<int>(threadIdx.x);
  const int64_t piece = (a.count + kThreads - 1) / kThreads;
  const int64_t first = min(t * piece, a.count), last = min(first + piece, a.count);
  for (int64_t o = blockIdx.x; o < a.outer; o += gridDim.x) {
    const T* const source = static_cast<const T*>(a.source) + o * a.count;
    int64_t* const bounds = a.bounds + o * (segments + 1);
    bool bad = false;
    if (!a.from_lengths) {
      for (int64_t i = first; i < last; i++) {
        const int64_t value = source[i], before = i > 0 ? static_cast<int64_t>(source[i - 1]) : 0;
        bad = bad || value < before || value > a.length;
        bounds[i] = value;
      }
    } else {
      int64_t sum = 0;
      for (int64_t i = first; i < last; i++) {
        const int64_t value = source[i];
        bad = bad || value < 0 || value > a.length;
        sum += bad ? 0 : value;
      }
      __syncthreads();
      sums[t] = sum;
      for (int step = 1; step < kThreads; step *= 2) {
        __syncthreads();
        const int64_t other = t >= step ? sums[t - step] : 0;
        __syncthreads();
        sums[t] += other;
      }
      int64_t at = sums[t] - sum;
      for (int64_t i = first; i < last; i++) {
        bounds[i] = at;
        at += bad ? 0 : static_cast<int64_t>(source[i]);
      }
      bad = bad || at > a.length;
      if (t == kThreads - 1) bounds[segments] = at;
    }
    if (bad) *failed = true;
  }
}

// Waits for the device: whether the segments fit decides whether there is anything to compute.
void segment_bounds(const SegmentBoundsArgs& a) {
  if (a.outer == 0 || (a.count == 0 && !a.from_lengths)) return;
  const cudaStream_t stream = cuda::current_stream();
  const Scratch failed(1);
  cuda::check(cudaMemsetAsync(failed.get(), 0, 1, stream), "clearing a flag");
  const int64_t segments = a.from_lengths ? a.count : a.count - 1;
  const auto kernel = a.dtype == DType::I64 ? &find_bounds<int64_t> : &find_bounds<int32_t>;
  kernel<<<static_cast<unsigned>(std::min<int64_t>(a.outer, int64_t{1} << 20)), kThreads, 0, stream>>>(
      a, segments, failed.get<bool>());
  cuda::check_launch("launching the bounds of segments");
  cuda::read_back(a.failed, failed.get(), 1, "reading a flag");
}

MT_REGISTER_KERNEL(segment_reduce_kernel, &segment_reduce);
MT_REGISTER_KERNEL(segment_reduce_backward_kernel, &segment_reduce_backward);
MT_REGISTER_KERNEL(segment_bounds_kernel, &segment_bounds);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
