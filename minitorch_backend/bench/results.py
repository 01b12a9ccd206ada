"""Result files: JSON lines. The first line says machine and versions, the second the limits, then a line a case."""

import contextlib
import json
import math
import os
import pathlib
import types
import typing
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TextIO

from minitorch_backend.bench import machine
from minitorch_backend.bench.limits import Limits
from minitorch_backend.bench.statistics import Estimate, verdict
from minitorch_backend.whole import replacing

FORMAT = 2
READABLE = (1, 2)  # 1 knew one visit a case and nothing of where the processors were


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type as dataclasses here have it: a plain one, a list or dict of them, or this | that."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return any(fits(value, one) for one in inside)
    if origin is list:
        return isinstance(value, list) and all(fits(item, inside[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(k, inside[0]) and fits(v, inside[1]) for k, v in value.items())
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return isinstance(value, kind)


def figure(text: str) -> float:
    """A number of a result file. Raises ValueError for one that no float holds, and for NaN and Infinity."""
    if not math.isfinite(found := float(text)):
        raise ValueError(f"{text[:40]} is not a figure")
    return int(text) if text.lstrip("-").isdigit() else found


def _check_types(made: Any) -> None:
    for each in fields(made):
        if not fits(value := getattr(made, each.name), each.type):
            shown = each.type.__name__ if isinstance(each.type, type) and not typing.get_args(each.type) else each.type
            raise TypeError(f"{each.name} is {value!r}, which is not {shown}")


def _check_figures(seconds: dict[str, float], ratio: float | None, low: float | None, high: float | None) -> None:
    for what, value in (*seconds.items(), ("ratio", ratio), ("high", high)):
        if value is not None and not value > 0:
            raise ValueError(f"{what} is {value!r}, not above 0")
    if low is not None and not low >= 0:
        raise ValueError(f"low is {low!r}, below 0")


@dataclass
class Visit:
    """What one visit to a case gave.

    ``placement``: how the processors lay to each other, near, far or mixed; "" where nothing moves them. ``latency``:
    nanoseconds of a cache line's round trip between them. ``seconds``: side -> median time of a call; ``times``: of
    each round. ``ratio``: the rival's time by ours, ends of its interval and error (statistics.Estimate), from the
    rounds of this visit alone; ``others`` the same for further sides. ``raced``: seconds that the rounds took.
    ``load``: as in Result. ``cache``: bytes per second that the shared cache gave (placement.SharedCache).
    """

    placement: str
    latency: float | None
    rounds: int
    seconds: dict[str, float]
    ratio: list[float]
    others: dict[str, list[float]] = field(default_factory=dict)
    raced: float = 0.0
    load: float = 0.0
    times: dict[str, list[float]] = field(default_factory=dict)
    cache: float | None = None

    def rounds_of(self, side: str) -> list[float]:
        """Those of ``times``, or the median where an older file has no more."""
        return self.times.get(side) or [self.seconds[side]]

    @property
    def estimate(self) -> Estimate:
        return Estimate(*self.ratio)

    @classmethod
    def from_json(cls, data: dict) -> "Visit":
        """Raises ValueError or TypeError for what is no visit. JSON has no infinities."""
        made = cls(**data)
        made.ratio = [math.inf if figure is None else figure for figure in made.ratio]
        made.others = {name: [math.inf if f is None else f for f in found] for name, found in made.others.items()}
        _check_types(made)
        _check_figures(made.seconds, *made.ratio[:3])
        return made


@dataclass
class Result:
    """What one case gave.

    ``status``: ok, less accurate, wrong, failed, out of memory, not reached (the work does not call a user's kernel).
    ``seconds``: side -> time of a call. ``ratio`` with ``low`` and ``high``: the rival's time by minitorch's.
    ``share``: of the limit named in ``bound``, 0 to 1. ``peak``: side -> bytes. ``errors``: side -> error relative to
    float64. ``load``: share of the processors that other programs used meanwhile; ``busy`` says that it was too much.
    ``unlike``: in what the sides' work differs. ``took``: seconds that the whole case took. ``judged``: whether errors
    and peak are there. ``placement``: of the processors in the visits that the figures are from. ``rounds``: of these.
    ``quiet``: whether nobody else used the shared cache meanwhile; None where nothing looks.
    """

    name: str
    family: str
    status: str = "ok"
    message: str = ""
    rival: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    others: dict[str, list[float]] = field(default_factory=dict)
    rounds: int = 0
    share: float | None = None
    bound: str = ""
    bytes: float | None = None
    flops: float | None = None
    dtype: str = ""
    peak: dict[str, int | None] = field(default_factory=dict)
    errors: dict[str, float | None] = field(default_factory=dict)
    unchecked: str = ""
    unlike: str = ""
    floor: float | None = None
    memory_floor: float | None = None
    load: float = 0.0
    busy: bool = False
    took: float = 0.0
    fallbacks: list[str] = field(default_factory=list)
    judged: bool = False
    placement: str = ""
    quiet: bool | None = None
    visits: list[Visit] = field(default_factory=list)

    @classmethod
    def from_json(cls, data: dict) -> "Result":
        """Raises ValueError or TypeError for what is no result."""
        made = cls(**{**data, "visits": [Visit.from_json(visit) for visit in data.get("visits", [])]})
        _check_types(made)
        _check_figures(made.seconds, made.ratio, made.low, made.high)
        return made

    @property
    def estimate(self) -> Estimate | None:
        if self.ratio is None or self.low is None or self.high is None:
            return None
        return Estimate(self.ratio, self.low, self.high)

    @property
    def timed(self) -> bool:
        return self.ratio is not None

    @property
    def below_floor(self) -> bool:
        """Whether speed or memory is short of what the case must reach."""
        slow = self.floor is not None and self.ratio is not None and self.ratio < self.floor
        memory = self.memory_ratio
        return slow or (self.memory_floor is not None and memory is not None and memory < self.memory_floor)

    @property
    def memory_ratio(self) -> float | None:
        """The rival's peak by ours; above 1 we need less. None when either is too small to see."""
        ours, rival = self.peak.get("minitorch"), self.peak.get(self.rival)
        return rival / ours if ours and rival else None


def _plain(value: Any) -> Any:
    """JSON has no infinities."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Writer:
    """Writes a result file line by line, so that an interrupted run leaves what it had.

    A case has a line after each of its visits, of which the last one counts; ``close`` leaves only that. When the disk
    is full the run goes on; ``close`` tries again, and ``problem`` says what is wrong with what is there in the end:
    whole lines always. Raises OSError when not even what is there ``before`` can be written; an older file stays then.
    """

    def __init__(self, path: pathlib.Path, facts: dict, limits: Limits, before: Iterable[Result] = ()) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path.resolve()  # what a link points at is written, and the link stays
        self.head = [{"kind": "machine", "format": FORMAT, **facts}, {"kind": "limits", **limits.to_json()}]
        self.results = {result.name: result for result in before}
        self.problem = ""
        self._write_all(self.head)
        self.file: TextIO = self.path.open("a")
        self.whole = self.path.stat().st_size  # bytes of whole lines

    def add(self, result: Result) -> None:
        self.results[result.name] = result
        if self.problem:  # nothing may follow half a line
            return
        try:
            _write(self.file, {"kind": "case", **asdict(result)})
            self.file.flush()
            self.whole = os.fstat(self.file.fileno()).st_size
        except OSError as error:
            self.problem = str(error)

    def take_limits(self, limits: Limits) -> None:
        """Others than at first; they count once the file is closed."""
        self.head[1] = {"kind": "limits", **limits.to_json()}

    def close(self, seen: dict | None = None) -> None:
        """``seen``: what the run saw of where the processors lie."""
        with contextlib.suppress(OSError):
            self.file.close()
        try:
            self._write_all([*self.head, *([{"kind": "placement", **seen}] if seen else [])])
            self.problem = ""
        except OSError as error:
            self.problem = str(error)
            with contextlib.suppress(OSError):  # nothing but whole lines stays
                os.truncate(self.path, self.whole)

    def _write_all(self, head: list[dict]) -> None:
        """The file anew, at once: head, then a line a case. Raises OSError, and the file is as it was."""
        with replacing(self.path) as part, part.open("w") as file:
            for data in head:
                _write(file, data)
            for result in self.results.values():
                _write(file, {"kind": "case", **asdict(result)})


def _write(file: TextIO, data: dict) -> None:
    file.write(json.dumps(_plain(data)) + "\n")


@dataclass
class Run:
    """A result file that was read."""

    machine: dict
    limits: Limits
    results: dict[str, Result]


def read(path: pathlib.Path) -> Run:
    """Raises ValueError, with the line, for a file that is not a result file.

    A last line that was cut off, by a process that was killed or a disk that was full, is left out.
    """
    facts: dict = {}
    limits = Limits()
    results: dict[str, Result] = {}
    try:
        lines = path.read_text().splitlines(keepends=True)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a result file: {error}") from None
    for number, line in enumerate(lines, 1):
        try:
            data = json.loads(line, parse_int=figure, parse_float=figure, parse_constant=figure)
            if not isinstance(data, dict):
                raise ValueError(f"a {type(data).__name__} is not an object")
            kind = data.pop("kind")
            if kind == "machine":
                if (found := data.pop("format")) not in READABLE:
                    raise ValueError(f"written by another version of the benchmark (its format is {found})")
                facts = data
            elif kind == "limits":
                limits = Limits.from_json(data)
                _check_types(limits)
            elif kind == "case":
                result = Result.from_json(data)
                results[result.name] = result
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if facts and not line.endswith("\n"):
                break
            raise ValueError(f"{path}:{number} is not a line of a result file: {error}") from error
    if not facts:
        raise ValueError(f"{path} is not a result file: it does not say what machine it is from")
    return Run(facts, limits, results)


@dataclass(frozen=True)
class Change:
    """One case in two runs.

    ``verdict``: slower, faster, same, broken (failed now, did not before), new, or apart (not to be compared: the
    processors were near each other in one run only).
    """

    name: str
    old: float | None
    new: float | None
    verdict: str

    @property
    def regression(self) -> bool:
        return self.verdict in ("slower", "broken")


def compare(old: Run, new: Run) -> list[Change]:
    """The cases of the new run against the old one, by their ratios to the rival measured beside them.

    Ratios, because both sides of one feel what the machine does at the time. Cases that only the old run has are not
    listed: a run may be of a few cases.
    """
    changes = []
    for name, now in new.results.items():
        before = old.results.get(name)
        if before is None:
            changes.append(Change(name, None, now.ratio, "new"))
        elif before.estimate is None:
            changes.append(Change(name, before.ratio, now.ratio, "new"))
        elif now.estimate is None or (now.status == "wrong" and before.status != "wrong"):
            changes.append(Change(name, before.ratio, now.ratio, "broken"))
        elif before.placement and now.placement and before.placement != now.placement:
            changes.append(Change(name, before.ratio, now.ratio, "apart"))
        else:
            changes.append(Change(name, before.ratio, now.ratio, verdict(now.estimate, before.estimate)))
    return changes


def sides(run: Run) -> dict:
    """Who raced in a run, as its first line says, or its cases where that is from before it did."""
    rival = next((r.rival for r in run.results.values() if r.rival), None)
    last = next((list(r.seconds)[-1] for r in run.results.values() if r.seconds), "minitorch")
    return {key: run.machine.get(key, found) for key, found in (("rival", rival), ("ours", last), ("kernel", None))}


def refuse(old: Run, new: Run) -> str:
    """Why two runs should not be compared; "" when they may."""
    found = machine.differences(old.machine | sides(old), new.machine | sides(new))
    return "the runs are not from the same machine and versions: " + "; ".join(found) if found else ""
