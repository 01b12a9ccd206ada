// Batch norm. native_batch_norm, _native_batch_norm_legit and _batch_norm_with_update are one computation behind
// different schemas.

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/norm.h"
#include "ops/norm_params.h"

namespace minitorch {
namespace {

using at::Tensor;
using OptTensor = const std::optional<Tensor>&;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using ThreeRefs = std::tuple<Tensor&, Tensor&, Tensor&>;

// [n, c, spatial], or [n, spatial, c] where the memory is laid out so. With one spatial element both are the same, and
// the rows are longer the second way.
struct Layout {
  at::MemoryFormat format;
  bool channels_last;
  int64_t n, c, spatial;
  explicit Layout(const Tensor& input) : format(input.suggest_memory_format()), n(input.size(0)), c(input.size(1)) {
    spatial = c10::multiply_integers(input.sizes().slice(2));
    channels_last = format != at::MemoryFormat::Contiguous || spatial == 1;
  }
};

// PyTorch's batch_norm has compared these; a call by an operator's own name may bring others.
void check_channels(const Layout& l, std::initializer_list<const Tensor*> of_channels) {
  for (const Tensor* t : of_channels)
    TORCH_CHECK(!t->defined() || t->numel() == l.c, "batch norm: expected ", l.c,
                " weights, biases or statistics, one a channel, got ", t->numel());
}

// Running statistics are updated in place: a strided one through a copy.
class RunningStat {
 public:
  explicit RunningStat(const Tensor& stat) : stat_(stat), dense_(contiguous_or_undefined(stat)) {}
  void* get() const { return output_ptr(dense_); }
  void write_back() const {
    if (stat_.defined() && !dense_.is_same(stat_)) stat_.copy_(dense_);
  }

