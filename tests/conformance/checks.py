"""What one conformance row checks: an OpInfo on one dtype, in one variant, on minitorch against native CPU.

Variants:

forward    all sample inputs: values, dtype, strides, which outputs alias which inputs, what happened to the inputs
noncontig  the same with every tensor made non-contiguous
inplace    the in-place variant
out        out= of the right size, strided, empty, of a wrong size, and of a wrong dtype
grad       first-order gradients, contiguous and non-contiguous inputs
errors     the OpInfo's error inputs: same exception type, same text

Native is the specification: where native raises, minitorch must raise the same type with the same text. Tolerances are
the OpInfo's own where it has some, torch.testing's defaults otherwise. A floating value outside them passes only if it
is nearer to a float64 reference than native's value is.
"""

import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.testing._comparison import default_tolerances
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo, SampleInput

from tests.conformance.crossing import Crossing, tensors_in, to_double

VARIANTS = ("forward", "noncontig", "inplace", "out", "grad", "errors")

# Values of these are whatever was in memory; only their metadata can be compared.
UNDEFINED_VALUES = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "resize_",
    "resize_as_",
}

# The first argument after the input must be on the host, for every device.
HOST_INDICES = {"tensor_split"}


class Mismatch(AssertionError):
    """minitorch and native differ."""


@dataclass
class Outcome:
    """Result of one row. ``status``: pass, fail, missing (an operator is not registered) or none (nothing to check)."""

    status: str
    detail: str = ""
    cases: int = 0
    by_reference: int = 0  # values that only the float64 reference settled
    missing: str = ""


@dataclass
class Run:
    """What a call gave: its result, or the exception."""

    result: Any = None
    error: Exception | None = None


@dataclass
class Context:
    op: OpInfo
    dtype: torch.dtype
    cases: int = 0
    by_reference: int = 0
    tolerances: dict[torch.dtype, tuple[float, float]] = field(default_factory=dict)

    def tolerance(self, dtype: torch.dtype) -> tuple[float, float]:
        """(rtol, atol) for results of this dtype."""
        if dtype not in self.tolerances:
            rtol, atol = default_tolerances(torch.empty(0, dtype=dtype))
            for info in self.op.decorators:
                if not isinstance(info, DecorateInfo) or info.cls_name not in (None, "TestCommon"):
                    continue
                if info.device_type not in (None, "cpu") or not info.active_if:
                    continue
                for decorator in info.decorators:
                    if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                        rtol, atol = max(rtol, decorator.d[dtype].rtol), max(atol, decorator.d[dtype].atol)
            self.tolerances[dtype] = (rtol, atol)
        return self.tolerances[dtype]


def call(function: Callable, *args: Any, **kwargs: Any) -> Run:
    torch.manual_seed(42)
    try:
        return Run(result=function(*args, **kwargs))
    except Exception as error:
        return Run(error=error)


def normalise(text: str) -> str:
    """Error text with the device's names replaced by native's, and without the C++ stack."""
    text = text.split("\nException raised from")[0]
    text = re.sub(r"minitorch(?=[A-Z]\w*Type)", "CPU", text)
    text = re.sub(r"minitorch(:0)?", "cpu", text)
    text = re.sub(r"cpu:0", "cpu", text)
    text = re.sub(r"\bPrivateUse1\b|\bPrivateUse1FloatType\b", "CPU", text)
    text = re.sub(r"torch\.cpu\.", "torch.", text)
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    return text.strip()


def compare_errors(native: Run, ours: Run) -> None:
    if native.error is None and ours.error is None:
        return
    if ours.error is not None and "minitorch has no kernel for" in str(ours.error):
        raise ours.error
    if native.error is None:
        raise Mismatch(f"minitorch raised {type(ours.error).__name__}: {ours.error}") from ours.error
    if ours.error is None:
        raise Mismatch(f"native raised {type(native.error).__name__}: {native.error}; minitorch did not")
    if type(native.error) is not type(ours.error):
        raise Mismatch(
            f"native raised {type(native.error).__name__}: {native.error}; "
            f"minitorch {type(ours.error).__name__}: {ours.error}"
        )
    expected, found = normalise(str(native.error)), normalise(str(ours.error))
    if expected != found:
        raise Mismatch(f"error texts differ. native: {expected!r} minitorch: {found!r}")


def significant_strides(t: torch.Tensor) -> list[int] | None:
    if t.layout != torch.strided or t.numel() == 0:
        return None
    return [stride for size, stride in zip(t.shape, t.stride(), strict=True) if size > 1]


