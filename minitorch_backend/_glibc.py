"""The C library where it is glibc, whose heap can be told what to keep: mallopt(3), malloc_trim(3)."""

import ctypes
import functools
import platform

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


@functools.cache
def glibc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
