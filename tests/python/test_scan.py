"""Scans against native CPU: values, indices, dtypes, layouts, in place, out=, gradients."""

import math

import pytest
import torch

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
VIEWS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, 2),
    "sliced": lambda t: t[1:, ::2, 1:-1],
    "expanded": lambda t: t[:, :1].expand(-1, 9, -1),
}


def make(shape, dtype):
    g = torch.Generator().manual_seed(1)
    if dtype == torch.bool:
        return torch.rand(shape, generator=g) > 0.5
    if dtype in INTS:
        return torch.randint(0, 4, shape, generator=g).to(dtype)
    return torch.randn(shape, generator=g, dtype=torch.complex64 if dtype.is_complex else torch.float32).to(dtype)


def check(f, t, view=lambda x: x, **tol):
    expected, actual = f(view(t)), f(view(t.to("minitorch")))
    if torch.is_tensor(expected):
        expected, actual = (expected,), (actual,)
    for e, a in zip(expected, actual, strict=True):
        assert (a.dtype, a.shape, a.stride()) == (e.dtype, e.shape, e.stride()) and a.device.type == "minitorch"
        torch.testing.assert_close(a.cpu(), e, equal_nan=True, **tol)


@pytest.mark.parametrize("dtype", FLOATS + INTS + [torch.bool, torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_sums_and_products(name, dtype):
    for shape in ((6, 10, 7), (3, 700, 2), (2, 3, 1100)):
        t = make(shape, dtype)
        tol = {"rtol": 2e-2, "atol": 2e-2} if dtype in (torch.bfloat16, torch.float16) else {}
        for view in VIEWS.values():
            for dim in (0, 1, -1):
                check(lambda x: getattr(torch, name)(x, dim), t, view, **tol)


@pytest.mark.parametrize("dtype", FLOATS + INTS + [torch.bool], ids=str)
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_extrema(name, dtype):
    for shape in ((6, 10, 7), (3, 700, 2), (2, 3, 1100)):
        t = make(shape, dtype)
        if dtype in FLOATS:
            t[1, 2, 1] = math.nan
        for view in VIEWS.values():
            for dim in (0, 1, -1):
                check(lambda x: getattr(torch, name)(x, dim), t, view)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_logcumsumexp(dtype):
    t = make((3, 40, 5), dtype)
    t[0, 3, 0], t[1, 2, 1], t[2, 5, 2], t[:, 0, 4] = math.inf, -math.inf, math.nan, -math.inf
    for view in VIEWS.values():
        for dim in (0, 1, 2):
            check(lambda x: torch.logcumsumexp(x, dim), t, view)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_logcumsumexp_of_complex_numbers(dtype):
    t = torch.randn(3, 40, 5, dtype=dtype)
    for dim in (0, 1, 2):
        check(lambda x: torch.logcumsumexp(x, dim), t, rtol=1e-5, atol=1e-5)


def test_long_line_in_chunks():
    t = torch.randn(1 << 20)
    check(lambda x: x.cumsum(0), t, rtol=0, atol=1e-3)
    exact = t.double().cumsum(0)
    ours = (t.to("minitorch").cumsum(0).cpu().double() - exact).abs().max()
    native = (t.cumsum(0).double() - exact).abs().max()
    assert ours <= native * 1.5
    check(lambda x: x.cumsum(0), torch.randint(-5, 5, (1 << 20,)))
    check(lambda x: x.clone().cumsum_(0), torch.randint(-5, 5, (1 << 20,)))


def test_dtype_in_place_out_empty_scalar():
    t = make((4, 6), torch.float32)
    check(lambda x: x.cumsum(0, dtype=torch.float64), t)
    check(lambda x: x.cumsum(1, dtype=torch.int32), t * 10)
    check(lambda x: x.clone().cumsum_(1), t)
    check(lambda x: x.clone().t().cumprod_(1), t)
    check(lambda x: x.cumsum(0), torch.tensor(3.0))
    check(lambda x: x.cummax(0), torch.tensor(3.0))
    check(lambda x: x.cumsum(0), torch.empty(0, 3))
    check(lambda x: x.cummin(1), torch.empty(2, 0))
    out = torch.empty(6, 4).to("minitorch").t()
    torch.cumsum(t.to("minitorch"), 1, out=out)
    torch.testing.assert_close(out.cpu(), t.cumsum(1))
    values, indices = torch.empty(0).to("minitorch"), torch.empty(0, dtype=torch.long).to("minitorch")
    torch.cummax(t.to("minitorch"), 1, out=(values, indices))
    torch.testing.assert_close((values.cpu(), indices.cpu()), tuple(t.cummax(1)))


def test_errors_are_natives():
    for f in (
        lambda x: x.cumsum(3),
        lambda x: x.int().cumsum_(0, dtype=torch.float32),
        lambda x: torch.logcumsumexp(x, -4),
    ):
        with pytest.raises(Exception) as native:
            f(torch.ones(3, 4))
        with pytest.raises(type(native.value)) as ours:
            f(torch.ones(3, 4).to("minitorch"))
        assert str(ours.value).splitlines()[0] == str(native.value).splitlines()[0]
