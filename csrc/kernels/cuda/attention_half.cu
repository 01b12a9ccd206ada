// Launches of the tensor-core kernels of attention_half.cuh.
#include "kernels/cuda/attention_half.h"

#include "kernels/cuda/attention_half.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {
namespace {

constexpr int kStep = 64;

bool fits(const AttentionArgs& a) {
  return is_half(a.dtype) && std::max(a.head_dim, a.value_dim) <= 128 && a.q.column == 1 && a.k.column == 1 &&
         a.v.column == 1 && a.batch * a.heads <= 65535;
}

template <class Kernel, class... Rest>
void start(Kernel kernel, int64_t blocks, int64_t heads, int threads, int bytes, const Rest&... rest) {
  launch_kernel(kernel, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(heads)), threads, bytes, rest...);
}

}  // namespace

bool attention_half_forward(const AttentionArgs& a, const AttentionOperand& out, float* lse) {
  if (!fits(a)) return false;
  if (attention_hopper_forward(a, out, lse)) return true;
  half_by_shape(a, [&](auto tag, auto columns, auto drops) {
    using S = typename decltype(tag)::type;
    constexpr int D = decltype(columns)::value, kWarps = 4, kTiles = 2;
    using Shape = attention::ForwardShape<S, D, kStep, kWarps, kTiles>;
    start(&attention::forward_kernel<S, D, kStep, kWarps, kTiles, decltype(drops)::value>,
          ceil_div(a.queries, Shape::kQueries), a.batch * a.heads, kWarps * 32, Shape::kBytes, a, out, lse);
  });
  return true;
}

bool attention_half_backward(const AttentionArgs& a, const AttentionGradients& g, const float* delta) {
  if (!fits(a) || g.grad_out.column != 1) return false;
  half_by_shape(a, [&](auto tag, auto columns, auto drops) {
    using S = typename decltype(tag)::type;
    constexpr bool kDrops = decltype(drops)::value;
    constexpr int D = decltype(columns)::value, kThreadCount = attention::kBackwardWarps * 32;
    constexpr int bytes = attention::BackwardShape<S, D, kStep>::kBytes;
    if (a.queries > 0)
      start(&attention::query_gradient<S, D, kStep, kDrops>, ceil_div(a.queries, attention::kBackwardRows),
            a.batch * a.heads, kThreadCount, bytes, a, g, delta);
    if (a.keys > 0)
      start(&attention::key_gradient<S, D, kStep, kDrops>, ceil_div(a.keys, attention::kBackwardRows),
            a.batch * a.kv_heads, kThreadCount, bytes, a, g, delta);
  });
  return true;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
