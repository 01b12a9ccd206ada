// NVIDIA GPUs as devices. libminitorch opens this library at run time and asks minitorch_cuda_backend() for the
// backend; it answers null, with the reason, when there is no usable GPU.
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/kernel.h"
#include "runtime/backend.h"
#include "runtime/cuda/architectures.h"
#include "runtime/cuda/cuda.h"
#include "runtime/cuda/installed.h"
#include "runtime/cuda/virtual_memory.h"
#include "runtime/environment.h"
#include "runtime/errors.h"

namespace minitorch {
namespace {

constexpr int kMaxDevices = 64;
constexpr int64_t kPoolSize = 32;  // streams of each priority that a device hands out in turn, as PyTorch has it

struct CudaEvent final : Event {
  cudaEvent_t handle = nullptr;
  bool recorded = false;
};

thread_local std::array<int64_t, kMaxDevices> current_streams{};

using cuda::ScopedDevice;

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int count) : count_(count) {
    for (int d = 0; d < count; d++) streams_.push_back(std::make_unique<Streams>());
  }

  const char* name() const noexcept override { return "cuda"; }
  int device_count() const noexcept override { return count_; }
  DeviceProperties properties(int device) const override {
    check_device(device);
    return facts(device).properties;
  }
  bool in_use() const noexcept override { return cuda::driver_in_use(); }
  bool host_accessible() const noexcept override { return false; }
  bool synchronous() const noexcept override { return false; }

  int current_device() const noexcept override {
    int device = 0;
    // Asking would initialise the driver, before which it is the first one.
    if (facts_known_.load(std::memory_order_relaxed) || cuda::driver_in_use()) cudaGetDevice(&device);
    return device;
  }
  void set_device(int device) override {
    check_device(device);
    cuda::check(cudaSetDevice(device), "changing the device");
  }

  Stream current_stream(int device) const noexcept override { return {device, current_streams[device]}; }
  Stream exchange_stream(Stream stream) override {
    check_device(stream.device);
    const Stream previous = current_stream(stream.device);
    current_streams[stream.device] = stream.id;
    return previous;
  }
  // Streams are made when first asked for; stream id 2 * index + priority bit, index 0 being the default stream.
  Stream pooled_stream(int device, bool high_priority) override {
    check_device(device);
    Streams& s = *streams_[device];
    const std::lock_guard lock(s.mutex);
    std::vector<int64_t>& pool = s.pools[high_priority];
    if (static_cast<int64_t>(pool.size()) < kPoolSize) {
      pool.push_back(create_stream(s, device, high_priority));
      return {device, pool.back()};
    }
    return {device, pool[s.turn[high_priority]++ % kPoolSize]};
  }
  // The same handle makes the same stream. Its index goes on counting with ours.
  Stream external_stream(int device, void* stream) override {
    check_device(device);
    const auto native = static_cast<cudaStream_t>(stream);
    if (native == nullptr) return {device, 0};
    Streams& s = *streams_[device];
    const std::lock_guard lock(s.mutex);
    for (const int64_t id : s.external)
      if (s.handles[id / 2 - 1] == native) return {device, id};
    const ScopedDevice scope(device);
    int priority = 0;
    cuda::check(cudaStreamGetPriority(native, &priority), "asking a stream for its priority");
    s.handles.push_back(native);
    s.external.push_back(2 * static_cast<int64_t>(s.handles.size()) + (priority < 0));
    return {device, s.external.back()};
  }
  void* stream_handle(Stream stream) const override { return handle(stream); }
  // The default stream's handle, null, means that of the current device: hence the scopes here and below.
  bool query_stream(Stream stream) override {
    const ScopedDevice scope(stream.device);
    return finished(cudaStreamQuery(handle(stream)), "querying a stream");
  }
  void synchronize_stream(Stream stream) override {
    const ScopedDevice scope(stream.device);
    cuda::check(cudaStreamSynchronize(handle(stream)), "synchronising a stream");
    cuda::raise_fault();
  }
  void synchronize_device(int device) override {
    const ScopedDevice scope(device);
    cuda::check(cudaDeviceSynchronize(), "synchronising a device");
    cuda::raise_fault();
  }

