// Which pixels along one axis a point of a grid draws on, and how much, for host and device.
#pragma once
#include <cmath>

#include "core/macros.h"
#include "kernels/grid_sample.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace grid_sampling {

// Native's two kernels differ in how they round, and in where NaN ends up: at the first pixel in two dimensions, at the
// last in three.
template <class C>
struct Coordinates {
  C size, last, low, span;
  bool planar, align_corners;
  GridPadding padding;
  MT_HD Coordinates(const GridSampleArgs& a, int64_t extent)
      : size(C(extent)),
        last(C(extent - 1)),
        low(a.align_corners ? C(0) : C(-0.5)),
        span(a.align_corners ? C(extent - 1) : C(extent)),
        planar(a.dims == 2),
        align_corners(a.align_corners),
        padding(a.padding) {}

  MT_HD C scale() const { return (align_corners ? last : size) / 2; }
  MT_HD C pixel(C x) const {
    if (planar) return align_corners ? (x + 1) * (last / 2) : (x + 1) * (size / 2) - C(0.5);
    return align_corners ? (x + 1) / 2 * last : ((x + 1) * size - 1) / 2;
  }
  // Brings a coordinate into the image as the padding says; *slope is multiplied with the derivative.
  MT_HD C inside(C x, C* slope) const {
    if (padding == GridPadding::zeros) return x;
    C factor = C(1);
    if (padding == GridPadding::reflection) {
      if (span == 0) {
        *slope = C(0);
        return C(0);
      }
      C distance = x - low;
      factor = distance < 0 ? C(-1) : C(1);
      distance = distance < 0 ? -distance : distance;
      const C turns = ::floor(distance / span), rest = distance - turns * span;
      const bool odd = turns - 2 * ::floor(turns / 2) != 0;
      x = (odd ? span - rest : rest) + low;
      factor = odd ? -factor : factor;
    }
    *slope *= x > 0 && x < last ? factor : C(0);
    if (planar) {
      x = x > 0 ? x : C(0);
      return x < last ? x : last;
    }
    x = x < 0 ? C(0) : x;
    return x < last ? x : last;
  }
  // -1 unless the (whole) coordinate is a pixel.
  MT_HD int32_t index(C x) const { return x >= 0 && x <= last ? static_cast<int32_t>(x) : -1; }
};

// Keys' cubic convolution weights with a = -0.75, and their derivatives by t.
template <class C>
MT_HD void cubic(C t, C* w, C* d) {
  constexpr C a = C(-0.75);
  const C u = t + 1, s = 1 - t, r = 2 - t;
  w[0] = ((a * u - 5 * a) * u + 8 * a) * u - 4 * a;
  w[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
  w[2] = ((a + 2) * s - (a + 3)) * s * s + 1;
  w[3] = ((a * r - 5 * a) * r + 8 * a) * r - 4 * a;
  d[0] = (3 * a * u - 10 * a) * u + 8 * a;
  d[1] = (3 * (a + 2) * t - 2 * (a + 3)) * t;
  d[2] = -(3 * (a + 2) * s - 2 * (a + 3)) * s;
  d[3] = -((3 * a * r - 10 * a) * r + 8 * a);
}

// The K taps of coordinate x, `step` apart: pixel indices (-1: outside), weights, and derivatives of these by the pixel
// coordinate. Returns the derivative of the pixel coordinate by x.
template <class C, int K, int step>
MT_HD C point_taps(const Coordinates<C>& c, C x, int32_t* index, C* weight, C* derivative) {
  C slope = c.scale();
  C p = c.pixel(x);
  if constexpr (K == 1) {
    p = ::nearbyint(c.inside(p, &slope));
    index[0] = c.index(p);
    weight[0] = C(1);
    derivative[0] = C(0);
  } else if constexpr (K == 2) {
    p = c.inside(p, &slope);
    const C first = ::floor(p), t = p - first;
    index[0] = c.index(first);
    index[step] = c.index(first + 1);
    weight[0] = (first + 1) - p;
    weight[step] = t;
    derivative[0] = C(-1);
    derivative[step] = C(1);
  } else {
    const C first = ::floor(p);
    C w[4], d[4];
    cubic(p - first, w, d);
    for (int k = 0; k < 4; k++) {
      C ignored = C(1);
      const C q = c.inside(first + C(k - 1), &ignored);
      index[k * step] = c.index(::trunc(q));
      weight[k * step] = w[k];
      derivative[k * step] = d[k];
    }
  }
  return slope;
}

}  // namespace grid_sampling
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
