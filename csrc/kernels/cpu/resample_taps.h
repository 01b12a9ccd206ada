// The taps of each output along one axis, computed once a call, and their transpose for gradients.
#pragma once
#include <algorithm>
#include <cmath>

#include "kernels/cpu/scratch.h"
#include "kernels/resample.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace resample {

// Inputs per output. C is the type that native computes coordinates in.
template <class C>
MT_INLINE C axis_scale(const ResampleArgs& a, const ResampleAxis& axis) {
  if (a.align_corners) return axis.out > 1 ? C(axis.in - 1) / C(axis.out - 1) : C(0);
  return axis.scale > 0 ? static_cast<C>(1.0 / axis.scale) : C(axis.in) / C(axis.out);
}

template <class C>
MT_INLINE int64_t nearest_source(const ResampleArgs& a, const ResampleAxis& axis, int64_t i) {
  const bool exact = a.mode == ResampleMode::nearest_exact;
  float position;
  if (a.nearest_shortcut) {
    if (!exact && axis.out == axis.in) return i;
    if (!exact && axis.out == 2 * axis.in) return i >> 1;
    const float scale = axis_scale<float>(a, axis);
    position = exact ? static_cast<float>((static_cast<double>(i) + 0.5) * static_cast<double>(scale))
                     : static_cast<float>(i) * scale;
  } else {
    const C scale = axis_scale<C>(a, axis);
    const C center = std::max(scale * (C(i) + C(0.5)) - C(0.5), C(0));
    position = static_cast<float>(exact ? static_cast<double>(center) + 0.5 : static_cast<double>(scale * C(i)));
  }
  return std::min(static_cast<int64_t>(::floorf(position)), axis.in - 1);
}

// The pieces of the cubic convolution kernel for |x| <= 1 and 1 < |x| < 2 (R. Keys, "Cubic convolution interpolation
// for digital image processing", IEEE TASSP 29, 1981).
template <class C>
MT_INLINE C cubic_near(C x, C a) {
  return ((a + 2) * x - (a + 3)) * x * x + 1;
}
template <class C>
MT_INLINE C cubic_far(C x, C a) {
  return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}
template <class C>
MT_INLINE void cubic_weights(C t, C* w) {
  constexpr C a = C(-0.75);
  w[0] = cubic_far(t + 1, a);
  w[1] = cubic_near(t, a);
  w[2] = cubic_near(1 - t, a);
  w[3] = cubic_far(2 - t, a);
}

// Antialiasing filters and their radius at scale 1 (Lanczos: C. Duchon, "Lanczos filtering in one and two dimensions",
// J. Appl. Meteor. 18, 1979).
MT_INLINE double filter_radius(ResampleMode mode) {
  return mode == ResampleMode::linear_aa ? 1.0 : mode == ResampleMode::cubic_aa ? 2.0 : 3.0;
}
template <class C>
MT_INLINE C filter(ResampleMode mode, C x) {
  x = x < 0 ? -x : x;
  if (mode == ResampleMode::linear_aa) return x < 1 ? 1 - x : C(0);
  if (mode == ResampleMode::cubic_aa) return x < 1 ? cubic_near(x, C(-0.5)) : x < 2 ? cubic_far(x, C(-0.5)) : C(0);
  if (x == 0) return C(1);
  if (!(x < 3)) return C(0);
  const double y = 3.14159265358979323846 * static_cast<double>(x);
  return static_cast<C>(::sin(y) / y * ::sin(y / 3) / (y / 3));
}

struct Transposed {};

// The matrix of one axis by rows: row i has the taps [start[i], start[i + 1]).
template <class C>
class Taps {
 public:
  // With `merged` an input appears once in a row; otherwise the taps beyond an edge repeat the edge.
  Taps(const ResampleArgs& a, const ResampleAxis& axis, bool merged = false)
      : rows(axis.out),
        columns(axis.in),
        start(rows + 1),
        index(rows * width_of(a, axis)),
        weight(rows * width_of(a, axis)) {
    start[0] = 0;
    for (int64_t i = 0; i < rows; i++) {
      int64_t n = fill(a, axis, i, index.get() + start[i], weight.get() + start[i]);
      if (merged) n = merge(index.get() + start[i], weight.get() + start[i], n);
      start[i + 1] = start[i] + n;
    }
  }
  Taps(const Taps& t, Transposed)
      : rows(t.columns), columns(t.rows), start(rows + 1), index(t.start[t.rows]), weight(t.start[t.rows]) {
    start.zero(rows + 1);
    const int64_t total = t.start[t.rows];
    for (int64_t k = 0; k < total; k++) start[t.index[k] + 1]++;
    for (int64_t i = 0; i < rows; i++) start[i + 1] += start[i];
    Scratch<int64_t> next(rows);
    for (int64_t i = 0; i < rows; i++) next[i] = start[i];
    for (int64_t o = 0; o < t.rows; o++)
      for (int64_t k = t.start[o]; k < t.start[o + 1]; k++) {
        const int64_t at = next[t.index[k]]++;
        index[at] = static_cast<int32_t>(o);
        weight[at] = t.weight[k];
      }
  }
  int64_t most() const {
    int64_t n = 0;
    for (int64_t i = 0; i < rows; i++) n = std::max(n, start[i + 1] - start[i]);
    return n;
  }

  int64_t rows, columns;
  Scratch<int64_t> start;
  Scratch<int32_t> index;
  Scratch<C> weight;

