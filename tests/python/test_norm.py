"""Normalisation against native CPU: values, statistics, gradients of first and second order, dtypes, layouts, errors."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from tests.python import twin
from tests.python.layouts import LAYOUTS, arrange
from tests.python.twin import DEVICE, FLOATS, same_error

# Dividing by a standard deviation amplifies rounding.
TOLERANCE = {
    torch.float64: dict(rtol=1e-10, atol=1e-10),
    torch.float32: dict(rtol=1e-5, atol=2e-5),
    torch.bfloat16: dict(rtol=2e-2, atol=2e-2),
    torch.float16: dict(rtol=2e-3, atol=2e-3),
}


def close(actual, expected, dtype, **limits):
    twin.same(actual, expected, dtype, strides=False, **{**TOLERANCE[dtype], **limits})


def both(fn, tensors, dtype, **limits):
    twin.both(fn, tensors, dtype, grad_strides=False, **{**TOLERANCE[dtype], **limits})


# ---- layer norm --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "shape, dims", [((4, 7), 1), ((3, 5, 33), 1), ((2, 3, 4, 5), 2), ((6, 1025), 1), ((2, 3), 2), ((5, 1), 1)]
)
@pytest.mark.parametrize("affine", ["none", "weight", "both"])
def test_layer_norm(dtype, shape, dims, affine):
    torch.manual_seed(0)
    normalized = shape[-dims:]
    x = (torch.randn(shape, dtype=torch.float64) * 3 + 1).to(dtype)
    w = torch.randn(normalized).to(dtype) if affine != "none" else None
    b = torch.randn(normalized).to(dtype) if affine == "both" else None
    atol = TOLERANCE[dtype]["atol"] * 4
    both(lambda x, w, b: F.layer_norm(x, normalized, w, b), [x, w, b], dtype, atol=atol)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layer_norm_layouts(layout):
    x = arrange(torch.randn(4, 3, 6, 5), layout)
    both(lambda x, w, b: F.layer_norm(x, (6, 5), w, b), [x, torch.randn(6, 5), torch.randn(6, 5)], torch.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_layer_norm_mixed(dtype):
    x, w, b = torch.randn(6, 40).to(dtype), torch.randn(40), torch.randn(40)
    both(lambda x, w, b: F.layer_norm(x, (40,), w, b), [x, w, b], dtype)
    native = torch.native_layer_norm(x, (40,), w, b, 1e-5)
    ours = torch.native_layer_norm(x.to(DEVICE), (40,), w.to(DEVICE), b.to(DEVICE), 1e-5)
    assert [(t.dtype, t.shape, t.stride()) for t in ours] == [(t.dtype, t.shape, t.stride()) for t in native]


def test_layer_norm_empty():
    for shape in ((0, 5), (0, 3, 5)):
        both(
            lambda x, w, b: F.layer_norm(x, (5,), w, b),
            [torch.randn(shape), torch.ones(5), torch.ones(5)],
            torch.float32,
        )


def test_layer_norm_special_values():
    x = torch.randn(6, 8)
    x[0, 3], x[1, 2], x[2, 1] = float("nan"), float("inf"), -float("inf")
    x[3] = 1e15
    x[4] = 0
    close(F.layer_norm(x.to(DEVICE), (8,)), F.layer_norm(x, (8,)), torch.float32)


def test_layer_norm_error_is_no_larger_than_native():
    torch.manual_seed(1)
    x = torch.randn(64, 4096) + 300
    exact = F.layer_norm(x.double(), (4096,))
    ours = (F.layer_norm(x.to(DEVICE), (4096,)).cpu().double() - exact).abs().max()
    native = (F.layer_norm(x, (4096,)).double() - exact).abs().max()
    assert ours <= native * 1.1


def test_layer_norm_errors():
    x = torch.randn(4, 5)
    same_error(lambda x: F.layer_norm(x, (4,)), x)
    same_error(lambda x: F.layer_norm(x, ()), x)
    same_error(lambda x, w: F.layer_norm(x, (5,), w), x, torch.randn(4))
    same_error(lambda x, w: F.layer_norm(x, (5,), w), x, torch.randn(5).double())
    same_error(lambda x, w, b: F.layer_norm(x, (5,), w, b), x, torch.randn(5), torch.randn(5).double())
    same_error(lambda x: F.layer_norm(x, (5,)), x.int())
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        F.layer_norm(x.to(DEVICE), (5,), torch.ones(5))


# ---- RMS norm ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("eps", [None, 1e-3])
def test_rms_norm(dtype, weight, eps):
    x = torch.randn(5, 3, 37).to(dtype)
    w = torch.randn(37).to(dtype) if weight else None
    both(lambda x, w: F.rms_norm(x, (37,), w, eps), [x, w], dtype)


def test_rms_norm_small_values_use_nativess_default_eps():
    for dtype in FLOATS:
        x = torch.full((1, 4), 1e-3).to(dtype)
        close(F.rms_norm(x.to(DEVICE), (4,)), F.rms_norm(x, (4,)), dtype)


def test_rms_norm_errors():
    same_error(lambda x: F.rms_norm(x, (4,)), torch.randn(4, 5))
    same_error(lambda x, w: F.rms_norm(x, (5,), w), torch.randn(4, 5), torch.randn(4))


# ---- batch norm --------------------------------------------------------------------------------------------------

SHAPES = [(6, 5), (4, 3, 9), (4, 5, 6, 7), (3, 2, 3, 4, 5), (2, 33, 1, 1), (1, 4, 8, 8)]


def stats_like(c, dtype):
    return torch.randn(c).to(dtype), (torch.rand(c) + 0.5).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm(dtype, shape, training, affine):
    torch.manual_seed(0)
    c = shape[1]
    x = (torch.randn(shape, dtype=torch.float64) * 2 + 1).to(dtype)
    w, b = (torch.randn(c).to(dtype), torch.randn(c).to(dtype)) if affine else (None, None)
    mean, var = stats_like(c, dtype)
    seen = []

    def run(x, w, b):
        m, v = mean.to(x.device).clone(), var.to(x.device).clone()
        y = F.batch_norm(x, m, v, w, b, training, 0.3)
        seen.append((m, v))
        return y

    # A channel of two elements has xhat = +-1, so its input gradient is a difference of equal numbers.
    both(run, [x, w, b], dtype, atol=TOLERANCE[dtype]["atol"] * 8)
    for a, e in zip(seen[1], seen[0], strict=False):
        close(a, e, dtype)
        assert training or torch.equal(a.cpu(), (mean, var)[e is seen[0][1]])


@pytest.mark.parametrize("layout, training", list(itertools.product(LAYOUTS, [True, False])))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_norm_layouts(layout, training, dtype):
    x = arrange(torch.randn(4, 5, 6, 7).to(dtype), layout)
    mean, var = stats_like(5, torch.float32)
    w, b = torch.randn(5), torch.randn(5)
    both(
        lambda x, w, b: F.batch_norm(x, mean.to(x.device), var.to(x.device), w, b, training),
        [x, w, b],
        dtype,
        atol=TOLERANCE[dtype]["atol"] * 4,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("channels", [8, 16, 24, 64, 192, 264, 1056])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_channels_last(dtype, channels, training):
    # Lines narrower than a warp and wider, in equal tiles or not, fewer and more of them than a block takes at once.
    torch.manual_seed(0)
    for n, size in ((1, 3), (2, 7), (5, 19)):
        x = (torch.randn(n, channels, size, size) * 2 + 1).to(dtype).contiguous(memory_format=torch.channels_last)
        w, b = torch.randn(channels), torch.randn(channels)
        mean, var = stats_like(channels, torch.float32)
        seen = []

        def run(x, w, b, mean=mean, var=var, seen=seen):
            m, v = mean.to(x.device).clone(), var.to(x.device).clone()
            seen.append((m, v))
            return F.batch_norm(x, m, v, w, b, training, 0.3)

        both(run, [x, w, b], dtype, atol=TOLERANCE[dtype]["atol"] * 4)
        for a, e in zip(seen[1], seen[0], strict=False):
            close(a, e, torch.float32)


def test_batch_norm_running_stats_keep_their_layout():
    storage = torch.zeros(10, device=DEVICE)
    mean = storage[::2]
    x = torch.randn(8, 5) + 2
    F.batch_norm(x.to(DEVICE), mean, torch.ones(5, device=DEVICE), training=True, momentum=1.0)
    close(mean, x.mean(0), torch.float32)
    assert torch.equal(storage[1::2].cpu(), torch.zeros(5))


def test_batch_norm_large_mean_is_as_exact_as_native():
    torch.manual_seed(2)
    x = torch.randn(16, 4, 32, 32) + 1000
    for format in (torch.contiguous_format, torch.channels_last):
        x = x.contiguous(memory_format=format)
        exact = F.batch_norm(x.double(), None, None, training=True)
        ours = (F.batch_norm(x.to(DEVICE), None, None, training=True).cpu().double() - exact).abs().max()
        native = (F.batch_norm(x, None, None, training=True).double() - exact).abs().max()
        assert ours <= native * 1.1


def variants(x, w, b, m, v):
    aten = torch.ops.aten
    yield aten.native_batch_norm(x, w, b, m, v, True, 0.1, 1e-5)
    yield aten.native_batch_norm(x, w, b, m, v, False, 0.1, 1e-5)
    yield aten._native_batch_norm_legit(x, w, b, m, v, True, 0.1, 1e-5)
    yield aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5)
    yield aten._native_batch_norm_legit_no_training(x, w, b, m, v, 0.1, 1e-5)
    yield aten._native_batch_norm_legit_functional(x, w, b, m, v, True, 0.1, 1e-5)
    yield aten._batch_norm_with_update(x, w, b, m, v, 0.1, 1e-5)[:3]
    yield aten._batch_norm_no_update(x, w, b, m, v, 0.1, 1e-5)
    yield aten._batch_norm_with_update_functional(x, w, b, m, v, 0.1, 1e-5)[:3]
    yield aten.batch_norm_update_stats(x, m, v, 0.2)
    empty = [torch.empty(0, device=x.device) for _ in range(3)]
    yield aten.native_batch_norm.out(
        x, w, b, m, v, True, 0.1, 1e-5, out=empty[0], save_mean=empty[1], save_invstd=empty[2]
    )
    yield (m, v)


def test_batch_norm_variants():
    tensors = [torch.randn(6, 4, 5, 5), torch.randn(4), torch.randn(4), *stats_like(4, torch.float32)]
    ours = variants(*(t.to(DEVICE) for t in tensors))
    count = 0
    for expected, actual in zip(variants(*(t.clone() for t in tensors)), ours, strict=True):
        assert len(expected) == len(actual)
        for e, a in zip(expected, actual, strict=False):
            assert a.dtype == e.dtype and a.stride() == e.stride()
            close(a, e, torch.float32)
        count += 1
    assert count == 12


def test_batch_norm_backward_masks():
    x, dy, w = torch.randn(4, 3, 5), torch.randn(4, 3, 5), torch.randn(3)
    for mask in itertools.product([True, False], repeat=3):
        results = []
        for device in ("cpu", DEVICE):
            X, D, W = x.to(device), dy.to(device), w.to(device)
            _y, mean, invstd = torch.native_batch_norm(X, W, None, None, None, True, 0.1, 1e-5)
            results.append(
                torch.ops.aten.native_batch_norm_backward(D, X, W, None, None, mean, invstd, True, 1e-5, list(mask))
            )
        for e, a in zip(*results, strict=False):
            assert (e is None) == (a is None)
            if e is not None:
                close(a, e, torch.float32)


def test_batch_norm_errors():
    x, w, m, v = torch.randn(4, 3, 5), torch.randn(3), torch.zeros(3), torch.ones(3)
    same_error(lambda x: F.batch_norm(x, None, None, training=True), torch.randn(1, 3))
    same_error(lambda x, m, v: F.batch_norm(x, m, v), x, torch.zeros(4), v)
    same_error(lambda x, w: F.batch_norm(x, None, None, w, training=True), x, torch.randn(4))
    same_error(lambda x, w: F.batch_norm(x, None, None, w, training=True), x, w.double())
    same_error(lambda x, w, m, v: F.batch_norm(x, m, v, w, training=True), x, w, m.double(), v)
    same_error(lambda x: F.batch_norm(x, None, None, training=True), x.int())
    same_error(lambda x: F.batch_norm(x, None, None), x)
    same_error(lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5), x[:0])
    for mean, var in ((m.to(DEVICE), None), (None, v.to(DEVICE))):
        for norm in (F.batch_norm, F.instance_norm):
            with pytest.raises(ValueError, match="must either both be None or neither be None"):
                norm(x.to(DEVICE), mean, var, None, None, True)
    with pytest.raises(RuntimeError, match="must be defined"):  # native crashes here
        torch.native_batch_norm(x.to(DEVICE), None, None, None, None, False, 0.1, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
def test_synchronised_batch_norm(dtype, layout):
    """Two shares of unequal size give what batch norm gives for the whole batch."""
    torch.manual_seed(0)
    stat = torch.float64 if dtype == torch.float64 else torch.float32
    x = arrange((torch.randn(5, 3, 4, 6) * 2 + 1).to(dtype), layout)
    dy, w, b = torch.randn(5, 3, 4, 6).to(dtype), torch.randn(3).to(stat), torch.randn(3).to(stat)
    whole = x.to(stat).requires_grad_()
    weight, bias = w.clone().requires_grad_(), b.clone().requires_grad_()
    running = torch.zeros(3, dtype=stat), torch.ones(3, dtype=stat)
    expected = F.batch_norm(whole, *running, weight, bias, True, 0.3)
    grads = torch.autograd.grad(expected, [whole, weight, bias], dy.to(stat))

    shares = [slice(0, 2), slice(2, 5)]
    xs, dys = [x[s].to(DEVICE) for s in shares], [dy[s].to(DEVICE) for s in shares]
    w, b = w.to(DEVICE), b.to(DEVICE)
    stats = [torch.batch_norm_stats(x, 1e-5) for x in xs]
    means, invstds = (torch.stack([s[k] for s in stats]) for k in (0, 1))
    counts = torch.tensor([x.numel() / 3 for x in xs], dtype=stat, device=DEVICE)
    mean_buffer, var_buffer = torch.zeros(3, dtype=stat, device=DEVICE), torch.ones(3, dtype=stat, device=DEVICE)
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        xs[0], means, invstds, mean_buffer, var_buffer, 0.3, 1e-5, counts
    )
    ys = [torch.batch_norm_elemt(x, w, b, mean, invstd, 1e-5) for x in xs]
    close(torch.cat(ys), expected.detach().to(dtype), dtype)
    close(mean_buffer, running[0], torch.float32)
    close(var_buffer, running[1], torch.float32)

    sums = [
        torch.batch_norm_backward_reduce(d, x, mean, invstd, w, True, True, True) for d, x in zip(dys, xs, strict=False)
    ]
    sum_dy, sum_dy_xmu, dw, db = (sum(s[k] for s in sums) for k in range(4))
    loose = dict(rtol=1e-4, atol=1e-4)
    close(dw, grads[1], torch.float32, **loose)
    close(db, grads[2], torch.float32, **loose)
    dxs = [
        torch.batch_norm_backward_elemt(d, x, mean, invstd, w, sum_dy, sum_dy_xmu, counts.int())
        for d, x in zip(dys, xs, strict=False)
    ]
    close(torch.cat(dxs), grads[0].to(dtype), dtype, atol=TOLERANCE[dtype]["atol"] * 4)


# ---- group and instance norm -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "shape, groups", [((4, 6), 3), ((3, 8, 9), 4), ((2, 6, 5, 7), 2), ((2, 4, 3, 4, 2), 1), ((2, 5, 6), 5)]
)
@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(dtype, shape, groups, affine):
    x = (torch.randn(shape, dtype=torch.float64) + 0.5).to(dtype)
    w, b = (torch.randn(shape[1]).to(dtype), torch.randn(shape[1]).to(dtype)) if affine else (None, None)
    # Groups of two elements amplify rounding: the gradient is a difference of nearly equal numbers.
    scale = 50 if shape == (4, 6) else 8
    both(lambda x, w, b: F.group_norm(x, groups, w, b), [x, w, b], dtype, atol=TOLERANCE[dtype]["atol"] * scale)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_group_norm_layouts(layout, dtype):
    x = arrange(torch.randn(4, 6, 5, 7).to(dtype), layout)
    both(
        lambda x, w, b: F.group_norm(x, 3, w, b),
        [x, torch.randn(6), torch.randn(6)],
        dtype,
        atol=TOLERANCE[dtype]["atol"] * 4,
    )


def test_group_norm_errors():
    x = torch.randn(2, 6, 5)
    same_error(lambda x: F.group_norm(x, 4), x)
    same_error(lambda x, w: F.group_norm(x, 3, w), x, torch.randn(5))
    same_error(lambda x: F.group_norm(x, 3), x.int())
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        F.group_norm(x.to(DEVICE), 3, torch.ones(6))


@pytest.mark.parametrize("use_stats", [True, False])
def test_instance_norm(use_stats):
    mean, var = stats_like(3, torch.float32)
    seen = []

    def run(x, w, b):
        m, v = mean.to(x.device), var.to(x.device).clone()
        m = m.clone()
        seen.append((m, v))
        return F.instance_norm(x, m, v, w, b, use_input_stats=use_stats)

    both(run, [torch.randn(4, 3, 5, 6), torch.randn(3), torch.randn(3)], torch.float32, atol=1e-4)
    for e, a in zip(*seen, strict=False):
        close(a, e, torch.float32)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_weight_norm(dim):
    sizes = [torch.Size([4, 1, 1]), torch.Size([1, 5, 1]), torch.Size([1, 1, 6])][dim]
    both(lambda v, g: torch._weight_norm(v, g, dim % 3), [torch.randn(4, 5, 6), torch.randn(sizes)], torch.float32)


def test_local_response_norm():
    both(lambda x: F.local_response_norm(x, 3), [torch.randn(2, 6, 5, 5)], torch.float32)


# ---- second order ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["layer", "rms", "batch", "batch_eval", "group"])
def test_second_order(name):
    functions = {
        "layer": lambda x, w, b: F.layer_norm(x, (5,), w, b),
        "rms": lambda x, w, b: F.rms_norm(x, (5,), w) + b,
        "batch": lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        "batch_eval": lambda x, w, b: F.batch_norm(
            x, torch.zeros(5).double().to(x.device), torch.ones(5).double().to(x.device), w, b
        ),
        "group": lambda x, w, b: F.group_norm(x, 1, w, b),
    }
    fn = functions[name]
    x, w, b = (
        torch.randn(4, 5, dtype=torch.float64),
        torch.rand(5, dtype=torch.float64) + 0.5,
        torch.randn(5, dtype=torch.float64),
    )
    results = []
    for device in ("cpu", DEVICE):
        args = [t.to(device).requires_grad_() for t in (x, w, b)]
        grads = torch.autograd.grad((fn(*args) ** 3).sum(), args, create_graph=True)
        results.append(torch.autograd.grad(sum((g**2).sum() for g in grads), args[:2]))
    for e, a in zip(*results, strict=False):
        torch.testing.assert_close(a.cpu(), e, rtol=1e-8, atol=1e-8)


# ---- modules -----------------------------------------------------------------------------------------------------

MODULES = [
    (lambda: torch.nn.BatchNorm1d(5), (8, 5)),
    (lambda: torch.nn.BatchNorm1d(5, momentum=None), (8, 5, 4)),
    (lambda: torch.nn.BatchNorm2d(5, affine=False), (4, 5, 6, 6)),
    (lambda: torch.nn.BatchNorm2d(5, track_running_stats=False), (4, 5, 6, 6)),
    (lambda: torch.nn.BatchNorm3d(3), (2, 3, 4, 4, 4)),
    (lambda: torch.nn.LayerNorm((4, 5)), (3, 4, 5)),
    (lambda: torch.nn.LayerNorm(5, bias=False), (3, 5)),
    (lambda: torch.nn.GroupNorm(2, 6), (3, 6, 4, 4)),
    (lambda: torch.nn.RMSNorm(7), (3, 7)),
    (lambda: torch.nn.InstanceNorm1d(3), (2, 3, 6)),
    (lambda: torch.nn.InstanceNorm2d(3, affine=True, track_running_stats=True), (2, 3, 6, 6)),
    (lambda: torch.nn.InstanceNorm3d(3), (2, 3, 4, 4, 4)),
    (lambda: torch.nn.LocalResponseNorm(2), (2, 4, 6, 6)),
]


@pytest.mark.parametrize("make, shape", MODULES, ids=lambda v: "x".join(map(str, v)) if isinstance(v, tuple) else None)
def test_modules(make, shape):
    torch.manual_seed(0)
    native = make()
    ours = make()
    ours.load_state_dict(native.state_dict())
    ours = ours.to(DEVICE)
    for _ in range(3):
        x = torch.randn(shape)
        a, d = x.clone().requires_grad_(), x.to(DEVICE).requires_grad_()
        weight = torch.randn(shape)
        (native(a) * weight).sum().backward()
        (ours(d) * weight.to(DEVICE)).sum().backward()
        close(d.grad, a.grad, torch.float32, atol=1e-4)
    for (name, e), (other, o) in zip(native.state_dict().items(), ours.state_dict().items(), strict=True):
        assert name == other
        torch.testing.assert_close(o.cpu(), e, rtol=1e-5, atol=1e-5)
    for e, o in zip(native.parameters(), ours.parameters(), strict=True):
        close(o.grad, e.grad, torch.float32, atol=1e-4)
    native.eval(), ours.eval()
    x = torch.randn(shape)
    close(ours(x.to(DEVICE)), native(x).detach(), torch.float32)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(2, 4, 0), (0, 4, 3), (0, 4, 0)])
def test_group_norm_of_nothing(shape, dtype):
    grads = []
    for device in ("cpu", DEVICE):
        x, weight, bias = (torch.ones(s, dtype=dtype, device=device).requires_grad_() for s in (shape, 4, 4))
        F.group_norm(x, 2, weight, bias).sum().backward()
        grads.append([t.grad.cpu() for t in (x, weight, bias)])
    for ours, native in zip(grads[1], grads[0], strict=True):
        torch.testing.assert_close(ours, native, equal_nan=True)


@pytest.mark.parametrize("norm", ["batch", "group", "instance", "layer"])
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
@pytest.mark.parametrize("border", [0.0, 1e4])
def test_a_border_far_from_the_rest(norm, last, border):
    """The first and the last elements tell nothing of the others: sums that began from them would lose the variance."""
    x = torch.randn(8, 4, 160, 160, generator=torch.Generator().manual_seed(0)) + 50
    x[:, :, 0, :2] = border
    x[:, :, -1, -2:] = border
    x = x.to(memory_format=torch.channels_last if last else torch.contiguous_format)
    apply = {
        "batch": lambda t: torch.nn.functional.batch_norm(t, None, None, training=True),
        "group": lambda t: torch.nn.functional.group_norm(t, 2),
        "instance": torch.nn.functional.instance_norm,
        "layer": lambda t: torch.nn.functional.layer_norm(t, t.shape[1:]),
    }[norm]
    exact = apply(x.double())
    error = (apply(x.to("minitorch")).cpu() - exact).abs().max() / exact.abs().max()
    assert error < 2e-6
