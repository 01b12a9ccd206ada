"""The recorder: what it compares, what it says about a call, and that a right device leaves nothing to report."""

import copy
import threading

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from minitorch_backend import compare
from minitorch_backend.compare import judge
from tests.compare.models import RUNS

CPU = {"subject": "cpu", "reference": "cpu"}


def findings(report):
    return [(f.first.op, f.first.verdict, f.first.detail) for f in report.findings]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("subject", ["cpu", "minitorch"])
def test_an_unplanted_run_leaves_nothing_to_report(name, subject):
    report = compare.run(lambda: RUNS[name](subject), subject=subject)
    assert report.ended == "finished", report.error
    assert findings(report) == [] and not any("could not" in note for note in report.store.notes)
    assert report.clean and report.store.compared > 100
    verdicts = set(report.store.verdicts)
    assert verdicts <= ({judge.EQUAL} if subject == "cpu" else {judge.EQUAL, judge.AGREE, judge.BOTH_POOR})


@pytest.mark.parametrize("subject", ["cpu", "minitorch"])
def test_comparing_changes_nothing(subject):
    plain = RUNS["CNN"](subject)
    report = compare.run(lambda: RUNS["CNN"](subject), subject=subject, thorough=True)
    for a, b in zip(plain.state_dict().values(), report.result.state_dict().values(), strict=True):
        assert torch.equal(a.cpu(), b.cpu())
    assert findings(report) == []


def test_where_a_call_happens():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh()).to("minitorch")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(5, 3, device="minitorch")

    def work():
        for _ in range(2):
            model(x).sum().backward()
            optimizer.step()

    report = compare.run(work, keep=1000)
    calls = {(c.step, c.phase, c.op.split(".")[0]): c for c in report.store.kept()}
    forward, backward = calls[1, "forward", "aten::tanh"], calls[1, "backward", "aten::tanh_backward"]
    assert forward.module == "Sequential.1" and backward.module == "Sequential.1"
    assert backward.forward == forward.index
    assert "in work: model(x).sum().backward()" in forward.stack[0]
    assert backward.stack[0] == backward.forward_stack[0] == forward.stack[0]
    optimizers = [c for c in calls.values() if c.phase == "optimizer"]
    assert optimizers and all(c.module == "SGD.step" for c in optimizers)


@pytest.mark.parametrize("as_keyword", (False, True))
def test_the_closure_of_an_optimizer_is_no_part_of_its_step(as_keyword):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh()).to("minitorch")
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    x = torch.randn(5, 3, device="minitorch")

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss

    report = compare.run(lambda: optimizer.step(closure=closure) if as_keyword else optimizer.step(closure), keep=1000)
    calls = {c.op.split(".")[0]: c for c in report.store.kept()}
    forward, backward = calls["aten::tanh"], calls["aten::tanh_backward"]
    assert (forward.phase, forward.module) == ("forward", "Sequential.1")
    assert (backward.phase, backward.module) == ("backward", "Sequential.1") and backward.forward > 0
    assert (calls["aten::dot"].phase, calls["aten::dot"].module) == ("optimizer", "LBFGS.step")


def test_modules_and_optimizers_of_another_thread_name_nothing():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh()).to("minitorch"), torch.randn(5, 3, device="minitorch")
    inside, leave = threading.Event(), threading.Event()

    class Waits(nn.Module):
        def forward(self):
            inside.set()
            assert leave.wait(30)

    def elsewhere():
        torch.optim.SGD([torch.zeros(1)], lr=0.1).step()
        Waits()()

    def work():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        assert inside.wait(30)
        model(x).sum().backward()
        leave.set()
        thread.join()

    report = compare.run(work, keep=1000)
    calls = {c.op.split(".")[0]: c for c in report.store.kept()}
    assert calls["aten::tanh"].module == calls["aten::tanh_backward"].module == "Sequential.1"
    assert report.data()["run"]["steps"] == 0


def test_higher_order_operators_run_uncompared():
    x = torch.randn(5, device="minitorch")
    report = compare.run(lambda: torch.cond(torch.tensor(True), torch.sin, torch.cos, (x,)))
    assert report.ended == "finished" and torch.equal(report.result, x.sin())
    assert any("cond: what runs inside" in note for note in report.data()["notes"])