def compare_values(
    ctx: Context, native: torch.Tensor, ours: torch.Tensor, what: str, reference: Callable[[], Any]
) -> None:
    expected, found = native.detach(), ours.detach().cpu()
    rtol, atol = ctx.tolerance(expected.dtype)
    try:
        torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        inexact = expected.dtype.is_floating_point or expected.dtype.is_complex
        truth = reference() if inexact else None
        if truth is None or truth.shape != expected.shape:
            raise Mismatch(f"{what}: {error}") from None
        truth = truth.detach()
        finite = torch.isfinite(expected) & torch.isfinite(truth) & torch.isfinite(found)
        torch_same = torch.equal(torch.isfinite(expected), torch.isfinite(found))
        ours_error = (found.to(truth.dtype) - truth)[finite].abs()
        native_error = (expected.to(truth.dtype) - truth)[finite].abs()
        limit = atol + rtol * truth[finite].abs()
        if not torch_same or not bool((ours_error <= torch.maximum(limit, native_error.max())).all()):
            raise Mismatch(f"{what}: {error}") from None
        ctx.by_reference += 1


def compare_results(
    ctx: Context, native: Any, ours: Any, what: str, reference: Callable[[], Any] | None = None
) -> None:
    """Same structure; tensors with the same values, dtype, sizes and strides; other values equal."""
    if isinstance(native, torch.Tensor):
        if not isinstance(ours, torch.Tensor):
            raise Mismatch(f"{what}: native gave a tensor, minitorch {type(ours).__name__}")
        if native.dtype != ours.dtype:
            raise Mismatch(f"{what}: dtype is {ours.dtype}, native's {native.dtype}")
        if native.shape != ours.shape:
            raise Mismatch(f"{what}: shape is {tuple(ours.shape)}, native's {tuple(native.shape)}")
        if native.requires_grad != ours.requires_grad:
            raise Mismatch(f"{what}: requires_grad is {ours.requires_grad}, native's {native.requires_grad}")
        if significant_strides(native) != significant_strides(ours):
            raise Mismatch(
                f"{what}: strides are {ours.stride()}, native's {native.stride()} for shape {tuple(native.shape)}"
            )
        if ctx.op.name not in UNDEFINED_VALUES:
            compare_values(ctx, native, ours, what, reference or (lambda: None))
    elif isinstance(native, (list, tuple)):
        if type(native) is not type(ours) or len(native) != len(ours):
            raise Mismatch(
                f"{what}: native gave {type(native).__name__}[{len(native)}], minitorch {type(ours).__name__}"
            )
        for i, (n, o) in enumerate(zip(native, ours, strict=True)):

            def element(i: int = i) -> Any:
                value = reference() if reference else None
                return value[i] if isinstance(value, (list, tuple)) and i < len(value) else None

            compare_results(ctx, n, o, f"{what}[{i}]", element)
    elif isinstance(native, float) and isinstance(ours, float):
        torch.testing.assert_close(ours, native, rtol=1e-5, atol=1e-6, equal_nan=True)
    elif isinstance(native, torch.device):
        pass
    elif native != ours:
        raise Mismatch(f"{what}: {ours!r}, native's {native!r}")


def aliasing(arguments: Any, result: Any) -> list[list[int]]:
    """For each result tensor, which argument tensors share its storage."""
    storages = [t.untyped_storage()._cdata if t.layout == torch.strided else -1 for t in tensors_in(arguments)]
    found = []
    for r in tensors_in(result):
        own = r.untyped_storage()._cdata if r.layout == torch.strided else None
        found.append([i for i, s in enumerate(storages) if s == own])
    return found


def reference_of(function: Callable, arguments: tuple, index: int | None = None) -> Callable[[], Any]:
    """Computes the call on native CPU in float64, once, when it is needed; None if it cannot be."""
    memo: list[Any] = []

    def compute() -> Any:
        if not memo:
            doubles = to_double(arguments)
            memo.append(call(lambda: function(doubles[0], *doubles[1], **doubles[2])).result)
        return memo[0]

    return compute


def crossed(op: OpInfo, arguments: tuple) -> tuple:
    """(input, args, kwargs) on the device, except what PyTorch demands on the host."""
    value, args, kwargs = Crossing()(arguments)
    if op.name in HOST_INDICES and args:
        args = (arguments[1][0], *args[1:])
    return value, args, kwargs


def as_arguments(sample: SampleInput) -> tuple:
    return (sample.input, sample.args, sample.kwargs)


