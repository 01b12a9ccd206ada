// Transposes a square of vectors in registers, and takes pairs of numbers apart.
#pragma once
#include <utility>

#include "kernels/cpu/gemm_core.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace gemm {

// One step of the butterfly: the off-diagonal blocks of size kHalf change places between rows a and b.
template <int kHalf, class V, size_t... kLane>
MT_INLINE void exchange_blocks(V& a, V& b, std::index_sequence<kLane...>) {
  constexpr int kWidth = sizeof...(kLane);
  const V low = __builtin_shufflevector(a, b, (kLane & kHalf ? kWidth + static_cast<int>(kLane) - kHalf : kLane)...);
  const V high = __builtin_shufflevector(a, b, (kLane & kHalf ? kWidth + kLane : kLane + kHalf)...);
  a = low;
  b = high;
}

// x[i][j] becomes x[j][i], in log2(width) steps.
template <int kWidth, int kHalf = kWidth / 2, class V>
MT_INLINE void transpose(V* x) {
  if constexpr (kHalf > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; i++)
      if ((i & kHalf) == 0) exchange_blocks<kHalf>(x[i], x[i + kHalf], std::make_index_sequence<kWidth>{});
    transpose<kWidth, kHalf / 2>(x);
  }
}

// Splits two vectors of pairs into their first and their second numbers, and joins them again.
template <class V, size_t... kLane>
MT_INLINE void split_lanes(V& first, V& second, V low, V high, std::index_sequence<kLane...>) {
  first = __builtin_shufflevector(low, high, (2 * static_cast<int>(kLane))...);
  second = __builtin_shufflevector(low, high, (2 * static_cast<int>(kLane) + 1)...);
}
template <class V, size_t... kLane>
MT_INLINE void join_lanes(V& low, V& high, V first, V second, std::index_sequence<kLane...>) {
  constexpr int kCount = sizeof...(kLane);
  low = __builtin_shufflevector(first, second, (static_cast<int>(kLane) / 2 + (kLane % 2 ? kCount : 0))...);
  high =
      __builtin_shufflevector(first, second, (kCount / 2 + static_cast<int>(kLane) / 2 + (kLane % 2 ? kCount : 0))...);
}
template <class V>
using LaneSequence = std::make_index_sequence<sizeof(V) / sizeof(V{}[0])>;
template <class V>
MT_INLINE void split_pairs(V& first, V& second, V low, V high) {
  split_lanes(first, second, low, high, LaneSequence<V>{});
}
template <class V>
MT_INLINE void join_pairs(V& low, V& high, V first, V second) {
  join_lanes(low, high, first, second, LaneSequence<V>{});
}

}  // namespace gemm
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
