"""Compiling a user's source: what makes it another kernel, and what is left of a compiler that is stopped."""

import os
import pathlib
import signal
import subprocess
import textwrap
import threading
import time

import psutil
import pytest
import torch
import torch.nn.functional as F

from minitorch_backend import kernels
from minitorch_backend.kernels import compiler
from tests.python.own_kernels import make_compiler, needs_the_cpu

SOURCE = """#include {}
void silu(Tensor out, Tensor x) {{
  for (int64_t i = 0; i < out.numel; i++) out.ptr<scalar_t>()[i] = VALUE;
}}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITORCH_KERNEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@needs_the_cpu
def test_a_header_of_the_system_that_has_changed_is_another_kernel(tmp_path, monkeypatch, cache):
    """... found without any flag, in the folders that the compiler looks through by itself."""
    monkeypatch.setenv("CPATH", f"{tmp_path / 'first'}:{tmp_path / 'second'}")
    x = torch.ones(3, device="minitorch")
    for number, (folder, value) in enumerate((("second", 5), ("second", 6), ("first", 7)), 1):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "value.h").write_text(f"#define VALUE {value}\n")
        for _ in range(2):
            with kernels.override("aten::silu", source=SOURCE.format("<value.h>")):
                assert F.silu(x).eq(value).all()
        assert len(list(cache.iterdir())) == number


@needs_the_cpu
def test_a_header_of_the_project_through_another_one(tmp_path, monkeypatch):
    (tmp_path / "outer.h").write_text('#include "inner.h"\n')
    for value in (5, 6):
        (tmp_path / "inner.h").write_text(f"#define VALUE {value}\n")
        with kernels.override("aten::silu", source=SOURCE.format(f'"{tmp_path}/outer.h"')):
            assert F.silu(torch.ones(3, device="minitorch")).eq(value).all()


@needs_the_cpu
def test_what_is_compiled_already_is_found_fast(tmp_path, monkeypatch):
    kernels.override("aten::silu", source=SOURCE.format("<cmath>").replace("VALUE", "1")).restore()
    begun, ran = time.perf_counter(), []
    run = compiler.run_program
    monkeypatch.setattr(compiler, "run_program", lambda command, folder: (ran.append(command), run(command, folder))[1])
    kernels.override("aten::silu", source=SOURCE.format("<cmath>").replace("VALUE", "1")).restore()
    assert len(ran) == 1 and "-E" in ran[0] and time.perf_counter() - begun < 2


@pytest.mark.skipif(compiler.nvcc() is None, reason="no nvcc")
def test_a_header_that_has_changed_is_another_cuda_kernel(tmp_path):
    """... also where only the device's part looks at it."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "value.h").write_text("#ifdef __CUDA_ARCH__\n#define VALUE 5\n#endif\n")
    source = '#include "minitorch_kernel.h"\n#include "value.h"\n__global__ void f() {}\n'
    names = []
    for text in ("5", "5", "6"):
        (folder / "value.h").write_text(f"#ifdef __CUDA_ARCH__\n#define VALUE {text}\n#endif\n")
        names.append(compiler.build(source, "f", cuda=True, flags=(f"-I{folder}",), architecture="sm_90").name)
    assert names[0] == names[1] != names[2]


def stuck_compiler(folder: pathlib.Path) -> pathlib.Path:
    """A driver that leaves the work to another program, which does not end."""
    path = folder / "stuck"
    path.write_text(
        textwrap.dedent(f"""\
            #!/bin/sh
            case "$*" in *--version*) echo stuck; exit 0;; esac
            sh -c 'echo $$ > {folder}/worker; exec sleep 600' &
            wait
        """)
    )
    path.chmod(0o755)
    return path


def worker(folder: pathlib.Path) -> int:
    deadline = time.monotonic() + 30
    while not (folder / "worker").exists() or not (folder / "worker").read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int((folder / "worker").read_text())


def is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


@needs_the_cpu
def test_a_compiler_that_is_stopped_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(stuck_compiler(tmp_path)))
    monkeypatch.setattr(compiler, "TIME_LIMIT", 1.0)
    with pytest.raises(kernels.CompileError, match="the compiler did not end within 1 s"):
        kernels.override("aten::silu", source="void silu(Tensor out, Tensor x) {}")
    assert is_gone(worker(tmp_path)) and not kernels.active()


@needs_the_cpu
def test_a_compiler_that_is_interrupted_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(stuck_compiler(tmp_path)))

    def interrupt():
        worker(tmp_path)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            kernels.override("aten::silu", source="void silu(Tensor out, Tensor x) {}")
    finally:
        signal.signal(signal.SIGINT, before)
    assert is_gone(worker(tmp_path)) and not kernels.active()


@needs_the_cpu
def test_a_compiler_that_does_not_even_say_its_version_is_said(tmp_path, monkeypatch):
    path = tmp_path / "mute"
    make_compiler(path, "--version", "exec sleep 600")
    monkeypatch.setenv("CXX", str(path))
    monkeypatch.setattr(compiler, "TIME_LIMIT", 5.0)
    with pytest.raises(kernels.CompileError, match="mute --version did not end within 5 s"):
        kernels.override("aten::silu", source="void silu(Tensor out, Tensor x) {}")


def test_a_message_in_any_encoding_is_shown(tmp_path):
    done = compiler.run_program(["sh", "-c", r"printf 'caf\351'; exit 3"], tmp_path)
    assert isinstance(done, subprocess.CompletedProcess) and done.returncode == 3 and done.stdout == "caf\ufffd"
