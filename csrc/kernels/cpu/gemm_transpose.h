// Transposes a square of vectors in registers.
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

}  // namespace gemm
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
