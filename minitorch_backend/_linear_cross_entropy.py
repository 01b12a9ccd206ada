"""What torch.nn.functional.linear_cross_entropy chooses by itself on this device: 16-bit inputs sum in float32, as on
native CPU. PyTorch keeps the choice in a table by device type, and takes the inputs' own dtype for other types.
"""

import torch


def install() -> None:
    try:
        from torch.nn.modules.linear_cross_entropy_options import _AUTO_DEFAULTS, LinearCrossEntropyOptions
    except ImportError:  # the function came with torch 2.13
        return
    for (kind, dtype), choice in list(_AUTO_DEFAULTS.items()):
        if kind == "cpu":
            _AUTO_DEFAULTS["minitorch", dtype] = choice
    known = LinearCrossEntropyOptions._resolve_auto_acc_dtype

    def resolve(dtype: torch.dtype, device: torch.device | None) -> torch.dtype | None:
        like_cpu = device is not None and device.type == "minitorch"
        return known(dtype, torch.device("cpu") if like_cpu else device)

    setattr(LinearCrossEntropyOptions, "_resolve_auto_acc_dtype", staticmethod(resolve))  # noqa: B010
