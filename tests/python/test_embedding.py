"""Embedding and EmbeddingBag: lookup, gradients, padding, renormalisation and errors as on native CPU."""

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from twin import ASYNCHRONOUS, DEVICE, check, check_error

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def table(rows=7, dim=5, dtype=torch.float32):
    return torch.randn(rows, dim, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_lookup_and_gradient(dtype):
    for index in (
        torch.tensor([1, 0, 6, 1, 1]),
        torch.randint(0, 7, (3, 4)),
        torch.tensor(2),
        torch.empty(0, dtype=torch.long),
        torch.tensor([3, 3], dtype=torch.int32),
    ):
        check(lambda w, i: F.embedding(i, w), table(dtype=dtype), index)
        grad = torch.randn(*index.shape, 5, dtype=torch.float64).to(dtype)
        for padding, scale in ((-1, False), (1, False), (-1, True), (1, True)):
            check(
                lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 7, padding, scale),
                grad,
                index,
                wide=True,
                exact=False,
            )


def test_gradient_through_the_module():
    for options in ({}, {"padding_idx": 1}, {"padding_idx": -1}, {"scale_grad_by_freq": True}):
        check(
            lambda w, i: F.embedding(i, w, **options),
            table().requires_grad_(),
            torch.randint(0, 7, (4, 6)),
            exact=False,
        )
    check(lambda w, i: F.embedding(i, w), table(5, 7).t().requires_grad_(), torch.randint(0, 7, (6,)), exact=False)
    check(
        lambda w, i: F.embedding(i, w), table(2000, 600).requires_grad_(), torch.randint(0, 2000, (3000,)), exact=False
    )
    check(
        lambda w, i: F.embedding(i, w),
        table(20_000, 3).requires_grad_(),
        torch.randint(0, 50, (3000,)),
        rtol=1e-5,
        atol=1e-4,
    )


def test_second_derivative():
    def grad_of_grad(w, i, v):
        (g,) = torch.autograd.grad((F.embedding(i, w) ** 3).sum(), w, create_graph=True)
        return g * v

    check(grad_of_grad, table().requires_grad_(), torch.tensor([1, 1, 3]), table().requires_grad_(), exact=False)


@pytest.mark.parametrize("norm", [2.0, 1.0, float("inf"), 3.0])
def test_renorm(norm):
    check(
        lambda w, i: F.embedding(i, w, max_norm=1.0, norm_type=norm),
        table(),
        torch.tensor([[1, 1], [4, 0]]),
        exact=False,
    )
    check(lambda w, i: torch.embedding_renorm_(w, i, 0.5, norm), table(5, 7).t(), torch.tensor([1, 3, 1]), exact=False)


def test_errors():
    w = table()
    check_error(lambda w: F.embedding(torch.tensor([7], device=w.device), w), w)
    check_error(lambda w: F.embedding(torch.tensor([-1], device=w.device), w), w)
    check_error(lambda w: F.embedding(torch.tensor([1.0], device=w.device), w), w)
    check_error(lambda w: torch.embedding_renorm_(w, torch.tensor([1, 9], device=w.device), 0.1, 2.0), w)
    check_error(lambda w: F.embedding_bag(torch.tensor([9], device=w.device), w, torch.tensor([0], device=w.device)), w)
    check_error(lambda w: F.embedding_bag(torch.tensor([1], device=w.device), w, torch.tensor([1], device=w.device)), w)
    check_error(  # native's text also has input's length, which a kernel that finds it does not
        lambda w: F.embedding_bag(torch.tensor([1], device=w.device), w, torch.tensor([0, 4], device=w.device)),
        w,
        text=not ASYNCHRONOUS,
    )
    check_error(
        lambda w: F.embedding_bag(torch.tensor([9], device=w.device), w.double(), torch.tensor([0], device=w.device)), w
    )


