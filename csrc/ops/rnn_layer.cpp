// minitorch::rnn_layer_forward and _backward, the operators under lstm, gru, rnn_tanh and rnn_relu: one direction of
// one layer over a whole sequence. The input's products for all time steps are one matrix product, as are the gradients
// of the input and of both weights; the recurrence between them is one kernel.
#include <torch/library.h>

#include "bridge/checked.h"
#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/rnn.h"
#include "ops/matmul.h"
#include "ops/rnn.h"

namespace minitorch {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

RnnMode to_mode(int64_t mode) {
  TORCH_CHECK(mode >= 0 && mode <= static_cast<int64_t>(RnnMode::gru), "Expected a mode of 0 to 3, got ", mode);
  return static_cast<RnnMode>(mode);
}
bool has_cells(RnnMode mode) { return mode == RnnMode::lstm || mode == RnnMode::gru; }

struct Sizes {
  int64_t steps, batch, hidden, width;

  Sizes(const Tensor& x, const Tensor& w_ih, const Tensor& w_hh, const Tensor& h0, RnnMode mode)
      : steps(x.size(0)), batch(x.size(1)), hidden(w_hh.size(1)), width(gate_count(mode) * hidden) {
    TORCH_CHECK(x.dim() == 3 && w_ih.dim() == 2 && w_hh.dim() == 2 && w_ih.size(0) == width && w_hh.size(0) == width &&
                    w_ih.size(1) == x.size(2) && h0.numel() == batch * hidden && steps > 0,
                "Expected an input (steps, batch, features), weights (gates * hidden, features) and (gates * hidden, ",
                "hidden) and a state (batch, hidden), got ", x.sizes(), ", ", w_ih.sizes(), ", ", w_hh.sizes(), " and ",
                h0.sizes());
  }
};

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> forward(const Tensor& x, const Tensor& w_ih, const Tensor& w_hh,
                                                           const OptionalTensor& b_ih, const OptionalTensor& b_hh,
                                                           const Tensor& h0, const OptionalTensor& c0, int64_t mode,
                                                           bool reverse) {
  const RnnMode m = to_mode(mode);
  const Tensor h = h0.contiguous(), c = dense(c0), weight = w_hh.contiguous(), bias = dense(b_hh);
  check_same_device({&x, &w_ih, &weight, &bias, &h, &c});
  const Sizes s(x, w_ih, w_hh, h0, m);
  TORCH_CHECK(c.defined() == (m == RnnMode::lstm) && (!c.defined() || c.numel() == h.numel()) &&
                  (!bias.defined() || bias.numel() == s.width),
              "Expected a cell state for the LSTM only, and a bias of ", s.width, " elements");
  const auto type = x.scalar_type();
  for (const Tensor* t : {&h, &c, &weight, &bias})
    TORCH_CHECK(!t->defined() || t->scalar_type() == type, "Expected one dtype, got ", type, " and ", t->scalar_type());
  const Tensor gates = linear_forward(x, w_ih, b_ih);
  const Tensor y = empty({s.steps, s.batch, s.hidden}, type);
  const Tensor cells = empty(has_cells(m) ? y.sizes() : at::IntArrayRef({0}), type);
  const Tensor hn = empty(h.sizes(), type), cn = empty(c.defined() ? c.sizes() : at::IntArrayRef({0}), type);
  rnn_layer_kernel({m, reverse, to_dtype(type), s.steps, s.batch, s.hidden, read(weight), read(bias), read(h), read(c),
                    write(gates), write(y), has_cells(m) ? write(cells) : nullptr, write(hn), write(cn)});
  return {y, hn, cn, gates, cells};
}

// The gradient of W_hh: the products of each step's gates with the state before it.
Tensor recurrent_weight_gradient(const Tensor& grad_gates, const Tensor& y, const Tensor& h0, bool reverse) {
  const int64_t steps = y.size(0), batch = y.size(1), hidden = y.size(2), width = grad_gates.size(2);
  const Tensor grad = empty({width, hidden}, y.scalar_type());
  const int64_t first = reverse ? steps - 1 : 0, others = reverse ? 0 : 1, before = reverse ? 1 : 0;
  matrix_product(grad, grad_gates.select(0, first).t(), h0.view({batch, hidden}), Tensor(), 1, 0);
  if (steps > 1)
    matrix_product(grad, grad_gates.narrow(0, others, steps - 1).view({-1, width}).t(),
                   y.narrow(0, before, steps - 1).view({-1, hidden}), grad, 1, 1);
  return grad;
}

using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

Gradients backward(const OptionalTensor& grad_y, const OptionalTensor& grad_hn, const OptionalTensor& grad_cn,
                   const Tensor& x, const Tensor& w_ih, const Tensor& w_hh, const Tensor& h0, const OptionalTensor& c0,
                   const Tensor& y, const Tensor& gates, const Tensor& cells, bool has_bias, int64_t mode, bool reverse,
                   std::array<bool, 2> mask) {
  const RnnMode m = to_mode(mode);
  const Sizes s(x, w_ih, w_hh, h0, m);
  const Tensor gy = dense(grad_y), gh = dense(grad_hn), gc = dense(grad_cn);
  const Tensor weight = w_hh.contiguous(), h = h0.contiguous(), c = dense(c0);
  const auto type = x.scalar_type();
  const Tensor grad_gates = empty(gates.sizes(), type), grad_h0 = empty(h0.sizes(), type);
  const Tensor grad_hidden_gates = m == RnnMode::gru ? empty(gates.sizes(), type) : Tensor();
  const Tensor grad_c0 = c.defined() ? empty(c.sizes(), type) : Tensor();
  rnn_layer_backward_kernel({m, reverse, to_dtype(type), s.steps, s.batch, s.hidden, read(weight), read(gy), read(gh),
                             read(gc), read(h), read(c), read(y), read(gates), read(cells), write(grad_gates),
                             write(grad_hidden_gates), write(grad_h0), write(grad_c0)});
  const Tensor rows = grad_gates.view({-1, s.width});
  Tensor grad_x, grad_w_ih, grad_w_hh, grad_b_ih, grad_b_hh;
  if (mask[0]) {
    grad_x = empty(x.sizes(), type);
    matrix_product(grad_x.view({-1, x.size(2)}), rows, w_ih, Tensor(), 1, 0);
  }
  if (mask[1]) {
    const Tensor& through = grad_hidden_gates.defined() ? grad_hidden_gates : grad_gates;
    grad_w_ih = empty(w_ih.sizes(), type);
    matrix_product(grad_w_ih, rows.t(), x.reshape({-1, x.size(2)}), Tensor(), 1, 0);
    grad_w_hh = recurrent_weight_gradient(through, y, h, reverse);
    if (has_bias) {
      grad_b_ih = rows.sum(0);
      grad_b_hh = grad_hidden_gates.defined() ? through.view({-1, s.width}).sum(0) : grad_b_ih.clone();
    }
  }
  return {grad_x, grad_w_ih, grad_w_hh, grad_b_ih, grad_b_hh, grad_h0, grad_c0};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> forward_meta(const Tensor& x, const Tensor& w_ih, const Tensor& w_hh,
                                                                const OptionalTensor&, const OptionalTensor&,
                                                                const Tensor& h0, const OptionalTensor& c0,
                                                                int64_t mode, bool) {
  const auto steps = x.sym_size(0), batch = x.sym_size(1);
  const auto make = [&](c10::SymIntArrayRef sizes) { return at::empty_symint(sizes, x.options()); };
  const Tensor y = make({steps, batch, w_hh.sym_size(1)}), none = make({0});
  return {y, make(h0.sym_sizes()), c0.has_value() && c0->defined() ? make(c0->sym_sizes()) : none,
          make({steps, batch, w_ih.sym_size(0)}), has_cells(to_mode(mode)) ? at::empty_like(y) : make({0})};
}

Gradients backward_meta(const OptionalTensor&, const OptionalTensor&, const OptionalTensor&, const Tensor& x,
                        const Tensor& w_ih, const Tensor& w_hh, const Tensor& h0, const OptionalTensor& c0,
                        const Tensor&, const Tensor&, const Tensor&, bool has_bias, int64_t, bool,
                        std::array<bool, 2> mask) {
  const auto like = [&](bool wanted, c10::SymIntArrayRef sizes) {
    return wanted ? at::empty_symint(sizes, x.options()) : Tensor();
  };
  const bool bias = mask[1] && has_bias, cell = c0.has_value() && c0->defined();
  return {like(mask[0], x.sym_sizes()),
          like(mask[1], w_ih.sym_sizes()),
          like(mask[1], w_hh.sym_sizes()),
          like(bias, {w_ih.sym_size(0)}),
          like(bias, {w_ih.sym_size(0)}),
          like(true, h0.sym_sizes()),
          cell ? like(true, c0->sym_sizes()) : Tensor()};
}

TORCH_LIBRARY_FRAGMENT(minitorch, m) {
  m.def(
      "rnn_layer_forward(Tensor x, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh, Tensor h0, Tensor? c0, "
      "int mode, bool reverse) -> (Tensor y, Tensor hn, Tensor cn, Tensor gates, Tensor cells)",
      {at::Tag::pt2_compliant_tag});
  m.def(
      "rnn_layer_backward(Tensor? grad_y, Tensor? grad_hn, Tensor? grad_cn, Tensor x, Tensor w_ih, Tensor w_hh, "
      "Tensor h0, Tensor? c0, Tensor y, Tensor gates, Tensor cells, bool has_bias, int mode, bool reverse, "
      "bool[2] mask) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
      {at::Tag::pt2_compliant_tag});
}
MT_OPERATORS(minitorch, PrivateUse1, m) {
  m.impl("rnn_layer_forward", MT_CHECKED(forward));
  m.impl("rnn_layer_backward", MT_CHECKED(backward));
}
TORCH_LIBRARY_IMPL(minitorch, Meta, m) {
  m.impl("rnn_layer_forward", TORCH_FN(forward_meta));
  m.impl("rnn_layer_backward", TORCH_FN(backward_meta));
}

}  // namespace
}  // namespace minitorch
