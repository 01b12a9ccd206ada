"""What this machine can do at best, measured: bandwidth by size of the working set, and arithmetic peaks by dtype.

The probes are loops of our own that do nothing else (csrc/kernels/*/probe): copying, reading, updating in place,
writing, and independent chains of multiply-adds. Copies and writes are tried with stores that go past the caches as
well, and the better counts: an ordinary store to memory that is in no cache reads it first, which is traffic that
nobody needs. The memory is minitorch's, in huge pages where the system has them. On a GPU the copies of both sides
count too, and the arithmetic is that of large matrix products, by whichever side is faster: what is known to be
reachable, not the data sheet.
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
CPU_SIZES = tuple(32 * KIB << i for i in range(15))  # to 512 MiB: a cache ends within a factor of two, and so is found
GPU_SIZES = (8 * MIB, 32 * MIB, 128 * MIB, 1024 * MIB)
PROBE_SECONDS = 0.02
REPEATS = 3
ACCESSES = ("copy", "read", "update", "write")
TF32 = "tf32"  # a peak beside those of the dtypes


@dataclass
class Limits:
    """``copy``, ``read``, ``update``, ``write``: size of the working set in bytes -> bytes per second.

    A copy reads one half and writes the other, an update reads and writes the same memory, which counts twice.
    ``peak``: dtype, or "tf32" -> floating-point operations per second.
    """

    copy: dict[int, float] = field(default_factory=dict)
    read: dict[int, float] = field(default_factory=dict)
    peak: dict[str, float] = field(default_factory=dict)
    update: dict[int, float] = field(default_factory=dict)
    write: dict[int, float] = field(default_factory=dict)

    def bandwidth(self, access: str = "") -> dict[int, float]:
        """By size, for one kind of access, or the better of copying and reading. Older files know only these two."""
        both = {size: max(self.copy[size], self.read.get(size, 0.0)) for size in self.copy}
        return (
            {size: max(rate, both.get(size, 0.0)) for size, rate in getattr(self, access).items()} if access else both
        )

    def bandwidth_at(self, size: float, access: str = "") -> float:
        """Bytes per second at a working set's size, between the measured sizes by interpolation over the logarithm."""
        points = sorted((self.bandwidth(access) or self.bandwidth()).items())
        if size <= points[0][0]:
            return points[0][1]
        for (a, low), (b, high) in itertools.pairwise(points):
            if size <= b:
                share = math.log(size / a) / math.log(b / a)
                return low + (high - low) * share
        return points[-1][1]

    def raised(self, other: "Limits") -> "Limits":
        """The better of two measurements: a limit is what was reached at any time."""
        better = {}
        for key, mine in self.to_json().items():
            theirs = getattr(other, key)
            better[key] = {k: max(mine.get(k, 0.0), theirs.get(k, 0.0)) for k in {**mine, **theirs}}
        return Limits(**better)

    def peak_of(self, arithmetic: str) -> float | None:
        """Operations per second of a dtype or of "tf32"; of float32 for a dtype that was not measured."""
        return self.peak.get(arithmetic) or (self.peak.get("float32") if arithmetic != TF32 else None)

    def best_time(self, case: Case) -> tuple[float, str] | None:
        """Seconds that a case takes at the limit, and which limit it is: "memory" or "arithmetic"."""
        size = case.working_set or case.bytes
        by_memory = case.bytes / self.bandwidth_at(size, case.access) if case.bytes and self.copy else 0.0
        peak = self.peak_of(case.arithmetic or str(case.dtype).removeprefix("torch."))
        by_arithmetic = case.flops / peak if case.flops and peak else 0.0
        if not by_memory and not by_arithmetic:
            return None
        return (by_memory, "memory") if by_memory >= by_arithmetic else (by_arithmetic, "arithmetic")

    def to_json(self) -> dict:
        return {key: getattr(self, key) for key in (*ACCESSES, "peak")}

    @classmethod
    def from_json(cls, data: dict) -> "Limits":
        by_size = {key: {int(size): value for size, value in data.get(key, {}).items()} for key in ACCESSES}
        return cls(peak=dict(data["peak"]), **by_size)


