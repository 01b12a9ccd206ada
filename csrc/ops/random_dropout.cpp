// native_dropout, and the minitorch:: dropout operators that its autograd Function calls.
//
// dropout_forward returns the output and the generator's state before the draws; dropout_backward draws the same mask
// again from that state, in the output's memory order. So nothing of the input's size is kept for the backward pass.
#include <ATen/TensorIterator.h>
#include <torch/library.h>

#include "bridge/generator.h"
#include "bridge/iterator.h"
#include "bridge/tensor.h"
#include "kernels/dropout.h"

namespace minitorch {
namespace {

at::TensorIterator iterate(std::initializer_list<at::Tensor> outputs, const at::Tensor& input) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).resize_outputs(false);
  for (const at::Tensor& t : outputs) config.add_output(t);
  return config.add_const_input(input).build();
}

void check_floating(const at::Tensor& input) {
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(input.scalar_type()), "\"dropout\" not implemented for '",
                              toString(input.scalar_type()), "'");
}

// The factor of native's `noise.div_(1 - p)`: computed in the input's own precision.
double noise_scale(double p, at::ScalarType type) {
  const double keep = 1. - p;
  if (type == at::kDouble) return 1. / keep;
  const float scale = 1.0f / static_cast<float>(keep);
  if (type == at::kBFloat16) return BFloat16(scale);
  if (type == at::kHalf) return Half(scale);
  return scale;
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  if (input.numel() == 0) return {input, at::empty_like(input, input.options())};
  at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  if (train.has_value() && !*train) return {input.clone(), mask.fill_(1)};
  const double keep = 1. - p;
  if (!at::isFloatingType(input.scalar_type())) {  // native's steps, some of which raise its errors
    mask.bernoulli_(keep);
    return {input.mul(mask).mul_(keep == 0 ? 0. : 1. / keep), mask};
  }
  TORCH_CHECK(keep >= 0 && keep <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", keep);
  at::Tensor output = at::empty_like(input);
  auto iter = iterate({output, mask}, input);
  DeviceGenerator* g = generator_or_default(std::nullopt);
  const std::lock_guard lock(g->mutex_);
  dropout_kernel(g->state, view_of(iter), keep, keep == 0 ? 0. : 1. / keep, nullptr);
  return {output, mask};
}

at::Tensor native_dropout_backward(const at::Tensor& grad, const at::Tensor& mask, double scale) {
  const at::Tensor kept = grad.mul(mask);
  return at::isIntegralType(kept.scalar_type(), /*includeBool=*/true) ? kept.mul(scale) : kept.mul_(scale);
}

std::tuple<at::Tensor, at::Tensor> dropout_forward(const at::Tensor& input, double p) {
  check_floating(input);
  at::Tensor output = at::empty_like(input), saved = empty({kDropoutStateBytes}, at::kByte);
  auto iter = iterate({output}, input);
  DeviceGenerator* g = generator_or_default(std::nullopt);
  const std::lock_guard lock(g->mutex_);
  dropout_kernel(g->state, view_of(iter), 1. - p, noise_scale(p, input.scalar_type()),
                 static_cast<char*>(saved.data_ptr()));
  return {output, saved};
}

at::Tensor dropout_backward(const at::Tensor& grad, const at::Tensor& saved, at::IntArrayRef strides, double p) {
  at::Tensor output = empty_strided(grad.sizes(), strides, grad.scalar_type());
  auto iter = iterate({output}, grad);
  dropout_again_kernel(static_cast<const char*>(saved.const_data_ptr()), view_of(iter), 1. - p,
                       noise_scale(p, grad.scalar_type()));
  return output;
}

std::tuple<at::Tensor, at::Tensor> dropout_forward_meta(const at::Tensor& input, double) {
  return {at::empty_like(input), at::empty({kDropoutStateBytes}, input.options().dtype(at::kByte))};
}

at::Tensor dropout_backward_meta(const at::Tensor& grad, const at::Tensor&, c10::SymIntArrayRef strides, double) {
  return at::empty_strided_symint(grad.sym_sizes(), strides, grad.options());
}

TORCH_LIBRARY_FRAGMENT(minitorch, m) {
  m.def("dropout_forward(Tensor input, float p) -> (Tensor, Tensor)",
        {at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded});
  m.def("dropout_backward(Tensor grad, Tensor saved, SymInt[] strides, float p) -> Tensor",
        {at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(minitorch, PrivateUse1, m) {
  m.impl("dropout_forward", TORCH_FN(dropout_forward));
  m.impl("dropout_backward", TORCH_FN(dropout_backward));
}
TORCH_LIBRARY_IMPL(minitorch, Meta, m) {
  m.impl("dropout_forward", TORCH_FN(dropout_forward_meta));
  m.impl("dropout_backward", TORCH_FN(dropout_backward_meta));
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_dropout", TORCH_FN(native_dropout));
  m.impl("native_dropout_backward", TORCH_FN(native_dropout_backward));
}

}  // namespace
}  // namespace minitorch
