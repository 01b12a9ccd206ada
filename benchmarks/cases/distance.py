"""Distances between all pairs of rows. Three operations a pair and element; the result is what memory sees."""

import torch

from benchmarks.cases._table import cases
from minitorch_backend.bench.case import forward


def pairwise(p):
    return lambda s, m, n, k: forward(lambda a, b: torch.cdist(a, b, p), s.normal(m, k), s.normal(n, k))


def points(s, batch, n):
    return forward(torch.cdist, s.normal(batch, n, 3), s.normal(batch, n, 3))


SIZES, GPU_SIZES = ((512, 1024, 32),), ((4096, 8192, 64),)
PAIRS = {"elements": lambda m, n, k: m * n, "access": "write", "flops": lambda m, n, k: 3 * m * n * k}

CASES = [
    *cases("cdist p=1", pairwise(1.0), SIZES, GPU_SIZES, **PAIRS),
    *cases("cdist p=2", pairwise(2.0), SIZES, GPU_SIZES, **PAIRS),
    *cases("cdist of points", points, ((256, 24),), ((4096, 128),), elements=lambda b, n: b * n * n, access="write",
           flops=lambda b, n: 9 * b * n * n),
    *cases("pdist", lambda s, n, k: forward(torch.pdist, s.normal(n, k)), ((1024, 32),), ((8192, 64),),
           elements=lambda n, k: n * n / 2, access="write", flops=lambda n, k: 1.5 * n * n * k),
]  # fmt: skip
