// Pooling on CUDA: a thread an output, or an input where the gradient gathers. Positions and windows are computed in 32
// bits where tensors have no more elements than that, with precomputed reciprocals.
#include "kernels/pool.h"

#include <limits>

#include "kernels/cuda/atomic.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

int64_t elements(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }
int64_t outputs(const PoolShape& s) { return s.n * s.c * elements(s.out); }
int64_t inputs(const PoolShape& s) { return s.n * s.c * elements(s.in); }

template <class I>
struct Position {
  I n, c, at[3];
};
// Of element i of an image with these sizes.
template <class I>
struct Positions {
  Divider by[4];  // along memory, the fastest first
  I sizes[4];
  bool channels_last;

  Positions(const PoolShape& s, const int64_t (&of)[3]) : channels_last(s.channels_last) {
    const int64_t last[4] = {s.c, of[2], of[1], of[0]}, first[4] = {of[2], of[1], of[0], s.c};
    for (int d = 0; d < 4; d++) {
      sizes[d] = static_cast<I>(channels_last ? last[d] : first[d]);
      if constexpr (sizeof(I) == 4) by[d] = Divider(static_cast<uint32_t>(sizes[d]));
    }
  }
  __device__ __forceinline__ Position<I> operator()(int64_t element) const {
    I at[4], rest = static_cast<I>(element);
#pragma unroll
    for (int d = 0; d < 4; d++) {
      I quotient;
      if constexpr (sizeof(I) == 4) {
        quotient = static_cast<I>(by[d].quotient(static_cast<uint32_t>(rest)));
      } else {
        quotient = rest / sizes[d];
      }
      at[d] = rest - quotient * sizes[d];
      rest = quotient;
    }
    return channels_last ? Position<I>{rest, at[0], {at[3], at[2], at[1]}}
                         : Position<I>{rest, at[3], {at[2], at[1], at[0]}};
  }
};
// The elements of one channel of one sample, by their number within it.
template <class T>
struct Plane {
  T* data;
  int64_t step;
  __device__ __forceinline__ Plane(const PoolShape& s, const int64_t (&sizes)[3], T* tensor, int64_t n, int64_t c) {
    const int64_t plane = sizes[0] * sizes[1] * sizes[2];
    data = tensor + (s.channels_last ? n * plane * s.c + c : (n * s.c + c) * plane);
    step = s.channels_last ? s.c : 1;
  }
  __device__ __forceinline__ T& operator[](int64_t flat) const { return data[flat * step]; }
};

