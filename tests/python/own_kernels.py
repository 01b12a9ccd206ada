"""What the tests of kernels of one's own share."""

import pathlib

import pytest
import torch
import torch.nn.functional as F

from minitorch_backend.kernels import compiler

needs_the_cpu = pytest.mark.skipif(
    torch.minitorch.get_device_properties(0).backend != "cpu", reason="the sources are for the CPU"
)


@pytest.fixture(autouse=True, scope="module")
def cache_of_module(tmp_path_factory):
    """In a file of tests that imports it: compiled kernels are kept from test to test, not longer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINITORCH_KERNEL_CACHE", str(tmp_path_factory.mktemp("kernels")))
        yield


def silu_is_back(x: torch.Tensor) -> None:
    torch.testing.assert_close(F.silu(x).cpu(), F.silu(x.cpu()))


def make_compiler(path: pathlib.Path, flag: str, command: str) -> None:
    """A program that is the C++ compiler, but for what it does first when it is called with a flag: a shell command."""
    path.write_text(f'#!/bin/sh\ncase "$*" in *{flag}*) {command};; esac\nexec {compiler.cxx()} "$@"\n')
    path.chmod(0o755)
