// Conversions of float8 on the CPU: decoding by table, encoding element by element.
#include "kernels/float8.h"

#include "core/parallel.h"
#include "kernels/functors/float8.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

void decode(Float8 format, const uint8_t* from, float* to, int64_t n) {
  float table[256];
  for (int code = 0; code < 256; code++) {
    const auto byte = static_cast<uint8_t>(code);
    table[code] = format == Float8::e8m0fnu ? functors::exponent_decode(byte) : functors::float8_decode(byte, format);
  }
  parallel_for(n, kGrainSize, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) to[i] = table[from[i]];
  });
}

void encode(Float8 format, uint8_t overflow, const float* from, uint8_t* to, int64_t n) {
  parallel_for(n, kGrainSize, [=](int64_t begin, int64_t end) {
    if (format == Float8::e8m0fnu) {
      for (int64_t i = begin; i < end; i++) to[i] = functors::exponent_encode(from[i]);
    } else {
      const auto layout = functors::float8_layout(format, overflow);
      for (int64_t i = begin; i < end; i++) to[i] = functors::float8_encode(from[i], layout);
    }
  });
}

MT_REGISTER_KERNEL(float8_decode_kernel, &decode);
MT_REGISTER_KERNEL(float8_encode_kernel, &encode);

}  // namespace
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
