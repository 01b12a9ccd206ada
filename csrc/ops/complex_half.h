// complex32. Native CPU moves it, adds and multiplies it and little more; the kernels here could compute the rest as
// well, but a program that runs here is to run there.
#pragma once
#include <c10/core/ScalarType.h>

#include "bridge/refusal.h"
#include "kernels/pointwise.h"
#include "runtime/backend.h"

namespace minitorch {

// Throws what becomes native's refusal where the CPU stands in for native's.
inline void refuse_complex_half(c10::ScalarType type, const char* kernel) {
  if (C10_UNLIKELY(type == c10::ScalarType::ComplexHalf) && backend().synchronous()) throw NoKernel(kernel, type);
}
// The same for the pointwise operators that native does not have. There is an operand of complex32; it is computed in
// unless the result is complex and wider.
void check_complex_half(c10::ScalarType result, PointwiseOp op);

}  // namespace minitorch
