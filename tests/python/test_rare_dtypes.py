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
