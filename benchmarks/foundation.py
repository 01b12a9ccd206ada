"""Speed and memory of minitorch as ratios to native CPU, measured in one run; above 1 minitorch is better.

    python benchmarks/foundation.py --only 'matmul|softmax' --quick

Method: for each case both devices are warmed up, then they take turns in blocks of at least 20 ms, each first in
every other round, so whatever else the machine does hits both. A round gives one ratio, native's time by minitorch's.
Reported are the median ratio, its 95 % bootstrap interval, and the median time of one call on each. Inputs are random.
Peak memory is the growth of a process's peak resident size over training steps (examples/memory.py says why).

A floor is what the case must reach. With --check the exit status is 1 when a median ratio is below its floor.
"""

import argparse
import json
import os
import pathlib
import platform
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples"))

import side_by_side  # noqa: E402
import tasks  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

BLOCK_SECONDS = 0.02
DEVICES = ("cpu", "minitorch")


@dataclass
class Case:
    """`make(device)` gives a function that does the work once; a lower ratio than `floor` is too slow."""

    name: str
    floor: float
    make: Callable[[str], Callable[[], object]]


@dataclass
class Measurement:
    name: str
    floor: float
    ratio: float
    low: float
    high: float
    native: float  # seconds of one call, or bytes
    minitorch: float
    rounds: int

    @property
    def reached(self) -> bool:
        return self.ratio >= self.floor


