"""How long the diff of a user's kernel may take: each sample, each run of a compiler and the start for itself."""

import textwrap

import pytest

from minitorch_backend.bench import kernel_diff
from minitorch_backend.kernels import compiler
from tests.python.own_kernels import make_compiler, needs_the_cpu

LIMIT = 8.0  # of a sample, which takes milliseconds
SILU = """// operator: aten::silu
#include <cmath>
void silu(Tensor out, Tensor x) {
  for (int64_t i = 0; i < x.numel; i++) out.ptr<float>()[i] = x.ptr<float>()[i] / (1 + std::exp(-x.ptr<float>()[i]));
}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITORCH_KERNEL_CACHE", str(tmp_path / "cache"))


@needs_the_cpu
def test_a_compiler_may_take_longer_than_a_sample(tmp_path, monkeypatch):
    slow = tmp_path / "slow"
    make_compiler(slow, "-c", f"sleep {LIMIT + 4}")
    monkeypatch.setenv("CXX", str(slow))
    (tmp_path / "kernel.cpp").write_text(SILU)
    (finding,) = kernel_diff.diff(tmp_path / "kernel.cpp", LIMIT)
    assert finding.verdict == "ok", finding


@needs_the_cpu
def test_a_compiler_that_does_not_end_is_named(tmp_path, monkeypatch):
    stuck = tmp_path / "stuck"
    make_compiler(stuck, "-c", "sleep 600")
    monkeypatch.setenv("CXX", str(stuck))
    monkeypatch.setattr(compiler, "TIME_LIMIT", 2.0)  # of the parent; the child's own is longer
    monkeypatch.setattr(kernel_diff, "LATER", 2.0)
    (tmp_path / "kernel.cpp").write_text(SILU)
    (finding,) = kernel_diff.diff(tmp_path / "kernel.cpp", LIMIT)
    assert finding.verdict == "failed" and "did not end within 4 s" in finding.message
    assert "(at: the kernel for aten::silu)" in finding.message


def test_samples_together_may_take_longer_than_one(tmp_path):
    (tmp_path / "kernel.py").write_text(
        textwrap.dedent(f"""
            import time, torch
            from minitorch_backend import kernels

            def silu(x):
                time.sleep({LIMIT / 8})
                return x * torch.sigmoid(x)

            kernels.override("aten::silu", silu, dtypes=[torch.float32])
        """)
    )
    (finding,) = kernel_diff.diff(tmp_path / "kernel.py", LIMIT)
    assert finding.verdict == "ok" and finding.samples * LIMIT / 8 > LIMIT


def test_a_file_that_does_not_load_in_time_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_diff, "START_LIMIT", 10.0)
    (tmp_path / "kernel.py").write_text("import time\ntime.sleep(600)\n")
    (finding,) = kernel_diff.diff(tmp_path / "kernel.py", 1.0)
    assert "did not end within 10 s and was stopped\n(at: loading the file)" in finding.message


def test_a_sample_that_hangs_is_named(tmp_path):
    (tmp_path / "kernel.py").write_text(
        "import time, torch\nfrom minitorch_backend import kernels\n"
        "kernels.override('aten::silu', lambda x: time.sleep(600), dtypes=[torch.float32])\n"
    )
    (finding,) = kernel_diff.diff(tmp_path / "kernel.py", 1.0)
    assert "did not end within 1 s and was stopped\n(at: nn_functional_silu, sample 0: shapes" in finding.message


def test_steps_are_told_apart(tmp_path):
    note = kernel_diff.Note(tmp_path)
    assert kernel_diff.read_note(tmp_path) == ("start", kernel_diff.START)
    note("silu, sample 1", kernel_diff.SAMPLE)
    note.compiling("the kernel for aten::silu")
    assert kernel_diff.read_note(tmp_path) == ("the kernel for aten::silu", kernel_diff.COMPILING)
    note.compiling("")
    assert kernel_diff.read_note(tmp_path) == ("silu, sample 1", kernel_diff.SAMPLE)
