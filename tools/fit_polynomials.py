"""The coefficients in csrc/kernels/functors/polynomials.h, math_double_inverse.h and, of erf, error_function.h: fits in
50-digit arithmetic (needs mpmath).

Polynomials interpolate at Chebyshev nodes, which is within a small factor of the minimax error; rational functions are
linearised least squares, reweighted towards equal errors (Lawson). Each line printed: name, degrees, largest
relative error in the function computed, coefficients with the constant first.
"""

from collections.abc import Callable

from mpmath import (
    asin,
    atan,
    atanh,
    cos,
    erf,
    erfc,
    exp,
    expm1,
    log,
    log1p,
    lu_solve,
    matrix,
    mp,
    mpf,
    pi,
    polyval,
    qr_solve,
    sin,
    sqrt,
    tanh,
)

mp.dps = 50
SMALL = mpf(10) ** -20


def nodes(low: mpf, high: mpf, count: int) -> list[mpf]:
    return [(low + high) / 2 + (high - low) / 2 * cos(pi * (2 * k + 1) / (2 * count)) for k in range(count)]


def show(name: str, degrees: object, error: mpf, *coefficients: list[float]) -> None:
    print(name, degrees, f"2^{float(log(error, 2)):.1f}", *coefficients, sep="\n  ")


def polynomial(name: str, f: Callable, low: mpf, high: mpf, degree: int, weight: Callable | None = None) -> None:
    """``weight``: what an error of the polynomial contributes, relatively, to the function computed."""
    points = nodes(low, high, degree + 1)
    system = matrix([[x**j for j in range(degree + 1)] for x in points])
    c = [float(v) for v in lu_solve(system, matrix([f(x) for x in points]))]
    grid = [low + (high - low) * mpf(i) / 400 for i in range(401)]
    weight = weight or (lambda x: 1 / f(x))
    show(name, degree, max(abs((polyval([mpf(v) for v in reversed(c)], x) - f(x)) * weight(x)) for x in grid), c)


def rational(name: str, f: Callable, low: mpf, high: mpf, p_degree: int, q_degree: int) -> None:
    points = nodes(low, high, 6 * (p_degree + q_degree + 1))
    exact = [f(x) for x in points]
    scale, lawson = [mpf(1)] * len(points), [mpf(1)] * len(points)
    best = None
    for _ in range(12):
        rows, right = [], []
        for x, y, s, w in zip(points, exact, scale, lawson, strict=False):
            factor = s * w / y
            rows.append(
                [factor * x**j for j in range(p_degree + 1)] + [-factor * y * x**j for j in range(1, q_degree + 1)]
            )
            right.append(factor * y)
        c = list(qr_solve(matrix(rows), matrix(right))[0])
        p, q = c[: p_degree + 1], [mpf(1), *c[p_degree + 1 :]]
        below = [polyval(q[::-1], x) for x in points]
        errors = [abs(polyval(p[::-1], x) / b / y - 1) for x, y, b in zip(points, exact, below, strict=False)]
        scale = [1 / abs(b) for b in below]
        worst = max(errors)
        if best is None or worst < best[0]:
            best = (worst, [float(v) for v in p], [float(v) for v in q])
        lawson = [w * sqrt(e / worst + mpf("0.05")) for w, e in zip(lawson, errors, strict=False)]
        total = sum(lawson)
        lawson = [w / total * len(points) for w in lawson]
    show(name, (p_degree, q_degree), *best)


def of_square(f: Callable, at_zero: Callable) -> Callable:
    """f of the root of its argument, with its Taylor start where the quotient would cancel."""
    return lambda z: f(sqrt(z)) if z > SMALL else at_zero(z)


def scaled_erfc(t: mpf) -> mpf:
    x = 4 * (1 + t) / (1 - t)
    return exp(x * x) * erfc(x) * (1 + 2 * x)


