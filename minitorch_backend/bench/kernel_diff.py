"""A user's kernel against native, on PyTorch's own sample inputs, in a process of its own.

    python -m minitorch_backend.bench.kernel_diff FILE FOLDER

The parent, ``diff``, starts this with a time limit and with poisoned memory, so that a write outside a tensor is found
and a read of memory that was never written shows as NaN. The child writes a line of JSON a finding into the folder, not
to its output, where a kernel may print too; when it dies or hangs, its last note says at which sample.
"""

import contextlib
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import psutil
import torch

from minitorch_backend.bench import accuracy, process_state
from minitorch_backend.kernels.overriding import Override

SAMPLES = 40
CHANGED = 3  # samples of an OpInfo that are run again with other values in the same memory
TIME_LIMIT = 120.0
FINDINGS, NOTE, ERRORS, END = "findings", "note", "errors", "end"  # files; the last one says that all was examined
MOST_LINES = 60  # of a compiler's message
SHOWN = 20  # last lines that a kernel printed before it died
PREFIXES = ("native_", "_")
# What a kernel that is for every dtype is tried with, as far as its operator has them.
EVERY = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64)


@dataclass
class Finding:
    """What the diff of one operator and dtype says. ``verdict``: ok, less accurate, wrong, failed, not reached."""

    operator: str
    dtype: str
    verdict: str
    samples: int = 0
    error: float = 0.0
    native_error: float = 0.0
    message: str = ""

    @property
    def good(self) -> bool:
        return self.verdict in ("ok", "less accurate")


def infos(base: str) -> list[Any]:
    """The OpInfos of an operator: those that call it, whatever they are named."""
    from torch.testing._internal.common_methods_invocations import op_db

    for prefix in PREFIXES:
        base = base.removeprefix(prefix)
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


def to_device(value: Any, device: str) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if any(stride == 0 for stride in value.stride()):  # elements that share memory cannot be written one by one
            return value.to(device)
        # .to() would lay a tensor with gaps out anew
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device).copy_(value)
    if isinstance(value, (list, tuple)):
        return type(value)(to_device(v, device) for v in value)
    return {k: to_device(v, device) for k, v in value.items()} if isinstance(value, dict) else value


