"""Sparse COO tensors: gradients of sparse embeddings, the optimizers that take them, conversion, plain errors."""

import pytest
import torch
import torch.nn.functional as F

DEVICE = "minitorch"


def same(ours, native):
    assert ours.device.type == DEVICE and ours.layout == native.layout and ours.dtype == native.dtype
    assert ours.shape == native.shape
    if native.layout == torch.sparse_coo:
        assert ours.is_coalesced() == native.is_coalesced()
        assert torch.equal(ours._indices().cpu(), native._indices())
        ours, native = ours._values(), native._values()
    torch.testing.assert_close(ours.cpu(), native)


def example(device, sizes=(5, 4), sparse_dims=1, nnz=6, dtype=torch.float32):
    torch.manual_seed(nnz)
    indices = torch.stack([torch.randint(0, n, (nnz,)) for n in sizes[:sparse_dims]])
    values = torch.randn(nnz, *sizes[sparse_dims:], dtype=torch.float64).to(dtype)
    return torch.sparse_coo_tensor(indices.to(device), values.to(device), sizes)


CASES = [{}, {"sparse_dims": 2}, {"sizes": (3, 4, 2), "sparse_dims": 2}, {"nnz": 0}, {"nnz": 1}, {"nnz": 300}]
OPERATORS = {
    "coalesce": lambda s, d: s.coalesce(),
    "to_dense": lambda s, d: s.to_dense(),
    "clone": lambda s, d: s.clone(),
    "dense + sparse": lambda s, d: d + s,
    "dense += sparse": lambda s, d: d.add_(s, alpha=-0.5),
    "dense -= sparse": lambda s, d: d.t().contiguous().t().sub_(s) if d.dim() == 2 else d.sub_(s),
    "sparse + sparse": lambda s, d: (s + s).coalesce(),  # in which order elements follow is not defined before that
    "coalesced + coalesced": lambda s, d: torch.add(s.coalesce(), s.coalesce(), alpha=2),
    "sparse += sparse": lambda s, d: s.clone().add_(s, alpha=3).coalesce(),
    "scaled": lambda s, d: (s * 0.5, 2.0 * s, s.clone().mul_(3), s / 4, s.clone().div_(4), -s),
    "mask": lambda s, d: d.sparse_mask(s.coalesce()),
    "mask of sparse": lambda s, d: s.sparse_mask((d > 0).float().to_sparse(s.sparse_dim())),
    "mask by itself": lambda s, d: s.coalesce().sparse_mask(s.coalesce()),
    "zero": lambda s, d: s.clone().zero_(),
    "double": lambda s, d: s.double(),
}


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name, case):
    results = []
    for device in ("cpu", DEVICE):
        sparse = example(device, **case)
        torch.manual_seed(1)
        result = OPERATORS[name](sparse, torch.randn(sparse.shape).to(device))
        results.append(result if isinstance(result, tuple) else (result,))
    for native, ours in zip(*results, strict=True):
        same(ours, native)


