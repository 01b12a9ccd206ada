// Nearest-neighbour resampling on the CPU: moves elements by their size.
#include <cstring>

#include "kernels/cpu/resample_taps.h"
#include "core/parallel.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {
using namespace resample;

enum class Pattern : uint8_t { any, identity, doubled };

// Source positions along the last axis, for every one of `lanes` adjacent elements.
struct Sources {
  int64_t n;
  Scratch<int32_t> index;
  Pattern pattern;
  Sources(const Scratch<int64_t>& source, int64_t pixels, int64_t lanes) : n(pixels * lanes), index(n) {
    bool identity = true, doubled = lanes == 1 && pixels % 2 == 0;
    for (int64_t o = 0; o < pixels; o++) {
      identity = identity && source[o] == o;
      doubled = doubled && source[o] == o / 2;
      for (int64_t l = 0; l < lanes; l++) index[o * lanes + l] = static_cast<int32_t>(source[o] * lanes + l);
    }
    pattern = identity ? Pattern::identity : doubled ? Pattern::doubled : Pattern::any;
  }
};

template <class T>
MT_INLINE void pick(T* MT_RESTRICT y, const T* MT_RESTRICT x, const Sources& s) {
  const int64_t n = s.n;
  if (s.pattern == Pattern::identity) {
    std::memcpy(y, x, static_cast<size_t>(n) * sizeof(T));
  } else if (s.pattern == Pattern::doubled) {
    for (int64_t i = 0; i < n / 2; i++) y[2 * i] = y[2 * i + 1] = x[i];
  } else {
    const int32_t* index = s.index.get();
    for (int64_t i = 0; i < n; i++) y[i] = x[index[i]];
  }
}

template <class C>
void fill_sources(const ResampleArgs& a, int d, Scratch<int64_t>& s) {
  for (int64_t i = 0; i < a.axis[d].out; i++) s[i] = nearest_source<C>(a, a.axis[d], i);
}

template <class T>
void nearest(const ResampleArgs& a) {
  const ResampleAxis &ad = a.axis[0], &ah = a.axis[1], &aw = a.axis[2];
  Scratch<int64_t> depth(ad.out), height(ah.out), width(aw.out);
  Scratch<int64_t>* const axes[] = {&depth, &height, &width};
  for (int d = 0; d < 3; d++)
    a.dtype == DType::F64 ? fill_sources<double>(a, d, *axes[d]) : fill_sources<float>(a, d, *axes[d]);
  const int64_t lanes = a.channels_last ? a.c : 1, images = a.channels_last ? a.n : a.n * a.c;
  const int64_t in = aw.in * lanes, out = aw.out * lanes, rows = ad.out * ah.out, image_in = ad.in * ah.in * in;
  constexpr int64_t few = 64 / sizeof(T);
  const Sources table(width, lanes < few ? aw.out : 0, lanes);
  parallel_for(images * rows, grain_of(out), [&](int64_t begin, int64_t end) {
    const T* previous = nullptr;
    for (int64_t r = begin; r < end; r++) {
      const int64_t od = r % rows / ah.out, oh = r % ah.out;
      const T* x = static_cast<const T*>(a.x) + r / rows * image_in + (depth[od] * ah.in + height[oh]) * in;
      T* y = static_cast<T*>(a.y) + r * out;
      if (x == previous) {  // the row above repeated
        std::memcpy(y, y - out, static_cast<size_t>(out) * sizeof(T));
      } else if (lanes < few) {
        pick(y, x, table);
      } else {
        for (int64_t o = 0; o < aw.out; o++)
          std::memcpy(y + o * lanes, x + width[o] * lanes, static_cast<size_t>(lanes) * sizeof(T));
      }
      previous = x;
    }
  });
}

}  // namespace

void resample_nearest(const ResampleArgs& a) {
  switch (size_of(a.dtype)) {
    case 1: return nearest<uint8_t>(a);
    case 2: return nearest<uint16_t>(a);
    case 4: return nearest<uint32_t>(a);
    case 8: return nearest<uint64_t>(a);
    default: missing_kernel("resample", name_of(a.dtype));
  }
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
