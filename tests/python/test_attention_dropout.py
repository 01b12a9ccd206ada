"""Attention with dropout on a GPU: the numbers that native's fused kernels draw, and the gradients that follow."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.python.twin import ASYNCHRONOUS, DEVICE, NATIVE

pytestmark = pytest.mark.skipif(not ASYNCHRONOUS, reason="on the CPU the composite serves dropout, as native's")
BF16, HALF, FLOAT = torch.bfloat16, torch.float16, torch.float32
TOLERANCE = {FLOAT: (2e-5, 2e-6), BF16: (0.03, 0.02), HALF: (0.01, 4e-3)}

# Philox4x32 in Python: J. Salmon et al., 2011.
WORD = (1 << 32) - 1


def philox(counter, key, rounds):
    c, (k0, k1) = list(counter), key
    for _ in range(rounds):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b & WORD, (a >> 32) ^ c[3] ^ k1, a & WORD]
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c


def halves(x):
    return x & WORD, x >> 32


def stays(seed, offset, shape, p, by_tiles):
    """The weights that stay, bool of ``shape`` (batch, heads, queries, keys), one after another."""
    batch, heads, queries, keys = shape
    p = torch.tensor(p)
    limit = int(((1 - p).double() * 255).floor())
    result = torch.zeros(batch * heads, queries, keys, dtype=torch.bool)
    tiles = {}
    for h in range(batch * heads):
        for i in range(queries):
            for j in range(keys):
                if by_tiles:
                    place = h, i // 16, j // 32, i % 8 * 4 + j % 8 // 2
                    if place not in tiles:
                        at = offset + h * 32 + place[3]
                        tiles[place] = philox((*halves(at), place[1], place[2]), halves(seed), 7)
                    word = tiles[place][j % 32 // 8]
                    result[h, i, j] = (word >> 8 * (i % 16 // 8 * 2 + j % 2) & 255) <= limit
                else:
                    at = offset + (h * queries + i) * keys + j
                    if at // 4 not in tiles:
                        tiles[at // 4] = philox((*halves(at // 4), 0, 0), halves(seed), 10)
                    result[h, i, j] = torch.tensor(tiles[at // 4][at % 4] * 2.0**-32 + 2.0**-33) > p
    return result.view(shape)


def drawn(q, k, v, mask, p, **options):
    """Which weights attention keeps for the generator's state: every key's value shows in a column of its own."""
    state = torch.minitorch.get_rng_state()
    columns = v.shape[-1]
    kept = []
    for first in range(0, k.shape[2], columns):
        torch.minitorch.set_rng_state(state)
        shown = torch.zeros(v.shape, dtype=v.dtype)
        for j in range(first, min(first + columns, k.shape[2])):
            shown[:, :, j, j - first] = 1
        out = F.scaled_dot_product_attention(
            q.to(DEVICE), k.to(DEVICE), shown.to(DEVICE), None if mask is None else mask.to(DEVICE), p, **options
        )
        kept.append(out.cpu() != 0)
    torch.minitorch.set_rng_state(state)
    return torch.cat(kept, -1)[..., : k.shape[2]]


def make(*shape, dtype, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def operands(dtype, batch, heads, kv_heads, queries, keys, width, value_width):
    shapes = (batch, heads, queries, width), (batch, kv_heads, keys, width), (batch, kv_heads, keys, value_width)
    return [make(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]


@pytest.mark.parametrize(
    ("shape", "width"), [((2, 3, 35, 70), 16), ((1, 2, 150, 170), 64), ((1, 2, 150, 170), 128)], ids=str
)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_numbers(dtype, masked, shape, width):
    batch, heads, queries, keys = shape
    q, k, v = operands(dtype, batch, heads, heads, queries, keys, width, width)
    mask = torch.zeros(queries, keys, dtype=dtype) if masked else None
    for p in (0.1, 0.5, 0.85):
        torch.manual_seed(1234567890123)
        torch.rand(5, device=DEVICE)
        offset = torch.minitorch.default_generators[0].get_offset()
        kept = drawn(q, k, v, mask, p)
        by_tiles = dtype != FLOAT and not masked
        assert torch.equal(kept, stays(1234567890123, offset, shape, p, by_tiles))
        F.scaled_dot_product_attention(*(t.to(DEVICE) for t in (q, k, v)), None if mask is None else mask.to(DEVICE), p)
        words = batch * heads * (32 if by_tiles else queries * keys)
        assert torch.minitorch.default_generators[0].get_offset() == offset + (words + 3) // 4 * 4


SHAPES = [  # batch, heads, kv heads, queries, keys, width, value width
    (2, 3, 3, 35, 70, 16, 16),
    (1, 2, 2, 130, 200, 64, 64),
    (1, 2, 2, 129, 65, 128, 128),
    (1, 4, 2, 70, 90, 32, 32),
    (1, 4, 1, 40, 100, 128, 128),
    (1, 2, 2, 33, 40, 24, 40),
    (2, 2, 2, 20, 50, 200, 200),
    (1, 1, 1, 1, 1, 8, 8),
]


@pytest.mark.parametrize("how", ["plain", "causal", "masked"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients(shape, dtype, how):
    p = 0.3
    tensors = operands(dtype, *shape)
    mask = make(shape[3], shape[4], dtype=dtype, seed=7) if how == "masked" else None
    options = {"is_causal": how == "causal", "enable_gqa": shape[1] != shape[2]}
    torch.manual_seed(5)
    kept = drawn(*tensors, mask, p, **options)

    leaves = [t.to(DEVICE).requires_grad_() for t in tensors]
    out = F.scaled_dot_product_attention(*leaves, None if mask is None else mask.to(DEVICE), p, **options)
    assert type(out.grad_fn).__name__.startswith("ScaledDotProductFusedAttention")
    grad = make(*out.shape, dtype=dtype, seed=9)
    out.backward(grad.to(DEVICE))

    exact = [t.double().requires_grad_() for t in tensors]
    q, k, v = exact[0], *(t.repeat_interleave(shape[1] // shape[2], 1) for t in exact[1:])
    scores = q @ k.transpose(-1, -2) / shape[5] ** 0.5
    if mask is not None:
        scores = scores + mask.double()
    if options["is_causal"]:
        scores = scores.masked_fill(torch.ones(shape[3:5]).triu(1).bool(), float("-inf"))
    weights = scores.softmax(-1) * kept / (1 - p)
    (weights @ v).backward(grad.double())
    rtol, atol = TOLERANCE[dtype]
    for ours, reference in zip([out, *(t.grad for t in leaves)], [weights @ v, *(t.grad for t in exact)], strict=True):
        torch.testing.assert_close(ours.detach().cpu().double(), reference.detach(), rtol=rtol, atol=3 * atol)


@pytest.mark.skipif(NATIVE != "cuda", reason="this torch has no CUDA to compare with")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("dtype", "masked", "backend"),
    [
        (BF16, False, SDPBackend.FLASH_ATTENTION),
        (HALF, False, SDPBackend.FLASH_ATTENTION),
        (FLOAT, False, SDPBackend.EFFICIENT_ATTENTION),
        (FLOAT, True, SDPBackend.EFFICIENT_ATTENTION),
        (BF16, True, SDPBackend.EFFICIENT_ATTENTION),
    ],
    ids=str,
)
def test_native_draws_the_same(dtype, masked, backend, causal):
    if masked and causal:
        pytest.skip("native refuses both")
    queries = 264 if causal else 200
    tensors = operands(dtype, 2, 4, 4, queries, 264, 64, 64)
    mask = make(2, 4, queries, 264, dtype=dtype, seed=7) if masked else None
    results = []
    for device in ("cuda", DEVICE):
        torch.manual_seed(11)
        with sdpa_kernel(backend if device == "cuda" else SDPBackend.OVERRIDEABLE):
            out = F.scaled_dot_product_attention(
                *(t.to(device) for t in tensors), None if mask is None else mask.to(device), 0.25, is_causal=causal
            )
        results.append([out.cpu(), torch.rand(4, device=device).cpu()])
    rtol, atol = TOLERANCE[dtype]
    for native, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, native, rtol=max(rtol, 1e-3), atol=max(3 * atol, 1e-3))


def test_all_or_no_weights():
    q = make(1, 1, 4, 8, dtype=FLOAT, seed=0).to(DEVICE)
    assert F.scaled_dot_product_attention(q, q, q, dropout_p=1.0).abs().sum().item() == 0
    with pytest.raises(RuntimeError, match="dropout probability has to be between 0 and 1"):
        F.scaled_dot_product_attention(q, q, q, dropout_p=1.1)


def test_many_heads_draw_numbers_of_their_own():
    """More heads than a grid has."""
    q = torch.zeros(1, 65540, 1, 8, dtype=BF16)
    v = torch.ones(1, 65540, 1, 8, dtype=BF16)
    torch.manual_seed(2)
    kept = (
        F.scaled_dot_product_attention(q.to(DEVICE), q.to(DEVICE), v.to(DEVICE), dropout_p=0.5).cpu()[0, :, 0, 0] != 0
    )
    offset = 0
    heads = (*range(40), *range(65530, 65540))
    for h in heads:
        word = philox((*halves(offset + h * 32), 0, 0), halves(2), 7)[0]
        assert kept[h].item() == ((word & 255) <= 127)
