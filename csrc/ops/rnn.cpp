// Fused recurrent cells. PyTorch's nn.LSTM and nn.GRU call them for our device at each time step.
#include <torch/library.h>

#include "bridge/operators.h"
#include "bridge/tensor.h"
#include "kernels/rnn.h"
#include "ops/rnn.h"

namespace minitorch {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// The operands of a cell as contiguous tensors, checked.
struct Cell {
  Tensor input_gates, hidden_gates, state, input_bias, hidden_bias;
  int64_t hidden;

  Cell(const Tensor& input, const Tensor& recurrent, const Tensor& s, const OptionalTensor& bias_ih,
       const OptionalTensor& bias_hh, int64_t gates)
      : input_gates(input.contiguous()),
        hidden_gates(recurrent.contiguous()),
        state(s.contiguous()),
        input_bias(dense(bias_ih)),
        hidden_bias(dense(bias_hh)),
        hidden(input.size(1) / gates) {
    check_same_device({&input_gates, &hidden_gates, &state, &input_bias, &hidden_bias});
    TORCH_CHECK(input.dim() == 2 && input.sizes() == recurrent.sizes(),
                "Expected input_gates and hidden_gates to be matrices of one shape, got ", input.sizes(), " and ",
                recurrent.sizes());
    TORCH_CHECK(input.size(1) == gates * hidden && s.dim() == 2 && s.size(0) == input.size(0) && s.size(1) == hidden,
                "Expected a state of shape [", input.size(0), ", ", hidden, "], got ", s.sizes());
    TORCH_CHECK(input_bias.defined() == hidden_bias.defined(), "Expected both biases or none");
    for (const Tensor* t : {&hidden_gates, &state, &input_bias, &hidden_bias})
      TORCH_CHECK(!t->defined() || t->scalar_type() == input.scalar_type(),
                  "Expected one dtype for gates, state and "
                  "biases, got ",
                  input.scalar_type(), " and ", t->scalar_type());
    for (const Tensor* t : {&input_bias, &hidden_bias})
      TORCH_CHECK(!t->defined() || t->numel() == input.size(1), "Expected biases of ", input.size(1), " elements, got ",
                  t->numel());
  }
  CellArgs args() const {
    return {input_gates.size(0),
            hidden,
            to_dtype(input_gates.scalar_type()),
            read(input_gates),
            read(hidden_gates),
            read(input_bias),
            read(hidden_bias),
            read(state)};
  }
};

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const Cell cell(input_gates, hidden_gates, cx, input_bias, hidden_bias, 4);
  const auto type = input_gates.scalar_type();
  Tensor hy = empty(cell.state.sizes(), type), cy = empty(cell.state.sizes(), type);
  Tensor workspace = empty(input_gates.sizes(), type);
  if (hy.numel() != 0) lstm_cell_kernel(cell.args(), write(hy), write(cy), write(workspace));
  return {hy, cy, workspace};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
                                                      const Tensor& cx, const Tensor& cy, const Tensor& workspace,
                                                      bool has_bias) {
  const Tensor gh = dense(grad_hy), gc = dense(grad_cy);
  if (!gh.defined() && !gc.defined()) return {};
  check_same_device({&gh, &gc, &cx, &cy, &workspace});
  TORCH_CHECK(cx.dim() == 2 && workspace.numel() == 4 * cx.numel(),
              "Expected a matrix as state and a workspace of four times its size, got ", cx.sizes(), " and ",
              workspace.sizes());
  for (const Tensor* t : {&gh, &gc, &cy})
    TORCH_CHECK(!t->defined() || t->sizes() == cx.sizes(), "Expected states and gradients of shape ", cx.sizes(),
                ", got ", t->sizes());
  for (const Tensor* t : {&gh, &gc, &cx, &cy})
    TORCH_CHECK(!t->defined() || t->scalar_type() == workspace.scalar_type(), "Expected states and gradients of dtype ",
                workspace.scalar_type(), ", got ", t->scalar_type());
  const Tensor x = cx.contiguous(), y = cy.contiguous(), kept = workspace.contiguous();
  const auto type = kept.scalar_type();
  Tensor grad_gates = empty(kept.sizes(), type), grad_cx = empty(x.sizes(), type);
  if (x.numel() != 0)
    lstm_cell_backward_kernel({x.size(0), x.size(1), to_dtype(type), read(gh), read(gc), read(x), read(y), read(kept)},
                              write(grad_gates), write(grad_cx));
  return {grad_gates, grad_cx, has_bias ? grad_gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const Cell cell(input_gates, hidden_gates, hx, input_bias, hidden_bias, 3);
  const auto type = input_gates.scalar_type();
  Tensor hy = empty(cell.state.sizes(), type), workspace = empty({hx.size(0), 5 * cell.hidden}, type);
  if (hy.numel() != 0) gru_cell_kernel(cell.args(), write(hy), write(workspace));
  return {hy, workspace};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace,
                                                                     bool has_bias) {
  check_same_device({&grad_hy, &workspace});
  TORCH_CHECK(grad_hy.dim() == 2 && workspace.numel() == 5 * grad_hy.numel() &&
                  workspace.scalar_type() == grad_hy.scalar_type(),
              "Expected a matrix as gradient and a workspace of five times its size and of its dtype, got ",
              grad_hy.sizes(), " of ", grad_hy.scalar_type(), " and ", workspace.sizes(), " of ",
              workspace.scalar_type());
  const Tensor g = grad_hy.contiguous(), kept = workspace.contiguous();
  const auto type = kept.scalar_type();
  const int64_t rows = g.size(0), hidden = g.size(1);
  Tensor grad_input = empty({rows, 3 * hidden}, type), grad_hidden = empty({rows, 3 * hidden}, type);
  Tensor grad_hx = empty(g.sizes(), type);
  if (g.numel() != 0)
    gru_cell_backward_kernel({rows, hidden, to_dtype(type), read(g), nullptr, nullptr, nullptr, read(kept)},
                             write(grad_input), write(grad_hidden), write(grad_hx));
  if (!has_bias) return {grad_input, grad_hidden, grad_hx, Tensor(), Tensor()};
  return {grad_input, grad_hidden, grad_hx, grad_input.sum(0), grad_hidden.sum(0)};
}

MT_OPERATORS(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace
}  // namespace minitorch
