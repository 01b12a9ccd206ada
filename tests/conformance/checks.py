"""What one conformance row checks: an OpInfo on one dtype, in one variant, on minitorch against native CPU.

Variants:

forward    all sample inputs: values, dtype, strides, which outputs alias which inputs, what happened to the inputs
noncontig  the same with every tensor made non-contiguous
inplace    the in-place variant
out        out= of the right size, strided, empty, of a wrong size, and of a wrong dtype
grad       first-order gradients, contiguous and non-contiguous inputs
gradgrad   second-order gradients, where the OpInfo says that there are any
jvp        forward-mode derivatives, where the OpInfo says that there are any
layouts    the input transposed in memory, at an offset within a larger storage, and expanded from one slice
errors     the OpInfo's error inputs: same exception type, same text

Native is the specification: where native raises, minitorch must raise the same type with the same text. Tolerances are
the OpInfo's own where it has some, torch.testing's defaults otherwise. A floating value outside them passes only if it
is nearer to a float64 reference than native's value is.
"""

import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_map

from tests.conformance.compare import (
    ASYNCHRONOUS,
    Context,
    Mismatch,
    aliasing,
    call,
    compare_errors,
    compare_gradient,
    compare_results,
)
from tests.conformance.crossing import Crossing, cloned, tensors_in, to_double
from tests.conformance.families import FAMILIES

VARIANTS = ("forward", "noncontig", "inplace", "out", "grad", "errors")

# Not claimed: not every row passes them.
FURTHER_VARIANTS = ("gradgrad", "jvp", "layouts")

# The first argument after the input must be on the host, for every device.
HOST_INDICES = {"tensor_split"}

# Which of several equal elements comes first is not defined for these; the value is where their `dim` argument stands.
TIES = {"sort": 0, "argsort": 0, "msort": 0, "topk": 1}

# Native writes outside of a permuted out= for these, which ends the process sooner or later.
NATIVE_CRASHES = {"lu_unpack": "permuted", "linalg.lu": "permuted"}

# Vectors that are determined up to a factor of size 1, or up to a basis where their values coincide: how to rebuild from
# all results what is determined.
GAUGES: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {
    "linalg.eigh": lambda w, v: ((v * w.unsqueeze(-2)) @ v.mH, v.mH @ v),
    "linalg.eig": lambda w, v: (w, torch.linalg.vector_norm(v, dim=-2)),
    "linalg.eigvals": lambda w: (w,),
    "linalg.svd": lambda u, s, vh: svd_products(u, s, vh),
    **dict.fromkeys(("svd", "svd_lowrank", "pca_lowrank"), lambda u, s, v: svd_products(u, s, v.mH)),
}

# Eigenvalues of general matrices come in no particular order.
UNORDERED = {"linalg.eig", "linalg.eigvals"}


def svd_products(u: torch.Tensor, s: torch.Tensor, vh: torch.Tensor) -> tuple[torch.Tensor, ...]:
    k = s.size(-1)
    return (u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], s, u.mH @ u, vh @ vh.mH


@dataclass
class Outcome:
    """Result of one row. ``status``: pass, fail, missing (an operator is not registered) or none (nothing to check)."""

    status: str
    detail: str = ""
    cases: int = 0
    by_reference: int = 0  # values that only the float64 reference settled
    missing: str = ""


class Reference:
    """The call on native CPU in float64, computed once and only when it is needed."""

    def __init__(self, function: Callable, arguments: tuple) -> None:
        self.function, self.arguments = function, arguments
        self.done: tuple[Any, list[torch.Tensor]] | None = None

    def run(self) -> tuple[Any, list[torch.Tensor]]:
        if self.done is None:
            value, args, kwargs = doubles = to_double(self.arguments)
            self.done = call(lambda: self.function(value, *args, **kwargs)).result, list(tensors_in(doubles))
        return self.done

    def result(self) -> Any:
        """Its result, None if it raised."""
        return self.run()[0]

    def argument(self, i: int) -> torch.Tensor:
        """Its i-th tensor argument after the call."""
        return self.run()[1][i]


def crossed(op: OpInfo, arguments: tuple) -> tuple:
    """(input, args, kwargs) on the device, except what PyTorch demands on the host."""
    value, args, kwargs = Crossing()(arguments)
    if op.name in HOST_INDICES and args:
        args = (arguments[1][0], *args[1:])
    return value, args, kwargs


