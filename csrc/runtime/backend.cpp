// Choice of the active backend, and checks that hold for all of them.
#include "runtime/backend.h"

#include <dlfcn.h>

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "runtime/environment.h"
#include "runtime/errors.h"
#include "runtime/poison.h"

namespace minitorch {

Backend& cpu_backend();
// Chooses the best instruction set that this CPU and this build have, or the one named by MINITORCH_ISA. Throws
// std::runtime_error if that is unknown or not available. Here alone: called with another backend at work, it would
// replace that one's kernels.
void select_cpu_slot();

namespace {

// The CUDA library lies beside this one when it was built. Null, with the reason, when it cannot serve.
Backend* open_cuda_backend(std::string& reason) {
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&check_device), &self) == 0 || self.dli_fname == nullptr) {
    reason = "the path of libminitorch is not known";
    return nullptr;
  }
  const std::string path = (std::filesystem::path(self.dli_fname).parent_path() / "libminitorch_cuda.so").string();
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = dlerror();
    reason = std::filesystem::exists(path) ? error : "this build has no CUDA library (" + path + ")";
    return nullptr;
  }
  using Entry = Backend* (*)(const char**);
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "minitorch_cuda_backend"));
  const char* why = "it has no entry point";
  Backend* const found = entry ? entry(&why) : nullptr;
  if (found == nullptr) reason = why;
  return found;
}

Backend& choose_backend() {
  const BackendChoice choice = environment().backend;
  if (choice != BackendChoice::cpu) {
    std::string reason;
    if (Backend* const cuda = open_cuda_backend(reason)) return *cuda;
    if (choice == BackendChoice::cuda)
      throw std::runtime_error("MINITORCH_BACKEND=cuda was asked for, but there is no CUDA backend: " + reason);
    // Where NVIDIA's driver is loaded, somebody expects the GPU to be used.
    if (std::filesystem::exists("/proc/driver/nvidia/version"))
      std::fprintf(stderr, "minitorch: the device runs on the CPU, because there is no CUDA backend: %s\n",
                   reason.c_str());
  }
  select_cpu_slot();
  return cpu_backend();
}

}  // namespace

Backend& backend() {
  static Backend& chosen = choose_backend();
  return chosen;
}

Stream Backend::external_stream(int, void*) {
  throw std::runtime_error(std::string("minitorch: the ") + name() + " backend has no streams but its own");
}

void Backend::copy_between(void* to, const void* from, int, size_t bytes, Stream stream) {
  copy_bytes(to, from, bytes, stream);
}

void check_device(int device) {
  const int count = backend().device_count();
  if (device >= 0 && device < count) return;
  std::string present = "minitorch:0";
  if (count > 1) present += " to minitorch:" + std::to_string(count - 1);
  throw InvalidDevice("minitorch error: invalid device ordinal: minitorch:" + std::to_string(device) +
                      " was asked for, but " + (count == 1 ? "1 device is" : std::to_string(count) + " devices are") +
                      " present (" + present + ")");
}

void synchronize(int device) {
  check_device(device);
  backend().synchronize_device(device);
  throw_if_memory_was_damaged();
}

std::string format_bytes(size_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " bytes";
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  for (; value >= 1024 && unit < 3; unit++) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f %s", value, kUnits[unit]);
  return text;
}

}  // namespace minitorch
