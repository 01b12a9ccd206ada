"""The table of cases: families, costs, floors, and inputs that are the same on both sides."""

import pytest
import torch
from click.testing import CliRunner
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.cases import models
from minitorch_backend.bench import case, race
from minitorch_backend.bench.case import Setup
from minitorch_backend.bench.command import bench

CASES = case.load()


def test_table_is_large_and_says_what_it_costs():
    on_cpu, on_cuda = ([c for c in CASES if backend in c.backends] for backend in ("cpu", "cuda"))
    assert len(on_cpu) >= 150 and len(on_cuda) >= 150
    assert sum(c.quick for c in on_cpu) >= 30
    free = ("copies", "sort", "overhead")
    silent = [
        c.full_name for c in CASES if c.family != "overhead" and "training step" not in c.name and c.bytes is None
    ]
    assert not silent
    arithmetic = (
        "pointwise",
        "reductions",
        "matmul",
        "convolution",
        "norms",
        "softmax",
        "losses",
        "attention",
        "models",
    )
    assert not [
        c.full_name for c in CASES if c.family in arithmetic and c.flops is None and "training step" not in c.name
    ]
    assert all(c.flops is None for c in CASES if c.family in free)
    assert all(c.unchecked for c in CASES if c.check == "none")


CUDA_FLOORS = {
    "pointwise/add 128M f32": 0.95,
    "copies/clone 128M f32": 0.95,
    "reductions/sum 128M f32": 1.0,
    "softmax/softmax fwd+bwd 32768x4096 f32": 1.0,
    "norms/layer norm fwd+bwd 32768x2048 f32": 1.0,
    "losses/cross entropy fwd+bwd 8192x50304 bf16": 1.0,
    "matmul/square 4096x4096x4096 bf16": 0.6,
    "matmul/square tf32 4096x4096x4096 f32": 0.6,
    "matmul/square 4096x4096x4096 f32": 0.8,
    "attention/sdpa causal 4x16x2048x64 bf16": 0.5,
    "attention/sdpa causal 4x16x2048x128 bf16": 0.5,
    "attention/sdpa causal fwd+bwd 4x16x2048x64 bf16": 0.4,
    "attention/sdpa causal fwd+bwd 4x16x2048x128 bf16": 0.4,
    "convolution/3x3 NHWC 128x256x256x14 bf16": 0.5,
    "convolution/3x3 NHWC fwd+bwd 128x256x256x14 bf16": 0.5,
    "optimizers/AdamW fused against foreach 1k f32": 1.5,
    "overhead/add 8 f32": 1.0,
    "models/GPT-2 124M training step 16x1024 bf16 autocast": 0.8,
    "models/ResNet-50 training step 64x3x224x224 bf16 autocast": 0.5,
}


def test_a_quick_look_is_planned_for_less_than_three_minutes():
    """What the clock is given; judging the results and measuring the limits takes about a minute more."""
    for backend, budget in (("cpu", race.QUICK), ("cuda", race.GPU_QUICK)):
        count = sum(c.quick and backend in c.backends for c in CASES)
        assert count >= 30 and count * budget.visits * (budget.seconds + budget.warm) < 120


def test_floors_are_cases():
    floors = {c.full_name: c.floor for c in CASES if c.floor is not None and "cpu" in c.backends}
    assert floors["pointwise/add 16M f32"] == 1.2 and floors["matmul/square 2048x2048x2048 f32"] == 0.7
    assert floors["models/char-GPT training step"] == 0.8 and len(floors) >= 20
    cuda = {c.full_name: c.floor for c in CASES if c.floor is not None and "cuda" in c.backends}
    assert cuda.items() >= CUDA_FLOORS.items()


def test_inputs_are_the_same_everywhere_and_exact_in_the_reference():
    made = {}
    for device, reference in (("cpu", False), ("minitorch", False), ("cpu", True)):
        setup = Setup(torch.device(device), torch.bfloat16, reference)
        module = setup.module(lambda: torch.nn.Linear(3, 2))
        made[device, reference] = [setup.normal(5), setup.integers(9, 4), *module.parameters()]
    for native, ours, truth in zip(*made.values(), strict=True):
        assert torch.equal(native, ours.cpu()) and native.dtype == ours.dtype
        assert torch.equal(native.to(truth.dtype), truth)
        assert truth.dtype == (torch.float64 if native.is_floating_point() else torch.int64)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_cases_with_floors(backend):
    chosen = case.choose(case.load(), "", backend, floors=True)
    assert chosen and all(c.floor and backend in c.backends for c in chosen)
    assert {c.family for c in chosen} >= {"pointwise", "matmul", "softmax", "norms", "losses", "models", "overhead"}


def find(name, backend="cpu"):
    return next(c for c in CASES if c.full_name == name and backend in c.backends)


