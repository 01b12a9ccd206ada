// lstm, gru, rnn_tanh and rnn_relu: one autograd node for one direction of one layer, where PyTorch's composite has
// several for each time step. Kept for the backward pass are the activated gates, the states and the input.
//
// The gradient that create_graph asks for is taken through PyTorch's composite of the same layer, which is
// differentiable to any order; packed sequences and projections run on the composite altogether.
#include <ATen/autocast_mode.h>
#include <ATen/ops/_thnn_differentiable_lstm_cell_backward_native.h>
#include <ATen/ops/_thnn_fused_lstm_cell_backward_native.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <torch/csrc/autograd/autograd.h>

#include "autograd/function.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/rnn.h"

namespace minitorch {
namespace {

using at::Tensor;
using at::TensorList;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<Tensor>;

OptionalTensor optional(const Tensor& t) { return t.defined() ? OptionalTensor(t) : std::nullopt; }

// What one direction of one layer takes; biases and c0 may be undefined.
struct Operands {
  Tensor x, w_ih, w_hh, b_ih, b_hh, h0, c0;
  variable_list list() const { return {x, w_ih, w_hh, b_ih, b_hh, h0, c0}; }
};
struct Results {
  Tensor y, hn, cn;
};

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> forward_op(const Operands& o, RnnMode mode, bool reverse) {
  static const auto op = find_operator<std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>(
      const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&, const OptionalTensor&, const Tensor&,
      const OptionalTensor&, int64_t, bool)>("minitorch::rnn_layer_forward");
  return op.call(o.x, o.w_ih, o.w_hh, optional(o.b_ih), optional(o.b_hh), o.h0, optional(o.c0),
                 static_cast<int64_t>(mode), reverse);
}

using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;
Gradients backward_op(const variable_list& grads, const Operands& o, const Tensor& y, const Tensor& gates,
                      const Tensor& cells, RnnMode mode, bool reverse, std::array<bool, 2> mask) {
  static const auto op =
      find_operator<Gradients(const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, const Tensor&,
                              const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&, const Tensor&,
                              const Tensor&, const Tensor&, bool, int64_t, bool, std::array<bool, 2>)>(
          "minitorch::rnn_layer_backward");
  const OptionalTensor grad_cn = mode == RnnMode::lstm ? optional(grads[2]) : std::nullopt;
  return op.call(optional(grads[0]), optional(grads[1]), grad_cn, o.x, o.w_ih, o.w_hh, o.h0, optional(o.c0), y, gates,
                 cells, o.b_ih.defined(), static_cast<int64_t>(mode), reverse, mask);
}

// PyTorch's composite with all its arguments. `hx` is h0, for the LSTM also c0.
Results composite(RnnMode mode, const Tensor& input, TensorList hx, TensorList params, bool biases, int64_t layers,
                  double dropout, bool train, bool bidirectional, bool batch_first) {
  if (mode == RnnMode::lstm) {
    auto [y, hn, cn] = at::native::lstm(input, hx, params, biases, layers, dropout, train, bidirectional, batch_first);
    return {y, hn, cn};
  }
  using Composite =
      std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, TensorList, bool, int64_t, double, bool, bool, bool);
  Composite f = &at::native::rnn_relu;
  if (mode == RnnMode::gru) f = &at::native::gru;
  if (mode == RnnMode::tanh) f = &at::native::rnn_tanh;
  auto [y, hn] = f(input, hx[0], params, biases, layers, dropout, train, bidirectional, batch_first);
  return {y, hn, Tensor()};
}

// The gradients of the operands as differentiable functions of the operands and of the outputs' gradients.
variable_list differentiable_gradients(const Operands& o, const variable_list& grads, RnnMode mode, bool reverse) {
  // Fresh names of the operands: should one have been computed from another, the gradient stops here all the same.
  variable_list named, wanted;
  for (const Tensor& t : o.list()) {
    named.push_back(t.defined() && t.requires_grad() ? t.view_as(t) : t);
    if (named.back().defined() && named.back().requires_grad()) wanted.push_back(named.back());
  }
  const bool biases = o.b_ih.defined(), lstm = mode == RnnMode::lstm;
  variable_list params = {named[1], named[2]}, state;
  if (biases) params.insert(params.end(), {named[3], named[4]});
  const auto batched = [&](const Tensor& t) { return t.reshape_symint({1, o.x.sym_size(1), o.w_hh.sym_size(1)}); };
  state.push_back(batched(named[5]));
  if (lstm) state.push_back(batched(named[6]));
  Results r = composite(mode, reverse ? named[0].flip(0) : named[0], state, params, biases, 1, 0, false, false, false);
  if (reverse) r.y = r.y.flip(0);
  variable_list outputs, output_grads;
  const Tensor results[] = {r.y, r.hn, r.cn};
  for (size_t i = 0; i < (lstm ? 3 : 2); i++) {
    if (!grads[i].defined()) continue;
    outputs.push_back(results[i]);
    output_grads.push_back(grads[i].reshape_symint(results[i].sym_sizes()));
  }
  const auto found = torch::autograd::grad(outputs, wanted, output_grads, /*retain_graph=*/true, /*create_graph=*/true,
                                           /*allow_unused=*/true);
  variable_list result;
  size_t next = 0;
  for (const Tensor& t : named) result.push_back(t.defined() && t.requires_grad() ? found[next++] : Tensor());
  return result;
}

struct RnnLayer : torch::autograd::Function<RnnLayer> {
  // What may be absent comes last and is optional: only tensors that were given have an edge to ask about.
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& w_ih, const Tensor& w_hh,
                               const Tensor& h0, const OptionalTensor& b_ih, const OptionalTensor& b_hh,
                               const OptionalTensor& c0, int64_t mode, bool reverse) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const Operands o{x, w_ih, w_hh, b_ih.value_or(Tensor()), b_hh.value_or(Tensor()), h0, c0.value_or(Tensor())};
    auto [y, hn, cn, gates, cells] = forward_op(o, static_cast<RnnMode>(mode), reverse);
    ctx->saved_data["mode"] = mode;
    ctx->saved_data["reverse"] = reverse;
    ctx->save_for_backward({x, w_ih, w_hh, o.b_ih, o.b_hh, h0, o.c0, y, gates, cells});
    ctx->set_materialize_grads(false);
    ctx->mark_non_differentiable(o.c0.defined() ? variable_list{gates, cells} : variable_list{cn, gates, cells});
    return {y, hn, cn, gates, cells};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Operands o{saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], saved[6]};
    const auto mode = static_cast<RnnMode>(ctx->saved_data["mode"].toInt());
    const bool reverse = ctx->saved_data["reverse"].toBool();
    if (!grads[0].defined() && !grads[1].defined() && !(o.c0.defined() && grads[2].defined())) return variable_list(9);
    if (at::GradMode::is_enabled()) {
      const variable_list r = differentiable_gradients(o, grads, mode, reverse);
      return {r[0], r[1], r[2], r[5], r[3], r[4], r[6], {}, {}};
    }
    bool parameters = ctx->needs_input_grad(1) || ctx->needs_input_grad(2);
    if (o.b_ih.defined()) parameters = parameters || ctx->needs_input_grad(4) || ctx->needs_input_grad(5);
    auto [x, w_ih, w_hh, b_ih, b_hh, h0, c0] =
        backward_op(grads, o, saved[7], saved[8], saved[9], mode, reverse, {ctx->needs_input_grad(0), parameters});
    return {x, w_ih, w_hh, h0, b_ih, b_hh, c0, {}, {}};
  }
};

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> layer_forward(const Tensor& x, const Tensor& w_ih,
                                                                 const Tensor& w_hh, const OptionalTensor& b_ih,
                                                                 const OptionalTensor& b_hh, const Tensor& h0,
                                                                 const OptionalTensor& c0, int64_t mode, bool reverse) {
  const auto r = RnnLayer::apply(x, w_ih, w_hh, h0, b_ih, b_hh, c0, mode, reverse);
  return {r[0], r[1], r[2], r[3], r[4]};
}

