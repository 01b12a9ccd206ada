"""A sampled comparison leaves the dispatcher for training steps, and comes back."""

import itertools
import threading

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from minitorch_backend import compare, kernels
from minitorch_backend.compare.sampling import PATIENCE, PERIOD

EVERY = 2 * PERIOD  # the least that pauses


class Training:
    """A small model that trains; `losses` of its steps."""

    def __init__(self, optimizers=(torch.optim.SGD,)):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to("minitorch")
        self.turns = itertools.cycle([make(self.model.parameters(), lr=0.01) for make in optimizers])
        self.x = torch.randn(6, 4).to("minitorch")
        self.losses = []

    def steps(self, count):
        for _ in range(count):
            loss = self.model(self.x).square().sum()
            loss.backward()
            optimizer = next(self.turns)
            optimizer.step()
            optimizer.zero_grad()
            self.losses.append(loss.detach())


def compared(report, name):
    found = report.store.ops.get(name)
    return found.calls if found else 0


def stack():
    return torch._C._len_torch_dispatch_stack()


class Doubles(TorchDispatchMode):
    """A mode of a program's own."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("count", (1, 2, PERIOD, PERIOD + 1, 30))
def test_one_step_in_seven_is_watched(count):
    plain, watched = Training(), Training()
    plain.steps(count)
    report = compare.run(lambda: watched.steps(count), every=EVERY)
    assert report.clean
    run = report.data()["run"]
    assert run["steps"] == count and run["watched"] == -(-count // PERIOD)
    assert torch.equal(torch.stack(plain.losses).cpu(), torch.stack(watched.losses).cpu())
    assert stack() == 0


def test_as_many_calls_are_looked_at_as_without_pauses():
    training, steps = Training(), 20 * PERIOD
    report = compare.run(lambda: training.steps(steps), every=EVERY)
    for name in ("aten::tanh", "aten::tanh_backward", "minitorch::linear_forward"):
        calls = steps * (2 if "linear" in name else 1)
        assert compared(report, name) == pytest.approx(calls / EVERY, abs=2), name


def test_fewer_calls_than_two_periods_are_never_paused_for():
    training = Training()
    report = compare.run(lambda: training.steps(9), every=EVERY - 1)
    assert report.data()["run"]["watched"] == 9


def test_optimizers_that_take_turns_are_all_met():
    training = Training((torch.optim.SGD, torch.optim.Adagrad))
    report = compare.run(lambda: training.steps(2 * PERIOD + 1), every=EVERY)
    assert compared(report, "aten::_foreach_sqrt") > 0  # of Adagrad, whose turn is not the first
    assert compared(report, "aten::_foreach_add_.List") > 0


def test_a_fault_that_begins_in_a_pause_is_found():
    training = Training()

    def work():
        training.steps(3)
        with kernels.override("aten::tanh", lambda x: x * 0.5):
            training.steps(3 * PERIOD)

    report = compare.run(work, every=EVERY)
    assert report.culprit.first.op == "aten::tanh" and report.culprit.first.step >= PERIOD


def test_an_evaluation_after_training_is_watched():
    training = Training()

    def work():
        training.steps(2)
        training.model.eval()
        with torch.no_grad(), kernels.override("aten::tanh", lambda x: x * 0.5):
            for _ in range(PATIENCE * PERIOD + EVERY + 1):
                training.model(training.x)

    report = compare.run(work, every=EVERY)
    assert report.culprit.first.op == "aten::tanh"


def test_training_after_an_evaluation_is_paused_for_again():
    training = Training()

    def work():
        training.steps(2)
        for _ in range(3 * PATIENCE * PERIOD):
            training.model(training.x)
        training.steps(PERIOD)

    report = compare.run(work, every=EVERY)
    # The first step, and the one that follows the evaluation, with which a pause begins again.
    assert report.data()["run"]["watched"] == 2


def test_without_modules_every_step_is_watched():
    weight = torch.randn(3, device="minitorch", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def work():
        for _ in range(10):
            optimizer.zero_grad()
            weight.square().sum().backward()
            optimizer.step()

    assert compare.run(work, every=EVERY).data()["run"]["watched"] == 10


def test_filters_see_every_step():
    training = Training()
    report = compare.run(lambda: training.steps(5), every=EVERY, steps=(3, 4))
    assert compared(report, "aten::tanh") == 1
    assert all(call.step == 3 for call in report.store.kept())


@pytest.mark.parametrize("first", (0, 3))
def test_a_mode_of_the_programs_own_is_left_in_order(first):
    """One that spans steps, entered while the comparison is watching or while it pauses."""
    training, seen = Training(), []

    def work():
        training.steps(first)
        outside = stack()
        with Doubles() as mode:
            training.steps(PERIOD + 1)
            seen.append(torch._C._get_dispatch_stack_at(stack() - 1) is mode)
        seen.append(stack() == outside)
        training.steps(2 * PERIOD)

    report = compare.run(work, every=EVERY)
    assert seen == [True, True] and stack() == 0 and not report.findings
    assert 0 < report.data()["run"]["watched"] < first + 3 * PERIOD + 1


def test_steps_of_another_thread_change_nothing():
    ours, theirs = Training(), Training()

    def work():
        ours.steps(1)
        thread = threading.Thread(target=theirs.steps, args=(3 * PERIOD,))
        thread.start()
        thread.join()
        ours.steps(1)

    report = compare.run(work, every=EVERY)
    assert report.recorder.sampling.watched == 1 and report.recorder.sampling.turn == 2


def test_a_program_may_end_in_a_pause_with_an_exception():
    training = Training()

    def work():
        training.steps(2)
        raise KeyError("of the program")

    report = compare.run(work, every=EVERY)
    assert report.error.strip().endswith("KeyError: 'of the program'") and stack() == 0


def test_a_mode_that_takes_over_within_each_step_is_no_obstacle_to_the_next():
    training = Training()
    optimizer = next(training.turns)

    def work():
        for _ in range(2 * PERIOD + 1):
            loss = training.model(training.x).square().sum()
            with Doubles():
                loss.backward()
                optimizer.step()
            optimizer.zero_grad()

    report = compare.run(work, every=EVERY)
    assert report.data()["run"]["watched"] == 3 and stack() == 0


@pytest.mark.parametrize("subject", ("minitorch", "cpu"))
def test_the_inside_of_a_backward_pass_changes_nothing(subject):
    """The autograd engine puts the stack of modes back when it is done with a node."""
    model = Training().model.to(subject)
    x = torch.randn(6, 4).to(subject)
    optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        parameter.grad = None

    def checkpointed(count):
        for _ in range(count):
            checkpoint(model, x, use_reentrant=False).square().sum().backward()

    def work():
        checkpointed(PATIENCE * PERIOD)
        for _ in range(PERIOD):
            checkpointed(1)
            optimizer.step()
            optimizer.zero_grad()
        checkpointed(3 * PATIENCE * PERIOD)
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(step)
        checkpointed(2 * PERIOD)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    report = compare.run(work, subject=subject, every=EVERY)
    assert report.ended == "finished" and report.clean and stack() == 0


@pytest.mark.parametrize("steps", range(1, PERIOD + 2))
def test_what_comes_between_steps_is_watched(steps):
    """A short validation, wherever it falls, and what follows the training."""
    training = Training()

    def work():
        training.steps(steps)
        with torch.no_grad():
            training.model(training.x).cosh()
        training.steps(steps)
        training.x.sinh()

    report = compare.run(work, every=EVERY)
    assert compared(report, "aten::cosh") == compared(report, "aten::sinh") == 1


def test_a_module_of_a_kind_not_seen_yet_is_watched():
    training, head = Training(), nn.Softplus()

    def work():
        training.steps(2)
        head(training.model(training.x))

    report = compare.run(work, every=EVERY)
    assert compared(report, "aten::softplus") == 1
