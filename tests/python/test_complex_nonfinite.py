"""Complex numbers of which a part is zero, infinite or NaN: which parts of a result are NaN or infinite is native's."""

import pytest
import torch

from tests.python.twin import DEVICE, NATIVE

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
    **{f"pow {p}": lambda z, p=p: z**p for p in (2, 3, 0.5, -1, 1.5)},
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


def kinds(tensor):
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return torch.where(tensor.isnan(), 3, torch.where(tensor == INF, 1, torch.where(tensor == -INF, 2, 0)))


def agree(function, *args):
    native, ours = (function(*(a.to(device) for a in args)).cpu() for device in (NATIVE, DEVICE))
    wrong = kinds(ours) != kinds(native)
    while wrong.dim() > args[0].dim():
        wrong = wrong.any(-1)
    assert not wrong.any(), [(*(a[wrong][0] for a in args), native[wrong][0], ours[wrong][0])]


def numbers(dtype):
    return torch.tensor([complex(a, b) for a in PARTS for b in PARTS], dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_one_number(name, dtype):
    agree(UNARY[name], numbers(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_two_numbers(name, dtype):
    z = numbers(dtype)
    agree(lambda a, b: BINARY[name](a, b).reshape(-1, len(a)).t(), z.repeat_interleave(len(z)), z.repeat(len(z)))
