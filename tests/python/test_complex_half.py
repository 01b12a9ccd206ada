"""complex32: what native CPU computes of it is computed, and what it refuses is refused in its words."""

import pytest
import torch

from tests.python.twin import ASYNCHRONOUS, DEVICE, assert_same_error, error_of

pytestmark = pytest.mark.skipif(ASYNCHRONOUS, reason="native CUDA computes more")
UNARY = [
    "abs", "acos", "acosh", "angle", "asin", "asinh", "atan", "atanh", "conj_physical",
    "cos", "cosh", "exp", "exp2", "expm1", "log", "log10", "log1p", "log2",
    "neg", "reciprocal", "rsqrt", "sgn", "sigmoid", "sin", "sinc", "sinh", "sqrt",
    "square", "tan", "tanh", "isnan", "isfinite", "logical_not", "real", "imag", "sum",
    "mean", "prod", "any", "all", "trace", "count_nonzero", "norm",
]  # fmt: skip
BINARY = {
    **{
        name: getattr(torch, name)
        for name in ("add", "sub", "mul", "div", "pow", "eq", "ne", "logaddexp", "logical_and", "equal", "mm")
    },
    "addcmul": lambda x, y: torch.addcmul(x, x, y),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y),
    "lerp": lambda x, y: torch.lerp(x, y, 0.5),
    "addr": lambda x, y: torch.addr(x, x[0], y[0]),
    "cumsum": lambda x, y: x.cumsum(0),
    "cumprod": lambda x, y: x.cumprod(0),
    "logcumsumexp": lambda x, y: x.logcumsumexp(0),
    "by a number": lambda x, y: x / 2,
    "with complex64": lambda x, y: x / y.to(torch.complex64),
    "sum in complex64": lambda x, y: x.sum(dtype=torch.complex64),
    "exp_": lambda x, y: x.clone().exp_(),
}


def operand(seed):
    torch.manual_seed(seed)
    return torch.complex(torch.randn(3, 3), torch.randn(3, 3)).to(torch.complex32)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_computed_or_refused_as_native_does(name):
    x, y = operand(0), operand(1)
    fn = BINARY.get(name) or (lambda x, y: getattr(torch, name)(x))
    error, ours_error = error_of(fn, x, y), error_of(fn, x.to(DEVICE), y.to(DEVICE))
    if error is not None:
        assert_same_error(ours_error, error)
        return
    assert ours_error is None, ours_error
    native, ours = fn(x, y), fn(x.to(DEVICE), y.to(DEVICE))
    if isinstance(native, torch.Tensor):
        torch.testing.assert_close(ours.cpu(), native, rtol=1e-2, atol=1e-2)
    else:
        assert ours == native
