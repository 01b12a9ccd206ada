// Numbers of eight bits to float and back, one element at a time, for CPU and CUDA.
#pragma once
#include "core/half.h"
#include "core/macros.h"
#include "kernels/float8.h"

namespace minitorch::functors {
inline namespace MINITORCH_ARCH {

using minitorch::detail::bit_cast;

// Sign, exponent with a bias, mantissa. `largest` is the code of the largest finite number, `nan` the one written for
// NaN, `overflow` what rounding beyond the largest gives. Formats without negative zero write both without the sign.
struct Float8Layout {
  int mantissa_bits, bias;
  uint8_t largest, nan, overflow;
  bool negative_zero;
};

MT_HD constexpr Float8Layout float8_layout(Float8 format, uint8_t overflow) {
  switch (format) {
    case Float8::e5m2: return {2, 15, 0x7b, 0x7f, 0x7c, true};
    case Float8::e4m3fn: return {3, 7, 0x7e, 0x7f, overflow, true};
    case Float8::e5m2fnuz: return {2, 16, 0x7f, 0x80, 0x80, false};
    case Float8::e4m3fnuz: return {3, 8, 0x7f, 0x80, 0x80, false};
    case Float8::e8m0fnu: break;  // exponents only: see the functions below
  }
  return {};
}

MT_HD uint8_t float8_encode(float value, const Float8Layout& layout) {
  const uint32_t bits = bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
  const int dropped = 23 - layout.mantissa_bits;
  // Normal numbers: a new bias, and half of the last place (less one when it is even) before the rest is cut off.
  const uint32_t odd = magnitude >> dropped & 1u;
  const uint32_t rebias = static_cast<uint32_t>(127 - layout.bias) << 23;
  const uint32_t normal = (magnitude - rebias + (1u << (dropped - 1)) - 1u + odd) >> dropped;
  // Subnormal ones: adding the number whose last place is theirs makes the processor round.
  const uint32_t smallest_normal = static_cast<uint32_t>(128 - layout.bias) << 23;
  const uint32_t place = smallest_normal + (static_cast<uint32_t>(dropped) << 23);
  const uint32_t subnormal = bit_cast<uint32_t>(bit_cast<float>(magnitude) + bit_cast<float>(place)) - place;
  uint32_t code = magnitude < smallest_normal ? subnormal : normal;
  code = code > layout.largest ? layout.overflow : code;
  code = magnitude > 0x7f800000u ? layout.nan : code;
  const bool keep_sign = layout.negative_zero | (code != 0);
  return static_cast<uint8_t>(code | (keep_sign ? sign : 0u));
}

MT_HD float float8_decode(uint8_t code, Float8 format) {
  const Float8Layout layout = float8_layout(format, 0x7f);
  const uint32_t magnitude = code & 0x7fu, sign = static_cast<uint32_t>(code & 0x80u) << 24;
  if (!layout.negative_zero && code == 0x80) return bit_cast<float>(0x7fc00000u);
  if (magnitude > layout.largest) {
    const bool infinite = format == Float8::e5m2 && magnitude == layout.overflow;
    return bit_cast<float>(sign | (infinite ? 0x7f800000u : 0x7fc00000u));
  }
  // As a float with the same exponent field the value is wrong by a power of two, for subnormal numbers too.
  const float shifted = bit_cast<float>(magnitude << (23 - layout.mantissa_bits));
  const float scale = bit_cast<float>(static_cast<uint32_t>(254 - layout.bias) << 23);
  return bit_cast<float>(bit_cast<uint32_t>(shifted * scale) | sign);
}

// e8m0fnu: the exponent of a float, without a sign; 255 is NaN. Code 0 is 2^-127, which as a float is subnormal.
MT_HD uint8_t exponent_encode(float value) {
  const uint32_t magnitude = bit_cast<uint32_t>(value) & 0x7fffffffu;
  const uint32_t exponent = magnitude >> 23, rest = magnitude & 0x7fffffu;
  const bool up = exponent > 0 ? rest >= 0x400000u : rest > 0x400000u;
  return static_cast<uint8_t>(exponent == 255 ? exponent : exponent + up);
}
MT_HD float exponent_decode(uint8_t code) {
  if (code == 0) return bit_cast<float>(0x00400000u);
  return bit_cast<float>(code == 255 ? 0x7fc00000u : static_cast<uint32_t>(code) << 23);
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch::functors