INDICES, OFFSETS = torch.tensor([1, 0, 1, 6, 3, 2, 1]), torch.tensor([0, 3, 3, 6])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 1])
def test_bag(mode, dtype, padding):
    options = {"mode": mode, "padding_idx": padding}
    w = table(dtype=dtype).requires_grad_()
    check(lambda w, i, o: F.embedding_bag(i, w, o, **options), w, INDICES, OFFSETS, exact=False)
    check(lambda w, i, o: F.embedding_bag(i, w, o, **options), w, INDICES.int(), OFFSETS.int(), exact=False)
    check(
        lambda w, i, o: F.embedding_bag(i, w, o, include_last_offset=True, **options),
        w,
        INDICES,
        torch.tensor([0, 3, 3, 7]),
        exact=False,
    )
    check(lambda w, i: F.embedding_bag(i, w, **options), w, torch.randint(0, 7, (4, 3)), exact=False)
    check(
        lambda w, i, o: F.embedding_bag(i, w, o, **options),
        table(5, 7, dtype).t().requires_grad_(),
        INDICES,
        OFFSETS,
        exact=False,
    )
    with torch.no_grad():
        check(lambda w, i, o: F.embedding_bag(i, w, o, **options), w.detach(), INDICES, OFFSETS, exact=False)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bag_scales_by_frequency(mode):
    # Native CPU divides by the count of another index here (it takes the n-th index for the n-th distinct one), so the
    # expectation is composed from embedding, where native is right.
    w = table().requires_grad_()
    rows = F.embedding(INDICES, w, scale_grad_by_freq=True)
    parts = [rows[a:b] for a, b in ((0, 3), (3, 3), (3, 6), (6, 7))]
    bags = torch.stack([p.sum(0) / (max(len(p), 1) if mode == "mean" else 1) for p in parts])
    ours = w.detach().to("minitorch").requires_grad_()
    result = F.embedding_bag(INDICES.to("minitorch"), ours, OFFSETS.to("minitorch"), mode=mode, scale_grad_by_freq=True)
    torch.testing.assert_close(result.cpu(), bags)
    grad = torch.randn_like(bags)
    bags.backward(grad)
    result.backward(grad.to("minitorch"))
    torch.testing.assert_close(ours.grad.cpu(), w.grad)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [-1, 1])
def test_bag_side_results(mode, padding):
    for last, offsets in ((False, OFFSETS), (True, torch.tensor([0, 3, 3, 7]))):
        for w in (table(), table(dtype=torch.float64)):
            check(
                lambda w, i, o: torch._embedding_bag(w, i, o, False, mode, False, None, last, padding),
                w,
                INDICES,
                offsets,
                exact=False,
            )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("padding", [None, 1])
def test_bag_with_sample_weights(dtype, padding):
    weights = torch.randn(7, dtype=dtype).requires_grad_()
    check(
        lambda w, i, o, s: F.embedding_bag(i, w, o, per_sample_weights=s, mode="sum", padding_idx=padding),
        table(dtype=dtype).requires_grad_(),
        INDICES,
        OFFSETS,
        weights,
        exact=False,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_bag_16_bit(dtype):
    for mode in ("sum", "mean", "max"):
        check(lambda w, i, o: F.embedding_bag(i, w, o, mode=mode), table(dtype=dtype), INDICES, OFFSETS, wide=True)


def test_bag_large_and_module():
    bag = torch.nn.EmbeddingBag(500, 130, mode="mean", padding_idx=3)
    twin_bag = torch.nn.EmbeddingBag(500, 130, mode="mean", padding_idx=3).to("minitorch")
    twin_bag.load_state_dict(bag.state_dict())
    index, offsets = torch.randint(0, 500, (9000,)), torch.arange(0, 9000, 30)
    native, ours = bag(index, offsets), twin_bag(index.to("minitorch"), offsets.to("minitorch"))
    torch.testing.assert_close(ours.cpu(), native)
    (native**2).sum().backward()
    (ours**2).sum().backward()
    torch.testing.assert_close(twin_bag.weight.grad.cpu(), bag.weight.grad)


@pytest.mark.parametrize("offsets", [[0, -1], [0, -(2**40), 1], [0, 3, 1], [0, 2**40, 2], [0, 5, 4]])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bag_offsets_ascend(mode, dtype, offsets):
    # Native says so in some of these cases, and reads memory outside of the table in others.
    w = table(dtype=dtype).to("minitorch")
    values = "" if ASYNCHRONOUS else " 4, but offsets"  # which the device does not report
    with pytest.raises(RuntimeError, match="offsets must not decrease or pass input's length" + values):
        F.embedding_bag(torch.tensor([1, 2, 3, 4]).to("minitorch"), w, torch.tensor(offsets).to("minitorch"), mode=mode)
        torch.minitorch.synchronize()


@pytest.mark.parametrize("index", [-1, 7, 2**31, 2**40, -(2**63)])
def test_indices_far_outside(index):
    i = torch.tensor([0, index])
    check_error(lambda w, i: F.embedding(i, w), table(), i)
    check_error(lambda w, i: F.embedding(i, w, max_norm=1.0), table(), i)
    check_error(lambda i: F.one_hot(i, 3), i)
    for mode in ("sum", "mean", "max"):
        check_error(
            lambda w, i: F.embedding_bag(i, w, torch.tensor([0], device=w.device), mode=mode), table().double(), i
        )
        check_error(
            lambda w, i: F.embedding_bag(i, w, torch.tensor([0], device=w.device), mode=mode), table(), i, text=False
        )
    w, i = table().to("minitorch"), i.to("minitorch")
    with pytest.raises(IndexError):
        torch.ops.aten._embedding_bag_per_sample_weights_backward(w[:2], w, i, i * 0, i * 0, 0)
        torch.minitorch.synchronize()
    # Gradients of rows that do not exist go nowhere; native reads or writes outside of the table here.
    grad = torch.ops.aten.embedding_dense_backward(w[:2], i, 7, -1, True)
    assert torch.equal(grad[0], w[0]) and not grad[1:].any()


def test_bag_argument_errors():
    i, w, o = torch.tensor([1, 2]), table(), torch.tensor([0])
    bag = F.embedding_bag
    check_error(lambda i, w, o: bag(i, w, o.float()), i, w, o)
    check_error(lambda i, w, o: bag(i.float(), w, o), i, w, o)
    check_error(lambda i, w, o: bag(i, w.long(), o), i, w, o)
    check_error(lambda i, w, o: bag(i, w, o[None]), i, w, o)
    check_error(lambda i, w, o: bag(i, w, o, mode="mean", per_sample_weights=w[0, :2]), i, w, o)
    check_error(lambda i, w, o: bag(i, w, o, mode="sum", per_sample_weights=w[0, :2].double()), i, w, o)
    check_error(lambda i, w, o: bag(i, w, o, mode="sum", per_sample_weights=w[0, :1]), i, w, o)
    check_error(lambda i, w, o: bag(i, w, o[:0], include_last_offset=True), i, w, o)
    check_error(lambda i, w, o: bag(i, w, o, padding_idx=9), i, w, o)


@pytest.mark.parametrize("dim", [1, 15, 16, 64, 100, 205])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bag_widths(mode, dim):
    """Rows of several vectors, one vector, and what is left."""
    table, bags = torch.randn(50, dim), torch.randint(50, (6, 5))
    for weights in (None, torch.randn(6, 5)) if mode == "sum" else (None,):
        native = F.embedding_bag(bags, table, mode=mode, per_sample_weights=weights, padding_idx=3)
        on_device = None if weights is None else weights.to("minitorch")
        ours = F.embedding_bag(
            bags.to("minitorch"), table.to("minitorch"), mode=mode, per_sample_weights=on_device, padding_idx=3
        )
        torch.testing.assert_close(ours.cpu(), native, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, float("inf")])
