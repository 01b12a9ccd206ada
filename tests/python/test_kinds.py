"""Kinds of tensors beside the strided ones: jagged ones, and plain refusals of those that the device does not have."""

import pytest
import torch

from tests.python.twin import DEVICE, check, check_error

aten = torch.ops.aten
OFFSETS = [[0, 2, 6], [0, 0, 3, 6], [0, 6]]


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("values", [torch.randn(6, 2), torch.randn(6), torch.randn(2, 6, 3).transpose(0, 1)])
def test_padding_and_back(values, offsets):
    bounds = torch.tensor(offsets)
    for longest in (6, 7):
        padded = aten._jagged_to_padded_dense_forward(values, [bounds], [longest], -1.0)
        check(lambda v, o: aten._jagged_to_padded_dense_forward(v, [o], [longest], -1.0), values, bounds)
        check(lambda p, o: aten._padded_dense_to_jagged_forward(p, [o]), padded, bounds, strides=False)
    check(lambda v, o: aten._jagged_to_padded_dense_forward(v, [o], [1], 0.5), values, bounds)  # longer ones are cut
    check(lambda v, o: aten._jagged_to_padded_dense_forward(v, [o], [6]), values.int(), bounds.int())


def test_what_does_not_fit_in_padding():
    dense, bounds = torch.randn(2, 4, 3), torch.tensor([0, 2, 6])
    check_error(lambda d, o: aten._padded_dense_to_jagged_forward(d, [o], 8), dense, bounds)
    check_error(lambda d, o: aten._padded_dense_to_jagged_forward(d[:, :3], [o]), dense, bounds)


def test_jagged_tensors_pad_and_have_means():
    results = []
    for device in ("cpu", DEVICE):
        parts = [torch.arange(6.0).view(2, 3).to(device), torch.arange(12.0).view(4, 3).to(device)]
        jagged = torch.nested.as_nested_tensor(parts, layout=torch.jagged).requires_grad_()
        padded = jagged.to_padded_tensor(-1.0)
        padded.square().sum().backward()
        results.append([padded.detach().cpu(), jagged.grad.values().cpu(), jagged.detach().mean(1).cpu()])
    for ours, native in zip(*reversed(results), strict=True):
        torch.testing.assert_close(ours, native, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_of_jagged_tensors(dtype):
    results = []
    for device in ("cpu", DEVICE):
        leaves = []
        for seed in range(3):
            torch.manual_seed(seed)
            parts = [torch.randn(n, 8, dtype=dtype).to(device) for n in (3, 5, 1)]
            leaves.append(torch.nested.as_nested_tensor(parts, layout=torch.jagged).detach().requires_grad_())
        heads = [t.unflatten(-1, [2, 4]).transpose(1, 2) for t in leaves]
        out = torch.nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2)
        out.values().square().sum().backward()
        results.append([out.detach().values().cpu(), *(t.grad.values().cpu() for t in leaves)])
    for ours, native in zip(*reversed(results), strict=True):
        torch.testing.assert_close(ours, native, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:torch.quantize:UserWarning", "ignore:Sparse:UserWarning")
def test_kinds_that_the_device_does_not_have_are_refused_by_name():
    x = torch.ones(4, 4)
    quantized = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    calls = {
        "quantized tensors, which 'aten::quantize_per_tensor'": lambda: torch.quantize_per_tensor(
            x.to(DEVICE), 0.1, 0, torch.qint8
        ),
        "quantized tensors, which 'aten::empty_quantized'": lambda: quantized.to(DEVICE),
        "quantized tensors, which 'aten::empty.memory_format'": lambda: torch.zeros(
            3, dtype=torch.qint8, device=DEVICE
        ),
        "sparse tensors in CSR": lambda: x.to(DEVICE).to_sparse_csr(),
        "sparse tensors in CSR, CSC, BSR or BSC": lambda: x.to(DEVICE).to_sparse_bsr((2, 2)),
        "tensors in oneDNN's layout": lambda: x.to(DEVICE).to_mkldnn(),
    }
    for text, call in calls.items():
        with pytest.raises(NotImplementedError, match="minitorch has no " + text):
            call()


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_compressed_sparse_tensors_can_be_looked_at():
    csr = torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 2.0], device=DEVICE)
    assert "minitorch" in repr(csr) and csr._nnz() == 2
    assert csr.values().tolist() == [1.0, 2.0] and csr.col_indices().tolist() == [0, 1]
    with pytest.raises(NotImplementedError, match="sparse tensors in CSR"):
        csr @ torch.ones(2, 2, device=DEVICE)