// A call of nn.LSTM, nn.GRU or nn.RNN.
struct Call {
  RnnMode mode;
  Tensor input;
  variable_list hx, params;
  bool biases;
  int64_t layers;
  double dropout;
  bool train, bidirectional, batch_first;

  int64_t directions() const { return bidirectional ? 2 : 1; }
  size_t stride() const { return biases ? 4 : 2; }  // parameters of one direction

  Results run_composite() const {
    return composite(mode, input, hx, params, biases, layers, dropout, train, bidirectional, batch_first);
  }

  // The composite serves the other cases, and raises native's errors.
  bool fuses() const {
    const auto type = input.scalar_type();
    if (!at::isFloatingType(type) || at::isFloat8Type(type) || input.dim() != 3 || input.sym_numel() == 0) return false;
    if (layers < 1 || params.size() != stride() * static_cast<size_t>(layers * directions())) return false;
    if (hx.size() != (mode == RnnMode::lstm ? 2 : 1) || hx[0].dim() != 3) return false;
    const auto hidden = hx[0].sym_size(2), batch = input.sym_size(batch_first ? 0 : 1);
    const auto width = hidden * gate_count(mode);
    if (hidden == 0 || !(dropout >= 0 && dropout <= 1)) return false;
    for (const Tensor& h : hx)
      if (h.dim() != 3 || h.sym_size(0) != layers * directions() || h.sym_size(1) != batch || h.sym_size(2) != hidden)
        return false;
    const auto same = [&](const Tensor& t) {
      return t.defined() && t.scalar_type() == type && t.device() == input.device() && t.layout() == at::kStrided;
    };
    for (const Tensor& h : hx)
      if (!same(h)) return false;
    for (size_t i = 0; i < params.size(); i++) {
      const Tensor& p = params[i];
      if (!same(p) || p.dim() != (i % stride() < 2 ? 2 : 1) || p.sym_size(0) != width) return false;
      const bool first = i / stride() < static_cast<size_t>(directions());
      if (i % stride() == 0 && p.sym_size(1) != (first ? input.sym_size(2) : hidden * directions())) return false;
      if (i % stride() == 1 && p.sym_size(1) != hidden) return false;
    }
    return true;
  }

