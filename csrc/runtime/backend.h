// What the rest of minitorch asks of a machine. One Backend is active in a process: the CPU's, or CUDA's when a GPU is
// present (MINITORCH_BACKEND=cpu|cuda decides by hand).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace minitorch {

// A stream of a device. Id 0 is the device's default stream. Bit 0 of the id of any other stream says that it has high
// priority, so a stream can be carried around as three plain numbers.
struct Stream {
  int device = 0;
  int64_t id = 0;
  bool operator==(const Stream&) const = default;
  // As torch.cuda.Stream has it: -1 is high, 0 is normal.
  int priority() const { return id & 1 ? -1 : 0; }
};

// A point in a stream's work. Backends derive from it; create_event and destroy_event own it.
struct Event {
  int device = 0;
  bool timing = false;
};

struct DeviceProperties {
  std::string name;     // of the processor
  std::string backend;  // Backend::name()
  std::string isa;      // the instruction set or compute capability that kernels run with
  int64_t total_memory = 0;
  int multi_processor_count = 0;  // cores or streaming multiprocessors
  int major = 0, minor = 0;       // compute capability; 0.0 on the CPU
};

struct MemoryInfo {
  size_t free = 0;
  size_t total = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const char* name() const noexcept = 0;  // "cpu" or "cuda"
  virtual int device_count() const noexcept = 0;
  virtual DeviceProperties properties(int device) const = 0;
  // Whether it is used by now in a way that does not survive a fork. Choosing a backend is no such use.
  virtual bool in_use() const noexcept { return false; }
  // True if host code may read and write device memory directly.
  virtual bool host_accessible() const noexcept = 0;
  // True if work is done when the call that asks for it returns. Memory then needs no bookkeeping by stream.
  virtual bool synchronous() const noexcept = 0;

  // The calling thread's current device. set_device throws InvalidDevice for an index that does not exist.
  virtual int current_device() const noexcept = 0;
  virtual void set_device(int device) = 0;

  // Streams. `current_stream` is the calling thread's; `exchange_stream` returns the previous one of that device.
  // `pooled_stream` hands out a fixed set in turn: a program may ask for one in every step.
  virtual Stream current_stream(int device) const noexcept = 0;
  virtual Stream exchange_stream(Stream stream) = 0;
  virtual Stream pooled_stream(int device, bool high_priority) = 0;
  // A stream that other code made, by its native handle (cudaStream_t); the caller keeps it alive. And the handle of a
  // stream, null for the default one.
  virtual Stream external_stream(int device, void* handle);
  virtual void* stream_handle(Stream) const { return nullptr; }
  virtual bool query_stream(Stream stream) = 0;
  virtual void synchronize_stream(Stream stream) = 0;
  virtual void synchronize_device(int device) = 0;

  // Events. An event that was never recorded counts as complete. elapsed_ms throws std::runtime_error unless both
  // events were recorded with timing.
  virtual Event* create_event(int device, bool timing) = 0;
  virtual void destroy_event(Event* event) noexcept = 0;
  virtual void record_event(Event* event, Stream stream) = 0;
  virtual void wait_event(Event* event, Stream stream) = 0;
  virtual bool query_event(Event* event) = 0;
  virtual void synchronize_event(Event* event) = 0;
  virtual double elapsed_ms(Event* start, Event* end) = 0;

  // Memory from the system, without caching: the caching allocator's supply. Null when there is none left.
  virtual void* system_allocate(int device, size_t bytes) noexcept = 0;
  virtual void system_free(int device, void* ptr, size_t bytes) noexcept = 0;
  // Gives the physical pages behind a range back while keeping the addresses. False if the backend cannot.
  virtual bool system_decommit(int device, void* ptr, size_t bytes) noexcept = 0;
  // Address space without memory, and memory for a part of it, both in multiples of 2 MiB; system_decommit gives it
  // back. Null and false where the backend cannot or nothing is left.
  virtual void* reserve_addresses(int /*device*/, size_t /*bytes*/) noexcept { return nullptr; }
  virtual void release_addresses(int /*device*/, void* /*ptr*/, size_t /*bytes*/) noexcept {}
  virtual bool system_commit(int /*device*/, void* /*ptr*/, size_t /*bytes*/) noexcept { return false; }
  virtual MemoryInfo memory_info(int device) const = 0;
  // Host memory that the device can copy from and to asynchronously.
  virtual void* host_allocate(size_t bytes) noexcept = 0;
  virtual void host_free(void* ptr, size_t bytes) noexcept = 0;
  // Whether it is such memory, whoever in this process asked for it.
  virtual bool host_pinned(const void* /*ptr*/) const noexcept { return false; }

  virtual void fill_bytes(void* ptr, unsigned char value, size_t bytes, Stream stream) = 0;
  virtual void copy_bytes(void* to, const void* from, size_t bytes, Stream stream) = 0;            // within the device
  virtual void copy_to_host(void* host, const void* device_ptr, size_t bytes, Stream stream) = 0;  // blocks
  // From one device to another; `stream` is of the device that receives.
  virtual void copy_between(void* to, const void* from, int from_device, size_t bytes, Stream stream);
  // Whether `device` can read and write the memory of `peer`, another device.
  virtual bool can_access_peer(int /*device*/, int /*peer*/) const { return host_accessible(); }
};

// The active backend; the first call chooses it. Throws std::runtime_error if MINITORCH_BACKEND asks for what is not
// there or names something unknown.
Backend& backend();

// The caching allocator in plain pointers. `allocate` returns 64-byte aligned memory of the device for the current
// stream, null for 0 bytes; it throws OutOfMemory when neither the cache nor the system has enough.
void* allocate(int device, size_t bytes);
void deallocate(void* ptr) noexcept;

// Waits for a device and throws std::runtime_error if a check of memory (see poison.h) failed since the last call.
void synchronize(int device);

// Throws InvalidDevice unless 0 <= device < device_count().
void check_device(int device);

}  // namespace minitorch
