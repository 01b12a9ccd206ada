// Recurrent networks: the pointwise half of LSTM and GRU cells, and whole layers over all time steps.
#pragma once
#include "kernels/kernel.h"
#include "kernels/view.h"

namespace minitorch {

// All matrices are contiguous, of one floating dtype, with `rows` rows. Gates stand side by side: i f g o for the LSTM
// (S. Hochreiter, J. Schmidhuber 1997, with the forget gate), r z n for the GRU (K. Cho et al. 2014). Biases are rows
// or null.
struct CellArgs {
  int64_t rows, hidden;
  DType dtype;
  const char *input_gates, *hidden_gates, *input_bias, *hidden_bias;
  const char* state;  // LSTM: cx; GRU: hx
};

// hy, cy (hidden wide) and the activated gates i f g o (4 hidden wide), kept for the backward pass.
extern Kernel<void(const CellArgs&, char* hy, char* cy, char* workspace)> lstm_cell_kernel;
// hy, and r z n hx (hidden part of n) side by side (5 hidden wide).
extern Kernel<void(const CellArgs&, char* hy, char* workspace)> gru_cell_kernel;

struct CellBackwardArgs {
  int64_t rows, hidden;
  DType dtype;
  const char *grad_hy, *grad_cy;  // null: zero
  const char *cx, *cy, *workspace;
};
extern Kernel<void(const CellBackwardArgs&, char* grad_gates, char* grad_cx)> lstm_cell_backward_kernel;
// grad_input and grad_hidden are the gradients of the two gate matrices, which differ in n.
extern Kernel<void(const CellBackwardArgs&, char* grad_input, char* grad_hidden, char* grad_hx)>
    gru_cell_backward_kernel;

// One direction of one layer over a whole sequence. The products of all inputs with W_ih do not depend on the
// recurrence and are made before; the kernel computes h_t W_hh^T step by step, and the gates from both.
enum class RnnMode : uint8_t { tanh, relu, lstm, gru };
constexpr int64_t gate_count(RnnMode mode) { return mode == RnnMode::lstm ? 4 : mode == RnnMode::gru ? 3 : 1; }

// All contiguous, of one floating dtype. With G = gate_count(mode):
struct RnnLayerArgs {
  RnnMode mode;
  bool reverse;  // the last time step comes first
  DType dtype;
  int64_t steps, batch, hidden;
  const char* weight;   // W_hh (G hidden x hidden)
  const char* bias;     // b_hh (G hidden), or null
  const char *h0, *c0;  // (batch x hidden); c0 for the LSTM only
  char* gates;    // (steps x batch x G hidden): in, W_ih x_t + b_ih; out, the activated gates (tanh, relu: untouched)
  char* y;        // (steps x batch x hidden)
  char* cells;    // like y. LSTM: c_t; GRU: the hidden part of n; null for the others
  char *hn, *cn;  // like h0, c0
};
extern Kernel<void(const RnnLayerArgs&)> rnn_layer_kernel;

struct RnnLayerBackwardArgs {
  RnnMode mode;
  bool reverse;
  DType dtype;
  int64_t steps, batch, hidden;
  const char* weight;
  const char *grad_y, *grad_hn, *grad_cn;  // null: zero
  const char *h0, *c0, *y, *gates, *cells;
  char* grad_gates;         // gradient of W_ih x_t
  char* grad_hidden_gates;  // gradient of W_hh h; null where it is the same (all but the GRU)
  char *grad_h0, *grad_c0;
};
extern Kernel<void(const RnnLayerBackwardArgs&)> rnn_layer_backward_kernel;

}  // namespace minitorch
