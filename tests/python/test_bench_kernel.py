"""Kernels of a user's own as competitors: bad calls, files that do not load, and cases that never reach the kernel."""

import platform
import re

import pytest
import torch
from click.testing import CliRunner

from minitorch_backend.bench import command, kernel_race, limits, results, runner
from minitorch_backend.bench.case import Case, forward
from minitorch_backend.bench.command import bench
from minitorch_backend.bench.kernel_samples import Finding
from minitorch_backend.kernels import files
from tests.python.own_cases import write_cases
from tests.python.races import SHORT

EXP = "from minitorch_backend import kernels\nkernels.override('aten::exp', lambda x: x.exp())\n"
CASES = """
import torch
from minitorch_backend.bench.case import Case, forward

CASES = [Case(n, lambda s, f=f: forward(f, s.normal(64)), backends=("cpu", "cuda"))
         for n, f in (("exp", torch.exp), ("sin", torch.sin))]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cases = write_cases(tmp_path, CASES)
    (tmp_path / "k.py").write_text(EXP)
    monkeypatch.setattr(limits, "measure", lambda *given: limits.Limits({8: 1e10}, {8: 1e10}, {"float32": 1e11}))
    return cases


@pytest.fixture
def right(monkeypatch):
    """The diff is content."""
    monkeypatch.setattr(kernel_race.kernel_diff, "diff", lambda path, limit: [Finding("aten::exp", "float32", "ok", 9)])


def invoke(*arguments):
    result = CliRunner().invoke(bench, ["--time-limit=0", *(str(a) for a in arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.mark.parametrize(
    "options,says",
    [
        (["--compare", "k.py"], "--kernel does not go with --compare"),
        (["--against", "self", "--floors"], "--kernel does not go with --floors, --against"),
        (["--list"], "--kernel does not go with --list"),
        (["--only", "("], "not a regular expression"),
        (["--only", "exq"], "near matches: tiny/exp"),
        (["--json", "/proc/nowhere/k.jsonl"], "--json /proc/nowhere/k.jsonl"),
    ],
)
def test_wrong_calls_are_said_before_the_diff(folder, monkeypatch, options, says):
    monkeypatch.setattr(kernel_race.kernel_diff, "diff", lambda path, limit: pytest.fail("diffed"))
    found = invoke("--cases", folder, "--kernel", "k.py", *options)
    assert found.exit_code in (1, 2) and says in " ".join(found.output.split())


def test_a_kernel_race_has_a_file_of_its_own():
    made = {}
    for given in ([], ["--kernel", __file__], ["--kernel", __file__, "--json", "x.jsonl"]):
        made[tuple(given[2:]), bool(given)] = command.Command(
            **bench.make_context("bench", list(given)).params
        ).json_path
    assert [str(path) for path in made.values()] == ["out/bench.jsonl", "out/kernel.jsonl", "x.jsonl"]


def test_a_rival_s_kernel_is_diffed_first(folder, monkeypatch):
    wrong = [Finding("aten::exp", "float32", "wrong", 3, message="exp, sample 2")]
    monkeypatch.setattr(kernel_race.kernel_diff, "diff", lambda path, limit: wrong)
    found = invoke("--cases", folder, "--against", "k.py")
    assert found.exit_code == 1 and "exp, sample 2" in found.output and "not raced" in found.output


def test_cases_that_do_not_call_the_rival_s_kernel_are_not_timed(folder, right, tmp_path):
    out = tmp_path / "r.jsonl"
    assert invoke("--cases", folder, "--against", "k.py", "--quick", "--json", out).exit_code == 0
    assert list(results.read(out).results) == ["tiny/exp"]
    found = invoke("--cases", folder, "--against", "k.py", "--only", "exp|sin", "--quick", "--json", out)
    assert found.exit_code == 0 and results.read(out).results["tiny/exp"].timed
    other = results.read(out).results["tiny/sin"]
    assert other.status == "not reached" and not other.timed
    assert "does not call the kernel k" in " ".join(found.output.split())
    found = invoke("--cases", folder, "--against", "k.py", "--only", "sin", "--quick", "--json", out)
    assert found.exit_code == 1 and command.NOT_REACHED in " ".join(found.output.split())
    assert results.read(out).machine["kernel"].startswith("k.py ") and results.read(out).machine["ours"] == "minitorch"


def test_a_kernel_races_in_this_process_too(folder, right, tmp_path):
    out = tmp_path / "k.jsonl"
    found = invoke("--cases", folder, "--kernel", "k.py", "--quick", "--wait", "0", "--json", out)
    assert found.exit_code == 0, found.output
    result = results.read(out).results["tiny/exp"]
    assert result.timed and list(result.seconds)[1:] == ["minitorch", "k"] and list(result.others) == ["minitorch"]
    text = " ".join(found.output.split())
    assert "vs minitorch" in text and results.read(out).machine["ours"] == "k"
    found = invoke("--cases", folder, "--kernel", "k.py", "--quick", "--wait", "0", "--json", out, "--only", "sin")
    assert found.exit_code == 1 and command.NOT_REACHED in " ".join(found.output.split())


@pytest.mark.parametrize("name", ["cpu", "cuda", "minitorch"])
def test_a_kernel_file_may_be_named_like_a_side(folder, right, tmp_path, name):
    (tmp_path / f"{name}.py").write_text(EXP)
    out = tmp_path / "k.jsonl"
    assert invoke("--cases", folder, "--kernel", f"{name}.py", "--quick", "--wait", "0", "--json", out).exit_code == 0
    assert list(results.read(out).results["tiny/exp"].seconds)[1:] == ["minitorch", f"{name}.py"]


def test_a_visit_after_not_reached_is_none(tmp_path):
    (tmp_path / "k.py").write_text(EXP)
    mine = kernel_race.side(tmp_path / "k.py", files.load(tmp_path / "k.py"))
    racer = runner.Runner([runner.native("cpu"), runner.OURS, mine], limits.Limits(), SHORT)
    made = [Case(f.__name__, lambda s, f=f: forward(f, s.normal(64)), family="f") for f in (torch.exp, torch.sin)]
    assert [racer.run(case).status for case in made] == ["ok", "not reached"]


STATE = """
// operator: aten::silu
#include <cfenv>
#include <clocale>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <xmmintrin.h>
const void* before = nullptr;
void* volatile sink;
scalar_t kept[4096];
void silu(Tensor out, Tensor x) {{
  static int calls = 0;
  calls++;
  for (int64_t i = 0; i < x.numel; i++) out.ptr<float>()[i] = x.ptr<float>()[i] / (1 + std::exp(-x.ptr<float>()[i]));
  {}
}}
"""
DAEMON = "if (calls == 3) { pid_t p = fork(); if (p) waitpid(p, 0, 0); else { setsid(); if (!fork()) sleep(600); _exit(0); } }"
STALE = (
    "if (x.data == before && x.numel <= 4096) for (int64_t i = 0; i < x.numel; i++) out.ptr<float>()[i] = kept[i];"
    "else if (x.numel <= 4096) for (int64_t i = 0; i < x.numel; i++) kept[i] = out.ptr<float>()[i];  before = x.data;"
)
# What is the process's alone, all at once.
PROCESS = (
    "static bool done = (std::signal(SIGUSR2, SIG_IGN), clearenv(), alarm(1000), umask(0123),"
    'setlocale(LC_ALL, "POSIX"), setlocale(LC_TIME, "C.UTF-8"), true);'
    "rlimit limit; getrlimit(RLIMIT_NOFILE, &limit); limit.rlim_cur = 50; setrlimit(RLIMIT_NOFILE, &limit);"
)
CHANGES = {
    "rounding": ("std::fesetround(FE_TOWARDZERO);", "failed", "leaves the process changed: rounding 0 is"),
    "denormals": ("_mm_setcsr(_mm_getcsr() | 0x8040);", "failed", "denormals True is False now"),
    "folder": ('if (chdir("/")) {}', "failed", "folder .* is / now"),
    "threads": ("omp_set_num_threads(omp_get_max_threads() + 1);", "failed", r"threads \d+ is \d+ now"),
    "the process": (
        PROCESS,
        "failed",
        r"(?s)umask \d+ is 123 now.*environment \w+ is unset now, \d+ more of environment, signals SIGUSR2 .* is "
        r"ignored now, alarm False is True now, limits RLIMIT_NOFILE .* is \(50, \d+\) now, locale ",
    ),
    "traps": ("feenableexcept(FE_DIVBYZERO);", "failed", "traps of the arithmetic 0 is 4 now"),
    "thread": (
        "static std::thread* one = new std::thread([] { sleep(600); });  (void)one;",
        "failed",
        r"starts a thread and leaves it: .*\(\d+\)$",
    ),
    "leak": ("sink = std::malloc(100);", "failed", r"keeps 1\d\d bytes of memory from each call"),
    "daemon": (DAEMON, "failed", r"starts a process and leaves it: \d+, which was ended"),
    "stale": (STALE, "wrong", "with other values in the same memory"),
    "nothing": ("", "ok", ""),
}


@pytest.mark.skipif(torch.minitorch.get_device_properties(0).backend != "cpu", reason="the sources are for the CPU")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the sources set bits of an x86 register")
@pytest.mark.parametrize("name", CHANGES)
def test_what_a_kernel_leaves_changed_is_found(tmp_path, tmp_path_factory, monkeypatch, name):
    monkeypatch.setenv("MINITORCH_KERNEL_CACHE", str(tmp_path_factory.getbasetemp() / "kernels"))
    body, verdict, message = CHANGES[name]
    (tmp_path / "kernel.cpp").write_text(STATE.format(body))
    findings = kernel_race.kernel_diff.diff(tmp_path / "kernel.cpp")
    assert [f.verdict for f in findings if f.verdict != "ok"] == ([verdict] if verdict != "ok" else []), findings
    assert re.search(message, findings[-1].message), findings


@pytest.mark.parametrize("code", ["0", "3", "'text'"])
def test_a_file_that_ends_the_program_is_said(tmp_path, code):
    path = tmp_path / "p.py"
    path.write_text(f"import sys\nsys.exit({code})\n")
    with pytest.raises(ValueError, match=r"p\.py ends the program"):
        files.load(path)
