"""The out= form: of the right size, strided, empty, of a wrong size or dtype, overlapping itself or the input."""

from collections.abc import Iterable

import torch

from tests.conformance.calls import (
    as_arguments,
    check_call,
    crossed,
    judged,
    samples_of,
    with_arguments,
    with_reference,
)
from tests.conformance.compare import Context, Mismatch, call, call_native, compare_errors, compare_results
from tests.conformance.crossing import cloned

# Native writes outside of these forms of out=, which ends the process sooner or later.
NATIVE_CRASHES = {
    "lu_unpack": ("permuted",),
    "linalg.lu": ("permuted",),
    "tril": ("permuted", "expanded", "the input shifted"),
    "triu": ("permuted", "expanded", "the input shifted"),
}

# What native does with these depends on whether the processor lets oneDNN multiply float8, which refuses.
NATIVE_VARIES = {"torch._scaled_mm": ("wrong dtype",)}


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


def overlapping(value: torch.Tensor, expected: torch.Tensor) -> Iterable[tuple[str, torch.Tensor, torch.Tensor]]:
    """(what, input, out=) where elements of out= share memory with each other or with the input."""
    if expected.dim() and expected.size(0) > 1:
        # With memory for all elements: native's pooling in three dimensions writes them all, whatever the strides are.
        memory = expected.new_ones(expected.numel())
        inner = expected.new_empty(expected.shape[1:]).stride()
        yield "expanded", value, torch.as_strided(memory, expected.shape, (0, *inner))
    if value.shape == expected.shape and value.dtype == expected.dtype and value.layout == torch.strided:
        own = value.detach().clone(memory_format=torch.contiguous_format)
        yield "the input", own, own
        if value.numel() > 1:
            memory = value.new_empty(value.numel() + 1)
            moved = memory[:-1].view(value.shape).copy_(value.detach())
            yield "the input shifted", moved, memory[1:].view(value.shape)


def check_overlap(ctx: Context, arguments: tuple, expected: torch.Tensor, what: str) -> None:
    """Refused as native refuses it. What native does not refuse, minitorch may, unless the result is right and no chance:
    with the input itself as out=.
    """
    for name, value, out in overlapping(arguments[0], expected):
        if name in NATIVE_CRASHES.get(ctx.op.name, ()):
            continue
        a = (value, *cloned(arguments[1:]))
        a = (a[0], a[1], {**a[2], "out": out})
        there = crossed(ctx.op, a)
        native = call_native(ctx, lambda a=a: ctx.op.op(a[0], *a[1], **a[2]))
        ours = call(lambda a=there: ctx.op.op(a[0], *a[1], **a[2]))
        ctx.cases += 1
        rtol, atol = ctx.tolerance(expected.dtype)
        right = (
            native.error is None
            and name == "the input"
            and torch.allclose(out.detach(), expected, rtol, atol, equal_nan=True)
        )
        if right or native.error is not None:
            try:
                compare_errors(native, ours)
                run = with_arguments(ctx.op.op)
                judge = judged(run, arguments, lambda a, run=run: run(crossed(ctx.op, a)))
                judge = with_reference(judge, ctx.op, arguments).part(0)
                compare_results(ctx, native.result, ours.result, "result", judge)
            except Mismatch as error:
                raise Mismatch(f"{what} out={name}: {error}") from None
        elif ours.error is not None and "unsupported operation" not in str(ours.error):
            raise Mismatch(f"{what} out={name}: minitorch raised {ours.error!r}")


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
            if name in NATIVE_CRASHES.get(ctx.op.name, ()) or name in NATIVE_VARIES.get(ctx.op.name, ()):
                continue
            value = outs[0] if single else (list(outs) if isinstance(results, list) else outs)
            a = cloned(arguments)
            check_call(ctx, ctx.op.op, (a[0], a[1], {**a[2], "out": value}), f"sample {i} out={name}", expected)
        if single and isinstance(sample.input, torch.Tensor):
            check_overlap(ctx, arguments, expected[0], f"sample {i}")
