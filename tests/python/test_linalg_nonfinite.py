"""Factorisations of matrices with a NaN or an infinity: LAPACK refuses some and gives NaN for others, here as there."""

import itertools
import re

import pytest
import torch

from tests.python.test_linalg_solve import DTYPES
from tests.python.twin import ASYNCHRONOUS, DEVICE

pytestmark = pytest.mark.skipif(ASYNCHRONOUS, reason="what is compared are the steps of native's CPU library")
NAN, INF = float("nan"), float("inf")
SIZES = [2, 3, 5, 12, 27]
VALUES = [NAN, INF, -INF]


def definite(n, dtype, batch=()):
    torch.manual_seed(n)
    a = torch.randn(*batch, n, n, dtype=torch.complex128 if dtype.is_complex else torch.float64)
    return (a @ a.mH + n * torch.eye(n)).to(dtype)


def kinds(tensor):
    """Of every number whether it is finite, and if not what it is."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return torch.stack([tensor.isnan(), tensor == INF, tensor == -INF])


def outcome(function, matrix):
    try:
        results = function(matrix)
    except RuntimeError as error:
        return type(error), re.sub(r'at ".*?":\d+', "", str(error).split("\n")[0])
    return [results.cpu()] if isinstance(results, torch.Tensor) else [r.cpu() for r in results]


def agree(function, matrix, what, values_only=False):
    native, ours = outcome(function, matrix.clone()), outcome(function, matrix.to(DEVICE))
    if isinstance(native, tuple) or isinstance(ours, tuple):
        assert ours == native, f"{what}: {ours} instead of {native}"
        return
    for a, b in zip(ours[:1] if values_only else ours, native, strict=not values_only):
        assert torch.equal(kinds(a), kinds(b)), f"{what}: {a} instead of {b}"


def spoiled(n, dtype, places):
    """Matrices with one value that is not finite, alone and as the second of three."""
    values = [*VALUES, complex(1, INF), complex(INF, NAN)] if dtype.is_complex else VALUES
    for value in values:
        for i, j in places:
            if i == j and isinstance(value, complex):
                continue  # the imaginary part of a Hermitian diagonal is not looked at
            for batch, item in (((), ()), ((3,), (1,))):
                a = definite(n, dtype, batch)
                a[(*item, i, j)] = value
                yield a, f"{value} at {i}, {j} of {list(a.shape)}"


def corners(n):
    return sorted({(i, j) for i in (0, n // 2, n - 2, n - 1) for j in (0, n // 2, n - 1)})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_eigenvalues(n, dtype):
    for a, what in spoiled(n, dtype, corners(n)):
        for uplo in "LU":
            agree(lambda a, uplo=uplo: torch.linalg.eigh(a, UPLO=uplo), a, what)
            agree(lambda a, uplo=uplo: torch.linalg.eigvalsh(a, UPLO=uplo), a, what)


SEVERAL = [
    [(0, 0), (2, 2)],
    [(1, 0), (2, 1)],
    [(1, 0), (3, 2)],
    [(1, 0), (2, 1), (3, 2)],
    [(1, 0), (2, 1), (4, 3)],
    [(2, 2), (1, 0), (4, 4)],
    [(1, 1), (3, 3)],
    [(4, 2), (1, 1)],
    [(3, 0), (4, 2)],
    [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)],
]


@pytest.mark.parametrize("places", SEVERAL, ids=str)
def test_eigenvalues_with_several_infinities(places):
    a = definite(5, torch.float32)
    for i, j in places:
        a[i, j] = INF
    agree(torch.linalg.eigh, a, "vectors")
    agree(torch.linalg.eigvalsh, a, "values")
    a[3, 3] = NAN
    agree(torch.linalg.eigh, a, "vectors, with a NaN")
    agree(torch.linalg.eigvalsh, a, "values, with a NaN")


@pytest.mark.parametrize("n", [4, 27])
def test_diagonal_matrices_with_a_nan(n):
    """Those of them that LAPACK takes have the eigenvalues that do not depend on the NaN."""
    for i in (0, 1, n - 2, n - 1):
        a = torch.diag(torch.arange(n, 0, -1.0))
        a[i, i] = NAN
        for function in (torch.linalg.eigh, torch.linalg.eigvalsh):
            native, ours = outcome(function, a), outcome(function, a.to(DEVICE))
            if isinstance(native, tuple):
                assert ours == native
            else:
                torch.testing.assert_close(ours[0], native[0], equal_nan=True)


BY_TRIANGLES = {
    "inv": torch.linalg.inv,
    "solve": lambda a: torch.linalg.solve(a, torch.ones_like(a)),
    "det": torch.linalg.det,
    "slogdet": torch.linalg.slogdet,
    "lu_factor": lambda a: torch.linalg.lu_factor(a)[0],
    "cond": lambda a: torch.linalg.cond(a, 1),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("name", BY_TRIANGLES)
def test_linear_systems(name, n, dtype):
    for a, what in spoiled(n, dtype, corners(n)):
        agree(BY_TRIANGLES[name], a, what)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [3, 12])
def test_least_squares(n, dtype):
    for value in VALUES:
        for i in range(1, n):
            a = definite(n, dtype)
            a[i, 0] = value
            agree(lambda a: torch.linalg.lstsq(a, torch.ones_like(a), driver="gels").solution, a, f"{value} at {i}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_reflectors_of_nan(dtype):
    """A NaN above zeros is no column of zeros."""
    for n in (3, 20):
        a = torch.zeros(n, n, dtype=dtype)
        a[1, 0] = NAN
        q, r = torch.linalg.qr(a.to(DEVICE))
        assert q[:, 0].isnan().any() and r[0, 0].isnan()


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_ldl(dtype, hermitian):
    for n in (2, 3, 5):
        for i in range(n):
            a = definite(n, dtype)
            a[i, i] = NAN
            agree(lambda a: torch.linalg.ldl_factor(a, hermitian=hermitian), a, f"NaN at {i} of {n}", values_only=True)


SVD = {
    "svd": lambda a: torch.linalg.svd(a, full_matrices=False),
    "full svd": torch.linalg.svd,
    "pinv": torch.linalg.pinv,
    "svdvals": torch.linalg.svdvals,
    "rank": torch.linalg.matrix_rank,
    "cond": torch.linalg.cond,
}
SHAPES = [(1, 1), (3, 1), (2, 2), (3, 3), (5, 5), (12, 12), (27, 27), (7, 3), (9, 7)]
LARGE = [((40, 40), torch.float32), ((40, 40), torch.float64)]


@pytest.mark.parametrize(("shape", "dtype"), [*itertools.product(SHAPES, DTYPES), *LARGE])
@pytest.mark.parametrize("name", SVD)
def test_singular_values(name, shape, dtype):
    m, n = shape
    torch.manual_seed(m)
    for value in [INF, -INF, *([complex(1, INF)] if dtype.is_complex else [])]:
        for i, j in {(0, 0), (0, n - 1), (m // 2, n // 2), (m - 1, 0), (m - 1, n - 1)}:
            a = torch.randn(m, n, dtype=torch.float64).to(dtype)
            a[i, j] = value
            agree(SVD[name], a, f"{value} at {i}, {j} of {shape}")


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_cholesky(n, dtype, upper):
    for value in VALUES:
        for i in {0, 1, n - 1}:
            a = definite(n, dtype)
            a[i, i] = value
            agree(lambda a: torch.linalg.cholesky(a, upper=upper), a, f"{value} at {i} of {n}")
            agree(lambda a: torch.linalg.cholesky_ex(a, upper=upper).info, a, f"{value} at {i} of {n}")


def solve(a, b, driver, rcond=None):
    return torch.linalg.lstsq(a, b.to(a.device), driver=driver, rcond=rcond)


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (3, 5), (12, 12), (20, 7)])
def test_right_sides_with_infinities(shape, dtype, driver):
    torch.manual_seed(0)
    a, b = torch.randn(*shape, dtype=torch.float64).to(dtype), torch.randn(shape[0], 2, dtype=torch.float64).to(dtype)
    for value in VALUES:
        b[-1, 0] = value
        agree(lambda a: solve(a, b, driver), a, f"{value} on the right of {shape}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (5, 3), (1, 1), (4, 1), (12, 12)])
@pytest.mark.parametrize("driver", ["gelsd", "gelss"])
def test_least_squares_by_singular_values(driver, shape, dtype):
    m, n = shape
    torch.manual_seed(0)
    for i, j in {(0, 0), (0, n - 1), (m // 2, n // 2), (m - 1, 0), (m - 1, n - 1)}:
        a = torch.randn(m, n, dtype=torch.float64).to(dtype)
        a[i, j] = INF
        agree(lambda a: solve(a, torch.ones_like(a), driver), a, f"infinity at {i}, {j} of {shape}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rcond", [1e-3, 0.3, 1.0, 2.0, 0.0, -1.0])
@pytest.mark.parametrize("driver", ["gelsy", "gelsd", "gelss"])
def test_what_is_left_out(driver, rcond, dtype):
    """Of matrices of full rank and, where the limit is above the rounding errors, of less."""
    torch.manual_seed(0)
    for m, n, r in [(3, 3, 3), (5, 3, 3), (3, 5, 3), (40, 30, 30), (7, 6, 2), (6, 7, 3), (4, 4, 0)]:
        if r not in (0, min(m, n)) and rcond != 1e-3:
            continue
        wide = torch.complex128 if dtype.is_complex else torch.float64
        a = (torch.randn(2, m, r, dtype=wide) @ torch.randn(2, r, n, dtype=wide)).to(dtype)
        b = torch.randn(2, m, 2, dtype=torch.float64).to(dtype)
        native, ours = solve(a, b, driver, rcond), solve(a.to(DEVICE), b, driver, rcond)
        if driver == "gelsy" and rcond > 0:  # native's order of the columns is not defined
            assert rcond < 1 or torch.equal(ours.rank.cpu(), native.rank)
            continue
        limit = 1e-3 if torch.finfo(dtype).bits == 32 else 1e-9
        for x, y in zip(ours, native, strict=True):
            torch.testing.assert_close(x.cpu(), y, rtol=limit, atol=limit)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_exponentials(n, dtype):
    for value in [*VALUES[:2], *([complex(1, INF)] if dtype.is_complex else [])]:
        a = torch.eye(n, dtype=dtype)
        a[0, -1] = value
        agree(torch.linalg.matrix_exp, a, f"{value} in {n}")
