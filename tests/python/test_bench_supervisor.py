"""A run whose cases hang or end the process: reported, and the run goes on."""

import functools
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import types

import pytest
import torch
from click import ClickException
from rich.console import Console

from minitorch_backend.bench import results, supervisor
from minitorch_backend.bench.command import Command, bench
from minitorch_backend.bench.limits import Limits
from minitorch_backend.bench.results import Result
from tests.python.own_cases import write_cases
from tests.python.races import interrupt_behind

CASES = """
    import os, signal, sys, threading, time
    import torch
    from minitorch_backend.bench.case import Case, forward

    BOTH = ("cpu", "cuda")

    def hangs(setup):
        while True:
            pass

    def dies(setup):
        os.kill(os.getpid(), signal.SIGSEGV)

    def leaves(setup):
        os._exit(0)

    def threads(setup):
        threading.Thread(target=time.sleep, args=(600,)).start()
        return forward(torch.exp, setup.normal(64))

    CASES = [
        Case("before", lambda s: forward(torch.exp, s.normal(64)), backends=BOTH),
        Case("hangs", hangs, backends=BOTH),
        Case("dies", dies, backends=BOTH),
        Case("leaves", leaves, backends=BOTH),
        Case("threads", threads, backends=BOTH),
        Case("after", lambda s: forward(torch.exp, s.normal(64)), backends=BOTH),
    ]
"""


@pytest.fixture
def folder(tmp_path):
    return write_cases(tmp_path, CASES, "bad.py")


def command(folder, out, *more):
    given = ["--cases", folder, "--quick", "--wait", "0", "--json", out, *more]
    return [sys.executable, "-m", "minitorch_backend", "bench", *map(str, given)]


def resumable(out):
    """A result file without a case, so that no limits are measured: a run resumes it."""
    from minitorch_backend import _C
    from minitorch_backend.bench import heap, machine
    from minitorch_backend.bench.runner import native

    facts = machine.describe() | {"rival": native(_C.backend_name()).name, "quick": True}
    facts["malloc"] = "pinned" if heap.glibc() and _C.backend_name() == "cpu" else "default"
    results.Writer(out, facts, Limits({8: 1e10}, {8: 1e10}, {"float32": 1e11})).close()


def test_the_run_goes_on_without_what_hangs_or_dies(folder, tmp_path):
    out = tmp_path / "r.jsonl"
    resumable(out)
    limit = "8" if machine_is_cpu() else "30"  # beside a GPU native starts a process of its own in a case's time
    started = command(folder, out, "--resume", "--time-limit", limit, "--threads", str(torch.get_num_threads()))
    done = subprocess.run(started, capture_output=True, text=True, timeout=300)
    found = results.read(out).results
    assert done.returncode == 0, done.stdout + done.stderr
    assert {name: r.status for name, r in found.items()} == {
        "bad/before": "ok", "bad/hangs": "failed", "bad/dies": "failed", "bad/leaves": "failed", "bad/threads": "ok",
        "bad/after": "ok",
    }  # fmt: skip
    assert found["bad/hangs"].message == f"did not end within {limit} s and was stopped"
    assert found["bad/dies"].message == "ended the process (SIGSEGV)"
    assert found["bad/leaves"].message == "ended the process (exit status 0)"
    assert found["bad/before"].timed and found["bad/after"].timed
    assert f"did not end within {limit} s" in done.stdout and "3 not timed" in done.stdout
    assert done.stdout.count("Limits of this machine") == 1  # what a killed process had said is not said again


