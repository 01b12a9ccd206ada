"""What mypy makes of scripts that use the device, with the plugin and without."""

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="needs mypy")

ROOT = Path(__file__).parents[2]

WITH_PLUGIN = """
import torch
from torch import nn

x = torch.randn(3).minitorch()
reveal_type(x)                                          # Tensor"
reveal_type(x.is_minitorch)                             # bool"
model = nn.Linear(3, 3).minitorch(0)
reveal_type(model)                                      # Linear"
with torch.minitorch.device(0):
    torch.minitorch.synchronize()
reveal_type(torch.minitorch.memory_allocated())         # int"
reveal_type(torch.minitorch.current_stream())           # Stream"
y: torch.Tensor = model(x.to("minitorch"))
torch.minitorch.no_such_function()                      # error: Module has no attribute "no_such_function"
torch.minitorch.set_device([])                          # error: Argument 1 to "set_device"
"""

WITHOUT = """
import torch
from minitorch_backend import device as minitorch

x = torch.randn(3).to("minitorch")
with minitorch.device(0):
    minitorch.synchronize()
reveal_type(minitorch.memory_allocated())               # int"
minitorch.no_such_function()                            # error: Module has no attribute "no_such_function"
"""


def is_installed():
    """Whether this source tree is what the environment has installed, as `make setup` leaves it."""
    try:
        origin = importlib.metadata.distribution("minitorch-backend").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return False
    return origin is not None and json.loads(origin)["url"] == ROOT.as_uri()


def check(script, folder, *options):
    """mypy's remarks on a script: each line that has a comment has a remark that contains it, and there are no others."""
    path = folder / "script.py"
    path.write_text(script)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", folder / "cache", *options, path]
    # A user's scripts lie elsewhere: there mypy finds the package only if the installation is one that it can follow.
    done = subprocess.run(command, cwd=folder if is_installed() else ROOT, capture_output=True, text=True, timeout=300)
    remarks = dict(re.findall(r"script\.py:(\d+): ((?:note|error): .*)", done.stdout))
    expected = {}
    for number, line in enumerate(script.splitlines(), 1):
        if "#" in line:
            expected[str(number)] = line.partition("# ")[2]
    assert remarks.keys() == expected.keys(), done.stdout + done.stderr
    for number, text in expected.items():
        assert text in remarks[number]


def test_scripts_with_the_plugin_and_without(tmp_path):
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nplugins = minitorch_backend.mypy_plugin\n")
    check(WITH_PLUGIN, tmp_path, "--config-file", config)
    check(WITHOUT, tmp_path, "--config-file", "/dev/null")
