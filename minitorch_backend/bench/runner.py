"""Runs cases: results first, then memory, then times. A case that fails is reported, and the run goes on."""

import contextlib
import gc
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import torch

from minitorch_backend.bench import accuracy, memory, race, statistics
from minitorch_backend.bench.accuracy import Accuracy
from minitorch_backend.bench.case import Case, Setup, Work, remembered_draws
from minitorch_backend.bench.clock import clock_for
from minitorch_backend.bench.limits import Limits
from minitorch_backend.bench.machine import BUSY, Load
from minitorch_backend.bench.race import Budget, Lane
from minitorch_backend.bench.results import Result


@dataclass(frozen=True)
class Side:
    """A competitor: a device, what must be in force while it runs, and what is done to its work first."""

    name: str
    device: torch.device
    active: Callable[[], AbstractContextManager] = contextlib.nullcontext
    prepare: Callable[[Work], Work] = lambda work: work


def native(backend: str) -> Side:
    """Native torch on what minitorch runs on."""
    name = "cuda" if backend == "cuda" and torch.cuda.is_available() else "cpu"
    return Side(name, torch.device(name))


def compiled(backend: str) -> Side:
    """Native torch through torch.compile."""
    side = native(backend)
    return replace(side, name=f"{side.name} compiled", prepare=lambda work: torch.compile(work, dynamic=False))


OURS = Side("minitorch", torch.device("minitorch"))


@dataclass
class Runner:
    """Runs cases with the given sides; the last is ours, the first the rival whose ratio is reported."""

    backend: str
    sides: list[Side]
    limits: Limits
    budget: Budget = field(default_factory=Budget)
    with_memory: bool = True

    def run(self, case: Case) -> Result:
        result = Result(
            case.full_name, case.family, rival=self.sides[0].name, bytes=case.bytes, flops=case.flops,
            dtype=str(case.dtype).removeprefix("torch."), floor=case.floor, memory_floor=case.memory_floor,
            unchecked=case.unchecked,
        )  # fmt: skip
        load = Load.now()
        torch.minitorch.fallbacks(clear=True)
        try:
            with remembered_draws():
                self._run(case, result)
        except Exception as error:  # whatever a case raises is its own result
            out_of_memory = isinstance(error, torch.OutOfMemoryError | MemoryError)
            result.status = "out of memory" if out_of_memory else "failed"
            result.message = describe(error)
        finally:
            result.fallbacks = [record.op for record in torch.minitorch.fallbacks(clear=True)]
            result.load = load.others_until_now()
            result.busy = result.load > BUSY
            clean_up()
        return result

    def _run(self, case: Case, result: Result) -> None:
        judged = self._check(case)
        result.status = judged.verdict if judged.verdict != "not compared" else "ok"
        result.errors = {self.sides[0].name: judged.rival, self.sides[-1].name: judged.ours}
        clean_up()
        works = []
        for side in self.sides:
            with side.active():
                works.append(side.prepare(case.setup(side.device)))
        lanes = [
            Lane(work, clock_for(side.device, case.cold), side.active)
            for work, side in zip(works, self.sides, strict=True)
        ]
        if self.with_memory:
            result.peak = self._memory(works)
        race.run(lanes, self.budget)
        self._conclude(case, lanes, result)

    def _check(self, case: Case) -> Accuracy:
        if case.check == "none":
            return Accuracy(None, None, "not compared")
        place = self.sides[0].device if self.sides[0].device.type == "cuda" else torch.device("cpu")
        found = []
        for side in self.sides:
            torch.manual_seed(0)
            with side.active():
                found.append(accuracy.snapshot(side.prepare(case.setup(side.device))(), place))
            clean_up()
        reference = None
        if case.check == "float64":
            torch.manual_seed(0)
            reference = accuracy.snapshot(case.make(Setup(place, case.dtype, reference=True))(), place)
        return accuracy.compare(found[0], found[-1], reference)

    def _memory(self, works: list[Work]) -> dict[str, int | None]:
        """Of the first call of fresh work: gradients and an optimizer's state are made in it and count."""
        found: dict[str, int | None] = {}
        for work, side in zip(works, self.sides, strict=True):
            on_gpu = side.device.type == "cuda" or (side.device.type == "minitorch" and self.backend == "cuda")
            with side.active():
                found[side.name] = memory.peak(work, side.device, on_gpu)
        return found

    def _conclude(self, case: Case, lanes: list[Lane], result: Result) -> None:
        ours = lanes[-1]
        result.rounds = len(ours.times)
        for lane, side in zip(lanes, self.sides, strict=True):
            result.seconds[side.name] = statistics.median_interval(lane.times, draws=1).value
        estimate = statistics.ratio(lanes[0].times, ours.times)
        result.ratio, result.low, result.high = estimate.value, estimate.low, estimate.high
        for lane, side in zip(lanes[1:-1], self.sides[1:-1], strict=True):
            other = statistics.ratio(lane.times, ours.times)
            result.others[side.name] = [other.value, other.low, other.high]
        best = self.limits.best_time(case)
        if best is not None:
            result.share = best[0] / result.seconds[self.sides[-1].name]
            result.bound = best[1]


def clean_up() -> None:
    """Give memory back, so that a case does not starve the next one."""
    gc.collect()
    with contextlib.suppress(RuntimeError):
        torch.minitorch.empty_cache()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def describe(error: Exception) -> str:
    """Type, first line and place of an exception, in a line."""
    text = (str(error).splitlines() or [""])[0][:300]
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/torch/" not in f.filename]
    where = f" ({frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{where}"
