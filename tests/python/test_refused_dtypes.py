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


def places(device):
    return torch.tensor([0, 3], device=device).view(1, 1, 1, 2).expand(1, 2, 1, 2).contiguous()


UNPOOLS = {
    "1": lambda d, t: F.max_unpool1d(ones(d, t, 1, 2, 2), places(d)[:, :, 0], 2),
    "2": lambda d, t: F.max_unpool2d(ones(d, t, 1, 2, 1, 2), places(d), 2),
    "2_last": lambda d, t: F.max_unpool2d(last(ones(d, t, 1, 2, 1, 2)), last(places(d)), 2),
    "2_of_nothing": lambda d, t: F.max_unpool2d(ones(d, t, 0, 2, 1, 2), places(d)[:0], 2),
    "2_last_of_nothing": lambda d, t: F.max_unpool2d(last(ones(d, t, 0, 2, 1, 2)), last(places(d)[:0]), 2),
    "3": lambda d, t: F.max_unpool3d(ones(d, t, 1, 2, 1, 1, 2), places(d).unsqueeze(2), 2),
    "3_of_nothing": lambda d, t: F.max_unpool3d(ones(d, t, 0, 2, 1, 1, 2), places(d).unsqueeze(2)[:0], 2),
}


@pytest.mark.parametrize("name", UNPOOLS)
def test_unpools(name):
    compare((dtype, lambda d, t=dtype: UNPOOLS[name](d, t)) for dtype in DTYPES)


