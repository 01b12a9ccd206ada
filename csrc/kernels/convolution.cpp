// The convolution kernel objects.
#include "kernels/convolution.h"

namespace minitorch {
constinit Kernel<void(const ConvArgs&)> conv_forward_kernel{"conv_forward"};
constinit Kernel<void(const ConvArgs&)> conv_backward_input_kernel{"conv_backward_input"};
constinit Kernel<void(const ConvArgs&)> conv_backward_weight_kernel{"conv_backward_weight"};
constinit Kernel<void(int, const ConvArgs&)> conv_reference_kernel{"conv_reference"};
}  // namespace minitorch
