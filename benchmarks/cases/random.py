"""Random numbers. The devices draw the same ones from the same seed, so results are compared with native's own."""

import torch
import torch.nn.functional as F

from benchmarks.cases._table import cases, times
from minitorch_backend.bench.case import forward, training

LARGE, GPU = 2**22, 2**27


def fill(function):
    return lambda s, n: forward(function, torch.empty(n, dtype=s.dtype, device=s.device))


def dropout(s, n):
    return training(s, lambda x: F.dropout(x, 0.1), s.normal(n, grad=True))


DRAWN = {"elements": times(1), "access": "write", "flops": times(1), "check": "native"}
CASES = [
    *cases("normal_", fill(lambda x: x.normal_()), (LARGE,), (GPU,), **DRAWN, quick=True),
    *cases("uniform_", fill(lambda x: x.uniform_()), (LARGE,), (GPU,), **DRAWN),
    *cases("normal_", fill(lambda x: x.normal_()), (LARGE,), (GPU,), dtype=torch.bfloat16, **DRAWN),
    *cases("bernoulli_", fill(lambda x: x.bernoulli_(0.3)), (LARGE,), (GPU,), **DRAWN),
    *cases("randint", lambda s, n: forward(lambda: torch.randint(1000, (n,), device=s.device)), (LARGE,), (GPU,),
           bytes=times(8), access="write", flops=times(1), check="native"),
    *cases("randperm", lambda s, n: forward(lambda: torch.randperm(n, device=s.device)), (2**20,), (2**24,), bytes=times(8),
           access="write", flops=times(1), check="native"),
    *cases("multinomial", lambda s, m, n: forward(lambda p: torch.multinomial(p, 1), s.uniform(m, n)), ((256, 8192),),
           ((8192, 50304),), elements=times(1), flops=times(1), check="native"),
    *cases("dropout fwd+bwd", dropout, (LARGE,), (GPU,), elements=times(4), flops=times(2), check="native"),
]  # fmt: skip
