// The CTC kernel objects.
#include "kernels/ctc.h"

namespace minitorch {
constinit Kernel<void(const CtcArgs&)> ctc_loss_kernel{"ctc_loss"};
constinit Kernel<void(const CtcArgs&)> ctc_loss_backward_kernel{"ctc_loss_backward"};
}  // namespace minitorch
