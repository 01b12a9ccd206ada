"""One call of an operator on both devices, with everything compared that it gave and did to its arguments."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.testing._internal.opinfo.core import OpInfo, SampleInput, UnaryUfuncInfo

from minitorch_backend.bench.memory import give_back
from tests.conformance.choices import ANY_OF_EQUAL, GAUGES, TIES, settle_gauge, settle_kth, settle_ties
from tests.conformance.compare import (
    LARGE,
    NO_JUDGE,
    Context,
    Judge,
    Mismatch,
    Neighbour,
    aliasing,
    call,
    call_native,
    compare_errors,
    compare_results,
    part_of,
    same_values,
)
from tests.conformance.crossing import (
    Crossing,
    cloned,
    in_default_dtype,
    made_contiguous,
    nudged,
    scattered,
    tensors_in,
    to_double,
)

# Bytes of results of several calls, beyond which no more are made.
MOST_BYTES = 1 << 25

# The first argument after the input must be on the host, for every device.
HOST_INDICES = {"tensor_split"}


def judged(function: Callable[[tuple], Any], arguments: tuple, ours: Callable[[tuple], Any] | None = None) -> Judge:
    """The judge of `function(arguments)` on native CPU; `ours` is the same function of host arguments on minitorch."""

    def is_inexact(a: tuple) -> bool:
        return any(t.dtype.is_floating_point or t.dtype.is_complex for t in tensors_in(a))

    def in_double(a: tuple) -> Any:
        doubles = to_double(a if is_inexact(a) else in_default_dtype(a))
        for double, original in zip(tensors_in(doubles), tensors_in(a), strict=True):
            double.requires_grad_(original.requires_grad)
        return call(function, doubles).result

    @functools.cache
    def truth() -> Any:
        return in_double(cloned(arguments))

    def compared(a: tuple) -> Neighbour:
        return Neighbour(call(function, cloned(a)).result, in_double(cloned(a)), ours and call(ours, cloned(a)).result)

    def all_compared(several: Iterable[tuple], least: int) -> list[Neighbour]:
        found: list[Neighbour] = []
        size = 0
        for a in several:
            found.append(compared(a))
            size += sum(t.nbytes for t in tensors_in([found[-1].native, found[-1].truth, found[-1].ours]))
            if len(found) >= least and size > MOST_BYTES:
                break
        return found

    @functools.cache
    def draws(count: int) -> list[Neighbour]:
        generator = torch.Generator().manual_seed(6)
        return all_compared((scattered(arguments, generator) for _ in range(count)), 2)

    @functools.cache
    def neighbours() -> list[Neighbour]:
        generator = torch.Generator().manual_seed(5)
        start = arguments if is_inexact(arguments) else in_default_dtype(arguments)
        near = all_compared((nudged(start, generator) for _ in range(8)), 2)
        return [*near, compared(made_contiguous(arguments))]  # the same values another way

    return Judge(truth, neighbours, draws)


def with_reference(judge: Judge, op: OpInfo, arguments: tuple) -> Judge:
    """For float64, which native cannot be its own judge of, the truth is SciPy's or NumPy's function if the OpInfo has
    one.
    """
    value, args, kwargs = arguments
    plain = isinstance(op, UnaryUfuncInfo) and op.ref is not None and not args and not kwargs.keys() - {"out"}
    if not plain or value.dtype != torch.float64:
        return judge

    def exact() -> tuple:
        return torch.as_tensor(op.ref(value.detach().numpy())), part_of(judge.truth(), 1)

    return Judge(exact, judge.neighbours, judge.draws)


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


def with_arguments(function: Callable) -> Callable[[tuple], tuple]:
    """The function with everything that it gives or changes as its result: (result, tensors of the arguments)."""

    def run(a: tuple) -> tuple:
        return function(a[0], *a[1], **a[2]), list(tensors_in(a))

    return run


def views_of(arguments: tuple, result: Any) -> list[bool]:
    """For each result whether autograd takes it for a view, as one that shares memory with an argument should be."""
    given = {id(t) for t in tensors_in(arguments)}
    shared = aliasing(arguments, result)
    return [
        bool(places) and id(t) not in given and t._is_view()
        for t, places in zip(tensors_in(result), shared, strict=True)
    ]


def check_call(ctx: Context, function: Callable, arguments: tuple, what: str, functional: tuple | None = None) -> None:
    """Runs `function` on both, and compares result, aliasing, errors, and what it did to its arguments.

    `functional` is native's result without out=, where the call has out=.
    """
    before = cloned(arguments)
    complete = with_arguments(function)
    judge = judged(complete, before, lambda a: complete(crossed(ctx.op, a)))
    judge = with_reference(judge, ctx.op, before)
    if ctx.op.name.startswith("as_strided"):  # what lies between elements is not the same memory in another dtype
        judge = NO_JUDGE
    there = crossed(ctx.op, arguments)
    versions = [[t._version for t in tensors_in(a)] for a in (arguments, there)]

    def run(a: tuple) -> Any:
        return function(a[0], *a[1], **a[2])

    native = call_native(ctx, lambda: run(arguments), again=lambda: run(cloned(before)))
    ours = call(lambda: run(there))
    compare_errors(native, ours)
    ctx.cases += 1
    if ours.found_later:
        return
    if native.error is None:
        if functional is not None:
            mend_native_out(ctx, arguments[2]["out"], there[2]["out"], functional)
        if ctx.op.name in TIES and not arguments[0].is_complex() and ours.error is None:
            settle_ties(ctx.op.name, arguments, native.result, ours.result)
        if ctx.op.name in ANY_OF_EQUAL and ours.error is None:
            settle_kth(ctx.op.name, arguments, native.result, ours.result)
        if ctx.op.name in GAUGES and ours.error is None:
            settle_gauge(ctx.op.name, native.result, ours.result)
        compare_results(ctx, native.result, ours.result, f"{what} result", judge.part(0))
        if aliasing(arguments, native.result) != aliasing(there, ours.result):
            raise Mismatch(f"{what}: result shares memory with other arguments than native's does")
        views = [views_of(a, r) for a, r in ((arguments, native.result), (there, ours.result))]
        if views[0] != views[1]:
            raise Mismatch(f"{what}: which results are views of arguments: {views[1]}, native's: {views[0]}")
    changes = [
        [t._version > before for t, before in zip(tensors_in(a), v, strict=True)]
        for a, v in zip((arguments, there), versions, strict=True)
    ]
    given_out = {
        id(t) for t in tensors_in(there[2].get("out"))
    }  # which a composite may write to without native's saying so
    places = [id(t) in given_out for t in tensors_in(there)]
    if any(n != o and (n or not out) for n, o, out in zip(*changes, places, strict=True)):
        raise Mismatch(f"{what}: which arguments autograd saw written to: {changes[1]}, native's: {changes[0]}")
    results = [id(t) for t in tensors_in(native.result)]
    for i, (n, o, was) in enumerate(zip(*map(tensors_in, (arguments, there, before)), strict=True)):
        if native.error is not None and same_values(o, was):  # native may have written before it found the error
            continue
        if id(n) not in results:
            compare_results(ctx, n, o, f"{what} argument {i}", judge.part(1).part(i))


def names_cuda(value: Any) -> bool:
    """Samples of `to` ask for other devices too where torch has CUDA."""
    if isinstance(value, torch.Tensor):
        return value.is_cuda
    if isinstance(value, (list, tuple)):
        return any(names_cuda(v) for v in value)
    if isinstance(value, dict):
        return names_cuda(list(value.values()))
    return isinstance(value, (torch.device, str)) and str(value).startswith("cuda")


def evenly(items: list, limit: int | None) -> list:
    """At most `limit` of them, spread evenly over all."""
    if limit is None or len(items) <= limit:
        return items
    step = len(items) / limit
    return [items[int(i * step)] for i in range(limit)]


_made: dict[tuple, list[SampleInput]] = {}


def made_samples(op: OpInfo, dtype: torch.dtype, limit: int | None, requires_grad: bool) -> list[SampleInput]:
    key = (op.formatted_name, dtype, limit, requires_grad)
    if key not in _made:
        if len(_made) >= 2:  # with and without gradients, of the row at hand
            _made.clear()
        torch.manual_seed(7)
        samples = op.sample_inputs("cpu", dtype, requires_grad=requires_grad)
        _made[key] = evenly([s for s in samples if not names_cuda((s.args, s.kwargs))], limit)
    return _made[key]


def copied(sample: SampleInput) -> SampleInput:
    value, args, kwargs = cloned(as_arguments(sample))
    copy = SampleInput(value, args=args, kwargs=kwargs, broadcasts_input=sample.broadcasts_input, name=sample.name)
    copy.output_process_fn_grad = sample.output_process_fn_grad
    return copy


def samples_of(
    ctx: Context, limit: int | None, requires_grad: bool = False, at_most: int | None = None
) -> Iterator[SampleInput]:
    """Copies of the samples, which took longer to make than a row needs, so that all variants use the same ones. What
    was made of a large one, and hangs together in cycles, is given back before the next.
    """
    for sample in map(copied, evenly(made_samples(ctx.op, ctx.dtype, limit, requires_grad), at_most)):
        large = sum(t.nbytes for t in tensors_in(as_arguments(sample)) if t.layout == torch.strided) > LARGE
        yield sample
        if large:
            give_back()
