"""What a person sees: progress with the time left, results, limits, the comparison with an older run."""

from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from minitorch_backend.bench import placement
from minitorch_backend.bench.limits import ACCESSES, Limits
from minitorch_backend.bench.results import Change, Result
from minitorch_backend.bench.statistics import SAME


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value * 1e9:.0f} ns"


def size(value: float | None) -> str:
    if value is None:
        return "–"
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if value >= 1 << shift:
            return f"{value / (1 << shift):.3g} {unit}"
    return f"{value:.0f} B"


def rate(value: float, unit: str) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


APART = {placement.FAR: "processors far apart", placement.MIXED: "processors moved"}


def marks(result: Result) -> str:
    """What has to be known about a result besides its figures."""
    found = []
    if result.status != "ok":
        found.append(f"[red]{result.status}[/red]")
    if result.below_floor:
        found.append("[red]below its floor[/red]")
    if result.fallbacks:
        found.append(f"[red]ran on native: {', '.join(result.fallbacks[:3])}[/red]")
    if result.busy:
        found.append(f"[yellow]machine busy ({result.load:.0%})[/yellow]")
    if result.placement in APART:
        found.append(f"[yellow]{APART[result.placement]}[/yellow]")
    if result.timed and result.unchecked:
        found.append("not compared")
    return ", ".join(found)


def ratio_cell(result: Result) -> str:
    estimate = result.estimate
    if estimate is None:
        return "–"
    text = f"{estimate.value:.2f}"
    if not estimate.significant:
        return text
    return f"[green]{text}[/green]" if estimate.value > 1 else f"[red]{text}[/red]"


def table(results: Iterable[Result], rival: str, others: tuple[str, ...] = (), ours: str = "minitorch") -> Table:
    """A line a case; a ratio in colour is one that differs from 1 beyond noise."""
    made = Table(box=None, pad_edge=False)
    made.add_column("case", overflow="fold")
    for heading in (rival, *others, ours, "ratio", "99 % interval", "of the limit", "memory"):
        made.add_column(heading, justify="right", no_wrap=heading != "of the limit")
    made.add_column("")
    for r in results:
        if not r.timed:
            made.add_row(r.name, *[""] * (6 + len(others)), f"{marks(r)}: {r.message}")
            continue
        share = f"{r.share:.0%} {r.bound}" if r.share is not None else "–"
        memory = f"{r.memory_ratio:.2f}" if r.memory_ratio else "–"
        made.add_row(
            r.name, seconds(r.seconds.get(rival)), *(seconds(r.seconds.get(name)) for name in others),
            seconds(r.seconds.get(ours)), ratio_cell(r), f"{r.low:.2f} – {r.high:.2f}", share, memory, marks(r),
        )  # fmt: skip
    return made


def limits_table(limits: Limits) -> Table:
    made = Table(box=None, pad_edge=False, title="Limits of this machine, measured", title_justify="left")
    made.add_column("working set")
    kinds = [kind for kind in ACCESSES if getattr(limits, kind)]
    for kind in kinds:
        made.add_column(kind, justify="right")
    for working_set in sorted(limits.copy):
        rates = [getattr(limits, kind).get(working_set) for kind in kinds]
        made.add_row(size(working_set), *(rate(found, "B/s") if found else "–" for found in rates))
    for dtype, value in limits.peak.items():
        made.add_row(f"arithmetic, {dtype}", rate(value, "FLOP/s"))
    return made


def summary(results: list[Result], rival: str) -> str:
    timed = [r for r in results if r.timed]
    faster = sum(1 for r in timed if r.estimate.significant and r.ratio > 1)
    slower = sum(1 for r in timed if r.estimate.significant and r.ratio < 1)
    text = f"{len(timed)} cases: faster than {rival} in {faster}, slower in {slower}, within {SAME:.0%} or noise in "
    text += str(len(timed) - faster - slower)
    if broken := len(results) - len(timed):
        text += f"; {broken} not timed"
    if busy := sum(r.busy for r in results):
        text += f". The machine was too busy for {busy} of them: measure again"
    if apart := sum(r.placement in APART for r in timed):
        text += f". The processors were never near each other for {apart} of them: other ratios than elsewhere"
    return text + "."


def changes_table(changes: list[Change]) -> Table:
    made = Table(box=None, pad_edge=False, title="Against the older run (ratios to the rival)", title_justify="left")
    made.add_column("case", overflow="fold")
    for heading in ("then", "now", "change"):
        made.add_column(heading, justify="right")
    made.add_column("")
    colours = {"slower": "red", "broken": "red", "faster": "green"}
    for change in changes:
        old, new = change.old, change.new
        moved = f"{new / old - 1:+.0%}" if old and new else ""
        word = change.verdict
        made.add_row(
            change.name, f"{old:.2f}" if old else "–", f"{new:.2f}" if new else "–", moved,
            f"[{colours[word]}]{word}[/{colours[word]}]" if word in colours else word,
        )  # fmt: skip
    return made


def progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn(),
        console=console, transient=True,
    )  # fmt: skip
