"""Attention: the fused kernels, the composite, and the modules on top, against native CPU."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

from tests.python.twin import ASYNCHRONOUS, NATIVE, check, check_error

DEVICE = "minitorch"
TOLERANCE = {
    torch.float32: {"rtol": 2e-5, "atol": 2e-6},
    torch.bfloat16: {"rtol": 0.03, "atol": 0.02},
    torch.float16: {"rtol": 0.01, "atol": 4e-3},
    torch.float64: {"rtol": 1e-9, "atol": 1e-10},
}


def run(device, tensors, mask, options, view=lambda t: t):
    """Output and gradients of attention on a device."""
    leaves = [t.clone().to(device).requires_grad_() for t in tensors]
    out = F.scaled_dot_product_attention(
        *(view(t) for t in leaves), None if mask is None else mask.to(device), **options
    )
    generator = torch.Generator().manual_seed(1)
    out.backward(torch.randn(out.shape, generator=generator).to(out.dtype).to(device))
    return [out.detach()] + [t.grad for t in leaves]


def compare(tensors, mask=None, view=lambda t: t, **options):
    dtype = tensors[0].dtype
    # 16-bit references are computed in float: native's own roundings are no yardstick.
    wide = [t.float() if t.dtype in (torch.bfloat16, torch.float16) else t for t in tensors]
    wide_mask = mask.float() if mask is not None and mask.dtype in (torch.bfloat16, torch.float16) else mask
    native = run("cpu", wide, wide_mask, options, view)
    ours = run(DEVICE, tensors, mask, options, view)
    for a, b in zip(ours, native, strict=True):
        assert a.dtype == dtype
        assert a.shape == b.shape
        torch.testing.assert_close(a.cpu(), b.to(dtype), **TOLERANCE[dtype])


def make(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    ("queries", "keys", "head_dim", "value_dim"),
    [
        (1, 1, 1, 1),
        (5, 7, 3, 3),
        (64, 128, 32, 32),
        (65, 129, 16, 24),
        (128, 128, 32, 32),
        (200, 60, 48, 48),
        (150, 200, 64, 64),
        (70, 90, 100, 72),
        (130, 150, 128, 128),
    ],
)
def test_shapes(queries, keys, head_dim, value_dim, dtype, causal):
    tensors = [
        make(2, 3, queries, head_dim, dtype=dtype),
        make(2, 3, keys, head_dim, dtype=dtype, seed=1),
        make(2, 3, keys, value_dim, dtype=dtype, seed=2),
    ]
    compare(tensors, is_causal=causal)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(
    "shape", [(70, 150), (1, 150), (2, 1, 70, 150), (1, 3, 70, 150), (2, 3, 70, 150), (2, 1, 1, 150)]
)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks(shape, kind, dtype):
    tensors = [make(2, 3, 70, 16, dtype=dtype), make(2, 3, 150, 16, dtype=dtype), make(2, 3, 150, 16, dtype=dtype)]
    mask = make(*shape, seed=9)
    compare(tensors, mask > -0.5 if kind == "bool" else mask.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_rows_that_meet_nothing(dtype):
    tensors = [make(1, 2, n, 8, dtype=dtype) for n in (6, 9, 9)]
    mask = torch.ones(6, 9, dtype=torch.bool)
    mask[2] = False
    compare(tensors, mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_scale_and_gqa(dtype):
    def heads(q, kv, keys=140):
        return [make(2, q, 140, 8, dtype=dtype), *(make(2, kv, keys, 8, dtype=dtype, seed=s) for s in (1, 2))]

    compare(heads(3, 3), scale=0.3)
    compare(heads(6, 2, 150), enable_gqa=True)
    compare(heads(6, 1), enable_gqa=True, is_causal=True)


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.transpose(1, 2),
        lambda t: t[:, :, ::2],
        lambda t: t[..., ::2],
        lambda t: t.transpose(2, 3),
        lambda t: t[:, :1].expand(-1, 4, -1, -1),
    ],
)
def test_layouts(view):
    compare([make(2, 24, 20, 16, seed=s) for s in range(3)], view=view)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_more_heads_than_a_grid_has(dtype):
    compare([make(9000, 8, 2, 3, dtype=dtype, seed=i) / 2 for i in range(3)], is_causal=True)
    q, k, v = make(1, 70000, 2, 3, dtype=dtype) / 2, *(make(1, 35000, 2, 3, dtype=dtype, seed=i) / 2 for i in (1, 2))
    compare([q, k, v], enable_gqa=True)


def test_three_dimensions_and_empty():
    compare([make(3, 20, 8), make(3, 20, 8), make(3, 20, 8)])
    empty = torch.empty(2, 3, 0, 8, device=DEVICE)
    full = torch.randn(2, 3, 4, 8, device=DEVICE)
    assert F.scaled_dot_product_attention(empty, full, full).shape == (2, 3, 0, 8)


def test_special_values():
    q, k, v = make(1, 1, 4, 8), make(1, 1, 5, 8), make(1, 1, 5, 8)
    k[0, 0, 2, 3] = float("nan")
    native = F.scaled_dot_product_attention(q, k, v)
    ours = F.scaled_dot_product_attention(*(t.to(DEVICE) for t in (q, k, v)))
    torch.testing.assert_close(ours.cpu(), native, equal_nan=True)


def test_dropout_is_native_composite():
    tensors = [make(2, 3, 20, 8, seed=s) for s in range(3)]
    results = []
    if NATIVE is None:
        pytest.skip("this torch has no CUDA to compare with")
    for device in (NATIVE, DEVICE):
        torch.manual_seed(3)
        with sdpa_kernel(SDPBackend.MATH):
            out = F.scaled_dot_product_attention(*(t.to(device) for t in tensors), dropout_p=0.4)
        results.append(out.cpu())
    torch.testing.assert_close(*results)


@pytest.mark.skipif(ASYNCHRONOUS, reason="native's kernels on CUDA take what is no probability for none")
@pytest.mark.parametrize(
    ("p", "width", "refused"),
    [(-0.1, 8, True), (-0.1, 9, False), (float("nan"), 8, True), (1.0, 8, False), (1.1, 8, True)],
)
def test_probabilities_that_are_none(p, width, refused):
    compute = lambda q, v: F.scaled_dot_product_attention(q, q, v, dropout_p=p)  # noqa: E731
    tensors = make(1, 1, 4, 8), make(1, 1, 4, width)
    check_error(compute, *tensors) if refused else check(compute, *tensors, exact=False)


def test_which_way_is_taken():
    q = make(2, 3, 20, 8).to(DEVICE)
    overrideable, math = SDPBackend.OVERRIDEABLE.value, SDPBackend.MATH.value
    choice = lambda *a, **k: torch._fused_sdp_choice(*a, **k)  # noqa: E731
    assert choice(q, q, q) == overrideable
    assert choice(q, q, q, None, 0.1) == (overrideable if ASYNCHRONOUS else math)  # as native
    assert choice(q.double(), q.double(), q.double()) == (math if ASYNCHRONOUS else overrideable)  # as native
    mask = torch.zeros(20, 20, device=DEVICE, requires_grad=True)
    assert choice(q, q, q, mask) == math
    with sdpa_kernel(SDPBackend.MATH):
        assert choice(q, q, q) == math


@pytest.mark.parametrize("dtype", [torch.float32] if ASYNCHRONOUS else [torch.float32, torch.float64], ids=str)
def test_a_mask_beside_is_causal(dtype):
    """Refused where native composes attention, taken where native has a fused kernel."""
    q, mask = make(2, 4, 5, 8, dtype=dtype), torch.ones(5, 5).tril(1) > 0
    compare([q, q, q], mask, is_causal=True)
    compare([q, q[:, :2].contiguous(), q[:, :2].contiguous()], mask, is_causal=True, enable_gqa=True)
    for k, v in ((q, q[..., :6].contiguous()), (q.mT.contiguous().mT, q)):
        for device in ("cpu", DEVICE):
            with pytest.raises(RuntimeError, match="Explicit attn_mask should not be set when is_causal=True"):
                F.scaled_dot_product_attention(*(t.to(device) for t in (q, k, v, mask)), is_causal=True)


@pytest.mark.parametrize("dtype", [torch.float32] if ASYNCHRONOUS else [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("head_dim", "value_dim"), [(8, 8), (3, 5), (8, 4)])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (1, 2, 0, 3)])
def test_the_layout_follows_the_query_where_native_fuses(order, head_dim, value_dim, dtype):
    strides = []
    for device in ("cpu", DEVICE):
        q, v = (make(2, 7, 4, d, dtype=dtype).permute(order).to(device) for d in (head_dim, value_dim))
        leaves = [t.detach().requires_grad_() for t in (q, q, v)]
        out = F.scaled_dot_product_attention(*leaves)
        grads = torch.autograd.grad(out.sum(), leaves)
        strides.append([out.stride(), *(g.stride() for g in grads)])
    if ASYNCHRONOUS:  # native CUDA's gradients lie as the inputs do
        strides[0][1:] = [t.stride() for t in leaves]
    assert strides[1] == strides[0]


def test_mask_gradient():
    tensors = [make(2, 3, 20, 8, seed=s) for s in range(3)]
    grads = []
    for device in ("cpu", DEVICE):
        mask = make(20, 20).to(device).requires_grad_()
        F.scaled_dot_product_attention(*(t.to(device) for t in tensors), mask).sum().backward()
        grads.append(mask.grad.cpu())
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)


def test_compile_aot_eager():
    tensors = [make(2, 20, 3, 8, seed=s).to(DEVICE).requires_grad_() for s in range(3)]

    def f(q, k, v):
        out = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        return out.transpose(1, 2).reshape(2, 20, 24).sin().sum()

    expected = torch.autograd.grad(f(*tensors), tensors)
    compiled = torch.autograd.grad(torch.compile(f, backend="aot_eager", fullgraph=True)(*tensors), tensors)
    for a, b in zip(compiled, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b.cpu())


LAYOUTS = {
    "contiguous": lambda t: t.contiguous(),
    "time first": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
    "batch in the middle": lambda t: t.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3),
    "columns": lambda t: t.mT.contiguous().mT,
    "one head repeated": lambda t: t[:, :1].expand(t.shape),
}


@pytest.mark.parametrize("wide_values", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_fake_tensors_lie_as_real_ones(layout, dtype, wide_values):
    forward = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    backward = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward
    if dtype == torch.float64 and ASYNCHRONOUS:
        pytest.skip("composed on CUDA, as native")

    def both(q, k, v, mask):
        out, lse, _, _, n, m, seed, offset, _ = forward(q, k, v, mask)
        return out, lse, backward(out, q, k, v, mask, [True] * 4, out, lse, None, None, n, m, 0.0, False, seed, offset)

    q, k, v = (LAYOUTS[layout](make(2, 3, 7, 8, seed=s).to(DEVICE, dtype)) for s in range(3))
    v = torch.cat([v, v], -1) if wide_values else v
    for mask in (None, make(7, 7).to(DEVICE, dtype), make(7, 7).to(DEVICE, dtype).t()):
        with FakeTensorMode() as mode:
            fakes = both(*(None if t is None else mode.from_tensor(t) for t in (q, k, v, mask)))
        for a, b in zip(tree_leaves(both(q, k, v, mask)), tree_leaves(fakes), strict=True):
            if b is not None:
                assert (a.shape, a.stride(), a.dtype, a.device) == (b.shape, b.stride(), b.dtype, b.device)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_multihead_attention_trains(dynamic):
    module = nn.MultiheadAttention(16, 4, batch_first=True).to(DEVICE)
    x = make(3, 7, 16).to(DEVICE).requires_grad_()
    results = []
    for call in (module, torch.compile(module, backend="aot_eager", dynamic=dynamic)):
        loss = call(x, x, x, need_weights=False)[0].square().sum()
        results.append(torch.autograd.grad(loss, [x, *module.parameters()]))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a.cpu(), b.cpu())


def both_modules(make_module, seed=0):
    torch.manual_seed(seed)
    native = make_module()
    ours = make_module()
    ours.load_state_dict(native.state_dict())
    return native, ours.to(DEVICE)


def check_training(native, ours, inputs, call=lambda m, *a: m(*a), rtol=1e-4, atol=1e-5):
    outs = []
    for module, device in ((native, "cpu"), (ours, DEVICE)):
        out = call(module, *(t.to(device) for t in inputs))
        out = out[0] if isinstance(out, tuple) else out
        out.square().sum().backward()
        outs.append(out.detach().cpu())
    torch.testing.assert_close(*outs, rtol=rtol, atol=atol)
    for a, b in zip(ours.parameters(), native.parameters(), strict=True):
        torch.testing.assert_close(a.grad.cpu(), b.grad, rtol=rtol, atol=atol * 10)


@pytest.mark.parametrize("batch_first", [True, False])
def test_multihead_attention(batch_first):
    native, ours = both_modules(lambda: nn.MultiheadAttention(16, 4, batch_first=batch_first))
    x = make(5, 6, 16)
    check_training(native, ours, [x], lambda m, x: m(x, x, x, need_weights=False))
    check_training(native, ours, [x], lambda m, x: m(x, x, x)[0])
    native, ours = native.eval(), ours.eval()
    with torch.no_grad():
        expected, weights = native(x, x, x)
        got, our_weights = ours(*[x.to(DEVICE)] * 3)
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(our_weights.cpu(), weights, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm_first", [True, False])
def test_transformer_layers(norm_first):
    def encoder():
        return nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=norm_first)

    native, ours = both_modules(encoder)
    x = make(3, 7, 16)
    check_training(native, ours, [x])
    native, ours = native.eval(), ours.eval()
    padding = torch.zeros(3, 7, dtype=torch.bool)
    padding[1, 4:] = True
    with torch.no_grad():  # what native calls its fast path
        torch.testing.assert_close(ours(x.to(DEVICE)).cpu(), native(x), rtol=1e-4, atol=1e-5)
        ours_out = ours(x.to(DEVICE), src_key_padding_mask=padding.to(DEVICE)).cpu()
        torch.testing.assert_close(
            ours_out[~padding], native(x, src_key_padding_mask=padding)[~padding], rtol=1e-4, atol=1e-5
        )

    def decoder():
        return nn.TransformerDecoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=norm_first)

    native, ours = both_modules(decoder)
    check_training(native, ours, [x, make(3, 5, 16, seed=4)])


@pytest.mark.filterwarnings("ignore")
def test_flex_attention():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    tensors = [make(2, 4, 128, 16), make(2, 4, 128, 16, seed=1), make(2, 4, 128, 16, seed=2)]
    two = [tensors[0], *(t[:, :2].contiguous() for t in tensors[1:])]
    results = []
    for device in ("cpu", DEVICE):
        q, k, v = (t.to(device) for t in tensors)
        block = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device=device)
        out, lse = flex_attention(q, k, v, block_mask=block, return_lse=True)
        biased = flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + (j - i), scale=0.5)
        shared = flex_attention(*(t.to(device) for t in two), enable_gqa=True)
        results.append([out, lse, biased, shared])
    for native, ours in zip(*results, strict=True):
        assert ours.device.type == DEVICE
        torch.testing.assert_close(ours.cpu(), native, **TOLERANCE[torch.float32])


@pytest.mark.skipif(ASYNCHRONOUS, reason="native refuses the gradient on the CPU only")
def test_flex_attention_has_no_gradient_where_native_has_none():
    from torch.nn.attention.flex_attention import flex_attention

    q = make(1, 1, 8, 16)
    for device in ("cpu", DEVICE):
        leaf = q.to(device).requires_grad_()
        with pytest.raises(NotImplementedError, match="FlexAttention does not support backward on CPU"):
            flex_attention(leaf, leaf, leaf)
