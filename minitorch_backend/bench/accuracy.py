"""Results before times: both sides against float64, so that nobody wins by being wrong."""

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from minitorch_backend.bench.case import Case, Later, Setup, Work

WORSE = 1.1  # times native's error: below is rounding's luck
WRONG = 100.0  # times native's error, or units of the dtype: not a matter of rounding any more ...
MOST = 0.02  # ... nor is an error above this, whatever the unit,
ALIKE = 2.0  # unless native's is as large: by so many times ours may be larger
REFERENCE_ROUNDING = 64  # units in which a float64 result may differ from a reference that is float64 itself
# Of a single element, since a few that were left out do not show in a norm. Ok are so many units of its size and of the
# tensor's mean size, and so many times native's largest error of an element; so much more of both is wrong.
ELEMENT, ELEMENT_WRONG, ELEMENT_MOST = 4.0, 16.0, 0.125
Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
VERDICTS = ("ok", "less accurate", "wrong")


@dataclass(frozen=True)
class Accuracy:
    """Errors of both sides, by the reference's size, and what they mean: ok, less accurate, wrong, not compared.

    Of what is finite, the Euclidean norms; for integers and booleans, the share of elements that differ.
    """

    rival: float | None
    ours: float | None
    verdict: str


def tensors(result: Any) -> Iterator[torch.Tensor]:
    """All tensors of a result, in order."""
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, Later):
        yield from tensors(result.gather())
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


def relative_error(found: torch.Tensor, truth: torch.Tensor) -> float:
    """The error's Euclidean norm by the reference's; both in float64 and finite."""
    error = torch.linalg.vector_norm(found - truth).item()
    return error / (torch.linalg.vector_norm(truth).item() or 1.0)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Numbers in float64, of complex ones both parts; others as they are."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.double() if tensor.is_floating_point() else tensor


def _same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a == b) | (a.isnan() & b.isnan())


def finite_part(rival: torch.Tensor, ours: torch.Tensor, truth: torch.Tensor, kind: torch.finfo) -> Triple | None:
    """Where rival and reference are finite, in a dtype of this kind; None where ours is not, or is wrong elsewhere.

    What is not finite has no error: it must be the same, NaN or an infinity of that sign. Where only the rival's is not
    finite, since it overflows on the way, ours may do the same or be right.
    """
    if all(bool(t.isfinite().all()) for t in (rival, ours, truth)):
        return rival, ours, truth
    rounded = torch.where(truth.abs() > kind.max, math.inf * truth.sign(), truth)
    finite = rival.isfinite() & rounded.isfinite()
    right = _same(ours, rounded) | _same(ours, rival)
    right |= truth.isfinite() & ((ours - truth).abs_() <= ELEMENT * kind.eps * truth.abs())
    if not bool(torch.where(finite, ours.isfinite(), right).all()):
        return None
    return rival[finite], ours[finite], truth[finite]


def elements_within(
    rival: torch.Tensor, ours: torch.Tensor, truth: torch.Tensor, step: float, times: float, typical: float
) -> bool:
    """Whether no element of ours is further off than it may be.

    ``step``: by its size and the mean size. ``times``: the rival's largest error. ``typical``: as in ``judge``.
    """
    size = torch.linalg.vector_norm(truth).item() / math.sqrt(truth.numel())  # of an element, on average
    largest = max((rival - truth).abs_().max().item(), typical * size)
    allowed = truth.abs().add_(size or 1.0).mul_(step).add_(times * largest)
    return bool(((ours - truth).abs_() <= allowed).all())


def judge(rival: torch.Tensor, ours: torch.Tensor, truth: torch.Tensor, typical: float = 0.0) -> Accuracy:
    """One tensor of a result.

    ``typical``: the rival's relative error in a tensor of this result. Of a few elements it may be much less by luck.
    """
    if ours.dtype != rival.dtype or ours.shape != rival.shape:
        return Accuracy(None, math.inf, "wrong")
    exact = not (ours.is_floating_point() or ours.is_complex())
    kind = None if exact else torch.finfo(ours.dtype)
    rival, ours, truth = map(widened, (rival, ours, truth if truth.shape == rival.shape else rival))
    if exact:
        error_a, error_b = ((found != truth).double().mean().item() for found in (rival, ours))
        return Accuracy(error_a, error_b, verdict(error_b, WORSE * error_a, ALIKE * error_a))
    if (triple := finite_part(rival, ours, truth, kind)) is None:
        return Accuracy(None, math.inf, "wrong")
    rival, ours, truth = triple
    if truth.numel() == 0:
        return Accuracy(0.0, 0.0, "ok")
    error_a, error_b = relative_error(rival, truth), relative_error(ours, truth)
    rounding = REFERENCE_ROUNDING if kind.eps < 1e-12 else 0.5  # units: the reference is rounded as well, or not
    far = max(min(WRONG * max(error_a, kind.eps), MOST), ALIKE * max(error_a, typical))
    found = verdict(error_b, max(WORSE * error_a, rounding * kind.eps), far)
    if not elements_within(*triple, max(ELEMENT, rounding) * kind.eps, ELEMENT, typical):
        near = elements_within(*triple, min(WRONG * kind.eps, ELEMENT_MOST), ELEMENT_WRONG, typical)
        found = max(found, "less accurate" if near else "wrong", key=VERDICTS.index)
    return Accuracy(error_a, error_b, found)


def verdict(error: float, ok: float, less: float) -> str:
    return "ok" if error <= ok else "less accurate" if error <= less else "wrong"


def compare(rival: list[torch.Tensor], ours: list[torch.Tensor], reference: list[torch.Tensor] | None) -> Accuracy:
    """Judge both sides' results, tensor by tensor. Without a reference ours must equal the rival's but for rounding."""
    reference = rival if reference is None else reference
    if not len(rival) == len(ours) == len(reference):
        return Accuracy(None, math.inf, "wrong")
    found = [judge(*each) for each in zip(rival, ours, reference, strict=True)]
    known = [one.rival for one in found if one.rival is not None]
    if len(found) > 1 and known and any(one.verdict == "wrong" for one in found):
        typical = statistics.median(known)
        found = [judge(*each, typical) for each in zip(rival, ours, reference, strict=True)]
    return max(found, key=lambda one: (VERDICTS.index(one.verdict), one.ours), default=Accuracy(0.0, 0.0, "ok"))
