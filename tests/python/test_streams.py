"""Streams and events: current by thread, waited for, timed, and understood by PyTorch's generic code."""

import time

import pytest
import torch

import minitorch_backend

mt = torch.minitorch


def test_classes_are_pytorchs_own():
    assert issubclass(mt.Stream, torch.Stream) and issubclass(mt.Event, torch.Event)
    stream = mt.Stream()
    assert stream.device == torch.device("minitorch:0")
    assert stream.device_index == 0
    assert "minitorch" in repr(stream) and "minitorch" in repr(mt.Event())
    assert isinstance(mt.current_stream(), mt.Stream)


def test_priorities():
    assert mt.Stream().priority == 0
    assert mt.Stream(priority=-1).priority == -1
    assert mt.default_stream().priority == 0


def test_streams_of_other_code():
    assert mt.default_stream().native_handle == 0
    if minitorch_backend._C.backend_name() == "cpu":
        assert mt.Stream().native_handle == 0
        with pytest.raises(RuntimeError, match="no streams but its own"):
            mt.ExternalStream(1234)
        return
    ours = mt.Stream(priority=-1)
    assert ours.native_handle != 0
    other = mt.ExternalStream(ours.native_handle)
    assert other.native_handle == ours.native_handle and other.priority == -1
    assert mt.ExternalStream(ours.native_handle) == other and mt.ExternalStream(0) == mt.default_stream()
    with mt.stream(other):
        x = torch.ones(1000, device="minitorch") + 1
    other.synchronize()
    assert x.sum().item() == 2000


@pytest.mark.skipif(minitorch_backend._C.device_count() < 2, reason="needs two GPUs")
def test_two_devices():
    x = torch.arange(100_000.0).to("minitorch:0")
    y = x.to("minitorch:1")
    assert torch.equal(y.cpu(), x.cpu()) and torch.equal((y * 2).to("minitorch:0"), x * 2)
    assert torch.equal(x.view(100, 1000).t().to("minitorch:1").cpu(), x.cpu().view(100, 1000).t())
    with torch.device("minitorch:1"):
        event = mt.Event(enable_timing=True)
        event.record(mt.current_stream(1))
    event.synchronize()
    mt.synchronize(1)
    with pytest.raises(RuntimeError, match="device"):
        x + y


def test_new_streams_come_from_a_pool():
    """As torch.cuda's: a program that asks for one in every step has no more of them, and of memory kept for each."""
    for priority in (0, -1):
        assert len({mt.Stream(priority=priority).stream_id for _ in range(200)}) == 32


@pytest.mark.skipif(minitorch_backend._C.backend_name() != "cuda", reason="on the CPU a stream is a number")
def test_streams_that_do_not_exist():
    kind = int(torch._C._autograd.DeviceType.PrivateUse1)
    unknown = mt.Stream(stream_id=1 << 40, device_index=0, device_type=kind)
    for use in (unknown.synchronize, unknown.query, lambda: unknown.native_handle):
        with pytest.raises(RuntimeError, match=r"minitorch:0 has no stream with the id 1099511627776"):
            use()
    elsewhere = mt.Stream(stream_id=2, device_index=77, device_type=kind)
    for use in (elsewhere.synchronize, lambda: elsewhere.native_handle):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            use()


def test_new_streams_differ_and_compare_by_identity():
    a, b = mt.Stream(), mt.Stream()
    assert a != b and a != mt.default_stream()
    same = mt.Stream(stream_id=a.stream_id, device_index=a.device_index, device_type=a.device_type)
    assert same == a and hash(same) == hash(a)


def test_current_stream_follows_contexts():
    default, a, b = mt.default_stream(), mt.Stream(), mt.Stream()
    assert mt.current_stream() == default
    with mt.stream(a) as entered:
        assert entered == a and mt.current_stream() == a
        with b:
            assert torch.accelerator.current_stream() == b
            with mt.stream(None):
                assert mt.current_stream() == b
        assert mt.current_stream() == a
        with pytest.raises(ZeroDivisionError), mt.stream(b):
            _ = 1 / 0
        assert mt.current_stream() == a
    assert mt.current_stream() == default
    mt.set_stream(a)
    assert torch.accelerator.current_stream() == a
    mt.set_stream(None)
    assert mt.current_stream() == a
    torch.accelerator.set_stream(default)
    assert mt.current_stream() == default


def test_waiting_and_asking():
    a, b = mt.Stream(), mt.Stream()
    with mt.stream(a):
        x = torch.ones(1000).to("minitorch") + 1
    event = a.record_event()
    assert isinstance(event, mt.Event)
    b.wait_event(event)
    b.wait_stream(a)
    event.wait(b)
    event.wait()
    event.synchronize()
    a.synchronize()
    assert event.query() and a.query() and b.query()
    x.record_stream(b)
    assert a.record_event(event) is event


def test_events_measure_milliseconds():
    start, end = mt.Event(enable_timing=True), mt.Event(enable_timing=True)
    start.record()
    time.sleep(0.02)
    end.record(mt.current_stream())
    end.synchronize()
    assert 15 < start.elapsed_time(end) < 5000
    assert end.elapsed_time(start) < 0
    generic = torch.Event("minitorch", enable_timing=True)
    generic.record()
    generic.synchronize()
    assert generic.elapsed_time(generic) == 0


def test_elapsed_time_needs_two_timed_recorded_events():
    timed, other = mt.Event(enable_timing=True), mt.Event(enable_timing=True)
    timed.record()
    with pytest.raises(RuntimeError, match=r"[Bb]oth events must be recorded"):
        timed.elapsed_time(other)
    untimed = mt.Event()
    untimed.record()
    with pytest.raises((RuntimeError, ValueError), match="enable_timing"):
        timed.elapsed_time(untimed)
    with pytest.raises(NotImplementedError, match="between processes"):
        mt.Event(interprocess=True)
    with pytest.raises(TypeError, match="'enable_timing' must be bool"):
        mt.Event("minitorch:77")  # as torch.cuda.Event, it takes no device


def test_backward_runs_with_another_current_stream():
    x = torch.ones(8).to("minitorch").requires_grad_()
    side = mt.Stream()
    side.wait_stream(mt.current_stream())
    with mt.stream(side):
        y = x * x
        y.backward(torch.ones(8).to("minitorch"))
    mt.current_stream().wait_stream(side)
    assert torch.equal(x.grad.cpu(), torch.full((8,), 2.0))
