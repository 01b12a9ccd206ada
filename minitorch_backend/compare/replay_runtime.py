"""One recorded operator call: built again on any device, run, and judged.

Replay files carry the text of this module after that of the judge; only the package's own copy imports from it.
"""

import argparse
import base64
import contextlib
import os
import sys
import zlib
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

# package imports
from minitorch_backend.compare.judge import (
    BAD,
    EQUAL,
    METADATA,
    NONDETERMINISTIC,
    PIVOTED,
    REFERENCE_RAISED,
    SUBJECT_RAISED,
    Arbiter,
    Judgement,
    flat_tensors,
    judge,
    same_bits,
)
from minitorch_backend.compare.references import REFERENCES

# end of package imports


@dataclass(frozen=True)
class Window:
    """A tensor: a window on a storage."""

    storage: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0


@dataclass
class Case:
    """A call: operator, storages as bytes, arguments with windows for tensors, what it writes, random state, flags."""

    op: str
    overload: str
    storages: dict[str, bytes]
    args: list
    kwargs: dict
    written: list = field(default_factory=list)
    state: bytes | None = None
    flags: dict = field(default_factory=dict)
    verdict: str = ""

    def operator(self) -> Any:
        namespace, name = self.op.split("::")
        return getattr(getattr(getattr(torch.ops, namespace), name), self.overload or "default")

    def reference(self) -> Any:
        return REFERENCES.get(self.op) or self.operator()

    def build(self, device: str) -> tuple[list, dict, dict[str, Any]]:
        """(args, kwargs, storages) on a device: what shares memory here shares it there."""
        storages = {}
        for name, data in self.storages.items():
            host = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
            # A fresh block of the device's own: alignment is the allocator's.
            storages[name] = torch.empty(len(data), dtype=torch.uint8, device=device).copy_(host).untyped_storage()
        made: dict[Window, Tensor] = {}

        def one(value: Any) -> Any:
            if isinstance(value, Window):
                if value not in made:
                    t = torch.empty(0, dtype=value.dtype, device=device)
                    made[value] = t.set_(storages[value.storage], value.offset, value.shape, value.stride)
                return made[value]
            if isinstance(value, (list, tuple)):
                return type(value)(one(v) for v in value)
            if value == "<device>":
                return torch.device(device)
            if value == "<generator>":
                generator = torch.Generator(device)
                if self.state is not None:
                    generator.set_state(torch.frombuffer(bytearray(self.state), dtype=torch.uint8))
                return generator
            return value

        return [one(a) for a in self.args], {k: one(v) for k, v in self.kwargs.items()}, storages


@dataclass
class Ran:
    """What a run left behind, and how it relates to its arguments."""

    results: list
    profile: list
    changed: list
    error: Exception | None = None


def significant_strides(t: Tensor) -> tuple:
    """Strides of dimensions longer than one: others decide nothing."""
    return tuple(stride for size, stride in zip(t.shape, t.stride(), strict=True) if size > 1)


def set_state(device: str, state: bytes) -> None:
    tensor = torch.frombuffer(bytearray(state), dtype=torch.uint8)
    kind = torch.device(device).type
    if kind == "cpu":
        torch.set_rng_state(tensor)
    else:
        getattr(torch, kind).set_rng_state(tensor)


def execute(case: Case, device: str, operator: Any) -> Ran:
    """Build the call on a device and run it."""
    args, kwargs, storages = case.build(device)
    if case.state is not None:
        set_state(device, case.state)
    leaves = [t for v in (*args, *kwargs.values()) for t in flat_tensors(v) if isinstance(t, Tensor)]
    targets = [t for n in case.written for t in flat_tensors(kwargs[n] if isinstance(n, str) else args[n])]
    kept = [t for t in leaves if not any(t is w for w in targets)]
    versions = [t._version for t in kept]
    names = {s._cdata: name for name, s in storages.items()}
    try:
        returned = operator(*args, **kwargs)
    except Exception as error:
        return Ran([], [], [], error)
    written = [t for n in case.written for t in flat_tensors(kwargs[n] if isinstance(n, str) else args[n])]
    written = [t for t in written if isinstance(t, Tensor)]
    results = [r for r in flat_tensors(returned) if not any(r is w for w in written)] + written
    profile = []
    for r in flat_tensors(returned):
        if isinstance(r, Tensor):
            identity = next((i for i, t in enumerate(leaves) if t is r), None)
            shared = names.get(r.untyped_storage()._cdata) if r.numel() else None
            layout = (
                tuple(r.shape),
                significant_strides(r) if r.numel() > 1 else (),
                r.storage_offset() if r.numel() else 0,
            )
            profile.append((str(r.dtype), *layout, shared, identity))
    changed = []
    for name, storage in storages.items():
        now = torch.empty(0, dtype=torch.uint8, device=device).set_(storage).cpu()
        before = case.storages[name]
        if len(before) == now.numel() and bytes(now.numpy().tobytes()) != before:
            changed.append(name)
    if versions != [t._version for t in kept]:
        changed.append("a version counter")
    return Ran([r.cpu() if isinstance(r, Tensor) else r for r in results], profile, changed)


PROFILE = ("dtype", "shape", "strides", "offset", "memory shared with an argument", "identity with an argument")


def profile_difference(s: Ran, r: Ran, layouts: bool) -> str:
    """The first difference in kind, in words."""
    if len(s.profile) != len(r.profile):
        return f"{len(s.profile)} results against {len(r.profile)}"
    for i, (mine, theirs) in enumerate(zip(s.profile, r.profile, strict=True)):
        for name, a, b in zip(PROFILE, mine, theirs, strict=True):
            if a != b and (layouts or name in ("dtype", "shape")):
                return f"{name} of result {i}: {a}, reference {b}"
    return ""


