"""Sorting, selecting and counting. Bytes are one pass over the input and the output; flops count nothing here."""

import torch

from benchmarks.cases._table import cases, times, unary
from minitorch_backend.bench.case import forward

ROWS, GPU_ROWS = (1024, 1024), (8192, 4096)

CASES = [
    *cases("sort", unary(lambda x: x.sort().values), (2**20,), (2**25,), elements=times(2), quick=True),
    *cases("sort int64", lambda s, n: forward(lambda x: x.sort().values, s.integers(2**40, n)), (2**20,), (2**25,),
           bytes=times(16)),
    *cases("sort rows", unary(lambda x: x.sort(-1).values), (ROWS,), (GPU_ROWS,), elements=times(2)),
    *cases("sort columns", unary(lambda x: x.sort(0).values), (ROWS,), (GPU_ROWS,), elements=times(2)),
    *cases("argsort stable", lambda s, n: forward(lambda x: x.argsort(stable=True), s.permutation(n).float()), (2**19,),
           (2**24,), bytes=times(12)),
    *cases("topk 32 of rows", unary(lambda x: x.topk(32).values), ((256, 32000),), ((4096, 50304),), elements=times(1),
           quick=True),
    *cases("topk 2 of experts", unary(lambda x: x.topk(2).values), ((16384, 64),), ((262144, 64),), elements=times(1)),
    *cases("topk 5 of rows", unary(lambda x: x.topk(5).values), (ROWS,), (GPU_ROWS,), elements=times(1)),
    *cases("topk 1000 of all", unary(lambda x: x.topk(1000).values), (2**20,), (2**25,), elements=times(1)),
    *cases("median", unary(lambda x: x.median()), (2**20,), (2**25,), elements=times(1)),
    *cases("kthvalue rows", unary(lambda x: x.kthvalue(100).values), (ROWS,), (GPU_ROWS,), elements=times(1)),
    *cases("mode", lambda s, n: forward(lambda x: x.mode().values, s.integers(1000, n)), (2**20,), (2**24,), bytes=times(8)),
    *cases("unique", lambda s, n: forward(torch.unique, s.integers(1000, n)), (2**20,), (2**24,), bytes=times(8)),
    *cases("searchsorted", lambda s, n: forward(torch.searchsorted, s.normal(65536).sort().values, s.normal(n)), (2**20,),
           (2**24,), bytes=times(12)),
    *cases("bincount", lambda s, n: forward(torch.bincount, s.integers(1000, n)), (2**22,), (2**26,), bytes=times(8)),
    *cases("bincount int32", lambda s, n: forward(torch.bincount, s.integers(64, n, dtype=torch.int32)), (2**20,),
           (2**26,), bytes=times(4)),
    *cases("bincount of many bins", lambda s, n: forward(torch.bincount, s.integers(2**20, n)), (2**22,), (2**26,),
           bytes=times(8)),
    *cases("unique_consecutive", lambda s, n: forward(torch.unique_consecutive, s.integers(100, n)), (2**20,), (2**24,),
           bytes=times(16)),
    *cases("unique_consecutive long runs", lambda s, n: forward(torch.unique_consecutive, s.integers(n // 64, n).sort().values),
           (2**20,), (2**24,), bytes=times(8)),
    *cases("histc", unary(lambda x: x.histc(100, -4, 4)), (2**22,), (2**26,), elements=times(1)),
]  # fmt: skip
