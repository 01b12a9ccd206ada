// The softmax kernel objects. Static initialisation fills their slots, so they must be constant initialised.
#include "kernels/softmax.h"

namespace minitorch {
constinit Kernel<void(SoftmaxOp, const SoftmaxShape&, const SoftmaxOperand&, const SoftmaxOperand&, const SoftmaxMask&)>
    softmax_kernel{"softmax"};
constinit Kernel<void(SoftmaxOp, const SoftmaxShape&, const SoftmaxOperand&, const SoftmaxOperand&,
                      const SoftmaxOperand&, const SoftmaxMask&)>
    softmax_backward_kernel{"softmax_backward"};
}  // namespace minitorch
