"""minitorch: a PyTorch device written from nothing.

Importing this package (or just ``torch``, through the entry point ``torch.backends``) makes the device ``minitorch``
available: ``x.to("minitorch")`` and all that follows runs on minitorch's own storage, kernels and autograd Functions.
The device's functions live in ``torch.minitorch``, shaped like ``torch.cuda``.
"""

from minitorch_backend._load import register

__version__ = "0.1.0"

register()
