"""Writes docs/benchmarks.md and its pictures from the result files in benchmarks/results.

    python tools/benchmarks_page.py

A chapter a file, CPU before CUDA; the newest file of each machine and backend is enough to keep there. What
benchmarks/trust.py found (trust-*.json) is quoted at the end.
"""

import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from minitorch_backend.bench import plots, report, results  # noqa: E402
from minitorch_backend.bench.results import Result, Run  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
INTRODUCTION = """# Benchmarks

Written by `make benchmarks-page` from [benchmarks/results](../benchmarks/results); do not edit by hand.

Each case ran on minitorch and on native torch in turns, in one run. The ratio is native's time by minitorch's: above 1
minitorch is faster. Its interval (99 %) covers what rounds and visits to the case differ by. "Limit" is the share of
what this machine can do at best, measured in the same run: bandwidth for a working set of that size, or the arithmetic
peak of the dtype. "Memory" is native's peak by minitorch's. Results were compared with float64 before anything was
timed; a case whose error is above native's is marked. How to run it: [bench.md](bench.md).
"""


def mark(result: Result) -> str:
    found = [result.status] if result.status != "ok" else []
    found += ["below its floor"] if result.below_floor else []
    found += [f"machine busy ({result.load:.0%})"] if result.busy else []
    found += ["ran on native"] if result.fallbacks else []
    found += [report.APART[result.placement]] if result.placement in report.APART else []
    found += [f"{report.UNLIKE}: {result.unlike}"] if result.unlike else []
    return ", ".join(found)


def line(r: Result) -> str:
    if not r.timed:
        return f"| {r.name} | | | | | | {mark(r)}: {r.message} |"
    share = f"{r.share:.0%} {r.bound}" if r.share is not None else ""
    memory = f"{r.memory_ratio:.2f}" if r.memory_ratio else ""
    ours = r.seconds.get("minitorch")
    return (
        f"| {r.name} | {report.seconds(r.seconds.get(r.rival))} | {report.seconds(ours)} | "
        f"**{r.ratio:.2f}** ({r.low:.2f} – {r.high:.2f}) | {share} | {memory} | {mark(r)} |"
    )


def chapter(name: str, run: Run, images: pathlib.Path) -> list[str]:
    done = list(run.results.values())
    facts = run.machine
    rival = facts.get("rival", "native")
    head = f"{facts['device']}, {'CUDA' if facts['backend'] == 'cuda' else 'CPU'}: {name}"
    where = f"torch {facts['torch']}, {facts['threads']} threads, {facts['isa']}, commit {facts['commit'][:10]}, "
    minutes = sum(r.took for r in done) / 60
    where += facts["date"][:10] + (f", {minutes:.0f} minutes" if minutes else "")
    wide = statistics.median((r.high - r.low) / 2 / r.ratio for r in done if r.timed)
    lines = [
        f"## {head}",
        "",
        f"{where}. {report.summary(done, rival)} Half of the intervals are within ± {wide:.0%}.",
        "",
    ]
    for path in plots.save(run, images, f"{name}-"):
        title = "Ratios by family" if path.name.endswith(plots.RATIOS) else "Roofline"
        lines += [f"![{title}](images/{path.name})", ""]
    lines += ["| family | cases | geometric mean of the ratios |", "|---|---|---|"]
    for family, members in plots.families(done).items():
        lines.append(f"| {family} | {len(members)} | {plots.geometric_mean([r.ratio for r in members]):.2f} |")
    lines += ["", f"| case | {rival} | minitorch | ratio | limit | memory | |", "|---|---|---|---|---|---|---|"]
    return [*lines, *(line(r) for r in done), ""]


def trust(name: str, found: dict) -> list[str]:
    """What one file of benchmarks/trust.py says."""
    cases, commit = found["cases"], found["machine"].get("commit", "")[:10]
    made = f" ({name}{', commit ' + commit if commit else ''})"
    if found["kind"] == "self":
        alarms = [f"{name} ({ratio:.3f})" for name, (ratio, _, _, significant, _) in cases.items() if significant]
        text = f"Native raced against itself in {len(cases)} cases: {len(alarms)} were called different"
        return [f"{text}{': ' + ', '.join(alarms) if alarms else ''}{made}.", ""]
    runs = max(len(case["ratios"]) for case in cases.values())
    text = f"The same cases in {runs} runs, each in a process of its own; spread: range of the ratios by median{made}."
    lines = [text, "", "| case | time | ratio | spread | others' load at most |", "|---|---|---|---|---|"]
    for name, case in cases.items():
        ratios, middle = case["ratios"], statistics.median(case["ratios"])
        lines.append(
            f"| {name} | {report.seconds(statistics.median(case['seconds']))} | {middle:.2f} | "
            f"{(max(ratios) - min(ratios)) / middle:.1%} | {max(case['load']):.0%} |"
        )
    return [*lines, ""]


def write(source: pathlib.Path, page: pathlib.Path) -> list[str]:
    """Write the page, its pictures into images/ beside it; the names of the runs. Without a run nothing is written."""
    runs = {path.stem: results.read(path) for path in sorted(source.glob("*.jsonl"))}
    lines = [INTRODUCTION]
    for name, run in sorted(runs.items(), key=lambda item: (item[1].machine["backend"] == "cuda", item[0])):
        lines += chapter(name, run, page.parent / "images")
    records = {path.stem: json.loads(path.read_text()) for path in sorted(source.glob("trust-*.json"))}
    if records:
        lines += [
            "## How far the figures can be trusted",
            "",
            *(line for item in records.items() for line in trust(*item)),
        ]
    if runs:
        page.write_text("\n".join(lines).rstrip() + "\n")
    return list(runs)


def main() -> int:
    runs = write(RESULTS, PAGE)
    if not runs:
        print("no result files in benchmarks/results: minitorch bench --json benchmarks/results/NAME.jsonl")
        return 1
    print(f"{PAGE.relative_to(ROOT)}: {', '.join(runs)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
