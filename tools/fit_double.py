"""The coefficients in csrc/kernels/functors/error_function.h and special_double.h, by the methods of fit_polynomials.py
(needs mpmath)."""

from collections.abc import Callable

from fit_polynomials import SMALL, nodes, polynomial
from fit_special import erfinv_quotient, scaled_bessel, scaled_erfc
from mpmath import erf, factorial, log, lu_solve, matrix, mpf, pi, polyval, sqrt


def erf_rest(z: mpf) -> mpf:
    """(erf(x) / x - 2 / sqrt(pi)) / x^2 for x = sqrt(z)."""
    x = sqrt(z)
    return (erf(x) / x - 2 / sqrt(pi)) / z if z > SMALL else -2 / (3 * sqrt(pi))


def show_pair(name: str, value: mpf) -> None:
    print(name, float(value), float(value - mpf(float(value))))


def extended(name: str, f: Callable, low: mpf, high: mpf, degree: int) -> None:
    """A polynomial whose constant coefficient has a second part, printed behind the error."""
    points = nodes(low, high, degree + 1)
    c = lu_solve(matrix([[x**j for j in range(degree + 1)] for x in points]), matrix([f(x) for x in points]))
    rounded = [c[0], *(mpf(float(v)) for v in c[1:])]
    grid = [low + (high - low) * mpf(i) / 400 for i in range(401)]
    error = max(abs(polyval(rounded[::-1], x) / f(x) - 1) for x in grid)
    rest = float(c[0] - mpf(float(c[0])))
    print(name, degree, f"2^{float(log(error, 2)):.1f}", rest, [float(v) for v in c], sep="\n  ")


def main() -> None:
    low = (mpf("0.47") - 4) / (mpf("0.47") + 4)
    extended("(1 + 2x) exp(x^2) erfc(x), x > 0.47", scaled_erfc, low, mpf(1), 23)
    polynomial("(erf(x) / x - 2 / sqrt(pi)) / x^2", erf_rest, mpf(0), mpf("0.2501"), 8, lambda z: z * sqrt(pi) / 2)
    show_pair("2 / sqrt(pi)", 2 / sqrt(pi))
    show_pair("sqrt(2 / pi)", sqrt(2 / pi))
    polynomial("ndtri, farthest", lambda t: erfinv_quotient((t + 18) ** 2), mpf("-8.2"), mpf("9.5"), 12)
    for order in (0, 1):
        print(f"I{order}, in (x / 2)^2", [float(1 / (factorial(k) * factorial(k + order))) for k in range(28)])
        name = f"sqrt(x) exp(-x) I{order}(x), x > 8"
        for degree in (22, 24, 26, 28):
            extended(name, lambda t, order=order: scaled_bessel(order, (1 + t) / 2), mpf(-1), mpf(1), degree)


if __name__ == "__main__":
    main()
