"""Copies: dense, transposed, between dtypes, joined and rearranged. No arithmetic; flops are 0 and not stated."""

import torch
import torch.nn.functional as F

from benchmarks.cases._table import cases, differentiated, times, unary
from minitorch_backend.bench.case import forward

LARGE, GPU = 2**24, 2**27
SQUARE, GPU_SQUARE = (4096, 4096), (8192, 8192)
IMAGES, GPU_IMAGES = (16, 64, 112, 112), (128, 128, 112, 112)

CASES = [
    *cases("clone", unary(torch.clone), (LARGE,), (GPU,), elements=times(2), cuda_floor=0.95, quick=True),
    *cases("copy_", lambda s, n: forward(torch.Tensor.copy_, s.normal(n), s.normal(n)), (LARGE,), (GPU,), elements=times(2),
           cuda_floor=0.95),
    *cases("zeros", lambda s, n: forward(lambda: torch.zeros(n, device=s.device)), (LARGE,), (GPU,), elements=times(1),
           access="write"),
    *cases("transpose", unary(lambda x: x.t().contiguous()), (SQUARE,), (GPU_SQUARE,), elements=times(2), quick=True),
    *cases("transpose", unary(lambda x: x.t().contiguous()), (SQUARE,), (GPU_SQUARE,), dtype=torch.bfloat16,
           elements=times(2)),
    # Beside those whose outputs native gets page by page from the system: the copy alone.
    *cases("transpose into", lambda s, m, n: forward(lambda x, y: y.copy_(x.t()), s.normal(m, n), s.normal(n, m)), (SQUARE,),
           elements=times(2)),
    *cases("f32 into bf16", lambda s, n: forward(lambda x, y: y.copy_(x), s.normal(n), s.normal(n, dtype=torch.bfloat16)),
           (LARGE,), bytes=times(6)),
    *cases("to channels_last", unary(lambda x: x.contiguous(memory_format=torch.channels_last)), (IMAGES,), (GPU_IMAGES,),
           elements=times(2)),
    *cases("from channels_last",
           lambda s, *n: forward(torch.Tensor.contiguous, s.normal(*n).contiguous(memory_format=torch.channels_last)),
           (IMAGES,), (GPU_IMAGES,), elements=times(2)),
    *cases("strided rows", lambda s, m, n: forward(torch.Tensor.contiguous, s.normal(m, 2 * n)[:, :n]), ((4096, 2048),),
           (GPU_SQUARE,), elements=times(2)),
    *cases("every other", lambda s, n: forward(torch.Tensor.contiguous, s.normal(2 * n)[::2]), (LARGE // 4,), (GPU,),
           elements=times(3)),
    *cases("f32 to bf16", unary(lambda x: x.bfloat16()), (LARGE,), (GPU,), bytes=times(6)),
    *cases("bf16 to f32", lambda s, n: forward(torch.Tensor.float, s.normal(n, dtype=torch.bfloat16)), (LARGE,), (GPU,),
           bytes=times(6), check="native"),
    *cases("f32 to f64", lambda s, n: forward(torch.Tensor.double, s.normal(n)), (LARGE // 4,), (GPU,), bytes=times(12),
           check="native"),
    *cases("int64 to f32", lambda s, n: forward(torch.Tensor.float, s.integers(9999, n)), (LARGE // 4,), (GPU,),
           bytes=times(12), check="native"),
    *cases("bool to int64", lambda s, n: forward(torch.Tensor.long, s.normal(n) > 0), (LARGE // 4,), (GPU,),
           bytes=times(9), check="native"),
    *cases("cat rows", lambda s, m, n: forward(lambda *t: torch.cat(t), *(s.normal(m // 4, n) for _ in range(4))),
           (SQUARE,), (GPU_SQUARE,), elements=times(2), quick=True),
    *cases("cat columns", lambda s, m, n: forward(lambda *t: torch.cat(t, 1), *(s.normal(m, n // 4) for _ in range(4))),
           (SQUARE,), (GPU_SQUARE,), elements=times(2)),
    *cases("stack last", lambda s, m, n: forward(lambda *t: torch.stack(t, -1), *(s.normal(m, n // 4) for _ in range(4))),
           (SQUARE,), (GPU_SQUARE,), elements=times(2)),
    *cases("flip", unary(lambda x: x.flip(-1)), (SQUARE,), (GPU_SQUARE,), elements=times(2)),
    *cases("roll", unary(lambda x: x.roll((3, 5), (0, 1))), (SQUARE,), (GPU_SQUARE,), elements=times(2)),
    *cases("pad", unary(lambda x: F.pad(x, (1, 1, 1, 1))), (IMAGES,), (GPU_IMAGES,), elements=times(2)),
    *cases("tril", unary(torch.tril), (SQUARE,), (GPU_SQUARE,), elements=times(1.5)),
    *cases("repeat_interleave", lambda s, m, n: forward(lambda x: x.repeat_interleave(2, 0), s.normal(m, n)),
           ((2048, 2048),), (GPU_SQUARE,), elements=times(3)),
    *cases("repeat_interleave columns", unary(lambda x: x.repeat_interleave(3, 1)), ((512, 1024),), (GPU_SQUARE,),
           elements=times(4)),
    *cases("pixel_shuffle", unary(lambda x: F.pixel_shuffle(x, 2)), ((8, 64, 48, 48),), (GPU_IMAGES,), elements=times(2)),
    *cases("cat narrow columns", lambda s, m, n: forward(lambda *t: torch.cat(t, 1), s.normal(m, n), s.normal(m, n)),
           ((65536, 16),), ((2**20, 16),), elements=times(4)),
    *cases("reflection pad fwd+bwd", differentiated(lambda x: F.pad(x, (1, 1, 2, 2), "reflect")), ((8, 16, 96, 96),),
           ((64, 64, 96, 96),), elements=times(4)),
]  # fmt: skip