 private:
  static bool antialiased(ResampleMode mode) { return mode >= ResampleMode::linear_aa; }
  static C support(const ResampleArgs& a, C scale) {
    return scale >= 1 ? static_cast<C>(filter_radius(a.mode) * static_cast<double>(scale))
                      : static_cast<C>(filter_radius(a.mode));
  }
  static int64_t width_of(const ResampleArgs& a, const ResampleAxis& axis) {
    if (antialiased(a.mode)) {
      const double widest = ::ceil(static_cast<double>(support(a, axis_scale<C>(a, axis)))) * 2 + 1;
      return static_cast<int64_t>(std::min(widest, static_cast<double>(axis.in)));
    }
    return a.mode == ResampleMode::cubic ? 4 : a.mode == ResampleMode::linear ? 2 : 1;
  }

  static int64_t fill(const ResampleArgs& a, const ResampleAxis& axis, int64_t i, int32_t* ids, C* w) {
    if (!axis.present) {
      ids[0] = 0;
      w[0] = C(1);
      return 1;
    }
    if (a.mode == ResampleMode::nearest || a.mode == ResampleMode::nearest_exact) {
      ids[0] = static_cast<int32_t>(nearest_source<C>(a, axis, i));
      w[0] = C(1);
      return 1;
    }
    const C scale = axis_scale<C>(a, axis);
    if (antialiased(a.mode)) return fill_antialiased(a, axis, scale, i, ids, w);
    const bool cubic = a.mode == ResampleMode::cubic;
    if (!cubic && axis.in == axis.out) {
      ids[0] = ids[1] = static_cast<int32_t>(i);
      w[0] = C(1);
      w[1] = C(0);
      return 2;
    }
    C source = a.align_corners ? scale * C(i) : scale * (C(i) + C(0.5)) - C(0.5);
    if (!cubic && !a.align_corners) source = std::max(source, C(0));
    const int64_t first = std::min(static_cast<int64_t>(::floor(source)), axis.in - 1);
    const C t = std::min(std::max(source - C(first), C(0)), C(1));
    if (!cubic) {
      ids[0] = static_cast<int32_t>(first);
      ids[1] = static_cast<int32_t>(first < axis.in - 1 ? first + 1 : first);
      w[0] = C(1) - t;
      w[1] = t;
      return 2;
    }
    cubic_weights(t, w);
    for (int64_t k = 0; k < 4; k++)
      ids[k] = static_cast<int32_t>(std::min(std::max<int64_t>(first + k - 1, 0), axis.in - 1));
    return 4;
  }

  static int64_t fill_antialiased(const ResampleArgs& a, const ResampleAxis& axis, C scale, int64_t i, int32_t* ids,
                                  C* w) {
    const C radius = support(a, scale), inverse = scale >= 1 ? C(1) / scale : C(1);
    const C center = static_cast<C>(static_cast<double>(scale) * (static_cast<double>(i) + 0.5));
    const auto low = static_cast<int64_t>(static_cast<double>(center - radius) + 0.5);
    const auto high = static_cast<int64_t>(static_cast<double>(center + radius) + 0.5);
    const int64_t first = std::max<int64_t>(low, 0), widest = width_of(a, axis);
    const int64_t n = std::min(std::max<int64_t>(std::min(high, axis.in) - first, 0), widest);
    C sum = 0;
    for (int64_t k = 0; k < n; k++) {
      ids[k] = static_cast<int32_t>(first + k);
      w[k] = filter(a.mode, static_cast<C>((static_cast<double>(C(k + first) - center) + 0.5) * inverse));
      sum += w[k];
    }
    for (int64_t k = 0; k < n && sum != 0; k++) w[k] /= sum;
    return n;
  }

  static int64_t merge(int32_t* ids, C* w, int64_t n) {
    int64_t kept = 0;
    for (int64_t k = 0; k < n; k++) {
      if (kept > 0 && ids[kept - 1] == ids[k]) {
        w[kept - 1] += w[k];
      } else {
        ids[kept] = ids[k];
        w[kept++] = w[k];
      }
    }
    return kept;
  }
};

// The taps of the last axis as positions: row k * n + o of the table is tap k of output o, so that a loop over outputs
// gathers. Outputs with fewer taps read the element past the row, which is zero. `lanes` adjacent elements share taps.
template <class W>
struct GatherTable {
  int64_t n, width;
  Scratch<int32_t> index;
  Scratch<W> weight;
  template <class C, class F>
  GatherTable(const Taps<C>& t, int64_t lanes, const F& convert)
      : n(t.rows * lanes), width(t.most()), index(n * width), weight(n * width) {
    for (int64_t o = 0; o < t.rows; o++)
      for (int64_t k = 0; k < width; k++) {
        const int64_t tap = t.start[o] + k;
        const bool real = tap < t.start[o + 1];
        for (int64_t l = 0; l < lanes; l++) {
          const int64_t at = k * n + o * lanes + l;
          index[at] = static_cast<int32_t>(real ? t.index[tap] * lanes + l : t.columns * lanes);
          weight[at] = real ? convert(t.weight[tap]) : W(0);
        }
      }
  }
};

}  // namespace resample

// The kernels of dtypes and modes; resample.cpp chooses.
void resample_nearest(const ResampleArgs& a);
void resample_bytes(const ResampleArgs& a);

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
