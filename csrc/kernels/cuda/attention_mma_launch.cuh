// Launches of the kernels of attention_mma.cuh: each type's source file has its own, so that they compile side by side.
#pragma once
#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/attention_tensor.h"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace attention {

// What a block holds of both sides has to fit into shared memory, and what a warp holds into registers: floats are
// twice as large, and split into two parts.
template <class S, int D>
constexpr int kStep = std::is_same_v<S, float> && D > 64 ? 32 : 64;
template <class S, int D>
constexpr int kForwardTiles = std::is_same_v<S, float> && D > 64 ? 1 : 2;

// A row of blocks for each head.
template <class Kernel, class... Rest>
void start(Kernel kernel, int64_t rows, int tile, int64_t heads, int warps, int bytes, const Rest&... rest) {
  if (rows == 0) return;
  const dim3 blocks(static_cast<unsigned>(ceil_div(rows, int64_t{tile})), static_cast<unsigned>(heads));
  launch_kernel(kernel, blocks, warps * 32, bytes, rest...);
}

template <class Storage>
void start_forward(const AttentionArgs& a, Storage types, const AttentionOperand& out, float* lse) {
  attention_by_shape(a, types, [&](auto tag, auto columns, auto drops) {
    using S = typename decltype(tag)::type;
    constexpr int D = decltype(columns)::value, kTiles = kForwardTiles<S, D>, kWarps = 8 / kTiles;
    using Shape = ForwardShape<S, D, kStep<S, D>, kWarps, kTiles>;
    start(&forward_kernel<S, D, kStep<S, D>, kWarps, kTiles, decltype(drops)::value>, a.queries, Shape::kQueries,
          a.batch * a.heads, kWarps, Shape::kBytes, a, out, lse);
  });
}

template <class Storage>
void start_backward(const AttentionArgs& a, Storage types, const AttentionGradients& g, const float* delta) {
  attention_by_shape(a, types, [&](auto tag, auto columns, auto drops) {
    using S = typename decltype(tag)::type;
    constexpr int D = decltype(columns)::value, bytes = BackwardShape<S, D, kStep<S, D>>::kBytes;
    constexpr bool kDrops = decltype(drops)::value;
    start(&query_gradient<S, D, kStep<S, D>, kDrops>, a.queries, kBackwardRows, a.batch * a.heads, kBackwardWarps,
          bytes, a, g, delta);
    start(&key_gradient<S, D, kStep<S, D>, kDrops>, a.keys, kBackwardRows, a.batch * a.kv_heads, kBackwardWarps, bytes,
          a, g, delta);
  });
}

}  // namespace attention
}  // namespace MINITORCH_ARCH
}  // namespace minitorch
