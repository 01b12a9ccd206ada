// dropout without a stored mask: the backward pass draws it again from the generator's state.
// y = x * m / (1 - p), so the derivative is the same masking of the gradient, and the second derivative again.
#include <ATen/ops/dropout_native.h>

#include "autograd/function.h"
#include "bridge/operators.h"

namespace minitorch {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::tuple<at::Tensor, at::Tensor> forward_op(const at::Tensor& input, double p) {
  static const auto op =
      find_operator<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, double)>("minitorch::dropout_forward");
  return op.call(input, p);
}

at::Tensor backward_op(const at::Tensor& grad, const at::Tensor& saved, c10::SymIntArrayRef strides, double p) {
  static const auto op = find_operator<at::Tensor(const at::Tensor&, const at::Tensor&, c10::SymIntArrayRef, double)>(
      "minitorch::dropout_backward");
  return op.call(grad, saved, strides, p);
}

// The gradient of masking is masking with the same state.
struct Mask : torch::autograd::Function<Mask> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& grad, const at::Tensor& saved,
                            c10::SymIntArrayRef strides, double p) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({saved});
    ctx->saved_data["strides"] = strides;
    ctx->saved_data["p"] = p;
    return backward_op(grad, saved, strides, p);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return variable_list(4);
    const auto strides = ctx->saved_data["strides"].toSymIntVector();
    at::Tensor grad = Mask::apply(grads[0], ctx->get_saved_variables()[0], c10::SymIntArrayRef(strides),
                                  ctx->saved_data["p"].toDouble());
    return {grad, {}, {}, {}};
  }
};

struct Dropout : torch::autograd::Function<Dropout> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& input, double p) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->set_materialize_grads(false);
    auto [output, saved] = forward_op(input, p);
    ctx->save_for_backward({saved});
    ctx->saved_data["strides"] = output.sym_strides();
    ctx->saved_data["p"] = p;
    ctx->mark_non_differentiable({saved});
    return {output, saved};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return variable_list(2);
    const auto strides = ctx->saved_data["strides"].toSymIntVector();
    at::Tensor grad = Mask::apply(grads[0], ctx->get_saved_variables()[0], c10::SymIntArrayRef(strides),
                                  ctx->saved_data["p"].toDouble());
    return {grad, {}};
  }
};

std::tuple<at::Tensor, at::Tensor> dropout_forward(const at::Tensor& input, double p) {
  auto result = Dropout::apply(input, p);
  return {result[0], result[1]};
}

at::Tensor dropout_backward(const at::Tensor& grad, const at::Tensor& saved, c10::SymIntArrayRef strides, double p) {
  return Mask::apply(grad, saved, strides, p);
}

bool fuses(const at::Tensor& input, double p, bool train) {
  return train && p > 0 && p < 1 && at::isFloatingType(input.scalar_type()) && input.sym_numel() != 0;
}

// Native takes native_dropout for devices other than the CPU, which accepts what the CPU's steps refuse.
at::Tensor composite(const at::Tensor& input, double p, bool train) {
  if (train && p > 0 && p < 1 && !at::isFloatingType(input.scalar_type()) && input.sym_numel() != 0)
    return input.mul(at::empty_like(input).bernoulli_(1 - p).div_(1 - p));
  return at::native::dropout(input, p, train);
}

at::Tensor dropout(const at::Tensor& input, double p, bool train) {
  if (!fuses(input, p, train) || steps_aside(input)) return composite(input, p, train);
  return std::get<0>(forward_op(input, p));
}

at::Tensor dropout_inference(const at::Tensor& input, double p, bool train) {
  return fuses(input, p, train) ? std::get<0>(forward_op(input, p)) : composite(input, p, train);
}

MT_OPERATORS(minitorch, AutogradPrivateUse1, m) {
  m.impl("dropout_forward", TORCH_FN(dropout_forward));
  m.impl("dropout_backward", TORCH_FN(dropout_backward));
}
MT_OPERATORS(aten, AutogradPrivateUse1, m) { m.impl("dropout", TORCH_FN(dropout)); }
MT_OPERATORS(aten, PrivateUse1, m) { m.impl("dropout", TORCH_FN(dropout_inference)); }

}  // namespace
}  // namespace minitorch
