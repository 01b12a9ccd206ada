"""Matrix products: square, odd, thin, batched, transposed. 2mnk operations; operands and result moved once."""

import torch
import torch.nn.functional as F

from benchmarks.cases._table import cases
from minitorch_backend.bench.case import forward, training

F64, BF16, F16 = torch.float64, torch.bfloat16, torch.float16


def moved(m: int, n: int, k: int, batch: int = 1) -> float:
    return batch * (m * k + k * n + m * n)


def operations(m: int, n: int, k: int, batch: int = 1) -> float:
    return 2 * batch * m * n * k


def product(setup, m, n, k, batch=0, left=False, right=False):
    """(m, k) @ (k, n); left and right: that operand is stored transposed."""
    lead = (batch,) if batch else ()
    a = setup.normal(*lead, k, m).mT if left else setup.normal(*lead, m, k)
    b = setup.normal(*lead, n, k).mT if right else setup.normal(*lead, k, n)
    return forward(torch.matmul, a, b)


def tf32(setup, m, n, k):
    """The product at the precision of torch.set_float32_matmul_precision("high"), set around each call."""
    a, b = setup.normal(m, k), setup.normal(k, n)

    def work():
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            return a @ b
        finally:
            torch.set_float32_matmul_precision(before)

    return work


def batched(setup, m, n, k, batch):
    return product(setup, m, n, k, batch)


def linear(setup, rows, outputs, inputs):
    scale = inputs**-0.5
    weight = setup.normal(outputs, inputs, grad=True, scale=scale)
    bias = setup.normal(outputs, grad=True)
    return training(setup, F.linear, setup.normal(rows, inputs, grad=True), weight, bias)


def batched_training(setup, m, n, k, batch):
    return training(setup, torch.bmm, setup.normal(batch, m, k, grad=True), setup.normal(batch, k, n, grad=True))


def square_training(setup, m, n, k):
    return training(setup, torch.matmul, setup.normal(m, k, grad=True), setup.normal(k, n, grad=True))


def moved_twice(m: int, n: int, k: int, batch: int = 1) -> float:
    """With backward, which reads the operands and the gradient of the result, and writes two gradients."""
    return batch * (3 * (m * k + k * n) + 2 * m * n)


BOTH = {"elements": moved_twice, "flops": lambda *size: 3 * operations(*size)}
COMMON = {"elements": moved, "flops": operations}
ODD = ((1023, 1025, 1021), (257, 1031, 509))

