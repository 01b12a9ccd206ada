"""Handing tensors to other processes and other libraries: torch.multiprocessing and DLPack.

PyTorch sends a tensor to another process by pickling its storage, and knows how to do that for the CPU and for CUDA.
For another device it fails in the thread that feeds the queue, where nobody sees it and the receiver waits for ever.
On the CPU backend device memory is host memory: the storage moves to shared memory, as a native CPU storage does, and
both processes see what either writes. On a GPU a copy is sent.
"""

from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

from minitorch_backend import _C


def _reduce_storage(storage: torch.UntypedStorage) -> tuple[Any, tuple[Any, ...]]:
    if storage.device.type != "minitorch":
        return reductions.reduce_storage(storage)
    if not _C.host_accessible():
        return _rebuild_copy, (_shared_copy(storage), storage.device)
    host = _C.lender(storage)
    if host is None or host.device.type != "cpu" or not host.is_shared():
        host = _shared_copy(storage)
        _C.adopt(storage, host)
    return _C.device_alias, (host,)


def _shared_copy(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    return torch.UntypedStorage._new_shared(storage.nbytes()).copy_(storage)


def _rebuild_copy(host: torch.UntypedStorage, device: torch.device) -> torch.UntypedStorage:
    return torch.UntypedStorage(host.nbytes(), device=device).copy_(host)


_native_dlpack_device = torch.Tensor.__dlpack_device__


def _dlpack_device(self: torch.Tensor) -> tuple[DLDeviceType, int]:
    """As native's, which knows a device from outside only by the name that it had before it was renamed."""
    if not has_torch_function_unary(self) and self.device.type == "minitorch":
        return DLDeviceType.kDLExtDev, self.device.index
    return _native_dlpack_device(self)


def install() -> None:
    """Make torch.multiprocessing and ``torch.from_dlpack`` take tensors of the device."""
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)
    torch.Tensor.__dlpack_device__ = _dlpack_device
