"""A run in a process that can be ended: what hangs, or takes its process along, is reported, and the run goes on.

The child measures as if it were alone and notes in a file which case it is at. The parent sleeps, looks at the note
once a second, ends a child whose case is over its time, writes the case down as failed, and has a new child resume. A
child may also leave the rest of the work to the next one (suite.py), to which it hands on what is not in the results.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import click
import psutil
from rich.console import Console

from minitorch_backend.bench import process_state, results
from minitorch_backend.bench.results import Result
from minitorch_backend.cli import INTERRUPTED
from minitorch_backend.whole import replacing

# In the child's environment: where it notes what it is at, and its parent.
NOTE, PARENT = "MINITORCH_BENCH_NOTE", "MINITORCH_BENCH_PARENT"
UNFINISHED = 75  # exit status of a child that leaves the rest to the next
NO_CASE = "--"  # what a note begins with that is of no case: an option, or "-- " and what is done
NO_CASE_LIMIT = 300.0  # seconds that such a thing may take at least: limits, or loading and compiling a kernel
LOOK = 1.0
GRACE = 60.0  # seconds that an interrupted child has to say what it found


def arguments(command: click.Command, options: dict[str, object]) -> list[str]:
    """The command line that gives these options."""
    found = []
    for parameter in command.params:
        value, name = options[parameter.name], max(parameter.opts, key=len)
        if value is True:
            found.append(name)
        elif value is not False and value is not None and str(value) != str(parameter.default):
            found.append(f"{name}={value}")
    return found


def note_taker() -> Callable[[str], None]:
    """In a child: writes down which case it is at, "" for none, NO_CASE and more for what else. Elsewhere nothing."""
    path = os.environ.get(NOTE)
    if path is None:
        return lambda case: None
    process_state.end_with(int(os.environ[PARENT]))

    def take(case: str) -> None:
        with contextlib.suppress(OSError):  # on a full disk the note is empty, and no limit holds
            pathlib.Path(path).write_text(case)

    return take


@contextlib.contextmanager
def later_interrupts() -> Iterator[None]:
    """An interrupt waits until the end. A process that is started inside lets it wait until ``hear_interrupts``."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hear_interrupts() -> None:
    """In a child that can answer now, with what it has: until then it would die of one with a traceback."""
    if is_child():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def leave(code: int) -> None:
    """In a child: end at once with this status. A thread that a case or a kernel has left would be waited for."""
    if is_child():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def is_child() -> bool:
    return NOTE in os.environ


def carried() -> dict | None:
    """In a child: what the one before it handed on."""
    path = _carried(os.environ[NOTE]) if is_child() else None
    return json.loads(path.read_text()) if path and path.exists() else None


def keep(facts: dict) -> None:
    """In a child: leave this to the next one, also if this one hangs or dies. Elsewhere nothing."""
    if is_child():
        with contextlib.suppress(OSError), replacing(_carried(os.environ[NOTE])) as part:
            part.write_text(json.dumps(facts))


def _carried(note: str) -> pathlib.Path:
    return pathlib.Path(note).with_suffix(".json")


class Child:
    """One process of a run. ``limit``: seconds that a case may take."""

    def __init__(self, arguments: list[str], note: pathlib.Path, limit: float) -> None:
        self.note, self.limit = note, limit
        self.interrupted: float | None = None  # when
        note.write_text("")
        with later_interrupts():
            self.process = subprocess.Popen(
                process_state.python("minitorch_backend", "bench", *arguments),
                env={**os.environ, NOTE: str(note), PARENT: str(os.getpid())},
                process_group=0,  # so that an interrupt comes from us, once
            )
        self.ended = threading.Event()
        threading.Thread(target=lambda: (self.process.wait(), self.ended.set()), daemon=True).start()

    def wait(self) -> str:
        """Until it ends; what is wrong with the case that it was at then, "" when nothing is."""
        try:
            return self._wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # what a user's kernel started and left

    def _wait(self) -> str:
        while True:
            try:
                while not self.ended.wait(LOOK):
                    now, case = time.time(), self.case()
                    most = max(self.limit, NO_CASE_LIMIT) if case.startswith(NO_CASE) else self.limit
                    if case and now - self.note.stat().st_mtime > most:
                        self.kill()
                        return f"did not end within {most:g} s and was stopped"
                    if self.interrupted and now - self.interrupted > GRACE:
                        self.kill()
                break
            except KeyboardInterrupt:
                if self.interrupted:
                    self.kill()
                self.interrupted = time.time()
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.process.pid, signal.SIGINT)
        code = self.process.returncode
        if self.interrupted or code == INTERRUPTED or not self.case():
            return ""
        return f"ended the process ({signal.Signals(-code).name if code < 0 else f'exit status {code}'})"

    def case(self) -> str:
        return self.note.read_text()

    def kill(self) -> None:
        """The process with all that it has started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in (*psutil.Process(self.process.pid).children(recursive=True), self.process):
                with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                    process.kill()
        self.ended.wait()


def write_down(path: pathlib.Path, case: str, message: str) -> bool:
    """Make a case of a result file one that failed; False when it was no case, or failed in vain before.

    Raises OSError when the file cannot be written; gone on with, the run would come to this case again.
    """
    try:
        run = results.read(path)
    except (OSError, ValueError):
        return False
    if case.startswith(NO_CASE) or (case in run.results and run.results[case].status == "failed"):
        return False
    result = run.results.setdefault(case, Result(case, case.split("/")[0], rival=run.machine.get("rival", "")))
    result.status, result.message = "failed", message
    result.ratio = result.low = result.high = None
    results.Writer(path, run.machine, run.limits, run.results.values()).close()
    return True


def supervise(given: list[str], json_path: pathlib.Path, limit: float, console: Console) -> int:
    """Run ``minitorch bench`` with these arguments until every case is done; its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        note = pathlib.Path(folder) / "case"
        while True:
            child = Child(given, note, limit)
            problem, case = child.wait(), child.case()
            if not problem:
                code = child.process.returncode
                if child.interrupted and (code == UNFINISHED or code < 0):
                    # It had done its pass when that came, or was ended by a second one.
                    console.print("interrupted; --resume goes on", style="yellow")
                    return INTERRUPTED
                if code == UNFINISHED and not case:
                    given = resuming(given)
                    continue
                if code < 0:
                    console.print(f"the run was ended by {signal.Signals(-code).name}", style="red")
                return code if code >= 0 else 1
            try:
                written = write_down(json_path, case, problem)
            except OSError as error:
                console.print(f"{json_path} is not whole: {error}", style="red")
                written = False
            if not written:
                console.print(f"{case.removeprefix(f'{NO_CASE} ')}: {problem}", style="red")
                return 1
            console.print(f"{case}: {problem}; the run goes on without it", style="red")
            given = resuming(given)


def resuming(given: list[str]) -> list[str]:
    return given if "--resume" in given else [*given, "--resume"]
