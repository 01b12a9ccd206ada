"""PyTorch's counter of floating-point operations sees the products inside our own operators."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


# In float64: native CPU hands float32 to a library that PyTorch does not count.
def counted(fn, device: str, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> int:
    torch.manual_seed(0)
    args = [torch.randn(shape, dtype=dtype).to(device).requires_grad_() for shape in shapes]
    with FlopCounterMode(display=False) as counter:
        fn(*args).sum().backward()
    return counter.get_total_flops()


def rnn(kind, **options):
    def run(x, *states):
        return kind(5, 7, **options).to(x)(x, states[0] if len(states) == 1 else states)[0]

    return run


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (F.linear, [(6, 4), (3, 4), (3,)]),
        (F.linear, [(2, 6, 4), (3, 4)]),
        (torch.matmul, [(2, 6, 4), (2, 4, 3)]),
        (F.conv2d, [(2, 4, 6, 6), (3, 4, 3, 3)]),
        (lambda x, w: F.conv_transpose2d(x, w, stride=2), [(2, 4, 6, 6), (4, 3, 3, 3)]),
        (rnn(nn.RNN), [(4, 3, 5), (1, 3, 7)]),
        (rnn(nn.LSTM, num_layers=2, bidirectional=True), [(4, 3, 5), (4, 3, 7), (4, 3, 7)]),
        (rnn(nn.GRU), [(4, 3, 5), (1, 3, 7)]),
    ],
)
def test_as_many_as_natives(fn, shapes):
    assert counted(fn, "minitorch", *shapes) == counted(fn, "cpu", *shapes) > 0


def test_attention():
    """PyTorch has no formula for native CPU's operator. Two products forward, and five backward with the recomputed one."""
    product = 2 * 2 * 3 * 5 * 5 * 4  # two operations, batch, heads, queries, keys, width
    shapes = [(2, 3, 5, 4)] * 3
    assert counted(F.scaled_dot_product_attention, "minitorch", *shapes, dtype=torch.float32) == 7 * product
