// The grid sampling kernel objects.
#include "kernels/grid_sample.h"

namespace minitorch {
constinit Kernel<void(const GridSampleArgs&)> grid_sample_kernel{"grid_sample"};
constinit Kernel<void(const GridSampleArgs&)> grid_sample_backward_kernel{"grid_sample_backward"};
}  // namespace minitorch
