"""Convolutions against native CPU: values, memory formats, dtypes, all gradients, modules and errors."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.python.twin import NATIVE, check_error

DEVICE = "minitorch"
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@pytest.fixture(autouse=True)
def several_threads():
    """Native's choice between its convolutions, and with it the strides of results, depends on whether there are any."""
    threads = torch.get_num_threads()
    torch.set_num_threads(max(threads, 2))
    yield
    torch.set_num_threads(threads)


def make(shape, dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed + sum(shape))
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(-5, 6, shape, generator=g, dtype=dtype)
    return torch.randn(shape, generator=g, dtype=torch.promote_types(dtype, torch.float32)).to(dtype)


def close(actual, expected, strides=True):
    assert actual.device.type == DEVICE and actual.dtype == expected.dtype and actual.shape == expected.shape
    if strides:
        assert actual.stride() == expected.stride()
    # Relative to the largest value: how much cancellation a sum holds varies between the elements of a gradient.
    relative = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float64: 1e-12}.get(expected.dtype, 3e-6)
    scale = expected.abs().max().item() if expected.numel() else 0.0
    torch.testing.assert_close(actual.cpu(), expected, rtol=relative, atol=relative * scale)


# name: (function, input, weight, bias, keyword arguments)
CASES = {
    "1d": (F.conv1d, (2, 4, 30), (6, 4, 5), 6, dict(padding=2)),
    "1d stride dilation groups": (F.conv1d, (2, 4, 40), (6, 2, 5), None, dict(stride=3, dilation=2, groups=2)),
    "2d": (F.conv2d, (3, 5, 12, 13), (7, 5, 3, 3), 7, dict(padding=1)),
    "2d stride": (F.conv2d, (2, 5, 12, 13), (7, 5, 3, 2), 7, dict(stride=(2, 3), padding=(1, 0))),
    "2d dilation": (F.conv2d, (2, 5, 12, 13), (7, 5, 3, 3), None, dict(dilation=2, padding=2)),
    "2d groups": (F.conv2d, (2, 6, 9, 9), (9, 2, 3, 3), 9, dict(groups=3)),
    "2d depthwise": (F.conv2d, (2, 6, 9, 9), (6, 1, 3, 3), 6, dict(groups=6, padding=1)),
    # More channels than a vector, for what the channels of a channels-last image do side by side.
    "2d depthwise wide": (F.conv2d, (2, 85, 9, 7), (85, 1, 3, 3), 85, dict(groups=85, padding=1)),
    "2d depthwise stride": (F.conv2d, (2, 21, 9, 8), (21, 1, 5, 3), None, dict(groups=21, stride=2, padding=(3, 2))),
    "3d depthwise": (F.conv3d, (1, 8, 4, 5, 3), (8, 1, 3, 2, 3), 8, dict(groups=8, padding=1, dilation=(1, 2, 1))),
    "t2d depthwise": (F.conv_transpose2d, (2, 40, 4, 5), (40, 1, 3, 3), 40, dict(groups=40, stride=2)),
    # Strides and dilations that leave phases of the image without a tap.
    "2d stride dilation": (F.conv2d, (2, 5, 12, 13), (7, 5, 3, 3), None, dict(stride=2, dilation=2)),
    "2d stride beyond": (F.conv2d, (2, 5, 12, 13), (7, 5, 2, 1), 7, dict(stride=3)),
    "2d depthwise phases": (F.conv2d, (1, 8, 10, 9), (8, 1, 3, 3), None, dict(groups=8, stride=2, dilation=2)),
    "2d depthwise columns": (F.conv2d, (2, 6, 9, 11), (12, 1, 3, 2), 12, dict(groups=6, stride=(1, 3))),
    "2d depthwise rows": (F.conv2d, (2, 40, 11, 9), (40, 1, 2, 3), None, dict(groups=40, stride=(3, 1), padding=1)),
    "t2d phases": (F.conv_transpose2d, (2, 4, 6, 7), (4, 5, 3, 3), None, dict(stride=2, dilation=2)),
    "t2d depthwise phases": (F.conv_transpose2d, (2, 8, 5, 4), (8, 1, 3, 3), 8, dict(groups=8, stride=2, dilation=2)),
    "t2d depthwise columns": (F.conv_transpose2d, (2, 6, 5, 4), (6, 2, 3, 2), 12, dict(groups=6, stride=(1, 3))),
    "t1d depthwise phases": (F.conv_transpose1d, (2, 6, 9), (6, 1, 2), 6, dict(groups=6, stride=3)),
    # A window of one element whose result is larger than what it meets.
    "t1d 1 padded": (F.conv_transpose1d, (2, 4, 12), (4, 3, 1), 3, dict(dilation=3, output_padding=2)),
    "t2d 1x1 padded": (F.conv_transpose2d, (2, 40, 9, 8), (40, 36, 1, 1), 36, dict(dilation=2, output_padding=(1, 0))),
    "3d phases": (
        F.conv3d,
        (1, 4, 7, 8, 9),
        (4, 1, 2, 3, 2),
        None,
        dict(groups=4, stride=(3, 2, 3), dilation=(1, 2, 1)),
    ),
    "2d 1x1": (F.conv2d, (2, 6, 9, 9), (8, 6, 1, 1), 8, {}),
    "2d 1x1 stride": (F.conv2d, (2, 6, 9, 9), (8, 6, 1, 1), 8, dict(stride=2)),
    "2d same": (F.conv2d, (2, 3, 9, 9), (4, 3, 4, 3), 4, dict(padding="same")),
    "2d unbatched": (F.conv2d, (3, 9, 9), (4, 3, 3, 3), 4, {}),
    "2d digits": (F.conv2d, (64, 16, 8, 8), (32, 16, 3, 3), 32, dict(padding=1)),
    "3d": (F.conv3d, (2, 3, 5, 6, 7), (4, 3, 3, 2, 3), 4, dict(padding=1, stride=(1, 2, 1))),
    "t1d": (F.conv_transpose1d, (2, 4, 12), (4, 3, 5), 3, dict(stride=2, output_padding=1)),
    "t2d": (F.conv_transpose2d, (2, 4, 6, 7), (4, 5, 3, 3), 5, dict(padding=1)),
    "t2d stride": (F.conv_transpose2d, (2, 4, 6, 7), (4, 5, 4, 4), 5, dict(stride=2, padding=1)),
    "t2d groups": (F.conv_transpose2d, (2, 4, 6, 7), (4, 3, 3, 3), 6, dict(groups=2, stride=3, output_padding=2)),
    "t2d dilation": (F.conv_transpose2d, (2, 4, 6, 7), (4, 3, 3, 3), None, dict(dilation=2)),
    "t3d": (F.conv_transpose3d, (2, 3, 4, 5, 4), (3, 4, 3, 3, 3), 4, dict(stride=2)),
}


