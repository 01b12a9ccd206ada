"""What ``minitorch bench`` is given that it must not trip over: damaged files, links, two runs at once, odd kernels."""

import ctypes
import gc
import json
import locale
import os
import pathlib
import resource
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner

from minitorch_backend import kernels
from minitorch_backend.bench import command, limits, process_state, results
from minitorch_backend.cli import main
from minitorch_backend.kernels import files
from tests.python.own_kernels import cache_of_module, needs_the_cpu  # noqa: F401

ROOT = pathlib.Path(__file__).parents[2]
CASE = {"kind": "case", "name": "a/b", "family": "a"}
LINES = {
    "too deep": "[" * 200000,
    "a number of 400 digits": json.dumps({**CASE, "ratio": 10**400}),
    "a figure beyond all": json.dumps({**CASE, "ratio": 1}).replace("1}", "1e999}"),
    "infinity": json.dumps({**CASE, "bytes": float("inf")}),
    "no number": json.dumps({**CASE, "share": float("nan")}),
}


def written(path: pathlib.Path) -> results.Writer:
    return results.Writer(path, {"processor": "x"}, limits.Limits({1024: 1e9}, {1024: 1e9}, {"float32": 1e9}))


@pytest.mark.parametrize("name", LINES)
def test_a_line_that_is_no_result_is_named(tmp_path, name):
    path = tmp_path / "run.jsonl"
    written(path).close()
    path.write_text(f"{path.read_text()}{LINES[name]}\n")
    with pytest.raises(ValueError, match=r"run\.jsonl:3 is not a line of a result file"):
        results.read(path)


def test_what_a_link_points_at_is_written(tmp_path):
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "there.jsonl")
    writer = written(tmp_path / "link.jsonl")
    writer.add(results.Result("a/b", "a"))
    writer.close()
    assert (tmp_path / "link.jsonl").is_symlink()
    assert list(results.read(tmp_path / "there.jsonl").results) == ["a/b"]


def test_results_do_not_go_into_what_is_no_file_nor_over_the_run_compared_with(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    run = lambda *words: CliRunner().invoke(main, ["bench", "--only", "softmax", *map(str, words)])  # noqa: E731
    assert "is no file" in run("--json", tmp_path / "pipe").output
    old = tmp_path / "old.jsonl"
    written(old).close()
    before = old.read_bytes()
    (tmp_path / "same.jsonl").symlink_to(old)
    for option in ("--compare", "--against"):
        found = run("--json", tmp_path / "same.jsonl", option, old)
        assert found.exit_code == 1 and f"{option} {old} is where the results go" in found.output
        assert old.read_bytes() == before


def test_two_runs_do_not_write_one_file(tmp_path):
    path = tmp_path / "run.jsonl"
    with command.alone(path):
        found = CliRunner().invoke(main, ["bench", "--only", "softmax", "--json", str(path)])
        assert found.exit_code == 1 and "another run writes" in found.output
    assert not list(tmp_path.iterdir())
    with command.alone(path):
        pass


def call(words: list[str], **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "minitorch_backend", *words]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, **options)


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="there is no /dev/full")
def test_output_that_cannot_be_written_is_one_line():
    with open("/dev/full", "w") as full:
        done = call(["bench", "--list"], stdout=full)
    assert done.returncode == 1 and "No space left" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["info", "bench"])
def test_without_the_device_it_is_said(name):
    done = call([name], stdout=subprocess.PIPE, env={**os.environ, "MINITORCH_BACKEND": "none"})
    assert done.returncode == 1 and "needs the device" in done.stderr and "Traceback" not in done.stderr


@needs_the_cpu
def test_a_diff_ends_with_who_started_it(tmp_path):
    kernel = tmp_path / "hang.cpp"
    kernel.write_text(
        "// operator: aten::silu\nvoid silu(Tensor out, Tensor x) { for (volatile int i = 0;; i++) {} }\n"
    )
    code = f"from minitorch_backend.bench import kernel_diff; kernel_diff.diff(__import__('pathlib').Path({str(kernel)!r}))"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    try:
        end = time.time() + 120
        while not (children := psutil.Process(parent.pid).children()):
            assert parent.poll() is None and time.time() < end
            time.sleep(0.1)
        while not any("kernel_diff" in word for word in children[0].cmdline()):
            time.sleep(0.1)
        time.sleep(2)  # it is loading torch, and has asked to end with its parent or sees that it is gone
    finally:
        parent.kill()
        parent.wait()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive


def lower_limit():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))


def other_locale():
    locale.setlocale(locale.LC_ALL, "C" if locale.setlocale(locale.LC_ALL) != "C" else "C.UTF-8")


def other_locale_of_the_thread():
    C.newlocale.restype, C.newlocale.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p]
    C.uselocale.restype, C.uselocale.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
    C.uselocale(C.newlocale(1, b"C", None))


