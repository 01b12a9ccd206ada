"""The diff of a user's kernel looks at gradients, which an override may break while its results are right."""

import pytest

from minitorch_backend.bench import kernel_diff
from tests.python.own_kernels import needs_the_cpu

SILU, SLOPE = "x / (1 + exp(-x))", "(1 + exp(-x) * (1 + x)) / (1 + exp(-x)) ** 2"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("MINITORCH_KERNEL_CACHE", str(tmp_path_factory.getbasetemp() / "kernels"))


def elementwise(text, operator, **grad):
    return f"kernels.elementwise({text!r}, override={operator!r}, dtypes=[torch.float32], **{grad!r})"


KERNELS = {
    "right": (elementwise(SILU, "aten::silu", grad=SLOPE), "ok", ""),
    "wrong slope": (elementwise(SILU, "aten::silu", grad="1 / (1 + exp(-x))"), "wrong", "its gradient is wrong"),
    "a slope that is nearly right": (
        elementwise(SILU, "aten::silu", grad=f"1.0001 * ({SLOPE})"), "wrong", "its gradient is wrong",
    ),
    "slopes the other way round": (elementwise("a * b", "aten::mul.Tensor", grad=("a", "b")), "wrong", "its gradient"),
    "slopes the right way round": (elementwise("a * b", "aten::mul.Tensor", grad=("b", "a")), "ok", ""),
    "no slope of its own": (elementwise(SILU, "aten::silu"), "ok", ""),
    "wrong result": (elementwise("x * x", "aten::silu", grad="2 * x"), "wrong", ", sample "),
    "a step of a gradient": (
        "kernels.override('aten::silu_backward', lambda up, x: up * 0, dtypes=[torch.float32])", "wrong", "its gradient",
    ),
    "a step of a gradient that is right": (
        "kernels.override('aten::sigmoid_backward', lambda up, y: up * y * (1 - y), dtypes=[torch.float32])", "ok", "",
    ),
    "a step that fails": (
        "kernels.override('aten::silu_backward', lambda up, x: up.undefined(), dtypes=[torch.float32])", "failed",
        "the gradient of sample",
    ),
}  # fmt: skip


@needs_the_cpu
@pytest.mark.parametrize("name", KERNELS)
def test_gradients_are_compared(tmp_path, name):
    line, verdict, says = KERNELS[name]
    (tmp_path / "kernel.py").write_text(f"import torch\nfrom minitorch_backend import kernels\n{line}\n")
    (finding,) = kernel_diff.diff(tmp_path / "kernel.py")
    assert finding.verdict == verdict and says in finding.message, finding
    assert finding.samples > 0 or verdict == "failed"
    assert "gradient" not in says or "the gradient of sample" in finding.message


@needs_the_cpu
def test_integers_have_none(tmp_path):
    (tmp_path / "kernel.py").write_text(
        "import torch\nfrom minitorch_backend import kernels\n"
        "kernels.override('aten::neg', lambda x: x * -1, dtypes=[torch.int64])\n"
    )
    (finding,) = kernel_diff.diff(tmp_path / "kernel.py")
    assert finding.verdict == "ok"
