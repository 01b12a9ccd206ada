"""Eigenvalues, singular values, least squares, LDL: reconstruction, orthogonality, gradients, degenerate inputs, errors."""

import re

import pytest
import torch

from tests.python.test_linalg_solve import DTYPES, near, wide
from tests.python.twin import ASYNCHRONOUS, DEVICE, check, check_error, error_of


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def hermitian(n, dtype, batch=()):
    a = torch.randn(*batch, n, n, dtype=dtype)
    return (a + a.mH) / 2


def matrices(n, dtype):
    """Hermitian matrices of order n that are hard in different ways."""
    q = torch.linalg.qr(torch.randn(n, n, dtype=dtype)).Q
    values = torch.logspace(0, -12, n, dtype=torch.float64).to(dtype)
    return {
        "random": hermitian(n, dtype),
        "zero": torch.zeros(n, n, dtype=dtype),
        "identity": torch.eye(n, dtype=dtype),
        "diagonal": torch.diag(torch.arange(n, 0, -1).to(dtype)),
        "rank one": torch.ones(n, n, dtype=dtype),
        "clustered": q @ torch.diag((torch.arange(n) // 4).to(dtype)) @ q.mH,
        "graded": q @ torch.diag(values) @ q.mH,
        "tiny": hermitian(n, dtype) * 1e-30,
        "huge": hermitian(n, dtype) * 1e30,
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 32, 65, 150])
def test_eigh(dtype, n):
    eps = torch.finfo(dtype).eps
    for name, a in matrices(n, dtype).items():
        a = (a + a.mH) / 2
        for uplo in "LU":
            half = a.tril() if uplo == "L" else a.triu()
            w, v = torch.linalg.eigh(half.to("minitorch"), UPLO=uplo)
            near(v.mH @ v, torch.eye(n), eps, 4 * n)
            size = torch.linalg.matrix_norm(wide(a)).clamp(min=1e-300)
            error = torch.linalg.matrix_norm((wide(v) * wide(w)) @ wide(v).mH - wide(a)) / size
            assert error <= 4 * n * eps, f"{name}: {error:.1e}"
            assert (w.diff() >= 0).all()
            values = torch.linalg.eigvalsh(half.to("minitorch"), UPLO=uplo)
            assert (wide(values) - wide(w)).abs().max() <= 4 * n * eps * size


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (8, 5), (5, 8), (40, 40), (90, 33), (33, 90), (120, 100)])
def test_svd(dtype, shape):
    eps, k = torch.finfo(dtype).eps, max(shape)
    inputs = [torch.randn(2, *shape, dtype=dtype)]
    for a in matrices(max(shape), dtype).values():
        inputs.append(a[: shape[0], : shape[1]])
    for a in inputs:
        size = torch.linalg.matrix_norm(wide(a)).max().clamp(min=1e-300)
        for full in (False, True):
            u, s, vh = torch.linalg.svd(a.to("minitorch"), full_matrices=full)
            r = s.shape[-1]
            eye = torch.eye(u.shape[-1]).expand(*u.shape[:-2], -1, -1)
            near(u.mH @ u, eye, eps, 4 * k)
            near(vh @ vh.mH, torch.eye(vh.shape[-2]).expand(*vh.shape[:-2], -1, -1), eps, 4 * k)
            product = (wide(u)[..., :r] * wide(s).unsqueeze(-2)) @ wide(vh)[..., :r, :]
            assert torch.linalg.matrix_norm(product - wide(a)).max() <= 4 * k * eps * size
            assert (s.diff(dim=-1) <= 0).all() and (s >= 0).all()
        values = torch.linalg.svdvals(a.to("minitorch"))
        assert (wide(values) - torch.linalg.svdvals(wide(a)).to(wide(values).dtype)).abs().max() <= 4 * k * eps * size


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 8, 30, 60])
def test_eig(dtype, n):
    eps = torch.finfo(dtype).eps
    rotation = torch.zeros(n, n, dtype=dtype)
    rotation[torch.arange(n), (torch.arange(n) + 1) % n] = 1
    for a in (torch.randn(2, n, n, dtype=dtype), torch.zeros(n, n, dtype=dtype), rotation, hermitian(n, dtype)):
        w, v = torch.linalg.eig(a.to("minitorch"))
        residual = a.to("minitorch").to(v.dtype) @ v - v * w.unsqueeze(-2)
        assert residual.abs().max().item() <= 100 * n * eps
        assert torch.allclose(torch.linalg.vector_norm(v.cpu(), dim=-2), torch.ones(()).to(v.real.dtype), atol=1e-5)
        values = torch.linalg.eigvals(a.to("minitorch"))
        assert abs(values.cpu().sum(-1) - w.cpu().sum(-1)).max() <= 1000 * n * eps
        if not dtype.is_complex:
            imag = w.imag.cpu().sort(-1).values
            assert torch.equal(imag, -imag.flip(-1))  # exact pairs


