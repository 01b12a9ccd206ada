// Multi-class and multi-label margin losses.
#include <ATen/core/Reduction.h>
#include <ATen/native/LossMulti.h>
#include <torch/library.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/loss.h"

namespace minitorch {
namespace {

using at::Scalar;
using at::Tensor;
using OptTensor = const std::optional<Tensor>&;

void check_dtype(const char* kernel, const Tensor& t) {
  TORCH_CHECK_NOT_IMPLEMENTED(t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble, '"', kernel,
                              "\" not implemented for '", c10::toString(t.scalar_type()), "'");
}
void expect_type(const Tensor& t, at::ScalarType expected) {
  TORCH_CHECK(!t.defined() || t.scalar_type() == expected, "expected scalar type ", expected, " but found ",
              t.scalar_type());
}

// A loss without a batch dimension is a scalar: its "rows" are summed, which are one.
LossReduction reduction_of(int64_t reduction, bool scalar_output) {
  return reduction == at::Reduction::None && scalar_output ? LossReduction::sum : static_cast<LossReduction>(reduction);
}
Tensor output_for(const Tensor& input, int64_t rows, LossReduction reduction) {
  return reduction == LossReduction::none ? empty({rows}, input.scalar_type()) : empty({}, input.scalar_type());
}

// The dense operands of a call; args point into them.
struct Call {
  MarginArgs args{};
  Tensor input, target, weight, grad_output;
  TargetError error;
};

void fill(Call& call, const Tensor& input, const Tensor& target, LossReduction reduction, int64_t rows,
          int64_t classes) {
  call.input = input.contiguous();
  call.target = target.contiguous();
  call.args.dtype = to_dtype(input.scalar_type());
  call.args.reduction = reduction;
  call.args.n = rows;
  call.args.classes = classes;
  call.args.input = call.input.const_data_ptr();
  call.args.target = call.target.const_data_ptr();
  call.args.error = &call.error;
}
void fill_gradient(Call& call, const Tensor& grad_output, const Tensor& grad_input) {
  expect_type(grad_output, call.input.scalar_type());
  if (call.args.reduction == LossReduction::none) {
    TORCH_CHECK(grad_output.dim() == 1 && grad_output.size(0) == call.args.n, "Expected a grad_output of shape [",
                call.args.n, "], but got ", grad_output.sizes());
  } else {
    TORCH_CHECK(grad_output.numel() == 1,
                "Expected a single element grad_output tensor, but got: ", grad_output.sizes());
  }
  call.grad_output = grad_output.contiguous();
  call.args.grad_output = call.grad_output.const_data_ptr();
  call.args.grad_input = grad_input.mutable_data_ptr();
}

// ---- Multi-margin
// ----------------------------------------------------------------------------------------------------

void prepare_multi(Call& call, const char* kernel, const Tensor& input, const Tensor& target, const Scalar& p,
                   const Scalar& margin, OptTensor weight, int64_t reduction) {
  const Tensor w = weight.value_or(Tensor());
  check_same_device({&input, &target, &w});
  call.args.p = p.toInt();
  TORCH_CHECK(call.args.p == 1 || call.args.p == 2, "only p == 1 and p == 2 supported");
  int64_t rows = 0, classes = 0;
  at::native::multi_margin_loss_shape_check(rows, classes, input.dim(), input, target, weight);
  check_dtype(kernel, input);
  expect_type(target, at::kLong);
  expect_type(w, input.scalar_type());
  call.args.margin = margin.toDouble();
  fill(call, input, target, reduction_of(reduction, target.dim() == 0), rows, classes);
  call.weight = w.defined() ? w.contiguous() : w;
  call.args.weight = w.defined() ? call.weight.const_data_ptr() : nullptr;
}

Tensor multi(const Tensor& input, const Tensor& target, const Scalar& p, const Scalar& margin, OptTensor weight,
             int64_t reduction) {
  Call call;
  prepare_multi(call, "multi_margin_loss_cpu_kernel", input, target, p, margin, weight, reduction);
  Tensor output = output_for(input, call.args.n, call.args.reduction);
  call.args.output = output.mutable_data_ptr();
  multi_margin_kernel(call.args);
  TORCH_CHECK(!call.error.found, "target out of range");
  return output;
}
Tensor multi_backward(const Tensor& grad_output, const Tensor& input, const Tensor& target, const Scalar& p,
                      const Scalar& margin, OptTensor weight, int64_t reduction) {
  Call call;
  prepare_multi(call, "multi_margin_loss_backward_cpu_kernel", input, target, p, margin, weight, reduction);
  Tensor grad_input = empty(input.sizes(), input.scalar_type());
  fill_gradient(call, grad_output, grad_input);
  if (input.numel() == 0) return grad_input;
  multi_margin_backward_kernel(call.args);
  TORCH_CHECK(!call.error.found, "target out of range");
  return grad_input;
}
Tensor& multi_out(const Tensor& input, const Tensor& target, const Scalar& p, const Scalar& margin, OptTensor weight,
                  int64_t reduction, Tensor& out) {
  return copy_into(multi(input, target, p, margin, weight, reduction), out);
}
Tensor& multi_backward_out(const Tensor& grad_output, const Tensor& input, const Tensor& target, const Scalar& p,
                           const Scalar& margin, OptTensor weight, int64_t reduction, Tensor& grad_input) {
  return copy_into(multi_backward(grad_output, input, target, p, margin, weight, reduction), grad_input);
}

// ---- Multi-label margin
// ----------------------------------------------------------------------------------------------

void prepare_multilabel(Call& call, const char* kernel, const Tensor& input, const Tensor& target, int64_t reduction) {
  check_same_device({&input, &target});
  int64_t rows = 0, classes = 0;
  at::native::multilabel_margin_loss_shape_check(rows, classes, input.dim(), input, target);
  check_dtype(kernel, input);
  expect_type(target, at::kLong);
  fill(call, input, target, reduction_of(reduction, target.dim() <= 1), rows, classes);
}

std::tuple<Tensor, Tensor> multilabel(const Tensor& input, const Tensor& target, int64_t reduction) {
  Call call;
  prepare_multilabel(call, "multilabel_margin_loss_forward_out_frame", input, target, reduction);
  Tensor output = output_for(input, call.args.n, call.args.reduction);
  Tensor is_target = empty(target.sizes(), input.scalar_type());
  call.args.output = output.mutable_data_ptr();
  call.args.is_target = is_target.mutable_data_ptr();
  multilabel_margin_kernel(call.args);
  TORCH_CHECK(!call.error.found, "argument #2 'target' is out of range");
  return {output, is_target};
}
std::tuple<Tensor&, Tensor&> multilabel_out(const Tensor& input, const Tensor& target, int64_t reduction, Tensor& out,
                                            Tensor& is_target) {
  const auto [loss, flags] = multilabel(input, target, reduction);
  return {copy_into(loss, out), copy_into(flags, is_target)};
}
Tensor multilabel_backward(const Tensor& grad_output, const Tensor& input, const Tensor& target, int64_t reduction,
                           const Tensor& is_target) {
  Call call;
  prepare_multilabel(call, "multilabel_margin_loss_backward_out_frame", input, target, reduction);
  TORCH_CHECK(is_target.sizes() == target.sizes(), "Expected is_target to have the sizes of target ", target.sizes(),
              ", but got ", is_target.sizes());
  expect_type(is_target, input.scalar_type());
  Tensor grad_input = empty(input.sizes(), input.scalar_type());
  fill_gradient(call, grad_output, grad_input);
  if (input.numel() == 0) return grad_input;
  const Tensor flags = is_target.contiguous();
  call.args.is_target = const_cast<void*>(flags.const_data_ptr());  // only read
  multilabel_margin_backward_kernel(call.args);
  TORCH_CHECK(!call.error.found, "argument #3 'target' is out of range");
  return grad_input;
}
Tensor& multilabel_backward_out(const Tensor& grad_output, const Tensor& input, const Tensor& target, int64_t reduction,
                                const Tensor& is_target, Tensor& grad_input) {
  return copy_into(multilabel_backward(grad_output, input, target, reduction, is_target), grad_input);
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("multi_margin_loss", MT_CHECKED(multi));
  m.impl("multi_margin_loss.out", MT_CHECKED(multi_out));
  m.impl("multi_margin_loss_backward", MT_CHECKED(multi_backward));
  m.impl("multi_margin_loss_backward.grad_input", MT_CHECKED(multi_backward_out));
  m.impl("multilabel_margin_loss_forward", MT_CHECKED(multilabel));
  m.impl("multilabel_margin_loss_forward.output", MT_CHECKED(multilabel_out));
  m.impl("multilabel_margin_loss_backward", MT_CHECKED(multilabel_backward));
  m.impl("multilabel_margin_loss_backward.grad_input", MT_CHECKED(multilabel_backward_out));
}

}  // namespace
}  // namespace minitorch
