// The resampling kernel object.
#include "kernels/resample.h"

namespace minitorch {
constinit Kernel<void(const ResampleArgs&)> resample_kernel{"resample"};
}  // namespace minitorch
