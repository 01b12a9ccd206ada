"""What one conformance row checks: an OpInfo on one dtype, in one variant, on minitorch against native CPU.

Variants:

forward    all sample inputs: values, dtype, strides, which outputs alias which inputs, what happened to the inputs
noncontig  the same with every tensor made non-contiguous
layouts    the input transposed in memory, at an offset within a larger storage, and expanded from one slice
inplace    the in-place variant
out        out= of the right size, strided, empty, of a wrong size, of a wrong dtype, overlapping itself or the input
grad       first-order gradients, contiguous and non-contiguous inputs
gradgrad   second-order gradients, where the OpInfo says that there are any
jvp        forward-mode derivatives, where the OpInfo says that there are any
vmap       torch.vmap over the input, and over all tensors
func       torch.func.grad, and torch.vmap of it
fake       what FakeTensorMode predicts of the result's shape, dtype, strides and device is what comes
errors     the OpInfo's error inputs: same exception type, same text

Native is the specification: where native raises, minitorch must raise the same type with the same text. Tolerances are
the OpInfo's own where it has some, torch.testing's defaults otherwise. A floating value outside them passes only if it
is as near to a float64 reference as native's is. In 16 bits every value but a second-order or forward-mode derivative
must be, within one unit in the last place.
"""

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch.testing._internal.opinfo.core import OpInfo, UnaryUfuncInfo

from tests.conformance.calls import as_arguments, check_call, crossed, samples_of
from tests.conformance.compare import ASYNCHRONOUS, Context, Mismatch, call, compare_errors
from tests.conformance.crossing import cloned
from tests.conformance.derivatives import check_grad, check_gradgrad, check_jvp
from tests.conformance.families import FAMILIES
from tests.conformance.outputs import check_out
from tests.conformance.transforms import check_fake, check_func, check_vmap
from tests.conformance.variants import TRANSFORMED_DTYPES, VARIANTS


@dataclass
class Outcome:
    """Result of one row. ``status``: pass, fail, missing (an operator is not registered) or none (nothing to check)."""

    status: str
    detail: str = ""
    cases: int = 0
    by_reference: int = 0  # values that only the float64 reference settled
    missing: str = ""


def check_forward(ctx: Context, limit: int | None) -> None:
    for i, sample in enumerate(samples_of(ctx, limit)):
        check_call(ctx, ctx.op.op, as_arguments(sample), f"sample {i}")


def check_noncontig(ctx: Context, limit: int | None) -> None:
    for i, sample in enumerate(samples_of(ctx, limit)):
        check_call(ctx, ctx.op.op, as_arguments(sample.noncontiguous()), f"sample {i}")


def laid_out(t: torch.Tensor, matrices: bool, elementwise: bool) -> Iterable[tuple[str, torch.Tensor]]:
    """The tensor's values in other layouts; `expanded` repeats the first slice, so its values differ.

    A matrix of equal rows would be singular: matrices are repeated whole or not at all. op_db's samples of elementwise
    functions have one dimension, and get three, which is all the same to those.
    """
    if elementwise and t.dim() == 1 and t.numel() and t.numel() % 10 == 0:
        t = t.reshape(2, -1, 5)
    if t.dim() >= 2:
        yield "transposed", t.transpose(0, -1).contiguous().transpose(0, -1)
    padded = torch.empty(t.numel() + 7, dtype=t.dtype)
    yield "offset", padded[5 : 5 + t.numel()].view(t.shape).copy_(t)
    if t.dim() >= (3 if matrices else 1) and t.size(0):
        yield "expanded", t[:1].contiguous().expand(t.shape)


# Native takes an expanded slice for one whose elements lie one after another, and reads past its end.
NATIVE_MISREADS = {"median", "nanmedian", "masked.median"}
# Windows that overlap name one place twice; with values that are not those of the windows, the one written last stays:
# on the CPU that of the last window, on a GPU (native's as well) any.
LAST_WRITE_STAYS = {f"nn.functional.max_unpool{n}d" for n in (1, 2, 3)}


