"""What torch.nn.functional.linear_cross_entropy chooses by itself on this device: 16-bit inputs sum in float32, as on
native CPU. PyTorch keeps the choice in a table by device type, and takes the inputs' own dtype for other types.
"""

import torch


def install() -> None:
    try:
        from torch.nn.modules import linear_cross_entropy_options as options
    except ImportError:  # the function came with torch 2.13
        return
    for dtype in (torch.float16, torch.bfloat16):
        options._AUTO_DEFAULTS["minitorch", dtype] = options._AUTO_DEFAULTS["cpu", dtype]
    known = options.LinearCrossEntropyOptions._resolve_auto_acc_dtype

    def resolve(dtype: torch.dtype, device: torch.device | None) -> torch.dtype | None:
        like_cpu = device is not None and device.type == "minitorch"
        return known(dtype, torch.device("cpu") if like_cpu else device)

    options.LinearCrossEntropyOptions._resolve_auto_acc_dtype = staticmethod(resolve)
