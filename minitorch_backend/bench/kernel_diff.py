"""A user's kernel against native, on PyTorch's own sample inputs, in a process of its own.

    python -m minitorch_backend.bench.kernel_diff FILE FOLDER PARENT

The parent, ``diff``, starts this and watches the time that each step takes: loading, one run of a compiler, a sample.
It runs with poisoned memory, so that a write outside a tensor is found and a read of memory that was never written
shows as NaN. The child (kernel_samples.py does its work) writes a line of JSON a finding into the folder, not to its
output, where a kernel may print too; when it dies or hangs, its last note says at which step.
"""

import contextlib
import json
import math
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict

import psutil

from minitorch_backend.bench import process_state
from minitorch_backend.bench.kernel_samples import (
    COMPILING,
    MANY,
    SAMPLE,
    START,
    Examination,
    Finding,
    dtypes_of,
    infos,
)  # fmt: skip
from minitorch_backend.kernels import compiler
from minitorch_backend.whole import replacing

TIME_LIMIT = 120.0  # seconds for a sample
START_LIMIT = 180.0  # ... for loading the file and PyTorch's tables, at least
CALLS = 20.0  # ... for calling the kernel over and over, times the time of a sample
LATER = 30.0  # after a compiler's own limit, at which the child stops it and says so
LOOK = 0.2
FINDINGS, NOTE, ERRORS, END = "findings", "note", "errors", "end"  # files; the last one says that all was examined
MOST_LINES = 60  # of a compiler's message
THREADS = 4 * (os.cpu_count() or 1) + 64  # that torch, its interpreter and OpenMP need no more of
SHOWN = 20  # last lines that a kernel printed before it died


class Note:
    """In the child: which step it is at, in a file whose time says since when."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.path, self.at = folder / NOTE, ("", START)

    def __call__(self, text: str, step: str) -> None:
        self.at = (text, step)
        self._write(*self.at)

    def compiling(self, title: str) -> None:
        """A compiler begins, in the middle of another step, whose time begins anew after it."""
        self._write(*((title, COMPILING) if title else self.at))

    def _write(self, text: str, step: str) -> None:
        with replacing(self.path) as part:
            part.write_text(json.dumps([text, step]))


def read_note(folder: pathlib.Path) -> tuple[str, str]:
    """Text and step."""
    try:
        text, step = json.loads((folder / NOTE).read_text())
    except (OSError, ValueError):
        return "start", START
    return text, step


def child(path: pathlib.Path, folder: pathlib.Path) -> None:
    """The work of the child process: a line of JSON a finding."""
    from minitorch_backend.kernels import files

    note = Note(folder)
    compiler.listeners.append(note.compiling)
    note("loading the file", START)
    with (folder / FINDINGS).open("w") as found:
        state = process_state.State.now()
        overrides = files.load(path)
        if left := state.changes(("environment",)):  # in which a file may set what its compiler reads
            finding = Finding(
                "", "", "failed", message=f"the file leaves the process changed when it is loaded: {left}"
            )
            print(json.dumps(asdict(finding)), file=found, flush=True)
        for override in overrides:
            note("loading PyTorch's samples", START)
            infos(override.operator.base)
            for dtype in dtypes_of(override):
                finding = Examination(override, dtype, note).run()
                print(json.dumps(asdict(finding)), file=found, flush=True)
                if not override.dtypes and not finding.good:
                    break  # wrong for all dtypes is said once
    (folder / END).touch()


def wait(process: subprocess.Popen, folder: pathlib.Path, limit: float) -> str:
    """Until the child ends, or a step has taken too long: what is to be said about that, "" when it examined all."""
    most = {
        START: max(limit, START_LIMIT), COMPILING: compiler.TIME_LIMIT + LATER, SAMPLE: limit, MANY: CALLS * limit,
    }  # fmt: skip
    begun = time.time()
    found = psutil.Process(process.pid)
    while True:
        with contextlib.suppress(psutil.Error):
            if (threads := found.num_threads()) > THREADS and limit < math.inf:
                return f"has {threads} threads, which its calls start and leave, and was stopped"
        try:
            process.wait(timeout=LOOK)
            return how_it_ended(process.returncode, folder)
        except subprocess.TimeoutExpired:
            step = read_note(folder)[1]
            with contextlib.suppress(OSError):
                begun = (folder / NOTE).stat().st_mtime
            if time.time() - begun > most[step] and limit < math.inf:
                return f"did not end within {most[step]:g} s and was stopped"


def diff(path: pathlib.Path, time_limit: float = TIME_LIMIT) -> list[Finding]:
    """What the child found; a crash, a hang or a file that does not load is a finding too.

    ``time_limit``: seconds that a sample may take. Loading and each run of a compiler have limits of their own; with an
    infinite one there is none at all.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        token = secrets.token_hex(8)
        poisoned = {"MINITORCH_POISON": "1", "MINITORCH_FALLBACK": "allow", process_state.TOKEN: token}
        environment = {**os.environ, **poisoned}
        command = process_state.python(__spec__.name, str(path), str(folder), str(os.getpid()))
        left: list[psutil.Process] = []
        with (folder / ERRORS).open("w") as errors:
            process = subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
            )
            try:
                message = wait(process, folder, time_limit)
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
            findings.append(Finding("", "", "failed", message=f"{message}\n(at: {read_note(folder)[0]})"))
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
    process_state.end_with(int(sys.argv[3]))
    child(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
