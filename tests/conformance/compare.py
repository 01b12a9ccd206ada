"""How results of native CPU and minitorch are compared: values, dtype, strides, sharing of memory, errors."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.testing._comparison import default_tolerances
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo
from torch.utils._python_dispatch import TorchDispatchMode

import minitorch_backend
from minitorch_backend.bench.memory import give_back
from tests.conformance.crossing import DEVICE, tensors_in

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


SHORT = (torch.float16, torch.bfloat16)

# On a GPU a kernel reports a bad index when the device is next waited for, in one form for all operators; and random
# numbers are those of native CUDA (tests/python/test_random.py compares them), so only their metadata is compared here.
ASYNCHRONOUS = minitorch_backend._C.backend_name() == "cuda"
FOUND_LATER = re.compile(r".+: index (-?\d+) is out of bounds for dimension with size \d+ \(found by the device; ")
NO_SPARSE_KERNEL = re.compile(r"Could not run 'aten::[\w.]+' with arguments from the 'SparseCPU' backend")


class Mismatch(AssertionError):
    """minitorch and native differ."""


@dataclass
class Run:
    """What a call gave: its result, or the exception."""

    result: Any = None
    error: Exception | None = None

    @property
    def found_later(self) -> bool:
        """The device found the error, after other elements had been written."""
        return FOUND_LATER.match(str(self.error)) is not None


@dataclass
class Neighbour:
    """Results for arguments close to a row's: the errors of native and minitorch there are draws from what they
    usually are.
    """

    native: Any
    truth: Any
    ours: Any

    def part(self, i: int) -> "Neighbour":
        return Neighbour(*(part_of(v, i) for v in (self.native, self.truth, self.ours)))

    def errors(self) -> tuple[tuple[float, float], tuple[float, float]] | None:
        """The largest and the mean one of native and of minitorch; None where there is nothing to compare."""
        found = []
        for value in (self.native, self.ours):
            if value is None or self.truth is None or value.shape != self.truth.shape or value.numel() == 0:
                return None
            distances = errors(value.detach().cpu(), self.truth.detach())
            found.append((float(distances.max()), float(distances.mean())) if distances.numel() else (0.0, 0.0))
        return found[0], found[1]


def part_of(value: Any, i: int) -> Any:
    return value[i] if isinstance(value, (list, tuple)) and i < len(value) else None


@dataclass
class Judge:
    """What settles values that differ: the truth, computed in float64, results for arguments that differ from the row's
    in their last bit, and for so many as are asked for that differ by more. All are computed when they are asked for.
    """

    truth: Callable[[], Any]
    neighbours: Callable[[], list[Neighbour]]
    draws: Callable[[int], list[Neighbour]]

    def part(self, i: int) -> "Judge":
        """The judge of the i-th of several results."""
        return Judge(
            lambda: part_of(self.truth(), i),
            lambda: [n.part(i) for n in self.neighbours()],
            lambda count: [n.part(i) for n in self.draws(count)],
        )


NO_JUDGE = Judge(lambda: None, list, lambda count: [])


@dataclass
class Context:
    op: OpInfo
    dtype: torch.dtype
    cases: int = 0
    by_reference: int = 0
    random: bool = False  # values are not comparable
    exacting: bool = True  # 16-bit values within the tolerance must also be as near to float64's as native's are
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
    run = Run()
    try:
        run.result = function(*args, **kwargs)
        if ASYNCHRONOUS:
            torch.minitorch.synchronize(DEVICE)
    except Exception as error:
        run = Run(error=error)
    return run


class Draws(TorchDispatchMode):
    """Notes whether any operator draws random numbers: many samples put the generator back afterwards."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.seen = self.seen or torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def call_native(ctx: Context, function: Callable, again: Callable | None = None) -> Run:
    """The call on native CPU; from then on `ctx` knows whether the values can be compared.

    `again`: the same call, of copies where it writes to its arguments. Where only the mode that watches a call made it
    fail, as it does vmap of linspace in torch 2.11 and matmul into a permuted out=, it is made once more without.
    """
    if not ASYNCHRONOUS:
        return call(function)
    with Draws() as draws:
        run = call(function)
    ctx.random = draws.seen
    watched_alone = run.error is not None and again is not None and call(again).error is None
    return call(function) if watched_alone else run


