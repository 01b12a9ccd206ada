// Host memory that the device copies from and to asynchronously, as PyTorch's pinned memory.
#pragma once
#include <ATen/core/CachingHostAllocator.h>

namespace minitorch {

at::HostAllocator* pinned_host_allocator();

}  // namespace minitorch
