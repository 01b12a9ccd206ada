"""README's figures of speed, from the newest committed runs.

    python tools/readme_figures.py            # exit status 1 when README says something else than the runs
    python tools/readme_figures.py --write    # README says what the runs say

A table for the CPU (benchmarks/results/cpu-*.jsonl, a column a file) and one for CUDA (the newest of cuda-*.jsonl),
between two comments in README.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from minitorch_backend.bench import report, results  # noqa: E402
from minitorch_backend.bench.results import Run  # noqa: E402

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


def runs_of(pattern: str) -> dict[str, Run]:
    """The runs of these files by the files' names, the newest first."""
    runs = {path.stem: results.read(path) for path in RESULTS.glob(pattern)}
    return dict(sorted(runs.items(), key=lambda item: item[1].machine["date"], reverse=True))


def figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 2 else f"{value:.2f}"


def row(text: str, names: tuple[str, ...], runs: dict[str, Run], value: str = "ratio") -> str:
    """A line of the table, a column a run. Raises KeyError for a case that the newest run does not have."""
    newest = next(iter(runs.values()))
    for name in names:
        newest.results[name]
    columns = [" / ".join(figure(getattr(run.results.get(n), value, None)) for n in names) for run in runs.values()]
    return f"| {' | '.join([text, *columns])} |"


def table(runs: dict[str, Run], rows: tuple, memory: tuple = ()) -> list[str]:
    titles = runs if len(runs) > 1 else ["native ÷ minitorch"]
    lines = [f"| {' | '.join(['case', *titles])} |", "|---" * (1 + len(titles)) + "|"]
    return [*lines, *(row(*r, runs) for r in rows), *(row(*r, runs, "memory_ratio") for r in memory)]


def where(run: Run) -> str:
    facts, done = run.machine, list(run.results.values())
    threads = "" if facts["backend"] == "cuda" else f", {facts['threads']} threads"
    return f"{facts['device']}{threads}, torch {facts['torch']}, {facts['date'][:10]}: {report.summary(done, 'native')}"


def text() -> str:
    """Every machine's CPU has a column, since what a core can do at once decides; the newest run stands for CUDA."""
    lines = [
        "Native's time or peak memory by minitorch's: above 1 minitorch is faster or smaller. Every case with its "
        "interval: [benchmarks.md](docs/benchmarks.md)."
    ]
    on_cpu, on_cuda = runs_of("cpu-*.jsonl"), dict(list(runs_of("cuda-*.jsonl").items())[:1])
    for runs, rows, memory in ((on_cpu, CPU, CPU_MEMORY), (on_cuda, CUDA, ())):
        if len(runs) > 1:
            lines += ["", *(f"- {name}: {where(run)}" for name, run in runs.items())]
        else:
            lines += ["", *map(where, runs.values())]
        if runs:
            lines += ["", *table(runs, rows, memory)]
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
