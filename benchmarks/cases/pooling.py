"""Pooling over images. An operation for each element of a window."""

import torch
import torch.nn.functional as F

from benchmarks.cases._table import cases, differentiated, times, unary
from minitorch_backend.bench.case import forward

IMAGES, GPU_IMAGES = (16, 64, 56, 56), (128, 256, 56, 56)
HALF = {"elements": times(1.25)}  # a quarter as many outputs as inputs

CASES = [
    *cases("max 2x2", unary(lambda x: F.max_pool2d(x, 2)), (IMAGES,), (GPU_IMAGES,), flops=times(1), quick=True, **HALF),
    *cases("max 3x3 stride 2 NHWC",
           lambda s, *n: forward(lambda x: F.max_pool2d(x, 3, 2, 1), s.normal(*n).contiguous(memory_format=torch.channels_last)),
           (IMAGES,), (GPU_IMAGES,), flops=times(2.25), **HALF),
    *cases("max 2x2 fwd+bwd", differentiated(lambda x: F.max_pool2d(x, 2)), (IMAGES,), (GPU_IMAGES,), elements=times(2.5),
           flops=times(2)),
    *cases("max 3x3 stride 2 fwd+bwd", differentiated(lambda x: F.max_pool2d(x, 3, 2, 1)), (IMAGES,), ((64, 64, 112, 112),),
           elements=times(2.5), flops=times(2.25)),
    *cases("avg 3x3", unary(lambda x: F.avg_pool2d(x, 3, 1, 1)), (IMAGES,), (GPU_IMAGES,), elements=times(2), flops=times(9)),
    *cases("avg 2x2 fwd+bwd", differentiated(lambda x: F.avg_pool2d(x, 2)), (IMAGES,), (GPU_IMAGES,), elements=times(2.5),
           flops=times(2), dtype=torch.bfloat16),
    *cases("adaptive avg to 1x1", unary(lambda x: F.adaptive_avg_pool2d(x, 1)), (IMAGES,), (GPU_IMAGES,), elements=times(1),
           flops=times(1)),
    *cases("adaptive avg to 7x7 fwd+bwd", differentiated(lambda x: F.adaptive_avg_pool2d(x, 7)), (IMAGES,), (GPU_IMAGES,),
           elements=times(2), flops=times(2)),
    *cases("max 1d of 3", unary(lambda x: F.max_pool1d(x, 3)), ((16, 64, 4096),), ((128, 256, 4096),), elements=times(1.33),
           flops=times(1)),
    *cases("max 3d 2x2x2", unary(lambda x: F.max_pool3d(x, 2)), ((4, 32, 32, 32, 32),), ((16, 64, 32, 64, 64),),
           elements=times(1.125), flops=times(1)),
]  # fmt: skip
