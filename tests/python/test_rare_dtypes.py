"""Dtypes that native has few operators for: those that it has, and its words for the rest."""

import pytest
import torch

from tests.python.twin import ASYNCHRONOUS, DEVICE, assert_same_error, error_of

OPAQUE = [
    *(torch.bits8, torch.bits16, torch.bits1x8, torch.bits2x4, torch.bits4x2),
    *(torch.int1, torch.int4, torch.uint1, torch.uint4, torch.float4_e2m1fn_x2),
]
RARE = [
    *(torch.uint16, torch.uint32, torch.uint64, torch.complex32, torch.bool, torch.complex64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu),
]


def bits(tensor):
    tensor = tensor.cpu()
    return tensor.view(torch.int16 if tensor.element_size() == 2 else torch.uint8)


def opaque(dtype):
    numbers = torch.arange(12).view(3, 4)
    return numbers.to(torch.int16 if dtype == torch.bits16 else torch.uint8).view(dtype)


@pytest.mark.parametrize("dtype", OPAQUE, ids=str)
def test_zeros_of_bits(dtype):
    assert bits(torch.zeros(3, dtype=dtype, device=DEVICE)).tolist() == [0, 0, 0]
    x = opaque(dtype).to(DEVICE)
    x[1:].zero_()
    assert bits(x).tolist() == [[0, 1, 2, 3], [0] * 4, [0] * 4]
    x.t()[1].zero_()
    assert bits(x)[0].tolist() == [0, 0, 2, 3]


@pytest.mark.parametrize("dtype", OPAQUE, ids=str)
def test_rows_of_bits(dtype):
    x, index = opaque(dtype), torch.tensor([2, 0, 2])
    for dim in (0, 1):
        ours = x.to(DEVICE).index_select(dim, index.to(DEVICE))
        assert ours.dtype == dtype and torch.equal(bits(ours), bits(x.index_select(dim, index)))
    errors = [error_of(lambda d=d: x.to(d).index_select(0, index.to(d) + 1)) for d in ("cpu", DEVICE)]
    assert_same_error(errors[1], errors[0])


REFUSED = {
    "tril_indices": lambda x: torch.tril_indices(3, 4, dtype=x.dtype, device=x.device),
    "triu_indices": lambda x: torch.triu_indices(3, 4, dtype=x.dtype, device=x.device),
    "median": torch.median,
    "median of rows": lambda x: torch.median(x, 1),
    "nanmedian of rows": lambda x: torch.nanmedian(x, 1, keepdim=True),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", RARE, ids=str)
@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name, dtype):
    x = torch.ones(3, 4).to(dtype)
    assert_same_error(error_of(REFUSED[name], x.to(DEVICE)), error_of(REFUSED[name], x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.complex32, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize("size", [0, 3])
def test_unique(size, dtype):
    x = torch.ones(size).to(dtype)
    assert_same_error(error_of(torch.unique, x.to(DEVICE)), error_of(torch.unique, x))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64], ids=str)
@pytest.mark.parametrize(
    "source", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64], ids=str
)
def test_negative_numbers_wrap_to_unsigned_integers(source, dtype):
    if ASYNCHRONOUS:
        pytest.skip("on a GPU they become zero")
    bounds = {torch.uint32: [-70000.0, 3e9, 4.2e9], torch.uint64: [-3e9, -9e18, 1e18, 1.8e19]}.get(dtype, [])
    numbers = torch.tensor([-2.5, -1.0, -0.5, -129.0, 0.0, 7.9, 200.0, *bounds], dtype=torch.float64)
    x = numbers[numbers.abs() < torch.finfo(source).max].to(source).repeat(40)
    for layout in (x, x[::3], x[:1].expand(70)):
        assert torch.equal(layout.to(DEVICE).to(dtype).cpu(), layout.to(dtype))


def vector(x, columns=None):
    """Indices of rows, the same ones for every column."""
    columns = columns or x.shape[1]
    return torch.tensor([2, 0, 2], device=x.device)[:, None].expand(3, columns)


