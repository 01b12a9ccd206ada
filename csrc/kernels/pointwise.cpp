// The pointwise kernel objects. Static initialisation fills their slots, so they must be constant initialised.
#include "kernels/pointwise.h"

namespace minitorch {
constinit Kernel<void(PointwiseOp, const PointwiseView&, const PointwiseParams&)> pointwise_kernel{"pointwise"};
constinit Kernel<void(const PointwiseView&)> copy_kernel{"copy"};
constinit Kernel<void(const PointwiseView&, const Scalar&)> fill_kernel{"fill"};
}  // namespace minitorch
