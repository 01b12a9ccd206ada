"""Embedding and index operators: the elements touched are read or written once, indices are 8 bytes each.

What is added to a place more than once stays in a register or a cache at best: it is written once.
"""

import torch
import torch.nn.functional as F

from benchmarks.cases._table import cases, times, unary
from minitorch_backend.bench.case import forward, training

# On a GPU what is looked up would stay in the L2 cache from call to call.
COLD = {"cold": True}
TABLE, GPU_TABLE = (32000, 256, 4096), (50304, 768, 16384)  # rows, width, how many are looked up
SQUARE, GPU_SQUARE = (2048, 2048), (8192, 8192)


def looked_up(factor):
    return lambda rows, width, count: 4.0 * factor * width * count + 8 * count


def embedding(s, rows, width, count):
    return training(s, lambda w, i: F.embedding(i, w), s.normal(rows, width, grad=True), s.integers(rows, count))


CASES = [
    *cases("embedding", lambda s, r, w, n: forward(F.embedding, s.integers(r, n), s.normal(r, w)), (TABLE,), (GPU_TABLE,),
           bytes=looked_up(2), quick=True, **COLD),
    *cases("embedding fwd+bwd", embedding, (TABLE,), (GPU_TABLE,), bytes=lambda r, w, n: looked_up(3)(r, w, n) + 8 * n + 4 * r * w),
    *cases("embedding_bag mean", lambda s, r, w, n: forward(F.embedding_bag, s.integers(r, n // 16, 16), s.normal(r, w)),
           (TABLE,), (GPU_TABLE,), bytes=looked_up(1), flops=lambda r, w, n: w * n),
    *cases("index_select rows", lambda s, r, w, n: forward(torch.index_select, s.normal(r, w), 0, s.integers(r, n)), (TABLE,),
           (GPU_TABLE,), bytes=looked_up(2), **COLD),
    *cases("index_select columns", lambda s, m, n: forward(torch.index_select, s.normal(m, n), 1, s.integers(n, n)),
           (SQUARE,), (GPU_SQUARE,), elements=times(2)),
    *cases("index with two lists",
           lambda s, m, n: forward(lambda x, i, j: x[i, j], s.normal(m, n), s.integers(m, 2**20), s.integers(n, 2**20)),
           (SQUARE,), (GPU_SQUARE,), bytes=lambda m, n: 2**20 * 24.0),
    *cases("gather rows", lambda s, m, n: forward(torch.gather, s.normal(m, n), 1, s.integers(n, m, n)), (SQUARE,), (GPU_SQUARE,),
           bytes=times(16), quick=True),
    *cases("scatter_add rows",
           lambda s, m, n: forward(lambda x, i, y: x.scatter_add(1, i, y), s.normal(m, n), s.integers(n, m, n), s.normal(m, n)),
           (SQUARE,), (GPU_SQUARE,), bytes=times(20), flops=times(1)),
    *cases("index_add rows", lambda s, r, w, n: forward(lambda x, i, y: x.index_add(0, i, y), s.normal(r, w), s.integers(r, n),
                                                        s.normal(n, w)),
           (TABLE,), (GPU_TABLE,), bytes=lambda r, w, n: 8.0 * r * w + 4 * n * w + 8 * n, flops=lambda r, w, n: w * n),
    *cases("index_put accumulate",
           lambda s, n, m: forward(lambda x, i, y: x.index_put((i,), y, accumulate=True), s.normal(n), s.integers(n, m), s.normal(m)),
           ((65536, 2**19),), ((2**20, 2**24),), bytes=lambda n, m: 8.0 * n + 12 * m, flops=lambda n, m: m),
    *cases("masked_fill", lambda s, m, n: forward(lambda x, k: x.masked_fill(k, 0.0), s.normal(m, n), s.normal(m, n) > 0),
           (SQUARE,), (GPU_SQUARE,), bytes=times(9)),
    *cases("masked_select", lambda s, m, n: forward(torch.masked_select, s.normal(m, n), s.normal(m, n) > 0), (SQUARE,),
           (GPU_SQUARE,), bytes=times(7)),
    *cases("nonzero", lambda s, m, n: forward(torch.nonzero, s.normal(m, n) > 0), (SQUARE,), (GPU_SQUARE,), bytes=times(9)),
    *cases("take_along_dim",
           lambda s, m, n: forward(lambda x, i: torch.take_along_dim(x, i, 0), s.normal(m, n), s.integers(m, m, n)), (SQUARE,),
           (GPU_SQUARE,), bytes=times(16)),
    *cases("one_hot", lambda s, n, c: forward(lambda i: F.one_hot(i, c), s.integers(c, n)), ((16384, 128),), ((2**18, 512),),
           bytes=times(8), access="write"),
    *cases("slice of every row", unary(lambda x: x[:, 5:-5] + 1), (SQUARE,), (GPU_SQUARE,), elements=times(2), flops=times(1)),
]  # fmt: skip
