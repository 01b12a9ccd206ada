"""One device's side of the demo: a task trained there step by step, and what came of it."""

import time
from dataclasses import dataclass, field

import torch
from tasks import TASKS, Run


@dataclass
class Result:
    """What one task did on one device."""

    losses: list[float] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    accuracy: float | None = None
    sample: str | None = None
    fallbacks: dict[str, int] | None = None
    peak_bytes: int | None = None
    allocator_peak_bytes: int | None = None


def device_module(device: torch.device):
    """torch.minitorch or torch.cuda; None for the CPU."""
    return None if device.type == "cpu" else getattr(torch, device.type)


def random_numbers(device: torch.device) -> str:
    """Whose random numbers a device draws for a seed: native CPU's ("cpu") or native CUDA's ("cuda")."""
    return torch.minitorch.get_device_properties().backend if device.type == "minitorch" else device.type


def synchronize(device: torch.device) -> None:
    module = device_module(device)
    if module is not None:
        module.synchronize()


def fallbacks(device: torch.device) -> dict[str, int] | None:
    """Operators that ran on native CPU since the last call, with their counts; None for devices without a ledger."""
    module = device_module(device)
    if module is None or not hasattr(module, "fallbacks"):
        return None
    return {record.op: record.count for record in module.fallbacks(clear=True)}


def allocator_peak(device: torch.device) -> int | None:
    module = device_module(device)
    return module.max_memory_allocated() if hasattr(module, "max_memory_allocated") else None


def timed_step(run: Run, inputs: torch.Tensor, targets: torch.Tensor, seed: int) -> tuple[float, float]:
    """(loss, milliseconds) of one step, with the generators of all devices set to the seed."""
    x, y = inputs.to(run.device), targets.to(run.device)
    torch.manual_seed(seed)
    synchronize(run.device)
    start = time.perf_counter()
    loss = run.step(x, y)
    synchronize(run.device)
    return loss, (time.perf_counter() - start) * 1e3


def drop_nothing(model: torch.nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0


class Here:
    """Trains on a device in this process. Weights, batches and seeds are the same on every device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        # On a GPU convolutions of floats round their factors to tf32 by default, far more than two devices may differ.
        if torch.backends.cudnn.allow_tf32:
            torch.backends.cudnn.allow_tf32 = False

    def begin(self, name: str, steps: int, dropout: bool = True) -> None:
        """Start a task afresh."""
        fallbacks(self.device)
        self.task = TASKS[name](steps)
        if not dropout:
            drop_nothing(self.task.initial)
        self.run = self.task.run(self.device)
        self.generator = torch.Generator().manual_seed(0)

    def step(self, seed: int) -> tuple[float, float]:
        """(loss, milliseconds) of a step on the next batch."""
        return timed_step(self.run, *self.task.batch(self.generator), seed)

    def finish(self) -> Result:
        """What is known when all steps are done, beside losses and times."""
        torch.manual_seed(0)
        found = self.task.outcome(self.run)
        return Result(**found, fallbacks=fallbacks(self.device), allocator_peak_bytes=allocator_peak(self.device))

    def close(self) -> None:
        """Nothing is open."""
