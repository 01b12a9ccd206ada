"""What unary operators should give, in extended precision, and inputs that look for their errors. Used by accuracy.py.

Elementary functions come from NumPy's long double, which has 64 bits of mantissa on x86 (some 2^-10 ulp of double); the
others from mpmath with 200 bits.
"""

from collections.abc import Callable
from typing import NamedTuple

import mpmath
import numpy as np
import torch
import torch.nn.functional as F
from mpmath import mp

import minitorch_backend

Long = np.longdouble
PI = Long("3.14159265358979323846264338327950288")
Real = mpmath.mpf
# Where native's results come from: the kernels that ours stand in for, which on a GPU have errors of their own.
NATIVE = "cuda" if minitorch_backend._C.backend_name() == "cuda" and torch.cuda.is_available() else "cpu"


def natively(fn: Callable[..., torch.Tensor], *arguments: torch.Tensor) -> torch.Tensor:
    return fn(*(a.to(NATIVE) for a in arguments)).cpu()


def extended(value: Real) -> Long:
    """The number rounded to the 64 bits of a long double."""
    if not mpmath.isfinite(value):
        return Long(float(value))
    sign, mantissa, exponent, bits = value._mpf_
    shift = max(bits - 64, 0)
    rounded = int((mantissa + ((1 << shift) >> 1)) >> shift)
    high, low = rounded >> 32, rounded & 0xFFFFFFFF
    number = np.ldexp(Long(high), 32) + Long(low)
    return np.ldexp(-number if sign else number, int(np.clip(exponent + shift, -30000, 30000)))


def mapped(fn: Callable[[Real], Real]) -> Callable[[np.ndarray], np.ndarray]:
    def apply(x: np.ndarray) -> np.ndarray:
        with mpmath.workprec(200):
            return np.array([extended(fn(Real(float(v)))) for v in x], dtype=Long)

    return apply


def erfc_inverse(q: Real) -> Real:
    """Newton's method on log erfc, 0 < q < 1."""
    x = Real(float(torch.special.ndtri(torch.tensor(float(q) / 2, dtype=torch.float64)))) / -mp.sqrt(2)
    for _ in range(4):
        e = mp.erfc(x)
        x += mp.log(e / q) * mp.sqrt(mp.pi) / 2 * mp.exp(x * x) * e
    return x


def erfinv(y: Real) -> Real:
    a = abs(y)
    if a >= 1 or a == 0:
        return mp.nan if a > 1 else y * mp.inf if a == 1 else y
    if a > 0.25:
        x = erfc_inverse(1 - a)
    else:
        x = a * mp.sqrt(mp.pi) / 2
        for _ in range(9):
            x -= (mp.erf(x) - a) * mp.sqrt(mp.pi) / 2 * mp.exp(x * x)
    return mp.sign(y) * x


def ndtri(p: Real) -> Real:
    if not 0 < p < 1:
        return -mp.inf if p == 0 else mp.inf if p == 1 else mp.nan
    if p < 0.3:
        return -mp.sqrt(2) * erfc_inverse(2 * p)
    return mp.sqrt(2) * erfinv(2 * p - 1)


def log_ndtr(x: Real) -> Real:
    t = x / mp.sqrt(2)
    return mp.log(mp.erfc(-t) / 2) if x < 1 else mp.log1p(-mp.erfc(t) / 2)


def gelu(x: Real) -> Real:
    return x * mp.erfc(-x / mp.sqrt(2)) / 2 if mpmath.isfinite(x) else max(x, Real(0))


def gelu_tanh(x: Real) -> Real:
    inner = mp.sqrt(2 / mp.pi) * (x + Real("0.044715") * x**3)
    return x / (1 + mp.exp(-2 * inner))


def digamma(x: Real) -> Real:
    return mp.digamma(x) if x > 0 or x != mp.floor(x) else mp.nan if x else -mp.inf


def lgamma(x: Real) -> Real:
    pole = x <= 0 and x == mp.floor(x)
    return mp.inf if pole or mpmath.isinf(x) else mp.loggamma(x).real


def trigamma(x: Real) -> Real:
    """Left of zero by reflection. Poles are left to what native gives there."""
    if x > 0:
        return mp.polygamma(1, x)
    return mp.nan if x == mp.floor(x) else (mp.pi / mp.sinpi(x)) ** 2 - mp.polygamma(1, 1 - x)


