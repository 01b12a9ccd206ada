// Losses. The pointwise ones are PyTorch's own compositions over stubs; their gradients, binary cross-entropy, negative
// log likelihood and the margin losses are bound here.
#include <ATen/core/Reduction.h>
#include <ATen/native/PointwiseOps.h>
#include <ATen/ops/huber_loss_backward_native.h>
#include <ATen/ops/huber_loss_native.h>
#include <ATen/ops/mse_loss_backward_native.h>
#include <ATen/ops/mse_loss_native.h>
#include <ATen/ops/nll_loss_backward_meta.h>
#include <ATen/ops/nll_loss_forward_meta.h>
#include <ATen/ops/smooth_l1_loss_backward_native.h>
#include <ATen/ops/smooth_l1_loss_native.h>

#include "bridge/checked.h"
#include "bridge/iterator.h"
#include "bridge/operators.h"
#include "bridge/structured.h"
#include "kernels/loss.h"

namespace minitorch {
namespace {

using at::Tensor;
using OptTensor = const std::optional<Tensor>&;

void mse_backward_stub(at::TensorIterator& iter, const at::Scalar& norm) {
  if (iter.numel() != 0) loss_kernel(LossOp::mse_backward, view_of(iter), {{to_scalar(norm)}});
}
template <LossOp op>
void backward_stub(at::TensorIterator& iter, const at::Scalar& norm, double parameter) {
  if (iter.numel() != 0) loss_kernel(op, view_of(iter), {{to_scalar(norm), Scalar(parameter)}});
}

const Tensor& tensor_or_undefined(OptTensor t) {
  static const Tensor undefined;
  return t.has_value() ? *t : undefined;
}
const void* input_ptr(const Tensor& t) { return t.defined() ? t.const_data_ptr() : nullptr; }
Tensor dense(const Tensor& t) { return t.defined() ? t.contiguous() : t; }

void check_dtype(const char* kernel, const Tensor& t, bool halves) {
  const auto type = t.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(
      type == at::kFloat || type == at::kDouble || (halves && (type == at::kHalf || type == at::kBFloat16)), '"',
      kernel, "\" not implemented for '", c10::toString(type), "'");
}
void expect_type(const Tensor& t, at::ScalarType expected) {
  TORCH_CHECK(!t.defined() || t.scalar_type() == expected, "expected scalar type ", expected, " but found ",
              t.scalar_type());
}
LossReduction to_reduction(int64_t r) { return static_cast<LossReduction>(r); }
static_assert(at::Reduction::None == 0 && at::Reduction::Mean == 1 && at::Reduction::Sum == 2);

// ---- Binary cross-entropy
// --------------------------------------------------------------------------------------------

Tensor& bce_out(const Tensor& input, const Tensor& target, OptTensor weight_opt, int64_t reduction, Tensor& loss) {
  const Tensor& weight = tensor_or_undefined(weight_opt);
  check_same_device({&input, &target, &weight, &loss});
  Tensor squeezed = at::squeeze(loss);
  auto iter = at::TensorIteratorConfig()
                  .add_output(squeezed)
                  .add_owned_const_input(at::squeeze(input))
                  .add_owned_const_input(at::squeeze(target))
                  .build();
  check_dtype("binary_cross_entropy", loss, /*halves=*/true);
  if (iter.numel() != 0) {
    const PointwiseView view = view_of(iter);
    int offender = 0;
    unit_interval_kernel(view, &offender);
    TORCH_CHECK(offender == 0, "all elements of ", offender == 1 ? "input" : "target", " should be between 0 and 1");
    loss_kernel(LossOp::binary_cross_entropy, view, {});
  }
  if (weight.defined()) loss.mul_(weight);
  if (reduction != at::Reduction::None) {
    const Tensor reduced = reduction == at::Reduction::Mean ? loss.mean() : loss.sum();
    loss.resize_as_(reduced).copy_(reduced);
  }
  return loss;
}
Tensor bce(const Tensor& input, const Tensor& target, OptTensor weight, int64_t reduction) {
  Tensor loss = at::empty_like(input);
  return bce_out(input, target, weight, reduction, loss);
}

Tensor& bce_backward_out(const Tensor& grad, const Tensor& input, const Tensor& target, OptTensor weight_opt,
                         int64_t reduction, Tensor& grad_input) {
  const Tensor& weight = tensor_or_undefined(weight_opt);
  check_same_device({&grad, &input, &target, &weight, &grad_input});
  Tensor squeezed = at::squeeze(grad_input);
  auto iter = at::TensorIteratorConfig()
                  .add_output(squeezed)
                  .add_owned_const_input(at::squeeze(input))
                  .add_owned_const_input(at::squeeze(target))
                  .add_owned_const_input(at::squeeze(grad))
                  .build();
  check_dtype("binary_cross_entropy_backward", grad_input, /*halves=*/true);
  if (iter.numel() != 0) loss_kernel(LossOp::binary_cross_entropy_backward, view_of(iter), {});
  if (weight.defined()) grad_input.mul_(weight);
  if (reduction == at::Reduction::Mean) grad_input.div_(input.numel());
  return grad_input;
}
Tensor bce_backward(const Tensor& grad, const Tensor& input, const Tensor& target, OptTensor weight,
                    int64_t reduction) {
  Tensor grad_input = at::empty_like(input);
  return bce_backward_out(grad, input, target, weight, reduction, grad_input);
}

// ---- Negative log likelihood
// -----------------------------------------------------------------------------------------

struct NllShape {
  int64_t n, classes, spatial;
};

// PyTorch's shape function checks this from 2.12 on; the kernel reads no other type.
void check_target_dtype(const Tensor& target) {
  TORCH_CHECK(target.scalar_type() == at::kLong || target.scalar_type() == at::kByte,
              "expected target dtype to be Long or Byte, but got ", target.scalar_type());
}

NllArgs nll_args(const Tensor& self, const Tensor& target, const Tensor& weight, int64_t reduction,
                 int64_t ignore_index, NllShape shape, TargetError* error) {
  check_target_dtype(target);
  NllArgs args{};
  args.dtype = to_dtype(self.scalar_type());
  args.target_dtype = to_dtype(target.scalar_type());
  args.reduction = to_reduction(reduction);
  args.n = shape.n;
  args.classes = shape.classes;
  args.spatial = shape.spatial;
  args.ignore_index = ignore_index;
  args.target = target.const_data_ptr();
  args.weight = input_ptr(weight);
  args.error = error;
  return args;
}
void check_target(const TargetError& error) {
  TORCH_CHECK_INDEX(!error.found, "Target ", error.target, " is out of bounds.");
}

// `output` and `total_weight` have their sizes; both are written.
void nll_forward(const Tensor& self, const Tensor& target, const Tensor& weight, int64_t reduction,
                 int64_t ignore_index, NllShape shape, const Tensor& output, const Tensor& total_weight) {
  expect_type(weight, self.scalar_type());
  if (target.numel() == 0) {
    total_weight.zero_();
    if (reduction == at::Reduction::Mean) {
      output.fill_(std::numeric_limits<double>::quiet_NaN());
    } else {
      output.zero_();
    }
    return;
  }
  const Tensor x = self.contiguous(), t = target.contiguous(), w = dense(weight);
  const Tensor y = output.is_contiguous() ? output : at::empty_like(output, at::MemoryFormat::Contiguous);
  TargetError error;
  NllArgs args = nll_args(x, t, w, reduction, ignore_index, shape, &error);
  args.input = x.const_data_ptr();
  args.output = y.mutable_data_ptr();
  args.total_weight = total_weight.mutable_data_ptr();
  nll_kernel(args);
  check_target(error);
  if (!y.is_same(output)) output.copy_(y);
}

void nll_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target, const Tensor& weight,
                  int64_t reduction, int64_t ignore_index, NllShape shape, const Tensor& total_weight,
                  const Tensor& grad_input) {
  expect_type(weight, self.scalar_type());
  expect_type(grad_output, self.scalar_type());
  expect_type(total_weight, self.scalar_type());
  if (grad_input.numel() == 0) return;
  const Tensor g = grad_output.contiguous(), t = target.contiguous(), w = dense(weight);
  const Tensor dx = grad_input.is_contiguous() ? grad_input : at::empty_like(grad_input, at::MemoryFormat::Contiguous);
  TargetError error;
  NllArgs args = nll_args(self, t, w, reduction, ignore_index, shape, &error);
  args.grad_output = g.const_data_ptr();
  args.total_weight = total_weight.mutable_data_ptr();
  args.grad_input = dx.mutable_data_ptr();
  nll_backward_kernel(args);
  check_target(error);
  if (!dx.is_same(grad_input)) grad_input.copy_(dx);
}

NllShape rows_of(const Tensor& self) { return {self.dim() == 1 ? 1 : self.size(0), self.size(-1), 1}; }
// A single row has no batch to keep: its loss is a scalar whatever the reduction.
int64_t row_reduction(const Tensor& self, int64_t reduction) {
  return self.dim() == 1 && reduction == at::Reduction::None ? at::Reduction::Sum : reduction;
}

struct NllLoss : at::meta::structured_nll_loss_forward {
  void impl(const Tensor& self, const Tensor& target, at::OptionalTensorRef weight, int64_t reduction,
            int64_t ignore_index, const Tensor& output, const Tensor& total_weight) {
    check_dtype("nll_loss_out_frame", self, /*halves=*/true);
    nll_forward(self, target, weight.getTensorRef(), row_reduction(self, reduction), ignore_index, rows_of(self),
                output, total_weight);
  }
};
struct NllLossBackward : at::meta::structured_nll_loss_backward {
  void impl(const Tensor& grad_output, const Tensor& self, const Tensor& target, at::OptionalTensorRef weight,
            int64_t reduction, int64_t ignore_index, const Tensor& total_weight, const Tensor& grad_input) {
    check_dtype("nll_loss_backward_out_frame", self, /*halves=*/true);
    nll_backward(grad_output, self, target, weight.getTensorRef(), row_reduction(self, reduction), ignore_index,
                 rows_of(self), total_weight, grad_input);
  }
};

NllShape check_maps(const Tensor& self, const Tensor& target, const Tensor& weight) {
  check_same_device({&self, &target, &weight});
  TORCH_CHECK(target.dim() == 3,
              "only batches of spatial targets supported (3D tensors) but got targets of dimension: ", target.dim());
  TORCH_CHECK(self.dim() == 4,
              "only batches of spatial inputs supported (4D tensors), but got input of dimension: ", self.dim());
  TORCH_CHECK(!weight.defined() || weight.numel() == self.size(1),
              "weight tensor should be defined either for all or no classes");
  TORCH_CHECK(self.size(0) == target.size(0) && self.size(2) == target.size(1) && self.size(3) == target.size(2),
              "size mismatch (got input: ", self.sizes(), " , target: ", target.sizes());
  return {self.size(0), self.size(1), self.size(2) * self.size(3)};
}

// Native lets targets of bytes pass as far as the first that it reads.
void check_map_targets(const Tensor& target) {
  check_target_dtype(target);
  if (target.numel() != 0) expect_type(target, at::kLong);
}

std::tuple<Tensor, Tensor> nll_maps(const Tensor& self, const Tensor& target, OptTensor weight_opt, int64_t reduction,
                                    int64_t ignore_index) {
  const Tensor& weight = tensor_or_undefined(weight_opt);
  const NllShape shape = check_maps(self, target, weight);
  check_dtype("nll_loss2d_forward_out_frame", self, /*halves=*/true);
  check_map_targets(target);
  Tensor output =
      reduction == at::Reduction::None ? empty(target.sizes(), self.scalar_type()) : empty({}, self.scalar_type());
  Tensor total_weight = empty({}, self.scalar_type());
  nll_forward(self, target, weight, reduction, ignore_index, shape, output, total_weight);
  return {output, total_weight};
}
std::tuple<Tensor&, Tensor&> nll_maps_out(const Tensor& self, const Tensor& target, OptTensor weight, int64_t reduction,
                                          int64_t ignore_index, Tensor& output, Tensor& total_weight) {
  const auto [loss, total] = nll_maps(self, target, weight, reduction, ignore_index);
  copy_into(loss, output);
  copy_into(total, total_weight);
  return {output, total_weight};
}

Tensor nll_maps_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target, OptTensor weight_opt,
                         int64_t reduction, int64_t ignore_index, const Tensor& total_weight) {
  const Tensor& weight = tensor_or_undefined(weight_opt);
  check_same_device({&grad_output, &self, &total_weight});
  const NllShape shape = check_maps(self, target, weight);
  TORCH_CHECK(total_weight.numel() == 1,
              "expected total_weight to be a single element tensor, got: ", total_weight.sizes(), " (",
              total_weight.numel(), " elements)");
  check_dtype("nll_loss2d_backward_out_frame", self, /*halves=*/true);
  check_map_targets(target);
  if (reduction == at::Reduction::None) {
    TORCH_CHECK(grad_output.dim() == 3,
                "grad_output must have same dimension as target (3) but got dimension: ", grad_output.sizes());
    TORCH_CHECK(grad_output.sizes() == target.sizes(), "size mismatch (got grad_output: ", grad_output.sizes(),
                " target: ", target.sizes());
  } else {
    TORCH_CHECK(grad_output.dim() <= 1 && grad_output.numel() == 1,
                "Expected a single element grad_output tensor, but got: ", grad_output.sizes());
  }
  Tensor grad_input = empty(self.sizes(), self.scalar_type());
  nll_backward(grad_output, self, target, weight, reduction, ignore_index, shape, total_weight, grad_input);
  return grad_input;
}
Tensor& nll_maps_backward_out(const Tensor& grad_output, const Tensor& self, const Tensor& target, OptTensor weight,
                              int64_t reduction, int64_t ignore_index, const Tensor& total_weight, Tensor& grad_input) {
  return copy_into(nll_maps_backward(grad_output, self, target, weight, reduction, ignore_index, total_weight),
                   grad_input);
}

