// The pointwise kernel objects. Static initialisation fills their slots, so they must be constant initialised.
#include "kernels/pointwise.h"

namespace minitorch {
constinit Kernel<void(UnaryOp, const PointwiseView&, const PointwiseParams&)> unary_kernel{"unary"};
constinit Kernel<void(BinaryOp, const PointwiseView&, const PointwiseParams&)> binary_kernel{"binary"};
constinit Kernel<void(const PointwiseView&)> copy_kernel{"copy"};
constinit Kernel<void(const PointwiseView&, const Scalar&)> fill_kernel{"fill"};
}  // namespace minitorch
