#include "runtime/cuda/installed.h"

#include <dlfcn.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <set>

namespace minitorch::cuda {
namespace {

constexpr int kNotInitialized = 3;  // CUDA_ERROR_NOT_INITIALIZED
constexpr const char* kDriver = "libcuda.so.1";

// A library opened for a scope, and functions in it by name; null where there is none. Status 0 is success in both.
class Library {
 public:
  Library(const char* name, int more) : handle_(dlopen(name, RTLD_LAZY | RTLD_LOCAL | more)) {}
  ~Library() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  Library(const Library&) = delete;
  template <class... Args>
  bool call(const char* name, Args... args) const {
    return status(name, args...) == 0;
  }
  // -1 where there is no such function.
  template <class... Args>
  int status(const char* name, Args... args) const {
    void* const found = handle_ == nullptr ? nullptr : dlsym(handle_, name);
    return found == nullptr ? -1 : reinterpret_cast<int (*)(Args...)>(found)(args...);
  }

 private:
  void* const handle_;
};

// The version can be asked of a driver that is not initialised.
bool driver_serves(int cuda_major) {
  int version = 0;
  return Library(kDriver, RTLD_NODELETE).call("cuDriverGetVersion", &version) && version / 1000 >= cuda_major;
}

// How many of `count` GPUs CUDA_VISIBLE_DEVICES leaves; 0 for anything but different indices.
int visible(int count) {
  const char* const list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) return count;
  std::set<int> seen;
  const char* const end = list + std::strlen(list);
  for (const char* at = list; at != end;) {
    int index = -1;
    const auto [next, error] = std::from_chars(at, end, index);
    if (error != std::errc() || index < 0 || index >= count || !seen.insert(index).second) return 0;
    if (next != end && (*next != ',' || next + 1 == end)) return 0;
    at = next == end ? next : next + 1;
  }
  return static_cast<int>(seen.size());
}

InstalledGpus listed(const Library& nvml) {
  unsigned count = 0;
  if (!nvml.call("nvmlDeviceGetCount_v2", &count)) return {};
  InstalledGpus found;
  for (unsigned i = 0; i < count; i++) {
    void* gpu = nullptr;
    int major = 0, minor = 0;
    if (!nvml.call("nvmlDeviceGetHandleByIndex_v2", i, &gpu) ||
        !nvml.call("nvmlDeviceGetCudaComputeCapability", gpu, &major, &minor))
      return {};
    unsigned now = 0, pending = 0;
    if (nvml.call("nvmlDeviceGetMigMode", gpu, &now, &pending) && now != 0) return {};
    if (i > 0 && (major != found.major || minor != found.minor)) return {};
    found.major = major, found.minor = minor;
  }
  found.count = visible(static_cast<int>(count));
  return found;
}

}  // namespace

InstalledGpus installed_gpus(int cuda_major, const char* memory_file) {
  if (access(memory_file, R_OK | W_OK) != 0 || !driver_serves(cuda_major)) return {};
  const Library nvml("libnvidia-ml.so.1", RTLD_NODELETE);
  if (!nvml.call("nvmlInit_v2")) return {};
  const InstalledGpus found = listed(nvml);
  nvml.call("nvmlShutdown");
  return found;
}

bool driver_in_use() noexcept {
  int count = 0;
  const int status = Library(kDriver, RTLD_NOLOAD).status("cuDeviceGetCount", &count);
  return status != -1 && status != kNotInitialized;
}

}  // namespace minitorch::cuda
