"""``torch.minitorch``: the device's functions, shaped like ``torch.cuda``."""

import torch

from minitorch_backend import _C, random
from minitorch_backend.random import *  # noqa: F403

__all__ = ["current_device", "device_count", "fallbacks", "is_available", "set_device", *random.__all__]


def is_available() -> bool:
    """Whether there is a device to run on. True whenever the backend could be loaded."""
    return device_count() > 0


def is_initialized() -> bool:
    """True: the device needs no lazy initialisation."""
    return True


def device_count() -> int:
    """Number of minitorch devices."""
    return _C.device_count()


def current_device() -> int:
    """Index of the calling thread's current device."""
    return _C.current_device()


def set_device(device: "int | str | torch.device") -> None:
    """Make ``device`` the calling thread's current device."""
    _C.set_device(device if isinstance(device, int) else torch.device(device).index or 0)


def fallbacks(clear: bool = False) -> "list[_C.FallbackRecord]":
    """Calls that had no kernel here and ran on native CPU: operator, count, bytes, seconds, first call site.

    With ``clear`` the ledger is emptied after reading.
    """
    records = _C.fallback_records()
    if clear:
        _C.clear_fallback_records()
    return records


def get_amp_supported_dtype() -> "list[torch.dtype]":
    """The dtypes that autocast may use."""
    return [torch.bfloat16, torch.float16]


def _is_in_bad_fork() -> bool:
    return False