def run(case, dtype, device, input_last=False, weight_last=False):
    op, input_shape, weight_shape, bias, kwargs = CASES[case]
    tensors = [make(input_shape, dtype), make(weight_shape, dtype, 1)] + ([make((bias,), dtype, 2)] if bias else [])
    for i, last in enumerate((input_last, weight_last)):
        if last:
            tensors[i] = tensors[i].to(memory_format=CHANNELS_LAST[tensors[i].dim()])
    floating = dtype.is_floating_point or dtype.is_complex
    tensors = [t.to(device).requires_grad_(floating) for t in tensors]
    out = op(*tensors, **kwargs)
    if not floating:
        return [out]
    grad = make(tuple(out.shape), dtype, 3).to(device)
    return [out, *list(torch.autograd.grad(out, tensors, grad))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", CASES)
def test_forward_and_gradients(case, dtype):
    for actual, expected in zip(run(case, dtype, DEVICE), run(case, dtype, "cpu"), strict=True):
        close(actual.detach(), expected.detach())


def order(t):
    """Strides of the dimensions that have any: those of size one are read by nobody, and native leaves them to chance."""
    return [stride for stride, size in zip(t.stride(), t.shape, strict=True) if size > 1]


@pytest.mark.parametrize("case", [c for c, v in CASES.items() if len(v[1]) in CHANNELS_LAST and len(v[1]) == len(v[2])])
@pytest.mark.parametrize("input_last,weight_last", [(True, False), (False, True), (True, True)])
def test_channels_last(case, input_last, weight_last):
    actual = run(case, torch.float32, DEVICE, input_last, weight_last)
    expected = run(case, torch.float32, "cpu", input_last, weight_last)
    for a, e in zip(actual, expected, strict=True):
        close(a.detach(), e.detach(), strides=False)
        assert order(a) == order(e)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("groups,width", [(1, 12), (1, 9), (1, 8), (48, 12), (4, 11)])
@pytest.mark.parametrize("gradient_last", [False, True])
def test_channels_last_of_many_channels(dtype, groups, width, gradient_last):
    """More channels than a tile has rows, sums longer than one pass, and gradients in either layout."""
    outputs = 48 if groups == 48 else 36
    shapes = (2, 48, 10, width), (outputs, 48 // groups, 3, 3), (outputs,), (2, outputs, 10, width)
    x, w, b, dy = (make(shape, dtype, seed) for seed, shape in enumerate(shapes))
    x, w = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))
    if gradient_last:
        dy = dy.contiguous(memory_format=torch.channels_last)
    results = []
    for device in ("cpu", DEVICE):
        leaves = [t.to(device).requires_grad_() for t in (x, w, b)]
        y = F.conv2d(*leaves, padding=1, groups=groups)
        results.append([y.detach(), *torch.autograd.grad(y, leaves, dy.to(device))])
    for expected, found in zip(*results, strict=True):
        close(found, expected, strides=False)
        assert order(found) == order(expected)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("input_last,weight_last", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_memory_formats_of_small_problems(dims, transposed, input_last, weight_last, dtype):
    """One sample, one channel, kernels of one element, groups: in three dimensions native's rule looks at all of them."""
    function = getattr(F, f"conv{'_transpose' if transposed else ''}{dims}d")
    for batch, channels, out, kernel, size, groups in (
        (1, 4, 4, 2, 5, 1),
        (1, 4, 4, 2, 5, 4),
        (1, 4, 4, 4, 5, 1),
        (1, 4, 2, 1, 5, 1),
        (1, 1, 4, 2, 5, 1),
        (1, 4, 1, 2, 5, 1),
        (2, 4, 4, 2, 5, 1),
        (2, 1, 4, 1, 5, 1),
        (1, 3, 2, 2, 36, 1),
    ):
        if dims == 2 and size > 30:
            continue
        shape = (channels, out // groups) if transposed else (out, channels // groups)
        results = []
        for device in ("cpu", DEVICE):
            x, w = make((batch, channels, *[size] * dims), dtype), make((*shape, *[kernel] * dims), dtype)
            x = x.contiguous(memory_format=CHANNELS_LAST[x.dim()]) if input_last else x
            w = w.contiguous(memory_format=CHANNELS_LAST[w.dim()]) if weight_last else w
            x, w = x.to(device).requires_grad_(), w.to(device).requires_grad_()
            y = function(x, w, groups=groups)
            results.append([y.detach(), *torch.autograd.grad(y, (x, w), torch.ones_like(y))])
        for actual, expected in zip(results[1], results[0], strict=True):
            assert order(actual) == order(expected), (batch, channels, out, kernel, size, groups)


@pytest.mark.parametrize("case", ["1d", "2d", "2d dilation", "3d", "t2d"])
def test_int64(case):
    assert torch.equal(run(case, torch.int64, DEVICE)[0].cpu(), run(case, torch.int64, "cpu")[0])


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32])
@pytest.mark.parametrize("case", ["1d", "2d", "2d stride", "2d groups", "3d"])
def test_short_integers(case, dtype):
    assert torch.equal(run(case, dtype, DEVICE)[0].cpu(), run(case, dtype, "cpu")[0])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_short_integers_wrap_around(dtype):
    x, w = (torch.full(shape, torch.iinfo(dtype).max - 3, dtype=dtype) for shape in ((1, 3, 5, 5), (2, 3, 3, 3)))
    assert torch.equal(F.conv2d(x.to(DEVICE), w.to(DEVICE)).cpu(), F.conv2d(x, w))


