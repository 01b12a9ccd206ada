// cross_entropy_loss for class indices. PyTorch composes it of log_softmax and nll_loss and keeps the
// log-probabilities; this keeps the logits, which exist anyway, and one log-sum-exp a row.
//
// With p = softmax(x), target t, weights w and smoothing s (see kernels/cross_entropy.h for the loss):
//   d loss_i / d x_c = (h_i + W s / C) p_c - h_i [c = t] - w_c s / C,   h_i = (1 - s) w_t
#include <ATen/OpMathType.h>
#include <ATen/ops/cross_entropy_loss_native.h>

#include "autograd/function.h"
#include "bridge/operators.h"

namespace minitorch {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<Tensor>;

struct Options {
  int64_t reduction, ignore_index;
  double smoothing;

  void save(AutogradContext* ctx) const {
    ctx->saved_data["reduction"] = reduction;
    ctx->saved_data["ignore_index"] = ignore_index;
    ctx->saved_data["smoothing"] = smoothing;
  }
  static Options saved(AutogradContext* ctx) {
    return {ctx->saved_data["reduction"].toInt(), ctx->saved_data["ignore_index"].toInt(),
            ctx->saved_data["smoothing"].toDouble()};
  }
};

std::tuple<Tensor, Tensor, Tensor> forward_op(const Tensor& logits, const Tensor& target, const OptionalTensor& weight,
                                              const Options& o) {
  static const auto op =
      find_operator<std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, const OptionalTensor&, int64_t,
                                                       int64_t, double)>("minitorch::cross_entropy_forward");
  return op.call(logits, target, weight, o.reduction, o.ignore_index, o.smoothing);
}

Tensor backward_op(const Tensor& grad, const Tensor& logits, const Tensor& target, const OptionalTensor& weight,
                   const Tensor& lse, const Tensor& total_weight, const Options& o) {
  static const auto op =
      find_operator<Tensor(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&, const Tensor&,
                           const Tensor&, int64_t, int64_t, double)>("minitorch::cross_entropy_backward");
  return op.call(grad, logits, target, weight, lse, total_weight, o.reduction, o.ignore_index, o.smoothing);
}

OptionalTensor optional(const Tensor& t) { return t.defined() ? OptionalTensor(t) : std::nullopt; }

struct CrossEntropyBackward : torch::autograd::Function<CrossEntropyBackward> {
  static Tensor forward(AutogradContext* ctx, const Tensor& grad, const Tensor& logits, const Tensor& target,
                        const OptionalTensor& weight, const Tensor& lse, const Tensor& total_weight, int64_t reduction,
                        int64_t ignore_index, double smoothing) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->set_materialize_grads(false);
    const Options o{reduction, ignore_index, smoothing};
    o.save(ctx);
    ctx->save_for_backward({grad, logits, target, weight.value_or(Tensor()), total_weight});
    return backward_op(grad, logits, target, weight, lse, total_weight, o);
  }

  // The gradient as a formula in differentiable operators: r_i (k_i p - h_i [c = t] - w s / C), r_i = grad /
  // normaliser; 16-bit numbers as floats, as the differences cancel.
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return variable_list(9);
    const auto saved = ctx->get_saved_variables();
    const auto stored = saved[1].scalar_type(), compute = at::toOpMathType(stored);
    const Tensor gg = grads[0].to(compute), grad = saved[0].to(compute), logits = saved[1].to(compute);
    const Tensor& target = saved[2];
    const Tensor weight = saved[3].defined() ? saved[3].to(compute) : Tensor();
    const Options o = Options::saved(ctx);
    const auto classes = logits.sym_size(1);
    const double spread = o.smoothing / static_cast<double>(classes.guard_int(__FILE__, __LINE__));

    const Tensor counts = target.ne(o.ignore_index);
    const Tensor index = target.masked_fill(counts.logical_not(), 0);
    Tensor target_weight = counts.to(logits.scalar_type());
    if (weight.defined()) target_weight = target_weight * weight.index_select(0, index);
    const Tensor normaliser = o.reduction == at::Reduction::Mean ? target_weight.sum() : at::ones({}, logits.options());
    const Tensor r = (grad / normaliser * counts).unsqueeze(1);
    const Tensor h = ((1 - o.smoothing) * target_weight).unsqueeze(1);
    const Tensor k = weight.defined() ? h + spread * weight.sum() : h + o.smoothing;

    const Tensor p = at::softmax(logits, 1);
    Tensor direction = k * p - at::zeros_like(p).scatter(1, index.unsqueeze(1), h);
    direction = weight.defined() ? direction - spread * weight : direction - spread;
    const Tensor along = (gg * direction * counts.unsqueeze(1) / normaliser).sum(1);
    const Tensor grad_grad = o.reduction == at::Reduction::None ? along : along.sum();
    const Tensor grad_logits = r * k * p * (gg - (gg * p).sum(1, /*keepdim=*/true));
    return {grad_grad.to(saved[0].scalar_type()), grad_logits.to(stored), {}, {}, {}, {}, {}, {}, {}};
  }
};

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static variable_list forward(AutogradContext* ctx, const Tensor& logits, const Tensor& target,
                               const OptionalTensor& weight, int64_t reduction, int64_t ignore_index,
                               double smoothing) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->set_materialize_grads(false);
    const Options o{reduction, ignore_index, smoothing};
    auto [loss, lse, total_weight] = forward_op(logits, target, weight, o);
    o.save(ctx);
    ctx->save_for_backward({logits, target, weight.value_or(Tensor()), lse, total_weight});
    ctx->mark_non_differentiable({lse, total_weight});
    return {loss, lse, total_weight};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return variable_list(6);
    const auto saved = ctx->get_saved_variables();
    const Options o = Options::saved(ctx);
    Tensor grad = CrossEntropyBackward::apply(grads[0], saved[0], saved[1], optional(saved[2]), saved[3], saved[4],
                                              o.reduction, o.ignore_index, o.smoothing);
    return {grad, {}, {}, {}, {}, {}};
  }
};

