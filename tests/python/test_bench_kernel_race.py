"""The race of a user's kernel: visits in processes that are watched, like any other race, with three sides."""

import os
import subprocess
import sys
import textwrap
import time

import psutil
import pytest
from rich.console import Console

from minitorch_backend import _C
from minitorch_backend.bench import command, heap, kernel_race, machine, results, runner, supervisor
from minitorch_backend.bench.limits import Limits
from minitorch_backend.bench.results import Result, Run
from tests.python.own_cases import write_cases
from tests.python.races import interrupt_behind

CPU = _C.backend_name() == "cpu"
CASES = """
    import sys
    import torch
    from minitorch_backend.bench.case import Case, forward

    if placement := sys.modules.get("minitorch_backend.bench.placement"):  # not in native's own process
        placement.find = lambda backend: None  # visits are made wherever the processors lie

    CASES = [Case(f"exp {n}", lambda s, n=n: forward(torch.exp, s.normal(n)), backends=("cpu", "cuda"))
             for n in (4099, 4100, 4101)]
"""
# Right in the diff, whose samples are smaller; of one case it does something else.
KERNEL = """
    import os, signal, time
    import torch
    from minitorch_backend import kernels

    def exp(x):
        if x.numel() == 4100:
            {}
        return x.exp()

    kernels.override("aten::exp", exp, dtypes=[torch.float32])
"""
BAD = {
    "hangs": ("time.sleep(600)", "did not end within 40 s and was stopped"),
    "dies": ("os.kill(os.getpid(), signal.SIGSEGV)", "ended the process (SIGSEGV)"),
    "leaves": ("os._exit(0)", "ended the process (exit status 0)"),
    "raises": ("raise ValueError('enough')", "ValueError: enough"),
}


@pytest.fixture
def folder(tmp_path):
    return write_cases(tmp_path, CASES)


def written(folder, body="pass"):
    path = folder.parent / "mine.py"
    path.write_text(textwrap.dedent(KERNEL).format(body))
    return path


def resumable(out, kernel):
    """A result file without a case, so that no limits are measured: a run resumes it."""
    facts = machine.describe() | {"rival": runner.native(_C.backend_name()).name, "ours": "mine", "quick": True}
    facts["threads"] = 1
    facts["malloc"] = "pinned" if heap.glibc() and CPU else "default"
    facts["kernel"] = kernel_race.identity(kernel)
    results.Writer(out, facts, Limits({8: 1e10}, {8: 1e10}, {"float32": 1e11})).close()