@pytest.mark.parametrize("case", ["2d dilation", "t2d"])
def test_short_integers_that_native_refuses(case):
    texts = []
    for device in ("cpu", DEVICE):
        with pytest.raises(NotImplementedError, match="not implemented for 'Int'") as error:
            run(case, torch.int32, device)
        texts.append(str(error.value))
    assert case != "t2d" or texts[0] == texts[1]


def test_depthwise_weight_gradient_ignores_the_neighbours():
    """Rows that are not whole vectors: what lies behind one in memory, here NaN, takes no part."""
    x = make((1, 3, 4, 7))
    x[:, :, 2:] = float("nan")
    weight = make((3, 1, 1, 1), seed=1)
    for last in (False, True):
        image = x.to(memory_format=torch.channels_last) if last else x
        grads = []
        for device in ("cpu", DEVICE):
            w = weight.detach().to(device).requires_grad_()
            F.conv2d(image.to(device)[:, :, :2], w, groups=3).sum().backward()
            grads.append(w.grad)
        close(grads[1], grads[0], strides=False)


@pytest.mark.parametrize("case", ["1d", "2d stride", "2d groups", "t2d"])
def test_complex(case):
    for actual, expected in zip(run(case, torch.complex64, DEVICE), run(case, torch.complex64, "cpu"), strict=True):
        close(actual.detach(), expected.detach())


