"""Runs cases: results first, then memory, then times. A case that fails is reported, and the run goes on."""

import contextlib
import pathlib
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, field, replace

import torch

from minitorch_backend import _C
from minitorch_backend.bench import accuracy, heap, memory, race, statistics
from minitorch_backend.bench.accuracy import Accuracy
from minitorch_backend.bench.case import Case, Work, compile_work, remembered_draws
from minitorch_backend.bench.clock import clock_for
from minitorch_backend.bench.guest import Guest, GuestClock
from minitorch_backend.bench.limits import Limits
from minitorch_backend.bench.machine import BUSY, Load
from minitorch_backend.bench.placement import FAR, MIXED, NEAR, QUIET, Placement
from minitorch_backend.bench.race import Budget, Lane, Rounds
from minitorch_backend.bench.results import Result, Visit

SEVERAL = 2  # visits to a quiet cache, from which on the others do not count
BROKEN = ("failed", "out of memory", "not reached")  # a case of which nothing is timed, whatever earlier visits gave


@dataclass(frozen=True)
class Side:
    """A competitor: a device, what must be in force while it runs, and what is done to its work first.

    ``calls``: how often the kernel that it is about was called, if it is about one. With a guest it runs in a process
    of its own, and the others mean nothing.
    """

    name: str
    device: torch.device
    active: Callable[[], AbstractContextManager] = contextlib.nullcontext
    prepare: Callable[[Work], Work] = lambda work: work
    guest: Guest | None = None
    calls: Callable[[], int] | None = None


def native(backend: str, folder: pathlib.Path | None = None) -> Side:
    """Native torch on what minitorch runs on; on CUDA in a process of its own (see guest.py)."""
    device = torch.device("cuda" if backend == "cuda" and torch.cuda.is_available() else "cpu")
    return Side(device.type, device, guest=Guest(device, folder) if device.type == "cuda" else None)


def compiled(backend: str, folder: pathlib.Path | None = None) -> Side:
    """Native torch through torch.compile."""
    side = native(backend, folder)
    return replace(
        side,
        name=f"{side.name} compiled",
        prepare=compile_work,
        guest=side.guest and Guest(side.device, folder, compiled=True),
    )


OURS = Side("minitorch", torch.device("minitorch"))


