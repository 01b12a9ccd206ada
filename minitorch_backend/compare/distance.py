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


def _extent(t: Tensor) -> float:
    """The largest absolute value; NaN if there is one. (Two reductions are faster than aminmax, or a norm.)"""
    return max(torch.amax(t).item(), -torch.amin(t).item())


def sampled(t: Tensor, size: int = SAMPLE) -> Tensor:
    """Some stretches of a contiguous tensor's elements; all of any other."""
    if t.numel() <= size or not t.is_contiguous():
        return t
    return t.as_strided((STRETCHES, size // STRETCHES), (t.numel() // STRETCHES, 1), t.storage_offset())


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
    ulp = float(max(_extent(torch.sub(x, y)), 1))
    eps = torch.finfo(a.dtype).eps
    if ulp <= FEW and not cancels:
        return Distance(ulp, ulp, ulp * eps)
    span, scale = _extent(torch.sub(a, b)), max(_extent(b), torch.finfo(a.dtype).tiny)
    if not (span < _FAR and scale < _FAR):
        return NONE if same_bits(a, b) else finite_distance(a, b)
    return Distance(ulp, span / (scale * eps), span / scale)


def finite_distance(a: Tensor, b: Tensor) -> Distance:
    """With NaN or infinity about: the distance over elements finite on both sides, if the others are alike."""
    finite = torch.isfinite(a) & torch.isfinite(b)
    if not bool((finite | (a == b) | (torch.isnan(a) & torch.isnan(b))).all()):
        return Distance(_FAR, _FAR, _FAR)
    return distance(torch.where(finite, a, 0), torch.where(finite, b, 0))
