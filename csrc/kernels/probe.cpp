#include "kernels/probe.h"

namespace minitorch {

constinit Kernel<void(const ProbeArgs&)> probe_kernel("probe");

}  // namespace minitorch
