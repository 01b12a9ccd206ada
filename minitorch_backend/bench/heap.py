"""Where native's memory comes from: the C library's heap, put into one fixed state.

glibc takes blocks above a threshold from the system, page by page anew in every call, and smaller ones from its heap,
which it keeps. The threshold grows with what was freed so far, up to 32 MiB, and the heap's end goes back to the system
whenever enough of it is free. So one process faults in every large output and the next one none, by chance: native's
softmax of 16 MiB takes 1.8 ms in one and 8 in another. A race against either is decided by a coin. Pinned, the
threshold stands where the rule of glibc itself ends, and nothing is given back.

Blocks above the threshold still come from the heap where earlier cases left room for them: an addition to 64 MiB takes
3 ms then, and 20 in a young process. So that room is filled while a case is raced. Native then faults in every output
of 32 MiB and more, as it does by default in a young process: such a case races the allocators, not the kernels, and
docs/bench.md says which they are. With a higher threshold native could keep that memory too.
"""

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

from minitorch_backend._glibc import M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, glibc

MOST = 32 * 2**20  # DEFAULT_MMAP_THRESHOLD_MAX of a 64-bit glibc
POLICIES = ("pinned", "default")
IS_MAPPED = 2  # in the size that stands before a block: it is no part of the heap
_pinned: list[Any] = []  # the library whose heap is


def pin(library: Any = None) -> str:
    """Fix the heap of this process; the policy that is then in force: "default" where there is no glibc to ask."""
    library = library or glibc()
    if library is None:
        return "default"
    fixed = library.mallopt(M_MMAP_THRESHOLD, MOST) == 1 and library.mallopt(M_TRIM_THRESHOLD, -1) == 1
    _pinned[:] = [library] if fixed else []
    return "pinned" if fixed else "default"


@contextlib.contextmanager
def filled() -> Iterator[None]:
    """While entered, a pinned heap has no room for blocks above the threshold: each comes from the system."""
    held = []
    for library in _pinned:
        library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        library.free.argtypes = [ctypes.c_void_p]
        while block := library.malloc(MOST):
            held.append((library, block))
            if ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value & IS_MAPPED:
                break
    try:
        yield
    finally:
        for library, block in held:
            library.free(block)


def set_policy(policy: str, backend: str) -> str:
    """Bring a policy into force; the one that is. On a GPU no result depends on it."""
    return pin() if policy == "pinned" and backend == "cpu" else "default"
