"""Which large blocks the C library's heap keeps between operator calls while a comparison runs.

Native tensors come from malloc, which by default maps every large block anew: each large result of the reference
costs page faults, as much as the arithmetic. With the thresholds raised, blocks are reused. The copies and
double-precision tensors of a judgement, which come once in a while, would leave holes in that heap that nothing else
fills: they are mapped and given back. Only where the C library is glibc.
"""

import contextlib
import ctypes
from collections.abc import Iterator

from minitorch_backend._glibc import M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, glibc

_DEFAULT = 128 * 1024
_MMAP, _TRIM = 8 << 20, 16 << 20


_libc: list[ctypes.CDLL] = []  # one entry for each comparison that has raised the thresholds
_largest = [0]  # bytes of inputs


@contextlib.contextmanager
def reused_blocks() -> Iterator[None]:
    """While entered, blocks up to 8 MiB stay with the process; afterwards what is free goes back."""
    libc = glibc()
    if libc is None:
        yield
        return
    libc.mallopt(M_MMAP_THRESHOLD, _MMAP)
    libc.mallopt(M_TRIM_THRESHOLD, _TRIM)
    _libc.append(libc)
    _largest[0] = 0
    try:
        yield
    finally:
        _libc.pop()
        libc.mallopt(M_MMAP_THRESHOLD, _DEFAULT)
        libc.mallopt(M_TRIM_THRESHOLD, _DEFAULT)
        libc.malloc_trim(0)


@contextlib.contextmanager
def passing_blocks(inputs: int = 0) -> Iterator[None]:
    """Within :func:`reused_blocks`: large blocks made while entered go back to the system as soon as they are free.

    `inputs`: bytes of what is worked on. When that is among the largest so far, it may make a new peak, and what the
    heap has free is given back before; that takes about a millisecond.
    """
    if not _libc:
        yield
        return
    if 2 * inputs > _largest[0]:
        _largest[0] = max(inputs, _largest[0])
        _libc[-1].malloc_trim(0)
    _libc[-1].mallopt(M_MMAP_THRESHOLD, _DEFAULT)
    try:
        yield
    finally:
        if _libc:
            _libc[-1].mallopt(M_MMAP_THRESHOLD, _MMAP)
