// Average pooling on the CPU, regular and adaptive, forward and backward.
#include <cstring>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/pool_windows.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
using namespace pool;

using AvgTypes = Types<float, double, Half, BFloat16, int64_t>;

// Axes of a call with the divisor of each window. A window that lies wholly in the padding gives 0.
struct Averages {
  Axis depth, height, width;
  bool count_include_pad;
  int64_t divisor;
  MT_INLINE explicit Averages(const AvgPoolArgs& a)
      : depth(a.shape, a.window, 0),
        height(a.shape, a.window, 1),
        width(a.shape, a.window, 2),
        count_include_pad(a.count_include_pad),
        divisor(a.divisor) {}
  MT_INLINE bool empty(int64_t d, int64_t h, int64_t w) const {
    return depth.valid(d) <= 0 || height.valid(h) <= 0 || width.valid(w) <= 0;
  }
  MT_INLINE int64_t count(int64_t d, int64_t h, int64_t w) const {
    if (divisor != 0) return divisor;
    return count_include_pad ? depth.full[d] * height.full[h] * width.full[w]
                             : depth.valid(d) * height.valid(h) * width.valid(w);
  }
};

template <class T>
void forward_rows(const AvgPoolArgs& args) {
  using C = compute_t<T>;
  const PoolShape& s = args.shape;
  const PoolWindow& w = args.window;
  const Averages a(args);
  const Reaches reaches(s, w);
  const int64_t in = elements(s.in), out = s.out[2];
  for_output_rows(
      s, s.n * s.c, out * w.kernel[0] * w.kernel[1] * w.kernel[2], [&](int64_t image, int64_t od, int64_t oh) {
        Scratch<C, 2048> sums(out);
        sums.zero(out);
        C* sum = sums.get();
        for (int64_t d = a.depth.start[od]; d < a.depth.end[od]; d++)
          for (int64_t h = a.height.start[oh]; h < a.height.end[oh]; h++)
            for (int64_t k = 0; k < w.kernel[2]; k++) {
              const Reach& reach = reaches[k];
              const T* x = static_cast<const T*>(args.x) + image * in + (d * s.in[1] + h) * s.in[2] + reach.offset;
              with_stride(w.stride[2], [&](auto stride) {
                for (int64_t i = reach.low; i < reach.high; i++) sum[i] += static_cast<C>(x[i * stride]);
              });
            }
        T* y = static_cast<T*>(args.y) + ((image * s.out[0] + od) * s.out[1] + oh) * out;
        for (int64_t i = 0; i < out; i++)
          y[i] =
              static_cast<T>(a.empty(od, oh, i) ? C(0) : static_cast<C>(sum[i] / static_cast<C>(a.count(od, oh, i))));
      });
}

template <class T>
void forward_pixels(const AvgPoolArgs& args) {
  using C = compute_t<T>;
  const PoolShape& s = args.shape;
  const Averages a(args);
  const Images images(s);
  const int64_t lanes = images.lanes, in = elements(s.in) * lanes;
  const int64_t window = a.depth.valid(0) * a.height.valid(0) * a.width.valid(0);
  for_output_rows(s, images.count, s.out[2] * lanes * window, [&](int64_t image, int64_t od, int64_t oh) {
    Scratch<C, 2048> sums(lanes);
    C* sum = sums.get();
    T* y = static_cast<T*>(args.y) + ((image * s.out[0] + od) * s.out[1] + oh) * s.out[2] * lanes;
    const T* image_x = static_cast<const T*>(args.x) + image * in;
    for (int64_t ow = 0; ow < s.out[2]; ow++, y += lanes) {
      const C count = static_cast<C>(a.empty(od, oh, ow) ? 1 : a.count(od, oh, ow));
      if (lanes == 1) {
        C total(0);
        for (int64_t d = a.depth.start[od]; d < a.depth.end[od]; d++)
          for (int64_t h = a.height.start[oh]; h < a.height.end[oh]; h++)
            for (int64_t w = a.width.start[ow]; w < a.width.end[ow]; w++)
              total += static_cast<C>(image_x[(d * s.in[1] + h) * s.in[2] + w]);
        *y = static_cast<T>(static_cast<C>(total / count));
        continue;
      }
      sums.zero(lanes);
      for (int64_t d = a.depth.start[od]; d < a.depth.end[od]; d++)
        for (int64_t h = a.height.start[oh]; h < a.height.end[oh]; h++)
          for (int64_t w = a.width.start[ow]; w < a.width.end[ow]; w++) {
            const T* x = image_x + ((d * s.in[1] + h) * s.in[2] + w) * lanes;
            for (int64_t l = 0; l < lanes; l++) sum[l] += static_cast<C>(x[l]);
          }
      for (int64_t l = 0; l < lanes; l++) y[l] = static_cast<T>(static_cast<C>(sum[l] / count));
    }
  });
}

