// Max pooling on the CPU: a NaN wins over every number, and the first of equal values over later ones.
#include <cstring>
#include <limits>

#include "kernels/cpu/cast.h"
#include "kernels/cpu/gemm_convert.h"
#include "kernels/cpu/pool_windows.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
using namespace pool;

using PoolTypes = Types<float, double, Half, BFloat16, uint8_t, int8_t, int16_t, int32_t, int64_t>;

template <class T>
MT_INLINE compute_t<T> lowest() {
  if constexpr (is_floating_v<T>) {
    return -std::numeric_limits<compute_t<T>>::infinity();
  } else {
    return std::numeric_limits<T>::lowest();
  }
}

template <class C>
MT_INLINE bool wins(C value, C best) {
  return (value > best) | (value != value);
}

// Pixel by pixel. `axes` are the three dimensions' windows; the output pixel is (od, oh, ow).
template <class T>
void max_pixel(const T* x, T* y, int64_t* indices, const int64_t (&in)[3], int64_t lanes, const Axis (&axes)[3],
               int64_t od, int64_t oh, int64_t ow, compute_t<T>* best) {
  const Axis &a = axes[0], &b = axes[1], &c = axes[2];
  const int64_t first = (a.start[od] * in[1] + b.start[oh]) * in[2] + c.start[ow];
  for (int64_t l = 0; l < lanes; l++) {
    best[l] = lowest<T>();
    indices[l] = first;
  }
  for (int64_t d = a.start[od]; d < a.end[od]; d += a.step)
    for (int64_t h = b.start[oh]; h < b.end[oh]; h += b.step)
      for (int64_t w = c.start[ow]; w < c.end[ow]; w += c.step) {
        const int64_t position = (d * in[1] + h) * in[2] + w;
        const T* p = x + position * lanes;
        for (int64_t l = 0; l < lanes; l++) {
          const compute_t<T> value = p[l];
          const bool m = wins(value, best[l]);
          best[l] = m ? value : best[l];
          indices[l] = m ? position : indices[l];
        }
      }
  for (int64_t l = 0; l < lanes; l++) y[l] = static_cast<T>(best[l]);
}

// The same for one lane, in registers.
template <class T>
void max_element(const T* x, T* y, int64_t* index, const int64_t (&in)[3], const Axis (&axes)[3], int64_t od,
                 int64_t oh, int64_t ow) {
  const Axis &a = axes[0], &b = axes[1], &c = axes[2];
  compute_t<T> best = lowest<T>();
  int64_t at = (a.start[od] * in[1] + b.start[oh]) * in[2] + c.start[ow];
  for (int64_t d = a.start[od]; d < a.end[od]; d += a.step)
    for (int64_t h = b.start[oh]; h < b.end[oh]; h += b.step) {
      const int64_t row = (d * in[1] + h) * in[2];
      for (int64_t w = c.start[ow]; w < c.end[ow]; w += c.step) {
        const compute_t<T> value = x[row + w];
        const bool m = wins(value, best);
        best = m ? value : best;
        at = m ? row + w : at;
      }
    }
  *y = static_cast<T>(best);
  *index = at;
}

// Vectors of positions, as wide as the values: 32 bits beside floats.
template <class C>
using Position = std::conditional_t<sizeof(C) == 8, int64_t, int32_t>;

