"""What ``torch.utils.flop_counter.FlopCounterMode`` needs to know of operators that it does not know by itself.

A multiplication and an addition are two operations, as in PyTorch's own formulas.
"""

from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, register_flop_formula, sdpa_backward_flop_count, sdpa_flop_count


def _linear(input: Any, weight: Any, *_: Any, **__: Any) -> int:
    """A product of (rows, k) with (k, n)."""
    return 2 * input.numel() * weight.shape[0]


def _rnn_layer(x: Any, w_ih: Any, w_hh: Any, *_: Any, **__: Any) -> int:
    """For each step and row the gates of an input and of a hidden state."""
    return 2 * x.shape[0] * x.shape[1] * (w_ih.numel() + w_hh.numel())


def _rnn_layer_backward(_y: Any, _h: Any, _c: Any, x: Any, w_ih: Any, w_hh: Any, *args: Any, **_: Any) -> int:
    """The gradients of inputs and of weights that ``mask`` asks for, the last argument; those of the states always."""
    inputs, weights = args[-1]
    rows = 2 * x.shape[0] * x.shape[1]
    gates = w_ih.numel() + w_hh.numel()
    return rows * (w_hh.numel() + (w_ih.numel() if inputs else 0) + (gates if weights else 0))


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query.shape, key.shape, value.shape)


def _attention_backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_backward_flop_count(grad.shape, query.shape, key.shape, value.shape)


def install() -> None:
    """Register the formulas of operators that have none yet."""
    ours, aten = torch.ops.minitorch, torch.ops.aten
    formulas = {
        ours.linear_forward: _linear,
        ours.rnn_layer_forward: _rnn_layer,
        ours.rnn_layer_backward: _rnn_layer_backward,
        aten._scaled_dot_product_fused_attention_overrideable: _attention,
        aten._scaled_dot_product_fused_attention_overrideable_backward: _attention_backward,
    }
    for operator, formula in formulas.items():
        if operator not in flop_registry:
            register_flop_formula(operator, get_raw=True)(formula)