def promote(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(promote(v) for v in value)
    if isinstance(value, dict):
        return {k: promote(v) for k, v in value.items()}
    return torch.float64 if value in (torch.bfloat16, torch.float16, torch.float32) else value


def samples(info: Any, dtype: torch.dtype) -> Iterator[tuple[str, Any]]:
    """Sample inputs, and the same ones non-contiguous."""
    found = list(info.sample_inputs("cpu", dtype, requires_grad=False))
    step = max(1, len(found) // SAMPLES)
    for number, sample in enumerate(found[::step]):
        yield f"sample {number * step}", sample
        yield f"sample {number * step}, non-contiguous", sample.noncontiguous()


def describe(sample: Any) -> str:
    shapes = [tuple(t.shape) for t in accuracy.tensors([sample.input, list(sample.args), sample.kwargs])]
    return f"shapes {shapes}, {sample.kwargs or ''}".rstrip(", ")


def changed(inputs: Any, sample: Any) -> bool:
    """Whether an operator that only reads its inputs has written into them."""
    pairs = zip(
        accuracy.tensors(inputs), accuracy.tensors([sample.input, list(sample.args), sample.kwargs]), strict=True
    )
    return any(not torch.equal(torch.nan_to_num(a.cpu()), torch.nan_to_num(b)) for a, b in pairs)


def is_stale(override: Override, call: Any, inputs: Any, given: Any) -> bool:
    """Whether a kernel that was right is wrong for the same tensors with their values in another order."""
    turned = to_device(given, "cpu")
    for ours, native in zip(accuracy.tensors(inputs), accuracy.tensors(turned), strict=True):
        if native.is_floating_point() and native.dim() > 0 and 0 not in native.stride():
            native.copy_(native.flip(list(range(native.dim()))))
            ours.copy_(native)
    try:
        native, reference = call(turned), call(promote(turned))
    except (RuntimeError, TypeError, ValueError):
        return False
    try:
        with override:
            ours = call(inputs)
    except RuntimeError:
        return False
    home = torch.device("cpu")
    judged = accuracy.compare(*(accuracy.snapshot(result, home) for result in (native, ours, reference)))
    return judged.verdict == "wrong"


def examine(override: Override, dtype: torch.dtype, note: Any) -> Finding:
    """Run the samples of all OpInfos with the override in force; the first one that is wrong ends it."""
    finding = Finding(override.operator.name, str(dtype).removeprefix("torch."), "ok")
    own, last = os.getpid(), None
    for info in infos(override.operator.base):
        if dtype not in info.supported_dtypes("cpu"):
            continue
        tried = 0
        for title, sample in samples(info, dtype):
            where = f"{info.formatted_name}, {title}: {describe(sample)}"
            note(where)
            call = lambda s: info.op(s[0], *s[1], **s[2])  # noqa: B023, E731
            given = [sample.input, list(sample.args), sample.kwargs]
            try:
                native = call(to_device(given, "cpu"))
                reference = call(promote(to_device(given, "cpu")))
            except (RuntimeError, TypeError, ValueError):
                continue  # native refuses: nothing to compare with
            before, state = override.calls, process_state.State.now()
            try:
                inputs = to_device(given, "minitorch")
                with override:
                    ours = call(inputs)
                    torch.minitorch.synchronize()
            except Exception as error:
                end_copies(own)
                return Finding(finding.operator, finding.dtype, "failed", finding.samples, message=f"{where}\n{error}")
            end_copies(own)
            if override.calls == before:
                continue
            finding.samples += 1
            if left := state.changes():
                finding.verdict, finding.message = "failed", f"{where}\nthe kernel leaves the process changed: {left}"
                return finding
            if changed(inputs, sample):
                finding.verdict, finding.message = "wrong", f"{where}\nthe kernel writes into its input"
                return finding
            judged = accuracy.compare(
                accuracy.snapshot(native, torch.device("cpu")), accuracy.snapshot(ours, torch.device("cpu")),
                accuracy.snapshot(reference, torch.device("cpu")),
            )  # fmt: skip
            if judged.ours is not None and judged.ours > finding.error:
                finding.error, finding.native_error = judged.ours, judged.rival or 0.0
            if judged.verdict == "wrong":
                finding.verdict, finding.message = "wrong", where
                return finding
            if judged.verdict == "less accurate" and finding.verdict == "ok":
                finding.verdict, finding.message = judged.verdict, where
            last = lambda call=call, inputs=inputs: call(inputs)  # noqa: E731
            tried += 1
            stale = tried <= CHANGED and is_stale(override, call, inputs, given)
            end_copies(own)
            if stale:
                finding.verdict = "wrong"
                finding.message = f"{where}\nwith other values in the same memory the kernel gives the result of before"
                return finding
    if last is not None:
        with override:
            kept = process_state.kept_of_a_call(last)
        end_copies(own)
        if kept >= process_state.LEAK:
            finding.verdict, finding.message = "failed", f"the kernel keeps {kept:.0f} bytes of memory from each call"
            return finding
    if psutil.Process().children():
        finding.verdict, finding.message = "failed", "the kernel starts a process and leaves it"
        return finding
    if finding.samples == 0:
        finding.verdict, finding.message = "not reached", "no sample of PyTorch's operator tables reaches this kernel"
    return finding


def child(path: pathlib.Path, folder: pathlib.Path) -> None:
    """The work of the child process: a line of JSON a finding."""
    from minitorch_backend.kernels import files

    def note(text: str) -> None:
        (folder / NOTE).write_text(text)

    note("loading and compiling the file")
    with (folder / FINDINGS).open("w") as found:
        for override in files.load(path):
            for dtype in dtypes_of(override):
                finding = examine(override, dtype, note)
                print(json.dumps(asdict(finding)), file=found, flush=True)
                if not override.dtypes and not finding.good:
                    break  # wrong for all dtypes is said once
    (folder / END).touch()


def diff(path: pathlib.Path, time_limit: float = TIME_LIMIT) -> list[Finding]:
    """What the child found; a crash, a hang or a file that does not load is a finding too."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        token = secrets.token_hex(8)
        poisoned = {"MINITORCH_POISON": "1", "MINITORCH_FALLBACK": "allow", process_state.TOKEN: token}
        environment = {**os.environ, **poisoned}
        command = [sys.executable, "-m", __spec__.name, str(path), str(folder)]
        with (folder / ERRORS).open("w") as errors:
            process = subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
            )
            try:
                process.wait(timeout=time_limit)
                message = how_it_ended(process.returncode, folder)
            except subprocess.TimeoutExpired:
                message = f"did not end within {time_limit:g} s and was stopped"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # whatever the kernel started goes too
                process.wait()
        left = process_state.with_token(token)
        for other in left:
            with contextlib.suppress(psutil.Error):
                other.kill()
        lines = (folder / FINDINGS).read_text().splitlines() if (folder / FINDINGS).exists() else []
        findings = [Finding(**json.loads(line)) for line in lines]
        if left and all(finding.good for finding in findings):
            message = (
                message or f"starts a process and leaves it: {', '.join(str(p.pid) for p in left)}, which was ended"
            )
        if message:
            where = (folder / NOTE).read_text() if (folder / NOTE).exists() else "start"
            findings.append(Finding("", "", "failed", message=f"{message}\n(at: {where})"))
        return findings


def how_it_ended(code: int, folder: pathlib.Path) -> str:
    """What is to be said about the child's end; "" when it examined all."""
    text = (folder / ERRORS).read_text(errors="replace")
    if code < 0:
        return "\n".join([f"was killed by {signal.Signals(-code).name}", *text.strip().splitlines()[-SHOWN:]])
    if code > 0 and text.strip():
        return last_error(text)
    return "" if (folder / END).exists() else f"ended the process (exit status {code}) in the middle of the work"


def last_error(text: str) -> str:
    """The exception at the end of a traceback, with the lines that belong to it."""
    lines = text.strip().splitlines()
    last = max((i for i, line in enumerate(lines) if line.startswith("  ")), default=-1)
    starts = [i for i, line in enumerate(lines) if "Error" in line.split(":")[0] and not line.startswith(" ")]
    return "\n".join(lines[starts[-1] if starts else last + 1 :][:MOST_LINES]) or "failed without a message"


if __name__ == "__main__":
    child(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
