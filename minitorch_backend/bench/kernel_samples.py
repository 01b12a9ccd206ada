"""A user's kernel on PyTorch's own sample inputs: its results, and where the operator has one its gradient, judged.

This is the work of the process that kernel_diff.py starts. What is wrong ends it with the first finding.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import psutil
import torch

from minitorch_backend import _C
from minitorch_backend.bench import accuracy, process_state
from minitorch_backend.bench.accuracy import Accuracy
from minitorch_backend.kernels.overriding import Override

SAMPLES = 40
GRADIENTS = 12  # samples of which gradients are compared too
# Times native's error, or half a unit: a gradient is what the kernel gives, and sums of it, whose rounding is luck.
ROOM = 4.0
CHANGED = 3  # samples of an OpInfo that are run again with other values in the same memory
LEAK_SECONDS, LEAK_CALLS = 2.0, 100  # for calls of which it is seen whether they keep memory
PREFIXES, SUFFIXES = ("native_", "_"), ("_backward_data", "_backward")
# What a kernel that is for every dtype is tried with, as far as its operator has them.
EVERY = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64)
RACED = ("ok", "less accurate", "other strides")  # what does not keep a kernel from the race
HOME = torch.device("cpu")
REFUSED = (RuntimeError, TypeError, ValueError)  # what native raises for a sample that it does not take
START, COMPILING, SAMPLE, MANY = "start", "compiling", "sample", "many calls"  # steps of the work, each with its time


@dataclass
class Finding:
    """What the diff of one operator and dtype says. ``verdict``: ok, less accurate, other strides, wrong, failed,
    not reached.
    """

    operator: str
    dtype: str
    verdict: str
    samples: int = 0
    error: float = 0.0
    native_error: float = 0.0
    message: str = ""

    @property
    def good(self) -> bool:
        return self.verdict in RACED


def plain_name(base: str) -> str:
    """An operator's name as people know it: softmax of _softmax or _softmax_backward_data."""
    for suffix in SUFFIXES:
        base = base.removesuffix(suffix)
    for prefix in PREFIXES:
        base = base.removeprefix(prefix)
    return base


def infos(base: str) -> list[Any]:
    """The OpInfos of an operator: those that call it, whatever they are named. A gradient's step has its operator's."""
    from torch.testing._internal.common_methods_invocations import op_db

    base = plain_name(base)
    return [info for info in op_db if base in (info.name.split(".")[-1], info.aten_name) and not info.variant_test_name]


def dtypes_of(override: Override) -> list[torch.dtype]:
    if override.dtypes:
        return sorted(override.dtypes, key=str)
    known = [info.supported_dtypes("cpu") for info in infos(override.operator.base)]
    return [dtype for dtype in EVERY if any(dtype in has for has in known)] or [torch.float32]


def end_copies(own: int) -> None:
    """End this process if it is a copy of ``own``, made by a kernel that forks: its work is done there."""
    if os.getpid() != own:
        os._exit(0)


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor], dtype: Callable[[Any], Any]) -> Any:
    """A sample's inputs with its tensors changed, and the dtypes among them."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(v, change, dtype) for v in value)
    if isinstance(value, dict):
        return {k: map_tensors(v, change, dtype) for k, v in value.items()}
    return dtype(value)


def to_device(value: Any, device: str, wide: bool = False, grad: bool = False) -> Any:
    """Copies of a sample's inputs on a device. ``wide``: in float64. ``grad``: those are leaves that want gradients."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        made = _copy(tensor.detach(), device)
        made = made.double() if wide and made.is_floating_point() else made
        return made.requires_grad_(grad and tensor.requires_grad)

    def dtype(other: Any) -> Any:
        return torch.float64 if wide and other in (torch.bfloat16, torch.float16, torch.float32) else other

    return map_tensors(value, change, dtype)


def _copy(tensor: torch.Tensor, device: str) -> torch.Tensor:
    if any(stride == 0 for stride in tensor.stride()):  # elements that share memory cannot be written one by one
        return tensor.to(device, copy=True)
    # .to() would lay a tensor with gaps out anew
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device).copy_(tensor)


