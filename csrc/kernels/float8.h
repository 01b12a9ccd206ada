// Conversions of numbers of eight bits. They are stored and moved, nothing computes with them.
#pragma once
#include "kernels/kernel.h"

namespace minitorch {

// The formats of the OCP specifications "8-bit Floating Point" and "Microscaling Formats" (e8m0fnu), and the variants
// without negative zero of B. Noune et al., "8-bit Numerical Formats for Deep Neural Networks", 2022.
enum class Float8 : uint8_t { e5m2, e4m3fn, e5m2fnuz, e4m3fnuz, e8m0fnu };

// n numbers, one after the other.
extern Kernel<void(Float8, const uint8_t* from, float* to, int64_t n)> float8_decode_kernel;
// Rounds to nearest, ties to even. `overflow` is stored, with the sign, for what is beyond the largest number of
// e4m3fn, which has no infinity: conventions differ there.
extern Kernel<void(Float8, uint8_t overflow, const float* from, uint8_t* to, int64_t n)> float8_encode_kernel;

}  // namespace minitorch
