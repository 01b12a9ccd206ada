"""Losses: every input read once forward; backward reads it again and writes its gradient."""

import torch
import torch.nn.functional as F

from benchmarks.cases._table import binary, cases, times
from minitorch_backend.bench.case import forward, training

BF16 = torch.bfloat16
FLAT, GPU_FLAT = 2**22, 2**26


def classes(function):
    """function(scores, target) with a class for each row."""
    return lambda s, m, n: training(s, function, s.normal(m, n, grad=True), s.integers(n, m))


def pairs(function, low=None):
    """function(x, y) with a value for each element; low: y is uniform in [low, 1)."""

    def make(s, n):
        target = s.normal(n) if low is None else s.uniform(n, low=low)
        return training(s, function, s.normal(n, grad=True), target)

    return make


def scores(function):
    """classes without backward."""
    return lambda s, m, n: forward(function, s.normal(m, n), s.integers(n, m))


PAIRS = {"elements": times(5), "flops": times(6)}

CASES = [
    *cases("cross entropy fwd+bwd", classes(F.cross_entropy), ((2048, 8192),), ((8192, 50304),), floor=1.0, cuda_floor=1.0,
           elements=times(3), flops=times(8), quick=True),
    *cases("cross entropy fwd+bwd", classes(F.cross_entropy), ((2048, 8192),), ((8192, 50304),), dtype=BF16,
           elements=times(3), flops=times(8), cuda_floor=1.0),
    *cases("cross entropy", scores(F.cross_entropy), ((2048, 8192),), ((8192, 50304),), dtype=(torch.float32, BF16),
           elements=times(1), flops=times(5)),
    *(case for name, function in (("mse", F.mse_loss), ("smooth l1", F.smooth_l1_loss))
      for case in cases(name, binary(function), (FLAT,), (GPU_FLAT,), elements=times(2), flops=times(3))),
    *cases("cross entropy smoothed fwd+bwd", classes(lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1)), ((2048, 1024),),
           ((8192, 32000),), elements=times(3), flops=times(10)),
    *cases("nll 2d fwd+bwd",
           lambda s, b, c, h, w: training(s, F.cross_entropy, s.normal(b, c, h, w, grad=True), s.integers(c, b, h, w)),
           ((4, 21, 128, 128),), ((32, 21, 512, 512),), elements=times(3), flops=times(8)),
    *cases("mse fwd+bwd", pairs(F.mse_loss), (FLAT,), (GPU_FLAT,), quick=True, **PAIRS),
    *cases("smooth l1 fwd+bwd", pairs(F.smooth_l1_loss), (FLAT,), (GPU_FLAT,), **PAIRS),
    *cases("bce with logits fwd+bwd", pairs(F.binary_cross_entropy_with_logits, 0.0), (FLAT,), (GPU_FLAT,), **PAIRS),
    *cases("kl fwd+bwd", pairs(lambda x, y: F.kl_div(x, y, reduction="sum"), 0.01), (FLAT,), (GPU_FLAT,), **PAIRS),
]  # fmt: skip
