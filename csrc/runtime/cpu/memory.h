// Memory of the CPU as the device's supply: pages from the kernel, and how much there is.
#pragma once
#include <cstddef>

#include "runtime/backend.h"

namespace minitorch::cpu {

// Pages at a multiple of 2 MiB when the size reaches that, with huge pages asked for: a plain page fault costs 0.25 us
// a KiB, which is more than most kernels take to fill it. Null when there are none.
void* map_pages(size_t bytes) noexcept;
void unmap_pages(void* ptr, size_t bytes) noexcept;
// Drops the pages of a range; it reads as zeros afterwards.
bool drop_pages(void* ptr, size_t bytes) noexcept;

// Physical memory, or the container's limit when that is lower, and what is available of it.
MemoryInfo memory_info();

}  // namespace minitorch::cpu
