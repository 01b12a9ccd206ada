// Attention of 16-bit floats on tensor cores; false where the shape or the layout is not for it.
#pragma once
#include "kernels/attention.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

bool attention_half_forward(const AttentionArgs& a, const AttentionOperand& out, float* lse);
// The same on Hopper's own instructions; false also where the device or the build lacks them.
bool attention_hopper_forward(const AttentionArgs& a, const AttentionOperand& out, float* lse);
bool attention_hopper_backward(const AttentionArgs& a, const AttentionGradients& g);
// delta: the sum of grad_out * out of every row.
bool attention_half_backward(const AttentionArgs& a, const AttentionGradients& g, const float* delta);

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
