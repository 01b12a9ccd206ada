// The reduction kernel object. Static initialisation fills its slots, so it must be constant initialised.
#include "kernels/reduce.h"

namespace minitorch {
constinit Kernel<void(ReduceOp, const PointwiseView&, const ReduceParams&)> reduce_kernel{"reduce"};
}  // namespace minitorch
