"""Small operators: what a call costs when there is next to nothing to compute. No bytes or flops are stated: none count."""

import torch
import torch.nn.functional as F

from benchmarks.cases._table import cases, unary
from minitorch_backend.bench.case import forward, training

BOTH = {"cpu": (8,), "cuda": (8,)}


def chain(s, n):
    """Twenty operators in a row with their backward: the autograd engine's share."""

    def run(x):
        for _ in range(20):
            x = x * 1.01
        return x.sum()

    return training(s, run, s.normal(n, grad=True))


def network(s, n):
    model = s.module(lambda: torch.nn.Sequential(torch.nn.Linear(n, n), torch.nn.ReLU(), torch.nn.Linear(n, n)))
    return training(s, lambda x: model(x).square().mean(), s.normal(4, n), parameters=model.parameters())


CASES = [
    *cases("add", lambda s, n: forward(torch.add, s.normal(n), s.normal(n)), **BOTH, floor=1 / 1.2, cuda_floor=1.0, quick=True),
    *cases("add_", lambda s, n: forward(torch.Tensor.add_, s.normal(n), 0.0), **BOTH),
    *cases("add scalar", unary(lambda x: x + 1.5), **BOTH),
    *cases("exp", unary(torch.exp), **BOTH),
    *cases("view", lambda s, n: forward(lambda x: x.view(2, n // 2), s.normal(n)), **BOTH, quick=True),
    *cases("slice", unary(lambda x: x[2:5]), **BOTH),
    *cases("sum", unary(torch.sum), **BOTH),
    *cases("mm", lambda s, n: forward(torch.mm, s.normal(n, n), s.normal(n, n)), **BOTH, cuda_floor=1.0),
    *cases("cat", lambda s, n: forward(lambda x, y: torch.cat((x, y)), s.normal(n), s.normal(n)), **BOTH),
    *cases("empty", lambda s, n: lambda: torch.empty(n, device=s.device), **BOTH, check="none",
           unchecked="the values are whatever was in memory"),
    *cases("index a row", lambda s, n: forward(lambda x, i: x[i], s.normal(n, n), s.integers(n, 4)), **BOTH),
    *cases("linear", lambda s, n: forward(F.linear, s.normal(4, n), s.normal(n, n), s.normal(n)), **BOTH, quick=True),
    *cases("softmax", lambda s, n: forward(lambda x: x.softmax(-1), s.normal(4, n)), **BOTH),
    *cases("layer norm", lambda s, n: forward(lambda x: F.layer_norm(x, (n,)), s.normal(4, n)), **BOTH),
    *cases("chain of 20 fwd+bwd", chain, **BOTH, quick=True),
    *cases("two-layer network fwd+bwd", network, cpu=(16,), cuda=(16,)),
]  # fmt: skip
