"""``minitorch bench --kernel FILE``: a user's kernel, diffed against native first, then raced against ours and native.

Both happen in processes of their own: a kernel that hangs, crashes or writes where it should not takes those along.
"""

import contextlib
import hashlib
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from minitorch_backend.bench import kernel_diff, limits, machine, placement, race, report, results
from minitorch_backend.bench.case import Case
from minitorch_backend.bench.results import Result
from minitorch_backend.bench.runner import OURS, Runner, Side, native
from minitorch_backend.kernels import chain, files
from minitorch_backend.kernels.overriding import Override

if TYPE_CHECKING:
    from minitorch_backend.bench.command import Command

LOOK = 0.2
START_LIMIT = 300.0  # seconds until the first case: limits, compilation
IN_CHILD = "MINITORCH_BENCH_KERNEL_CHILD"
MOST_CASES = 12


def run(command: "Command", path: pathlib.Path) -> int:
    """Diff, then race; 1 when the kernel is wrong or does not survive."""
    if end := os.environ.get(IN_CHILD):
        try:
            return race_file(command, path, note_beside(pathlib.Path(end)))
        finally:
            pathlib.Path(end).touch()  # says that it was not the kernel that ended the process
    from minitorch_backend.bench import command as commands

    console = command.console
    commands.choose_cases(command.folder, command.only, command.backend)  # what is wrong with them is said first
    commands.check_writable(command.json_path)
    if not is_right(path, console):
        return 1
    return race_in_child(path, console, command.time_limit or math.inf)


def is_right(path: pathlib.Path, console: Console) -> bool:
    """Diff a file's kernels against native and say what was found; whether they may race."""
    with console.status(Text(f"diffing {path.name} against native")):
        findings = kernel_diff.diff(path)
    report.show(console, findings_table(findings))
    for finding in findings:
        if finding.message:
            console.print(f"{finding.operator or path.name}: {finding.verdict}: {finding.message}")
    if not findings or not all(f.good or f.verdict == "not reached" for f in findings):
        console.print("The kernel is not raced: it must give what the operator gives first.", style="red")
        return False
    return True


def race_in_child(path: pathlib.Path, console: Console, limit: float) -> int:
    with tempfile.TemporaryDirectory() as folder:
        return start_and_wait(path, pathlib.Path(folder) / "end", console, limit)


def start_and_wait(path: pathlib.Path, end: pathlib.Path, console: Console, limit: float) -> int:
    environment = {**os.environ, IN_CHILD: str(end)}
    process = subprocess.Popen(
        [sys.executable, "-m", "minitorch_backend", *sys.argv[1:]] if is_command_line()
        else [sys.executable, "-m", "minitorch_backend", "bench", "--kernel", str(path), "--quick"],
        env=environment, start_new_session=True,
    )  # fmt: skip
    return wait(process, end, console, limit)


def wait(process: subprocess.Popen, end: pathlib.Path, console: Console, limit: float = 300.0) -> int:
    """The child's exit status, or 1 with a word why there is none of its own, and at which case.

    ``limit``: seconds that a case may take.
    """
    note, begun = note_beside(end), time.time()
    try:
        while (code := process.poll()) is None:
            time.sleep(LOOK)
            since, most = (note.stat().st_mtime, limit) if note.exists() else (begun, max(limit, START_LIMIT))
            if time.time() - since > most:
                console.print(f"The race did not go on within {most:g} s and was stopped{at(note)}.", style="red")
                return 1
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and what the kernel may have started
        process.wait()
    if code < 0:
        console.print(f"The race was killed by {signal.Signals(-code).name}{at(note)}.", style="red")
    elif not end.exists():
        console.print(
            f"The kernel ended the process (exit status {code}) in the middle of the race{at(note)}.", style="red"
        )
        return 1
    return 0 if code == 0 else 1


def note_beside(end: pathlib.Path) -> pathlib.Path:
    """Where the child writes which case it is at."""
    return end.with_name(f"{end.name}.case")


def at(note: pathlib.Path) -> str:
    return f", at {note.read_text()}" if note.exists() else ""


def is_command_line() -> bool:
    return "bench" in sys.argv and any(a.split("=")[0] == "--kernel" for a in sys.argv)


def findings_table(findings: list[kernel_diff.Finding]) -> Table:
    made = Table(box=None, pad_edge=False, title="Against native, on PyTorch's sample inputs", title_justify="left")
    for heading in ("operator", "dtype", "samples", "error", "native's error", ""):
        made.add_column(heading)
    for f in findings:
        colour = {"ok": "green", "less accurate": "yellow", "not reached": "yellow"}.get(f.verdict, "red")
        made.add_row(f.operator, f.dtype, str(f.samples), f"{f.error:.1e}", f"{f.native_error:.1e}",
                     Text(f.verdict, colour))  # fmt: skip
    return made


