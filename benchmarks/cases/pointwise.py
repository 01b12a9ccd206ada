"""Pointwise operators: large and in cache, dense, broadcast, transposed, of mixed dtypes. One operation an element."""

import torch
import torch.nn.functional as F

from benchmarks.cases._table import binary, cases, differentiated, into, times, unary
from minitorch_backend.bench.case import forward

LARGE, CACHED, GPU = 2**24, 2**16, 2**27
SQUARE, GPU_SQUARE = (4096, 4096), (8192, 8192)
ONE = times(1)
HALVES = (torch.bfloat16, torch.float16)

CASES = [
    *cases("add", binary(torch.add), (LARGE,), (GPU,), elements=times(3), flops=ONE, floor=1.2, cuda_floor=0.95, quick=True),
    *cases("add", binary(torch.add), (CACHED,), elements=times(3), flops=ONE),
    *cases("add", binary(torch.add), (LARGE,), (GPU,), dtype=torch.bfloat16, elements=times(3), flops=ONE),
    *cases("mul", binary(torch.mul), (LARGE,), (GPU,), elements=times(3), flops=ONE, floor=1.2, cuda_floor=0.95),
    *cases("div", binary(torch.div), (LARGE // 4,), (GPU,), dtype=torch.float64, elements=times(3), flops=ONE),
    *cases("add scalar", unary(lambda x: x + 1.5), (LARGE,), (GPU,), elements=times(2), flops=ONE, floor=1.2,
           cuda_floor=0.95),
    # Two operators, which one pass over the memory could do.
    *cases("add in place", binary(lambda x, y: torch.clamp_(x.add_(y), -3, 3)), (LARGE,), (GPU,), elements=times(3),
           distinct=times(2), access="update", flops=times(2)),
    *cases("relu", unary(torch.relu), (LARGE,), (GPU,), elements=times(2), flops=ONE, floor=1.2, cuda_floor=0.95),
    *(case for name, function in (("exp", torch.exp), ("tanh", torch.tanh), ("sigmoid", torch.sigmoid), ("gelu", F.gelu))
      for case in cases(name, unary(function), (LARGE, CACHED), (GPU,), elements=times(2), flops=ONE, floor=1.0,
                        cuda_floor=0.95, quick=name in ("exp", "gelu"))),
    # Beside those whose outputs native gets page by page from the system: the kernel alone.
    *(case for name, function in (("exp", torch.exp), ("gelu", torch._C._nn.gelu))
      for case in cases(f"{name} out=", into(function), (LARGE,), elements=times(2), flops=ONE)),
    *cases("add out=", lambda s, n: forward(lambda x, y, z: torch.add(x, y, out=z), *(s.normal(n) for _ in range(3))),
           (LARGE,), elements=times(3), flops=ONE),
    *cases("relu_", unary(torch.relu_), (LARGE,), elements=times(2), distinct=ONE, access="update", flops=ONE),
    *cases("gelu", unary(F.gelu), (), (GPU,), dtype=torch.bfloat16, elements=times(2), flops=ONE, cuda_floor=0.95),
    *cases("add channels", lambda s, b, c, h, w: forward(torch.add, s.normal(b, c, h, w), s.normal(c, 1, 1)),
           ((8, 64, 112, 112),), ((64, 64, 112, 112),), elements=times(2), flops=ONE),
    *cases("silu", unary(F.silu), (LARGE // 4,), (GPU,), dtype=(torch.float32, *HALVES), elements=times(2), flops=ONE),
    *cases("exp", unary(torch.exp), (LARGE // 4,), (GPU // 2,), dtype=torch.float64, elements=times(2), flops=ONE),
    *cases("sin", unary(torch.sin), (LARGE // 4,), (GPU,), elements=times(2), flops=ONE),
    *(case for name, function in (("exp2", torch.exp2), ("softplus", F.softplus))
      for case in cases(name, unary(function), (LARGE // 4,), (GPU,), elements=times(2), flops=ONE)),
    *(case for name, function in (("hypot", torch.hypot), ("fmod", torch.fmod), ("nextafter", torch.nextafter))
      for case in cases(name, binary(function), (LARGE // 16,), (GPU // 4,), dtype=torch.float64, elements=times(3),
                        flops=ONE)),
    *(case for name, function in (("sinh", torch.sinh), ("atanh", lambda x: torch.atanh(x / 8)))
      for case in cases(name, unary(function), (LARGE // 16,), (GPU // 4,), dtype=torch.float64, elements=times(2),
                        flops=ONE)),
    *cases("maximum of bools", lambda s, n: forward(torch.maximum, s.normal(n) > 0, s.normal(n) > 0), (LARGE,), (GPU,),
           bytes=times(3), flops=ONE),
    *cases("outer product of matrices", lambda s, m, n: forward(torch.kron, s.normal(m, m), s.normal(n, n)), ((64, 16),),
           ((512, 16),), elements=lambda m, n: (m * n) ** 2, access="write", flops=lambda m, n: (m * n) ** 2),
    *cases("log", lambda s, n: forward(torch.log, s.uniform(n, low=1e-3, high=9)), (LARGE // 4,), (GPU,),
           elements=times(2), flops=ONE),
    *cases("pow", lambda s, n: forward(torch.pow, s.uniform(n, low=0.1, high=2), s.normal(n)), (LARGE // 4,), (GPU,),
           elements=times(3), flops=ONE),
    *cases("addcmul", lambda s, n: forward(torch.addcmul, s.normal(n), s.normal(n), s.normal(n)), (LARGE // 4,), (GPU,),
           elements=times(4), flops=times(2)),
    *cases("where", lambda s, n: forward(torch.where, s.normal(n) > 0, s.normal(n), s.normal(n)), (LARGE // 4,), (GPU,),
           bytes=times(13), flops=ONE),
    *cases("compare", binary(torch.lt), (LARGE // 4,), (GPU,), bytes=times(9), flops=ONE),
    *cases("add int64", lambda s, n: forward(torch.add, s.integers(1000, n), s.integers(1000, n)), (LARGE // 4,), (GPU,),
           bytes=times(24), flops=ONE),
    *cases("add a row", lambda s, m, n: forward(torch.add, s.normal(m, n), s.normal(n)), (SQUARE,), (GPU_SQUARE,),
           elements=times(2), flops=ONE, quick=True),
    *cases("mul a column", lambda s, m, n: forward(torch.mul, s.normal(m, n), s.normal(m, 1)), (SQUARE,), (GPU_SQUARE,),
           elements=times(2), flops=ONE),
    *cases("outer sum", lambda s, m, n: forward(torch.add, s.normal(m, 1), s.normal(1, n)), (SQUARE,), (GPU_SQUARE,),
           elements=ONE, access="write", flops=ONE),
    *cases("mul transposed", lambda s, m, n: forward(lambda x, y: x * y.t(), s.normal(m, n), s.normal(n, m)), (SQUARE,),
           (GPU_SQUARE,), elements=times(3), flops=ONE, quick=True),
    *cases("exp strided", lambda s, m, n: forward(torch.exp, s.normal(m, 2 * n)[:, ::2]), ((4096, 1024),),
           (GPU_SQUARE,), elements=times(3), flops=ONE),
    *cases("add f32 + bf16", lambda s, n: forward(torch.add, s.normal(n), s.normal(n, dtype=torch.bfloat16)),
           (LARGE // 4,), (GPU,), bytes=times(10), flops=ONE),
    *cases("mul f32 * int64", lambda s, n: forward(torch.mul, s.normal(n), s.integers(100, n)), (LARGE // 4,), (GPU,),
           bytes=times(16), flops=ONE),
    *cases("mul complex64", lambda s, n: forward(torch.mul, s.normal(n, dtype=torch.complex64),
                                                 s.normal(n, dtype=torch.complex64)),
           (LARGE // 8,), (GPU // 2,), bytes=times(24), flops=times(6)),
    *cases("gelu fwd+bwd", differentiated(F.gelu), (LARGE // 4,), (GPU,), elements=times(5), flops=times(2)),
    *cases("gelu fwd+bwd", differentiated(F.gelu), (), (GPU,), dtype=HALVES, elements=times(5), flops=times(2)),
    *cases("gelu tanh fwd+bwd", differentiated(lambda x: F.gelu(x, approximate="tanh")), (), (GPU,),
           dtype=torch.bfloat16, elements=times(5), flops=times(2)),
    *cases("silu fwd+bwd", differentiated(F.silu), (LARGE // 4,), (GPU,), dtype=torch.bfloat16, elements=times(5),
           flops=times(2)),
]  # fmt: skip
