// The process's allocators: one a device and one for pinned host memory. They live until the process ends, because
// tensors may be freed by static destructors.
#pragma once
#include "runtime/caching_allocator.h"

namespace minitorch {

CachingAllocator& caching_allocator(int device);  // throws InvalidDevice
CachingAllocator& pinned_allocator();

// Bytes that the device has in all, and how many more of them this process could take: within its limit, and as far as
// the system has memory to spare.
MemoryInfo device_memory_info(int device);

// Allows the process `fraction` (in (0, 1]) of the device's memory. Throws std::invalid_argument for another fraction.
void set_memory_fraction(double fraction, int device);

}  // namespace minitorch
