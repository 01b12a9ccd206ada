// The caching allocator's limit and statistics, and what it says when it fails.
#include <algorithm>
#include <atomic>

#include "runtime/caching_allocator.h"
#include "runtime/cpu/memory.h"
#include "runtime/errors.h"

namespace minitorch {

namespace {
std::atomic<void (*)(const std::string&)> out_of_memory_handler{nullptr};
}  // namespace

void set_out_of_memory_handler(void (*handler)(const std::string&)) { out_of_memory_handler = handler; }

void out_of_memory(const std::string& text) {
  if (auto handler = out_of_memory_handler.load()) handler(text);
  throw OutOfMemory(text);
}

void CachingAllocator::set_limit(size_t bytes) {
  std::lock_guard guard(lock_);
  limit_ = bytes;
}

size_t CachingAllocator::limit() const {
  size_t now = limit_;
  if (now != kWholeDevice) return now;
  const auto whole = static_cast<size_t>(backend_.properties(device_).total_memory);
  return limit_.compare_exchange_strong(now, whole) ? whole : now;
}

void CachingAllocator::throw_out_of_memory(size_t bytes) {
  const MemoryStats now = stats();
  const size_t held = static_cast<size_t>(now.allocated_bytes.stat[PoolStat::kAll].current);
  const size_t reserved = static_cast<size_t>(now.reserved_bytes.stat[PoolStat::kAll].current);
  const MemoryInfo info = options_.kind == Kind::device ? backend_.memory_info(device_) : cpu::memory_info();
  std::string text = "minitorch out of memory. Tried to allocate " + format_bytes(bytes) + ". ";
  text += options_.kind == Kind::device ? "Device minitorch:" + std::to_string(device_) : "The host";
  text +=
      " has a total capacity of " + format_bytes(info.total) + " of which " + format_bytes(info.free) + " is free. ";
  const size_t limit = this->limit();
  if (limit != SIZE_MAX) {
    text += "This process may take " + format_bytes(limit) +
            " (MINITORCH_MEMORY_LIMIT or set_per_process_memory_fraction). ";
  }
  text += "It holds " + format_bytes(held) + " in tensors and " + format_bytes(reserved - std::min(held, reserved)) +
          " in blocks that are free but could not be used or given back.";
  if (limit != SIZE_MAX &&
      bytes <= limit - std::min(limit, reserved)) {  // the limit would have room for the request itself
    text += " Memory is taken from the system in pieces of " + format_bytes(kSmallestSegment) + " at least.";
  }
  out_of_memory(text);
}

MemoryStats CachingAllocator::stats() {
  std::lock_guard guard(lock_);
  MemoryStats s = stats_;
  const auto active = [](const PoolStat& held, const PoolStat& pending, const int64_t* peak) {
    PoolStat sum = held;
    for (int i = 0; i < PoolStat::kPools; i++) {
      sum.stat[i].current += pending.stat[i].current;
      sum.stat[i].freed -= pending.stat[i].current;
      sum.stat[i].peak = std::max(sum.stat[i].peak, peak[i]);
    }
    return sum;
  };
  s.active = active(stats_.allocation, pending_blocks_, active_peak_);
  s.active_bytes = active(stats_.allocated_bytes, pending_bytes_, active_bytes_peak_);
  return s;
}

void CachingAllocator::reset_peak_stats() {
  std::lock_guard guard(lock_);
  stats_.for_each([](const char*, PoolStat& figure) {
    for (Stat& stat : figure.stat) stat.reset_peak();
  });
  for (int i = 0; i < PoolStat::kPools; i++) {
    active_peak_[i] = stats_.allocation.stat[i].current + pending_blocks_.stat[i].current;
    active_bytes_peak_[i] = stats_.allocated_bytes.stat[i].current + pending_bytes_.stat[i].current;
  }
}

void CachingAllocator::reset_accumulated_stats() {
  std::lock_guard guard(lock_);
  stats_.for_each([](const char*, PoolStat& figure) {
    for (Stat& stat : figure.stat) stat.reset_accumulated();
  });
  stats_.num_alloc_retries = stats_.num_ooms = stats_.num_sync_all_streams = 0;
  stats_.num_device_alloc = stats_.num_device_free = 0;
}

}  // namespace minitorch