def random_tensor(device: str, *shape: int, requires_grad: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(device).requires_grad_(requires_grad)


def pointwise(function: Callable, count: int, operands: int) -> Callable[[str], Callable[[], object]]:
    def make(device: str) -> Callable[[], object]:
        inputs = [random_tensor(device, count + i)[:count].clone() for i in range(operands)]
        return lambda: function(*inputs)

    return make


def differentiable(function: Callable, *shape: int) -> Callable[[str], Callable[[], object]]:
    """Forward and backward of function(x, *parameters)."""

    def make(device: str) -> Callable[[], object]:
        x = random_tensor(device, *shape, requires_grad=True)
        weight = random_tensor(device, shape[-1], requires_grad=True)
        bias = random_tensor(device, shape[-1], requires_grad=True)
        target = torch.randint(shape[-1], shape[:1], generator=torch.Generator().manual_seed(0)).to(device)
        result = function(x, weight, bias, target)
        gradient = torch.ones_like(result) if result.dim() == 0 else random_tensor(device, *result.shape)

        def work() -> None:
            x.grad = weight.grad = bias.grad = None
            function(x, weight, bias, target).backward(gradient)

        return work

    return make


def matmul(n: int) -> Callable[[str], Callable[[], object]]:
    def make(device: str) -> Callable[[], object]:
        a, b = random_tensor(device, n, n), random_tensor(device, n, n)
        return lambda: a @ b

    return make


def training_step(task_class: type) -> Callable[[str], Callable[[], object]]:
    def make(device: str) -> Callable[[], object]:
        task = task_class(100_000)
        run = task.run(torch.device(device))
        x, y = (t.to(device) for t in task.batch(torch.Generator().manual_seed(0)))
        return lambda: run.step(x, y)

    return make


LARGE, CACHED = 2**24, 2**16
CASES = [
    *(Case(f"{n} 16M out of place", 1.2, pointwise(f, LARGE, k)) for n, f, k in (
        ("add", torch.add, 2), ("mul", torch.mul, 2), ("relu", torch.relu, 1), ("add scalar", lambda x: x + 1.5, 1),
    )),
    *(Case(f"{n} {size}", 1.0, pointwise(f, count, 1)) for count, size in ((LARGE, "16M"), (CACHED, "64k"))
      for n, f in (("exp", torch.exp), ("tanh", torch.tanh), ("sigmoid", torch.sigmoid), ("gelu", F.gelu))),
    *(Case(f"matmul fp32 {n}", 0.7, matmul(n)) for n in (512, 1024, 2048)),
    Case("layer norm fwd+bwd 4096x1024", 1.0,
         differentiable(lambda x, w, b, t: F.layer_norm(x, w.shape, w, b), 4096, 1024)),
    Case("softmax fwd+bwd 4096x1024", 1.0, differentiable(lambda x, w, b, t: x.softmax(-1), 4096, 1024)),
    Case("cross entropy fwd+bwd 2048x8192", 1.0, differentiable(lambda x, w, b, t: F.cross_entropy(x, t), 2048, 8192)),
    Case("digits CNN training step", 0.8, training_step(tasks.DigitsTask)),
    Case("char-GPT training step", 0.8, training_step(tasks.TextTask)),
    Case("add of 8 elements", 1 / 1.2, pointwise(torch.add, 8, 2)),
]  # fmt: skip
MEMORY_CASES = {"digits CNN peak memory": "digits", "char-GPT peak memory": "gpt"}
MEMORY_FLOOR = 1.0


def block(work: Callable[[], object], calls: int, device: torch.device) -> float:
    """Seconds of one call, over a block of calls."""
    side_by_side.synchronize(device)
    start = time.perf_counter()
    for _ in range(calls):
        work()
    side_by_side.synchronize(device)
    return (time.perf_counter() - start) / calls


def bootstrap(values: list[float], draws: int = 2000) -> tuple[float, float]:
    """95 % interval of the median."""
    source = random.Random(0)
    medians = sorted(statistics.median(source.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(0.025 * draws)], medians[int(0.975 * draws)]


def measure(case: Case, rounds: int) -> Measurement:
    devices = [torch.device(name) for name in DEVICES]
    works = [case.make(name) for name in DEVICES]
    calls = []
    for work, device in zip(works, devices, strict=True):
        block(work, 3, device)
        calls.append(max(1, int(BLOCK_SECONDS / max(block(work, 3, device), 1e-7))))
    times: tuple[list[float], list[float]] = ([], [])
    for r in range(rounds):
        for i in (0, 1) if r % 2 == 0 else (1, 0):
            times[i].append(block(works[i], calls[i], devices[i]))
    ratios = [native / ours for native, ours in zip(*times, strict=True)]
    low, high = bootstrap(ratios)
    medians = [statistics.median(t) for t in times]
    return Measurement(case.name, case.floor, statistics.median(ratios), low, high, *medians, rounds)


def measure_memory(name: str, task: str, rounds: int) -> Measurement:
    """Rounds of one process a device each; a round gives one ratio of peak growths."""
    peaks: tuple[list[int], list[int]] = ([], [])
    for _ in range(rounds):
        for record, device in zip(peaks, DEVICES, strict=True):
            growth = side_by_side.measure_memory(task, device, side_by_side.MEMORY_STEPS)
            if growth is None:
                raise RuntimeError(f"the memory of {task} on {device} could not be measured")
            record.append(growth)
    ratios = [native / ours for native, ours in zip(*peaks, strict=True)]
    low, high = bootstrap(ratios)
    return Measurement(name, MEMORY_FLOOR, statistics.median(ratios), low, high, *map(statistics.median, peaks), rounds)


def machine() -> dict:
    model = platform.processor()
    if pathlib.Path("/proc/cpuinfo").exists():
        names = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
        model = names[0] if names else model
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    from minitorch_backend import _C

    return {
        "processor": model,
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
        "isa": _C.isa(),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def amount(value: float, memory: bool) -> str:
    if memory:
        return f"{value / 2**20:.1f} MiB"
    return f"{value * 1e3:.3f} ms" if value >= 1e-4 else f"{value * 1e6:.2f} µs"


def main() -> int:
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="regular expression searched in the case's name")
    parser.add_argument("--quick", action="store_true", help="few rounds: a rough look")
    parser.add_argument("--check", action="store_true", help="exit 1 when a floor is missed")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path("out/foundation.json"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    console = Console(highlight=False)
    info = machine()
    console.print(", ".join(f"{key} {value}" for key, value in info.items()), soft_wrap=True)
    table = Table("case", "native", "minitorch", "ratio", "95 % interval", "floor", "", box=None)
    for column in table.columns[1:6]:
        column.justify = "right"
    results: list[Measurement] = []
    chosen = [case for case in CASES if re.search(args.only, case.name)]
    memory = {name: task for name, task in MEMORY_CASES.items() if re.search(args.only, name)}

    def add(result: Measurement, is_memory: bool) -> None:
        results.append(result)
        table.add_row(
            result.name, amount(result.native, is_memory), amount(result.minitorch, is_memory), f"{result.ratio:.2f}",
            f"{result.low:.2f}-{result.high:.2f}", f"{result.floor:.2f}",
            "" if result.reached else "[red]below[/red]",
        )  # fmt: skip

    with console.status("") as status:
        for case in chosen:
            status.update(case.name)
            add(measure(case, 7 if args.quick else 25), False)
        for name, task in memory.items():
            status.update(name)
            add(measure_memory(name, task, 1 if args.quick else 3), True)
    console.print(table)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({"machine": info, "results": [asdict(r) for r in results]}, indent=1) + "\n")
    console.print(f"figures: {args.json}")
    missed = [result.name for result in results if not result.reached]
    if missed:
        console.print(f"below their floor: {', '.join(missed)}", style="red")
    return 1 if missed and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
