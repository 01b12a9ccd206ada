"""Moves arguments from native CPU to minitorch exactly: same sizes, strides, offsets, aliasing and requires_grad."""

import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch

DEVICE = os.environ.get("MINITORCH_TEST_DEVICE", "minitorch")


class Crossing:
    """Copies nested arguments to the device. Tensors that share a storage on the CPU share one over there."""

    def __init__(self) -> None:
        self._storages: dict[int, tuple[torch.UntypedStorage, torch.Tensor]] = {}
        self._tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, (list, tuple)):
            items = [self(item) for item in value]
            if hasattr(value, "_fields"):
                return type(value)(*items)
            return type(value)(items)
        if isinstance(value, dict):
            return {key: self(item) for key, item in value.items()}
        if isinstance(value, torch.device) and value.type == "cpu":
            return torch.device(DEVICE)
        if isinstance(value, str) and value == "cpu":
            return DEVICE
        return value

    def _tensor(self, t: torch.Tensor) -> torch.Tensor:
        known = self._tensors.get(id(t))
        if known is not None:
            return known[1]
        with torch.no_grad():
            if t.layout != torch.strided:
                moved = t.detach().to(DEVICE)
            elif t.is_conj():
                moved = self._strided(t.detach().conj()).conj()
            elif t.is_neg():
                moved = self._strided(torch._neg_view(t.detach()))
                moved = torch._neg_view(moved)
            else:
                moved = self._strided(t.detach())
        moved.requires_grad_(t.requires_grad)
        self._tensors[id(t)] = (t, moved)
        return moved

    def _strided(self, t: torch.Tensor) -> torch.Tensor:
        storage = t.untyped_storage()
        if storage.device.type != "cpu":
            return t
        if storage.nbytes() == 0:
            return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=DEVICE)
        key = storage._cdata
        if key not in self._storages:
            raw = torch.empty(0, dtype=torch.uint8).set_(storage)
            self._storages[key] = (storage, raw.to(DEVICE))
        out = torch.empty(0, dtype=t.dtype, device=DEVICE)
        out.set_(self._storages[key][1].untyped_storage(), t.storage_offset(), t.shape, t.stride())
        return out


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors of a nested value, in a fixed order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def to_double(value: Any) -> Any:
    """The same arguments with floating tensors in float64 (complex128): what the reference is computed from."""
    if isinstance(value, torch.Tensor):
        if value.dtype.is_complex:
            return value.detach().to(torch.complex128)
        return value.detach().double() if value.dtype.is_floating_point else value.detach()
    if isinstance(value, (list, tuple)):
        items = [to_double(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: to_double(item) for key, item in value.items()}
    if isinstance(value, torch.dtype) and value.is_floating_point:
        return torch.float64
    if dataclasses.is_dataclass(value) and not isinstance(value, type):  # options of an operator
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **to_double(fields))
    return value


def mapped(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The nested value with every tensor changed, without gradients but with the same demand for them."""
    if isinstance(value, torch.Tensor):
        changed = change(value.detach())
        inexact = changed.dtype.is_floating_point or changed.dtype.is_complex
        return changed.requires_grad_(value.requires_grad) if inexact else changed
    if isinstance(value, (list, tuple)):
        items = [mapped(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    return value


def in_default_dtype(value: Any) -> Any:
    """Integers as the numbers that they become where an operator of real numbers takes them."""
    return mapped(value, lambda t: t.to(torch.get_default_dtype()) if t.dtype != torch.bool else t)


def made_contiguous(value: Any) -> Any:
    return mapped(value, lambda t: t.clone(memory_format=torch.contiguous_format) if t.layout == torch.strided else t)


def cloned(value: Any) -> Any:
    """A copy that shares no memory with the original, with the same strides and aliasing."""
    memo: dict[int, torch.UntypedStorage] = {}

    def clone(v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            if v.layout != torch.strided or v.is_conj() or v.is_neg():
                return v.detach().clone().requires_grad_(v.requires_grad)
            storage = v.untyped_storage()
            if storage._cdata not in memo:
                memo[storage._cdata] = storage.clone()
            copy = torch.empty(0, dtype=v.dtype).set_(memo[storage._cdata], v.storage_offset(), v.shape, v.stride())
            return copy.requires_grad_(v.requires_grad)
        if isinstance(v, (list, tuple)):
            items = [clone(item) for item in v]
            return type(v)(*items) if hasattr(v, "_fields") else type(v)(items)
        if isinstance(v, dict):
            return {key: clone(item) for key, item in v.items()}
        return v

    return clone(value)


def nudged(value: Any, generator: torch.Generator) -> Any:
    """A copy whose floating numbers differ from the original's by little: in 16 bits by a unit in the last place or by
    nothing, in more by up to 512 units, as roundings in a row of operators change together otherwise.
    """
    copy = cloned(value)
    for t in tensors_in(copy):
        if t.layout != torch.strided or t.numel() == 0 or t.is_conj() or t.is_neg():
            continue
        if not (t.dtype.is_floating_point or t.dtype.is_complex) or 0 in t.stride():
            continue
        with torch.no_grad():
            parts = torch.view_as_real(t) if t.dtype.is_complex else t
            reach = 1 if parts.element_size() <= 2 else 512
            bits = parts.contiguous().view(INTEGERS[parts.element_size()])
            steps = torch.randint(-reach, reach + 1, bits.shape, generator=generator).to(bits.dtype)
            moved = (bits + steps).view(parts.dtype)
            parts.copy_(torch.where(torch.isfinite(moved) & (parts != 0), moved, parts))
    return copy


def scattered(value: Any, generator: torch.Generator) -> Any:
    """A copy whose floating numbers are up to an eighth larger or smaller, each on its own: other roundings throughout."""
    copy = cloned(value)
    for t in tensors_in(copy):
        if t.layout != torch.strided or 0 in t.stride() or t.is_conj() or t.is_neg():
            continue
        if (t.dtype.is_floating_point and t.element_size() > 1) or t.dtype.is_complex:
            with torch.no_grad():
                parts = torch.view_as_real(t) if t.dtype.is_complex else t
                parts.mul_(1 + (torch.rand(parts.shape, generator=generator) - 0.5) / 4)
    return copy


INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
