// Temporary device memory for kernels, from the caching allocator.
#include "kernels/cuda/launch.cuh"
#include "runtime/backend.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

Scratch::Scratch(int64_t bytes)
    : data_(bytes == 0 ? nullptr : allocate(backend().current_device(), static_cast<size_t>(bytes))) {}
Scratch::~Scratch() { deallocate(data_); }

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
