"""Activation functions and their derivatives against native CPU."""

import functools
from math import inf, nan

import pytest
import torch
import torch.nn.functional as F

from tests.python.twin import check, check_error

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
ACTIVATIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardtanh(-0.3, 2)": lambda x: F.hardtanh(x, -0.3, 2.0),
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "elu": F.elu,
    "elu(0.7)": lambda x: F.elu(x, 0.7),
    "celu": lambda x: F.celu(x, 1.3),
    "selu": F.selu,
    "softplus": F.softplus,
    "softplus(2, 3)": lambda x: F.softplus(x, 2, 3),
    "softplus(1, 1000)": lambda x: F.softplus(x, 1, 1000),  # which overflows
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "tanhshrink": F.tanhshrink,
    "softsign": F.softsign,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "threshold": lambda x: F.threshold(x, 0.5, -3.0),
    "logsigmoid": F.logsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "logit(0.01)": lambda x: torch.logit(x, 0.01),
    "glu": lambda x: F.glu(x[..., :-1] if x.shape[-1] % 2 else x),
}
LIMITS = {
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.bfloat16: (2e-2, 1e-2),
    torch.float16: (2e-3, 2e-3),
}


def inputs(dtype):
    torch.manual_seed(0)
    x = (torch.randn(9, 30) * 3).to(dtype)
    x[0, :12] = torch.tensor([0.0, -0.0, 0.5, -0.5, 3.0, -3.0, 6.0, 1.0, -1.0, 20.5, -20.5, 90.0], dtype=dtype)
    return x


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_forward_and_backward(name, dtype):
    rtol, atol = LIMITS[dtype]
    for x in (inputs(dtype), inputs(dtype).t(), inputs(dtype)[:, 1::2]):
        check(ACTIVATIONS[name], x.detach().requires_grad_(), rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_infinities_and_nan(name):
    x = torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0] * 8)
    if name == "gelu":  # native's vector code gives NaN for infinity, its scalar code infinity
        return check(ACTIVATIONS[name], x[:1], exact=False)
    check(ACTIVATIONS[name], x, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["relu", "silu", "elu", "leaky_relu", "hardswish", "mish", "gelu", "softplus", "tanh"])
def test_double_backward(name):
    def twice(x):
        (g,) = torch.autograd.grad(ACTIVATIONS[name](x).sum(), x, create_graph=True)
        return g * 2

    check(twice, inputs(torch.float64).requires_grad_(), exact=False)


@pytest.mark.parametrize(
    "fn",
    [
        torch.relu_,
        F.hardtanh_,
        F.elu_,
        F.leaky_relu_,
        F.selu_,
        F.celu_,
        functools.partial(F.hardswish, inplace=True),
        functools.partial(F.silu, inplace=True),
        functools.partial(F.mish, inplace=True),
        functools.partial(F.relu6, inplace=True),
        functools.partial(F.hardsigmoid, inplace=True),
        lambda x: F.threshold_(x, 0.1, 2.0),
    ],
)
def test_in_place(fn):
    check(fn, inputs(torch.float32), exact=False)
    check(fn, inputs(torch.float32).t(), exact=False)


def test_prelu():
    for shape, weights in (((4, 3, 5), 3), ((4, 3), 1), ((6,), 1)):
        x, w = torch.randn(shape, requires_grad=True), torch.rand(weights, requires_grad=True)
        check(F.prelu, x, w, exact=False)
    check_error(F.prelu, torch.randn(4, 3), torch.rand(2))


def test_glu_dimensions():
    x = torch.randn(4, 6, 8)
    for dim in (0, 1, 2, -1):
        check(lambda t: F.glu(t, dim), x.clone().requires_grad_(), exact=False)
    check_error(lambda t: F.glu(t, 0), torch.randn(3, 4))


def test_forward_mode():
    def jvp(x, t):
        return torch.func.jvp(lambda u: F.glu(u), (x,), (t,))

    check(jvp, torch.randn(4, 6), torch.randn(4, 6), exact=False)


def test_integers():
    for dtype in (torch.int8, torch.int64, torch.uint8):
        x = torch.arange(0 if dtype == torch.uint8 else -5, 9).to(dtype)
        check(F.relu, x)
        check(F.relu6, x)
        check(lambda t: F.threshold(t, 2, 1), x)
    check_error(F.relu, torch.ones(3, dtype=torch.bool))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "name", ["elu", "celu", "selu", "hardswish", "hardsigmoid", "softshrink", "hardshrink", "relu6"]
)
def test_not_a_number(name, dtype):
    # A multiple of every vector's length: native's loop for the last elements answers some of these differently.
    special = torch.tensor([nan, inf, -inf, 0.0, -0.0, 0.5, -0.5, 3.0, -3.0, 1.0, -1.0, 6.0, -6.0, 2.0, -2.0, nan])
    check(ACTIVATIONS[name], special.repeat(64).to(dtype).requires_grad_(), exact=False)
    ours, native = (ACTIVATIONS[name](special.repeat(64).to(d)).cpu() for d in ("minitorch", "cpu"))
    number = ~native.isnan()
    assert torch.equal(ours.signbit()[number], native.signbit()[number])


