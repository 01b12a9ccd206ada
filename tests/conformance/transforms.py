"""What torch.vmap, torch.func.grad and FakeTensorMode make of an operator on both devices, for a few samples of each."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from tests.conformance.calls import HOST_INDICES, as_arguments, crossed, judged, samples_of
from tests.conformance.choices import (
    ANY_OF_EQUAL,
    GAUGES,
    TIES,
    UNORDERED,
    settle_gauge,
    settle_kth,
    settle_tied_gradient,
    settle_ties,
)
from tests.conformance.compare import (
    Context,
    Mismatch,
    Run,
    call,
    call_native,
    compare_errors,
    compare_gradient,
    compare_results,
    significant_strides,
)
from tests.conformance.crossing import DEVICE, Crossing, tensors_in, to_double
from tests.conformance.derivatives import own_leaves

SAMPLES = 2


def stacked(t: torch.Tensor) -> torch.Tensor:
    """Two of the tensor, the second one halved if it is not of integers: positive definite ones remain so."""
    t = t.detach()
    return torch.stack([t, t / 2 if t.dtype.is_floating_point or t.dtype.is_complex else t])


def check_vmap(ctx: Context, limit: int | None) -> None:
    for i, sample in enumerate(samples_of(ctx, limit, at_most=SAMPLES)):
        leaves, spec = tree_flatten(as_arguments(sample))
        places = [j for j, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided]
        for what, chosen in (("the input", places[:1]), ("all tensors", places)):
            if not chosen or (what == "all tensors" and len(places) == 1):
                continue
            batched = [stacked(leaf) if j in chosen else leaf for j, leaf in enumerate(leaves)]
            dims = tuple(0 if j in chosen else None for j in range(len(leaves)))

            def run(arguments: Any, dims: tuple = dims, spec: Any = spec) -> Any:
                def one(*leaves: Any) -> Any:
                    value, args, kwargs = tree_unflatten(leaves, spec)
                    return ctx.op.op(value, *args, **kwargs)

                return torch.vmap(one, dims, randomness="different")(*tree_flatten(arguments)[0])

            arguments = tree_unflatten(batched, spec)
            there = crossed(ctx.op, arguments)
            made = functools.partial(run, arguments)
            native = call_native(ctx, made, again=made)
            ours = call(lambda a=there: run(a))
            try:
                compare_errors(native, ours)
            except Mismatch as error:
                raise Mismatch(f"sample {i}, vmap over {what}: {error}") from None
            ctx.cases += 1
            if native.error is None:
                if ctx.op.name in GAUGES:
                    settle_gauge(ctx.op.name, native.result, ours.result)
                if ctx.op.name in TIES and ctx.dtype != torch.complex64:
                    settle_ties(ctx.op.name, arguments, native.result, ours.result, batched=True)
                if ctx.op.name in ANY_OF_EQUAL:
                    settle_kth(ctx.op.name, arguments, native.result, ours.result, batched=True)
                judge = judged(run, arguments, lambda a: run(crossed(ctx.op, a)))
                compare_results(ctx, native.result, ours.result, f"sample {i}, vmap over {what}, result", judge)


def loss_of(ctx: Context, sample: SampleInput, spec: Any, places: list[int], cross: Callable) -> Callable:
    """A function of the leaves at `places` that gives one number, its other arguments those of the sample."""
    leaves = tree_flatten(as_arguments(sample))[0]
    others = [leaf if j in places else cross(leaf) for j, leaf in enumerate(leaves)]

    def loss(*chosen: torch.Tensor) -> torch.Tensor:
        full = list(others)
        for j, leaf in zip(places, chosen, strict=True):
            full[j] = leaf
        value, args, kwargs = tree_unflatten(full, spec)
        result = ctx.op.gradcheck_wrapper(ctx.op.op, value, *args, **kwargs)
        outputs = [t for t in tensors_in(sample.output_process_fn_grad(result)) if is_inexact(t)]
        return torch.stack([weighted_sum(ctx, t) for t in outputs]).sum()

    return loss


def weighted_sum(ctx: Context, t: torch.Tensor) -> torch.Tensor:
    """Weights by place; squares where the order of equal or all elements is open."""
    if ctx.op.name in TIES or ctx.op.name in UNORDERED:
        return (t * t.conj()).real.sum() if t.is_complex() else (t * t).sum()
    places = torch.arange(t.numel(), dtype=torch.float64).reshape(t.shape)
    weights = torch.cos(1.7 * places) + (1j * torch.sin(2.3 * places) if t.is_complex() else 0)
    product = t * weights.to(t.device, t.dtype)
    return product.real.sum() if t.is_complex() else product.sum()


def is_inexact(t: torch.Tensor) -> bool:
    return t.dtype.is_floating_point or t.dtype.is_complex


def check_func(ctx: Context, limit: int | None) -> None:
    for i, sample in enumerate(samples_of(ctx, limit, requires_grad=True, at_most=SAMPLES)):
        leaves, spec = tree_flatten(own_leaves(as_arguments(sample)))
        places = [j for j, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if not places or ctx.op.name in HOST_INDICES:
            continue
        chosen = [leaves[j].detach() for j in places]
        numbers = tuple(range(len(places)))
        for what, transform, inputs in (
            ("grad", lambda f: f, chosen),
            ("vmap of grad", lambda f: torch.vmap(f, randomness="different"), [stacked(t) for t in chosen]),
        ):
            there = Crossing()(inputs)
            native = loss_of(ctx, sample, spec, places, lambda v: v)
            ours = loss_of(ctx, sample, spec, places, Crossing())

            def exact(a: list, transform: Callable = transform, sample: SampleInput = sample, spec: Any = spec) -> Any:
                cross = to_double if a[0].dtype in (torch.float64, torch.complex128) else lambda v: v
                return transform(torch.func.grad(loss_of(ctx, sample, spec, places, cross), numbers))(*a)

            judge = judged(exact, inputs, lambda a, f=transform, g=ours: f(torch.func.grad(g, numbers))(*Crossing()(a)))
            expected = call_native(ctx, lambda: transform(torch.func.grad(native, numbers))(*inputs))
            found = call(lambda: transform(torch.func.grad(ours, numbers))(*there))
            try:
                compare_errors(expected, found)
            except Mismatch as error:
                raise Mismatch(f"sample {i}, {what}: {error}") from None
            if expected.error is None:
                for j, (n, o) in enumerate(zip(expected.result, found.result, strict=True)):
                    if j == 0:
                        batched = inputs[0].dim() > chosen[0].dim()
                        settle_tied_gradient(ctx.op.name, (inputs[0], *as_arguments(sample)[1:]), n, o, batched)
                    compare_gradient(ctx, n, o, f"sample {i}, {what}, argument {j}", judge.part(j))
            ctx.cases += 1


def metadata(result: Any) -> list[tuple]:
    return [(t.dtype, tuple(t.shape), significant_strides(t), t.device.type) for t in tensors_in(result)]


def predicted(ctx: Context, arguments: tuple) -> Run:
    """The metadata of the results under FakeTensorMode."""

    def run_fake() -> Any:
        with FakeTensorMode() as mode:
            value, args, kwargs = tree_map_only(torch.Tensor, mode.from_tensor, arguments)
            return ctx.op.op(value, *args, **kwargs)

    run = call(run_fake)
    if run.error is None:
        for t in tensors_in(run.result):
            if not isinstance(t, FakeTensor):
                raise Mismatch("the result is not a fake tensor")
        run.result = metadata(run.result)
    return run


def check_fake(ctx: Context, limit: int | None) -> None:
    """Where native's prediction is wrong or impossible, minitorch's may be as well."""
    for i, sample in enumerate(samples_of(ctx, limit, at_most=SAMPLES)):
        arguments = as_arguments(sample)
        there = crossed(ctx.op, arguments)
        native, ours = predicted(ctx, arguments), predicted(ctx, there)
        ctx.cases += 1
        if native.error is not None or ours.error is not None:
            if type(native.error) is not type(ours.error):
                raise Mismatch(f"sample {i}: native's prediction raised {native.error!r}, minitorch's {ours.error!r}")
            continue
        real = call(lambda a=there: ctx.op.op(a[0], *a[1], **a[2]))
        if real.error is not None:
            continue
        found = metadata(real.result)
        if found != ours.result and [(*m[:3], DEVICE if m[3] == "cpu" else m[3]) for m in native.result] != ours.result:
            raise Mismatch(f"sample {i}: predicted {ours.result}, native's prediction {native.result}, found {found}")
