"""Every view operator shares memory, carries version counters and gradients, as on native CPU."""

import pytest
import torch
from twin import assert_same

DEVICE = "minitorch"

# name: (shape, dtype, view). Each returns one view (or several) of its input.
VIEWS = {
    "alias": ((3, 4), lambda x: torch.ops.aten.alias(x)),
    "as_strided": ((3, 4), lambda x: x.as_strided((2, 3), (1, 2), 1)),
    "chunk": ((6, 4), lambda x: x.chunk(4)),
    "detach": ((3, 4), lambda x: x.detach()),
    "diagonal": ((4, 5), lambda x: x.diagonal(1)),
    "dsplit": ((2, 3, 4), lambda x: x.dsplit(2)),
    "expand": ((3, 1), lambda x: x.expand(3, 4)),
    "expand_as": ((3, 1), lambda x: x.expand_as(torch.empty(2, 3, 4))),
    "flatten": ((2, 3, 4), lambda x: x.flatten(1)),
    "getitem_int": ((3, 4), lambda x: x[1]),
    "getitem_slice": ((5, 4), lambda x: x[1:4:2, ..., 1:]),
    "getitem_none": ((3, 4), lambda x: x[None, :, None]),
    "hsplit": ((2, 4), lambda x: x.hsplit(2)),
    "movedim": ((2, 3, 4), lambda x: x.movedim(0, 2)),
    "moveaxis": ((2, 3, 4), lambda x: x.moveaxis(0, 2)),
    "mT": ((2, 3, 4), lambda x: x.mT),
    "narrow": ((5, 4), lambda x: x.narrow(0, 1, 3)),
    "permute": ((2, 3, 4), lambda x: x.permute(2, 0, 1)),
    "positive": ((3, 4), lambda x: +x),
    "reshape": ((3, 4), lambda x: x.reshape(2, 6)),
    "reshape_alias": ((3, 4), lambda x: torch.ops.aten._reshape_alias(x, (4, 3), (3, 1))),
    "select": ((3, 4), lambda x: x.select(1, -1)),
    "slice": ((6, 4), lambda x: torch.ops.aten.slice(x, 0, 1, 5, 2)),
    "split": ((7, 4), lambda x: x.split(3)),
    "split_sizes": ((7, 4), lambda x: x.split([2, 5])),
    "squeeze": ((3, 1, 4, 1), lambda x: x.squeeze()),
    "squeeze_dim": ((3, 1, 4, 1), lambda x: x.squeeze(1)),
    "squeeze_dims": ((3, 1, 4, 1), lambda x: x.squeeze((1, 3))),
    "swapaxes": ((2, 3, 4), lambda x: x.swapaxes(0, 1)),
    "swapdims": ((2, 3, 4), lambda x: x.swapdims(0, 2)),
    "t": ((3, 4), lambda x: x.t()),
    "T": ((3, 4), lambda x: x.T),
    "tensor_split": ((7, 4), lambda x: x.tensor_split((2, 3))),
    "transpose": ((2, 3, 4), lambda x: x.transpose(0, -1)),
    "unbind": ((3, 4), lambda x: x.unbind(1)),
    "unflatten": ((6, 4), lambda x: x.unflatten(0, (2, 3))),
    "unfold": ((7, 4), lambda x: x.unfold(0, 3, 4)),
    "unsqueeze": ((3, 4), lambda x: x.unsqueeze(1)),
    "view": ((3, 4), lambda x: x.view(2, -1)),
    "view_as": ((3, 4), lambda x: x.view_as(torch.empty(4, 3))),
    "vsplit": ((4, 2), lambda x: x.vsplit(2)),
    "chained": ((4, 6), lambda x: x[1:].t()[::2].unsqueeze(0)[0, 1:]),
}  # fmt: skip
COMPLEX_VIEWS = {
    "view_as_real": lambda x: torch.view_as_real(x),
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "adjoint_transpose": lambda x: x.transpose(0, 1),
}
EVERY = [(name, shape, torch.float32, fn) for name, (shape, fn) in VIEWS.items()] + [
    (name, (3, 4), torch.complex64, fn) for name, fn in COMPLEX_VIEWS.items()
]
EVERY.append(("view_as_complex", (3, 4, 2), torch.float32, torch.view_as_complex))
PARAMETERS = pytest.mark.parametrize("name, shape, dtype, view", EVERY, ids=[e[0] for e in EVERY])


