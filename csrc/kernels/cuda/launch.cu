// See launch.cuh.
#include "kernels/cuda/launch.cuh"

#include <map>
#include <mutex>

namespace minitorch {
inline namespace MINITORCH_ARCH {

// The limit is a kernel's and not a launch's: it only rises, lest a thread lower what another is about to use.
void allow_shared(const void* kernel, int64_t bytes) {
  if (bytes <= 48 << 10) return;  // which every kernel may have
  static std::mutex mutex;
  static auto& allowed = *new std::map<std::pair<int, const void*>, int64_t>;
  int device = 0;
  cuda::check(cudaGetDevice(&device), "reading the current device");
  const std::lock_guard lock(mutex);
  int64_t& most = allowed[{device, kernel}];
  if (bytes <= most) return;
  cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
              "asking for shared memory");
  most = bytes;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
