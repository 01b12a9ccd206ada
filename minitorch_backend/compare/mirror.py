"""One device's tensors seen on another: same dtype, shape, strides, offset and aliasing, down to the storage.

Everything here works on storages. A tensor is a window (dtype, shape, strides, offset) on one; two tensors of the same
storage stay two windows on the same copy of it, so views, overlaps and in-place writes come out as they were.
"""

from typing import Any

import torch
from torch import Tensor, UntypedStorage


def window(storage: UntypedStorage, like: Tensor, device: torch.device) -> Tensor:
    """A tensor on `storage` with the dtype, shape, strides and offset of `like`."""
    t = torch.empty(0, dtype=like.dtype, device=device)
    t.set_(storage, like.storage_offset(), like.shape, like.stride())
    if like.is_conj():
        t = t._conj()
    return t._neg_view() if like.is_neg() else t


def bytes_of(storage: UntypedStorage, device: torch.device) -> Tensor:
    """A storage as a tensor of bytes."""
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)


def host_memory(device: torch.device) -> bool:
    """Whether the device's memory is the host's."""
    if device.type == "cpu":
        return True
    if device.type != "minitorch":
        return False
    from minitorch_backend import _C

    return _C.backend_name() == "cpu"


MOST_WINDOWS = 4096  # kept for the next call with the same tensor: parameters and their gradients come each step


class Mirror:
    """The tensors of `source` as the device `target` sees them."""

    def __init__(self, source: torch.device, target: torch.device) -> None:
        self.source, self.target = source, target
        self.windows: dict[tuple, tuple[UntypedStorage, Tensor]] = {}
        self.memory: dict[tuple[int, int], UntypedStorage] = {}
        self.same = source.type == target.type
        # Memory of the host, seen by the CPU without a copy.
        self.shares = not self.same and target.type == "cpu" and host_memory(source)

    def storage(self, storage: UntypedStorage, copy: bool = False) -> UntypedStorage:
        """The storage on the target: the memory itself where both can see it, unless a copy is asked for.

        A shared one is good only as long as the original lives.
        """
        if self.same:
            seen = storage
        elif self.shares:
            seen = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), self.target, storage.nbytes())
        else:
            return bytes_of(storage, self.source).to(self.target).untyped_storage()
        return bytes_of(seen, self.target).clone().untyped_storage() if copy else seen

    def tensor(self, t: Tensor) -> Tensor:
        """One tensor as the target sees it; it shares memory where it can."""
        if self.same:
            return t
        storage = t.untyped_storage()
        return self.shared(storage, t)[1] if self.shares else window(self.storage(storage), t, self.target)

    def shared(self, storage: UntypedStorage, t: Tensor) -> tuple[UntypedStorage, Tensor]:
        """Storage and tensor as the target sees `t` of `storage`, for a mirror that shares; to be read only.

        A window is no more than an address and a layout, so one that was made for the same address and layout before
        is as good as a new one, whatever became of the tensor in between.
        """
        key = (
            storage.data_ptr(), storage.nbytes(), t.dtype, t.shape, t.stride(), t.storage_offset(), t.is_conj(),
            t.is_neg(),
        )  # fmt: skip
        known = self.windows.get(key)
        if known is None:
            if len(self.windows) >= MOST_WINDOWS:
                self.windows.clear()
                self.memory.clear()
            seen = self.memory.get(key[:2])
            if seen is None:
                seen = self.memory[key[:2]] = self.storage(storage)
            known = self.windows[key] = seen, window(seen, t, self.target)
        return known


class View:
    """The arguments of one call on the target device, each storage looked up once.

    `source` names where a storage's content comes from: a function of the storage's id and the storage. Where it gives
    None, or is None, the content is the subject's own.
    """

    __slots__ = ("kinds", "mirror", "source", "storages")

    def __init__(self, mirror: Mirror, source: Any) -> None:
        self.mirror, self.source = mirror, source
        self.storages: dict[int, UntypedStorage] = {}
        self.kinds = mirror.source.type

    def tensor(self, t: Tensor) -> Tensor:
        if t.device.type != self.kinds:
            return t
        storage = t.untyped_storage()
        key = storage._cdata
        seen = self.storages.get(key)
        if seen is None:
            seen = self.source(key, storage) if self.source is not None else None
            if seen is None:
                if self.mirror.shares:
                    self.storages[key], found = self.mirror.shared(storage, t)
                    return found
                seen = self.mirror.storage(storage)
            self.storages[key] = seen
            if seen is storage and not t.requires_grad:
                return t
        elif seen is storage and not t.requires_grad:
            return t
        if self.mirror.shares and seen.data_ptr() == storage.data_ptr():
            return self.mirror.shared(storage, t)[1]
        return window(seen, t, self.mirror.target)

    def value(self, value: Any) -> Any:
        kind = type(value)
        if kind in (int, float, bool, str) or value is None:
            return value
        if isinstance(value, Tensor):
            return self.tensor(value)
        if kind is list or kind is tuple:
            return kind([self.value(v) for v in value])
        if kind is torch.device:
            return self.mirror.target if value.type == self.kinds else value
        return value

    def call(self, args: Any, kwargs: dict) -> tuple[list, dict]:
        """(args, kwargs) of a call as the target device takes them."""
        return [self.value(a) for a in args], {
            k: False if k == "pin_memory" and v else self.value(v) for k, v in kwargs.items()
        }