def test_random_operators_draw_the_same_numbers():
    generator = torch.Generator("minitorch").manual_seed(3)

    def work():
        x = torch.randn(40, device="minitorch")
        x.uniform_(generator=generator)
        torch.bernoulli(x)
        torch.nn.functional.dropout(x, 0.5)
        return torch.randint(7, (9,), device="minitorch"), torch.randperm(11, device="minitorch")

    report = compare.run(work, thorough=True, keep=100)
    assert report.ended == "finished", report.error
    assert findings(report) == [] and report.store.compared >= 6


def test_views_and_writes_through_them():
    def work():
        x = torch.arange(24.0, device="minitorch").view(4, 6)
        x[1:, ::2].mul_(3)
        x.t()[2].add_(x[0, 0])
        torch.add(x[0], 1, out=x[2])
        x[x > 20] = 0
        return x, x[x > 3], x.nonzero(), torch.unique(x)

    report = compare.run(work, thorough=True)
    assert report.ended == "finished", report.error
    assert findings(report) == []


def test_dtypes():
    def work():
        for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int32, torch.bool):
            x = (torch.arange(12, device="minitorch").reshape(3, 4) % 5).to(dtype)
            (x * x).sum()
            x.t() @ x if dtype != torch.bool else ~x
        nan = torch.tensor([float("nan"), float("inf"), -0.0, 1e-42], device="minitorch")
        return nan * 2, nan.exp(), nan.isnan(), nan.max()

    report = compare.run(work, thorough=True)
    assert report.ended == "finished", report.error
    assert findings(report) == []


def test_an_error_on_both_sides_is_none_of_ours():
    report = compare.run(lambda: torch.ones(2, 3, device="minitorch") @ torch.ones(2, 3, device="minitorch"))
    assert "the program raised RuntimeError" in report.ended and findings(report) == []


def test_inherited_error_follows_a_difference_while_local_errors_stay_small(monkeypatch):
    """A reference that is off in one operator: later operators inherit that, and are not blamed."""
    from minitorch_backend.compare import operators

    tanh = operators.operator_of(torch.ops.aten.tanh.default)
    monkeypatch.setattr(tanh, "reference", lambda x: torch.tanh(x) * (1 + 1e-3 * (x.dtype == torch.float32)))

    def work():
        x = torch.linspace(0.1, 1, 50, device="minitorch")
        y = x * 2
        z = y.tanh()
        z.mul_(2)
        return z.exp() + x

    report = compare.run(work, keep=100)
    assert findings(report) == [("aten::tanh", judge.REFERENCE_WORSE, "")]
    by_op = {c.op: c for c in report.store.kept()}
    assert by_op["aten::mul.Tensor"].inherited == 0
    assert 5e-4 < by_op["aten::exp"].inherited < 5e-3 and by_op["aten::exp"].local < 1e-6
    assert 1e-4 < by_op["aten::add.Tensor"].inherited < 5e-3 and by_op["aten::add.Tensor"].local < 1e-6


def test_sampling():
    x = torch.ones(5, device="minitorch")

    def work():
        for _ in range(40):
            x.exp()
            x.sin()

    report = compare.run(work, every=10)
    assert report.store.calls == 80 and report.store.compared == 8
    assert report.recorder.shadow is None
    report = compare.run(work, only="exp")
    assert {c.op for c in report.store.kept()} == {"aten::exp"} and report.store.compared == 40
    model, optimizer = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).to("minitorch"), None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train():
        for _ in range(4):
            model(torch.ones(1, 2, device="minitorch")).sum().backward()
            optimizer.step()

    report = compare.run(train, modules=r"\.1$", steps=(1, 3), keep=100)
    kept = report.store.kept()
    assert {c.module for c in kept} == {"Sequential.1"} and {c.step for c in kept} == {1, 2}


def test_memory_is_bounded():
    x = torch.ones(1000, device="minitorch")

    def work():
        y = x
        for i in range(300):
            y = (y * 1.0001).sin() + i
        return y

    report = compare.run(work, keep=20)
    assert len(report.store.kept()) == 20
    report.recorder.shadow.sweep(report.store)
    assert len(report.recorder.shadow.storages) <= 1, "shadows of dead tensors stay"
    with_limit = compare.run(work, memory=100)
    assert any("--streaming" in note for note in with_limit.store.notes)
    assert with_limit.store.compared == report.store.compared


