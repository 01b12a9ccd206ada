"""The coefficients in csrc/kernels/functors/bessel.h: Chebyshev series of scaled Bessel functions, and Airy's function
and its derivative at whole numbers. Needs mpmath (PyTorch brings it with sympy).

    python tools/fit_bessel.py
"""

import mpmath as mp

mp.mp.dps = 40


def chebyshev(f, degree=60):
    """Coefficients of f on [-1, 1], by interpolation at Chebyshev points, up to the last that matters."""
    n = degree + 1
    nodes = [mp.cos(mp.pi * (k + mp.mpf(1) / 2) / n) for k in range(n)]
    values = [f(x) for x in nodes]
    c = [
        2 / mp.mpf(n) * sum(v * mp.cos(mp.pi * j * (k + mp.mpf(1) / 2) / n) for k, v in enumerate(values))
        for j in range(n)
    ]
    c[0] /= 2
    while abs(c[-1]) < mp.mpf(2) ** -57 * abs(c[0]):
        c.pop()
    return c


def show(name, values):
    print(f"constexpr double {name}[] = {{{', '.join(repr(float(v)) for v in values)}}};")


def above(f, start):
    """f as a function of t = 2 start / x - 1 on [-1, 1], for x >= start."""
    return lambda t: f(2 * start / (t + 1)) if t > -1 else f(mp.mpf(10) ** 30)


def scaled_k(order):
    return lambda x: mp.besselk(order, x) * mp.exp(x) * mp.sqrt(x)


show("large_k0", chebyshev(above(scaled_k(0), mp.mpf(1))))
show("large_k1", chebyshev(above(scaled_k(1), mp.mpf(1))))


def airy_tail(zeta):
    x = (mp.mpf(3) / 2 * zeta) ** (mp.mpf(2) / 3)
    return mp.airyai(x) * mp.exp(zeta) * mp.sqrt(mp.sqrt(x))


show("airy_tail", chebyshev(above(airy_tail, mp.mpf(2))))
show("airy_value", [mp.airyai(k) for k in range(-11, 3)])
show("airy_slope", [mp.airyai(k, derivative=1) for k in range(-11, 3)])
