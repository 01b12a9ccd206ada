"""Forward-mode derivatives of fused operators that PyTorch has no formula for.

PyTorch takes an operator of a device such as this one for each step of an LSTM or GRU cell, where it composes the step
on the CPU. Forward mode asks the registry of decompositions what to compute instead: the same steps, differentiated one
by one. Compiled from text, because torch.jit.script would warn.
"""

import torch

_CELLS = """
def lstm(input_gates: Tensor, hidden_gates: Tensor, cx: Tensor,
         input_bias: Optional[Tensor] = None, hidden_bias: Optional[Tensor] = None) -> Tuple[Tensor, Tensor, Tensor]:
    gates = input_gates + hidden_gates
    if input_bias is not None:
        gates = gates + input_bias
    if hidden_bias is not None:
        gates = gates + hidden_bias
    i, f, g, o = torch.unsafe_chunk(gates, 4, 1)
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    cy = f * cx + i * g
    return o * torch.tanh(cy), cy, torch.cat([i, f, g, o], 1)

def gru(input_gates: Tensor, hidden_gates: Tensor, hx: Tensor,
        input_bias: Optional[Tensor] = None, hidden_bias: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    if input_bias is not None:
        input_gates = input_gates + input_bias
    if hidden_bias is not None:
        hidden_gates = hidden_gates + hidden_bias
    ir, iz, i_new = torch.unsafe_chunk(input_gates, 3, 1)
    hr, hz, h_new = torch.unsafe_chunk(hidden_gates, 3, 1)
    r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
    n = torch.tanh(i_new + r * h_new)
    return (hx - n) * z + n, torch.cat([r, z, n, hx, h_new], 1)
"""


def install() -> None:
    """Tell PyTorch what to differentiate in forward mode instead of a fused cell. Once a process."""
    cells = torch.jit.CompilationUnit(_CELLS)
    for operator, cell in (("_thnn_fused_lstm_cell", cells.lstm), ("_thnn_fused_gru_cell", cells.gru)):
        torch.jit._register_decomposition(getattr(torch.ops.aten, operator).default, cell.graph)
