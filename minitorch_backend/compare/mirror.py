"""One device's tensors seen on another: same dtype, shape, strides, offset and aliasing, down to the storage.

Everything here works on storages. A tensor is a window (dtype, shape, strides, offset) on one; two tensors of the same
storage stay two windows on the same copy of it, so views, overlaps and in-place writes come out as they were.
"""

from typing import Any

import torch
from torch import Tensor, UntypedStorage

from minitorch_backend.compare.library import LIBRARY


def window(storage: UntypedStorage, like: Tensor, device: torch.device) -> Tensor:
    """A tensor on `storage` with the dtype, shape, strides and offset of `like`."""
    if LIBRARY is not None and device.type == "cpu":
        return LIBRARY.window(storage, like)
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


class Mirror:
    """The tensors of `source` as the device `target` sees them."""

    def __init__(self, source: torch.device, target: torch.device) -> None:
        self.source, self.target = source, target
        self.same = source.type == target.type
        # Memory of the host, seen by the CPU without a copy.
        self.shares = not self.same and target.type == "cpu" and host_memory(source)
        self.in_place = self.same or self.shares

    def storage(self, storage: UntypedStorage, copy: bool = False) -> UntypedStorage:
        """The storage on the target: the memory itself where both can see it, unless a copy is asked for.

        A shared one is good only as long as the original lives.
        """
        if self.same:
            seen = storage
        elif self.shares:
            return LIBRARY.host_copy(storage) if copy else LIBRARY.host_storage(storage)
        else:
            return bytes_of(storage, self.source).to(self.target).untyped_storage()
        return bytes_of(seen, self.target).clone().untyped_storage() if copy else seen

    def tensor(self, t: Tensor) -> Tensor:
        """One tensor as the target sees it; it shares memory where it can."""
        if self.same:
            return t
        return LIBRARY.host_view(t) if self.shares else window(self.storage(t.untyped_storage()), t, self.target)


class View:
    """The arguments of one call on the target device, each storage looked up once.

    `known` has storages of the target by the id of the source's, with their sizes (a shadow's), `source` makes one of
    the id and the storage. Where neither gives one, the content is the subject's own.
    """

    __slots__ = ("kinds", "known", "mirror", "quick", "source", "storages")

    def __init__(self, mirror: Mirror, source: Any = None, known: dict | None = None) -> None:
        self.mirror, self.source, self.known = mirror, source, known
        self.storages: dict[int, UntypedStorage] = {}
        self.kinds = mirror.source.type
        self.quick = mirror.shares and source is None

    def tensor(self, t: Tensor) -> Tensor:
        if self.quick:
            return LIBRARY.see(self.storages, self.known, t)
        if t.device.type != self.kinds:
            return t
        storage = t.untyped_storage()
        key = storage._cdata
        seen = self.storages.get(key)
        if seen is None:
            seen = self.storages[key] = self.content(key, storage)
        if seen is storage and not t.requires_grad:
            return t
        return window(seen, t, self.mirror.target)

    def content(self, key: int, storage: UntypedStorage) -> UntypedStorage:
        """What a storage holds, on the target."""
        entry = self.known.get(key) if self.known is not None else None
        if entry is not None and entry[2] == storage.nbytes():
            return entry[0]
        seen = self.source(key, storage) if self.source is not None else None
        return self.mirror.storage(storage) if seen is None else seen

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
        if self.quick:
            see, storages, known = LIBRARY.see, self.storages, self.known
            return list(see(storages, known, args)), {
                k: False if k == "pin_memory" and v else see(storages, known, v) for k, v in kwargs.items()
            }
        return [self.value(a) for a in args], {
            k: False if k == "pin_memory" and v else self.value(v) for k, v in kwargs.items()
        }
