// See pinned.h. The cache is the same as the device's (runtime/caching_allocator.h), over host memory.
#include "bridge/pinned.h"

#include "bridge/tensor.h"
#include "runtime/backend.h"
#include "runtime/device_memory.h"

namespace minitorch {
namespace {

void delete_block(void* context) { free_block(static_cast<Block*>(context)); }

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::kCPU)};
    Block* block = pinned_allocator().allocate(bytes, {});
    return {block->data(), block, &delete_block, c10::Device(c10::kCPU)};
  }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override { return data.get_deleter() == &delete_block; }
  void copy_data(void* dest, const void* src, std::size_t count) const override { default_copy_data(dest, src, count); }

  bool record_event(void* ptr, void* context, c10::Stream stream) override {
    if (!pinned_allocator().owns(ptr)) return false;
    pinned_allocator().record_stream(static_cast<Block*>(context), {stream.device_index(), stream.id()});
    return true;
  }
  void empty_cache() override { pinned_allocator().empty_cache(); }
  at::HostStats get_stats() override {
    const MemoryStats s = pinned_allocator().stats();
    const auto convert = [](const Stat& from) {
      c10::CachingAllocator::Stat to;
      to.current = from.current;
      to.peak = from.peak;
      to.allocated = from.allocated;
      to.freed = from.freed;
      return to;
    };
    at::HostStats result;
    result.allocations = convert(s.segment.stat[PoolStat::kAll]);
    result.allocated_bytes = convert(s.reserved_bytes.stat[PoolStat::kAll]);
    result.active_requests = convert(s.allocation.stat[PoolStat::kAll]);
    result.active_bytes = convert(s.allocated_bytes.stat[PoolStat::kAll]);
    result.num_host_alloc = s.num_device_alloc;
    result.num_host_free = s.num_device_free;
    return result;
  }
  void reset_accumulated_stats() override { pinned_allocator().reset_accumulated_stats(); }
  void reset_peak_stats() override { pinned_allocator().reset_peak_stats(); }
};

PinnedAllocator allocator;
REGISTER_HOST_ALLOCATOR(kDevice, &allocator)

}  // namespace

at::HostAllocator* pinned_host_allocator() { return &allocator; }

}  // namespace minitorch