def test_accuracy():
    """No further from the exact result than native is, forward and both gradients; on a GPU over the three together."""
    x, w, grad = make((8, 64, 14, 14)), make((32, 64, 3, 3)), make((8, 32, 14, 14))

    def results(device, dtype):
        # Without autograd: its engine serves one kind of device besides the CPU, and native CUDA is not ours.
        a, b, g = (t.to(device, dtype) for t in (x, w, grad))
        options = (None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1, (True, True, False))
        gradients = torch.ops.aten.convolution_backward(g, a, b, *options)
        return [t.cpu().double() for t in (F.conv2d(a, b, padding=1), *gradients[:2])]

    exact = results("cpu", torch.float64)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        # On a GPU native's sums there are the measure: they take more terms in a row than a CPU's vectors do.
        there, here = results(NATIVE or "cpu", torch.float32), results(DEVICE, torch.float32)
    ratios = [(o - e).abs().mean() / (n - e).abs().mean() for o, n, e in zip(here, there, exact, strict=True)]
    if NATIVE == "cuda":
        # cuDNN takes the sums of one gradient in parts and those of the other in a row, which is its choice by shape.
        assert torch.stack(ratios).log().mean().exp() <= 1.1, ratios
    else:
        assert max(ratios) <= 1.1, ratios


def test_strided_inputs():
    x, w, b = make((2, 8, 20, 22)), make((6, 4, 5, 5)), make((12,))
    views = [
        (x[:, ::2, 1:, ::2], w[..., 1:4, ::2], b[::2]),
        (x[:, :4].mT, w.mT, None),
        (x[:1].expand(3, -1, -1, -1)[:, 4:], w.flip(0), b[6:]),
    ]
    for host in views:
        base = [x.to(DEVICE), w.to(DEVICE), b.to(DEVICE)]
        device = [None if t is None else t.to(DEVICE) for t in host]
        for i, (t, origin) in enumerate(zip(host, (x, w, b), strict=False)):
            if t is not None and t.untyped_storage().data_ptr() == origin.untyped_storage().data_ptr():
                device[i] = base[i].as_strided(t.shape, t.stride(), t.storage_offset())
        close(F.conv2d(*device), F.conv2d(*host), strides=False)


def test_double_backward():
    x, w = make((1, 2, 5, 5), torch.float64), make((3, 2, 3, 3), torch.float64, 1)

    def second(device):
        a, b = x.to(device).requires_grad_(), w.to(device).requires_grad_()
        out = F.conv2d(a, b, stride=2, padding=1)
        first = torch.autograd.grad(out, (a, b), out.detach(), create_graph=True)
        weights = [make(tuple(g.shape), torch.float64, 5).to(device) for g in first]
        return torch.autograd.grad(first, (a, b), weights)

    for actual, expected in zip(second(DEVICE), second("cpu"), strict=False):
        close(actual, expected)


@pytest.mark.parametrize("shape,weight", [((0, 4, 8, 8), (6, 4, 3, 3)), ((2, 0, 8, 8), (6, 0, 3, 3))])
def test_nothing_to_do(shape, weight):
    results = []
    for device in (DEVICE, "cpu"):
        x, w = make(shape).to(device).requires_grad_(), make(weight).to(device).requires_grad_()
        out = F.conv2d(x, w)
        results.append([out.detach(), *torch.autograd.grad(out, (x, w), torch.ones_like(out))])
    for actual, expected in zip(*results, strict=False):
        close(actual, expected)


