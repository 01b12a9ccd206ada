// Memory for the operands of kernels under test: host memory that the active backend's kernels can reach. On CUDA it is
// pinned, so the same test reads what a kernel wrote; run with MINITORCH_LAUNCH_BLOCKING=1, which test_main.cpp sets.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <vector>

#include "runtime/backend.h"

namespace minitorch {

template <class T>
struct KernelMemory {
  using value_type = T;
  KernelMemory() = default;
  template <class U>
  KernelMemory(const KernelMemory<U>&) {}
  T* allocate(size_t n) {
    if (backend().host_accessible()) return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t{64}));
    return static_cast<T*>(backend().host_allocate(n * sizeof(T)));
  }
  void deallocate(T* p, size_t n) {
    if (backend().host_accessible()) {
      ::operator delete(p, std::align_val_t{64});
    } else {
      backend().host_free(p, n * sizeof(T));
    }
  }
  template <class U>
  bool operator==(const KernelMemory<U>&) const {
    return true;
  }
};

template <class T>
using Vector = std::vector<T, KernelMemory<T>>;

// Fewer sizes, for tools that make every launch slow.
inline bool short_tests() {
  const char* const asked = std::getenv("MINITORCH_SHORT_TESTS");
  return asked != nullptr && *asked == '1';
}

// For tests of what only the CPU's kernels do, or only CUDA's.
#define MT_CPU_ONLY() \
  if (!backend().host_accessible()) GTEST_SKIP() << "a property of the CPU's kernels"
#define MT_CUDA_ONLY() \
  if (backend().host_accessible()) GTEST_SKIP() << "a property of CUDA's kernels"

}  // namespace minitorch
