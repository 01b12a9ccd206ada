// ctc_loss: native's checks in native's words, then our kernel. Lengths are values in host memory.
#include <ATen/TensorUtils.h>
#include <ATen/ops/_ctc_loss_backward_native.h>
#include <ATen/ops/_ctc_loss_native.h>
#include <ATen/ops/ctc_loss_native.h>
#include <torch/library.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "bridge/transforms.h"
#include "kernels/ctc.h"

namespace minitorch {
namespace {

using at::IntArrayRef;
using at::Tensor;

constexpr const char* kCheckedFrom = "ctc_loss_allocate_outputs";

void check_ctc_dtype(const Tensor& log_probs, const char* name) {
  const at::ScalarType type = log_probs.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(type == at::kFloat || type == at::kDouble, '"', name, "\" not implemented for '",
                              c10::toString(type), "'");
}

// The arguments that both directions share; offsets keeps the memory that they point to.
CtcArgs arguments(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths, IntArrayRef target_lengths,
                  int64_t blank, std::vector<int64_t>& offsets, bool& failed) {
  const at::TensorArg probs_arg(log_probs, "log_probs", 1), targets_arg(targets, "targets", 2);
  at::checkScalarType(kCheckedFrom, targets_arg, targets.scalar_type() == at::kLong ? at::kLong : at::kInt);
  at::checkDim(kCheckedFrom, probs_arg, 3);
  at::checkDimRange(kCheckedFrom, targets_arg, 1, 3);
  const int64_t batch = log_probs.size(1), classes = log_probs.size(2), time = log_probs.size(0);
  TORCH_CHECK(0 <= blank && blank < classes, "blank must be in label range");
  TORCH_CHECK(static_cast<int64_t>(input_lengths.size()) == batch, "input_lengths must be of size batch_size");
  TORCH_CHECK(static_cast<int64_t>(target_lengths.size()) == batch, "target_lengths must be of size batch_size");
  const bool concatenated = targets.dim() == 1;
  int64_t total = 0, longest = 0;
  offsets.resize(batch);
  for (int64_t b = 0; b < batch; b++) {
    TORCH_CHECK(target_lengths[b] >= 0, "Expected target_lengths to have value at least ", 0, ", but got value ",
                target_lengths[b], " (while checking arguments for ", kCheckedFrom, ")");
    offsets[b] = concatenated ? total * targets.stride(0) : b * targets.stride(0);
    total += target_lengths[b];
    longest = std::max(longest, target_lengths[b]);
  }
  at::checkSize(kCheckedFrom, targets_arg, 0, concatenated ? total : batch);
  if (!concatenated)
    TORCH_CHECK(targets.size(1) >= longest, "Expected tensor to have size at least ", longest,
                " at dimension 1, but got size ", targets.size(1), " for ", targets_arg,
                " (while checking arguments for ", kCheckedFrom, ")");
  for (int64_t b = 0; b < batch; b++) {
    TORCH_CHECK(input_lengths[b] >= 0, "Expected input_lengths to have value at least ", 0, ", but got value ",
                input_lengths[b], " (while checking arguments for ", kCheckedFrom, ")");
    TORCH_CHECK(input_lengths[b] <= time, "Expected input_lengths to have value at most ", time, ", but got value ",
                input_lengths[b], " (while checking arguments for ", kCheckedFrom, ")");
  }
  CtcArgs a{};
  a.dtype = to_dtype(log_probs.scalar_type());
  a.label_dtype = to_dtype(targets.scalar_type());
  a.time = time;
  a.batch = batch;
  a.classes = classes;
  a.blank = blank;
  a.states = 2 * longest + 1;
  a.log_probs = log_probs.const_data_ptr();
  for (int d = 0; d < 3; d++) a.strides[d] = log_probs.stride(d);
  a.labels = targets.const_data_ptr();
  a.label_offsets = offsets.data();
  a.label_stride = targets.stride(concatenated ? 0 : 1);
  a.input_lengths = input_lengths.data();
  a.target_lengths = target_lengths.data();
  a.failed = &failed;
  return a;
}

std::tuple<Tensor, Tensor> ctc_loss(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
                                    IntArrayRef target_lengths, int64_t blank, bool /*zero_infinity*/) {
  check_same_device({&log_probs, &targets});
  check_ctc_dtype(log_probs, "ctc_loss_cpu");
  std::vector<int64_t> offsets;
  bool failed = false;
  CtcArgs a = arguments(log_probs, targets, input_lengths, target_lengths, blank, offsets, failed);
  Tensor loss = empty({a.batch}, log_probs.scalar_type());
  Tensor log_alpha = empty({a.batch, a.time, a.states}, log_probs.scalar_type());
  a.loss = loss.mutable_data_ptr();
  a.log_alpha = log_alpha.mutable_data_ptr();
  if (a.batch > 0) ctc_loss_kernel(a);
  TORCH_CHECK(!failed, "ctc_loss: targets must lie in [0, ", a.classes, ")");
  return {loss, log_alpha};
}

Tensor ctc_loss_backward(const Tensor& dloss, const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
                         IntArrayRef target_lengths, const Tensor& loss, const Tensor& log_alpha, int64_t blank,
                         bool zero_infinity) {
  check_same_device({&dloss, &log_probs, &targets, &loss, &log_alpha});
  check_ctc_dtype(log_probs, "ctc_loss_backward_cpu");
  std::vector<int64_t> offsets;
  bool failed = false;
  CtcArgs a = arguments(log_probs, targets, input_lengths, target_lengths, blank, offsets, failed);
  const Tensor nll = loss.contiguous(), alpha = log_alpha.contiguous();
  TORCH_CHECK(alpha.dim() == 3 && alpha.size(0) == a.batch && alpha.size(1) == a.time && alpha.size(2) == a.states &&
                  nll.numel() == a.batch && dloss.dim() == 1 && dloss.size(0) == a.batch,
              "ctc_loss_backward: log_alpha, neg_log_likelihood and grad do not belong to these arguments");
  Tensor dx = empty(log_probs.sizes(), log_probs.scalar_type());
  a.loss = const_cast<void*>(nll.const_data_ptr());
  a.log_alpha = const_cast<void*>(alpha.const_data_ptr());
  a.dloss = dloss.const_data_ptr();
  a.dloss_stride = dloss.stride(0);
  a.dx = dx.mutable_data_ptr();
  a.zero_infinity = zero_infinity;
  if (dx.numel() > 0) ctc_loss_backward_kernel(a);
  return dx;
}

// Inside functorch's transforms native computes with the lengths as tensors, elsewhere it reads them.
Tensor ctc_loss_of_lengths(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                           const Tensor& target_lengths, int64_t blank, int64_t reduction, bool zero_infinity) {
  const bool computes = in_transform();
  const auto placed = [&](const Tensor& lengths) { return computes ? lengths.to(log_probs.device()) : lengths; };
  return at::native::ctc_loss(log_probs, targets, placed(input_lengths), placed(target_lengths), blank, reduction,
                              zero_infinity);
}

MT_OPERATORS(aten, AutogradPrivateUse1, m) { m.impl("ctc_loss.Tensor", TORCH_FN(ctc_loss_of_lengths)); }
MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("ctc_loss.Tensor", TORCH_FN(ctc_loss_of_lengths));
  m.impl("_ctc_loss", MT_CHECKED(ctc_loss));
  m.impl("_ctc_loss_backward", MT_CHECKED(ctc_loss_backward));
  // Lengths as tensors, on the host or not: PyTorch's composites, which read them and call the above.
  m.impl("_ctc_loss.Tensor", TORCH_FN(at::native::ctc_loss_tensor));
  m.impl("_ctc_loss_backward.Tensor", TORCH_FN(at::native::ctc_loss_backward_tensor));
}

}  // namespace
}  // namespace minitorch
