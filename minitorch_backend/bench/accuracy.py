"""Results before times: both sides against float64, so that nobody wins by being wrong."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from minitorch_backend.bench.case import Case, Setup, Work

WORSE = 1.1  # times native's error: below is rounding's luck
WRONG = 100.0  # times native's error: not a matter of rounding any more
REFERENCE_ROUNDING = 64  # units in which a float64 result may differ from a reference that is float64 itself


@dataclass(frozen=True)
class Accuracy:
    """Errors of both sides, relative to the reference, and what they mean: ok, less accurate, wrong, not compared."""

    rival: float | None
    ours: float | None
    verdict: str


def tensors(result: Any) -> Iterator[torch.Tensor]:
    """All tensors of a result, in order."""
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, dict):
        for value in result.values():
            yield from tensors(value)
    elif isinstance(result, (list, tuple)):
        for value in result:
            yield from tensors(value)


def snapshot(result: Any, device: torch.device) -> list[torch.Tensor]:
    """Copies of the tensors of a result, on a device, that later calls do not change."""
    return [_move(t.detach(), device) for t in tensors(result)]


def results(
    case: Case, device: torch.device, prepare: Callable[[Work], Work], place: torch.device
) -> list[torch.Tensor]:
    """What a case's work, prepared, gives on a device, from the same seed on all; copies in ``place``."""
    torch.manual_seed(0)
    return snapshot(prepare(case.setup(device))(), place)


def reference(case: Case, place: torch.device) -> list[torch.Tensor] | None:
    """The same in float64, computed in ``place``; None for a case that is compared with native only."""
    if case.check != "float64":
        return None
    torch.manual_seed(0)
    return snapshot(case.make(Setup(place, case.dtype, reference=True))(), place)


def _move(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if tensor.device.type == device.type:
        return tensor.clone()
    return tensor.cpu().to(device)  # by way of the host: the two devices need not know each other


def relative_error(found: torch.Tensor, reference: torch.Tensor) -> float:
    """The error's Euclidean norm by the reference's; infinite when shapes or infinities and NaNs differ.

    For integers and booleans, the share of elements that differ.
    """
    if found.shape != reference.shape:
        return math.inf
    if reference.numel() == 0:
        return 0.0
    if not (reference.is_floating_point() or reference.is_complex()):
        return (found != reference).double().mean().item()
    found = found.to(reference.dtype)
    finite = reference.isfinite()
    if not bool(finite.all()):
        if not torch.equal(finite, found.isfinite()):
            return math.inf
        found, reference = found[finite], reference[finite]
    norm = torch.linalg.vector_norm(reference).item()
    error = torch.linalg.vector_norm(found - reference).item()
    if math.isnan(error):
        return math.inf
    return error / norm if norm > 0 else error


def compare(rival: list[torch.Tensor], ours: list[torch.Tensor], reference: list[torch.Tensor] | None) -> Accuracy:
    """Judge both sides' results, tensor by tensor. Without a reference ours must equal the rival's."""
    if reference is None:
        if len(ours) != len(rival):
            return Accuracy(None, math.inf, "wrong")
        reference = rival
    if not len(rival) == len(ours) == len(reference):
        return Accuracy(None, math.inf, "wrong")
    worst = Accuracy(0.0, 0.0, "ok")
    order = ["ok", "less accurate", "wrong"]
    for a, b, truth in zip(rival, ours, reference, strict=True):
        error_a, error_b = relative_error(a, truth), relative_error(b, truth)
        unit = torch.finfo(b.dtype).eps if b.is_floating_point() or b.is_complex() else 1e-6
        same_precision = truth.dtype == b.dtype and unit < 1e-12
        allowed = REFERENCE_ROUNDING * unit if same_precision else unit / 2
        verdict = "ok"
        if not error_b <= max(WORSE * error_a, allowed):
            verdict = "less accurate" if error_b <= max(WRONG * error_a, WRONG * unit) else "wrong"
        if b.dtype != a.dtype or b.shape != a.shape:
            verdict = "wrong"
        if (order.index(verdict), error_b) > (order.index(worst.verdict), worst.ours or 0.0):
            worst = Accuracy(error_a, error_b, verdict)
    return worst