def as_arguments(sample: SampleInput) -> tuple:
    return (sample.input, sample.args, sample.kwargs)


def mend_native_out(ctx: Context, native: Any, ours: Any, functional: tuple[torch.Tensor, ...]) -> None:
    """`native` and `ours` are the out= arguments after the call, since some operators return nothing. Where native's out= form wrote other values than its functional form, and ours did not, the latter count.

    In torch 2.13 gelu leaves a strided out= unwritten, and narrow_copy takes it for a contiguous one.
    """
    for written, o, value in zip(tensors_in(native), tensors_in(ours), functional, strict=True):
        if written.dtype != value.dtype or written.shape != value.shape or o.dtype != value.dtype:
            continue
        rtol, atol = ctx.tolerance(value.dtype)
        faithful = torch.allclose(written, value, rtol, atol, equal_nan=True)
        if not faithful and o.shape == value.shape and torch.allclose(o.cpu(), value, rtol, atol, equal_nan=True):
            written.copy_(value)


def settle_ties(arguments: tuple, native: Any, ours: Any, dim_position: int) -> None:
    """Where minitorch chose other indices than native, but of equal elements and no element twice, takes native's."""
    x, args, kwargs = arguments
    dim = kwargs.get("dim", args[dim_position] if len(args) > dim_position else -1)
    if kwargs.get("stable") or x.dim() == 0:
        return
    for n, o in zip(tensors_in(native), tensors_in(ours), strict=True):
        if n.dtype != torch.int64 or n.shape != o.shape or n.dim() != x.dim():
            continue
        index = o.cpu()
        if torch.equal(n, index):
            continue
        same = torch.allclose(x.take_along_dim(n, dim).double(), x.take_along_dim(index, dim).double(), 0, 0, True)
        distinct = bool((index.sort(dim).values.diff(dim=dim) != 0).all())
        if same and distinct:
            o.copy_(n)


