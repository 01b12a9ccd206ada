"""The entry point ``torch.backends``: what a bare ``import torch`` runs.

It is a module of its own because of ``import minitorch_backend`` in a process without torch: that imports torch, whose
autoload comes back here while the package is half imported. Then the outer import does the work.
"""


def autoload() -> None:
    """Nothing is left to do: to find this function, Python has imported the package, which registers the device."""
