"""The benchmark's judgement, on simulated clocks: no difference where there is none, a difference where one was planted.

The noise is what a shared machine has: each block scattered by a few percent, whole stretches of blocks slowed together,
now and then a block that something else interrupted; and each visit, set up anew, finds each side a little faster or
slower throughout. Everything is drawn from fixed seeds.
"""

import math

import numpy as np
import pytest
import torch

from minitorch_backend.bench import clock, race, statistics
from minitorch_backend.bench.race import Budget, Lane
from minitorch_backend.bench.results import Result, Run, compare
from minitorch_backend.bench.statistics import Estimate, apart_of, median_interval, pooled, quartile, ratio, verdict


class Machine:
    """The noise of a machine, shared by all lanes that run on it."""

    def __init__(self, seed, scatter=0.03, drift=0.15, spikes=0.05):
        self.source = np.random.default_rng(seed)
        self.scatter, self.drift, self.spikes = scatter, drift, spikes
        self.slow = 0.0

    def factor(self):
        self.slow = 0.9 * self.slow + self.source.normal(0, self.drift * 0.44)
        noise = np.exp(abs(self.slow) + self.source.normal(0, self.scatter))
        if self.source.random() < self.spikes:
            noise *= 1 + self.source.exponential(1.0)
        return float(noise)


FULL = Budget()


class SimulatedClock:
    def __init__(self, machine, seconds):
        self.machine, self.seconds = machine, seconds

    def measure(self, work, calls):
        return self.seconds * self.machine.factor()


def simulate(seed, rival, ours, budget=FULL, apart=0.01, known=None, **noise):
    """The estimate of a whole case, whose visits differ by ``apart``, where ``known`` is what a run knows of that."""
    machine, source = Machine(seed, **noise), np.random.default_rng([seed, 1])
    visits, own = [], []
    for _ in range(budget.visits):
        here = np.array([rival, ours]) * np.exp(source.normal(0, apart / np.sqrt(2), size=2))
        rounds = race.run([Lane(lambda: None, SimulatedClock(machine, seconds)) for seconds in here], budget)
        visits.append(rounds.times)
        own.append(ratio(*rounds.times))
        errors = [estimate.error for estimate in own]
        found = own[0] if budget.visits == 1 else pooled(visits, errors, known or budget.apart)
        if len(visits) >= budget.fewest and found.high <= found.value * (1 + budget.precise):
            break
    return found


@pytest.mark.parametrize(
    "budget,apart", [(FULL, 0.01), (FULL, 0.03), (race.QUICK, 0.01), (race.GPU, 0.0)],
    ids=["full", "visits far apart", "quick", "gpu"],
)  # fmt: skip
def test_self_race_finds_no_difference(budget, apart):
    found = [simulate(seed, 3e-3, 3e-3, budget, apart).significant for seed in range(100)]
    assert sum(found) <= 5


@pytest.mark.parametrize("apart", [0.0, 0.02])
def test_planted_slowdown_is_found(apart):
    found = [simulate(seed, 3e-3, 3e-3 * 1.15, apart=apart) for seed in range(40)]
    assert sum(estimate.significant and estimate.value < 1 for estimate in found) >= 38


def test_ratio_of_ten_runs_spreads_little():
    # What the rounds' noise leaves; the visits are alike.
    logs = np.log([simulate(seed, 5e-3, 2e-3, apart=0.0).value for seed in range(60)])
    assert 3.08 * logs.std() <= 0.05  # the range of ten normal values is 3.08 standard deviations, on average
    assert abs(np.median(logs) - np.log(2.5)) < 0.01


