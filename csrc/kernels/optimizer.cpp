// The fused optimizer kernel objects.
#include "kernels/optimizer.h"

namespace minitorch {
constinit Kernel<void(const std::vector<OptimizerItem>&, DType, const OptimizerParams&)> fused_adam_kernel{
    "fused_adam"};
constinit Kernel<void(const std::vector<OptimizerItem>&, DType, const OptimizerParams&)> fused_sgd_kernel{"fused_sgd"};
constinit Kernel<void(const std::vector<OptimizerItem>&, DType, const OptimizerParams&)> fused_adagrad_kernel{
    "fused_adagrad"};
}  // namespace minitorch
