"""The benchmark: a case, from its set-up to its result; what it says about cases that fail; limits."""

import json
import math
import os

import pytest
import torch

from minitorch_backend.bench import accuracy, case, clock, limits, machine, race, report, runner, suite
from minitorch_backend.bench.case import Case, Setup, forward, training
from minitorch_backend.bench.race import Budget
from minitorch_backend.bench.results import Result
from tests.python.races import SHORT
from tests.python.twin import ASYNCHRONOUS

CASES = case.load()


def run_one(made, **options):
    return runner.Runner([runner.native("cpu"), runner.OURS], limits.Limits(), SHORT, **options).run(made)


def test_a_case_is_judged_timed_and_weighed():
    n = 2**22
    made = Case("gelu", lambda s: forward(torch.nn.functional.gelu, s.normal(n)), 8.0 * n, 1.0 * n, family="x")
    measured = limits.Limits({1024: 1e10}, {1024: 1e10}, {"float32": 1e11})
    result = runner.Runner([runner.native("cpu"), runner.OURS], measured, SHORT).run(made)
    assert result.status == "ok" and result.rounds == 3 and result.seconds.keys() == {"cpu", "minitorch"}
    assert result.low <= result.ratio <= result.high and result.bound == "memory"
    assert result.share == pytest.approx(8.0 * n / 1e10 / result.seconds["minitorch"])
    assert 0 < result.errors["minitorch"] < 1e-6
    assert result.peak["minitorch"] == pytest.approx(4 * n, rel=0.3) and result.peak["cpu"] == pytest.approx(
        4 * n, rel=0.3
    )


@pytest.mark.skipif(os.environ.get("MINITORCH_POISON") == "1", reason="canaries take memory of their own")
def test_what_the_harness_adds_is_no_memory_of_the_work():
    n = 2**22  # a result and a gradient of 16 MiB each; the gradient that backward starts from is as large
    made = Case("double", lambda s: training(s, lambda x: x * 2, s.normal(n, grad=True)), family="x")
    result = run_one(made)
    assert result.peak["minitorch"] == pytest.approx(8 * n, rel=0.1)
    assert result.peak["cpu"] == pytest.approx(8 * n, rel=0.2)


def test_gradients_belong_to_the_result():
    work = training(Setup(torch.device("cpu")), lambda x: (x * x).sum(), x := torch.randn(4, requires_grad=True))
    value, grad = work()
    assert torch.equal(grad, 2 * x.detach()) and value == (x * x).sum()


def scaled_on_minitorch(factor):
    def make(setup):
        x = setup.normal(1000)
        return lambda: x * (factor if x.device.type == "minitorch" else 1.0)

    return make


@pytest.mark.parametrize(
    "factor,status", [(1.0, "ok"), (1 + 3e-6, "less accurate"), (1.1, "wrong")], ids=["right", "less", "wrong"]
)
def test_errors_are_marked(factor, status):
    assert run_one(Case("scaled", scaled_on_minitorch(factor))).status == status


def test_wrong_dtype_or_shape_is_wrong():
    x, y = torch.ones(3), torch.ones(3).double()
    assert accuracy.compare([x], [y], [y]).verdict == "wrong"
    assert accuracy.compare([x], [x[:2]], [y]).verdict == "wrong"
    assert accuracy.compare([x], [torch.tensor([1, math.nan, 1.0])], [y]).verdict == "wrong"
    assert accuracy.compare([x], [], [y]).verdict == "wrong"


def test_a_case_that_fails_is_a_result():
    def fail(setup):
        raise RuntimeError("no such thing\nsecond line")

    result = run_one(Case("failing", fail))
    assert result.status == "failed" and result.message.startswith("RuntimeError: no such thing (test_bench.py:")
    assert not result.timed


def test_a_case_without_a_result_is_not_called_right():
    result = run_one(Case("nothing", lambda s: forward(lambda: None)))
    assert result.status == "failed" and "no tensor to compare" in result.message and not result.timed
    assert run_one(Case("nothing", lambda s: forward(lambda: None), check="none")).status == "ok"


