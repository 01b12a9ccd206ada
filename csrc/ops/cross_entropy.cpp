// The minitorch:: operators under cross_entropy_loss.
#include <torch/library.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/cross_entropy.h"

namespace minitorch {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

at::ScalarType statistics_dtype(const Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// logits (rows, classes) with contiguous rows, target (rows), weight contiguous: the entry in autograd/ sees to it.
CrossEntropyArgs args_of(const Tensor& logits, const Tensor& target, const OptionalTensor& weight, const Tensor& lse,
                         const Tensor& total_weight, int64_t ignore_index, double smoothing) {
  check_same_device({&logits, &target, weight.has_value() ? &*weight : nullptr});
  return {
      .rows = logits.size(0),
      .classes = logits.size(1),
      .dtype = to_dtype(logits.scalar_type()),
      .logits = static_cast<const char*>(logits.const_data_ptr()),
      .logits_stride = logits.stride(0),
      .target = target.const_data_ptr<int64_t>(),
      .target_stride = target.stride(0),
      .weight = weight.has_value() && weight->defined() ? static_cast<const char*>(weight->const_data_ptr()) : nullptr,
      .ignore_index = ignore_index,
      .smoothing = smoothing,
      .lse = static_cast<char*>(const_cast<void*>(lse.const_data_ptr())),
      .total_weight = static_cast<char*>(const_cast<void*>(total_weight.const_data_ptr()))};
}

std::tuple<Tensor, Tensor, Tensor> forward(const Tensor& logits, const Tensor& target, const OptionalTensor& weight,
                                           int64_t reduction, int64_t ignore_index, double smoothing) {
  const auto mode = static_cast<LossReduction>(reduction);
  Tensor loss =
      mode == LossReduction::none ? empty({logits.size(0)}, logits.scalar_type()) : empty({}, logits.scalar_type());
  Tensor lse = empty({logits.size(0)}, statistics_dtype(logits)), total_weight = empty({}, statistics_dtype(logits));
  try {
    named("_log_softmax", "log_softmax_lastdim_kernel_impl", [&] {
      cross_entropy_kernel(args_of(logits, target, weight, lse, total_weight, ignore_index, smoothing), mode,
                           static_cast<char*>(loss.data_ptr()));
    });
  } catch (const TargetOutOfRange& error) {
    TORCH_CHECK_INDEX(false, "Target ", error.target, " is out of bounds.");
  }
  return {loss, lse, total_weight};
}

Tensor backward(const Tensor& grad, const Tensor& logits, const Tensor& target, const OptionalTensor& weight,
                const Tensor& lse, const Tensor& total_weight, int64_t reduction, int64_t ignore_index,
                double smoothing) {
  Tensor result = empty(logits.sizes(), logits.scalar_type());
  cross_entropy_backward_kernel(args_of(logits, target, weight, lse, total_weight, ignore_index, smoothing),
                                static_cast<LossReduction>(reduction), static_cast<const char*>(grad.const_data_ptr()),
                                grad.dim() == 1 ? grad.stride(0) : 0, static_cast<char*>(result.data_ptr()));
  return result;
}

std::tuple<Tensor, Tensor, Tensor> forward_meta(const Tensor& logits, const Tensor&, const OptionalTensor&,
                                                int64_t reduction, int64_t, double) {
  const auto statistics = logits.options().dtype(statistics_dtype(logits));
  Tensor loss =
      reduction == 0 ? at::empty_symint({logits.sym_size(0)}, logits.options()) : at::empty({}, logits.options());
  return {loss, at::empty_symint({logits.sym_size(0)}, statistics), at::empty({}, statistics)};
}

Tensor backward_meta(const Tensor&, const Tensor& logits, const Tensor&, const OptionalTensor&, const Tensor&,
                     const Tensor&, int64_t, int64_t, double) {
  return at::empty_symint(logits.sym_sizes(), logits.options());
}

TORCH_LIBRARY_FRAGMENT(minitorch, m) {
  m.def(
      "cross_entropy_forward(Tensor logits, Tensor target, Tensor? weight, int reduction, int ignore_index, "
      "float label_smoothing) -> (Tensor, Tensor, Tensor)",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "cross_entropy_backward(Tensor grad, Tensor logits, Tensor target, Tensor? weight, Tensor lse, "
      "Tensor total_weight, int reduction, int ignore_index, float label_smoothing) -> Tensor",
      {at::Tag::pt2_compliant_tag});
}
MT_OPERATORS(minitorch, PrivateUse1, m) {
  m.impl("cross_entropy_forward", MT_CHECKED(forward));
  m.impl("cross_entropy_backward", MT_CHECKED(backward));
}
TORCH_LIBRARY_IMPL(minitorch, Meta, m) {
  m.impl("cross_entropy_forward", TORCH_FN(forward_meta));
  m.impl("cross_entropy_backward", TORCH_FN(backward_meta));
}

}  // namespace
}  // namespace minitorch
