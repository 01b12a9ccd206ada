// PyTorch's view of the caching allocator.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>

namespace minitorch {

// The allocator of our device, as registered with PyTorch.
c10::DeviceAllocator* device_allocator();

}  // namespace minitorch
