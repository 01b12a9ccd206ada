// Read-modify-write of one element of any type in device memory, by compare and swap.
#pragma once
#include "kernels/cuda/launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {

// *p = f(*p). Elements of less than four bytes change inside the aligned word that holds them.
template <class T, class F>
__device__ void atomic_update(T* p, const F& f) {
  if constexpr (sizeof(T) == 8) {
    auto* word = reinterpret_cast<unsigned long long*>(p);
    unsigned long long seen = *word, expected;
    do {
      expected = seen;
      T value;
      memcpy(&value, &expected, 8);
      value = f(value);
      unsigned long long desired;
      memcpy(&desired, &value, 8);
      seen = atomicCAS(word, expected, desired);
    } while (seen != expected);
  } else {
    static_assert(sizeof(T) <= 4);
    const auto address = reinterpret_cast<uintptr_t>(p);
    auto* word = reinterpret_cast<unsigned*>(address & ~uintptr_t{3});
    const unsigned shift = (address & 3) * 8;
    const unsigned mask = sizeof(T) == 4 ? ~0u : ((1u << (sizeof(T) * 8 % 32)) - 1) << shift;
    unsigned seen = *word, expected;
    do {
      expected = seen;
      const unsigned bits = (expected & mask) >> shift;
      T value;
      memcpy(&value, &bits, sizeof(T));
      value = f(value);
      unsigned result = 0;
      memcpy(&result, &value, sizeof(T));
      seen = atomicCAS(word, expected, (expected & ~mask) | (result << shift & mask));
    } while (seen != expected);
  }
}

// *p += value; 16-bit floats add in float, integers wrap, bool is a disjunction.
template <class T>
__device__ void atomic_add(T* p, T value) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    atomicAdd(p, value);
  } else if constexpr (is_complex_v<T> && sizeof(T) > 4) {
    atomicAdd(&p->re, value.re);
    atomicAdd(&p->im, value.im);
  } else if constexpr (std::is_same_v<T, int32_t> || std::is_same_v<T, uint32_t>) {
    atomicAdd(reinterpret_cast<unsigned*>(p), static_cast<unsigned>(value));
  } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t>) {
    atomicAdd(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(value));
  } else {
    atomic_update(p, [&](T old) {
      if constexpr (std::is_same_v<T, bool>) {
        return old || value;
      } else {
        return convert<T>(convert<compute_t<T>>(old) + convert<compute_t<T>>(value));
      }
    });
  }
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
