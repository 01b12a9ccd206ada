"""Reading the ``device`` argument that the functions of ``torch.minitorch`` take."""

import torch

DeviceLike = "torch.device | str | int | None"


def _get_device_index(device: "torch.device | str | int | None", optional: bool = False) -> int:
    """The index that ``device`` names; the current device's when it names none or is -1.

    Without ``optional`` an index must be given. Raises ValueError for a device of another type. Whether the index
    exists is checked by the runtime, which knows the count.
    """
    from minitorch_backend import _C

    if isinstance(device, int) and not isinstance(device, bool):
        return _C.current_device() if device == -1 and optional else device
    if isinstance(device, str):
        device = torch.device(device)
    if device is None:
        index = None
    elif isinstance(device, torch.device):
        if device.type != "minitorch":
            raise ValueError(f"Expected a minitorch device, but got: {device}")
        index = device.index
    else:
        raise TypeError(f"Expected a torch.device, a device string or an index, but got: {device!r}")
    if index is None:
        if not optional:
            raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")
        return _C.current_device()
    return index
