// The normalisation kernel objects.
#include "kernels/norm.h"

namespace minitorch {
constinit Kernel<void(const LayerNormArgs&)> layer_norm_kernel{"layer_norm"};
constinit Kernel<void(const LayerNormBackwardArgs&)> layer_norm_backward_kernel{"layer_norm_backward"};
constinit Kernel<void(const BatchNormArgs&)> batch_norm_kernel{"batch_norm"};
constinit Kernel<void(const BatchNormBackwardArgs&)> batch_norm_backward_kernel{"batch_norm_backward"};
constinit Kernel<void(const GroupNormArgs&)> group_norm_kernel{"group_norm"};
constinit Kernel<void(const GroupNormBackwardArgs&)> group_norm_backward_kernel{"group_norm_backward"};
}  // namespace minitorch
