"""Kernels of a user's own on a GPU: CUDA by nvcc and by NVRTC, Triton, elementwise expressions."""

import importlib.util

import pytest
import torch
import torch.nn.functional as F

from minitorch_backend import kernels
from minitorch_backend.kernels import compiler, nvrtc

pytestmark = pytest.mark.skipif(torch.minitorch.get_device_properties(0).backend != "cuda", reason="needs a GPU")

LAUNCHED = """
__global__ void silu(Tensor out, Tensor x) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < x.numel) out.ptr<scalar_t>()[i] = opmath_t(x.ptr<scalar_t>()[i]) / (1 + expf(-opmath_t(x.ptr<scalar_t>()[i])));
}
"""
LAUNCHES = """
__global__ void f(const scalar_t* x, scalar_t* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = opmath_t(x[i]) / (1 + expf(-opmath_t(x[i])));
}
void silu(Tensor out, Tensor x, cudaStream_t stream) {
  f<<<(x.numel + 255) / 256, 256, 0, stream>>>(x.ptr<scalar_t>(), out.ptr<scalar_t>(), x.numel);
}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("MINITORCH_KERNEL_CACHE", str(tmp_path_factory.getbasetemp() / "kernels"))


@pytest.fixture
def x():
    return torch.randn(300, 70, generator=torch.Generator().manual_seed(0))


def check(made, x):
    with made:
        for dtype in (torch.float32, torch.bfloat16):
            for view in (lambda t: t, lambda t: t.t(), lambda t: t[::2, 1:]):
                expected = F.silu(view(x.to(dtype)))
                found = F.silu(view(x.to(dtype).to("minitorch")))
                torch.testing.assert_close(found.cpu(), expected)
                assert found.stride() == expected.stride()
        assert made.calls == 6


@pytest.mark.skipif(compiler.nvcc() is None, reason="no nvcc")
@pytest.mark.parametrize("source", [LAUNCHED, LAUNCHES], ids=["launched", "launches"])
def test_nvcc(x, source):
    check(kernels.override("aten::silu", cuda=source), x)


def test_nvrtc(x, monkeypatch):
    try:
        nvrtc.library()
    except kernels.CompileError:
        pytest.skip("no NVRTC")
    monkeypatch.setattr(compiler, "nvcc", lambda: None)
    check(kernels.override("aten::silu", cuda=LAUNCHED), x)


def test_on_another_stream(x):
    d = x.to("minitorch")
    stream = torch.minitorch.Stream()
    with kernels.override("aten::silu", cuda=LAUNCHED), torch.minitorch.stream(stream):
        stream.wait_stream(torch.minitorch.default_stream())
        found = F.silu(d * 2)
        stream.synchronize()
    torch.testing.assert_close(found.cpu(), F.silu(x * 2))


def test_elementwise_with_gradient(x):
    op = kernels.elementwise("x * tanh(y)", grad=("tanh(y)", "x * (1 - tanh(y) ** 2)"))
    a, b = (torch.randn(s, dtype=torch.float64).to("minitorch").requires_grad_() for s in ((4, 1), (3,)))
    assert torch.autograd.gradcheck(op, (a, b))
    torch.testing.assert_close(op(a, b).cpu(), op(a.cpu(), b.cpu()))


TRITON = """
import triton
import triton.language as tl


@triton.jit
def silu(out, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float32)
    tl.store(out + i, v / (1 + tl.exp(-v)), mask=i < n)
"""


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or not torch.cuda.is_available(), reason="needs Triton and torch.cuda"
)
def test_triton(x, tmp_path):
    path = tmp_path / "triton_silu.py"  # Triton reads the source of its functions
    path.write_text(TRITON)
    spec = importlib.util.spec_from_file_location("triton_silu", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = kernels.override(
        "aten::silu", triton=module.silu, grid=lambda out, x: (-(-out.numel() // 256),), constants={"BLOCK": 256}
    )
    check(made, x)
