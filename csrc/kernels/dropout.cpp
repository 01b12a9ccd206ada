// The dropout kernel objects.
#include "kernels/dropout.h"

namespace minitorch {
constinit Kernel<void(RandomState&, const PointwiseView&, double, double, char*)> dropout_kernel{"dropout"};
constinit Kernel<void(const char*, const PointwiseView&, double, double)> dropout_again_kernel{"dropout_again"};
}  // namespace minitorch
