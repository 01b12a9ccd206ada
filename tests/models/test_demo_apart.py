"""The demo's devices in processes of their own: the same numbers as in this one, errors that are told, and no leftovers."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))

import apart
import side_by_side
from apart import Apart, ApartError
from training import Here

from tests.python.twin import ASYNCHRONOUS, NATIVE

EXAMPLES = pathlib.Path(apart.__file__).parent
CPU = torch.device("cpu")
# Background jobs of a shell begin with Ctrl-C ignored.
HEARING = "import runpy, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); sys.argv.pop(0); "
HEARING += "sys.path.insert(0, sys.argv[0].rpartition('/')[0]); runpy.run_path(sys.argv[0], run_name='__main__')"


@pytest.fixture
def side():
    side = Apart(CPU)
    yield side
    side.close()
    assert side.process.returncode == 0


def outcome(side, name, dropout):
    side.begin(name, 12, dropout)
    losses = [side.step(seed)[0] for seed in range(3)]
    result = side.finish()
    return losses, result.accuracy, result.sample, result.fallbacks, result.allocator_peak_bytes


def test_the_same_numbers_as_in_this_process(side):
    for name in ("digits", "gpt"):
        assert outcome(side, name, dropout=True) == outcome(Here(CPU), name, dropout=True)
    dry = outcome(side, "digits", dropout=False)
    assert dry == outcome(Here(CPU), "digits", dropout=False)
    assert dry != outcome(Here(CPU), "digits", dropout=True)  # the comparison can tell


def test_minitorch_is_loaded_into_its_own_process_only(side, monkeypatch):
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
    for name, loaded in (("cpu", "0"), ("cuda", "0"), ("cuda:1", "0"), ("minitorch", "1")):
        assert apart.environment(torch.device(name))["TORCH_DEVICE_BACKEND_AUTOLOAD"] == loaded


def test_an_error_is_told_by_the_last_lines(side):
    with pytest.raises(ApartError) as told:
        side.begin("chess", 12)
    first, *rest = str(told.value).splitlines()
    assert first == "Training on cpu, in a process of its own, failed."
    assert rest[-1] == "KeyError: 'chess'" and 1 < len(rest) <= apart.LAST_LINES
    side.begin("digits", 12)  # and it goes on
    assert side.step(0)[0] > 0


def test_a_process_that_ends_is_told_with_what_it_wrote():
    side = Apart(CPU)
    side.begin("digits", 12)
    side.process.send_signal(signal.SIGKILL)
    with pytest.raises(ApartError, match=r"The process that trains on cpu ended with exit status -9\."):
        side.step(0)
    side.close()


def test_a_device_that_cannot_be_had_ends_the_demo_with_a_sentence(monkeypatch, capfd):
    if NATIVE == "cuda":
        pytest.skip("there is native CUDA")
    monkeypatch.setattr(sys, "argv", ["side_by_side.py", "--device", "cuda", "--only", "digits", "--no-memory"])
    assert side_by_side.main() == 1
    output = " ".join(capfd.readouterr().out.split())
    assert "Training on cuda, in a process of its own, failed." in output
    assert "Torch not compiled with CUDA enabled" in output or "NVIDIA" in output


def test_the_option_trains_apart(monkeypatch, tmp_path, capsys):
    arguments = ["--device", "cpu", "--apart", "--no-memory", "--only", "digits", "--steps", "12"]
    losses = []
    for option in (arguments, [a for a in arguments if a != "--apart"]):
        monkeypatch.setattr(sys, "argv", ["side_by_side.py", *option, "--output", str(tmp_path)])
        side_by_side.main()
        losses.append(json.loads((tmp_path / "side_by_side.json").read_text())["results"]["digits"]["cpu"]["losses"])
    assert losses[0] == losses[1] and len(losses[0]) == 12
    assert capsys.readouterr().out.count("cpu trains in a process of its own.") == 1


class Properties:
    backend = "cuda"


@pytest.mark.parametrize(
    ("available", "built", "names", "said"),
    [
        (True, True, ["cuda", "minitorch"], ""),
        (False, True, ["cpu", "minitorch"], "torch.cuda finds no GPU"),
        (False, False, ["cpu", "minitorch"], "this torch has no CUDA"),
    ],
)
def test_partner_on_a_gpu(available, built, names, said, monkeypatch):
    """Native CUDA with dropout on where torch has it; else native CPU without, which is said."""
    monkeypatch.setattr(torch.minitorch, "get_device_properties", lambda device=None: Properties)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: built)
    console = side_by_side.Console(record=True, width=200)
    monkeypatch.setattr(sys, "argv", ["side_by_side.py"])
    devices, dropout = side_by_side.choose(side_by_side.parse_arguments(), console)
    assert [str(device) for device in devices] == names and dropout == available
    text = console.export_text()
    assert said in text and ("Dropout is off" in text) == (not available)


@pytest.mark.skipif(ASYNCHRONOUS, reason="the CPU's own case")
def test_partner_on_the_cpu(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["side_by_side.py"])
    devices, dropout = side_by_side.choose(side_by_side.parse_arguments(), side_by_side.Console())
    assert [str(device) for device in devices] == ["cpu", "minitorch"] and dropout


@pytest.mark.skipif(NATIVE != "cuda", reason="needs native CUDA")
def test_beside_native_cuda(monkeypatch, tmp_path):
    """The same seed drops the same elements: the first losses agree as on the CPU."""
    monkeypatch.setattr(sys, "argv", ["side_by_side.py", "--steps", "20", "--output", str(tmp_path)])
    side_by_side.main()
    figures = json.loads((tmp_path / "side_by_side.json").read_text())
    for name in ("digits", "gpt"):
        native, ours = (figures["results"][name][device] for device in ("cuda", "minitorch"))
        assert native["losses"][0] == pytest.approx(ours["losses"][0], rel=1e-5)
        assert figures["largest_difference"][name] < side_by_side.EARLY_BAND
        assert ours["fallbacks"] == {} and native["peak_bytes"] > 0 and ours["peak_bytes"] > 0
    assert all("accuracy" in problem for problem in figures["problems"])


def children(pid: int) -> list[int]:
    return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(not pathlib.Path("/proc/self/task").exists(), reason="needs /proc")
def test_control_c_ends_both(tmp_path):
    script = str(EXAMPLES / "side_by_side.py")
    command = [sys.executable, "-c", HEARING, script, "--device", "cpu", "--apart", "--only", "gpt"]
    process = subprocess.Popen(
        [*command, "--output", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert any("step 50 of 500" in line for line in process.stdout)
    (child,) = children(process.pid)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "Interrupted." and "Traceback" not in errors
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert not list(tmp_path.iterdir())


def test_the_child_ends_when_its_parent_is_killed(tmp_path):
    parent = (
        "import torch, time; from apart import Apart; side = Apart(torch.device('cpu')); side.begin('digits', 12); "
    )
    parent += "print(side.process.pid, flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=EXAMPLES, stdout=subprocess.PIPE, text=True)
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    for _ in range(200):
        state = pathlib.Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child goes on without its parent")
