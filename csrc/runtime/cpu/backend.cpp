// The CPU as a device: one device, host memory, work done when the call returns. Streams are numbers and events are
// readings of the clock, so that scripts written for an asynchronous device run.
#include "runtime/backend.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "kernels/kernel.h"
#include "runtime/cpu/memory.h"
#include "runtime/errors.h"

namespace minitorch {
namespace {

using Clock = std::chrono::steady_clock;

struct CpuEvent final : Event {
  bool recorded = false;
  Clock::time_point when;
};

// initial-exec: a plain load from the thread's block instead of a call, for it is read on every allocation.
thread_local int64_t current_stream_id __attribute__((tls_model("initial-exec"))) = 0;

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "CPU";
}

class CpuBackend final : public Backend {
 public:
  const char* name() const noexcept override { return "cpu"; }
  int device_count() const noexcept override { return 1; }
  DeviceProperties properties(int device) const override {
    check_device(device);
    DeviceProperties p;
    p.name = processor_name();
    p.backend = name();
    p.isa = slot_name(active_slot);
    p.total_memory = static_cast<int64_t>(cpu::memory_info().total);
    p.multi_processor_count = static_cast<int>(std::thread::hardware_concurrency());
    return p;
  }
  bool host_accessible() const noexcept override { return true; }
  bool synchronous() const noexcept override { return true; }

  int current_device() const noexcept override { return 0; }
  void set_device(int device) override { check_device(device); }

  Stream current_stream(int) const noexcept override { return {0, current_stream_id}; }
  Stream exchange_stream(Stream stream) override {
    check_device(stream.device);
    const Stream previous{0, current_stream_id};
    current_stream_id = stream.id;
    return previous;
  }
  Stream pooled_stream(int device, bool high_priority) override {
    check_device(device);
    constexpr int64_t kPoolSize = 32;
    const int64_t turn = turns_[high_priority].fetch_add(1, std::memory_order_relaxed) % kPoolSize;
    return {device, 2 * (turn + 1) + high_priority};
  }
  bool query_stream(Stream) override { return true; }
  void synchronize_stream(Stream) override {}
  void synchronize_device(int) override {}

  Event* create_event(int device, bool timing) override {
    check_device(device);
    auto* event = new CpuEvent;
    event->device = device;
    event->timing = timing;
    return event;
  }
  void destroy_event(Event* event) noexcept override { delete static_cast<CpuEvent*>(event); }
  void record_event(Event* event, Stream) override {
    auto* e = static_cast<CpuEvent*>(event);
    e->recorded = true;
    if (e->timing) e->when = Clock::now();
  }
  void wait_event(Event*, Stream) override {}
  bool query_event(Event*) override { return true; }
  void synchronize_event(Event*) override {}
  double elapsed_ms(Event* start, Event* end) override {
    auto *a = static_cast<CpuEvent*>(start), *b = static_cast<CpuEvent*>(end);
    if (!a->timing || !b->timing)
      throw std::runtime_error("Both events must be created with argument 'enable_timing=True'.");
    if (!a->recorded || !b->recorded)
      throw std::runtime_error("Both events must be recorded before calculating elapsed time.");
    return std::chrono::duration<double, std::milli>(b->when - a->when).count();
  }

  void* system_allocate(int, size_t bytes) noexcept override { return cpu::map_pages(bytes); }
  void system_free(int, void* ptr, size_t bytes) noexcept override { cpu::unmap_pages(ptr, bytes); }
  bool system_decommit(int, void* ptr, size_t bytes) noexcept override { return cpu::drop_pages(ptr, bytes); }
  MemoryInfo memory_info(int device) const override {
    check_device(device);
    return cpu::memory_info();
  }
  void* host_allocate(size_t bytes) noexcept override { return cpu::map_pages(bytes); }
  void host_free(void* ptr, size_t bytes) noexcept override { cpu::unmap_pages(ptr, bytes); }

  void fill_bytes(void* ptr, unsigned char value, size_t bytes, Stream) override { std::memset(ptr, value, bytes); }
  void copy_bytes(void* to, const void* from, size_t bytes, Stream) override { std::memcpy(to, from, bytes); }
  void copy_to_host(void* host, const void* device_ptr, size_t bytes, Stream) override {
    std::memcpy(host, device_ptr, bytes);
  }

 private:
  std::atomic<int64_t> turns_[2] = {};
};

}  // namespace

Backend& cpu_backend() {
  static CpuBackend& backend = *new CpuBackend;
  return backend;
}

}  // namespace minitorch
