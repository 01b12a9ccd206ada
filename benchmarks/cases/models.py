"""Whole models, forward and forward+backward. COSTS has their parameters and operations, as PyTorch counts them.

CPU sizes are small batches of the real architectures; GPT-2 and ResNet-50 are whole. Bytes are the parameters that are
read, once forward and three times with backward, and what an optimizer moves: what must move even at the smallest batch.
Attention that looks back only is half of what PyTorch counts.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks.cases._table import moved_since
from benchmarks.models.gpt2 import GPT2
from benchmarks.models.llama import Cache, Llama
from benchmarks.models.lstm import LSTM
from benchmarks.models.mlp import CNN, MLP
from benchmarks.models.resnet import ResNet50
from benchmarks.models.vit import ViT
from minitorch_backend.bench.case import Case, Later, Setup, Work, forward, short, training

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

BF16 = torch.bfloat16
MEMORY_FLOOR = {"cpu": None, "cuda": 1.0}  # on the CPU the system's figures are too coarse for a floor on every model


def images(*shape: int, classes: int) -> Callable[[Setup], tuple]:
    return lambda s: (s.normal(*shape), s.integers(classes, shape[0]))


def tokens(batch: int, length: int, vocabulary: int) -> Callable[[Setup], tuple]:
    return lambda s: (s.integers(vocabulary, batch, length), s.integers(vocabulary, batch, length))


def costs(build: Callable[[], torch.nn.Module], shape: tuple) -> tuple[int, int]:
    """Parameters and forward operations of a model."""
    parameters, flops = COSTS[build, shape[1:]]
    if build in CAUSAL:
        layers, width = CAUSAL[build]
        flops -= 2 * layers * width * shape[1] ** 2
    return parameters, shape[0] * flops


def model(name, build, shape, classes, backend, dtype=torch.float32, floor=None, quick=False):
    """Two cases of a model: inference, and a step's forward and backward with cross-entropy."""
    is_tokens = build in LANGUAGE_MODELS
    data = tokens(*shape, classes) if is_tokens else images(*shape, classes=classes)

    def infer(setup: Setup) -> Work:
        network = setup.module(build).eval().requires_grad_(False)
        return forward(network, data(setup)[0])

    def train(setup: Setup) -> Work:
        network = setup.module(build)
        x, target = data(setup)

        def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            scores = network(x).flatten(0, -2)
            return F.cross_entropy(scores if setup.reference else scores.float(), target.flatten())

        return training(setup, loss, x, target, parameters=network.parameters())

    parameters, flops = costs(build, shape)
    size = "x".join(map(str, shape))
    moved = float(parameters * dtype.itemsize)
    common = {"dtype": dtype, "backends": (backend,)}
    floors = {"floor": floor, "memory_floor": MEMORY_FLOOR[backend]}
    return [
        Case(f"{name} {size} {short(dtype)}", infer, moved, float(flops), **common),
        Case(f"{name} fwd+bwd {size} {short(dtype)}", train, 3 * moved, 3.0 * flops, quick=quick, **floors, **common),
    ]


def left(network: torch.nn.Module) -> Later:
    """What a step leaves, to be compared: gradients, clipped where they are, and how far the parameters went."""
    parameters = list(network.parameters())
    moved = moved_since(parameters)
    return Later(lambda: [[p.grad for p in parameters], moved()])


def step(name, build, shape, classes, backend, optimizer, floor=None, last=False):
    """A training step under autocast to bf16: zero_grad, forward, cross-entropy, backward, optimizer. last: channels_last."""
    data = tokens(*shape, classes) if build in LANGUAGE_MODELS else images(*shape, classes=classes)

    def make(setup: Setup) -> Work:
        network = setup.module(build)
        x, target = data(setup)
        if last:
            network, x = (t.to(memory_format=torch.channels_last) for t in (network, x))
        chosen = optimizer(network.parameters())
        later = left(network)

        def work() -> tuple:
            chosen.zero_grad()
            with torch.autocast(setup.device.type, BF16, enabled=not setup.reference):
                scores = network(x).flatten(0, -2)
            loss = F.cross_entropy(scores if setup.reference else scores.float(), target.flatten())
            loss.backward()
            chosen.step()
            return loss.detach(), later

        return work

    parameters, flops = costs(build, shape)
    return Case(
        f"{name} training step {'x'.join(map(str, shape))} bf16 autocast", make, 4.0 * (3 + MOVED[optimizer]) * parameters,
        3.0 * flops, arithmetic="bfloat16", backends=(backend,), floor=floor, memory_floor=MEMORY_FLOOR[backend],
    )  # fmt: skip


def adamw(parameters) -> torch.optim.Optimizer:
    # With a small epsilon the first step is the gradients' sign, which a rounding turns where they are about zero.
    return torch.optim.AdamW(parameters, lr=1e-4, eps=1e-3, fused=True)


def momentum(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, foreach=True)


# Values an optimizer reads and writes for each parameter: itself, its gradient and its state.
MOVED = {adamw: 7, momentum: 5}


def decode(name, build, batch, past, backend, dtype=torch.float32):
    """One more token for each sequence, with keys and values of the past in a cache."""

    def make(setup: Setup) -> Work:
        network = setup.module(build).eval().requires_grad_(False)
        block = network.blocks[0]
        shape = (batch, block.heads_kv, past + 1, block.size)
        caches = [Cache(setup.normal(*shape), setup.normal(*shape), past) for _ in network.blocks]
        return forward(network, setup.integers(1000, batch, 1), caches)

    parameters, flops = costs(build, (batch, 1))
    layers, width = CAUSAL[build]
    flops += batch * 4 * layers * width * past  # the counted token looks at itself alone
    held = batch * past * KEPT[build]
    looked_up = batch * width - EMBEDDED[build]  # of the table of tokens a row each is read
    moved = float((parameters + looked_up + held) * dtype.itemsize)
    return Case(
        f"{name} {batch}x{past} {short(dtype)}", make, moved, float(flops), dtype=dtype, backends=(backend,), cold=True
    )