  bool aside() const {
    if (steps_aside(input)) return true;
    for (const variable_list* list : {&hx, &params})
      for (const Tensor& t : *list)
        if (has_tangent(t)) return true;
    return false;
  }

  // Autocast knows the composite's cells; a whole layer runs in its dtype likewise.
  void cast() {
    if (!at::autocast::is_autocast_enabled(kDevice)) return;
    const auto type = at::autocast::get_autocast_dtype(kDevice);
    const auto to = [&](Tensor& t) { t = at::autocast::cached_cast(type, t, kDevice); };
    to(input);
    for (variable_list* list : {&hx, &params})
      for (Tensor& t : *list) to(t);
  }

  Results run() const {
    Tensor x = batch_first ? input.transpose(0, 1) : input;
    const bool lstm = mode == RnnMode::lstm, single = layers == 1 && !bidirectional;
    variable_list hn, cn;
    for (int64_t layer = 0; layer < layers; layer++) {
      variable_list ys;
      for (int64_t direction = 0; direction < directions(); direction++) {
        const int64_t i = layer * directions() + direction;
        const Tensor* p = &params[static_cast<size_t>(i) * stride()];
        const auto state = [&](size_t k) { return single ? hx[k] : hx[k].select(0, i); };
        const Operands o{
            x, p[0], p[1], biases ? p[2] : Tensor(), biases ? p[3] : Tensor(), state(0), lstm ? state(1) : Tensor()};
        auto [y, h, c, gates, cells] = forward_op(o, mode, direction == 1);
        ys.push_back(y);
        hn.push_back(h);
        cn.push_back(c);
      }
      x = bidirectional ? at::cat(ys, -1) : ys[0];
      if (dropout != 0 && train && layer + 1 < layers) x = at::dropout(x, dropout, /*train=*/true);
    }
    // The backward pass reads y, and callers may write to the result in place.
    if (!bidirectional && x.requires_grad()) x = x.clone();
    if (batch_first) x = x.transpose(0, 1);
    const auto joined = [&](const variable_list& states) { return single ? states[0] : at::stack(states, 0); };
    return {x, joined(hn), lstm ? joined(cn) : Tensor()};
  }
};

template <bool kAutograd>
Results dispatch_call(Call call) {
  if (kAutograd && call.aside()) return call.run_composite();
  Call cast = call;
  cast.cast();
  return cast.fuses() ? cast.run() : call.run_composite();
}

template <bool kAutograd>
std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, TensorList hx, TensorList params, bool biases,
                                        int64_t layers, double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  const Results r = dispatch_call<kAutograd>(
      {RnnMode::lstm, input, hx.vec(), params.vec(), biases, layers, dropout, train, bidirectional, batch_first});
  return {r.y, r.hn, r.cn};
}

template <bool kAutograd, RnnMode kMode>
std::tuple<Tensor, Tensor> rnn(const Tensor& input, const Tensor& hx, TensorList params, bool biases, int64_t layers,
                               double dropout, bool train, bool bidirectional, bool batch_first) {
  const Results r = dispatch_call<kAutograd>(
      {kMode, input, {hx}, params.vec(), biases, layers, dropout, train, bidirectional, batch_first});
  return {r.y, r.hn};
}

// PyTorch's gradients of a fused LSTM cell are one tensor for both biases. Native on the CPU, which has no fused cell,
// returns two, and whoever changes one in place does not mean the other.
template <auto backward>
struct Apart;
template <class R, class... Args, R (*backward)(Args...)>
struct Apart<backward> {
  static R call(Args... args) {
    R gradients = backward(args...);
    Tensor& hidden_bias = std::get<4>(gradients);
    if (hidden_bias.defined()) hidden_bias = hidden_bias.clone();
    return gradients;
  }
};

template <bool kAutograd>
void implement(const Operators& m) {
  m.impl("lstm.input", TORCH_FN(lstm<kAutograd>));
  m.impl("gru.input", TORCH_FN((rnn<kAutograd, RnnMode::gru>)));
  m.impl("rnn_tanh.input", TORCH_FN((rnn<kAutograd, RnnMode::tanh>)));
  m.impl("rnn_relu.input", TORCH_FN((rnn<kAutograd, RnnMode::relu>)));
}

MT_OPERATORS(minitorch, AutogradPrivateUse1, m) { m.impl("rnn_layer_forward", TORCH_FN(layer_forward)); }
MT_OPERATORS(aten, AutogradPrivateUse1, m) {
  implement<true>(m);
  m.impl("_thnn_fused_lstm_cell_backward", TORCH_FN(Apart<at::native::_thnn_fused_lstm_cell_backward>::call));
  m.impl("_thnn_differentiable_lstm_cell_backward",
         TORCH_FN(Apart<at::native::_thnn_differentiable_lstm_cell_backward>::call));
}
MT_OPERATORS(aten, PrivateUse1, m) { implement<false>(m); }

}  // namespace
}  // namespace minitorch