def right_of_zero(fn: Callable[[Real], Real]) -> Callable[[Real], Real]:
    return lambda x: mp.nan if x < 0 else fn(x)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20))))


def logit(x: np.ndarray) -> np.ndarray:
    inside = (x > 0.25) & (x < 0.75)
    return np.where(inside, np.log1p((2 * x - 1) / (1 - x)), np.log(x / (1 - x)))


def mish(x: np.ndarray) -> np.ndarray:
    e = np.exp(np.minimum(x, 100))
    n = e * (e + 2)
    return x * (n / (n + 2))


def selu(x: np.ndarray) -> np.ndarray:
    scale, alpha = Long("1.0507009873554804934193349852946"), Long("1.6732632423543772848170429916717")
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def xlog(log: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda a, b: np.where((a == 0) & ~np.isnan(b), 0, a * log(b))


def base2(values: np.ndarray) -> np.ndarray:
    """The larger number and what the other adds to it, in powers of two."""
    return values / np.log(Long(2))


def logaddexp(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    most, gap = np.maximum(a, b), np.abs(a - b)
    return np.where(np.isinf(most) & (a == b), a, most + np.log1p(np.exp(-gap)))


def logaddexp2(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    most, gap = np.maximum(a, b), np.abs(a - b)
    return np.where(np.isinf(most) & (a == b), a, most + base2(np.log1p(np.exp2(-gap))))


# Functions of two arguments, tried on every pair from a grid of special values.
BINARY: dict[str, tuple[Callable, Callable]] = {
    "atan2": (torch.atan2, np.arctan2),
    "copysign": (torch.copysign, np.copysign),
    "div": (torch.true_divide, lambda a, b: a / b),
    "fmax": (torch.fmax, np.fmax),
    "fmin": (torch.fmin, np.fmin),
    "fmod": (torch.fmod, np.fmod),
    "hypot": (torch.hypot, np.hypot),
    "logaddexp": (torch.logaddexp, logaddexp),
    "logaddexp2": (torch.logaddexp2, logaddexp2),
    "maximum": (torch.maximum, np.maximum),
    "minimum": (torch.minimum, np.minimum),
    "mul": (torch.mul, np.multiply),
    "pow": (torch.pow, np.power),
    "remainder": (torch.remainder, np.remainder),
    "sub": (torch.sub, np.subtract),
    "xlogy": (torch.xlogy, xlog(np.log)),
    "special.xlog1py": (torch.special.xlog1py, xlog(np.log1p)),
}


def special_pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    f = torch.finfo(dtype)
    values = [0.0, 0.1, 1 / 3, 0.5, 1.0, 1 + f.eps, 1 - f.eps / 2, 2.0, 2.5, 3.0, 4.0, 7.0, 10.0, 88.5, 100.0, 1e4]
    values += [f.max, f.max / 3, f.tiny, f.tiny / 2, f.tiny * f.eps, f.eps, 1 / f.eps, 2 / f.eps - 1, 2 / f.eps, np.inf]
    positive = torch.tensor(values, dtype=torch.float64).to(dtype)
    grid = torch.cat([positive, -positive, torch.tensor([np.nan], dtype=dtype)])
    return grid.repeat_interleave(len(grid)), grid.repeat(len(grid))


ALL = (1e-300, 1e300)


class Operator(NamedTuple):
    """The operator, its true values, and the inputs to try: positive magnitudes between the bounds, of both signs if
    `signed`, and numbers that results are sensitive near."""

    fn: Callable[[torch.Tensor], torch.Tensor]
    truth: Callable[[np.ndarray], np.ndarray]
    bounds: tuple[float, float] = ALL
    signed: bool = True
    near: tuple[float, ...] = ()


def elementary(name: str, truth: Callable[[np.ndarray], np.ndarray] | None = None, **options) -> Operator:
    return Operator(getattr(torch, name), truth or getattr(np, name), **options)


def activation(name: str, truth: Callable[[np.ndarray], np.ndarray], **options) -> Operator:
    return Operator(getattr(F, name), truth, **options)


def special(name: str, truth: Callable[[Real], Real], **options) -> Operator:
    return Operator(getattr(torch.special, name), mapped(truth), **options)


UNIT = {"bounds": (1e-300, 1.0), "near": (1.0, 0.5, -1.0, 0.9, -0.5)}
TURNS = {"near": tuple(float(k * PI / 4) for k in (1, 2, 3, 4, 5, 6, 100, 1001, 12345678))}
OPERATORS: dict[str, Operator] = {
    "acos": elementary("acos", np.arccos, **UNIT),
    "acosh": elementary("acosh", np.arccosh, bounds=(1.0, 1e300), signed=False, near=(1.0, 2.0)),
    "asin": elementary("asin", np.arcsin, **UNIT),
    "asinh": elementary("asinh", np.arcsinh, near=(1.0, 0.01)),
    "atan": elementary("atan", np.arctan, near=(1.0, 0.5, 2.0)),
    "atanh": elementary("atanh", np.arctanh, **UNIT),
    "cos": elementary("cos", **TURNS),
    "cosh": elementary("cosh", bounds=(1e-300, 709.0), near=(1.0, 22.0, 88.0, 709.7)),
    "deg2rad": elementary("deg2rad", lambda x: x * (PI / 180)),
    "erf": elementary("erf", mapped(mp.erf), bounds=(1e-300, 10.0), near=(0.5, 0.84, 1.0, 2.0, 3.5)),
    "erfc": elementary("erfc", mapped(mp.erfc), bounds=(1e-300, 27.0), near=(0.5, 0.84, 1.25, 2.0, 9.0)),
    "exp": elementary("exp", bounds=(1e-300, 745.0), near=(1.0, 88.7, -87.3, -103.0, 709.7, -708.4, -740.0)),
    "exp2": elementary("exp2", bounds=(1e-300, 1074.0), near=(1.0, 127.9, -126.5, -140.0, 1023.9, -1050.0)),
    "expm1": elementary("expm1", bounds=(1e-300, 709.0), near=(0.35, -0.35, 1.0, -1.0, 0.7, -37.0)),
    "log": elementary("log", signed=False, near=(1.0, 0.7, 1.4, 2.0)),
    "log10": elementary("log10", signed=False, near=(1.0, 10.0, 0.7, 1.4)),
    "log1p": elementary("log1p", bounds=(1e-300, 1e300), near=(-1.0, 1.0, -0.3, 0.41, -0.5)),
    "log2": elementary("log2", signed=False, near=(1.0, 2.0, 0.7, 1.4)),
    "rad2deg": elementary("rad2deg", lambda x: x * (180 / PI)),
    "reciprocal": elementary("reciprocal", lambda x: 1 / x),
    "rsqrt": elementary("rsqrt", lambda x: 1 / np.sqrt(x), signed=False),
    "sigmoid": elementary("sigmoid", lambda x: 1 / (1 + np.exp(-x)), bounds=(1e-300, 745.0), near=(1.0, -17.0, 37.0)),
    "sin": elementary("sin", **TURNS),
    "sinh": elementary("sinh", bounds=(1e-300, 709.0), near=(0.35, 1.0, 0.7, 22.0, 709.7)),
    "sqrt": elementary("sqrt", signed=False),
    "square": elementary("square"),
    "tan": elementary("tan", **TURNS),
    "tanh": elementary("tanh", bounds=(1e-300, 30.0), near=(0.2, 0.35, 0.6, 1.0, 9.0, 19.0)),
    "logit": elementary("logit", logit, bounds=(1e-300, 1.0), signed=False, near=(0.5, 1.0, 0.75)),
    "digamma": elementary(
        "digamma", mapped(digamma), bounds=(1e-10, 1e15), near=(1.4616, 1.0, 2.0, 10.0, -0.504, -3.5)
    ),
    "lgamma": elementary("lgamma", mapped(lgamma), bounds=(1e-10, 1e300), near=(1.0, 2.0, 3.0, -2.457, -3.5, 1.46)),
    "trigamma": Operator(lambda x: torch.polygamma(1, x), mapped(trigamma), (1e-10, 1e15), near=(1.0, 0.5, 10.0, -0.5)),
    "erfinv": elementary("erfinv", mapped(erfinv), **UNIT),
    "i0": elementary("i0", mapped(lambda x: mp.besseli(0, x)), bounds=(1e-10, 700.0), near=(8.0, 3.75, 25.0)),
    "special.i0e": special(
        "i0e", lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), bounds=(1e-10, 1e5), near=(8.0, 3.75, 25.0)
    ),
    "special.i1": special("i1", lambda x: mp.besseli(1, x), bounds=(1e-10, 700.0), near=(8.0, 3.75, 25.0)),
    "special.i1e": special(
        "i1e", lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), bounds=(1e-10, 1e5), near=(8.0, 3.75, 25.0)
    ),
    "special.entr": Operator(torch.special.entr, lambda x: -x * np.log(x), signed=False, near=(1.0, 0.36)),
    "special.erfcx": special(
        "erfcx", lambda x: mp.exp(x * x) * mp.erfc(x), bounds=(1e-10, 26.0), near=(0.5, -1.0, 25.0, 50.0)
    ),
    "special.log_ndtr": special("log_ndtr", log_ndtr, bounds=(1e-10, 38.0), near=(-1.0, 1.0, 0.0, 5.0, -100.0)),
    "special.ndtri": special("ndtri", ndtri, bounds=(1e-300, 1.0), signed=False, near=(0.5, 1.0, 0.1353, 0.86)),
    "special.airy_ai": special("airy_ai", mp.airyai, bounds=(1e-5, 100.0), near=(2.09, -11.5, -2.338)),
    "special.bessel_j0": special("bessel_j0", lambda x: mp.besselj(0, x), bounds=(1e-5, 1e4), near=(5.0, 2.4048)),
    "special.bessel_j1": special("bessel_j1", lambda x: mp.besselj(1, x), bounds=(1e-5, 1e4), near=(5.0, 3.8317)),
    "special.bessel_y0": special(
        "bessel_y0", right_of_zero(lambda x: mp.bessely(0, x)), bounds=(1e-5, 1e4), signed=False, near=(5.0, 0.8936)
    ),
    "special.bessel_y1": special(
        "bessel_y1", right_of_zero(lambda x: mp.bessely(1, x)), bounds=(1e-5, 1e4), signed=False, near=(5.0, 2.1971)
    ),
    "special.modified_bessel_i0": special(
        "modified_bessel_i0", lambda x: mp.besseli(0, x), bounds=(1e-10, 700.0), near=(8.0,)
    ),
    "special.modified_bessel_i1": special(
        "modified_bessel_i1", lambda x: mp.besseli(1, x), bounds=(1e-10, 700.0), near=(8.0,)
    ),
    "special.modified_bessel_k0": special(
        "modified_bessel_k0", lambda x: mp.besselk(0, x), bounds=(1e-10, 700.0), signed=False, near=(2.0,)
    ),
    "special.modified_bessel_k1": special(
        "modified_bessel_k1", lambda x: mp.besselk(1, x), bounds=(1e-10, 700.0), signed=False, near=(2.0,)
    ),
    "special.scaled_modified_bessel_k0": special(
        "scaled_modified_bessel_k0",
        lambda x: mp.besselk(0, x) * mp.exp(x),
        bounds=(1e-10, 1e5),
        signed=False,
        near=(2.0,),
    ),
    "special.scaled_modified_bessel_k1": special(
        "scaled_modified_bessel_k1",
        lambda x: mp.besselk(1, x) * mp.exp(x),
        bounds=(1e-10, 1e5),
        signed=False,
        near=(2.0,),
    ),
    "special.spherical_bessel_j0": special("spherical_bessel_j0", mp.sinc, bounds=(1e-5, 1e5), near=(0.5, 3.14159)),
    "nn.functional.celu": activation(
        "celu", lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), near=(-0.35, -1.0)
    ),
    "nn.functional.elu": activation(
        "elu", lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), near=(-0.35, -1.0)
    ),
    "nn.functional.gelu": activation("gelu", mapped(gelu), bounds=(1e-300, 38.0), near=(-1.0, -3.0, -5.5, 1.0)),
    "nn.functional.gelu, tanh": Operator(
        lambda x: F.gelu(x, approximate="tanh"), mapped(gelu_tanh), bounds=(1e-300, 30.0), near=(-1.0, -3.0, 1.0)
    ),
    "nn.functional.hardsigmoid": activation("hardsigmoid", lambda x: np.clip(x + 3, 0, 6) / 6, near=(-3.0, 3.0)),
    "nn.functional.hardswish": activation("hardswish", lambda x: x * np.clip(x + 3, 0, 6) / 6, near=(-3.0, 3.0)),
    "nn.functional.logsigmoid": activation(
        "logsigmoid",
        lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
        bounds=(1e-300, 745.0),
        near=(0.0, 37.0),
    ),
    "nn.functional.mish": activation("mish", mish, bounds=(1e-300, 745.0), near=(-1.0, 20.0, -0.5, -37.0)),
    "nn.functional.selu": activation("selu", selu, near=(-0.35, -1.0)),
    "nn.functional.silu": activation(
        "silu", lambda x: x / (1 + np.exp(-x)), bounds=(1e-300, 745.0), near=(-1.0, -88.0, -37.0)
    ),
    "nn.functional.softplus": activation("softplus", softplus, bounds=(1e-300, 745.0), near=(0.0, 20.0, -37.0)),
}


