"""Conformance with native CPU. The device must have its name before torch.testing._internal is imported."""

import os

os.environ.setdefault("MINITORCH_FALLBACK", "error")

import torch

import minitorch_backend  # noqa: F401

torch.backends.cudnn.allow_tf32 = False  # as in conftest.py