def check_layouts(ctx: Context, limit: int | None) -> None:
    for i, sample in enumerate(samples_of(ctx, limit)):
        value, args, kwargs = as_arguments(sample)
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_conj() or value.is_neg():
            continue
        matrices, elementwise = ctx.op.formatted_name in FAMILIES["linalg"], isinstance(ctx.op, UnaryUfuncInfo)
        for name, moved in laid_out(value, matrices, elementwise):
            if name == "expanded" and ctx.op.name in ("linalg.tensorinv", "linalg.tensorsolve"):
                continue  # all dimensions make the matrix, which would be singular
            if name == "expanded" and ctx.op.name in NATIVE_MISREADS:
                continue
            if name == "expanded" and ASYNCHRONOUS and ctx.op.name in LAST_WRITE_STAYS:
                continue
            if name == "expanded" and ctx.op.name == "searchsorted" and kwargs.get("sorter") is not None:
                continue  # sorts other values than these
            check_call(ctx, ctx.op.op, (moved, *cloned((args, kwargs))), f"sample {i} {name}")


def check_inplace(ctx: Context, limit: int | None) -> None:
    function = ctx.op.get_inplace()
    for i, sample in enumerate(samples_of(ctx, limit)):
        check_call(ctx, function, cloned(as_arguments(sample)), f"sample {i}")
        check_call(ctx, function, cloned(as_arguments(sample.noncontiguous())), f"sample {i} non-contiguous")


def check_errors(ctx: Context, limit: int | None) -> None:
    torch.manual_seed(7)
    for i, error_input in enumerate(ctx.op.error_inputs("cpu")):
        sample = error_input.sample_input
        there = crossed(ctx.op, as_arguments(sample))
        a = as_arguments(sample)
        native = call(lambda a=a: ctx.op.op(a[0], *a[1], **a[2]))
        ours = call(lambda t=there: ctx.op.op(t[0], *t[1], **t[2]))
        try:
            compare_errors(native, ours)
        except Mismatch as error:
            raise Mismatch(f"error input {i}: {error}") from None
        ctx.cases += 1


def applies(op: OpInfo, dtype: torch.dtype, variant: str) -> bool:
    """Whether the OpInfo has anything to check in this variant."""
    if variant == "inplace":
        return op.get_inplace() is not None
    if variant == "out":
        return op.supports_out
    if variant == "grad":
        return op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    if variant == "gradgrad":
        return op.supports_gradgrad and applies(op, dtype, "grad")
    if variant == "jvp":
        return op.supports_forward_ad and applies(op, dtype, "grad")
    if variant == "func":
        return str(dtype).removeprefix("torch.") in TRANSFORMED_DTYPES and applies(op, dtype, "grad")
    if variant in ("vmap", "fake"):
        return str(dtype).removeprefix("torch.") in TRANSFORMED_DTYPES
    return variant != "errors" or op.error_inputs_func is not None


CHECKS = {
    "forward": check_forward,
    "noncontig": check_noncontig,
    "layouts": check_layouts,
    "inplace": check_inplace,
    "out": check_out,
    "grad": check_grad,
    "gradgrad": check_gradgrad,
    "jvp": check_jvp,
    "vmap": check_vmap,
    "func": check_func,
    "fake": check_fake,
    "errors": check_errors,
}
assert tuple(CHECKS) == VARIANTS


def run_row(op: OpInfo, dtype: torch.dtype, variant: str, limit: int | None = None) -> Outcome:
    """Checks one row; at most `limit` sample inputs, spread evenly over all of them."""
    ctx = Context(op, dtype, exacting=variant not in ("gradgrad", "jvp", "func"))
    if not applies(op, dtype, variant):
        return Outcome("none")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            CHECKS[variant](ctx, limit)
    except Exception as error:
        missing = re.search(r"minitorch has no kernel for '([^']+)'|(convolution\w*_overrideable) not impl", str(error))
        if missing:
            name = missing.group(1) or missing.group(2)
            return Outcome("missing", f"no kernel for {name}", ctx.cases, ctx.by_reference, name)
        kind = "" if isinstance(error, Mismatch) else f"{type(error).__name__}: "
        return Outcome("fail", kind + str(error), ctx.cases, ctx.by_reference)
    return Outcome("pass" if ctx.cases else "none", "", ctx.cases, ctx.by_reference)