def samples(info: Any, dtype: torch.dtype, grad: bool = False, most: int = SAMPLES) -> Iterator[tuple[str, Any]]:
    """Sample inputs, and the same ones non-contiguous."""
    found = list(info.sample_inputs("cpu", dtype, requires_grad=grad))
    step = max(1, len(found) // most)
    for number, sample in enumerate(found[::step]):
        yield f"sample {number * step}", sample
        yield f"sample {number * step}, non-contiguous", sample.noncontiguous()


def inputs_of(sample: Any) -> list[Any]:
    return [sample.input, list(sample.args), sample.kwargs]


def describe(sample: Any) -> str:
    shapes = [tuple(t.shape) for t in accuracy.tensors(inputs_of(sample))]
    return f"shapes {shapes}, {sample.kwargs or ''}".rstrip(", ")


def changed(inputs: Any, sample: Any) -> bool:
    """Whether an operator that only reads its inputs has written into them."""
    pairs = zip(accuracy.tensors(inputs), accuracy.tensors(inputs_of(sample)), strict=True)
    return any(not torch.equal(torch.nan_to_num(a.cpu()), torch.nan_to_num(b)) for a, b in pairs)


def is_stale(override: Override, call: Any, inputs: Any, given: Any) -> bool:
    """Whether a kernel that was right is wrong for the same tensors with their values in another order."""
    turned = to_device(given, "cpu")
    for ours, native in zip(accuracy.tensors(inputs), accuracy.tensors(turned), strict=True):
        if native.is_floating_point() and native.dim() > 0 and 0 not in native.stride():
            native.copy_(native.flip(list(range(native.dim()))))
            ours.copy_(native)
    try:
        native, reference = call(turned), call(to_device(turned, "cpu", wide=True))
    except REFUSED:
        return False
    try:
        with override:
            ours = call(inputs)
    except RuntimeError:
        return False
    return judge(native, ours, reference).verdict == "wrong"


def memory_of(value: Any) -> set[int]:
    """The addresses of the memory of all tensors."""
    return {address for t in accuracy.tensors(value) if (address := t.untyped_storage().data_ptr())}


def laid_out_otherwise(found: Any, wanted: Any) -> str:
    """How the first tensor whose strides are others lies in memory, and how it should; "" where all are as wanted."""
    for ours, theirs in zip(accuracy.tensors(found), accuracy.tensors(wanted), strict=True):
        steps = [(a, b) for n, a, b in zip(ours.shape, ours.stride(), theirs.stride(), strict=True) if n > 1]
        if ours.numel() > 0 and any(a != b for a, b in steps):
            return f"strides {ours.stride()}, the operator's has {theirs.stride()}"
    return ""


def judge(native: Any, ours: Any, reference: Any) -> Accuracy:
    return accuracy.compare(*(accuracy.snapshot(result, HOME) for result in (native, ours, reference)))


def has_gradient(info: Any, dtype: torch.dtype) -> bool:
    return dtype.is_floating_point and info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")


def gradients(call: Any, sample: Any, inputs: Any) -> list[torch.Tensor]:
    """Those of a result by all leaves among the inputs, from the same upstream values on every device and dtype.

    A leaf that the result does not depend on has zeros.
    """
    leaves = [t for t in accuracy.tensors(inputs) if t.requires_grad]
    results = [t for t in accuracy.tensors(sample.output_process_fn_grad(call(inputs))) if t.requires_grad]
    if not results or not leaves:
        return []
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(t.shape, generator=generator, dtype=torch.float64).to(torch.float32) for t in results]
    upstream = [values.to(t.dtype).to(t.device) for values, t in zip(drawn, results, strict=True)]
    found = torch.autograd.grad(results, leaves, upstream, allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]