// One pixel of floating-point channels, block by block of kBlocks vectors whose best values and positions stay in
// registers. Positions must fit Position<C>.
template <class T, int kBlocks, bool kIndices>
MT_INLINE void max_channels(const T* x, T* y, int64_t* indices, const int64_t (&in)[3], int64_t lanes,
                            const Axis (&axes)[3], int64_t od, int64_t oh, int64_t ow, int64_t from, int last) {
  using C = compute_t<T>;
  using Values = gemm::Vector<C>;
  using Positions = gemm::Vector<Position<C>>;
  constexpr int kStep = gemm::kLanes<C>;
  const Axis &a = axes[0], &b = axes[1], &c = axes[2];
  const auto load = [&](const T* p, int v) __attribute__((always_inline)) {
    return v + 1 < kBlocks || last == kStep ? gemm::load_widened(p + v * kStep)
                                            : gemm::load_lanes(p + v * kStep, 0, last);
  };
  Values best[kBlocks];
  Positions at[kBlocks];
  const auto first = static_cast<Position<C>>((a.start[od] * in[1] + b.start[oh]) * in[2] + c.start[ow]);
  for (int v = 0; v < kBlocks; v++) best[v] = lowest<T>() - Values{}, at[v] = first - Positions{};
  for (int64_t d = a.start[od]; d < a.end[od]; d += a.step)
    for (int64_t h = b.start[oh]; h < b.end[oh]; h += b.step)
      for (int64_t w = c.start[ow]; w < c.end[ow]; w += c.step) {
        const int64_t position = (d * in[1] + h) * in[2] + w;
        const T* const p = x + position * lanes + from;
#pragma GCC unroll 4
        for (int v = 0; v < kBlocks; v++) {
          const Values value = load(p, v);
          const auto m = (value > best[v]) | (value != value);
          best[v] = m ? value : best[v];
          if constexpr (kIndices) at[v] = m ? static_cast<Position<C>>(position) - Positions{} : at[v];
        }
      }
  for (int v = 0; v < kBlocks; v++) {
    const int n = v + 1 < kBlocks ? kStep : last;
    gemm::store_narrowed(y + from + v * kStep, best[v], n);
    if constexpr (kIndices)
      for (int i = 0; i < n; i++) indices[from + v * kStep + i] = at[v][i];
  }
}

// Channels last, pixel by pixel.
template <class T, bool kIndices>
void max_vectors(const MaxPoolArgs& args) {
  constexpr int kStep = gemm::kLanes<compute_t<T>>, kBlocks = 4;
  const PoolShape& s = args.shape;
  const Axis axes[3] = {{s, args.window, 0}, {s, args.window, 1}, {s, args.window, 2}};
  const int64_t in = elements(s.in) * s.c, out = elements(s.out) * s.c;
  const int64_t window = axes[0].valid(0) * axes[1].valid(0) * axes[2].valid(0);
  for_output_rows(s, s.n, s.out[2] * s.c * window, [&](int64_t image, int64_t od, int64_t oh) {
    const int64_t row = image * out + (od * s.out[1] + oh) * s.out[2] * s.c;
    const T* x = static_cast<const T*>(args.x) + image * in;
    for (int64_t ow = 0; ow < s.out[2]; ow++) {
      T* const y = static_cast<T*>(args.y) + row + ow * s.c;
      int64_t* const indices = kIndices ? static_cast<int64_t*>(args.indices) + row + ow * s.c : nullptr;
      int64_t c = 0;
      for (; c + kBlocks * kStep <= s.c; c += kBlocks * kStep)
        max_channels<T, kBlocks, kIndices>(x, y, indices, s.in, s.c, axes, od, oh, ow, c, kStep);
      for (; c < s.c; c += kStep)
        max_channels<T, 1, kIndices>(x, y, indices, s.in, s.c, axes, od, oh, ow, c,
                                     static_cast<int>(std::min<int64_t>(kStep, s.c - c)));
    }
  });
}

template <class T>
void max_pixels(const MaxPoolArgs& args) {
  const PoolShape& s = args.shape;
  const Images images(s);
  const Axis axes[3] = {{s, args.window, 0}, {s, args.window, 1}, {s, args.window, 2}};
  const int64_t lanes = images.lanes, in = elements(s.in) * lanes, out = elements(s.out) * lanes;
  const int64_t window = axes[0].valid(0) * axes[1].valid(0) * axes[2].valid(0);
  for_output_rows(s, images.count, s.out[2] * lanes * window, [&](int64_t image, int64_t od, int64_t oh) {
    const int64_t row = image * out + (od * s.out[1] + oh) * s.out[2] * lanes;
    const T* x = static_cast<const T*>(args.x) + image * in;
    T* y = static_cast<T*>(args.y) + row;
    int64_t* indices = static_cast<int64_t*>(args.indices) + row;
    if (lanes == 1) {
      for (int64_t ow = 0; ow < s.out[2]; ow++) max_element(x, y + ow, indices + ow, s.in, axes, od, oh, ow);
      return;
    }
    Scratch<compute_t<T>, 2048> best(lanes);
    for (int64_t ow = 0; ow < s.out[2]; ow++)
      max_pixel(x, y + ow * lanes, indices + ow * lanes, s.in, lanes, axes, od, oh, ow, best.get());
  });
}

