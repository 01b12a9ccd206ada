// One parallel loop for all CPU kernels, over OpenMP. The symbols resolve to the OpenMP runtime that torch brings, so
// there is one thread pool in the process and torch.set_num_threads holds here too.
#pragma once
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>

#include "core/macros.h"

namespace minitorch {

// Threads a parallel loop may use. The bridge points this at at::get_num_threads; alone it is OpenMP's own figure.
int num_threads();
void set_num_threads_source(int (*source)());

// Elements below which a loop with cheap iterations is not worth a second thread (PyTorch's own figure).
inline constexpr int64_t kGrainSize = 32768;

inline namespace MINITORCH_ARCH {

// So many iterations are worth a thread, when each costs what `cost` elements do (which may be none at all).
inline int64_t grain_of(int64_t cost) {
  const int64_t iterations = cost > 0 ? kGrainSize / cost : kGrainSize;
  return iterations > 0 ? iterations : 1;
}

// Calls f(begin, end) on disjoint chunks that cover [0, n), at least `grain` iterations each, on at most num_threads()
// threads. Runs inline when n <= grain or when already inside a parallel loop. The first exception thrown by a chunk
// is rethrown after all chunks have ended.
template <class F>
inline void parallel_for(int64_t n, int64_t grain, const F& f) {
  if (n <= 0) return;
  const int64_t most = grain > 0 ? (n + grain - 1) / grain : n;
  const int threads = most > 1 && !omp_in_parallel() ? static_cast<int>(std::min<int64_t>(num_threads(), most)) : 1;
  if (threads <= 1) {
    f(int64_t{0}, n);
    return;
  }
  std::exception_ptr error;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
#pragma omp parallel num_threads(threads)
  {
    const int64_t count = omp_get_num_threads(), id = omp_get_thread_num();
    const int64_t begin = n * id / count, end = n * (id + 1) / count;
    if (begin < end) {
      try {
        f(begin, end);
      } catch (...) {
        if (!failed.test_and_set()) error = std::current_exception();
      }
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
