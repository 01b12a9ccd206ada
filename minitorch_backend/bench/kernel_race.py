"""``minitorch bench --kernel FILE``: a user's kernel, diffed against native first, then raced against ours and native.

Both happen in processes of their own: a kernel that hangs, crashes or writes where it should not takes those along. The
race is one like any other (command.py, suite.py, supervisor.py) with a third side; here is what is the kernel's.
"""

import contextlib
import hashlib
import os
import pathlib
import re
from collections.abc import Iterator

import click
import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from minitorch_backend import terminal
from minitorch_backend.bench import kernel_diff, kernel_samples, report
from minitorch_backend.bench.case import Case
from minitorch_backend.bench.results import Result, Run
from minitorch_backend.bench.runner import OURS, Side
from minitorch_backend.kernels import chain, files
from minitorch_backend.kernels.overriding import Override

MOST_CASES = 12


def is_right(path: pathlib.Path, console: Console, limit: float) -> bool:
    """Diff a file's kernels against native and say what was found; whether they may race.

    ``limit``: seconds that a sample may take.
    """
    with console.status(Text(f"diffing {path.name} against native")):
        findings = kernel_diff.diff(path, limit)
    terminal.show(console, findings_table(findings))
    for finding in findings:
        if finding.message:
            console.print(f"{finding.operator or path.name}: {finding.verdict}: {finding.message}")
    if not findings or not all(f.good or f.verdict == "not reached" for f in findings):
        console.print("The kernel is not raced: it must give what the operator gives first.", style="red")
        return False
    return True


def findings_table(findings: list[kernel_diff.Finding]) -> Table:
    made = Table(box=None, pad_edge=False, title="Against native, on PyTorch's sample inputs", title_justify="left")
    for heading in ("operator", "dtype", "samples", "error", "native's error", ""):
        made.add_column(heading)
    for f in findings:
        colour = {"ok": "green", **dict.fromkeys(("less accurate", "other strides", "not reached"), "yellow")}.get(
            f.verdict, "red"
        )
        made.add_row(f.operator, f.dtype, str(f.samples), f"{f.error:.1e}", f"{f.native_error:.1e}",
                     Text(f.verdict, colour))  # fmt: skip
    return made


@contextlib.contextmanager
def in_force(overrides: list[Override]) -> Iterator[None]:
    threads, own = torch.get_num_threads(), os.getpid()
    with contextlib.ExitStack() as stack:
        for override in overrides:
            stack.enter_context(override)
        try:
            yield
        finally:
            kernel_samples.end_copies(own)  # of a kernel that forks, which would race on
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
    name = path.name if path.stem in ("cpu", "cuda", OURS.name) else path.stem  # the others' names
    return Side(name, OURS.device, lambda: in_force(overrides), calls=calls)


def choose(cases: list[Case], overrides: list[Override], only: str) -> list[Case]:
    """The cases named by ``--only``, or those whose name has the operator's in it; then those that reach the kernel."""
    if only:
        return [case for case in cases if re.search(only, case.full_name)]
    words = set()
    for override in overrides:
        base = kernel_samples.plain_name(override.operator.base)
        words |= {base, base.replace("_", " ")}
    found = [case for case in cases if any(re.search(rf"\b{re.escape(w)}\b", case.full_name) for w in words)]
    return (found or [case for case in cases if case.quick])[:MOST_CASES]


def finish(done: list[Result], run: Run, console: Console) -> int:
    """Say what the race of three gave; 1 when nothing was raced, or a case failed or is wrong."""
    from minitorch_backend.bench import command

    reached = [r for r in done if r.status != "not reached"]
    if not reached:
        console.print(command.NOT_REACHED, style="yellow")
        return 1
    terminal.show(console, table(reached, run.machine["rival"], run.machine["ours"]))
    for r in reached:  # beside so many figures there is no room for it
        if not r.timed or report.marks(r):
            console.print(Text(f"{r.name}: ") + (report.marks(r) if r.timed else report.not_timed(r)), soft_wrap=True)
    return 1 if any(not r.timed or r.status == "wrong" for r in reached) else 0


def table(done: list[Result], rival: str, mine: str) -> Table:
    """Times of the three, the user's ratio to the other two (above 1 the user's is faster), and peak memory."""
    made = Table(box=None, pad_edge=False)
    made.add_column("case", overflow="fold", min_width=report.NAME)
    names = (rival, "minitorch", mine)
    for heading in (*names, f"vs {rival}", "vs minitorch", "of the limit", *(f"peak\n{name}" for name in names)):
        made.add_column(heading, justify="right", no_wrap=True)
    for r in done:
        if not r.timed:
            made.add_row(r.name, *["–"] * 9)
            continue
        ours = r.others["minitorch"]
        made.add_row(
            r.name, *(report.seconds(r.seconds.get(name)) for name in names),
            f"{r.ratio:.2f} ({r.low:.2f} – {r.high:.2f})", f"{ours[0]:.2f} ({ours[1]:.2f} – {ours[2]:.2f})",
            f"{r.share:.0%} {r.bound}" if r.share is not None else "–",
            *(report.size(r.peak.get(name)) for name in names),
        )  # fmt: skip
    return made
