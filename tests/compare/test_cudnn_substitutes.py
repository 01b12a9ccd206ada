"""What stands in for CUDA's own operators on another device, held against torch's own layers there."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from minitorch_backend.compare import references


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_efficient_attention(causal, masked):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 7, 8, requires_grad=True) for _ in range(3))
    mask = torch.randn(2, 3, 7, 7) if masked else None
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=None if causal else mask, is_causal=causal)
    bias = None if causal else mask
    with torch.no_grad():
        out, lse, _, _ = references.efficient_attention(q, k, v, bias, True, 0.0, causal)
    torch.testing.assert_close(out, expected)
    assert lse.shape == (2, 3, 32) and lse[..., 7:].isinf().all() and lse[..., :7].isfinite().all()
    grad = torch.randn_like(expected)
    expected.backward(grad)
    with torch.no_grad():
        *grads, of_bias = references.efficient_attention_backward(
            grad, q, k, v, bias, out, lse, None, None, 0.0, [True, True, True, False], causal
        )
    assert of_bias is None
    for got, leaf in zip(grads, (q, k, v), strict=True):
        torch.testing.assert_close(got, leaf.grad)


def test_flash_attention():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 7, 8, requires_grad=True) for _ in range(3))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    with torch.no_grad():
        out, lse, *_ = references.flash_attention(q, k, v, 0.0, True)
    torch.testing.assert_close(out, expected)
    expected.backward(torch.ones_like(expected))
    with torch.no_grad():
        grads = references.flash_attention_backward(
            torch.ones_like(out), q, k, v, out, lse, None, None, 7, 7, 0.0, True, None, None
        )
    for got, leaf in zip(grads, (q, k, v), strict=True):
        torch.testing.assert_close(got, leaf.grad)


def test_batch_norm():
    torch.manual_seed(0)
    layer, x = nn.BatchNorm2d(3), torch.randn(4, 3, 5, 5, requires_grad=True)
    mean, var = torch.zeros(3), torch.ones(3)
    expected = layer(x)
    with torch.no_grad():
        out, save_mean, save_invstd, reserve = references.cudnn_batch_norm(
            x, layer.weight, layer.bias, mean, var, True, 0.1, layer.eps
        )
    torch.testing.assert_close((out, mean, var), (expected, layer.running_mean, layer.running_var))
    grad = torch.randn_like(out)
    expected.backward(grad)
    with torch.no_grad():
        grads = references.cudnn_batch_norm_backward(
            x, grad, layer.weight, mean, var, save_mean, save_invstd, layer.eps, reserve
        )
    torch.testing.assert_close(grads, (x.grad, layer.weight.grad, layer.bias.grad))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN_TANH", "RNN_RELU"])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers(kind, batch_first, bidirectional):
    torch.manual_seed(0)
    settings = {"batch_first": batch_first, "bidirectional": bidirectional}
    name, _, nonlinearity = kind.partition("_")
    if nonlinearity:
        settings["nonlinearity"] = nonlinearity.lower()
    layer = getattr(nn, name)(4, 5, 2, **settings)
    x = torch.randn(3, 6, 4, requires_grad=True)
    rows = 4 if bidirectional else 2
    batch = 3 if batch_first else 6
    hx = torch.randn(rows, batch, 5, requires_grad=True)
    cx = torch.randn(rows, batch, 5, requires_grad=True) if kind == "LSTM" else None
    y, last = layer(x, hx if cx is None else (hx, cx))
    mode = {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}[kind]
    weights = [w.detach() for w in layer._flat_weights]
    setting = (mode, 5, 0, 2, batch_first, 0.0, True, bidirectional, [], None)
    with torch.no_grad():
        out, hy, cy, _, _ = references.cudnn_rnn(x, weights, 4, None, hx, cx, *setting)
    torch.testing.assert_close(out, y)
    torch.testing.assert_close((hy, cy) if cx is not None else hy, last)
    grads = [torch.randn_like(t) for t in ((y, hy, cy) if cx is not None else (y, hy))]
    leaves = [y, *(last if cx is not None else [last])]
    torch.autograd.backward(leaves, grads)
    grad_cy = grads[2] if cx is not None else None
    with torch.no_grad():
        of_x, of_hx, of_cx, of_weights = references.cudnn_rnn_backward(
            x, weights, 4, None, hx, cx, out, grads[0], grads[1], grad_cy, *setting, None, [True] * 4
        )
    torch.testing.assert_close(of_x, x.grad)
    torch.testing.assert_close(of_hx, hx.grad)
    if cx is not None:
        torch.testing.assert_close(of_cx, cx.grad)
    for got, p in zip(of_weights, layer._flat_weights, strict=True):
        torch.testing.assert_close(got, p.grad)


def test_what_has_no_reference_says_so():
    x, h = torch.ones(2, 3, 4), torch.zeros(1, 3, 4)
    with pytest.raises(NotImplementedError, match="packed"):
        references.cudnn_rnn(x, [], 4, None, h, None, 1, 4, 0, 1, False, 0.0, True, False, [3, 2], None)