def test_a_case_that_fails_at_a_later_visit_has_no_ratio():
    calls = []

    def make(setup):
        calls.append(setup)
        if len(calls) > 7:  # three to judge, two for memory, two for the first visit
            raise RuntimeError("worn out")
        return forward(torch.exp, setup.normal(64))

    budget = Budget(block=1e-4, rounds=3, target=1.0, seconds=0.0, least=3, warm=1e-3, visits=2)
    result = runner.Runner([runner.native("cpu"), runner.OURS], limits.Limits(), budget).run(Case("wears", make))
    assert result.status == "failed" and "worn out" in result.message
    assert len(result.visits) == 1 and not result.timed


def test_out_of_memory_is_a_result():
    torch.minitorch.set_per_process_memory_fraction(1e-4)
    try:
        result = run_one(
            Case("large", lambda s: lambda: torch.empty(2**33, device=s.device) if s.device.type != "cpu" else 0)
        )
    finally:
        torch.minitorch.set_per_process_memory_fraction(1.0)
    assert result.status == "out of memory" and "OutOfMemoryError" in result.message
    assert run_one(Case("small", lambda s: forward(torch.neg, s.normal(8)))).status == "ok"


def test_native_s_lack_of_memory_is_out_of_memory():
    def make(setup):
        return lambda: torch.empty(2**46, dtype=torch.int8)  # native's, whatever the side

    result = run_one(Case("enormous", make))
    assert result.status == "out of memory" and "DefaultCPUAllocator" in result.message


def test_near_matches():
    with pytest.raises(LookupError, match="softmax"):
        case.choose(CASES, "sofmax", "cpu")
    with pytest.raises(LookupError, match="--list"):
        case.choose(CASES, "qqqqqqq", "cpu")


class Recorded:
    """A GPU's module that writes down what is asked of it, in which a millisecond lies between any two events."""

    def __init__(self):
        self.asked = []

    def Event(self, enable_timing):
        return self

    def record(self):
        self.asked.append("event")

    def synchronize(self):
        self.asked.append("synchronize")

    def elapsed_time(self, end):
        return 1.0

    def zero_(self):
        self.asked.append("flush")


def test_a_cold_clock_flushes_the_cache_before_each_call_and_times_the_call_alone(monkeypatch):
    module = Recorded()
    monkeypatch.setattr(clock, "device_module", lambda device: module)
    monkeypatch.setattr(clock, "FLUSH_BYTES", 8)
    monkeypatch.setattr(clock, "is_gpu", lambda device: device.type != "cpu")
    device = torch.device("minitorch")
    cold = clock.clock_for(device, cold=True)
    cold.buffer = module
    assert cold.measure(lambda: module.asked.append("work"), 3) == 1e-3
    assert module.asked == ["flush", "event", "work", "event"] * 3 + ["synchronize"]
    module.asked.clear()
    warm = clock.clock_for(device, cold=False)
    assert warm.measure(lambda: module.asked.append("work"), 4) == 1e-3 / 4
    assert module.asked == ["synchronize", "event", *["work"] * 4, "event", "synchronize"]
    assert isinstance(clock.clock_for(torch.device("cpu"), cold=True), clock.HostClock)


def test_limits():
    found = limits.Limits({1024: 8e10, 4096: 2e10}, {1024: 4e10}, {"float32": 1e11, "float64": 5e10})
    assert found.bandwidth_at(10) == 8e10 and found.bandwidth_at(1e9) == 2e10 and found.bandwidth_at(2048) == 5e10
    assert found.peak_of(torch.int64) == 1e11
    assert found.best_time(Case("a", None, 4096.0, 1e6, torch.float64)) == (2e-5, "arithmetic")
    assert found.best_time(Case("a", None, 4e6, 1e6)) == (2e-4, "memory")
    assert found.best_time(Case("a", None)) is None
    assert limits.Limits.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.skipif(ASYNCHRONOUS, reason="the CPU's limits are measured with the CPU backend")
def test_probes_give_plausible_figures():
    measured = limits.measure_cpu(sizes=(2**20,))
    assert 1e8 < measured.copy[2**20] < 1e13 and 1e8 < measured.read[2**20] < 1e13
    assert all(1e8 < peak < 1e14 for peak in measured.peak.values()) and len(measured.peak) == 3