def started(folder, kernel, out, *more):
    # One thread: on a busy machine native's wait for each other.
    given = ["--cases", folder, "--kernel", kernel, "--quick", "--wait", "0", "--json", out, "--resume", "--threads=1"]
    given += more
    return [sys.executable, "-m", "minitorch_backend", "bench", *map(str, given)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", BAD)
def test_a_case_in_which_the_kernel_is_bad_is_marked_and_the_rest_goes_on(folder, tmp_path, name):
    body, says = BAD[name]
    kernel, out = written(folder, body), tmp_path / "r.jsonl"
    resumable(out, kernel)
    done = subprocess.run(
        started(folder, kernel, out, "--time-limit", "40"), capture_output=True, text=True, timeout=600
    )
    found = results.read(out)
    text = " ".join(done.stdout.split())
    assert done.returncode == 1, done.stdout + done.stderr
    assert {n: r.status for n, r in found.results.items()} == {
        "tiny/exp 4099": "ok", "tiny/exp 4100": "failed", "tiny/exp 4101": "ok",
    }  # fmt: skip
    assert says in found.results["tiny/exp 4100"].message and says in text
    assert "vs cpu" in text or "vs cuda" in text
    for n in ("tiny/exp 4099", "tiny/exp 4101"):
        result = found.results[n]
        assert list(result.seconds)[1:] == ["minitorch", "mine"] and list(result.others) == ["minitorch"]
        assert len(result.visits) >= (2 if CPU else 1)  # not a single one
    assert found.machine["kernel"] == kernel_race.identity(kernel) and found.machine["ours"] == "mine"


def test_a_race_that_was_interrupted_is_gone_on_with(folder, tmp_path):
    kernel, out = written(folder, "time.sleep(600)"), tmp_path / "r.jsonl"
    resumable(out, kernel)
    code, text = interrupt_behind("tiny/exp 4099", started(folder, kernel, out), out, 200, 100)
    assert code == 130 and "interrupted: " in text, text
    first = results.read(out).results["tiny/exp 4099"]
    assert len(first.visits) == 1
    again = subprocess.run(started(folder, kernel, out, "--only", "4099"), capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stdout + again.stderr
    visits = results.read(out).results["tiny/exp 4099"].visits
    assert visits[0] == first.visits[0] and len(visits) >= (2 if CPU else 1)
    kernel.write_text(kernel.read_text() + "# another kernel\n")
    other = subprocess.run(started(folder, kernel, out), capture_output=True, text=True, timeout=300)
    assert other.returncode == 1 and "cannot be resumed" in " ".join((other.stdout + other.stderr).split())


def test_what_the_race_gave_is_said(tmp_path):
    run = Run({"rival": "cpu", "ours": "mine"}, Limits(), {})
    timed = Result("f/a", "f", rival="cpu", ratio=2.0, low=1.9, high=2.1, others={"minitorch": [1.5, 1.4, 1.6]},
                   seconds={"cpu": 2e-3, "minitorch": 1.5e-3, "mine": 1e-3})  # fmt: skip
    idle = Result("f/b", "f", "not reached", "does not call the kernel mine")
    for status, expected in (("ok", 0), ("less accurate", 0), ("wrong", 1)):
        timed.status = status
        console = Console(record=True, width=200)
        assert kernel_race.finish([timed, idle], run, console) == expected
        text = console.export_text()
        assert "2.00 (1.90 – 2.10)" in text and "1.50 (1.40 – 1.60)" in text and "f/b" not in text
        assert ("f/a: " in text) == (status != "ok") and (status == "ok" or f"f/a: {status}" in text)
    console = Console(record=True, width=200)
    assert kernel_race.finish([idle], run, console) == 1 and command.NOT_REACHED in console.export_text()
    assert kernel_race.finish([timed, Result("f/c", "f", "failed", "enough")], run, console) == 1
    assert "f/c: failed: enough" in console.export_text()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_copy_of_the_process_that_a_kernel_makes_does_not_race_on(tmp_path):
    program = textwrap.dedent("""
        import os, sys
        import minitorch_backend
        from minitorch_backend.bench import kernel_race

        with kernel_race.in_force([]):
            os.fork()
        print("raced on", flush=True)
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.count("raced on") == 1, done.stderr


def test_what_a_kernel_leaves_running_ends_with_its_process(tmp_path, monkeypatch):
    def start(command, **options):
        return popen(["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/left; exit 0"], **options)

    popen = subprocess.Popen
    monkeypatch.setattr(supervisor.subprocess, "Popen", start)
    assert supervisor.Child([], tmp_path / "case", limit=60.0).wait() == ""
    left, deadline = int((tmp_path / "left").read_text()), time.monotonic() + 20
    while psutil.pid_exists(left) and psutil.Process(left).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.1)


SLOW = """
import pathlib, sys, time
from minitorch_backend import terminal
from minitorch_backend.bench import command, limits, supervisor

def measure(backend, advance):
    time.sleep({})

limits.measure = measure
command.measure_limits("cpu", terminal.console(), supervisor.note_taker())
"""


def test_a_hang_while_limits_are_measured_has_a_name_and_time_of_its_own(tmp_path, monkeypatch):
    def start(command, **options):
        return popen([sys.executable, "-c", SLOW.format(seconds)], **options)

    popen = subprocess.Popen
    monkeypatch.setattr(supervisor.subprocess, "Popen", start)
    note = tmp_path / "case"
    seconds = 4  # longer than a case may take
    child = supervisor.Child([], note, limit=1.0)
    assert child.wait() == "" and child.process.returncode == 0 and child.case() == ""
    seconds = 600
    monkeypatch.setattr(supervisor, "NO_CASE_LIMIT", 10.0)
    console = Console(record=True, width=200)
    assert supervisor.supervise([], tmp_path / "none.jsonl", 1.0, console) == 1
    assert "measuring the limits of this machine: did not end within 10 s and was stopped" in console.export_text()