def test_not_a_number_in_logit():
    x = torch.tensor([nan, 0.2, 0.0, 1.0, 0.5, 0.99, -1.0, 2.0] * 64).requires_grad_()
    check(lambda t: torch.logit(t, 0.01), x, exact=False)


# ---- Every 16-bit value --------------------------------------------------------------------------------------------


def logistic_pair(u):
    return torch.sigmoid(u), torch.sigmoid(-u)


def exact_gelu(x):
    return x * torch.special.log_ndtr(x).exp(), torch.special.log_ndtr(x).exp() + x * (-x * x / 2).exp() / (
        2 * torch.pi
    ) ** 0.5


def exact_gelu_tanh(x):
    k = (2 / torch.pi) ** 0.5
    s, rest = logistic_pair(2 * k * (x + 0.044715 * x**3))
    return x * s, s + s * rest * x * 2 * k * (1 + 3 * 0.044715 * x * x)


def exact_silu(x):
    s, rest = logistic_pair(x)
    return x * s, s + s * rest * x


def exact_sigmoid(x):
    s, rest = logistic_pair(x)
    return s, s * rest


NARROW = {
    "gelu": (F.gelu, exact_gelu),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), exact_gelu_tanh),
    "silu": (F.silu, exact_silu),
    "sigmoid": (torch.sigmoid, exact_sigmoid),
}


def ulps(found, exact, dtype):
    """|found - the exact value rounded to dtype|, in units of the last place of that."""
    info = torch.finfo(dtype)
    rounded = exact.to(dtype).double()
    unit = torch.exp2(torch.floor(torch.log2(rounded.abs().clamp(min=info.smallest_normal)))) * info.eps
    return ((found.double() - rounded).abs() / unit).nan_to_num(nan=0.0 if found.isnan().equal(exact.isnan()) else inf)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", NARROW)
def test_every_16_bit_value(name, dtype):
    # Within an ulp of the exact value rounded on a GPU; a CPU kernel may lose the tail's digits as native's does.
    fn, exact = NARROW[name]
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    x = bits.view(dtype)
    x = x[x.isfinite() & (x.abs() < 1e4)]  # beyond, native's squares overflow
    value, slope = exact(x.double())
    on_gpu = torch.minitorch.get_device_properties(0).backend == "cuda"
    native, ours = x.clone().requires_grad_(), x.to("minitorch").requires_grad_()
    expected, found = fn(native), fn(ours)
    if name != "sigmoid":  # its gradient is computed from the rounded result
        for out in (expected, found):
            out.backward(torch.ones_like(out))
    pairs = [(found.detach().cpu(), expected.detach(), value)]
    if name != "sigmoid":
        pairs.append((ours.grad.cpu(), native.grad, slope))
    for got, reference, truth in pairs:
        ours_off, native_off = ulps(got, truth, dtype), ulps(reference, truth, dtype)
        limit = torch.ones_like(native_off) if on_gpu else native_off.max() + torch.ones_like(native_off)
        worst = (ours_off - limit).argmax()
        assert bool((ours_off <= limit).all()), (x[worst], got[worst], truth[worst], ours_off[worst], native_off[worst])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", NARROW)
def test_16_bit_layouts(name, dtype):
    # Dense, with a tail, strided, expanded: the same values, and zeros and infinities as in a vector.
    fn = NARROW[name][0]
    x = (torch.randn(37, 61, generator=torch.Generator().manual_seed(3)) * 4).to(dtype)
    x[0, :6] = torch.tensor([0.0, -0.0, inf, -inf, nan, -60.0], dtype=dtype)
    whole = fn(x.to("minitorch")).cpu()
    for view in (lambda t: t.t(), lambda t: t[1:, 3:], lambda t: t[::2, ::3], lambda t: t[:, 7:8].expand(-1, 5)):
        assert torch.equal(fn(view(x.to("minitorch"))).cpu().nan_to_num(7), view(whole).nan_to_num(7))
    one = x[3, 3].to("minitorch")
    assert torch.equal(fn(one.expand(500)).cpu(), fn(one).cpu().expand(500))
