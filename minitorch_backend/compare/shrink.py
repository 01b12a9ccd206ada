"""``minitorch shrink``: makes a replay file smaller while its verdict holds.

Greedy, in the manner of delta debugging: each reduction is tried alone and kept if the verdict stays the same, until
none helps. Sizes come first (a dimension becomes 1, is halved, or lowered by one, in all arguments that have it), then
optional arguments, then layout (offset and strides to the plain ones), then values (zeros, ones, integers, by halves).
"""

import itertools
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import click
import torch
from torch import Tensor

from minitorch_backend.compare.replay import load, source
from minitorch_backend.compare.replay_runtime import Case, Window, judge_case, settings

MOST_TRIES = 400


def windows(case: Case) -> list[Window]:
    """The distinct tensors of a case."""
    found: dict[Window, None] = {}

    def look(value: Any) -> None:
        if isinstance(value, Window):
            found[value] = None
        elif isinstance(value, (list, tuple)):
            for v in value:
                look(v)

    look([case.args, list(case.kwargs.values())])
    return list(found)


def values(case: Case, window: Window) -> Tensor:
    """The values of a tensor, on the host, plainly laid out."""
    data = torch.frombuffer(bytearray(case.storages[window.storage] or b"\0"), dtype=torch.uint8)
    t = torch.empty(0, dtype=window.dtype)
    return t.set_(data.untyped_storage(), window.offset, window.shape, window.stride).clone(
        memory_format=torch.contiguous_format
    )


def substitute(value: Any, swap: dict[Window, Any]) -> Any:
    if isinstance(value, Window):
        return swap.get(value, value)
    if isinstance(value, (list, tuple)):
        return type(value)(substitute(v, swap) for v in value)
    return value


def rebuilt(case: Case, new: dict[Window, Tensor]) -> Case:
    """The case with tensors replaced, each on a storage of its own; tensors that share a storage keep their layout."""
    swap, storages = {}, dict(case.storages)
    for i, (window, t) in enumerate(new.items()):
        name = f"{window.storage}_{i}" if shared(case, window) else window.storage
        flat = t.contiguous().reshape(-1).view(torch.uint8) if t.numel() else torch.empty(0, dtype=torch.uint8)
        storages[name] = flat.numpy().tobytes()
        swap[window] = Window(name, t.dtype, tuple(t.shape), t.contiguous().stride(), 0)
    args = substitute(case.args, swap)
    kwargs = {k: substitute(v, swap) for k, v in case.kwargs.items()}
    result = replace(case, args=args, kwargs=kwargs)
    used = {w.storage for w in windows(result)}
    result.storages = {n: d for n, d in storages.items() if n in used}
    return result


def shared(case: Case, window: Window) -> bool:
    return sum(w.storage == window.storage for w in windows(case)) > 1


def with_layout(t: Tensor, window: Window) -> Tensor:
    """The tensor with dimensions in the memory order of the window's strides."""
    order = sorted(range(t.dim()), key=lambda d: -window.stride[d])
    inverse = [order.index(d) for d in range(t.dim())]
    return t.permute(order).contiguous().permute(inverse)


