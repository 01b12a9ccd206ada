"""Planted faults: each variant of a row finds what it is there for.

An OpInfo whose function is right on native CPU and wrong on the device must fail, and for the fault's own reason.
"""

import copy
from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._python_dispatch import _get_current_dispatch_mode

from tests.conformance import calls, compare
from tests.conformance.checks import applies, run_row
from tests.conformance.choices import settle_tied_gradient
from tests.conformance.compare import Judge, Neighbour, usually_as_exact
from tests.conformance.crossing import DEVICE
from tests.conformance.variants import VARIANTS

OPS = {op.formatted_name: op for op in op_db}


def faulty(function: Callable, fault: Callable) -> Callable:
    """`fault(function, x, *args, **kwargs)` instead of the function for tensors of the device."""

    def run(x: torch.Tensor, *args, **kwargs):
        if isinstance(x, torch.Tensor) and x.device.type == DEVICE:
            return fault(function, x, *args, **kwargs)
        return function(x, *args, **kwargs)

    return run


def off_where(condition: Callable[[torch.Tensor], bool]) -> Callable:
    """A thousandth too large for some inputs."""
    return lambda f, x, *a, **k: f(x, *a, **k) * 1.001 if condition(x) else f(x, *a, **k)


def frozen(x: torch.Tensor) -> torch.Tensor:
    """The values of x as a constant, for both directions of differentiation."""
    return forward_ad.unpack_dual(x).primal.detach() if forward_ad._current_level >= 0 else x.detach()


def wrong_slope(f: Callable, x: torch.Tensor, *args, **kwargs) -> torch.Tensor:
    return f(x, *args, **kwargs) + 0.01 * (x - frozen(x))


def wrong_curvature(f: Callable, x: torch.Tensor, *args, **kwargs) -> torch.Tensor:
    return f(x, *args, **kwargs) + 0.01 * (x - frozen(x)) ** 2


def wrong_slope_in_functorch(f: Callable, x: torch.Tensor, *args, **kwargs) -> torch.Tensor:
    tracked = torch._C._functorch.is_gradtrackingtensor(x)
    return (wrong_slope if tracked else lambda f, x, *a, **k: f(x, *a, **k))(f, x, *args, **kwargs)


def two_units_off(f: Callable, x: torch.Tensor, *args, **kwargs) -> torch.Tensor:
    return (f(x, *args, **kwargs).view(torch.int16) + 2).view(x.dtype)


def transposed(f: Callable, x: torch.Tensor, *args, **kwargs) -> torch.Tensor:
    r = f(x, *args, **kwargs)
    return r.transpose(0, -1).contiguous().transpose(0, -1) if r.dim() > 1 else r


def copied(f: Callable, x: torch.Tensor, *args, **kwargs) -> torch.Tensor:
    r = f(x, *args, **kwargs)
    return torch.empty_strided(r.shape, r.stride(), dtype=r.dtype, device=r.device).copy_(r)


def raises(error: Exception) -> Callable:
    def fault(f: Callable, x: torch.Tensor, *args, **kwargs) -> torch.Tensor:
        try:
            return f(x, *args, **kwargs)
        except Exception:
            raise error from None

    return fault


def forgives(f: Callable, x: torch.Tensor, *args, **kwargs) -> torch.Tensor:
    try:
        return f(x, *args, **kwargs)
    except Exception:
        return kwargs.get("out", x)


