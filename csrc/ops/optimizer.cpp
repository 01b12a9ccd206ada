// Fused optimizer steps and the gradient scaler's operators.
#include <torch/library.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/foreach.h"
#include "kernels/optimizer.h"
#include "ops/list_layout.h"

namespace minitorch {
namespace {

using at::Tensor;
using at::TensorList;

const float* float_pointer(const std::optional<Tensor>& t) {
  if (!t.has_value() || !t->defined()) return nullptr;
  TORCH_CHECK(t->scalar_type() == at::kFloat && t->numel() == 1, "Expected a float tensor of one element, got ",
              t->scalar_type(), " of shape ", t->sizes());
  check_allocated(*t);
  return static_cast<const float*>(t->const_data_ptr());
}

// A learning rate is a number, or a tensor of one element: one on an asynchronous device stays there, as the double
// that is returned and must outlive the launch.
Tensor set_rate(OptimizerParams& p, double lr, TensorList) {
  p.lr = lr;
  return {};
}
Tensor set_rate(OptimizerParams& p, const Tensor& lr, TensorList params) {
  if (backend().synchronous() || lr.device() != params[0].device() || lr.numel() != 1 || lr.is_complex())
    return set_rate(p, lr.item<double>(), params);
  Tensor rate = lr.to(at::kDouble);
  check_allocated(rate);
  p.lr_on_device = static_cast<const double*>(rate.const_data_ptr());
  return rate;
}

// Native's error for a list of states that lacks some.
void check_complete(const char* name, TensorList list, TensorList params) {
  TORCH_CHECK(list.size() == params.size(), "Expected ", name, ".size() == n_tensors to be true, but got false.");
}

// The lists as kernel items. Every list is empty (an unused state) or has a tensor for each parameter.
std::vector<OptimizerItem> items_of(TensorList params, TensorList grads, std::initializer_list<TensorList> states,
                                    TensorList steps) {
  TORCH_CHECK(grads.size() == params.size(), "Tensor lists must have the same number of tensors, got ", params.size(),
              " and ", grads.size());
  std::vector<OptimizerItem> items(params.size());
  const auto pointer = [&](const Tensor& t, const Tensor& param) {
    TORCH_CHECK(t.scalar_type() == params[0].scalar_type() && t.device() == param.device() && lies_as(t, param),
                "params, grads and optimizer states must have same dtype, device, and layout");
    check_allocated(t);
    return static_cast<char*>(const_cast<void*>(t.const_data_ptr()));
  };
  for (size_t i = 0; i < items.size(); i++) {
    const Tensor& param = params[i];
    TORCH_CHECK(param.is_non_overlapping_and_dense(), "params must be non-overlapping and dense");
    OptimizerItem& item = items[i];
    item = {param.numel(), pointer(param, param), pointer(grads[i], param), {}, nullptr};
    int k = 0;
    for (const TensorList& state : states) {
      TORCH_CHECK(state.empty() || state.size() == params.size(),
                  "Tensor lists must have the same number of tensors, got ", params.size(), " and ", state.size());
      if (!state.empty()) item.state[k] = pointer(state[i], param);
      k++;
    }
    if (!steps.empty()) {
      TORCH_CHECK(steps[i].device() == param.device(), "state_steps must be on the device of their parameters");
      item.step = float_pointer(steps[i]);
    }
  }
  return items;
}

template <bool decoupled, class Rate>
void fused_adam(TensorList params, TensorList grads, TensorList means, TensorList squares, TensorList largest,
                TensorList steps, Rate lr, double beta1, double beta2, double weight_decay, double eps, bool amsgrad,
                bool maximize, const std::optional<Tensor>& grad_scale, const std::optional<Tensor>& found_inf) {
  if (params.empty()) return;
  check_complete("exp_avgs", means, params);
  check_complete("exp_avg_sqs", squares, params);
  check_complete("state_steps", steps, params);
  if (amsgrad) check_complete("max_exp_avg_sqs", largest, params);
  const auto items = items_of(params, grads, {means, squares, amsgrad ? largest : TensorList{}}, steps);
  OptimizerParams p;
  const Tensor rate = set_rate(p, lr, params);
  p.beta1 = beta1, p.beta2 = beta2, p.weight_decay = weight_decay, p.eps = eps;
  p.amsgrad = amsgrad, p.maximize = maximize, p.decoupled_decay = decoupled;
  p.grad_scale = float_pointer(grad_scale), p.found_inf = float_pointer(found_inf);
  fused_adam_kernel(items, to_dtype(params[0].scalar_type()), p);
}

template <class Rate>
void fused_sgd(TensorList params, TensorList grads, TensorList buffers, double weight_decay, double momentum, Rate lr,
               double dampening, bool nesterov, bool maximize, bool first_step, const std::optional<Tensor>& grad_scale,
               const std::optional<Tensor>& found_inf) {
  if (params.empty()) return;
  if (momentum != 0) check_complete("momentum_buffer_list", buffers, params);
  const auto items = items_of(params, grads, {momentum != 0 ? buffers : TensorList{}}, {});
  OptimizerParams p;
  const Tensor rate = set_rate(p, lr, params);
  p.weight_decay = weight_decay, p.momentum = momentum, p.dampening = dampening;
  p.nesterov = nesterov, p.maximize = maximize, p.first_step = first_step;
  p.grad_scale = float_pointer(grad_scale), p.found_inf = float_pointer(found_inf);
  fused_sgd_kernel(items, to_dtype(params[0].scalar_type()), p);
}

template <class Rate>
void fused_adagrad(TensorList params, TensorList grads, TensorList sums, TensorList steps, Rate lr, double lr_decay,
                   double weight_decay, double eps, bool maximize, const std::optional<Tensor>& grad_scale,
                   const std::optional<Tensor>& found_inf) {
  if (params.empty()) return;
  check_complete("state_sums", sums, params);
  check_complete("state_steps", steps, params);
  const auto items = items_of(params, grads, {sums}, steps);
  OptimizerParams p;
  const Tensor rate = set_rate(p, lr, params);
  p.lr_decay = lr_decay, p.weight_decay = weight_decay, p.eps = eps, p.maximize = maximize;
  p.grad_scale = float_pointer(grad_scale), p.found_inf = float_pointer(found_inf);
  fused_adagrad_kernel(items, to_dtype(params[0].scalar_type()), p);
}

void non_finite_check_and_unscale(TensorList scaled, Tensor& found_inf, const Tensor& inv_scale) {
  if (scaled.empty()) return;
  TORCH_CHECK(inv_scale.numel() == 1, "inv_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(inv_scale.scalar_type() == at::kFloat, "inv_scale must be a float tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::kFloat, "found_inf must be a float tensor.");
  const auto dtype = scaled[0].scalar_type();
  std::vector<ForeachItem> items;
  std::vector<std::pair<Tensor, Tensor>> copies;  // tensors with gaps, and their contiguous stand-ins
  for (const Tensor& t : scaled) {
    check_same_device({&t, &found_inf, &inv_scale});
    TORCH_CHECK(t.scalar_type() == dtype, "scaled_grads must have the same dtype.");
    TORCH_CHECK(t.layout() == at::kStrided, "one of scaled_grads was not a strided tensor.");
    Tensor dense = t;
    if (!t.is_non_overlapping_and_dense()) {
      dense = t.contiguous();
      copies.emplace_back(t, dense);
    }
    items.push_back({dense.numel(), {static_cast<char*>(dense.data_ptr())}, 0});
  }
  unscale_kernel(items, to_dtype(dtype), float_pointer(inv_scale), static_cast<float*>(found_inf.data_ptr()));
  for (auto& [t, dense] : copies) t.copy_(dense);
}

Tensor& update_scale(Tensor& scale, Tensor& growth_tracker, const Tensor& found_inf, double growth, double backoff,
                     int64_t interval) {
  TORCH_CHECK(growth_tracker.numel() == 1, "growth_tracker must be a 1-element tensor.");
  TORCH_CHECK(scale.numel() == 1, "current_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(growth_tracker.scalar_type() == at::kInt, "growth_tracker must be an int tensor.");
  TORCH_CHECK(scale.scalar_type() == at::kFloat, "current_scale must be a float tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::kFloat, "found_inf must be a float tensor.");
  check_same_device({&scale, &growth_tracker, &found_inf});
  update_scale_kernel(static_cast<float*>(scale.data_ptr()), static_cast<int32_t*>(growth_tracker.data_ptr()),
                      float_pointer(found_inf), growth, backoff, interval);
  return scale;
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("_fused_adam_", MT_CHECKED(fused_adam<false, double>));
  m.impl("_fused_adamw_", MT_CHECKED(fused_adam<true, double>));
  m.impl("_fused_adam_.tensor_lr", MT_CHECKED(fused_adam<false, const Tensor&>));
  m.impl("_fused_adamw_.tensor_lr", MT_CHECKED(fused_adam<true, const Tensor&>));
  m.impl("_fused_sgd_", MT_CHECKED(fused_sgd<double>));
  m.impl("_fused_sgd_.tensor_lr", MT_CHECKED(fused_sgd<const Tensor&>));
  m.impl("_fused_adagrad_", MT_CHECKED(fused_adagrad<double>));
  m.impl("_fused_adagrad_.tensor_lr", MT_CHECKED(fused_adagrad<const Tensor&>));
  m.impl("_amp_foreach_non_finite_check_and_unscale_", MT_CHECKED(non_finite_check_and_unscale));
  m.impl("_amp_update_scale_", MT_CHECKED(update_scale));
}

}  // namespace
}  // namespace minitorch
