// The scan kernel objects. Static initialisation fills their slots, so they must be constant initialised.
#include "kernels/scan.h"

namespace minitorch {
constinit Kernel<void(ScanOp, const TensorView&, const TensorView&, int)> scan_kernel{"scan"};
constinit Kernel<void(bool, const TensorView&, const TensorView&, const TensorView&, int)> scan_extremum_kernel{
    "scan_extremum"};
}  // namespace minitorch
