"""Where the processors lie: the probe, the states learned from it, the rounds chosen by them, the visits made again."""

import itertools
import json
import math
import os
import pathlib
from dataclasses import replace

import pytest
import torch

from minitorch_backend import _C
from minitorch_backend.bench import limits, placement, race, suite
from minitorch_backend.bench.case import Case
from minitorch_backend.bench.placement import FAR, MIXED, NEAR, Placement
from minitorch_backend.bench.race import Budget, Lane
from minitorch_backend.bench.results import Result, Run, Visit, compare
from minitorch_backend.bench.runner import Runner, Side

NAN = math.nan


def allowed_processors():
    """Of every thread of this process."""
    tasks = pathlib.Path("/proc/self/task")
    return {task.name: os.sched_getaffinity(int(task.name)) for task in tasks.iterdir()}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads are moved on Linux only")
def test_probe_measures_and_leaves_the_threads_where_they_were():
    torch.ones(2**20).exp()  # the pool is there
    before = allowed_processors()
    found = [_C.cache_line_round_trip() for _ in range(20)]
    assert allowed_processors() == before
    known = [x for x in found if not math.isnan(x)]
    several = len(os.sched_getaffinity(0)) > 1 and torch.get_num_threads() > 1
    assert several or not known
    assert all(1e-8 < x < 1e-4 for x in known)


def test_probe_of_one_thread_is_silent():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert math.isnan(_C.cache_line_round_trip())
        assert placement.find("cpu") is None and placement.find("cuda") is None
    finally:
        torch.set_num_threads(threads)


