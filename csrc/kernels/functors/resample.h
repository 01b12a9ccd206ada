// Where along one axis an output of a resampling draws on its input, and how much: for host and device.
#pragma once
#include <algorithm>
#include <cmath>

#include "core/macros.h"
#include "kernels/resample.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace resample {

// Inputs per output. C is the type that native computes coordinates in.
template <class C>
MT_HD C axis_scale(const ResampleArgs& a, const ResampleAxis& axis) {
  if (a.align_corners) return axis.out > 1 ? C(axis.in - 1) / C(axis.out - 1) : C(0);
  return axis.scale > 0 ? static_cast<C>(1.0 / axis.scale) : C(axis.in) / C(axis.out);
}

template <class C>
MT_HD int64_t nearest_source(const ResampleArgs& a, const ResampleAxis& axis, int64_t i) {
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
MT_HD C cubic_near(C x, C a) {
  return ((a + 2) * x - (a + 3)) * x * x + 1;
}
template <class C>
MT_HD C cubic_far(C x, C a) {
  return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}
template <class C>
MT_HD void cubic_weights(C t, C* w) {
  constexpr C a = C(-0.75);
  w[0] = cubic_far(t + 1, a);
  w[1] = cubic_near(t, a);
  w[2] = cubic_near(1 - t, a);
  w[3] = cubic_far(2 - t, a);
}

// Antialiasing filters and their radius at scale 1 (Lanczos: C. Duchon, "Lanczos filtering in one and two dimensions",
// J. Appl. Meteor. 18, 1979).
MT_HD double filter_radius(ResampleMode mode) {
  return mode == ResampleMode::linear_aa ? 1.0 : mode == ResampleMode::cubic_aa ? 2.0 : 3.0;
}
template <class C>
MT_HD C filter(ResampleMode mode, C x) {
  x = x < 0 ? -x : x;
  if (mode == ResampleMode::linear_aa) return x < 1 ? 1 - x : C(0);
  if (mode == ResampleMode::cubic_aa) return x < 1 ? cubic_near(x, C(-0.5)) : x < 2 ? cubic_far(x, C(-0.5)) : C(0);
  if (x == 0) return C(1);
  if (!(x < 3)) return C(0);
  const double y = 3.14159265358979323846 * static_cast<double>(x);
  return static_cast<C>(::sin(y) / y * ::sin(y / 3) / (y / 3));
}

MT_HD bool antialiased(ResampleMode mode) { return mode >= ResampleMode::linear_aa; }
template <class C>
MT_HD C support(const ResampleArgs& a, C scale) {
  return scale >= 1 ? static_cast<C>(filter_radius(a.mode) * static_cast<double>(scale))
                    : static_cast<C>(filter_radius(a.mode));
}
// The most taps that an output has.
template <class C>
MT_HD int64_t most_taps(const ResampleArgs& a, const ResampleAxis& axis) {
  if (antialiased(a.mode)) {
    const double widest = ::ceil(static_cast<double>(support<C>(a, axis_scale<C>(a, axis)))) * 2 + 1;
    return static_cast<int64_t>(std::min(widest, static_cast<double>(axis.in)));
  }
  return a.mode == ResampleMode::cubic ? 4 : a.mode == ResampleMode::linear ? 2 : 1;
}

template <class C>
MT_HD int64_t fill_antialiased_taps(const ResampleArgs& a, const ResampleAxis& axis, C scale, int64_t i, int32_t* ids,
                                    C* w) {
  const C radius = support(a, scale), inverse = scale >= 1 ? C(1) / scale : C(1);
  const C center = static_cast<C>(static_cast<double>(scale) * (static_cast<double>(i) + 0.5));
  const auto low = static_cast<int64_t>(static_cast<double>(center - radius) + 0.5);
  const auto high = static_cast<int64_t>(static_cast<double>(center + radius) + 0.5);
  const int64_t first = std::max<int64_t>(low, 0), widest = most_taps<C>(a, axis);
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

// Writes the taps of output i: pixels and weights. Returns how many there are.
template <class C>
MT_HD int64_t fill_taps(const ResampleArgs& a, const ResampleAxis& axis, int64_t i, int32_t* ids, C* w) {
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
  if (antialiased(a.mode)) return fill_antialiased_taps(a, axis, scale, i, ids, w);
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

// Joins adjacent taps of the same pixel.
template <class C>
MT_HD int64_t merge_taps(int32_t* ids, C* w, int64_t n) {
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

}  // namespace resample
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