// The window of output i along dimension d: start, start + step, ... below end; `full` is its length with the padding
// inside the padded image.
template <class I>
struct Span {
  I start, end, step, full;
};
template <class I>
__device__ __forceinline__ Span<I> span_of(const PoolShape& s, const PoolWindow& w, int d, I i) {
  const I in = static_cast<I>(s.in[d]), out = static_cast<I>(s.out[d]);
  if (w.kernel[0] == 0) {  // i in is below the number of elements of both
    const int64_t begin = int64_t{i} * in, next = begin + in + out - 1;
    const I start =
        static_cast<I>(sizeof(I) == 4 && begin >> 31 == 0 ? static_cast<uint32_t>(begin) / out : begin / out);
    const I end = static_cast<I>(sizeof(I) == 4 && next >> 31 == 0 ? static_cast<uint32_t>(next) / out : next / out);
    return {start, end, 1, end - start};
  }
  const I step = static_cast<I>(w.dilation[d]), kernel = static_cast<I>(w.kernel[d]), pad = static_cast<I>(w.pad[d]);
  const I first = i * static_cast<I>(w.stride[d]) - pad, last = first + (kernel - 1) * step + 1;
  const I start = first >= 0 ? first : step == 1 ? I{0} : first + (-first + step - 1) / step * step;
  return {start, min(last, in), step, min(first + kernel, in + pad) - first};
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
template <class T, class I, class Args>
__device__ __forceinline__ void put_maximum(const Args& a, const Position<I>& p, const Span<I> (&span)[3], int64_t i) {
  using C = compute_t<T>;
  const Plane<const T> x(a.shape, a.shape.in, static_cast<const T*>(a.x), p.n, p.c);
  const I height = static_cast<I>(a.shape.in[1]), width = static_cast<I>(a.shape.in[2]);
  C best = lowest<T>();
  I at = (span[0].start * height + span[1].start) * width + span[2].start;
  for (I d = span[0].start; d < span[0].end; d += span[0].step)
    for (I h = span[1].start; h < span[1].end; h += span[1].step)
      for (I w = span[2].start; w < span[2].end; w += span[2].step) {
        const I flat = (d * height + h) * width + w;
        const C value = convert<C>(x[flat]);
        if (value > best || value != value) {
          best = value;
          at = flat;
        }
      }
  static_cast<T*>(a.y)[i] = convert<T>(best);
  if (a.indices != nullptr) static_cast<int64_t*>(a.indices)[i] = at;
}

template <class T, class I>
__global__ void __launch_bounds__(kThreads)
    max_windows(const __grid_constant__ MaxPoolArgs a, const __grid_constant__ Positions<I> position_of,
                int64_t numel) {
  MT_GRID_LOOP(i, numel) {
    const Position<I> p = position_of(i);
    Span<I> span[3];
#pragma unroll
    for (int d = 0; d < 3; d++) span[d] = span_of<I>(a.shape, a.window, d, p.at[d]);
    put_maximum<T>(a, p, span, i);
  }
}

// f(an index type that counts the elements of both tensors, and what is reached beside them).
bool fits_32_bits(const PoolShape& s, const PoolWindow& w) {
  int64_t most = std::max(inputs(s), outputs(s));
  for (int d = 0; d < 3; d++) {
    if (std::max({w.kernel[d], w.dilation[d], w.stride[d], w.pad[d]}) >= int64_t{1} << 31) return false;
    const int64_t past = std::max(w.kernel[d], int64_t{1}) * std::max(w.dilation[d], int64_t{1}) + w.pad[d];
    most = std::max(most, s.in[d] + s.out[d] * std::max(w.stride[d], int64_t{1}) + past);
  }
  return most < int64_t{1} << 31;
}
template <class F>
void by_index(const PoolShape& s, const PoolWindow& w, const F& f) {
  if (fits_32_bits(s, w)) {
    f(Tag<int32_t>{});
  } else {
    f(Tag<int64_t>{});
  }
}

using PoolTypes = Types<float, double, Half, BFloat16, uint8_t, int8_t, int16_t, int32_t, int64_t>;

void max_pool(const MaxPoolArgs& a) {
  const int64_t numel = outputs(a.shape);
  if (numel == 0) return;
  if (!dispatch(a.dtype, PoolTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        by_index(a.shape, a.window, [&](auto index) {
          using I = typename decltype(index)::type;
          max_windows<T>
              <<<grid_for(numel), kThreads, 0, cuda::current_stream()>>>(a, Positions<I>(a.shape, a.shape.out), numel);
        });
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
    fractional_windows(const __grid_constant__ FractionalMaxPoolArgs a,
                       const __grid_constant__ Positions<int64_t> position_of, int64_t numel) {
  using C = compute_t<T>;
  MT_GRID_LOOP(i, numel) {
    const Position<int64_t> p = position_of(i);
    const int64_t image = p.n * a.shape.c + p.c;
    Span<int64_t> span[3];
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
        fractional_windows<typename decltype(tag)::type><<<grid_for(numel), kThreads, 0, cuda::current_stream()>>>(
            a, Positions<int64_t>(a.shape, a.shape.out), numel);
      }))
    missing_kernel("fractional_max_pool", name_of(a.dtype));
  cuda::check_launch("launching a fractional max pooling");
}

// A gradient of overlapping windows adds up where they meet.
template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_pixels(const __grid_constant__ PoolScatterArgs a, const __grid_constant__ Positions<int64_t> position_of,
                   int64_t numel, cuda::Fault* fault, const char* what) {
  const int64_t plane = a.shape.in[0] * a.shape.in[1] * a.shape.in[2];
  MT_GRID_LOOP(i, numel) {
    const Position<int64_t> p = position_of(i);
    const int64_t index = static_cast<const int64_t*>(a.indices)[i];
    if (index < 0 || index >= plane) {
      cuda::report_fault(fault, what, index, plane);
      continue;
    }
    const Plane<T> y(a.shape, a.shape.in, static_cast<T*>(a.y), p.n, p.c);
    const T x = static_cast<const T*>(a.x)[i];
    if (a.accumulate) {
      atomic_add(&y[index], x);
    } else {
      y[index] = x;
    }
  }
}

// The outputs along dimension d whose windows may hold input position `at`.
template <class I>
__device__ __forceinline__ void reach_of(const PoolShape& s, const PoolWindow& w, int d, I at, I& first, I& last) {
  if (w.kernel[0] == 0) {
    first = static_cast<I>(at * s.out[d] / s.in[d]);
    last = static_cast<I>(((at + 1) * s.out[d] - 1) / s.in[d]);
    return;
  }
  const I stride = static_cast<I>(w.stride[d]), padded = at + static_cast<I>(w.pad[d]);
  const I before = padded - static_cast<I>((w.kernel[d] - 1) * w.dilation[d]);  // where a window ends that ends here
  first = before <= 0 ? I{0} : (before + stride - 1) / stride;
  last = min(padded / stride, static_cast<I>(s.out[d] - 1));
}

// Where the windows are known, an input gathers from those that chose it: no additions in memory, and always in the
// same order.
template <class T, class I>
__global__ void __launch_bounds__(kThreads)
    gather_pixels(const __grid_constant__ PoolScatterArgs a, const __grid_constant__ Positions<I> position_of,
                  int64_t numel, cuda::Fault* fault, const char* what) {
  using C = compute_t<T>;
  const I depth = static_cast<I>(a.shape.in[0]), height = static_cast<I>(a.shape.in[1]),
          width = static_cast<I>(a.shape.in[2]), plane = depth * height * width;
  MT_GRID_LOOP(i, numel) {
    const Position<I> p = position_of(i);
    const Plane<const T> x(a.shape, a.shape.out, static_cast<const T*>(a.x), p.n, p.c);
    const Plane<const int64_t> indices(a.shape, a.shape.out, static_cast<const int64_t*>(a.indices), p.n, p.c);
    I first[3], last[3];
#pragma unroll
    for (int d = 0; d < 3; d++) reach_of<I>(a.shape, a.window, d, p.at[d], first[d], last[d]);
    const int64_t own = (p.at[0] * height + p.at[1]) * width + p.at[2];
    C sum = C(0);
    for (I d = first[0]; d <= last[0]; d++)
      for (I h = first[1]; h <= last[1]; h++)
        for (I w = first[2]; w <= last[2]; w++) {
          const I flat = (d * static_cast<I>(a.shape.out[1]) + h) * static_cast<I>(a.shape.out[2]) + w;
          const int64_t index = indices[flat];
          if (index == own) sum += convert<C>(x[flat]);
          if (index < 0 || index >= plane) cuda::report_fault(fault, what, index, plane);
        }
    static_cast<T*>(a.y)[i] = convert<T>(sum);
  }
}

void pool_scatter(const PoolScatterArgs& a) {
  const int64_t numel = outputs(a.shape), size = inputs(a.shape);
  if (size == 0) return;
  const cudaStream_t stream = cuda::current_stream();
  const bool gathers = a.windowed && numel > 0;
  if (!gathers)
    cuda::check(cudaMemsetAsync(a.y, 0, static_cast<size_t>(size) * size_of(a.dtype), stream),
                "clearing a pooling's gradient");
  if (numel == 0) return cuda::check_launch("clearing a pooling's gradient");
  if (!dispatch(a.dtype, PoolTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        cuda::Fault* const fault = cuda::fault_record();
        if (!gathers) {
          scatter_pixels<T><<<grid_for(numel), kThreads, 0, stream>>>(a, Positions<int64_t>(a.shape, a.shape.out),
                                                                      numel, fault, "max pooling");
          return;
        }
        by_index(a.shape, a.window, [&](auto index) {
          using I = typename decltype(index)::type;
          gather_pixels<T><<<grid_for(size), kThreads, 0, stream>>>(a, Positions<I>(a.shape, a.shape.in), size, fault,
                                                                    "max pooling");
        });
      }))
    missing_kernel("pool_scatter", name_of(a.dtype));
  cuda::check_launch("launching the gradient of a max pooling");
}

template <class I>
__device__ __forceinline__ int64_t divisor_of(const AvgPoolArgs& a, const Span<I> (&span)[3]) {
  if (a.divisor != 0) return a.divisor;
  int64_t count = 1;
#pragma unroll
  for (int d = 0; d < 3; d++) count *= a.count_include_pad ? span[d].full : span[d].end - span[d].start;
  return count;
}

template <class T, class I>
__global__ void __launch_bounds__(kThreads)
    average_windows(const __grid_constant__ AvgPoolArgs a, const __grid_constant__ Positions<I> position_of,
                    int64_t numel) {
  using C = compute_t<T>;
  MT_GRID_LOOP(i, numel) {
    const Position<I> p = position_of(i);
    Span<I> span[3];
    bool empty = false;
#pragma unroll
    for (int d = 0; d < 3; d++) {
      span[d] = span_of<I>(a.shape, a.window, d, p.at[d]);
      empty = empty || span[d].start >= span[d].end;
    }
    const Plane<const T> x(a.shape, a.shape.in, static_cast<const T*>(a.x), p.n, p.c);
    const I height = static_cast<I>(a.shape.in[1]), width = static_cast<I>(a.shape.in[2]);
    C sum = C(0);
    for (I d = span[0].start; d < span[0].end; d++)
      for (I h = span[1].start; h < span[1].end; h++)
        for (I w = span[2].start; w < span[2].end; w++) sum += convert<C>(x[(d * height + h) * width + w]);
    static_cast<T*>(a.y)[i] = convert<T>(empty ? C(0) : static_cast<C>(sum / static_cast<C>(divisor_of(a, span))));
  }
}

template <class T, class I>
__global__ void __launch_bounds__(kThreads)
    average_gradient(const __grid_constant__ AvgPoolArgs a, const __grid_constant__ Positions<I> position_of,
                     int64_t numel) {
  using C = compute_t<T>;
  MT_GRID_LOOP(i, numel) {
    const Position<I> p = position_of(i);
    const Plane<const T> x(a.shape, a.shape.out, static_cast<const T*>(a.x), p.n, p.c);
    I first[3], last[3];
#pragma unroll
    for (int d = 0; d < 3; d++) reach_of<I>(a.shape, a.window, d, p.at[d], first[d], last[d]);
    C sum = C(0);
    for (I d = first[0]; d <= last[0]; d++)
      for (I h = first[1]; h <= last[1]; h++)
        for (I w = first[2]; w <= last[2]; w++) {
          const Span<I> span[3] = {span_of<I>(a.shape, a.window, 0, d), span_of<I>(a.shape, a.window, 1, h),
                                   span_of<I>(a.shape, a.window, 2, w)};
          const I flat = (d * static_cast<I>(a.shape.out[1]) + h) * static_cast<I>(a.shape.out[2]) + w;
          sum += convert<C>(x[flat]) / static_cast<C>(divisor_of(a, span));
        }
    static_cast<T*>(a.y)[i] = convert<T>(sum);
  }
}

using AvgTypes = Types<float, double, Half, BFloat16, int64_t>;

void avg_pool(const AvgPoolArgs& a) {
  const int64_t numel = outputs(a.shape);
  if (numel == 0) return;
  if (!dispatch(a.dtype, AvgTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        by_index(a.shape, a.window, [&](auto index) {
          using I = typename decltype(index)::type;
          average_windows<T>
              <<<grid_for(numel), kThreads, 0, cuda::current_stream()>>>(a, Positions<I>(a.shape, a.shape.out), numel);
        });
      }))
    missing_kernel("avg_pool", name_of(a.dtype));
  cuda::check_launch("launching an average pooling");
}

void avg_pool_backward(const AvgPoolArgs& a) {
  const int64_t numel = inputs(a.shape);
  if (numel == 0) return;
  if (!dispatch(a.dtype, AvgTypes{}, [&](auto tag) {
        using T = typename decltype(tag)::type;
        by_index(a.shape, a.window, [&](auto index) {
          using I = typename decltype(index)::type;
          average_gradient<T>
              <<<grid_for(numel), kThreads, 0, cuda::current_stream()>>>(a, Positions<I>(a.shape, a.shape.in), numel);
        });
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
