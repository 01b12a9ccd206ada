"""CUDA kernels of a user's own, as far as no GPU is needed: what is kept of NVRTC's work, and a function for each device."""

import pytest
import torch

from minitorch_backend.kernels import CompileError, compiled, compiler, nvrtc, schema

SOURCE = '#include "minitorch_kernel.h"\n#include "mine.h"\n__global__ void silu(Tensor out, Tensor x) {}\n'
SILU = "__global__ void silu(Tensor out, Tensor x) {}"


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A fake NVRTC, whose code tells how often it was called; "mine.h" is in a folder that a flag names."""
    monkeypatch.setenv("MINITORCH_KERNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(nvrtc, "version", lambda: "13.0")
    monkeypatch.setattr(nvrtc, "cuda_headers", lambda: [tmp_path / "cuda"])
    (tmp_path / "mine.h").write_text('#include "inner.h"\n')
    (tmp_path / "inner.h").write_text("#ifdef NEVER\n#  include <far/deep.h>\n#endif\n")
    (tmp_path / "cuda" / "far").mkdir(parents=True)
    (tmp_path / "cuda" / "far" / "deep.h").write_text('#include "beside.h"\n')
    (tmp_path / "cuda" / "far" / "beside.h").write_text('#include "deep.h"\n')  # in a circle
    calls = []

    def compile_source(*given):
        calls.append(given)
        return b"\x7fELF\0code %d" % len(calls), b"_Z4silu6Tensor"

    monkeypatch.setattr(nvrtc, "compile_source", compile_source)
    return calls


def code(tmp_path, source=SOURCE, name="silu", architecture="sm_90", flags=()):
    return nvrtc.machine_code(source, name, architecture, (f"-I{tmp_path}", *flags))


def test_machine_code_is_made_once(made, tmp_path):
    first = code(tmp_path)
    assert first == (b"\x7fELF\0code 1", b"_Z4silu6Tensor") and code(tmp_path) == first and len(made) == 1
    (kept,) = (tmp_path / "cache").iterdir()
    assert kept.suffix == ".cubin"
    kept.write_bytes(kept.read_bytes()[:-7])  # a damaged file is made anew
    assert code(tmp_path)[0].endswith(b"2") and code(tmp_path)[0].endswith(b"2")


@pytest.mark.parametrize("header", ["mine.h", "inner.h", "cuda/far/deep.h", "cuda/far/beside.h"])
def test_a_header_that_has_changed_is_another_kernel(made, tmp_path, header):
    code(tmp_path)
    (tmp_path / header).write_text((tmp_path / header).read_text() + "// once more\n")
    assert code(tmp_path)[0].endswith(b"2")


def test_what_else_makes_another_kernel(made, tmp_path, monkeypatch):
    code(tmp_path)
    for number, other in enumerate(
        ({"source": SOURCE + "//"}, {"name": "other"}, {"architecture": "sm_80"}, {"flags": ("-DA=1",)}), 2
    ):
        assert code(tmp_path, **other)[0].endswith(b"%d" % number)
    monkeypatch.setattr(nvrtc, "version", lambda: "13.1")
    assert code(tmp_path)[0].endswith(b"6")
    headers = nvrtc.headers()
    monkeypatch.setattr(nvrtc, "headers", lambda: headers | {"core/half.h": "changed"})
    assert code(tmp_path)[0].endswith(b"7")


@pytest.mark.parametrize(
    "flags", [("-I{}",), ("-I", "{}"), ("--include-path={}",), ("--include-path", "{}")], ids=lambda f: " ".join(f)
)
def test_folders_of_headers_may_be_named_in_every_way(made, tmp_path, flags):
    given = [flag.format(tmp_path) for flag in flags]
    assert "NEVER" in nvrtc.what_may_be_read(SOURCE, given)
    (tmp_path / "first.h").write_text("// first of all\n")
    assert "first of all" in nvrtc.what_may_be_read(SOURCE, [*given, "--pre-include", "first.h"])


def test_a_failure_is_not_kept(made, tmp_path, monkeypatch):
    def fail(*given):
        raise CompileError("nonsense")

    with monkeypatch.context() as patch:
        patch.setattr(nvrtc, "compile_source", fail)
        with pytest.raises(CompileError, match="nonsense"):
            code(tmp_path)
    assert code(tmp_path)[0].endswith(b"1")


def test_nvrtc_s_work_is_told(made, tmp_path, monkeypatch):
    heard = []
    monkeypatch.setattr(compiler, "listeners", [heard.append])
    code(tmp_path)
    code(tmp_path)
    assert heard == ["the kernel silu", ""]


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(compiler, "cuda_architecture", lambda device=0: f"sm_{80 + 10 * device}")
    monkeypatch.setattr(torch.minitorch, "current_device", lambda: 1)


def test_a_function_of_nvrtc_s_belongs_to_a_device(two_gpus, monkeypatch):
    loaded = []
    monkeypatch.setattr(compiler, "nvcc", lambda: None)
    monkeypatch.setattr(nvrtc, "Function", lambda source, name, flags, device: loaded.append(device) or object())
    kernel = compiled.CompiledKernel(SILU, schema.find("aten::silu"), cuda=True)
    on = [kernel.prepare(torch.float32, device) for device in (0, 1, 0, 1)]
    assert loaded == [0, 1] and on[0] is on[2] is not on[1] is on[3]
    assert kernel.prepare(torch.float32) is on[1]  # the current device's
    assert kernel.prepare(torch.float64, 0) is not on[0] and loaded == [0, 1, 0]


def test_nvcc_compiles_for_the_device_that_runs(two_gpus, monkeypatch):
    asked = []

    class Library:
        def __init__(self):
            self.minitorch_call = lambda: 0

    def library(text, title, cuda, flags, architecture):
        asked.append(architecture)
        return Library()

    monkeypatch.setattr(compiler, "nvcc", lambda: "nvcc")
    monkeypatch.setattr(compiler, "library", library)
    kernel = compiled.CompiledKernel(SILU, schema.find("aten::silu"), cuda=True)
    for device in (0, 1, 0):
        kernel.prepare(torch.float32, device)
    assert asked == ["sm_80", "sm_90"]