@dataclass
class Runner:
    """Runs cases with the given sides; the last is ours, the first the rival whose ratio is reported."""

    sides: list[Side]
    limits: Limits
    budget: Budget = field(default_factory=Budget)
    with_memory: bool = True
    watch: Placement | None = None
    apart: float | None = None  # what visits of this run differ by, where that is known better than by the budget

    def run(self, case: Case) -> Result:
        """All visits to a case, one after the other."""
        result = self.start(case)
        for _ in range(self.budget.visits):
            if self.wants(result):
                self.visit(case, result)
        return result

    def start(self, case: Case) -> Result:
        """What a case's visits are gathered in. Floors are of ours against native as it is, on what ours runs on."""
        floored = self.sides[0].name == _C.backend_name() and self.sides[-1].name == OURS.name
        return Result(
            case.full_name, case.family, rival=self.sides[0].name, bytes=case.bytes, flops=case.flops,
            dtype=str(case.dtype).removeprefix("torch."), floor=case.floor if floored else None,
            memory_floor=case.memory_floor if floored else None, unchecked=case.unchecked, unlike=case.unlike,
        )  # fmt: skip

    def wants(self, result: Result, in_time: bool = True) -> bool:
        """Whether a case needs another visit; when the run's time is over, fewer do."""
        if result.status in BROKEN:
            return False
        if self.budget.hurry and not in_time:
            return not result.visits
        good = [visit for visit in result.visits if counts(visit)]
        quiet = sum(map(self.is_quiet, good))
        if len(good) < min(self.budget.fewest, self.budget.visits) and quiet < self.budget.quiet:
            return True
        if not in_time or len(good) >= self.budget.visits:
            return False
        precise = result.high <= result.ratio * (1 + self.budget.precise)
        return not precise and sum(visit.raced for visit in good) < self.budget.enough

    def judge(self, case: Case, result: Result) -> None:
        """Compare a case's results with float64 and measure its memory: what takes no clock."""
        with self._recording(result), remembered_draws():
            self._judge(case, result)

    def visit(self, case: Case, result: Result) -> None:
        """Set a case up and race it, after it was judged."""
        with self._recording(result), remembered_draws():
            if not result.judged:
                self._judge(case, result)
            if result.status not in BROKEN:
                self._visit(case, result)

    @contextlib.contextmanager
    def _recording(self, result: Result) -> Iterator[None]:
        """What goes wrong meanwhile becomes the result; load, fallbacks and time are noted there."""
        load, start = Load.now(), time.perf_counter()
        torch.minitorch.fallbacks(clear=True)
        seen = len(result.visits)
        try:
            yield
        except (Exception, SystemExit) as error:  # whatever a case raises is its own result
            result.status = "out of memory" if memory.ran_out(error) else "failed"
            result.message = describe(error)
            result.ratio = result.low = result.high = None  # what earlier visits gave is not the case's any more
        finally:
            found = [record.op for record in torch.minitorch.fallbacks(clear=True)]
            result.fallbacks = list(dict.fromkeys(result.fallbacks + found))
            others, took = load.others_until_now(), time.perf_counter() - start
            for visit in result.visits[seen:]:
                visit.load = round(others, 4)
            result.load = (result.load * result.took + others * took) / (result.took + took)
            result.busy = result.load > BUSY
            with contextlib.suppress(RuntimeError):
                self._clean_up()
            result.took = round(result.took + time.perf_counter() - start, 3)

    def _judge(self, case: Case, result: Result) -> None:
        before = [(side, side.calls()) for side in self.sides if side.calls]
        judged = self._check(case)
        result.status = judged.verdict if judged.verdict != "not compared" else "ok"
        result.errors = {self.sides[0].name: judged.rival, self.sides[-1].name: judged.ours}
        self._clean_up()
        if self.with_memory:
            result.peak = self._memory([self._lane(case, side).work for side in self.sides])
            self._clean_up()
        result.judged = True
        if case.check == "none" and not self.with_memory:
            return  # nothing was called yet
        if idle := [side.name for side, calls in before if side.calls() == calls]:
            result.status, result.message = "not reached", f"does not call the kernel {', '.join(idle)}"

    def _visit(self, case: Case, result: Result) -> None:
        # Who is set up first finds the memory as the visit before left it: each side in turn.
        turned = len(result.visits) % 2 == 1
        lanes = [self._lane(case, side) for side in (self.sides[::-1] if turned else self.sides)]
        lanes = lanes[::-1] if turned else lanes
        start = time.perf_counter()
        with heap.filled():
            rounds = race.run(lanes, self.budget, self.watch)
        result.visits.append(self._summary(rounds, time.perf_counter() - start))
        self.conclude(case, result)

    def chosen(self, result: Result) -> list[Visit]:
        """The visits that make the result: those with near processors, or else with far ones; of these those to a quiet
        cache, if there are several.
        """
        for placement in ("", NEAR, FAR, MIXED):
            if visits := [visit for visit in result.visits if visit.placement == placement]:
                quiet = [visit for visit in visits if self.is_quiet(visit)]
                return quiet if len(quiet) >= SEVERAL else visits
        return []

    def is_quiet(self, visit: Visit) -> bool:
        """Whether it is known that nobody else used the shared cache."""
        return visit.cache is not None and self.reads_quietly(visit.cache)

    def reads_quietly(self, rate: float) -> bool:
        """Whether that rate of reading the shared cache, in bytes per second, is what this machine can do."""
        cache = self.watch and self.watch.cache
        return not cache or rate >= QUIET * self.limits.read.get(cache.size, 0.0)

    def _lane(self, case: Case, side: Side) -> Lane:
        if side.guest:
            side.guest.ask("setup", case.full_name)
            return Lane(lambda: None, GuestClock(side.guest))
        with side.active():
            work = side.prepare(case.setup(side.device))
        return Lane(work, clock_for(side.device, case.cold), side.active)

    def _clean_up(self) -> None:
        for side in self.sides:
            if side.guest and side.guest.process:
                side.guest.ask("clear")
        memory.give_back()

    def close(self) -> None:
        """End the guests' processes."""
        for side in self.sides:
            if side.guest:
                side.guest.close()

    def _check(self, case: Case) -> Accuracy:
        if case.check == "none":
            return Accuracy(None, None, "not compared")
        place = torch.device("cpu")
        found = []
        for side in self.sides:
            if side.guest and side is not self.sides[-1]:
                continue  # it keeps its results to itself and judges there
            if side.guest:
                found.append(side.guest.results(case))
                continue
            with side.active():
                found.append(accuracy.results(case, side.device, side.prepare, place))
            memory.give_back()
        if self.sides[0].guest:
            judged = self.sides[0].guest.judge(case, found[-1])
        else:
            judged = accuracy.compare(found[0], found[-1], accuracy.reference(case, place))
        if not found[-1]:
            raise ValueError('the work gives no tensor to compare: a case with check="none" says that it does not')
        return judged

    def _memory(self, works: list[Work]) -> dict[str, int | None]:
        """Of the first call of fresh work: gradients and an optimizer's state are made in it and count."""
        found: dict[str, int | None] = {}
        for work, side in zip(works, self.sides, strict=True):
            if side.guest:
                found[side.name] = side.guest.ask("peak")
                continue
            with side.active():
                found[side.name] = memory.peak(work, side.device)
        return found

    def _summary(self, rounds: Rounds, raced: float) -> Visit:
        names, ours = [side.name for side in self.sides], rounds.times[-1]
        estimates = [statistics.ratio(times, ours) for times in rounds.times[:-1]]
        return Visit(
            rounds.placement,
            rounds.latency and round(rounds.latency * 1e9, 1),
            rounds.count,
            {name: statistics.median(times) for name, times in zip(names, rounds.times, strict=True)},
            list(astuple(estimates[0])),
            {name: list(astuple(e)) for name, e in zip(names[1:-1], estimates[1:], strict=True)},
            round(raced, 3),
            times={name: [float(f"{t:.4g}") for t in times] for name, times in zip(names, rounds.times, strict=True)},
            cache=rounds.cache and float(f"{rounds.cache:.4g}"),
        )

    def conclude(self, case: Case, result: Result) -> None:
        """The result from the visits that there are."""
        if result.status in BROKEN or not (visits := self.chosen(result)):
            return
        result.placement = visits[0].placement
        known = all(visit.cache is not None for visit in visits)
        result.quiet = all(map(self.is_quiet, visits)) if known else None
        rival, *others, ours = (side.name for side in self.sides)
        apart = self.budget.apart if self.apart is None else self.apart

        def pooled(name: str, errors: list[float]) -> statistics.Estimate:
            return statistics.pooled([(v.rounds_of(name), v.rounds_of(ours)) for v in visits], errors, apart)

        result.rounds = sum(visit.rounds for visit in visits)
        if len(visits) == 1 and apart == 0:  # all that there is to know
            estimate, result.seconds = visits[0].estimate, dict(visits[0].seconds)
            result.others = {name: found[:3] for name, found in visits[0].others.items()}
        else:
            estimate = pooled(rival, [visit.estimate.error for visit in visits])
            for name in others:
                other = pooled(name, [visit.others[name][3] for visit in visits])
                result.others[name] = [other.value, other.low, other.high]
            result.seconds = {
                side.name: statistics.quartile([t for visit in visits for t in visit.rounds_of(side.name)])
                for side in self.sides
            }
        result.ratio, result.low, result.high = estimate.value, estimate.low, estimate.high
        best = self.limits.best_time(case)
        if best is not None:
            result.share = best[0] / result.seconds[self.sides[-1].name]
            result.bound = best[1]


def counts(visit: Visit) -> bool:
    """Whether a visit met the processors as they are meant to lie."""
    return visit.placement in ("", NEAR)


def describe(error: BaseException) -> str:
    """Type, first line and place of an exception, in a line."""
    text = (str(error).splitlines() or [""])[0][:300]
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/torch/" not in f.filename]
    where = f" ({frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{where}"
