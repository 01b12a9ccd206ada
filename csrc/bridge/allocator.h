// PyTorch's view of the caching allocator.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>

namespace minitorch {

struct Block;

// The allocator of our device, as registered with PyTorch.
c10::DeviceAllocator* device_allocator();

// Memory of `device` for work on the current stream. Throws torch.OutOfMemoryError.
c10::DataPtr allocate_data(int device, size_t bytes);

// The block behind memory that our allocator made; null for other memory (empty, or adopted from elsewhere).
Block* block_of(const c10::DataPtr& data);

// With MINITORCH_POISON=1: lets the allocator know which operator runs, so that damage reports can name it.
void install_memory_checks();

}  // namespace minitorch
