"""Operators that the arbiter computes a few samples at a time.

In double precision native convolutions unfold the whole batch: kernel size times the input, the largest block of memory
of a comparison by far. Samples are independent of each other, and another order of summation is nothing in float64.
Arguments come as they are and are widened with their part.
"""

import math
from typing import Any

import torch
from torch import Tensor

COLUMNS = 1 << 16  # values of the unfolded input at a time


def _samples(x: Tensor, weight: Tensor) -> int:
    """How many samples are unfolded at a time."""
    each = x[:1].numel() * math.prod(weight.shape[2:])
    return max(1, COLUMNS // max(each, 1))


def _wide(t: Tensor | None) -> Tensor | None:
    return t if t is None else t.to(torch.complex128 if t.is_complex() else torch.float64)


def _put(whole: Tensor | None, part: Tensor | None, start: int, samples: int) -> Tensor | None:
    """`part` in its place of the whole result, which the first part makes."""
    if part is None:
        return None
    if whole is None:
        whole = part.new_empty(samples, *part.shape[1:])
    whole[start : start + len(part)] = part
    return whole


def convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    size, result = _samples(x, weight), None
    weight, bias = _wide(weight), _wide(bias)
    for start in range(0, max(len(x), 1), size):
        part = torch.ops.aten.convolution(_wide(x[start : start + size]), weight, bias, *rest)
        result = _put(result, part, start, len(x))
    return result


def convolution_backward(grad: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> list[Tensor | None]:
    size, of_input, summed = _samples(x, weight), None, None
    weight = _wide(weight)
    for start in range(0, max(len(x), 1), size):
        end = start + size
        parts = _wide(grad[start:end]), _wide(x[start:end])
        part, *others = torch.ops.aten.convolution_backward(*parts, weight, *rest)
        of_input = _put(of_input, part, start, len(x))
        summed = [o if o is None or summed is None else summed[i].add_(o) for i, o in enumerate(others)]
    return [of_input, *summed]


IN_PARTS = {"aten::convolution": convolution, "aten::convolution_backward": convolution_backward}
