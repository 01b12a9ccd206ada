"""Memory of the device: what is held, what is cached, and how much there may be. Shaped like ``torch.cuda.memory``."""

import os
import pickle
import sys
import warnings
from collections import OrderedDict
from typing import Any, Literal

import torch

from minitorch_backend import _C
from minitorch_backend._utils import _get_device_index

__all__ = [
    "_dump_snapshot",
    "_record_memory_history",
    "_snapshot",
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_block",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]

Device = torch.device | str | int | None


def memory_stats(device: Device = None) -> "OrderedDict[str, int]":
    """Statistics of the caching allocator, under the keys of ``torch.cuda.memory_stats`` and with their meaning.

    ``{allocation,segment,active,inactive_split,allocated_bytes,reserved_bytes,active_bytes,inactive_split_bytes,
    requested_bytes}.{all,small_pool,large_pool}.{current,peak,allocated,freed}`` and the counters
    ``num_alloc_retries``, ``num_ooms``, ``num_sync_all_streams``, ``num_device_alloc`` and ``num_device_free``.
    Requests up to 1 MiB are in the small pool.
    """
    return OrderedDict(sorted(_C.memory_stats(_get_device_index(device, optional=True)).items()))


def memory_stats_as_nested_dict(device: Device = None) -> "dict[str, Any]":
    """:func:`memory_stats` as dictionaries within each other: ``["allocated_bytes"]["all"]["current"]``."""
    nested: dict[str, Any] = {}
    for key, value in memory_stats(device).items():
        *outer, last = key.split(".")
        place = nested
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = value
    return nested


def memory_allocated(device: Device = None) -> int:
    """Bytes that tensors hold now."""
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device: Device = None) -> int:
    """The most bytes that tensors and running kernels held, since the start or the last ``reset_peak_memory_stats``."""
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device: Device = None) -> int:
    """Bytes that the allocator has taken from the system, for tensors and as cache."""
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device: Device = None) -> int:
    """The most bytes taken from the system at once, since the start or the last ``reset_peak_memory_stats``."""
    return memory_stats(device)["reserved_bytes.all.peak"]


def reset_peak_memory_stats(device: Device = None) -> None:
    """Let the peaks start again from what is held now."""
    _C.reset_peak_memory_stats(_get_device_index(device, optional=True))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Let the sums (``allocated``, ``freed``, the counters) start again from zero."""
    _C.reset_accumulated_memory_stats(_get_device_index(device, optional=True))


def _renamed(old: str, new: str) -> None:
    warnings.warn(f"torch.minitorch.{old} is named torch.minitorch.{new}", FutureWarning, stacklevel=3)


def memory_cached(device: Device = None) -> int:
    """Deprecated name of :func:`memory_reserved`, as in ``torch.cuda``."""
    _renamed("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: Device = None) -> int:
    """Deprecated name of :func:`max_memory_reserved`, as in ``torch.cuda``."""
    _renamed("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


def reset_max_memory_allocated(device: Device = None) -> None:
    """Deprecated name of :func:`reset_peak_memory_stats`, as in ``torch.cuda``."""
    _renamed("reset_max_memory_allocated", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Device = None) -> None:
    """Deprecated name of :func:`reset_peak_memory_stats`, as in ``torch.cuda``."""
    _renamed("reset_max_memory_cached", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def get_allocator_backend() -> str:
    """``"native"``, as in ``torch.cuda``: the caching allocator of the backend itself."""
    return "native"


def empty_cache() -> None:
    """Give all cached memory that no tensor holds back to the system."""
    _C.empty_cache()


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Bytes (free, total): what this process could still take, and what the device has."""
    return _C.mem_get_info(_get_device_index(device, optional=True))


def memory_block(tensor: torch.Tensor) -> "dict[str, int | str] | None":
    """The block of the caching allocator that holds a tensor's storage: ``size`` and ``requested_size`` in bytes,
    ``stream_id``, and with MINITORCH_POISON=1 ``made_by``, the operator that allocated it (otherwise empty).

    None for memory that the allocator did not make: empty storages, memory adopted from elsewhere, other devices.
    """
    return _C.memory_block(tensor)


