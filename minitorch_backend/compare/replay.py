"""Writes replay files: one Python file that builds a call's inputs exactly, runs it and judges it, with plain torch."""

import base64
import inspect
import math
import pathlib
import re
import sys
import zlib
from typing import Any

import torch
from torch import Tensor

from minitorch_backend.compare import judge, references, replay_runtime
from minitorch_backend.compare.mirror import bytes_of
from minitorch_backend.compare.options import Options
from minitorch_backend.compare.replay_runtime import Case, Window
from minitorch_backend.compare.store import Finding

INLINE_BYTES = 24 * 1024  # packed size up to which values stand in the file
LARGEST = 256 * 2**20  # bytes of inputs beyond which no file is written

_HEADER = '''"""{title}

{verdict}: {detail}
{where}

    python {file} [--subject DEVICE] [--reference DEVICE]

Exit status: 0 when both devices agree, 1 while the verdict holds, 2 when a device that was asked for is missing. Needs
torch and numpy{needs}; minitorch only if it is one of the devices. Written by minitorch compare.
"""
'''
_IMPORTS = """
import argparse
import base64
import contextlib
import math
import os
import sys
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
"""


def body(module: Any) -> str:
    """The text of a module without its docstring and imports."""
    text = inspect.getsource(module)
    text = re.sub(r'\A""".*?"""\n', "", text, flags=re.DOTALL)
    text = re.sub(r"# package imports\n.*?# end of package imports\n", "", text, flags=re.DOTALL)
    return re.sub(r"^(import .*|from .* import .*)\n", "", text, flags=re.MULTILINE).strip("\n")


def literal(value: Any, indent: str = "") -> str:
    """A Python expression for an argument."""
    if isinstance(value, Window):
        return f"Window({value.storage!r}, {value.dtype}, {value.shape!r}, {value.stride!r}, {value.offset})"
    if isinstance(value, (list, tuple)):
        opening, closing = "[]" if isinstance(value, list) else "()"
        inner = ", ".join(literal(v) for v in value) + ("," if isinstance(value, tuple) and len(value) == 1 else "")
        return f"{opening}{inner}{closing}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, complex):
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    return repr(value)


def source(case: Case, file: pathlib.Path, subject: str, reference: str, words: dict[str, str]) -> str:
    """The text of a replay file; large values go to a safetensors file beside it."""
    packed = {name: base64.b85encode(zlib.compress(data, 6)).decode() for name, data in case.storages.items()}
    outside = sum(map(len, packed.values())) > INLINE_BYTES
    if outside:
        from safetensors.torch import save_file

        tensors = {
            n: torch.frombuffer(bytearray(d or b"\0"), dtype=torch.uint8)[: len(d)] for n, d in case.storages.items()
        }
        save_file(tensors, file.with_suffix(".safetensors"))
        storages = f"beside(__file__, {file.with_suffix('.safetensors').name!r})"
    else:
        lines = [f"    {name!r}: decode(\n" + wrapped(text) + "    )," for name, text in packed.items()]
        storages = "{\n" + "\n".join(lines) + "\n}" if lines else "{}"
    overload = f".{case.overload}" if case.overload else ""
    header = _HEADER.format(
        title=f"Replays one call of {case.op}{overload}.", file=file.name,
        needs=" and safetensors" if outside else "", **words,
    )  # fmt: skip
    uses_references = case.op in references.REFERENCES
    parts = [
        header.replace("\\", "\\\\"),
        _IMPORTS,
        "# The call",
        "",
        "",
        "def make_case():",
        "    return Case(",
        f"        op={case.op!r},",
        f"        overload={case.overload!r},",
        f"        storages={indent(storages, 8)},",
        f"        args={literal(case.args)},",
        f"        kwargs={literal(case.kwargs)},",
        f"        written={case.written!r},",
        f"        state={state_literal(case.state)},",
        f"        flags={literal(case.flags)},",
        f"        verdict={case.verdict!r},",
        "    )",
        "",
        "",
        f"SUBJECT, REFERENCE = {subject!r}, {reference!r}",
        "",
        "",
        "# The judge",
        "",
        body(judge),
        "",
        "",
        "# What stands in for operators that the reference lacks",
        "",
        body(references) if uses_references else "REFERENCES = {}",
        "",
        "",
        "# The run",
        "",
        body(replay_runtime),
        "",
        "",
        'if __name__ == "__main__":',
        "    sys.exit(main(make_case(), SUBJECT, REFERENCE))",
        "",
    ]
    return "\n".join(parts)