def check_call(ctx: Context, function: Callable, arguments: tuple, what: str) -> None:
    """Runs `function` on both, and compares result, aliasing, errors, and what it did to its arguments."""
    reference = reference_of(function, cloned(arguments))
    there = crossed(ctx.op, arguments)
    native = call(lambda: function(arguments[0], *arguments[1], **arguments[2]))
    ours = call(lambda: function(there[0], *there[1], **there[2]))
    compare_errors(native, ours)
    ctx.cases += 1
    if native.error is None:
        compare_results(ctx, native.result, ours.result, f"{what} result", reference)
        if aliasing(arguments, native.result) != aliasing(there, ours.result):
            raise Mismatch(f"{what}: result shares memory with other arguments than native's does")
    compare_results(ctx, list(tensors_in(arguments)), list(tensors_in(there)), f"{what} argument", None)


def cloned(value: Any) -> Any:
    """A copy that shares no memory with the original, with the same strides and aliasing."""
    memo: dict[int, torch.UntypedStorage] = {}

    def clone(v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            if v.layout != torch.strided or v.is_conj() or v.is_neg():
                return v.detach().clone().requires_grad_(v.requires_grad)
            storage = v.untyped_storage()
            if storage._cdata not in memo:
                memo[storage._cdata] = storage.clone()
            copy = torch.empty(0, dtype=v.dtype).set_(memo[storage._cdata], v.storage_offset(), v.shape, v.stride())
            return copy.requires_grad_(v.requires_grad)
        if isinstance(v, (list, tuple)):
            items = [clone(item) for item in v]
            return type(v)(*items) if hasattr(v, "_fields") else type(v)(items)
        if isinstance(v, dict):
            return {key: clone(item) for key, item in v.items()}
        return v

    return clone(value)


def samples_of(ctx: Context, limit: int | None, requires_grad: bool = False) -> list[SampleInput]:
    torch.manual_seed(7)
    samples = list(ctx.op.sample_inputs("cpu", ctx.dtype, requires_grad=requires_grad))
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
            value = outs[0] if single else (list(outs) if isinstance(results, list) else outs)
            a = cloned(arguments)
            check_call(ctx, ctx.op.op, (a[0], a[1], {**a[2], "out": value}), f"sample {i} out={name}")


def check_grad(ctx: Context, limit: int | None) -> None:
    for i, sample in enumerate(samples_of(ctx, limit, requires_grad=True)):
        for form, s in (("", sample), (" non-contiguous", sample.noncontiguous())):
            check_gradient(ctx, s, f"sample {i}{form}")


def gradient(
    op: OpInfo, sample: SampleInput, arguments: tuple, cross: Callable[[Any], Any]
) -> list[torch.Tensor] | None:
    """Gradients of the leaves for random output gradients, the same on every device; None if nothing requires any."""
    inputs = [t for t in tensors_in(arguments) if t.requires_grad]
    result = sample.output_process_fn_grad(op.gradcheck_wrapper(op.op, arguments[0], *arguments[1], **arguments[2]))
    outputs = [t for t in tensors_in(result) if t.requires_grad]
    if not inputs or not outputs:
        return None
    generator = torch.Generator().manual_seed(3)
    seeds = []
    for t in outputs:
        real = torch.randn(t.shape, generator=generator, dtype=torch.float64)
        imag = torch.randn(t.shape, generator=generator, dtype=torch.float64)
        seeds.append(cross((torch.complex(real, imag) if t.dtype.is_complex else real).to(t.dtype)))
    return list(torch.autograd.grad(outputs, inputs, seeds, allow_unused=True))


def check_gradient(ctx: Context, sample: SampleInput, what: str) -> None:
    arguments = as_arguments(sample)
    there = crossed(ctx.op, arguments)

    def reference() -> Any:
        doubles = to_double(arguments)
        for double, original in zip(tensors_in(doubles), tensors_in(arguments), strict=True):
            double.requires_grad_(original.requires_grad)
        return call(lambda: gradient(ctx.op, sample, doubles, lambda t: t)).result

    native = call(lambda: gradient(ctx.op, sample, arguments, lambda t: t))
    ours = call(lambda: gradient(ctx.op, sample, there, Crossing()))
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
            compare_gradient(ctx, n, o, f"{what} gradient {j}", lambda j=j: (reference() or {j: None})[j])


def compare_gradient(ctx: Context, n: torch.Tensor, o: torch.Tensor, what: str, reference: Callable[[], Any]) -> None:
    if (n.dtype, n.shape) != (o.dtype, o.shape):
        raise Mismatch(f"{what}: {o.dtype} {tuple(o.shape)}, native's {n.dtype} {tuple(n.shape)}")
    compare_values(ctx, n, o, what, reference)


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
    return variant != "errors" or op.error_inputs_func is not None


CHECKS = {
    "forward": check_forward,
    "noncontig": check_noncontig,
    "inplace": check_inplace,
    "out": check_out,
    "grad": check_grad,
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
