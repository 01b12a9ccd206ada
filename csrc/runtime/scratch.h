// Memory that a CPU kernel needs while it runs. From 128 KiB on, where malloc would take fresh pages from the system in
// every call and the kernel fault them in one by one, it comes from the device's caching allocator: it counts in the
// device's figures while the kernel runs, as a kernel's workspace does on a GPU, is within the limit and is checked
// when memory is. Less comes from malloc, as does all of it while the device is a GPU.
#pragma once
#include <cstddef>

namespace minitorch {

struct Block;

inline constexpr size_t kSharedScratch = size_t{128} << 10;  // glibc's threshold for mapping a block of its own

struct ScratchMemory {
  void* data;    // 64-byte aligned, not initialised
  Block* block;  // null: malloc's
};

// Any thread may take scratch memory, those of a parallel loop too. Throws OutOfMemory when there is none.
ScratchMemory take_scratch(size_t bytes);
void give_back_scratch(ScratchMemory memory) noexcept;

}  // namespace minitorch