def indent(text: str, by: int) -> str:
    return text.replace("\n", "\n" + " " * by)


def wrapped(text: str, width: int = 100) -> str:
    return "".join(f"        {text[i : i + width]!r}\n" for i in range(0, max(len(text), 1), width))


def state_literal(state: bytes | None) -> str:
    if state is None:
        return "None"
    return f"decode({base64.b85encode(zlib.compress(state, 9)).decode()!r})"


def case_of(comparison: Any) -> Case | None:
    """The call as it was before it ran; None when its inputs are too large or gone."""
    op, recorder = comparison.op, comparison.r
    before = comparison.before
    if before is None and comparison.written:
        return None
    storages: dict[str, bytes] = {}
    names: dict[int, str] = {}
    held = 0

    def window(t: Tensor) -> Window:
        nonlocal held
        storage = t.untyped_storage()
        key = storage._cdata
        if key not in names:
            names[key] = f"s{len(names)}"
            held += storage.nbytes()
            if held > LARGEST:
                raise ValueError("too large")
            seen, device = storage, t.device
            if before is not None and key in before.storages:
                seen, device = before.storages[key], recorder.reference
            storages[names[key]] = bytes_of(seen, device).cpu().numpy().tobytes()
        return Window(names[key], t.dtype, tuple(t.shape), tuple(t.stride()), t.storage_offset())

    def one(value: Any) -> Any:
        if isinstance(value, Tensor):
            return window(value)
        if isinstance(value, (list, tuple)):
            return type(value)(one(v) for v in value)
        if isinstance(value, torch.device):
            return "<device>" if value.type == recorder.type else value
        return "<generator>" if isinstance(value, torch.Generator) else value

    try:
        args, kwargs = comparison.look()
        args, kwargs = [one(a) for a in args], {k: one(v) for k, v in kwargs.items()}
    except ValueError:
        return None
    state = comparison.state
    return Case(
        op.name, op.func._schema.overload_name, storages, args, kwargs, list(comparison.written),
        state.cpu().numpy().tobytes() if state is not None else None,
        {
            "default_dtype": torch.get_default_dtype(),
            "threads": torch.get_num_threads(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
        },
        comparison.verdict,
    )  # fmt: skip


class Writer:
    """Writes the replay file of each finding when it is made, while its inputs are alive."""

    def __init__(self, folder: pathlib.Path, options: Options) -> None:
        self.folder, self.options = folder, options

    def write(self, finding: Finding, comparison: Any) -> None:
        case = case_of(comparison)
        if case is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        call = finding.first
        file = self.folder / f"{call.index:06d}_{re.sub(r'[^a-z0-9]+', '_', call.op.lower()).strip('_')}.py"
        words = {
            "verdict": call.verdict,
            "detail": call.detail or f"{call.subject_ulp:.4g} ulp against {call.reference_ulp:.4g}",
            "where": f"Call {call.index}, {call.phase}, step {call.step}{', ' + call.module if call.module else ''}.",
        }
        file.write_text(source(case, file, self.options.subject, self.options.reference, words))
        finding.replay = str(file)
        finding.command = f"{pathlib.Path(sys.executable).name} {file}"


def load(file: "str | pathlib.Path") -> tuple[Case, str, str]:
    """(case, subject, reference) of a replay file, as this package's own classes."""
    import runpy

    namespace = runpy.run_path(str(file), run_name="replay")
    theirs = namespace["make_case"]()

    def one(value: Any) -> Any:
        if type(value).__name__ == "Window":
            return Window(value.storage, value.dtype, value.shape, value.stride, value.offset)
        if isinstance(value, (list, tuple)):
            return type(value)(one(v) for v in value)
        return value

    case = Case(**vars(theirs))
    case.args, case.kwargs = [one(a) for a in case.args], {k: one(v) for k, v in case.kwargs.items()}
    return case, namespace["SUBJECT"], namespace["REFERENCE"]
