// See scratch.h.
#include "runtime/scratch.h"

#include <cstdlib>

#include "runtime/backend.h"
#include "runtime/device_memory.h"
#include "runtime/errors.h"

namespace minitorch {

ScratchMemory take_scratch(size_t bytes) {
  if (bytes >= kSharedScratch && backend().host_accessible()) {
    Block* const block = caching_allocator(0).allocate(bytes, backend().current_stream(0));
    return {block->data(), block};
  }
  void* const data = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
  if (data == nullptr) out_of_memory("minitorch out of memory. The host has no " + format_bytes(bytes) + " left.");
  return {data, nullptr};
}

void give_back_scratch(ScratchMemory memory) noexcept {
  if (memory.block != nullptr) {
    free_block(memory.block);
  } else {
    std::free(memory.data);
  }
}

}  // namespace minitorch