@pytest.mark.parametrize("options", [{}, {"dilation": 2}, {"stride": 2}, {"padding": 1}, {"groups": 2}], ids=str)
@pytest.mark.parametrize("kernel", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions(dims, transposed, kernel, options):
    f = getattr(F, f"conv_transpose{dims}d" if transposed else f"conv{dims}d")

    def call(device, dtype):
        weight = ones(device, dtype, 4, 4 // options.get("groups", 1), *([kernel] * dims))
        return f(ones(device, dtype, 1, 4, *([5] * dims)), weight, ones(device, dtype, 4), **options)

    compare((dtype, lambda d, t=dtype: call(d, t)) for dtype in DTYPES)


BINARY = {
    "isin": torch.isin,
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
    def kept(a, b):  # native's ldexp of float8 is refused inside another operator
        return name != "ldexp" or a not in (torch.float8_e4m3fn, torch.float8_e5m2)

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
    "rrelu": lambda d, t: F.rrelu(ones(d, t, 3)),
    "rrelu_training": lambda d, t: F.rrelu(ones(d, t, 3), training=True),
    "alpha_dropout": lambda d, t: F.alpha_dropout(ones(d, t, 3), training=True),
    "isin_many": lambda d, t: torch.isin(ones(d, t, 3), ones(d, t, 200)),
    "isin_of_unique": lambda d, t: torch.isin(ones(d, t, 3), ones(d, t, 200), assume_unique=True),
    "isin_of_nothing": lambda d, t: torch.isin(ones(d, t, 0), ones(d, t, 3)),
    "isin_nothing": lambda d, t: torch.isin(ones(d, t, 3), ones(d, t, 0)),
    "isin_number": lambda d, t: torch.isin(ones(d, t, 3), 1),
    "isin_of_number": lambda d, t: torch.isin(1, ones(d, t, 3)),
    "lu_unpack": lambda d, t: torch.lu_unpack(ones(d, t, 2, 2), rows(d)[0].int() + 1),
    "lu_unpack_tall": lambda d, t: torch.lu_unpack(ones(d, t, 3, 2), rows(d)[0].int() + 1),
    "lu_unpack_wide": lambda d, t: torch.lu_unpack(ones(d, t, 2, 3), rows(d)[0].int() + 1),
    "lu_unpack_pivots": lambda d, t: torch.lu_unpack(ones(d, t, 2, 2), rows(d)[0].int() + 1, unpack_data=False),
    "lu_unpack_of_nothing": lambda d, t: torch.lu_unpack(ones(d, t, 0, 2, 2), rows(d)[0].int().expand(0, 2) + 1),
    "unique": lambda d, t: torch.unique(ones(d, t, 3, 2), return_inverse=True),
    "unique_rows": lambda d, t: torch.unique(ones(d, t, 3, 2), dim=0),
    "unique_rows_of_nothing": lambda d, t: torch.unique(ones(d, t, 0, 2), dim=0),
    "unique_empty_rows": lambda d, t: torch.unique(ones(d, t, 0, 2), dim=1),
    "unique_consecutive_rows": lambda d, t: torch.unique_consecutive(ones(d, t, 3, 2), dim=0),
    "unique_consecutive_empty_rows": lambda d, t: torch.unique_consecutive(ones(d, t, 0, 2), dim=1),
    "embedding_max_norm": lambda d, t: F.embedding(rows(d)[0], ones(d, t, 3, 2), max_norm=1.0),
    "embedding_max_norm_of_nothing": lambda d, t: F.embedding(rows(d)[0][:0], ones(d, t, 3, 2), max_norm=1.0),
    **{
        f"{f}_{way}": lambda d, t, f=f, o=options: getattr(torch, f)(ones(d, torch.float32, 3, 2), 0, **o(d, t))
        for f in ("sum", "prod", "mean", "nansum", "std", "var")
        for way, options in (("out", lambda d, t: {"out": ones(d, t, 2)}), ("dtype", lambda d, t: {"dtype": t}))
        if way == "out" or f not in ("std", "var")
    },
    "sum_of_integers": lambda d, t: torch.sum(ones(d, torch.int64, 3), dtype=t),
    "nansum_of_integers": lambda d, t: torch.nansum(ones(d, torch.int64, 3), dtype=t),
    "sort": lambda d, t: ones(d, t, 3).sort(),
    "sort_0d": lambda d, t: ones(d, t).sort(),
    "topk_0d": lambda d, t: ones(d, t).topk(1),
    "topk_none": lambda d, t: ones(d, t, 3).topk(0),
    "mode_0d": lambda d, t: ones(d, t).mode(),
    "tril_of_nothing": lambda d, t: ones(d, t, 0, 2).tril(),
    "triu": lambda d, t: ones(d, t, 2, 2).triu(),
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


def index(device, count):
    return torch.arange(count, device=device)


# Of a tensor x, indices i and as many values v. What is done along one dimension has no more than x, i and v to see.
INDEXED = {
    "take": lambda x, i, v: x.take(i),
    "put": lambda x, i, v: x.put(i, v),
    "put_accumulate": lambda x, i, v: x.put(i, v, accumulate=True),
    "scatter": lambda x, i, v: x.scatter(0, i, v),
    "scatter_number": lambda x, i, v: x.scatter(0, i, 1),
    "scatter_number_add": lambda x, i, v: x.scatter(0, i, 2, reduce="add"),
    "scatter_multiply": lambda x, i, v: x.scatter(0, i, v, reduce="multiply"),
    "scatter_add": lambda x, i, v: x.scatter_add(0, i, v),
    **{
        f"scatter_{r}": lambda x, i, v, r=r: x.scatter_reduce(0, i, v, r)
        for r in ("sum", "prod", "mean", "amax", "amin")
    },
    **{f"reduce_{r}": lambda x, i, v, r=r: x.index_reduce(0, i, v, r) for r in ("prod", "mean", "amax", "amin")},
    "gather": lambda x, i, v: x.repeat(2, 1).gather(1, i.expand(2, -1)),
    "index_add": lambda x, i, v: x.index_add(0, i, v),
    "index_add_alpha": lambda x, i, v: x.index_add(0, i, v, alpha=2),
    "index_copy": lambda x, i, v: x.index_copy(0, i, v),
    "index_fill": lambda x, i, v: x.index_fill(0, i, 1),
    "index_select": lambda x, i, v: x.index_select(0, i),
    "index_put": lambda x, i, v: x.index_put((i,), v),
    "index_put_accumulate": lambda x, i, v: x.index_put((i,), v, accumulate=True),
    "masked_select": lambda x, i, v: x.masked_select(torch.ones(x.shape, dtype=torch.bool, device=x.device)),
    "masked_select_none": lambda x, i, v: x.masked_select(torch.zeros(x.shape, dtype=torch.bool, device=x.device)),
    "bincount": lambda x, i, v: x.bincount(),
}
# The same with rows.
INDEXED_ROWS = {
    **{name: f for name, f in INDEXED.items() if name.startswith(("reduce", "index"))},
    **{
        f"reduce_{r}_without_self": lambda x, i, v, r=r: x.index_reduce(0, i, v, r, include_self=False)
        for r in ("prod", "mean", "amax", "amin")
    },
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size, count", [(3, 2), (3, 0), (0, 0)])
@pytest.mark.parametrize("name", INDEXED)
def test_indexing(name, size, count):
    def call(device, dtype):
        return INDEXED[name](ones(device, dtype, size), index(device, count), ones(device, dtype, count))

    compare((dtype, lambda d, t=dtype: call(d, t)) for dtype in kept_of(name, count))


def kept_of(name, count):
    # Native masks the counts of no addends in an operator of its own.
    skipped = (
        {"scatter_mean": [torch.uint16, torch.uint32, torch.float8_e4m3fn, torch.float8_e5m2]} if count == 0 else {}
    )
    return [dtype for dtype in DTYPES if dtype not in skipped.get(name, [])]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sizes, count", [((3, 2), 2), ((3, 2), 0), ((3, 0), 2)])
@pytest.mark.parametrize("name", INDEXED_ROWS)
def test_indexing_rows(name, sizes, count):
    def call(device, dtype):
        values = ones(device, dtype, count, sizes[1])
        return INDEXED_ROWS[name](ones(device, dtype, *sizes), index(device, count), values)

    compare((dtype, lambda d, t=dtype: call(d, t)) for dtype in DTYPES)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reduce", ["prod", "mean"])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex32, torch.uint16, torch.float8_e4m3fn], ids=str)
def test_index_reduce_of_rows_in_rare_dtypes(dtype, reduce):
    x, values = (
        torch.tensor([[1.5, 2], [3, 1], [0.5, 4]]).to(dtype),
        torch.tensor([[2.0, 3], [1.25, 2], [3, 5]]).to(dtype),
    )
    places = torch.tensor([2, 0, 2])
    outcomes = []
    for device in ("cpu", "minitorch"):
        try:
            result = x.to(device).index_reduce(0, places.to(device), values.to(device), reduce)
            outcomes.append(result.cpu().to(torch.complex128).tolist())
        except NotImplementedError as error:
            outcomes.append(str(error).splitlines()[0])
    assert outcomes[0] == outcomes[1]
    with pytest.raises(IndexError, match="index out of range in self"):
        x.to("minitorch").index_reduce(0, torch.tensor([3], device="minitorch"), values[:1].to("minitorch"), "prod")


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
