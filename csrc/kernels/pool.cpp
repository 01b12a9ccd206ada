// The pooling kernel objects.
#include "kernels/pool.h"

namespace minitorch {
constinit Kernel<void(const MaxPoolArgs&)> max_pool_kernel{"max_pool"};
constinit Kernel<void(const FractionalMaxPoolArgs&)> fractional_max_pool_kernel{"fractional_max_pool"};
constinit Kernel<void(const PoolScatterArgs&)> pool_scatter_kernel{"pool_scatter"};
constinit Kernel<void(const AvgPoolArgs&)> avg_pool_kernel{"avg_pool"};
constinit Kernel<void(const AvgPoolArgs&)> avg_pool_backward_kernel{"avg_pool_backward"};
}  // namespace minitorch
