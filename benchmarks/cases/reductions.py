"""Reductions: everything, rows, columns, the middle. An operation an element; the output is small and left out."""

import torch

from benchmarks.cases._table import binary, cases, differentiated, times, unary
from minitorch_backend.bench.case import forward

LARGE, GPU = 2**24, 2**27
SQUARE, GPU_SQUARE = (4096, 4096), (16384, 8192)
CUBE, GPU_CUBE = (64, 512, 512), (256, 512, 1024)
ONE = times(1)
COMMON = {"elements": ONE, "flops": ONE, "cuda_floor": 1.0}

CASES = [
    *cases("sum", unary(torch.sum), (LARGE, 2**16), (GPU,), quick=True, **COMMON),
    *cases("sum", unary(torch.sum), (LARGE,), (GPU,), dtype=(torch.bfloat16, torch.float64), **COMMON),
    *cases("sum int64", lambda s, n: forward(torch.sum, s.integers(100, n)), (LARGE // 2,), (GPU,), bytes=times(8), flops=ONE),
    *cases("sum rows", unary(lambda x: x.sum(-1)), (SQUARE, (262144, 32)), (GPU_SQUARE,), quick=True, **COMMON),
    *cases("sum columns", unary(lambda x: x.sum(0)), (SQUARE, (262144, 32)), (GPU_SQUARE,), quick=True, **COMMON),
    *cases("sum columns", unary(lambda x: x.sum(0)), (), (GPU_SQUARE,), dtype=torch.bfloat16, **COMMON),
    *cases("sum middle", unary(lambda x: x.sum(1)), (CUBE,), (GPU_CUBE,), **COMMON),
    *cases("sum ends", unary(lambda x: x.sum((0, 2))), (CUBE,), (GPU_CUBE,), **COMMON),
    *cases("mean rows", unary(lambda x: x.mean(-1)), (SQUARE,), (GPU_SQUARE,), dtype=torch.bfloat16, **COMMON),
    *cases("prod rows", lambda s, *n: forward(lambda x: x.prod(-1), s.uniform(*n, low=0.999, high=1.001)), (SQUARE,),
           (GPU_SQUARE,), **COMMON),
    *cases("max", unary(torch.max), (LARGE,), (GPU,), **COMMON),
    *cases("amax columns", unary(lambda x: x.amax(0)), (SQUARE,), (GPU_SQUARE,), **COMMON),
    *cases("max rows with index", unary(lambda x: x.max(-1)), (SQUARE,), (GPU_SQUARE,), **COMMON),
    *cases("argmax rows", unary(lambda x: x.argmax(-1)), (SQUARE,), (GPU_SQUARE,), **COMMON),
    *cases("norm", unary(torch.linalg.vector_norm), (LARGE,), (GPU,), elements=ONE, flops=times(2)),
    *cases("var rows", unary(lambda x: x.var(-1)), (SQUARE,), (GPU_SQUARE,), elements=ONE, flops=times(3)),
    *cases("std columns", unary(lambda x: x.std(0)), (SQUARE,), (GPU_SQUARE,), elements=ONE, flops=times(3)),
    *cases("logsumexp rows", unary(lambda x: x.logsumexp(-1)), (SQUARE,), (GPU_SQUARE,), elements=ONE, flops=times(2)),
    *cases("any", lambda s, n: forward(torch.any, s.normal(n) > 9), (LARGE,), (GPU,), bytes=ONE, flops=ONE),
    *cases("count_nonzero", lambda s, n: forward(torch.count_nonzero, s.integers(2, n)), (LARGE // 2,), (GPU,), bytes=times(8),
           flops=ONE),
    *cases("allclose", binary(torch.allclose), (LARGE // 4,), (GPU,), elements=times(2), flops=times(4)),
    *cases("mean rows fwd+bwd", differentiated(lambda x: x.mean(-1)), (SQUARE,), (GPU_SQUARE,), elements=times(2), flops=ONE),
]  # fmt: skip