// Row by row. Positions are 32 bits wide here, as floats are, so that values and positions fill equal vectors.
template <class T, bool kIndices>
void max_rows(const MaxPoolArgs& args) {
  using C = compute_t<T>;
  const PoolShape& s = args.shape;
  const PoolWindow& w = args.window;
  const Axis depth(s, w, 0), height(s, w, 1), width(s, w, 2);
  const Reaches reaches(s, w);
  const int64_t in = elements(s.in), out = s.out[2];
  for_output_rows(
      s, s.n * s.c, out * w.kernel[0] * w.kernel[1] * w.kernel[2], [&](int64_t image, int64_t od, int64_t oh) {
        const int64_t to = ((image * s.out[0] + od) * s.out[1] + oh) * out;
        T* const y = static_cast<T*>(args.y) + to;
        Scratch<C, 2048> best_memory(out);
        Scratch<int32_t, 2048> position_memory(kIndices ? out : 0);
        C* const best = best_memory.get();
        int32_t* const position = position_memory.get();
        const int32_t first = static_cast<int32_t>((depth.start[od] * s.in[1] + height.start[oh]) * s.in[2]);
        for (int64_t i = 0; i < out; i++) best[i] = lowest<T>();
        if constexpr (kIndices)
          for (int64_t i = 0; i < out; i++) position[i] = first + static_cast<int32_t>(width.start[i]);
        for (int64_t d = depth.start[od]; d < depth.end[od]; d += depth.step)
          for (int64_t h = height.start[oh]; h < height.end[oh]; h += height.step)
            for (int64_t k = 0; k < w.kernel[2]; k++) {
              const Reach& reach = reaches[k];
              const int64_t base = (d * s.in[1] + h) * s.in[2] + reach.offset;
              const T* x = static_cast<const T*>(args.x) + image * in + base;
              with_stride(w.stride[2], [&](auto stride) {
#pragma GCC ivdep
                for (int64_t i = reach.low; i < reach.high; i++) {
                  const C value = x[i * stride];
                  const bool m = wins(value, best[i]);
                  best[i] = m ? value : best[i];
                  if constexpr (kIndices) position[i] = m ? static_cast<int32_t>(base + i * stride) : position[i];
                }
              });
            }
        for (int64_t i = 0; i < out; i++) y[i] = static_cast<T>(best[i]);
        if constexpr (kIndices) {
          int64_t* const indices = static_cast<int64_t*>(args.indices) + to;
          for (int64_t i = 0; i < out; i++) indices[i] = position[i];
        }
      });
}

void max_pool(const MaxPoolArgs& a) {
  const bool regular = a.window.kernel[0] != 0;
  // Rows shorter than half a vector gain nothing from the row-by-row way.
  const bool rows = regular && !a.shape.channels_last && a.shape.out[2] >= 8 &&
                    elements(a.shape.in) < std::numeric_limits<int32_t>::max();
  const auto run = [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_floating_v<T>) {  // integers are rare here: one way is enough
      if (rows && a.indices == nullptr) return max_rows<T, false>(a);
      if (rows) return max_rows<T, true>(a);
      if (a.shape.channels_last && elements(a.shape.in) < std::numeric_limits<int32_t>::max())
        return a.indices == nullptr ? max_vectors<T, false>(a) : max_vectors<T, true>(a);
    }
    if (a.indices != nullptr) return max_pixels<T>(a);
    MaxPoolArgs whole = a;
    Scratch<int64_t> unused(elements(a.shape.out) * a.shape.n * a.shape.c);
    whole.indices = unused.get();
    max_pixels<T>(whole);
  };
  if (!dispatch(a.dtype, PoolTypes{}, run)) missing_kernel("max_pool", name_of(a.dtype));
}

// Rounds to T after every step, as arithmetic on T does: where a window starts depends on it.
template <class T>
MT_INLINE int64_t truncated_product(T a, T b) {
  return static_cast<int64_t>(static_cast<compute_t<T>>(static_cast<T>(static_cast<compute_t<T>>(a) * b)));
}

