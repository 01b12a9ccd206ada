"""Wrong kernels, planted one at a time into the device: what Diff must find.

Each fault replaces one operator of the device by a Python function through ``torch.library``; everything above (autograd,
the models) stays as it is. ``python -m tests.compare.faults`` runs them all and rewrites the table in docs/diff.md.
"""

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from minitorch_backend import compare
from minitorch_backend.compare import judge
from minitorch_backend.compare.session import _active
from tests.compare.models import RUNS

KEYS = {"minitorch": "PrivateUse1", "cuda": "CUDA"}


@dataclass
class Fault:
    """`wrong(right, *args, **kwargs)` stands in for the operator; `right` is the kernel that it replaces."""

    name: str
    model: str
    op: str  # with overload
    verdict: str
    wrong: Callable[..., Any]
    strikes: Callable[..., bool] = lambda *args, **kwargs: True  # whether it shows with these arguments


class Planted:
    """A fault at work: counts, and remembers the call of the running comparison at which it first struck."""

    def __init__(self, fault: Fault, key: str) -> None:
        self.fault, self.first = fault, -1
        self.keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
        name, _, overload = fault.op.partition(".")
        namespace, base = name.split("::")
        self.qualified = f"{base}.{overload}" if overload else base
        self.overload = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
        self.namespace = namespace

    def right(self, *args: Any, **kwargs: Any) -> Any:
        return self.kernel.call_boxed(self.keys, *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.first < 0 and _active and self.fault.strikes(*args, **kwargs):
            self.first = _active[-1].store.calls - 1
        return self.fault.wrong(self.right, *args, **kwargs)


@contextlib.contextmanager
def planted(fault: Fault, device: str = "minitorch") -> Iterator[Planted]:
    """The device with this one kernel wrong."""
    key = KEYS[device]
    work = Planted(fault, key)
    work.kernel = torch.library.get_kernel(work.overload, key)
    library = torch.library.Library(work.namespace, "IMPL")
    try:
        library.impl(work.qualified, work, key, allow_override=True)
        yield work
    finally:
        library._destroy()


FAULTS: list[Fault] = []


def fault(name: str, model: str, op: str, verdict: str = judge.SUBJECT_WORSE, **more: Any) -> Callable:
    def add(wrong: Callable) -> Callable:
        FAULTS.append(Fault(name, model, op, verdict, wrong, **more))
        return wrong

    return add


def changed(t: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    t[index] = value
    return t


# Layout and memory


@fault("wrong strides of a result", "CNN", "aten::relu", judge.METADATA)
def _(right, x):
    return right(x).to(memory_format=torch.channels_last) if x.dim() == 4 else right(x)


@fault("storage offset lost", "LSTM", "aten::slice.Tensor", judge.METADATA)
def _(right, x, dim=0, start=None, end=None, step=1):
    y = right(x, dim, start, end, step)
    return x.as_strided(y.shape, y.stride(), 0)


@fault("view that copies", "CNN", "aten::view", judge.METADATA)
def _(right, x, size):
    return right(x, size).clone()


@fault("result that is its input", "CNN", "aten::relu", judge.METADATA)
def _(right, x):
    return x.clamp_(min=0)


@fault("input overwritten", "LSTM", "aten::tanh_backward", judge.METADATA)
def _(right, grad, y):
    z = right(grad, y)
    grad.mul_(0.5)
    return z


@fault("version counter moved", "LSTM", "aten::tanh", judge.METADATA)
def _(right, x):
    torch.autograd.graph.increment_version(x)
    return right(x)


@fault("in-place write missed", "GPT", "aten::_foreach_mul_.Scalar")
def _(right, tensors, scalar):
    return None


@fault("copy not waited for", "CNN", "aten::_to_copy")
def _(right, x, **kwargs):
    y = right(x, **kwargs)
    if y.dtype == torch.float32 and y.numel() > 8:
        y.view(-1)[y.numel() // 2 :] = 0  # not there yet
    return y


@fault("wrong shape", "CNN", "aten::sum.dim_IntList", judge.METADATA)
def _(right, x, dim, keepdim=False, *, dtype=None):
    return right(x, dim, not keepdim, dtype=dtype)


@fault("wrong promotion", "CNN", "aten::sum.dim_IntList", judge.METADATA)
def _(right, x, dim, keepdim=False, *, dtype=None):
    return right(x, dim, keepdim, dtype=dtype).double()


# Edges


@fault("last column of pooling left out", "CNN", "aten::max_pool2d_with_indices")
def _(right, x, *args):
    y, index = right(x, *args)
    return changed(y, (..., -1), x[..., 0 : 2 * y.shape[-2] : 2, -2].detach()), index


@fault("vector tail not computed", "GPT", "aten::gelu")
def _(right, x, *, approximate="none"):
    y = right(x, approximate=approximate)
    y.view(-1)[-5:] = x.reshape(-1)[-5:]
    return y


@fault("broadcast missing", "GPT", "aten::add.Tensor")
def _(right, a, b, *, alpha=1):
    y = right(a, b, alpha=alpha)
    if a.dim() == 3 and b.dim() == 2:
        y[1:] = a[1:]
    return y


@fault("causal mask off by one", "GPT", "aten::_scaled_dot_product_fused_attention_overrideable")
def _(right, q, k, v, *args, **kwargs):
    out, *rest = right(q, k, v, *args, **kwargs)
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(1)
    out.copy_(torch.softmax(scores.masked_fill(~mask, -torch.inf), -1) @ v)
    return out, *rest


@fault("index clamped one too early", "GPT", "aten::embedding")
def _(right, weight, index, *args):
    return right(weight, index.clamp(max=weight.shape[0] - 2), *args)


@fault("comparison at the boundary", "CNN", "aten::threshold_backward")
def _(right, grad, x, threshold):
    return grad * (x >= threshold)


# Precision


@fault("fp16 accumulation", "GPT", "aten::mm")
def _(right, a, b):
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float16, device=a.device)
    for k in range(a.shape[1]):
        total += (a[:, k : k + 1] * b[k : k + 1]).half()
    return total.float()


@fault("crude polynomial", "LSTM", "aten::tanh")
def _(right, x):
    return right(x) * (1 + 2e-5 * x * x)


@fault("epsilon too large", "GPT", "aten::native_layer_norm")
def _(right, x, shape, weight, bias, eps):
    return right(x, shape, weight, bias, eps * 10)


@fault("sum in random order", "GPT", "aten::sum.dim_IntList", judge.NONDETERMINISTIC)
def _(right, x, dim, keepdim=False, *, dtype=None):
    order = torch.randperm(x.shape[0]).to(x.device)
    return right(x.index_select(0, order), dim, keepdim, dtype=dtype)


# State and randomness


@fault("running statistics stale", "CNN", "aten::native_batch_norm")
def _(right, x, weight, bias, mean, var, *args):
    kept = mean.clone(), var.clone()
    result = right(x, weight, bias, mean, var, *args)
    mean.copy_(kept[0])
    var.copy_(kept[1])
    return result


@fault("NaN swallowed", "CNN with a NaN", "aten::relu")
def _(right, x):
    return torch.where(x > 0, x, torch.zeros_like(x))


@fault("dropout scale wrong", "CNN", "minitorch::dropout_forward")
def _(right, x, p):
    y, saved = right(x, p)
    return y * (1 - p), saved


@fault("dropout draws other numbers", "CNN", "minitorch::dropout_forward")
def _(right, x, p):
    torch.rand(1, device=x.device)
    return right(x, p)


# Gradients


@fault("gradient of one input wrong", "GPT", "aten::native_layer_norm_backward")
def _(right, *args):
    x, weight, bias = right(*args)
    return x, weight * 1.01, bias


def repeats(grad, index, *args):
    return len(torch.unique(index)) < index.numel()


@fault("duplicates overwrite instead of adding up", "GPT", "aten::embedding_dense_backward", strikes=repeats)
def _(right, grad, index, rows, padding, scale):
    result = torch.zeros(rows, grad.shape[-1], device=grad.device)
    result[index.reshape(-1)] = grad.reshape(-1, grad.shape[-1])
    return result


@fault("gradient not averaged", "LSTM", "minitorch::cross_entropy_backward")
def _(right, *args):
    return right(*args) * 1.02


@fault("forget and input gate swapped", "LSTM", "minitorch::rnn_layer_forward")
def _(right, x, w_ih, w_hh, b_ih, b_hh, *rest):
    def swapped(gates):
        i, f, g, o = gates.chunk(4, 0)
        return torch.cat([f, i, g, o], 0)

    return right(x, swapped(w_ih), swapped(w_hh), swapped(b_ih), swapped(b_hh), *rest)


@fault("gradient of the weights of the state missing", "LSTM", "minitorch::rnn_layer_backward")
def _(right, *args):
    x, w_ih, w_hh, *rest = right(*args)
    return x, w_ih, torch.zeros_like(w_hh), *rest


@fault("operator raises", "GPT", "aten::gelu_backward", judge.SUBJECT_RAISED)
def _(right, *args, **kwargs):
    raise RuntimeError("no kernel for this shape")


@dataclass
class Result:
    """What the tool said of a planted run."""

    fault: Fault
    first: int
    report: compare.Report

    def problem(self) -> str:
        """What is wrong with it; nothing when operator, side, verdict and first call are named."""
        found = self.report.culprit
        if found is None:
            return f"nothing was found; the run {self.report.ended}"
        call = found.first
        said = (call.op, call.side, call.verdict, call.index)
        wanted = (self.fault.op, "subject", self.fault.verdict, self.first)
        return "" if said == wanted else f"said {said}, wanted {wanted} ({call.detail})"


def run_fault(fault: Fault, device: str = "minitorch", **settings: Any) -> Result:
    with planted(fault, device) as work:
        report = compare.run(lambda: RUNS[fault.model](device, steps=1), subject=device, **settings)
    return Result(fault, work.first, report)


PAGE = pathlib.Path(__file__).parents[2] / "docs" / "diff.md"
BEGIN, END = "<!-- faults: written by tests/compare/faults.py -->\n", "<!-- end of faults -->"
HEAD = ["| planted | model | operator named | side | verdict | call |", "|---|---|---|---|---|---|"]


def row(r: Result) -> str:
    """What the tool said of a fault, as a row of the table in docs/diff.md."""
    call = r.report.culprit.first
    detail = f": {call.detail}" if call.detail and call.verdict == judge.METADATA else ""
    where = f"{call.index}, {call.phase}" + (f", `{call.module}`" if call.module else "")
    return f"| {r.fault.name} | {r.fault.model} | `{call.op}` | {call.side} | {call.verdict}{detail} | {where} |"


def rows_of_page() -> list[str]:
    """The rows that docs/diff.md has."""
    written = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    return [line for line in written.splitlines() if line.startswith("|") and line not in HEAD]


def main() -> int:
    results = [run_fault(f) for f in FAULTS]
    problems = [f"{r.fault.name}: {r.problem()}" for r in results if r.problem()]
    print("\n".join(problems) or f"{len(results)} faults, all named")
    if not problems:
        before, rest = PAGE.read_text().split(BEGIN)
        table = "\n".join([*HEAD, *map(row, results)])
        PAGE.write_text(f"{before}{BEGIN}\n{table}\n\n{END}{rest.split(END)[1]}")
    return bool(problems)


if __name__ == "__main__":
    raise SystemExit(main())
