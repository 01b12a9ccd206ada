"""Where native's memory comes from: the C library's heap, put into one fixed state.

glibc takes blocks above a threshold from the system, page by page anew in every call, and smaller ones from its heap,
which it keeps. The threshold grows with what was freed so far, up to 32 MiB, and the heap's end goes back to the system
whenever enough of it is free. So one process faults in every large output and the next one none, by chance: native's
softmax of 16 MiB takes 1.8 ms in one and 8 in another. A race against either is decided by a coin. Pinned, the
threshold stands where the rule of glibc itself ends, and nothing is given back: the best that native can have.
"""

from typing import Any

from minitorch_backend._glibc import M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, glibc

MOST = 32 * 2**20  # DEFAULT_MMAP_THRESHOLD_MAX of a 64-bit glibc
POLICIES = ("pinned", "default")


def pin(library: Any = None) -> str:
    """Fix the heap of this process; the policy that is then in force: "default" where there is no glibc to ask."""
    library = library or glibc()
    if library is None:
        return "default"
    fixed = library.mallopt(M_MMAP_THRESHOLD, MOST) == 1 and library.mallopt(M_TRIM_THRESHOLD, -1) == 1
    return "pinned" if fixed else "default"


def set_policy(policy: str, backend: str) -> str:
    """Bring a policy into force; the one that is. On a GPU no result depends on it."""
    return pin() if policy == "pinned" and backend == "cpu" else "default"
