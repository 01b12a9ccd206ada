// Where pooling windows lie, computed once a call, and the two ways to walk an image.
//  - Row by row (channels first, regular windows): the inner loop runs over the outputs of a row for one position in
//    the window, so it vectorises whatever the window is.
//  - Pixel by pixel: the inner loop runs over `lanes` adjacent elements, the channels of a channels-last image. A
//    channels-first plane is such an image with one lane.
#pragma once
#include <algorithm>

#include "kernels/cpu/scratch.h"
#include "core/parallel.h"
#include "kernels/pool.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace pool {

// Along one dimension: the window of output i covers start[i], start[i] + step, ... below end[i]; `full[i]` is its
// length with the padding inside the padded image counted.
class Axis {
 public:
  MT_INLINE Axis(const PoolShape& s, const PoolWindow& w, int d) : Axis(s.out[d]) {
    const int64_t in = s.in[d], out = s.out[d];
    if (w.kernel[0] == 0) {
      for (int64_t i = 0; i < out; i++) {
        start[i] = (i / out) * in + ((i % out) * in) / out;
        end[i] = 1 + ((i + 1) * in - 1) / out;
        full[i] = end[i] - start[i];
      }
      return;
    }
    step = w.dilation[d];
    for (int64_t i = 0; i < out; i++) {
      const int64_t first = i * w.stride[d] - w.pad[d], last = first + (w.kernel[d] - 1) * step + 1;
      start[i] = first >= 0 ? first : first + (-first + step - 1) / step * step;
      end[i] = std::min(last, in);
      full[i] = std::min(first + w.kernel[d], in + w.pad[d]) - first;
    }
  }
  // Windows without padding whose starts the caller fills in.
  MT_INLINE explicit Axis(int64_t out) : memory_(3 * out) {
    start = memory_.get();
    end = start + out;
    full = end + out;
  }
  MT_INLINE int64_t valid(int64_t i) const { return end[i] - start[i]; }

  int64_t *start, *end, *full, step = 1;

 private:
  Scratch<int64_t> memory_;
};

MT_INLINE int64_t elements(const int64_t (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

// Images of adjacent lanes: the samples of a channels-last tensor, the planes of a channels-first one.
struct Images {
  int64_t count, lanes;
  MT_INLINE explicit Images(const PoolShape& s)
      : count(s.channels_last ? s.n : s.n * s.c), lanes(s.channels_last ? s.c : 1) {}
};

// f(image, od, oh) for every row of outputs, in parallel.
template <class F>
MT_INLINE void for_output_rows(const PoolShape& s, int64_t images, int64_t work, const F& f) {
  const int64_t rows = s.out[0] * s.out[1];
  parallel_for(images * rows, grain_of(4 * work), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) f(i / rows, i % rows / s.out[1], i % s.out[1]);
  });
}

// The outputs [low, high) of a row whose window position k lies inside the row.
struct Reach {
  int64_t offset, low, high;
  MT_INLINE Reach(const PoolShape& s, const PoolWindow& w, int64_t k)
      : offset(k * w.dilation[2] - w.pad[2]),
        low(offset >= 0 ? 0 : (-offset + w.stride[2] - 1) / w.stride[2]),
        high(offset >= s.in[2] ? 0 : std::min(s.out[2], (s.in[2] - 1 - offset) / w.stride[2] + 1)) {}
};

// The reach of every position of a window along a row.
class Reaches {
 public:
  MT_INLINE Reaches(const PoolShape& s, const PoolWindow& w) : memory_(w.kernel[2]) {
    for (int64_t k = 0; k < w.kernel[2]; k++) memory_[k] = Reach(s, w, k);
  }
  MT_INLINE const Reach& operator[](int64_t k) const { return memory_[k]; }

 private:
  Scratch<Reach, 512> memory_;
};

// f(stride) with the strides that most networks use as constants, which lets the compiler load without gathers.
template <class F>
MT_INLINE void with_stride(int64_t stride, const F& f) {
  if (stride == 1) {
    f(std::integral_constant<int64_t, 1>{});
  } else if (stride == 2) {
    f(std::integral_constant<int64_t, 2>{});
  } else if (stride == 3) {
    f(std::integral_constant<int64_t, 3>{});
  } else {
    f(stride);
  }
}

}  // namespace pool
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