def inputs(operator: Operator, dtype: torch.dtype, count: int, seed: int = 0) -> torch.Tensor:
    """A third spread evenly over all exponents, a third over the common magnitudes, the rest close to `near`."""
    rng = np.random.default_rng(seed)
    info = torch.finfo(dtype)
    low, high = max(operator.bounds[0], info.smallest_normal), min(operator.bounds[1], info.max)
    n = count // 3
    wide = np.exp2(rng.uniform(np.log2(low), np.log2(high), n))
    common = np.exp2(rng.uniform(max(np.log2(low), -12), min(np.log2(high), 10), n))
    magnitudes = np.concatenate([wide, common])
    if operator.signed:
        magnitudes *= rng.choice([-1.0, 1.0], magnitudes.size)
    near = np.array(operator.near or (1.0,))
    close = rng.choice(near, n) * (1 + rng.choice([-1, 1], n) * np.exp2(rng.uniform(-30, -2, n)))
    return torch.from_numpy(np.concatenate([magnitudes, close])).to(dtype)


def ulp_error(result: torch.Tensor, truth: np.ndarray) -> np.ndarray:
    """In ulp of the result's type at the true value. Where truth and result are both NaN, or the truth rounds to the
    result, an infinity among them: 0. A NaN or an infinity that should not be: infinity."""
    info = torch.finfo(result.dtype)
    got = result.double().numpy()
    with np.errstate(all="ignore"):
        narrow = truth.astype(np.float32 if result.dtype == torch.float32 else np.float64)
        best = torch.from_numpy(narrow).to(result.dtype).double().numpy()
        magnitude = np.clip(np.abs(truth), Long(info.smallest_normal), Long(info.max))
        magnitude = np.where(np.isnan(magnitude), Long(1), magnitude)
        ulp = np.ldexp(Long(info.eps), np.frexp(magnitude)[1] - 1)
        error = np.abs(got.astype(Long) - truth) / ulp
    unusual = ~(np.isfinite(got) & np.isfinite(best))
    same = (got == best) | (np.isnan(got) & np.isnan(best))
    error[unusual] = np.where(same, 0.0, np.inf)[unusual]
    return error.astype(np.float64)


