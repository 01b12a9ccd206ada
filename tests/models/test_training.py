"""Real training on minitorch and on native CPU with the same weights, batches and seeds: losses agree within a band.

Fallbacks are errors in the tests, so every operator of these models has a kernel of ours.
"""

import copy
import pathlib
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))

from models import CharGPT
from tasks import DigitsTask, TextTask

from tests.python.twin import ASYNCHRONOUS


@pytest.fixture(autouse=True)
def the_same_computation(monkeypatch):
    """No dropout on a GPU: native CPU draws other masks, and where our device is a GPU PyTorch's engine refuses to
    differentiate native CUDA's tensors, which would draw the same."""
    if ASYNCHRONOUS:
        monkeypatch.setattr(F, "dropout", lambda input, p=0.5, training=True, inplace=False: input)


BAND = 2e-3  # largest relative loss difference; the demo's longer runs state their own


def train(model: nn.Module, make_optimizer, make_batch, steps: int, loss=F.cross_entropy) -> tuple[list, list]:
    """Losses of the model on native CPU and on minitorch; training mode, the same random numbers for both."""
    losses: tuple[list, list] = ([], [])
    models = [copy.deepcopy(model), copy.deepcopy(model).to("minitorch")]
    optimizers = [make_optimizer(m) for m in models]
    generator = torch.Generator().manual_seed(0)
    for step in range(steps):
        x, y = make_batch(generator)
        for m, optimizer, record, device in zip(models, optimizers, losses, ("cpu", "minitorch"), strict=True):
            torch.manual_seed(step)
            optimizer.zero_grad()
            value = loss(m(x.to(device)), y.to(device))
            value.backward()
            optimizer.step()
            record.append(value.item())
    return losses


def assert_agree(native: list[float], ours: list[float], band: float = BAND) -> None:
    worst = max(abs(a - b) / max(abs(a), 0.1) for a, b in zip(native, ours, strict=True))
    assert worst <= band, f"largest relative difference {worst:.1e}"


def assert_learns(losses: list[float], factor: float = 0.8) -> None:
    assert losses[-1] < factor * losses[0], f"loss went from {losses[0]:.4f} to {losses[-1]:.4f}"


def test_digits_cnn():
    task = DigitsTask(steps=40, batch=32)
    runs = [task.run(torch.device(name)) for name in ("cpu", "minitorch")]
    generator = torch.Generator().manual_seed(0)
    losses: tuple[list, list] = ([], [])
    for step in range(task.steps):
        x, y = task.batch(generator)
        for run, record in zip(runs, losses, strict=True):
            torch.manual_seed(step)
            record.append(run.step(x.to(run.device), y.to(run.device)))
    assert_agree(*losses, band=1e-2)
    assert_learns(losses[1], 0.6)
    assert task.accuracy(runs[1]) == pytest.approx(task.accuracy(runs[0]), abs=0.02)


def test_char_gpt():
    task = TextTask(steps=15, batch=4, length=32)
    torch.manual_seed(0)
    task.initial = CharGPT(len(task.data.characters), length=32, width=48, heads=4, layers=2)
    runs = [task.run(torch.device(name)) for name in ("cpu", "minitorch")]
    generator = torch.Generator().manual_seed(0)
    losses: tuple[list, list] = ([], [])
    for step in range(task.steps):
        x, y = task.batch(generator)
        for run, record in zip(runs, losses, strict=True):
            torch.manual_seed(step)
            record.append(run.step(x.to(run.device), y.to(run.device)))
    assert_agree(*losses)
    assert_learns(losses[1], 0.9)
    assert runs[1].model.head.weight is runs[1].model.tokens.weight
    samples = []
    for run in runs:
        torch.manual_seed(1)
        samples.append(task.sample(run, count=12))
    assert len(samples[1]) == len(samples[0])


def random_classes(generator: torch.Generator, shape: tuple, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Learnable data: the class decides the mean of the input."""
    y = torch.randint(classes, shape[:1], generator=generator)
    x = torch.randn(shape, generator=generator) + y.view(-1, *[1] * (len(shape) - 1)) * 0.7
    return x, y


@pytest.mark.parametrize(
    "make_optimizer",
    [
        pytest.param(lambda m: torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9, nesterov=True), id="sgd"),
        pytest.param(lambda m: torch.optim.Adam(m.parameters(), lr=3e-3, foreach=True), id="adam-foreach"),
        pytest.param(lambda m: torch.optim.RMSprop(m.parameters(), lr=1e-3, foreach=False), id="rmsprop-loop"),
    ],
)
def test_mlp(make_optimizer):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 4))
    losses = train(model, make_optimizer, lambda g: random_classes(g, (32, 20), 4), steps=30)
    assert_agree(*losses)
    assert_learns(losses[1])


class SequenceClassifier(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.rnn = kind(6, 24, num_layers=2, batch_first=True)
        self.head = nn.Linear(24, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0][:, -1])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent(kind):
    torch.manual_seed(4)
    make_optimizer = lambda m: torch.optim.Adam(m.parameters(), lr=1e-2)  # noqa: E731
    losses = train(SequenceClassifier(kind), make_optimizer, lambda g: random_classes(g, (16, 8, 6), 3), steps=15)
    assert_agree(*losses)
    assert_learns(losses[1])


class ResidualNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm0 = nn.BatchNorm2d(8)
        self.conv1 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 16, 3, padding=1, groups=4, bias=False)
        self.norm2 = nn.BatchNorm2d(16)
        self.shortcut = nn.Conv2d(8, 16, 1, stride=2)
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm0(self.stem(x))), 2)
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        x = F.relu(y + self.shortcut(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def test_residual_network():
    torch.manual_seed(5)
    make_optimizer = lambda m: torch.optim.SGD(m.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-3)  # noqa: E731
    losses = train(ResidualNet(), make_optimizer, lambda g: random_classes(g, (12, 3, 16, 16), 4), steps=12)
    assert_agree(*losses, band=1e-2)
    assert_learns(losses[1])


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.head = nn.Linear(16, 30, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(tokens))


def test_tied_weights_and_an_optimizer_made_before_the_move():
    torch.manual_seed(6)
    native, ours = Tied(), Tied()
    ours.load_state_dict(native.state_dict())
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (native, ours)]
    ours.to("minitorch")
    assert ours.head.weight is ours.embed.weight
    assert optimizers[1].param_groups[0]["params"][0] is ours.embed.weight
    for step in range(10):
        x = torch.randint(30, (40,), generator=torch.Generator().manual_seed(step))
        values = []
        for m, optimizer in zip((native, ours), optimizers, strict=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(m(x.to(m.embed.weight.device)), x.to(m.embed.weight.device))
            loss.backward()
            optimizer.step()
            values.append(loss.item())
        assert values[1] == pytest.approx(values[0], rel=BAND)
    torch.testing.assert_close(ours.embed.weight.detach().cpu(), native.embed.weight.detach(), rtol=1e-3, atol=1e-4)
