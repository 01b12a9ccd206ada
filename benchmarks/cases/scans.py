"""Running sums, products and extremes."""

import torch

from benchmarks.cases._table import cases, differentiated, times, unary
from minitorch_backend.bench.case import forward

SQUARE, GPU_SQUARE = (2048, 2048), (8192, 8192)
COMMON = {"elements": times(2), "flops": times(1)}

CASES = [
    *cases("cumsum", unary(lambda x: x.cumsum(0)), (2**22,), (2**26,), quick=True, **COMMON),
    *cases("cumsum rows", unary(lambda x: x.cumsum(-1)), (SQUARE,), (GPU_SQUARE,), dtype=(torch.float32, torch.bfloat16),
           **COMMON),
    *cases("cumsum columns", unary(lambda x: x.cumsum(0)), (SQUARE,), (GPU_SQUARE,), **COMMON),
    *cases("cumprod rows", lambda s, *n: forward(lambda x: x.cumprod(-1), s.uniform(*n, low=0.99, high=1.01)), (SQUARE,),
           (GPU_SQUARE,), **COMMON),
    *cases("logcumsumexp rows", unary(lambda x: x.logcumsumexp(-1)), (SQUARE,), (GPU_SQUARE,), elements=times(2),
           flops=times(3)),
    *cases("cummax rows", unary(lambda x: x.cummax(-1)), (SQUARE,), (GPU_SQUARE,), bytes=times(16), flops=times(1)),
    *cases("cumsum rows fwd+bwd", differentiated(lambda x: x.cumsum(-1)), (SQUARE,), (GPU_SQUARE,), elements=times(4),
           flops=times(2)),
]  # fmt: skip
