"""Cholesky, LU, QR, triangular systems and what is built on them: residuals, native's layouts, gradients and errors."""

import pytest
import torch

from tests.python.twin import ASYNCHRONOUS, check, check_error

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
ORDERS = [1, 2, 5, 16, 33, 64, 100]  # around the orders at which blocks are split


def wide(t):
    return t.cpu().to(torch.complex128 if t.is_complex() else torch.float64)


def positive(n, dtype, batch=()):
    a = torch.randn(*batch, n, n, dtype=dtype)
    return a @ a.mH / n + torch.eye(n, dtype=dtype)


def near(found, expected, eps, factor):
    """The relative error in the Frobenius norm is at most factor * eps."""
    error = torch.linalg.norm(wide(found) - wide(expected)) / torch.linalg.norm(wide(expected)).clamp(min=1e-30)
    assert error.item() <= factor * eps, f"relative error {error.item():.2e}"


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", ORDERS)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(dtype, n, upper):
    eps = torch.finfo(dtype).eps
    for batch in ((), (3,)):
        a = positive(n, dtype, batch)
        f = torch.linalg.cholesky(a.to("minitorch"), upper=upper)
        near(f.mH @ f if upper else f @ f.mH, a, eps, 4 * n)
        near(torch.cholesky_inverse(f, upper=upper) @ a.to("minitorch"), torch.eye(n).expand(a.shape), eps, 40 * n)
        b = torch.randn(*batch, n, 3, dtype=dtype)
        near(a.to("minitorch") @ torch.cholesky_solve(b.to("minitorch"), f, upper=upper), b, eps, 40 * n)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (3, 5), (40, 40), (33, 70), (70, 33), (130, 130)])
def test_lu_and_qr(dtype, shape):
    eps, k = torch.finfo(dtype).eps, max(shape)
    for batch in ((), (2, 2)):
        a = torch.randn(*batch, *shape, dtype=dtype)
        there = a.to("minitorch")
        p, low, up = torch.linalg.lu(there)
        near(p @ low @ up, a, eps, 4 * k)
        assert (low.abs() <= 1 + 1e-6).all() or dtype.is_complex  # complex pivots go by |re| + |im|
        for mode in ("reduced", "complete"):
            q, r = torch.linalg.qr(there, mode=mode)
            near(q @ r, a, eps, 4 * k)
            near(q.mH @ q, torch.eye(q.shape[-1]).expand(*batch, -1, -1), eps, 4 * k)
        # The phase of the last diagonal element is the library's choice.
        near(torch.linalg.qr(there, mode="r").R.abs(), torch.linalg.qr(a, mode="r").R.abs(), eps, 100 * k)


@pytest.mark.parametrize("dtype", DTYPES)
def test_qr_of_low_rank(dtype):
    """What rounding leaves of dependent columns shrinks from one to the next, down to the least numbers there are."""
    eps, small = torch.finfo(dtype).eps, torch.finfo(dtype).tiny ** 0.9
    for shape in ((90, 33), (33, 90), (40, 40)):
        ones, k = torch.ones(shape, dtype=dtype), max(shape)
        few = torch.randn(shape[0], 2, dtype=dtype) @ torch.randn(2, shape[1], dtype=dtype)
        for a, scale in (
            (ones, 1),
            (few, 1),
            (torch.zeros_like(ones), 1),
            (ones * small, small),
            (few / small, 1 / small),
        ):
            q, r = torch.linalg.qr(a.to("minitorch"))
            near(q.mH @ q, torch.eye(q.shape[-1]), eps, 4 * k)
            near(wide(q) @ (wide(r) / scale), wide(a) / scale, eps, 4 * k)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", ORDERS)