@contextlib.contextmanager
def in_force(overrides: list[Override]) -> Iterator[None]:
    threads = torch.get_num_threads()
    with contextlib.ExitStack() as stack:
        for override in overrides:
            stack.enter_context(override)
        try:
            yield
        finally:
            stack.close()
            chain.withdraw()  # the others' calls do not go through it; nothing else runs
            if torch.get_num_threads() != threads:  # a kernel that asked OpenMP for others does not slow its rivals
                torch.set_num_threads(threads)


def identity(path: pathlib.Path) -> str:
    """A kernel file as a result file names it: another text is another kernel."""
    return f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"


def load(path: pathlib.Path) -> list[Override]:
    """A file's kernels. Raises ClickException for a file that does not load."""
    try:
        return files.load(path)
    except Exception as error:
        raise click.ClickException(f"{path}: {type(error).__name__}: {error}") from None


def side(path: pathlib.Path, overrides: list[Override]) -> Side:
    """A file's kernels as a competitor."""
    calls = lambda: sum(override.calls for override in overrides)  # noqa: E731
    return Side(path.stem, OURS.device, lambda: in_force(overrides), calls=calls)


def choose(cases: list[Case], overrides: list[Override], only: str) -> list[Case]:
    """The cases named by ``--only``, or those whose name has the operator's in it; then those that reach the kernel."""
    if only:
        return [case for case in cases if re.search(only, case.full_name)]
    words = set()
    for override in overrides:
        base = override.operator.base
        for prefix in kernel_diff.PREFIXES:
            base = base.removeprefix(prefix)
        words |= {base, base.replace("_", " ")}
    found = [case for case in cases if any(re.search(rf"\b{re.escape(w)}\b", case.full_name) for w in words)]
    return (found or [case for case in cases if case.quick])[:MOST_CASES]


def race_file(command: "Command", path: pathlib.Path, note: pathlib.Path) -> int:
    """The race of native, ours and the user's; the user's is the last."""
    from minitorch_backend.bench import command as commands

    overrides = load(path)
    backend = command.backend
    every = commands.choose_cases(command.folder, command.only, backend)
    rival, mine = native(backend, command.folder), side(path, overrides)
    facts = machine.describe() | command.conditions([rival, OURS, mine]) | {"kernel": identity(path)}
    found = limits.measure(backend)
    budget, watch = race.budget_for(backend, command.quick), placement.find(backend)
    runner = Runner([rival, OURS, mine], found, budget, with_memory=not command.no_memory, watch=watch)
    writer = results.Writer(command.json_path, facts, found)
    done: list[Result] = []
    own = os.getpid()
    with report.progress(command.console) as bar:
        chosen = choose(every, overrides, command.only)
        task = bar.add_task("", total=len(chosen))
        for case in chosen:
            bar.update(task, description=case.full_name)
            note.write_text(case.full_name)
            result = runner.run(case)
            kernel_diff.end_copies(own)
            if result.status != "not reached":
                done.append(result)
                writer.add(result)
            bar.advance(task)
    runner.close()
    writer.close()
    if not done:
        command.console.print(commands.NOT_REACHED, style="yellow")
        return 1
    report.show(command.console, table(done, rival.name, path.stem))
    return 1 if any(not r.timed or r.status == "wrong" for r in done) else 0


def table(done: list[Result], rival: str, mine: str) -> Table:
    """Times of the three, the user's ratio to the other two (above 1 the user's is faster), and peak memory."""
    made = Table(box=None, pad_edge=False)
    made.add_column("case", overflow="fold", min_width=report.NAME)
    names = (rival, "minitorch", mine)
    for heading in (*names, f"vs {rival}", "vs minitorch", "of the limit", *(f"peak {name}" for name in names)):
        made.add_column(heading, justify="right")
    made.add_column("")
    for r in done:
        if not r.timed:
            made.add_row(r.name, *[""] * 9, report.not_timed(r))
            continue
        ours = r.others["minitorch"]
        made.add_row(
            r.name, *(report.seconds(r.seconds.get(name)) for name in names),
            f"{r.ratio:.2f} ({r.low:.2f} – {r.high:.2f})", f"{ours[0]:.2f} ({ours[1]:.2f} – {ours[2]:.2f})",
            f"{r.share:.0%} {r.bound}" if r.share is not None else "–",
            *(report.size(r.peak.get(name)) for name in names), report.marks(r),
        )  # fmt: skip
    return made