def test_a_pass_is_made_in_a_process_of_its_own(folder, tmp_path):
    """... when it took long enough; here one pass does. What is printed is printed once."""
    out, seen = tmp_path / "r.jsonl", tmp_path / "seen"
    resumable(out)
    (folder / "bad.py").write_text(
        textwrap.dedent(f"""
        import os
        import sys
        import torch
        from minitorch_backend.bench.case import Case, forward

        if suite := sys.modules.get("minitorch_backend.bench.suite"):  # not in native's own process
            suite.PASSES = 1
            sys.modules["minitorch_backend.bench.placement"].find = lambda backend: None

        def noted(setup):
            with open({str(seen)!r}, "a") as file:
                file.write(f"{{os.getpid()}}\\n")
            return forward(torch.exp, setup.normal(64))

        CASES = [Case(name, noted, backends=("cpu", "cuda")) for name in ("a", "b")]
    """)
    )
    started = command(folder, out, "--resume", "--threads", str(torch.get_num_threads()))
    done = subprocess.run(started, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    found = results.read(out).results
    visits = [len(found[name].visits) for name in ("bad/a", "bad/b")]
    assert len(found) == 2 and all(r.timed for r in found.values()), [(r.status, r.message) for r in found.values()]
    if machine_is_cpu():
        assert min(visits) >= 2 and len(set(seen.read_text().split())) >= 2
    assert done.stdout.count("Limits of this machine") == 1 and done.stdout.count(f"results: {out}") == 1


def machine_is_cpu():
    from minitorch_backend import _C

    return _C.backend_name() == "cpu"


def test_an_interrupt_ends_the_run_with_what_it_has(folder, tmp_path):
    out = tmp_path / "r.jsonl"
    resumable(out)
    (folder / "bad.py").write_text(textwrap.dedent(CASES).replace("while True:", "time.sleep(600)\n    while False:"))
    started = command(folder, out, "--resume", "--only", "before|hangs", "--threads", str(torch.get_num_threads()))
    code, text = interrupt_behind("bad/before", started, out, 120, 60)
    assert code == 130 and "interrupted: " in text, text
    assert "bad/before" in results.read(out).results


def test_an_interrupt_while_a_pass_ends_is_heard(tmp_path, monkeypatch):
    class Child:
        def __init__(self, arguments, note, limit):
            assert not started, "the next pass was begun"
            started.append(self)
            self.interrupted, self.process = 1.0, types.SimpleNamespace(returncode=supervisor.UNFINISHED)

        wait = case = lambda self: ""

    started = []
    monkeypatch.setattr(supervisor, "Child", Child)
    console = Console(record=True)
    assert supervisor.supervise([], tmp_path / "r.jsonl", 1.0, console) == 130
    assert "interrupted; --resume goes on" in console.export_text()


@pytest.mark.skipif(not pathlib.Path("/proc/self/status").exists(), reason="needs Linux")
def test_an_interrupt_of_a_child_that_still_imports_waits(tmp_path):
    """It would die of it with a traceback, and has nothing to say yet."""
    child = supervisor.Child(["--list", "--only", "add"], tmp_path / "case", 60.0)
    status = pathlib.Path(f"/proc/{child.process.pid}/status").read_text()
    child.kill()
    blocked = int(next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1], 16)
    assert blocked & 1 << signal.SIGINT - 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_child_hears_interrupts_once_it_can_answer(folder, tmp_path):
    (folder / "bad.py").write_text("import time\nprint('imported', flush=True)\ntime.sleep(60)\nCASES = []\n")
    child = {**os.environ, supervisor.NOTE: str(tmp_path / "case"), supervisor.PARENT: str(os.getpid())}
    hear = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # what runs in the background ignores it
    with supervisor.later_interrupts():
        run = subprocess.Popen(
            command(folder, tmp_path / "r.jsonl"), stdout=subprocess.PIPE, env=child, text=True, preexec_fn=hear
        )
    assert run.stdout.readline() == "imported\n"
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=30)
    assert run.returncode == supervisor.INTERRUPTED


