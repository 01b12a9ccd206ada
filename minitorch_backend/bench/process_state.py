"""What a kernel may leave changed in its process: settings of many kinds, memory, files, threads, processes."""

import contextlib
import ctypes
import gc
import locale
import os
import pathlib
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil
import torch

from minitorch_backend._glibc import glibc

TOKEN = "MINITORCH_DIFF_TOKEN"  # in the environment of a diff and of all that it starts
LEAK = 16.0  # bytes of a call
PR_SET_PDEATHSIG = 1
PATH = list(sys.path)
ENVIRON = os.environ
OF_COMPILERS = ("TORCH", "TRITON", "KINETO")  # that torch.compile and Triton set when they are first called
NAMED = 6  # variables, signals or limits in a message
GRACE = 1.0  # seconds in which a thread may end after its call
MALLINFO = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in MALLINFO]


def _c(name: str) -> Any:
    """A function of the C library; None where it has none of that name."""
    return getattr(ctypes.CDLL(None, use_errno=True), name, None)


def _asked_c(name: str) -> Callable[[], int | None]:
    return lambda: function() if (function := _c(name)) else None


def _set_rounding(mode: int | None) -> None:
    if mode is not None:
        _c("fesetround")(mode)


def _set_traps(traps: int | None) -> None:
    if traps is not None:
        _c("fedisableexcept")(-1)
        _c("feenableexcept")(traps)


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "(a removed one)"


def _mask() -> str:
    os.umask(found := os.umask(0o077))
    return f"{found:03o}"


def _thread_locale(new: int = 0) -> int | None:
    """The C library's locale of this thread; of another one than the process has if it was set."""
    if (function := _c("uselocale")) is None:
        return None
    function.restype, function.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
    return function(new or 0)


def _set_device(name: str) -> None:
    torch.set_default_device(None if name == "cpu" else name)


@dataclass(frozen=True)
class Handler:
    """What a signal does: Python's view, the C library's, and the latter whole, to be put back."""

    python: Any
    address: int
    whole: bytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handler) and (self.python, self.address) == (other.python, other.address)

    def __str__(self) -> str:
        known = {0: "default", 1: "ignored"}.get(self.address)
        return known or f"handled by {getattr(self.python, '__qualname__', None) or hex(self.address)}"


def _handlers() -> dict[str, Handler]:
    found, action = {}, _c("sigaction")
    for number in signal.valid_signals():
        whole = ctypes.create_string_buffer(256)  # a struct sigaction, which begins with the handler everywhere
        if action(int(number), None, whole) == 0:
            address = ctypes.c_size_t.from_buffer(whole).value
            name = number.name if isinstance(number, signal.Signals) else str(number)
            found[name] = Handler(signal.getsignal(number), address, whole.raw)
    return found


def _set_handlers(handlers: dict[str, Handler]) -> None:
    now = _handlers()
    for name, handler in handlers.items():
        if now.get(name) == handler:
            continue
        number = int(name) if name.isdigit() else signal.Signals[name]
        if handler.python is not None:
            signal.signal(number, handler.python)
        _c("sigaction")(int(number), handler.whole, None)


def _blocked() -> tuple[str, ...]:
    return tuple(sorted(getattr(s, "name", str(s)) for s in signal.pthread_sigmask(signal.SIG_BLOCK, ())))


def _set_blocked(names: tuple[str, ...]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, {int(n) if n.isdigit() else signal.Signals[n] for n in names})


def _set_alarm(is_set: bool) -> None:
    if not is_set:
        signal.setitimer(signal.ITIMER_REAL, 0)


LIMITS = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}


def _limits() -> dict[str, tuple[int, int]]:
    return {name: resource.getrlimit(number) for name, number in LIMITS.items()}


def _set_limits(limits: dict[str, tuple[int, int]]) -> None:
    for name, (soft, hard) in limits.items():
        try:
            resource.setrlimit(LIMITS[name], (soft, hard))
        except (ValueError, OSError):  # only the superuser raises a hard limit again
            most = resource.getrlimit(LIMITS[name])[1]
            resource.setrlimit(LIMITS[name], (most if soft == resource.RLIM_INFINITY else min(soft, most), most))


def _environment() -> dict[str, tuple[str | None, str | None]]:
    """Variable -> what the C library has, and what Python has."""
    here = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    of_c: dict[str, str] = {}
    number = 0
    while here and here[number] is not None:
        name, _, value = os.fsdecode(here[number]).partition("=")
        of_c.setdefault(name, value)
        number += 1
    names = [*of_c, *(name for name in os.environ if name not in of_c)]
    return {name: (of_c.get(name), os.environ.get(name)) for name in names}


