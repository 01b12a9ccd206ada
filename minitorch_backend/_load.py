"""Loads the compiled library and registers the device with PyTorch, once per process."""

import json
import os
import pathlib
import sys

import torch

_PACKAGE = pathlib.Path(__file__).parent


def check_build(info_file: pathlib.Path = _PACKAGE / "_build_info.json") -> None:
    """Raise ImportError unless the compiled library was built for this torch and this Python."""
    if not info_file.exists():
        raise ImportError(
            "minitorch_backend is not built: run 'make setup', or 'pip install --no-build-isolation .' "
            "in its source tree. With MINITORCH_BACKEND=none the package loads without its device, for "
            "minitorch_backend.compare on other devices."
        )
    info = json.loads(info_file.read_text())
    running = str(torch.__version__)
    if info["torch"].split("+")[0] != running.split("+")[0]:
        raise ImportError(
            f"minitorch_backend was built for torch {info['torch']}, but torch {running} is running. "
            "Rebuild it with 'pip install --no-build-isolation .', or install the torch it was built for."
        )
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    if info["python"] != python:
        raise ImportError(f"minitorch_backend was built for {info['python']}, but this Python is {python}. Rebuild it.")


def register() -> None:
    """Make ``minitorch`` a device of this process. Does nothing when it already is, or with MINITORCH_BACKEND=none."""
    if os.environ.get("MINITORCH_BACKEND") == "none":
        return
    if torch._C._get_privateuse1_backend_name() == "minitorch":
        return
    check_build()
    import minitorch_backend._C  # first: if it cannot be loaded, torch stays as it was

    torch.utils.rename_privateuse1_backend("minitorch")
    from minitorch_backend import (
        _engine,
        _exchange,
        _fake,
        _flex_attention,
        _flops,
        _forward_mode,
        _linear_cross_entropy,
        device,
    )

    torch._register_device_module("minitorch", device)
    if minitorch_backend._C.backend_name() == "cpu":
        _engine.install()
    _exchange.install()
    _fake.install(minitorch_backend._C.backend_name())
    _flex_attention.install(minitorch_backend._C.backend_name())
    _flops.install()
    _forward_mode.install()
    _linear_cross_entropy.install()
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
