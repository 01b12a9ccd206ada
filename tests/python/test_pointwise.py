"""Pointwise operators against native CPU: values and gradients."""

import math

import pytest
import torch
from pointwise_values import COMPLEX, FLOATS, INTS, SPECIAL, close, function, values
from twin import ASYNCHRONOUS, NATIVE, check, check_error, twin

REAL_UNARY = [
    "abs",
    "neg",
    "sign",
    "sgn",
    "signbit",
    "square",
    "positive",
    "logical_not",
    "isnan",
    "isinf",
    "isfinite",
    "isposinf",
    "isneginf",
]
ROUNDING = ["floor", "ceil", "trunc", "round", "frac"]
ANALYTIC = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sigmoid",
    "sinc",
    "sqrt",
    "rsqrt",
    "reciprocal",
]
FLOAT_UNARY = [
    "erf",
    "erfc",
    "erfinv",
    "lgamma",
    "digamma",
    "i0",
    "logit",
    "special.entr",
    "special.erfcx",
    "special.ndtri",
    "special.log_ndtr",
    "special.i0e",
    "special.i1",
    "special.i1e",
    "nan_to_num",
    "angle",
]
ARITHMETIC = ["add", "sub", "mul"]
REAL_BINARY = [
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "heaviside",
]
FLOAT_BINARY = [
    "div",
    "atan2",
    "hypot",
    "copysign",
    "nextafter",
    "logaddexp",
    "logaddexp2",
    "xlogy",
    "special.xlog1py",
    "fmod",
    "remainder",
]
INT_BINARY = [
    "floor_divide",
    "fmod",
    "remainder",
    "gcd",
    "lcm",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, torch.bool], ids=str)
