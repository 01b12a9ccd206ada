"""What a person sees: progress with the time left, results, limits, the comparison with an older run."""

from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from minitorch_backend.bench import placement
from minitorch_backend.bench.limits import ACCESSES, Limits
from minitorch_backend.bench.results import Change, Result
from minitorch_backend.bench.statistics import SAME

NAME = 24  # of a case's name, at least


def figure(value: float) -> str:
    """Three digits, or all those before the point where there are more."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def in_units(value: float, units: Iterable[tuple[float, str]]) -> str:
    """In the largest unit of which it is one or more, rounded; the units fall, the last takes what is left."""
    *larger, (least, name) = units
    for factor, unit in larger:
        if float(f"{value / factor:.3g}") >= 1:
            return f"{figure(value / factor)} {unit}"
    return f"{figure(value / least)} {name}"


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return in_units(value, ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")))


def size(value: float | None) -> str:
    if value is None:
        return "–"
    return in_units(value, ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")))


def rate(value: float, unit: str) -> str:
    prefixes = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
    return in_units(value, [(factor, prefix + unit) for factor, prefix in prefixes])


APART = {placement.FAR: "processors far apart", placement.MIXED: "processors moved"}


UNLIKE = "not the same work"


def marks(result: Result) -> Text:
    """What has to be known about a result besides its figures."""
    found = []
    if result.status != "ok":
        found.append(Text(result.status, "red"))
    if result.below_floor:
        found.append(Text("below its floor", "red"))
    if result.fallbacks:
        found.append(Text(f"ran on native: {', '.join(result.fallbacks[:3])}", "red"))
    if result.busy:
        found.append(Text(f"machine busy ({result.load:.0%})", "yellow"))
    if result.placement in APART:
        found.append(Text(APART[result.placement], "yellow"))
    if result.unlike:
        found.append(Text(f"{UNLIKE}: {result.unlike}", "yellow"))
    if result.timed and result.unchecked:
        found.append(Text("not compared"))
    return Text(", ").join(found)


def not_timed(result: Result) -> Text:
    """Why a result has no figures."""
    return Text.assemble(marks(result), ": ", result.message)


def ratio_cell(result: Result) -> Text:
    estimate = result.estimate
    if estimate is None:
        return Text("–")
    colour = ("green" if estimate.value > 1 else "red") if estimate.significant else ""
    return Text(f"{estimate.value:.2f}", colour)


def table(results: Iterable[Result], rival: str, others: tuple[str, ...] = (), ours: str = "minitorch") -> Table:
    """A line a case; a ratio in colour is one that differs from 1 beyond noise."""
    made = Table(box=None, pad_edge=False)
    made.add_column("case", overflow="fold", min_width=NAME)
    for heading in (rival, *others, ours, "ratio", "99 % interval", "of the limit", "memory"):
        made.add_column(heading, justify="right", no_wrap=heading != "of the limit")
    made.add_column("", overflow="fold")
    for r in results:
        if not r.timed:
            made.add_row(r.name, *[""] * (6 + len(others)), not_timed(r))
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


def cases(count: int) -> str:
    return f"{count} case" if count == 1 else f"{count} cases"


def summary(results: list[Result], rival: str) -> str:
    measured = [r for r in results if r.timed]
    timed = [r for r in measured if not r.unlike]
    faster = sum(1 for r in timed if r.estimate.significant and r.ratio > 1)
    slower = sum(1 for r in timed if r.estimate.significant and r.ratio < 1)
    text = f"{cases(len(timed))}: faster than {rival} in {faster}, slower in {slower}, within {SAME:.0%} or noise in "
    text += str(len(timed) - faster - slower)
    if broken := len(results) - len(measured):
        text += f"; {broken} not timed"
    if unlike := len(measured) - len(timed):
        text += f"; {unlike} of sides that do not do the same work, not counted"
    if busy := sum(r.busy for r in results):
        text += f". The machine was too busy for {busy} of them: measure again"
    if apart := sum(r.placement in APART for r in timed):
        text += f". The processors were never near each other for {apart} of them: other ratios than elsewhere"
    if disturbed := sum(r.quiet is False for r in timed):
        text += f". Other guests of the processor used its cache during {disturbed} of them"
    return text + "."


def changes_table(changes: list[Change]) -> Table:
    made = Table(box=None, pad_edge=False, title="Against the older run (ratios to the rival)", title_justify="left")
    made.add_column("case", overflow="fold", min_width=NAME)
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
            Text(word, colours.get(word, "")),
        )  # fmt: skip
    return made


def progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), MofNCompleteColumn(),
        TimeRemainingColumn(), console=console, transient=True,
    )  # fmt: skip