def test_eig_defective():
    a = torch.tensor([[2.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 2.0]], dtype=torch.float64)
    check(torch.linalg.eigvals, a, exact=False, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_lstsq(dtype, driver):
    tolerance = {"rtol": 2e-4, "atol": 2e-4} if torch.finfo(dtype).bits == 32 else {"rtol": 1e-9, "atol": 1e-9}
    for m, n in ((5, 5), (9, 4), (4, 9)):
        a, b = torch.randn(2, m, n, dtype=dtype), torch.randn(2, m, 3, dtype=dtype)
        a = a + 3 * torch.eye(m, n, dtype=dtype)
        check(lambda x, y: tuple(torch.linalg.lstsq(x, y, driver=driver)), a, b, exact=False, **tolerance)
    for m, n in ((3, 0), (0, 3)):
        check(lambda x, y: tuple(torch.linalg.lstsq(x, y, driver=driver)), torch.ones(2, m, n), torch.ones(2, m, 3))
    if driver != "gels":  # rank 2
        a = torch.randn(7, 2, dtype=dtype) @ torch.randn(2, 5, dtype=dtype)
        b = torch.randn(7, 3, dtype=dtype)
        check(lambda x, y: torch.linalg.lstsq(x, y, driver=driver, rcond=1e-4).solution, a, b, exact=False, **tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_hermitian", [False, True])
def test_ldl(dtype, is_hermitian):
    eps = torch.finfo(dtype).eps
    for n in (1, 2, 5, 20, 60):
        a = torch.randn(2, n, n, dtype=dtype)
        a = a + (a.mH if is_hermitian else a.mT)
        ld, pivots = torch.linalg.ldl_factor(a.to("minitorch"), hermitian=is_hermitian)
        assert torch.equal(pivots.cpu(), torch.linalg.ldl_factor(a, hermitian=is_hermitian).pivots)
        b = torch.randn(2, n, 3, dtype=dtype)
        x = torch.linalg.ldl_solve(ld, pivots, b.to("minitorch"), hermitian=is_hermitian)
        condition = torch.linalg.cond(wide(a)).max().item()
        near(a.to("minitorch") @ x, b, eps, 100 * n + condition)


def test_functions_built_on_them():
    a = torch.randn(3, 6, 4, dtype=torch.float64)
    square = torch.randn(3, 5, 5, dtype=torch.float64)
    options = {"exact": False, "rtol": 1e-9, "atol": 1e-10}
    check(torch.linalg.pinv, a, **options)
    check(lambda x: torch.linalg.pinv(x @ x.mT, hermitian=True), square, **options)
    check(torch.linalg.matrix_rank, a, **options)
    check(torch.linalg.cond, a, **options)
    for p in (2, -2, "nuc"):
        check(lambda x, p=p: torch.linalg.matrix_norm(x, p), a, **options)
        check(lambda x, p=p: torch.linalg.cond(x, p), square, **options)
    for p in (1, -1, float("inf"), "fro"):
        check(lambda x, p=p: torch.linalg.cond(x, p), square, **options)


GRADIENTS = {
    "eigh": lambda a: (lambda w, v: (w, v.abs()))(*torch.linalg.eigh(a + a.mH)),
    "eigvalsh": lambda a: torch.linalg.eigvalsh(a + a.mH),
    "svd": lambda a: (lambda u, s, v: (u.abs(), s, v.abs()))(*torch.linalg.svd(a[..., :4], full_matrices=False)),
    "svdvals": torch.linalg.svdvals,
    "eig": lambda a: (lambda w, v: (w.abs().sum(-1), v.abs().sum((-1, -2))))(*torch.linalg.eig(a)),
    "lstsq": lambda a: torch.linalg.lstsq(a[..., :4], a).solution,
    "nuclear": lambda a: torch.linalg.matrix_norm(a, "nuc"),
}


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradients(name, dtype):
    a = torch.randn(2, 6, 6, dtype=dtype, requires_grad=True)
    check(GRADIENTS[name], a, exact=False, strides=False, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3), (4, 0), (0, 4)])
def test_empty(shape):
    a = torch.randn(shape)
    for full in (False, True):
        check(lambda x, full=full: torch.linalg.svd(x, full_matrices=full), a)
    check(torch.linalg.svdvals, a)
    check(torch.linalg.pinv, a)
    if shape[-1] == shape[-2]:
        for f in (torch.linalg.eigh, torch.linalg.eigvalsh, torch.linalg.eig, torch.linalg.eigvals):
            check(f, a)


def test_errors():
    nan, tall = torch.full((3, 3), float("nan")), torch.randn(3, 2)
    with pytest.raises(torch.linalg.LinAlgError, match=r"linalg.eigh: The algorithm failed .*error code: 2"):
        torch.linalg.eigh(nan.to("minitorch"))
    with pytest.raises(torch.linalg.LinAlgError, match="input matrix contained non-finite values"):
        torch.linalg.svd(nan.to("minitorch"))
    with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
        torch.linalg.eigvals(nan.to("minitorch"))  # native's process dies
    for f in (torch.linalg.eigh, torch.linalg.eigvalsh, torch.linalg.eig, torch.linalg.eigvals):
        check_error(f, tall)
    check_error(torch.linalg.eigh, torch.randn(3, 3).half())
    check_error(lambda a: torch.linalg.eigh(a, UPLO="X"), torch.randn(3, 3))
    check_error(lambda a: torch.linalg.lstsq(a, a, driver="other"), tall)
    check_error(lambda a: torch.linalg.lstsq(a, a[:2]), tall)
    check_error(torch.linalg.eig, torch.full((2, 2), float("inf")))


