"""Recurrent networks: outputs, states and gradients equal native's."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.python.twin import NATIVE

DEVICE = "minitorch"
OPTIONS = [
    {},
    {"num_layers": 2},
    {"bidirectional": True},
    {"num_layers": 2, "bidirectional": True, "batch_first": True},
    {"bias": False},
    pytest.param(
        {"num_layers": 2, "dropout": 0.5},
        marks=pytest.mark.skipif(NATIVE != "cpu", reason="the reference runs on the CPU, which draws other masks"),
    ),
]


def both(kind, dtype=torch.float32, **options):
    torch.manual_seed(0)
    native = getattr(nn, kind)(6, 9, **options).to(dtype)
    ours = getattr(nn, kind)(6, 9, **options).to(dtype)
    ours.load_state_dict(native.state_dict())
    return native, ours.to(DEVICE)


def flatten(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [t for part in result for t in flatten(part)]


def compare(native, ours, x, state=None, rtol=1e-4, atol=1e-5):
    grads = []
    outs = []
    for module, device in ((native, "cpu"), (ours, DEVICE)):
        torch.manual_seed(7)
        leaf = x.detach().clone().to(device).requires_grad_()
        initial = (
            None
            if state is None
            else tuple(s.to(device) for s in state)
            if isinstance(state, tuple)
            else state.to(device)
        )
        results = flatten(module(leaf, initial))
        sum(
            (r * torch.linspace(-1, 1, r.numel(), device=device, dtype=r.dtype).view(r.shape)).sum() for r in results
        ).backward()
        outs.append([r.detach().cpu() for r in results])
        grads.append([leaf.grad.cpu()] + [p.grad.cpu() for p in module.parameters()])
        module.zero_grad()
    for a, b in zip(outs[1] + grads[1], outs[0] + grads[0], strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_layers(kind, options):
    native, ours = both(kind, **options)
    compare(native, ours, torch.randn(5, 4, 6))


def test_variants():
    native, ours = both("RNN", nonlinearity="relu")
    compare(native, ours, torch.randn(5, 4, 6))
    native, ours = both("LSTM", proj_size=3, num_layers=2)
    compare(native, ours, torch.randn(5, 4, 6))
    native, ours = both("LSTM")
    compare(native, ours, torch.randn(5, 4, 6), (torch.randn(1, 4, 9), torch.randn(1, 4, 9)))
    compare(native, ours, torch.randn(5, 6))
    native, ours = both("GRU")
    compare(native, ours, torch.randn(5, 4, 6), torch.randn(1, 4, 9))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_other_dtypes(kind, dtype):
    native, ours = both(kind, dtype)
    tolerance = 1e-9 if dtype == torch.float64 else 0.06
    compare(native, ours, torch.randn(5, 4, 6).to(dtype), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
def test_cells(kind):
    native, ours = both(kind)
    compare(native, ours, torch.randn(70, 6))


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_packed_sequences(kind):
    native, ours = both(kind, bidirectional=True)
    lengths = torch.tensor([5, 2, 4])
    x = torch.randn(5, 3, 6)
    outs = []
    for module, device in ((native, "cpu"), (ours, DEVICE)):
        leaf = x.detach().clone().to(device).requires_grad_()
        packed = pack_padded_sequence(leaf, lengths, enforce_sorted=False)
        out, _ = module(packed)
        padded, got_lengths = pad_packed_sequence(out)
        assert torch.equal(got_lengths, lengths)
        padded.sin().sum().backward()
        outs.append([padded.detach().cpu(), leaf.grad.cpu()])
    for a, b in zip(*outs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_second_derivatives(kind):
    cell = getattr(nn, kind)(2, 3).double().to(DEVICE)
    x = torch.randn(2, 2, dtype=torch.float64, device=DEVICE, requires_grad=True)
    f = lambda x: flatten(cell(x))[0]  # noqa: E731
    assert torch.autograd.gradcheck(f, x)
    assert torch.autograd.gradgradcheck(f, x)