@contextlib.contextmanager
def settings(flags: dict):
    """torch's flags as they were when the call was recorded."""
    before = torch.get_default_dtype(), torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_default_dtype(flags.get("default_dtype", before[0]))
    torch.set_num_threads(flags.get("threads", before[1]))
    torch.set_float32_matmul_precision(flags.get("float32_matmul_precision", before[2]))
    try:
        yield
    finally:
        torch.set_default_dtype(before[0])
        torch.set_num_threads(before[1])
        torch.set_float32_matmul_precision(before[2])


def judge_case(case: Case, subject: str, reference: str) -> Judgement:
    """Run the case on both devices and say who is wrong."""
    with settings(case.flags), torch.no_grad():
        own = torch.device(subject).type == torch.device(reference).type
        s = execute(case, subject, case.reference() if own else case.operator())
        r = execute(case, reference, case.reference())
        if s.error is not None and r.error is not None:
            return Judgement(EQUAL, detail=f"both raise: {type(s.error).__name__}")
        if s.error is not None or r.error is not None:
            error = s.error or r.error
            return Judgement(SUBJECT_RAISED if s.error else REFERENCE_RAISED, detail=f"{type(error).__name__}: {error}")
        problem = profile_difference(s, r, layouts=case.op not in REFERENCES)
        if not problem and s.changed != r.changed and set(s.changed) - set(r.changed) - _written_storages(case):
            problem = f"written: {', '.join(sorted(set(s.changed) - set(r.changed)))}"
        if problem:
            return Judgement(METADATA, detail=problem)

        def make_args():
            args, kwargs, _ = case.build(reference)
            return args, kwargs

        arbiter = Arbiter(case.reference(), make_args, case.written) if case.state is None else None
        worst = Judgement(EQUAL)
        for i, (a, b) in enumerate(zip(s.results, r.results, strict=True)):
            if a is None or b is None:
                continue
            usable = arbiter if arbiter is not None and arbiter.results and i < len(arbiter.results) else None
            j = judge(a, b, on_host(usable), i, case.op.startswith(PIVOTED))
            if (j.verdict in BAD, j.subject.norm if j.subject else 0.0) > (
                worst.verdict in BAD, worst.subject.norm if worst.subject else 0.0
            ) or worst.verdict == EQUAL:  # fmt: skip
                worst = j
        again = execute(case, subject, case.reference() if own else case.operator())
        for i, (a, b) in enumerate(zip(s.results, again.results, strict=False)):
            if isinstance(a, Tensor) and not (a.shape == b.shape and same_bits(a, b)) and worst.verdict not in BAD:
                return Judgement(
                    NONDETERMINISTIC, worst.subject, worst.reference, detail=f"two runs differ in result {i}"
                )
        return worst


def on_host(arbiter: Arbiter | None) -> Arbiter | None:
    """The arbiter with its results on the host, where the others are."""
    if arbiter is not None and arbiter.results is not None:
        arbiter.results = [t.cpu() if isinstance(t, Tensor) else t for t in arbiter.results]
    return arbiter


def _written_storages(case: Case) -> set:
    windows = [w for n in case.written for w in flat_tensors(case.kwargs[n] if isinstance(n, str) else case.args[n])]
    return {w.storage for w in windows if isinstance(w, Window)}


def available(device: str) -> bool:
    """Whether this torch knows the device and can put a tensor there."""
    if device.split(":")[0] == "minitorch":
        with contextlib.suppress(ImportError):
            import minitorch_backend  # noqa: F401
    try:
        torch.empty(1, device=device)
    except Exception:
        return False
    return True


def decode(data: str) -> bytes:
    return zlib.decompress(base64.b85decode(data))


def beside(path: str, file: str) -> dict[str, bytes]:
    """Storages from a safetensors file beside the replay file."""
    from safetensors.torch import load_file

    tensors = load_file(os.path.join(os.path.dirname(os.path.abspath(path)), file))
    return {name: t.numpy().tobytes() for name, t in tensors.items()}


def main(case: Case, subject: str, reference: str) -> int:
    """The command line of a replay file; returns its exit status."""
    parser = argparse.ArgumentParser(description=f"Replays one call of {case.op}. Exit status 1 while a side is wrong.")
    parser.add_argument("--subject", default=None, help=f"device in question (default: {subject})")
    parser.add_argument("--reference", default=None, help=f"device to hold it against (default: {reference})")
    options = parser.parse_args()
    chosen = options.subject or subject
    against = options.reference or reference
    for device, given in ((chosen, options.subject), (against, options.reference)):
        if not available(device):
            if given:
                print(f"This torch ({torch.__version__}) has no device {device!r}.", file=sys.stderr)
                return 2
            print(f"{device} is not here: cpu takes its place, so this shows what native makes of the call.")
            chosen, against = ("cpu" if chosen == device else chosen), ("cpu" if against == device else against)
    j = judge_case(case, chosen, against)
    print(f"{case.op}{'.' + case.overload if case.overload else ''}: subject {chosen}, reference {against}")
    print(f"recorded verdict: {case.verdict}")
    print(f"verdict:          {j.verdict}{' (' + j.detail + ')' if j.detail else ''}")
    for name, e in (("subject", j.subject), ("reference", j.reference)):
        if e is not None:
            print(f"  {name:9} {e.max_ulp:12.4g} ulp at most, {e.mean_ulp:10.4g} on average, relative {e.relative:.3g}")
    return 1 if j.verdict in BAD else 0