C = ctypes.CDLL(None)
CHANGES = {
    "gradients": lambda: torch.set_grad_enabled(False),
    "default_dtype": lambda: torch.set_default_dtype(torch.float64),
    "default_device": lambda: torch.set_default_device("minitorch"),
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "matmul precision": lambda: torch.set_float32_matmul_precision("medium"),
    "seed": lambda: torch.manual_seed(torch.initial_seed() + 1),
    "folder": lambda: os.chdir("/"),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "garbage collection": gc.disable,
    "umask": lambda: os.umask(0o123),
    "limits RLIMIT_NOFILE": lower_limit,
    "locale": other_locale,
    "locale of the thread": other_locale_of_the_thread,
    "signals SIGUSR2": lambda: signal.signal(signal.SIGUSR2, signal.SIG_IGN),
    "signals SIGTERM default is ignored": lambda: C.signal(ctypes.c_int(15), ctypes.c_void_p(1)),
    "signals SIGUSR1 default is handled by print": lambda: signal.signal(signal.SIGUSR1, print),
    "blocked signals () is ('SIGUSR2',) now": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2}),
    "environment MINITORCH_OF_A_TEST is another now": lambda: os.environ.update(MINITORCH_OF_A_TEST="b"),
    "environment MINITORCH_OF_A_TEST is unset now": lambda: os.environ.pop("MINITORCH_OF_A_TEST"),
    "MINITORCH_OF_A_TEST is another now": lambda: os.putenv("MINITORCH_OF_A_TEST", "c"),
    "environment MINITORCH_MORE is set now": lambda: os.environ.update(MINITORCH_MORE="d"),
    "more of environment": os.environ.clear,
    "MINITORCH_OF_A_TEST is unset now": lambda: C.clearenv(),
    "PATH is unset now": lambda: setattr(os, "environ", {}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_kernel_leaves_changed_is_named_and_put_back(name, monkeypatch):
    monkeypatch.setattr(process_state, "NAMED", 1000 if "more" not in name else 6)
    monkeypatch.setenv("MINITORCH_OF_A_TEST", "a")
    state, home = process_state.State.now(), os.environ
    CHANGES[name]()
    said = state.changes()
    assert name in said, said
    assert state.changes() == ""
    assert os.environ is home and os.environ["MINITORCH_OF_A_TEST"] == "a"


def test_what_compilers_set_for_themselves_is_no_change(monkeypatch):
    state = process_state.State.now()
    monkeypatch.setenv("TORCHINDUCTOR_OF_A_TEST", "a")
    assert state.changes() == "" and os.environ["TORCHINDUCTOR_OF_A_TEST"] == "a"


def test_a_folder_that_was_removed_is_no_failure(tmp_path, monkeypatch):
    state = process_state.State.now()
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "(a removed one) now" in state.changes()
    assert state.changes() == ""


@pytest.mark.skipif(not process_state.tasks(), reason="this system does not list threads")
def test_a_thread_that_is_left_is_told_from_those_that_end_or_are_torch_s():
    process_state.settle()
    before, threads, stop = process_state.tasks(), torch.get_num_threads(), threading.Event()
    threading.Thread(target=lambda: time.sleep(0.1)).start()
    assert process_state.left_threads(before) == []
    torch.set_num_threads(threads + 3)
    process_state.settle()
    torch.set_num_threads(threads)
    assert process_state.left_threads(before) == []
    threading.Thread(target=stop.wait, daemon=True).start()
    try:
        assert len(process_state.left_threads(before)) == 1
    finally:
        stop.set()


@needs_the_cpu
def test_a_kernel_file_has_headers_beside_it(tmp_path):
    """... with a byte order mark or another encoding in a comment, read as a program reads it too."""
    (tmp_path / "value.h").write_text("#define VALUE 7\n")
    text = b"""// operator: aten::silu
// caf\xe9
#include "value.h"
void silu(Tensor out, Tensor x) { for (int64_t i = 0; i < out.numel; i++) out.ptr<scalar_t>()[i] = VALUE; }
"""
    path = tmp_path / "silu.cpp"
    path.write_bytes(b"\xef\xbb\xbf" + text)
    x = torch.ones(3, device="minitorch")
    for made in (files.load(path)[0], kernels.override("aten::silu", source=path)):
        with made:
            assert F.silu(x).tolist() == [7, 7, 7]


MISUSED = {
    "a source that is a number": ({"source": 3}, TypeError, "a text or a pathlib.Path"),
    "flags that no shell reads": ({"source": "void silu() {}", "flags": '-O3 "'}, ValueError, "words of a shell"),
    "flags for a callable": ({"function": abs, "flags": "-O3"}, ValueError, "flags= would do nothing"),
    "a grid for C++": ({"source": "void silu() {}", "grid": abs}, ValueError, "grid= would do nothing"),
}


@needs_the_cpu
@pytest.mark.parametrize("name", MISUSED)
def test_an_override_says_what_it_cannot_take(name):
    options, kind, text = MISUSED[name]
    with pytest.raises(kind, match=text):
        kernels.override("aten::silu", **options)


RESULTS = {
    "a tuple": (lambda x: (x * 2,), "gave tuple of Tensor"),
    "a list": (lambda x: [x * 2], "gave list of Tensor"),
    "an expanded one": (lambda x: (x[:1] * 2).expand(x.shape), "is expanded"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_that_are_not_the_operators(name):
    function, text = RESULTS[name]
    with kernels.override("aten::silu", function), pytest.raises(kernels.KernelError, match=text):
        F.silu(torch.ones(4, device="minitorch"))


@pytest.mark.parametrize("name", ["class", "name", 3, "Upper", "a b"])
def test_names_that_no_operator_has(name):
    with pytest.raises(ValueError, match="cannot be an operator's name"):
        kernels.elementwise("x * x", name=name)
