// Launches of the tensor-core kernels of attention_half.cuh for floats, each product of which is three of tf32.
// Native's kernel for floats (CUTLASS, memory efficient attention) does the same, whatever the precision asked of
// matrix products: what is rounded off is as small as in sums of floats.
#include "kernels/cuda/attention_split.h"

#include "kernels/cuda/attention_half.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

bool fits(const AttentionArgs& a) {
  return a.dtype == DType::F32 && std::max(a.head_dim, a.value_dim) <= 128 && a.q.column == 1 && a.k.column == 1 &&
         a.v.column == 1 && a.batch * a.heads <= 65535;
}

// What a block holds of both sides has to fit into shared memory, and what a warp holds into registers.
constexpr int kStep = 32;

// Calls f(columns of a head rounded up, whether weights are dropped).
template <class F>
void by_shape(const AttentionArgs& a, const F& f) {
  const auto with_columns = [&](auto columns) {
    a.dropout.p > 0 ? f(columns, std::true_type()) : f(columns, std::false_type());
  };
  std::max(a.head_dim, a.value_dim) <= 64 ? with_columns(std::integral_constant<int, 64>{})
                                          : with_columns(std::integral_constant<int, 128>{});
}

// A row of blocks for each head.
template <class Kernel, class... Rest>
void start(Kernel kernel, int64_t rows, int tile, int64_t heads, int warps, int bytes, const Rest&... rest) {
  if (rows == 0) return;
  const dim3 blocks(static_cast<unsigned>(ceil_div(rows, int64_t{tile})), static_cast<unsigned>(heads));
  launch_kernel(kernel, blocks, warps * 32, bytes, rest...);
}

}  // namespace

bool attention_split_forward(const AttentionArgs& a, const AttentionOperand& out, float* lse) {
  if (!fits(a)) return false;
  by_shape(a, [&](auto columns, auto drops) {
    constexpr int D = decltype(columns)::value, kWarps = D == 64 ? 4 : 8, kTiles = D == 64 ? 2 : 1;
    using Shape = attention::ForwardShape<float, D, kStep, kWarps, kTiles>;
    start(&attention::forward_kernel<float, D, kStep, kWarps, kTiles, decltype(drops)::value>, a.queries,
          Shape::kQueries, a.batch * a.heads, kWarps, Shape::kBytes, a, out, lse);
  });
  return true;
}

bool attention_split_backward(const AttentionArgs& a, const AttentionGradients& g, const float* delta) {
  if (!fits(a) || g.grad_out.column != 1) return false;
  by_shape(a, [&](auto columns, auto drops) {
    constexpr bool kDrops = decltype(drops)::value;
    constexpr int D = decltype(columns)::value;
    constexpr int rows = attention::kBackwardRows, warps = attention::kBackwardWarps;
    constexpr int bytes = attention::BackwardShape<float, D, kStep>::kBytes;
    start(&attention::query_gradient<float, D, kStep, kDrops>, a.queries, rows, a.batch * a.heads, warps, bytes, a, g,
          delta);
    start(&attention::key_gradient<float, D, kStep, kDrops>, a.keys, rows, a.batch * a.kv_heads, warps, bytes, a, g,
          delta);
  });
  return true;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
