"""Pictures of a run: ratios by family, and the roofline. Needs matplotlib."""

import math
import pathlib
from typing import Any

from minitorch_backend.bench.results import Result, Run
from minitorch_backend.whole import replacing

COLOURS, MARKERS = 10, "os^Dv"  # of matplotlib's cycle; each colour has each marker once
RATIOS, ROOFLINE = "ratios.png", "roofline.png"


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise RuntimeError("the pictures need matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _save(figure: Any, path: pathlib.Path) -> None:
    """Write a picture at once. Raises OSError, and an older one is as it was."""
    try:
        with replacing(path) as part:
            figure.savefig(part, dpi=110, format="png")
    finally:
        _pyplot().close(figure)


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def families(results: list[Result]) -> dict[str, list[Result]]:
    """The timed results by family, families in the order of their names; only of sides that do the same work."""
    found: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda r: r.family):
        if result.timed and not result.unlike:
            found.setdefault(result.family, []).append(result)
    return found


def ratios(run: Run, path: pathlib.Path) -> None:
    """A bar a family, its geometric mean, with a dot a case."""
    plt = _pyplot()
    groups = families(list(run.results.values()))
    rival = run.machine.get("rival", "native")
    figure, axis = plt.subplots(figsize=(9, 0.42 * len(groups) + 1.4))
    for row, (_, members) in enumerate(groups.items()):
        values = [r.ratio for r in members]
        mean = geometric_mean(values)
        axis.barh(row, mean - 1, left=1, color="tab:green" if mean >= 1 else "tab:red", alpha=0.45, height=0.6)
        axis.plot(values, [row] * len(values), "o", markersize=3.5, color="black", alpha=0.5)
        axis.annotate(f"{mean:.2f}", (1.005, row), xycoords=("axes fraction", "data"), va="center", fontsize=9)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(plt.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_yticks(range(len(groups)), list(groups))
    axis.invert_yaxis()
    axis.set_xlabel(f"time on {rival} / time on minitorch; bar: geometric mean, dot: a case")
    axis.grid(axis="x", alpha=0.3)
    figure.tight_layout()
    _save(figure, path)


def style(number: int) -> str:
    """A marker: another one when the colours begin anew."""
    return MARKERS[number // COLOURS % len(MARKERS)]


def roofline(run: Run, path: pathlib.Path) -> None:
    """Operations a second over operations a byte, each case under the roof that its working set has."""
    plt = _pyplot()
    figure, axis = plt.subplots(figsize=(9, 5.5))
    results = [r for r in run.results.values() if r.timed and not r.unlike and r.bytes and r.flops]
    ours = "minitorch"
    for number, (family, members) in enumerate(families(results).items()):
        x = [r.flops / r.bytes for r in members]
        y = [r.flops / r.seconds[ours] for r in members if ours in r.seconds]
        if len(x) == len(y):
            axis.plot(x, y, style(number), color=f"C{number % COLOURS}", markersize=4.5, alpha=0.75, label=family)
    if results and run.limits.copy:
        intensities = [r.flops / r.bytes for r in results]
        low, high = min(intensities) / 2, max(intensities) * 2
        grid = [low * (high / low) ** (i / 200) for i in range(201)]
        known = run.limits.bandwidth()
        memory, cache = (known[pick(known)] for pick in (max, min))
        for dtype, peak in run.limits.peak.items():
            axis.plot(grid, [min(peak, memory * x) for x in grid], linewidth=1, color="black", alpha=0.6)
            axis.annotate(dtype, (high, peak), fontsize=8, va="bottom", ha="right")
        top = max(run.limits.peak.values(), default=math.inf)
        axis.plot(grid, [min(top, cache * x) for x in grid], "--", linewidth=1, color="black", alpha=0.4)
        axis.annotate("memory", (low, memory * low), fontsize=8, va="top")
        axis.annotate("smallest cache", (low, cache * low), fontsize=8, va="bottom")
    axis.set_xscale("log")
    axis.set_yscale("log")
    shown = {r.family for r in results}
    absent = [family for family in families(list(run.results.values())) if family not in shown]
    note = f"\nwithout arithmetic, not shown: {', '.join(absent)}" if absent else ""
    axis.set_xlabel(f"operations per byte that must move{note}")
    axis.set_ylabel("operations per second")
    if results:
        axis.legend(fontsize=7, ncols=2, loc="lower right")
    axis.grid(alpha=0.25, which="both", linewidth=0.4)
    figure.tight_layout()
    _save(figure, path)


def save(run: Run, folder: pathlib.Path, prefix: str = "") -> list[pathlib.Path]:
    """Write both pictures into a folder; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{prefix}{RATIOS}", folder / f"{prefix}{ROOFLINE}"]
    ratios(run, paths[0])
    roofline(run, paths[1])
    return paths
