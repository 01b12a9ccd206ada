"""Nested tensors of the strided layout: pieces, sizes, gradients and errors are native's."""

import pytest
import torch
from torch.nn import functional as F

from tests.python.twin import ASYNCHRONOUS, DEVICE, TOLERANCE, assert_same_error, error_of

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
SHAPES = [(2, 4), (5, 4), (1, 4)]
LIMITS = {**TOLERANCE, torch.float32: {"rtol": 1e-4, "atol": 1e-5}}  # gradients of weights are long sums
SQUARES = [(2, 3, 4), (2, 5, 4), (2, 1, 4)]


def parts(shapes=SHAPES, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(s, generator=generator) * 3).to(dtype) for s in shapes]


def nested(tensors, device, grad=False):
    return torch.nested.nested_tensor(tensors, device=device, requires_grad=grad)


def opened(result):
    """What can be seen of a result: nested tensors as their pieces, sizes, strides and offsets, on the CPU."""
    if isinstance(result, tuple | list):
        return [opened(r) for r in result]
    if not isinstance(result, torch.Tensor):
        return result
    if not result.is_nested:
        return ["dense", result.dtype, result.stride(), result.detach().cpu()]
    result = result.detach()
    layout = [result._nested_tensor_size(), result._nested_tensor_strides(), result._nested_tensor_storage_offsets()]
    return ["nested", result.dtype, *[t.tolist() for t in layout], [p.cpu() for p in result.unbind()]]


def assert_like(ours, native):
    assert type(ours) is type(native), f"{ours!r} instead of {native!r}"
    if isinstance(native, list):
        assert len(ours) == len(native)
        for a, b in zip(ours, native, strict=True):
            assert_like(a, b)
    elif isinstance(native, torch.Tensor):
        limits = LIMITS.get(native.dtype, {"rtol": 0, "atol": 0})
        torch.testing.assert_close(ours, native, equal_nan=True, **limits)
    else:
        assert ours == native, f"{ours!r} instead of {native!r}"


def check_nested(fn, *lists, grad=False):
    """fn of nested tensors made of these lists of pieces (other arguments are taken as they are)."""
    results = []
    for device in ("cpu", DEVICE):
        args = [
            nested([p.clone() for p in a], device, grad)
            if isinstance(a, list)
            else a.to(device).detach().requires_grad_(grad and a.is_floating_point())
            if isinstance(a, torch.Tensor)
            else a
            for a in lists
        ]
        out = fn(*args)
        seen = [opened(out), opened(args)]
        if grad:
            first = out[0] if isinstance(out, tuple | list) else out
            (first.values() if first.is_nested else first).square().sum().backward()
            seen.append([opened(a.grad) for a in args if isinstance(a, torch.Tensor) and a.is_leaf])
        results.append(seen)
    native, ours = results
    assert_like(ours, native)


POINTWISE = {
    "abs": torch.abs, "sgn": torch.sgn, "cos": torch.cos, "sin": torch.sin, "sqrt": torch.sqrt, "neg": torch.neg,
    "relu": torch.relu, "gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh, "isnan": torch.isnan, "isinf": torch.isinf,
    "isposinf": torch.isposinf, "isneginf": torch.isneginf, "logical_not": torch.logical_not,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise(name, dtype):
    check_nested(POINTWISE[name], parts(dtype=dtype))


@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "abs", "neg", "cos", "sin", "sqrt"])
def test_gradients_of_pointwise_operators(name):
    check_nested(POINTWISE[name], [p.abs() + 1 for p in parts()], grad=True)


@pytest.mark.parametrize("name", ["abs_", "neg_", "sgn_", "relu_", "tanh_", "logical_not_", "zero_"])
def test_in_place(name):
    check_nested(lambda x: getattr(x.detach(), name)(), parts())


