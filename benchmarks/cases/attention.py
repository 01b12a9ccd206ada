"""Scaled dot product attention. 4bhnmd operations forward, half when causal, 3.5 times with backward.

Queries, keys, values and result are moved once forward; backward reads these and the gradient, and writes three. A mask is
read in each pass, by all of the batch from one copy.
"""

import torch
import torch.nn.functional as F

from benchmarks.cases._table import cases
from minitorch_backend.bench.case import forward, training

HEADS, GPU_HEADS = (4, 8, 256, 64), (4, 16, 2048, 64)
WIDE, GPU_WIDE = (2, 8, 256, 128), (4, 16, 2048, 128)
BF16 = torch.bfloat16


def attention(dtype, causal=False, grad=False, mask=None, heads_kv=None, queries=None, dropout=0.0):
    """make, bytes and flops for a size (batch, heads, length, width)."""

    def make(setup, batch, heads, length, width):
        inputs = [
            setup.normal(batch, count, rows, width, grad=grad)
            for count, rows in ((heads, queries or length), (heads_kv or heads, length), (heads_kv or heads, length))
        ]
        options = {"is_causal": causal, "enable_gqa": heads_kv is not None, "dropout_p": dropout}
        if mask == "bool":
            options["attn_mask"] = setup.integers(4, queries or length, length) > 0
        elif mask == "bias":
            options["attn_mask"] = setup.normal(1, heads, queries or length, length)
        run = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options)  # noqa: E731
        return training(setup, run, *inputs) if grad else forward(run, *inputs)

    def masked(heads, length):
        return (queries or length) * length * {"bool": 1, "bias": dtype.itemsize * heads, None: 0}[mask]

    def moved(batch, heads, length, width):
        tensors = batch * width * (2 * heads * (queries or length) + 2 * (heads_kv or heads) * length) * dtype.itemsize
        return tensors * (3 if grad else 1) + masked(heads, length) * (2 if grad else 1)

    def flops(batch, heads, length, width):
        return 4 * batch * heads * (queries or length) * length * width * (0.5 if causal else 1) * (3.5 if grad else 1)

    found = {"make": make, "bytes": moved, "flops": flops}
    if not dropout:
        return found | {"check": "float64"}
    if dtype == torch.float32:  # the same seed drops the same weights
        return found | {"check": "native"}
    return found | {"check": "none", "unchecked": "native takes cuDNN's kernel, which drops other weights"}


def attend(title, cpu, cuda, dtype=torch.float32, quick=False, cuda_floor=None, cold=False, **options):
    built = attention(dtype, **options)
    make = built.pop("make")
    return cases(title, make, cpu, cuda, dtype=dtype, quick=quick, cuda_floor=cuda_floor, cold=cold, **built)


def module(setup, batch, length, width, heads):
    layer = setup.module(lambda: torch.nn.MultiheadAttention(width, heads, batch_first=True))
    x = setup.normal(batch, length, width, grad=True)
    return training(setup, lambda t: layer(t, t, t, need_weights=False)[0], x, parameters=layer.parameters())


CASES = [
    *attend("sdpa", (HEADS,), (GPU_HEADS, GPU_WIDE), quick=True),
    *attend("sdpa", (HEADS,), (GPU_HEADS, GPU_WIDE), dtype=BF16, cuda_floor=0.5),
    *attend("sdpa decoding", ((1, 12, 256, 64),), ((16, 16, 2048, 128),), queries=1),
    *attend("sdpa wide", (WIDE,), (), dtype=torch.float32),
    *attend("sdpa wide fwd+bwd", (WIDE,), (GPU_WIDE,), grad=True),
    *attend("sdpa fwd+bwd", (HEADS,), (GPU_HEADS,), grad=True),
    *attend("sdpa causal", (HEADS,), (GPU_HEADS,), causal=True),
    *attend("sdpa causal", (), (GPU_HEADS, GPU_WIDE), dtype=BF16, causal=True, cuda_floor=0.5),
    *attend("sdpa causal fwd+bwd", (HEADS,), (GPU_HEADS, GPU_WIDE), causal=True, grad=True, quick=True),
    *attend("sdpa causal fwd+bwd", (HEADS,), (GPU_HEADS, GPU_WIDE), dtype=BF16, causal=True, grad=True, cuda_floor=0.4),
    *attend("sdpa bool mask", (HEADS,), (GPU_HEADS,), mask="bool"),
    *attend("sdpa bias fwd+bwd", (HEADS,), (GPU_HEADS,), mask="bias", grad=True),
    *attend("sdpa dropout fwd+bwd", (HEADS,), (GPU_HEADS,), dropout=0.1, grad=True),
    *attend("sdpa dropout fwd+bwd", (), (GPU_HEADS, GPU_WIDE), dtype=BF16, dropout=0.1, causal=True, grad=True),
    *attend("sdpa 2 kv heads", (HEADS,), (GPU_HEADS,), heads_kv=2),
    *attend("sdpa one query", ((4, 8, 1024, 64),), ((32, 16, 8192, 64),), queries=1, cold=True),
    *attend("sdpa width 80", ((2, 8, 256, 80),), ((4, 16, 2048, 80),)),
    *cases("multihead module fwd+bwd", module, ((4, 128, 512, 8),), ((16, 1024, 1024, 16),),
           elements=lambda b, n, w, h: 12 * b * n * w + 12 * w * w,
           flops=lambda b, n, w, h: 3 * (8 * b * n * w * w + 4 * b * n * n * w)),
]  # fmt: skip
