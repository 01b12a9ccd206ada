// A stream's free blocks of one size class, as the sources of the caching allocator share it.
#pragma once
#include "runtime/free_bins.h"

namespace minitorch {

class CachingAllocator;

struct Pool {
  FreeBins bins;
  Block* quick[kQuickClasses] = {};
  AddressRange* growing = nullptr;  // see Options::expandable
  CachingAllocator* const owner;
  const Stream stream;
  const bool large;
  Pool(CachingAllocator* allocator, Stream s, bool is_large) : owner(allocator), stream(s), large(is_large) {}
};

}  // namespace minitorch
