// Reductions of a contiguous run. A plain loop over floats keeps the order of its additions and so never vectorises; these
// keep a vector of partial results.
#pragma once
#include <cstdint>
#include <limits>

#include "core/macros.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

template <class T>
struct Lanes {
  static constexpr int count = 64 / sizeof(T);
  typedef T Vector __attribute__((vector_size(64), aligned(alignof(T)), may_alias));
};

// The largest element; NaNs are passed over. Minus infinity for an empty run.
template <class T>
MT_INLINE T lane_max(const T* x, int64_t n) {
  using V = typename Lanes<T>::Vector;
  constexpr int lanes = Lanes<T>::count;
  T largest = -std::numeric_limits<T>::infinity();
  int64_t i = 0;
  if (n >= lanes) {
    V a = V{} + largest, b = a;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      const V u = *reinterpret_cast<const V*>(x + i), v = *reinterpret_cast<const V*>(x + i + lanes);
      a = u > a ? u : a;
      b = v > b ? v : b;
    }
    a = b > a ? b : a;
    for (int l = 0; l < lanes; l++) largest = a[l] > largest ? a[l] : largest;
  }
  for (; i < n; i++) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

template <class T>
MT_INLINE T lane_sum(const T* x, int64_t n) {
  using V = typename Lanes<T>::Vector;
  constexpr int lanes = Lanes<T>::count;
  T sum = 0;
  int64_t i = 0;
  if (n >= lanes) {
    V a{}, b{};
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      a += *reinterpret_cast<const V*>(x + i);
      b += *reinterpret_cast<const V*>(x + i + lanes);
    }
    a += b;
    for (int l = 0; l < lanes; l++) sum += a[l];
  }
  for (; i < n; i++) sum += x[i];
  return sum;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
