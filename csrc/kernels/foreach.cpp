// The list kernel objects.
#include "kernels/foreach.h"

namespace minitorch {
constinit Kernel<void(ForeachOp, const std::vector<ForeachItem>&, DType, const char*)> foreach_kernel{"foreach"};
constinit Kernel<void(const std::vector<ForeachItem>&, DType, double)> foreach_norm_kernel{"foreach_norm"};
constinit Kernel<void(const std::vector<ForeachItem>&, DType, const float*, float*)> unscale_kernel{"unscale"};
constinit Kernel<void(float*, int32_t*, const float*, double, double, int64_t)> update_scale_kernel{"update_scale"};
}  // namespace minitorch
