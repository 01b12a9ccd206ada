// Elementary functions as branch-free polynomials, so that loops over them vectorise; see each for method and error.
#pragma once
#include <cmath>
#include <cstdint>

#include "core/complex.h"
#include "core/half.h"
#include "core/macros.h"

namespace minitorch::math {
inline namespace MINITORCH_ARCH {

// exp by Cody-Waite reduction x = n ln2 + r, |r| <= ln2/2, and a degree-6 polynomial in r. Scaling by 2^n in two steps
// keeps subnormal results right. Relative error below 1.2e-7.
MT_HD float exp(float x) {
  const float clamped = x < -104.0f ? -104.0f : (x > 88.8f ? 88.8f : x);
  const float n = nearbyintf(clamped * 1.44269504088896341f);
  float r = clamped - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t i = static_cast<int32_t>(n), half = i >> 1;
  const float a = detail::bit_cast<float>((half + 127) << 23), b = detail::bit_cast<float>((i - half + 127) << 23);
  const float result = p * a * b;
  return x != x ? x : (x > 88.8f ? INFINITY : result);
}

MT_HD double exp(double x) { return ::exp(x); }

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::math