@pytest.mark.parametrize("name", REAL_UNARY)
def test_real_unary(name, dtype):
    if dtype == torch.bool and name in ("abs", "neg", "positive"):
        check_error(function(name), values(dtype), text=name != "abs")
    else:
        check(function(name), values(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ROUNDING)
def test_rounding(name, dtype):
    check(function(name), values(dtype))
    if name == "round":
        for decimals in (2, -1, 0):
            close(lambda x: torch.round(x, decimals=decimals), values(dtype)[:50].clamp(-100, 100))


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX, torch.int32, torch.bool], ids=str)
@pytest.mark.parametrize("name", ANALYTIC)
def test_analytic(name, dtype):
    close(function(name), values(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("name", FLOAT_UNARY)
def test_special(name, dtype):
    # Where native's own single precision is poor (digamma near its poles), the double result is the yardstick.
    x = values(dtype).clamp(-60, 60) if name in ("special.erfcx", "i0", "special.i1") else values(dtype)
    if name == "nan_to_num" and dtype == torch.bfloat16:
        return check(function(name), x)
    fn = function(name)
    if dtype == torch.bfloat16 and name in ("special.erfcx", "special.ndtri", "special.log_ndtr"):
        return  # native has none
    if dtype.is_floating_point and dtype != torch.float64:
        ours, exact = fn(twin(x)).cpu(), fn(x.double())
        native = (
            "cpu" if name == "angle" and dtype == torch.bfloat16 else NATIVE or "cpu"
        )  # native CUDA has no such angle
        native_error = (fn(x.to(native)).cpu().double() - exact).abs().nan_to_num(0, 0, 0)
        error = (ours.double() - exact).abs().nan_to_num(0, 0, 0)
        allowed = torch.maximum(
            native_error, exact.abs().nan_to_num(0, 0, 0) * torch.finfo(dtype).eps + torch.finfo(dtype).tiny
        )
        assert (error <= allowed).all(), (x[error > allowed], ours[error > allowed], exact[error > allowed])
        assert torch.equal(ours.isnan(), exact.isnan())
    else:
        close(fn, x)


def test_orders_of_polygamma_and_mvlgamma():
    x = torch.rand(100, dtype=torch.float64) * 5 + 0.1
    for n in range(5):
        close(lambda t: torch.polygamma(n, t), x)
    close(lambda a, b: torch.special.zeta(a, b), x + 1, x)
    close(torch.igamma, x, x.flip(0))
    close(torch.igammac, x, x.flip(0))


@pytest.mark.parametrize(
    "name",
    [
        "exp",
        "log",
        "sin",
        "cos",
        "tan",
        "tanh",
        "sigmoid",
        "erf",
        "erfc",
        "expm1",
        "log1p",
        "sqrt",
        "rsqrt",
        "atan",
        "asinh",
        "sinh",
    ],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_every_16_bit_value(name, dtype):
    """The error against double is at most native's, or within one unit in the last place of it."""
    x = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    fn = function(name)
    ours, native, exact = fn(twin(x)).cpu(), fn(x), fn(x.double())
    assert torch.equal(ours.isnan(), native.isnan())
    rounded = exact.to(dtype)
    keep = ~(rounded.isnan() | rounded.isinf())
    assert torch.equal(ours[rounded.isinf()], rounded[rounded.isinf()])
    unit = (torch.nextafter(rounded.abs(), torch.tensor(math.inf, dtype=dtype)).double() - rounded.abs().double())[keep]
    error = (ours.double() - exact)[keep].abs() / unit
    native_error = (native.double() - exact)[keep].abs() / unit
    assert (error <= native_error + 1).all(), x[keep][error > native_error + 1][:5]
    # Native's formula for sigmoid underflows to zero where the result is subnormal; so does ours.
    normal = exact[keep].abs() >= torch.finfo(dtype).tiny if name == "sigmoid" else error >= 0
    assert error[normal].max() < 1.01


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, *COMPLEX, torch.bool], ids=str)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name, dtype):
    a, b = values(dtype), values(dtype, seed=1)
    if name == "sub" and dtype == torch.bool:
        return check_error(torch.sub, a, b)
    check(function(name), a, b, exact=not dtype.is_complex)
    if name != "mul" and dtype not in (torch.bool, torch.uint8):
        close(lambda x, y: function(name)(x, y, alpha=3), a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("name", REAL_BINARY)
def test_real_binary(name, dtype):
    check(function(name), values(dtype), values(dtype, seed=1))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", FLOAT_BINARY)
def test_float_binary(name, dtype):
    a, b = values(dtype), values(dtype, seed=1)
    if name == "remainder":  # of an infinite divisor native gives NaN or the dividend, by position in the vector
        b = torch.where(b.isinf(), torch.ones_like(b), b)
    if name in ("fmod", "remainder"):  # native divides, and keeps only the quotient's precision
        a, b = a.clamp(-1e3, 1e3), torch.where(b.abs() < 0.1, torch.ones_like(b), b)
        return check(
            function(name), a, b, rtol=1e-2 if dtype.itemsize == 2 else 1e-4, atol=1e-1 if dtype.itemsize == 2 else 1e-4
        )
    close(function(name), a, b)


@pytest.mark.parametrize("dtype", INTS, ids=str)
@pytest.mark.parametrize("name", INT_BINARY)
def test_int_binary(name, dtype):
    a, b = values(dtype), values(dtype, seed=1)
    if "shift" in name:
        b = b.clamp(0, 7)
    elif name in ("floor_divide", "fmod", "remainder"):
        b = torch.where(b == 0, torch.ones_like(b), b)
    check(function(name), a, b)


def test_most_negative_integers():
    for dtype in INTS[1:]:
        low = torch.tensor([torch.iinfo(dtype).min], dtype=dtype)
        for fn in (
            torch.neg,
            torch.abs,
            lambda x: torch.div(x, -1, rounding_mode="floor"),
            lambda x: x * x,
            lambda x: x // 3,
        ):
            check(fn, low)
    for fn in (torch.remainder, torch.fmod):
        check(fn, torch.tensor([-(2**31)], dtype=torch.int32), torch.tensor([-1], dtype=torch.int32))


@pytest.mark.parametrize("mode", [None, "trunc", "floor"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.bfloat16], ids=str)
def test_division(mode, dtype):
    a, b = values(dtype), values(dtype, seed=1)
    if not dtype.is_floating_point:
        b = torch.where(b == 0, torch.ones_like(b), b)
    if mode == "trunc" and dtype == torch.bfloat16:
        # Native rounds the quotient to 16 bits before it truncates; ours is the truncated quotient.
        expected = torch.trunc(a.float() / b.float()).to(dtype)
        ours = torch.div(twin(a), twin(b), rounding_mode=mode).cpu()
        return torch.testing.assert_close(ours, expected, rtol=0, atol=0, equal_nan=True)
    check(lambda x, y: torch.div(x, y, rounding_mode=mode), a, b)


@pytest.mark.parametrize("dtype", [*INTS], ids=str)
@pytest.mark.parametrize(
    "fn",
    [
        torch.floor_divide,
        torch.remainder,
        torch.fmod,
        lambda a, b: a.remainder_(b),
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    ],
)
def test_integer_division_by_zero(fn, dtype):
    x, zeros = torch.ones(40, dtype=dtype), torch.tensor([0] + [1] * 39, dtype=dtype)
    if ASYNCHRONOUS:  # as native CUDA: no error, and nothing is promised about the element
        assert torch.equal(fn(x.to("minitorch"), zeros.to("minitorch")).cpu()[1:], fn(x[1:], zeros[1:]))
    else:
        check_error(fn, x, zeros)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64], ids=str)
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -0.5, -1, -2, 2.5, -3, 7])
def test_pow_of_a_number(exponent, dtype):
    x = values(dtype)
    if dtype == torch.int64 and isinstance(exponent, int) and exponent < 0:
        return check_error(lambda t: torch.pow(t, exponent), x)
    if dtype == torch.complex64 and ASYNCHRONOUS:
        # The CPU's cpowf loses a few digits of large powers; a GPU computes in double.
        exact = torch.pow(x.to(torch.complex128), exponent).to(dtype)
        return torch.testing.assert_close(torch.pow(x.to("minitorch"), exponent).cpu(), exact, rtol=3e-7, atol=0)
    close(lambda t: torch.pow(t, exponent), x)
    if not dtype.is_complex and dtype != torch.int64:
        close(lambda t: torch.pow(2.5, t), x)


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=str)
@pytest.mark.parametrize("exponent", (2, 3, -2))
def test_short_forms_of_pow_in_16_bits_are_native_cpus(dtype, exponent):
    x = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    check(lambda t: torch.pow(t, exponent), x, rtol=0, atol=0)
    check(lambda t: torch.pow(t[::2], exponent), x, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_pow_of_special_values(dtype):
    grid = torch.tensor([*SPECIAL, 3.0, -3.0, 1e30, -7.5], dtype=dtype)
    check(torch.pow, grid[:, None].expand(-1, len(grid)), grid, rtol=1e-2 if dtype.itemsize == 2 else 1e-6, atol=0)


def test_gradients():
    x = torch.rand(50, dtype=torch.float64) * 0.8 + 0.1
    y = torch.rand(50, dtype=torch.float64) + 0.5
    for name in [
        *ANALYTIC,
        "abs",
        "square",
        "erf",
        "erfc",
        "lgamma",
        "digamma",
        "logit",
        "special.entr",
        "special.i0e",
    ]:
        if name not in ("acosh",):
            check(function(name), x.clone().requires_grad_(), exact=False)
    for name in [
        "add",
        "sub",
        "mul",
        "div",
        "pow",
        "atan2",
        "hypot",
        "maximum",
        "logaddexp",
        "xlogy",
        "copysign",
        "fmod",
        "remainder",
    ]:
        check(function(name), x.clone().requires_grad_(), y.clone().requires_grad_(), exact=False)
    z = torch.randn(20, dtype=torch.complex128, requires_grad=True)
    for name in ["exp", "log", "sin", "tanh", "sqrt", "abs", "angle", "sgn", "reciprocal"]:
        if name != "sgn":
            check(function(name), z.detach().clone().requires_grad_(), exact=False)
