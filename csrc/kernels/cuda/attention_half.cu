// Attention of 16-bit floats on tensor cores.
#include "kernels/cuda/attention_mma_launch.cuh"

namespace minitorch {
inline namespace MINITORCH_ARCH {

using Halves = Types<BFloat16, Half>;

bool attention_half_forward(const AttentionArgs& a, const AttentionOperand& out, float* lse) {
  if (!fits_tiles(a, Halves{})) return false;
  if (!attention_hopper_forward(a, out, lse)) attention::start_forward(a, Halves{}, out, lse);
  return true;
}

bool attention_half_backward(const AttentionArgs& a, const AttentionGradients& g, const float* delta) {
  if (!fits_tiles(a, Halves{}) || g.grad_out.column != 1) return false;
  attention::start_backward(a, Halves{}, g, delta);
  return true;
}

}  // namespace MINITORCH_ARCH
}  // namespace minitorch
