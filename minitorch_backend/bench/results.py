"""Result files: JSON lines. The first line says machine and versions, the second the limits, then a line a case."""

import json
import math
import pathlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

from minitorch_backend.bench import machine
from minitorch_backend.bench.limits import Limits
from minitorch_backend.bench.statistics import Estimate, verdict

FORMAT = 1


@dataclass
class Result:
    """What one case gave.

    ``status``: ok, less accurate, wrong, failed, out of memory. ``seconds``: side -> median time of a call. ``ratio``
    with ``low`` and ``high``: the rival's time by minitorch's. ``share``: of the limit named in ``bound``, 0 to 1.
    ``peak``: side -> bytes. ``errors``: side -> error relative to float64. ``load``: share of the processors that
    other programs used meanwhile; ``busy`` says that it was too much. ``took``: seconds that the whole case took.
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
    floor: float | None = None
    memory_floor: float | None = None
    load: float = 0.0
    busy: bool = False
    took: float = 0.0
    fallbacks: list[str] = field(default_factory=list)

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
    """Writes a result file line by line, so that an interrupted run leaves what it had."""

    def __init__(self, path: pathlib.Path, facts: dict, limits: Limits, before: Iterable[Result] = ()) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file: TextIO = path.open("w")
        self._line({"kind": "machine", "format": FORMAT, **facts})
        self._line({"kind": "limits", **limits.to_json()})
        for result in before:
            self.add(result)

    def _line(self, data: dict) -> None:
        self.file.write(json.dumps(_plain(data)) + "\n")
        self.file.flush()

    def add(self, result: Result) -> None:
        self._line({"kind": "case", **asdict(result)})

    def close(self) -> None:
        self.file.close()


@dataclass
class Run:
    """A result file that was read."""

    machine: dict
    limits: Limits
    results: dict[str, Result]


def read(path: pathlib.Path) -> Run:
    """Raises ValueError, with the line, for a file that is not a result file."""
    facts: dict = {}
    limits = Limits()
    results: dict[str, Result] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            data = json.loads(line)
            kind = data.pop("kind")
            if kind == "machine":
                if data.pop("format") != FORMAT:
                    raise ValueError(f"written by another version of the benchmark (format is not {FORMAT})")
                facts = data
            elif kind == "limits":
                limits = Limits.from_json(data)
            elif kind == "case":
                result = Result(**data)
                results[result.name] = result
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}:{number} is not a line of a result file: {error}") from error
    if not facts:
        raise ValueError(f"{path} is not a result file: it does not say what machine it is from")
    return Run(facts, limits, results)


@dataclass(frozen=True)
class Change:
    """One case in two runs. ``verdict``: slower, faster, same, broken (failed now, did not before), gone, new."""

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
        elif before.estimate is None or before.rival != now.rival:
            changes.append(Change(name, before.ratio, now.ratio, "new"))
        elif now.estimate is None or (now.status == "wrong" and before.status != "wrong"):
            changes.append(Change(name, before.ratio, now.ratio, "broken"))
        else:
            changes.append(Change(name, before.ratio, now.ratio, verdict(now.estimate, before.estimate)))
    return changes


def refuse(old: Run, new: Run) -> str:
    """Why two runs should not be compared; "" when they may."""
    found = machine.differences(old.machine, new.machine)
    return "the runs are not from the same machine and versions: " + "; ".join(found) if found else ""
