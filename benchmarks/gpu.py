"""minitorch on a GPU against native CUDA in one process: times and their ratio (native / ours: above 1 is faster).

Usage: python -m benchmarks.gpu RESULT.json [part of a case's name...]

Each case runs on both devices in turn, several times; the figure is the median of the rounds, and a round times enough
calls back to back to hide the launch of the first. Small cases (host) show the cost of the call itself.

Native runs in a process of its own, where minitorch is not registered: with any PrivateUse1 backend in the process,
PyTorch 2.11 and later cannot run the backward of a CUDA tensor (autograd asks the wrong accelerator for its streams).
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

OURS, NATIVE = "minitorch", "cuda"
ROUNDS = 5


def time_calls(fn: Callable[[], object], synchronize: Callable[[], None], budget: float = 0.05) -> float:
    """Seconds a call, over as many calls as fill the budget."""
    fn()
    synchronize()
    start = time.perf_counter()
    fn()
    synchronize()
    calls = max(1, min(1000, int(budget / max(time.perf_counter() - start, 1e-6))))
    start = time.perf_counter()
    for _ in range(calls):
        fn()
    synchronize()
    return (time.perf_counter() - start) / calls


Case = Callable[[str], Callable[[], object]]
CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    def add(make: Case) -> Case:
        CASES[name] = make
        return make

    return add


def tensor_case(name: str, shapes: list[tuple[int, ...]], fn: Callable, dtype: torch.dtype = torch.float32) -> None:
    """fn over random tensors of these shapes, without gradients."""

    def make(device: str) -> Callable[[], object]:
        args = [torch.randn(s, device="cpu").to(device=device, dtype=dtype) for s in shapes]
        return lambda: fn(*args)

    CASES[name] = make


def backward_case(name: str, shapes: list[tuple[int, ...]], fn: Callable, dtype: torch.dtype = torch.float32) -> None:
    """Forward and backward of fn."""

    def make(device: str) -> Callable[[], object]:
        args = [torch.randn(s).to(device=device, dtype=dtype).requires_grad_() for s in shapes]
        weight = torch.ones_like(fn(*args))

        def run() -> None:
            fn(*args).backward(weight)
            for a in args:
                a.grad = None

        return run

    CASES[name] = make


BIG, HALF = 1 << 27, torch.bfloat16
tensor_case("host add of 16", [(16,), (16,)], torch.add)
tensor_case("host mm of 16x16", [(16, 16), (16, 16)], torch.mm)
tensor_case("copy 2^27", [(BIG,)], lambda x: x.clone())
tensor_case("add 2^27", [(BIG,), (BIG,)], torch.add)
tensor_case("add 2^27 bf16", [(BIG,), (BIG,)], torch.add, HALF)
tensor_case("mul scalar 2^27", [(BIG,)], lambda x: x * 2)
tensor_case("gelu 2^27 bf16", [(BIG,)], F.gelu, HALF)
tensor_case("exp 2^27", [(BIG,)], torch.exp)
tensor_case("add bias 8192x4096", [(8192, 4096), (4096,)], torch.add)
tensor_case("add channels 64x64x112x112", [(64, 64, 112, 112), (64, 1, 1)], torch.add)
tensor_case("cast to bf16 2^27", [(BIG,)], lambda x: x.to(HALF))
tensor_case("transpose copy 8192x8192", [(8192, 8192)], lambda x: x.t().contiguous())
tensor_case("sum 2^27", [(BIG,)], torch.sum)
tensor_case("sum rows 8192x4096", [(8192, 4096)], lambda x: x.sum(1))
tensor_case("sum columns 8192x4096", [(8192, 4096)], lambda x: x.sum(0))
tensor_case("sum columns 8192x4096 bf16", [(8192, 4096)], lambda x: x.sum(0), HALF)
tensor_case("argmax rows 8192x4096", [(8192, 4096)], lambda x: x.argmax(1))
tensor_case("var rows 8192x4096", [(8192, 4096)], lambda x: x.var(1))
backward_case("softmax 8192x4096", [(8192, 4096)], lambda x: F.softmax(x, 1))
backward_case("softmax 8192x1024 bf16", [(8192, 1024)], lambda x: F.softmax(x, 1), HALF)
backward_case("layer norm 8192x1024", [(8192, 1024), (1024,), (1024,)], lambda x, w, b: F.layer_norm(x, (1024,), w, b))
backward_case("layer norm 8192x1024 bf16", [(8192, 1024), (1024,), (1024,)],
              lambda x, w, b: F.layer_norm(x, (1024,), w, b), HALF)  # fmt: skip
backward_case("batch norm 64x64x56x56", [(64, 64, 56, 56), (64,), (64,)],
              lambda x, w, b: F.batch_norm(x, None, None, w, b, True))  # fmt: skip
for n in (1024, 4096):
    tensor_case(f"gemm bf16 {n}", [(n, n), (n, n)], torch.mm, HALF)
    tensor_case(f"gemm fp32 {n}", [(n, n), (n, n)], torch.mm)
tensor_case("gemm bf16 NT 4096", [(4096, 4096), (4096, 4096)], lambda a, b: a @ b.t(), HALF)
tensor_case("gemm bf16 TN 4096", [(4096, 4096), (4096, 4096)], lambda a, b: a.t() @ b, HALF)
tensor_case("gemm bf16 8192x3072x768", [(8192, 768), (768, 3072)], torch.mm, HALF)
tensor_case("gemm bf16 768x768x8192", [(768, 8192), (8192, 768)], torch.mm, HALF)
tensor_case("linear bf16 8192x768 to 50257", [(8192, 768), (50257, 768)], F.linear, HALF)
tensor_case("gemm fp32 NT 2048", [(2048, 2048), (2048, 2048)], lambda a, b: a @ b.t())
tensor_case("bmm bf16 64x1024x1024x64", [(64, 1024, 64), (64, 64, 1024)], torch.bmm, HALF)
for dim in (64, 128):
    shape = (4, 16, 2048, dim)
    tensor_case(f"attention d{dim} bf16 forward", [shape] * 3,
                lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), HALF)  # fmt: skip
    backward_case(f"attention d{dim} bf16", [shape] * 3,
                  lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), HALF)  # fmt: skip
tensor_case("attention d64 bf16 full forward", [(4, 16, 2048, 64)] * 3, F.scaled_dot_product_attention, HALF)
backward_case("conv 3x3 64ch bf16", [(64, 64, 56, 56), (64, 64, 3, 3)], lambda x, w: F.conv2d(x, w, padding=1), HALF)
backward_case("conv 3x3 64ch fp32", [(32, 64, 56, 56), (64, 64, 3, 3)], lambda x, w: F.conv2d(x, w, padding=1))
backward_case("max pool 64x64x112x112", [(64, 64, 112, 112)], lambda x: F.max_pool2d(x, 3, 2, 1))


@case("cross entropy 4096x50257 bf16")
def cross_entropy(device: str) -> Callable[[], object]:
    x = torch.randn(4096, 50257).to(device=device, dtype=HALF).requires_grad_()
    t = torch.randint(0, 50257, (4096,)).to(device)

    def run() -> None:
        F.cross_entropy(x, t).backward()
        x.grad = None

    return run


@case("embedding 50257x768, 8192 tokens")
def embedding(device: str) -> Callable[[], object]:
    w = torch.randn(50257, 768).to(device).requires_grad_()
    t = torch.randint(0, 50257, (8192,)).to(device)
    g = torch.ones(8192, 768).to(device)

    def run() -> None:
        F.embedding(t, w).backward(g)
        w.grad = None

    return run


@case("AdamW 124M in 148 tensors (native: foreach)")
def adamw(device: str) -> Callable[[], object]:
    params = [torch.randn(840_000).to(device).requires_grad_() for _ in range(148)]
    for p in params:
        p.grad = torch.randn_like(p)
    return torch.optim.AdamW(params, fused=True if device == OURS else None).step


def make_case(name: str, device: str) -> Callable[[], object]:
    torch.manual_seed(0)
    return CASES[name](device)


def serve() -> int:
    """The native process: a line with a case's name makes it, an empty one times the case last made."""
    call = None
    for line in sys.stdin:
        try:
            if name := line.strip():
                call = None
                call = make_case(name, NATIVE)
                answer: object = None
            else:
                assert call is not None
                answer = time_calls(call, torch.cuda.synchronize)
        except Exception as e:
            answer = str(e).split("\n")[0] or type(e).__name__
        print(json.dumps(answer), flush=True)
    return 0