def source(shape, dtype):
    torch.manual_seed(0)
    return torch.randn(shape, dtype=dtype)


def twin(tensor):
    """A contiguous copy on our device that is nobody's view."""
    return tensor.detach().to(DEVICE).requires_grad_(tensor.requires_grad)


def as_list(views):
    return list(views) if isinstance(views, (tuple, list)) else [views]


@PARAMETERS
def test_geometry_and_storage(name, shape, dtype, view):
    native = source(shape, dtype)
    ours = twin(native)
    for a, b in zip(as_list(view(ours)), as_list(view(native)), strict=True):
        assert_same(a, b)
        assert a.storage_offset() == b.storage_offset()
        assert a.untyped_storage().data_ptr() == ours.untyped_storage().data_ptr()
        assert a._is_view() == b._is_view() and (a._base is ours) == (b._base is native)
        assert a.is_contiguous() == b.is_contiguous()


@PARAMETERS
def test_writes_go_through(name, shape, dtype, view):
    native = source(shape, dtype)
    ours = twin(native)
    native_views, our_views = as_list(view(native)), as_list(view(ours))
    for a, b in zip(our_views, native_views, strict=True):
        if name.startswith("expand"):
            continue  # in-place work on an expanded tensor is an error, below
        before = ours._version, native._version
        a.mul_(2)
        b.mul_(2)
        a.select(0, 0).fill_(7)
        b.select(0, 0).fill_(7)
        assert a._version == b._version
        assert (ours._version - before[0]) == (native._version - before[1])
    assert_same(ours, native)
    native.add_(1)
    ours.add_(1)
    assert_same(our_views, native_views)


@PARAMETERS
def test_gradients(name, shape, dtype, view):
    native = source(shape, dtype).requires_grad_()
    ours = twin(native)
    if not any(v.requires_grad for v in as_list(view(native))):
        assert not any(v.requires_grad for v in as_list(view(ours)))
        return
    for x in (native, ours):
        # A view of an intermediate result, changed in place: history is rewritten through the view.
        y = x * 2
        total = 0
        for v in as_list(view(y)):
            total = total + (v * v).sum()
        if not name.startswith("expand") and name not in (
            "chunk",
            "split",
            "split_sizes",
            "unbind",
            "tensor_split",
            "hsplit",
            "vsplit",
            "dsplit",
        ):
            as_list(view(y))[0].mul_(3)
            total = (y * y).sum() + (view(y) * 1.5).sum()
        (total.real if total.is_complex() else total).backward()
    assert_same(ours.grad, native.grad, exact=False)


def test_view_dtype():
    native = torch.arange(24, dtype=torch.int32).reshape(2, 12)
    ours = twin(native)
    for dtype in (torch.float32, torch.int16, torch.int64, torch.uint8, torch.complex64, torch.bfloat16):
        assert_same(ours.view(dtype).view(torch.uint8), native.view(dtype).view(torch.uint8))
        assert ours.view(dtype).untyped_storage().data_ptr() == ours.untyped_storage().data_ptr()
    ours.view(torch.int16).fill_(1)
    native.view(torch.int16).fill_(1)
    assert_same(ours, native)


