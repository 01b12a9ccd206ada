"""A side in a process of its own: native CUDA, where minitorch must not be registered.

With any PrivateUse1 device registered, PyTorch (2.11 to 2.13) asks that device for the streams of a CUDA tensor's
backward pass and fails (pytorch/pytorch issue 161129). So native's cases run in a child that loads the table of cases
without registering minitorch: the package's `__init__`, which does that, is left out. Blocks of calls still take turns
with ours, one at a time; a clock runs where the work runs.
"""

import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import torch

from minitorch_backend.bench import accuracy, memory
from minitorch_backend.bench import case as cases_module
from minitorch_backend.bench.accuracy import Accuracy
from minitorch_backend.bench.case import Case, Work, compile_work, remembered_draws
from minitorch_backend.bench.clock import Clock, clock_for

PACKAGE = pathlib.Path(__file__).resolve().parents[1]
START_SECONDS = 120.0
# The child finds the package's modules without running its __init__.
BOOT = """
import json, sys, types
options = json.loads(sys.argv[1])
sys.path[:0] = options["path"]
package = types.ModuleType("minitorch_backend")
package.__path__ = [options["package"]]
sys.modules["minitorch_backend"] = package
from minitorch_backend.bench import guest
guest.serve(options)
"""


class GuestError(RuntimeError):
    """What went wrong in the child: the type and text of its exception."""


class Guest:
    """The parent's end. It starts with the first case; ``folder`` is that of the cases."""

    def __init__(self, device: torch.device, folder: pathlib.Path | None = None, compiled: bool = False) -> None:
        self.device, self.folder, self.compiled = device, folder, compiled
        self.process: subprocess.Popen | None = None
        self.connection: Connection | None = None

    def ask(self, request: str, *arguments: Any) -> Any:
        """The child's answer. Raises GuestError with what it raised, OutOfMemoryError when memory ran out."""
        connection = self.connection or self._start()
        try:
            connection.send((request, arguments))
            kind, answer = connection.recv()
        except (EOFError, OSError) as error:
            self.close()
            raise GuestError("native's process ended in the middle of a case") from error
        if kind == "out of memory":
            raise torch.OutOfMemoryError(answer)
        if kind == "error":
            raise GuestError(answer)
        return answer

    def _start(self) -> Connection:
        key = secrets.token_bytes(16)
        with Listener(authkey=key) as listener:
            # What accept() waits for is a child that may have died before it came to connect.
            listener._listener._socket.settimeout(START_SECONDS)
            options = {
                "path": [p for p in sys.path if p], "package": str(PACKAGE), "address": listener.address,
                "key": key.hex(), "device": str(self.device), "compiled": self.compiled,
                "folder": str(self.folder) if self.folder else None, "threads": torch.get_num_threads(),
            }  # fmt: skip
            environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
            self.process = subprocess.Popen([sys.executable, "-c", BOOT, json.dumps(options)], env=environment)
            try:
                self.connection = listener.accept()
            except OSError as error:
                self.close()
                raise GuestError(f"native's process did not start within {START_SECONDS:g} s") from error
        return self.connection

    def results(self, case: Case) -> list[torch.Tensor]:
        """What the case gives there, on the CPU."""
        return load_and_delete(self.ask("results", case.full_name))

    def judge(self, case: Case, ours: list[torch.Tensor]) -> Accuracy:
        """Compare results with the child's own, against a reference in float64 made there."""
        return Accuracy(*self.ask("judge", case.full_name, save([t.cpu() for t in ours])))

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
        self.connection = self.process = None


class GuestClock:
    """Has the child time the case that it holds."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest

    def measure(self, work: Work, calls: int) -> float:
        return self.guest.ask("measure", calls)


def save(tensors: list[torch.Tensor]) -> str:
    """Tensors are too large for a pipe; a file in memory, where the system has such a folder, takes them."""
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    handle, path = tempfile.mkstemp(prefix="minitorch-bench-", suffix=".pt", dir=folder)
    os.close(handle)
    torch.save(tensors, path)
    return path


def load_and_delete(path: str) -> list[torch.Tensor]:
    try:
        return torch.load(path)
    finally:
        os.unlink(path)


class Service:
    """The child's end: holds one case at a time."""

    def __init__(self, device: torch.device, folder: pathlib.Path | None, compiled: bool) -> None:
        self.device = device
        self.cases = {c.full_name: c for c in cases_module.load(folder)}
        self.prepare: Callable[[Work], Work] = compile_work if compiled else lambda work: work
        self.work: Work | None = None
        self.clock: Clock | None = None

    def results(self, name: str) -> str:
        return save(accuracy.results(self.cases[name], self.device, self.prepare, torch.device("cpu")))

    def judge(self, name: str, path: str) -> tuple[float | None, float | None, str]:
        case = self.cases[name]
        ours = [t.to(self.device) for t in load_and_delete(path)]
        with remembered_draws():
            rival = accuracy.results(case, self.device, self.prepare, self.device)
            found = accuracy.compare(rival, ours, accuracy.reference(case, self.device))
        return found.rival, found.ours, found.verdict

    def setup(self, name: str) -> None:
        case = self.cases[name]
        self.work = self.prepare(case.setup(self.device))
        self.clock = clock_for(self.device, case.cold)

    def measure(self, calls: int) -> float:
        assert self.work is not None and self.clock is not None, "no case is set up"
        return self.clock.measure(self.work, calls)

    def peak(self) -> int | None:
        assert self.work is not None, "no case is set up"
        return memory.peak(self.work, self.device)

    def clear(self) -> None:
        self.work = self.clock = None
        memory.give_back()

    def answer(self, request: str, arguments: tuple) -> tuple[str, Any]:
        try:
            return "ok", getattr(self, request)(*arguments)
        except Exception as error:  # the parent reports it as the case's result
            return failure(error)


def failure(error: Exception) -> tuple[str, str]:
    """What the parent is answered instead."""
    if memory.ran_out(error):
        return "out of memory", str(error)
    return "error", f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def serve(options: dict) -> None:
    """The child: answers until the parent hangs up."""
    torch.set_num_threads(options["threads"])
    with Client(options["address"], authkey=bytes.fromhex(options["key"])) as connection:
        folder = pathlib.Path(options["folder"]) if options["folder"] else None
        try:
            answer = Service(torch.device(options["device"]), folder, options["compiled"]).answer
        except Exception as error:  # cases that load only where minitorch is registered, for one
            refused = failure(error)

            def answer(request: str, arguments: tuple) -> tuple[str, Any]:
                return refused

        while True:
            try:
                request, arguments = connection.recv()
            except (EOFError, KeyboardInterrupt):
                return
            connection.send(answer(request, arguments))
