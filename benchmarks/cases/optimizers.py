"""One optimizer step. Parameters like a small transformer's: a few large matrices and many vectors.

Bytes: parameter, gradient and state read, parameter and state written. Operations: about 4 an element for SGD, 12 for Adam.
"""

import torch

from benchmarks.cases._table import cases, moved_since
from minitorch_backend.bench.case import Later, Setup

FACTORS = (-0.5, 3.0)  # of each gradient by the one before, in the steps that are compared
CPU_WIDTH, GPU_WIDTH = 384, 1024  # of 6 layers, 12 width² parameters each


def parameters(setup: Setup, width: int) -> list[torch.nn.Parameter]:
    shapes = [s for _ in range(6) for s in ((3 * width, width), (width, width), (4 * width, width), (width, 4 * width))]
    shapes += [(width,)] * 24
    made = []
    for shape in shapes:
        parameter = torch.nn.Parameter(setup.normal(*shape))
        parameter.grad = setup.normal(*shape)
        made.append(parameter)
    return made


def count(width: int) -> int:
    return 72 * width * width + 24 * width


def step(optimizer, **options):
    def make(setup, width):
        params = parameters(setup, width)
        moved = moved_since(params)
        chosen = optimizer(params, lr=1e-4, **options)

        def compared():
            """What two more steps give, whose gradients are others: alike ones hide what the state is good for."""
            for factor in FACTORS:
                for p in params:
                    p.grad.mul_(factor)
                chosen.step()
            return [moved(), [chosen.state[p] for p in params]]

        later = Later(compared)

        def work():
            chosen.step()
            return later

        return work

    return make


def fused_here(setup, width):
    """AdamW as each side does it best: one launch over all tensors against native's default."""
    ours = setup.device.type == "minitorch"
    return step(torch.optim.AdamW, fused=ours, foreach=not ours)(setup, width)


def clip(setup, width):
    params = parameters(setup, width)

    def compared():
        """A norm that is exceeded, so that the gradients change."""
        return [torch.nn.utils.clip_grad_norm_(params, 1.0), [p.grad for p in params]]

    later = Later(compared)

    def work():
        return torch.nn.utils.clip_grad_norm_(params, 1e9), later

    return work


def states(number, flops):
    """number of values of state an element; each is read and written."""
    return {
        "elements": lambda w: (3 + 2 * number) * count(w),
        "distinct": lambda w: (2 + number) * count(w),
        "access": "update",
        "flops": lambda w: flops * count(w),
    }


SIZES = ((CPU_WIDTH,), (GPU_WIDTH,))
CASES = [
    *cases("SGD", step(torch.optim.SGD), *SIZES, **states(0, 2)),
    *cases("SGD momentum foreach", step(torch.optim.SGD, momentum=0.9, foreach=True), *SIZES, **states(1, 4)),
    *cases("Adam", step(torch.optim.Adam), *SIZES, quick=True, **states(2, 12)),
    *cases("AdamW foreach", step(torch.optim.AdamW, foreach=True), *SIZES, **states(2, 12)),
    *cases("AdamW fused against foreach", fused_here, *SIZES, cuda_floor=1.5, unlike="ours fused, native foreach", **states(2, 12)),
    *cases("AdamW fused", step(torch.optim.AdamW, fused=True), *SIZES, **states(2, 12)),
    *cases("AdamW one by one", step(torch.optim.AdamW, foreach=False, fused=False), *SIZES, **states(2, 12)),
    *cases("RMSprop", step(torch.optim.RMSprop, foreach=True), *SIZES, **states(1, 8)),
    *cases("Adagrad", step(torch.optim.Adagrad, foreach=True), *SIZES, **states(1, 6)),
    # The norm reads the gradients; then they are read again, scaled and written.
    *cases("clip_grad_norm_", clip, *SIZES, elements=lambda w: 3 * count(w), distinct=count, access="update",
           flops=lambda w: 3 * count(w)),
]  # fmt: skip