def test_processors_are_watched_under_a_hypervisor(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(placement, "is_virtual", lambda: False)
    assert placement.find("cpu") is None
    monkeypatch.setattr(placement, "is_virtual", lambda: True)
    assert placement.find("cpu") is not None and placement.find("cuda") is None


class Time:
    def __init__(self):
        self.now = 0.0

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def watching(nanoseconds, time=None):
    """A Placement that sees these latencies, the last one for ever."""
    values = itertools.chain(nanoseconds, itertools.repeat(nanoseconds[-1]))
    time = time or Time()
    return Placement(lambda: next(values) * 1e-9, time.clock, time.sleep)


def after(nanoseconds, **options):
    watch = watching(nanoseconds, **options)
    for _ in nanoseconds:
        watch.look()
    return watch


def test_states_are_told_apart_by_what_was_seen():
    watch = after([350, 75, 80, 140, NAN, 420, 3000])
    names = [watch.of(x * 1e-9) for x in (75, 100, 140, 350, 3000)]
    assert names == [NEAR, NEAR, NEAR, FAR, FAR]
    assert watch.of(80e-9, 75e-9) == NEAR and watch.of(80e-9, 350e-9) == MIXED and watch.of(350e-9, 351e-9) == FAR
    assert watch.of(NAN, 80e-9) == NEAR and watch.of(NAN, NAN) == MIXED and watch.of(NAN) == MIXED
    close = after([30, 90])  # two states on one die
    assert close.of(35e-9) == NEAR and close.of(90e-9) == FAR
    assert watch.summary() == {"lowest_ns": 75, "highest_ns": 3000, "limit_ns": 188, "near": 0.5, "looks": 6}
    assert after([NAN]).summary() == {}


def test_a_machine_of_one_state_is_near_in_the_end():
    time = Time()
    watch = after([350, 360, 340], time=time)
    assert watch.of(350e-9) == FAR and not watch.one_state
    time.now += placement.PATIENCE
    assert watch.one_state and watch.of(350e-9) == NEAR
    moved = after([350, 80], time=time)
    time.now += placement.PATIENCE
    assert not moved.one_state and moved.of(350e-9) == FAR
    assert not after([NAN]).one_state


def test_the_last_cache_is_what_the_system_says(tmp_path):
    assert placement.last_cache(tmp_path) is None
    (tmp_path / "index3").mkdir()
    (tmp_path / "index3" / "size").write_text("36864K\n")
    assert placement.last_cache(tmp_path) == 36 * 2**20
    cache = placement.SharedCache(36 * 2**20)
    assert cache.size == 16 * 2**20 and cache.size in limits.CPU_SIZES and 1e8 < cache.rate() < 1e13


class Cache:
    """A shared cache of 8 MiB that reads at these shares of its limit, the last one for ever."""

    size = 8 * 2**20
    limit = limits.Limits(read={size: 1e11})

    def __init__(self, *shares):
        self.shares = itertools.chain(shares, itertools.repeat(shares[-1]))

    def rate(self):
        return 1e11 * next(self.shares)


class Machine:
    """A clock and processors that change places by a plan: a state a round, and its factor on each side's time."""

    def __init__(self, plan, factors):
        self.plan, self.factors, self.looks = plan, factors, 0

    def state(self):
        return self.plan[min(self.looks, len(self.plan) - 1)]

    def look(self):
        found = {NEAR: 80e-9, FAR: 350e-9, MIXED: NAN}[self.state()]
        self.looks += 1
        return found

    def lane(self, side, seconds):
        class Clock:
            def measure(_, work, calls):
                return seconds * (self.factors[side] if self.plan[min(self.looks, len(self.plan) - 1)] == FAR else 1)

        return Lane(lambda: None, Clock())


BUDGET = Budget(rounds=6, least=3, target=0.0, seconds=0.4, visits=3, precise=0.0)


def race_on(plan, budget=BUDGET, **options):
    machine = Machine(plan, {"rival": 1.0, "ours": 1.6})
    watch = Placement(machine.look, **options)
    watch.lowest = 80e-9
    return race.run([machine.lane("rival", 0.02), machine.lane("ours", 0.01)], budget, watch)


def test_rounds_of_one_placement_count():
    found = race_on([FAR, FAR, *[NEAR] * 20])
    assert found.placement == NEAR and found.count >= 6 and found.latency == pytest.approx(80e-9)
    assert all(r / o == pytest.approx(2.0) for r, o in zip(*found.times, strict=True))


def test_a_visit_to_far_processors_is_short():
    found = race_on([FAR])
    assert found.placement == FAR and found.count == 3
    assert found.times[0][0] / found.times[1][0] == pytest.approx(1.25)


def test_a_busy_machine_has_no_placement_but_a_result():
    found = race_on([MIXED])
    assert found.placement == MIXED and found.latency is None and found.count >= 3
    assert race.run([Machine([NEAR], {}).lane("a", 0.01) for _ in range(2)], BUDGET).placement == ""


def test_a_visit_knows_how_the_cache_was_before_and_after():
    machine, watch = Machine([NEAR], {"rival": 1.0, "ours": 1.0}), watching([80])
    assert race.run([machine.lane("rival", 0.01), machine.lane("ours", 0.01)], BUDGET, watch).cache is None
    watch.cache = Cache(0.9, 0.7)
    found = race.run([machine.lane("rival", 0.01), machine.lane("ours", 0.01)], BUDGET, watch)
    assert found.cache == pytest.approx(0.7e11)


def visit(state, ratio=2.0, raced=0.5, cache=None):
    seconds = {"cpu": ratio * 1e-3, "minitorch": 1e-3}
    return Visit(state, None, 8, seconds, [ratio, ratio * 0.99, ratio * 1.01, 0.01], raced=raced, cache=cache)


CASE = Case("a", lambda setup: lambda: None, family="f")
SIDES = [Side("cpu", torch.device("cpu")), Side("minitorch", torch.device("minitorch"))]


@pytest.mark.parametrize(
    "states,placement,ratio,more",
    [
        ([NEAR, FAR, NEAR, NEAR], NEAR, 2.0, False),
        ([FAR, NEAR], NEAR, 2.0, True),
        ([FAR, FAR, MIXED], FAR, 3.0, True),
        ([MIXED], MIXED, 4.0, True),
        (["", "", ""], "", 1.0, False),
    ],
)
def test_result_is_from_one_placement(states, placement, ratio, more):
    runner = Runner(SIDES, limits.Limits())
    result = runner.start(CASE)
    result.visits = [visit(state, {NEAR: 2.0, FAR: 3.0, MIXED: 4.0, "": 1.0}[state]) for state in states]
    runner.conclude(CASE, result)
    assert (result.placement, result.ratio, runner.wants(result)) == (placement, pytest.approx(ratio), more)
    assert result.rounds == 8 * states.count(placement) and result.low < ratio < result.high


@pytest.mark.parametrize(
    "shares,ratio,quiet",
    [
        ([1.0, 0.9, 0.5], 2.0, True),  # two do
        ([1.0, 0.5, 0.5], None, False),
        ([0.5, 0.6], 3.0, False),
        ([None, None], 2.0, None),
        ([None, 0.5, 0.5], None, None),  # of a run before the cache was looked at
    ],
)
def test_visits_to_a_quiet_cache_count(shares, ratio, quiet):
    runner = Runner(SIDES, Cache.limit, watch=watching([80]))
    runner.watch.cache = Cache(1.0)
    result = runner.start(CASE)
    for share in shares:
        loud = share is not None and share < placement.QUIET
        result.visits.append(visit(NEAR, 3.0 if loud else 2.0, cache=share and 1e11 * share))
    runner.conclude(CASE, result)
    assert result.quiet is quiet and (ratio is None or result.ratio == pytest.approx(ratio))


def test_quiet_visits_do_instead_of_many():
    budget = Budget(fewest=12, quiet=4)
    runner = Runner(SIDES, Cache.limit, budget, watch=watching([80]))
    runner.watch.cache = Cache(1.0)
    for share, enough in ((1.0, 4), (0.5, 12)):
        result = runner.start(CASE)
        while runner.wants(result):
            result.visits.append(visit(NEAR, raced=0.1, cache=1e11 * share))
            runner.conclude(CASE, result)
        assert len(result.visits) == enough


@pytest.mark.parametrize(
    "ratios,raced,in_time,more",
    [
        ([2.0], 0.5, False, True),  # two in any case
        ([2.0, 2.01], 0.5, True, True),
        ([2.0, 2.01] * 2, 0.5, True, False),  # known well enough
        ([2.0, 2.2], 0.5, True, True),
        ([2.0, 2.2], 0.5, False, False),  # the run has taken its time
        ([2.0, 2.2], 12.5, True, False),  # the case has
        ([2.0, 2.2] * 18, 0.5, True, False),
    ],
)
def test_unsure_cases_are_visited_more(ratios, raced, in_time, more):
    runner = Runner(SIDES, limits.Limits())
    result = runner.start(CASE)
    result.visits = [visit(NEAR, ratio, raced) for ratio in ratios]
    runner.conclude(CASE, result)
    assert runner.wants(result, in_time) == more
    result.status = "failed"
    assert not runner.wants(result)


class Plan(Runner):
    """Visits that see what a plan says: case -> states in turn. ``order`` has them, and in capitals what was judged."""

    def __init__(self, plan, watch, budget=BUDGET):
        super().__init__(SIDES, limits.Limits(), budget, watch=watch)
        self.plan, self.order = {name: list(states) for name, states in plan.items()}, ""

    def judge(self, case, result):
        self.order += case.name.upper()
        result.judged = True

    def visit(self, case, result):
        self.order += case.name
        result.judged = True
        result.visits.append(visit(self.plan[case.name].pop(0)))
        self.conclude(case, result)


def run_suite(plan, watch, **options):
    runner, stored = Plan(plan, watch), []
    cases = [Case(name, CASE.make, family="f") for name in plan]
    made = suite.Suite(runner, cases, store=lambda result: stored.append(result.name), **options)
    made.run()
    assert len(stored) >= len(runner.order) and made.done <= made.visits
    return made, runner.order


def test_cases_are_visited_in_passes():
    made, order = run_suite({"a": [""] * 3, "b": [""] * 3}, None)
    assert order == "ababab" and made.done == made.visits
    made, order = run_suite({"a": [NEAR] * 3, "b": [FAR, NEAR, FAR, NEAR, NEAR]}, watching([80]))
    assert order == "abababbb" and {r.placement for r in made.results.values()} == {NEAR}
    made, order = run_suite({"a": [FAR] * 9, "b": [NEAR] * 3}, watching([80]))
    assert order == "ababab" and made.results["f/a"].placement == FAR  # not for ever
    assert made.done == made.visits and made.finished == 2


def test_when_its_time_is_over_a_run_visits_only_those_that_were_not_visited_twice():
    time = Time()
    runner = Plan({"a": [""] * 3, "b": [""] * 3, "c": [""] * 3}, None, replace(BUDGET, run=60.0))
    runner.visit, visit = lambda *given: (visit(*given), time.sleep(8.0)), runner.visit
    cases = [Case(name, CASE.make, family="f") for name in "abc"]
    made = suite.Suite(runner, cases, clock=time.clock)
    made.run()
    assert runner.order == "abcabcab" and made.done == made.visits == 8
    late = Plan({"a": [""] * 3, "b": [""] * 3}, None, replace(BUDGET, run=-1.0))
    suite.Suite(late, cases[:2]).run()
    assert late.order == "abab"


@pytest.mark.parametrize("latency", [None, 350], ids=["near", "far"])
@pytest.mark.parametrize(("count", "took", "twice"), [(20, 2.0, 20), (20, 4.0, 10), (47, 3.0, 0)])
def test_a_quick_look_ends_in_time_on_a_busy_machine(count, took, twice, latency):
    """When its time is over, those that were visited once are done, and the others are visited once, without waiting."""
    time, names = Time(), [f"c{i}" for i in range(count)]
    state = "" if latency is None else FAR
    watch = None if latency is None else watching([80] + [latency] * 10_000, time)
    runner = Plan({name: [state] * 9 for name in names}, watch, race.QUICK)
    visits, runner.visit = runner.visit, lambda *given: (visits(*given), time.sleep(took))
    judged, runner.judge = runner.judge, lambda *given: (judged(*given), time.sleep(1.0))
    made = suite.Suite(runner, [Case(name, CASE.make, family="f") for name in names], clock=time.clock)
    made.run()
    seen = [len(made.results[f"f/{name}"].visits) for name in names]
    assert min(seen) == 1 or twice == count
    assert made.done == made.visits and made.finished == count
    if latency is None:
        assert seen.count(2) == pytest.approx(twice, abs=1) and max(seen) <= 2
        assert time.clock() <= max(race.QUICK.run + took, count * took)
    else:
        assert max(seen) <= 2 and time.clock() <= max(race.QUICK.run, count * 1.0) + made.least_wait + count * took


def test_a_process_ends_with_a_pass_and_the_next_goes_on():
    time, kept, orders = Time(), {}, []
    carried, plans = None, {"a": [NEAR] * 3, "b": [NEAR] * 3}
    while len(orders) < 9:
        runner = Plan(plans, watching([80], time))
        visits = runner.visit
        runner.visit = lambda *given, visits=visits: (visits(*given), time.sleep(8.0))
        cases = [Case(name, CASE.make, family="f") for name in "ab"]
        made = suite.Suite(runner, cases, kept, clock=time.clock, shift=10.0)
        if carried:
            made.take(json.loads(json.dumps(carried)))
        made.run()
        orders.append(runner.order)
        if not made.unfinished:
            break
        carried = made.carry()
    assert orders == ["ab", "ab", "ab"] and made.start == 0 and made.done == made.visits
    assert len(made.runner.watch.latencies) > 3 and made.runner.watch.lowest == pytest.approx(80e-9)
    # Quick passes: so many of them at most. Alone in a process, a run stays there.
    for shift, count in ((1e6, suite.PASSES), (math.inf, 5)):
        runner = Plan({"a": [""] * 5}, None, replace(BUDGET, visits=5, precise=0.0))
        made = suite.Suite(runner, [Case("a", CASE.make, family="f")], shift=shift)
        made.run()
        assert runner.order == "a" * count and made.unfinished == (shift < math.inf)


def test_what_visits_differ_by_is_known_from_the_start_of_each_process():
    """... from the results that it goes on with, and a result is stored once in the end, whatever its processors did."""
    names = [f"c{i}" for i in range(30)]
    cases, kept, known = [Case(name, CASE.make, family="f") for name in names], {}, []
    runner = Plan({name: [""] for name in names}, None, replace(BUDGET, visits=3, precise=0.0, apart=0.01))
    for i, case in enumerate(cases):
        kept[case.full_name] = result = runner.start(case)
        result.visits = [visit("", 2.0), visit("", 2.0 * (1.2 if i % 2 else 0.8))]
        runner.conclude(case, result)
    judged = runner.visit
    runner.visit = lambda *given: (known.append(runner.apart), judged(*given))
    suite.Suite(runner, cases, kept, shift=1e6).run()
    assert len(known) == 30 and len(set(known)) == 1 and known[0] > 0.1
    stored = []
    runner = Plan({"a": [FAR] * 9}, watching([350], time := Time()))
    made = suite.Suite(runner, [CASE], store=lambda r: stored.append(r.placement), least_wait=2 * placement.PATIENCE)
    made.run()
    assert stored.count(NEAR) == 1 and stored[-1] == NEAR and time.now > 0


def test_results_are_judged_while_processors_are_far():
    _, order = run_suite({"a": [NEAR] * 3, "b": [NEAR] * 3}, watching([80, 350, 350, 350, 350, 80]))
    assert order == "aBbabab"


def test_waiting_ends():
    time = Time()
    made, order = run_suite({"a": [FAR] * 9, "b": [FAR] * 9}, watching([350], time), least_wait=20.0)
    assert order == "ABaabb" and 20 <= time.now < 21
    assert {r.placement for r in made.results.values()} == {FAR} and made.done == 0


def test_a_run_waits_for_a_quiet_cache_but_not_for_ever():
    time, watch = Time(), watching([80])
    watch.sleep, watch.cache = time.sleep, Cache(*[0.5] * 30, 1.0)
    runner = Plan({"a": [NEAR] * 3, "b": [NEAR] * 3}, watch, replace(BUDGET, calm=0.9))
    runner.limits, seen = Cache.limit, []
    visits, runner.visit = runner.visit, lambda *given: (seen.append(time.now), visits(*given), time.sleep(1.0))
    judged, runner.judge = runner.judge, lambda *given: (judged(*given), time.sleep(1.0))
    made = suite.Suite(runner, [Case(name, CASE.make, family="f") for name in "ab"], clock=time.clock)
    made.run()
    assert runner.order == "ABababab" and made.done == made.visits
    assert seen[0] == pytest.approx(2 + 28 * placement.LOOK_AGAIN)
    assert made.carry()["waited"][suite.QUIET_CACHE] == pytest.approx(28 * placement.LOOK_AGAIN)
    assert made.waited[suite.NEAR_PROCESSORS] == 0

    time, watch = Time(), watching([80])
    watch.sleep, watch.cache = time.sleep, Cache(0.5)
    runner = Plan({"a": [NEAR] * 3}, watch, replace(BUDGET, calm=0.5))
    runner.limits = Cache.limit
    visits, runner.visit = runner.visit, lambda *given: (visits(*given), time.sleep(1.0))
    made = suite.Suite(runner, [CASE], clock=time.clock)
    made.run()
    assert runner.order == "Aaaa" and made.waited[suite.QUIET_CACHE] <= 0.5 * time.now + placement.LOOK_AGAIN


def test_the_only_state_of_a_machine_counts_as_near():
    time = Time()
    made, order = run_suite({"a": [FAR] * 3}, watching([350], time), least_wait=2 * placement.PATIENCE)
    assert order == "Aaaa" and made.results["f/a"].placement == NEAR and time.now < placement.PATIENCE + 1


def test_a_case_that_broke_stays_broken_on_a_machine_of_one_state():
    time = Time()
    runner = Plan({"a": [FAR] * 9}, watching([350], time))
    broken = runner.start(CASE)
    broken.visits, broken.status = [visit(FAR)], "failed"
    made = suite.Suite(runner, [CASE], {broken.name: broken}, least_wait=2 * placement.PATIENCE)
    runner.watch.look()
    time.sleep(2 * placement.PATIENCE)
    made.run()
    assert runner.order == "" and broken.ratio is None and not broken.timed and made.done == made.visits


def test_a_resumed_run_goes_on_where_it_was():
    runner = Plan({"a": [""], "b": ["", "", ""]}, None)
    cases = [Case(name, CASE.make, family="f") for name in "ab"]
    kept = runner.start(cases[0])
    kept.visits = [visit(""), visit("")]
    runner.conclude(cases[0], kept)
    suite.Suite(runner, cases, {"f/a": kept}).run()
    assert runner.order == "bbab"


def test_other_placements_are_not_compared():
    def run(ratio, state):
        result = Result("f/a", "f", rival="cpu", ratio=ratio, low=ratio, high=ratio, placement=state)
        return Run({}, limits.Limits(), {"f/a": result})

    def judged(old, new):
        [change] = compare(run(*old), run(*new))
        return change.verdict, change.regression

    assert judged((2.0, NEAR), (1.0, FAR)) == ("apart", False)
    assert judged((2.0, NEAR), (1.0, NEAR)) == ("slower", True)
    assert judged((2.0, ""), (1.0, NEAR)) == ("slower", True)  # a file from before placements were known
