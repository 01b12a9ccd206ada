"""What a kernel may leave changed in its process: how numbers are rounded, threads, the folder, memory, processes."""

import contextlib
import ctypes
import gc
import os
import signal
import sys
from dataclasses import dataclass, fields

import psutil
import torch

from minitorch_backend._glibc import glibc

TOKEN = "MINITORCH_DIFF_TOKEN"  # in the environment of a diff and of all that it starts
LEAK = 16.0  # bytes of a call
PR_SET_PDEATHSIG = 1
PATH = list(sys.path)
MALLINFO = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in MALLINFO]


@dataclass(frozen=True)
class State:
    """Of this process and thread."""

    rounding: int | None
    denormals: bool
    folder: str
    threads: int
    processors: tuple[int, ...]
    priority: int
    outputs_open: bool
    gradients: bool
    default_dtype: torch.dtype
    default_device: str
    deterministic: bool
    seed: int

    @classmethod
    def now(cls) -> "State":
        library = ctypes.CDLL(None)
        tiny = float("5e-324")
        return cls(
            library.fegetround() if hasattr(library, "fegetround") else None,
            tiny * float("1") != 0.0,
            os.getcwd(),
            torch.get_num_threads(),
            tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else (),
            os.getpriority(os.PRIO_PROCESS, 0),
            all(is_open(descriptor) for descriptor in (1, 2)),
            torch.is_grad_enabled(),
            torch.get_default_dtype(),
            str(torch.get_default_device()),
            torch.are_deterministic_algorithms_enabled(),
            torch.initial_seed(),
        )

    def restore(self) -> None:
        if self.rounding is not None:
            ctypes.CDLL(None).fesetround(self.rounding)
        torch.set_flush_denormal(not self.denormals)
        os.chdir(self.folder)
        torch.set_num_threads(self.threads)
        if self.processors:
            os.sched_setaffinity(0, self.processors)
        with contextlib.suppress(PermissionError):  # only the superuser becomes nicer to himself again
            os.setpriority(os.PRIO_PROCESS, 0, self.priority)
        torch.set_grad_enabled(self.gradients)
        torch.set_default_dtype(self.default_dtype)
        if str(torch.get_default_device()) != self.default_device:
            torch.set_default_device(None if self.default_device == "cpu" else self.default_device)
        torch.use_deterministic_algorithms(self.deterministic)
        if torch.initial_seed() != self.seed:
            torch.manual_seed(self.seed)

    def changes(self) -> str:
        """What is different now, put back; "" when nothing is."""
        now = State.now()
        found = [
            f"{field.name} {getattr(self, field.name)} is {getattr(now, field.name)} now"
            for field in fields(self)
            if getattr(self, field.name) != getattr(now, field.name)
        ]
        if found:
            self.restore()
        return ", ".join(found)


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def heap_in_use() -> int | None:
    """Bytes that the C library's heap has given out to this thread's arena; None where it does not say."""
    library = glibc()
    if library is None or not hasattr(library, "mallinfo2"):
        return None
    library.mallinfo2.restype = _Mallinfo2
    gc.collect()
    found = library.mallinfo2()
    return found.uordblks + found.hblkhd


def open_files() -> int:
    """How many descriptors of this process are open; 0 where that is not known."""
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return 0


def kept_of_a_call(call, calls: int = 100) -> float:
    """Bytes of the heap that each call of something keeps: the least of three looks, 0 where that cannot be told."""
    for _ in range(min(20, calls)):
        call()
    kept = []
    for _ in range(3):
        before = heap_in_use()
        for _ in range(calls):
            call()
        after = heap_in_use()
        if before is None or after is None:
            return 0.0
        kept.append((after - before) / calls)
    return min(kept)


def python(module: str, *arguments: str) -> list[str]:
    """The command of a process that runs a module and finds modules where this one did at first.

    Files of cases, loaded later, add their folders. ``python -m`` would look into the current folder first, where a
    kernel for aten::select may be in a select.py.
    """
    boot = f"import sys; sys.path[:] = {PATH!r}; import runpy; runpy.run_module({module!r}, None, '__main__', True)"
    return [sys.executable, "-c", boot, *arguments]


def end_with(parent: int) -> None:
    """In a child: it ends with the process that started it, on Linux, however that ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before that
            os._exit(1)


def with_token(token: str) -> list[psutil.Process]:
    """The processes that were started with a token in their environment, whoever their parent is now."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(TOKEN) == token and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found
