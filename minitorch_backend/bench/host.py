"""``minitorch bench --host``: what a call of a small operator costs, and where.

Three variants of the same call, in turns: whole; with every kernel of ours idle; and hollow, with the operator
replaced by one that returns its argument at once. Their differences are the parts:

    dispatcher   hollow: Python's binding, argument parsing, autograd's and the dispatcher's layers
    binding      idle - hollow: checks, the output's allocation, the iterator
    kernel       whole - idle: our kernel, on eight elements

Native's kernels cannot be made idle; beside it stand whole and hollow.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from rich.console import Console
from rich.table import Table

from minitorch_backend import _C, terminal

CALLS, ROUNDS = 2000, 31
KEYS = {"cpu": "CPU", "cuda": "CUDA", "minitorch": "PrivateUse1"}
Call = Callable[[], object]


def calls(device: str) -> dict[str, Call]:
    """Operators by the names that ``_C.hollow_operators`` has, each as a call on small tensors."""
    a, b = (torch.randn(8, device=device) for _ in range(2))
    m, n = (torch.randn(4, 4, device=device) for _ in range(2))
    return {
        "add.Tensor": lambda: torch.add(a, b),
        "add_.Tensor": lambda: a.add_(b, alpha=0.0),
        "mul.Tensor": lambda: torch.mul(a, b),
        "exp": lambda: torch.exp(b),
        "relu": lambda: torch.relu(a),
        "silu": lambda: torch.nn.functional.silu(a),
        "sum.dim_IntList": lambda: torch.sum(m, 1),
        "_softmax": lambda: torch._softmax(m, 1, False),
        "mm": lambda: torch.mm(m, n),
        "addmm": lambda: torch.addmm(m, m, n),
    }


@contextlib.contextmanager
def hollow(name: str, device: str) -> Iterator[None]:
    operator = _C.HollowOperator(name, KEYS[device])
    try:
        yield
    finally:
        operator.restore()


@contextlib.contextmanager
def idle() -> Iterator[None]:
    _C.set_kernels_idle(True)
    try:
        yield
    finally:
        _C.set_kernels_idle(False)


def block(call: Call, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def measure(name: str, native: str, count: int = CALLS, rounds: int = ROUNDS) -> dict[str, float]:
    """Seconds of a call: native, native hollow, whole, idle, hollow; medians of blocks in turns."""
    theirs, ours = calls(native)[name], calls("minitorch")[name]
    variants: dict[str, tuple[Call, Callable[[], contextlib.AbstractContextManager]]] = {
        "native": (theirs, contextlib.nullcontext),
        "native hollow": (theirs, lambda: hollow(name, native)),
        "whole": (ours, contextlib.nullcontext),
        "idle": (ours, idle),
        "hollow": (ours, lambda: hollow(name, "minitorch")),
    }
    times: dict[str, list[float]] = {key: [] for key in variants}
    for number in range(rounds + 1):
        for key, (call, active) in variants.items():
            with active():
                seconds = block(call, count)
            if number > 0:
                times[key].append(seconds)
        if native == "cuda":
            torch.cuda.synchronize()
        torch.minitorch.synchronize()
    return {key: statistics.median(values) for key, values in times.items()}


def run(console: Console) -> int:
    native = "cuda" if _C.backend_name() == "cuda" and torch.cuda.is_available() else "cpu"
    table = Table(box=None, pad_edge=False, title="Nanoseconds of a call on small tensors", title_justify="left")
    table.add_column("operator")
    for heading in (native, "of it dispatcher", "minitorch", "dispatcher", "binding", "kernel", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    with console.status("") as status:
        for name in _C.hollow_operators():
            status.update(name)
            t = {key: 1e9 * value for key, value in measure(name, native).items()}
            parts = (t["hollow"], t["idle"] - t["hollow"], t["whole"] - t["idle"])
            table.add_row(
                name, f"{t['native']:.0f}", f"{t['native hollow']:.0f}", f"{t['whole']:.0f}",
                *(f"{part:.0f}" for part in parts), f"{t['native'] / t['whole']:.2f}",
            )  # fmt: skip
    terminal.show(console, table)
    console.print("binding: checks, allocation of the result, iterator. A part near zero may come out negative: noise.")
    return 0
