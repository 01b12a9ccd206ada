"""Recurrent networks: outputs, states and gradients equal native's."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils._python_dispatch import TorchDispatchMode

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


def both(kind, dtype=torch.float32, sizes=(6, 9), **options):
    torch.manual_seed(0)
    native = getattr(nn, kind)(*sizes, **options).to(dtype)
    ours = getattr(nn, kind)(*sizes, **options).to(dtype)
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
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_other_dtypes(kind, dtype):
    native, ours = both(kind, dtype)
    tolerance = {torch.float64: 1e-9, torch.bfloat16: 0.06, torch.float16: 8e-3}[dtype]
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


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell", "RNN", "LSTM", "GRU"])
def test_gradients_have_a_storage_each(kind, create_graph):
    module = getattr(torch.nn, kind)(3, 4).to(DEVICE)
    outputs = [t for t in torch.utils._pytree.tree_leaves(module(torch.randn(2, 3, device=DEVICE)))]
    parameters = list(module.parameters())
    loss = sum(t.sum() for t in outputs)
    gradients = torch.autograd.grad(loss, parameters, create_graph=create_graph)
    assert len({g.untyped_storage().data_ptr() for g in gradients}) == len(parameters)


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_second_derivatives(kind):
    cell = getattr(nn, kind)(2, 3).double().to(DEVICE)
    x = torch.randn(2, 2, dtype=torch.float64, device=DEVICE, requires_grad=True)
    f = lambda x: flatten(cell(x))[0]  # noqa: E731
    assert torch.autograd.gradcheck(f, x)
    assert torch.autograd.gradgradcheck(f, x)


def test_whole_layers_are_one_operator():
    """The operators that a forward and backward pass calls do not grow with the number of time steps."""

    class Count(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Count.calls += 1
            return func(*args, **(kwargs or {}))

    counts = []
    for steps in (2, 30):
        lstm = nn.LSTM(3, 4).to(DEVICE)
        Count.calls = 0
        with Count():
            lstm(torch.randn(steps, 2, 3, device=DEVICE))[0].sum().backward()
        counts.append(Count.calls)
    assert counts[0] == counts[1]


# Hidden sizes beyond one block of the product and not of whole vectors; batches beyond one block of rows.
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize(("steps", "batch", "features", "hidden"), [(3, 150, 5, 17), (4, 1, 20, 230), (2, 3, 1, 1)])
def test_sizes(kind, steps, batch, features, hidden):
    native, ours = both(kind, torch.float64, sizes=(features, hidden), bidirectional=True)
    compare(native, ours, torch.randn(steps, batch, features).double(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_layouts(kind):
    native, ours = both(kind, batch_first=True)
    wide = torch.randn(8, 5, 12)
    x = wide[::2, :, ::2]
    out = ours(wide.to(DEVICE)[::2, :, ::2])
    expected = native(x)
    assert flatten(out)[0].stride() == flatten(expected)[0].stride()
    for a, b in zip(flatten(out), flatten(expected), strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_partial_gradients(kind):
    """Only the last state is used; only the input, or only the weights, need a gradient."""
    native, ours = both(kind)
    x = torch.randn(4, 3, 6)
    for frozen in (True, False):
        grads = []
        for module, device in ((native, "cpu"), (ours, DEVICE)):
            module.zero_grad()
            for p in module.parameters():
                p.requires_grad_(not frozen)
            leaf = x.clone().to(device).requires_grad_(frozen)
            flatten(module(leaf))[-1].sum().backward()
            grads.append([leaf.grad] if frozen else [p.grad for p in module.parameters()])
        for a, b in zip(*grads, strict=True):
            torch.testing.assert_close(b.cpu(), a, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_result_may_be_written_to(kind):
    _, ours = both(kind)
    x = torch.randn(4, 3, 6, device=DEVICE)
    reference = torch.autograd.grad(ours(x)[0].mul(2).sum(), list(ours.parameters()))
    written = torch.autograd.grad(ours(x)[0].mul_(2).sum(), list(ours.parameters()))
    for a, b in zip(written, reference, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}, {"bias": False}], ids=str)
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_layer_derivatives(kind, options):
    layer = getattr(nn, kind)(2, 3, **options).double().to(DEVICE)
    params = list(layer.parameters())
    x = torch.randn(3, 2, 2, dtype=torch.float64, device=DEVICE, requires_grad=True)
    f = lambda x, *_: tuple(flatten(layer(x)))  # noqa: E731
    assert torch.autograd.gradcheck(f, (x, *params))
    if not options.get("bidirectional"):
        assert torch.autograd.gradgradcheck(f, (x, *params))


def test_second_derivative_of_dependent_operands():
    """A weight computed from the input: the two gradients do not run into each other."""
    x = torch.randn(3, 2, 3, dtype=torch.float64, device=DEVICE, requires_grad=True)
    w = torch.randn(3, 3, dtype=torch.float64, device=DEVICE)

    def f(x):
        weight = w * x.mean()
        return torch.rnn_tanh(x, x.new_zeros(1, 2, 3), [weight, weight], False, 1, 0.0, False, False, False)[0]

    assert torch.autograd.gradcheck(f, x)
    assert torch.autograd.gradgradcheck(f, x)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_transforms(kind):
    native, ours = both(kind, torch.float64)
    x = torch.randn(4, 3, 6, dtype=torch.float64)
    results = []
    for module, device in ((native, "cpu"), (ours, DEVICE)):
        params = {k: p.detach() for k, p in module.named_parameters()}
        loss = lambda p, x, m=module: torch.func.functional_call(m, p, (x,))[0].square().sum()  # noqa: E731
        grads = torch.func.grad(loss)(params, x.to(device))
        loss_of_input = lambda x, f=loss, p=params: f(p, x)  # noqa: E731
        tangents = [torch.func.jvp(loss_of_input, (x.to(device),), (x.to(device),))[1]]
        with torch.inference_mode():
            inference = module(x.to(device))[0]
        results.append([*grads.values(), *tangents, inference])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(b.cpu(), a)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell", "LSTM", "GRU"])
def test_forward_mode(kind, bias):
    """Tangents of inputs and of weights, and forward over reverse, where PyTorch takes fused cells."""
    results = []
    native, ours = both(kind, torch.float64, bias=bias)
    start = torch.randn((3, 6) if kind.endswith("Cell") else (4, 3, 6), dtype=torch.float64)
    for module, device in ((native, "cpu"), (ours, DEVICE)):
        params, x = {k: p.detach() for k, p in module.named_parameters()}, start.to(device)
        call = lambda p, x, m=module: flatten(torch.func.functional_call(m, p, (x,)))[0]  # noqa: E731
        tangents = torch.func.jvp(call, (params, x), ({k: p + 1 for k, p in params.items()}, x * 2))
        slope = torch.func.grad(lambda x, f=call, p=params: f(p, x).square().sum())
        results.append([*tangents, torch.func.jvp(slope, (x,), (x * 2,))[1]])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(b.cpu(), a)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_compiled(kind):
    _, ours = both(kind)
    x = torch.randn(4, 3, 6, device=DEVICE)
    expected = torch.autograd.grad(ours(x)[0].sum(), list(ours.parameters()))
    compiled = torch.compile(lambda x: ours(x)[0].sum(), backend="aot_eager")
    for a, b in zip(torch.autograd.grad(compiled(x), list(ours.parameters())), expected, strict=True):
        torch.testing.assert_close(a, b)


def test_errors():
    """Native's, from its own checks."""
    for kind, bad_input, bad_state in (
        ("LSTM", (5, 4, 7), None),
        ("GRU", (5, 4, 6), (1, 3, 9)),
        ("RNN", (0, 4, 6), None),
    ):
        messages = []
        for module, device in zip(both(kind), ("cpu", DEVICE), strict=True):
            state = None if bad_state is None else torch.zeros(bad_state, device=device)
            with pytest.raises(RuntimeError) as error:
                module(torch.zeros(bad_input, device=device), state)
            messages.append(str(error.value))
        assert messages[0] == messages[1]
