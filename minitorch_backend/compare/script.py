"""Compares what a script does, unchanged, and writes the report whatever becomes of the script.

The script runs in a child process. The child writes its report to a file from time to time, and the call in flight to
shared memory, so that the parent can still say what happened when the child is killed or leaves by ``os._exit``.
"""

import contextlib
import json
import mmap
import os
import pathlib
import pickle
import runpy
import signal
import subprocess
import sys
import time
from typing import Any

from minitorch_backend.compare.options import Options
from minitorch_backend.whole import replacing

FLIGHT_BYTES = 512
SNAPSHOT_SECONDS = 5.0
SNAPSHOT, DONE, FLIGHT, JOB = "snapshot.json", "done.json", "flight", "job.pickle"


def prepare(script: str, arguments: list[str], options: Options, folder: pathlib.Path) -> pathlib.Path:
    """The working folder that parent and child talk through."""
    work = folder.absolute() / ".work"
    work.mkdir(parents=True, exist_ok=True)
    for name in (SNAPSHOT, DONE):
        (work / name).unlink(missing_ok=True)
    (work / FLIGHT).write_bytes(b"\0" * FLIGHT_BYTES)
    (work / JOB).write_bytes(pickle.dumps((script, arguments, options, str(folder))))
    return work


def run_child(script: str, arguments: list[str], options: Options, folder: pathlib.Path) -> int:
    """The parent's part: start the child and wait. Returns the child's exit status."""
    work = prepare(script, arguments, options, folder)
    child = subprocess.Popen([sys.executable, "-m", "minitorch_backend.compare.script", str(work)])
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            continue  # the child has it too and ends in its own way


def collect(folder: pathlib.Path, status: int) -> dict[str, Any] | None:
    """The data that the child left: complete, or the last snapshot with a word on how it died."""
    work = folder / ".work"
    if (work / DONE).exists():
        data = json.loads((work / DONE).read_text())
    else:
        how = (
            f"the process was killed by {signal.Signals(-status).name}"
            if status < 0
            else f"the process left with status {status}"
        )
        data = json.loads((work / SNAPSHOT).read_text()) if (work / SNAPSHOT).exists() else None
        flight = (work / FLIGHT).read_bytes().rstrip(b"\0").decode(errors="replace")
        where = f" while or after call {flight}" if flight else " before any operator was compared"
        if data is not None:
            data["run"]["ended"] = how + where
            data["notes"].append("statistics are those of the last snapshot before the end")
    for name in (SNAPSHOT, DONE, FLIGHT, JOB):
        (work / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        work.rmdir()
    return data


class Journal:
    """What the child tells its parent while it runs."""

    def __init__(self, work: pathlib.Path) -> None:
        self.work = work
        with (work / FLIGHT).open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), FLIGHT_BYTES)
        self.last = time.monotonic()

    def flight(self, index: int, op: str, module: str) -> None:
        """Before a call: which one it is."""
        text = f"{index}: {op} {module}".encode()[:FLIGHT_BYTES]
        self.memory[: len(text) + 1] = text + b"\0" if len(text) < FLIGHT_BYTES else text
        if len(text) + 1 < FLIGHT_BYTES:
            self.memory[len(text) + 1 :] = b"\0" * (FLIGHT_BYTES - len(text) - 1)

    def snapshot(self, report: Any, force: bool = False) -> None:
        now = time.monotonic()
        if force or now - self.last > SNAPSHOT_SECONDS:
            self.last = now
            self.put(SNAPSHOT, report)

    def put(self, name: str, report: Any) -> None:
        """Replace a file that the parent reads."""
        with replacing(self.work / name) as part:
            part.write_text(json.dumps(report.data()))


def child(work: pathlib.Path) -> int:
    """The child's part: run the script inside a session."""
    script, arguments, options, folder = pickle.loads((work / JOB).read_bytes())
    from minitorch_backend.compare.progress import Progress
    from minitorch_backend.compare.session import session

    journal = Journal(work)
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    status, report = 0, None
    comparison = session(options, replay=pathlib.Path(folder) / "replay")
    report = comparison.__enter__()
    report.command = [script, *arguments]
    recorder = report.recorder
    progress = Progress(recorder, options)
    journal.snapshot(report, force=True)

    def on_call(index: int) -> None:
        progress.update()
        journal.snapshot(report)

    recorder.in_flight, recorder.on_call = journal.flight, on_call
    owner = os.getpid()
    caught: BaseException | None = None
    try:
        with progress:
            runpy.run_path(script, run_name="__main__")
    except BaseException as error:
        caught = error
    if os.getpid() != owner:  # a forked child of the script that came back here
        os._exit(0 if caught is None else 1)
    try:
        comparison.__exit__(type(caught) if caught else None, caught, caught.__traceback__ if caught else None)
    except BaseException as error:
        if error is not caught:
            raise
    if isinstance(caught, SystemExit):
        status = caught.code if isinstance(caught.code, int) else int(caught.code is not None)
    elif caught is not None:
        status = 130 if isinstance(caught, KeyboardInterrupt) else 1
        if report.error:
            sys.stderr.write(report.error)
    journal.put(DONE, report)
    return status


if __name__ == "__main__":
    sys.exit(child(pathlib.Path(sys.argv[1])))
