// The pointwise half of LSTM and GRU cells: everything after the two matrix products, in one pass.
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

}  // namespace minitorch
