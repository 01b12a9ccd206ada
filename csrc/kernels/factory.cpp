// The kernel objects of factory.h.
#include "kernels/factory.h"

namespace minitorch {
constinit Kernel<void(const SequenceArgs&)> arange_kernel{"arange"};
constinit Kernel<void(const SequenceArgs&)> linspace_kernel{"linspace"};
constinit Kernel<void(const SequenceArgs&)> logspace_kernel{"logspace"};
}  // namespace minitorch
