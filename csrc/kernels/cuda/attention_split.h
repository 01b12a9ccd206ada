// Attention of floats on tensor cores; false where the shape or the layout is not for it.
#pragma once
#include "kernels/attention.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

bool attention_split_forward(const AttentionArgs& a, const AttentionOperand& out, float* lse);
// delta: the sum of grad_out * out of every row.
bool attention_split_backward(const AttentionArgs& a, const AttentionGradients& g, const float* delta);

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
