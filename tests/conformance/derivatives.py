"""Derivatives on both devices: gradients, gradients of gradients, forward-mode tangents."""

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_map

from tests.conformance.calls import as_arguments, crossed, judged, samples_of
from tests.conformance.choices import TIES, UNORDERED, settle_tied_gradient
from tests.conformance.compare import Context, Mismatch, call, call_native, compare_errors, compare_gradient
from tests.conformance.crossing import Crossing, cloned, tensors_in

# What only native lacks: a kernel for a dtype in the middle of a derivative, the derivative of a fused kernel's gradient.
NOT_DIFFERENTIABLE = re.compile(r"not implemented for '\w+'|derivative for \S+ is not implemented")


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
    op: OpInfo, sample: SampleInput, arguments: tuple, cross: Callable[[Any], Any], create_graph: bool = False
) -> list[torch.Tensor | None] | None:
    """Gradients of the leaves for random output gradients; None if nothing requires any."""
    inputs = [t for t in tensors_in(arguments) if t.requires_grad]
    outputs = [t for t in outputs_of(op, sample, arguments) if t.requires_grad]
    if not inputs or not outputs:
        return None
    seeds = seeds_for(op, outputs, cross)
    return list(torch.autograd.grad(outputs, inputs, seeds, create_graph=create_graph, allow_unused=True))


def second_gradient(
    op: OpInfo, sample: SampleInput, arguments: tuple, cross: Callable[[Any], Any]
) -> list[torch.Tensor] | None:
    """Gradients of the leaves of a random combination of their gradients; None if there is nothing to differentiate."""
    first = gradient(op, sample, arguments, cross, create_graph=True) or []
    first = [t for t in first if t is not None and t.requires_grad]
    if not first:
        return None
    inputs = [t for t in tensors_in(arguments) if t.requires_grad]
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
        outputs = outputs_of(op, sample, dual)
        if op.name in UNORDERED:  # functions of all elements that do not depend on their order
            outputs = [f for t in outputs for f in (t.sum(), (t * t).sum())]
        return [forward_ad.unpack_dual(t).tangent for t in outputs]


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

    judge = judged(
        lambda a: derivative(ctx.op, sample, a, lambda t: t),
        cloned(arguments),
        lambda a: derivative(ctx.op, sample, crossed(ctx.op, a), Crossing()),
    )
    native = call_native(ctx, lambda: derivative(ctx.op, sample, arguments, lambda t: t))
    ours = call(lambda: derivative(ctx.op, sample, there, Crossing()))
    if ours.error is None and NOT_DIFFERENTIABLE.search(str(native.error)):
        return
    compare_errors(native, ours)
    if native.error is not None or native.result is None:
        return
    ctx.cases += 1
    if ours.result is None:
        raise Mismatch(f"{what}: native's result requires grad, minitorch's does not")
    for j, (n, o) in enumerate(zip(native.result, ours.result, strict=True)):
        if (n is None) != (o is None):
            raise Mismatch(f"{what}: gradient {j} is {'defined' if o is not None else 'undefined'}, unlike native's")
        if n is not None and n.layout == torch.strided:
            if j == 0 and derivative is gradient:
                settle_tied_gradient(ctx.op.name, arguments, n, o)
            compare_gradient(ctx, n, o, f"{what} gradient {j}", judge.part(j))


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
