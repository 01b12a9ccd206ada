"""Upsampling and grid sampling against native CPU: every mode, gradients, dtypes, memory formats, odd values, errors."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from tests.python.layouts import arrange
from tests.python.twin import ASYNCHRONOUS, DEVICE, check, check_error, twin

aten = torch.ops.aten
TOLERANCE = {
    torch.float64: dict(rtol=1e-11, atol=1e-11),
    torch.float32: dict(rtol=1e-5, atol=1e-5),
    torch.bfloat16: dict(rtol=2e-2, atol=2e-2),
    torch.float16: dict(rtol=4e-3, atol=4e-3),
    torch.uint8: dict(rtol=0, atol=0),
}
MODES = {  # mode: dimensions it exists in
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
    "trilinear": (3,),
    "bicubic": (2,),
}
ALIGNS = ("linear", "bilinear", "trilinear", "bicubic")
SIZES = {  # input and output sizes along each dimension: growing, shrinking, mixed, to and from one element, unchanged
    1: [((7,), (15,)), ((16,), (5,)), ((1,), (4,)), ((6,), (1,)), ((5,), (5,)), ((8,), (16,))],
    2: [
        ((5, 7), (10, 14)),
        ((9, 8), (4, 3)),
        ((4, 9), (7, 5)),
        ((1, 3), (5, 1)),
        ((6, 5), (6, 11)),
        ((40, 50), (90, 70)),
    ],
    3: [((3, 4, 5), (6, 8, 10)), ((5, 6, 4), (2, 7, 3)), ((2, 1, 3), (1, 4, 3))],
}
CASES = [(mode, sizes) for mode, dims in MODES.items() for d in dims for sizes in SIZES[d]]


def image(shape, dtype, grad=True):
    torch.manual_seed(len(shape))
    if dtype == torch.uint8:
        return torch.randint(0, 256, shape, dtype=dtype)
    return torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_(grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("mode,sizes", CASES)
def test_modes(mode, sizes, dtype):
    before, after = sizes
    x = image((2, 3, *before), dtype)
    for align in (False, True) if mode in ALIGNS else (None,):
        check(lambda x, align=align: F.interpolate(x, after, mode=mode, align_corners=align), x, **TOLERANCE[dtype])


@pytest.mark.parametrize("mode,dims", [(m, d) for m, ds in MODES.items() for d in ds])
def test_scale_factors(mode, dims):
    x = image((2, 2, 5, 6, 7)[: dims + 2], torch.float32)
    for factor in (2, 1.7, 0.6):
        for recompute in (False, True):
            check(
                lambda x, f=factor, r=recompute: F.interpolate(x, scale_factor=f, mode=mode, recompute_scale_factor=r),
                x,
                **TOLERANCE[torch.float32],
            )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mode,dims", [(m, d) for m, ds in MODES.items() for d in ds])
def test_16_bit(mode, dims, dtype):
    x = image((2, 3, 4, 5, 6)[: dims + 2], dtype)
    check(
        lambda x: F.interpolate(x, scale_factor=2, mode=mode),
        x,
        wide=mode not in ("nearest", "nearest-exact"),
        **TOLERANCE[dtype],
    )


@pytest.mark.parametrize("layout", ["channels_last", "transposed", "sliced", "expanded"])
@pytest.mark.parametrize("channels", [3, 20])
@pytest.mark.parametrize("mode,dims", [(m, d) for m, ds in MODES.items() for d in ds])
def test_layouts(mode, dims, channels, layout):
    x = arrange(image((2, channels, 4, 5, 6)[: dims + 2], torch.float32, grad=False), layout).requires_grad_()
    size = (5, 9, 4)[:dims]
    check(lambda x: F.interpolate(x, size, mode=mode), x, **TOLERANCE[torch.float32])


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("sizes", SIZES[2])
def test_antialias(mode, sizes):
    before, after = sizes
    for dtype in (torch.float32, torch.float64):
        x = image((2, 3, *before), dtype)
        for align in (False, True):
            check(
                lambda x, align=align: F.interpolate(x, after, mode=mode, align_corners=align, antialias=True),
                x,
                **TOLERANCE[dtype],
            )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32, torch.uint8, torch.bool])
def test_antialias_to_the_same_size_copies(mode, dtype):
    """Any dtype does, as nothing is resampled."""
    x = (torch.randn(2, 3, 5, 7) * 5).abs().to(dtype)
    for layout in ("contiguous", "channels_last", "sliced"):
        check(lambda x: F.interpolate(x, (5, 7), mode=mode, antialias=True), arrange(x, layout))
    if dtype != torch.uint8:
        check_error(lambda x: F.interpolate(x[..., 1:], (5, 7), mode=mode, antialias=True), x)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("channels", [1, 3, 4, 6])
def test_bytes(mode, channels, antialias):
    for (before, after), layout in itertools.product(SIZES[2], ("contiguous", "channels_last", "sliced")):
        x = arrange(image((2, channels, *before), torch.uint8), layout)
        for align in (False, True):
            check(lambda x, a=align, s=after: F.interpolate(x, s, mode=mode, align_corners=a, antialias=antialias), x)


def test_nearest_bytes():
    for mode in ("nearest", "nearest-exact"):
        check(lambda x, m=mode: F.interpolate(x, (7, 11), mode=m), image((2, 3, 5, 4), torch.uint8))


@pytest.mark.parametrize("exact", [False, True])
def test_nearest_takes_the_same_pixels(exact):
    op1 = aten._upsample_nearest_exact1d if exact else aten.upsample_nearest1d
    op2 = aten._upsample_nearest_exact2d if exact else aten.upsample_nearest2d
    for before, after in itertools.product(range(1, 40, 3), range(1, 40)):
        x = torch.arange(float(before)).view(1, 1, before)
        assert torch.equal(op1(twin(x), [after]).cpu(), op1(x, [after])), (before, after)
        x = x[:, :, None].expand(1, 1, 2, before)
        assert torch.equal(op2(x.to(DEVICE), [3, after]).cpu(), op2(x, [3, after])), (before, after)


@pytest.mark.skipif(not hasattr(aten, "_upsample_lanczos2d_aa"), reason="this PyTorch has no Lanczos filter")
def test_lanczos():
    x = image((2, 3, 12, 15), torch.float32)
    check(lambda x: aten._upsample_lanczos2d_aa(x, [5, 20], False), x.detach(), **TOLERANCE[torch.float32])
    check(
        lambda g: aten._upsample_lanczos2d_aa_backward(g, [5, 20], [2, 3, 12, 15], False),
        image((2, 3, 5, 20), torch.float32, grad=False),
        **TOLERANCE[torch.float32],
    )


def test_infinities_stay_local():
    x = torch.zeros(1, 1, 6, 6)
    x[0, 0, 2, 3] = float("inf")
    x[0, 0, 4, 1] = float("nan")
    for mode in ("nearest", "bilinear", "bicubic"):
        check(lambda x, m=mode: F.interpolate(x, (11, 8), mode=m), x, **TOLERANCE[torch.float32])


def test_out_and_errors():
    x = image((2, 3, 5, 5), torch.float32, grad=False)
    out = torch.empty(2, 7, 8, 3).permute(0, 3, 1, 2)
    check(
        lambda x, o: aten.upsample_bilinear2d.out(x, [7, 8], False, None, None, out=o),
        x,
        out,
        **TOLERANCE[torch.float32],
    )
    check_error(lambda x: aten.upsample_bilinear2d(x, [0, 8], False), x)
    check_error(lambda x: aten.upsample_bilinear2d(x, [8], False), x)
    check_error(lambda x: aten.upsample_nearest2d(x.long(), [8, 8]), x)
    check_error(lambda x: aten._upsample_bilinear2d_aa(x.half(), [8, 8], False), x)
    check_error(lambda x: aten.upsample_bilinear2d_backward(x, [7, 8], [2, 3, 4, 4], False), x)
    check(lambda x: F.interpolate(x, (7, 8), mode="bilinear"), torch.empty(0, 3, 5, 5))


GRID_MODES = list(
    itertools.product(["bilinear", "nearest", "bicubic"], ["zeros", "border", "reflection"], [False, True])
)


def grid(n, out, dims, dtype=torch.float32):
    torch.manual_seed(dims)
    return (torch.rand(n, *out, dims, dtype=torch.float64) * 3 - 1.5).to(dtype)


@pytest.mark.parametrize("mode,padding,align", GRID_MODES)
@pytest.mark.parametrize("dims", [2, 3])
def test_grid_sample(mode, padding, align, dims):
    if dims == 3 and mode == "bicubic":  # native has no tricubic sampling
        check_error(
            lambda x, g: F.grid_sample(x, g, mode, padding, align), torch.ones(1, 1, 2, 2, 2), torch.ones(1, 1, 1, 1, 3)
        )
        return
    for dtype in (torch.float32, torch.float64):
        x = image((2, 5, 4, 6, 7)[: dims + 2], dtype)
        points = grid(2, (9, 11, 3)[:dims], dims, dtype).requires_grad_()
        check(lambda x, g: F.grid_sample(x, g, mode, padding, align), x, points, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_grid_sample_16_bit(dtype):
    x, points = image((2, 3, 5, 6), dtype), grid(2, (4, 5), 2, dtype).requires_grad_()
    check(lambda x, g: F.grid_sample(x, g, align_corners=False), x, points, wide=True, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("layout", ["channels_last", "transposed", "sliced", "expanded"])
def test_grid_sample_layouts(layout):
    x = arrange(image((2, 5, 6, 7), torch.float32, grad=False), layout).requires_grad_()
    points = grid(2, (3, 4), 2).permute(0, 2, 1, 3).requires_grad_()
    check(lambda x, g: F.grid_sample(x, g, align_corners=False), x, points, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dims", [2, 3])
def test_grid_sample_where_order_matters(dims):
    """The image's gradient is summed in any order on a GPU, which native says likewise; that of the grid is not."""
    x = image((1, 2) + (4,) * dims, torch.float32).detach().to(DEVICE)
    points = grid(1, (2,) * dims, dims).detach().to(DEVICE)
    torch.use_deterministic_algorithms(True)
    try:
        F.grid_sample(x, points.requires_grad_(), align_corners=False).sum().backward()
        loss = F.grid_sample(x.requires_grad_(), points, align_corners=False).sum()
        if ASYNCHRONOUS:
            with pytest.raises(
                RuntimeError, match=f"^grid_sampler_{dims}d_backward_cuda does not have a deterministic"
            ):
                loss.backward()
        else:
            loss.backward()
    finally:
        torch.use_deterministic_algorithms(False)