def test_visits_of_a_case_are_set_up_anew_and_in_turns():
    made = []

    def make(setup):
        made.append((setup.device.type, setup.reference))
        return forward(torch.exp, setup.normal(64))

    budget = Budget(block=1e-4, rounds=3, target=1.0, seconds=0.0, least=3, warm=1e-3, visits=3, precise=0.0)
    racer = runner.Runner([runner.native("cpu"), runner.OURS], limits.Limits(), budget)
    result = racer.run(Case("exp", make))
    assert result.status == "ok" and len(result.visits) == 3 and result.rounds == 9 and not racer.wants(result)
    check, rest = made[:3], [device for device, _ in made[5:]]  # the other two are for memory
    assert sorted(check) == [("cpu", False), ("cpu", True), ("minitorch", False)]
    assert rest == ["cpu", "minitorch", "minitorch", "cpu", "cpu", "minitorch"]
    assert result.low < result.ratio < result.high


def test_a_lucky_interval_does_not_end_a_thorough_race():
    assert race.THOROUGH.fewest > race.Budget().fewest and race.THOROUGH.enough > race.Budget().enough
    budget = Budget(block=1e-4, rounds=3, target=1.0, seconds=0.0, least=3, warm=1e-3, fewest=5, visits=9, precise=1e9)
    racer = runner.Runner([runner.native("cpu"), runner.OURS], limits.Limits(), budget)
    assert len(racer.run(Case("exp", lambda setup: forward(torch.exp, setup.normal(64)))).visits) == 5


def test_busy_machine_is_said():
    result = Result("f/a", "f", rival="cpu", ratio=2.0, low=1.9, high=2.1, load=0.4, busy=True)
    assert "machine busy (40%)" in report.marks(result)
    assert "too busy for 1" in report.summary([result], "cpu")
    load = machine.Load.now()
    load.wall -= 1.0  # a second in which the system did nothing that this process did not
    assert 0.0 <= load.others_until_now() <= 1.0


def test_a_case_that_exits_is_a_result():
    def leave(setup):
        raise SystemExit(3)

    result = run_one(Case("leaves", leave, family="f"))
    assert result.status == "failed" and "SystemExit: 3" in result.message


def test_limits_fit_the_kind_of_access():
    known = limits.Limits({8: 4.0, 16: 2.0}, {8: 3.0, 16: 3.0}, {"float32": 10.0}, {8: 6.0, 16: 1.0}, {8: 9.0, 16: 9.0})
    assert known.bandwidth_at(8) == 4.0 and known.bandwidth_at(16) == 3.0
    assert known.bandwidth_at(8, "update") == 6.0 and known.bandwidth_at(16, "update") == 3.0
    assert known.bandwidth_at(16, "write") == 9.0
    updates = Case("a", lambda s: None, bytes=16.0, working_set=8.0, access="update")
    assert known.best_time(updates) == (16 / 6, "memory")
    assert known.peak_of("tf32") is None and known.peak_of("int64") == 10.0
    better = known.raised(limits.Limits({8: 5.0, 32: 1.0}, {}, {"float32": 9.0, "tf32": 20.0}))
    assert better.copy == {8: 5.0, 16: 2.0, 32: 1.0} and better.peak == {"float32": 10.0, "tf32": 20.0}
    assert limits.Limits.from_json(better.to_json()) == better
    old = limits.Limits.from_json({"copy": {"8": 4.0}, "read": {}, "peak": {}})
    assert old.bandwidth_at(8, "update") == 4.0


def test_shares_follow_better_limits():
    made = Case("a", lambda s: forward(torch.exp, s.normal(64)), bytes=512.0, family="f")
    found = suite.Suite(
        runner.Runner([runner.native("cpu"), runner.OURS], limits.Limits({8: 1e9}, {}, {}), SHORT), [made]
    )
    found.run()
    before = found.results["f/a"].share
    found.take_limits(limits.Limits({8: 2e9}, {}, {}))
    assert found.results["f/a"].share == pytest.approx(before / 2)
