"""Memory layouts that tests put their inputs in."""

import torch

LAYOUTS = ["contiguous", "channels_last", "transposed", "sliced", "expanded"]


def arrange(x, layout):
    """`x` in another memory layout: the same values, but for "expanded", which repeats the first slice."""
    if layout == "channels_last":
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        return x.contiguous(memory_format=formats[x.dim()]) if x.dim() in formats else x
    if layout == "transposed":
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "sliced":
        big = torch.zeros(*x.shape[:-1], 2 * x.shape[-1] + 3, dtype=x.dtype)
        big[..., 3::2] = x
        return big[..., 3::2]
    if layout == "expanded":
        return x[:1].expand_as(x)
    return x