// Backward, one image at a time: every window's gradient, divided, is added to each of its elements. x is the gradient
// of the output, y that of the input.
template <class T>
void backward(const AvgPoolArgs& args, bool rows) {
  using C = compute_t<T>;
  constexpr bool staged = !std::is_same_v<C, T>;
  const PoolShape& s = args.shape;
  const PoolWindow& window = args.window;
  const Averages a(args);
  const Reaches reaches(s, window);
  const Images images(s);
  const int64_t lanes = images.lanes, in = elements(s.in) * lanes, out = elements(s.out) * lanes;
  parallel_for(images.count, grain_of(4 * (in + out)), [&](int64_t begin, int64_t end) {
    Scratch<C> staging(staged ? in : 0), shares(rows ? s.out[2] : lanes);
    C* share = shares.get();
    for (int64_t image = begin; image < end; image++) {
      T* dx = static_cast<T*>(args.y) + image * in;
      C* target = reinterpret_cast<C*>(dx);
      if constexpr (staged) target = staging.get();
      std::memset(static_cast<void*>(target), 0, static_cast<size_t>(in) * sizeof(C));
      const T* dy = static_cast<const T*>(args.x) + image * out;
      for (int64_t od = 0; od < s.out[0]; od++)
        for (int64_t oh = 0; oh < s.out[1]; oh++) {
          const int64_t d0 = a.depth.start[od], d1 = a.depth.end[od], h0 = a.height.start[oh], h1 = a.height.end[oh];
          if (rows) {
            for (int64_t i = 0; i < s.out[2]; i++)
              share[i] = a.empty(od, oh, i) ? C(0) : static_cast<C>(dy[i]) / static_cast<C>(a.count(od, oh, i));
            dy += s.out[2];
            for (int64_t d = d0; d < d1; d++)
              for (int64_t h = h0; h < h1; h++)
                for (int64_t k = 0; k < window.kernel[2]; k++) {
                  const Reach& reach = reaches[k];
                  C* row = target + (d * s.in[1] + h) * s.in[2] + reach.offset;
                  with_stride(window.stride[2], [&](auto stride) {
#pragma GCC ivdep
                    for (int64_t i = reach.low; i < reach.high; i++) row[i * stride] += share[i];
                  });
                }
            continue;
          }
          for (int64_t ow = 0; ow < s.out[2]; ow++, dy += lanes) {
            if (a.empty(od, oh, ow)) continue;
            const C count = static_cast<C>(a.count(od, oh, ow));
            if (lanes == 1) {
              const C each = static_cast<C>(*dy) / count;
              for (int64_t d = d0; d < d1; d++)
                for (int64_t h = h0; h < h1; h++) {
                  C* const row = target + (d * s.in[1] + h) * s.in[2];
                  for (int64_t w = a.width.start[ow]; w < a.width.end[ow]; w++) row[w] += each;
                }
              continue;
            }
            for (int64_t l = 0; l < lanes; l++) share[l] = static_cast<C>(dy[l]) / count;
            for (int64_t d = d0; d < d1; d++)
              for (int64_t h = h0; h < h1; h++)
                for (int64_t w = a.width.start[ow]; w < a.width.end[ow]; w++) {
                  C* pixel = target + ((d * s.in[1] + h) * s.in[2] + w) * lanes;
                  for (int64_t l = 0; l < lanes; l++) pixel[l] += share[l];
                }
          }
        }
      if constexpr (staged)
        for (int64_t i = 0; i < in; i++) dx[i] = static_cast<T>(target[i]);
    }
  });
}

bool row_by_row(const AvgPoolArgs& a) { return a.window.kernel[0] != 0 && !a.shape.channels_last; }

void avg_pool(const AvgPoolArgs& a) {
  const auto run = [&](auto tag) {
    using T = typename decltype(tag)::type;
    row_by_row(a) ? forward_rows<T>(a) : forward_pixels<T>(a);
  };
  if (!dispatch(a.dtype, AvgTypes{}, run)) missing_kernel("avg_pool", name_of(a.dtype));
}
void avg_pool_backward(const AvgPoolArgs& a) {
  const auto run = [&](auto tag) { backward<typename decltype(tag)::type>(a, row_by_row(a)); };
  if (!dispatch(a.dtype, AvgTypes{}, run)) missing_kernel("avg_pool_backward", name_of(a.dtype));
}

MT_REGISTER_KERNEL(avg_pool_kernel, &avg_pool);
MT_REGISTER_KERNEL(avg_pool_backward_kernel, &avg_pool_backward);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