def _set_environment(variables: dict[str, tuple[str | None, str | None]]) -> None:
    os.environ = ENVIRON  # noqa: B003  a kernel may have put another one there
    for name in _environment():
        os.unsetenv(name)
    ENVIRON.clear()
    for name, (of_c, of_python) in variables.items():
        if of_python is not None:
            ENVIRON[name] = of_python
        if of_c is None:
            os.unsetenv(name)
        elif of_c != of_python:
            os.putenv(name, of_c)


def _set_processors(processors: tuple[int, ...]) -> None:
    if processors:
        os.sched_setaffinity(0, processors)


@dataclass(frozen=True)
class Setting:
    """Something of this process or thread that a call must leave as it was.

    ``read`` gives a value, or for a family of them a dict; ``write`` puts such a value back.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]


SETTINGS = (
    Setting("rounding", _asked_c("fegetround"), _set_rounding),
    Setting("traps of the arithmetic", _asked_c("fegetexcept"), _set_traps),
    Setting("denormals", lambda: float("5e-324") * float("1") != 0.0, lambda on: torch.set_flush_denormal(not on)),
    Setting("folder", _folder, os.chdir),
    Setting("umask", _mask, lambda digits: os.umask(int(digits, 8))),
    Setting("environment", _environment, _set_environment),
    Setting("signals", _handlers, _set_handlers),
    Setting("blocked signals", _blocked, _set_blocked),
    Setting("alarm", lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0, _set_alarm),
    Setting("limits", _limits, _set_limits),
    Setting("locale", lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name)),
    Setting("locale of the thread", _thread_locale, _thread_locale),
    Setting("threads", torch.get_num_threads, torch.set_num_threads),
    Setting(
        "processors",
        lambda: tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else (),
        _set_processors,
    ),
    Setting(
        "priority",
        lambda: os.getpriority(os.PRIO_PROCESS, 0),
        lambda value: os.setpriority(os.PRIO_PROCESS, 0, value),  # only the superuser becomes nicer to himself again
    ),
    Setting("outputs_open", lambda: all(is_open(descriptor) for descriptor in (1, 2)), lambda is_so: None),
    Setting("garbage collection", gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    Setting("gradients", torch.is_grad_enabled, torch.set_grad_enabled),
    Setting("default_dtype", torch.get_default_dtype, torch.set_default_dtype),
    Setting("default_device", lambda: str(torch.get_default_device()), _set_device),
    Setting("matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    Setting("deterministic", torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    Setting("seed", torch.initial_seed, torch.manual_seed),
)


class State:
    """All settings at one time."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    @classmethod
    def now(cls) -> "State":
        return cls({setting.name: setting.read() for setting in SETTINGS})

    def changes(self, but: tuple[str, ...] = ()) -> str:
        """What is different now, put back as far as that is allowed; "" when nothing is, ``but`` some settings."""
        found = []
        for setting in SETTINGS:
            if setting.name in but:
                continue
            was, now = self.values[setting.name], setting.read()
            if was == now or not (said := differences(setting.name, was, now)):
                continue
            found += said
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                setting.write(was)
        return ", ".join(found)


def differences(name: str, was: Any, now: Any) -> list[str]:
    """What to say of a setting that changed. Variables that a compiler added are not said."""
    if not isinstance(was, dict):
        return [f"{name} {was} is {now} now"]
    found = []
    for key in [*was, *(key for key in now if key not in was)]:
        before, after = was.get(key), now.get(key)
        if before == after or (before is None and name == "environment" and key.startswith(OF_COMPILERS)):
            continue
        if name == "environment":  # values may be secrets
            before, after = before or (None, None), after or (None, None)
            before, after = next((a, b) for a, b in zip(before, after, strict=True) if a != b)
            found.append(f"{name} {key} is {'unset' if after is None else 'set' if before is None else 'another'} now")
        else:
            found.append(f"{name} {key} {before} is {after} now")
    return found if len(found) <= NAMED else [*found[:NAMED], f"{len(found) - NAMED} more of {name}"]


def settle() -> None:
    """Have torch start the threads that it keeps, and OpenMP end those that a larger team left."""
    for device in ("cpu", "minitorch"):
        (torch.ones(1 << 18, device=device) + 1).sum().item()


def tasks() -> set[str]:
    """The threads of this process; none where that is not known."""
    with contextlib.suppress(OSError):
        return set(os.listdir("/proc/self/task"))
    return set()


def left_threads(before: set[str]) -> list[str]:
    """Names of the threads that have come since ``before`` and do not end by themselves within a second."""
    end = time.monotonic() + GRACE
    if tasks() - before:
        settle()
    while (new := tasks() - before) and time.monotonic() < end:
        time.sleep(0.01)
    found = []
    for task in new:
        with contextlib.suppress(OSError):
            found.append(f"{pathlib.Path(f'/proc/self/task/{task}/comm').read_text().strip()} ({task})")
    return found


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
