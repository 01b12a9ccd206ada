"""The coefficients in csrc/kernels/functors/special_single.h and those of GELU in activation.h, by the methods of
fit_polynomials.py (needs mpmath)."""

import mpmath
from fit_polynomials import SMALL, polynomial, rational
from mpmath import besseli, digamma, erfc, exp, expm1, findroot, log, loggamma, mpf, pi, polygamma, sqrt

TINY = mpf(10) ** -6
HALF = mpf(1) / 2


def erfinv_quotient(w: mpf) -> mpf:
    """erfinv(y) / y where w = -log(1 - y^2)."""
    if w < SMALL:
        return sqrt(pi) / 2
    y = sqrt(-expm1(-w))
    tail = exp(-w) / (1 + y)  # 1 - y
    if tail > mpf("1e-3"):
        return mpmath.erfinv(y) / y
    x = sqrt(-log(tail) - log(-pi * log(tail)) / 2)
    for _ in range(60):  # Newton's method on log erfc
        e = erfc(x)
        step = log(e / tail) * e * sqrt(pi) / 2 * exp(x * x)
        x += step
        if abs(step) < mpf(10) ** -40:
            break
    return x / y


def scaled_erfc(t: mpf) -> mpf:
    if t > 1 - SMALL:
        return 2 / sqrt(pi)
    x = 4 * (1 + t) / (1 - t)
    if x < 1000:
        return exp(x * x) * erfc(x) * (1 + 2 * x)
    total, term, z = mpf(0), mpf(1), 1 / (2 * x * x)
    for k in range(20):  # its asymptotic series
        total += term
        term *= -(2 * k + 1) * z
    return total / sqrt(pi) / x * (1 + 2 * x)


def scaled_bessel(order: int, u: mpf) -> mpf:
    """sqrt(x) exp(-x) I(x) for x = 8 / u."""
    if u > mpf("0.01"):
        return sqrt(8 / u) * besseli(order, 8 / u) * exp(-8 / u)
    total, term = mpf(1), mpf(1)
    for k in range(1, 24):  # its asymptotic series
        term *= -(4 * order * order - (2 * k - 1) ** 2) * u / (64 * k)
        total += term
    return total / sqrt(2 * pi)


def lgamma_middle(t: mpf) -> mpf:
    y = t + 3 * HALF
    if min(abs(y - 1), abs(y - 2)) < SMALL:
        y += mpf(10) ** -18
    return loggamma(y) / ((y - 1) * (y - 2))


def stirling(z: mpf) -> mpf:
    if z < TINY:
        return mpf(1) / 12 - z / 360 + z * z / 1260 - z**3 / 1680
    x = 1 / sqrt(z)
    return (loggamma(x) - ((x - HALF) * log(x) - x + log(2 * pi) / 2)) * x


def digamma_asymptotic(z: mpf) -> mpf:
    if z < TINY:
        return mpf(1) / 12 - z / 120 + z * z / 252 - z**3 / 240
    x = 1 / sqrt(z)
    return (log(x) - 1 / (2 * x) - digamma(x)) * x * x


def main() -> None:
    polynomial("erfinv, inner", lambda t: erfinv_quotient(t + 5 * HALF), -5 * HALF, 5 * HALF, 12)
    polynomial("erfinv, outer", lambda t: erfinv_quotient((t + 3) ** 2), sqrt(mpf(5)) - 3, mpf("1.05"), 11)
    polynomial("ndtri, far", lambda t: erfinv_quotient((t + 7) ** 2), mpf(-3), mpf("3.3"), 12)
    polynomial("(1 + 2x) exp(x^2) erfc(x)", scaled_erfc, mpf(-1), mpf(1), 14)
    rational("exp(-x) I0(x)", lambda a: besseli(0, a) * exp(-a), mpf(0), mpf(8), 6, 7)
    rational(
        "exp(-x) I1(x) / x",
        lambda a: besseli(1, a) * exp(-a) / a if a > SMALL else HALF,
        mpf(0),
        mpf(8),
        6,
        7,
    )
    for order in (0, 1):
        name = f"sqrt(x) exp(-x) I{order}(x)"
        polynomial(name, lambda u, order=order: scaled_bessel(order, u), mpf(0), mpf(1), 7)
    polynomial("lgamma(y) / ((y - 1)(y - 2))", lgamma_middle, -HALF, HALF, 20)
    polynomial("lgamma, Stirling's correction", stirling, mpf(0), mpf(1) / 9, 10, sqrt)
    zero = findroot(digamma, mpf("1.4616321449683623"))
    print("zero of digamma", float(zero), float(zero - mpf(float(zero))))
    polynomial(
        "digamma(y) / (y - zero)",
        lambda t: (
            digamma(t + 3 * HALF) / (t + 3 * HALF - zero)
            if abs(t + 3 * HALF - zero) > mpf(10) ** -12
            else polygamma(1, zero)
        ),
        -HALF,
        HALF,
        20,
    )
    for most, degree in ((6, 6), (mpf("14.25"), 8)):  # GELU of float16 and bfloat16, activation.h
        middle = mpf(most) / 2
        polynomial(
            f"log2(erfc(a / sqrt(2)) / 2) in a - {middle}",
            lambda t, middle=middle: log(erfc((t + middle) / sqrt(2)) / 2, 2),
            -middle,
            middle,
            degree,
            lambda t: log(2),
        )
    polynomial("2^f", lambda f: 2**f, -HALF, HALF, 4)
    polynomial("digamma, asymptotic", digamma_asymptotic, mpf(0), mpf(1) / 9, 10, lambda z: z)


if __name__ == "__main__":
    main()
