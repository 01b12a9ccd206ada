"""README's figures of speed, from the newest committed runs.

    python tools/readme_figures.py            # exit status 1 when README says something else than the runs
    python tools/readme_figures.py --write    # README says what the runs say

A table for the CPU (benchmarks/results/cpu-*.jsonl) and one for CUDA (cuda-*.jsonl), between two comments in README.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from minitorch_backend.bench import report, results  # noqa: E402
from minitorch_backend.bench.results import Result, Run  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"
BEGIN, END = "<!-- figures: tools/readme_figures.py -->", "<!-- end of figures -->"
# What a line says, and the cases that it is from.
CPU = (
    ("`x + y`, 16M / 64k floats", ("pointwise/add 16M f32", "pointwise/add 64k f32")),
    ("`exp`, 16M / 64k floats", ("pointwise/exp 16M f32", "pointwise/exp 64k f32")),
    ("`gelu`, 16M / 64k floats", ("pointwise/gelu 16M f32", "pointwise/gelu 64k f32")),
    ("matrix product, fp32, 512 / 1024 / 2048", tuple(f"matmul/square {n}x{n}x{n} f32" for n in (512, 1024, 2048))),
    ("matrix product, bf16, 1024", ("matmul/square 1024x1024x1024 bf16",)),
    ("convolution 3×3, 64 channels of 56×56, forward / with backward",
     ("convolution/3x3 8x64x64x56 f32", "convolution/3x3 fwd+bwd 8x64x64x56 f32")),
    ("causal attention, 4×8×256×64, forward / with backward",
     ("attention/sdpa causal 4x8x256x64 f32", "attention/sdpa causal fwd+bwd 4x8x256x64 f32")),
    ("layer norm, forward and backward, 4096×1024", ("norms/layer norm fwd+bwd 4096x1024 f32",)),
    ("softmax, forward and backward, 4096×1024", ("softmax/softmax fwd+bwd 4096x1024 f32",)),
    ("cross-entropy, forward and backward, 2048×8192", ("losses/cross entropy fwd+bwd 2048x8192 f32",)),
    ("Adam step, 11M parameters", ("optimizers/Adam 384 f32",)),
    ("training step: digits CNN / char-GPT", ("models/digits CNN training step", "models/char-GPT training step")),
    ("forward and backward: GPT-2 124M / ResNet-50",
     ("models/GPT-2 124M fwd+bwd 1x128 f32", "models/ResNet-50 fwd+bwd 2x3x224x224 f32")),
    ("`x + y`, 8 floats (overhead of a call)", ("overhead/add 8 f32",)),
)  # fmt: skip
CPU_MEMORY = (
    ("peak memory: training step of the char-GPT", ("models/char-GPT training step",)),
    ("peak memory: GPT-2 124M, forward and backward", ("models/GPT-2 124M fwd+bwd 1x128 f32",)),
)  # fmt: skip
CUDA = (
    ("`x + y` / `exp` / `gelu`, 128M floats", tuple(f"pointwise/{n} 128M f32" for n in ("add", "exp", "gelu"))),
    ("matrix product, 4096, fp32 / tf32 / bf16", tuple(f"matmul/square {n}" for n in
     ("4096x4096x4096 f32", "tf32 4096x4096x4096 f32", "4096x4096x4096 bf16"))),
    ("causal attention, bf16, 4×16×2048×64, forward / with backward",
     ("attention/sdpa causal 4x16x2048x64 bf16", "attention/sdpa causal fwd+bwd 4x16x2048x64 bf16")),
    ("softmax, 32768×4096, forward / with backward",
     ("softmax/softmax 32768x4096 f32", "softmax/softmax fwd+bwd 32768x4096 f32")),
    ("layer norm, forward and backward, 32768×2048", ("norms/layer norm fwd+bwd 32768x2048 f32",)),
    ("cross-entropy, forward and backward, 8192×50304", ("losses/cross entropy fwd+bwd 8192x50304 f32",)),
    ("sum of rows / columns, 16384×8192",
     ("reductions/sum rows 16384x8192 f32", "reductions/sum columns 16384x8192 f32")),
    ("training step in bf16: GPT-2 124M / ResNet-50",
     ("models/GPT-2 124M training step 16x1024 bf16 autocast",
      "models/ResNet-50 training step 64x3x224x224 bf16 autocast")),
    ("`x + y`, 8 floats (overhead of a call)", ("overhead/add 8 f32",)),
)  # fmt: skip


def newest(pattern: str) -> Run | None:
    runs = [results.read(path) for path in sorted(RESULTS.glob(pattern))]
    return max(runs, key=lambda run: run.machine["date"], default=None)


def figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 2 else f"{value:.2f}"


def row(text: str, names: tuple[str, ...], run: Run, value: str = "ratio") -> str:
    """A line of the table. Raises KeyError for a case that the run does not have."""
    found: list[Result] = [run.results[name] for name in names]
    return f"| {text} | {' / '.join(figure(getattr(r, value)) for r in found)} |"


def table(run: Run, rows: tuple, memory: tuple = ()) -> list[str]:
    lines = ["| case | native ÷ minitorch |", "|---|---|"]
    return [*lines, *(row(*r, run) for r in rows), *(row(*r, run, "memory_ratio") for r in memory)]


def where(run: Run) -> str:
    facts, done = run.machine, list(run.results.values())
    threads = "" if facts["backend"] == "cuda" else f", {facts['threads']} threads"
    return f"{facts['device']}{threads}, torch {facts['torch']}, {facts['date'][:10]}: {report.summary(done, 'native')}"


def text() -> str:
    lines = [
        "Above 1 minitorch is faster or smaller; every case with its interval: [benchmarks.md](docs/benchmarks.md)."
    ]
    for pattern, rows, memory in (("cpu-*.jsonl", CPU, CPU_MEMORY), ("cuda-*.jsonl", CUDA, ())):
        if run := newest(pattern):
            lines += ["", where(run), "", *table(run, rows, memory)]
    return "\n".join(lines)


def main() -> int:
    before = README.read_text()
    inside = re.compile(f"(?<={re.escape(BEGIN)}\n).*?(?={re.escape(END)})", re.DOTALL)
    if not inside.search(before):
        print(f"README.md has no place for the figures: {BEGIN} … {END}")
        return 1
    after = inside.sub(lambda _: f"\n{text()}\n\n", before)
    if "--write" in sys.argv[1:]:
        README.write_text(after)
    elif after != before:
        print("README's figures are not those of benchmarks/results: python tools/readme_figures.py --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