# What is too far for 32 bits meets what is merely far: name: (function, input, weight, far arguments, near arguments).
FAR = {
    "stride": (F.conv2d, (2, 3, 5, 6), (4, 3, 2, 3), dict(stride=2**32), dict(stride=8)),
    "stride and a bit": (F.conv2d, (2, 3, 5, 6), (4, 3, 2, 3), dict(stride=(2**32 + 1, 2**40)), dict(stride=8)),
    "stride of groups": (F.conv1d, (2, 4, 6), (6, 2, 3), dict(stride=2**32, groups=2), dict(stride=8, groups=2)),
    "padding": (
        F.conv2d,
        (2, 3, 5, 6),
        (4, 3, 2, 1),
        dict(padding=(2**32, 0), dilation=(2**33, 1)),
        dict(padding=(8, 0), dilation=(16, 1)),
    ),
    "padding of groups": (
        F.conv1d,
        (2, 4, 6),
        (6, 2, 2),
        dict(padding=2**31, dilation=2**32, groups=2),
        dict(padding=8, dilation=16, groups=2),
    ),
    "stride through padding": (
        F.conv1d,
        (2, 4, 7),
        (6, 4, 3),
        dict(stride=2**32, padding=2**32, dilation=2**32),
        dict(stride=8, padding=8, dilation=8),
    ),
    "transposed stride": (F.conv_transpose2d, (2, 3, 1, 1), (3, 4, 2, 3), dict(stride=2**32), dict(stride=8)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("case", FAR)
def test_geometry_beyond_32_bits(case, dtype):
    function, shape, weight_shape, far, near = FAR[case]
    results = []
    # In bfloat16 native torch 2.11 ends the process on some processors.
    wide = torch.float32 if dtype == torch.bfloat16 else dtype
    for device, kind, options in ((DEVICE, dtype, far), ("cpu", wide, near)):
        x, w = (make(s, dtype).to(device, kind).requires_grad_() for s in (shape, weight_shape))
        out = function(x, w, **options)
        results.append([out.detach(), *torch.autograd.grad(out, (x, w), torch.ones_like(out))])
    for actual, expected in zip(*results, strict=True):
        close(actual, expected.to(dtype), strides=False)


def test_a_long_signal_of_nobody():
    """PyTorch's own function does not come so far with an empty batch."""
    x, w = torch.empty(0, 2, 2**33, device=DEVICE), make((3, 2, 5)).to(DEVICE)
    geometry = [2**32], [0], [1], False, [0], 1
    out = torch.ops.aten.convolution_overrideable(x, w, None, *geometry)
    assert out.shape == (0, 3, 2)
    dx, dw, _ = torch.ops.aten.convolution_backward_overrideable(out, x, w, *geometry, [True, True, False])
    assert dx.shape == x.shape and dw.shape == w.shape and not dw.any()


MODULES = [
    lambda: nn.Conv1d(4, 6, 3, padding=1),
    lambda: nn.Conv2d(4, 6, 3, padding="same"),
    lambda: nn.Conv2d(4, 6, 3, stride=2, bias=False),
    lambda: nn.Conv2d(4, 6, 3, padding=2, padding_mode="circular"),
    lambda: nn.Conv2d(4, 6, 3, padding=2, padding_mode="reflect"),
    lambda: nn.Conv3d(4, 6, 2),
    lambda: nn.ConvTranspose1d(4, 6, 3, stride=2),
    lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
    lambda: nn.ConvTranspose3d(4, 6, 2),
]


@pytest.mark.parametrize("index", range(len(MODULES)))
def test_modules(index):
    torch.manual_seed(0)
    host = MODULES[index]()
    device = MODULES[index]()
    device.load_state_dict(host.state_dict())
    device.to(DEVICE)
    x = make((2, 4) + (7,) * (host.weight.dim() - 2))
    a, e = device(x.to(DEVICE)), host(x)
    close(a.detach(), e.detach())
    grad = make(tuple(e.shape), seed=4)
    a.backward(grad.to(DEVICE))
    e.backward(grad)
    for p, q in zip(device.parameters(), host.parameters(), strict=False):
        close(p.grad, q.grad)


ERRORS = [
    lambda x, w, b: F.conv2d(x[:, :3], w),
    lambda x, w, b: F.conv2d(x, w, groups=2),
    lambda x, w, b: F.conv2d(x, w, b[:5]),
    lambda x, w, b: F.conv2d(x, w, b.double()),
    lambda x, w, b: F.conv2d(x[:, :, :2], w),
    lambda x, w, b: F.conv2d(x, w, padding=-1),
    lambda x, w, b: F.conv2d(x, w, stride=0),
    lambda x, w, b: F.conv2d(x, w, dilation=0),
    lambda x, w, b: F.conv2d(x.bool(), w.bool()),
    lambda x, w, b: F.conv_transpose2d(x, w),
    lambda x, w, b: F.conv2d(x, w[:0]),
]


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors_are_natives(case):
    host = (make((2, 4, 8, 8)), make((6, 4, 3, 3)), make((6,)))
    with pytest.raises(Exception) as expected:
        ERRORS[case](*host)
    with pytest.raises(type(expected.value)) as actual:
        ERRORS[case](*(t.to(DEVICE) for t in host))
    assert str(actual.value).split("\n")[0] == str(expected.value).split("\n")[0]


def test_mixed_dtypes_and_devices():
    x, w = make((2, 4, 8, 8)), make((6, 4, 3, 3))
    with pytest.raises(RuntimeError, match=r"Input type .* and weight type .* should be the same"):
        F.conv2d(x.to(DEVICE), w.double().to(DEVICE))
    with pytest.raises(RuntimeError):
        F.conv2d(x.to(DEVICE), w)


def both(function, tensors, **options):
    """Native's results, value and gradients, and ours beside them."""
    results = []
    for device in ("cpu", DEVICE):
        leaves = [t.to(device).requires_grad_() for t in tensors]
        out = function(*leaves, **options)
        results.append(
            [out.detach(), *torch.autograd.grad(out, leaves, make(tuple(out.shape), out.dtype, 5).to(device))]
        )
    return zip(*results, strict=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", [(3, 3), (5, 5), (7, 7), (3, 1), (5, 2), (7, 4)])
def test_depthwise_planes(kernel, dtype):
    """Widths and heights around those of a vector and of the rows that are filtered together, and far into the padding."""
    for height, width, padding, dilation in (
        (1, 1, 3, 1),
        (3, 15, 1, 1),
        (4, 16, 1, 2),
        (5, 17, 3, 1),
        (8, 31, 0, 1),
        (9, 32, 2, 3),
        (13, 33, 3, 1),
        (7, 50, 6, 1),
    ):
        options = {"groups": 3, "padding": (padding, padding + 1), "dilation": (1, dilation)}
        reach = [d * (k - 1) + 1 for k, d in zip(kernel, (1, dilation), strict=True)]
        if height + 2 * padding < reach[0] or width + 2 * padding + 2 < reach[1]:
            continue
        for multiplier in (1, 2):
            tensors = [make((2, 3, height, width), dtype), make((3 * multiplier, 1, *kernel), dtype, 1)]
            tensors.append(make((3 * multiplier,), dtype, 2))
            for expected, actual in both(F.conv2d, tensors, **options):
                close(actual, expected, strides=False)
    one = [make((1, 1, 150, 70), dtype), make((1, 1, *kernel), dtype, 1)]  # in bands of rows
    for expected, actual in both(F.conv2d, one, padding=1):
        close(actual, expected, strides=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("stride", [2, 3, (1, 2), (2, 1), (3, 4)])
def test_phases_of_a_stride_are_woven(stride, dtype):
    for channels, outputs, groups, extent in (
        (4, 6, 2, (5, 9)),
        (3, 3, 3, (6, 1)),
        (8, 5, 1, (1, 20)),
        (2, 40, 1, (7, 16)),
    ):
        for kernel, padding in ((1, 0), (2, 0), (3, 1), (5, 2)):
            tensors = [
                make((2, channels, *extent), dtype),
                make((channels, outputs // groups, kernel, kernel), dtype, 1),
            ]
            tensors.append(make((outputs,), dtype, 2))
            if any(
                (e - 1) * s + kernel - 2 * padding < 1
                for e, s in zip(extent, (stride,) * 2 if isinstance(stride, int) else stride, strict=True)
            ):
                continue
            for expected, actual in both(F.conv_transpose2d, tensors, stride=stride, padding=padding, groups=groups):
                close(actual, expected, strides=False)


@pytest.mark.parametrize("nd", [1, 2, 3])
def test_transposed_into_less_than_nothing(nd):
    convolve = getattr(F, f"conv_transpose{nd}d")
    check_error(lambda x, w: convolve(x, w, padding=4), torch.ones(1, 2, *[4] * nd), torch.ones(2, 2, *[3] * nd))
