"""Autocast and gradient scaling."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.python.twin import ASYNCHRONOUS

DEVICE = "minitorch"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_categories(dtype):
    x, w = torch.randn(4, 4, device=DEVICE), torch.randn(4, 4, device=DEVICE)
    half = x.to(dtype)
    with torch.autocast(DEVICE, dtype=dtype):
        for lower in (x @ w, F.linear(x, w), torch.bmm(x[None], w[None]), torch.addmm(x, x, w)):
            assert lower.dtype == dtype
        for wide in (
            half.exp(),
            F.softmax(half, -1),
            half.sum(),
            half.pow(2.0),
            F.layer_norm(half, (4,)),
            half.log_softmax(-1),
        ):
            assert wide.dtype == torch.float32
        assert F.cross_entropy(half, torch.arange(4, device=DEVICE)).dtype == torch.float32
        assert half.norm().dtype == torch.float32
        assert torch.addcmul(half, x, half).dtype == torch.float32  # the widest
        assert (half + half).dtype == dtype
        q = x.view(1, 1, 4, 4)
        assert F.scaled_dot_product_attention(q, q, q).dtype == dtype
        if ASYNCHRONOUS:
            with pytest.raises(RuntimeError, match="unsafe to autocast"):
                F.binary_cross_entropy(x.sigmoid(), x.sigmoid())
        with torch.autocast(DEVICE, enabled=False):
            assert (x @ w).dtype == torch.float32
    assert (x @ w).dtype == torch.float32


WINDOW = torch.ones(4)
# Operators that native CUDA leaves as they are: functions of a matrix (positive definite), and of images.
AS_ON_CPU = {
    "fft": torch.fft.fft,
    "rfftn": torch.fft.rfftn,
    "ihfft": torch.fft.ihfft,
    "stft": lambda x: torch.stft(x[0].repeat(4), 4, window=WINDOW.to(x.device), return_complex=True),
    "inv": torch.linalg.inv,
    "inv_ex": lambda x: torch.linalg.inv_ex(x)[0],
    "pinverse": torch.pinverse,
    "cholesky": torch.linalg.cholesky,
    "cholesky_solve": lambda x: torch.cholesky_solve(x, x),
    "solve": lambda x: torch.linalg.solve(x, x),
    "tensorsolve": lambda x: torch.linalg.tensorsolve(x, x[0]),
    "qr": lambda x: torch.linalg.qr(x)[1].abs(),
    "svdvals": torch.linalg.svdvals,
    "eigvalsh": torch.linalg.eigvalsh,
    "lstsq": lambda x: torch.linalg.lstsq(x, x)[0],
    "matrix_rank": torch.linalg.matrix_rank,
    "matrix_power": lambda x: torch.linalg.matrix_power(x, -1),
    "cond": torch.linalg.cond,
    "trace": torch.trace,
    "quantile": lambda x: torch.quantile(x, 0.3),
    "polar": lambda x: torch.polar(x, x),
    "view_as_complex": lambda x: torch.view_as_complex(x.view(8, 2)),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(x / 16, x / 16),
    "weighted binary_cross_entropy": lambda x: F.binary_cross_entropy(x / 16, x / 16, x),
    "ctc_loss": lambda x: F.ctc_loss(x.view(4, 2, 2), (x[:2, :1] > 0).long(), (4, 4), (1, 1)),
    "cat": lambda x: torch.cat([x, x.float()]),
    "stack": lambda x: torch.stack([x, x.float()]),
    "index_copy": lambda x: x.float().index_copy(0, torch.tensor([0], device=x.device), x[1:2]),
    "avg_pool3d": lambda x: F.avg_pool3d(x[None, None], (1, 2, 2)),
    "max_pool3d": lambda x: F.max_pool3d(x[None, None], (1, 2, 2)),
    "adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(x[None, None], 1),
    "reflection_pad": lambda x: F.pad(x[None], (1, 1), mode="reflect"),
    "replication_pad": lambda x: F.pad(x[None], (1, 1, 1, 1), mode="replicate"),
}


@pytest.mark.skipif(ASYNCHRONOUS, reason="where the CPU stands in for native's")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", AS_ON_CPU)
def test_what_cuda_leaves_alone_is_cast_as_on_the_cpu(name, dtype):
    x = (torch.eye(4) * 4 + torch.arange(16).view(4, 4) % 3 / 4).to(dtype)
    x = (x + x.t()) / 2
    results = []
    for device in ("cpu", DEVICE):
        with torch.autocast(device, dtype=torch.bfloat16):
            results.append(AS_ON_CPU[name](x.to(device)))
    assert results[1].dtype == results[0].dtype
    torch.testing.assert_close(results[1].cpu(), results[0], rtol=1e-4, atol=1e-4)


# What they are made of is in a list, or they are another device's.
IN_PARTS = {"conv1d", "conv2d", "conv3d", "_addmm_activation", "_native_multi_head_attention", "mkldnn_rnn_layer"}
ELSEWHERE = {"cudnn_convolution", "cudnn_convolution_transpose"}


@pytest.mark.skipif(ASYNCHRONOUS, reason="on a GPU the lists are native CUDA's alone")
def test_every_operator_that_native_casts_is_cast():
    def cast(name, key):
        return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)

    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    native = {name for name in names if cast(name, "AutocastCPU") or cast(name, "AutocastCUDA")}
    missing = {name for name in native if not cast(name, "AutocastPrivateUse1")}
    assert len(native) > 150
    assert {name.removeprefix("aten::").split(".")[0] for name in missing} <= IN_PARTS | ELSEWHERE


def test_autocast_training_step_matches_native():
    torch.manual_seed(0)
    native = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 5))
    ours = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 5))
    ours.load_state_dict(native.state_dict())
    ours.to(DEVICE)
    x, y = torch.randn(12, 8), torch.randint(5, (12,))
    losses = []
    for module, device in ((native, "cpu"), (ours, DEVICE)):
        with torch.autocast(device, dtype=torch.bfloat16):
            value = F.cross_entropy(module(x.to(device)), y.to(device))
        value.backward()
        losses.append(value.detach().float().cpu())
    torch.testing.assert_close(*losses, rtol=0.02, atol=0.02)
    for a, b in zip(ours.parameters(), native.parameters(), strict=True):
        assert a.grad.dtype == torch.float32
        torch.testing.assert_close(a.grad.cpu(), b.grad, rtol=0.1, atol=0.02)


def test_lstm_under_autocast():
    lstm = nn.LSTM(4, 6).to(DEVICE)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        out, _ = lstm(torch.randn(3, 2, 4, device=DEVICE))
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert all(p.grad is not None for p in lstm.parameters())


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize("fused", [False, True])
def test_grad_scaler(optimizer, fused):
    results = []
    for device in ("cpu", DEVICE):
        p = nn.Parameter(torch.tensor([1.0, 2.0, -3.0], device=device))
        step = getattr(torch.optim, optimizer)([p], lr=0.1, fused=fused)
        scaler = torch.amp.GradScaler(device, init_scale=8.0, growth_interval=2)
        history = []
        for i in range(6):
            step.zero_grad()
            loss = (p * p).sum() * (float("inf") if i == 3 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(step)
            scaler.update()
            history.append(scaler.get_scale())
        results.append((history, p.detach().cpu()))
    assert results[0][0] == results[1][0]
    torch.testing.assert_close(results[0][1], results[1][1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_unscale(dtype):
    for bad in (None, float("inf"), float("-inf"), float("nan")):
        grads = [torch.randn(7, 3).to(dtype), torch.randn(40_000).to(dtype), torch.randn(4, 6).to(dtype).t()]
        if bad is not None:
            grads[1][12_345] = bad
        ours = [g.to(DEVICE) for g in grads]
        outcome = []
        for tensors, device in ((grads, "cpu"), (ours, DEVICE)):
            found = torch.zeros(1, device=device)
            torch._amp_foreach_non_finite_check_and_unscale_(tensors, found, torch.tensor([0.25], device=device))
            outcome.append(found.item())
        assert outcome[0] == outcome[1] == (bad is not None)
        for a, b in zip(ours, grads, strict=True):
            torch.testing.assert_close(a.cpu(), b, equal_nan=True)


def test_unscale_errors():
    g, found, scale = torch.randn(3, device=DEVICE), torch.zeros(1, device=DEVICE), torch.ones(1, device=DEVICE)
    with pytest.raises(RuntimeError, match="inv_scale must be a 1-element tensor"):
        torch._amp_foreach_non_finite_check_and_unscale_([g], found, torch.ones(2, device=DEVICE))
    with pytest.raises(RuntimeError, match="same device"):
        torch._amp_foreach_non_finite_check_and_unscale_([g], found, torch.ones(1))
    with pytest.raises(RuntimeError, match="found_inf must be a float tensor"):
        torch._amp_foreach_non_finite_check_and_unscale_([g], found.double(), scale)
