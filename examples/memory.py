"""Peak memory of a few training steps, measured in a process of its own.

On a GPU the device's allocator keeps a peak. The memory of other devices is the process's, and native CPU keeps no
statistics of its allocations, so the process is asked instead: Linux records the highest resident size it reached
(VmHWM) and lets it be reset. What counts is how far the peak rises above the size before the work, in a process that
does nothing else. A rehearsal with a tiny batch comes first, so that code pages and one-time set-up of libraries, which
say nothing about the work, are already there. On the CPU it includes what a device's allocator holds back for reuse and
what kernels use as scratch space: everything the machine has to give.
"""

import gc
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable

import torch
from apart import environment
from tasks import STEPS, TASKS
from training import device_module, random_numbers, synchronize, timed_step

STATUS = pathlib.Path("/proc/self/status")


def resident(key: str) -> int:
    """VmRSS (now) or VmHWM (peak) of this process in bytes."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def peak_growth(device: torch.device, rehearse: Callable[[], None], work: Callable[[], None]) -> int | None:
    """Bytes by which `work` raises the peak of a GPU's allocator, or of the process's resident size; None where the
    system cannot say."""
    on_gpu = random_numbers(device) == "cuda"
    if not on_gpu and not STATUS.exists():
        return None
    rehearse()
    gc.collect()
    if on_gpu:
        module = device_module(device)
        synchronize(device)
        before = module.memory_allocated()
        module.reset_peak_memory_stats()
        work()
        synchronize(device)
        return module.max_memory_allocated() - before
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to the present size
    before = resident("VmRSS")
    work()
    return resident("VmHWM") - before


def measure(name: str, device: str, steps: int) -> int | None:
    """The growth in bytes over so many steps of a task, by a process that trains on this device alone."""
    command = [sys.executable, __file__, name, device, str(steps)]
    done = subprocess.run(command, env=environment(torch.device(device)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def growth(name: str, device: torch.device, steps: int) -> int | None:
    """The same in this process."""
    generator = torch.Generator().manual_seed(0)
    task = TASKS[name](STEPS[name])
    small = TASKS[name](STEPS[name], batch=2)

    def rehearse() -> None:
        small.run(device).step(*(t.to(device) for t in small.batch(generator)))

    def work() -> None:
        run = task.run(device)
        for seed in range(steps):
            timed_step(run, *task.batch(generator), seed)

    return peak_growth(device, rehearse, work)


if __name__ == "__main__":
    print(json.dumps(growth(sys.argv[1], torch.device(sys.argv[2]), int(sys.argv[3]))))
