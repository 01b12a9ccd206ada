// rms_norm as one operator. PyTorch's own derivative of _fused_rms_norm is meant for its GPU kernel: the gradient of
// the gradient rounds the cube of 1 / rms to 16 bits, where it overflows, and tangents come out in float. Here the
// gradient is the kernel's, and where it is to be differentiated in turn, a formula in float; tangents and functorch's
// transforms take the composite.
//
// With r = (mean(x^2) + eps)^(-1/2) and h = grad * weight:  dx = r h - r^3 x mean(h x),  dweight = sum(grad x r).
#include <ATen/OpMathType.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/_fused_rms_norm_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/rms_norm_compositeimplicitautograd_dispatch.h>

#include "autograd/function.h"
#include "bridge/operators.h"
#include "ops/norm_params.h"

namespace minitorch {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<Tensor>;

// The gradients in differentiable operators.
std::tuple<Tensor, Tensor> formula(const Tensor& grad, const Tensor& input, const OptionalTensor& weight,
                                   at::IntArrayRef shape, std::optional<double> eps) {
  const auto compute = at::toOpMathType(input.scalar_type());
  const Tensor x = input.to(compute), g = grad.to(compute);
  std::vector<int64_t> inner(shape.size()), outer(static_cast<size_t>(input.dim()) - shape.size());
  for (size_t d = 0; d < inner.size(); d++) inner[d] = -1 - static_cast<int64_t>(d);
  for (size_t d = 0; d < outer.size(); d++) outer[d] = static_cast<int64_t>(d);
  const Tensor r = (x.square().mean(inner, /*keepdim=*/true) + eps.value_or(rms_norm_eps(compute))).rsqrt();
  const Tensor h = weight ? g * weight->to(compute) : g;
  const Tensor unit = x * r;
  const Tensor dx = r * (h - unit * (h * unit).mean(inner, /*keepdim=*/true));
  Tensor dw;
  if (weight) dw = (outer.empty() ? g * unit : (g * unit).sum(outer)).to(weight->scalar_type());
  return {dx.to(input.scalar_type()), dw};
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& input, const OptionalTensor& weight,
                        const std::vector<int64_t>& shape, std::optional<double> eps) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->set_materialize_grads(false);
    auto [result, rstd] = at::_fused_rms_norm(input, shape, weight, eps);
    ctx->save_for_backward({input, weight.value_or(Tensor()), rstd});
    ctx->saved_data["shape"] = shape;
    ctx->saved_data["eps"] = eps;
    return result;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return variable_list(4);
    const auto saved = ctx->get_saved_variables();
    const OptionalTensor weight = saved[1].defined() ? OptionalTensor(saved[1]) : std::nullopt;
    const auto shape = ctx->saved_data["shape"].toIntVector();
    const auto eps = ctx->saved_data["eps"].toOptional<double>();
    if (at::GradMode::is_enabled()) {
      auto [dx, dw] = formula(grads[0], saved[0], weight, shape, eps);
      return {dx, dw, {}, {}};
    }
    const std::array<bool, 2> wanted{ctx->needs_input_grad(0), weight && ctx->needs_input_grad(1)};
    auto [dx, dw] = at::_fused_rms_norm_backward(grads[0], saved[0], shape, saved[2], weight, wanted);
    return {dx, dw, {}, {}};
  }
};

Tensor entry(const Tensor& input, c10::SymIntArrayRef shape, const OptionalTensor& weight_opt,
             std::optional<double> eps) {
  const OptionalTensor weight = weight_opt.has_value() && weight_opt->defined() ? weight_opt : std::nullopt;
  if (steps_aside(input) || (weight && steps_aside(*weight)))
    return std::get<0>(
        at::compositeimplicitautograd::_fused_rms_norm(input, C10_AS_INTARRAYREF_SLOW(shape), weight, eps));
  const bool fuses = at::isFloatingType(input.scalar_type()) && input.sym_numel() != 0 &&
                     (!weight || weight->scalar_type() == input.scalar_type());
  at::native::_check_rms_norm_inputs_symint(input, shape, weight.value_or(Tensor()));
  const bool learns = input.requires_grad() || (weight && weight->requires_grad());
  if (!fuses || !at::GradMode::is_enabled() || !learns)
    return at::compositeimplicitautograd::rms_norm_symint(input, shape, weight, eps);
  return RmsNorm::apply(input, weight, C10_AS_INTARRAYREF_SLOW(shape).vec(), eps);
}

MT_OPERATORS(aten, AutogradPrivateUse1, m) { m.impl("rms_norm", TORCH_FN(entry)); }

}  // namespace
}  // namespace minitorch
