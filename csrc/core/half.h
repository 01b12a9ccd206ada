// 16-bit floating point storage types. Arithmetic happens in float (see ComputeType in dtype.h); these only convert.
// Conversions round to nearest even and keep NaN a NaN, as PyTorch's do.
#pragma once
#include <cstdint>
#include <cstring>

#include "core/macros.h"
#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace minitorch {

namespace detail {
template <class To, class From>
MT_HD To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

// Written with selects rather than branches so that loops over it vectorise.
MT_HD uint16_t float_to_bf16_bits(float f) {
  const uint32_t u = bit_cast<uint32_t>(f);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

MT_HD float bf16_bits_to_float(uint16_t b) { return bit_cast<float>(static_cast<uint32_t>(b) << 16); }

// Half to float by rebiasing the exponent in float arithmetic: a multiplication normalises subnormals for free.
// Method: F. Giesen, "Half to float done quick" (public domain note), restated here.
MT_HD float half_bits_to_float(uint16_t h) {
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(h));
#elif defined(__F16C__)
  return _cvtsh_ss(h);
#else
  const uint32_t magnitude = (h & 0x7fffu) << 13;
  float f = bit_cast<float>(magnitude) * bit_cast<float>(uint32_t{(254 - 15) << 23});
  uint32_t u = bit_cast<uint32_t>(f);
  u |= (h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  u |= (h & 0x7fffu) > 0x7c00u ? 0x00400000u : 0u;  // quiet NaN
  return bit_cast<float>(u | (static_cast<uint32_t>(h & 0x8000u) << 16));
#endif
}

MT_HD uint16_t float_to_half_bits(float f) {
#if defined(__CUDA_ARCH__)
  return __half_as_ushort(__float2half_rn(f));
#elif defined(__F16C__)
  return static_cast<uint16_t>(_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT));
#else
  const uint32_t u = bit_cast<uint32_t>(f);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t a = u & 0x7fffffffu;
  // Normal range: add the rounding bias to the bit pattern and shift; overflow carries into infinity by itself.
  const uint32_t normal = (a - (112u << 23) + 0xfffu + ((a >> 13) & 1u)) >> 13;
  // Subnormal range: adding 0.5 lets the FPU round at the right bit.
  const uint32_t subnormal = bit_cast<uint32_t>(bit_cast<float>(a) + 0.5f) - 0x3f000000u;
  uint32_t r = a < (113u << 23) ? subnormal : normal;
  r = a >= 0x47800000u ? 0x7c00u : r;  // 65536 and above, infinity
  r = a > 0x7f800000u ? 0x7e00u : r;   // NaN
  return static_cast<uint16_t>(r | sign);
#endif
}
}  // namespace detail

struct alignas(2) BFloat16 {
  uint16_t bits;
  BFloat16() = default;
  MT_HD BFloat16(float f) : bits(detail::float_to_bf16_bits(f)) {}
  MT_HD operator float() const { return detail::bf16_bits_to_float(bits); }
};

struct alignas(2) Half {
  uint16_t bits;
  Half() = default;
  MT_HD Half(float f) : bits(detail::float_to_half_bits(f)) {}
  MT_HD operator float() const { return detail::half_bits_to_float(bits); }
};

static_assert(sizeof(BFloat16) == 2 && sizeof(Half) == 2);

}  // namespace minitorch
