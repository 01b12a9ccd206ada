"""softmax and log_softmax of sparse COO tensors, along sparse and dense dimensions, and their gradients."""

import pytest
import torch

from tests.python.twin import DEVICE, assert_same_error, error_of

INF = float("inf")
CASES = {
    "2-d": ([[0, 0, 1, 3, 1], [0, 2, 1, 3, 1]], (5,), (4, 5)),  # one element is given twice
    "3-d": ([[0, 0, 1, 1], [0, 2, 1, 1], [1, 1, 0, 2]], (4,), (2, 3, 4)),
    "hybrid": ([[0, 0, 1], [0, 2, 1]], (3, 4), (2, 3, 4)),
    "empty": ([[], []], (0,), (2, 3)),
}


def example(name, dtype=torch.float32, device="cpu", grad=False):
    indices, values, sizes = CASES[name]
    torch.manual_seed(0)
    x = torch.sparse_coo_tensor(torch.tensor(indices, dtype=torch.long), torch.randn(values).to(dtype), sizes)
    return x.to(device).requires_grad_(grad)


def same(ours, native):
    assert ours.device.type == DEVICE and ours.dtype == native.dtype and ours.is_coalesced() == native.is_coalesced()
    assert torch.equal(ours._indices().cpu(), native._indices())
    torch.testing.assert_close(ours._values().cpu(), native._values(), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32])
@pytest.mark.parametrize("fn", [torch.sparse.softmax, torch.sparse.log_softmax])
@pytest.mark.parametrize("name", CASES)
def test_values(name, fn, dtype):
    x = example(name, dtype)
    for dim in range(-x.dim(), x.dim()):
        error, ours_error = error_of(fn, x, dim), error_of(fn, x.to(DEVICE), dim)
        if error is not None:
            assert_same_error(ours_error, error)
        else:
            same(fn(x.to(DEVICE), dim), fn(x, dim))


@pytest.mark.parametrize("fn", [torch.sparse.softmax, torch.sparse.log_softmax])
@pytest.mark.parametrize("name", CASES)
def test_gradients(name, fn):
    for dim in range(len(CASES[name][2])):
        grads = []
        for device in ("cpu", DEVICE):
            x = example(name, torch.float64, device, grad=True)
            y = fn(x, dim)
            weights = torch.arange(1.0, 1 + y._values().numel(), dtype=torch.float64, device=device)
            y.backward(torch.sparse_coo_tensor(y._indices(), weights.view_as(y._values()), y.shape))
            grads.append(x.grad)
        same(grads[1].coalesce(), grads[0].coalesce())


def test_a_gradient_of_other_elements():
    grads = []
    for device in ("cpu", DEVICE):
        x = example("2-d", torch.float64, device, grad=True)
        grad = torch.sparse_coo_tensor([[0, 1], [0, 4]], torch.tensor([1.0, 2.0], dtype=torch.float64), (4, 5))
        torch.sparse.softmax(x, 1).backward(grad.to(device))
        grads.append(x.grad.to_dense().cpu())
    torch.testing.assert_close(grads[1], grads[0])


def test_errors():
    for fn in (torch.sparse.softmax, torch.sparse.log_softmax):
        for dim in (-3, 2):
            x = example("2-d")
            assert_same_error(error_of(fn, x.to(DEVICE), dim), error_of(fn, x, dim))