def demo(task_name: str) -> Callable[[Setup], Work]:
    """A whole training step of `make demo`: zero_grad, forward, backward, clipping, optimizer, schedule."""

    def make(setup: Setup) -> Work:
        import tasks

        task = getattr(tasks, task_name)(100_000)
        run = task.run(setup.device)
        if setup.reference:
            run.model.double()
        x, y = (setup.place(t) for t in task.batch(torch.Generator().manual_seed(0)))
        later = left(run.model)

        def work() -> tuple:
            torch.manual_seed(0)
            return torch.tensor(run.step(x, y), dtype=torch.float64 if setup.reference else torch.float32), later

        return work

    return make


SMALL_LLAMA = {"vocabulary": 8192, "layers": 4, "width": 512, "heads": 8, "heads_kv": 2, "hidden": 1408}


def small_llama() -> Llama:
    return Llama(**SMALL_LLAMA)


def small_vit() -> ViT:
    return ViT(layers=6)


LANGUAGE_MODELS = (GPT2, Llama, small_llama, LSTM)
# Model and shape of one sample -> its parameters, and forward operations for one sample. Stated, since counting them
# takes longer than loading everything else; a test counts.
COSTS = {
    (MLP, (784,)): (932_362, 1_861_632),
    (CNN, (3, 32, 32)): (289_194, 77_269_504),
    (ResNet50, (3, 224, 224)): (25_557_032, 8_178_368_512),
    (GPT2, (128,)): (124_475_904, 32_237_420_544),
    (GPT2, (1024,)): (124_475_904, 291_722_231_808),
    (small_llama, (128,)): (19_665_408, 4_093_640_704),
    (small_llama, (1,)): (19_665_408, 30_941_184),
    (Llama, (1024,)): (200_827_904, 395_673_862_144),
    (Llama, (1,)): (200_827_904, 336_117_760),
    (LSTM, (32,)): (1_565_672, 83_492_864),
    (LSTM, (128,)): (1_565_672, 333_971_456),
    (small_vit, (3, 224, 224)): (11_403_880, 4_657_069_056),
    (ViT, (3, 224, 224)): (22_050_664, 9_197_764_608),
}
CAUSAL = {GPT2: (12, 768), small_llama: (4, 512), Llama: (12, 1024)}  # layers and width of attention that looks back
EMBEDDED = {small_llama: 8192 * 512, Llama: 32000 * 1024}  # numbers in the table of tokens
KEPT = {small_llama: 1024, Llama: 6144}  # numbers that the cache has of one token


CASES = [
    *model("MLP", MLP, (128, 784), 10, "cpu", quick=True),
    *model("MLP", MLP, (1024, 784), 10, "cuda"),
    *model("CNN", CNN, (32, 3, 32, 32), 10, "cpu", quick=True),
    *model("CNN", CNN, (512, 3, 32, 32), 10, "cuda"),
    *model("ResNet-50", ResNet50, (2, 3, 224, 224), 1000, "cpu"),
    *model("ResNet-50", ResNet50, (64, 3, 224, 224), 1000, "cuda", floor=0.5),
    *model("ResNet-50", ResNet50, (64, 3, 224, 224), 1000, "cuda", dtype=BF16, floor=0.5),
    *model("GPT-2 124M", GPT2, (1, 128), 50304, "cpu"),
    *model("GPT-2 124M", GPT2, (8, 1024), 50304, "cuda", floor=0.8),
    *model("GPT-2 124M", GPT2, (16, 1024), 50304, "cuda", dtype=BF16, floor=0.8),
    step("GPT-2 124M", GPT2, (16, 1024), 50304, "cuda", adamw, floor=0.8),
    step("ResNet-50", ResNet50, (64, 3, 224, 224), 1000, "cuda", momentum, floor=0.5, last=True),
    *model("Llama-style", small_llama, (2, 128), 8192, "cpu"),
    step("Llama-style", small_llama, (2, 128), 8192, "cpu", adamw),
    *model("Llama-style", small_llama, (2, 128), 8192, "cpu", dtype=BF16),
    *model("Llama-style", Llama, (8, 1024), 32000, "cuda", dtype=BF16),
    step("Llama-style", Llama, (8, 1024), 32000, "cuda", adamw),
    *model("LSTM", LSTM, (16, 32), 1000, "cpu"),
    *model("LSTM", LSTM, (64, 128), 1000, "cuda"),
    *model("ViT-S/16 with 6 layers", small_vit, (2, 3, 224, 224), 1000, "cpu"),
    *model("ViT-S/16", ViT, (64, 3, 224, 224), 1000, "cuda", dtype=BF16),
    decode("Llama-style decoding", small_llama, 1, 512, "cpu"),
    decode("Llama-style decoding", small_llama, 4, 256, "cpu", dtype=BF16),
    decode("Llama-style decoding", Llama, 8, 2048, "cuda", dtype=BF16),
    *(Case(f"{title} training step", demo(task), floor=0.8, memory_floor=1.0, backends=("cpu", "cuda"),
           quick=True) for title, task in (("digits CNN", "DigitsTask"), ("char-GPT", "TextTask"))),
]  # fmt: skip
