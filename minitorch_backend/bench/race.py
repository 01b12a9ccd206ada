"""The race itself: blocks of calls on each side in turns, after a warm-up, until the ratio is known well enough."""

import contextlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np

from minitorch_backend.bench import statistics
from minitorch_backend.bench.case import Work
from minitorch_backend.bench.clock import Clock
from minitorch_backend.bench.placement import FAR, MIXED, NEAR, Placement

STABLE = 0.05  # a warm-up ends when two blocks differ by less
# ... and not before so many calls: until the small bins of the C library's heap are full, what is cut off native's
# blocks stays there, and every call takes fresh pages.
WARM_CALLS = 24
SLOW_CALLS = 6  # that have to do when the time is up and no two blocks were alike


@dataclass(frozen=True)
class Budget:
    """How much time a case may take.

    A case is visited over and over, set up anew each time, until its ratio's interval has a half width of ``precise``:
    at least ``fewest`` times and at most ``visits`` times, or until it was raced for ``enough`` seconds, or until the
    whole run has taken ``run`` seconds. Of a visit: ``block``: seconds of a block at least. ``rounds``: at least so
    many. ``target``: half width of the ratio's interval at which it ends. ``seconds``: when it ends in any case, once
    ``least`` rounds are there; visits are short and many, since the same case differs more from one to the next than
    within one. ``warm``: seconds of a warm-up at most. ``apart``: standard deviation, as a share, that visits of the
    same code are known to differ by. ``wait``: share of its time that a run may wait for the processors to be near.
    ``hurry``: when the run's time is over, one visit is enough, wherever the processors lay, and nothing waits.
    ``quiet``: visits to a quiet cache that do instead of ``fewest``. ``calm``: share of its time that a run may wait
    for it to be quiet.
    """

    block: float = 0.015
    rounds: int = 10
    target: float = 0.01
    seconds: float = 0.4
    least: int = 4
    warm: float = 0.4
    fewest: int = 2
    visits: int = 36
    precise: float = 0.025
    enough: float = 25.0
    run: float = 1000.0
    apart: float = statistics.APART
    wait: float = 0.2
    hurry: bool = False
    quiet: int = 2
    calm: float = 0.1


QUICK = Budget(
    block=0.01, rounds=7, target=0.03, seconds=0.45, least=3, warm=0.2, visits=2, run=120.0, hurry=True, calm=0.0
)  # fmt: skip
# Most cases keep their ratio within a percent from run to run, whatever ends their visits. Those that wait for a cache
# which other guests of the processor share do not: a lucky interval after a few visits would end them.
THOROUGH = Budget(fewest=12, visits=120, enough=40.0, run=3600.0, quiet=4, calm=0.5)
# On a GPU nothing moves and the clock is the GPU's own: one visit.
GPU = Budget(block=0.02, rounds=15, seconds=2.0, least=5, warm=0.6, visits=1, apart=0.0)
GPU_QUICK = Budget(block=0.01, rounds=9, target=0.03, seconds=1.0, least=3, warm=0.3, visits=1, apart=0.0)
GPU_THOROUGH = Budget(block=0.02, rounds=45, target=0.005, seconds=6.0, least=5, warm=0.6, visits=1, apart=0.0)


def budget_for(backend: str, quick: bool = False, thorough: bool = False) -> Budget:
    if backend == "cpu":
        return QUICK if quick else THOROUGH if thorough else Budget()
    return GPU_QUICK if quick else GPU_THOROUGH if thorough else GPU


@dataclass
class Lane:
    """One runner: work, the clock that times it, and what must be in force while it runs."""

    work: Work
    clock: Clock
    active: Callable[[], AbstractContextManager] = contextlib.nullcontext
    calls: int = 1
    times: list[float] = field(default_factory=list)

    def block(self, calls: int) -> float:
        with self.active():
            return self.clock.measure(self.work, calls)

    def warm_up(self, budget: Budget) -> None:
        """Run until two blocks take the same time, then settle how many calls make a block.

        The first call, which may compile or allocate, tells nothing of the others and counts for nothing. Calls so slow
        that the time is up before two blocks are alike go on until two are, but not beyond ``SLOW_CALLS``.
        """
        self.block(1)
        spent = before = self.block(1)
        calls, done = 1, 2
        while True:
            if calls * before < budget.block / 4:
                calls = max(calls + 1, int(budget.block / 4 / max(before, 1e-8)))
            now = self.block(calls)
            spent += now * calls
            done += calls
            alike = abs(now - before) <= STABLE * before
            before = now
            if (alike and done >= WARM_CALLS) or (spent >= budget.warm and (alike or done >= SLOW_CALLS)):
                break
        self.calls = max(1, round(budget.block / max(before, 1e-8)))


@dataclass
class Rounds:
    """The rounds of a visit that count: all in one placement of the processors."""

    placement: str  # near, far, mixed; "" where nothing moves them
    latency: float | None  # median round trip of a cache line, in seconds
    times: list[list[float]]  # lane by lane
    cache: float | None = None  # bytes per second that the shared cache gave, before or after: the lower

    @property
    def count(self) -> int:
        return len(self.times[0])


def run(lanes: list[Lane], budget: Budget, watch: Placement | None = None) -> Rounds:
    """Race the lanes. Lane 0 is the rival whose ratio to the last lane decides when it is enough.

    In every round each lane runs one block; the order is turned around from round to round, so that each is as often
    the one that finds the caches as the other left them. A visit that finds the processors far apart is a short one:
    another will come.
    """
    cache = watch.cache if watch else None
    rate = cache.rate() if cache else math.nan
    for lane in lanes:
        lane.warm_up(budget)
    spent, look = 0.0, budget.rounds
    latencies = [watch.look()] if watch else []
    states: list[str] = []
    for number in range(10_000):
        for lane in lanes if number % 2 == 0 else lanes[::-1]:
            lane.times.append(lane.block(lane.calls))
            spent += lane.times[-1] * lane.calls
        if watch:
            latencies.append(watch.look())
            states.append(watch.of(*latencies[-2:]))
        done = number + 1
        if done >= budget.least and (spent >= budget.seconds or states[-budget.least :] == [FAR] * budget.least):
            break
        if done >= look:
            kept = _choose(lanes, states, latencies, budget)
            width = max(statistics.ratio(kept.times[0], times).half_width for times in kept.times[1:])
            if width <= budget.target and kept.count >= budget.rounds:
                break
            look = int(done * 1.3)  # a look takes milliseconds itself
    found = _choose(lanes, states, latencies, budget)
    found.cache = min(rate, cache.rate()) if cache else None
    return found


def _choose(lanes: list[Lane], states: list[str], latencies: list[float], budget: Budget) -> Rounds:
    """The rounds with near processors, or else those with far ones, if there are enough; or else all."""
    if not states:
        return Rounds("", None, [lane.times for lane in lanes])
    for state in (NEAR, FAR):
        chosen = [i for i, found in enumerate(states) if found == state]
        if len(chosen) >= budget.least:
            break
    else:
        state, chosen = MIXED, list(range(len(states)))
    seen = [x for i in chosen for x in latencies[i : i + 2] if not math.isnan(x)]
    latency = float(np.median(seen)) if seen else None
    return Rounds(state, latency, [[lane.times[i] for i in chosen] for lane in lanes])