MT_OPERATORS(aten, PrivateUse1, m) {
  structured<at::native::structured_mse_loss_out>(m, "mse_loss", nullptr, "mse_loss.out");
  structured<at::native::structured_smooth_l1_loss_out>(m, "smooth_l1_loss", nullptr, "smooth_l1_loss.out");
  m.impl("huber_loss", MT_CHECKED(at::native::huber_loss));
  m.impl("huber_loss.out", MT_CHECKED(at::native::huber_loss_out));
  m.impl("mse_loss_backward", MT_CHECKED(at::native::mse_loss_backward));
  m.impl("mse_loss_backward.grad_input", MT_CHECKED(at::native::mse_loss_backward_out));
  m.impl("smooth_l1_loss_backward.grad_input", MT_CHECKED(at::native::smooth_l1_loss_backward_out));
  m.impl("huber_loss_backward.out", MT_CHECKED(at::native::huber_loss_backward_out));
  m.impl("binary_cross_entropy", MT_CHECKED(bce));
  m.impl("binary_cross_entropy.out", MT_CHECKED(bce_out));
  m.impl("binary_cross_entropy_backward", MT_CHECKED(bce_backward));
  m.impl("binary_cross_entropy_backward.grad_input", MT_CHECKED(bce_backward_out));
  structured<NllLoss>(m, "nll_loss_forward", nullptr, "nll_loss_forward.output");
  structured<NllLossBackward>(m, "nll_loss_backward", nullptr, "nll_loss_backward.grad_input");
  m.impl("nll_loss2d_forward", MT_CHECKED(nll_maps));
  m.impl("nll_loss2d_forward.output", MT_CHECKED(nll_maps_out));
  m.impl("nll_loss2d_backward", MT_CHECKED(nll_maps_backward));
  m.impl("nll_loss2d_backward.grad_input", MT_CHECKED(nll_maps_backward_out));
}

}  // namespace
}  // namespace minitorch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(mse_backward_stub, &minitorch::mse_backward_stub)
REGISTER_PRIVATEUSE1_DISPATCH(smooth_l1_backward_stub, &minitorch::backward_stub<minitorch::LossOp::smooth_l1_backward>)
REGISTER_PRIVATEUSE1_DISPATCH(huber_backward_stub, &minitorch::backward_stub<minitorch::LossOp::huber_backward>)
}  // namespace at::native
