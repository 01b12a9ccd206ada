// im2col and col2im.
#include "kernels/shape.h"

#include <algorithm>
#include <memory>

#include "kernels/cpu/element_size.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

// The windows [first, last) along dimension d for which kernel tap `tap` falls inside the image, and where it falls for
// window 0.
struct Taps {
  int64_t first, last, origin;
};
MT_INLINE Taps taps_inside(const ColumnArgs& a, int d, int64_t tap) {
  const int64_t origin = tap * a.dilation[d] - a.padding[d], stride = a.stride[d];
  const int64_t first = origin >= 0 ? 0 : (-origin + stride - 1) / stride;
  const int64_t last = origin >= a.size[d] ? 0 : (a.size[d] - 1 - origin) / stride + 1;
  return {std::min(first, a.windows[d]), std::clamp<int64_t>(last, std::min(first, a.windows[d]), a.windows[d]),
          origin};
}

template <class T>
void im2col_typed(const ColumnArgs& a) {
  const int64_t taps = a.kernel[0] * a.kernel[1], windows = a.windows[0] * a.windows[1];
  const int64_t rows = a.batch * a.channels * taps;
  parallel_for(rows, grain_of(windows), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const int64_t tap = r % taps;
      const T* const plane = reinterpret_cast<const T*>(a.image) + r / taps * a.size[0] * a.size[1];
      T* const out = reinterpret_cast<T*>(a.columns) + r * windows;
      const Taps y = taps_inside(a, 0, tap / a.kernel[1]), x = taps_inside(a, 1, tap % a.kernel[1]);
      std::fill(out, out + windows, T{});
      for (int64_t i = y.first; i < y.last; i++) {
        const T* const in = plane + (y.origin + i * a.stride[0]) * a.size[1] + x.origin;
        T* const row = out + i * a.windows[1];
        for (int64_t j = x.first; j < x.last; j++) row[j] = in[j * a.stride[1]];
      }
    }
  });
}

void im2col(const ColumnArgs& a) {
  if (a.batch * a.channels == 0) return;
  with_element_size(static_cast<int64_t>(size_of(a.dtype)),
                    [&](auto tag) { im2col_typed<typename decltype(tag)::type>(a); });
}

template <class T>
void col2im_typed(const ColumnArgs& a) {
  using C = compute_t<T>;
  const int64_t taps = a.kernel[0] * a.kernel[1], windows = a.windows[0] * a.windows[1];
  const int64_t area = a.size[0] * a.size[1];
  parallel_for(a.batch * a.channels, grain_of(windows * taps), [&](int64_t begin, int64_t end) {
    const std::unique_ptr<C[]> sums(new C[area]);
    for (int64_t p = begin; p < end; p++) {
      std::fill(sums.get(), sums.get() + area, C(0));
      for (int64_t tap = 0; tap < taps; tap++) {
        const T* const column = reinterpret_cast<const T*>(a.columns) + (p * taps + tap) * windows;
        const Taps y = taps_inside(a, 0, tap / a.kernel[1]), x = taps_inside(a, 1, tap % a.kernel[1]);
        for (int64_t i = y.first; i < y.last; i++) {
          C* const row = sums.get() + (y.origin + i * a.stride[0]) * a.size[1] + x.origin;
          const T* const in = column + i * a.windows[1];
          for (int64_t j = x.first; j < x.last; j++) row[j * a.stride[1]] += static_cast<C>(in[j]);
        }
      }
      T* const out = reinterpret_cast<T*>(a.image) + p * area;
      for (int64_t i = 0; i < area; i++) out[i] = static_cast<T>(sums[i]);
    }
  });
}

using SumTypes = Types<float, double, Half, BFloat16, Complex<float>, Complex<double>>;

void col2im(const ColumnArgs& a) {
  if (a.batch * a.channels == 0) return;
  // Sums of bools are their disjunction.
  if (a.dtype == DType::Bool) return col2im_typed<bool>(a);
  if (!dispatch(a.dtype, SumTypes{}, [&](auto tag) { col2im_typed<typename decltype(tag)::type>(a); }))
    missing_kernel("col2im", name_of(a.dtype));
}

MT_REGISTER_KERNEL(im2col_kernel, &im2col);
MT_REGISTER_KERNEL(col2im_kernel, &col2im);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
