"""Training trajectories: a right device stays inside native's own noise, a wrong one is outside from a named step on."""

import torch
from torch import nn

from minitorch_backend import compare
from tests.compare.faults import Fault, planted
from tests.compare.models import CNN, GPT


def batches(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(16, 1, 8, 8, generator=generator), torch.randint(10, (16,), generator=generator)) for _ in range(6)
    ]


def text(step):
    tokens = torch.randint(23, (4, 13), generator=torch.Generator().manual_seed(step))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def test_a_right_device_is_inside():
    found = compare.train(CNN, batches(), 8, seeds=(0, 1))
    assert found.inside, found.summary()
    assert {(c.metric, c.seed) for c in found.courses} == {
        (m, s) for m in ("loss", "gradient norm", "weights") for s in (0, 1)
    }
    assert set(found.losses[0]) == {"minitorch", "cpu"} and max(found.spread) > 0.1
    assert compare.train(GPT, text, 5, seeds=(3,), perturbations=2).inside


def test_the_reference_against_itself_is_at_distance_zero():
    found = compare.train(CNN, batches(), 3, seeds=(0,), subject="cpu", perturbations=1)
    assert found.inside and all(d == 0 for c in found.courses for d in c.distance)


def test_a_wrong_device_is_outside_since_a_step():
    calls = []

    def wrong(right, grad, x, threshold):
        calls.append(1)
        y = right(grad, x, threshold)
        return y * 1.01 if len(calls) > 6 else y  # two layers a step: from step 3 on

    fault = Fault("late", "CNN", "aten::threshold_backward", "", wrong)
    with planted(fault):
        found = compare.train(CNN, batches(), 6, seeds=(0,))
    by_metric = {c.metric: c for c in found.courses}
    assert not found.inside
    assert by_metric["gradient norm"].outside_since == 3 and by_metric["weights"].outside_since == 3
    assert by_metric["loss"].outside_since == 4
    assert "gradient norm: outside since step 3" in found.summary()


def test_data_and_loss_of_ones_own():
    model = lambda: nn.Linear(3, 1)  # noqa: E731
    found = compare.train(
        model,
        lambda step: torch.full((2, 3), float(step + 1)),
        4,
        seeds=(0,),
        loss=lambda m, x: m(x).square().mean(),
        make_optimizer=lambda m: torch.optim.Adam(m.parameters()),
    )
    assert found.inside and len(found.losses[0]["cpu"]) == 4