def memory_snapshot(include_traces: bool = True) -> "list[dict[str, Any]]":
    """The segments of memory taken from the system and the blocks that they are cut into, on all devices."""
    return _C.memory_snapshot(include_traces)["segments"]


def _record_memory_history(
    enabled: Literal[None, "state", "all"] = "all",
    context: Literal[None, "state", "alloc", "all"] = "all",
    stacks: Literal["python", "all"] = "all",
    max_entries: int = sys.maxsize,
    clear_history: bool = False,
) -> None:
    """Record who allocates memory ("state") and all that the allocators do ("all"); None stops and forgets.

    ``context`` says for which events the call stack is kept: of memory that is still held, of all allocations, or of
    frees as well; ``stacks="python"`` leaves C++ frames out. The latest ``max_entries`` events stay. As
    ``torch.cuda.memory._record_memory_history``.
    """
    levels = (None, "state", "alloc", "all")
    if enabled is None:
        _C.stop_memory_history()
        return
    if enabled not in ("state", "all"):
        raise ValueError(f"enabled must be None, 'state' or 'all', not {enabled!r}")
    if context not in levels:
        raise ValueError(f"context must be None, 'state', 'alloc' or 'all', not {context!r}")
    if stacks not in ("python", "all"):
        raise ValueError(f"stacks must be 'python' or 'all', not {stacks!r}")
    _C.record_memory_history(enabled == "all", levels.index(context), stacks == "all", max_entries, clear_history)


def _snapshot() -> "dict[str, Any]":
    """Segments and the recorded history, in the form of ``torch.cuda.memory._snapshot``."""
    return _C.memory_snapshot(True)


def _dump_snapshot(filename: "str | os.PathLike[str]" = "dump_snapshot.pickle") -> None:
    """Write a snapshot to a file that pytorch.org/memory_viz and ``torch.cuda._memory_viz`` read."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Allow this process ``fraction`` of the device's memory, above 0 and at most 1; more is an OutOfMemoryError."""
    if not isinstance(fraction, float | int) or isinstance(fraction, bool):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 < fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: above 0, at most 1")
    _C.set_memory_fraction(fraction, _get_device_index(device, optional=True))


def get_per_process_memory_fraction(device: Device = None) -> float:
    """The fraction of the device's memory that this process may take."""
    return _C.memory_fraction(_get_device_index(device, optional=True))


def _format_bytes(count: int) -> str:
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 10240:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}"


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """A table of the statistics; ``abbreviated`` leaves the rows of the two pools out."""
    index = _get_device_index(device, optional=True)
    stats: dict[str, Any] = memory_stats(index)
    rows = [
        ("Allocated memory", "allocated_bytes", _format_bytes),
        ("Active memory", "active_bytes", _format_bytes),
        ("Requested memory", "requested_bytes", _format_bytes),
        ("Reserved memory", "reserved_bytes", _format_bytes),
        ("Non-releasable memory", "inactive_split_bytes", _format_bytes),
        ("Allocations", "allocation", str),
        ("Active allocations", "active", str),
        ("Reserved segments", "segment", str),
        ("Non-releasable blocks", "inactive_split", str),
    ]
    pools = (
        [("", "all")] if abbreviated else [("", "all"), ("  large pool", "large_pool"), ("  small pool", "small_pool")]
    )
    rule = "|" + "=" * 76 + "|"
    lines = [
        rule,
        f"| minitorch memory summary, device {index:<41} |",
        f"| OOMs: {stats['num_ooms']:<27} | retries after emptying the cache: {stats['num_alloc_retries']:<4} |",
        rule,
        f"| {'Metric':<22} | {'Now':>10} | {'Peak':>10} | {'Allocated':>10} | {'Freed':>10} |",
    ]
    for title, key, show in rows:
        lines.append("|" + "-" * 76 + "|")
        for label, pool in pools:
            values = [show(stats[f"{key}.{pool}.{m}"]) for m in ("current", "peak", "allocated", "freed")]
            lines.append(f"| {label or title:<22} | " + " | ".join(f"{v:>10}" for v in values) + " |")
    lines.append(rule)
    return "\n".join(lines)