CASES = [
    *cases("square", product, ((512,) * 3, (1024,) * 3, (2048,) * 3), ((4096,) * 3,), floor=0.7, cuda_floor=0.8, quick=True,
           **COMMON),
    *cases("square", product, (), ((1024,) * 3,), dtype=(torch.float32, BF16), **COMMON),
    *cases("square tf32", tf32, (), ((4096,) * 3,), cuda_floor=0.6, arithmetic="tf32", **COMMON),
    *cases("square", product, ((64,) * 3, (128,) * 3, (256,) * 3), **COMMON),
    *cases("square", product, ((1024,) * 3,), ((4096,) * 3,), dtype=F64, **COMMON),
    *cases("square", product, ((1024,) * 3,), ((4096,) * 3, (8192,) * 3), dtype=BF16, cuda_floor=0.6, quick=True, **COMMON),
    *cases("square", product, ((1024,) * 3,), ((4096,) * 3,), dtype=F16, cuda_floor=0.6, **COMMON),
    *cases("odd", product, ODD, ((4097, 4095, 4093),), **COMMON),
    *cases("odd", product, ODD[:1], ((4097, 4095, 4093),), dtype=BF16, **COMMON),
    *cases("right transposed", lambda s, *n: product(s, *n, right=True), ((1024,) * 3,), ((4096,) * 3,), **COMMON),
    *cases("right transposed", lambda s, *n: product(s, *n, right=True), (), ((4096,) * 3,), dtype=BF16, **COMMON),
    *cases("left transposed", lambda s, *n: product(s, *n, left=True), ((1024,) * 3,), ((4096,) * 3,), **COMMON),
    *cases("left transposed", lambda s, *n: product(s, *n, left=True), (), ((4096,) * 3,), dtype=BF16, **COMMON),
    *cases("both transposed", lambda s, *n: product(s, *n, left=True, right=True), ((1024,) * 3,), ((4096,) * 3,),
           dtype=(torch.float32, BF16), **COMMON),
    *cases("few rows", product, ((8, 4096, 4096),), ((16, 16384, 16384),), dtype=(torch.float32, BF16), quick=True, **COMMON),
    *cases("few columns", product, ((4096, 8, 4096),), ((16384, 16, 16384),), **COMMON),
    *cases("tall", product, ((65536, 64, 64),), ((2**20, 64, 64),), **COMMON),
    *cases("transformer", product, (), ((8192, 3072, 768), (768, 768, 8192)), dtype=BF16, **COMMON),
    *cases("classifier", lambda s, m, n, k: product(s, m, n, k, right=True), (), ((8192, 50257, 768),), dtype=BF16, **COMMON),
    *cases("short inner", product, ((2048, 2048, 16),), ((8192, 8192, 32),), **COMMON),
    *cases("long inner", product, ((64, 64, 65536),), ((128, 128, 2**20),), **COMMON),
    *cases("matrix by vector", lambda s, m, k: forward(torch.mv, s.normal(m, k), s.normal(k)), ((4096, 4096),),
           ((16384, 16384),), dtype=(torch.float32, BF16), elements=lambda m, k: m * k + m + k, flops=lambda m, k: 2 * m * k),
    *cases("dot", lambda s, n: forward(torch.dot, s.normal(n), s.normal(n)), (2**20,), (2**26,),
           elements=lambda n: 2 * n, flops=lambda n: 2 * n),
    *cases("outer", lambda s, m, n: forward(torch.outer, s.normal(m), s.normal(n)), ((4096, 4096),), ((8192, 8192),),
           elements=lambda m, n: m * n, access="write", flops=lambda m, n: m * n),
    *cases("batched", batched, ((128, 128, 64, 64), (32, 32, 32, 512)), ((1024, 1024, 64, 192),), quick=True, **COMMON),
    *cases("batched", batched, ((128, 128, 64, 64),), ((1024, 1024, 64, 192),), dtype=BF16, **COMMON),
    *cases("batched fwd+bwd", batched_training, ((128, 128, 64, 64),), ((1024, 1024, 64, 192),), dtype=(torch.float32, BF16),
           **BOTH),
    *cases("square fwd+bwd", square_training, ((512,) * 3,), ((4096,) * 3,), dtype=(torch.float32, BF16), **BOTH),
    *cases("baddbmm", lambda s, m, n, k, b: forward(torch.baddbmm, s.normal(b, m, n), s.normal(b, m, k), s.normal(b, k, n)),
           ((128, 128, 64, 64),), ((1024, 1024, 64, 64),), elements=lambda m, n, k, b: moved(m, n, k, b) + b * m * n,
           flops=operations),
    *cases("einsum bhid,bhjd", lambda s, n, d, h, b: forward(lambda x, y: torch.einsum("bihd,bjhd->bhij", x, y),
                                                             s.normal(b, n, h, d), s.normal(b, n, h, d)),
           ((256, 64, 8, 4),), ((1024, 64, 12, 16),), elements=lambda n, d, h, b: b * h * (2 * n * d + n * n),
           flops=lambda n, d, h, b: 2 * b * h * n * n * d),
    *cases("linear of short rows", lambda s, r, o, i: forward(F.linear, s.normal(r, i), s.normal(o, i), s.normal(o)),
           ((8, 8192, 64),), ((8, 65536, 128),), elements=moved, flops=lambda r, o, i: 2 * r * o * i),
    *cases("linear fwd+bwd", linear, ((512, 1024, 1024),), ((16384, 3072, 768),), dtype=(torch.float32, BF16),
           elements=moved_twice, flops=lambda r, o, i: 6 * r * o * i, quick=True),
]  # fmt: skip
