"""Whether the race can be trusted: how far its ratios move from run to run, and what it says of native against itself.

    python -m benchmarks.trust [--runs 10] [--only REGEX] [--json FILE]     # spread of the ratios over whole runs
    python -m benchmarks.trust --self [--only REGEX] [--json FILE]          # native against native, every case once
    python -m benchmarks.trust ... --fresh                                  # not on from what the file has

Each run is a `minitorch bench --thorough` in processes of its own, since memory laid out anew moves a ratio more than
another look does. Ten runs of the ten cases take from half an hour on a quiet machine to several on a loud one. Every
run's figures are in the file as soon as it ends, and a case's as soon as it was visited (FILE.part): interrupted, the
same command goes on. The limits of the machine are measured in the first run alone, also when it is another call that
goes on. The spread of a case is the range of its ratios by their median; beside it stands the spread without the
highest and the lowest run. The goal, at most 5 %, is for cases that take a millisecond or more; shorter ones are listed
apart. Exit status 1 when a goal is missed.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from minitorch_backend import terminal
from minitorch_backend.bench import machine, report, results
from minitorch_backend.bench.limits import Limits
from minitorch_backend.bench.results import Run

# Different limits and different families, each a millisecond or longer on two cores.
CHOICE = (
    "attention/sdpa causal fwd.bwd 4x8x256x64 f32|convolution/3x3 8x64x64x56 f32|indexing/gather rows 2048x2048 f32|"
    "losses/cross entropy fwd.bwd 2048x8192 f32|models/char-GPT training step|"
    "norms/layer norm fwd.bwd 4096x1024 f32|optimizers/Adam 384|pointwise/exp 16M f32|"
    "softmax/softmax fwd.bwd 4096x1024 f32|sort/sort 1M f32"
)
SPREAD, SHORT = 0.05, 1e-3
FALSE_ALARMS = 0.05
WAIT = "120"  # seconds, for near processors: the few cases of a run here may all meet a time of far ones


def bench(arguments: list[str], path: pathlib.Path, console: Console) -> Run:
    """One run; its file is resumed, and left there."""
    command = [sys.executable, "-m", "minitorch_backend", "bench", "--no-memory", "--resume", "--wait", WAIT]
    done = subprocess.run([*command, "--json", str(path), *arguments], check=False)
    if not path.exists() or done.returncode not in (0, 1):
        raise SystemExit(f"minitorch bench ended with exit status {done.returncode}; the same command goes on")
    return results.read(path)


def begin(path: pathlib.Path, limits: Limits | None, facts: dict) -> None:
    """A file for the next run to resume: without results, but with the limits."""
    if limits is not None and not path.exists():
        results.Writer(path, facts, limits).close()


def note_untimed(found: dict, run: Run, path: pathlib.Path) -> None:
    """Keep why cases were not timed. Raises SystemExit when none was: such a run tells nothing and is not kept."""
    untimed = {r.name: f"{r.status}: {r.message}" for r in run.results.values() if not r.timed}
    if len(untimed) == len(run.results):
        path.unlink()
        said = "; ".join(f"{name}: {why}" for name, why in untimed.items()) or "it has no case"
        raise SystemExit(f"a run timed none of its cases: {said}")
    found.setdefault("untimed", {}).update(untimed)


def all_timed(found: dict, console: Console) -> bool:
    """Whether there are cases, each timed in every run; says which were not."""
    if not found["cases"]:
        console.print("no case was timed")
    for name, why in found.get("untimed", {}).items():
        console.print(f"{name} was not timed in every run: {why}")
    return bool(found["cases"]) and not found.get("untimed")


def spread(values: list[float]) -> float:
    """Range by median."""
    return (max(values) - min(values)) / statistics.median(values)


def measure_spread(
    found: dict, runs: int, only: str, path: pathlib.Path, console: Console, keep: Callable[[dict], None]
) -> None:
    """Runs until there are so many. ``path`` is where a run's results lie until it ends."""
    limits = Limits.from_json(found["limits"]) if "limits" in found else None
    while found.setdefault("runs", 0) < runs:
        begin(path, limits, found["machine"])
        run = bench(["--thorough", "--only", only], path, console)
        note_untimed(found, run, path)
        limits, found["machine"] = run.limits, run.machine
        found["limits"] = limits.to_json()
        for result in run.results.values():
            if result.timed:
                case = found["cases"].setdefault(result.name, {"ratios": [], "seconds": [], "load": []})
                case["ratios"].append(result.ratio)
                case["seconds"].append(min(result.seconds.values()))
                case["load"].append(result.load)
                case.setdefault("placement", []).append(result.placement)
                case.setdefault("interval", []).append([result.low, result.high])
                case.setdefault("visits", []).append([visit.ratio[0] for visit in result.visits])
        found["runs"] += 1
        keep(found)
        path.unlink()
        console.print(f"run {found['runs']} of {runs}: {len(run.results)} cases")


