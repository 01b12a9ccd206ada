"""Peak memory of a piece of work, the same way for every device whose memory is this process's.

Native CPU keeps no statistics of its allocations, so the process is asked instead: Linux records the highest resident
size a process reached (VmHWM) and lets it be reset. What counts is how far the peak rises above the resident size
before the work, in a process that does nothing else. A rehearsal with a tiny batch comes first, so that code pages and
one-time set-up of libraries, which say nothing about the work, are already there. It includes what a device's allocator
holds back for reuse and what kernels use as scratch space: everything the machine has to give.
"""

import gc
import pathlib
from collections.abc import Callable

STATUS = pathlib.Path("/proc/self/status")


def resident(key: str) -> int:
    """VmRSS (now) or VmHWM (peak) of this process in bytes."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def peak_growth(rehearse: Callable[[], None], work: Callable[[], None]) -> int | None:
    """Bytes by which `work` raised the process's peak resident size; None where the system cannot say."""
    if not STATUS.exists():
        return None
    rehearse()
    gc.collect()
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to the present size
    before = resident("VmRSS")
    work()
    return resident("VmHWM") - before
