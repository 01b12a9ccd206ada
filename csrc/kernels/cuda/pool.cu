// Pooling on CUDA: a thread an output, or an input where the gradient gathers.
#include "kernels/pool.h"

#include <limits>

#include "kernels/cuda/atomic.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

int64_t elements(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

struct Position {
  int64_t n, c, at[3];
};
// Of element i of an image with these sizes.
__device__ __forceinline__ Position position_of(const PoolShape& s, const int64_t (&sizes)[3], int64_t i) {
  Position p;
  if (s.channels_last) {
    p.c = i % s.c;
    i /= s.c;
  }
  p.at[2] = i % sizes[2];
  i /= sizes[2];
  p.at[1] = i % sizes[1];
  i /= sizes[1];
  p.at[0] = i % sizes[0];
  i /= sizes[0];
  if (!s.channels_last) {
    p.c = i % s.c;
    i /= s.c;
  }
  p.n = i;
  return p;
}
// Memory offset of element `flat` (of one channel of one sample).
__device__ __forceinline__ int64_t offset_of(const PoolShape& s, const int64_t (&sizes)[3], int64_t n, int64_t c,
                                             int64_t flat) {
  const int64_t plane = sizes[0] * sizes[1] * sizes[2];
  return s.channels_last ? (n * plane + flat) * s.c + c : (n * s.c + c) * plane + flat;
}

// The window of output i along dimension d: start, start + step, ... below end; `full` is its length with the padding
// inside the padded image.
struct Span {
  int64_t start, end, step, full;
};
__device__ __forceinline__ Span span_of(const PoolShape& s, const PoolWindow& w, int d, int64_t i) {
  const int64_t in = s.in[d], out = s.out[d];
  if (w.kernel[0] == 0) {
    const int64_t start = i * in / out, end = ((i + 1) * in + out - 1) / out;
    return {start, end, 1, end - start};
  }
  const int64_t step = w.dilation[d], first = i * w.stride[d] - w.pad[d], last = first + (w.kernel[d] - 1) * step + 1;
  const int64_t start = first >= 0 ? first : first + (-first + step - 1) / step * step;
  return {start, min(last, in), step, min(first + w.kernel[d], in + w.pad[d]) - first};
}

template <class T>
__device__ __forceinline__ compute_t<T> lowest() {
  if constexpr (is_floating_v<T>) {
    return -std::numeric_limits<compute_t<T>>::infinity();
  } else {
    return std::numeric_limits<T>::lowest();
  }
}

// Writes output i of `a`, MaxPoolArgs or FractionalMaxPoolArgs: the window's largest element, where NaN is the largest,
// and its index.
template <class T, class Args>
__device__ __forceinline__ void put_maximum(const Args& a, const Position& p, const Span (&span)[3], int64_t i) {
  using C = compute_t<T>;
  C best = lowest<T>();
  int64_t at = (span[0].start * a.shape.in[1] + span[1].start) * a.shape.in[2] + span[2].start;
  for (int64_t d = span[0].start; d < span[0].end; d += span[0].step)
    for (int64_t h = span[1].start; h < span[1].end; h += span[1].step)
      for (int64_t w = span[2].start; w < span[2].end; w += span[2].step) {
        const int64_t flat = (d * a.shape.in[1] + h) * a.shape.in[2] + w;
        const C x = convert<C>(static_cast<const T*>(a.x)[offset_of(a.shape, a.shape.in, p.n, p.c, flat)]);
        if (x > best || x != x) {
          best = x;
          at = flat;
        }
      }
  static_cast<T*>(a.y)[i] = convert<T>(best);
  if (a.indices != nullptr) static_cast<int64_t*>(a.indices)[i] = at;
}

template <class T>
__global__ void __launch_bounds__(kThreads) max_windows(const __grid_constant__ MaxPoolArgs a, int64_t numel) {
  MT_GRID_LOOP(i, numel) {
    const Position p = position_of(a.shape, a.shape.out, i);
    Span span[3];
#pragma unroll
    for (int d = 0; d < 3; d++) span[d] = span_of(a.shape, a.window, d, p.at[d]);
    put_maximum<T>(a, p, span, i);
  }
}

using PoolTypes = Types<float, double, Half, BFloat16, uint8_t, int8_t, int16_t, int32_t, int64_t>;

int64_t outputs(const PoolShape& s) { return s.n * s.c * elements(s.out); }
int64_t inputs(const PoolShape& s) { return s.n * s.c * elements(s.in); }

void max_pool(const MaxPoolArgs& a) {
  const int64_t numel = outputs(a.shape);
  if (numel == 0) return;
  if (!dispatch(a.dtype, PoolTypes{}, [&](auto tag) {
        max_windows<typename decltype(tag)::type><<<grid_for(numel), kThreads, 0, cuda::current_stream()>>>(a, numel);
      }))
    missing_kernel("max_pool", name_of(a.dtype));
  cuda::check_launch("launching a max pooling");
}

// Rounds to T after every step, as arithmetic on T does: where a window starts depends on it.
template <class T>
__device__ __forceinline__ int64_t truncated_product(T a, T b) {
  return static_cast<int64_t>(convert<compute_t<T>>(convert<T>(convert<compute_t<T>>(a) * convert<compute_t<T>>(b))));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    fractional_windows(const __grid_constant__ FractionalMaxPoolArgs a, int64_t numel) {
  using C = compute_t<T>;
  MT_GRID_LOOP(i, numel) {
    const Position p = position_of(a.shape, a.shape.out, i);
    const int64_t image = p.n * a.shape.c + p.c;
    Span span[3];
    for (int d = 0; d < 3; d++) {
      const int64_t count = a.shape.out[d], reach = a.shape.in[d] - a.kernel[d];
      const T u = static_cast<const T*>(a.samples)[image * a.sample_count + a.sample_index[d]];
      int64_t start = reach;
      if (p.at[d] < count - 1) {
        const T alpha = convert<T>(convert<C>(convert<T>(static_cast<C>(reach))) /
                                   convert<C>(convert<T>(static_cast<C>(count - 1))));
        const T shifted = convert<T>(convert<C>(convert<T>(static_cast<C>(p.at[d]))) + convert<C>(u));
        start = truncated_product(shifted, alpha) - truncated_product(u, alpha);
      }
      start = min(max(start, int64_t{0}), reach);  // samples outside [0, 1) stay inside the image
      span[d] = {start, start + a.kernel[d], 1, a.kernel[d]};
    }
    put_maximum<T>(a, p, span, i);
  }
}

void fractional_max_pool(const FractionalMaxPoolArgs& a) {
  const int64_t numel = outputs(a.shape);
  if (numel == 0) return;
  if (!dispatch(a.dtype, FloatingTypes{}, [&](auto tag) {
        fractional_windows<typename decltype(tag)::type>
            <<<grid_for(numel), kThreads, 0, cuda::current_stream()>>>(a, numel);
      }))
    missing_kernel("fractional_max_pool", name_of(a.dtype));
  cuda::check_launch("launching a fractional max pooling");
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_pixels(const __grid_constant__ PoolScatterArgs a, int64_t numel, cuda::Fault* fault, const char* what) {
  MT_GRID_LOOP(i, numel) {
    const Position p = position_of(a.shape, a.shape.out, i);
    const int64_t index = static_cast<const int64_t*>(a.indices)[i];
    const int64_t plane = a.shape.in[0] * a.shape.in[1] * a.shape.in[2];
    if (index < 0 || index >= plane) {
      cuda::report_fault(fault, what, index, plane);
      continue;
    }
    T* to = static_cast<T*>(a.y) + offset_of(a.shape, a.shape.in, p.n, p.c, index);
    const T x = static_cast<const T*>(a.x)[i];
    if (a.accumulate) {
      atomic_add(to, x);
    } else {
      *to = x;
    }
  }
}

void pool_scatter(const PoolScatterArgs& a) {
  const int64_t numel = outputs(a.shape), size = inputs(a.shape);
  if (size == 0) return;
  cuda::check(cudaMemsetAsync(a.y, 0, static_cast<size_t>(size) * size_of(a.dtype), cuda::current_stream()),
              "clearing a pooling's gradient");
  if (numel == 0) return;
  if (!dispatch(a.dtype, PoolTypes{}, [&](auto tag) {
        scatter_pixels<typename decltype(tag)::type>
            <<<grid_for(numel), kThreads, 0, cuda::current_stream()>>>(a, numel, cuda::fault_record(), "max pooling");
      }))
    missing_kernel("pool_scatter", name_of(a.dtype));
  cuda::check_launch("launching the gradient of a max pooling");
}

__device__ __forceinline__ int64_t divisor_of(const AvgPoolArgs& a, const Span (&span)[3]) {
  if (a.divisor != 0) return a.divisor;
  int64_t count = 1;
#pragma unroll
  for (int d = 0; d < 3; d++) count *= a.count_include_pad ? span[d].full : span[d].end - span[d].start;
  return count;
}

template <class T>
__global__ void __launch_bounds__(kThreads) average_windows(const __grid_constant__ AvgPoolArgs a, int64_t numel) {
  using C = compute_t<T>;
  MT_GRID_LOOP(i, numel) {
    const Position p = position_of(a.shape, a.shape.out, i);
    Span span[3];
    bool empty = false;
#pragma unroll
    for (int d = 0; d < 3; d++) {
      span[d] = span_of(a.shape, a.window, d, p.at[d]);
      empty = empty || span[d].start >= span[d].end;
    }
    C sum = C(0);
    for (int64_t d = span[0].start; d < span[0].end; d++)
      for (int64_t h = span[1].start; h < span[1].end; h++)
        for (int64_t w = span[2].start; w < span[2].end; w++)
          sum += convert<C>(static_cast<const T*>(
              a.x)[offset_of(a.shape, a.shape.in, p.n, p.c, (d * a.shape.in[1] + h) * a.shape.in[2] + w)]);
    static_cast<T*>(a.y)[i] = convert<T>(empty ? C(0) : static_cast<C>(sum / static_cast<C>(divisor_of(a, span))));
  }
}

// The outputs along dimension d whose windows may hold input position `at`.
__device__ __forceinline__ void reach_of(const PoolShape& s, const PoolWindow& w, int d, int64_t at, int64_t& first,
                                         int64_t& last) {
  if (w.kernel[0] == 0) {
    first = at * s.out[d] / s.in[d];
    last = ((at + 1) * s.out[d] - 1) / s.in[d];
    return;
  }
  const int64_t shifted = at + w.pad[d] - w.kernel[d] + 1;
  first = shifted <= 0 ? 0 : (shifted + w.stride[d] - 1) / w.stride[d];
  last = min((at + w.pad[d]) / w.stride[d], s.out[d] - 1);
}

template <class T>
__global__ void __launch_bounds__(kThreads) average_gradient(const __grid_constant__ AvgPoolArgs a, int64_t numel) {
  using C = compute_t<T>;
  MT_GRID_LOOP(i, numel) {
    const Position p = position_of(a.shape, a.shape.in, i);
    int64_t first[3], last[3];
#pragma unroll
    for (int d = 0; d < 3; d++) reach_of(a.shape, a.window, d, p.at[d], first[d], last[d]);
    C sum = C(0);
    for (int64_t d = first[0]; d <= last[0]; d++)
      for (int64_t h = first[1]; h <= last[1]; h++)
        for (int64_t w = first[2]; w <= last[2]; w++) {
          const Span span[3] = {span_of(a.shape, a.window, 0, d), span_of(a.shape, a.window, 1, h),
                                span_of(a.shape, a.window, 2, w)};
          const C g = convert<C>(static_cast<const T*>(
              a.x)[offset_of(a.shape, a.shape.out, p.n, p.c, (d * a.shape.out[1] + h) * a.shape.out[2] + w)]);
          sum += g / static_cast<C>(divisor_of(a, span));
        }
    static_cast<T*>(a.y)[i] = convert<T>(sum);
  }
}

using AvgTypes = Types<float, double, Half, BFloat16, int64_t>;

void avg_pool(const AvgPoolArgs& a) {
  const int64_t numel = outputs(a.shape);
  if (numel == 0) return;
  if (!dispatch(a.dtype, AvgTypes{}, [&](auto tag) {
        average_windows<typename decltype(tag)::type>
            <<<grid_for(numel), kThreads, 0, cuda::current_stream()>>>(a, numel);
      }))
    missing_kernel("avg_pool", name_of(a.dtype));
  cuda::check_launch("launching an average pooling");
}

void avg_pool_backward(const AvgPoolArgs& a) {
  const int64_t numel = inputs(a.shape);
  if (numel == 0) return;
  if (!dispatch(a.dtype, AvgTypes{}, [&](auto tag) {
        average_gradient<typename decltype(tag)::type>
            <<<grid_for(numel), kThreads, 0, cuda::current_stream()>>>(a, numel);
      }))
    missing_kernel("avg_pool_backward", name_of(a.dtype));
  cuda::check_launch("launching the gradient of an average pooling");
}

MT_REGISTER_KERNEL(max_pool_kernel, &max_pool);
MT_REGISTER_KERNEL(fractional_max_pool_kernel, &fractional_max_pool);
MT_REGISTER_KERNEL(pool_scatter_kernel, &pool_scatter);
MT_REGISTER_KERNEL(avg_pool_kernel, &avg_pool);
MT_REGISTER_KERNEL(avg_pool_backward_kernel, &avg_pool_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
