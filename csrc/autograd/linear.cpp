// linear: y = x W^T + b in one product whose epilogue adds the bias, under one autograd node where PyTorch's composite
// has a chain of views, transposes and addmm. The gradients are products again, written in differentiable operators:
//   dx = dy W     dW = dy^T x     db = the sum of dy over rows
#include <ATen/ops/linear_native.h>

#include "autograd/function.h"
#include "bridge/operators.h"

namespace minitorch {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<Tensor>;

Tensor forward_op(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  static const auto op =
      find_operator<Tensor(const Tensor&, const Tensor&, const OptionalTensor&)>("minitorch::linear_forward");
  return op.call(input, weight, bias);
}

struct Linear : torch::autograd::Function<Linear> {
  static Tensor forward(AutogradContext* ctx, const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->set_materialize_grads(false);
    // Each operand is kept only if the other one's gradient will need it.
    ctx->saved_data["has_bias"] = bias.has_value() && bias->defined();
    ctx->save_for_backward({weight.requires_grad() ? input : Tensor(), input.requires_grad() ? weight : Tensor()});
    return forward_op(input, weight, bias);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return variable_list(3);
    const Tensor& grad = grads[0];
    const auto saved = ctx->get_saved_variables();
    const Tensor &input = saved[0], &weight = saved[1];
    const Tensor rows = grad.dim() == 2 ? grad : grad.reshape_symint({-1, grad.sym_size(-1)});
    Tensor grad_input, grad_weight, grad_bias;
    if (ctx->needs_input_grad(0)) {
      grad_input = rows.mm(weight);
      if (grad.dim() != 2) {
        auto sizes = grad.sym_sizes().vec();
        sizes.back() = weight.sym_size(1);
        grad_input = grad_input.view_symint(sizes);
      }
    }
    if (ctx->needs_input_grad(1)) grad_weight = rows.t().mm(input.reshape_symint({-1, input.sym_size(-1)}));
    // Only tensors that were given have an edge to ask about.
    if (ctx->saved_data["has_bias"].toBool() && ctx->needs_input_grad(2)) grad_bias = rows.sum(0);
    return {grad_input, grad_weight, grad_bias};
  }
};

// Nothing will be differentiated: a node would only be made to be thrown away.
bool without_gradient(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  return !at::GradMode::is_enabled() ||
         !(input.requires_grad() || weight.requires_grad() || (bias.has_value() && bias->requires_grad()));
}

Tensor linear_forward(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  return Linear::apply(input, weight, bias);
}

// The composite serves the other cases, and raises native's errors.
bool fuses(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  const auto type = input.scalar_type();
  if (!at::isFloatingType(type) || weight.scalar_type() != type || weight.device() != input.device()) return false;
  if (input.dim() == 0 || weight.dim() != 2 || input.sym_size(-1) != weight.sym_size(1)) return false;
  if (input.sym_numel() == 0 || weight.sym_numel() == 0) return false;
  if (!bias.has_value() || !bias->defined()) return true;
  return bias->dim() == 1 && bias->sym_size(0) == weight.sym_size(0) && bias->scalar_type() == type &&
         bias->device() == input.device();
}

Tensor linear(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  if (!fuses(input, weight, bias) || steps_aside(input, weight, bias.value_or(Tensor())))
    return at::native::linear(input, weight, bias);
  if (!without_gradient(input, weight, bias)) return forward_op(input, weight, bias);
  const at::AutoDispatchBelowADInplaceOrView below;
  return forward_op(input, weight, bias);
}

Tensor linear_inference(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  return fuses(input, weight, bias) ? forward_op(input, weight, bias) : at::native::linear(input, weight, bias);
}

MT_OPERATORS(minitorch, AutogradPrivateUse1, m) { m.impl("linear_forward", TORCH_FN(linear_forward)); }
MT_OPERATORS(aten, AutogradPrivateUse1, m) { m.impl("linear", TORCH_FN(linear)); }
MT_OPERATORS(aten, PrivateUse1, m) { m.impl("linear", TORCH_FN(linear_inference)); }

}  // namespace
}  // namespace minitorch
