"""Where the processors lie to each other while a case is timed.

A hypervisor moves its virtual processors about: on one die a cache line goes from one to the other and back in about
100 ns, between two dies in 300 to 400. Each state lasts from seconds to minutes, and memory-bound work on two threads
changes by up to 1.8 with it, on one side of a race and not on the other. So the round trip is measured before and after
each round (csrc/runtime/cpu/round_trip.cpp, half a millisecond), and a ratio is made of rounds in one state: near.

The last cache is shared with the other guests of the die. While they use it, what lies in it takes up to twice as long,
again on one side of a race and not on the other: a sort of ours by up to a third, native's not at all. So before and
after each visit half of it is read, and visits to a quiet cache count, where there are any.
"""

import math
import pathlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from minitorch_backend import _C
from minitorch_backend.bench import limits

NEAR, FAR, MIXED = "near", "far", "mixed"
APART = 2.5  # states differ by more than this factor, looks at one state by less
SAME_DIE = 200e-9  # no pair of processors on one die takes longer
PATIENCE = 120.0  # seconds after which a state that was never left is the machine's only one
LOOK_AGAIN = 0.2
QUIET = 0.85  # share of the best rate ever seen at which a cache is read that nobody else uses


def is_virtual() -> bool:
    """Whether a hypervisor says that it is there; without one, processors stay where they are."""
    info = pathlib.Path("/proc/cpuinfo")
    return info.exists() and any("hypervisor" in x.split() for x in info.read_text().splitlines() if x[:5] == "flags")


def last_cache(folder: pathlib.Path = pathlib.Path("/sys/devices/system/cpu/cpu0/cache")) -> int | None:
    """Bytes of the third level's cache, where there is one."""
    file = folder / "index3" / "size"
    found = re.fullmatch(r"(\d+)K", file.read_text().strip()) if file.exists() else None
    return int(found[1]) * 1024 if found else None


class SharedCache:
    """``size``: half of it, in bytes, a power of two: a working set that has its limit (limits.py)."""

    def __init__(self, whole: int) -> None:
        self.size = 1 << (whole // 2).bit_length() - 1
        self._memory = torch.ones(self.size // 4, dtype=torch.float32, device="minitorch")

    def rate(self) -> float:
        """Bytes per second of the best of a few reads: the first finds there what the work before has left."""
        seconds, read = limits.best_run(_C.ProbeOp.read, torch.float32, self._memory, self._memory)
        return read / seconds


@dataclass
class Placement:
    """Looks at the processors, and remembers what this run has seen."""

    measure: Callable[[], float] = _C.cache_line_round_trip
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    cache: SharedCache | None = None
    latencies: list[float] = field(default_factory=list)
    lowest: float = math.inf
    start: float = math.nan

    def look(self) -> float:
        """Seconds of a round trip; NaN when others kept a processor busy meanwhile."""
        if math.isnan(self.start):
            self.start = self.clock()
        found = self.measure()
        if not math.isnan(found):
            self.latencies.append(found)
            self.lowest = min(self.lowest, found)
        return found

    @property
    def limit(self) -> float:
        """Below it the processors are near: APART times the lowest latency seen, but no more than one die can have.

        A machine that was never near for PATIENCE is one whose only state has such a latency.
        """
        return APART * self.lowest if self.one_state else min(APART * self.lowest, SAME_DIE)

    @property
    def one_state(self) -> bool:
        """Whether it is time to believe that this machine's processors never lie on one die."""
        return SAME_DIE <= self.lowest < math.inf and self.clock() - self.start >= PATIENCE

    def of(self, *latencies: float) -> str:
        """The state that looks, before and after something, agree on; "mixed" when they do not or saw nothing."""
        known = [latency < self.limit for latency in latencies if not math.isnan(latency)]
        if not known or any(known) != all(known):
            return MIXED
        return NEAR if known[0] else FAR

    def summary(self) -> dict:
        """What was seen, for the result file: latencies in nanoseconds and the share of looks that found them near."""
        if not self.latencies:
            return {}
        near = [latency for latency in self.latencies if latency < self.limit]
        return {
            "lowest_ns": round(self.lowest * 1e9),
            "highest_ns": round(max(self.latencies) * 1e9),
            "limit_ns": round(self.limit * 1e9),
            "near": round(len(near) / len(self.latencies), 3),
            "looks": len(self.latencies),
        }


def find(backend: str) -> Placement | None:
    """What watches the processors; None where nothing moves them: a GPU, one thread, a machine of one's own."""
    if backend != "cpu" or torch.get_num_threads() < 2 or not is_virtual():
        return None
    whole = last_cache()
    return Placement(cache=SharedCache(whole) if whole else None)