std::tuple<Tensor, Tensor, Tensor> cross_entropy_forward(const Tensor& logits, const Tensor& target,
                                                         const OptionalTensor& weight, int64_t reduction,
                                                         int64_t ignore_index, double smoothing) {
  auto result = CrossEntropy::apply(logits, target, weight, reduction, ignore_index, smoothing);
  return {result[0], result[1], result[2]};
}

Tensor cross_entropy_backward(const Tensor& grad, const Tensor& logits, const Tensor& target,
                              const OptionalTensor& weight, const Tensor& lse, const Tensor& total_weight,
                              int64_t reduction, int64_t ignore_index, double smoothing) {
  return CrossEntropyBackward::apply(grad, logits, target, weight, lse, total_weight, reduction, ignore_index,
                                     smoothing);
}

// The case that the kernels serve. The composite serves the others, and raises native's errors.
bool fuses(const Tensor& logits, const Tensor& target, const OptionalTensor& weight, double smoothing) {
  if (!at::isFloatingType(logits.scalar_type()) || target.scalar_type() != at::kLong) return false;
  if (logits.dim() != 2 || target.dim() != 1 || target.sym_size(0) != logits.sym_size(0)) return false;
  if (logits.sym_numel() == 0 || smoothing < 0 || smoothing > 1) return false;
  if (target.device() != logits.device()) return false;
  if (!weight.has_value() || !weight->defined()) return true;
  return weight->dim() == 1 && weight->sym_size(0) == logits.sym_size(1) && !weight->requires_grad() &&
         weight->scalar_type() == logits.scalar_type() && weight->device() == logits.device();
}

Tensor fused(const Tensor& logits, const Tensor& target, const OptionalTensor& weight, int64_t reduction,
             c10::SymInt ignore_index, double smoothing) {
  // Rows must be contiguous; contiguous() is differentiable and usually does nothing.
  const Tensor x = logits.sym_stride(1) == 1 ? logits : logits.contiguous();
  const OptionalTensor w =
      weight.has_value() && weight->defined() ? OptionalTensor(weight->contiguous()) : std::nullopt;
  return std::get<0>(forward_op(x, target, w, {reduction, ignore_index.guard_int(__FILE__, __LINE__), smoothing}));
}

Tensor entry(const Tensor& logits, const Tensor& target, const OptionalTensor& weight, int64_t reduction,
             c10::SymInt ignore_index, double smoothing) {
  if (!fuses(logits, target, weight, smoothing) || steps_aside(logits, target))
    return at::native::cross_entropy_loss_symint(logits, target, weight, reduction, std::move(ignore_index), smoothing);
  return fused(logits, target, weight, reduction, std::move(ignore_index), smoothing);
}

Tensor entry_below_autograd(const Tensor& logits, const Tensor& target, const OptionalTensor& weight, int64_t reduction,
                            c10::SymInt ignore_index, double smoothing) {
  if (!fuses(logits, target, weight, smoothing))
    return at::native::cross_entropy_loss_symint(logits, target, weight, reduction, std::move(ignore_index), smoothing);
  return fused(logits, target, weight, reduction, std::move(ignore_index), smoothing);
}

MT_OPERATORS(minitorch, AutogradPrivateUse1, m) {
  m.impl("cross_entropy_forward", TORCH_FN(cross_entropy_forward));
  m.impl("cross_entropy_backward", TORCH_FN(cross_entropy_backward));
}
MT_OPERATORS(aten, AutogradPrivateUse1, m) { m.impl("cross_entropy_loss", TORCH_FN(entry)); }
MT_OPERATORS(aten, PrivateUse1, m) { m.impl("cross_entropy_loss", TORCH_FN(entry_below_autograd)); }

}  // namespace
}  // namespace minitorch
