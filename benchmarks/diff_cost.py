"""What comparing costs: time and memory of a training step with Diff on, by the step without.

    python benchmarks/diff_cost.py [--model cnn] [--check]

Time: the digits CNN and the char-GPT of examples/ train on the subject device in several ways that take turns step by
step in one process, so that whatever else the machine does hits all alike: plain; with everything on (the default: all
calls, native shadow, arbiter); streaming (no shadow); and plain on the reference. The ratio of a step to the plain step
beside it is taken round by round; reported are the median of the ratios and their quartiles. The steps before the first
timed one fill what the comparison learns about each kind of call; `first` is the cost of the very first step, where
every call is looked at thoroughly. --every 50 takes turns with plain for more steps (LONGER), so that each call's turn
comes; few of its steps cost anything, so its ratio is that of the sums over all of them. Processor time (of all
threads) stands beside the clock: on a busy machine it is the steadier of the two. The C library's heap keeps its blocks
throughout, in all ways alike (compare.heap): native's page faults would be counted otherwise, and vary by process.

Memory: growth of the peak resident size over some steps, each in a process of its own (examples/memory.py says how);
the median of three.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Not this folder: a module in it must not pass for one that torch looks for.
sys.path[0] = str(ROOT / "examples")

import tasks  # noqa: E402
import torch  # noqa: E402
from memory import peak_growth  # noqa: E402

from minitorch_backend.compare.heap import reused_blocks  # noqa: E402
from minitorch_backend.compare.options import Options  # noqa: E402
from minitorch_backend.compare.recorder import Recorder  # noqa: E402

MODELS = {"cnn": tasks.DigitsTask, "gpt": tasks.TextTask}
WAYS: dict[str, dict | None] = {
    "plain": None,
    "everything": {},
    "streaming": {"shadow": False},
    "native": None,
    "every 50": {"every": 50},
}
TURNS = (("plain", "everything", "streaming", "native"), ("plain", "every 50"))
LONGER = 30  # times as many steps for the second turns
LIMITS = {"everything": 6.0, "every 50": 1.3}
MEMORY_LIMIT = 4.0
WARM = 6


class Way:
    """One way to train, in a session that is entered for its own steps only."""

    def __init__(self, model: str, settings: dict | None, device: str, batch: int = 0) -> None:
        self.task, self.device = MODELS[model](300, **({"batch": batch} if batch else {})), device
        self.run = self.task.run(torch.device(device))
        self.generator = torch.Generator().manual_seed(0)
        self.seconds: list[float] = []
        self.processor: list[float] = []
        self.recorder = None
        if settings is not None:
            self.recorder = Recorder(Options(subject=device, **settings))

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        with self.recorder if self.recorder is not None else contextlib.nullcontext():
            yield

    def step(self) -> None:
        inputs, targets = self.task.batch(self.generator)
        with self.entered():
            clock, processor = time.perf_counter(), time.process_time()
            self.run.step(inputs.to(self.device), targets.to(self.device))
            self.seconds.append(time.perf_counter() - clock)
            self.processor.append(time.process_time() - processor)


def measure_time(model: str, subject: str, steps: int) -> dict[str, dict[str, float]]:
    return {**take_turns(model, subject, TURNS[1], LONGER * steps), **take_turns(model, subject, TURNS[0], steps)}


def take_turns(model: str, subject: str, names: tuple[str, ...], steps: int) -> dict[str, dict[str, float]]:
    ways = {name: Way(model, WAYS[name], "cpu" if name == "native" else subject) for name in names}
    with reused_blocks():
        for _ in range(WARM + steps):
            for way in ways.values():
                way.step()
    plain = ways["plain"]
    result = {}
    for name, way in ways.items():
        rounds = list(zip(way.seconds[WARM:], plain.seconds[WARM:], strict=True))
        processor = zip(way.processor[WARM:], plain.processor[WARM:], strict=True)
        mean = sum(way.seconds[WARM:]) / sum(plain.seconds[WARM:])
        low, middle, high = statistics.quantiles([a / b for a, b in rounds], n=4)
        result[name] = {
            "ms": 1e3 * statistics.median(way.seconds[WARM:]),
            "ratio": middle if name != "every 50" else mean,
            "low": low,
            "high": high,
            "median ratio": middle,
            "mean ratio": mean,
            "processor ratio": statistics.median(a / b for a, b in processor),
            "first ms": 1e3 * way.seconds[0],
        }
    return result


def memory_of(model: str, way: str, subject: str, steps: int) -> int:
    """Bytes by which training grows the peak, in this process."""

    def train(steps: int = steps, batch: int = 0) -> None:
        one = Way(model, WAYS[way], subject, batch)
        with reused_blocks() if WAYS[way] is not None else contextlib.nullcontext():
            for _ in range(steps):
                one.step()

    return peak_growth(lambda: train(1, batch=2), train) or 0


def measure_memory(model: str, way: str, subject: str, steps: int) -> int:
    command = [sys.executable, __file__, "--subject", subject, "--memory-of", model, way, "--steps", str(steps)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(3)]
    return statistics.median(int(out.split()[-1]) for out in runs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--subject", default="minitorch")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--check", action="store_true", help="exit status 1 when a limit is passed")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--memory-of", nargs=2, metavar=("MODEL", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.memory_of:
        print(memory_of(*options.memory_of, options.subject, options.steps))
        return 0
    results: dict[str, dict] = {}
    over = []
    for model in options.model or MODELS:
        times = measure_time(model, options.subject, options.steps)
        memory = {w: measure_memory(model, w, options.subject, 4) for w in ("plain", "everything", "every 50")}
        results[model] = {"time": times, "memory": memory}
        print(f"{model}, {torch.get_num_threads()} threads, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
        for name, t in times.items():
            print(
                f"  {name:10} {t['ms']:8.2f} ms  {t['ratio']:5.2f} of plain (quartiles of the rounds {t['low']:.2f}, "
                f"{t['median ratio']:.2f}, {t['high']:.2f}; mean {t['mean ratio']:.2f}), processor time "
                f"{t['processor ratio']:5.2f}, first step {t['first ms']:.1f} ms"
            )
            if t["ratio"] > LIMITS.get(name, 1e9):
                over.append(f"{model}, {name}: {t['ratio']:.2f} times the plain step, limit {LIMITS[name]}")
        ratio = memory["everything"] / memory["plain"]
        mebibytes = ", ".join(f"{way} {size / 2**20:.1f} MiB" for way, size in memory.items())
        print(f"  memory: {mebibytes}; everything by plain {ratio:.2f}")
        if ratio > MEMORY_LIMIT:
            over.append(f"{model}: {ratio:.2f} times the plain memory, limit {MEMORY_LIMIT}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    for line in over:
        print(line)
    return 1 if over and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
