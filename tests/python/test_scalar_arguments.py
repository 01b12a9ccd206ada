"""Numbers as arguments: beyond the range of the tensors' dtype, or of another kind, as on native CPU."""

import pytest
import torch
import torch.nn.functional as F

from tests.python.twin import ASYNCHRONOUS, check, check_error, error_of

OPERATORS = {
    "linspace": lambda x, s: torch.linspace(0, s, 3, dtype=x.dtype, device=x.device),
    "logspace": lambda x, s: torch.logspace(0, s, 3, dtype=x.dtype, device=x.device),
    "full": lambda x, s: torch.full((2,), s, dtype=x.dtype, device=x.device),
    "scalar_tensor": lambda x, s: torch.scalar_tensor(s, dtype=x.dtype, device=x.device),
    "fill_": lambda x, s: x.fill_(s),
    "fill_ of one": lambda x, s: x[:1].fill_(s),
    "masked_fill": lambda x, s: x.masked_fill(x == x, s),
    "index_fill": lambda x, s: x.index_fill(0, torch.zeros(1, dtype=torch.long, device=x.device), s),
    "scatter": lambda x, s: x.scatter(0, torch.zeros(1, dtype=torch.long, device=x.device), s),
    "scatter's sum": lambda x, s: x.scatter(0, torch.zeros(1, dtype=torch.long, device=x.device), s, reduce="add"),
    "set an item": lambda x, s: x.__setitem__(0, s),
    "set items": lambda x, s: x.__setitem__([0, 1], s),
    "where": lambda x, s: torch.where(x == x, x, s),
    "add": lambda x, s: x.add(x, alpha=s),
    "sub": lambda x, s: x.sub(x, alpha=s),
    "clamp": lambda x, s: x.clamp(s),
    "clamp_max": lambda x, s: x.clamp_max(s),
    "clamp both": lambda x, s: x.clamp(0, s),
    "addcmul": lambda x, s: torch.addcmul(x, x, x, value=s),
    "addcdiv": lambda x, s: torch.addcdiv(x, x, x, value=s),
    "lerp": lambda x, s: torch.lerp(x, x, s),
    "pow": lambda x, s: x.pow(s),
    "addmm": lambda x, s: torch.addmm(x[:1], x[:, None], x[None], alpha=s),
    "addmv": lambda x, s: torch.addmv(x, x[:, None], x[:1], alpha=s),
    "addr": lambda x, s: torch.addr(x[None], x, x, alpha=s),
    "threshold": lambda x, s: F.threshold(x, s, 0),
    "threshold's value": lambda x, s: F.threshold(x, 0, s),
    "hardshrink": lambda x, s: F.hardshrink(x, s),
    "leaky_relu": lambda x, s: F.leaky_relu(x, s),
    "elu": lambda x, s: F.elu(x, s),
    "softplus": lambda x, s: F.softplus(x, s),
    "logit": lambda x, s: x.logit(s),
    "_foreach_lerp": lambda x, s: torch._foreach_lerp([x], [x], s),
    "_foreach_addcmul": lambda x, s: torch._foreach_addcmul([x], [x], [x], s),
}
EXACT = {
    "full",
    "scalar_tensor",
    "fill_",
    "fill_ of one",
    "masked_fill",
    "index_fill",
    "scatter",
    "set an item",
    "where",
}
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.bool]
DTYPES += [torch.complex64, torch.float8_e5m2]