def measure_pairs(name: str, dtype: torch.dtype) -> tuple[float, float, float, tuple[float, float]]:
    """The largest errors, ours and native's, in ulp, and where and by how much ours lies furthest behind."""
    fn, exact = BINARY[name]
    a, b = special_pairs(dtype)
    with np.errstate(all="ignore"):
        true = exact(a.double().numpy().astype(Long), b.double().numpy().astype(Long))
    ours = ulp_error(fn(a.to("minitorch"), b.to("minitorch")).cpu(), true)
    native = ulp_error(natively(fn, a, b), true)
    behind = np.where(ours <= native, 0.0, ours - native)
    place = int(behind.argmax())
    return float(ours.max()), float(native.max()), float(behind[place]), (float(a[place]), float(b[place]))


class Errors(NamedTuple):
    """In ulp: the largest errors and the mean ones, ours and native's, and where ours lies furthest behind native's."""

    ours: float
    native: float
    ours_mean: float
    native_mean: float
    behind: float
    at: float

    @property
    def is_behind(self) -> bool:
        return self.behind > 1 and self.ours > self.native


def measure(name: str, dtype: torch.dtype, count: int, seed: int = 0) -> Errors:
    operator = OPERATORS[name]
    x = inputs(operator, dtype, count, seed)
    with np.errstate(all="ignore"):
        truth = operator.truth(x.numpy().astype(Long))
    ours = ulp_error(operator.fn(x.to("minitorch")).cpu(), truth)
    native = ulp_error(natively(operator.fn, x), truth)
    behind = np.where(ours <= native, 0.0, ours - native)
    place = int(behind.argmax())
    both = np.isfinite(ours) & np.isfinite(native)
    means = float(ours[both].mean()), float(native[both].mean())
    return Errors(float(ours.max()), float(native.max()), *means, float(behind[place]), float(x[place]))
