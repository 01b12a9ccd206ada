"""Operators whose out= is one of their operands, or shares memory with it: what another tensor would have got, or native's
error. The output may have another shape than the operand had."""

import pytest
import torch

from tests.python.twin import DEVICE, assert_same_error, error_of

pytestmark = pytest.mark.filterwarnings("ignore")


def numbers(*shape):
    torch.manual_seed(sum(shape))
    return torch.randn(shape)


SIZES = [(5, 0, 10), (5, 10, 5), (3, 4, 6), (1, 7, 40)]
PRODUCTS = {
    "mm": (torch.mm, lambda m, k, n: (numbers(m, k), numbers(k, n))),
    "matmul": (torch.matmul, lambda m, k, n: (numbers(m, k), numbers(k, n))),
    "bmm": (torch.bmm, lambda m, k, n: (numbers(3, m, k), numbers(3, k, n))),
    "addmm": (torch.addmm, lambda m, k, n: (numbers(m, n), numbers(m, k), numbers(k, n))),
    "addmm of a row": (torch.addmm, lambda m, k, n: (numbers(n), numbers(m, k), numbers(k, n))),
    "baddbmm": (torch.baddbmm, lambda m, k, n: (numbers(3, m, n), numbers(3, m, k), numbers(3, k, n))),
    "addmv": (torch.addmv, lambda m, k, n: (numbers(m), numbers(m, k), numbers(k))),
    "addmv of a number": (torch.addmv, lambda m, k, n: (numbers(1), numbers(m, k), numbers(k))),
}


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name, size):
    product, make = PRODUCTS[name]
    operands = make(*size)
    expected = product(*operands)
    if name == "addmv of a number" and 0 in size:
        return  # native's result has one element only
    for i in range(len(operands)):
        ours = [t.to(DEVICE) for t in operands]
        product(*ours, out=ours[i])
        torch.testing.assert_close(ours[i].cpu(), expected)


FACTORISATIONS = {  # the number of outputs, and the function
    "svd": (3, torch.linalg.svd),
    "qr": (2, torch.linalg.qr),
    "lu": (3, torch.linalg.lu),
    "lu_factor": (2, torch.linalg.lu_factor),
    "eigh": (2, lambda a, out: torch.linalg.eigh(a, out=out)),
    "slogdet": (2, torch.linalg.slogdet),
    "inv": (1, torch.linalg.inv),
    "det": (1, torch.linalg.det),
    "cholesky": (1, torch.linalg.cholesky),
    "svdvals": (1, torch.linalg.svdvals),
    "eigvalsh": (1, torch.linalg.eigvalsh),
}
SQUARE = ("eigh", "slogdet", "inv", "det", "cholesky", "eigvalsh")


@pytest.mark.parametrize("shape", [(3, 3), (2, 5, 5), (0, 3), (3, 0), (2, 3, 4), (40, 40)], ids=str)
@pytest.mark.parametrize("name", FACTORISATIONS)
def test_factorisations(name, shape):
    """They have read the input before they write, or write into it while they read: never beyond it."""
    outputs, function = FACTORISATIONS[name]
    if name in SQUARE and shape[-1] != shape[-2]:
        return
    a = numbers(*shape)
    if name in SQUARE:
        a = a @ a.mT + torch.eye(shape[-1])
    native = function(a, out=None)
    native = [native] if outputs == 1 else list(native)
    for i in range(outputs):
        if native[i].dtype != a.dtype:
            continue
        ours = a.to(DEVICE)
        outs = [torch.empty(0, dtype=t.dtype, device=DEVICE) for t in native]
        outs[i] = ours
        error = error_of(lambda f=function, o=ours, to=outs: f(o, out=to[0] if len(to) == 1 else tuple(to)))
        assert error is None or isinstance(error, RuntimeError), repr(error)
        if error is None:
            assert [t.shape for t in outs] == [t.shape for t in native]


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_systems(left, unit):
    a, b = numbers(3, 3).triu() + 3 * torch.eye(3), numbers(3, 1) if left else numbers(1, 3)
    solve = lambda a, b, **out: torch.linalg.solve_triangular(a, b, upper=True, left=left, unitriangular=unit, **out)  # noqa: E731
    expected = solve(a, b)
    for i in range(2):
        ours = [a.to(DEVICE), b.to(DEVICE)]
        solve(*ours, out=ours[i])
        assert ours[i].shape == expected.shape
        if i == 1:
            torch.testing.assert_close(ours[i].cpu(), expected)


OVERLAPS = {
    "max": lambda x, out: torch.max(x, 1, out=(out, torch.empty(0, dtype=torch.long, device=x.device))),
    "min": lambda x, out: torch.min(x, 1, out=(out, torch.empty(0, dtype=torch.long, device=x.device))),
    "aminmax": lambda x, out: torch.aminmax(x, dim=1, out=(out, torch.empty(0, device=x.device))),
    "mode": lambda x, out: torch.mode(x, 1, out=(out, torch.empty(0, dtype=torch.long, device=x.device))),
    "topk": lambda x, out: torch.topk(x, 2, 1, out=(out, torch.empty(0, dtype=torch.long, device=x.device))),
}


@pytest.mark.parametrize("start", [0, 1, 6])
@pytest.mark.parametrize("name", OVERLAPS)
def test_a_part_of_the_input(name, start):
    errors = []
    for device in ("cpu", DEVICE):
        x = numbers(5, 4).to(device)
        out = x.as_strided((5, 2) if name == "topk" else (5,), (2, 1) if name == "topk" else (1,), start)
        errors.append(error_of(OVERLAPS[name], x, out))
    assert_same_error(errors[1], errors[0])
