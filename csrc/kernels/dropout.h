// Dropout: draw, mask and scale in one pass.
#pragma once
#include "kernels/random.h"

namespace minitorch {

// Bytes that hold everything needed to draw a mask again.
inline constexpr int64_t kDropoutStateBytes = sizeof(Mt19937);

// Operand 0 = the last operand times `scale` where a draw is below `keep`, times 0 elsewhere. With three operands,
// operand 1 receives the mask (bool). `saved`, if not null, receives the state that the draws started from.
extern Kernel<void(RandomState&, const PointwiseView&, double keep, double scale, char* saved)> dropout_kernel;

// The same mask again, from the state that dropout_kernel saved.
extern Kernel<void(const char* saved, const PointwiseView&, double keep, double scale)> dropout_again_kernel;

}  // namespace minitorch