def test_a_second_interrupt_ends_the_run_as_one(tmp_path, monkeypatch):
    class Child:
        def __init__(self, arguments, note, limit):
            self.interrupted, self.process = 1.0, types.SimpleNamespace(returncode=-signal.SIGKILL)

        wait = case = lambda self: ""

    monkeypatch.setattr(supervisor, "Child", Child)
    console = Console(record=True)
    assert supervisor.supervise([], tmp_path / "r.jsonl", 1.0, console) == 130
    assert "interrupted; --resume goes on" in console.export_text()


def test_a_pass_goes_on_though_the_source_tree_was_edited(monkeypatch, tmp_path):
    out = tmp_path / "r.jsonl"
    facts = {"device": "x", "commit": "abc", "rival": "cpu", "ours": "minitorch", "date": "then"}
    results.Writer(out, facts, Limits()).close()
    made = Command(**bench.make_context("bench", ["--resume", "--json", str(out)]).params)
    edited = facts | {"commit": "abc+"}
    with pytest.raises(ClickException, match="commit: abc and abc"):
        made.earlier(edited)
    monkeypatch.setattr(supervisor, "carried", lambda: {"suite": {}})
    assert made.earlier(edited).machine == facts
    with pytest.raises(ClickException, match="device: x and y"):
        made.earlier(edited | {"device": "y"})


def test_a_killed_process_has_left_the_time_and_what_it_said(tmp_path, monkeypatch):
    monkeypatch.setenv(supervisor.NOTE, str(tmp_path / "case"))
    assert supervisor.carried() is None
    supervisor.keep({"begun": 3.0, "suite": {"start": 4.0}})
    assert supervisor.carried() == {"begun": 3.0, "suite": {"start": 4.0}}


def test_options_become_a_command_line():
    given = ["--only", "a|b", "--quick", "--malloc", "default", "--json", "x y.jsonl", "--wait", "3", "--no-memory"]
    context = bench.make_context("bench", list(given))
    made = supervisor.arguments(bench, context.params)
    assert bench.make_context("bench", made).params == context.params
    assert supervisor.arguments(bench, bench.make_context("bench", []).params) == []


def test_what_hangs_before_the_first_case_ends_the_run(tmp_path):
    assert not supervisor.write_down(tmp_path / "none.jsonl", "--against k.py", "did not end")
    out = tmp_path / "r.jsonl"
    results.Writer(out, {"rival": "cpu"}, Limits(), [Result("f/a", "f", ratio=2.0, low=1.9, high=2.1)]).close()
    assert supervisor.write_down(out, "f/b", "did not end") and supervisor.write_down(out, "f/a", "did not end")
    found = results.read(out).results
    assert [r.status for r in found.values()] == ["failed", "failed"] and not found["f/a"].timed
    assert not supervisor.write_down(out, "--against k.py", "did not end")  # a file is there, of an older run
    assert not supervisor.write_down(out, "f/a", "did not end") and len(results.read(out).results) == 2


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    out = tmp_path / "r.jsonl"
    results.Writer(out, {"rival": "cpu"}, Limits(), [Result("f/a", "f"), Result("f/b", "f")]).close()
    text = out.read_text()
    out.write_text(text[:-20])
    assert list(results.read(out).results) == ["f/a"]
    out.write_text(text[:-20] + "\n")
    with pytest.raises(ValueError, match=r"r\.jsonl:4 is not a line"):
        results.read(out)


def test_a_full_disk_is_said_and_costs_no_result(tmp_path):
    out = tmp_path / "r.jsonl"
    writer = results.Writer(out, {"rival": "cpu"}, Limits())
    writer.add(Result("f/a", "f"))
    writer.file.close()
    writer.file = pathlib.Path("/dev/full").open("w")  # noqa: SIM115
    writer.add(Result("f/b", "f"))
    assert "No space left" in writer.problem
    writer.add(Result("f/c", "f"))
    writer.close()  # there is room again
    assert not writer.problem and list(results.read(out).results) == ["f/a", "f/b", "f/c"]
    writer.path = pathlib.Path("/proc/nowhere/r.jsonl")
    writer.close()
    assert writer.problem
