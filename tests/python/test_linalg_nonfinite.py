"""Factorisations of matrices with a NaN or an infinity: LAPACK refuses some and gives NaN for others, here as there."""

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
        if "j" in what:
            continue  # how large native takes a number to be of which a part is infinite depends on its position
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
