"""Training trajectories on two devices, against a band of noise measured from the reference itself.

Training amplifies rounding, so two right devices part after some steps. How far they may part is measured, not assumed:
the reference trains again from weights moved by one ulp. The subject is inside the band while its distance to the
reference's run is at most a multiple of the largest that the moved runs have had up to that step.
"""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

MARGIN = 4.0  # times the largest distance of the moved runs
METRICS = ("loss", "gradient norm", "weights")
FLOOR = {"loss": 32.0, "gradient norm": 256.0, "weights": 32.0}  # in units of float32's epsilon


@dataclass
class Trace:
    """One run: by step, the loss, the norm of all gradients, and the weights after the step."""

    loss: list[float] = field(default_factory=list)
    gradient_norm: list[float] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)


@dataclass
class Course:
    """One metric of one seed: distance of the subject to the reference, and the band, by step."""

    metric: str
    seed: int
    distance: list[float]
    band: list[float]

    @property
    def outside_since(self) -> int | None:
        """The first step from which the distance lies outside the band; None when it never does."""
        for step, (d, b) in enumerate(zip(self.distance, self.band, strict=True)):
            if not d <= b:
                return step
        return None

    @property
    def inside(self) -> bool:
        return self.outside_since is None


@dataclass
class Trajectories:
    """What :func:`train` found."""

    subject: str
    reference: str
    courses: list[Course]
    losses: dict[int, dict[str, list[float]]]  # by seed and device
    spread: list[float]  # by step, the largest difference of the reference's losses between seeds

    @property
    def inside(self) -> bool:
        return all(c.inside for c in self.courses)

    def summary(self) -> str:
        """A line for each metric and seed."""
        lines = []
        for c in self.courses:
            since = c.outside_since
            step = len(c.distance) - 1 if since is None else since
            where = "inside the band" if since is None else f"outside since step {since}"
            lines.append(
                f"seed {c.seed}, {c.metric}: {where}; distance {c.distance[step]:.3g}, band {c.band[step]:.3g}"
            )
        return "\n".join(lines)


def default_loss(model: nn.Module, batch: Any) -> Tensor:
    """Cross-entropy of ``model(inputs)`` against integer targets, mean squared error against others."""
    inputs, targets = batch
    scores = model(inputs)
    if targets.is_floating_point():
        return F.mse_loss(scores, targets)
    return (
        F.cross_entropy(scores.flatten(0, -2), targets.flatten())
        if scores.dim() > 2
        else F.cross_entropy(scores, targets)
    )


def default_optimizer(model: nn.Module) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05)


def to_device(batch: Any, device: str) -> Any:
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, (list, tuple)):
        return type(batch)(to_device(b, device) for b in batch)
    return batch


def move_weights(model: nn.Module, seed: int) -> None:
    """Move each weight to a neighbour of its value, or leave it, at random."""
    generator = torch.Generator("cpu").manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.is_floating_point():
                sign = torch.randint(-1, 2, p.shape, generator=generator).to(p.dtype)
                p.copy_(torch.where(sign == 0, p, torch.nextafter(p, p + sign)))


def trace(
    model: nn.Module, device: str, batches: Sequence[Any], seed: int,
    make_optimizer: Callable[[nn.Module], Optimizer], loss: Callable[[nn.Module, Any], Tensor],
) -> Trace:  # fmt: skip
    """Train a copy of `model` on a device; the generators get the same seed at each step."""
    model = copy.deepcopy(model).to(device)
    optimizer, result = make_optimizer(model), Trace()
    for step, batch in enumerate(batches):
        torch.manual_seed(seed * 1_000_003 + step)
        optimizer.zero_grad(set_to_none=True)
        value = loss(model, to_device(batch, device))
        value.backward()
        with torch.no_grad():
            grads = [p.grad.detach().to("cpu", torch.float64) for p in model.parameters() if p.grad is not None]
            norm = (
                torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads])) if grads else None
            )
        optimizer.step()
        with torch.no_grad():
            weights = [p.detach().to("cpu", torch.float64).reshape(-1) for p in model.parameters()]
        result.loss.append(value.item())
        result.gradient_norm.append(norm.item() if norm is not None else 0.0)
        result.weights.append(torch.cat(weights).to(torch.float32) if weights else torch.zeros(0))
    return result


