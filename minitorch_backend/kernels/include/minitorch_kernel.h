// What a kernel of a user's own sees: the arguments of an operator as plain structs, and a parallel loop. C++ and CUDA.
//
// The compiler is called once for each dtype, with `scalar_t` defined as the element type of the first tensor argument,
// or, for a pointwise operator, as what its operands are promoted to (BFloat16 and Half convert to and from float), and
// `opmath_t` as the type to compute in: float for 16-bit elements.
#pragma once
#ifdef _OPENMP
#include <omp.h>
#endif

#include <cstdint>
#if !defined(__CUDACC_RTC__)  // which has no C++ library and compiles no host code
#include <atomic>
#include <exception>
#include <stdexcept>
#endif

#include "core/half.h"

namespace minitorch {

constexpr int kMaxDim = 12;

// A tensor. Sizes and strides count elements. An optional tensor that was not given has data == nullptr and numel == 0.
struct Tensor {
  void* data;
  int64_t numel;
  int32_t dtype;  // c10::ScalarType's number
  int32_t dim;
  int64_t sizes[kMaxDim];
  int64_t strides[kMaxDim];

  template <class T>
  MT_HOST_DEVICE T* ptr() const {
    return static_cast<T*>(data);
  }
  // Negative dimensions count from the end; a 0-dim tensor has one of size 1.
  MT_HOST_DEVICE int64_t size(int64_t d) const { return dim == 0 ? 1 : sizes[d < 0 ? d + dim : d]; }
  MT_HOST_DEVICE int64_t stride(int64_t d) const { return dim == 0 ? 1 : strides[d < 0 ? d + dim : d]; }
};

// An int[] argument.
struct IntList {
  int64_t size;
  int64_t values[kMaxDim];
  MT_HOST_DEVICE int64_t operator[](int64_t i) const { return values[i]; }
};

// Calls f(begin, end) on parts of [0, n) of at least `grain` iterations, on as many threads as torch may use.
// The first exception that a part throws is rethrown after all parts have ended.
template <class F>
void parallel_for(int64_t n, int64_t grain, const F& f) {
  const int64_t parts = grain > 0 ? (n + grain - 1) / grain : n;
#ifdef _OPENMP
  std::exception_ptr error;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
#pragma omp parallel if (parts > 1)
  {
    const int64_t count = omp_get_num_threads() < parts ? omp_get_num_threads() : parts, id = omp_get_thread_num();
    try {
      if (id < count) f(n * id / count, n * (id + 1) / count);
    } catch (...) {
      if (!failed.test_and_set()) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
#else
  (void)parts;
  f(int64_t{0}, n);
#endif
}

}  // namespace minitorch
