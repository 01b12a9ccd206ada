"""Clocks: how long one call of a piece of work takes on a device."""

import statistics
import time
from typing import Any, Protocol

import torch

from minitorch_backend.bench.case import Work

FLUSH_BYTES = 256 * 2**20  # several times any GPU's L2 cache
PARTS = 16  # of a block, at most


class Clock(Protocol):
    """Seconds of one call, from a block of calls."""

    def measure(self, work: Work, calls: int) -> float: ...


def device_module(device: torch.device) -> Any:
    """torch.minitorch or torch.cuda; None for the CPU."""
    return None if device.type == "cpu" else getattr(torch, device.type)


def synchronize(device: torch.device) -> None:
    if (module := device_module(device)) is not None:
        module.synchronize()


class HostClock:
    """The process's clock, around parts of a block of calls and the wait for their end.

    A block's time is the median of its parts, single calls where they are few: what interrupts one does not count.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def measure(self, work: Work, calls: int) -> float:
        each = -(-calls // PARTS)
        times = []
        synchronize(self.device)
        start = time.perf_counter()
        for first in range(0, calls, each):
            count = min(each, calls - first)
            for _ in range(count):
                work()
            synchronize(self.device)
            now = time.perf_counter()
            times.append((now - start) / count)
            start = now
        return statistics.median(times)


class EventClock:
    """The GPU's clock: events before and after a block of calls. When the host is the slower part, its time shows."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.module = device, device_module(device)

    def measure(self, work: Work, calls: int) -> float:
        start, end = (self.module.Event(enable_timing=True) for _ in range(2))
        self.module.synchronize()
        start.record()
        for _ in range(calls):
            work()
        end.record()
        self.module.synchronize()
        return start.elapsed_time(end) / calls / 1e3


class ColdClock:
    """Events around every single call, after overwriting the L2 cache."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.module = device, device_module(device)
        self.buffer = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)

    def measure(self, work: Work, calls: int) -> float:
        pairs = []
        for _ in range(calls):
            self.buffer.zero_()
            start, end = (self.module.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            pairs.append((start, end))
        self.module.synchronize()
        return sum(start.elapsed_time(end) for start, end in pairs) / calls / 1e3


def is_gpu(device: torch.device) -> bool:
    if device.type != "minitorch":
        return device.type == "cuda"
    from minitorch_backend import _C

    return _C.backend_name() == "cuda"


def clock_for(device: torch.device, cold: bool) -> Clock:
    """The clock that fits a device; ``cold`` means nothing on a CPU."""
    if not is_gpu(device):
        return HostClock(device)
    return ColdClock(device) if cold else EventClock(device)