class NativeProcess:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu", "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=pathlib.Path(__file__).parents[1],
            env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        )

    def ask(self, line: str) -> float | None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if isinstance(answer, str):
            raise RuntimeError(f"native: {answer}")
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def main() -> int:
    if sys.argv[1:] == ["--serve"]:
        return serve()
    import minitorch_backend  # noqa: F401

    result_file, wanted = sys.argv[1], sys.argv[2:]
    native_process = NativeProcess()
    results = {}
    print(f"{'case':44} {'ours ms':>10} {'native ms':>10} {'ratio':>7}")
    for name in CASES:
        if wanted and not any(part in name for part in wanted):
            continue
        times: dict[str, list[float]] = {OURS: [], NATIVE: []}
        try:
            call = make_case(name, OURS)
            native_process.ask(name)
            for _ in range(ROUNDS):
                times[OURS].append(time_calls(call, torch.minitorch.synchronize))
                times[NATIVE].append(native_process.ask(""))
            del call
        except Exception as e:
            results[name] = {"error": str(e).splitlines()[0]}
            print(f"{name:44} {results[name]['error'][:90]}", flush=True)
            continue
        ours, native = (statistics.median(times[d]) for d in (OURS, NATIVE))
        results[name] = {"ours_s": ours, "native_s": native, "ratio": native / ours, "rounds": times}
        print(f"{name:44} {ours * 1e3:10.4f} {native * 1e3:10.4f} {native / ours:7.2f}", flush=True)
        with open(result_file, "w") as f:
            json.dump(
                {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cases": results}, f, indent=1
            )
    native_process.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
