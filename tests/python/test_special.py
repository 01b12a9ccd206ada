"""Bessel functions, Airy's, and orthogonal polynomials: accuracy against 30-digit arithmetic, and native's conventions."""

import itertools

import mpmath as mp
import pytest
import torch

from tests.python.layouts import arrange
from tests.python.twin import DEVICE, check, check_error

special = torch.special


def reference(function, x):
    with mp.workdps(30):
        return torch.tensor([float(function(mp.mpf(v))) for v in x.tolist()], dtype=torch.float64)


EVERYWHERE = torch.cat([torch.linspace(-30, 30, 241, dtype=torch.float64), torch.tensor([1e-8, -1e-3, 117.0, 500.0])])
POSITIVE = EVERYWHERE[EVERYWHERE > 0]
FUNCTIONS = {  # name: exact value, arguments
    "bessel_j0": (lambda x: mp.besselj(0, x), EVERYWHERE),
    "bessel_j1": (lambda x: mp.besselj(1, x), EVERYWHERE),
    "bessel_y0": (lambda x: mp.bessely(0, x), POSITIVE),
    "bessel_y1": (lambda x: mp.bessely(1, x), POSITIVE),
    "modified_bessel_i0": (lambda x: mp.besseli(0, x), EVERYWHERE[EVERYWHERE < 80]),
    "modified_bessel_i1": (lambda x: mp.besseli(1, x), EVERYWHERE[EVERYWHERE < 80]),
    "modified_bessel_k0": (lambda x: mp.besselk(0, x), POSITIVE),
    "modified_bessel_k1": (lambda x: mp.besselk(1, x), POSITIVE),
    "scaled_modified_bessel_k0": (lambda x: mp.besselk(0, x) * mp.exp(x), POSITIVE),
    "scaled_modified_bessel_k1": (lambda x: mp.besselk(1, x) * mp.exp(x), POSITIVE),
    "airy_ai": (mp.airyai, EVERYWHERE[EVERYWHERE < 100]),
    "spherical_bessel_j0": (mp.sinc, EVERYWHERE),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_accuracy(name):
    exact, x = FUNCTIONS[name]
    op = getattr(special, name)
    truth = reference(exact, x)
    torch.testing.assert_close(op(x.to(DEVICE)).cpu(), truth, rtol=2e-13, atol=2e-14)
    single = x.float()
    truth = reference(exact, single.double())
    torch.testing.assert_close(op(single.to(DEVICE)).cpu().double(), truth, rtol=1.2e-7, atol=1e-37)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_edges_and_layouts(name):
    """At zero, below the domain, and for NaN as native; in any layout."""
    op = getattr(special, name)
    check(op, torch.tensor([0.0, float("nan")]), rtol=1e-6, atol=1e-6)
    if "_k" in name or "_y" in name:
        check(op, torch.tensor([-1.0, -1e-30]))
    for layout in ("transposed", "sliced", "expanded"):
        check(op, arrange(torch.rand(6, 7) + 0.1, layout), rtol=1e-5, atol=1e-6)


POLYNOMIALS = {  # name: p_1(x), p_(k+1) from k, x, p_k and p_(k-1)
    "chebyshev_polynomial_t": (lambda x: x, lambda k, x, q, p: 2 * x * q - p),
    "chebyshev_polynomial_u": (lambda x: 2 * x, lambda k, x, q, p: 2 * x * q - p),
    "chebyshev_polynomial_v": (lambda x: 2 * x - 1, lambda k, x, q, p: 2 * x * q - p),
    "chebyshev_polynomial_w": (lambda x: 2 * x + 1, lambda k, x, q, p: 2 * x * q - p),
    "hermite_polynomial_h": (lambda x: 2 * x, lambda k, x, q, p: 2 * x * q - 2 * k * p),
    "hermite_polynomial_he": (lambda x: x, lambda k, x, q, p: x * q - k * p),
    "laguerre_polynomial_l": (lambda x: 1 - x, lambda k, x, q, p: ((2 * k + 1 - x) * q - k * p) / (k + 1)),
    "legendre_polynomial_p": (lambda x: x, lambda k, x, q, p: ((2 * k + 1) * x * q - k * p) / (k + 1)),
}
SHIFTED = [f"shifted_{name}" for name in POLYNOMIALS if name.startswith("chebyshev")]


def polynomial(name, n, x):
    if name.startswith("shifted_"):
        return polynomial(name.removeprefix("shifted_"), n, 2 * x - 1)
    first, following = POLYNOMIALS[name]
    p, q = mp.mpf(1), first(x)
    for k in range(1, n):
        p, q = q, following(k, x, q, p)
    return p if n == 0 else q


@pytest.mark.parametrize("name", [*POLYNOMIALS, *SHIFTED])
def test_polynomials(name):
    op = getattr(special, name)
    x = torch.tensor([-2.5, -1.0, -0.71, -0.2, 0.0, 0.3, 0.5, 0.97, 1.0, 1.7], dtype=torch.float64)
    for n in (0, 1, 2, 5, 9, 14):
        truth = reference(lambda v, n=n: polynomial(name, n, v), x)
        torch.testing.assert_close(op(x.to(DEVICE), n).cpu(), truth, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", [*POLYNOMIALS, *SHIFTED])
def test_polynomial_conventions(name):
    op = getattr(special, name)
    x = torch.tensor([-1.5, -1.0, -0.3, 0.0, 0.5, 0.9, 1.0, 2.0], dtype=torch.float64)
    n = torch.tensor([-3.0, 0.0, 1.0, 2.0, 6.0, 7.0, 8.0, 9.0, 12.0, 2.9], dtype=torch.float64)
    check(lambda x, n: op(x[:, None], n), x, n, rtol=1e-10, atol=1e-10)
    check(lambda x: op(x, 4), x, rtol=1e-10, atol=1e-10)
    check(lambda n: op(0.5, n), n, rtol=1e-10, atol=1e-10)
    check(lambda x, n: op(x[:, None], n), x.float(), n.float(), rtol=1e-4, atol=1e-4)
    check(lambda x, n: op(x[:4].long(), n[:4].long()), x, n)


def test_high_hermite_orders():
    for op, dtype in itertools.product(
        (special.hermite_polynomial_h, special.hermite_polynomial_he), (torch.float32, torch.float64)
    ):
        check(lambda x, op=op: op(x, 600), torch.ones(3, dtype=dtype))


def test_trigamma_at_its_poles():
    for dtype in (torch.float32, torch.float64, torch.int8):
        check(lambda x: torch.polygamma(1, x), torch.tensor([0, -1, -2, -3, -7]).to(dtype), rtol=1e-5, atol=0)


def test_errors():
    check_error(special.bessel_j0, torch.ones(2, dtype=torch.complex64), text=False)
    check_error(lambda x: special.bessel_j0(x, out=torch.empty(2, dtype=torch.int64, device=x.device)), torch.ones(2))