def nearest(expected: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """For each number of the last dimension which one of `found`, each taken once, is nearest to it."""
    distance = (expected.unsqueeze(-1) - found.unsqueeze(-2)).abs()
    order = torch.empty(expected.shape, dtype=torch.int64)
    for i in range(expected.shape[-1]):
        order[..., i] = distance[..., i, :].argmin(-1)
        distance.scatter_(-1, order[..., i, None, None].expand(*distance.shape[:-1], 1), float("inf"))
    return order


def settle_gauge(name: str, native: Any, ours: Any) -> None:
    """Where minitorch's vectors are another valid choice than native's, takes native's."""
    expected, found = list(tensors_in(native)), list(tensors_in(ours))
    if [t.shape for t in expected] != [t.shape for t in found] or any(t.numel() == 0 for t in expected):
        return
    if [t.dtype for t in expected] != [t.dtype for t in found] or not all(t.isfinite().all() for t in expected):
        return
    wide = [t.detach().to(torch.complex128) for t in expected], [t.detach().cpu().to(torch.complex128) for t in found]
    tolerance = 1e-3 if expected[0].dtype in (torch.float32, torch.complex64) else 1e-8
    if name in UNORDERED:
        order = nearest(wide[0][0], wide[1][0])
        wide[1][0] = wide[1][0].gather(-1, order)
        if len(wide[1]) > 1:
            wide[1][1] = wide[1][1].gather(-1, order.unsqueeze(-2).expand_as(wide[1][1]))
    pairs = list(zip(GAUGES[name](*wide[0]), GAUGES[name](*wide[1]), strict=True))
    if name == "linalg.eig":  # vectors of norm 1 are parallel
        overlap = (wide[0][1].conj() * wide[1][1]).sum(-2).abs()
        pairs.append((torch.ones_like(overlap), overlap))
    if all(torch.allclose(a, b, tolerance, tolerance) for a, b in pairs):
        for n, o in zip(expected, found, strict=True):
            if name in UNORDERED or n.dim() == max(t.dim() for t in expected):
                o.detach().copy_(n.detach())


def check_call(ctx: Context, function: Callable, arguments: tuple, what: str, functional: tuple | None = None) -> None:
    """Runs `function` on both, and compares result, aliasing, errors, and what it did to its arguments.

    `functional` is native's result without out=, where the call has out=.
    """
    reference = Reference(function, cloned(arguments))
    there = crossed(ctx.op, arguments)
    native = call(lambda: function(arguments[0], *arguments[1], **arguments[2]))
    ours = call(lambda: function(there[0], *there[1], **there[2]))
    compare_errors(native, ours)
    ctx.cases += 1
    ctx.random = ASYNCHRONOUS and native.drew
    if ours.found_later:
        return
    if native.error is None:
        if functional is not None:
            mend_native_out(ctx, arguments[2]["out"], there[2]["out"], functional)
        if ctx.op.name in TIES and not arguments[0].is_complex() and ours.error is None:
            settle_ties(arguments, native.result, ours.result, TIES[ctx.op.name])
        if ctx.op.name in GAUGES and ours.error is None:
            settle_gauge(ctx.op.name, native.result, ours.result)
        compare_results(ctx, native.result, ours.result, f"{what} result", reference.result)
        if aliasing(arguments, native.result) != aliasing(there, ours.result):
            raise Mismatch(f"{what}: result shares memory with other arguments than native's does")
    results = [id(t) for t in tensors_in(native.result)]
    for i, (n, o) in enumerate(zip(tensors_in(arguments), tensors_in(there), strict=True)):
        if id(n) not in results:
            compare_results(ctx, n, o, f"{what} argument {i}", lambda i=i: reference.argument(i))


def names_cuda(value: Any) -> bool:
    """Samples of `to` ask for other devices too where torch has CUDA."""
    if isinstance(value, torch.Tensor):
        return value.is_cuda
    if isinstance(value, (list, tuple)):
        return any(names_cuda(v) for v in value)
    if isinstance(value, dict):
        return names_cuda(list(value.values()))
    return isinstance(value, torch.device) and value.type == "cuda"


def samples_of(ctx: Context, limit: int | None, requires_grad: bool = False) -> list[SampleInput]:
    torch.manual_seed(7)
    samples = list(ctx.op.sample_inputs("cpu", ctx.dtype, requires_grad=requires_grad))
    samples = [s for s in samples if not names_cuda((s.args, s.kwargs))]
    if limit is not None and len(samples) > limit:
        step = len(samples) / limit
        samples = [samples[int(i * step)] for i in range(limit)]
    return samples


def check_forward(ctx: Context, limit: int | None) -> None:
    for i, sample in enumerate(samples_of(ctx, limit)):
        check_call(ctx, ctx.op.op, as_arguments(sample), f"sample {i}")


def check_noncontig(ctx: Context, limit: int | None) -> None:
    for i, sample in enumerate(samples_of(ctx, limit)):
        check_call(ctx, ctx.op.op, as_arguments(sample.noncontiguous()), f"sample {i}")


def laid_out(t: torch.Tensor, matrices: bool) -> Iterable[tuple[str, torch.Tensor]]:
    """The tensor's values in other layouts; `expanded` repeats the first slice, so its values differ.

    A matrix of equal rows would be singular: matrices are repeated whole or not at all.
    """
    if t.dim() >= 2:
        yield "transposed", t.transpose(0, -1).contiguous().transpose(0, -1)
    padded = torch.empty(t.numel() + 7, dtype=t.dtype)
    yield "offset", padded[5 : 5 + t.numel()].view(t.shape).copy_(t)
    if t.dim() >= (3 if matrices else 1) and t.size(0):
        yield "expanded", t[:1].contiguous().expand(t.shape)


def check_layouts(ctx: Context, limit: int | None) -> None:
    for i, sample in enumerate(samples_of(ctx, limit)):
        value, args, kwargs = as_arguments(sample)
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_conj() or value.is_neg():
            continue
        for name, moved in laid_out(value, ctx.op.formatted_name in FAMILIES["linalg"]):
            check_call(ctx, ctx.op.op, (moved, *cloned((args, kwargs))), f"sample {i} {name}")


def check_inplace(ctx: Context, limit: int | None) -> None:
    function = ctx.op.get_inplace()
    for i, sample in enumerate(samples_of(ctx, limit)):
        check_call(ctx, function, cloned(as_arguments(sample)), f"sample {i}")
        check_call(ctx, function, cloned(as_arguments(sample.noncontiguous())), f"sample {i} non-contiguous")


def out_variants(expected: tuple[torch.Tensor, ...]) -> Iterable[tuple[str, tuple[torch.Tensor, ...]]]:
    """out= arguments to try, as functions of the right result."""

    def poison(t: torch.Tensor) -> torch.Tensor:
        if t.dtype.is_floating_point or t.dtype.is_complex:
            return t.fill_(float("nan"))
        return t.fill_(1)

    def strided(t: torch.Tensor) -> torch.Tensor:
        return poison(torch.empty((*t.shape, 2), dtype=t.dtype)[..., 0])

    def permuted(t: torch.Tensor) -> torch.Tensor:
        return poison(torch.empty(t.shape[::-1], dtype=t.dtype).permute(tuple(reversed(range(t.dim())))))

    def wrong_dtype(t: torch.Tensor) -> torch.Tensor:
        return torch.ones(t.shape, dtype=torch.int64 if t.dtype != torch.int64 else torch.bool)

    yield "right", tuple(poison(torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)) for t in expected)
    yield "strided", tuple(strided(t) for t in expected)
    yield "permuted", tuple(permuted(t) for t in expected)
    yield "empty", tuple(torch.empty(0, dtype=t.dtype) for t in expected)
    yield "wrong size", tuple(torch.ones((1, *t.shape, 1), dtype=t.dtype) for t in expected)
    yield "wrong dtype", tuple(wrong_dtype(t) for t in expected)


