"""The culprit search: what it finds, in how many runs, and that it goes on after an interrupt."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import types

import pytest
import torch

from minitorch_backend.compare.culprit import END, Outcome, Runner, Transplant, search, smallest, state_of
from tests.compare.models import RUNS

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("culprits", [{17}, {0, 99}, {3, 4, 50}])
def test_smallest(culprits):
    tests = []

    def passes(chosen):
        tests.append(chosen)
        return culprits <= set(chosen)

    assert set(smallest(range(100), passes)) == culprits
    if len(culprits) == 1:
        assert len(tests) <= 14  # 2 log2 100


class Pretended:
    """A runner over a pretended program: it passes when all bad calls are transplanted."""

    def __init__(self, counts, bad):
        self.counts, self.bad, self.runs = counts, bad, 0

    def run(self, ops=(), calls=None, everything=False):
        self.runs += 1
        calls = calls or {}
        passed = everything or all(op in ops or n in calls.get(op, ()) for op, n in self.bad)
        return Outcome(passed, self.counts)


def test_search_finds_operators_then_calls():
    counts = {f"op{i}": 40 for i in range(60)}
    runner = Pretended(counts, {("op31", 7)})
    found = search(runner)
    assert (found.status, found.ops, found.calls) == ("found", ["op31"], {"op31": [7]})
    assert runner.runs <= 2 + 12 + 11
    found = search(Pretended(counts, {("op31", 7), ("op2", 0), ("op2", 39)}))
    assert found.calls == {"op2": [0, 39], "op31": [7]}


def test_everything_transplanted_is_the_reference():
    """With all operators computed natively the run is native's own, bit for bit up to their order of summation."""
    with Transplant("minitorch", "cpu", lambda op, number: True) as mode:
        ours = RUNS["LSTM"]("minitorch", steps=2)
    theirs = RUNS["LSTM"]("cpu", steps=2)
    assert sum(mode.calls.values()) > 40
    for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=2e-4, atol=2e-5)


SCRIPT = """
import torch, minitorch_backend
library = torch.library.Library("aten", "IMPL")
def sin(x):
    return x * 0 + (5 if i == 2 else 0.25)
if {planted}:
    library.impl("sin", sin, "PrivateUse1")
x = torch.full((4,), 0.25268025514207865).to("minitorch")
total = 0.0
for i in range(4):
    total += x.sin().exp().sum().item()
def good():
    return abs(total - 16 * 1.2840254) < 0.01
def never(script):
    return False
"""


def culprit(tmp_path, *arguments, planted=True, behind=()):
    (tmp_path / "script.py").write_text(SCRIPT.format(planted=planted))
    command = [sys.executable, "-m", "minitorch_backend", "culprit", *arguments, "script.py", *behind]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MINITORCH_FALLBACK": "error"}
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)


def test_the_command_and_its_journal(tmp_path):
    done = culprit(tmp_path, "--metric", "good")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "aten::sin: call 2" in done.stdout
    journal = tmp_path / ".minitorch-culprit.jsonl"
    lines = journal.read_text().splitlines()
    # A process that died while it wrote its last line but two: the search goes on, and makes only what is missing.
    journal.write_text("\n".join(lines[:-3]) + "\n" + lines[-3][:9] + "\n")
    again = culprit(tmp_path, "--metric", "good")
    assert f"{len(lines) - 3} runs are in .minitorch-culprit.jsonl already" in again.stdout
    assert "aten::sin: call 2" in again.stdout and "\n2 runs" in again.stdout


def test_what_has_changed_is_searched_anew(tmp_path, monkeypatch):
    """Another script, another module beside it, another library of the device; and what a search that ended knew."""
    script, library = tmp_path / "script.py", tmp_path / "library"
    script.write_text("")
    library.write_text("")
    monkeypatch.setitem(sys.modules, "minitorch_backend._C", types.SimpleNamespace(__file__=str(library)))
    states = [state_of(script), state_of(script)]
    (tmp_path / "model.py").write_text("size = 3\n")
    states.append(state_of(script))
    os.utime(library, (1, 1))
    states.append(state_of(script))
    script.write_text("import model\n")
    states.append(state_of(script))
    assert states[0] == states[1] and len(set(states)) == 4
    journal = tmp_path / "journal"
    first = Runner({"state": states[0]}, journal)
    first.put({"key": "a", "passed": True, "calls": {}, "error": ""})
    assert set(Runner({"state": states[0]}, journal).results) == {"a"}
    assert Runner({"state": states[2]}, journal).results == {}
    first.put({"key": END})
    assert Runner({"state": states[0]}, journal).results == {}


def test_an_interrupt_loses_no_run(tmp_path):
    """Ctrl-C, as a terminal sends it to all processes, in the middle of a search; the same command ends it."""
    (tmp_path / "script.py").write_text(SCRIPT.format(planted=True) + "import time\ntime.sleep(0.3)\n")
    command = [sys.executable, "-m", "minitorch_backend", "culprit", "--metric", "good", "script.py"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    search = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        cwd=tmp_path,
        start_new_session=True,
    )
    journal = tmp_path / ".minitorch-culprit.jsonl"
    deadline = time.monotonic() + 120
    while not (journal.exists() and len(journal.read_text().splitlines()) >= 3) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(search.pid, signal.SIGINT)
    out, errors = search.communicate(timeout=60)
    assert search.returncode == 130 and "the same command goes on" in out, out + errors
    before = len(journal.read_text().splitlines())
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert f"{before} runs are in" in done.stdout and "aten::sin: call 2" in done.stdout, done.stdout + done.stderr
    after = journal.read_text().splitlines()
    assert len({json.loads(line)["key"] for line in after}) == len(after) > before + 1 > 3


def test_a_check_with_nothing_to_find(tmp_path):
    done = culprit(tmp_path, "--metric", "good", planted=False)
    assert done.returncode == 1 and "good is true on minitorch as it is" in done.stdout
    done = culprit(tmp_path, planted=False, behind=["--metric", "never", "--lr", "3"])
    assert done.returncode == 1 and "false even with every operator on cpu" in done.stdout
    done = culprit(tmp_path, "--metric", "nonsense", planted=False)
    assert done.returncode == 2 and "is no function of the script" in done.stderr