  Event* create_event(int device, bool timing) override {
    const ScopedDevice scope(device);
    auto event = std::make_unique<CudaEvent>();
    event->device = device;
    event->timing = timing;
    cuda::check(cudaEventCreateWithFlags(&event->handle, timing ? cudaEventDefault : cudaEventDisableTiming),
                "creating an event");
    return event.release();
  }
  void destroy_event(Event* event) noexcept override {
    auto* e = static_cast<CudaEvent*>(event);
    cudaEventDestroy(e->handle);
    delete e;
  }
  void record_event(Event* event, Stream stream) override {
    auto* e = static_cast<CudaEvent*>(event);
    const ScopedDevice scope(stream.device);
    cuda::check(cudaEventRecord(e->handle, handle(stream)), "recording an event");
    e->recorded = true;
  }
  void wait_event(Event* event, Stream stream) override {
    const ScopedDevice scope(stream.device);
    cuda::check(cudaStreamWaitEvent(handle(stream), static_cast<CudaEvent*>(event)->handle), "waiting for an event");
  }
  bool query_event(Event* event) override {
    return finished(cudaEventQuery(static_cast<CudaEvent*>(event)->handle), "querying an event");
  }
  void synchronize_event(Event* event) override {
    cuda::check(cudaEventSynchronize(static_cast<CudaEvent*>(event)->handle), "synchronising an event");
    cuda::raise_fault();
  }
  double elapsed_ms(Event* start, Event* end) override {
    auto *a = static_cast<CudaEvent*>(start), *b = static_cast<CudaEvent*>(end);
    if (!a->timing || !b->timing)
      throw std::runtime_error("Both events must be created with argument 'enable_timing=True'.");
    if (!a->recorded || !b->recorded)
      throw std::runtime_error("Both events must be recorded before calculating elapsed time.");
    float ms = 0;
    cuda::check(cudaEventElapsedTime(&ms, a->handle, b->handle), "measuring the time between events");
    return ms;
  }

