"""Peak memory of one call: outputs, scratch space and what an allocator rounds up.

On a GPU both allocators keep a peak. On the CPU native's keeps none, so the system is asked about the process: Linux
records the highest resident size and lets it be reset; before that, what is held as cache is given back. Our allocator
may find room in memory that is resident already, so on our side the larger of its own peak and the system's counts.
"""

import contextlib
import gc
import pathlib
from typing import Any

import torch

from minitorch_backend._glibc import glibc
from minitorch_backend.bench.case import Work, make_ready
from minitorch_backend.bench.clock import device_module, is_gpu, synchronize

STATUS = pathlib.Path("/proc/self/status")
CLEAR = pathlib.Path("/proc/self/clear_refs")
SEEN = 4 * 2**20  # growth below this is the noise of pages and arenas


def _resident(key: str) -> int:
    for line in STATUS.read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def give_back() -> None:
    """Return what is held as cache, so that a case does not starve the next one."""
    gc.collect()
    if (ours := minitorch()) is not None:
        with contextlib.suppress(RuntimeError):
            ours.empty_cache()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    if (library := glibc()) is not None:
        library.malloc_trim(0)


def ran_out(error: BaseException) -> bool:
    """Whether an exception says that there is no memory left. Native's on the CPU has no type of its own."""
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or any(words in str(error) for words in ("DefaultCPUAllocator", "bad_alloc", "Cannot allocate memory"))


def minitorch() -> Any:
    """torch.minitorch; None in a process without it."""
    return getattr(torch, "minitorch", None)


def peak(work: Work, device: torch.device) -> int | None:
    """Bytes by which one call raises the memory in use at its highest; None where it cannot be told.

    What the harness adds to the work, a gradient to start from, is there before.
    """
    make_ready(work)
    if is_gpu(device):
        module = device_module(device)
        synchronize(device)
        gc.collect()
        before = module.memory_allocated()
        module.reset_peak_memory_stats()
        work()
        synchronize(device)
        return module.max_memory_allocated() - before
    if not STATUS.exists():
        return None
    give_back()
    try:
        CLEAR.write_text("5")  # sets the peak back to the present size
    except OSError:
        return None
    before = _resident("VmRSS")
    ours = minitorch()
    held = ours.memory_allocated() if ours else 0
    if ours:
        ours.reset_peak_memory_stats()
    work()
    grown = max(_resident("VmHWM") - before, ours.max_memory_allocated() - held if ours else 0)
    return grown if grown >= SEEN else None