def test_from_and_to_dense_and_across_devices():
    dense = torch.tensor([[0.0, 1, 0], [2, 0, 3]])
    for arguments in ((), (1,)):
        same(dense.to(DEVICE).to_sparse(*arguments), dense.to_sparse(*arguments))
    moved = dense.to_sparse().to(DEVICE)
    same(moved, dense.to_sparse())
    assert torch.equal(moved.cpu().to_dense(), dense)
    assert "minitorch" in repr(moved) and "nnz=3" in repr(moved)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.3),
    "sgd without foreach": lambda p: torch.optim.SGD(p, lr=0.3, foreach=False),
    "sgd with momentum": lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9),
    "sparse adam": lambda p: torch.optim.SparseAdam(list(p), lr=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("padding", [None, 2])
def test_training_a_sparse_embedding(name, padding):
    torch.manual_seed(0)
    words, targets = torch.randint(0, 9, (4, 7, 5)), torch.randn(4, 7, 5, 3)
    native = torch.nn.Embedding(9, 3, sparse=True, padding_idx=padding)
    ours = torch.nn.Embedding(9, 3, sparse=True, padding_idx=padding).to(DEVICE)
    ours.load_state_dict(native.state_dict())
    optimizers = [OPTIMIZERS[name](m.parameters()) for m in (native, ours)]
    for step in range(4):
        for model, optimizer, device in zip((native, ours), optimizers, ("cpu", DEVICE), strict=True):
            optimizer.zero_grad()
            for half in (slice(0, 3), slice(3, 7)):  # the second gradient is added to the first
                predicted = model(words[step, half].to(device))
                F.mse_loss(predicted, targets[step, half].to(device)).backward()
        same(ours.weight.grad.coalesce(), native.weight.grad.coalesce())
        for optimizer in optimizers:
            optimizer.step()
        torch.testing.assert_close(ours.weight.detach().cpu(), native.weight.detach())


def test_embedding_bag_with_sparse_gradients():
    gradients = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        bag = torch.nn.EmbeddingBag(9, 3, mode="sum", sparse=True).to(device)
        bag(torch.tensor([1, 2, 2, 8], device=device), torch.tensor([0, 2], device=device)).square().sum().backward()
        gradients.append(bag.weight.grad.coalesce())
    same(gradients[1], gradients[0])


MATRICES = [
    {},
    {"nnz": 0},
    {"nnz": 300},
    {"dtype": torch.float64},
    {"dtype": torch.complex64},
    {"dtype": torch.int64},
    {"sizes": (3, 7)},
]
PRODUCTS = {
    "torch.sparse.mm": lambda s, d, v: torch.sparse.mm(s, d),
    "@": lambda s, d, v: s @ d,
    "dense @ sparse": lambda s, d, v: d.t() @ s.t(),
    "vector": lambda s, d, v: s @ v,
    "addmm": lambda s, d, v: torch.addmm(torch.ones_like(s @ d), s, d, beta=2, alpha=3),
    "addmm of a row, ignored": lambda s, d, v: torch.sparse.addmm(torch.full_like(d[:1], 7), s, d, beta=0),
    "coalesced, transposed": lambda s, d, v: s.coalesce().t() @ torch.ones_like(s @ d),
    "out": lambda s, d, v: torch.mm(s, d, out=torch.empty_like(d)),
}


@pytest.mark.parametrize("case", MATRICES, ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_dense_matrices(name, case):
    results = []
    for device in ("cpu", DEVICE):
        sparse = example(device, **{"sparse_dims": 2, **case})
        torch.manual_seed(2)
        dense = torch.randn(sparse.shape[1], 3, dtype=torch.float64).mul(4).to(sparse.dtype).to(device)
        results.append(PRODUCTS[name](sparse, dense, dense[:, 0]))
    same(results[1], results[0])


def test_gradients_of_products():
    gradients = []
    for device in ("cpu", DEVICE):
        sparse = example(device, (6, 6), sparse_dims=2, nnz=20).coalesce()
        torch.manual_seed(2)
        x = torch.randn(6, 3).to(device).requires_grad_()
        values = sparse.values().detach().clone().requires_grad_()
        graph = torch.sparse_coo_tensor(sparse.indices(), values, sparse.shape).coalesce()
        y = torch.sparse.mm(graph, torch.relu(torch.sparse.mm(sparse, x)))
        gradients.append(torch.autograd.grad(y.square().sum(), (x, values)))
    for native, ours in zip(*gradients, strict=True):
        same(ours, native)


@pytest.mark.parametrize(
    "call",
    [
        lambda d: example(d, sparse_dims=2) @ torch.ones(3, 2, device=d),
        lambda d: torch.addmm(torch.ones(2, 2, device=d), example(d, sparse_dims=2), torch.ones(4, 2, device=d)),
        lambda d: torch.mm(example(d, sparse_dims=1), torch.ones(4, 2, device=d)),
    ],
)
def test_products_that_do_not_fit(call):
    with pytest.raises(RuntimeError) as native:
        call("cpu")
    with pytest.raises(RuntimeError) as ours:
        call(DEVICE)
    assert str(ours.value) == str(native.value)


def test_what_is_missing_says_so():
    sparse = example(DEVICE)
    for call, name in (
        (lambda: torch.sparse.mm(example(DEVICE, sparse_dims=2), example(DEVICE, (4, 2), 2)), "aten::"),
        (lambda: sparse.sin(), "aten::sin"),
        (lambda: sparse * sparse, "aten::mul"),
    ):
        with pytest.raises(NotImplementedError, match=name) as error:
            call()
        assert "minitorch" in str(error.value) and "sparse" in str(error.value)
    with pytest.raises(RuntimeError, match=r"add\(sparse, dense\) is not supported"):
        sparse + torch.ones(5, 4, device=DEVICE)
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(5, 4).add_(sparse)