def show_spread(found: dict, console: Console) -> bool:
    table = Table(box=None, pad_edge=False)
    table.add_column("case", overflow="fold", min_width=report.NAME)
    for heading in ("runs", "time", "ratio", "spread", "without extremes", "load"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    met = all_timed(found, console)
    for name, case in found["cases"].items():
        ratios, seconds = case["ratios"], statistics.median(case["seconds"])
        middle = sorted(ratios)[1:-1] if len(ratios) > 4 else ratios
        good, whole = spread(ratios) <= SPREAD, len(ratios) == found["runs"]
        met = met and whole and (good or seconds < SHORT)
        mark = "" if good else "short case" if seconds < SHORT else "above the goal"
        mark += "" if whole else f" not in {found['runs'] - len(ratios)} of {found['runs']} runs"
        if apart := sum(placement in report.APART for placement in case.get("placement", [])):
            mark += f" {apart} runs with processors apart"
        table.add_row(name, str(len(ratios)), f"{1e3 * seconds:.2f} ms", f"{statistics.median(ratios):.2f}",
                      f"{spread(ratios):.1%}", f"{spread(middle):.1%}", f"{max(case['load']):.0%}", mark)  # fmt: skip
    terminal.show(console, table)
    return met


def measure_self(found: dict, only: str, path: pathlib.Path, console: Console, keep: Callable[[dict], None]) -> None:
    run = bench(["--against", "self", *(["--only", only] if only else [])], path, console)
    note_untimed(found, run, path)
    found["machine"] = run.machine
    for r in run.results.values():
        if r.timed:
            found["cases"][r.name] = [r.ratio, r.low, r.high, r.estimate.significant, r.load]
    found["runs"] = 1
    keep(found)
    path.unlink()


def show_self(found: dict, console: Console) -> bool:
    alarms = {name: case for name, case in found["cases"].items() if case[3]}
    count = len(found["cases"])
    whole = all_timed(found, console)
    if not count:
        return False
    console.print(f"{count} cases of native against itself, {len(alarms)} called different ({len(alarms) / count:.1%})")
    for name, (ratio, low, high, _, load) in alarms.items():
        console.print(f"  {name}: {ratio:.3f} ({low:.3f} – {high:.3f}), load {load:.0%}")
    return whole and len(alarms) <= FALSE_ALARMS * count


def start(kind: str, path: pathlib.Path, fresh: bool) -> dict:
    """What the file has, or an empty record. Raises SystemExit for a file that is no such record."""
    if fresh:
        path.unlink(missing_ok=True)
        part(path).unlink(missing_ok=True)
    if not path.exists():
        return {"kind": kind, "machine": {}, "cases": {}, "runs": 0}
    try:
        found = json.loads(path.read_text())
        other = found["kind"]
    except (ValueError, KeyError, TypeError):
        raise SystemExit(f"{path} is not a record of this program; --fresh begins anew") from None
    if other != kind:
        raise SystemExit(f"{path} is of another kind: {other}")
    if found["machine"].get("commit") not in (None, machine.commit()):
        raise SystemExit(f"{path} is of another commit, {found['machine']['commit']}; --fresh begins anew")
    return found


def part(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(path.name + ".part")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--only", default="", metavar="REGEX", help="cases (default: a choice; with --self all)")
    parser.add_argument("--self", dest="against_self", action="store_true", help="race native against itself")
    parser.add_argument("--json", type=pathlib.Path, help="where the figures go (default: out/trust-KIND.json)")
    parser.add_argument("--fresh", action="store_true", help="begin anew, whatever the file has")
    args = parser.parse_args()
    console = terminal.console()
    kind = "self" if args.against_self else "spread"
    path = args.json or pathlib.Path("out") / f"trust-{kind}.json"
    path.parent.mkdir(parents=True, exist_ok=True)

    def keep(found: dict) -> None:
        whole = path.with_name(path.name + ".new")
        whole.write_text(json.dumps(found, indent=1) + "\n")
        whole.replace(path)

    found = start(kind, path, args.fresh)
    try:
        if not args.against_self:
            measure_spread(found, args.runs, args.only or CHOICE, part(path), console, keep)
        elif not found.get("runs"):
            measure_self(found, args.only, part(path), console, keep)
    except KeyboardInterrupt:
        console.print(f"interrupted; the same command goes on. Figures so far: {path}")
        return 130
    return 0 if (show_self if args.against_self else show_spread)(found, console) else 1


if __name__ == "__main__":
    sys.exit(main())
