// What the rest of minitorch asks of a machine. One Backend is active in a process: the CPU's, or CUDA's when a GPU is
// present (MINITORCH_BACKEND=cpu|cuda decides by hand).
#pragma once
#include <cstddef>
#include <cstdint>

namespace minitorch {

// A stream of a device. Id 0 is the device's default stream.
struct Stream {
  int device = 0;
  int64_t id = 0;
  bool operator==(const Stream&) const = default;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const char* name() const noexcept = 0;  // "cpu" or "cuda"
  virtual int device_count() const noexcept = 0;
  // The calling thread's current device, and its current stream on a device.
  virtual int current_device() const noexcept = 0;
  virtual void set_device(int device) = 0;
  virtual Stream current_stream(int device) const noexcept = 0;
  virtual Stream exchange_stream(Stream stream) = 0;  // returns the previous current stream of that device

  // True if host code may read and write device memory directly.
  virtual bool host_accessible() const noexcept = 0;

  // Memory from the system, without caching: the caching allocator's supply. Null when there is none left.
  virtual void* system_allocate(int device, size_t bytes) noexcept = 0;
  virtual void system_free(int device, void* ptr, size_t bytes) noexcept = 0;

  virtual void synchronize_stream(Stream stream) = 0;
  virtual void synchronize_device(int device) = 0;
};

// The active backend; the first call chooses it. Throws std::runtime_error if MINITORCH_BACKEND asks for what is not
// there or names something unknown.
Backend& backend();

// The caching allocator. `allocate` returns 64-byte aligned memory of the device for the current stream, null for 0
// bytes; it throws OutOfMemory when neither the cache nor the system has enough.
void* allocate(int device, size_t bytes);
void deallocate(void* ptr) noexcept;

// Chooses the best instruction set that this CPU and this build have, or the one named by MINITORCH_ISA. Throws
// std::runtime_error if that is unknown or not available.
void select_cpu_slot();

}  // namespace minitorch