def best_run(
    op: "_C.ProbeOp", dtype: torch.dtype, a: torch.Tensor, b: torch.Tensor, repeats: int = 1
) -> tuple[float, float]:
    """Seconds and operations (or bytes) of the shortest of a few runs."""
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        operations = _C.probe(op, dtype, a, b, repeats)
        found.append((time.perf_counter() - start, operations))
    return min(found)


def _probe(op: "_C.ProbeOp", dtype: torch.dtype, a: torch.Tensor, b: torch.Tensor) -> float:
    """Operations per second of the best of a few runs, long enough that longer ones are no better."""
    repeats, best = 1, 0.0
    while True:
        seconds, operations = best_run(op, dtype, a, b, repeats)
        rate = operations / seconds
        if seconds >= PROBE_SECONDS and 0 < rate <= 1.2 * best:
            return max(rate, best)
        if seconds < PROBE_SECONDS or best > 0:  # a first pass that takes long enough is looked at once more
            repeats *= 4 if seconds > PROBE_SECONDS / 100 else 32
        best = max(best, rate)


def measure_bandwidth(limits: Limits, size: int) -> None:
    """All kinds of access to a working set of a size; a copy's is both its buffers."""
    op, device = _C.ProbeOp, "minitorch"

    def best(whole: int, *ops: "_C.ProbeOp") -> float:
        a, b = (torch.ones(whole // 4, dtype=torch.float32, device=device) for _ in range(2))
        return max(_probe(kind, torch.float32, a, b) for kind in ops)

    limits.copy[size] = best(size // 2, op.copy, op.copy_streaming)
    limits.read[size] = best(size, op.read)
    limits.update[size] = best(size, op.update)
    limits.write[size] = best(size, op.write, op.write_streaming)


def measure_cpu(advance: Callable[[], None] = lambda: None, sizes: tuple[int, ...] = CPU_SIZES) -> Limits:
    limits = Limits()
    for size in sizes:
        measure_bandwidth(limits, size)
        advance()
    a = torch.ones(64)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        limits.peak[str(dtype).removeprefix("torch.")] = _probe(_C.ProbeOp.multiply_add, dtype, a, a)
        advance()
    return limits


PRODUCTS = (
    ("float32", torch.float32, 4096), (TF32, torch.float32, 4096), ("float64", torch.float64, 4096),
    ("bfloat16", torch.bfloat16, 8192), ("float16", torch.float16, 8192),
)  # fmt: skip


def measure_gpu(devices: list[torch.device], advance: Callable[[], None] = lambda: None) -> Limits:
    limits = Limits()

    def best(work: Callable[[], object], device: torch.device) -> float:
        clock = EventClock(device)
        clock.measure(work, 3)
        return min(clock.measure(work, 5) for _ in range(REPEATS))

    for size in GPU_SIZES:
        measure_bandwidth(limits, size)
        for device in devices:
            a, b = (torch.ones(size // 8, dtype=torch.float32, device=device) for _ in range(2))
            limits.copy[size] = max(limits.copy[size], size / best(lambda a=a, b=b: a.copy_(b), device))
        advance()
    precision = torch.get_float32_matmul_precision()
    for name, dtype, n in PRODUCTS:
        torch.set_float32_matmul_precision("high" if name == TF32 else "highest")
        for device in devices:
            try:
                x = torch.randn(n, n, device=device).to(dtype)
                rate = 2 * n**3 / best(lambda x=x: x @ x, device)
            except (RuntimeError, NotImplementedError):
                continue
            limits.peak[name] = max(limits.peak.get(name, 0.0), rate)
        advance()
    torch.set_float32_matmul_precision(precision)
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
    return len(CPU_SIZES) + 3 if backend == "cpu" else len(GPU_SIZES) + len(PRODUCTS)