def test_binary_operators():
    a, b = parts(), parts(seed=1)
    for fn in (torch.add, torch.sub, torch.mul, torch.div):
        check_nested(fn, a, b)
    for fn in (torch.add, torch.mul, torch.div, torch.sub):
        check_nested(fn, a, b, grad=True)
    for fn in (torch.eq, torch.ge, torch.gt):
        check_nested(lambda x, fn=fn: fn(x, 0.5), a)
    check_nested(lambda x: x * 2 + x / 3 - x.mul(0.5), a)
    check_nested(lambda x, s: x * s, a, torch.tensor(2.0))
    check_nested(lambda x, y: torch.add(x, y, alpha=0.5), a, b)
    check_nested(lambda x, y: x.detach().add_(y), a, b)
    check_nested(lambda x, y: x.detach().mul_(y).mul_(3), a, b)
    check_nested(lambda x: x.masked_fill(x > 0, -7.0), a)
    check_nested(lambda x: x.detach().fill_(3.5), a)
    check_nested(lambda x: (x > -100).all(1), a)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_matrix_products(dtype):
    x, w, b = parts(dtype=dtype), torch.randn(6, 4, dtype=dtype), torch.randn(6, dtype=dtype)
    check_nested(F.linear, x, w, b, grad=True)
    check_nested(F.linear, x, w, grad=True)
    check_nested(lambda x, y: torch.bmm(x, y.transpose(1, 2)), x, parts(dtype=dtype, seed=2))
    check_nested(lambda x, y: torch.matmul(x, y.transpose(-2, -1)), x, parts(dtype=dtype, seed=2), grad=True)
    squares = parts(SQUARES, dtype)
    check_nested(lambda x, y: torch.matmul(x, y.transpose(-2, -1)), squares, parts(SQUARES, dtype, 3))


def test_softmax():
    for dim in (-1, 1, 2):
        check_nested(lambda x, dim=dim: torch.softmax(x, dim), parts(), grad=True)
    masked = parts()
    masked[1][2:] = float("-inf")
    check_nested(lambda x: torch._safe_softmax(x, -1), masked)


def test_layer_norm():
    weight, bias = torch.randn(4), torch.randn(4)
    check_nested(lambda x, w, b: F.layer_norm(x, (4,), w, b, 1e-5), parts(), weight, bias, grad=True)
    check_nested(
        lambda x, w, b: F.layer_norm(x, (3, 4), w, b),
        parts([(2, 3, 4), (5, 3, 4)]),
        torch.randn(3, 4),
        torch.randn(3, 4),
    )
    check_nested(lambda x, w, b: torch.native_layer_norm(x, (4,), w, b, 1e-5), parts(), weight, bias)


def test_sums():
    for dtype in (torch.float32, torch.float64, torch.int32):
        check_nested(lambda x: x.sum(-1, keepdim=True), parts(dtype=dtype))
    check_nested(lambda x: x.sum(-1, keepdim=True), parts(), grad=True)
    check_nested(lambda x: x.sum(-1, keepdim=True), parts([(3,), (1,)]), grad=True)


def test_embedding():
    weight = torch.randn(10, 3)
    check_nested(lambda i, w: F.embedding(i, w), [torch.tensor([1, 2, 9]), torch.tensor([0])], weight)


def test_shapes():
    x = parts()
    check_nested(lambda x: x.transpose(1, 2), x)
    check_nested(lambda x: x.transpose(1, 2).contiguous(), x, grad=True)
    check_nested(lambda x: x.unsqueeze(1), x)
    check_nested(lambda x: x.unsqueeze(1).squeeze(1), x)
    check_nested(lambda x: x.reshape(3, -1, 2, 2), x, grad=True)
    check_nested(lambda x: x.view(3, -1, 2, 2).transpose(1, 2), x)
    check_nested(lambda x: x.chunk(2, -1), x)
    check_nested(lambda x: torch.split_with_sizes(x, [1, 3], -1), x)
    check_nested(lambda x: x.select(0, 1), x, grad=True)
    check_nested(lambda x: x[2], x)
    check_nested(lambda x: x.narrow(0, 1, 2), x)
    check_nested(lambda x: x.unbind(), x, grad=True)
    check_nested(lambda x: x.values(), x, grad=True)
    check_nested(lambda x, y: torch.cat([x, y]), x, parts(seed=3))
    check_nested(lambda x: (x.numel(), x.dim(), x.size(0), x.size(2), x.is_contiguous()), x)
    check_nested(lambda x: x.transpose(1, 2).is_contiguous(), x)
    check_nested(lambda x: x.is_same_size(x.clone()), x)


def test_copies():
    x = parts()
    check_nested(lambda x: x.clone(), x, grad=True)
    check_nested(lambda x: x.double(), x, grad=True)
    check_nested(lambda x: x.to(torch.bfloat16), x)
    check_nested(lambda x, y: x.detach().copy_(y), x, parts(seed=3))
    check_nested(lambda x: (torch.zeros_like(x), torch.ones_like(x), torch.empty_like(x).zero_()), x)
    check_nested(lambda x: x.detach(), x)
    ours = nested(x, "cpu").to(DEVICE)
    assert ours.device.type == DEVICE
    assert_like(opened(ours), opened(nested(x, "cpu")))
    assert_like(opened(ours.cpu()), opened(nested(x, "cpu")))


@pytest.mark.skipif(ASYNCHRONOUS, reason="a GPU draws the numbers of native CUDA")
def test_random_numbers_are_natives():
    def draw(x):
        torch.manual_seed(0)
        return x.detach().normal_(1.0, 2.0), torch.randn_like(x)

    check_nested(draw, parts())


