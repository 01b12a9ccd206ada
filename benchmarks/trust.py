"""Whether the race can be trusted: how far its ratios move from run to run, and what it says of native against itself.

    python -m benchmarks.trust [--runs 10] [--only REGEX] [--json FILE]     # spread of the ratios over whole runs
    python -m benchmarks.trust --self [--only REGEX] [--json FILE]          # native against native, every case once
    python -m benchmarks.trust ... --add                                    # to what the file has, from runs before

Each run is a `minitorch bench` in a process of its own, since memory laid out anew moves a ratio more than another look
does. The spread of a case is the range of its ratios by their median; beside it stands the spread without the highest
and the lowest run. The goal, at most 5 %, is for cases that take a millisecond or more; shorter ones are listed apart.
Exit status 1 when a goal is missed.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from minitorch_backend.bench import report, results
from minitorch_backend.bench.results import Run

# A case a family, each a millisecond or longer on two cores.
CHOICE = (
    "attention/sdpa causal fwd|convolution/3x3 8x64|copies/transpose 4096x4096 f32|indexing/gather rows 2048x2048 f32|"
    "losses/cross entropy fwd.bwd 2048x8192 f32|matmul/square 512x512x512 f32|models/char-GPT training step|"
    "norms/layer norm fwd.bwd 4096x1024 f32|optimizers/Adam 384|pointwise/exp 16M f32|"
    "reductions/sum rows 4096x4096 f32|"
    "scans/cumsum 4M|softmax/softmax fwd.bwd 4096x1024 f32|sort/sort 1M f32"
)
SPREAD, SHORT = 0.05, 1e-3
FALSE_ALARMS = 0.05
WAIT = "120"  # seconds, for near processors: the few cases of a run here may all meet a time of far ones


def bench(arguments: list[str], console: Console) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.jsonl"
        command = [
            sys.executable,
            "-m",
            "minitorch_backend",
            "bench",
            "--no-memory",
            "--wait",
            WAIT,
            "--json",
            str(path),
            *arguments,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not path.exists() or done.returncode not in (0, 1):
            console.print(done.stdout[-2000:] + done.stderr[-2000:], markup=False)
            raise SystemExit(f"minitorch bench ended with exit status {done.returncode}")
        return results.read(path)


def spread(values: list[float]) -> float:
    """Range by median."""
    return (max(values) - min(values)) / statistics.median(values)


def measure_spread(
    found: dict, runs: int, only: str, console: Console, keep: Callable[[dict], None] = lambda found: None
) -> None:
    for number in range(runs):
        run = bench(["--only", only], console)
        for result in run.results.values():
            if result.timed:
                case = found["cases"].setdefault(result.name, {"ratios": [], "seconds": [], "load": []})
                case["ratios"].append(result.ratio)
                case["seconds"].append(min(result.seconds.values()))
                case["load"].append(result.load)
                case.setdefault("placement", []).append(result.placement)
        found["machine"] = run.machine
        keep(found)
        console.print(f"run {number + 1} of {runs}: {len(run.results)} cases")


def show_spread(found: dict, console: Console) -> bool:
    table = Table(box=None, pad_edge=False)
    for heading in ("case", "runs", "time", "ratio", "spread", "without extremes", "load", ""):
        table.add_column(heading, justify="left" if heading == "case" else "right", overflow="fold")
    met = True
    for name, case in found["cases"].items():
        ratios, seconds = case["ratios"], statistics.median(case["seconds"])
        middle = sorted(ratios)[1:-1] if len(ratios) > 4 else ratios
        good = spread(ratios) <= SPREAD
        met = met and (good or seconds < SHORT)
        mark = "" if good else "short case" if seconds < SHORT else "above the goal"
        if apart := sum(placement in report.APART for placement in case.get("placement", [])):
            mark += f" {apart} runs with processors apart"
        table.add_row(name, str(len(ratios)), f"{1e3 * seconds:.2f} ms", f"{statistics.median(ratios):.2f}",
                      f"{spread(ratios):.1%}", f"{spread(middle):.1%}", f"{max(case['load']):.0%}", mark)  # fmt: skip
    console.print(table)
    return met


def measure_self(found: dict, only: str, console: Console) -> None:
    run = bench(["--against", "self", *(["--only", only] if only else [])], console)
    found["machine"] = run.machine
    for r in run.results.values():
        if r.timed:
            found["cases"][r.name] = [r.ratio, r.low, r.high, r.estimate.significant, r.load]


def show_self(found: dict, console: Console) -> bool:
    alarms = {name: case for name, case in found["cases"].items() if case[3]}
    count = len(found["cases"])
    console.print(f"{count} cases of native against itself, {len(alarms)} called different ({len(alarms) / count:.1%})")
    for name, (ratio, low, high, _, load) in alarms.items():
        console.print(f"  {name}: {ratio:.3f} ({low:.3f} – {high:.3f}), load {load:.0%}")
    return len(alarms) <= FALSE_ALARMS * count


def start(kind: str, path: pathlib.Path | None, add: bool) -> dict:
    """An empty record, or what the file has."""
    if add and path is not None and path.exists():
        found = json.loads(path.read_text())
        if found["kind"] != kind:
            raise SystemExit(f"{path} is of another kind: {found['kind']}")
        return found
    return {"kind": kind, "machine": {}, "cases": {}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--only", default="", metavar="REGEX", help="cases (default: a choice; with --self all)")
    parser.add_argument("--self", dest="against_self", action="store_true", help="race native against itself")
    parser.add_argument("--json", type=pathlib.Path, help="where the figures go")
    parser.add_argument("--add", action="store_true", help="add to what the file has")
    args = parser.parse_args()
    console = Console(highlight=False)

    def keep(found: dict) -> None:
        if args.json:
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(json.dumps(found, indent=1) + "\n")

    found = start("self" if args.against_self else "spread", args.json, args.add)
    if args.against_self:
        measure_self(found, args.only, console)
        met = show_self(found, console)
    else:
        measure_spread(found, args.runs, args.only or CHOICE, console, keep)
        met = show_spread(found, console)
    keep(found)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