def check_out(ctx: Context, limit: int | None) -> None:
    for i, sample in enumerate(samples_of(ctx, limit)):
        arguments = as_arguments(sample)
        first = call(lambda a=arguments: ctx.op.op(a[0], *a[1], **a[2]))
        results = (first.result,) if isinstance(first.result, torch.Tensor) else first.result
        if first.error is not None or not isinstance(results, (tuple, list)):
            continue
        if not all(isinstance(r, torch.Tensor) and r.layout == torch.strided for r in results):
            continue
        single = isinstance(first.result, torch.Tensor)
        expected = tuple(r.detach().resolve_conj().resolve_neg() for r in results)
        for name, outs in out_variants(expected):
            if NATIVE_CRASHES.get(ctx.op.name) == name:
                continue
            value = outs[0] if single else (list(outs) if isinstance(results, list) else outs)
            a = cloned(arguments)
            check_call(ctx, ctx.op.op, (a[0], a[1], {**a[2], "out": value}), f"sample {i} out={name}", expected)


def check_grad(ctx: Context, limit: int | None) -> None:
    for i, sample in enumerate(samples_of(ctx, limit, requires_grad=True)):
        for form, s in (("", sample), (" non-contiguous", sample.noncontiguous())):
            check_derivative(ctx, gradient, s, f"sample {i}{form}")


def check_gradgrad(ctx: Context, limit: int | None) -> None:
    for i, sample in enumerate(samples_of(ctx, limit, requires_grad=True)):
        check_derivative(ctx, second_gradient, sample, f"sample {i} second")


def check_jvp(ctx: Context, limit: int | None) -> None:
    for i, sample in enumerate(samples_of(ctx, limit, requires_grad=True)):
        check_derivative(ctx, tangent, sample, f"sample {i} forward-mode")


def seeds_for(op: OpInfo, outputs: list[torch.Tensor], cross: Callable[[Any], Any]) -> list[torch.Tensor]:
    """Random directions for these tensors, the same on every device."""
    generator = torch.Generator().manual_seed(3)
    seeds = []
    for t in outputs:
        if op.name in TIES or op.name in UNORDERED:  # equal elements get equal gradients, whichever comes first
            x = t.detach().cpu().to(torch.complex128)
            seed = torch.sin(3 * x.real) + (torch.sin(5 * x.imag) * 1j if t.is_complex() else 0)
            seeds.append(cross(seed.to(t.dtype)))
            continue
        real = torch.randn(t.shape, generator=generator, dtype=torch.float64)
        imag = torch.randn(t.shape, generator=generator, dtype=torch.float64)
        seeds.append(cross((torch.complex(real, imag) if t.dtype.is_complex else real).to(t.dtype)))
    return seeds


def outputs_of(op: OpInfo, sample: SampleInput, arguments: tuple) -> list[torch.Tensor]:
    result = op.gradcheck_wrapper(op.op, arguments[0], *arguments[1], **arguments[2])
    return list(tensors_in(sample.output_process_fn_grad(result)))


