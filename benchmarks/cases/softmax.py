"""Softmax and its relatives. About 5 operations an element forward, 4 backward."""

import torch

from benchmarks.cases._table import cases, differentiated, times, unary

ROWS, GPU_ROWS = (4096, 1024), (32768, 4096)
BF16 = torch.bfloat16
FORWARD = {"elements": times(2), "flops": times(5)}
BOTH = {"elements": times(5), "flops": times(9)}

CASES = [
    *cases("softmax", unary(lambda x: x.softmax(-1)), (ROWS, (65536, 32)), (GPU_ROWS,), cuda_floor=1.0, quick=True, **FORWARD),
    *cases("softmax", unary(lambda x: x.softmax(-1)), (ROWS,), (GPU_ROWS,), dtype=BF16, cuda_floor=1.0, **FORWARD),
    *cases("softmax fwd+bwd", differentiated(lambda x: x.softmax(-1)), (ROWS,), (GPU_ROWS,), floor=1.0, cuda_floor=1.0,
           quick=True, **BOTH),
    *cases("softmax fwd+bwd", differentiated(lambda x: x.softmax(-1)), (), ((8192, 1024), GPU_ROWS), dtype=BF16, cuda_floor=1.0,
           **BOTH),
    *cases("softmax columns", unary(lambda x: x.softmax(0)), (ROWS,), (GPU_ROWS,), **FORWARD),
    *cases("log_softmax", unary(lambda x: x.log_softmax(-1)), ((65536, 10),), ((2**20, 10),), **FORWARD),
    *cases("log_softmax fwd+bwd", differentiated(lambda x: x.log_softmax(-1)), ((512, 8192),), ((8192, 50304),), **BOTH),
]  # fmt: skip
