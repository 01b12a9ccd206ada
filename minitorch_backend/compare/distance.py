"""The distance of two results, in as few passes over them as will do: it is measured for every call."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from minitorch_backend.compare.judge import real_view, same_bits
from minitorch_backend.compare.library import LIBRARY

_KIND = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Distance(NamedTuple):
    """Largest distance in steps between neighbouring values, and in units of epsilon times the largest value."""

    ulp: float
    norm: float
    relative: float = 0.0


NONE = Distance(0.0, 0.0, 0.0)
_FAR = float("inf")
_EPS = {t: torch.finfo(t).eps for t in (torch.float16, torch.bfloat16, torch.float32, torch.float64)}
_TINY = {t: torch.finfo(t).tiny for t in _EPS}
SAMPLE = 4096  # elements of a sample
STRETCHES = 8  # that these come in, for the cache's sake


def _extent(t: Tensor) -> float:
    """The largest absolute value; NaN if there is one. (Two reductions are faster than aminmax, or a norm.)"""
    return max(torch.amax(t).item(), -torch.amin(t).item())


def sampled(t: Tensor, size: int = SAMPLE) -> Tensor:
    """Some stretches of a contiguous tensor's elements; all of any other."""
    if t.numel() <= size or not t.is_contiguous():
        return t
    return t.as_strided((STRETCHES, size // STRETCHES), (t.numel() // STRETCHES, 1), t.storage_offset())


def quick_distance(a: Tensor, b: Tensor, cancels: bool = False) -> Distance | None:
    """The distance where the library measures it as it is; `a` may be a tensor of the device whose memory it sees."""
    found = LIBRARY.gap(a, b, STRETCHES if cancels else 0, SAMPLE // STRETCHES, True) if LIBRARY is not None else None
    if found is None:
        return None
    ulp, span, scale = found
    if ulp == 0:
        return NONE
    eps = _EPS.get(a.dtype)
    if eps is None:
        return Distance(_FAR, _FAR, _FAR)
    if not (span < _FAR and scale < _FAR):
        return None
    relative = span / max(scale, _TINY[a.dtype])
    return Distance(ulp, relative / eps, relative)


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
    ulp, span, scale = gap(a, b, cancels)
    if ulp == 0:
        return NONE
    if not (span < _FAR and scale < _FAR):
        return NONE if same_bits(a, b) else finite_distance(a, b)
    info = torch.finfo(a.dtype)
    relative = span / max(scale, info.tiny)
    return Distance(ulp, relative / info.eps, relative)


def gap(a: Tensor, b: Tensor, cancels: bool) -> tuple[float, float, float]:
    """The largest difference of the bits, the largest of the values, and the largest value of `b`."""
    if LIBRARY is not None:
        found = LIBRARY.gap(a, b, STRETCHES if cancels else 0, SAMPLE // STRETCHES, True)
        if found is not None:
            return found
    kind = _KIND[a.element_size()]
    x, y = a.view(kind), b.view(kind)
    if torch.equal(x, y):
        return 0.0, 0.0, 0.0
    if cancels:
        x, y = sampled(x), sampled(y)
    return float(max(_extent(torch.sub(x, y)), 1)), _extent(torch.sub(a, b)), _extent(b)


def sampled_error(a: Tensor, b: Tensor, seen: Callable[[Tensor], Tensor] | None = None) -> float:
    """The largest distance of two tensors by the largest value of `b`, on a sample of their elements.

    `seen(a)` is `a` on the device of `b`, for where the library does not measure it as it is.
    """
    found = LIBRARY.gap(a, b, STRETCHES, SAMPLE // STRETCHES, False) if LIBRARY is not None else None
    if found is None:
        if a.numel() == 0:
            return 0.0
        a, b = real_view(a if seen is None else seen(a)), real_view(b)
        if a.is_contiguous() and b.is_contiguous():
            a, b = sampled(a), sampled(b)
        found = 0.0, _extent(torch.sub(a, b)), _extent(b)
    _, span, scale = found
    if span == 0 or not (span < _FAR and scale < _FAR):
        return 0.0
    return span / scale if scale else 1.0


def finite_distance(a: Tensor, b: Tensor) -> Distance:
    """With NaN or infinity about: the distance over elements finite on both sides, if the others are alike.

    Quarters of the values, whose differences do not overflow.
    """
    finite = torch.isfinite(a) & torch.isfinite(b)
    if not bool((finite | (a == b) | (torch.isnan(a) & torch.isnan(b))).all()):
        return Distance(_FAR, _FAR, _FAR)
    return distance(torch.where(finite, a, 0).mul_(0.25), torch.where(finite, b, 0).mul_(0.25))