def test_a_mode_of_the_programs_own():
    class Doubling(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    def work():
        with Doubling():
            return torch.ones(3, device="minitorch").exp()

    report = compare.run(work)
    assert report.store.compared >= 2 and any("Doubling" in note for note in report.store.notes)


def test_nothing_stays_behind():
    before = copy.copy(torch.nn.modules.module._global_forward_hooks), torch.compile
    compare.run(lambda: torch.ones(2, device="minitorch") + 1)
    assert (torch.nn.modules.module._global_forward_hooks, torch.compile) == before
    assert torch.utils._python_dispatch._get_current_dispatch_mode_stack() == []


def test_lists_are_looked_at_in_parts():
    """One tensor of a long list is wrong by a little: the look comes round to it, and says where it is."""
    from tests.compare.faults import Fault, planted

    def wrong(right, tensors, scalar):
        right(tensors, scalar)
        for t in tensors:
            if len(t) == 35:
                t.mul_(1 + 1e-5)

    x = [torch.linspace(1, 2, 5 + i).to("minitorch") for i in range(40)]

    def work():
        for _ in range(3):
            torch._foreach_mul_(x, 0.5)

    with planted(Fault("one of many", "", "aten::_foreach_mul_.Scalar", judge.SUBJECT_WORSE, wrong)):
        report = compare.run(work)
    [found] = report.findings
    assert found.first.verdict == judge.SUBJECT_WORSE and found.first.index <= 1 and found.first.reference_ulp <= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("cancels", [False, True])
def test_the_library_measures_what_torch_does(dtype, cancels, monkeypatch):
    """The kernel that measures distances and the operators that stand in for it where it is not built."""
    from minitorch_backend.compare import distance

    torch.manual_seed(0)
    rel = 1e-2 if dtype.itemsize == 2 else 1e-6  # torch rounds differences of 16-bit values
    for shape in ((3,), (70, 90), (5, 4, 3)):
        a = torch.randn(shape, dtype=dtype)
        for b in (a.clone(), a * (1 + 1e-2), a.neg(), torch.zeros_like(a)):
            for x, y in ((a, b), (a.mT, b.mT) if a.dim() > 1 and not cancels else (a, b), (a[..., ::2], b[..., ::2])):
                fast, drift = distance.distance(x, y, cancels), distance.sampled_error(x, y)
                with monkeypatch.context() as patch:
                    patch.setattr(distance, "LIBRARY", None)
                    slow = distance.distance(x, y, cancels)
                    assert fast.ulp == slow.ulp
                    assert fast == pytest.approx(slow, rel=rel)
                    assert drift == pytest.approx(distance.sampled_error(x, y), rel=rel)


def test_distances_of_values_that_are_not_finite():
    from minitorch_backend.compare.distance import NONE, distance

    inf, nan = float("inf"), float("nan")
    a = torch.tensor([1.0, inf, nan, 3e38])
    assert distance(a, a.clone()) == NONE
    assert distance(a, torch.tensor([1.0, inf, -nan, 3e38])) == NONE
    assert distance(a, torch.tensor([1.0, inf, 0.0, 3e38])).norm == inf
    assert distance(torch.tensor([3e38]), torch.tensor([-3e38])).relative == pytest.approx(2)
    assert distance(torch.tensor([3.4028235e38]), torch.tensor([inf])).norm == inf


def test_a_sampled_comparison_takes_the_first_call_on_the_device_and_knows_its_module():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Tanh())).to("minitorch")
    torch.ones(3).tanh()

    def work():
        for _ in range(3):
            torch.ones(3).tanh()  # on the host: not a call of the device
        for _ in range(5):
            model(torch.ones(1, 2, device="minitorch")).sum().backward()

    report = compare.run(work, every=5, keep=100)
    taken = [c for c in report.store.kept() if c.op == "aten::tanh"]
    assert [c.module for c in taken] == ["Sequential.1.0"]
    linear = [c for c in report.store.kept() if c.op == "minitorch::linear_forward"]
    assert [c.module for c in linear] == ["Sequential.0"]
