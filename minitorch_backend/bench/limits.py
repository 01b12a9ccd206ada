"""What this machine can do at best, measured: bandwidth by size of the working set, and arithmetic peaks by dtype.

On the CPU the probes are loops of our own that do nothing else (csrc/kernels/cpu/probe.cpp): copying, reading, and
independent chains of multiply-adds. On a GPU they are a large copy and large matrix products, by whichever side
is faster: what is known to be reachable, not the data sheet.
"""

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from minitorch_backend import _C
from minitorch_backend.bench.case import Case
from minitorch_backend.bench.clock import EventClock

KIB, MIB = 2**10, 2**20
CPU_SIZES = (32 * KIB, 128 * KIB, 512 * KIB, 2 * MIB, 8 * MIB, 32 * MIB, 128 * MIB, 512 * MIB)
GPU_SIZES = (8 * MIB, 32 * MIB, 128 * MIB, 1024 * MIB)
PROBE_SECONDS = 0.05
REPEATS = 3


@dataclass
class Limits:
    """``bandwidth``: size of the working set in bytes -> bytes per second, the better of copying and reading.
    ``copy`` and ``read`` hold the two. ``peak``: dtype -> floating-point operations per second."""

    copy: dict[int, float] = field(default_factory=dict)
    read: dict[int, float] = field(default_factory=dict)
    peak: dict[str, float] = field(default_factory=dict)

    @property
    def bandwidth(self) -> dict[int, float]:
        return {size: max(self.copy[size], self.read.get(size, 0.0)) for size in self.copy}

    def bandwidth_at(self, size: float) -> float:
        """Bytes per second at a working set's size, between the measured sizes by interpolation over the logarithm."""
        points = sorted(self.bandwidth.items())
        if size <= points[0][0]:
            return points[0][1]
        for (a, low), (b, high) in itertools.pairwise(points):
            if size <= b:
                share = math.log(size / a) / math.log(b / a)
                return low + (high - low) * share
        return points[-1][1]

    def peak_of(self, dtype: torch.dtype) -> float | None:
        """Operations per second of a dtype; of float32 for one that was not measured."""
        name = str(dtype).removeprefix("torch.")
        return self.peak.get(name) or self.peak.get("float32")

    def best_time(self, case: Case) -> tuple[float, str] | None:
        """Seconds that a case takes at the limit, and which limit it is: "memory" or "arithmetic"."""
        by_memory = case.bytes / self.bandwidth_at(case.bytes) if case.bytes and self.copy else 0.0
        peak = self.peak_of(case.dtype)
        by_arithmetic = case.flops / peak if case.flops and peak else 0.0
        if not by_memory and not by_arithmetic:
            return None
        return (by_memory, "memory") if by_memory >= by_arithmetic else (by_arithmetic, "arithmetic")

    def to_json(self) -> dict:
        return {"copy": self.copy, "read": self.read, "peak": self.peak}

    @classmethod
    def from_json(cls, data: dict) -> "Limits":
        by_size = [{int(size): value for size, value in data[key].items()} for key in ("copy", "read")]
        return cls(*by_size, dict(data["peak"]))


def _probe(op: "_C.ProbeOp", dtype: torch.dtype, a: torch.Tensor, b: torch.Tensor) -> float:
    """Operations per second of the best of a few runs, long enough that longer ones are no better."""

    def run(repeats: int) -> tuple[float, float]:
        found = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            operations = _C.probe(op, dtype, a, b, repeats)
            found.append((time.perf_counter() - start, operations))
        return min(found)

    repeats, best = 1, 0.0
    while True:
        seconds, operations = run(repeats)
        rate = operations / seconds
        if seconds >= PROBE_SECONDS and rate <= 1.2 * best:
            return max(rate, best)
        best = max(best, rate)
        repeats *= 4 if seconds > PROBE_SECONDS / 100 else 32


def measure_cpu(advance: Callable[[], None] = lambda: None, sizes: tuple[int, ...] = CPU_SIZES) -> Limits:
    limits = Limits()
    op = _C.ProbeOp
    for size in sizes:  # a copy's working set is both its buffers
        a, b = (torch.ones(size // 8, dtype=torch.float32) for _ in range(2))
        limits.copy[size] = _probe(op.copy, torch.float32, a, b)
        whole = torch.ones(size // 4, dtype=torch.float32)
        limits.read[size] = _probe(op.read, torch.float32, whole, whole)
        advance()
    a = torch.ones(64)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        limits.peak[str(dtype).removeprefix("torch.")] = _probe(op.multiply_add, dtype, a, a)
        advance()
    return limits


def measure_gpu(devices: list[torch.device], advance: Callable[[], None] = lambda: None) -> Limits:
    limits = Limits()

    def best(work: Callable[[], object], device: torch.device) -> float:
        clock = EventClock(device)
        clock.measure(work, 3)
        return min(clock.measure(work, 5) for _ in range(REPEATS))

    for size in GPU_SIZES:
        for device in devices:
            a, b = (torch.ones(size // 8, dtype=torch.float32, device=device) for _ in range(2))
            limits.copy[size] = max(limits.copy.get(size, 0.0), size / best(lambda a=a, b=b: a.copy_(b), device))
        advance()
    for dtype, n in ((torch.float32, 4096), (torch.float64, 4096), (torch.bfloat16, 8192), (torch.float16, 8192)):
        name = str(dtype).removeprefix("torch.")
        for device in devices:
            try:
                x = torch.randn(n, n, device=device).to(dtype)
                rate = 2 * n**3 / best(lambda x=x: x @ x, device)
            except (RuntimeError, NotImplementedError):
                continue
            limits.peak[name] = max(limits.peak.get(name, 0.0), rate)
        advance()
    return limits


def measure(backend: str, advance: Callable[[], None] = lambda: None) -> Limits:
    """The limits of what minitorch runs on."""
    if backend == "cpu":
        return measure_cpu(advance)
    devices = [torch.device("minitorch")]
    if torch.cuda.is_available():
        devices.insert(0, torch.device("cuda"))
    return measure_gpu(devices, advance)


def steps(backend: str) -> int:
    """How often ``measure`` calls ``advance``."""
    return len(CPU_SIZES) + 3 if backend == "cpu" else len(GPU_SIZES) + 4
