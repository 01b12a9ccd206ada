"""Keeps the C library's heap from giving memory back between operator calls while a comparison runs.

Native tensors come from malloc, which by default maps every large block anew: each large result of the reference
costs page faults, as much as the arithmetic. With the thresholds raised, blocks are reused. Only where the C library
is glibc.
"""

import contextlib
import ctypes
import platform
from collections.abc import Iterator

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_DEFAULT = 128 * 1024
_MMAP, _TRIM = 8 << 20, 16 << 20


@contextlib.contextmanager
def reused_blocks() -> Iterator[None]:
    """While entered, blocks up to 8 MiB stay with the process; afterwards what is free goes back."""
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_MMAP_THRESHOLD, _MMAP)
    libc.mallopt(_TRIM_THRESHOLD, _TRIM)
    try:
        yield
    finally:
        libc.mallopt(_MMAP_THRESHOLD, _DEFAULT)
        libc.mallopt(_TRIM_THRESHOLD, _DEFAULT)
        libc.malloc_trim(0)