def normalise(text: str) -> str:
    """Error text with the device's names replaced by native's, and without the C++ stack."""
    text = text.split("\nException raised from")[0]
    text = re.sub(r" \(found by the device; [^)]*\)$", "", text)
    text = re.sub(
        r"\b(?:minitorch|CPU)([A-Z]\w*)Type\b", r"torch.\1Tensor", text
    )  # PyTorch's two names of tensor types
    text = re.sub(r"minitorch(:\d)?", "cpu", text)
    text = re.sub(r"cpu:0", "cpu", text)
    text = re.sub(r"\bPrivateUse1\b|\bPrivateUse1FloatType\b", "CPU", text)
    text = re.sub(r"torch\.cpu\.", "torch.", text)
    text = text.replace("fused_attention_overrideable", "flash_attention_for_cpu")
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    return text.strip()


def compare_errors(native: Run, ours: Run) -> None:
    if native.error is None and ours.error is None:
        return
    if ours.error is not None and "minitorch has no kernel for" in str(ours.error):
        if NO_SPARSE_KERNEL.match(str(native.error)) and "on sparse tensors" in str(ours.error):
            return  # neither has a kernel for sparse tensors
        raise ours.error
    if native.error is None:
        raise Mismatch(f"minitorch raised {type(ours.error).__name__}: {ours.error}") from ours.error
    if ours.error is None:
        raise Mismatch(f"native raised {type(native.error).__name__}: {native.error}; minitorch did not")
    if ours.found_later:
        numbers = re.findall(r"-?\d+", str(native.error))
        index = FOUND_LATER.match(str(ours.error))[1]
        if numbers and index not in numbers:
            raise Mismatch(f"native raised {native.error}, minitorch {ours.error}")
        return
    if type(native.error) is not type(ours.error):
        raise Mismatch(
            f"native raised {type(native.error).__name__}: {native.error}; "
            f"minitorch {type(ours.error).__name__}: {ours.error}"
        )
    if "failed to match any schema" in str(native.error):  # the text repeats the arguments
        return
    expected, found = normalise(str(native.error)), normalise(str(ours.error))
    if expected != found:
        raise Mismatch(f"error texts differ. native: {expected!r} minitorch: {found!r}")


def significant_strides(t: torch.Tensor) -> list[int] | None:
    if t.layout != torch.strided or t.numel() == 0:
        return None
    return [stride for size, stride in zip(t.shape, t.stride(), strict=True) if size > 1]


