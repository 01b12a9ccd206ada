"""Fourier transforms of many lines and of one long one. 5 n log2 n operations for complex lines, half for real ones."""

import math

import torch

from benchmarks.cases._table import cases, unary
from minitorch_backend.bench.case import forward


def lines(function):
    return lambda s, m, n: forward(function, s.normal(m, n, dtype=torch.complex64))


def frames(n):
    """Windows of the short-time transform, 128 apart; each gives 257 complex numbers."""
    return 1 + n // 128


COMPLEX = {"bytes": lambda m, n: 16 * m * n, "flops": lambda m, n: 5 * m * n * math.log2(n)}
REAL = {"bytes": lambda m, n: 8 * m * n, "flops": lambda m, n: 2.5 * m * n * math.log2(n)}

CASES = [
    *cases("fft", lines(torch.fft.fft), ((1024, 256), (256, 1024), (64, 4096), (260, 1000)), ((32768, 1024),), **COMPLEX),
    *cases("fft", lines(torch.fft.fft), ((64, 1009),), ((8192, 1009),), **COMPLEX),
    *cases("rfft", unary(torch.fft.rfft), ((512, 1024), (128, 4096)), ((32768, 1024),), **REAL),
    *cases("fft columns", lines(lambda x: torch.fft.fft(x, dim=0)), ((512, 512),), ((4096, 4096),), **COMPLEX),
    *cases("long fft", lines(torch.fft.fft), ((1, 2**18),), ((1, 2**24),), **COMPLEX),
    *cases("stft", lambda s, b, n: forward(
        lambda x, w: torch.stft(x, 512, 128, window=w, return_complex=True), s.normal(b, n), s.uniform(512)),
        ((4, 65536),), ((64, 2**18),), bytes=lambda b, n: 4 * b * n + 8 * 257 * b * frames(n),
        flops=lambda b, n: 2.5 * 512 * 9 * b * frames(n)),
]  # fmt: skip
