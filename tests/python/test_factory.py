"""Making tensors, moving them in and out, printing them: as on native CPU."""

import numpy as np
import pytest
import torch
from twin import assert_same, check_error

DEVICE = "minitorch"
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 1e-2, torch.float16: 2e-3}
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def both(fn, **options):
    assert_same(fn(DEVICE), fn("cpu"), **options)


@pytest.mark.parametrize("dtype", FLOATS + INTS)
def test_arange(dtype):
    for args in [(10,), (2, 11), (0, 30, 3), (5, -5, -2), (0,), (3, 3)]:
        if dtype == torch.uint8 and min(args) < 0:
            continue
        both(lambda d: torch.arange(*args, dtype=dtype, device=d))
    if dtype.is_floating_point:
        both(lambda d: torch.arange(-1.5, 2.3, 0.1, dtype=dtype, device=d), exact=False)
    both(lambda d: torch.arange(0, 6, out=torch.empty(12, dtype=dtype, device=d)[::2]))


def test_arange_large_and_default_dtypes():
    both(lambda d: torch.arange(100_000, device=d))
    both(lambda d: torch.arange(2**53 - 5, 2**53 + 5, device=d))
    both(lambda d: (torch.arange(3.0, device=d), torch.arange(3, device=d), torch.arange(0, 1, 0.25, device=d)))
    both(lambda d: torch.arange(100_000, dtype=torch.float32, device=d))


@pytest.mark.parametrize("dtype", FLOATS + INTS + [torch.complex64])
def test_linspace(dtype):
    for start, end, steps in [(0, 10, 5), (3, 3, 4), (10, 1, 7), (0, 100, 33), (5, 9, 1), (0, 1, 0), (0, 7, 2)]:
        both(
            lambda d: torch.linspace(start, end, steps, dtype=dtype, device=d),
            exact=not (dtype.is_floating_point or dtype.is_complex),
        )
    if dtype.is_floating_point:
        both(lambda d: torch.linspace(-0.3, 0.7, 70_001, dtype=dtype, device=d), exact=False)
    if dtype.is_complex:
        both(lambda d: torch.linspace(1 + 2j, 3 - 1j, 6, dtype=dtype, device=d), exact=False)
    both(
        lambda d: torch.linspace(0, 1, 5, out=torch.empty(10, dtype=dtype, device=d)[::2]),
        exact=not dtype.is_floating_point,
    )


def test_linspace_between_tensors():
    both(lambda d: torch.linspace(torch.tensor(1.0, device=d), torch.tensor(2.0, device=d), 5, device=d), exact=False)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.int64, torch.complex64])
def test_logspace(dtype):
    for start, end, steps, base in [(0, 3, 4, 10.0), (0, 3, 7, 2.0), (2, 0, 3, 2.0), (1, 1, 1, 10.0), (0, 1, 0, 2.0)]:
        both(lambda d: torch.logspace(start, end, steps, base, dtype=dtype, device=d), exact=False)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("window", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
def test_windows(window, dtype):
    make = getattr(torch, f"{window}_window")
    for length in (0, 1, 2, 9):
        for periodic in (True, False):
            both(lambda d: make(length, periodic, dtype=dtype, device=d), exact=False, rtol=TOLERANCE[dtype], atol=1e-6)
    if window == "kaiser":
        for beta in (3.0, 0.0, -2.0):
            both(lambda d: make(9, True, beta, dtype=dtype, device=d), exact=False, rtol=TOLERANCE[dtype], atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64])
