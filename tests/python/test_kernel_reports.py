"""What ``minitorch bench --kernel`` says about kernels that are wrong, crash, hang or do not compile."""

import re

import pytest
import torch

from minitorch_backend.bench import kernel_diff

pytestmark = pytest.mark.skipif(
    torch.minitorch.get_device_properties(0).backend != "cpu", reason="the sources are for the CPU"
)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("MINITORCH_KERNEL_CACHE", str(tmp_path_factory.getbasetemp() / "kernels"))


HEAD = "// operator: aten::silu\n"
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
    "does not compile": ("nonsense", "failed", "error: .*nonsense"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_kernels_get_a_clear_report(tmp_path, name):
    body, verdict, message = HOSTILE[name]
    path = tmp_path / "kernel.cpp"
    path.write_text(f"{HEAD}#include <cmath>\nvoid silu(Tensor out, Tensor x) {{ {body} }}\n")
    findings = kernel_diff.diff(path, time_limit=12 if name == "hangs" else 120)
    assert [f.verdict for f in findings] == [verdict], findings
    assert re.search(message, findings[0].message), findings[0].message
    if verdict == "ok":
        assert findings[0].samples >= 4


def test_wrong_shape_in_a_file(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text("from minitorch_backend import kernels\nkernels.override('aten::silu', lambda x: x[:0])\n")
    (finding,) = kernel_diff.diff(path)
    assert finding.verdict == "failed" and "the operator's has" in finding.message
