// The distance kernel objects.
#include "kernels/distance.h"

namespace minitorch {
constinit Kernel<void(const DistanceArgs&)> cdist_kernel{"cdist"};
constinit Kernel<void(const DistanceArgs&)> cdist_backward_kernel{"cdist_backward"};
constinit Kernel<void(const DistanceArgs&)> pdist_kernel{"pdist"};
constinit Kernel<void(const DistanceArgs&)> pdist_backward_kernel{"pdist_backward"};
}  // namespace minitorch
