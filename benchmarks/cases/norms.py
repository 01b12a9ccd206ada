"""Normalisation. Forward reads and writes once; backward reads x and dy and writes dx. About 8 operations an element a pass."""

import torch
import torch.nn.functional as F

from benchmarks.cases._table import cases, times
from minitorch_backend.bench.case import forward, training

ROWS, GPU_ROWS = (4096, 1024), (32768, 2048)
IMAGES, GPU_IMAGES = (16, 64, 56, 56), (128, 256, 28, 28)
BF16 = torch.bfloat16
FORWARD = {"elements": times(2), "flops": times(8)}
BOTH = {"elements": times(5), "flops": times(20)}


def rows(function, grad):
    """function(x, weight, bias) over the last dimension."""

    def make(setup, m, n):
        inputs = [setup.normal(*shape, grad=grad) for shape in ((m, n), (n,), (n,))]
        return training(setup, function, *inputs) if grad else forward(function, *inputs)

    return make


def images(function, grad, last=False):
    """function(x, weight, bias, mean, variance) over channels."""

    def make(setup, batch, channels, *extent):
        x = setup.normal(batch, channels, *extent)
        if last:
            x = x.contiguous(memory_format=torch.channels_last)
        inputs = [x.requires_grad_(grad), *(setup.normal(channels, grad=grad) for _ in range(2))]
        mean, variance = setup.normal(channels), setup.uniform(channels, low=0.5, high=2)
        run = lambda x, w, b: function(x, w, b, mean, variance)  # noqa: E731
        return training(setup, run, *inputs) if grad else forward(run, *inputs)

    return make


def layer(x, w, b):
    return F.layer_norm(x, w.shape, w, b)


def rms(x, w, b):
    return F.rms_norm(x, w.shape, w, 1e-6)


def batch_train(x, w, b, mean, variance):
    return F.batch_norm(x, mean.clone(), variance.clone(), w, b, training=True)


CASES = [
    *cases("layer norm", rows(layer, False), (ROWS,), (GPU_ROWS,), dtype=(torch.float32, BF16), cuda_floor=1.0, quick=True,
           **FORWARD),
    *cases("layer norm fwd+bwd", rows(layer, True), (ROWS,), (GPU_ROWS,), floor=1.0, cuda_floor=1.0, quick=True, **BOTH),
    *cases("layer norm fwd+bwd", rows(layer, True), (ROWS,), (GPU_ROWS,), dtype=BF16, cuda_floor=1.0, **BOTH),
    *cases("rms norm", rows(rms, False), (ROWS,), (GPU_ROWS,), **FORWARD),
    *cases("rms norm fwd+bwd", lambda s, m, n: training(s, lambda x, w: rms(x, w, None), s.normal(m, n, grad=True),
                                                        s.normal(n, grad=True)),
           (ROWS,), (GPU_ROWS,), cuda_floor=1.0, **BOTH),
    *cases("batch norm inference", images(lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b), False), (IMAGES,),
           (GPU_IMAGES,), **FORWARD),
    *cases("batch norm training fwd+bwd", images(batch_train, True), (IMAGES,), (GPU_IMAGES,), cuda_floor=1.0, quick=True,
           **BOTH),
    *cases("batch norm training NHWC fwd+bwd", images(batch_train, True, last=True), (IMAGES,), (GPU_IMAGES,), **BOTH),
    *cases("batch norm training NHWC fwd+bwd", images(batch_train, True, last=True), (), (GPU_IMAGES, (64, 64, 112, 112)),
           dtype=BF16, **BOTH),
    *cases("group norm fwd+bwd", images(lambda x, w, b, m, v: F.group_norm(x, 8, w, b), True), (IMAGES,), (GPU_IMAGES,),
           cuda_floor=1.0, **BOTH),
    *cases("instance norm", images(lambda x, w, b, m, v: F.instance_norm(x, None, None, w, b), False), (IMAGES,),
           (GPU_IMAGES,), **FORWARD),
]  # fmt: skip