def never_resizes(f: Callable, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    return f(x, out=out) if out is None or out.shape == x.shape else f(x)


def writes_before_it_refuses(f: Callable, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is not None and not torch.can_cast(x.dtype, out.dtype):
        out.data.zero_()  # the counter of versions sees nothing
    return f(x, out=out)


def writes_densely(f: Callable, x: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Takes an out= that is not contiguous for one that is."""
    if out is None or out.shape != x.shape or out.dtype != x.dtype or out.is_contiguous():
        return f(x, out=out)
    out.as_strided(x.shape, x.stride()).copy_(f(x))
    return out


def writes_a_copy(f: Callable, x: torch.Tensor, *args, **kwargs) -> torch.Tensor:
    return f(x.clone(), *args, **kwargs)


def writes_unseen(f: Callable, x: torch.Tensor, *args, **kwargs) -> torch.Tensor:
    f(x.data, *args, **kwargs)
    return x


FAULTS = [
    # variant, operator, dtype, fault, what the message says
    ("forward", "exp", "float32", off_where(lambda x: True), "not close"),
    ("forward", "exp", "bfloat16", two_units_off, "further from float64"),
    ("forward", "exp", "float32", lambda f, x: f(x).double(), "dtype is"),
    ("forward", "mul", "float32", transposed, "strides are"),
    ("forward", "diagonal", "float32", copied, "shares memory"),
    ("forward", "diagonal", "float32", lambda f, x, *a, **k: f(x.detach(), *a, **k).detach(), "views of arguments"),
    ("forward", "exp", "float32", lambda f, x: f(x.add_(0)), "autograd saw"),
    ("noncontig", "exp", "float32", off_where(lambda x: not x.is_contiguous()), "not close"),
    ("layouts", "exp", "float32", off_where(lambda x: x.storage_offset() > 0), "offset"),
    ("layouts", "sin", "float32", off_where(lambda x: 0 in x.stride()), "expanded"),
    ("layouts", "sin", "float32", off_where(lambda x: x.dim() > 1 and x.stride(0) < x.stride(-1)), "transposed"),
    ("inplace", "exp", "float32", writes_a_copy, "shares memory"),
    ("inplace", "exp", "float32", writes_unseen, "autograd saw"),
    ("out", "exp", "float32", never_resizes, "out="),
    ("out", "exp", "float32", forgives, "minitorch did not"),
    ("out", "exp", "float32", writes_before_it_refuses, "wrong dtype argument"),
    ("out", "exp", "float32", writes_densely, "out=strided"),
    ("grad", "exp", "float32", wrong_slope, "gradient 0"),
    ("gradgrad", "exp", "float32", wrong_curvature, "second gradient"),
    ("jvp", "exp", "float32", wrong_slope, "forward-mode"),
    ("vmap", "exp", "float32", off_where(torch._C._functorch.is_batchedtensor), "vmap over"),
    ("func", "exp", "float32", wrong_slope_in_functorch, "grad, argument"),
    ("fake", "exp", "float32", lambda f, x: f(x).double() if isinstance(x, FakeTensor) else f(x), "predicted"),
    ("errors", "diagonal", "float32", raises(RuntimeError("something else")), "error texts differ"),
    ("errors", "diagonal", "float32", raises(ValueError("another type")), "ValueError"),
    ("errors", "diagonal", "float32", forgives, "minitorch did not"),
]


def with_function(op: OpInfo, variant: str, fault: Callable) -> OpInfo:
    wrong = copy.copy(op)
    if variant == "inplace":
        wrong.inplace_variant = faulty(op.inplace_variant, fault)
    else:
        wrong.op = faulty(op.op, fault)
    return wrong


@pytest.mark.parametrize(("variant", "name", "dtype", "fault", "words"), FAULTS)
def test_variant_finds_fault(variant: str, name: str, dtype: str, fault: Callable, words: str):
    op, kind = OPS[name], getattr(torch, dtype)
    unchanged = with_function(op, variant, lambda f, x, *a, **k: f(x, *a, **k))
    assert run_row(unchanged, kind, variant, 3).status == "pass"
    outcome = run_row(with_function(op, variant, fault), kind, variant, 3)
    assert outcome.status == "fail"
    assert words in outcome.detail


def test_every_variant_has_a_fault():
    assert {variant for variant, *_ in FAULTS} == set(VARIANTS)
    assert all(applies(OPS[name], getattr(torch, dtype), variant) for variant, name, dtype, *_ in FAULTS)


@pytest.mark.parametrize(
    ("beyond", "usual_of_ours", "exact"),
    [
        (0.9, 9.0, True),  # within native's largest error
        (1.5, 0.8, True),  # one unlucky draw
        (1.5, 1.0, False),  # larger on the whole
        (2.5, 0.1, False),  # too far for a draw
        (float("inf"), 0.1, False),
    ],
)
def test_errors_are_judged_by_what_is_usual(beyond: float, usual_of_ours: float, exact: bool):
    truth = torch.zeros(1, dtype=torch.float64)
    near = Neighbour(torch.full((1,), 0.9), truth, torch.full((1,), usual_of_ours))
    judge = Judge(
        lambda: truth, lambda: [near] * 7 + [Neighbour(torch.ones(1), truth, torch.ones(1))], lambda count: [near]
    )
    found = torch.tensor([beyond, 0.0], dtype=torch.float64)
    assert usually_as_exact(found, torch.full((2,), 0.01), torch.tensor(0.8), judge) is exact


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize(
    ("ours", "right"),
    [
        ([0, 5, 0, 7], True),  # another one of the equal elements
        ([0, 0, 5, 7], False),  # an element that is not equal
        ([0, 6, 0, 7], False),
        ([5, 5, 0, 7], False),
    ],
)
def test_a_gradient_may_go_to_another_one_of_equal_elements(ours: list, right: bool, dim: int):
    x, native, found = (torch.tensor([v], dtype=torch.float16) for v in ([2, 2, 1, 3], [5, 0, 0, 7], ours))
    if dim == 0:
        x, native, found = x.t(), native.t(), found.t()
    settle_tied_gradient("topk", (x, (2, dim), {}), native, found)
    assert torch.equal(native, found) is right


def test_a_call_that_only_fails_while_it_is_watched_has_not_failed(monkeypatch):
    """Draws watch native's calls on a GPU; torch 2.11 cannot do everything under such a mode."""
    monkeypatch.setattr(compare, "ASYNCHRONOUS", True)

    def function() -> int:
        if _get_current_dispatch_mode() is not None:
            raise RuntimeError("watched")
        return 1

    ctx = compare.Context(OPS["exp"], torch.float32)
    assert compare.call_native(ctx, function, again=function).result == 1
    assert str(compare.call_native(ctx, function).error) == "watched"


def test_native_is_not_watched_where_that_would_make_it_fail(monkeypatch):
    """matmul of batches writes to a permuted out=, but under a dispatch mode it finds another size there."""

    def arguments() -> tuple:
        return torch.ones(5, 5, 5), (torch.ones(1, 5, 5),), {"out": torch.ones(5, 5, 5).permute(2, 1, 0)}

    with compare.Draws(), pytest.raises(RuntimeError, match="must match the size"):
        value, others, out = arguments()
        torch.matmul(value, *others, **out)
    monkeypatch.setattr(compare, "ASYNCHRONOUS", True)
    given, expected = arguments(), torch.full((5, 5, 5), 5.0)
    calls.check_call(compare.Context(OPS["matmul"], torch.float32), torch.matmul, given, "permuted", (expected,))
    assert torch.equal(given[2]["out"], expected)