def test_rows_of_complex_numbers_are_renormalised(norm, dtype):
    torch.manual_seed(0)
    weight = torch.randn(6, 3, dtype=dtype) * torch.tensor([3, 3, 3, 0.1, 3, 3])[:, None]
    indices = torch.tensor([[1, 3, 1], [4, 0, 1]])
    check(lambda w, i: F.embedding(i, w, max_norm=1.0, norm_type=norm), weight, indices, exact=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding_idx", [-1, 3])
@pytest.mark.parametrize("include_last_offset", [False, True])
def test_fake_bags_are_like_real_ones(dtype, mode, padding_idx, include_last_offset):
    def likeness(weight, indices, offsets):
        modes = {"sum": 0, "mean": 1, "max": 2}
        results = torch._embedding_bag(
            weight, indices, offsets, False, modes[mode], False, None, include_last_offset, padding_idx
        )
        return [(t.dtype, t.shape, t.stride(), t.device.type) for t in results]

    tensors = [t.to("minitorch") for t in (table(dtype=dtype), INDICES, OFFSETS)]
    with FakeTensorMode() as fake:
        planned = likeness(*(fake.from_tensor(t) for t in tensors))
    assert planned == likeness(*tensors)


def test_gradients_of_maxima_of_many_bags():
    """Of bags that share rows, and of empty ones, in a fixed order."""
    torch.manual_seed(0)
    weight, indices = torch.randn(40, 33), torch.randint(0, 40, (9000,))
    offsets = torch.arange(0, 9000, 3).repeat_interleave(torch.arange(3000) % 5 // 4 + 1)
    grad = torch.randn(len(offsets), 33)
    for padding in (None, 7):
        native = weight.double().requires_grad_()
        F.embedding_bag(indices, native, offsets, mode="max", padding_idx=padding).backward(grad.double())
        found = []
        for _ in range(2):
            ours = weight.to(DEVICE).requires_grad_()
            bags = F.embedding_bag(indices.to(DEVICE), ours, offsets.to(DEVICE), mode="max", padding_idx=padding)
            bags.backward(grad.to(DEVICE))
            found.append(ours.grad.cpu())
        torch.testing.assert_close(found[0], native.grad.float(), rtol=1e-5, atol=1e-5)
        assert torch.equal(*found)