def sizes(case: Case) -> Iterator[Case]:
    """Cases in which one size is smaller, in all tensors and integer lists that have it."""
    found = windows(case)
    lengths = sorted({n for w in found for n in w.shape if n > 1}, reverse=True)
    for n in lengths:
        for smaller in dict.fromkeys((1, n // 2, n - 1)):
            if not 1 <= smaller < n:
                continue
            places = [(w, d) for w in found for d, length in enumerate(w.shape) if length == n]
            # All dimensions of that length together, then each tensor's, then each alone.
            by_window = [[p for p in places if p[0] is w] for w in dict.fromkeys(w for w, _ in places)]
            for chosen in [
                places,
                *([] if len(by_window) == 1 else by_window),
                *([p] for p in places if len(places) > 1),
            ]:
                yield resized(case, chosen, n, smaller)


def resized(case: Case, places: list[tuple[Window, int]], n: int, smaller: int) -> Case:
    """The case with these dimensions cut from n; integers that may be indices into them stay within."""
    new: dict[Window, Tensor] = {}
    for window, d in places:
        t = new[window] if window in new else values(case, window)
        new[window] = t.narrow(d, 0, smaller)
    for window in windows(case):
        if window.dtype in (torch.int64, torch.int32):
            t = new[window] if window in new else values(case, window)
            if t.numel() and smaller <= int(t.max()) < n:
                new[window] = t.clamp(max=smaller - 1)
    result = rebuilt(case, new)
    swap = restrided(result, new)
    args = [lengths_in(substitute(a, swap), n, smaller) for a in result.args]
    kwargs = {k: lengths_in(substitute(v, swap), n, smaller) for k, v in result.kwargs.items()}
    return replace(result, args=args, kwargs=kwargs)


def restrided(result: Case, new: dict[Window, Tensor]) -> dict[Window, Window]:
    """Keeps a permuted layout permuted: windows of the new case with strides in the old order."""
    swap: dict[Window, Window] = {}
    now = windows(result)
    for window, t in new.items():
        like = with_layout(t, window)
        if not like.is_contiguous():
            for w in now:
                if w.storage.startswith(window.storage) and w.shape == tuple(t.shape) and w.dtype == t.dtype:
                    buffer = torch.empty(t.numel(), dtype=t.dtype)
                    torch.as_strided(buffer, t.shape, like.stride()).copy_(t)
                    result.storages[w.storage] = buffer.view(torch.uint8).numpy().tobytes()
                    swap[w] = Window(w.storage, w.dtype, w.shape, tuple(like.stride()), 0)
    return swap


def lengths_in(value: Any, n: int, smaller: int) -> Any:
    """Lists of lengths (of a view, of an expand) follow a size that became smaller."""
    if isinstance(value, list) and value and all(type(v) is int for v in value):
        return [smaller if v == n else v for v in value]
    return value


def layouts(case: Case) -> Iterator[Case]:
    """Cases in which one tensor lies in memory plainly, without offset."""
    for w in windows(case):
        plain = torch.empty(w.shape, device="meta").stride() == w.stride and w.offset == 0
        size = w.dtype.itemsize
        for d in w.shape:
            size *= d
        if not plain or (not shared(case, w) and size < len(case.storages[w.storage])):
            yield rebuilt(case, {w: values(case, w)})


def arguments(case: Case) -> Iterator[Case]:
    """Cases without an optional argument, and with lists of tensors halved."""
    for name in case.kwargs:
        yield replace(case, kwargs={k: v for k, v in case.kwargs.items() if k != name})
    for i, value in enumerate(case.args):
        if isinstance(value, list) and len(value) > 1 and all(isinstance(v, Window) for v in value):
            same = [k for k, v in enumerate(case.args) if isinstance(v, list) and len(v) == len(value)]
            for part in (slice(0, len(value) // 2), slice(len(value) // 2, None)):
                args = [v[part] if k in same else v for k, v in enumerate(case.args)]
                yield pruned(replace(case, args=args))
        elif isinstance(value, Window):
            yield pruned(replace(case, args=[None if k == i else v for k, v in enumerate(case.args)]))


def pruned(case: Case) -> Case:
    used = {w.storage for w in windows(case)}
    return replace(case, storages={n: d for n, d in case.storages.items() if n in used})


def simpler(case: Case) -> Iterator[Case]:
    """Cases in which the values of one tensor, or of half of it, are simple ones."""
    for w in windows(case):
        if shared(case, w) or not w.dtype.is_floating_point:
            continue
        t = values(case, w)
        flat = t.reshape(-1)
        half = flat.numel() // 2
        for chosen in (slice(None), *([slice(0, half), slice(half, None)] if half else [])):
            for make in (
                torch.zeros_like,
                torch.ones_like,
                lambda x: x.round(),
                lambda x: x.to(torch.bfloat16).to(x.dtype),
            ):
                new = flat.clone()
                new[chosen] = make(flat[chosen])
                if not torch.equal(torch.nan_to_num(new), torch.nan_to_num(flat)):
                    swapped = rebuilt(case, {w: new.view(t.shape)})
                    yield replace(swapped) if w.stride == t.stride() else kept_layout(case, w, new.view(t.shape))


def kept_layout(case: Case, w: Window, t: Tensor) -> Case:
    """The case with other values in a tensor that stays where it is in memory."""
    data = torch.frombuffer(bytearray(case.storages[w.storage]), dtype=torch.uint8)
    torch.empty(0, dtype=w.dtype).set_(data.untyped_storage(), w.offset, w.shape, w.stride).copy_(t)
    return replace(case, storages={**case.storages, w.storage: data.numpy().tobytes()})


def measure(case: Case) -> tuple[int, int, int, int]:
    """What shrinking makes smaller: bytes, elements, unusual layouts, and how much the bytes say."""
    import zlib

    found = windows(case)
    elements = sum(torch.Size(w.shape).numel() for w in found)
    odd = sum(torch.empty(w.shape, device="meta").stride() != w.stride or w.offset != 0 for w in found)
    packed = sum(len(zlib.compress(d)) for d in case.storages.values())
    return sum(map(len, case.storages.values())), elements, odd + len(found) + len(case.kwargs), packed


def shrink_case(case: Case, holds: Callable[[Case], bool], tries: int = MOST_TRIES) -> tuple[Case, int]:
    """The smallest case found for which `holds` is true, and the number of cases tried."""
    count = 0
    improved = True
    while improved and count < tries:
        improved = False
        for family in (sizes, arguments, layouts, simpler):
            again = True
            while again and count < tries:
                again = False
                for candidate in itertools.islice(family(case), tries - count):
                    if not measure(candidate) < measure(case) and sum(measure(candidate)) >= sum(measure(case)):
                        continue
                    count += 1
                    if holds(candidate):
                        case, again, improved = candidate, True, True
                        break
                    if count >= tries:
                        break
    return case, count


def shrink_file(
    file: pathlib.Path, output: pathlib.Path, subject: str | None = None, reference: str | None = None
) -> tuple[Case, Case, int]:
    """Shrink a replay file into another; (before, after, tries). Raises ValueError when its verdict does not hold."""
    case, recorded_subject, recorded_reference = load(file)
    subject, reference = subject or recorded_subject, reference or recorded_reference
    first = judge_case(case, subject, reference)
    if first.verdict != case.verdict:
        raise ValueError(f"the verdict does not hold: recorded {case.verdict!r}, now {first.verdict!r}")

    def holds(candidate: Case) -> bool:
        try:
            with settings(candidate.flags):
                return judge_case(candidate, subject, reference).verdict == case.verdict
        except Exception:
            return False

    small, count = shrink_case(case, holds)
    last = judge_case(small, subject, reference)
    words = {
        "verdict": last.verdict,
        "detail": last.detail or (f"{last.subject.max_ulp:.4g} ulp" if last.subject else ""),
        "where": f"Shrunk from {file.name}.",
    }
    output.write_text(source(small, output, subject, reference, words))
    return case, small, count


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Default: FILE with .small.py at its end.")
@click.option("--subject", help="Device in question; default: the file's.")
@click.option("--reference", help="Device to hold it against; default: the file's.")
def shrink(file: str, output: str | None, subject: str | None, reference: str | None) -> None:
    """Make a replay FILE smaller (sizes, values, strides) while its verdict holds."""
    path = pathlib.Path(file)
    target = pathlib.Path(output) if output else path.with_suffix(".small.py")
    try:
        before, after, count = shrink_file(path, target, subject, reference)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    (bytes_before, elements_before, *_), (bytes_after, elements_after, *_) = measure(before), measure(after)
    click.echo(
        f"{elements_before} elements in {bytes_before} bytes, now {elements_after} in {bytes_after}; {count} tries"
    )
    click.echo(str(target))