UNSOLVABLE = {  # the matrix, the right side
    "nan in the matrix": (torch.eye(3).index_put((torch.tensor(1), torch.tensor(2)), torch.tensor(torch.nan)), "ones"),
    "nan on the right": (torch.eye(3), "nan"),
    "nan in one of a batch": (torch.stack([torch.eye(4, 3), torch.full((4, 3), torch.nan)]), "ones"),
    "an infinity": (torch.eye(4, 3) + torch.tensor([[torch.inf, 0, 0]] + [[0.0] * 3] * 3), "ones"),
    "a column of zeros": (torch.tensor([[1.0, 0.0, 2.0], [2.0, 0.0, 1.0], [0.5, 0.0, 3.0], [1.0, 0.0, 0.0]]), "ones"),
    "a row of zeros": (torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.0] * 4, [2.0, 1.0, 0.0, 1.0]]), "ones"),
    "zeros": (torch.zeros(2, 4, 3), "ones"),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNSOLVABLE)
def test_least_squares_without_a_solution(name, dtype):
    a, kind = UNSOLVABLE[name]
    a = a.to(dtype)
    b = torch.full((*a.shape[:-1], 2), torch.nan if kind == "nan" else 1.0).to(dtype)
    drivers = ["gels"] if name in ("a column of zeros", "a row of zeros") else ["gels", "gelsd"]
    for driver in drivers + (["gelsy", "gelss"] if "nan" in name else []):
        native, ours = (
            error_of(lambda x, y: torch.linalg.lstsq(x, y, driver=driver), a.to(d), b.to(d)) for d in ("cpu", DEVICE)
        )
        if native is None:
            assert ours is None
            check(lambda x, y: torch.linalg.lstsq(x, y, driver=driver).solution, a, b, exact=False)
        else:
            assert type(ours) is type(native)
            assert re.sub(r'at ".*?":\d+', "", str(ours)) == re.sub(r'at ".*?":\d+', "", str(native))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("n", [1, 2, 3, 10, 25, 26, 40])
def test_eigh_of_what_is_not_finite(n, value):
    """LAPACK's methods for two rows, and for vectors of more than 25, give NaN without a word; the others refuse."""
    a = torch.full((n, n), value)
    for function in (lambda a: torch.linalg.eigh(a)[0], torch.linalg.eigvalsh):
        try:
            native = function(a)
        except RuntimeError as error:
            with pytest.raises(type(error), match="failed to converge") as ours:
                function(a.to(DEVICE))
            assert str(ours.value) == str(error)
        else:
            torch.testing.assert_close(function(a.to(DEVICE)).cpu(), native, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
@pytest.mark.parametrize("shape", [(3, 3), (4, 3), (3, 5), (9, 2), (2, 6, 6)])
def test_matrices_of_subnormal_numbers(shape, dtype):
    """The factor that brings them near 1 is larger than the largest number of the type."""
    torch.manual_seed(0)
    tiny = torch.finfo(dtype).tiny
    a = torch.randn(shape, dtype=dtype) * tiny * 2**-4
    step = {"rtol": 0, "atol": 8 * tiny * torch.finfo(dtype).eps}  # subnormal numbers are as far apart
    torch.testing.assert_close(torch.linalg.svdvals(a.to(DEVICE)).cpu(), torch.linalg.svdvals(a), **step)
    u, s, vh = torch.linalg.svd(a.to(DEVICE), full_matrices=False)
    torch.testing.assert_close(((u * s.unsqueeze(-2)) @ vh).cpu(), a, **step)
    square = a[..., :2, :2] + a[..., :2, :2].mH
    torch.testing.assert_close(torch.linalg.eigvalsh(square.to(DEVICE)).cpu(), torch.linalg.eigvalsh(square), **step)


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd"])
@pytest.mark.parametrize("batch", [(0,), (2, 0), (2, 2)])
def test_least_squares_of_batches_in_several_dimensions(batch, driver):
    a, b = torch.randn(*batch, 4, 3), torch.randn(*batch, 4, 2)
    native, ours = (torch.linalg.lstsq(a.to(d), b.to(d), driver=driver).solution for d in ("cpu", "minitorch"))
    torch.testing.assert_close(ours.cpu(), native, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shape", [(), (3,), (3, 3)])
def test_least_squares_by_an_unknown_driver(shape):
    if ASYNCHRONOUS:
        pytest.skip("native CUDA has one driver")
    check_error(lambda a: torch.linalg.lstsq(a, a, driver="other"), torch.ones(shape))
