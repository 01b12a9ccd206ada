"""Dtypes and numbers that native CPU refuses to an operator, by every way through it: the same dtypes are refused, with the
same first line."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from tests.python.twin import ASYNCHRONOUS

pytestmark = pytest.mark.skipif(ASYNCHRONOUS, reason="the CPU's refusals")

DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.complex32),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    *(torch.uint16, torch.uint32, torch.float8_e4m3fn, torch.float8_e5m2),
)
SPECIAL = [
    *("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "digamma", "entr", "erf", "erfc", "erfcx"),
    *("erfinv", "exp2", "expit", "expm1", "gammaln", "i0", "i0e", "i1", "i1e", "log1p", "log_ndtr", "logit", "ndtr"),
    *("ndtri", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "round", "sinc"),
    *("scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "spherical_bessel_j0"),
]
SPECIAL_OF_TWO = [
    *("gammainc", "gammaincc", "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l"),
    *("legendre_polynomial_p", "xlog1py", "xlogy", "zeta"),
    *(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
]


def outcome(f):
    """The result's dtype and shape, or the exception's type and first line."""
    try:
        result = f()
    except Exception as e:
        return type(e).__name__, str(e).splitlines()[0]
    result = result[0] if isinstance(result, tuple) else result
    return result.dtype, result.shape


def compare(cases):
    wrong = []
    for name, f in cases:
        native, ours = outcome(lambda f=f: f("cpu")), outcome(lambda f=f: f("minitorch"))
        if native != ours:
            wrong.append((name, native, ours))
    assert not wrong, "\n".join(map(str, wrong))


def ones(device, dtype, *sizes):
    return torch.ones(sizes).to(dtype).to(device)


def last(x):
    return x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)


POOLS = {
    "max1": lambda x: F.max_pool1d(x[0, 0], 2),
    "max2": lambda x: F.max_pool2d(x[0], 2),
    "max2_last": lambda x: F.max_pool2d(last(x[0]), 2),
    "max3": lambda x: F.max_pool3d(x, 2),
    "avg1": lambda x: F.avg_pool1d(x[0, 0], 2),
    "avg2": lambda x: F.avg_pool2d(x[0], 2),
    "avg2_last": lambda x: F.avg_pool2d(last(x[0]), 2),
    "avg3": lambda x: F.avg_pool3d(x, 2),
    "avg3_last": lambda x: F.avg_pool3d(last(x), 2),
    "adaptive_avg2_last": lambda x: F.adaptive_avg_pool2d(last(x[0]), 2),
    "adaptive_avg3": lambda x: F.adaptive_avg_pool3d(x, 2),
    "adaptive_max2_last": lambda x: F.adaptive_max_pool2d(last(x[0]), 2),
    "adaptive_max3": lambda x: F.adaptive_max_pool3d(x, 2),
    "reflect1": lambda x: F.pad(x[0, 0], (1, 1), mode="reflect"),
    "reflect2": lambda x: F.pad(x[0], (1, 1, 1, 1), mode="reflect"),
    "reflect2_last": lambda x: F.pad(last(x[0]), (1, 1, 1, 1), mode="reflect"),
    "reflect3": lambda x: F.pad(x, (1,) * 6, mode="reflect"),
    "replicate1": lambda x: F.pad(x[0, 0], (1, 1), mode="replicate"),
    "replicate2": lambda x: F.pad(x[0], (1, 1, 1, 1), mode="replicate"),
    "replicate2_last": lambda x: F.pad(last(x[0]), (1, 1, 1, 1), mode="replicate"),
    "replicate3": lambda x: F.pad(x, (1,) * 6, mode="replicate"),
    "circular": lambda x: F.pad(x[0], (1, 1, 1, 1), mode="circular"),
    "nearest3_last": lambda x: F.interpolate(last(x), scale_factor=2),
    "nearest3_last_of_4": lambda x: F.interpolate(last(x.expand(2, 4, 6, 6, 6)), scale_factor=2),
    "trilinear_last": lambda x: F.interpolate(last(x), scale_factor=2, mode="trilinear"),
    "unfold": lambda x: F.unfold(x[0], 2),
    "fold": lambda x: F.fold(x[0, :, :4, :1, 0], 2, 2),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x[0, :, :4], 2),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools_and_pads(name):
    compare((dtype, lambda d, t=dtype: POOLS[name](ones(d, t, 2, 2, 6, 6, 6))) for dtype in DTYPES)


BINARY = {
    "ldexp": torch.ldexp,
    "zeta": torch.special.zeta,
    "lshift": lambda a, b: a << b,
    "rshift": lambda a, b: a >> b,
    "ilshift": lambda a, b: a.__ilshift__(b),
    "idiv": lambda a, b: a.div_(b),
    "searchsorted": torch.searchsorted,
}


@pytest.mark.parametrize("name", BINARY)
def test_pairs_of_dtypes(name):
    def kept(a, b):  # native's ldexp of float8 and of complex with half is refused inside another operator
        rare = (torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.complex128)
        return name != "ldexp" or a not in rare

    compare(
        ((a, b), lambda d, a=a, b=b: BINARY[name](ones(d, a, 2), ones(d, b, 2)))
        for a, b in itertools.product(DTYPES, DTYPES)
        if kept(a, b)
    )


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions(name):
    f = getattr(torch.special, name)
    compare(
        ((dtype, sizes), lambda d, t=dtype, s=sizes: f(ones(d, t, *s)))
        for dtype, sizes in itertools.product(DTYPES, [(), (0,), (2,)])
    )
    compare(
        ((dtype, out), lambda d, t=dtype, o=out: f(ones(d, t, 2), out=ones(d, o, 2)))
        for dtype, out in itertools.product(DTYPES, DTYPES)
    )


@pytest.mark.parametrize("name", SPECIAL_OF_TWO)
def test_special_functions_of_two(name):
    f = getattr(torch.special, name)
    compare(((a, b), lambda d, a=a, b=b: f(ones(d, a, 2), ones(d, b, 2))) for a, b in itertools.product(DTYPES, DTYPES))
    for number in (1, 1.5):
        compare((dtype, lambda d, t=dtype, n=number: f(ones(d, t, 2), n)) for dtype in DTYPES)
        compare((dtype, lambda d, t=dtype, n=number: f(n, ones(d, t, 2))) for dtype in DTYPES)


def rows(device):
    return (torch.tensor([0, 1], device=device),)


BY_DTYPE = {
    "lshift_number": lambda d, t: ones(d, t, 2) << 1,
    "rshift_number": lambda d, t: ones(d, t, 2) >> 1,
    "kthvalue": lambda d, t: ones(d, t, 3).kthvalue(1),
    "kthvalue_0d": lambda d, t: ones(d, t).kthvalue(1),
    "kthvalue_empty": lambda d, t: ones(d, t, 0, 3).kthvalue(1),
    "bucketize": lambda d, t: torch.bucketize(ones(d, t, 3), ones(d, t, 3)),
    "searchsorted_number": lambda d, t: torch.searchsorted(ones(d, t, 3), 1),
    "accumulate_shape": lambda d, t: ones(d, t, 3, 2).index_put_(rows(d), ones(d, t, 5, 7), accumulate=True),
    "accumulate_shape_and_dtype": lambda d, t: ones(d, t, 3, 2).index_put_(
        rows(d), ones(d, torch.int8, 5, 7), accumulate=True
    ),
    "put_shape": lambda d, t: ones(d, t, 3, 2).index_put_(rows(d), ones(d, t, 5, 7)),
    "put_by_mask": lambda d, t: ones(d, t, 3).index_put_((ones(d, torch.bool, 3),), ones(d, t)),
    "lerp_tensor": lambda d, t: torch.lerp(ones(d, t, 2), ones(d, t, 2), ones(d, t, 2)),
    "lerp_number": lambda d, t: torch.lerp(ones(d, t, 2), ones(d, t, 2), 0.5),
    "clamp_tensor": lambda d, t: torch.clamp(ones(d, t, 2), ones(d, t, 2)),
    "clamp_max_tensor": lambda d, t: torch.clamp(ones(d, t, 2), None, ones(d, t, 2)),
    "clamp_tensors": lambda d, t: torch.clamp(ones(d, t, 2), ones(d, t, 2), ones(d, t, 2)),
    "cumsum_": lambda d, t: ones(d, t, 2).cumsum_(0),
    "cumprod_": lambda d, t: ones(d, t, 2).cumprod_(0),
    "div_floor": lambda d, t: torch.div(ones(d, t, 2), ones(d, t, 2), rounding_mode="floor"),
    "histogram": lambda d, t: torch.histogram(ones(d, t, 3), 3),
    "histogram_of_nothing": lambda d, t: torch.histogram(ones(d, t, 0), 3),
    "histogram_range": lambda d, t: torch.histogram(ones(d, t, 3), 3, range=(0.0, 1.0)),
    "histogram_density": lambda d, t: torch.histogram(ones(d, t, 3), 3, weight=ones(d, t, 3), density=True),
    "histogram_edges": lambda d, t: torch.histogram(ones(d, t, 3), ones(d, t, 3)),
    "histogramdd": lambda d, t: torch.histogramdd(ones(d, t, 3, 2), [3, 3]),
    "histogramdd_range": lambda d, t: torch.histogramdd(ones(d, t, 3, 2), [3, 3], range=(0.0, 1.0, 0.0, 1.0)),
    "histogramdd_edges": lambda d, t: torch.histogramdd(ones(d, t, 3, 2), [ones(d, t, 3)] * 2),
    "histc": lambda d, t: torch.histc(ones(d, t, 3), 3),
    "histc_range": lambda d, t: torch.histc(ones(d, t, 3), 3, 0, 2),
    "logical_not_out": lambda d, t: torch.logical_not(ones(d, torch.float32, 2), out=ones(d, t, 2)),
    "nan_to_num_out": lambda d, t: torch.nan_to_num(ones(d, torch.float32, 2), out=ones(d, t, 2)),
    "sparse_mask": lambda d, t: ones(d, t).sparse_mask(ones("cpu", t).to_sparse().to(d)).to_dense(),
}


@pytest.mark.parametrize("name", BY_DTYPE)
def test_by_dtype(name):
    compare((dtype, lambda d, t=dtype: BY_DTYPE[name](d, t)) for dtype in DTYPES)


BOUNDS = (
    *((-(2.0**70), 2.0**70, 2.0**68), (1e30, 1e30), (2**63, 2**63 + 3), (0, 2**64 - 1, 2**63), (0, 3e38, 1e38)),
    *((0, 1e300, 1e299), (1e40, 1e41, 1e40), (0, 3, math.inf), (0, math.inf), (-math.inf, 0), (0, math.nan)),
    *((0, 5, 1e-30), (0, 3j), (5, 0, 1), (0, 5, 0), (0, 300, 100)),
)


@pytest.mark.parametrize("name", ["arange", "range"])
def test_bounds(name):
    def cases():
        for dtype, bounds in itertools.product(DTYPES, BOUNDS):
            if name == "range" and bounds == (0, 5, 1e-30):  # native divides by zero, and dies
                continue
            yield (dtype, bounds), lambda d, t=dtype, b=bounds: getattr(torch, name)(*b, dtype=t, device=d)

    compare(cases())


def test_a_step_that_rounds_to_zero():
    with pytest.raises(ValueError, match="step must be nonzero"):
        torch.range(0, 5, 1e-30, dtype=torch.int64, device="minitorch")