@pytest.mark.skipif(ASYNCHRONOUS, reason="native CUDA computes with other types")
@pytest.mark.parametrize("number", [1e39, 1e6, 300, -1, 2**40, 2j, True], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_numbers_that_the_dtype_cannot_hold(name, number):
    for dtype in DTYPES:
        x = torch.tensor([1, 0, 1]).to(dtype)
        error = error_of(OPERATORS[name], x.clone(), number)
        if error is None:
            # Of infinities and zeros: which are multiplied first is another question.
            if not (dtype.is_floating_point or dtype.is_complex) or name in EXACT:
                check(lambda t: OPERATORS[name](t, number), x, exact=name in EXACT)
        elif not isinstance(error, NotImplementedError):
            check_error(lambda t: OPERATORS[name](t, number), x)


def test_one_element_of_a_narrow_float_becomes_infinite():
    if ASYNCHRONOUS:
        pytest.skip("native CUDA refuses")
    for dtype in (torch.float16, torch.bfloat16, torch.float8_e5m2, torch.float8_e4m3fn):
        x = torch.zeros(3).to(dtype)
        check(lambda t: t.__setitem__(1, -1e39), x)
        check(lambda t: t[:1].fill_(1e39).float(), x)
        check_error(lambda t: t[:2].fill_(1e39), x)
        check_error(lambda t: t[:1].fill_(1e39j), x)


@pytest.mark.parametrize("number", [2j, 0.5, 0j, float("nan"), 256], ids=str)
def test_numbers_become_bools(number):
    x = torch.zeros(3, dtype=torch.bool)
    check(lambda t: t.fill_(number), x)
    check(lambda t: t.masked_fill(~t, number), x)
    check(lambda t: t.masked_fill(~t, torch.tensor(number)), x)
    check(lambda t: t.scatter(0, torch.zeros(1, dtype=torch.long, device=t.device), number), x)
    check(lambda t: t.__setitem__(slice(1, None), number), x)
    check(lambda t: torch.full((2,), number, dtype=t.dtype, device=t.device), x)


@pytest.mark.skipif(ASYNCHRONOUS, reason="on a GPU integers divided by zero are all ones")
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32], ids=str)
@pytest.mark.parametrize(
    "divide", ["fmod", "remainder", "floor_divide", "__floordiv__", "__mod__", "fmod_", "floor_divide_"]
)
def test_divisors_that_become_zero_are_refused(divide, dtype):
    """256 is zero as an int8: the division would end the process."""
    x = torch.tensor([5, 0, 7, 1] * 5).to(dtype)
    number = 2**40
    check_error(lambda t: getattr(t, divide)(number), x)
    check(lambda t: getattr(t, divide)(number + 1), x)
    if not divide.startswith("__"):
        wide = torch.full((20,), number + 3)
        wide[7] = number
        check_error(lambda t: getattr(t, divide)(torch.tensor(number, device=t.device)), x)
        if divide.endswith("_"):
            check_error(
                lambda t, u: getattr(t, divide)(u),
                x,
                torch.ones(20, dtype=torch.long).index_fill(0, torch.tensor(3), 0),
            )
            check(lambda t, u: getattr(t, divide)(u), x, wide)
            check(lambda t, u: getattr(t, divide)(u), x[::2], wide[::2])


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.uint8, torch.bool, torch.float32, torch.bfloat16, torch.complex64], ids=str
)
@pytest.mark.parametrize("alpha", [1.5, -2.7, 0.4, True, 3, 2j, 1e39], ids=str)
def test_a_fraction_of_an_index_add_is_cut_for_integers(alpha, dtype):
    if ASYNCHRONOUS and alpha == 1e39:
        pytest.skip("native CUDA computes with other types")
    x, source = torch.tensor([[1, 0, 3], [0, 5, 6]]).to(dtype), torch.tensor([[7, 1], [0, 2]]).to(dtype)

    def add(t, u):
        return t.index_add(-1, torch.tensor([2, 0], device=t.device), u, alpha=alpha)

    for a, b in ((x, source), (x[0], source[0])):
        if error_of(add, a, b) is None:
            check(add, a, b, exact=not (dtype.is_floating_point or dtype.is_complex))
        else:
            check_error(add, a, b)


def test_sums_of_lists_refuse_a_bool_alpha():
    x = torch.ones(3)
    check_error(lambda t: torch._foreach_add([t], [t], alpha=True), x)
    check_error(lambda t: torch._foreach_sub_([t], [t.clone()], alpha=True), x)


@pytest.mark.skipif(ASYNCHRONOUS, reason="native CUDA computes with other types")
@pytest.mark.parametrize("dtype", [torch.uint16, torch.int8, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize("name", ["elu", "leaky_relu", "softplus", "lerp", "logspace", "linspace", "addr", "threshold"])
def test_a_dtype_without_the_operator_is_said_first(name, dtype):
    x = torch.tensor([1, 0, 1]).to(dtype)
    for number in (2, 1e39):
        if isinstance(error_of(OPERATORS[name], x, number), NotImplementedError):
            check_error(lambda t: OPERATORS[name](t, number), x)