def relative(a: float, b: float) -> float:
    if math.isnan(a) and math.isnan(b):
        return 0.0
    off = abs(a - b) / max(abs(b), 1e-12)
    return math.inf if math.isnan(off) else off


def distances(a: Trace, b: Trace) -> dict[str, list[float]]:
    """By metric and step, how far run `a` is from run `b`, relative to `b`."""
    weights = []
    for x, y in zip(a.weights, b.weights, strict=True):
        off = (torch.dist(x, y) / torch.linalg.vector_norm(y).clamp(min=1e-12)).item() if y.numel() else 0.0
        weights.append(math.inf if math.isnan(off) else off)
    return {
        "loss": [relative(x, y) for x, y in zip(a.loss, b.loss, strict=True)],
        "gradient norm": [relative(x, y) for x, y in zip(a.gradient_norm, b.gradient_norm, strict=True)],
        "weights": weights,
    }


def batches_of(data: Any, steps: int) -> list[Any]:
    """The first `steps` batches: of `data(step)`, or of an iterable, from its beginning again when it ends."""
    if callable(data):
        return [data(step) for step in range(steps)]
    found: list[Any] = []
    while len(found) < steps:
        before = len(found)
        for batch in data:
            found.append(batch)
            if len(found) == steps:
                break
        if len(found) == before:
            raise ValueError("data has no batches")
    return found


def train(
    make_model: Callable[[], nn.Module], data: Iterable[Any] | Callable[[int], Any], steps: int, *,
    seeds: Sequence[int] = (0, 1), subject: str = "minitorch", reference: str = "cpu",
    make_optimizer: Callable[[nn.Module], Optimizer] = default_optimizer,
    loss: Callable[[nn.Module, Any], Tensor] = default_loss, perturbations: int = 3,
) -> Trajectories:  # fmt: skip
    """Train on both devices from the same weights, and say whether, and since which step, they part beyond noise.

    make_model: builds the model on the CPU; it is called under each of `seeds`.
    data: batches (inputs, targets), or a function of the step.
    loss: of (model, batch); default: cross-entropy or mean squared error.
    perturbations: runs of the reference from weights moved by one ulp, from which the band is made.
    """
    batches = batches_of(data, steps)
    courses, losses, runs = [], {}, []
    eps = torch.finfo(torch.float32).eps
    for seed in seeds:
        torch.manual_seed(seed)
        model = make_model()
        base = trace(model, reference, batches, seed, make_optimizer, loss)
        runs.append(base)
        noise = {metric: [0.0] * steps for metric in METRICS}
        for k in range(perturbations):
            moved = copy.deepcopy(model)
            move_weights(moved, 7919 * seed + k)
            off = distances(trace(moved, reference, batches, seed, make_optimizer, loss), base)
            for metric in METRICS:
                noise[metric] = [max(x, y) for x, y in zip(noise[metric], off[metric], strict=True)]
        mine = trace(model, subject, batches, seed, make_optimizer, loss)
        off = distances(mine, base)
        losses[seed] = {subject: mine.loss, reference: base.loss} if subject != reference else {subject: mine.loss}
        for metric in METRICS:
            largest, band = 0.0, []
            for value in noise[metric]:
                largest = max(largest, value)
                band.append(MARGIN * largest + FLOOR[metric] * eps)
            courses.append(Course(metric, seed, off[metric], band))
    spread = [max(r.loss[s] for r in runs) - min(r.loss[s] for r in runs) for s in range(steps)]
    return Trajectories(subject, reference, courses, losses, spread)
