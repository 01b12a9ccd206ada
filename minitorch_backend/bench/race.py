"""The race itself: blocks of calls on each side in turns, after a warm-up, until the ratio is known well enough."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from minitorch_backend.bench import statistics
from minitorch_backend.bench.case import Work
from minitorch_backend.bench.clock import Clock

STABLE = 0.05  # a warm-up ends when two blocks differ by less
# ... and not before so many calls: until the small bins of the C library's heap are full, what is cut off native's
# blocks stays there, and every call takes fresh pages.
WARM_CALLS = 24


@dataclass(frozen=True)
class Budget:
    """How much time a case may take.

    ``block``: seconds of a block at least. ``rounds``: at least so many. ``target``: half width of the ratio's interval
    at which the race ends. ``seconds``: when it ends in any case, once ``least`` rounds are there. ``warm``: seconds
    of a warm-up at most.
    """

    block: float = 0.02
    rounds: int = 15
    target: float = 0.01
    seconds: float = 2.0
    least: int = 5
    warm: float = 0.6


QUICK = Budget(block=0.01, rounds=9, target=0.03, seconds=1.0, least=3, warm=0.3)


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
        """Run until two blocks take the same time, then settle how many calls make a block."""
        spent, before = 0.0, self.block(1)
        spent += before
        calls = done = 1
        while spent < budget.warm:
            if calls * before < budget.block / 4:
                calls = max(calls + 1, int(budget.block / 4 / max(before, 1e-8)))
            now = self.block(calls)
            spent += now * calls
            done += calls
            stable = done >= WARM_CALLS and abs(now - before) <= STABLE * before
            before = now
            if stable:
                break
        self.calls = max(1, round(budget.block / max(before, 1e-8)))


def run(lanes: list[Lane], budget: Budget) -> None:
    """Fill the lanes' times. Lane 0 is the rival whose ratio to the last lane decides when it is enough.

    In every round each lane runs one block; the order is turned around from round to round, so that each is as often
    the one that finds the caches as the other left them.
    """
    for lane in lanes:
        lane.warm_up(budget)
    spent, look = 0.0, budget.rounds
    for number in range(10_000):
        for lane in lanes if number % 2 == 0 else lanes[::-1]:
            lane.times.append(lane.block(lane.calls))
            spent += lane.times[-1] * lane.calls
        done = number + 1
        if done >= budget.least and spent >= budget.seconds:
            break
        if done >= look:
            width = max(statistics.ratio(lanes[0].times, lane.times).half_width for lane in lanes[1:])
            if width <= budget.target:
                break
            look = int(done * 1.3)  # a look takes milliseconds itself
