"""How the tables of cases are written: one line gives a case for each size, backend and dtype."""

import math
from collections.abc import Callable
from typing import Any

import torch

from minitorch_backend.bench.case import Case, Work, amount, forward, short, training

Size = int | tuple[Any, ...]
Count = Callable[..., float]


def cases(
    title: str,
    make: Callable[..., Work],
    cpu: tuple[Size, ...] = (),
    cuda: tuple[Size, ...] = (),
    *,
    dtype: torch.dtype | tuple[torch.dtype, ...] = torch.float32,
    elements: Count | None = None,
    bytes: Count | None = None,
    distinct: Count | None = None,
    flops: Count | None = None,
    floor: float | None = None,
    cuda_floor: float | None = None,
    quick: bool = False,
    **options: Any,
) -> list[Case]:
    """Cases named "title 4096x1024 f32". ``make(setup, *size)`` sets the work up.

    ``elements(*size)`` counts elements of the case's dtype that are read or written, ``bytes(*size)`` bytes when the
    dtypes differ, ``distinct(*size)`` elements that are different memory, where some are read and written,
    ``flops(*size)`` operations. ``quick`` is for the first size.
    """
    made = []
    for backend, sizes, least in (("cpu", cpu, floor), ("cuda", cuda, cuda_floor)):
        for number, given in enumerate(sizes):
            size = given if isinstance(given, tuple) else (given,)
            for kind in dtype if isinstance(dtype, tuple) else (dtype,):
                moved = elements(*size) * kind.itemsize if elements else bytes(*size) if bytes else None
                shown = "x".join(amount(n) if len(size) == 1 else str(n) for n in size)
                made.append(
                    Case(
                        f"{title} {shown} {short(kind)}",
                        lambda setup, size=size: make(setup, *size),
                        bytes=moved,
                        working_set=distinct(*size) * kind.itemsize if distinct else None,
                        flops=float(flops(*size)) if flops else None,
                        dtype=kind,
                        backends=(backend,),
                        floor=least,
                        quick=quick and number == 0,
                        **options,
                    )
                )
    return merge(made)


def merge(made: list[Case]) -> list[Case]:
    """One case for both backends where name, work and floor are the same."""
    merged: dict[tuple[str, float | None], Case] = {}
    for case in made:
        key = (case.name, case.floor)
        if key in merged:
            case = Case(**{**vars(case), "backends": merged[key].backends + case.backends})
        merged[key] = case
    return list(merged.values())


def product(*shape: int) -> int:
    return math.prod(shape)


def times(factor: float) -> Count:
    """factor times the number of elements of the shape."""
    return lambda *shape: factor * math.prod(shape)


def unary(function: Callable[[torch.Tensor], Any]) -> Callable[..., Work]:
    """A function of one tensor of the size given."""
    return lambda s, *shape: forward(function, s.normal(*shape))


def binary(function: Callable[[torch.Tensor, torch.Tensor], Any]) -> Callable[..., Work]:
    """A function of two tensors of the size given."""
    return lambda s, *shape: forward(function, s.normal(*shape), s.normal(*shape))


def moved_since(parameters: list[torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
    """What says how far parameters went from where they are now."""
    before = [p.detach().clone() for p in parameters]
    return lambda: [p.detach() - b for p, b in zip(parameters, before, strict=True)]


def into(function: Callable[..., Any]) -> Callable[..., Work]:
    """A function of one tensor of the size given, into a tensor that is there: nothing is allocated."""
    return lambda s, *shape: forward(lambda x, y: function(x, out=y), s.normal(*shape), s.normal(*shape))


def differentiated(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Work]:
    """Forward and backward of a function of one tensor."""
    return lambda s, *shape: training(s, function, s.normal(*shape, grad=True))
