// Reductions of a contiguous run. A plain loop over floats keeps the order of its additions and so never vectorises;
// these keep vectors of partial results.
#pragma once
#include <cstdint>
#include <limits>

#pragma GCC diagnostic ignored "-Wpsabi"  // the vectors never cross a call: everything here is inlined

#include "kernels/cpu/softmax_rows.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {

// Reduces x[0 .. n) from `start` with op, which works on vectors and on scalars.
template <class T, class Op>
MT_INLINE T lane_reduce(const T* x, int64_t n, T start, const Op& op) {
  using R = Row<T>;
  constexpr int64_t lanes = Lane<T>::count;
  typename Lane<T>::V a = typename Lane<T>::V{} + start, b = a;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    a = op(a, R::at(x, i));
    b = op(b, R::at(x, i + lanes));
  }
  if (i + lanes <= n) {
    a = op(a, R::at(x, i));
    i += lanes;
  }
  T result = across<T>(op(a, b), op);
  for (; i < n; i++) result = op(result, x[i]);
  return result;
}

// The largest element; NaNs are passed over. Minus infinity for an empty run.
template <class T>
MT_INLINE T lane_max(const T* x, int64_t n) {
  return lane_reduce(x, n, -std::numeric_limits<T>::infinity(),
                     [](auto m, auto v) __attribute__((always_inline)) { return v > m ? v : m; });
}

template <class T>
MT_INLINE T lane_sum(const T* x, int64_t n) {
  return lane_reduce(x, n, T(0), [](auto s, auto v) __attribute__((always_inline)) { return s + v; });
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
