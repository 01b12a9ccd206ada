"""The C library's heap in a fixed state: native's large outputs cost no page faults, whatever was freed before."""

import subprocess
import sys

import pytest

from minitorch_backend.bench import heap, machine

FAULTS = """
import resource, sys, torch
from minitorch_backend.bench import heap
assert heap.set_policy(sys.argv[1], "cpu") == sys.argv[1]
x, total = torch.ones(2**22), 0
for call in range(44):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    x.exp()
    total += resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before if call >= 40 else 0
print(total)
"""


def faults(policy):
    """Page faults of four calls with an output of 16 MiB each, in a process of their own."""
    # A threshold given by hand does not move: what an unlucky history does, every time.
    environment = {"MALLOC_MMAP_THRESHOLD_": "131072", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, policy], env=environment, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(heap.pin() != "pinned", reason="the C library is not glibc")
def test_pinned_heap_keeps_large_blocks():
    assert faults("default") >= 4 * 4000  # 4096 pages each
    assert faults("pinned") <= 64


ROOM = """
import contextlib, ctypes, sys, torch
from minitorch_backend.bench import heap
assert heap.pin() == "pinned"
x, library = torch.ones(2**24), heap._pinned[0]
library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
blocks = [library.malloc(8 * 2**20) for _ in range(41)]
for block in blocks[:40]:  # the last one keeps the room apart from the heap's end
    library.free(block)
with heap.filled() if sys.argv[1] == "filled" else contextlib.nullcontext():
    places = [x.exp().data_ptr() for call in range(9)]
print(sum(blocks[0] <= place < blocks[-1] for place in places))
"""


@pytest.mark.skipif(heap.pin() != "pinned", reason="the C library is not glibc")
def test_large_outputs_find_no_room_in_a_filled_heap():
    """How many of nine outputs of 64 MiB lie in the heap, in which 320 are free."""
    found = [
        int(subprocess.run([sys.executable, "-c", ROOM, how], capture_output=True, text=True, check=True).stdout)
        for how in ("as it is", "filled")
    ]
    assert found[0] > 0 and found[1] == 0


class Library:
    def __init__(self, answer):
        self.answer, self.calls = answer, []

    def mallopt(self, *arguments):
        self.calls.append(arguments)
        return self.answer


def test_policy_is_what_the_library_took():
    library = Library(1)
    assert heap.pin(library) == "pinned" and library.calls == [(-3, 32 * 2**20), (-1, -1)]
    assert heap.pin(Library(0)) == "default"
    assert heap.set_policy("default", "cpu") == "default" and heap.set_policy("pinned", "cuda") == "default"


def test_runs_with_another_heap_are_another_machine():
    old, pinned = {"device": "x"}, {"device": "x", "malloc": "pinned"}
    assert machine.differences(old, pinned) == ["malloc: default and pinned"]
    assert machine.differences(old, {"device": "x", "malloc": "default"}) == []