class Examination:
    """Of one override for one dtype. ``note`` is told what comes and which step it is, before that may hang."""

    def __init__(self, override: Override, dtype: torch.dtype, note: Callable[[str, str], None]) -> None:
        self.override, self.dtype, self.note = override, dtype, note
        self.finding = Finding(override.operator.name, str(dtype).removeprefix("torch."), "ok")
        self.own, self.called = os.getpid(), False
        self.last: Callable[[], Any] | None = None

    def run(self) -> Finding:
        process_state.settle()
        for info in infos(self.override.operator.base):
            if self.dtype not in info.supported_dtypes("cpu"):
                continue
            if self._forward(info) or (has_gradient(info, self.dtype) and self._gradient(info)):
                return self.finding
        self._after()
        return self.finding

    def _say(self, verdict: str, message: str) -> bool:
        self.finding.verdict, self.finding.message = verdict, message
        return not self.finding.good

    def _forward(self, info: Any) -> bool:
        """Run an OpInfo's samples; whether one is wrong."""
        call = lambda s: info.op(s[0], *s[1], **s[2])  # noqa: E731
        tried = 0
        for title, sample in samples(info, self.dtype):
            where = f"{info.formatted_name}, {title}: {describe(sample)}"
            self.note(where, SAMPLE)
            given = inputs_of(sample)
            try:
                native, reference = call(to_device(given, "cpu")), call(to_device(given, "cpu", wide=True))
            except REFUSED:
                continue  # native refuses: nothing to compare with
            inputs = to_device(given, "minitorch")
            reached, ours = self._with_kernel(where, lambda: call(inputs))  # noqa: B023
            if not self.finding.good:
                return True
            if not reached:
                continue
            self.finding.samples += 1
            if changed(inputs, sample):
                return self._say("wrong", f"{where}\nthe kernel writes into its input")
            if self._judge(where, judge(native, ours, reference)) or self._laid_out(where, call, inputs, native, ours):
                return True
            self.last = lambda call=call, inputs=inputs: call(inputs)
            tried += 1
            if tried <= CHANGED and self._overwrites(where, call, inputs, ours):
                return True
            stale = tried <= CHANGED and is_stale(self.override, call, inputs, given)
            end_copies(self.own)
            if stale:
                return self._say(
                    "wrong", f"{where}\nwith other values in the same memory the kernel gives the result of before"
                )
        return False

    def _gradient(self, info: Any) -> bool:
        """The same of gradients, which an override with a formula of its own may break."""
        call = lambda s: info.op(s[0], *s[1], **s[2])  # noqa: E731
        for title, sample in samples(info, self.dtype, grad=True, most=GRADIENTS):
            where = f"{info.formatted_name}, the gradient of {title}: {describe(sample)}"
            self.note(where, SAMPLE)
            given = inputs_of(sample)
            try:
                native, reference = (
                    gradients(call, sample, to_device(given, "cpu", wide, grad=True)) for wide in (False, True)
                )
            except REFUSED:
                continue
            inputs = to_device(given, "minitorch", grad=True)
            reached, ours = self._with_kernel(where, lambda: gradients(call, sample, inputs))  # noqa: B023
            if not self.finding.good:
                return True
            self.finding.samples += reached
            if not reached or not native:
                continue
            judged = judge(native, ours, reference)
            luck = ROOM * max(judged.rival or 0.0, torch.finfo(self.dtype).eps / 2)
            if judged.verdict == "less accurate" and judged.ours is not None and judged.ours <= luck:
                judged = replace(judged, verdict="ok")
            if self._judge(where, judged, "its gradient is {}"):
                return True
        return False

    def _with_kernel(self, where: str, work: Callable[[], Any]) -> tuple[bool, Any]:
        """Whether some work calls the kernel, and its result. What goes wrong, or is left changed, is the finding."""
        before, state, threads = self.override.calls, process_state.State.now(), process_state.tasks()
        try:
            with self.override:
                result = work()
                torch.minitorch.synchronize()
        except Exception as error:
            end_copies(self.own)
            self._say("failed", f"{where}\n{error}")
            return True, None
        end_copies(self.own)
        if self.override.calls == before:
            return False, result
        if left := state.changes():
            self._say("failed", f"{where}\nthe kernel leaves the process changed: {left}")
        elif (names := process_state.left_threads(threads)) and (self.called or _C.backend_name() == "cpu"):
            self._say("failed", f"{where}\nthe kernel starts a thread and leaves it: {', '.join(names)}")
        self.called = True  # of a GPU's threads some come with the first call
        return True, result

    def _overwrites(self, where: str, call: Any, inputs: Any, ours: Any) -> bool:
        """Whether a second call gives memory of the first result, which is still there, or fails."""
        _, again = self._with_kernel(where, lambda: call(inputs))
        if self.finding.good and memory_of(ours) & memory_of(again) - memory_of(inputs):
            self._say("wrong", f"{where}\neach call gives the same memory: the next one overwrites the result")
        return not self.finding.good

    def _laid_out(self, where: str, call: Any, inputs: Any, native: Any, ours: Any) -> bool:
        """Say of a right result that it lies in memory otherwise than native's, where ours does not."""
        if self.finding.verdict != "ok" or not laid_out_otherwise(ours, native):
            return False
        found = laid_out_otherwise(ours, call(inputs))
        return bool(found) and self._say("other strides", f"{where}\nthe result has {found}")

    def _judge(self, where: str, judged: Accuracy, says: str = "") -> bool:
        """Take a judgement into the finding; whether it is wrong."""
        finding = self.finding
        if judged.ours is not None and judged.ours > finding.error:
            finding.error, finding.native_error = judged.ours, judged.rival or 0.0
        if judged.verdict == "wrong" or (
            judged.verdict == "less accurate" and finding.verdict in ("ok", "other strides")
        ):
            return self._say(judged.verdict, f"{where}\n{says.format(judged.verdict)}".strip())
        return False

    def _after(self) -> None:
        """What only many calls show, and what is left when all is done."""
        if self.last is not None:
            self.note(f"{self.finding.operator}, called over and over", MANY)
            with self.override:
                begun = time.perf_counter()
                self.last()
                took = time.perf_counter() - begun
                calls = max(3, min(LEAK_CALLS, int(LEAK_SECONDS / max(took, 1e-6))))
                files = process_state.open_files()
                kept = process_state.kept_of_a_call(self.last, calls)
                files = process_state.open_files() - files
            end_copies(self.own)
            if files >= calls:
                self._say("failed", f"the kernel leaves files open: {files} after some hundred calls")
                return
            if kept >= process_state.LEAK:
                self._say("failed", f"the kernel keeps {kept:.0f} bytes of memory from each call")
                return
        if psutil.Process().children():
            self._say("failed", "the kernel starts a process and leaves it")
        elif self.finding.samples == 0:
            self._say("not reached", "no sample of PyTorch's operator tables reaches this kernel")
