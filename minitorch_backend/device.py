"""``torch.minitorch``: the device's functions, shaped like ``torch.cuda``."""

import os
from typing import TYPE_CHECKING, Any

import torch
from torch import AcceleratorError, OutOfMemoryError

from minitorch_backend import (
    _C,
    _utils,  # noqa: F401  torch.load asks for torch.minitorch._utils._get_device_index
    memory,
    random,
    streams,
)
from minitorch_backend._C import DeviceProperties
from minitorch_backend._utils import _get_device_index
from minitorch_backend.memory import *  # noqa: F403
from minitorch_backend.random import *  # noqa: F403
from minitorch_backend.streams import *  # noqa: F403

__all__ = [
    "AcceleratorError",
    "DeviceProperties",
    "OutOfMemoryError",
    "can_device_access_peer",
    "current_device",
    "default_generators",
    "device",
    "device_count",
    "device_of",
    "fallbacks",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "init",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "set_device",
    "synchronize",
    *memory.__all__,
    *random.__all__,
    *streams.__all__,
]

default_generators = tuple(_C.default_generator(i) for i in range(_C.device_count()))


def is_available() -> bool:
    """Whether there is a device to run on. True whenever the backend could be loaded."""
    return device_count() > 0


_initialized = True  # torch.utils.checkpoint saves the random state of initialized devices only


def is_initialized() -> bool:
    """True: the device needs no lazy initialisation."""
    return True


def init() -> None:
    """Does nothing: the device is ready when the package is imported."""


# PyTorch calls it before the first use of a device, and takes a device without it for one that is never in use: then
# torch.accelerator.synchronize() would not wait.
_lazy_init = init


def device_count() -> int:
    """Number of minitorch devices."""
    return _C.device_count()


def current_device() -> int:
    """Index of the calling thread's current device."""
    return _C.current_device()


def set_device(device: "torch.device | str | int") -> None:
    """Make ``device`` the calling thread's current device. A negative index changes nothing.

    Raises RuntimeError for an index that does not exist.
    """
    index = _get_device_index(device, optional=True) if not isinstance(device, int) else device
    if index >= 0:
        _C.set_device(index)


class device:
    """Makes a device the current one for a ``with`` block. None and a negative index change nothing."""

    def __init__(self, device: "torch.device | str | int | None") -> None:
        self.idx = -1 if device is None else _get_device_index(device, optional=not isinstance(device, int))
        self.prev_idx = -1

    def __enter__(self) -> "device":
        self.prev_idx = current_device()
        if self.idx >= 0:
            _C.set_device(self.idx)
        return self

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        if self.idx >= 0:
            _C.set_device(self.prev_idx)


class device_of(device):
    """Makes the device of ``obj`` (a tensor or storage) the current one; an object elsewhere changes nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if getattr(obj, "is_minitorch", False) else -1)


def synchronize(device: "torch.device | str | int | None" = None) -> None:
    """Wait until all work of a device is done. Raises what kernels on a GPU have met, an IndexError for a bad index.

    With MINITORCH_POISON=1 raises RuntimeError when a write outside a tensor was found.
    """
    _C.synchronize(_get_device_index(device, optional=True))


def get_device_properties(device: "torch.device | str | int | None" = None) -> DeviceProperties:
    """Name, backend, isa, total_memory (bytes), multi_processor_count (cores or GPU multiprocessors), major, minor."""
    return _C.device_properties(_get_device_index(device, optional=True))


def get_device_name(device: "torch.device | str | int | None" = None) -> str:
    """Name of the processor that a device runs on."""
    return get_device_properties(device).name


def get_device_capability(device: "torch.device | str | int | None" = None) -> tuple[int, int]:
    """Compute capability (major, minor) of a device that is a GPU; (0, 0) on the CPU."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device: "torch.device | str | int", peer_device: "torch.device | str | int") -> bool:
    """Whether ``device`` can read and write the memory of another device. False for the device itself."""
    return _C.can_access_peer(_get_device_index(device, optional=True), _get_device_index(peer_device, optional=True))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: every kernel takes bfloat16 and accumulates in float."""
    return True


def is_tf32_supported() -> bool:
    """Whether products of float32 can round their factors to tf32: on GPUs. The CPU always takes them as they are."""
    return get_device_capability() >= (8, 0)


def is_current_stream_capturing() -> bool:
    """False: work is run, never recorded into a graph."""
    return False


def ipc_collect() -> None:
    """Does nothing: no memory is kept for other processes beyond the tensors that share it."""


def get_amp_supported_dtype() -> "list[torch.dtype]":
    """The dtypes that autocast may use."""
    return [torch.bfloat16, torch.float16]


def fallbacks(clear: bool = False) -> "list[_C.FallbackRecord]":
    """Calls that had no kernel here and ran on native CPU: operator, count, bytes, seconds, first call site.

    With ``clear`` the ledger is emptied after reading.
    """
    records = _C.fallback_records()
    if clear:
        _C.clear_fallback_records()
    return records


if not TYPE_CHECKING:  # else every name would be known

    def __getattr__(name: str) -> Any:
        if name in ("Scheduling", "PythonWrapperCodegen", "CppWrapperCodegen", "WrapperFxCodegen"):  # Inductor asks
            from minitorch_backend import _inductor

            return _inductor.NoCode
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_in_use, _in_bad_fork = False, False


def _before_fork() -> None:
    global _in_use
    _in_use = _C.in_use()


def _after_fork() -> None:
    global _in_bad_fork
    _in_bad_fork = _in_bad_fork or _in_use


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one that had used a GPU. A child may go on using the CPU device."""
    return _in_bad_fork
