// The CPU as a device: one device, host memory, work done when the call returns.
#include <cstdlib>

#include "runtime/backend.h"

namespace minitorch {
namespace {

class CpuBackend final : public Backend {
 public:
  const char* name() const noexcept override { return "cpu"; }
  int device_count() const noexcept override { return 1; }
  int current_device() const noexcept override { return 0; }
  void set_device(int) override {}
  Stream current_stream(int) const noexcept override { return current_; }
  Stream exchange_stream(Stream stream) override {
    const Stream previous = current_;
    current_ = stream;
    return previous;
  }
  bool host_accessible() const noexcept override { return true; }
  void* system_allocate(int, size_t bytes) noexcept override { return std::aligned_alloc(64, (bytes + 63) / 64 * 64); }
  void system_free(int, void* ptr, size_t) noexcept override { std::free(ptr); }
  void synchronize_stream(Stream) override {}
  void synchronize_device(int) override {}

 private:
  static thread_local Stream current_;
};
thread_local Stream CpuBackend::current_;

}  // namespace

Backend& cpu_backend() {
  static CpuBackend backend;
  return backend;
}

void* allocate(int device, size_t bytes) { return bytes == 0 ? nullptr : cpu_backend().system_allocate(device, bytes); }
void deallocate(void* ptr) noexcept { cpu_backend().system_free(0, ptr, 0); }

}  // namespace minitorch
