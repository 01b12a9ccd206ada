"""The distance of two results, in as few passes over them as will do: it is measured for every call."""

from typing import NamedTuple

import torch
from torch import Tensor

from minitorch_backend.compare.judge import real_view, same_bits

_KIND = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Distance(NamedTuple):
    """Largest distance in steps between neighbouring values, and in units of epsilon times the largest value."""

    ulp: float
    norm: float
    relative: float = 0.0


NONE = Distance(0.0, 0.0, 0.0)
_FAR = float("inf")
SAMPLE = 4096  # elements of a sample
STRETCHES = 8  # that these come in, for the cache's sake
FEW = 16  # ulp that need no second measure


def _range(t: Tensor) -> tuple[float, float]:
    low, high = torch.aminmax(t)
    return low.item(), high.item()


def sampled(t: Tensor, size: int = SAMPLE) -> Tensor:
    """Some stretches of a contiguous tensor's elements; all of any other."""
    if t.numel() <= size or not t.is_contiguous():
        return t
    stretch = t.numel() // STRETCHES
    return t.view(-1)[: stretch * STRETCHES].view(STRETCHES, stretch)[:, : size // STRETCHES]


def distance(a: Tensor, b: Tensor, cancels: bool = False) -> Distance:
    """Zero exactly when both hold the same bits (NaN is NaN). Both have one dtype, shape and device.

    The bits of floats of one sign, read as integers, count the values in between; across the sign the difference is
    large, as it should be. Integers and booleans differ by infinity or not at all. With `cancels` (results that are
    differences of large numbers, whose ulp say little) ulp are counted on a sample.
    """
    if a.numel() == 0:
        return NONE
    if not (a.is_floating_point() or a.is_complex()):
        return NONE if torch.equal(a, b) else Distance(_FAR, _FAR, _FAR)
    a, b = real_view(a), real_view(b)
    kind = _KIND[a.element_size()]
    x, y = a.view(kind), b.view(kind)
    if torch.equal(x, y):
        return NONE
    if cancels:
        x, y = sampled(x), sampled(y)
    low, high = _range(torch.sub(x, y))
    ulp = float(max(high, -low, 1))
    eps = torch.finfo(a.dtype).eps
    if ulp <= FEW and not cancels:
        return Distance(ulp, ulp, ulp * eps)
    low, high = _range(torch.sub(a, b))
    span = max(high, -low)
    low, high = _range(b)
    scale = max(high, -low, torch.finfo(a.dtype).tiny)
    if not (span < _FAR and scale < _FAR):
        return NONE if same_bits(a, b) else finite_distance(a, b)
    return Distance(ulp, span / (scale * eps), span / scale)


def finite_distance(a: Tensor, b: Tensor) -> Distance:
    """With NaN or infinity about: the distance over elements finite on both sides, if the others are alike."""
    finite = torch.isfinite(a) & torch.isfinite(b)
    if not bool((finite | (a == b) | (torch.isnan(a) & torch.isnan(b))).all()):
        return Distance(_FAR, _FAR, _FAR)
    return distance(torch.where(finite, a, 0), torch.where(finite, b, 0))
