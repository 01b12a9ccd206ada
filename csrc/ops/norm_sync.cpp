// The pieces of synchronised batch norm: statistics and sums of one process's share of the batch, and what turns the
// gathered ones into results. The reductions are batch norm's own kernels; the rest is pointwise.
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/norm.h"
#include "ops/norm_params.h"

namespace minitorch {
namespace {

using at::Tensor;
using OptTensor = const std::optional<Tensor>&;

at::ScalarType statistics_dtype(const Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// A vector over channels, shaped to broadcast against the input.
Tensor per_channel(const Tensor& v, const Tensor& input) {
  std::vector<int64_t> shape(static_cast<size_t>(input.dim()), 1);
  shape[1] = input.size(1);
  return v.to(statistics_dtype(input)).reshape(shape);
}
Tensor scaled_invstd(const Tensor& invstd, OptTensor weight, const Tensor& input) {
  const Tensor scale = per_channel(invstd, input);
  return weight.has_value() && weight->defined() ? scale * per_channel(*weight, input) : scale;
}
bool is_last(at::MemoryFormat format, int64_t spatial) {
  return format != at::MemoryFormat::Contiguous || spatial == 1;
}

std::tuple<Tensor, Tensor> stats(const Tensor& input, double eps) {
  check_floating("batch_norm_stats", input);
  TORCH_CHECK(input.numel() != 0, "input tensor must have at least one element, but got input_sizes = ", input.sizes());
  const auto format = input.suggest_memory_format();
  const Tensor x = input.contiguous(format);
  const int64_t c = x.size(1), spatial = c10::multiply_integers(x.sizes().slice(2));
  const auto dtype = statistics_dtype(input);
  Tensor mean = empty({c}, dtype), invstd = empty({c}, dtype);
  batch_norm_kernel({to_dtype(x.scalar_type()), to_dtype(dtype), is_last(format, spatial), true, false, x.size(0), c,
                     spatial, 0, eps, input_ptr(x), nullptr, nullptr, nullptr, nullptr, output_ptr(mean),
                     output_ptr(invstd), nullptr});
  return {mean, invstd};
}

Tensor elemt(const Tensor& input, OptTensor weight, OptTensor bias, const Tensor& mean, const Tensor& invstd,
             double /*eps*/) {
  Tensor y = (input - per_channel(mean, input)) * scaled_invstd(invstd, weight, input);
  if (bias.has_value() && bias->defined()) y = y + per_channel(*bias, input);
  return y.to(input.scalar_type());
}
Tensor& elemt_out(const Tensor& input, OptTensor weight, OptTensor bias, const Tensor& mean, const Tensor& invstd,
                  double eps, Tensor& out) {
  return out.copy_(elemt(input, weight, bias, mean, invstd, eps));
}

// mean and invstd are [processes, channels], counts [processes]: the elements a channel has on each.
std::tuple<Tensor, Tensor> gather(const Tensor& mean, const Tensor& invstd, OptTensor running_mean,
                                  OptTensor running_var, double momentum, double eps, const Tensor& counts) {
  const Tensor n = counts.to(mean.scalar_type()).reshape({-1, 1}), total = n.sum();
  const Tensor mean_all = (mean * n).sum(0) / total;
  const Tensor variance = invstd.pow(-2) - eps, offset = mean - mean_all;
  const Tensor squares = ((variance + offset * offset) * n).sum(0);
  if (running_mean.has_value() && running_mean->defined()) running_mean->mul_(1 - momentum).add_(mean_all, momentum);
  if (running_var.has_value() && running_var->defined())
    running_var->mul_(1 - momentum).add_(squares / (total - 1), momentum);
  return {mean_all, (squares / total + eps).rsqrt()};
}
std::tuple<Tensor, Tensor> gather_with_counts(const Tensor& /*input*/, const Tensor& mean, const Tensor& invstd,
                                              OptTensor running_mean, OptTensor running_var, double momentum,
                                              double eps, const Tensor& counts) {
  return gather(mean, invstd, running_mean, running_var, momentum, eps, counts);
}
std::tuple<Tensor, Tensor> gather_equal(const Tensor& /*input*/, const Tensor& mean, const Tensor& invstd,
                                        OptTensor running_mean, OptTensor running_var, double momentum, double eps,
                                        int64_t count) {
  return gather(mean, invstd, running_mean, running_var, momentum, eps,
                at::full({mean.size(0)}, count, mean.options()));
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward_reduce(const Tensor& grad_out, const Tensor& input,
                                                           const Tensor& mean_in, const Tensor& invstd_in,
                                                           OptTensor weight, bool input_g, bool weight_g, bool bias_g) {
  check_same_device({&grad_out, &input, &mean_in, &invstd_in});
  check_floating("batch_norm_backward_reduce", input);
  TORCH_CHECK(input.dim() >= 2 && grad_out.sizes() == input.sizes() && mean_in.numel() == input.size(1) &&
                  invstd_in.numel() == input.size(1),
              "Expected a gradient of the input's shape, ", input.sizes(), ", and statistics of its channels, got ",
              grad_out.sizes(), ", ", mean_in.sizes(), " and ", invstd_in.sizes());
  const auto format = input.suggest_memory_format();
  const auto dtype = statistics_dtype(input);
  const Tensor x = input.contiguous(format), dy = grad_out.to(input.scalar_type()).contiguous(format);
  const Tensor mean = mean_in.to(dtype).contiguous(), invstd = invstd_in.to(dtype).contiguous();
  const int64_t c = x.size(1), spatial = c10::multiply_integers(x.sizes().slice(2));
  Tensor grad_weight = empty({c}, dtype), sum_dy = empty({c}, dtype);
  batch_norm_backward_kernel({to_dtype(x.scalar_type()), to_dtype(dtype), is_last(format, spatial), true, x.size(0), c,
                              spatial, 0, input_ptr(dy), input_ptr(x), nullptr, input_ptr(mean), input_ptr(invstd),
                              nullptr, output_ptr(grad_weight), output_ptr(sum_dy)});
  const auto params = weight.has_value() && weight->defined() ? weight->scalar_type() : dtype;
  return {input_g ? sum_dy : Tensor(), input_g ? grad_weight / invstd : Tensor(),
          weight_g ? grad_weight.to(params) : Tensor(),
          bias_g ? sum_dy.to(params, /*non_blocking=*/false, /*copy=*/true) : Tensor()};
}

Tensor backward_elemt(const Tensor& grad_out, const Tensor& input, const Tensor& mean, const Tensor& invstd,
                      OptTensor weight, const Tensor& sum_dy, const Tensor& sum_dy_xmu, const Tensor& count) {
  const Tensor total = count.sum().to(statistics_dtype(input));
  const Tensor average = per_channel(sum_dy / total, input);
  const Tensor slope = per_channel(sum_dy_xmu * invstd * invstd / total, input);
  const Tensor centred = input - per_channel(mean, input);
  return ((grad_out - average - centred * slope) * scaled_invstd(invstd, weight, input)).to(input.scalar_type());
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("batch_norm_stats", TORCH_FN(stats));
  m.impl("batch_norm_elemt", TORCH_FN(elemt));
  m.impl("batch_norm_elemt.out", TORCH_FN(elemt_out));
  m.impl("batch_norm_gather_stats_with_counts", TORCH_FN(gather_with_counts));
  m.impl("batch_norm_gather_stats", TORCH_FN(gather_equal));
  m.impl("batch_norm_backward_reduce", TORCH_FN(backward_reduce));
  m.impl("batch_norm_backward_elemt", TORCH_FN(backward_elemt));
}

}  // namespace
}  // namespace minitorch
