"""softmax, log_softmax, masked softmax: values and gradients against native CPU."""

import math

import pytest
import torch

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SHAPES = [
    ((5, 7), 1),
    ((5, 7), 0),
    ((3, 40, 6), 1),
    ((3, 40, 6), 0),
    ((2, 3, 1000), -1),
    ((300, 17), 0),
    ((4, 1), 1),
    ((6,), 0),
]
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def close(actual, expected, dtype, scale=1):
    assert actual.dtype == expected.dtype and actual.shape == expected.shape and actual.stride() == expected.stride()
    tol = TOLERANCE[dtype] * scale
    torch.testing.assert_close(actual.cpu(), expected, rtol=tol, atol=tol, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_forward_and_backward(name, dtype):
    f = getattr(torch, name)
    for shape, dim in SHAPES:
        x = (torch.randn(shape) * 4).to(dtype)
        g = torch.randn(shape).to(dtype)
        a, b = x.clone().requires_grad_(), x.to("minitorch").requires_grad_()
        ya, yb = f(a, dim), f(b, dim)
        close(yb.detach(), ya.detach(), dtype, 4)
        ya.backward(g)
        yb.backward(g.to("minitorch"))
        close(b.grad, a.grad, dtype, 16)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_layouts(name):
    f = getattr(torch, name)
    x = torch.randn(6, 9, 11)
    d = x.to("minitorch")
    for view in (
        lambda t: t.transpose(0, 2),
        lambda t: t[1:, ::2],
        lambda t: t[:, :1].expand(-1, 5, -1),
        lambda t: t[2, 3, 4],
    ):
        for dim in range(max(view(x).dim(), 1)):
            close(f(view(d), dim), f(view(x), dim), torch.float32, 4)
    close(f(torch.empty(0, 3).to("minitorch"), 1), f(torch.empty(0, 3), 1), torch.float32)
    close(f(torch.empty(3, 0).to("minitorch"), 1), f(torch.empty(3, 0), 1), torch.float32)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_special_values(name):
    f = getattr(torch, name)
    x = torch.tensor(
        [[1e4, -1e4, 0.0], [math.inf, 1, 2], [-math.inf, 1, 2], [-math.inf] * 3, [math.nan, 1, 2], [88.0, 89, 90]]
    )
    for dim in (0, 1):
        close(f(x.to("minitorch"), dim), f(x, dim), torch.float32, 4)


def test_long_rows_sum_to_one():
    x = torch.randn(2, 100_000).to("minitorch")
    torch.testing.assert_close(
        x.softmax(1).double().sum(1).cpu(), torch.ones(2, dtype=torch.float64), rtol=0, atol=1e-6
    )


def test_out_and_dtype():
    x = torch.randn(4, 6)
    d = x.to("minitorch")
    out = torch.empty(6, 4).to("minitorch").t()
    torch.softmax(d, 1, out=out)
    torch.testing.assert_close(out.cpu(), x.softmax(1))
    h = x.half()
    close(h.to("minitorch").softmax(1, dtype=torch.float32), h.softmax(1, dtype=torch.float32), torch.float32)


def test_errors():
    d = torch.randn(3, 4).to("minitorch")
    with pytest.raises(IndexError, match="Dimension out of range"):
        d.softmax(2)
    with pytest.raises(NotImplementedError, match=r"softmax.*Long"):
        d.long().softmax(1)


def test_masked_softmax():
    x = torch.randn(2, 3, 5, 5)
    full, padding, attention = torch.rand(2, 3, 5, 5) > 0.6, torch.rand(2, 5) > 0.7, torch.rand(5, 5) > 0.7
    padding[1] = True  # nothing left: NaN
    for mask, kind in ((full, 2), (padding, 1), (attention, 0)):
        for dim in (3, 1):
            expected = torch._masked_softmax(x, mask, dim, kind)
            actual = torch._masked_softmax(x.to("minitorch"), mask.to("minitorch"), dim, kind)
            torch.testing.assert_close(actual.cpu(), expected, equal_nan=True)
    for dim in (3, 2):
        y = torch._masked_softmax(x, full, dim, 2)
        g = torch.randn_like(x)
        expected = torch.ops.aten._masked_softmax_backward(g, y, full, dim)
        actual = torch.ops.aten._masked_softmax_backward(
            g.to("minitorch"), y.to("minitorch"), full.to("minitorch"), dim
        )
        torch.testing.assert_close(actual.cpu(), expected, equal_nan=True)


@pytest.mark.parametrize("shape", [(2, 8, 1024), (2, 8, 3), (3, 5000, 2), (4, 7), (3, 2000)], ids=str)
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_infinities(shape, value, dtype):
    """Rows, tiles of columns and slices of a thread alike: where one is infinite, what native makes of the others."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[0, 3 if shape[1] > 3 else 0] = value
    x[-1] = value
    for f in (torch.softmax, torch.log_softmax):
        for dim in (1, -1):
            found, native = f(x.to("minitorch"), dim).cpu(), f(x, dim)
            assert torch.equal(found.isfinite(), native.isfinite()) and torch.equal(found.isnan(), native.isnan())
            close(found, f(x.double(), dim).to(dtype), dtype, 2)