def test_a_neighbour_moves_the_ratio_little():
    """It slows what lives in the cache in half of the visits, by up to three times; two runs out of three agree."""
    source, found = np.random.default_rng(0), []
    for _ in range(60):
        slow = np.where(source.random(30) < 0.5, source.uniform(1, 3, 30), 1.0)
        noise = np.exp(np.abs(source.normal(0, 0.05, (30, 2, 12))))
        visits = [(10.0 * rival, s * ours) for (rival, ours), s in zip(noise, slow, strict=True)]
        found.append(pooled(visits, [0.02] * 30).value)
    assert np.std(np.log(found)) < 0.02 and 9.3 < np.median(found) < 10.1
    assert quartile([4.0, 1.0, 2.0, 3.0, 5.0]) == 2.0


def rounds_of(*ratios):
    return [([x] * 9, [1.0] * 9) for x in ratios], [0.004] * len(ratios)


def test_visits_that_differ_widen_the_interval():
    alike, apart = pooled(*rounds_of(1.99, 2.0, 2.01)), pooled(*rounds_of(1.8, 2.0, 2.2))
    assert alike.value == pytest.approx(2.0, rel=0.01) and alike.half_width < 0.04 < 0.09 < apart.half_width
    # One visit cannot know what the next would give.
    assert pooled(*rounds_of(2.0)).half_width > 0.035 and pooled(*rounds_of(2.0)).value == pytest.approx(2.0)
    assert pooled(*rounds_of(1.0)[:1], [math.inf]).half_width == np.inf
    with pytest.raises(ValueError, match="no visits"):
        pooled([], [])


def test_a_run_knows_what_its_visits_differ_by():
    source = np.random.default_rng(0)

    def cases(apart, own, count=100):
        logs = source.normal(0, math.hypot(apart, own), (count, 3))
        return [[Estimate(math.exp(x), 0.0, math.inf, own) for x in row] for row in logs]

    assert apart_of(cases(0.05, 0.01)) == pytest.approx(0.05, rel=0.25)
    assert apart_of(cases(0.0, 0.02)) <= 0.012  # all of it is what each visit knows of itself
    assert apart_of(cases(0.05, 0.01, 9)) == statistics.APART  # too few to tell
    wild = [[Estimate(1.0, 0.0, math.inf, 0.01), Estimate(9.0, 0.0, math.inf, 0.01)]] * 40
    assert apart_of(cases(0.02, 0.01) + wild) < 0.05  # a few odd cases do not speak for the rest


@pytest.mark.parametrize(
    "budget,apart,outside",
    [(race.QUICK, 0.01, 3), (FULL, 0.01, 3), (FULL, 0.03, 3)],
    ids=["quick", "full", "far apart"],
)
def test_interval_holds_the_ratio(budget, apart, outside):
    """... of what a side takes when it is not disturbed, which is 2 for these two alike."""
    found = [simulate(seed, 4e-3, 2e-3, budget, apart, known=max(apart, 0.01)) for seed in range(100)]
    assert sum(not estimate.low <= 2.0 <= estimate.high for estimate in found) <= outside


def run_of(estimates):
    results = {
        name: Result(name, "f", rival="cpu", ratio=e.value, low=e.low, high=e.high) for name, e in estimates.items()
    }
    return Run({"device": "x"}, None, results)


def test_gate_catches_a_slowdown_of_15_percent_and_nothing_else():
    missed, false = 0, 0
    for seed in range(20):
        old = run_of({name: simulate(seed * 10 + i, 4e-3, 2e-3) for i, name in enumerate("ab")})
        new = run_of({"a": simulate(seed * 10 + 5, 4e-3, 2e-3), "b": simulate(seed * 10 + 6, 4e-3, 2e-3 * 1.15)})
        changes = {change.name: change for change in compare(old, new)}
        false += changes["a"].regression
        missed += not changes["b"].regression
    assert (missed, false) == (0, 0)


def test_gate_calls_a_failure_a_regression_and_a_new_case_none():
    old = run_of({"a": Estimate(1.0, 0.99, 1.01)})
    new = run_of({"b": Estimate(1.0, 0.99, 1.01)})
    new.results["a"] = Result("a", "f", "failed", rival="cpu")
    assert {c.name: (c.verdict, c.regression) for c in compare(old, new)} == {
        "a": ("broken", True),
        "b": ("new", False),
    }