def test_grid_sample_on_pixels_and_beyond():
    x = image((1, 2, 5, 5), torch.float32, grad=False)
    special = [0.0, 1.0, -1.0, 0.5, -0.6, 3.0, -7.5, 1e10, float("inf"), float("nan")]
    points = torch.tensor(list(itertools.product(special, [0.0, 1.0, -0.2]))).view(1, -1, 1, 2)
    for mode, padding, align in GRID_MODES:
        if padding == "zeros" or mode == "nearest":
            check(
                lambda x, g, m=mode, p=padding, a=align: F.grid_sample(x, g, m, p, a), x, points, rtol=1e-4, atol=1e-4
            )


def test_affine_grid_and_errors():
    theta = torch.tensor([[[0.8, 0.2, 0.1], [-0.1, 1.1, 0.0]]]).expand(2, 2, 3).clone().requires_grad_()
    x = image((2, 3, 8, 8), torch.float32)
    check(
        lambda t, x: F.grid_sample(x, F.affine_grid(t, [2, 3, 6, 6], align_corners=False), align_corners=False),
        theta,
        x,
        rtol=1e-4,
        atol=1e-4,
    )
    check_error(lambda x, g: F.grid_sample(x, g, align_corners=False), x.detach(), torch.zeros(1, 2, 2, 2))
    check_error(lambda x, g: F.grid_sample(x, g, align_corners=False), x.detach(), torch.zeros(2, 2, 2, 3))
    check_error(lambda x, g: F.grid_sample(x, g, align_corners=False), x.detach(), torch.zeros(2, 2, 2, 2).double())
    check_error(lambda x, g: aten.grid_sampler_2d(x, g, 0, 0, False), x.detach().int(), torch.zeros(2, 2, 2, 2).int())
