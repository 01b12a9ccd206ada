// Address space and the memory behind it, apart: what segments that grow are made of. Through the driver's functions,
// which are looked up at run time so that nothing links to the driver.
#pragma once
#include <cstddef>

namespace minitorch::cuda {

// Null or false when the driver cannot or nothing is left. Sizes and addresses are multiples of 2 MiB.
void* reserve_addresses(size_t bytes) noexcept;
void release_addresses(void* ptr, size_t bytes) noexcept;
// Memory of `device`, readable and writable by it and by the devices that can reach it.
bool commit(int device, void* ptr, size_t bytes) noexcept;
// Waits for the device, then gives back what commit made.
bool decommit(int device, void* ptr, size_t bytes) noexcept;

}  // namespace minitorch::cuda
