"""Values and dtypes for the tests of pointwise operators."""

import math

import torch
from twin import check

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
COMPLEX = [torch.complex64, torch.complex128]
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -0.5, 2.0, 1e-3, -1e-3, 30.0, -30.0, 3e4]


def function(name):
    module, _, last = name.rpartition(".")
    return getattr(getattr(torch, module) if module else torch, last)


def values(dtype, n=257, seed=0):
    """Random values of the dtype, with the special ones among them."""
    torch.manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, (n,)).bool()
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(0 if dtype == torch.uint8 else -9, 10, (n,), dtype=dtype)
    x = torch.randn(n, dtype=torch.complex128 if dtype.is_complex else torch.float64) * 3
    if not dtype.is_complex:
        x[: len(SPECIAL)] = torch.tensor(SPECIAL, dtype=x.dtype)
        x = x[torch.randperm(n)]
    return x.to(dtype)


def close(fn, *args):
    check(fn, *args, exact=False)
