// The caching allocator's memory checks: poison and canaries (see poison.h).
#include <cstring>

#include "runtime/caching_allocator.h"
#include "runtime/poison.h"
#include "runtime/pool.h"

namespace minitorch {

namespace {
size_t count_damaged(const unsigned char* canary) {
  size_t damaged = 0;
  for (size_t i = 0; i < kCanaryBytes; i++) damaged += canary[i] != kCanaryByte;
  return damaged;
}
}  // namespace

// The block starts a canary before its data; the second canary follows the last byte that was asked for.
void CachingAllocator::arm_guards(Block* block, Stream stream) {
  block->guarded = true;
  block->maker = current_maker();
  char* const data = block->data();
  backend_.fill_bytes(block->base, kCanaryByte, kCanaryBytes, stream);
  backend_.fill_bytes(data, kPoisonByte, block->requested, stream);
  backend_.fill_bytes(data + block->requested, kCanaryByte, kCanaryBytes, stream);
}

void CachingAllocator::check_guards(Block* block) noexcept {
  try {
    char* const data = block->data();
    // After the work of the block's own stream. Copies to memory like this are done when they return, and unlike a
    // synchronisation they raise nothing that kernels have met, for whom it is meant.
    const Stream stream = block->pool->stream;
    unsigned char before[kCanaryBytes], after[kCanaryBytes];
    backend_.copy_bytes(before, block->base, kCanaryBytes, stream);
    backend_.copy_bytes(after, data + block->requested, kCanaryBytes, stream);
    if (const size_t n = count_damaged(before)) report_damage(block->requested, "before", n, block->maker);
    if (const size_t n = count_damaged(after)) report_damage(block->requested, "after", n, block->maker);
    if (block->uses == nullptr) backend_.fill_bytes(data, kPoisonByte, block->requested, stream);
  } catch (const std::exception& e) {
    report_damage(block->requested, "around", 0, std::string(block->maker) + " (the check failed: " + e.what() + ")");
  }
  block->guarded = false;
}

}  // namespace minitorch
