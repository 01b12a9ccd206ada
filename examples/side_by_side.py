"""Trains a CNN and a small GPT on several devices at once, step by step, and shows that the runs agree.

    python examples/side_by_side.py        # minitorch and native torch on the same hardware, CPU or GPU
    python examples/side_by_side.py --device cpu --device minitorch

All devices get the same initial weights, batches and seeds; the device string is the only difference. They take turns
step by step, so whatever else the machine does slows all of them alike. The first device is the reference. Native CUDA
trains in a process of its own (apart.py).

Exit status: 0 when every check holds; 1 when losses leave the band, an operator fell back to native CPU, the accuracy
is short, or a process of its own failed; 130 after Ctrl-C.
"""

import argparse
import contextlib
import json
import math
import pathlib
import platform
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

import memory
import torch
from apart import Apart, ApartError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from tasks import STEPS, TASKS
from training import Here, Result, random_numbers

EARLY_STEPS = 20  # up to here rounding has not been amplified by training yet
EARLY_BAND = 1e-3  # largest loss difference in these steps
# Largest loss difference in all steps. Training amplifies rounding: native with one thread and with two differ by
# 0.017 and 0.015 in these runs. The band is three times that.
BAND = {"digits": 0.05, "gpt": 0.05}
LOSS_FLOOR = 0.1  # differences are relative to the reference's loss, or to this if it is larger
ACCURACY = 0.97
WARM_STEPS = 10  # left out of the timing
MEMORY_STEPS = 5
LOG_LINES = 10  # on how many steps a run that is not on a terminal reports


Side = Here | Apart


