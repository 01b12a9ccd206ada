// Fake quantization, as quantization-aware training uses it: PyTorch's checks, and behind its stubs compositions of our
// own operators. 16-bit floats pass through float, and results of double are rounded to it, as native has them.
#include <ATen/TensorIterator.h>
#include <ATen/native/quantized/FakeQuantAffine.h>
#include <ATen/ops/_fake_quantize_learnable_per_channel_affine_backward_native.h>
#include <ATen/ops/_fake_quantize_learnable_per_channel_affine_native.h>
#include <ATen/ops/_fake_quantize_learnable_per_tensor_affine_backward_native.h>
#include <ATen/ops/_fake_quantize_learnable_per_tensor_affine_native.h>
#include <ATen/ops/_fake_quantize_per_tensor_affine_cachemask_tensor_qparams_native.h>
#include <ATen/ops/fake_quantize_per_channel_affine_cachemask_native.h>
#include <ATen/ops/fake_quantize_per_tensor_affine_cachemask_native.h>
#include <torch/library.h>

#include "bridge/operators.h"
#include "bridge/tensor.h"

namespace minitorch {
namespace {

using at::Tensor;
using at::TensorIterator;

Tensor widened(const Tensor& x) { return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat); }

Tensor in_range(const Tensor& q, int64_t low, int64_t high) { return q.ge(low).logical_and_(q.le(high)); }

// Scale and zero point as numbers or as tensors that broadcast with x. q: the quantized values, not yet clamped.
template <class Scale, class Zero>
void fake_quantize(const Tensor& out, const Tensor& mask, const Tensor& q, const Scale& scale, const Zero& zero_point,
                   int64_t low, int64_t high) {
  mask.copy_(in_range(q, low, high));
  out.copy_(q.clamp(low, high).sub_(zero_point).to(at::kFloat).mul_(scale));
}

void per_tensor(Tensor& out, Tensor& mask, const Tensor& x, float scale, int64_t zero_point, int64_t low,
                int64_t high) {
  const Tensor q = widened(x).mul(1.0f / scale).round_().add_(zero_point);
  fake_quantize(out, mask, q, at::Scalar(scale), at::Scalar(zero_point), low, high);
}

// Where *enabled is zero the tensor passes unchanged.
void per_tensor_qparams(Tensor& out, Tensor& mask, const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                        const Tensor& enabled, int64_t low, int64_t high) {
  if (!enabled[0].is_nonzero()) {
    mask.fill_(true);
    out.copy_(x);
    return;
  }
  per_tensor(out, mask, x, scale[0].item<float>(), zero_point[0].item<int64_t>(), low, high);
}

void per_channel(TensorIterator& iter, TensorIterator& iter_mask, int64_t low, int64_t high) {
  const Tensor &x = iter.tensor(1), &scale = iter.tensor(2), &zero_point = iter.tensor(3);
  const Tensor scaled = widened(x).mul(scale.reciprocal());
  // A floating-point zero point is added before rounding.
  const Tensor q = zero_point.is_floating_point() ? scaled.add(zero_point).round_() : scaled.round().add_(zero_point);
  fake_quantize(iter.tensor(0), iter_mask.tensor(0), q, scale, zero_point, low, high);
}

// Gradients by the input, the scale and the zero point (S. Esser et al., "Learned step size quantization", ICLR 2020;
// S. Jain et al., "Trained quantization thresholds", arXiv:1903.08066).
template <class Scale, class Zero>
void learnable_gradients(TensorIterator& iter, const Scale& scale, const Scale& inverse, const Zero& zero_point,
                         int64_t low, int64_t high, float factor) {
  const Tensor x = widened(iter.tensor(3)), dy = widened(iter.tensor(4));
  const Tensor q = x.mul(inverse).round_().add_(zero_point), inside = in_range(q, low, high);
  const Tensor steps = q.clamp(low, high).sub_(zero_point);
  const Tensor by_scale = at::where(inside, steps.mul(scale).sub_(x).mul_(inverse), steps);
  iter.tensor(0).copy_(dy.mul(inside));
  iter.tensor(1).copy_(dy.mul(by_scale).mul_(factor));
  iter.tensor(2).copy_(dy.neg().mul_(scale).mul_(factor).mul_(inside.logical_not()));
}
void learnable_tensor(TensorIterator& iter, float scale, float inverse, int64_t zero_point, int64_t low, int64_t high,
                      float factor) {
  learnable_gradients(iter, at::Scalar(scale), at::Scalar(inverse), at::Scalar(zero_point), low, high, factor);
}
void learnable_channel(TensorIterator& iter, int64_t low, int64_t high, float factor) {
  const Tensor& scale = iter.tensor(5);
  learnable_gradients(iter, scale, scale.reciprocal(), iter.tensor(6), low, high, factor);
}

}  // namespace
}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_tensor_cachemask_stub, &minitorch::per_tensor)
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_tensor_cachemask_tensor_qparams_stub, &minitorch::per_tensor_qparams)
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_per_channel_cachemask_stub, &minitorch::per_channel)
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_grad_learnable_tensor_stub, &minitorch::learnable_tensor)
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_grad_learnable_channel_stub, &minitorch::learnable_channel)
}  // namespace at::native

namespace minitorch {
MT_OPERATORS(aten, PrivateUse1, m) {
#define MT_REGISTER(name) m.impl(#name, TORCH_FN(at::native::name));
  MT_REGISTER(fake_quantize_per_tensor_affine_cachemask)
  MT_REGISTER(fake_quantize_per_channel_affine_cachemask)
  MT_REGISTER(_fake_quantize_per_tensor_affine_cachemask_tensor_qparams)
  MT_REGISTER(_fake_quantize_learnable_per_tensor_affine)
  MT_REGISTER(_fake_quantize_learnable_per_tensor_affine_backward)
  MT_REGISTER(_fake_quantize_learnable_per_channel_affine)
  MT_REGISTER(_fake_quantize_learnable_per_channel_affine_backward)
#undef MT_REGISTER
}
}  // namespace minitorch
