"""What a comparison keeps: statistics per operator, a timeline, the worst calls and the findings, in bounded memory.

A million calls leave as much behind as a thousand: statistics stream, the timeline halves its resolution when it is
full, of the calls only the worst are kept, and findings are grouped by operator, verdict and phase.
"""

import heapq
import itertools
import math
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from minitorch_backend.compare import judge

TIMELINE_POINTS = 4096
MOST_FINDINGS = 200
SEVERITY = {
    judge.SUBJECT_RAISED: 6, judge.REFERENCE_RAISED: 5, judge.METADATA: 5, judge.SUBJECT_WORSE: 4,
    judge.REFERENCE_WORSE: 4, judge.NONDETERMINISTIC: 3, judge.MISSING: 2, judge.BOTH_POOR: 1,
}  # fmt: skip


@dataclass
class Call:
    """One operator call that a report shows. Errors are those of its worst result; NaN where none was measured."""

    index: int
    op: str
    verdict: str
    phase: str
    step: int
    module: str
    stack: list[str]
    forward: int
    forward_stack: list[str]
    inputs: str
    outputs: str
    detail: str = ""
    subject_ulp: float = math.nan
    reference_ulp: float = math.nan
    subject_norm: float = math.nan
    reference_norm: float = math.nan
    subject_relative: float = math.nan
    reference_relative: float = math.nan
    distance_ulp: float = math.nan
    local: float = math.nan  # relative distance of subject and reference on the same inputs
    inherited: float = math.nan  # relative distance of subject and native shadow
    condition: float = math.nan
    result: int = 0

    @property
    def side(self) -> str:
        """Which side the verdict blames."""
        if self.verdict in (judge.SUBJECT_WORSE, judge.SUBJECT_RAISED, judge.NONDETERMINISTIC, judge.METADATA):
            return "subject"
        return "reference" if self.verdict in (judge.REFERENCE_WORSE, judge.REFERENCE_RAISED, judge.MISSING) else "both"


@dataclass
class Finding:
    """All calls of one operator, in one phase, with one bad verdict; `first` is the earliest of them."""

    first: Call
    count: int = 1
    last: int = 0
    replay: str | None = None
    command: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "side": self.first.side}


@dataclass
class OperatorStatistics:
    """What streamed by of one operator."""

    calls: int = 0
    compared: int = 0
    judged: int = 0  # calls with an arbiter
    verdicts: Counter = field(default_factory=Counter)
    subject_ulp: float = 0.0
    reference_ulp: float = 0.0
    distance_ulp: float = 0.0
    local: float = 0.0
    inherited: float = 0.0
    seconds: float = 0.0
    subject_histogram: list[int] = field(default_factory=lambda: [0] * judge.BINS)
    reference_histogram: list[int] = field(default_factory=lambda: [0] * judge.BINS)

    def add_errors(self, subject: judge.Errors | None, reference: judge.Errors | None) -> None:
        if subject is not None:
            self.subject_ulp = max(self.subject_ulp, subject.max_ulp)
            self.subject_histogram = [a + b for a, b in zip(self.subject_histogram, subject.histogram, strict=True)]
        if reference is not None:
            self.reference_ulp = max(self.reference_ulp, reference.max_ulp)
            self.reference_histogram = [
                a + b for a, b in zip(self.reference_histogram, reference.histogram, strict=True)
            ]


class Timeline:
    """Largest local and inherited error per stretch of calls; stretches double when there are too many."""

    def __init__(self, points: int = TIMELINE_POINTS) -> None:
        self.points, self.width = points, 1
        self.local: list[float] = []
        self.inherited: list[float] = []
        self.ops: list[str] = []  # the operator with the largest local error of the stretch

    def add(self, index: int, op: str, local: float, inherited: float) -> None:
        slot = index // self.width
        while slot >= self.points:
            self.halve()
            slot = index // self.width
        missing = slot + 1 - len(self.local)
        if missing > 0:
            self.local += [0.0] * missing
            self.inherited += [0.0] * missing
            self.ops += [""] * missing
        if local > self.local[slot] or not self.ops[slot]:
            self.local[slot], self.ops[slot] = max(local, self.local[slot]), op
        if inherited > self.inherited[slot]:
            self.inherited[slot] = inherited

    def halve(self) -> None:
        self.width *= 2
        pairs = range(0, len(self.local), 2)
        keep = [i + (i + 1 < len(self.local) and self.local[i + 1] > self.local[i]) for i in pairs]
        self.ops = [self.ops[i] for i in keep]
        self.local = [max(self.local[i : i + 2]) for i in pairs]
        self.inherited = [max(self.inherited[i : i + 2]) for i in pairs]


class Store:
    """Everything that a report is made of."""

    def __init__(self, keep: int = 200) -> None:
        self.keep = keep
        self.calls = 0
        self.compared = 0
        self.ops: dict[str, OperatorStatistics] = {}
        self.verdicts: Counter = Counter()
        self.findings: dict[tuple[str, str, str], Finding] = {}
        self.findings_lost = 0
        self.timeline = Timeline()
        self.notes: list[str] = []
        self.first_inherited: dict[str, Any] | None = None
        self._heap: list[tuple[float, int, Call]] = []
        self._order = itertools.count()

    def statistics(self, op: str) -> OperatorStatistics:
        found = self.ops.get(op)
        if found is None:
            found = self.ops[op] = OperatorStatistics()
        return found

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def wants(self, score: float) -> bool:
        """Whether a call with this score would be kept."""
        return self.keep > 0 and (len(self._heap) < self.keep or score > self._heap[0][0])

    def add_kept(self, score: float, call: Call) -> None:
        entry = (score, -next(self._order), call)
        if len(self._heap) < self.keep:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    def find(self, op: str, verdict: str, phase: str) -> Finding | None:
        """The finding that a call belongs to, counted; None when it is the first of its kind."""
        found = self.findings.get((op, verdict, phase))
        if found is not None:
            found.count += 1
        return found

    def add_finding(self, call: Call) -> Finding | None:
        if len(self.findings) >= MOST_FINDINGS:
            self.findings_lost += 1
            return None
        found = self.findings[call.op, call.verdict, call.phase] = Finding(call, 1, call.index)
        return found

    def kept(self) -> list[Call]:
        """The calls kept, worst first."""
        return [call for _, _, call in sorted(self._heap, key=lambda e: (-e[0], -e[1]))]

    def sorted_findings(self) -> list[Finding]:
        """In the order in which they began; what raises or differs in kind is not mixed with what follows from it."""
        return sorted(self.findings.values(), key=lambda f: f.first.index)