def test_constant_factories(dtype):
    both(
        lambda d: (
            torch.zeros(2, 3, dtype=dtype, device=d),
            torch.ones(2, 3, dtype=dtype, device=d),
            torch.full((2, 3), 1, dtype=dtype, device=d),
        )
    )
    both(
        lambda d: (
            torch.eye(3, dtype=dtype, device=d),
            torch.eye(3, 5, dtype=dtype, device=d),
            torch.eye(0, dtype=dtype, device=d),
        )
    )
    x = torch.ones(3, 4, dtype=dtype).t()
    both(
        lambda d: (
            torch.zeros_like(x.to(d)),
            torch.ones_like(x.to(d)),
            torch.full_like(x.to(d), 1),
            x.to(d).new_full((2,), 1),
            x.to(d).new_zeros(3),
            x.to(d).new_tensor([1, 0]),
        )
    )
    both(lambda d: torch.zeros(4, 3, dtype=dtype, device=d).fill_diagonal_(1))
    both(lambda d: torch.zeros(7, 3, dtype=dtype, device=d).fill_diagonal_(1, wrap=True))
    both(lambda d: torch.scalar_tensor(1, dtype=dtype, device=d))


def test_range():
    with pytest.warns(UserWarning):
        both(
            lambda d: (
                torch.range(0, 4, device=d),
                torch.range(1, 2, 0.25, device=d),
                torch.range(4, 0, -2, dtype=torch.int64, device=d),
            )
        )


def test_factory_errors():
    x = torch.zeros(1)
    for fn in (
        lambda x: torch.arange(0, 1, -1, device=x.device), lambda x: torch.arange(0, 1, 0, device=x.device),
        lambda x: torch.arange(float("inf"), device=x.device), lambda x: torch.linspace(0, 1, -1, device=x.device),
        lambda x: torch.logspace(0, 1, -1, device=x.device), lambda x: torch.eye(-1, device=x.device),
        lambda x: torch.range(0, 4, -1, device=x.device), lambda x: torch.zeros(-1, device=x.device),
        lambda x: torch.full((2,), 300, dtype=torch.uint8, device=x.device),
    ):  # fmt: skip
        check_error(fn, x)


def test_from_python_and_numpy():
    for data in ([1, 2], [[1.0, 2.0], [3.0, 4.0]], [True, False], 3, 2.5, [1j], [], [[]]):
        both(lambda d: torch.tensor(data, device=d))
        both(lambda d: torch.as_tensor(data, device=d))
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    both(lambda d: torch.from_numpy(array).to(d))
    both(lambda d: torch.tensor(array, device=d))
    assert np.array_equal(torch.from_numpy(array).to(DEVICE).cpu().numpy(), array)


def test_to_python():
    x = torch.tensor([[1.5, -2.0], [float("inf"), 0.0]], device=DEVICE)
    assert x.tolist() == [[1.5, -2.0], [float("inf"), 0.0]]
    assert x[0, 1].item() == -2.0 and float(x[0, 0]) == 1.5 and bool(x[0, 0]) and int(x[0, 0]) == 1
    assert torch.tensor(2**62 + 1, device=DEVICE).item() == 2**62 + 1
    assert torch.tensor(True, device=DEVICE).item() is True and torch.tensor(1 + 2j, device=DEVICE).item() == 1 + 2j
    assert list(range(5))[torch.tensor(3, device=DEVICE)] == 3
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        x.item()
    with pytest.raises(TypeError, match="convert minitorch:0 device type tensor to numpy"):
        x.numpy()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1.5, -2.25, 1e6]), torch.tensor([1e-9, 1.0]), torch.tensor([1, 200]), torch.tensor([True, False]),
        torch.tensor([1 + 2j, -1j]), torch.tensor(3.0), torch.empty(0), torch.empty(0, 3), torch.randn(3, 40),
        torch.arange(2000.0), torch.tensor([float("nan"), float("inf"), 1.0]), torch.randn(3, 2).bfloat16(),
        torch.tensor([1.5, 2.0], dtype=torch.float16), torch.randn(2, 2, 2), torch.tensor([1.0], requires_grad=True),
    ],
)  # fmt: skip
def test_repr(tensor):
    native = repr(tensor)
    ours = repr(tensor.detach().to(DEVICE).requires_grad_(tensor.requires_grad))
    assert "device='minitorch:0'" in ours

    def strip(text):
        return "".join(text.replace("device='minitorch:0'", "").split()).replace(",,", ",").replace(",)", ")")

    assert strip(ours) == strip(native)