def test_conjugate_and_negative_views():
    native = source((3, 4), torch.complex64)
    ours = twin(native)
    for fn in (
        lambda x: x.conj(), lambda x: x.conj().imag, lambda x: x.conj().t()[1:], lambda x: x.mH, lambda x: x.conj() + 1,
        lambda x: x.conj().clone(), lambda x: torch.cat([x.conj(), x]), lambda x: x.conj().gather(0, torch.zeros(1, 4, dtype=torch.long, device=x.device)),
        lambda x: x.conj()[torch.tensor([0, 2], device=x.device)], lambda x: x.conj().index_select(1, torch.tensor([1], device=x.device)),
        lambda x: x.conj().masked_select(x.real > 0), lambda x: x.conj().flip(0), lambda x: x.conj().imag.tril(), lambda x: x.conj().resolve_conj(),
        lambda x: x.conj().nonzero(), lambda x: torch.stack([x.conj().imag, x.imag]), lambda x: x.conj().roll(1), lambda x: x.conj().take(torch.tensor([3], device=x.device)),
    ):  # fmt: skip
        a, b = fn(ours), fn(native)
        assert a.is_conj() == b.is_conj() and a.is_neg() == b.is_neg()
        assert_same(a.resolve_conj().resolve_neg(), b.resolve_conj().resolve_neg())
    for x in (ours, native):
        x.conj()[0].fill_(1 + 2j)
        x.conj().imag[1].fill_(5)
        x.conj().index_fill_(0, torch.tensor([2], device=x.device), 3j)
        x.conj().masked_fill_(x.real > 1, 2 - 1j)
        x[0].copy_(x[1].conj())
        x[1].imag.copy_(x[2].conj().imag)
        x.conj()[2].copy_(x[0])
    assert_same(ours, native)


def test_in_place_on_expanded_is_refused():
    for device in ("cpu", DEVICE):
        x = torch.ones(3, 1).to(device)
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            x.expand(3, 4).add_(1)
        assert torch.equal(x.cpu(), torch.ones(3, 1))


def test_leaf_views_and_saved_tensors():
    for device in ("cpu", DEVICE):
        leaf = torch.ones(3, requires_grad=True, device=device)
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
            leaf[0].fill_(2)
        y = leaf * 2
        z = y * y
        y[0] = 5
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


def test_set_resize_and_storage():
    for device in ("cpu", DEVICE):
        x = torch.arange(6.0).to(device)
        y = torch.empty(0, device=device)
        y.set_(x.untyped_storage(), 1, (2, 2), (2, 1))
        assert y.tolist() == [[1, 2], [3, 4]] and y.is_set_to(x.as_strided((2, 2), (2, 1), 1))
        z = torch.empty(0, device=device)
        z.set_(x)
        assert z.data_ptr() == x.data_ptr() and z.shape == (6,)
        z.resize_(2, 2)
        assert z.tolist() == [[0, 1], [2, 3]]
        w = torch.empty(2, device=device).fill_(4)
        w.resize_(5)
        assert w[:2].tolist() == [4, 4] and w.shape == (5,)
        x.data = torch.ones(2, device=device)
        assert x.shape == (2,)


def test_view_backward_composites():
    grad = source((3, 4), torch.float32)
    calls = (
        lambda g: torch.ops.aten.select_backward(g, (3, 5, 4), 1, 2), lambda g: torch.ops.aten.slice_backward(g, (3, 9), 1, 1, 9, 2),
        lambda g: torch.ops.aten.diagonal_backward(g, (4, 3, 4), 0, 0, 2), lambda g: torch.select_scatter(g, g[0] * 0, 0, 1),
        lambda g: torch.slice_scatter(g, g[:, :2] * 0, 1, 0, 4, 2), lambda g: torch.as_strided_scatter(g, g[0] * 0, (4,), (2,), 1),
        lambda g: torch.as_strided_copy(g, (2, 2), (1, 2)), lambda g: torch.view_copy(g, (4, 3)), lambda g: torch.permute_copy(g, (1, 0)),
    )  # fmt: skip
    for call in calls:
        assert_same(call(twin(grad)), call(grad))


def test_lift_fresh_and_shallow_copies():
    x = torch.ones(3).to(DEVICE)
    assert torch.ops.aten.lift_fresh(x).data_ptr() == x.data_ptr()
    assert torch._has_compatible_shallow_copy_type(x, torch.empty(2).to(DEVICE))
