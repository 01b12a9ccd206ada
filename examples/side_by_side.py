"""Trains a CNN and a small GPT on several devices at once, step by step, and shows that the runs agree.

    python examples/side_by_side.py                                   # native CPU and minitorch
    python examples/side_by_side.py --device cuda --device minitorch

All devices get the same initial weights, batches and seeds; the device string is the only difference. They take turns
step by step, so whatever else the machine does slows all of them alike. The first device is the reference.

Exit status: 0 when every check holds; 1 when losses leave the band, an operator fell back to native CPU, or the
accuracy is short.
"""

import argparse
import json
import math
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field

import torch
from memory import peak_growth
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from tasks import DigitsTask, Run, TextTask

TASKS = {"digits": DigitsTask, "gpt": TextTask}
STEPS = {"digits": 300, "gpt": 500}
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


@dataclass
class Result:
    """What one task did on one device."""

    losses: list[float] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    accuracy: float | None = None
    sample: str | None = None
    fallbacks: dict[str, int] | None = None
    peak_bytes: int | None = None
    allocator_peak_bytes: int | None = None


def device_module(device: torch.device):
    """torch.minitorch or torch.cuda; None for the CPU."""
    return None if device.type == "cpu" else getattr(torch, device.type)


def synchronize(device: torch.device) -> None:
    module = device_module(device)
    if module is not None:
        module.synchronize()


def fallbacks(device: torch.device) -> dict[str, int] | None:
    """Operators that ran on native CPU since the last call, with their counts; None for devices without a ledger."""
    module = device_module(device)
    if module is None or not hasattr(module, "fallbacks"):
        return None
    return {record.op: record.count for record in module.fallbacks(clear=True)}


def allocator_peak(device: torch.device) -> int | None:
    module = device_module(device)
    return module.max_memory_allocated() if hasattr(module, "max_memory_allocated") else None


def timed_step(run: Run, inputs: torch.Tensor, targets: torch.Tensor, seed: int) -> tuple[float, float]:
    """(loss, milliseconds) of one step, with the generators of all devices set to the seed."""
    x, y = inputs.to(run.device), targets.to(run.device)
    torch.manual_seed(seed)
    synchronize(run.device)
    start = time.perf_counter()
    loss = run.step(x, y)
    synchronize(run.device)
    return loss, (time.perf_counter() - start) * 1e3


def train(task, devices: list[torch.device], progress: Progress) -> dict[str, Result]:
    """Trains the task on all devices, taking turns step by step."""
    for device in devices:
        fallbacks(device)
    runs = [task.run(device) for device in devices]
    results = {str(device): Result() for device in devices}
    generator = torch.Generator().manual_seed(0)
    bar = progress.add_task(task.title, total=task.steps, loss="")
    for step in range(task.steps):
        inputs, targets = task.batch(generator)
        # Each goes first in turn: the second finds the batch in the cache.
        order = runs if step % 2 == 0 else runs[::-1]
        for run in order:
            loss, milliseconds = timed_step(run, inputs, targets, seed=step)
            result = results[str(run.device)]
            result.losses.append(loss)
            if step >= WARM_STEPS:
                result.milliseconds.append(milliseconds)
        text = "  ".join(f"{name} {result.losses[-1]:.4f}" for name, result in results.items())
        progress.update(bar, advance=1, loss=text)
        # A bar is drawn on a terminal only; a log gets a line now and then.
        if not progress.console.is_terminal and (step + 1) % max(task.steps // LOG_LINES, 1) == 0:
            progress.console.print(f"{task.title}: step {step + 1} of {task.steps}, loss {text}", highlight=False)
    for run in runs:
        result = results[str(run.device)]
        torch.manual_seed(0)
        if isinstance(task, DigitsTask):
            result.accuracy = task.accuracy(run)
        else:
            result.sample = task.sample(run)
        result.fallbacks = fallbacks(run.device)
        result.allocator_peak_bytes = allocator_peak(run.device)
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


def measure_memory(name: str, device: str, steps: int) -> int | None:
    """Peak memory growth in bytes over a few training steps, measured in a process of its own."""
    command = [sys.executable, __file__, "--measure-memory", name, "--device", device, "--memory-steps", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def print_memory(name: str, device: torch.device, steps: int) -> None:
    """The child process of measure_memory: prints the growth as JSON."""
    generator = torch.Generator().manual_seed(0)
    task = TASKS[name](STEPS[name])
    small = TASKS[name](STEPS[name], batch=2)

    def rehearse() -> None:
        small.run(device).step(*(t.to(device) for t in small.batch(generator)))

    def work() -> None:
        run = task.run(device)
        for seed in range(steps):
            timed_step(run, *task.batch(generator), seed)

    print(json.dumps(peak_growth(rehearse, work)))


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
    parser.add_argument("--device", action="append", help="repeatable; the first is the reference (cpu, minitorch)")
    parser.add_argument("--only", choices=TASKS, help="one of the two tasks")
    parser.add_argument("--steps", type=int, help=f"training steps of each task (default {STEPS})")
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch's own choice)")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("out"), help="folder for PNG and JSON")
    parser.add_argument("--no-memory", action="store_true", help="skip the memory measurement")
    parser.add_argument("--measure-memory", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--memory-steps", type=int, default=MEMORY_STEPS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.steps is not None and args.steps <= WARM_STEPS:
        parser.error(f"--steps must be above {WARM_STEPS}: so many are left out of the timing")
    return args


def drop_nothing(model: torch.nn.Module) -> None:
    """A GPU draws other masks than the CPU that it is compared with."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0


def main() -> int:
    args = parse_arguments()
    devices = [torch.device(name) for name in args.device or ["cpu", "minitorch"]]
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.measure_memory:
        print_memory(args.measure_memory, devices[0], args.memory_steps)
        return 0
    console = Console()
    columns = (
        TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[loss]}"),
    )  # fmt: skip
    all_results: dict[str, dict[str, Result]] = {}
    with Progress(*columns, console=console) as progress:
        for name in [args.only] if args.only else TASKS:
            task = TASKS[name](args.steps or STEPS[name])
            if torch.minitorch.get_device_properties().backend == "cuda":
                drop_nothing(task.initial)
            all_results[name] = train(task, devices, progress)
    if not args.no_memory:
        with console.status("measuring peak memory, each device in a process of its own"):
            for name, results in all_results.items():
                for device, result in results.items():
                    result.peak_bytes = measure_memory(name, device, args.memory_steps)
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
    sys.exit(main())
