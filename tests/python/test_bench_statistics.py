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
from minitorch_backend.bench.runner import FEWEST_VISITS
from minitorch_backend.bench.statistics import Estimate, combine, median_interval, ratio, undisturbed, verdict


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


def simulate(seed, rival, ours, budget=FULL, apart=0.01, **noise):
    """The estimate of a whole case, whose visits differ by ``apart``."""
    machine, source = Machine(seed, **noise), np.random.default_rng([seed, 1])
    visits, times = [], []
    for _ in range(budget.visits):
        here = np.array([rival, ours]) * np.exp(source.normal(0, apart / np.sqrt(2), size=2))
        rounds = race.run([Lane(lambda: None, SimulatedClock(machine, seconds)) for seconds in here], budget)
        visits.append(ratio(*rounds.times))
        times.append([float(np.median(lane)) for lane in rounds.times])
        found = combine([visits[i] for i in undisturbed(times)], budget.apart)
        if len(visits) >= FEWEST_VISITS and found.high <= found.value * (1 + budget.precise):
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


def test_visits_in_which_a_side_was_slowed_are_left_out():
    quiet = [1.0, 2.0]
    assert undisturbed([quiet, [1.0, 4.0], [9.0, 2.0]]) == [0, 1, 2]  # too few to tell
    times = [[1.1, 2.0], [1.0, 2.4], quiet, [1.2, 2.1], [1.05, 2.2]]
    assert undisturbed(times) == [0, 2, 4]
    assert undisturbed([row[::-1] for row in times]) == [0, 2, 4]  # the sides are treated alike
    # Never both quiet: the least disturbed quarter.
    assert undisturbed([[1.0, 4.0], [2.0, 2.0], [1.5, 2.9], [1.9, 2.1], [1.0, 9.0]]) == [2, 3]
    # A neighbour slows what lives in the cache half of the time, by up to three times: the ratio stays the undisturbed.
    source, found = np.random.default_rng(0), []
    for _ in range(200):
        slow = np.where(source.random(20) < 0.5, source.uniform(1, 3, 20), 1.0)
        times = np.exp(source.normal(0, 0.02, (20, 2))) * np.stack([np.full(20, 10.0), slow], axis=1)
        found.append(math.exp(np.mean(np.log(times[:, 0] / times[:, 1])[undisturbed(times)])))
    assert np.std(found) < 0.15 and 9.5 < np.mean(found) < 10.1


def test_visits_that_differ_widen_the_interval():
    alike = [Estimate(x, 0.99 * x, 1.01 * x, 0.004) for x in (1.99, 2.0, 2.01)]
    apart = [Estimate(x, 0.99 * x, 1.01 * x, 0.004) for x in (1.8, 2.0, 2.2)]
    assert combine(alike).value == pytest.approx(2.0, rel=1e-4) and combine(apart).value == pytest.approx(2.0)
    assert combine(alike).half_width < 0.04 < 0.09 < combine(apart).half_width
    disturbed = [Estimate(x, 0.99 * x, 1.01 * x, 0.004) for x in (1.12, 0.7, 1.1)]
    assert combine(disturbed).value == pytest.approx(math.sqrt(1.12 * 1.1)) and not combine(disturbed).significant
    # One visit cannot know what the next would give; on a GPU, where visits do not differ, it stays as it is.
    assert combine(alike[:1]).half_width > 0.035 and combine(alike[:1], apart=0.0) == alike[0]
    assert combine([Estimate(1.0, 0.0, np.inf)]).half_width == np.inf
    with pytest.raises(ValueError, match="no visits"):
        combine([])


def test_interval_holds_the_ratio():
    outside = 0
    for seed in range(100):
        estimate = simulate(seed, 4e-3, 2e-3, race.QUICK)
        outside += not estimate.low <= 2.0 <= estimate.high
    assert outside <= 3


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


@pytest.mark.parametrize("calls", [5, 9, 40])
def test_an_interrupted_call_does_not_count(monkeypatch, calls):
    passed = {"seconds": 0.0, "calls": 0}

    def work():
        passed["calls"] += 1
        passed["seconds"] += 0.5 if passed["calls"] == 4 else 1e-3

    monkeypatch.setattr(clock.time, "perf_counter", lambda: passed["seconds"])
    assert clock.HostClock(torch.device("cpu")).measure(work, calls) == pytest.approx(1e-3)
    assert passed["calls"] == calls
