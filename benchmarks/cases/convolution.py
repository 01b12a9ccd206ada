"""Convolutions: the shapes that networks have. 2 operations a weight and output position, three times that with backward."""

import torch
import torch.nn.functional as F

from benchmarks.cases._table import cases
from minitorch_backend.bench.case import forward, training

FUNCTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d}


def convolution(kernel, stride=1, groups=1, dilation=1, dim=2, transposed=False, last=False, grad=False):
    """make, elements and flops for a size (batch, channels in, channels out, extent)."""
    padding = dilation * (kernel // 2)

    def out(extent):
        if transposed:
            return (extent - 1) * stride + dilation * (kernel - 1) + 1 - 2 * padding
        return (extent + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1

    def make(setup, batch, inputs, outputs, extent):
        lead = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
        fan = inputs // groups * kernel**dim
        x = setup.normal(batch, inputs, *[extent] * dim)
        weight = setup.normal(*lead, *[kernel] * dim, scale=fan**-0.5)
        if last:
            x, weight = (t.contiguous(memory_format=torch.channels_last) for t in (x, weight))
        bias = setup.normal(outputs)
        chosen = (TRANSPOSED if transposed else FUNCTIONS)[dim]
        options = {"stride": stride, "padding": padding, "groups": groups, "dilation": dilation}
        work = [t.requires_grad_(grad) for t in (x, weight, bias)]
        run = lambda x, w, b: chosen(x, w, b, **options)  # noqa: E731
        return training(setup, run, *work) if grad else forward(run, *work)

    def elements(batch, inputs, outputs, extent):
        read = batch * inputs * extent**dim + weights(inputs, outputs)
        # With backward the inputs are read twice and their gradients written, of the result its gradient is read.
        return read * (3 if grad else 1) + batch * outputs * out(extent) ** dim * (2 if grad else 1)

    def weights(inputs, outputs):
        return inputs * outputs // groups * kernel**dim

    def flops(batch, inputs, outputs, extent):
        positions = extent**dim if transposed else out(extent) ** dim
        return 2 * batch * weights(inputs, outputs) * positions * (3 if grad else 1)

    return {"make": make, "elements": elements, "flops": flops}


def conv(title, cpu, cuda, dtype=torch.float32, quick=False, cuda_floor=None, **options):
    built = convolution(**options)
    return cases(title, built.pop("make"), cpu, cuda, dtype=dtype, quick=quick, cuda_floor=cuda_floor, **built)


BODY, GPU_BODY = ((8, 64, 64, 56),), ((128, 256, 256, 14),)
STEM, GPU_STEM = ((8, 3, 64, 224),), ((128, 3, 64, 224),)
BF16 = torch.bfloat16

CASES = [
    *conv("3x3", BODY, GPU_BODY, kernel=3, quick=True),
    *conv("3x3 fwd+bwd", BODY, GPU_BODY, kernel=3, grad=True),
    *conv("3x3 NHWC", BODY, GPU_BODY, kernel=3, last=True),
    *conv("3x3 NHWC fwd+bwd", BODY, GPU_BODY, dtype=BF16, kernel=3, last=True, grad=True, cuda_floor=0.5),
    *conv("3x3 NHWC", (), GPU_BODY, dtype=BF16, kernel=3, last=True, cuda_floor=0.5),
    *conv("3x3 NHWC fwd+bwd", (), GPU_BODY, kernel=3, last=True, grad=True),
    *conv("3x3 fwd+bwd", (), ((64, 64, 64, 56),), dtype=(torch.float32, BF16), kernel=3, grad=True),
    *conv("3x3", BODY, GPU_BODY, dtype=BF16, kernel=3),
    *conv("3x3", ((2, 64, 64, 28),), ((32, 64, 64, 56),), dtype=torch.float64, kernel=3),
    *conv("3x3 stride 2", BODY, GPU_BODY, kernel=3, stride=2),
    *conv("3x3 dilated", BODY, GPU_BODY, kernel=3, dilation=2),
    *conv("3x3 small images", ((64, 32, 64, 14),), ((512, 64, 128, 8),), kernel=3),
    *conv("1x1", ((8, 256, 64, 56),), ((128, 1024, 256, 14),), kernel=1, quick=True),
    *conv("1x1 NHWC fwd+bwd", ((8, 256, 64, 56),), ((128, 1024, 256, 14),), kernel=1, last=True, grad=True),
    *conv("1x1 fwd+bwd", ((8, 256, 64, 56),), ((128, 1024, 256, 14),), kernel=1, grad=True),
    *conv("5x5", ((8, 32, 32, 28),), ((128, 64, 64, 28),), kernel=5),
    *conv("7x7 stem", STEM, GPU_STEM, kernel=7, stride=2, quick=True),
    *conv("7x7 stem NHWC", STEM, GPU_STEM, dtype=(torch.float32, BF16), kernel=7, stride=2, last=True),
    *conv("depthwise 3x3", ((8, 256, 256, 28),), ((128, 256, 256, 28),), kernel=3, groups=256),
    *conv("depthwise 3x3 NHWC fwd+bwd", ((8, 256, 256, 28),), ((128, 256, 256, 28),), kernel=3, groups=256, last=True,
          grad=True),
    *conv("depthwise 3x3 NHWC", ((8, 256, 256, 28),), ((128, 256, 256, 28),), kernel=3, groups=256, last=True),
    *conv("depthwise 3x3 fwd+bwd", ((8, 256, 256, 28),), ((128, 256, 256, 28),), kernel=3, groups=256, grad=True),
    *conv("depthwise 7x7", ((2, 96, 96, 28),), ((64, 384, 384, 14),), kernel=7, groups=96),
    *conv("depthwise 7x7 NHWC", ((2, 96, 96, 28),), ((64, 384, 384, 14),), kernel=7, groups=96, last=True),
    *conv("grouped 3x3", ((8, 128, 128, 28),), ((128, 256, 256, 14),), kernel=3, groups=8),
    *conv("grouped 3x3 fwd+bwd", ((8, 128, 128, 28),), ((128, 256, 256, 14),), kernel=3, groups=8, grad=True),
    *conv("grouped 3x3 NHWC fwd+bwd", ((8, 128, 128, 28),), ((128, 256, 256, 14),), kernel=3, groups=8, last=True, grad=True),
    *conv("transposed 4x4 NHWC fwd+bwd", ((8, 64, 32, 28),), ((64, 128, 64, 28),), kernel=4, stride=2, transposed=True,
          last=True, grad=True),
    *conv("transposed 4x4", ((8, 64, 32, 28),), ((64, 128, 64, 28),), kernel=4, stride=2, transposed=True),
    *conv("transposed 4x4 fwd+bwd", ((8, 64, 32, 28),), ((64, 128, 64, 28),), kernel=4, stride=2, transposed=True,
          grad=True),
    *conv("1d of 9", ((16, 64, 64, 1024),), ((64, 128, 128, 4096),), kernel=9, dim=1),
    *conv("3d 3x3x3", ((2, 32, 32, 16),), ((8, 64, 64, 32),), kernel=3, dim=3),
    *conv("3d 3x3x3 fwd+bwd", ((2, 16, 16, 16),), ((8, 64, 64, 32),), kernel=3, dim=3, grad=True),
]  # fmt: skip