def main() -> None:
    half_ln2, quarter_pi = log(2) / 2, (pi / 4) ** 2 * mpf("1.01")
    for degree in (5, 11):
        polynomial(
            "(expm1(r) - r) / r^2",
            lambda r: (expm1(r) - r) / r**2 if abs(r) > SMALL else mpf(1) / 2 + r / 6,
            -half_ln2,
            half_ln2,
            degree,
            lambda r: r * r / exp(r),
        )
    polynomial("2^r", lambda r: mpf(2) ** r, mpf(-1) / 2, mpf(1) / 2, 7)
    polynomial(
        "(log(1 + f) - f + f^2/2) / f^3",
        lambda f: (log1p(f) - f + f * f / 2) / f**3,
        sqrt(mpf(1) / 2) - 1,
        sqrt(mpf(2)) - 1,
        8,
        lambda f: f**3 / log1p(f),
    )
    largest = ((sqrt(2) - 1) / (sqrt(2) + 1)) ** 2
    for degree in (4, 7):
        polynomial(
            "(atanh(s)/s - 1) / s^2",
            of_square(lambda s: (atanh(s) / s - 1) / s**2, lambda z: mpf(1) / 3),
            mpf(0),
            largest,
            degree,
            lambda z: z,
        )
    for degree in (3, 6):
        polynomial(
            "(sin(r)/r - 1) / r^2",
            of_square(lambda r: (sin(r) / r - 1) / r**2, lambda z: -mpf(1) / 6),
            mpf(0),
            quarter_pi,
            degree,
            lambda z: z,
        )
    for degree in (2, 5):
        polynomial(
            "(cos(r) - 1 + r^2/2) / r^4",
            of_square(lambda r: (cos(r) - 1 + r * r / 2) / r**4, lambda z: mpf(1) / 24),
            mpf(0),
            quarter_pi,
            degree,
            lambda z: z * z,
        )
    polynomial("atan(x)/x", of_square(lambda s: atan(s) / s, lambda z: 1 - z / 3), mpf(0), mpf(1), 12)
    polynomial(
        "(asin(x)/x - 1) / x^2",
        of_square(lambda s: (asin(s) / s - 1) / s**2, lambda z: mpf(1) / 6),
        mpf(0),
        mpf(1) / 4,
        8,
        lambda z: z,
    )
    polynomial("(1 + 2x) exp(x^2) erfc(x)", scaled_erfc, mpf(-1), mpf("0.6"), 12)
    rational("erf(x)/x", of_square(lambda s: erf(s) / s, lambda z: 2 / sqrt(pi)), mpf(0), mpf("15.7"), 5, 6)
    rational("tanh(x)/x", of_square(lambda s: tanh(s) / s, lambda z: 1 - z / 3), mpf(0), mpf(83), 5, 5)
    double_precision(largest)


def double_precision(largest: mpf) -> None:
    """Those of csrc/kernels/functors/math_double_inverse.h."""
    for name, f, end, degree in (("atan", atan, mpf(7) / 16, 11), ("asin", asin, mpf(1) / 2, 13)):
        sign = -1 if f is atan else mpf(1) / 2
        polynomial(
            f"({name}(x)/x - 1) / x^2",
            of_square(lambda s, f=f: (f(s) / s - 1) / s**2, lambda z, sign=sign: sign * mpf(1) / 3),
            mpf(0),
            end**2,
            degree,
            lambda z: z,
        )
    near = of_square(lambda s: erf(s) / s - 1, lambda z: 2 / sqrt(pi) - 1)
    polynomial("erf(x)/x - 1", near, mpf(0), mpf(1), 12, lambda z: 1 / (1 + near(z)))
    polynomial(
        "((atanh(s)/s - 1) / s^2 - 1/3) / s^2",
        of_square(lambda s: ((atanh(s) / s - 1) / s**2 - mpf(1) / 3) / s**2, lambda z: mpf(1) / 5),
        mpf(0),
        largest,
        7,
        lambda z: z * z,
    )


if __name__ == "__main__":
    main()
