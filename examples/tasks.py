"""The two training runs of the demo, each as an object that can do one step: model, optimizer, schedule, batches."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from data import Digits, Text, load_digits, load_text
from models import CharGPT, DigitsCNN
from torch import Tensor, nn


@dataclass
class Run:
    """One model in training on one device."""

    device: torch.device
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler | None
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor]
    clip: float | None = None

    def step(self, inputs: Tensor, targets: Tensor) -> float:
        """One optimizer step on this batch; the loss before it."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.model, inputs, targets)
        loss.backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        return loss.item()


class DigitsTask:
    """A CNN on handwritten digits: cross-entropy, Adam."""

    name = "digits"
    title = "Digits CNN"

    def __init__(self, steps: int, batch: int = 64) -> None:
        self.steps, self.size = steps, batch
        self.data: Digits = load_digits()
        torch.manual_seed(1)
        self.initial = DigitsCNN()

    def batch(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return self.data.batch(generator, self.size)

    def run(self, device: torch.device) -> Run:
        model = copy.deepcopy(self.initial).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        return Run(device, model, optimizer, scheduler, lambda m, x, y: F.cross_entropy(m(x), y))

    def outcome(self, run: Run) -> dict[str, float]:
        """What the trained model can do."""
        return {"accuracy": self.accuracy(run)}

    @torch.no_grad()
    def accuracy(self, run: Run) -> float:
        """Share of test images classified correctly."""
        run.model.eval()
        scores = run.model(self.data.test_images.to(run.device))
        correct = (scores.argmax(1) == self.data.test_labels.to(run.device)).float().mean().item()
        run.model.train()
        return correct


class TextTask:
    """A small GPT on characters: tied weights, AdamW with decay groups, warm-up and cosine schedule, clipping."""

    name = "gpt"
    title = "Char-GPT"

    def __init__(self, steps: int, batch: int = 16, length: int = 64) -> None:
        self.steps, self.size, self.length = steps, batch, length
        self.data: Text = load_text()
        torch.manual_seed(2)
        self.initial = CharGPT(len(self.data.characters), length)

    def batch(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return self.data.batch(generator, self.size, self.length)

    def run(self, device: torch.device) -> Run:
        model = copy.deepcopy(self.initial).to(device)
        decay = [p for p in model.parameters() if p.dim() >= 2]
        rest = [p for p in model.parameters() if p.dim() < 2]
        groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.99))
        warmup = max(1, self.steps // 20)

        def rate(step: int) -> float:
            if step < warmup:
                return (step + 1) / warmup
            return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / max(1, self.steps - warmup)))

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)

        def loss(m: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            return F.cross_entropy(m(x).flatten(0, 1), y.flatten())

        return Run(device, model, optimizer, scheduler, loss, clip=1.0)

    def outcome(self, run: Run) -> dict[str, str]:
        """What the trained model can do."""
        return {"sample": self.sample(run)}

    def sample(self, run: Run, prompt: str = "The ", count: int = 160) -> str:
        """Text that the model writes after the prompt."""
        run.model.eval()
        tokens = self.data.encode(prompt)[None].to(run.device)
        text = self.data.decode(run.model.generate(tokens, count)[0].cpu())
        run.model.train()
        return text


TASKS: dict[str, type[DigitsTask] | type[TextTask]] = {task.name: task for task in (DigitsTask, TextTask)}
STEPS = {"digits": 300, "gpt": 500}