@pytest.mark.parametrize("columns", [1, 3, 9, 70])
def test_solve(dtype, n, columns):
    eps = torch.finfo(dtype).eps
    a = torch.randn(2, n, n, dtype=dtype) + n * torch.eye(n, dtype=dtype)
    b = torch.randn(2, n, columns, dtype=dtype)
    there, right = a.to("minitorch"), b.to("minitorch")
    near(there @ torch.linalg.solve(there, right), b, eps, 100)
    lu, pivots = torch.linalg.lu_factor(there)
    near(there.mH @ torch.linalg.lu_solve(lu, pivots, right, adjoint=True), b, eps, 100)
    near(torch.linalg.lu_solve(lu, pivots, right.mT, left=False) @ there, b.mT, eps, 100)
    # A single factor for a batch of right-hand sides.
    near(there[0] @ torch.linalg.lu_solve(lu[0], pivots[0], right), b, eps, 100)
    near(there @ torch.linalg.inv(there), torch.eye(n).expand(2, n, n), eps, 100)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_triangular(dtype, upper, unit, left):
    eps = torch.finfo(dtype).eps
    for n in ORDERS:
        for columns in (1, 5, 40):
            a = torch.randn(2, n, n, dtype=dtype) / n + 2 * torch.eye(n, dtype=dtype)
            t = a.triu() if upper else a.tril()
            if unit:
                t = t - torch.diag_embed(t.diagonal(dim1=-2, dim2=-1)) + torch.eye(n, dtype=dtype)
            b = torch.randn(2, n, columns, dtype=dtype)
            b = b if left else b.mT
            for form in (a, a.mT.contiguous().mT, a.mH.contiguous().mH):
                x = torch.linalg.solve_triangular(
                    form.to("minitorch"), b.to("minitorch"), upper=upper, unitriangular=unit, left=left
                )
                near(t.to("minitorch") @ x if left else x @ t.to("minitorch"), b, eps, 100)


def test_small_or_large_numbers():
    for scale in (1e-30, 1e30):
        a = torch.randn(20, 20) * scale
        q, r = torch.linalg.qr(a.to("minitorch"))
        near(q @ r, a, 1.2e-7, 40)
        near(q.mH @ q, torch.eye(20), 1.2e-7, 40)
        b = torch.randn(20, 3)
        x = torch.linalg.solve(a.to("minitorch"), b.to("minitorch"))
        assert torch.isfinite(x).all()
        near(wide(a) @ wide(x), b, 1.2e-7, 2000)


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3), (4, 0), (0, 4)])
def test_empty(shape):
    a = torch.randn(shape)
    check(torch.linalg.qr, a)
    check(lambda x: torch.linalg.qr(x, mode="complete"), a)
    check(torch.linalg.lu_factor, a)
    if shape[-1] == shape[-2]:
        for f in (torch.linalg.inv, torch.linalg.cholesky, torch.linalg.det, torch.linalg.slogdet, torch.matrix_exp):
            check(f, a)
        check(torch.linalg.solve, a, torch.randn(shape))