 private:
  const Tensor& stat_;
  Tensor dense_;
};

void check_both_or_neither(const Tensor& running_mean, const Tensor& running_var) {
  TORCH_CHECK_VALUE(running_mean.defined() == running_var.defined(),
                    "running_mean and running_var must either both be None or neither be None");
}

// The statistics come back in save_mean and save_invstd when training, which are empty otherwise.
Three normalise(const Tensor& input, const Tensor& weight_in, const Tensor& bias_in, const Tensor& running_mean,
                const Tensor& running_var, bool training, double momentum, double eps) {
  check_same_device({&input, &weight_in, &bias_in, &running_mean, &running_var});
  check_both_or_neither(running_mean, running_var);
  check_floating("batch_norm", input);
  const at::ScalarType params = param_dtype(input, weight_in, bias_in, running_mean, running_var);
  TORCH_CHECK(training || (running_mean.defined() && running_var.defined()),
              "running_mean and running_var must be defined in evaluation mode");
  TORCH_CHECK(!training || input.numel() != 0,
              "input tensor must have at least one element, but got input_sizes = ", input.sizes());
  const Layout l(input);
  check_channels(l, {&weight_in, &bias_in, &running_mean, &running_var});
  const Tensor x = input.contiguous(l.format);
  const Tensor weight = contiguous_or_undefined(weight_in), bias = contiguous_or_undefined(bias_in);
  const RunningStat mean(running_mean), var(running_var);
  Tensor y = empty(input.sizes(), input.scalar_type(), l.format);
  Tensor save_mean = empty({training ? l.c : 0}, params), save_invstd = empty({training ? l.c : 0}, params);
  if (input.numel() > 0) {
    batch_norm_kernel({to_dtype(input.scalar_type()), to_dtype(params), l.channels_last, training, false, l.n, l.c,
                       l.spatial, momentum, eps, input_ptr(x), input_ptr(weight), input_ptr(bias), mean.get(),
                       var.get(), training ? output_ptr(save_mean) : nullptr,
                       training ? output_ptr(save_invstd) : nullptr, output_ptr(y)});
    if (training) {
      mean.write_back();
      var.write_back();
    }
  }
  return {y, save_mean, save_invstd};
}

Three backward(const Tensor& grad_out, const Tensor& input, const Tensor& weight_in, const Tensor& mean_in,
               const Tensor& stat_in, bool training, double eps, std::array<bool, 3> mask) {
  check_same_device({&grad_out, &input, &weight_in, &mean_in, &stat_in});
  check_floating("batch_norm_backward_cpu", input);
  TORCH_CHECK(grad_out.scalar_type() == input.scalar_type(), "expected scalar type ", input.scalar_type(),
              " but found ", grad_out.scalar_type());
  const at::ScalarType params = param_dtype(input, weight_in, mean_in, stat_in);
  const Layout l(input);
  check_channels(l, {&weight_in, &mean_in, &stat_in});
  TORCH_CHECK(grad_out.sizes() == input.sizes(), "batch norm backward: expected a gradient of shape ", input.sizes(),
              ", got ", grad_out.sizes());
  const Tensor x = input.contiguous(l.format), dy = grad_out.contiguous(l.format);
  const Tensor weight = contiguous_or_undefined(weight_in), mean = mean_in.contiguous(), stat = stat_in.contiguous();
  Tensor dx, dweight, dbias;
  if (mask[0]) dx = empty(input.sizes(), input.scalar_type(), l.format);
  if (mask[1]) dweight = empty({l.c}, params);
  if (mask[2]) dbias = empty({l.c}, params);
  batch_norm_backward_kernel({to_dtype(input.scalar_type()), to_dtype(params), l.channels_last, training, l.n, l.c,
                              l.spatial, eps, input_ptr(dy), input_ptr(x), input_ptr(weight), input_ptr(mean),
                              input_ptr(stat), output_ptr(dx), output_ptr(dweight), output_ptr(dbias)});
  return {dx, dweight, dbias};
}

Three plain(const Tensor& input, OptTensor weight, OptTensor bias, OptTensor running_mean, OptTensor running_var,
            bool training, double momentum, double eps) {
  return normalise(input, value_or_undefined(weight), value_or_undefined(bias), value_or_undefined(running_mean),
                   value_or_undefined(running_var), training, momentum, eps);
}
Three legit(const Tensor& input, OptTensor weight, OptTensor bias, Tensor& running_mean, Tensor& running_var,
            bool training, double momentum, double eps) {
  return plain(input, weight, bias, running_mean, running_var, training, momentum, eps);
}
Three legit_no_stats(const Tensor& input, OptTensor weight, OptTensor bias, bool training, double momentum,
                     double eps) {
  return plain(input, weight, bias, std::nullopt, std::nullopt, training, momentum, eps);
}
std::tuple<Tensor, Tensor, Tensor, Tensor> with_update(const Tensor& input, OptTensor weight, OptTensor bias,
                                                       Tensor& running_mean, Tensor& running_var, double momentum,
                                                       double eps) {
  auto [y, mean, invstd] = plain(input, weight, bias, running_mean, running_var, /*training=*/true, momentum, eps);
  return {y, mean, invstd, minitorch::empty({0}, at::kByte)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> no_update(const Tensor& input, OptTensor weight, OptTensor bias,
                                                     OptTensor running_mean, OptTensor running_var, double momentum,
                                                     double eps) {
  auto [y, mean, invstd] = plain(input, weight, bias, running_mean, running_var, /*training=*/false, momentum, eps);
  return {y, mean, invstd, minitorch::empty({0}, at::kByte)};
}

void expect_dtype(const Tensor& out, at::ScalarType dtype) {
  TORCH_CHECK(out.scalar_type() == dtype, "expected scalar type ", dtype, " but found ", out.scalar_type());
}

// Native's checks in native's words. In evaluation mode it looks at the saved statistics, and leaves them as they are.
ThreeRefs plain_out(const Tensor& input, OptTensor weight, OptTensor bias, OptTensor running_mean,
                    OptTensor running_var, bool training, double momentum, double eps, Tensor& out, Tensor& save_mean,
                    Tensor& save_invstd) {
  check_both_or_neither(value_or_undefined(running_mean), value_or_undefined(running_var));
  const at::ScalarType params = param_dtype(input, value_or_undefined(weight), value_or_undefined(bias),
                                            value_or_undefined(running_mean), value_or_undefined(running_var));
  for (const Tensor* saved : {&save_mean, &save_invstd}) {
    TORCH_CHECK(training || saved->dim() == 1, "TensorAccessor expected 1 dims but tensor has ", saved->dim());
    expect_dtype(*saved, params);
  }
  expect_dtype(out, input.scalar_type());
  const auto [y, mean, invstd] = plain(input, weight, bias, running_mean, running_var, training, momentum, eps);
  copy_into(y, out);
  if (training) {
    copy_into(mean, save_mean);
    copy_into(invstd, save_invstd);
  }
  return {out, save_mean, save_invstd};
}
ThreeRefs legit_out(const Tensor& input, OptTensor weight, OptTensor bias, Tensor& running_mean, Tensor& running_var,
                    bool training, double momentum, double eps, Tensor& out, Tensor& save_mean, Tensor& save_invstd) {
  return plain_out(input, weight, bias, running_mean, running_var, training, momentum, eps, out, save_mean,
                   save_invstd);
}
ThreeRefs legit_no_stats_out(const Tensor& input, OptTensor weight, OptTensor bias, bool training, double momentum,
                             double eps, Tensor& out, Tensor& save_mean, Tensor& save_invstd) {
  return plain_out(input, weight, bias, std::nullopt, std::nullopt, training, momentum, eps, out, save_mean,
                   save_invstd);
}
std::tuple<Tensor&, Tensor&, Tensor&, Tensor&> with_update_out(const Tensor& input, OptTensor weight, OptTensor bias,
                                                               Tensor& running_mean, Tensor& running_var,
                                                               double momentum, double eps, Tensor& out,
                                                               Tensor& save_mean, Tensor& save_invstd,
                                                               Tensor& reserve) {
  plain_out(input, weight, bias, running_mean, running_var, true, momentum, eps, out, save_mean, save_invstd);
  return {out, save_mean, save_invstd, reserve};
}

Three plain_backward(const Tensor& grad_out, const Tensor& input, OptTensor weight, OptTensor running_mean,
                     OptTensor running_var, OptTensor save_mean, OptTensor save_invstd, bool training, double eps,
                     std::array<bool, 3> mask) {
  const OptTensor mean = training ? save_mean : running_mean, stat = training ? save_invstd : running_var;
  TORCH_CHECK(mean.has_value() && mean->defined() && stat.has_value() && stat->defined(), "batch norm backward: the ",
              training ? "saved" : "running", " mean and variance must be defined");
  return backward(grad_out, input, value_or_undefined(weight), *mean, *stat, training, eps, mask);
}
Three backward_with_reserve(const Tensor& grad_out, const Tensor& input, const Tensor& weight, OptTensor running_mean,
                            OptTensor running_var, OptTensor save_mean, OptTensor save_var, bool update, double eps,
                            std::array<bool, 3> mask, const Tensor& /*reserve*/) {
  return plain_backward(grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, mask);
}

// The batch's mean and biased variance; the running statistics are updated.
std::tuple<Tensor, Tensor> update_stats(const Tensor& input, OptTensor running_mean_opt, OptTensor running_var_opt,
                                        double momentum) {
  const Tensor running_mean = value_or_undefined(running_mean_opt), running_var = value_or_undefined(running_var_opt);
  check_same_device({&input, &running_mean, &running_var});
  check_floating("batch_norm_update_stats_cpu", input);
  const at::ScalarType params = param_dtype(input, running_mean, running_var);
  TORCH_CHECK(input.numel() != 0, "input tensor must have at least one element, but got input_sizes = ", input.sizes());
  const Layout l(input);
  check_channels(l, {&running_mean, &running_var});
  const Tensor x = input.contiguous(l.format);
  const RunningStat mean(running_mean), var(running_var);
  Tensor save_mean = empty({l.c}, params), save_var = empty({l.c}, params);
  batch_norm_kernel({to_dtype(input.scalar_type()), to_dtype(params), l.channels_last, true, true, l.n, l.c, l.spatial,
                     momentum, 0, input_ptr(x), nullptr, nullptr, mean.get(), var.get(), output_ptr(save_mean),
                     output_ptr(save_var), nullptr});
  mean.write_back();
  var.write_back();
  return {save_mean, save_var};
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("native_batch_norm", MT_CHECKED(plain));
  m.impl("native_batch_norm.out", MT_CHECKED(plain_out));
  m.impl("_native_batch_norm_legit", MT_CHECKED(legit));
  m.impl("_native_batch_norm_legit.out", MT_CHECKED(legit_out));
  m.impl("_native_batch_norm_legit.no_stats", MT_CHECKED(legit_no_stats));
  m.impl("_native_batch_norm_legit.no_stats_out", MT_CHECKED(legit_no_stats_out));
  m.impl("_batch_norm_with_update", MT_CHECKED(with_update));
  m.impl("_batch_norm_with_update.out", MT_CHECKED(with_update_out));
  m.impl("_batch_norm_no_update", MT_CHECKED(no_update));
  m.impl("native_batch_norm_backward", MT_CHECKED(plain_backward));
  m.impl("batch_norm_backward", MT_CHECKED(backward_with_reserve));
  m.impl("batch_norm_update_stats", MT_CHECKED(update_stats));
}

}  // namespace
}  // namespace minitorch
