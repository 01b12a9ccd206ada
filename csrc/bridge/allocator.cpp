// See allocator.h.
#include "bridge/allocator.h"

#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include <string>
#include <unordered_set>
#include <vector>

#include "bridge/tensor.h"
#include "runtime/backend.h"
#include "runtime/device_memory.h"
#include "runtime/environment.h"
#include "runtime/poison.h"

namespace minitorch {
namespace {

void report_to_profiler(const Block* block, bool freed) {
  const int device = block->device();
  const MemoryStats stats = caching_allocator(device).stats();
  const auto size = static_cast<int64_t>(block->size);
  c10::reportMemoryUsageToProfiler(
      block->data(), freed ? -size : size, stats.allocated_bytes.stat[PoolStat::kAll].current,
      stats.reserved_bytes.stat[PoolStat::kAll].current, c10::Device(kDevice, static_cast<c10::DeviceIndex>(device)));
}

void delete_data(void* context) {
  auto* block = static_cast<Block*>(context);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) report_to_profiler(block, true);
  free_block(block);
}

c10::CachingAllocator::StatArray convert(const PoolStat& figure) {
  c10::CachingAllocator::StatArray result;
  for (int pool = 0; pool < PoolStat::kPools; pool++) {
    const Stat& s = figure.stat[pool];
    result[pool].current = s.current;
    result[pool].peak = s.peak;
    result[pool].allocated = s.allocated;
    result[pool].freed = s.freed;
  }
  return result;
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { return allocate_data(backend().current_device(), bytes); }
  // The context is the block, not the memory, so the raw interface does not apply; copy-on-write still does.
  bool is_simple_data_ptr(const c10::DataPtr& data) const override { return data.get_deleter() == &delete_data; }
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    backend().copy_bytes(dest, src, count, backend().current_stream(backend().current_device()));
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    for (int d = 0; d < backend().device_count(); d++) caching_allocator(d).empty_cache();
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (Block* block = block_of(data)) free_after(block, stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const MemoryStats s = caching_allocator(device).stats();
    c10::CachingDeviceAllocator::DeviceStats result;
    result.allocation = convert(s.allocation);
    result.segment = convert(s.segment);
    result.active = convert(s.active);
    result.inactive_split = convert(s.inactive_split);
    result.allocated_bytes = convert(s.allocated_bytes);
    result.reserved_bytes = convert(s.reserved_bytes);
    result.active_bytes = convert(s.active_bytes);
    result.inactive_split_bytes = convert(s.inactive_split_bytes);
    result.requested_bytes = convert(s.requested_bytes);
    result.num_alloc_retries = s.num_alloc_retries;
    result.num_ooms = s.num_ooms;
    result.num_sync_all_streams = s.num_sync_all_streams;
    result.num_device_alloc = s.num_device_alloc;
    result.num_device_free = s.num_device_free;
    return result;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override { caching_allocator(device).reset_accumulated_stats(); }
  void resetPeakStats(c10::DeviceIndex device) override { caching_allocator(device).reset_peak_stats(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const MemoryInfo info = device_memory_info(device);
    return {info.free, info.total};
  }

 private:
  static void free_after(Block* block, c10::Stream stream) {
    caching_allocator(block->device()).record_stream(block, {stream.device_index(), stream.id()});
  }
};

DeviceAllocator allocator;
REGISTER_ALLOCATOR(kDevice, &allocator)

// The operators that are running on this thread, outermost first. Names are kept for ever: blocks point at them.
thread_local std::vector<const char*> running_operators;

const char* running_operator() { return running_operators.empty() ? "" : running_operators.back(); }

const char* keep_name(const char* name) {
  static std::mutex& mutex = *new std::mutex;
  static auto& names = *new std::unordered_set<std::string>;
  const std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

}  // namespace

c10::DeviceAllocator* device_allocator() { return &allocator; }

c10::DataPtr allocate_data(int device, size_t bytes) {
  const c10::Device where(kDevice, static_cast<c10::DeviceIndex>(device));
  if (bytes == 0) return {nullptr, where};
  Block* block = caching_allocator(device).allocate(bytes, backend().current_stream(device));
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) report_to_profiler(block, false);
  return {block->data(), block, &delete_data, where};
}

Block* block_of(const c10::DataPtr& data) {
  return data.get_deleter() == &delete_data ? static_cast<Block*>(data.get_context()) : nullptr;
}

void install_memory_checks() {
  if (!environment().poison) return;
  set_maker_source(&running_operator);
  at::addGlobalCallback(at::RecordFunctionCallback(
                            [](const at::RecordFunction& f) -> std::unique_ptr<at::ObserverContext> {
                              running_operators.push_back(keep_name(f.name()));
                              return nullptr;
                            },
                            [](const at::RecordFunction&, at::ObserverContext*) {
                              if (!running_operators.empty()) running_operators.pop_back();
                            })
                            .scopes({at::RecordScope::FUNCTION}));
}

}  // namespace minitorch
