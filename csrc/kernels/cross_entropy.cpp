// The cross-entropy kernel objects.
#include "kernels/cross_entropy.h"

namespace minitorch {
constinit Kernel<void(const CrossEntropyArgs&, LossReduction, char*)> cross_entropy_kernel{"cross_entropy"};
constinit Kernel<void(const CrossEntropyArgs&, LossReduction, const char*, int64_t, char*)>
    cross_entropy_backward_kernel{"cross_entropy_backward"};
}  // namespace minitorch
