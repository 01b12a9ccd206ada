// The attention kernel objects.
#include "kernels/attention.h"

namespace minitorch {
constinit Kernel<void(const AttentionArgs&, const AttentionOperand&, float*)> attention_kernel{"attention"};
constinit Kernel<void(const AttentionArgs&, const AttentionGradients&)> attention_backward_kernel{"attention_backward"};
}  // namespace minitorch
