"""Pooling against native CPU: values, indices, gradients, dtypes, layouts, strides of results and errors."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from tests.python.layouts import LAYOUTS, arrange
from tests.python.twin import ASYNCHRONOUS, DEVICE, FLOATS, both, same, same_error

aten = torch.ops.aten
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def distinct(shape, dtype=torch.float32):
    """Values without ties within what the dtype can tell apart, so that a maximum is one element."""
    n = 1
    for s in shape:
        n *= s
    torch.manual_seed(n)
    values = torch.randperm(n, dtype=torch.float64).reshape(shape)
    if not dtype.is_floating_point:
        return (values % 120).to(dtype)
    return (values - n / 3).div(16).to(dtype)


MAX_CASES = [  # dims, spatial sizes, kernel, stride, padding, dilation, ceil_mode
    (1, (17,), 3, 2, 1, 1, False),
    (1, (10,), 2, None, 0, 3, True),
    (2, (8, 8), 2, None, 0, 1, False),
    (2, (13, 21), 3, 2, 1, 1, False),
    (2, (9, 40), (3, 2), (1, 3), (1, 0), (2, 1), True),
    (2, (7, 7), 5, 1, 2, 1, False),
    (2, (6, 5), (6, 5), 1, 0, 1, False),
    (2, (5, 70), 2, (2, 1), 1, 2, True),
    (3, (4, 6, 5), 2, None, 0, 1, False),
    (3, (5, 7, 9), (3, 2, 3), (2, 1, 2), (1, 1, 0), (1, 2, 1), True),
]
MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


@pytest.mark.parametrize("case", MAX_CASES)
@pytest.mark.parametrize("batched", [True, False])
def test_max_pool(case, batched):
    dims, size, kernel, stride, padding, dilation, ceil = case
    x = distinct(((3,) if batched else ()) + (4,) + size)
    both(lambda x: MAX[dims](x, kernel, stride, padding, dilation, ceil, True), x, torch.float32)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_max_pool_layouts_and_dtypes(dims, layout, dtype):
    x = arrange(distinct((2, 5, 6, 7, 4)[: dims + 2], dtype), layout)
    both(lambda x: MAX[dims](x, 3, 2, 1, return_indices=True), x, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("channels", [16, 71, 130])
def test_max_pool_of_many_channels(channels, dtype):
    torch.manual_seed(channels)
    x = torch.randint(-9, 9, (2, channels, 7, 6)).to(dtype).contiguous(memory_format=torch.channels_last)  # with ties
    x[0, 3, 2, 2] = x[1, channels - 1, 6, 5] = float("nan")
    x[1, 5] = -float("inf")
    both(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x, dtype)
    both(lambda x: F.max_pool2d(x, (3, 2), 1, (1, 0), 2), x, dtype)


@pytest.mark.parametrize("dtype", INTS)
def test_max_pool_integers(dtype):
    for x in (distinct((2, 3, 6, 8), dtype), arrange(distinct((2, 3, 6, 8), dtype), "channels_last")):
        both(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x, dtype, grad=False)
    both(lambda x: F.max_pool3d(x, 2, return_indices=True), distinct((2, 3, 4, 6, 4), dtype), dtype, grad=False)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_max_pool_special_values(layout, stride):
    x = distinct((2, 3, 9, 20))
    x[0, 0, 2, 3] = x[0, 1, 4, :] = float("nan")
    x[1, 0] = -float("inf")
    x[1, 1, 3, 5] = float("inf")
    x[1, 2] = -0.0
    x[0, 2] = 3.0  # ties: the first wins
    both(lambda x: F.max_pool2d(x, 3, stride, 1, return_indices=True), arrange(x, layout), torch.float32)
    both(lambda x: F.adaptive_max_pool2d(x, (4, 7), return_indices=True), arrange(x, layout), torch.float32)


AVG_CASES = [  # dims, spatial sizes, kernel, stride, padding, ceil_mode, count_include_pad, divisor
    (1, (17,), 3, 2, 1, False, True, None),
    (1, (10,), 2, None, 0, True, False, None),
    (2, (8, 8), 2, None, 0, False, True, None),
    (2, (13, 21), 3, 2, 1, False, True, None),
    (2, (13, 21), 3, 2, 1, True, False, None),
    (2, (9, 40), (3, 2), (1, 3), (1, 0), True, True, None),
    (2, (9, 33), (3, 4), (2, 1), (1, 2), False, False, 5),
    (3, (4, 6, 5), 2, None, 0, False, True, None),
    (3, (5, 7, 9), (3, 2, 3), (2, 1, 2), (1, 1, 0), True, False, None),
    (3, (5, 7, 9), 3, 2, 1, True, True, -4),
]


@pytest.mark.parametrize("case", AVG_CASES)
@pytest.mark.parametrize("batched", [True, False])
def test_avg_pool(case, batched):
    dims, size, kernel, stride, padding, ceil, include, divisor = case
    torch.manual_seed(0)
    x = torch.randn(((3,) if batched else ()) + (4,) + size)
    extra = () if dims == 1 else (divisor,)
    both(lambda x: AVG[dims](x, kernel, stride, padding, ceil, include, *extra), x, torch.float32)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_avg_pool_layouts_and_dtypes(dims, layout, dtype):
    torch.manual_seed(0)
    x = arrange(torch.randn((2, 5, 6, 7, 4)[: dims + 2]).to(dtype), layout)
    if dims == 3 and dtype.itemsize == 2:  # native has it on CUDA alone: there float is the reference
        if not ASYNCHRONOUS:
            with pytest.raises(NotImplementedError, match="avg_pool3d_out_frame"):
                F.avg_pool3d(x.to(DEVICE), 3, 2, 1)
            return
        ours = x.to(DEVICE).requires_grad_()
        exact = x.float().requires_grad_()
        y, e = F.avg_pool3d(ours, 3, 2, 1), F.avg_pool3d(exact, 3, 2, 1)
        same(y.detach(), e.detach().to(dtype), dtype)
        y.sum().backward(), e.sum().backward()
        same(ours.grad, exact.grad.to(dtype), dtype, strides=False)
        return
    both(lambda x: AVG[dims](x, 3, 2, 1), x, dtype)


def test_avg_pool_int64():
    x = torch.randint(-1000, 1000, (2, 3, 6, 8)) * 2**45 + 1
    both(lambda x: F.avg_pool2d(x, 2), x, torch.int64, grad=False)
    both(lambda x: F.avg_pool3d(x[None], 2), x[:1] // 3, torch.int64, grad=False)


ADAPTIVE = {
    "avg1": (F.adaptive_avg_pool1d, (3, 4, 10), (3,)),
    "avg2": (F.adaptive_avg_pool2d, (3, 4, 9, 10), (4, 3)),
    "avg2_larger": (F.adaptive_avg_pool2d, (3, 4, 3, 5), (7, 5)),
    "avg2_one": (F.adaptive_avg_pool2d, (3, 4, 6, 5), (1, 1)),
    "avg2_none": (F.adaptive_avg_pool2d, (3, 4, 6, 5), (None, 2)),
    "avg3": (F.adaptive_avg_pool3d, (2, 3, 5, 6, 7), (2, 3, 4)),
    "max1": (F.adaptive_max_pool1d, (3, 4, 10), (3,)),
    "max2": (F.adaptive_max_pool2d, (3, 4, 9, 10), (4, 3)),
    "max2_larger": (F.adaptive_max_pool2d, (3, 4, 3, 5), (7, 5)),
    "max3": (F.adaptive_max_pool3d, (2, 3, 5, 6, 7), (2, 3, 4)),
}


@pytest.mark.parametrize("name", ADAPTIVE)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_adaptive(name, layout):
    fn, shape, size = ADAPTIVE[name]
    kw = {"return_indices": True} if name.startswith("max") else {}
    both(lambda x: fn(x, size, **kw), arrange(distinct(shape), layout), torch.float32)
    both(lambda x: fn(x, size, **kw), distinct(shape[1:]), torch.float32)


@pytest.mark.parametrize("name", ["avg2", "avg3", "max2", "max3"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_adaptive_dtypes(name, dtype):
    fn, shape, size = ADAPTIVE[name]
    kw = {"return_indices": True} if name.startswith("max") else {}
    both(lambda x: fn(x, size, **kw), distinct(shape, dtype) / 64, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("batched", [True, False])
def test_fractional_max_pool(dtype, dims, batched):
    torch.manual_seed(5)
    shape = (2, 3, 11, 13, 9)[: dims + 2]
    samples = torch.rand(2, 3, dims).to(dtype)
    x = distinct(shape, dtype)
    if not batched:
        x, samples = x[0], samples[:1]
    fn = {2: F.fractional_max_pool2d, 3: F.fractional_max_pool3d}[dims]
    both(lambda x: fn(x, 2, (4, 5, 3)[:dims], _random_samples=samples.to(x.device), return_indices=True), x, dtype)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "transposed"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_max_unpool(dims, layout, dtype):
    x = arrange(distinct((2, 3, 4, 6, 4)[: dims + 2], dtype), layout)
    _, indices = MAX[dims](x, 2, return_indices=True)
    y = arrange(torch.randn(indices.shape).to(dtype), layout)
    size = x.shape[2:]
    unpool = {
        2: lambda y, i: aten.max_unpool2d(y, i, size),
        3: lambda y, i: aten.max_unpool3d(y, i, size, (2,) * 3, (0,) * 3),
    }[dims]
    both(lambda y: unpool(y, indices.to(y.device)), y, dtype)


def test_max_unpool_is_not_deterministic():
    x = torch.ones(1, 1, 2, 2)
    torch.use_deterministic_algorithms(True)
    try:
        same_error(lambda x: F.max_unpool2d(x, x.long(), 2), x)
        same_error(lambda x: F.max_unpool3d(x[None], x[None].long(), (1, 2, 2)), x)
    finally:
        torch.use_deterministic_algorithms(False)


def test_lp_pool():
    x = torch.rand(2, 3, 8, 9) + 0.1
    both(lambda x: F.lp_pool2d(x, 2, 3, 2), x, torch.float32)
    both(lambda x: F.lp_pool1d(x, 3, 2), x[0], torch.float32)


@pytest.mark.parametrize("strided", [False, True])
def test_out_variants(strided):
    x = distinct((2, 3, 8, 8))

    def target(shape, device, dtype=torch.float32):
        return (
            torch.empty((*shape, 2), dtype=dtype, device=device)[..., 0]
            if strided
            else torch.empty(0, dtype=dtype, device=device)
        )

    for device in ("cpu", DEVICE):
        d = x.to(device)
        y, i = target((2, 3, 4, 4), device), target((2, 3, 4, 4), device, torch.int64)
        aten.max_pool2d_with_indices.out(d, [2], out=y, indices=i)
        a = target((2, 3, 4, 4), device)
        aten.avg_pool2d.out(d, [2], out=a)
        p = target((2, 3, 3, 3), device)
        aten.adaptive_avg_pool2d.out(d, (3, 3), out=p)
        g = target((2, 3, 8, 8), device)
        aten.avg_pool2d_backward.grad_input(a, d, [2], [2], [0], False, True, None, grad_input=g)
        m = target((2, 3, 8, 8), device)
        aten.max_pool2d_with_indices_backward.grad_input(y, d, [2], [2], [0], [1], False, i, grad_input=m)
        u = target((2, 3, 8, 8), device)
        aten.max_unpool2d.out(y, i, (8, 8), out=u)
        if device == "cpu":
            expected = [t.clone() for t in (y, i, a, p, g, m, u)]
    for actual, e in zip((y, i, a, p, g, m, u), expected, strict=False):
        same(actual, e, torch.float32, strides=not strided)


def test_empty_batches():
    x = torch.randn(0, 3, 8, 8)
    for fn in (
        lambda x: F.max_pool2d(x, 2, return_indices=True),
        lambda x: F.avg_pool2d(x, 2),
        lambda x: F.adaptive_avg_pool2d(x, (2, 2)),
        lambda x: F.adaptive_max_pool2d(x, (2, 2), return_indices=True),
    ):
        both(fn, x, torch.float32)
    both(lambda x: F.max_pool3d(x, 2), torch.randn(0, 2, 4, 4, 4), torch.float32)


X2, X3 = torch.randn(2, 3, 8, 8), torch.randn(2, 3, 6, 6, 6)
ERRORS = [
    (lambda x: F.max_pool2d(x, 9), X2),
    (lambda x: F.max_pool2d(x, 2, padding=2), X2),
    (lambda x: F.max_pool2d(x, 0), X2),
    (lambda x: F.max_pool2d(x, 2, 0), X2),
    (lambda x: F.max_pool2d(x, (2, 2, 2)), X2),
    (lambda x: F.max_pool2d(x, 2), X2[0, 0]),
    (lambda x: F.max_pool2d(x, 2), X2[:, :0]),
    (lambda x: F.max_pool2d(x, 2), X2.bool()),
    (lambda x: F.max_pool3d(x, 2), X3.bool()),
    (lambda x: F.max_pool3d(x, 9), X3),
    (lambda x: F.max_pool3d(x, 2, padding=2), X3),
    (lambda x: F.max_pool3d(x, (2, 2)), X3),
    (lambda x: F.max_pool3d(x, 2), X3[:, :0]),
    (lambda x: F.max_pool3d(x, 2), X3[0, 0]),
    (lambda x: F.avg_pool2d(x, 2), X2.int()),
    (lambda x: F.avg_pool2d(x, 2, divisor_override=0), X2),
    (lambda x: F.avg_pool2d(x, 3, padding=2), X2),
    (lambda x: F.avg_pool3d(x, 2), X3.int()),
    (lambda x: F.avg_pool3d(x, 7), X3),
    (lambda x: F.adaptive_avg_pool2d(x, (2, 2)), X2.int()),
    (lambda x: F.adaptive_avg_pool2d(x, (2, 2)), X2[:, :, :0]),
    (lambda x: aten._adaptive_avg_pool2d(x, (2, 2)), X2[0, 0]),
    (lambda x: aten._adaptive_avg_pool2d(x, (2,)), X2),
    (lambda x: aten._adaptive_avg_pool3d(x, (2, 2)), X3),
    (lambda x: aten._adaptive_avg_pool3d(x, (2, 2, 2)), X3.int()),
    (lambda x: aten._adaptive_avg_pool3d(x, (2, 2, 2)), X3[0, 0]),
    (lambda x: F.adaptive_avg_pool3d(x, (2, 2, 2)), X3[:, :0]),
    (lambda x: aten._adaptive_avg_pool2d_backward(x[:, :, :0], x), X2),
    (lambda x: aten._adaptive_avg_pool2d_backward(x[0], x), X2),
    (lambda x: aten._adaptive_avg_pool2d_backward(x.double(), x), X2),
    (lambda x: aten._adaptive_avg_pool3d_backward(x[0], x), X3),
    (lambda x: F.adaptive_max_pool2d(x, (2, 2)), X2.int()),
    (lambda x: F.adaptive_max_pool3d(x, (2, 2, 2)), X3.int()),
    (lambda x: F.adaptive_max_pool2d(x, (2, 2)), X2[:, :, :0]),
    (lambda x: F.fractional_max_pool2d(x, 9, (3, 3), _random_samples=x[..., 0, :2]), X2),
    (lambda x: F.fractional_max_pool2d(x, 2, (3, 3), _random_samples=x[..., 0, :3]), X2),
    (lambda x: aten.max_unpool2d(x, x.long()[:1], (8, 8)), X2),
    (lambda x: aten.max_unpool2d(x, x.int(), (8, 8)), X2),
    (lambda x: aten.max_unpool2d(x, x.long(), (8,)), X2),
    (lambda x: aten.max_unpool2d(x, x.long() * 0 + 64, (8, 8)), X2),
    (lambda x: aten.max_unpool2d(x, x.long() * 0 - 1, (8, 8)), X2),
    (lambda x: aten.max_unpool2d(x.int(), x.long() * 0, (8, 8)), X2),
    (lambda x: aten.max_unpool3d(x, x.long() * 0 + 216, (6, 6, 6), (1, 1, 1), (0, 0, 0)), X3),
    (lambda x: aten.max_unpool3d(x, x.long() * 0, (6, 6), (1, 1, 1), (0, 0, 0)), X3),
    (lambda x: aten.max_unpool3d(x, x.long() * 0, (6, 6, 6), (1, 0, 1), (0, 0, 0)), X3),
    (
        lambda x: aten.max_pool2d_with_indices.out(x, [2], out=x.new_empty(0).double(), indices=x.new_empty(0).long()),
        X2,
    ),
    (lambda x: aten.adaptive_avg_pool2d.out(x, (2, 2), out=x.new_empty(0).double()), X2),
]


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors(case):
    fn, x = ERRORS[case]
    same_error(fn, x)


@pytest.mark.parametrize("kernel", [2**31, 2**33, 2**62])
def test_windows_beyond_32_bits(kernel):
    """Native goes through every place of a window, so the definition is what is compared with."""
    x = torch.randn(2, 3, 9)
    found = F.max_pool1d(x.to(DEVICE), kernel, padding=kernel // 2)
    assert torch.equal(found.cpu(), x.amax(-1, keepdim=True).expand(-1, -1, found.size(-1)))


def test_bad_index_in_backward_is_an_error():
    x = torch.randn(1, 1, 4, 4, device=DEVICE)
    y, i = F.max_pool2d(x, 2, return_indices=True)
    with pytest.raises(IndexError, match="out of bounds"):
        aten.max_pool2d_with_indices_backward(y, x, [2], [2], [0], [1], False, i + 100)
        torch.minitorch.synchronize()


def test_devices_may_not_mix():
    y, i = F.max_pool2d(X2, 2, return_indices=True)
    with pytest.raises(RuntimeError, match="same device"):
        aten.max_unpool2d(y.to(DEVICE), i, (8, 8))


MODULES = [
    (lambda: torch.nn.MaxPool1d(3, 2, 1), (2, 3, 9)),
    (lambda: torch.nn.MaxPool2d(2), (2, 3, 8, 8)),
    (lambda: torch.nn.MaxPool3d(2, ceil_mode=True), (2, 3, 5, 5, 5)),
    (lambda: torch.nn.AvgPool1d(3, 2, 1), (2, 3, 9)),
    (lambda: torch.nn.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 3, 8, 8)),
    (lambda: torch.nn.AvgPool3d(2), (2, 3, 4, 6, 4)),
    (lambda: torch.nn.AdaptiveAvgPool1d(4), (2, 3, 9)),
    (lambda: torch.nn.AdaptiveAvgPool2d((3, None)), (2, 3, 8, 8)),
    (lambda: torch.nn.AdaptiveAvgPool3d(2), (2, 3, 5, 5, 5)),
    (lambda: torch.nn.AdaptiveMaxPool1d(4), (2, 3, 9)),
    (lambda: torch.nn.AdaptiveMaxPool2d(3), (2, 3, 8, 8)),
    (lambda: torch.nn.AdaptiveMaxPool3d(2), (2, 3, 5, 5, 5)),
    (lambda: torch.nn.LPPool2d(2, 2), (2, 3, 8, 8)),
]


@pytest.mark.parametrize("make, shape", MODULES)
def test_modules(make, shape):
    both(make(), distinct(shape) / 32 + 40, torch.float32)


def test_second_order():
    for fn in (
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.avg_pool2d(x, 3, 1, 1),
        lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
    ):
        results = []
        for device in ("cpu", DEVICE):
            x = distinct((2, 3, 6, 6)).div(64).to(device).requires_grad_()
            g = torch.autograd.grad((fn(x) ** 3).sum(), x, create_graph=True)[0]
            results.append(torch.autograd.grad((g**2).sum(), x)[0])
        same(results[1], results[0], torch.float32)


def test_large_channels_last_and_threads():
    for threads, layout in itertools.product((1, 2), ("contiguous", "channels_last")):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            x = arrange(distinct((4, 16, 30, 50)), layout)
            both(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x, torch.float32)
            both(lambda x: F.avg_pool2d(x, 3, 2, 1), x, torch.float32)
        finally:
            torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(3, 5, 101), (5, 40), (2, 1, 7)])
@pytest.mark.parametrize("window", [(3, None, 0, 1), (3, 1, 1, 1), (2, 2, 1, 2), (3, 3, 1, 2), (4, 5, 2, 1)])
@pytest.mark.parametrize("ceil", [False, True])
def test_max_pool1d_without_a_gradient(dtype, shape, window, ceil):
    """No gradient, no indices: a path of its own, which the one with a gradient must agree with."""
    x = (torch.randn(shape) * 8).to(dtype)
    x.view(-1)[3] = float("nan")
    expected = F.max_pool1d(x, *window, ceil_mode=ceil)
    given = x.to("minitorch")
    torch.testing.assert_close(F.max_pool1d(given, *window, ceil_mode=ceil).cpu(), expected, equal_nan=True)
    with torch.inference_mode():
        torch.testing.assert_close(F.max_pool1d(given, *window, ceil_mode=ceil).cpu(), expected, equal_nan=True)
    found = F.max_pool1d(given.requires_grad_(), *window, ceil_mode=ceil)
    torch.testing.assert_close(found.detach().cpu(), expected, equal_nan=True)
    assert found.requires_grad


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.bool, torch.complex64, torch.float32])
@pytest.mark.parametrize("name", ["adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"])
def test_adaptive_pooling_to_nothing(name, dtype):
    """Native looks at the dtype only when it has something to compute, and always in three dimensions."""
    dims, fn = int(name[-2]), getattr(F, name)
    for shape, size in (((1, 2), 0), ((2,), 0), ((0, 2), 2), ((1, 2), 2)):
        x = torch.ones(shape + (4,) * dims).to(dtype)
        try:
            native = fn(x, size)
        except NotImplementedError:
            same_error(lambda x, size=size: fn(x, size), x)
        else:
            ours = fn(x.to("minitorch"), size)
            assert ours.shape == native.shape and ours.dtype == native.dtype
            torch.testing.assert_close(ours.cpu(), native)
