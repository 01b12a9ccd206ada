"""Kernels of a user's own: operators replaced and restored, elementwise expressions, and what is wrong with bad ones."""

import re
import subprocess

import pytest
import torch
import torch.nn.functional as F

from minitorch_backend import kernels
from minitorch_backend.kernels import compiled, compiler, expression, files, nvrtc, pointwise, schema
from tests.python.own_kernels import needs_the_cpu

pytestmark = needs_the_cpu

SILU = """
#include <cmath>
void silu(Tensor out, Tensor x) {
  const auto* a = x.ptr<const scalar_t>();
  auto* o = out.ptr<scalar_t>();
  parallel_for(x.numel, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) o[i] = opmath_t(a[i]) / (1 + std::exp(-opmath_t(a[i])));
  });
}
"""


@pytest.fixture(autouse=True)
def nothing_stays(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("MINITORCH_KERNEL_CACHE", str(tmp_path_factory.getbasetemp() / "kernels"))
    yield
    left = kernels.active()
    kernels.restore_all()
    assert not left


@pytest.fixture
def x():
    return torch.randn(50, 30, generator=torch.Generator().manual_seed(0))


def test_callable_replaces_and_restores(x):
    d = x.to("minitorch")
    with kernels.override("aten::silu", lambda t: t * 0) as made:
        assert F.silu(d).abs().max() == 0 and made.calls == 1 and kernels.active() == [made]
        out = torch.empty(50, 30, device="minitorch")
        torch.ops.aten.silu.out(d, out=out)
        assert out.abs().max() == 0
        assert F.silu(d.clone(), inplace=True).abs().max() == 0 and made.calls == 3
        assert torch.equal(F.silu(x), F.silu(x.clone())), "native is untouched"
    torch.testing.assert_close(F.silu(d).cpu(), F.silu(x))
    made.restore()  # once more does nothing


def test_restored_after_an_exception(x):
    d = x.to("minitorch")
    with pytest.raises(ZeroDivisionError), kernels.override("aten::silu", lambda t: 1 / 0):
        F.silu(d)
    torch.testing.assert_close(F.silu(d).cpu(), F.silu(x))


def test_original_is_there_inside_a_kernel_and_for_other_dtypes(x):
    d = x.to("minitorch")
    with kernels.override("aten::silu", lambda t: F.silu(t) * 2, dtypes=[torch.float32]) as made:
        torch.testing.assert_close(F.silu(d).cpu(), 2 * F.silu(x))
        torch.testing.assert_close(F.silu(d.double()).cpu(), F.silu(x.double()))
        assert made.calls == 1


def test_overrides_nest(x):
    d = x.to("minitorch")
    outer = kernels.override("aten::silu", lambda t: t * 0 + 1)
    with kernels.override("aten::silu", lambda t: F.silu(t) * 0 + 2):
        assert F.silu(d).mean() == 2
    assert F.silu(d).mean() == 1
    outer.restore()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_cpp_kernel(x, dtype):
    x = x.to(dtype)
    d = x.to("minitorch")
    with kernels.override("aten::silu", source=SILU) as made:
        for view in (lambda t: t, lambda t: t.t(), lambda t: t[::2, 1:], lambda t: t[0, 0], lambda t: t[:0]):
            expected = F.silu(view(x))
            found = F.silu(view(d))
            torch.testing.assert_close(found.cpu(), expected)
            assert found.stride() == expected.stride()
        assert made.calls == 5


def test_cpp_kernel_keeps_gradients(x):
    native, ours = x.clone().requires_grad_(), x.to("minitorch").requires_grad_()
    with kernels.override("aten::silu", source=SILU):
        F.silu(ours).sum().backward()
    F.silu(native).sum().backward()
    torch.testing.assert_close(ours.grad.cpu(), native.grad)


def test_cpp_kernel_takes_numbers_lists_and_optional_tensors(x):
    source = """
    void native_layer_norm(Tensor y, Tensor mean, Tensor rstd, Tensor x, IntList shape, Tensor w, Tensor b, double eps) {
      if (shape.size != 1 || shape[0] != 30 || w.data != nullptr || b.numel != 30) throw std::runtime_error("arguments");
      for (int64_t i = 0; i < y.numel; i++) y.ptr<float>()[i] = float(eps);
    }"""
    with kernels.override("aten::native_layer_norm", source=source):
        found = F.layer_norm(x.to("minitorch"), (30,), None, torch.ones(30, device="minitorch"), 0.25)
    assert torch.equal(found.cpu(), torch.full_like(x, 0.25))


def test_cpp_kernel_with_strides(x):
    source = "void silu(Tensor out, Tensor x) { out.ptr<float>()[0] = float(x.stride(0)); }"
    with kernels.override("aten::silu", source=source, strided=True):
        assert F.silu(x.to("minitorch").t())[0, 0] == 1


def test_exception_in_a_kernel_is_an_error(x):
    source = 'void silu(Tensor, Tensor) { throw std::runtime_error("enough"); }'
    message = "the kernel for aten::silu failed: enough"
    with kernels.override("aten::silu", source=source), pytest.raises(kernels.KernelError, match=message):
        F.silu(x.to("minitorch"))


def test_compiler_message_is_shown(x):
    with pytest.raises(kernels.CompileError, match=r"silu:2:\d+: error: .*undeclared_name"):
        kernels.override("aten::silu", source="void silu(Tensor out, Tensor x) {\n undeclared_name(); }")
    with pytest.raises(kernels.CompileError, match="too many arguments"):
        kernels.override("aten::silu", source="void silu(Tensor out) {}")
    torch.testing.assert_close(F.silu(x.to("minitorch")).cpu(), F.silu(x))


def test_compiled_once(monkeypatch):
    source = SILU + f"// {torch.seed()}"
    kernels.override("aten::silu", source=source).restore()
    run = compiler._run
    again = lambda commands, *a: run(commands, *a) if "-E" in commands[0] else pytest.fail("compiled again")  # noqa: E731
    monkeypatch.setattr(compiler, "_run", again)
    kernels.override("aten::silu", source=source).restore()


CUDA_SILU = """
__global__ void f(const scalar_t* x, scalar_t* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = opmath_t(x[i]) / (1 + expf(-opmath_t(x[i])));
}
void silu(Tensor out, Tensor x, cudaStream_t stream) {
  f<<<(x.numel + 255) / 256, 256, 0, stream>>>(x.ptr<scalar_t>(), out.ptr<scalar_t>(), x.numel);
}
"""
CUDA_POINTWISE = pointwise.cuda_source("silu", expression.parse("x / (1 + exp(-x)) if x > 0 else tanh(x) ** 3"))


@pytest.mark.skipif(compiler.nvcc() is None, reason="no nvcc")
@pytest.mark.parametrize("source", [CUDA_SILU, CUDA_POINTWISE], ids=["launches itself", "elementwise"])
def test_cuda_sources_compile(monkeypatch, source):
    monkeypatch.setattr(compiler, "cuda_architecture", lambda: "sm_80")
    text = compiled.wrap(source, schema.find("aten::silu"), torch.bfloat16, 1, cuda=True)
    assert compiler.build(text, "silu", cuda=True).exists()


def test_nvrtc_compiles(monkeypatch):
    try:
        nvrtc.library()
    except kernels.CompileError:
        pytest.skip("no NVRTC")
    source = compiled.prelude("silu", torch.bfloat16, CUDA_POINTWISE)
    code, name = nvrtc.compile_source(source, "silu", "sm_90")
    assert b"silu" in name and code[:4] == b"\x7fELF"
    with pytest.raises(kernels.CompileError, match=r"(?s)error: .*nonsense"):
        nvrtc.compile_source(compiled.prelude("silu", torch.float32, "\nnonsense"), "silu", "sm_90")
    monkeypatch.setattr(compiler, "nvcc", lambda: None)
    with pytest.raises(kernels.CompileError, match="NVRTC takes a __global__ function silu"):
        compiled.CompiledKernel(CUDA_SILU, schema.find("aten::silu"), cuda=True).prepare(torch.float32)


def test_headers_stand_without_a_standard_library(tmp_path):
    """What a CUDA source includes is complete with the texts that NVRTC is given, which has no others."""
    for name, text in nvrtc.headers().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    source = tmp_path / "kernel.cu"
    source.write_text(compiled.prelude("silu", torch.float32, CUDA_POINTWISE))
    options = ["-E", "-x", "c++", "-std=c++20", "-nostdinc", "-nostdinc++", "-D__CUDACC_RTC__", f"-I{tmp_path}"]
    done = subprocess.run([compiler.cxx(), *options, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_names():
    with pytest.raises(LookupError, match="near matches: silu"):
        kernels.override("aten::sillu", lambda x: x)
    with pytest.raises(LookupError, match="override aten::_softmax"):
        kernels.override("aten::softmax.int", lambda x: x)
    with pytest.raises(LookupError, match=r"several forms; name one: add\.Tensor, add\.Scalar"):
        kernels.override("aten::add", lambda x, y: x)
    with pytest.raises(LookupError, match="no overload 'Tensors'"):
        kernels.override("aten::add.Tensors", lambda x, y: x)
    with pytest.raises(LookupError, match="writes into its argument"):
        kernels.override("aten::silu_", lambda x: x)
    found = schema.find("aten::add.Tensor")
    assert (found.inplace.name(), found.out.name(), found.base) == ("aten::add_.Tensor", "aten::add.out", "add")


def test_exactly_one_kernel():
    with pytest.raises(ValueError, match="give one of"):
        kernels.override("aten::silu")
    with pytest.raises(ValueError, match="give one of"):
        kernels.override("aten::silu", lambda x: x, source=SILU)
    with pytest.raises(ValueError, match="runs on the CPU: give source="):
        kernels.override("aten::silu", cuda=SILU)
    with pytest.raises(ValueError, match="needs a GPU"):
        kernels.override("aten::silu", triton=object())


@pytest.mark.parametrize(
    "function,message",
    [
        (lambda t: t[:3], r"has shape \(3, 30\), the operator's has \(50, 30\)"),
        (lambda t: t.double(), r"has dtype torch\.float64, the operator's has torch\.float32"),
        (lambda t: t.cpu(), "is on cpu, not on minitorch"),
        (lambda t: None, r"gave NoneType; the operator gives 1 tensor"),
    ],
    ids=["shape", "dtype", "device", "nothing"],
)
def test_wrong_results_are_refused(x, function, message):
    d = x.to("minitorch")
    with kernels.override("aten::silu", function), pytest.raises(kernels.KernelError, match=message):
        F.silu(d)
    torch.testing.assert_close(F.silu(d).cpu(), F.silu(x))


def test_native_errors_stay(x):
    source = "void mm(Tensor out, Tensor a, Tensor b) {}"
    with pytest.raises(RuntimeError) as native:
        torch.mm(x, x)
    with kernels.override("aten::mm", source=source), pytest.raises(RuntimeError, match=re.escape(str(native.value))):
        torch.mm(x.to("minitorch"), x.to("minitorch"))


SILU_TEXT, SILU_GRAD = "x / (1 + exp(-x))", "(1 + exp(-x) * (1 + x)) / (1 + exp(-x)) ** 2"


def test_elementwise_is_a_new_operator(x):
    op = kernels.elementwise(SILU_TEXT, grad=SILU_GRAD, name="my_silu")
    assert op.overload is torch.ops.minitorch_user.my_silu.default
    ours, native = x.to("minitorch").requires_grad_(), x.clone().requires_grad_()
    torch.testing.assert_close(op(ours).cpu(), F.silu(x))
    torch.testing.assert_close(op(native), F.silu(x))
    op(ours).sum().backward()
    F.silu(native).sum().backward()
    torch.testing.assert_close(ours.grad.cpu(), native.grad)
    torch.testing.assert_close(op(x.bfloat16().to("minitorch")).cpu(), F.silu(x.bfloat16()))
    assert (
        op(x.to("minitorch").t()[3:]).shape == (27, 50)
        and op(torch.arange(3, device="minitorch")).dtype == torch.float32
    )
    with pytest.raises(ValueError, match="is an operator minitorch_user::my_silu already"):
        kernels.elementwise("x", name="my_silu")
    with pytest.raises(TypeError, match="real numbers"):
        op(torch.ones(2, dtype=torch.complex64, device="minitorch"))


def test_elementwise_of_two_inputs_broadcasts_and_differentiates():
    op = kernels.elementwise(
        "x * tanh(y) if x > 0 else y ** 2",
        grad=("where(x > 0, tanh(y), 0 * x)", "where(x > 0, x * (1 - tanh(y) ** 2), 2 * y)"),
    )
    x, y = (torch.randn(s, dtype=torch.float64, device="minitorch", requires_grad=True) for s in ((4, 1), (3,)))
    assert torch.autograd.gradcheck(op, (x, y))
    torch.library.opcheck(op.overload, (x.detach().cpu().requires_grad_(), y.detach().cpu().requires_grad_()))
    torch.testing.assert_close(op(x, y).cpu(), op(x.cpu(), y.cpu()))


def test_elementwise_overrides(x):
    native = x.clone().requires_grad_()
    F.silu(native).sum().backward()
    for grad in (SILU_GRAD, None):
        ours = x.to("minitorch").requires_grad_()
        with kernels.elementwise(SILU_TEXT, grad=grad, override="aten::silu") as made:
            result = F.silu(ours)
            result.sum().backward()
            assert made.calls == 1
        torch.testing.assert_close(result.detach().cpu(), F.silu(x))
        torch.testing.assert_close(ours.grad.cpu(), native.grad)
    with kernels.elementwise("x + 2 * y", override="aten::add.Tensor"):
        assert torch.equal((x.to("minitorch") + x.to("minitorch")).cpu(), x + 2 * x)


def test_elementwise_without_gradient_says_so(x):
    op = kernels.elementwise("2 * x")
    with pytest.raises(RuntimeError, match="has no gradient: give kernels"):
        op(x.to("minitorch").requires_grad_()).sum().backward()


FUNCTIONS = sorted(set(expression.FUNCTIONS) - {"where", "min", "max", "pow", "atan2"})


def test_every_function_of_an_expression():
    x = torch.linspace(0.05, 0.95, 64, dtype=torch.float64)
    terms = [f"{name}(x + 1)" if name == "acosh" else f"{name}(x)" for name in FUNCTIONS]
    terms += [
        "min(x, 0.5)",
        "max(0.5, x)",
        "pow(x, 1.5)",
        "atan2(x, 2)",
        "where(x < 0.5, x, -x)",
        "x ** 5",
        "x ** 0.5",
        "-x + pi",
    ]
    for part in (terms[::2], terms[1::2]):
        op = kernels.elementwise(" + ".join(f"{k + 1} * ({term})" for k, term in enumerate(part)))
        torch.testing.assert_close(op(x.to("minitorch")).cpu(), op(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "text,message",
    [
        ("x +", "is not an expression"),
        ("import os", "is not an expression"),
        ("x.y", "'x.y' is not understood"),
        ("foo(x)", r"'foo\(x\)' is not understood; known are"),
        ("__import__('os')", "is not understood"),
        ("exp(x, y)", "exp takes 1 argument"),
        ("1 + 2", "has no input"),
        ("upstream * 2", "have meanings in gradients"),
    ],
)
def test_bad_expressions(text, message):
    with pytest.raises(ValueError, match=message):
        kernels.elementwise(text)


def test_bad_gradients():
    with pytest.raises(ValueError, match="no derivative by y"):
        kernels.elementwise("x * y", grad="y")
    with pytest.raises(ValueError, match="'z'"):
        kernels.elementwise("x * x", grad="2 * z")


def write(tmp_path, body, suffix=".cpp"):
    path = tmp_path / f"kernel{suffix}"
    path.write_text(body)
    return path


def test_kernel_files(tmp_path):
    (made,) = files.load(write(tmp_path, "// operator: aten::silu\n// dtypes: float32, bfloat16\n" + SILU))
    assert made.dtypes == {torch.float32, torch.bfloat16} and not kernels.active()
    python = "from minitorch_backend import kernels\nkernels.override('aten::silu', lambda x: x)\n"
    assert len(files.load(write(tmp_path, python, ".py"))) == 1 and not kernels.active()
    for body, suffix, message in (
        ("int x;", ".cpp", "does not say what it is for"),
        ("x = 1", ".py", "calls neither"),
        ("", ".txt", "ends in .py"),
        ("// operator: aten::silu\n// dtypes: float31\n", ".cpp", "not a list of dtypes"),
    ):
        with pytest.raises(ValueError, match=message):
            files.load(write(tmp_path, body, suffix))
