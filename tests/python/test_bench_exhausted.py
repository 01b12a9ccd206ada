"""A race on a disk that is full or in memory that is used up: said, gone on with, and nothing is half written."""

import functools
import json
import resource
import subprocess
import sys
import textwrap

import pytest
import torch

from minitorch_backend.bench import memory, results, supervisor
from minitorch_backend.bench.limits import Limits
from minitorch_backend.bench.results import Result
from minitorch_backend.kernels import compiler
from tests.python.own_cases import write_cases
from tests.python.own_kernels import needs_the_cpu
from tests.python.test_bench_supervisor import command, resumable

CASES = """
    import torch
    from minitorch_backend.bench.case import Case, forward

    BOTH = ("cpu", "cuda")

    def lists(setup):
        return lambda: bytearray(1 << 40)

    def native(setup):
        return lambda: [torch.empty(1 << 32, dtype=torch.int8) for _ in range(9)]

    def ours(setup):
        count = 9 if setup.device.type == "minitorch" else 1
        return lambda: [torch.empty(1 << 32, dtype=torch.int8, device=setup.device) for _ in range(count)]

    CASES = [
        Case("before", lambda s: forward(torch.exp, s.normal(64)), backends=BOTH),
        Case("lists", lists), Case("native", native), Case("ours", ours),
        Case("after", lambda s: forward(torch.exp, s.normal(64)), backends=BOTH),
    ]
"""


@pytest.fixture
def folder(tmp_path):
    return write_cases(tmp_path, CASES, "large.py")


def lowered(limit: int, most: int) -> functools.partial:
    """What lets a process begin with a lower limit."""
    return functools.partial(resource.setrlimit, limit, (most, most))


def run(arguments, limit, most):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=300, preexec_fn=lowered(limit, most))


@pytest.mark.timeout(600)
@needs_the_cpu
def test_a_full_disk_is_said_and_leaves_whole_lines(folder, tmp_path):
    pytest.importorskip("matplotlib")
    out, pictures = tmp_path / "r.jsonl", tmp_path / "pictures"
    resumable(out)
    pictures.mkdir()
    (pictures / "ratios.png").write_bytes(b"an older one")
    threads = str(torch.get_num_threads())
    given = command(folder, out, "--resume", "--only", "before|after", "--threads", threads, "--plots", pictures)
    done = run(given, resource.RLIMIT_FSIZE, out.stat().st_size + 400)  # too little for a case
    assert done.returncode == 1, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    assert "r.jsonl is not whole: [Errno 27] File too large" in text and "no pictures: [Errno 27]" in text
    assert "2 cases: " in text  # what was measured is shown all the same
    assert [json.loads(line)["kind"] for line in out.read_text().splitlines()] == ["machine", "limits"]
    assert (pictures / "ratios.png").read_bytes() == b"an older one"
    assert {path.name for path in tmp_path.iterdir()} == {"own", "r.jsonl", "pictures"}
    assert {path.name for path in pictures.iterdir()} == {"ratios.png"}


@needs_the_cpu
@pytest.mark.timeout(600)
def test_cases_that_use_up_the_memory_are_marked_and_the_rest_goes_on(folder, tmp_path):
    out = tmp_path / "r.jsonl"
    resumable(out)
    given = command(folder, out, "--resume", "--threads", str(torch.get_num_threads()), "--check")
    done = run(given, resource.RLIMIT_AS, 12 << 30)
    found = results.read(out).results
    assert {name: r.status for name, r in found.items()} == {
        "large/before": "ok", "large/lists": "out of memory", "large/native": "out of memory",
        "large/ours": "out of memory", "large/after": "ok",
    }, done.stdout + done.stderr  # fmt: skip
    assert "MemoryError" in found["large/lists"].message and "OutOfMemoryError" in found["large/ours"].message
    assert done.returncode == 1 and "failed: large/lists, large/native, large/ours" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("std::bad_alloc"), OSError(12, "Cannot allocate memory")], ids=repr
)
def test_what_says_that_memory_is_used_up(error):
    assert memory.ran_out(error) and not memory.ran_out(RuntimeError("std::bad_cast"))


LIMITED = """
import pathlib, resource
from minitorch_backend.bench import results
from minitorch_backend.bench.limits import Limits
from minitorch_backend.bench.results import Result
path = pathlib.Path({path!r})
{body}
"""


def limited(path, body):
    text = LIMITED.format(path=str(path), body=textwrap.dedent(body))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_results_of_before_outlive_a_full_disk(tmp_path):
    path = tmp_path / "r.jsonl"
    results.Writer(path, {"rival": "cpu"}, Limits(), [Result("f/a", "f"), Result("f/b", "f")]).close()
    there = path.read_text()
    said = limited(
        path,
        """
        before = results.read(path).results.values()
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - 10, resource.RLIM_INFINITY))
        try:
            results.Writer(path, {"rival": "cpu"}, Limits(), before)
        except OSError as error:
            print("refused:", error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
        writer = results.Writer(path, {"rival": "cpu"}, Limits(), before)
        writer.add(Result("f/c", "f"))
        writer.add(Result("f/d", "f"))
        writer.close()
        print("problem:", writer.problem)
        """,
    )
    assert said.count("File too large") == 2 and "refused" in said and "problem: [Errno 27]" in said
    assert path.read_text() == there and [p.name for p in tmp_path.iterdir()] == ["r.jsonl"]


def test_what_is_handed_on_outlives_a_full_disk(tmp_path, monkeypatch):
    note = tmp_path / "case"
    monkeypatch.setenv(supervisor.NOTE, str(note))
    supervisor.keep({"begun": 1})
    note.with_name("case.json.part").symlink_to("/dev/full")
    supervisor.keep({"begun": 2})
    assert supervisor.carried() == {"begun": 1}


def test_a_full_cache_of_kernels_has_no_halves(tmp_path):
    said = limited(
        tmp_path / "kernel.so",
        """
        from minitorch_backend.kernels import compiler
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        try:
            compiler.place(path, bytes(5000))
        except OSError as error:
            print(error)
        """,
    )
    assert "File too large" in said and list(tmp_path.iterdir()) == []
    assert not compiler.is_whole(tmp_path / "kernel.so")


def test_a_case_that_dies_on_a_full_disk_ends_the_run(tmp_path, monkeypatch):
    from rich.console import Console

    out = tmp_path / "r.jsonl"
    results.Writer(out, {"rival": "cpu"}, Limits()).close()

    class Child:
        def __init__(self, *given):
            self.wait, self.case = lambda: "ended the process (SIGSEGV)", lambda: "f/a"

    def full(*given):
        raise OSError("No space left on device")

    monkeypatch.setattr(supervisor, "Child", Child)
    monkeypatch.setattr(results, "Writer", full)
    console = Console(record=True, width=200)
    assert supervisor.supervise([], out, 1.0, console) == 1
    text = console.export_text()
    assert "is not whole: No space left on device" in text and "f/a: ended the process (SIGSEGV)" in text
