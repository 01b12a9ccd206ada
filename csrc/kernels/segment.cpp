// The segment kernel objects.
#include "kernels/segment.h"

namespace minitorch {
constinit Kernel<void(const SegmentArgs&)> segment_reduce_kernel{"segment_reduce"};
constinit Kernel<void(const SegmentArgs&)> segment_reduce_backward_kernel{"segment_reduce_backward"};
constinit Kernel<void(const SegmentBoundsArgs&)> segment_bounds_kernel{"segment_bounds"};
}  // namespace minitorch
