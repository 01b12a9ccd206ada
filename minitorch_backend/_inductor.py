"""What torch.compile's default backend is told when it asks how to generate code for the device: that it cannot.

Inductor looks for classes of a device from outside by name in ``torch.minitorch``. Without them it fails somewhere in
the middle, with an assertion or a KeyError that says nothing.
"""

from typing import Any, NoReturn

from torch._inductor.codegen.common import (
    DeviceOpOverrides,
    get_device_op_overrides,
    register_device_op_overrides,
)


class NoCode:
    """Stands for each of the classes, and raises NotImplementedError when Inductor makes one."""

    supports_caching = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.create()

    @staticmethod
    def create(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            "torch.compile: Inductor, the default backend, generates no code for minitorch. "
            'Use torch.compile(..., backend="aot_eager"), which runs on minitorch\'s kernels.'
        )


get_device_op_overrides("cpu")  # first: older versions register PyTorch's own devices only while there are none
register_device_op_overrides("minitorch", DeviceOpOverrides())
