"""hash_tensor against native CPU."""

import pytest
import torch

from tests.python.twin import check, check_error

pytestmark = pytest.mark.skipif(not hasattr(torch, "hash_tensor"), reason="this PyTorch has no hash_tensor")
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.int64, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dimensions_and_layouts(dtype):
    torch.manual_seed(0)
    x = (torch.randn(4, 5, 6, 7) * 20).to(dtype)
    for view in (x, x.transpose(0, 3), x[:, ::2, 1:], x[:1].expand(3, 5, 6, 7)):
        for dim in ([], [0], [1], [-1], [0, 2], [1, 3], [0, 1, 2, 3]):
            for keepdim in (False, True):
                check(lambda t, d=dim, k=keepdim: torch.hash_tensor(t, d, keepdim=k), view)


def test_large_and_empty():
    check(torch.hash_tensor, torch.randn(300000))
    check(lambda t: torch.hash_tensor(t, 0), torch.randn(3000, 100))
    check(lambda t: torch.hash_tensor(t, 1), torch.randn(3000, 100))
    check(lambda t: torch.hash_tensor(t, 1), torch.randn(0, 3))
    check(torch.hash_tensor, torch.tensor(3.0))


def test_errors():
    check_error(torch.hash_tensor, torch.empty(0))
    check_error(lambda t: torch.hash_tensor(t, 0), torch.empty(0, 3))
    check_error(lambda t: torch.hash_tensor(t, mode=1), torch.ones(2))
    check_error(torch.hash_tensor, torch.ones(2, dtype=torch.complex64))
