"""Operators that few call by name: products of integers, im2col convolutions, index formats, sums with a ReLU."""

import pytest
import torch

from tests.python.twin import check, check_error

aten = torch.ops.aten


def int8(*shape):
    return torch.randint(-128, 128, shape, dtype=torch.int8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
def test_add_relu(dtype):
    a, b = (torch.randn(5, 7) * 4).to(dtype), (torch.randn(5, 7) * 4).to(dtype)
    check(lambda a, b: torch._add_relu(a, b), a, b)
    check(lambda a, b: torch._add_relu(a, b.t().contiguous().t(), alpha=2), a, b)
    check(lambda a, b: torch._add_relu_(a, b), a, b)
    check(lambda a, b: torch._add_relu(a, b, out=torch.empty_like(a)), a, b)
    check(lambda a: aten._add_relu.Scalar(a, 2), a)
    check(lambda a: aten._add_relu_.Scalar(a, -2), a)


def test_int_mm():
    check(torch._int_mm, int8(17, 300), int8(300, 9))
    check(lambda a, b: torch._int_mm(a.t(), b.t()), int8(8, 5), int8(6, 8))
    check(torch._int_mm, int8(0, 4), int8(4, 3))
    check(torch._int_mm, int8(3, 0), int8(0, 3))
    check(torch._int_mm, torch.randint(0, 256, (5, 300), dtype=torch.uint8), int8(300, 4))
    check(lambda a, b, out: torch._int_mm(a, b, out=out), int8(3, 4), int8(4, 2), torch.ones(3, 2, dtype=torch.int32))


@pytest.mark.parametrize(
    "self, mat2",
    [
        (int8(2, 3), int8(4, 3)),
        (int8(3), int8(3, 3)),
        (int8(2, 2, 3), int8(3, 3)),
        (int8(2, 3), int8(3)),
        (int8(2, 3), int8(3, 3, 2)),
        (torch.ones(2, 3), int8(3, 3)),
        (torch.ones(2, 3), int8(4, 3)),
        (int8(2, 3) > 0, int8(3, 3)),
        (int8(2, 3), torch.ones(3, 3)),
        (int8(2, 3), torch.ones(3, 3, dtype=torch.half)),
        (int8(2, 3), torch.ones(3, 3, dtype=torch.uint8)),
    ],
)
def test_int_mm_refuses(self, mat2):
    check_error(torch._int_mm, self, mat2)


@pytest.mark.parametrize(
    "out",
    [
        torch.ones(2, 3),
        torch.ones(2, 3, dtype=torch.int64),
        torch.ones(3, 3, dtype=torch.int32),
        torch.ones(2, 4, dtype=torch.int32),
        torch.ones(2, 3, 1, dtype=torch.int32),
        torch.ones(2, dtype=torch.int32),
        torch.ones(3, 2, dtype=torch.int32).t(),
    ],
)
def test_int_mm_refuses_an_output(out):
    check_error(lambda a, b, out: torch._int_mm(a, b, out=out), int8(2, 3), int8(3, 3), out)


@pytest.mark.parametrize("out_int32", [False, True])
def test_formats_of_indices(out_int32):
    rows = torch.tensor([0, 0, 2, 2, 2, 5])
    crow, col = torch.tensor([0, 2, 2, 5, 5, 5, 6]), torch.tensor([1, 3, 0, 1, 2, 4])
    check(lambda r: torch._convert_indices_from_coo_to_csr(r, 6, out_int32=out_int32), rows)
    check(lambda r: torch._convert_indices_from_coo_to_csr(r, 9, out_int32=out_int32), rows[:0])
    for transpose in (False, True):
        check(
            lambda a, b, t=transpose: torch._convert_indices_from_csr_to_coo(a, b, out_int32=out_int32, transpose=t),
            crow,
            col,
        )


def test_linear_combination():
    check(torch._compute_linear_combination, torch.randn(3, 4, 5), torch.randn(2, 3), exact=False)
    check(
        lambda x, c: torch._compute_linear_combination(x, c, out=torch.ones(2, 4, dtype=x.dtype, device=x.device)),
        torch.randn(3, 4),
        torch.randn(2, 3),
        exact=False,
    )


def test_assertions_with_a_token():
    check(lambda x, token: aten._functional_assert_async.msg(x, "no", token), torch.ones(1), torch.ones(()))


CONVOLUTIONS = {
    "slow_conv2d": lambda x, w, b: torch._C._nn.thnn_conv2d(x, w, (3, 2), b, (2, 1), (1, 0)),
    "dilated2d": lambda x, w, b: torch._C._nn.slow_conv_dilated2d(x, w, (3, 2), b, (1, 2), (1, 1), (2, 1)),
    "transpose2d": lambda x, w, b: torch._C._nn.slow_conv_transpose2d(
        x, w.transpose(0, 1), (3, 2), b, (2, 2), (1, 0), (1, 0), (1, 1)
    ),
    "slow_conv3d": lambda x, w, b: torch._C._nn.slow_conv3d(
        x[:, :, None], w[:, :, None], (1, 3, 2), b, (1, 2, 1), (0, 1, 0)
    ),
    "dilated3d": lambda x, w, b: torch._C._nn.slow_conv_dilated3d(
        x[:, :, None], w[:, :, None], (1, 3, 2), b, 1, (0, 1, 1), (1, 2, 1)
    ),
    "transpose3d": lambda x, w, b: torch._C._nn.slow_conv_transpose3d(
        x[:, :, None], w.transpose(0, 1)[:, :, None], (1, 3, 2), b, (1, 2, 2), (0, 1, 0), (0, 1, 0), 1
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("grad", [False, True])
def test_convolutions_by_name(name, grad):
    x, w, b = torch.randn(2, 3, 7, 6), torch.randn(4, 3, 3, 2), torch.randn(4)
    for t in (x, w, b):
        t.requires_grad_(grad)
    check(CONVOLUTIONS[name], x, w, b, exact=False, strides=False, rtol=1e-4, atol=1e-4)


def test_int8_weights():
    check(aten._weight_int8pack_mm, torch.randn(4, 64), int8(32, 64), torch.rand(32), exact=False, rtol=1e-4, atol=1e-3)
