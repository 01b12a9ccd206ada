"""Streams and events of the device. On the CPU work is done when the call returns; they let the same scripts run."""

from typing import Any

import torch

from minitorch_backend import _C
from minitorch_backend._utils import _get_device_index

__all__ = [
    "Event",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "get_stream_from_external",
    "set_stream",
    "stream",
]


class Stream(torch.Stream):
    """A queue of work of one device, in the order given. Priority -1 is high, 0 (the default) is normal."""

    def __new__(cls, device: "torch.device | str | int | None" = None, priority: int = 0, **kwargs: Any) -> "Stream":
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        index = _get_device_index(device, optional=True)
        return super().__new__(cls, device=torch.device("minitorch", index), priority=priority)

    @property
    def priority(self) -> int:
        """-1 for high, 0 for normal."""
        return _C.stream_priority(self.stream_id)

    @property
    def native_handle(self) -> int:
        """The ``cudaStream_t`` on a GPU, for libraries that take one. 0 for the default stream and on the CPU."""
        return _C.stream_handle(self.device_index, self.stream_id)

    def record_event(self, event: "torch.Event | None" = None) -> "torch.Event":
        """Record ``event``, or a new Event, at the end of the work so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __repr__(self) -> str:
        return f"torch.minitorch.Stream(device={self.device}, stream_id={self.stream_id})"


class ExternalStream(Stream):
    """A stream that other code made, by its handle (``cudaStream_t``, as an integer); its maker keeps it alive.

    Raises RuntimeError on the CPU, which has no streams but its own.
    """

    def __new__(cls, stream_ptr: int, device: "torch.device | str | int | None" = None) -> "ExternalStream":
        index = _existing(device)
        device_type = int(torch._C._autograd.DeviceType.PrivateUse1)
        stream_id = _C.external_stream(index, stream_ptr)
        return super().__new__(cls, stream_id=stream_id, device_index=index, device_type=device_type)


class Event(torch.Event):
    """A point in a stream's work: record it, wait for it, measure the time between two."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> "Event":
        if interprocess:
            raise NotImplementedError("minitorch events cannot be shared between processes")
        return super().__new__(cls, "minitorch", enable_timing=enable_timing, blocking=blocking)

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Milliseconds from this event to ``end_event``. Both must have ``enable_timing`` and be recorded."""
        # PyTorch's own method takes no subclass of torch.Event as its argument.
        return _C.elapsed_ms(self.event_id, end_event.event_id)

    def __repr__(self) -> str:
        return f"torch.minitorch.Event(device={self.device})"


def _wrap(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def current_stream(device: "torch.device | str | int | None" = None) -> Stream:
    """The calling thread's current stream of a device."""
    return _wrap(torch._C._accelerator_getStream(_existing(device)))


def default_stream(device: "torch.device | str | int | None" = None) -> Stream:
    """The stream that work goes to when none was chosen."""
    device_type = int(torch._C._autograd.DeviceType.PrivateUse1)
    return Stream(stream_id=0, device_index=_existing(device), device_type=device_type)


def get_stream_from_external(data_ptr: int, device: "torch.device | str | int | None" = None) -> ExternalStream:
    """A stream that other code made: :class:`ExternalStream` under the name that ``torch.cuda`` has."""
    return ExternalStream(data_ptr, device)


def set_stream(stream: "torch.Stream | None") -> None:
    """Make ``stream`` the calling thread's current stream of its device. None changes nothing."""
    if stream is not None:
        torch._C._accelerator_setStream(stream)


class StreamContext:
    """Chooses a stream, and its device, for a ``with`` block. None changes nothing."""

    def __init__(self, stream: "torch.Stream | None") -> None:
        self.stream = stream
        self._previous: list[tuple[int, Stream]] = []

    def __enter__(self) -> "torch.Stream | None":
        if self.stream is not None:
            index = self.stream.device_index
            self._previous.append((_C.current_device(), current_stream(index)))
            set_stream(self.stream)
        return self.stream

    def __exit__(self, *exc: object) -> None:
        if self.stream is not None:
            device, stream = self._previous.pop()
            set_stream(stream)
            _C.set_device(device)


def stream(stream: "torch.Stream | None") -> StreamContext:
    """A context in which ``stream`` is current."""
    return StreamContext(stream)


def _existing(device: "torch.device | str | int | None") -> int:
    index = _get_device_index(device, optional=True)
    _C.check_device(index)
    return index
