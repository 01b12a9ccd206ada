"""Snapshots of memory and the recorded history of the allocator, in the form of PyTorch's memory visualiser."""

import pickle
import subprocess
import sys
import threading

import pytest
import torch
from torch.cuda import _memory_viz

MIB = 1 << 20


@pytest.fixture(autouse=True)
def stop():
    yield
    torch.minitorch._record_memory_history(None)


def make(count):
    return torch.empty(count, dtype=torch.uint8, device="minitorch")


def block_of(tensor, snapshot):
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if block["address"] <= tensor.data_ptr() < block["address"] + block["size"]:
                return segment, block
    raise AssertionError("no block holds the tensor")


def test_segments_agree_with_the_statistics():
    kept = [make(n) for n in (1, 1000, 70_000, 3 * MIB, 5 * MIB)]
    del kept[3]
    segments = torch.minitorch.memory_snapshot()
    stats = torch.minitorch.memory_stats()
    assert sum(s["total_size"] for s in segments) == stats["reserved_bytes.all.current"]
    assert sum(s["allocated_size"] for s in segments) == stats["allocated_bytes.all.current"]
    assert sum(s["active_size"] for s in segments) == stats["active_bytes.all.current"]
    assert sum(s["requested_size"] for s in segments) == stats["requested_bytes.all.current"]
    for segment in segments:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at and (block["requested_size"] > 0) == (block["state"] == "active_allocated")
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]


def test_history_names_the_caller():
    torch.minitorch._record_memory_history(stacks="python", clear_history=True)
    x = make(6 * MIB)
    where = x.data_ptr()
    snapshot = torch.minitorch._snapshot()
    segment, block = block_of(x, snapshot)
    assert segment["segment_type"] == "large" and block["state"] == "active_allocated"
    assert block["requested_size"] == 6 * MIB
    names = [frame["name"] for frame in block["frames"]]
    assert names[:2] == ["make", "test_history_names_the_caller"], names
    assert block["frames"][0]["filename"] == __file__ and block["frames"][0]["line"] == make.__code__.co_firstlineno + 1
    del x
    history = [e for e in torch.minitorch._snapshot()["device_traces"][0] if e.get("addr") == block["address"]]
    assert where - block["address"] in (0, 64)  # a canary with MINITORCH_POISON=1
    assert [e["action"] for e in history if "segment" not in e["action"]] == [
        "alloc",
        "free_requested",
        "free_completed",
    ]
    assert all(e["size"] == block["size"] and e["time_us"] > 1e15 for e in history if "segment" not in e["action"])
    assert history[-1]["frames"][0]["name"] == "test_history_names_the_caller"


def test_what_is_recorded():
    record = torch.minitorch._record_memory_history
    record("state", stacks="python")
    x = make(100)
    assert torch.minitorch._snapshot()["device_traces"][0] == []
    assert block_of(x, torch.minitorch._snapshot())[1]["frames"]
    record("all", context=None, max_entries=3)
    for _ in range(5):
        make(2 * MIB)
    history = torch.minitorch._snapshot()["device_traces"][0]
    assert len(history) == 3 and not any(e["frames"] for e in history)
    assert history[-1]["action"] == "free_completed"
    record("all", context="alloc", stacks="python", clear_history=True)
    make(3 * MIB)
    frames = {e["action"]: bool(e["frames"]) for e in torch.minitorch._snapshot()["device_traces"][0]}
    assert frames["alloc"] and not frames["free_requested"]
    record(None)
    assert torch.minitorch._snapshot()["device_traces"][0] == []
    assert not block_of(x, torch.minitorch._snapshot())[1]["frames"]
    for wrong in (dict(enabled="some"), dict(context="some"), dict(stacks="some")):
        with pytest.raises(ValueError, match="not 'some'"):
            record(**wrong)


def test_out_of_memory_is_recorded():
    torch.minitorch._record_memory_history(clear_history=True, stacks="python")
    with pytest.raises(torch.OutOfMemoryError):
        make(1 << 46)
    (event,) = (e for e in torch.minitorch._snapshot()["device_traces"][0] if e["action"] == "oom")
    assert event["size"] == 1 << 46 and event["device_free"] > 0 and "addr" not in event
    assert event["frames"][0]["name"] == "make"


def test_the_visualiser_reads_it(tmp_path):
    torch.minitorch._record_memory_history(clear_history=True, stacks="python")
    kept = [make(n * MIB) for n in (2, 30)]
    make(4 * MIB)
    torch.minitorch._dump_snapshot(tmp_path / "s.pickle")
    snapshot = pickle.loads((tmp_path / "s.pickle").read_bytes())
    block_of(kept[1], snapshot)
    assert "Total Reserved" in _memory_viz.segsum(snapshot) or "segments" in _memory_viz.segsum(snapshot)
    assert "make" in _memory_viz.memory(snapshot, format_flamegraph=lambda lines: lines)
    assert "# free completed for" in _memory_viz.trace(snapshot)
    assert len(_memory_viz.trace_plot(snapshot)) > 1000


def test_threads_allocate_while_it_is_switched():
    stop = threading.Event()

    def work():
        while not stop.is_set():
            make(5000) + make(5000)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        torch.minitorch._record_memory_history(max_entries=100, stacks="python")
        assert len(torch.minitorch._snapshot()["device_traces"][0]) <= 100
        torch.minitorch._record_memory_history(None)
    stop.set()
    for thread in threads:
        thread.join()


def test_a_process_may_end_while_recording():
    code = """
import torch, minitorch_backend
torch.minitorch._record_memory_history()
x = torch.ones(100, device="minitorch")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