def gradient(
    op: OpInfo, sample: SampleInput, arguments: tuple, cross: Callable[[Any], Any]
) -> list[torch.Tensor] | None:
    """Gradients of the leaves for random output gradients; None if nothing requires any."""
    inputs = [t for t in tensors_in(arguments) if t.requires_grad]
    outputs = [t for t in outputs_of(op, sample, arguments) if t.requires_grad]
    if not inputs or not outputs:
        return None
    return list(torch.autograd.grad(outputs, inputs, seeds_for(op, outputs, cross), allow_unused=True))


def second_gradient(
    op: OpInfo, sample: SampleInput, arguments: tuple, cross: Callable[[Any], Any]
) -> list[torch.Tensor] | None:
    """Gradients of the leaves of a random combination of their gradients; None if there is nothing to differentiate."""
    inputs = [t for t in tensors_in(arguments) if t.requires_grad]
    outputs = [t for t in outputs_of(op, sample, arguments) if t.requires_grad]
    if not inputs or not outputs:
        return None
    seeds = seeds_for(op, outputs, cross)
    first = torch.autograd.grad(outputs, inputs, seeds, create_graph=True, allow_unused=True)
    first = [t for t in first if t is not None and t.requires_grad]
    if not first:
        return None
    return list(torch.autograd.grad(first, inputs, seeds_for(op, first, cross), allow_unused=True))


def tangent(
    op: OpInfo, sample: SampleInput, arguments: tuple, cross: Callable[[Any], Any]
) -> list[torch.Tensor | None] | None:
    """Forward-mode derivatives of the outputs for random tangents of what requires gradients."""
    leaves = [t for t in tensors_in(arguments) if t.requires_grad]
    if not leaves:
        return None
    directions = {id(t): seed for t, seed in zip(leaves, seeds_for(op, leaves, cross), strict=True)}
    with forward_ad.dual_level():
        dual = tree_map(
            lambda t: forward_ad.make_dual(t.detach(), directions[id(t)]) if id(t) in directions else t, arguments
        )
        return [forward_ad.unpack_dual(t).tangent for t in outputs_of(op, sample, dual)]


def own_leaves(arguments: tuple) -> tuple:
    """The arguments with leaves of their own: some of op_db's are views of a leaf, and native gives those no gradient."""
    return tree_map(
        lambda t: t.detach().requires_grad_() if isinstance(t, torch.Tensor) and t.requires_grad and t.is_leaf else t,
        arguments,
    )


def check_derivative(ctx: Context, derivative: Callable, sample: SampleInput, what: str) -> None:
    """Compares what `derivative` (one of the functions above) gives on both."""
    arguments = own_leaves(as_arguments(sample))
    there = crossed(ctx.op, arguments)

    def reference() -> Any:
        doubles = to_double(arguments)
        for double, original in zip(tensors_in(doubles), tensors_in(arguments), strict=True):
            double.requires_grad_(original.requires_grad)
        return call(lambda: derivative(ctx.op, sample, doubles, lambda t: t)).result

    native = call(lambda: derivative(ctx.op, sample, arguments, lambda t: t))
    ours = call(lambda: derivative(ctx.op, sample, there, Crossing()))
    compare_errors(native, ours)
    if native.error is not None or native.result is None:
        return
    ctx.cases += 1
    ctx.random = ASYNCHRONOUS and native.drew
    if ours.result is None:
        raise Mismatch(f"{what}: native's result requires grad, minitorch's does not")
    for j, (n, o) in enumerate(zip(native.result, ours.result, strict=True)):
        if (n is None) != (o is None):
            raise Mismatch(f"{what}: gradient {j} is {'defined' if o is not None else 'undefined'}, unlike native's")
        if n is not None and n.layout == torch.strided:
            compare_gradient(ctx, n, o, f"{what} gradient {j}", lambda j=j: (reference() or {j: None})[j])


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
    return variant != "errors" or op.error_inputs_func is not None


CHECKS = {
    "forward": check_forward,
    "noncontig": check_noncontig,
    "inplace": check_inplace,
    "out": check_out,
    "grad": check_grad,
    "gradgrad": check_gradgrad,
    "jvp": check_jvp,
    "layouts": check_layouts,
    "errors": check_errors,
}


def run_row(op: OpInfo, dtype: torch.dtype, variant: str, limit: int | None = None) -> Outcome:
    """Checks one row; at most `limit` sample inputs, spread evenly over all of them."""
    ctx = Context(op, dtype)
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
