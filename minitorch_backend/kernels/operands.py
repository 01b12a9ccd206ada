"""What a call of an operator brings: its operands, where they are, and whether a compiled kernel can take them."""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from minitorch_backend.kernels import schema
from minitorch_backend.kernels.compiled import CPP, MAX_DIM

SELECTORS = ("condition",)  # arguments of pointwise operators that choose among the operands
# What no kernel takes as an argument, because its results, which are made before, have it.
OF_RESULTS = ("dtype", "layout", "device", "pin_memory", "memory_format")


def bound(overload: torch._ops.OpOverload, args: tuple, kwargs: dict) -> dict[str, Any]:
    """The values of all arguments by their names, with defaults filled in."""
    return {
        a.name: args[i] if i < len(args) else kwargs.get(a.name, a.default_value)
        for i, a in enumerate(overload._schema.arguments)
    }


def tensors_of(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_of(value)


def first_tensor(values: Iterable[Any]) -> torch.Tensor | None:
    return next(tensors_of(values), None)


def device_of(values: Iterable[Any]) -> torch.device:
    """Where a call's results are: with its tensors, of which one without dimensions may be on the CPU."""
    found = [t.device for t in tensors_of(values)]
    return next((device for device in found if device.type != "cpu"), found[0])


def promoted(overload: torch._ops.OpOverload, args: tuple, kwargs: dict) -> list[Any]:
    """The tensors of a call, and numbers in their places, that are promoted to one dtype."""
    values = bound(overload, args, kwargs)
    kinds = _kinds(overload)
    return [v for n, v in values.items() if kinds.get(n) == "Tensor" and n not in SELECTORS and v is not None]


@functools.cache
def _kinds(overload: torch._ops.OpOverload) -> dict[str, str]:
    """How the arguments cross into a kernel, by their names; those that do not are not there."""
    tensors = {a.name: "Tensor" for a in overload._schema.arguments if str(a.type) in schema.TENSORS}
    try:
        return dict(schema.kernel_arguments(overload))
    except LookupError:
        return tensors


@functools.cache
def _left_out(overload: torch._ops.OpOverload) -> dict[str, Any]:
    """The defaults of arguments that no kernel sees, a text or a generator."""
    kinds = _kinds(overload)
    return {
        a.name: a.default_value for a in overload._schema.arguments if a.name not in kinds and a.name not in OF_RESULTS
    }


def crosses(overload: torch._ops.OpOverload, args: tuple, kwargs: dict, pointwise: bool) -> bool:
    """Whether all arguments of a call are what a compiled kernel can be given, and nothing that it does not see counts.

    Not complex numbers, dtypes without a C++ type, more than MAX_DIM dimensions, an integer that no double holds where
    one is asked for, or tensors of another device.
    """
    values = bound(overload, args, kwargs)
    kinds = _kinds(overload)
    if first_tensor(values.values()) is None:
        return False
    device = device_of(values.values())
    if not all(is_default(values[name], default) for name, default in _left_out(overload).items()):
        return False
    return all(_crosses(kinds[name], value, device, pointwise) for name, value in values.items() if name in kinds)


def _crosses(kind: str, value: Any, device: torch.device, pointwise: bool) -> bool:
    if isinstance(value, torch.Tensor):
        there = value.device == device or (pointwise and value.dim() == 0 and value.device.type == "cpu")
        return there and value.dtype in CPP and value.dim() <= MAX_DIM
    if kind == "list":
        return len(value or ()) <= MAX_DIM
    if isinstance(value, complex):
        return False
    return kind != "float" or not isinstance(value, int) or is_double(value)


def is_default(value: Any, default: Any) -> bool:
    return value is default or (not isinstance(value, torch.Tensor) and value == default)


def is_double(value: int) -> bool:
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def overlaps(target: torch.Tensor, given: Iterable[Any]) -> bool:
    """Whether a tensor shares memory with itself, or with another that is not the same: native writes to none such."""
    if any(stride == 0 and size > 1 for size, stride in zip(target.shape, target.stride(), strict=True)):
        return True
    begin, end = span(target)
    for other in tensors_of(given):
        same = other.data_ptr() == target.data_ptr() and other.shape == target.shape
        if other is target or other.device != target.device or (same and other.stride() == target.stride()):
            continue
        first, last = span(other)
        if first < end and begin < last:
            return True
    return False


def span(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses between which a tensor's elements are."""
    if tensor.numel() == 0:
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()