@pytest.mark.skipif(ASYNCHRONOUS, reason="a GPU draws the numbers of native CUDA")
def test_dropout():
    def drop(x):
        torch.manual_seed(3)
        return F.dropout(x, 0.25)

    check_nested(drop, parts(), grad=True)


@pytest.mark.parametrize("padding", [0.0, -1.5])
def test_padding_and_back(padding):
    for shapes in (SHAPES, SQUARES, [(0, 4), (3, 4)], [(3,), (5,)]):
        check_nested(lambda x: torch.nested.to_padded_tensor(x, padding), parts(shapes), grad=True)
    check_nested(lambda x: torch.nested.to_padded_tensor(x, padding, (3, 7, 5)), parts())
    check_nested(lambda x, p: torch._nested_from_padded_and_nested_example(p, x), parts(), torch.randn(3, 5, 4))
    sizes = torch.tensor([[2, 8], [5, 8], [1, 8]])
    check_nested(lambda p: torch._nested_from_padded(p, sizes, True), torch.randn(3, 2, 5, 4))
    check_nested(lambda p: torch._nested_from_padded(p, sizes, False), torch.randn(3, 6, 8))


def test_masks():
    x = torch.randn(3, 5, 4)
    for mask, aligned in (([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], True), ([[1, 0, 1, 0, 0]] * 3, False)):
        keep = torch.tensor(mask, dtype=torch.bool)
        assert torch._nested_tensor_from_mask_left_aligned(x.to(DEVICE), keep.to(DEVICE)) is aligned
        if aligned:
            check_nested(torch._nested_tensor_from_mask, x, keep)
        else:
            check_errors(torch._nested_tensor_from_mask, x, keep)
            check_nested(lambda x, m: torch._nested_tensor_from_mask(x, m, mask_check=False), x, keep)


def test_of_no_tensors_and_of_empty_ones():
    check_nested(lambda x: (x.numel(), x.dim(), x.clone(), x.unbind()), [])
    check_nested(lambda x: (x * 2, x.sum(-1, keepdim=True)), [torch.randn(0, 3), torch.randn(2, 3)])
    check_nested(lambda x: x.relu(), [torch.tensor(1.0), torch.tensor(-2.0)])


def test_attention():
    def attend(x):
        q = x.view(3, -1, 2, 2).transpose(1, 2)
        return F.scaled_dot_product_attention(*(t.contiguous() for t in (q, q * 2, q + 1)))

    check_nested(attend, parts())
    check_errors(lambda x: F.scaled_dot_product_attention(*[x.view(3, -1, 2, 2).transpose(1, 2)] * 3), parts())


def check_errors(fn, *args):
    errors = []
    for device in ("cpu", DEVICE):
        errors.append(error_of(fn, *[nested(a, device) if isinstance(a, list) else a.to(device) for a in args]))
    assert_same_error(errors[1], errors[0])


def test_errors():
    x, dense = parts(), torch.randn(3, 5, 4)
    for fn, *args in (
        (torch.add, x, dense),
        (torch.eq, x, x),
        (torch.where, [p > 0 for p in x], x, x),
        (lambda x: x.transpose(1, 2).to_padded_tensor(0.0), x),
        (torch.add, x, parts([(2, 4), (3, 4), (1, 4)])),
        (lambda x: x.size(1), x),
        (lambda x: x.sum(-1), x),
        (lambda x: x.sum(1, keepdim=True), x),
        (lambda x: (x > 0).sum(-1, keepdim=True), x),
        (lambda x: torch.softmax(x, 0), x),
        (lambda x: x.transpose(0, 1), x),
        (lambda x: x.squeeze(), x),
        (lambda x: x.unbind(1), x),
        (F.linear, x, torch.randn(3, 5)),
        (lambda x: F.layer_norm(x, (4,)), x),
        (lambda x: F.layer_norm(x, (5,), x.values()[:5], x.values()[:5]), x),
        (lambda x: F.layer_norm(x, (1, 4), x.values()[:4].view(1, 4), x.values()[:4].view(1, 4)), x),
        (lambda x: x.to_padded_tensor(0.0, (3, 2, 4)), x),
        (torch.bmm, x, x),
    ):
        check_errors(fn, *args)


def test_other_operators_are_refused_by_name():
    x = nested(parts(), DEVICE)
    for name, call in {"aten::exp": torch.exp, "aten::cumsum": lambda x: x.cumsum(-1)}.items():
        with pytest.raises(NotImplementedError, match=f"'{name}' on nested tensors of the strided layout"):
            call(x)
