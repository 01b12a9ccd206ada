"""Complex numbers of which a part is zero, infinite or NaN: which parts of a result are NaN or infinite is native's."""

import pytest
import torch

from tests.python.twin import ASYNCHRONOUS, DEVICE, NATIVE

# What C leaves open, as the sign of an infinity beside a NaN, differs between native's own two devices.
pytestmark = pytest.mark.skipif(NATIVE is None, reason="this torch has no CUDA to compare with")
INF, NAN = float("inf"), float("nan")
PARTS = [0.0, -0.0, 1.5, -2.0, INF, -INF, NAN]
DTYPES = [torch.complex64, torch.complex128]
FUNCTIONS = [
    *(torch.abs, torch.angle, torch.sqrt, torch.rsqrt, torch.reciprocal, torch.exp, torch.exp2),
    *(torch.expm1, torch.log, torch.log2, torch.log10, torch.log1p, torch.sin, torch.cos),
    *(torch.tan, torch.sinh, torch.cosh, torch.tanh, torch.asin, torch.acos, torch.atan),
    *(torch.asinh, torch.acosh, torch.atanh, torch.sigmoid, torch.square, torch.sgn, torch.isnan),
    *(torch.isinf, torch.isfinite),
]
UNARY = {
    **{function.__name__: function for function in FUNCTIONS},
    "tanhshrink": torch.nn.functional.tanhshrink,
    **{f"pow {p}": lambda z, p=p: z**p for p in (2, 3, 0.5, -1, 1.5, -2, -3, 0, 4, -0.5, complex(-2), complex(0.5))},
    **{f"float_power {p}": lambda z, p=p: torch.float_power(z, p) for p in (2, 0.5, -1, -2, -0.5)},
    **{f"foreach pow {p}": lambda z, p=p: torch._foreach_pow([z], p)[0] for p in (2, -2, 3)},
    **{f"times {s}": lambda z, s=s: z * s for s in (2, 0, INF, complex(1, 2), complex(0, INF))},
    **{f"by {s}": lambda z, s=s: z / s for s in (2, -0.0, INF, complex(1, 2), complex(-0.0, 0.0))},
    **{f"{s} minus": lambda z, s=s: s - z for s in (2, INF, complex(1, 2))},
}
BINARY = {
    "add": torch.add,
    "add twice": lambda a, b: torch.add(a, b, alpha=2),
    "add in place": lambda a, b: a.clone().add_(b),
    "foreach add": lambda a, b: torch._foreach_add([a], [b])[0],
    "sub": torch.sub,
    "rsub": torch.rsub,
    "mul": torch.mul,
    "div": torch.div,
    "divide by real parts": lambda a, b: a / b.real,
    "divide real parts": lambda a, b: a.real / b,
    "addcmul": lambda a, b: torch.addcmul(torch.ones_like(a), a, b, value=2),
    "addcdiv": lambda a, b: torch.addcdiv(torch.ones_like(a), a, b),
    "diff": lambda a, b: torch.stack([a, b]).diff(dim=0),
    "cumsum": lambda a, b: torch.stack([a, b]).cumsum(0),
    "cumprod": lambda a, b: torch.stack([a, b]).cumprod(0),
}


# Where we place a NaN or an infinity as native's CPU does, or as libcu++, and native's CUDA does otherwise.
RUN_TIME = "native's CUDA compiles it at run time with LLVM's complex numbers, whose products and quotients recover"
OTHERWISE_ON_CUDA = {
    **dict.fromkeys(["asin", "acos", "log1p"], "signs beside a NaN are LLVM's there, libcu++'s here"),
    **dict.fromkeys(["sigmoid", "rsqrt", "addcmul", "addcdiv"], RUN_TIME),
    **{f"pow {p}": RUN_TIME for p in (3, 4, -2, -3, 1.5, -0.5, complex(-2), complex(0.5))},
    **{f"float_power {p}": RUN_TIME for p in (0.5, -1, -2, -0.5)},
    **{f"foreach pow {p}": RUN_TIME for p in (2, -2, 3)},
    **dict.fromkeys(["by -0.0", "by (-0+0j)"], "native's CUDA multiplies by the reciprocal of a number"),
    "cumprod": "a scan begins with a factor of one here",
}


def named(table):
    on_cuda = OTHERWISE_ON_CUDA if ASYNCHRONOUS else {}
    xfail = {name: pytest.mark.xfail(strict=True, reason=on_cuda[name]) for name in table if name in on_cuda}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=xfail.get(name, ())) for name in table])


def kinds(tensor):
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return torch.where(tensor.isnan(), 3, torch.where(tensor == INF, 1, torch.where(tensor == -INF, 2, 0)))


def agree(function, *args):
    native, ours = (function(*(a.to(device) for a in args)).cpu() for device in (NATIVE, DEVICE))
    wrong = kinds(ours) != kinds(native)
    while wrong.dim() > args[0].dim():
        wrong = wrong.any(-1)
    rows = wrong.reshape(len(native), -1).any(1)
    assert not rows.any(), [(*(a[rows][0] for a in args), native[rows][0], ours[rows][0])]


def numbers(dtype):
    return torch.tensor([complex(a, b) for a in PARTS for b in PARTS], dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@named(UNARY)
def test_one_number(name, dtype):
    agree(UNARY[name], numbers(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@named(BINARY)
def test_two_numbers(name, dtype):
    z = numbers(dtype)
    agree(lambda a, b: BINARY[name](a, b).reshape(-1, len(a)).t(), z.repeat_interleave(len(z)), z.repeat(len(z)))


PRODUCTS = {
    "dot": lambda a, b: torch.stack([torch.dot(x, y) for x, y in zip(a, b, strict=True)]),
    "vdot": lambda a, b: torch.stack([torch.vdot(x, y) for x, y in zip(a, b, strict=True)]),
    "bmm": lambda a, b: torch.bmm(a.unsqueeze(1), b.unsqueeze(2)).flatten(1),
    "bmm of conjugates": lambda a, b: torch.bmm(a.conj().unsqueeze(1), b.unsqueeze(2)).flatten(1),
    "outer products": lambda a, b: torch.bmm(a.unsqueeze(2), b.unsqueeze(1)).flatten(1),
    "prod": lambda a, b: torch.cat([a, b], 1).prod(1),
    "prod of all": lambda a, b: torch.stack([x.prod() for x in torch.cat([a, b], 1)]),
}


@pytest.mark.skipif(ASYNCHRONOUS, reason="the order of sums and products is that of native's CPU")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "k"), [(n, k) for n in PRODUCTS for k in (1, 2, 3, 8) if k > 1 or "dot" not in n])
def test_products(name, k, dtype):
    """Of ones, among them one number on either side."""
    z = numbers(dtype)
    a, b = torch.ones(2, len(z) ** 2, k, dtype=dtype)
    a[:, k // 2], b[:, k // 2] = z.repeat_interleave(len(z)), z.repeat(len(z))
    agree(PRODUCTS[name], a, b)


@pytest.mark.skipif(ASYNCHRONOUS, reason="what is compared are the steps of native's CPU library")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 8, 11, 13])
@pytest.mark.parametrize("name", ["fft", "ifft"])
def test_transforms(name, n, dtype):
    """Where a root of one is a power of i, a NaN or an infinity stays in its part of the number."""
    z = numbers(dtype)
    for i in {0, 1, n // 2, n - 1}:
        x = torch.ones(len(z), n, dtype=dtype)
        x[:, i] = z
        agree(getattr(torch.fft, name), x)