  void* system_allocate(int device, size_t bytes) noexcept override {
    int previous = 0;
    void* ptr = nullptr;
    cudaGetDevice(&previous);
    cudaSetDevice(device);
    if (cudaMalloc(&ptr, bytes) != cudaSuccess) {
      cudaGetLastError();
      ptr = nullptr;
    }
    cudaSetDevice(previous);
    return ptr;
  }
  void system_free(int, void* ptr, size_t) noexcept override { cudaFree(ptr); }
  bool system_decommit(int device, void* ptr, size_t bytes) noexcept override {
    return cuda::decommit(device, ptr, bytes);
  }
  void* reserve_addresses(int, size_t bytes) noexcept override { return cuda::reserve_addresses(bytes); }
  void release_addresses(int, void* ptr, size_t bytes) noexcept override { cuda::release_addresses(ptr, bytes); }
  bool system_commit(int device, void* ptr, size_t bytes) noexcept override { return cuda::commit(device, ptr, bytes); }
  MemoryInfo memory_info(int device) const override {
    check_device(device);
    const ScopedDevice scope(device);
    MemoryInfo info;
    cuda::check(cudaMemGetInfo(&info.free, &info.total), "reading the free memory");
    return info;
  }
  void* host_allocate(size_t bytes) noexcept override {
    void* ptr = nullptr;
    if (cudaHostAlloc(&ptr, bytes, cudaHostAllocPortable) == cudaSuccess) return ptr;
    cudaGetLastError();
    return nullptr;
  }
  void host_free(void* ptr, size_t) noexcept override { cudaFreeHost(ptr); }
  bool host_pinned(const void* ptr) const noexcept override {
    cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, ptr) == cudaSuccess) return attributes.type == cudaMemoryTypeHost;
    cudaGetLastError();
    return false;
  }

  void fill_bytes(void* ptr, unsigned char value, size_t bytes, Stream stream) override {
    const ScopedDevice scope(stream.device);
    cuda::check(cudaMemsetAsync(ptr, value, bytes, handle(stream)), "filling memory");
  }
  void copy_bytes(void* to, const void* from, size_t bytes, Stream stream) override {
    const ScopedDevice scope(stream.device);
    cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle(stream)), "copying memory");
  }
  void copy_to_host(void* host, const void* device_ptr, size_t bytes, Stream stream) override {
    const ScopedDevice scope(stream.device);
    cuda::check(cudaMemcpyAsync(host, device_ptr, bytes, cudaMemcpyDeviceToHost, handle(stream)),
                "copying to the host");
    synchronize_stream(stream);
  }
  // Directly where the devices can reach each other; the driver goes by way of the host where they cannot.
  void copy_between(void* to, const void* from, int from_device, size_t bytes, Stream stream) override {
    const ScopedDevice scope(stream.device);
    enable_peer(stream.device, from_device);
    cuda::check(cudaMemcpyPeerAsync(to, stream.device, from, from_device, bytes, handle(stream)),
                "copying between devices");
  }
  bool can_access_peer(int device, int peer) const override { return cuda::reaches(device, peer); }

  // Streams can be made of any numbers (torch.Stream(stream_id=...)).
  cudaStream_t handle(Stream stream) const {
    if (stream.id == 0) return nullptr;
    if (stream.device < 0 || stream.device >= count_) check_device(stream.device);
    Streams& s = *streams_[stream.device];
    const std::lock_guard lock(s.mutex);
    const auto index = static_cast<uint64_t>(stream.id / 2 - 1);
    if (index >= s.handles.size())
      throw std::runtime_error("minitorch: minitorch:" + std::to_string(stream.device) + " has no stream with the id " +
                               std::to_string(stream.id));
    return s.handles[index];
  }

  struct Facts {
    DeviceProperties properties;
    int threads_per_multiprocessor;
  };
  // Read when first asked for, since that initialises the driver.
  const Facts& facts(int device) const {
    if (!facts_known_.load(std::memory_order_acquire)) read_facts();
    return facts_[device];
  }

 private:
  void read_facts() const {
    const std::lock_guard lock(facts_mutex_);
    if (facts_known_.load(std::memory_order_relaxed)) return;
    std::vector<Facts> found;
    for (int d = 0; d < count_; d++) {
      cudaDeviceProp p;
      cuda::check(cudaGetDeviceProperties(&p, d), "reading device properties");
      DeviceProperties properties;
      properties.name = p.name;
      properties.backend = name();
      properties.isa = "sm_" + std::to_string(p.major) + std::to_string(p.minor);
      properties.total_memory = static_cast<int64_t>(p.totalGlobalMem);
      properties.multi_processor_count = p.multiProcessorCount;
      properties.major = p.major;
      properties.minor = p.minor;
      found.push_back({properties, p.maxThreadsPerMultiProcessor});
    }
    facts_ = std::move(found);
    facts_known_.store(true, std::memory_order_release);
  }

  struct Streams {
    std::mutex mutex;
    std::vector<cudaStream_t> handles;  // by index - 1
    std::vector<int64_t> pools[2];      // stream ids by priority
    std::vector<int64_t> external;      // stream ids
    uint64_t turn[2] = {};
  };

  // Lets `device`, the current one, reach the memory of `peer`, once.
  void enable_peer(int device, int peer) {
    const std::lock_guard lock(peers_mutex_);
    bool& asked = peers_[{device, peer}];
    if (asked) return;
    asked = true;
    if (!can_access_peer(device, peer)) return;
    const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
    cudaGetLastError();
    if (error != cudaErrorPeerAccessAlreadyEnabled) cuda::check(error, "enabling access to another device");
  }

  static int64_t create_stream(Streams& s, int device, bool high_priority) {
    const ScopedDevice scope(device);
    cudaStream_t stream;
    cuda::check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, high_priority ? -1 : 0),
                "creating a stream");
    s.handles.push_back(stream);
    return 2 * static_cast<int64_t>(s.handles.size()) + high_priority;
  }

  static bool finished(cudaError_t error, const char* what) {
    if (error == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    cuda::check(error, what);
    return true;
  }

  const int count_;
  mutable std::mutex facts_mutex_;
  mutable std::atomic<bool> facts_known_ = false;
  mutable std::vector<Facts> facts_;
  std::vector<std::unique_ptr<Streams>> streams_;
  std::mutex peers_mutex_;
  std::map<std::pair<int, int>, bool> peers_;  // whether access was asked for
};

