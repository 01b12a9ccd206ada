"""Whether the race can be trusted: how far its ratios move from run to run, and what it says of native against itself.

    python -m benchmarks.trust [--runs 10] [--only REGEX] [--json FILE]     # spread of the ratios over whole runs
    python -m benchmarks.trust --self [--only REGEX] [--json FILE]          # native against native, every case once

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

from rich.console import Console
from rich.table import Table

from minitorch_backend.bench import results
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


def bench(arguments: list[str], console: Console) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.jsonl"
        command = [sys.executable, "-m", "minitorch_backend", "bench", "--no-memory", "--json", str(path), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not path.exists() or done.returncode not in (0, 1):
            console.print(done.stdout[-2000:] + done.stderr[-2000:], markup=False)
            raise SystemExit(f"minitorch bench ended with exit status {done.returncode}")
        return results.read(path)


def spread(values: list[float]) -> float:
    """Range by median."""
    return (max(values) - min(values)) / statistics.median(values)


def measure_spread(runs: int, only: str, console: Console) -> dict:
    ratios: dict[str, list[float]] = {}
    times: dict[str, list[float]] = {}
    machine: dict = {}
    for number in range(runs):
        run = bench(["--only", only], console)
        machine = machine or run.machine
        for result in run.results.values():
            if result.timed:
                ratios.setdefault(result.name, []).append(result.ratio)
                times.setdefault(result.name, []).append(min(result.seconds.values()))
        console.print(f"run {number + 1} of {runs}: {len(run.results)} cases")
    cases = {}
    for name, values in ratios.items():
        middle = sorted(values)[1:-1] if len(values) > 4 else values
        cases[name] = {
            "seconds": statistics.median(times[name]), "median": statistics.median(values), "spread": spread(values),
            "middle": spread(middle), "ratios": values,
        }  # fmt: skip
    return {"kind": "spread", "machine": machine, "cases": cases}


def show_spread(found: dict, console: Console) -> bool:
    table = Table(box=None, pad_edge=False)
    for heading in ("case", "time", "ratio", "spread", "without extremes", ""):
        table.add_column(heading, justify="left" if heading == "case" else "right", overflow="fold")
    met = True
    for name, case in found["cases"].items():
        counts = case["seconds"] >= SHORT
        good = case["spread"] <= SPREAD
        met = met and (good or not counts)
        mark = "" if good else "above the goal" if counts else "short case"
        table.add_row(name, f"{1e3 * case['seconds']:.2f} ms", f"{case['median']:.2f}", f"{case['spread']:.1%}",
                      f"{case['middle']:.1%}", mark)  # fmt: skip
    console.print(table)
    return met


def measure_self(only: str, console: Console) -> dict:
    run = bench(["--against", "self", *(["--only", only] if only else [])], console)
    timed = [r for r in run.results.values() if r.timed]
    alarms = {r.name: [r.ratio, r.low, r.high] for r in timed if r.estimate.significant}
    return {"kind": "self", "machine": run.machine, "cases": len(timed), "alarms": alarms}


def show_self(found: dict, console: Console) -> bool:
    count, alarms = found["cases"], found["alarms"]
    console.print(f"{count} cases of native against itself, {len(alarms)} called different ({len(alarms) / count:.1%})")
    for name, (ratio, low, high) in alarms.items():
        console.print(f"  {name}: {ratio:.3f} ({low:.3f} – {high:.3f})")
    return len(alarms) <= FALSE_ALARMS * count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--only", default="", metavar="REGEX", help="cases (default: a choice; with --self all)")
    parser.add_argument("--self", dest="against_self", action="store_true", help="race native against itself")
    parser.add_argument("--json", type=pathlib.Path, help="where the figures go")
    args = parser.parse_args()
    console = Console(highlight=False)
    if args.against_self:
        found = measure_self(args.only, console)
        met = show_self(found, console)
    else:
        found = measure_spread(args.runs, args.only or CHOICE, console)
        met = show_spread(found, console)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