# Operators that native refuses by one of several names.
WAYS = {
    "softmax of columns": lambda x: torch.softmax(x, 0),
    "softmax of rows": lambda x: torch.softmax(x, 1),
    "log_softmax of columns": lambda x: torch.log_softmax(x, 0),
    "log_softmax of rows": lambda x: torch.log_softmax(x, 1),
    "softmax backward": lambda x: torch._softmax_backward_data(x, x, 0, x.dtype),
    "log_softmax backward": lambda x: torch._log_softmax_backward_data(x, x, 0, x.dtype),
    "log_softmax backward of rows": lambda x: torch._log_softmax_backward_data(x, x, 1, x.dtype),
    "cross_entropy": lambda x: torch.nn.functional.cross_entropy(x, torch.zeros(3, dtype=torch.long, device=x.device)),
    "clamp from below": lambda x: torch.clamp(x, 0),
    "clamp from above": lambda x: torch.clamp(x, max=0),
    "clamp": lambda x: torch.clamp(x, 0, 1),
    "clamp by a tensor": lambda x: torch.clamp(x, min=x),
    "clamp by another": lambda x: torch.clamp(x, max=x),
    "divide": lambda x: torch.div(x, x),
    "divide by a number": lambda x: torch.div(x, 2),
    "divide and cut": lambda x: torch.div(x, x, rounding_mode="trunc"),
    "divide by a number and cut": lambda x: torch.div(x, 2, rounding_mode="trunc"),
    "divide and floor": lambda x: torch.div(x, x, rounding_mode="floor"),
    "floor_divide": lambda x: x // x,
    "times a number": lambda x: x * x[0, 0],
    "round": torch.round,
    "round to a decimal": lambda x: torch.round(x, decimals=1),
    **{f"polygamma {n}": lambda x, n=n: torch.polygamma(n, x) for n in range(3)},
    "bmm": lambda x: torch.bmm(x.unsqueeze(0), x.t().unsqueeze(0)),
    "large bmm": lambda x: torch.bmm(x.repeat(4, 4).unsqueeze(0), x.repeat(4, 4).t().unsqueeze(0)),
    "max": torch.max,
    "max of rows": lambda x: torch.max(x, 1),
    "max of a number": lambda x: torch.max(x[0, 0], 0),
    "min": torch.min,
    "min of rows": lambda x: torch.min(x, 1),
    "aminmax of a number": lambda x: torch.aminmax(x[0, 0], dim=0),
    "count_nonzero": torch.count_nonzero,
    "count_nonzero of rows": lambda x: torch.count_nonzero(x, 1),
    "std": torch.std,
    "std of rows": lambda x: torch.std(x, 1),
    "acos of nothing": lambda x: torch.acos(x[:0]),
    "logical_not of nothing": lambda x: torch.logical_not(x[:0]),
    "addr": lambda x: torch.addr(x, x[:, 0], x[0], beta=0.5),
    **{f"flip of {dims}": lambda x, dims=dims: x.flip(dims) for dims in ([], [0], [1], [0, 1])},
    "flip of columns": lambda x: x.t().flip(0),
    "flip of rows of columns": lambda x: x.t().flip(1),
    "flip of every other row": lambda x: x[::2].flip(0),
    "flip of every other element": lambda x: x[:, ::2].flip(0),
    "flip of one row": lambda x: x[:1].flip(1),
    "flip of one column": lambda x: x[:, :1].flip(0),
    "flip of nothing": lambda x: x[:0].flip([0, 1]),
    "gather by an expanded vector": lambda x: x.gather(0, vector(x, 4)),
    "gather rows by an expanded vector": lambda x: x.gather(1, vector(x, 4)),
    "gather in columns by an expanded vector": lambda x: x.t().gather(0, vector(x, 3)),
    "gather by a vector": lambda x: x[0].gather(0, vector(x, 1)[:, 0]),
    **{
        f"{name} of {columns} columns": lambda x, f=f, columns=columns: f(x.repeat(1, 4)[:, :columns].contiguous())
        for columns in (15, 16)
        for name, f in {
            "scatter_add": lambda x: x.scatter_add(0, vector(x), x),
            "scatter_reduce": lambda x: x.scatter_reduce(0, vector(x), x, "amax"),
            "scatter_reduce without self": lambda x: x.scatter_reduce(0, vector(x), x, "sum", include_self=False),
        }.items()
    },
    **{
        f"scatter_reduce {kind} of nothing": lambda x, kind=kind: x.scatter_reduce(0, vector(x)[:0], x, kind)
        for kind in ("sum", "mean", "amin")
    },
    "addr to a vector": lambda x: torch.addr(x, x[:, 0], x[0], out=x.new_zeros(3)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(ASYNCHRONOUS, reason="the names of native's kernels on the CPU")
@pytest.mark.parametrize("dtype", [*RARE, torch.int64, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz], ids=str)
@pytest.mark.parametrize("name", WAYS)
def test_names_of_ways(name, dtype):
    x = torch.ones(3, 4).to(dtype)
    native, ours = error_of(WAYS[name], x), error_of(WAYS[name], x.to(DEVICE))
    assert native is None or ours is not None, f"{native!r} expected"
    assert ours is None or native is not None, repr(ours)
    if native is not None:
        assert_same_error(ours, native)