template <class T>
void fractional(const FractionalMaxPoolArgs& args) {
  using C = compute_t<T>;
  const PoolShape& s = args.shape;
  const int64_t in = elements(s.in), out = elements(s.out);
  parallel_for(s.n * s.c, 1, [&](int64_t begin, int64_t end) {
    const Axis axes[3] = {Axis(s.out[0]), Axis(s.out[1]), Axis(s.out[2])};
    for (int64_t image = begin; image < end; image++) {
      for (int d = 0; d < 3; d++) {
        const int64_t count = s.out[d], reach = s.in[d] - args.kernel[d];
        const T u = static_cast<const T*>(args.samples)[image * args.sample_count + args.sample_index[d]];
        T alpha{};
        if (count > 1)
          alpha = static_cast<T>(static_cast<C>(static_cast<T>(static_cast<C>(reach))) /
                                 static_cast<C>(static_cast<T>(static_cast<C>(count - 1))));
        for (int64_t i = 0; i < count; i++) {
          const T shifted = static_cast<T>(static_cast<C>(static_cast<T>(static_cast<C>(i))) + static_cast<C>(u));
          axes[d].start[i] = i == count - 1 ? reach : truncated_product(shifted, alpha) - truncated_product(u, alpha);
          axes[d].end[i] = axes[d].start[i] + args.kernel[d];
        }
      }
      int64_t o = image * out;
      for (int64_t od = 0; od < s.out[0]; od++)
        for (int64_t oh = 0; oh < s.out[1]; oh++)
          for (int64_t ow = 0; ow < s.out[2]; ow++, o++)
            max_element(static_cast<const T*>(args.x) + image * in, static_cast<T*>(args.y) + o,
                        static_cast<int64_t*>(args.indices) + o, s.in, axes, od, oh, ow);
    }
  });
}

void fractional_max_pool(const FractionalMaxPoolArgs& a) {
  if (!dispatch(a.dtype, FloatingTypes{}, [&](auto tag) { fractional<typename decltype(tag)::type>(a); }))
    missing_kernel("fractional_max_pool", name_of(a.dtype));
}

template <class T>
void scatter(const PoolScatterArgs& args) {
  using C = compute_t<T>;
  constexpr bool staged = !std::is_same_v<C, T>;  // 16-bit gradients are summed in float
  const Images images(args.shape);
  const int64_t lanes = images.lanes, in = elements(args.shape.in), out = elements(args.shape.out);
  const auto* indices = static_cast<const int64_t*>(args.indices);
  parallel_for(images.count, grain_of(2 * in * lanes), [&](int64_t begin, int64_t end) {
    Scratch<C> sums(staged ? in * lanes : 0);
    for (int64_t image = begin; image < end; image++) {
      T* y = static_cast<T*>(args.y) + image * in * lanes;
      C* target = reinterpret_cast<C*>(y);
      if constexpr (staged) target = sums.get();
      std::memset(static_cast<void*>(target), 0, static_cast<size_t>(in * lanes) * sizeof(C));
      const T* x = static_cast<const T*>(args.x) + image * out * lanes;
      const int64_t* index = indices + image * out * lanes;
      for (int64_t o = 0; o < out; o++)
        for (int64_t l = 0; l < lanes; l++) {
          const int64_t i = index[o * lanes + l];
          if (MT_UNLIKELY(i < 0 || i >= in)) {
            __atomic_store_n(args.bad_index, i, __ATOMIC_RELAXED);
            __atomic_store_n(args.failed, true, __ATOMIC_RELAXED);
            continue;
          }
          const C value = static_cast<C>(x[o * lanes + l]);
          target[i * lanes + l] = args.accumulate ? static_cast<C>(target[i * lanes + l] + value) : value;
        }
      if constexpr (staged)
        for (int64_t i = 0; i < in * lanes; i++) y[i] = static_cast<T>(target[i]);
    }
  });
}

void pool_scatter(const PoolScatterArgs& a) {
  if (!dispatch(a.dtype, PoolTypes{}, [&](auto tag) { scatter<typename decltype(tag)::type>(a); }))
    missing_kernel("pool_scatter", name_of(a.dtype));
}

MT_REGISTER_KERNEL(max_pool_kernel, &max_pool);
MT_REGISTER_KERNEL(fractional_max_pool_kernel, &fractional_max_pool);
MT_REGISTER_KERNEL(pool_scatter_kernel, &pool_scatter);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