def train(name: str, steps: int, sides: Sequence[Side], dropout: bool, progress: Progress) -> dict[str, Result]:
    """Trains the task on all devices, taking turns step by step."""
    title = TASKS[name].title
    bar = progress.add_task(title, total=steps, loss="")
    for side in sides:
        side.begin(name, steps, dropout)
    losses: dict[str, list[float]] = {str(side.device): [] for side in sides}
    milliseconds: dict[str, list[float]] = {str(side.device): [] for side in sides}
    for step in range(steps):
        # Each goes first in turn: where they share a processor, the second finds its caches as the first left them.
        for side in sides if step % 2 == 0 else sides[::-1]:
            loss, took = side.step(step)
            losses[str(side.device)].append(loss)
            if step >= WARM_STEPS:
                milliseconds[str(side.device)].append(took)
        text = "  ".join(f"{device} {found[-1]:.4f}" for device, found in losses.items())
        progress.update(bar, advance=1, loss=text)
        # A bar is drawn on a terminal only; a log gets a line now and then.
        if not progress.console.is_terminal and (step + 1) % max(steps // LOG_LINES, 1) == 0:
            progress.console.print(f"{title}: step {step + 1} of {steps}, loss {text}", highlight=False)
    results = {}
    for side in sides:
        device = str(side.device)
        results[device] = replace(side.finish(), losses=losses[device], milliseconds=milliseconds[device])
    return results


def differences(results: dict[str, Result]) -> list[float]:
    """Largest relative difference to the first device's loss, step by step."""
    reference, *others = (result.losses for result in results.values())
    return [
        max((abs(other[i] - loss) / max(abs(loss), LOSS_FLOOR) for other in others), default=0.0)
        for i, loss in enumerate(reference)
    ]


def problems(name: str, results: dict[str, Result]) -> list[str]:
    """Everything that makes the run a failure."""
    found = []
    difference = differences(results)
    if (worst := max(difference[:EARLY_STEPS])) > EARLY_BAND:
        found.append(f"{name}: losses differ by {worst:.1e} in the first {EARLY_STEPS} steps (band {EARLY_BAND:.0e})")
    if not (worst := max(difference)) <= BAND[name]:
        found.append(f"{name}: losses differ by {worst:.1e} (band {BAND[name]:.0e})")
    for device, result in results.items():
        if not all(math.isfinite(loss) for loss in result.losses):
            found.append(f"{name}: a loss on {device} is not finite")
        if result.fallbacks:
            calls = ", ".join(f"{op} ({count})" for op, count in result.fallbacks.items())
            found.append(f"{name}: on {device} these operators ran on native CPU: {calls}")
        if result.accuracy is not None and result.accuracy < ACCURACY:
            found.append(f"{name}: accuracy on {device} is {result.accuracy:.1%} (at least {ACCURACY:.0%})")
    return found


def mebibytes(count: int | None) -> str:
    return "–" if count is None else f"{count / 2**20:.1f} MiB"


def make_table(all_results: dict[str, dict[str, Result]]) -> Table:
    devices = list(next(iter(all_results.values())))
    table = Table("", "", *devices, title="Side by side", title_justify="left", pad_edge=False)
    for column in table.columns[2:]:
        column.justify = "right"
    for name, results in all_results.items():
        values = list(results.values())
        steps = len(values[0].losses)
        marks = sorted({0, steps // 8, steps // 4, steps // 2, steps - 1})
        for i, step in enumerate(marks):
            title = TASKS[name].title if i == 0 else ""
            table.add_row(title, f"loss at step {step}", *(f"{v.losses[step]:.6f}" for v in values))
        difference = differences(results)
        empty = [""] * (len(values) - 1)
        table.add_row(
            "", f"largest difference, first {EARLY_STEPS} steps", *empty, f"{max(difference[:EARLY_STEPS]):.1e}"
        )
        table.add_row("", f"largest difference (band {BAND[name]:.0e})", *empty, f"{max(difference):.1e}")
        if values[0].accuracy is not None:
            table.add_row("", "test accuracy", *(f"{v.accuracy:.2%}" for v in values))
        medians = [statistics.median(v.milliseconds) for v in values]
        table.add_row("", "time per step", *(f"{m:.2f} ms" for m in medians))
        table.add_row("", f"speed, {devices[0]} = 1", *(f"{medians[0] / m:.2f}" for m in medians))
        table.add_row("", "peak memory growth", *(mebibytes(v.peak_bytes) for v in values))
        counts = ["–" if v.fallbacks is None else str(sum(v.fallbacks.values())) for v in values]
        table.add_row("", "fallbacks", *counts, end_section=True)
    return table


def save_plot(all_results: dict[str, dict[str, Result]], path: pathlib.Path) -> None:
    """Loss curves of all devices over each other, and below them how far they are apart."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        2, len(all_results), figsize=(5.5 * len(all_results), 5.5), squeeze=False, height_ratios=[3, 1], sharex="col"
    )
    for column, (name, results) in enumerate(all_results.items()):
        curve, gap = axes[0][column], axes[1][column]
        for i, (device, result) in enumerate(results.items()):
            style = {"linewidth": 3.5, "alpha": 0.35} if i == 0 else {"linewidth": 1.1}
            curve.plot(result.losses, label=device, **style)
        curve.set_title(TASKS[name].title)
        curve.set_ylabel("training loss")
        if name == "digits":
            curve.set_yscale("log")
        curve.legend()
        gap.semilogy([max(d, 1e-9) for d in differences(results)], color="tab:red", linewidth=0.8)
        gap.axhline(BAND[name], color="grey", linestyle="--", linewidth=0.8)
        gap.set_ylabel("relative difference")
        gap.set_xlabel("step")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def save_json(all_results: dict[str, dict[str, Result]], errors: list[str], path: pathlib.Path) -> None:
    figures = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "bands": {"early_steps": EARLY_STEPS, "early": EARLY_BAND, "loss_floor": LOSS_FLOOR, **BAND},
        "largest_difference": {name: max(differences(results)) for name, results in all_results.items()},
        "problems": errors,
        "results": {name: {d: asdict(r) for d, r in results.items()} for name, results in all_results.items()},
    }
    path.write_text(json.dumps(figures, indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", action="append", help="repeatable; the first is the reference (native, minitorch)")
    parser.add_argument("--apart", action="store_true", help="each device in a process of its own, as cuda always is")
    parser.add_argument("--only", choices=TASKS, help="one of the two tasks")
    parser.add_argument("--steps", type=int, help=f"training steps of each task (default {STEPS})")
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch's own choice)")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("out"), help="folder for PNG and JSON")
    parser.add_argument("--no-memory", action="store_true", help="skip the memory measurement")
    parser.add_argument("--memory-steps", type=int, default=MEMORY_STEPS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.steps is not None and args.steps <= WARM_STEPS:
        parser.error(f"--steps must be above {WARM_STEPS}: so many are left out of the timing")
    return args


def partners() -> tuple[list[str], str]:
    """The devices to train on where none was named, and what is to be said about them."""
    if torch.minitorch.get_device_properties().backend == "cpu":
        return ["cpu", "minitorch"], ""
    if torch.cuda.is_available():
        return ["cuda", "minitorch"], ""
    why = "torch.cuda finds no GPU" if torch.backends.cuda.is_built() else "this torch has no CUDA"
    return ["cpu", "minitorch"], f"minitorch runs on the GPU beside native CPU: {why}."


def choose(args: argparse.Namespace, console: Console) -> tuple[list[torch.device], bool]:
    """The devices, and whether dropout is on: not where they draw different random numbers."""
    names, note = (args.device, "") if args.device else partners()
    devices = [torch.device(name) for name in names]
    dropout = len({random_numbers(device) for device in devices}) == 1
    if note:
        console.print(note, highlight=False)
    if not dropout:
        console.print("Dropout is off: a GPU draws other random numbers than the CPU.", highlight=False)
    return devices, dropout


def start(device: torch.device, apart: bool, console: Console) -> Side:
    if not apart and device.type != "cuda":
        return Here(device)
    console.print(f"{device} trains in a process of its own.", highlight=False)
    return Apart(device)


def train_all(args: argparse.Namespace, console: Console) -> dict[str, dict[str, Result]]:
    """Task -> device -> what came of it."""
    devices, dropout = choose(args, console)
    columns = (
        TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[loss]}"),
    )  # fmt: skip
    all_results: dict[str, dict[str, Result]] = {}
    with contextlib.ExitStack() as stack:
        sides = []
        for device in devices:
            sides.append(start(device, args.apart, console))
            stack.callback(sides[-1].close)
        progress = stack.enter_context(Progress(*columns, console=console))
        for name in [args.only] if args.only else TASKS:
            all_results[name] = train(name, args.steps or STEPS[name], sides, dropout, progress)
    return all_results


def main() -> int:
    args = parse_arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    console = Console()
    try:
        all_results = train_all(args, console)
    except ApartError as error:
        console.print(str(error), style="bold red", markup=False, highlight=False)
        return 1
    if not args.no_memory:
        with console.status("measuring peak memory, each device in a process of its own"):
            for name, results in all_results.items():
                for device, result in results.items():
                    result.peak_bytes = memory.measure(name, device, args.memory_steps)
    console.print(make_table(all_results))
    for results in all_results.values():
        for device, result in results.items():
            if result.sample is not None:
                console.print(f"\n{device} writes:", style="bold")
                console.print(result.sample, markup=False, highlight=False)
    errors = [problem for name, results in all_results.items() for problem in problems(name, results)]
    args.output.mkdir(parents=True, exist_ok=True)
    save_plot(all_results, args.output / "side_by_side.png")
    save_json(all_results, errors, args.output / "side_by_side.json")
    console.print(f"\nLoss curves: {args.output}/side_by_side.png; figures: {args.output}/side_by_side.json")
    for problem in errors:
        console.print(problem, style="bold red", markup=False)
    if not errors:
        console.print("The devices agree.", style="bold green")
    return 1 if errors else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)