def ulp(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance between neighbouring numbers of `dtype` at each value of `t`."""
    info = torch.finfo(dtype)
    return torch.exp2(torch.floor(torch.log2(t.abs().clamp_min(info.smallest_normal)))) * info.eps


def errors(value: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Distances from the truth where the value's dtype can hold that; infinite where the value is not finite."""
    distance = (value.to(truth.dtype) - truth).abs()[torch.isfinite(truth.to(value.dtype))]
    return torch.nan_to_num(distance, nan=math.inf)


def as_exact(ctx: Context, native: torch.Tensor, ours: torch.Tensor, judge: Judge) -> bool:
    """Whether minitorch's values are as near to those computed in float64 as native's are: the largest error within
    native's largest one or, as both are one draw each, what is usual for inputs that differ in their last bit. In 16
    bits one unit in the last place more is allowed, of the largest value for derivatives, which are chains of rounded
    steps.
    """
    truth = judge.truth()
    if truth is None or truth.shape != native.shape:
        return False
    truth = truth.detach()
    known = torch.isfinite(truth.to(native.dtype))
    if (ours.isnan() & ~native.isnan() & ~truth.isnan()).any():
        return False
    rtol, atol = ctx.tolerance(native.dtype)
    slack = atol + rtol * truth[known].abs()
    if native.dtype in SHORT:
        magnitude = truth[known] if ctx.exacting or not known.any() else truth[known].abs().max()
        slack = ulp(magnitude, native.dtype)
    alike = ((native == ours) | (native.isnan() & ours.isnan()))[known]
    found, theirs = errors(ours, truth).masked_fill(alike, 0), errors(native, truth)
    if not theirs.isfinite().any():  # native's values are of no use
        slack, usual = (atol + rtol * truth[known].abs()).maximum(slack), torch.zeros(())
        if native.dtype in SHORT and found.numel():
            slack = slack.maximum(ulp(truth[known].abs().max(), native.dtype))
    else:
        usual = theirs[theirs.isfinite()].max()
    if bool((found <= slack + usual).all() if native.dtype in SHORT else (found <= slack.maximum(usual)).all()):
        return True
    return usually_as_exact(found, slack, usual, judge)


# One result's error is a draw, and may lie this far beyond the largest of native's that were seen, if minitorch's errors
# are as small as native's over many inputs. Of equal distributions, means over 64 inputs differ by a tenth at times, and
# by more where few large errors make the mean: then four times as many decide.
ONE_DRAW, ON_THE_WHOLE, UNSURE = 2.0, 1.1, 1.5
DRAWS = (64, 256)

# torch.testing's exceptions and frames refer to each other, and so keep the values of earlier calls, and the C library's
# heap keeps what was free; beyond so many bytes both let go.
LARGE = 1 << 22


def usually_as_exact(found: torch.Tensor, slack: torch.Tensor, usual: torch.Tensor, judge: Judge) -> bool:
    """Whether errors beyond `slack` are within native's largest for neighbouring inputs, or within twice that and no
    larger than native's on the whole.
    """
    near = [pair[0][0] for n in judge.neighbours() if (pair := n.errors()) and math.isfinite(pair[0][0])]
    if not near:
        return False
    beyond, limit = float(found[found > slack].max()), max(float(usual), *near)
    if beyond <= limit:
        return True
    if beyond > ONE_DRAW * limit:
        return False
    for count in DRAWS:
        pairs = [pair for n in judge.draws(count) if (pair := n.errors()) and math.isfinite(pair[0][0])]
        native, ours = (sum(pair[k][1] for pair in pairs) for k in (0, 1))
        if not pairs or ours > UNSURE * native:
            return False
        if ours <= ON_THE_WHOLE * native:
            return True
    return False


def as_near_as_neighbours(ctx: Context, native: torch.Tensor, ours: torch.Tensor, judge: Judge) -> bool:
    """Whether native's own derivatives in 64 bits, which nothing here computes better, move as far when the inputs'
    last bits change.
    """
    if ctx.exacting or native.dtype not in (torch.float64, torch.complex128):
        return False
    moved = [(n.native - native).abs().max() for n in judge.neighbours() if n.native is not None]
    return bool(moved) and bool((ours - native).abs().max() <= max(moved))


def same_values(value: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit for bit."""
    if value.shape != other.shape or value.dtype != other.dtype or value.layout != torch.strided:
        return False
    return torch.equal(*(memory_of(t) for t in (value, other)))


def memory_of(t: torch.Tensor) -> torch.Tensor:
    """The bytes of the elements, which every dtype has a comparison for."""
    values = t.detach().cpu().resolve_conj().resolve_neg()
    return values.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


def compare_values(ctx: Context, native: torch.Tensor, ours: torch.Tensor, what: str, judge: Judge) -> None:
    if ctx.random:
        return
    expected, found = native.detach(), ours.detach().cpu()
    rtol, atol = ctx.tolerance(expected.dtype)
    try:
        torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        if found.nbytes > LARGE:
            give_back()
        inexact = expected.dtype.is_floating_point or expected.dtype.is_complex
        near = inexact and (as_exact(ctx, expected, found, judge) or as_near_as_neighbours(ctx, expected, found, judge))
        if not near:
            raise Mismatch(f"{what}: {error}") from None
        ctx.by_reference += 1
        return
    dense_short = expected.dtype in SHORT and expected.layout == torch.strided
    further = ctx.exacting and dense_short and not torch.equal(expected, found)
    if further and judge.truth() is not None and not as_exact(ctx, expected, found, judge):
        raise Mismatch(f"{what}: within the tolerance, but further from float64's values than native's are")


def compare_results(ctx: Context, native: Any, ours: Any, what: str, judge: Judge | None = None) -> None:
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
            compare_values(ctx, native, ours, what, judge or NO_JUDGE)
    elif isinstance(native, (list, tuple)):
        if type(native) is not type(ours) or len(native) != len(ours):
            raise Mismatch(
                f"{what}: native gave {type(native).__name__}[{len(native)}], minitorch {type(ours).__name__}"
            )
        for i, (n, o) in enumerate(zip(native, ours, strict=True)):
            compare_results(ctx, n, o, f"{what}[{i}]", judge and judge.part(i))
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


def compare_gradient(ctx: Context, n: torch.Tensor, o: torch.Tensor, what: str, judge: Judge) -> None:
    if (n.dtype, n.shape) != (o.dtype, o.shape):
        raise Mismatch(f"{what}: {o.dtype} {tuple(o.shape)}, native's {n.dtype} {tuple(n.shape)}")
    compare_values(ctx, n, o, what, judge)