CudaBackend* instance = nullptr;
// Whether this process was forked from one in which the driver was in use, by whomever.
bool used_before_fork = false, in_bad_fork = false;

}  // namespace

namespace cuda {

cudaStream_t current_stream() { return instance->handle(instance->current_stream(instance->current_device())); }

int multiprocessors() { return instance->facts(instance->current_device()).properties.multi_processor_count; }

bool reaches(int device, int peer) noexcept {
  int can = 0;
  if (device == peer || !environment().peer_access) return false;
  if (cudaDeviceCanAccessPeer(&can, device, peer) == cudaSuccess) return can != 0;
  cudaGetLastError();
  return false;
}

int threads_per_multiprocessor() { return instance->facts(instance->current_device()).threads_per_multiprocessor; }

void fail(cudaError_t error, const char* what) {
  cudaGetLastError();  // forget it: the next call must not see this error again
  if (error == cudaErrorInitializationError && in_bad_fork)
    throw std::runtime_error(
        "Cannot use a GPU in a forked subprocess. To use minitorch with multiprocessing, you must use the 'spawn' "
        "start "
        "method");
  const std::string text = std::string("minitorch: ") + what + " failed: " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) out_of_memory(text);
  throw std::runtime_error(text);
}

void read_back(void* to, const void* from, int64_t bytes, const char* what) {
  const cudaStream_t stream = current_stream();
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream), what);
  check(cudaStreamSynchronize(stream), what);
  raise_fault();
}

void check_launch(const char* kernel, const char* which) {
  static const bool blocking = environment().launch_blocking;
  cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess && blocking) error = cudaStreamSynchronize(current_stream());
  if (error != cudaSuccess) fail(error, which == nullptr ? kernel : (std::string(kernel) + ' ' + which).c_str());
  if (blocking) raise_own_fault();
}

}  // namespace cuda
}  // namespace minitorch

namespace minitorch {
namespace {

std::string about_driver() {
  const auto version = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0) return "no NVIDIA driver is installed";
  return "the NVIDIA driver is too old: it serves CUDA " + version(driver) + ", this build needs " + version(runtime);
}

// Empty if any of the GPUs finds code that it can run.
std::string about_architectures(const CudaBackend& backend) {
  for (int d = 0; d < backend.device_count(); d++) {
    const DeviceProperties& p = backend.facts(d).properties;
    if (cuda::has_code_for(MINITORCH_CUDA_ARCHS, p.major, p.minor)) return "";
  }
  const DeviceProperties& p = backend.facts(0).properties;
  return "this build has no code for " + p.name + " (compute capability " + std::to_string(p.major) + "." +
         std::to_string(p.minor) + "); it was made for the architectures " MINITORCH_CUDA_ARCHS;
}

// Lives as long as the process.
Backend* begin_with(std::unique_ptr<CudaBackend> made) {
  instance = made.release();
  pthread_atfork([] { used_before_fork = cuda::driver_in_use(); }, nullptr, [] { in_bad_fork |= used_before_fork; });
  active_slot = Slot::cuda;
  return instance;
}

}  // namespace
}  // namespace minitorch

// Null when there is no GPU to use; then *reason says why, in a sentence that outlives the call.
extern "C" minitorch::Backend* minitorch_cuda_backend(const char** reason) {
  using namespace minitorch;
  static std::string why;
  if (instance != nullptr) return instance;
  const cuda::InstalledGpus known = cuda::installed_gpus(CUDART_VERSION / 1000);
  if (known.count > 0 && cuda::has_code_for(MINITORCH_CUDA_ARCHS, known.major, known.minor))
    return begin_with(std::make_unique<CudaBackend>(std::min(known.count, kMaxDevices)));
  int count = 0;  // the driver knows more, or why not
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    why = error == cudaSuccess                   ? "no NVIDIA GPU was found"
          : error == cudaErrorInsufficientDriver ? about_driver()
                                                 : cudaGetErrorString(error);
  } else {
    try {
      auto made = std::make_unique<CudaBackend>(std::min(count, kMaxDevices));
      why = about_architectures(*made);
      if (why.empty()) return begin_with(std::move(made));
    } catch (const std::exception& failure) {  // a GPU that is there and does not answer
      why = failure.what();
    }
  }
  *reason = why.c_str();
  return nullptr;
}
