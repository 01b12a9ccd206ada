"""A whole run: every case is visited several times, in passes over all of them, while the processors are near.

What disturbs one visit, a slow neighbour or memory that lies badly, is gone a pass later. Where a process got its
memory moves all its ratios alike, so a pass is best made in a process of its own: a run ends early, to be gone on with
by the next process (supervisor.py), when it has made a pass and worked for a while. How often a case is visited
depends on how unsure its ratio is: two visits tell some by a percent, and others are as far apart after ten. While the
processors are far apart (placement.py) results are judged, which takes no clock; when nothing is left to judge, the run
waits, within bounds. Cases that were never met near are visited as the processors lie in the end.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from minitorch_backend.bench import statistics
from minitorch_backend.bench.case import Case
from minitorch_backend.bench.limits import Limits
from minitorch_backend.bench.placement import FAR, LOOK_AGAIN, NEAR
from minitorch_backend.bench.results import Result
from minitorch_backend.bench.runner import Runner, counts

SHIFT = 10.0  # seconds that a process of a run works at least, since starting one takes two or three
PASSES = 3  # that it makes at most
NEAR_PROCESSORS, QUIET_CACHE = "near processors", "a quiet cache"  # what a run waits for
MOST_MISSED = 3  # visits to one case that did not stay with near processors


@dataclass
class Suite:
    """``results``: name -> what is known, which a resumed run begins with. ``least_wait``: seconds that the run may
    wait in any case, besides the budget's share of its time. ``tell(text, done)``: what comes, and how many of
    ``visits`` are done. ``store(result)`` keeps a result. ``note(name)`` is told the case that is at work, "" after it.
    ``clock``: seconds, the same in every process. ``shift``: seconds after which the work is left to the next process.
    """

    runner: Runner
    cases: list[Case]
    results: dict[str, Result] = field(default_factory=dict)
    least_wait: float = 30.0
    tell: Callable[[str, int], None] = lambda text, done: None
    store: Callable[[Result], None] = lambda result: None
    note: Callable[[str], None] = lambda name: None
    clock: Callable[[], float] = time.monotonic
    shift: float = math.inf
    missed: dict[str, int] = field(default_factory=dict)
    waited: dict[str, float] = field(default_factory=lambda: dict.fromkeys((NEAR_PROCESSORS, QUIET_CACHE), 0.0))
    interrupted: bool = False
    unfinished: bool = False
    start: float = math.nan

    @property
    def visits(self) -> int:
        """How many visits the run has, as far as can be told: at least one more to every case that wants one."""
        return sum(self._visits_of(self._result(case)) for case in self.cases)

    @property
    def done(self) -> int:
        """How many of them were made or are not needed any more."""
        found = [self._result(case) for case in self.cases]
        return sum(good_visits(r) if self._is_due(r) else self._visits_of(r) for r in found)

    @property
    def finished(self) -> int:
        """How many cases need no visit any more."""
        return sum(not self._due(case) for case in self.cases)

    def _visits_of(self, result: Result) -> int:
        return max(self._fewest, good_visits(result) + self._is_due(result))

    @property
    def _fewest(self) -> int:
        return min(self.runner.budget.fewest, self.runner.budget.visits)

    @property
    def in_time(self) -> bool:
        """Whether the run's time is not over."""
        return not self.clock() - self.start > self.runner.budget.run

    def _wants(self, result: Result) -> bool:
        return self.runner.wants(result, self.in_time)

    def begin(self) -> None:
        """From here on the run's time counts, unless it began in an earlier process."""
        self.start = self.clock() if math.isnan(self.start) else self.start

    def run(self) -> None:
        begun, watch, first, last = self.clock(), self.runner.watch, math.inf, -1
        self.begin()
        while due := [case for case in self.cases if self._due(case)]:
            turn = min(map(self._turn, due))
            if turn > last:  # a pass begins, here or in this process
                self._learn()
                last = turn
            first = min(first, turn)
            if self.shift < math.inf and (
                turn >= first + PASSES or (turn > first and self.clock() - begun >= self.shift)
            ):
                self.unfinished = True
                return
            lacking = self._lacking()
            if lacking and (unjudged := [case for case in due if not self._result(case).judged]):
                self._judge(unjudged[0])
            elif lacking and self._may_wait(lacking):
                self.tell(f"waiting for {lacking}, {len(due)} cases to go", self.done)
                watch.sleep(LOOK_AGAIN)
                self.waited[lacking] += LOOK_AGAIN
            elif lacking == NEAR_PROCESSORS:
                break
            else:
                self._visit(min(due, key=self._turn))
        for case in self.cases:
            while not good_visits(self._result(case)) and self._wants_any(self._result(case)):
                self._visit(case)
        self._learn()
        if watch and watch.one_state:
            self._call_far_near()
        for case in self.cases:  # all by what was known in the end
            if (result := self._result(case)).visits:
                self.runner.conclude(case, result)
                self.store(result)

    def _learn(self) -> None:
        """What visits to the same case differ by in this run, for intervals from now on."""
        if self.runner.budget.apart > 0:
            visits = [[v.estimate for v in self.runner.chosen(result) if counts(v)] for result in self.results.values()]
            self.runner.apart = statistics.apart_of(visits, self.runner.budget.apart)

    def carry(self) -> dict:
        """What the next process must know besides the results, as JSON has it."""
        watch = self.runner.watch
        return {
            "start": self.start, "waited": self.waited, "missed": self.missed,
            "watch": watch and {"start": watch.start, "latencies": watch.latencies},
        }  # fmt: skip

    def take(self, carried: dict) -> None:
        """Go on from what the process before carried."""
        self.start, self.waited, self.missed = carried["start"], carried["waited"], carried["missed"]
        if (watch := self.runner.watch) and carried["watch"]:
            watch.start, watch.latencies = carried["watch"]["start"], carried["watch"]["latencies"]
            watch.lowest = min(watch.latencies, default=math.inf)

    def take_limits(self, limits: Limits) -> None:
        """Shares of other limits than at first."""
        self.runner.limits = limits
        for case in self.cases:
            self.runner.conclude(case, self._result(case))

    def _lacking(self) -> str:
        """What a visit had better wait for; "" when there is nothing."""
        watch = self.runner.watch
        if watch is None:
            return ""
        if watch.of(watch.look()) == FAR:
            return NEAR_PROCESSORS
        return "" if watch.cache is None or self.runner.reads_quietly(watch.cache.rate()) else QUIET_CACHE

    def _may_wait(self, lacking: str) -> bool:
        budget, taken = self.runner.budget, self.clock() - self.start
        if lacking == QUIET_CACHE:
            return self.waited[lacking] < budget.calm * taken
        return (self.in_time or not budget.hurry) and self.waited[lacking] < max(self.least_wait, budget.wait * taken)

    def _result(self, case: Case) -> Result:
        if case.full_name not in self.results:
            self.results[case.full_name] = self.runner.start(case)
        return self.results[case.full_name]

    def _due(self, case: Case) -> bool:
        return self._is_due(self._result(case))

    def _is_due(self, result: Result) -> bool:
        return self.missed.get(result.name, 0) < MOST_MISSED and self._wants(result)

    def _turn(self, case: Case) -> int:
        return good_visits(self._result(case)) + self.missed.get(case.full_name, 0)

    def _wants_any(self, result: Result) -> bool:
        return self._wants(result) and len(result.visits) < self._fewest

    def _visit(self, case: Case) -> None:
        result = self._result(case)
        self.tell(case.full_name, self.done)
        before = good_visits(result)
        self.note(case.full_name)
        self.runner.visit(case, result)
        self.note("")
        if good_visits(result) == before:
            self.missed[case.full_name] = self.missed.get(case.full_name, 0) + 1
        self.store(result)

    def _judge(self, case: Case) -> None:
        self.tell(f"{case.full_name}, its results", self.done)
        self.note(case.full_name)
        self.runner.judge(case, self._result(case))
        self.note("")
        self.store(self._result(case))

    def _call_far_near(self) -> None:
        """On a machine that was never nearer, its only state is as near as it gets."""
        for case in self.cases:
            for visit in self._result(case).visits:
                visit.placement = NEAR if visit.placement == FAR else visit.placement


def good_visits(result: Result) -> int:
    return sum(map(counts, result.visits))
