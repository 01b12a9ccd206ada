// Segment reductions on the CPU: rows of `inner` elements are reduced into one another, in parallel over segments.
#include <algorithm>
#include <limits>

#include "kernels/cpu/scratch.h"
#include "core/parallel.h"
#include "kernels/segment.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

template <class C>
C neutral(const SegmentArgs& a) {
  if (a.has_initial) return static_cast<C>(a.initial);
  switch (a.reduction) {
    case SegmentReduction::max: return -std::numeric_limits<C>::infinity();
    case SegmentReduction::min: return std::numeric_limits<C>::infinity();
    case SegmentReduction::prod: return C(1);
    default: return C(0);
  }
}

// f(outer, segment, first, count) for all segments, in parallel.
template <class F>
void for_segments(const SegmentArgs& a, const F& f) {
  const int64_t all = a.outer * a.segments;
  const int64_t work = all > 0 ? a.outer * a.length * a.inner / all : 0;
  parallel_for(all, grain_of(2 * work), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t o = i / a.segments, s = i % a.segments;
      const int64_t* bounds = a.bounds + o * (a.segments + 1) + s;
      f(o, s, bounds[0], bounds[1] - bounds[0]);
    }
  });
}

template <class C, class T>
MT_INLINE void reduce_row(SegmentReduction reduction, C* sum, const T* x, int64_t n) {
  switch (reduction) {
    case SegmentReduction::max:
      for (int64_t i = 0; i < n; i++) {
        const C v = static_cast<C>(x[i]);
        sum[i] = sum[i] != sum[i] || sum[i] > v ? sum[i] : v;
      }
      break;
    case SegmentReduction::min:
      for (int64_t i = 0; i < n; i++) {
        const C v = static_cast<C>(x[i]);
        sum[i] = sum[i] != sum[i] || sum[i] < v ? sum[i] : v;
      }
      break;
    case SegmentReduction::prod:
      for (int64_t i = 0; i < n; i++) sum[i] *= static_cast<C>(x[i]);
      break;
    default:
      for (int64_t i = 0; i < n; i++) sum[i] += static_cast<C>(x[i]);
  }
}

template <class T>
void forward(const SegmentArgs& a) {
  using C = compute_t<T>;
  for_segments(a, [&](int64_t o, int64_t s, int64_t first, int64_t count) {
    Scratch<C, 1024> sums(a.inner);
    C* sum = sums.get();
    for (int64_t i = 0; i < a.inner; i++) sum[i] = neutral<C>(a);
    const T* x = static_cast<const T*>(a.data) + (o * a.length + first) * a.inner;
    for (int64_t k = 0; k < count; k++) reduce_row(a.reduction, sum, x + k * a.inner, a.inner);
    const bool mean = a.reduction == SegmentReduction::mean;
    T* y = static_cast<T*>(a.result) + (o * a.segments + s) * a.inner;
    for (int64_t i = 0; i < a.inner; i++) {
      if (mean && count > 0) sum[i] /= static_cast<C>(count);
      if (mean && count == 0 && !a.has_initial) sum[i] = std::numeric_limits<C>::quiet_NaN();
      y[i] = static_cast<T>(sum[i]);
    }
  });
}

// The product of the elements of a column but one.
template <class C, class T>
C product_without(const T* x, int64_t count, int64_t stride, int64_t skipped, C start) {
  for (int64_t k = 0; k < count; k++)
    if (k != skipped) start *= static_cast<C>(x[k * stride]);
  return start;
}

template <class T>
void backward(const SegmentArgs& a) {
  using C = compute_t<T>;
  for_segments(a, [&](int64_t o, int64_t s, int64_t first, int64_t count) {
    const T* x = static_cast<const T*>(a.data) + (o * a.length + first) * a.inner;
    T* dx = static_cast<T*>(a.ddata) + (o * a.length + first) * a.inner;
    const T *y = static_cast<const T*>(a.result) + (o * a.segments + s) * a.inner,
            *dy = static_cast<const T*>(a.dresult) + (o * a.segments + s) * a.inner;
    for (int64_t i = 0; i < a.inner; i++) {
      const C result = static_cast<C>(y[i]), g = static_cast<C>(dy[i]);
      if (a.reduction == SegmentReduction::sum || a.reduction == SegmentReduction::mean) {
        const T share = static_cast<T>(a.reduction == SegmentReduction::mean ? g / static_cast<C>(count) : g);
        for (int64_t k = 0; k < count; k++) dx[k * a.inner + i] = share;
      } else if (a.reduction == SegmentReduction::prod) {
        for (int64_t k = 0; k < count; k++) {
          const C v = static_cast<C>(x[k * a.inner + i]);
          const bool divides = v == v && v != C(0);
          const C start = a.has_initial ? static_cast<C>(a.initial) : C(1);
          dx[k * a.inner + i] =
              static_cast<T>(divides ? g * result / v : g * product_without(x + i, count, a.inner, k, start));
        }
      } else {
        // Extremes share the gradient, when it is positive: native leaves a negative one undivided.
        int64_t extremes = 0;
        for (int64_t k = 0; k < count; k++) {
          const C v = static_cast<C>(x[k * a.inner + i]);
          const bool extreme = v != v || v == result;
          dx[k * a.inner + i] = extreme ? dy[i] : T(0.0f);
          extremes += extreme;
        }
        if (extremes < 2 || !(g > C(0))) continue;
        for (int64_t k = 0; k < count; k++)
          dx[k * a.inner + i] = static_cast<T>(static_cast<C>(dx[k * a.inner + i]) / static_cast<C>(extremes));
      }
    }
  });
}

void segment_reduce(const SegmentArgs& a) {
  const bool done = dispatch(a.dtype, FloatingTypes{}, [&](auto tag) { forward<typename decltype(tag)::type>(a); });
  if (!done) missing_kernel("segment_reduce", name_of(a.dtype));
}
void segment_reduce_backward(const SegmentArgs& a) {
  const bool done = dispatch(a.dtype, FloatingTypes{}, [&](auto tag) { backward<typename decltype(tag)::type>(a); });
  if (!done) missing_kernel("segment_reduce_backward", name_of(a.dtype));
}

void segment_bounds(const SegmentBoundsArgs& a) {
  const int64_t segments = a.from_lengths ? a.count : a.count - 1;
  for (int64_t o = 0; o < a.outer; o++) {
    int64_t* bounds = a.bounds + o * (segments + 1);
    int64_t at = 0;
    for (int64_t i = 0; i < a.count; i++) {
      const int64_t value = a.dtype == DType::I64 ? static_cast<const int64_t*>(a.source)[o * a.count + i]
                                                  : static_cast<const int32_t*>(a.source)[o * a.count + i];
      if (a.from_lengths) {
        bounds[i] = at;
        *a.failed = *a.failed || value < 0 || value > a.length - at;
        at += *a.failed ? 0 : value;
      } else {
        *a.failed = *a.failed || value < at || value > a.length;
        at = *a.failed ? at : value;
        bounds[i] = at;
      }
    }
    if (a.from_lengths) bounds[segments] = at;
  }
}

MT_REGISTER_KERNEL(segment_reduce_kernel, &segment_reduce);
MT_REGISTER_KERNEL(segment_reduce_backward_kernel, &segment_reduce_backward);
MT_REGISTER_KERNEL(segment_bounds_kernel, &segment_bounds);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
