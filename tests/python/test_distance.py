"""cdist and pdist against native CPU."""

import itertools

import pytest
import torch

from tests.python.layouts import arrange
from tests.python.twin import DEVICE, check, check_error

NORMS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")]
TOLERANCE = {torch.float32: dict(rtol=1e-4, atol=1e-5), torch.float64: dict(rtol=1e-10, atol=1e-10)}


def rows(*shape, dtype=torch.float32):
    torch.manual_seed(sum(shape))
    return torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_()


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_norms(p, dtype):
    # Below one the gradient holds powers of differences with negative exponents: terms in the hundreds that cancel.
    tolerance = dict(rtol=1e-3, atol=1e-4) if p == 0.5 and dtype == torch.float32 else TOLERANCE[dtype]
    for m in (1, 3, 16, 37):
        check(lambda a, b: torch.cdist(a, b, p), rows(5, m, dtype=dtype), rows(7, m, dtype=dtype), **tolerance)
        check(lambda a: torch.pdist(a, p), rows(6, m, dtype=dtype), **tolerance)


@pytest.mark.parametrize(
    "mode", ["use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"]
)
def test_euclidean_modes(mode):
    for shapes in (((30, 8), (40, 8)), ((2, 1, 30, 8), (3, 5, 8)), ((4, 8), (6, 8))):
        check(lambda a, b: torch.cdist(a, b, 2.0, mode), *(rows(*s) for s in shapes), rtol=1e-3, atol=1e-3)


def test_batches_and_layouts():
    for p in (1.0, 2.0):
        check(lambda a, b: torch.cdist(a, b, p), rows(1, 3, 4), rows(5, 2, 4), **TOLERANCE[torch.float32])
        check(lambda a, b: torch.cdist(a, b, p), rows(2, 1, 3, 4), rows(5, 2, 4), **TOLERANCE[torch.float32])
        for layout in ("transposed", "sliced", "expanded"):
            x = arrange(rows(6, 6).detach(), layout).requires_grad_()
            check(lambda a, b: torch.cdist(a, b, p), x, rows(4, 6), **TOLERANCE[torch.float32])
            check(lambda a: torch.pdist(a, p), x, **TOLERANCE[torch.float32])


def test_equal_rows_and_odd_values():
    same = torch.ones(3, 4, requires_grad=True)
    odd = torch.tensor([[1.0, float("nan")], [float("inf"), 2.0], [0.0, 0.0]])
    for p in NORMS:
        check(lambda a: torch.cdist(a, a.detach(), p), same)
        check(lambda a: torch.pdist(a, p), same)
        check(lambda a: torch.cdist(a, a, p), odd, rtol=1e-6, atol=0)


def test_empty():
    for a, b in itertools.product((0, 3), (0, 2)):
        for m in (0, 4):
            check(lambda x, y: torch.cdist(x, y, 1.0), rows(a, m), rows(b, m), **TOLERANCE[torch.float32])
            check(
                lambda x, y: torch.cdist(x, y, 2.0, "use_mm_for_euclid_dist"),
                rows(a, m),
                rows(b, m),
                rtol=1e-3,
                atol=1e-3,
            )
    check(lambda x: torch.pdist(x), rows(0, 2).detach())  # native crashes on the gradient
    leaf = rows(0, 2).detach().to(DEVICE).requires_grad_()
    torch.pdist(leaf).sum().backward()
    assert leaf.grad.shape == (0, 2)
    for n in (1, 3):
        check(lambda x: torch.pdist(x), rows(n, 0))
        check(lambda x: torch.pdist(x), rows(n, 2), **TOLERANCE[torch.float32])


def test_errors():
    x = torch.ones(2, 2)
    check_error(lambda a: torch.cdist(a[0], a), x)
    check_error(lambda a: torch.cdist(a, a[:, :1]), x)
    check_error(lambda a: torch.cdist(a, a, -1.0), x)
    check_error(lambda a: torch.cdist(a.int(), a.int(), 1.0), x)
    check_error(lambda a: torch.cdist(a.half(), a.half(), 1.0), x)
    check_error(lambda a: torch.cdist(a, a.double(), 1.0), x)
    check_error(lambda a: torch.pdist(a[0]), x)
    check_error(lambda a: torch.pdist(a.int()), x)


@pytest.mark.parametrize("p", NORMS)
def test_many_short_rows(p):
    # More rows than fit one vector or one block of turned rows, and a remainder.
    for m in (1, 3, 64, 65):
        check(lambda a, b: torch.cdist(a, b, p), rows(2, 9, m).detach(), rows(2, 70, m).detach(), rtol=1e-4, atol=1e-5)
        check(lambda a: torch.pdist(a, p), rows(131, m).detach(), rtol=1e-4, atol=1e-5)
