"""torch.profiler sees the operators of the device as it sees native's."""

import json

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, record_function

DEVICE = "minitorch"


def a_step(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(5, 8).to(device), torch.arange(5).remainder(4).to(device)
    model(x)  # what the first call sets up is not looked at
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
        with record_function("a step"):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        getattr(torch, device).synchronize()
    return found


def test_operators_and_their_shapes():
    ours, native = ({e.key: e for e in a_step(device).key_averages()} for device in (DEVICE, "cpu"))
    for name in ("a step", "aten::linear", "aten::gelu", "aten::gelu_backward", "Optimizer.step#SGD.step"):
        assert ours[name].count == native[name].count, name
    shapes = {str(e.input_shapes) for e in a_step(DEVICE).events() if e.name == "aten::linear"}
    assert shapes == {"[[5, 8], [16, 8], [16]]", "[[5, 16], [4, 16], [4]]"}


def test_a_trace(tmp_path):
    found = a_step(DEVICE)
    assert "aten::linear" in found.key_averages().table(sort_by="self_cpu_time_total")
    found.export_chrome_trace(str(tmp_path / "trace.json"))
    names = {event.get("name") for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}
    assert {"a step", "aten::linear", "aten::gelu"} <= names