def test_what_the_cases_move():
    """Counted by hand, from the sizes of what is read and written."""
    frames = 65536 // 128 + 1
    # With backward: inputs read twice, their gradients written; the result written, its gradient read.
    images, weights, size = 8 * 64 * 56 * 56, 64 * 64 * 9, 512 * 512
    assert find("convolution/3x3 8x64x64x56 f32").bytes == 4 * (2 * images + weights)
    assert find("convolution/3x3 fwd+bwd 8x64x64x56 f32").bytes == 4 * (5 * images + 3 * weights)
    assert find("matmul/square fwd+bwd 512x512x512 f32").bytes == 4 * (3 * 2 * size + 2 * size)
    assert find("matmul/batched fwd+bwd 128x128x64x64 bf16").bytes == 2 * 64 * (3 * 2 * 128 * 64 + 2 * 128 * 128)
    linear = 3 * (512 * 1024 + 1024 * 1024) + 2 * 512 * 1024
    assert find("matmul/linear fwd+bwd 512x1024x1024 f32").bytes == 4 * linear
    assert find("fft/stft 4x65536 f32").bytes == 4 * (65536 * 4 + frames * 257 * 8)
    assert find("attention/sdpa bool mask 4x8x256x64 f32").bytes == 4 * 4 * 8 * 256 * 64 * 4 + 256 * 256
    assert find("attention/sdpa bias fwd+bwd 4x8x256x64 f32").bytes == 12 * 4 * 8 * 256 * 64 * 4 + 2 * 8 * 256 * 256 * 4
    assert find("indexing/index_add rows 32000x256x4096 f32").bytes == 2 * 4 * 32000 * 256 + 4 * 4096 * 256 + 8 * 4096
    assert find("indexing/index_put accumulate 65536x524288 f32").bytes == 2 * 4 * 65536 + 12 * 2**19
    clip = find("optimizers/clip_grad_norm_ 384 f32")
    assert (clip.bytes, clip.access) == (3 * clip.working_set, "update")
    assert find("pointwise/add in place 16M f32").bytes == 3 * 4 * 2**24
    writes = ("random/randint 4M f32", "random/randperm 1M f32", "matmul/outer 4096x4096 f32", "copies/zeros 16M f32",
              "pointwise/outer product of matrices 64x16 f32", "pointwise/outer sum 4096x4096 f32")  # fmt: skip
    assert [find(name).access for name in writes] == ["write"] * len(writes)
    assert find("random/multinomial 256x8192 f32").access == ""


def test_models_count_attention_as_the_attention_family_does():
    parameters, flops = models.COSTS[models.GPT2, (128,)]
    assert find("models/GPT-2 124M 1x128 f32").flops == flops - 12 * 2 * 768 * 128**2
    parameters, flops = models.COSTS[models.small_llama, (1,)]
    decoding = find("models/Llama-style decoding 1x512 f32")
    assert decoding.flops == flops - 4 * 2 * 512 + 4 * 4 * 512 * 512
    assert decoding.bytes == 4 * (parameters - 8192 * 512 + 512 + 512 * models.KEPT[models.small_llama])
    for case_ in (c for c in CASES if "autocast" in c.name):
        assert case_.bytes and case_.flops and case_.arithmetic == "bfloat16"
    for build, (layers, width) in models.CAUSAL.items():
        with torch.device("meta"):
            made = build()
        assert (len(made.blocks), made.tokens.weight.shape[1]) == (layers, width)


def test_an_operator_s_case_runs_the_operator():
    work = find("overhead/add_ 8 f32").setup("cpu")
    with torch.profiler.profile() as seen:
        work()
    assert "aten::add_" in {event.name for event in seen.events()}


def test_models_cost_what_they_state():
    for (build, shape), stated in models.COSTS.items():
        with torch.device("meta"):
            model = build().eval()
            x = torch.zeros(1, *shape, dtype=torch.int64 if build in models.LANGUAGE_MODELS else torch.float32)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(x)
        counted = sum(p.numel() for p in model.parameters()), counter.get_total_flops()
        assert counted == stated, (build, shape, counted)
        if build in models.KEPT:
            blocks = model.blocks
            assert models.EMBEDDED[build] == model.tokens.weight.numel()
            assert models.KEPT[build] == 2 * len(blocks) * blocks[0].heads_kv * blocks[0].size


BAD_FILES = {
    "syntax": ("CASES = [\n  (,\n]\n", "SyntaxError"),
    "import": ("\nimport no_such_module\n", "bad.py:2: ModuleNotFoundError"),
    "raises": ("def f():\n    return 1 / 0\nf()\n", "bad.py:2: ZeroDivisionError"),
    "exits": ("import sys\nsys.exit(0)\n", "bad.py:2: SystemExit"),
    "nothing": ("x = 1\n", "bad.py has no list CASES of cases"),
    "numbers": ("CASES = [1, 2]\n", "bad.py has no list CASES of cases"),
    "no list": ("CASES = 5\n", "bad.py has no list CASES of cases"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_what_is_wrong_with_a_file_of_cases_is_said(tmp_path, name):
    text, message = BAD_FILES[name]
    (tmp_path / "bad.py").write_text(text)
    found = CliRunner().invoke(bench, ["--list", "--cases", str(tmp_path)])
    assert found.exit_code == 1 and message in found.output and isinstance(found.exception, SystemExit)


@pytest.mark.parametrize("name", ["benchmarks/cases", "my.bench/cases", "torch/json", "1/2 3"])
def test_a_folder_of_cases_may_have_any_name(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir(parents=True)
    (folder / "_shared.py").write_text("NAME = 'exp'\n")
    (folder / "tiny.py").write_text(
        "import torch\nfrom minitorch_backend.bench.case import Case, forward\nfrom ._shared import NAME\n"
        "CASES = [Case(NAME, lambda s: forward(torch.exp, s.normal(64)))]\n"
    )
    assert [c.full_name for c in case.load(folder)] == ["tiny/exp"]
    assert len(case.load()) == len(CASES)