def test_median_interval_holds_the_median():
    # 99 % intervals of independent samples: the true median is outside about once in a hundred times.
    source = np.random.default_rng(1)
    outside = 0
    for _ in range(200):
        estimate = median_interval(source.lognormal(0, 0.1, size=31), draws=500)
        assert estimate.low <= estimate.value <= estimate.high
        outside += not estimate.low <= 1 <= estimate.high
    assert outside <= 5


def test_interval_of_little_is_wide():
    with pytest.raises(ValueError, match="no measurements"):
        median_interval([])
    assert median_interval([1.0]).half_width == np.inf
    assert not median_interval([2.0]).significant


def test_noisy_estimates_are_not_told_apart():
    wide, narrow = Estimate(1.0, 0.7, 1.3), Estimate(0.85, 0.84, 0.86)
    assert verdict(narrow, wide) == "same"
    assert verdict(narrow, Estimate(1.0, 0.99, 1.01)) == "slower"
    assert verdict(Estimate(1.2, 1.19, 1.21), Estimate(1.0, 0.99, 1.01)) == "faster"
    assert statistics.SAME < 0.15


def test_race_stops_when_the_ratio_is_known_and_when_time_is_up():
    quiet = Machine(0, scatter=0.001, drift=0.0, spikes=0.0)
    lanes = [Lane(lambda: None, SimulatedClock(quiet, 1e-3)) for _ in range(2)]
    race.run(lanes, Budget())
    assert 10 <= len(lanes[0].times) <= 13
    slow = [Lane(lambda: None, SimulatedClock(Machine(0), 4.0)) for _ in range(2)]
    race.run(slow, Budget(seconds=5.0, least=5))
    assert len(slow[0].times) == 5


def test_block_has_enough_calls():
    machine = Machine(0, scatter=0.001, drift=0.0, spikes=0.0)
    lane = Lane(lambda: None, SimulatedClock(machine, 1e-4))
    lane.warm_up(Budget(block=0.02))
    assert 190 <= lane.calls <= 210


class ScriptedClock:
    """Each call takes what the list says, the last one for ever."""

    def __init__(self, *seconds):
        self.seconds, self.blocks = list(seconds), []

    def measure(self, work, calls):
        self.blocks.append(calls)
        return self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]


def test_a_first_call_that_compiles_does_not_decide():
    clock = ScriptedClock(7.0, 3e-5, 6e-6, 5e-6)
    lane = Lane(lambda: None, clock)
    lane.warm_up(Budget())
    assert lane.calls == 3000 and sum(clock.blocks) >= race.WARM_CALLS


def test_slow_calls_are_warmed_up_too():
    steady, settling = ScriptedClock(2.0), ScriptedClock(9.0, 3.0, 2.0, 1.5, 1.5, 1.2)
    never = ScriptedClock(*(1.0 + number % 2 for number in range(99)))
    for clock_, blocks in ((steady, 3), (settling, 5), (never, race.SLOW_CALLS)):
        lane = Lane(lambda: None, clock_)
        lane.warm_up(Budget())
        assert clock_.blocks == [1] * blocks and lane.calls == 1


@pytest.mark.parametrize("calls", [5, 9, 40])
def test_an_interrupted_call_does_not_count(monkeypatch, calls):
    passed = {"seconds": 0.0, "calls": 0}

    def work():
        passed["calls"] += 1
        passed["seconds"] += 0.5 if passed["calls"] == 4 else 1e-3

    monkeypatch.setattr(clock.time, "perf_counter", lambda: passed["seconds"])
    assert clock.HostClock(torch.device("cpu")).measure(work, calls) == pytest.approx(1e-3)
    assert passed["calls"] == calls
