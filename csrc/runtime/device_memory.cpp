// The process's allocators, and what happens to them when the process forks.
#include "runtime/device_memory.h"

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "core/parallel.h"
#include "runtime/backend.h"
#include "runtime/environment.h"
#include "runtime/errors.h"

namespace minitorch {
namespace {

struct Allocators {
  std::vector<CachingAllocator*> devices;
  CachingAllocator* pinned;
};

Allocators& allocators() {
  static Allocators& all = []() -> Allocators& {
    Allocators& made = *new Allocators;
    Backend& b = backend();
    const Environment& e = environment();
    for (int i = 0; i < b.device_count(); i++) {
      const size_t limit = e.memory_limit.value_or(CachingAllocator::kWholeDevice);
      made.devices.push_back(
          new CachingAllocator(b, i, {CachingAllocator::Kind::device, limit, e.poison, e.expandable_segments}));
    }
    made.pinned = new CachingAllocator(b, 0, {CachingAllocator::Kind::pinned_host, SIZE_MAX, false});
    // A thread other than the one that forks may hold a lock at that moment, and does not exist in the child.
    const auto each = [](auto&& f) {
      for (CachingAllocator* a : allocators().devices) f(*a);
      f(*allocators().pinned);
    };
    static const auto lock_all = [each] { each([](CachingAllocator& a) { a.lock_for_fork(); }); };
    static const auto unlock_all = [each] { each([](CachingAllocator& a) { a.unlock_after_fork(); }); };
    pthread_atfork([] { lock_all(); }, [] { unlock_all(); },
                   [] {
                     unlock_all();
                     // OpenMP's worker threads are gone too, and its runtime would wait for them for ever.
                     set_num_threads_source([] { return 1; });
                   });
    return made;
  }();
  return all;
}

// Blocks handed out as plain pointers.
std::mutex raw_mutex;
std::unordered_map<void*, Block*>& raw_blocks() {
  static auto& blocks = *new std::unordered_map<void*, Block*>;
  return blocks;
}

}  // namespace

CachingAllocator& caching_allocator(int device) {
  static const std::vector<CachingAllocator*>& devices = allocators().devices;
  if (__builtin_expect(device < 0 || device >= static_cast<int>(devices.size()), 0)) check_device(device);
  return *devices[device];
}

CachingAllocator& pinned_allocator() { return *allocators().pinned; }

MemoryInfo device_memory_info(int device) {
  CachingAllocator& allocator = caching_allocator(device);
  MemoryInfo info = backend().memory_info(device);
  const size_t reserved = static_cast<size_t>(allocator.stats().reserved_bytes.stat[PoolStat::kAll].current);
  const size_t limit = std::min(allocator.limit(), info.total);
  info.free = std::min(info.free, limit - std::min(limit, reserved));
  return info;
}

void set_memory_fraction(double fraction, int device) {
  if (!(fraction > 0 && fraction <= 1))
    throw std::invalid_argument("invalid fraction: " + std::to_string(fraction) + "; it must be above 0 and at most 1");
  const double total = static_cast<double>(backend().memory_info(device).total);
  caching_allocator(device).set_limit(static_cast<size_t>(std::llround(fraction * total)));
}

void* allocate(int device, size_t bytes) {
  if (bytes == 0) return nullptr;
  Block* block = caching_allocator(device).allocate(bytes, backend().current_stream(device));
  std::lock_guard lock(raw_mutex);
  raw_blocks()[block->data()] = block;
  return block->data();
}

void deallocate(void* ptr) noexcept {
  if (ptr == nullptr) return;
  Block* block;
  {
    std::lock_guard lock(raw_mutex);
    const auto entry = raw_blocks().find(ptr);
    if (entry == raw_blocks().end()) return;
    block = entry->second;
    raw_blocks().erase(entry);
  }
  free_block(block);
}

}  // namespace minitorch
