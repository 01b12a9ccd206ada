"""What ``minitorch bench --kernel`` says about kernels that are wrong, crash, hang or do not compile."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from minitorch_backend.bench import kernel_diff
from minitorch_backend.kernels import CompileError, files
from tests.python.own_kernels import needs_the_cpu

pytestmark = needs_the_cpu


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("MINITORCH_KERNEL_CACHE", str(tmp_path_factory.getbasetemp() / "kernels"))


ROOT = pathlib.Path(__file__).parents[2]
HEAD = "// operator: aten::silu\n"
INCLUDES = "".join(f"#include <{name}>\n" for name in ("cassert", "cmath", "cstdio", "cstdlib", "thread", "unistd.h"))
LOOP = "for (int64_t i = 0; i < x.numel; i++) out.ptr<float>()[i] = "
VALUE = "x.ptr<float>()[i] / (1 + std::exp(-x.ptr<float>()[i]));"
HOSTILE = {
    "right": (f"{LOOP}{VALUE}", "ok", ""),
    "wrong": (f"{LOOP} 0;", "wrong", "silu, sample"),
    "writes past the end": (
        f"{LOOP}{VALUE} out.ptr<float>()[out.numel + 3] = 1;",
        "failed",
        "outside|canar|guard|overw",
    ),
    "reads unwritten memory": ("", "wrong", "silu"),
    "hangs": ("for (volatile int i = 0;; i++) {}", "failed", "did not end within"),
    "crashes": ("*reinterpret_cast<volatile int*>(8) = 1;", "failed", "killed by SIGSEGV"),
    "throws": ('throw std::runtime_error("enough");', "failed", "enough"),
    "throws in a thread": (
        'parallel_for(x.numel, 1, [](int64_t, int64_t) { throw std::runtime_error("enough"); });',
        "failed",
        "the kernel for aten::silu failed: enough",
    ),
    "throws where nothing catches": (
        'std::thread([] { throw std::runtime_error("enough"); }).join();',
        "failed",
        "(?s)SIGABRT.*enough",
    ),
    "asserts": ("assert(x.numel > 1000000);", "failed", "(?s)SIGABRT.*x.numel > 1000000"),
    "ends the process": ("std::exit(0);", "failed", "ended the process"),
    "writes before its result": (f"{LOOP}{VALUE} out.ptr<float>()[-2] = 1;", "failed", "outside|canar|guard|overw"),
    "writes into its input": (
        f"{LOOP}{VALUE} if (x.numel > 0) x.ptr<float>()[0] = 0;",
        "wrong",
        "writes into its input",
    ),
    "prints": (f'std::printf("no end of line"); std::fflush(stdout); {LOOP}{VALUE}', "ok", ""),
    "forks": (f"static int calls = 0; if (calls++ == 3) fork(); {LOOP}{VALUE}", "failed", "starts a process"),
    "does not compile": ("nonsense", "failed", "error: .*nonsense"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_kernels_get_a_clear_report(tmp_path, name):
    body, verdict, message = HOSTILE[name]
    path = tmp_path / "kernel.cpp"
    path.write_text(f"{HEAD}{INCLUDES}void silu(Tensor out, Tensor x) {{ {body} }}\n")
    findings = kernel_diff.diff(path, time_limit=12 if name == "hangs" else 120)
    assert [f.verdict for f in findings] == [verdict], findings
    assert re.search(message, findings[0].message), findings[0].message
    if verdict == "ok":
        assert findings[0].samples >= 4


# An operator each, so that one process looks at all; the last one ends it.
PYTHON = {
    "silu": ("x[:0]", "failed", "the operator's has"),
    "exp": ("x.half()", "failed", "dtype torch.float16, the operator's has torch.float32"),
    "sin": ("x.cpu()", "failed", "is on cpu, not on minitorch"),
    "cos": ("None", "failed", "gave NoneType"),
    "neg": ("x.mul_(-1).clone()", "wrong", "writes into its input"),
    "abs": ("x", "failed", "gives its input or a view of it"),
    "clone": ("x.view(-1).view(x.shape) if x.is_contiguous() else x", "failed", "gives its input or a view of it"),
    "erf": ("undefined(x)", "failed", "name 'undefined' is not defined"),
    "sqrt": (
        "kept.setdefault(x.shape, torch.empty_like(x)).copy_(x.sqrt())",
        "wrong",
        "each call gives the same memory",
    ),
    "tril": ("x.tril(*others).mT.contiguous().mT", "other strides", ", the operator's has ("),
    "sinh": (
        "(threading.Thread(target=time.sleep, args=(60,), daemon=True).start(), x.sinh())[1]",
        "failed",
        "starts a thread and leaves it",
    ),
    "cosh": ("(signal.signal(signal.SIGUSR2, signal.SIG_IGN), x.cosh())[1]", "failed", "signals SIGUSR2"),
    "tanh": ("sys.exit(0)", "failed", "ended the process"),
}


def test_wrong_results_of_callables(tmp_path):
    path = tmp_path / "kernel.py"
    lines = [
        f"kernels.override('aten::{name}', lambda x, *others, **options: {body}, dtypes=[torch.float32])"
        for name, (body, _, _) in PYTHON.items()
    ]
    head = "import signal, sys, threading, time, torch\nfrom minitorch_backend import kernels\nkept = {}\n"
    path.write_text(head + "\n".join(lines))
    findings = kernel_diff.diff(path)
    assert len(findings) == len(PYTHON)
    for finding, (_, verdict, message) in zip(findings, PYTHON.values(), strict=True):
        assert finding.verdict == verdict and message in finding.message, finding


def test_a_file_that_changes_the_process_when_it_is_loaded(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(
        "import os, torch\nfrom minitorch_backend import kernels\nos.environ['OF_A_TEST'] = 'read by a compiler'\n"
        "torch.set_num_threads(torch.get_num_threads() + 1)\nkernels.override('aten::silu', lambda x: x * x.sigmoid())"
    )
    (load, *found) = kernel_diff.diff(path)
    assert load.verdict == "failed" and re.search(r"when it is loaded: threads \d+ is \d+ now$", load.message), load
    assert {f.verdict for f in found} == {"ok"}


def test_files_that_stay_open_and_a_name_of_the_library_s(tmp_path):
    """A file may be called as a module is: here is an operator, and what a child imports is not this."""
    path = tmp_path / "select.py"
    path.write_text(
        "import os, torch\nfrom minitorch_backend import kernels\n"
        "kernels.override('aten::silu', lambda x: (os.open('/dev/null', 0), x * torch.sigmoid(x))[1])\n"
    )
    script = tmp_path / "diff"
    script.write_text(
        f"import pathlib\nfrom minitorch_backend.bench import kernel_diff\n"
        f"print(*kernel_diff.diff(pathlib.Path({str(path)!r})))\n"
    )
    safe = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", f"import runpy, sys; sys.path.pop(0); runpy.run_path({str(script)!r})"]
    done = subprocess.run(command, cwd=tmp_path, env=safe, capture_output=True, text=True, timeout=200)
    assert "the kernel leaves files open" in done.stdout, done.stdout + done.stderr


def test_a_kernel_for_every_dtype_is_tried_with_several(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(
        "import torch\nfrom minitorch_backend import kernels\n"
        "kernels.override('aten::silu', lambda x: x * torch.sigmoid(x) * (2 if x.dtype == torch.float64 else 1))\n"
    )
    findings = kernel_diff.diff(path)
    assert [(f.dtype, f.verdict) for f in findings] == [("float32", "ok"), ("float64", "wrong")]


FILES = {
    "empty.cpp": (b"", "does not say what it is for"),
    "latin.cpp": (b"\xef\xbb\xbf" + HEAD.encode() + b"// caf\xe9\n", "void silu(Tensor out, Tensor self)"),
    "dtype.cpp": (HEAD.encode() + b"// dtypes: fp32\n", "not a list of dtypes"),
    "composed.cpp": (b"// operator: aten::softmax\n", "override aten::_softmax"),
    "unknown.cpp": (b"// operator: aten::sillu\n", "near matches: silu"),
    "lists.cpp": (b"// operator: aten::_foreach_add.Scalar\n", "use a Python callable"),
    "name.cpp": (HEAD.encode() + b"void my_silu(Tensor out, Tensor x) {}\n", "void silu(Tensor out, Tensor self)"),
    "text.txt": (b"", "a kernel file ends in"),
    "nothing.py": (b"print(1)\n", "calls neither"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_no_kernels(tmp_path, name):
    text, message = FILES[name]
    (tmp_path / name).write_bytes(text)
    with pytest.raises((ValueError, LookupError, CompileError)) as error:
        for override in files.load(tmp_path / name):
            override.install()
    assert message in f"{error.type.__name__}: {error.value}"
