"""Fake quantization against native CPU."""

import pytest
import torch

from tests.python.twin import check, check_error

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def data(dtype=torch.float32):
    torch.manual_seed(0)
    return (torch.randn(4, 5, 6, dtype=torch.float64) * 8).to(dtype).requires_grad_()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_per_tensor(dtype):
    check(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -20, 100), data(dtype), strides=False)
    scale, zero = torch.tensor([0.1]), torch.tensor([3], dtype=torch.int32)
    check(
        lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, s, z, -20, 100),
        data(dtype),
        scale,
        zero,
        strides=False,
    )
    for enabled in (0, 1):
        check(
            lambda x, s, z, e: torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
                x, s, z, e, -20, 100
            ),
            data(dtype).detach(),
            scale,
            zero,
            torch.tensor([enabled]),
        )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_per_channel(axis):
    n = (4, 5, 6)[axis]
    scale, zero = torch.rand(n) + 0.05, torch.arange(n, dtype=torch.int32)
    check(lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, axis, 0, 200), data(), scale, zero)


def test_learnable():
    for factor in (1.0, 0.3):
        scale, zero = torch.tensor([0.2], requires_grad=True), torch.tensor([5.0], requires_grad=True)
        check(
            lambda x, s, z, f=factor: torch._fake_quantize_learnable_per_tensor_affine(x, s, z, 0, 60, f),
            data(),
            scale,
            zero,
            rtol=1e-4,
            atol=1e-4,
        )
        scale, zero = (torch.rand(5) + 0.1).requires_grad_(), torch.full((5,), 3.0, requires_grad=True)
        check(
            lambda x, s, z, f=factor: torch._fake_quantize_learnable_per_channel_affine(x, s, z, 1, 0, 60, f),
            data(),
            scale,
            zero,
            rtol=1e-4,
            atol=1e-4,
        )


def test_errors():
    check_error(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 300, 0, 255), data().detach())
    check_error(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 255, 0), data().detach())
