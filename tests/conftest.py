"""Every test runs with fallbacks as errors, so an operator without a kernel cannot pass unseen."""

import os

os.environ.setdefault("MINITORCH_FALLBACK", "error")

import torch

import minitorch_backend  # noqa: F401
from tests import older_torch

# PyTorch's default lets convolutions of float round their factors to tf32 on a GPU; what they are compared with does not.
torch.backends.cudnn.allow_tf32 = False


def pytest_collection_modifyitems(items):
    older_torch.mark(items)