GRADIENTS = {
    "cholesky": lambda a: torch.linalg.cholesky(a @ a.mH + torch.eye(a.size(-1), dtype=a.dtype, device=a.device)),
    "lu": torch.linalg.lu,
    "qr": torch.linalg.qr,
    "inv": torch.linalg.inv,
    "det": torch.linalg.det,
    "slogdet": torch.linalg.slogdet,
    "solve": lambda a: torch.linalg.solve(a, a.mT),
    "triangular": lambda a: torch.linalg.solve_triangular(a, a.mT.contiguous(), upper=True),
    "householder": lambda a: torch.linalg.householder_product(a, a[..., 0, :] / 10),
    "matrix_exp": torch.matrix_exp,
    "pinv": torch.linalg.pinv,
}


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradients(name, dtype):
    a = torch.randn(2, 6, 6, dtype=dtype) / 3 + torch.eye(6, dtype=dtype)
    a = a.requires_grad_()
    check(GRADIENTS[name], a, exact=False, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("layout", ["transposed", "sliced", "expanded", "conjugated"])
def test_layouts(layout):
    a = torch.randn(3, 9, 9, dtype=torch.complex128) + 9 * torch.eye(9)
    a = {
        "transposed": lambda: a.mT,
        "sliced": lambda: torch.stack([a, a], -1)[..., 1],
        "expanded": lambda: a[:1].expand(3, 9, 9),
        "conjugated": lambda: a.clone(),
    }[layout]()
    b = torch.randn(9, 3, 9, dtype=torch.complex128).transpose(0, 1)

    def run(x, y):
        x = x.conj() if layout == "conjugated" else x
        return (
            torch.linalg.solve(x, y),
            torch.linalg.lu_factor(x),
            torch.linalg.qr(x),
            torch.linalg.solve_triangular(x, y, upper=False),
            torch.linalg.det(x),
            torch.linalg.inv_ex(x),
        )

    check(run, a, b, exact=False, rtol=1e-9, atol=1e-10)


def test_degenerate():
    singular = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    check(torch.linalg.lu_factor_ex, singular)
    check(torch.linalg.det, singular)
    check(lambda a: torch.linalg.inv_ex(a).info, torch.zeros(3, 2, 2))
    check(lambda a: torch.linalg.cholesky_ex(a).info, torch.stack([torch.eye(40), -torch.eye(40), torch.zeros(40, 40)]))
    bad = positive(50, torch.float64)
    bad[44, 44] = -1
    check(lambda a: torch.linalg.cholesky_ex(a).info, bad)
    check(torch.linalg.qr, torch.full((3, 2), float("nan")))
    check(torch.linalg.qr, torch.zeros(4, 3))
    check(torch.matrix_exp, torch.full((2, 2), float("inf")))
    for shape in ((2, 2), (3, 3), (8, 8), (5, 3), (3, 5)):
        nan = torch.randn(shape)
        nan[0, 0] = torch.nan  # stays the pivot
        check(torch.linalg.lu_factor, nan, exact=False)


def test_errors():
    singular, square, tall = torch.zeros(2, 3, 3), torch.randn(3, 3), torch.randn(3, 2)
    for f in (torch.linalg.inv, torch.linalg.cholesky):
        check_error(f, singular)
        check_error(f, tall)
        check_error(f, square.half())
    check_error(lambda a: torch.linalg.solve(a, a), singular)
    check_error(lambda a: torch.linalg.solve(a, a), tall)
    check_error(lambda a: torch.linalg.lu_factor(a, pivot=False), square)
    check_error(lambda a, p: torch.linalg.lu_solve(a, p, a), square, torch.tensor([0, 1, 2], dtype=torch.int32))
    check_error(lambda a, p: torch.linalg.lu_solve(a, p, a), square, torch.tensor([1, 2, 9], dtype=torch.int32))
    check_error(lambda a, p: torch.lu_unpack(a, p), square, torch.tensor([1, 2, 9], dtype=torch.int32))
    check_error(torch.matrix_exp, tall)
    check_error(lambda a: torch.linalg.qr(a, mode="all"), square)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", [1e-3, 0.3, 1.0, 3.0, 30.0])
def test_matrix_exp(dtype, norm):
    a = torch.randn(3, 12, 12, dtype=dtype)
    a = (a - a.mH) / 2  # the exponential of a skew-Hermitian matrix has condition 1
    a = a * (norm / torch.linalg.matrix_norm(a, 1)).view(3, 1, 1)
    near(torch.matrix_exp(a.to("minitorch")), torch.matrix_exp(wide(a)), torch.finfo(dtype).eps, 30 + 10 * norm)


def test_lu_into_permuted_outputs():
    """Native writes outside of these, so the functional form is the reference."""
    a = torch.randn(3, 5, 4).to("minitorch")
    lu, pivots = torch.linalg.lu_factor(a)
    for f in (lambda **out: torch.lu_unpack(lu, pivots, **out), lambda **out: torch.linalg.lu(a, **out)):
        expected = f()
        outs = tuple(torch.zeros(t.shape[::-1]).to("minitorch").permute(2, 1, 0) for t in expected)
        f(out=outs)
        for found, right in zip(outs, expected, strict=True):
            torch.testing.assert_close(found.cpu(), right.cpu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_products_of_reflectors_are_as_exact_as_native(dtype):
    # Of the same reflectors: what single precision loses on the way shows beside the product in double.
    a = torch.randn(2, 300, 200, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
    reflectors, tau = torch.geqrf(a)
    c = torch.randn(2, 300, 40, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(dtype)
    wide = torch.promote_types(dtype, torch.float64)
    # A GPU multiplies in double; blocks of reflectors on the CPU round more often than native's single ones.
    most = 1.1 if torch.minitorch.get_device_properties(0).backend == "cuda" else 4

    def errors(fn, *args):
        exact = fn(*(t.to(wide) for t in args))
        ours = fn(*(t.to("minitorch") for t in args)).cpu()
        return [(r.to(wide) - exact).abs().max().item() for r in (ours, fn(*args))]

    for transpose in (False, True):
        ours, native = errors(lambda v, t, x, h=transpose: torch.ormqr(v, t, x, True, h), reflectors, tau, c)
        assert ours <= most * native
    ours, native = errors(torch.linalg.householder_product, reflectors, tau)
    assert ours <= most * native


@pytest.mark.parametrize("dtype", [torch.int64, torch.float16])
def test_lu_without_pivots_of_another_dtype(dtype):
    if ASYNCHRONOUS:
        pytest.skip("native CUDA factors without pivots")
    check_error(lambda a: torch.linalg.lu_factor(a, pivot=False), torch.ones(2, 3, 3, dtype=dtype))
