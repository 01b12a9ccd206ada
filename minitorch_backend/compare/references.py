"""What to hold an operator against that the reference device lacks, in plain torch.

minitorch's autograd calls operators of its own (``minitorch::``), and a device's fused attention has a name that no
other device answers to. Each entry computes the same from the same arguments with operators that every device has.

Plain torch, no import from this package: replay files carry the text of this module.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

_WORDS = 624  # of a mt19937


def _engine_of_state(state: Tensor) -> Tensor:
    """The engine of a CPU generator's state as minitorch saves it: 624 words, how many are left, the next index."""
    raw = state.numpy()
    words = raw[24 : 24 + 8 * _WORDS].view(np.uint64).astype(np.uint32)
    left, following = raw[8:12].view(np.int32), raw[16:24].view(np.uint64).astype(np.uint32)
    return torch.from_numpy(
        np.concatenate([words.view(np.uint8), left.view(np.uint8), following.view(np.uint8)]).copy()
    )


def _generator_of_engine(saved: Tensor) -> torch.Generator:
    """A CPU generator that goes on where the saved engine stood."""
    raw = saved.cpu().numpy()
    generator = torch.Generator("cpu").manual_seed(0)
    state = generator.get_state().numpy().copy()
    state[24 : 24 + 8 * _WORDS] = raw[: 4 * _WORDS].view(np.uint32).astype(np.uint64).view(np.uint8)
    state[8:12] = raw[4 * _WORDS : 4 * _WORDS + 4]
    state[16:24] = raw[4 * _WORDS + 4 :].view(np.uint32).astype(np.uint64).view(np.uint8)
    generator.set_state(torch.from_numpy(state))
    return generator


def linear_forward(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.linear(input, weight, bias)


_masks: dict[tuple, Tensor] = {}
_MOST_MASKS = 32  # between a dropout's forward and backward pass lie those of the layers above it
_MASK_BYTES = 1 << 20  # of one that is kept
_noise: list = [None, None]  # the last mask's key, and the mask scaled: a call and its shadow follow each other


def _dropout_noise(saved: Tensor, like: Tensor, strides: tuple[int, ...], p: float) -> Tensor:
    """What native multiplies with, drawn from a saved engine. Masks are kept, for each is wanted up to four times."""
    key = (saved.numpy().tobytes(), tuple(like.shape), strides, p, like.dtype)
    if _noise[0] == key:
        return _noise[1]
    mask = _masks.get(key)
    if mask is None:
        mask = torch.empty_strided(like.shape, strides, dtype=like.dtype, device="cpu")
        mask.bernoulli_(1 - p, generator=_generator_of_engine(saved))
        mask = mask.to(torch.bool)
        if mask.numel() <= _MASK_BYTES:
            if len(_masks) >= _MOST_MASKS:
                del _masks[next(iter(_masks))]
            _masks[key] = mask
    _noise[:] = key, mask.to(like.dtype).div_(1 - p)
    return _noise[1]


def dropout_forward(input: Tensor, p: float) -> tuple[Tensor, Tensor]:
    if input.device.type != "cpu":
        saved = torch.empty(4 * _WORDS + 8, dtype=torch.uint8, device=input.device)
        return input * torch.empty_like(input).bernoulli_(1 - p).div_(1 - p), saved
    saved = _engine_of_state(torch.get_rng_state())
    noise = _dropout_noise(saved, input, torch.empty_like(input, device="meta").stride(), p)
    return input * noise, saved


def dropout_backward(grad: Tensor, saved: Tensor, strides: list[int], p: float) -> Tensor:
    noise = _dropout_noise(saved.cpu(), grad, tuple(strides), p)
    result = torch.empty_strided(grad.shape, strides, dtype=grad.dtype, device=grad.device)
    return torch.mul(grad, noise.to(grad.device), out=result)


def _reduced(losses: Tensor, total: Tensor, reduction: int) -> Tensor:
    return losses if reduction == 0 else losses.sum() / total if reduction == 1 else losses.sum()


def cross_entropy_forward(
    logits: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    x = logits.to(wide)
    lse = torch.logsumexp(x, 1)
    kept = target != ignore_index
    index = torch.where(kept, target, 0)
    w = torch.ones(logits.shape[1], dtype=wide, device=x.device) if weight is None else weight.to(wide)
    picked = torch.where(kept, w[index], 0)
    loss = F.cross_entropy(x, target, w, ignore_index=ignore_index, reduction="none", label_smoothing=smoothing)
    total = picked.sum()
    return _reduced(loss, total, reduction).to(logits.dtype), lse, total


def cross_entropy_backward(
    grad: Tensor, logits: Tensor, target: Tensor, weight: Tensor | None, lse: Tensor, total_weight: Tensor,
    reduction: int, ignore_index: int, smoothing: float,
) -> Tensor:  # fmt: skip
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    classes = logits.shape[1]
    kept = target != ignore_index
    index = torch.where(kept, target, 0)
    w = torch.ones(classes, dtype=wide, device=logits.device) if weight is None else weight.to(wide)
    truth = torch.zeros(logits.shape, dtype=wide, device=logits.device)
    truth.scatter_(1, index[:, None], (1 - smoothing) * w[index][:, None])
    truth += smoothing / classes * w
    p = (logits.to(wide) - lse.to(wide)[:, None]).exp_()
    scale = grad.to(wide)
    if reduction == 1:
        scale = scale / total_weight.to(wide)
    scale = torch.where(kept, scale, 0)[:, None]
    return ((p * truth.sum(1, keepdim=True) - truth) * scale).to(logits.dtype)


def _bias(bias: Tensor | None, q: Tensor) -> Tensor | None:
    return None if bias is None or bias.dtype == torch.bool else bias.to(q.dtype)


def _scores(q: Tensor, k: Tensor, bias: Tensor | None, causal: bool, scale: float | None) -> Tensor:
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    s = q.to(wide) @ k.to(wide).transpose(-2, -1) * (scale if scale is not None else q.shape[-1] ** -0.5)
    if bias is not None:
        s = s.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else s + bias
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril(), -torch.inf)
    return s


def _grouped(t: Tensor, heads: int) -> Tensor:
    return t if t.shape[1] == heads else t.repeat_interleave(heads // t.shape[1], 1)


def attention_forward(q, k, v, attn_bias=None, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    flash = q.device.type == "cpu" and k.shape[1] == q.shape[1] and v.shape[-1] == q.shape[-1]
    if flash and (attn_bias is None or attn_bias.dtype != torch.bool):
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, dropout_p, is_causal, attn_mask=_bias(attn_bias, q), scale=scale
        )
    else:
        s = _scores(q, _grouped(k, q.shape[1]), attn_bias, is_causal, scale)
        lse = torch.logsumexp(s, -1)
        out = (torch.softmax(s, -1) @ _grouped(v, q.shape[1]).to(s.dtype)).to(q.dtype)
    none = torch.zeros((), dtype=torch.int64, device=q.device)
    return out, lse, None, None, q.shape[2], k.shape[2], none, none, None


def _ungrouped(grad: Tensor, like: Tensor) -> Tensor:
    """Gradients of repeated heads added up, in the dtype of `like`."""
    groups = grad.shape[1] // like.shape[1]
    return grad.unflatten(1, (like.shape[1], groups)).sum(2).to(like.dtype) if groups > 1 else grad.to(like.dtype)


def attention_backward(
    grad_out, q, k, v, attn_bias, grad_input_mask, out, lse, cum_q, cum_k, max_q, max_k, dropout_p, is_causal,
    seed, offset, *, scale=None,
):  # fmt: skip
    flash = q.device.type == "cpu" and k.shape[1] == q.shape[1] and v.shape[-1] == q.shape[-1]
    if flash and (attn_bias is None or attn_bias.dtype != torch.bool):
        grads = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad_out, q, k, v, out, lse, dropout_p, is_causal, attn_mask=_bias(attn_bias, q), scale=scale
        )
        return (*grads, None)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    keys, values = _grouped(k, q.shape[1]), _grouped(v, q.shape[1])
    scores = _scores(q, keys, attn_bias, is_causal, scale)
    p = (scores - lse.to(scores.dtype)[..., None]).exp_()
    g = grad_out.to(p.dtype)
    ds = p * (g @ values.to(p.dtype).transpose(-2, -1) - (g * out.to(p.dtype)).sum(-1, keepdim=True)) * scale
    grad_k = _ungrouped(ds.transpose(-2, -1) @ q.to(p.dtype), k)
    grad_v = _ungrouped(p.transpose(-2, -1) @ g, v)
    return (ds @ keys.to(p.dtype)).to(q.dtype), grad_k, grad_v, None


def rms_norm_backward(grad_out, x, shape, rstd, weight, mask):
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    dims = tuple(range(-len(shape), 0))
    g, normal = grad_out.to(wide), x.to(wide) * rstd.to(wide)
    scaled = g if weight is None else g * weight.to(wide)
    of_x = rstd.to(wide) * (scaled - normal * (scaled * normal).mean(dims, keepdim=True)) if mask[0] else None
    outer = tuple(range(x.dim() - len(shape)))
    of_weight = None
    if mask[1] and weight is not None:
        of_weight = (g * normal).sum(outer) if outer else g * normal
    return tuple(None if t is None else t.to(x.dtype) for t in (of_x, of_weight))


def lstm_cell(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
    wide = torch.float64 if cx.dtype == torch.float64 else torch.float32
    gates = input_gates.to(wide) + hidden_gates.to(wide)
    if input_bias is not None:
        gates = gates + input_bias.to(wide) + hidden_bias.to(wide)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    cy = f * cx.to(wide) + i * g
    return (o * torch.tanh(cy)).to(cx.dtype), cy.to(cx.dtype), torch.cat([i, f, g, o], 1).to(cx.dtype)


def lstm_cell_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias):
    wide = torch.float64 if cx.dtype == torch.float64 else torch.float32
    i, f, g, o = workspace.to(wide).chunk(4, 1)
    gh = torch.zeros_like(i) if grad_hy is None else grad_hy.to(wide)
    tanh = torch.tanh(cy.to(wide))
    gc = gh * o * (1 - tanh * tanh)
    if grad_cy is not None:
        gc = gc + grad_cy.to(wide)
    parts = [gc * g * i * (1 - i), gc * cx.to(wide) * f * (1 - f), gc * i * (1 - g * g), gh * tanh * o * (1 - o)]
    gates = torch.cat(parts, 1)
    return gates.to(cx.dtype), (gc * f).to(cx.dtype), gates.sum(0).to(cx.dtype) if has_bias else None


def gru_cell(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
    wide = torch.float64 if hx.dtype == torch.float64 else torch.float32
    x, h, state = input_gates.to(wide), hidden_gates.to(wide), hx.to(wide)
    if input_bias is not None:
        x, h = x + input_bias.to(wide), h + hidden_bias.to(wide)
    xr, xz, xn = x.chunk(3, 1)
    hr, hz, hn = h.chunk(3, 1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    n = torch.tanh(xn + r * hn)
    return (n + z * (state - n)).to(hx.dtype), torch.cat([r, z, n, state, hn], 1).to(hx.dtype)


def gru_cell_backward(grad_hy, workspace, has_bias):
    wide = torch.float64 if grad_hy.dtype == torch.float64 else torch.float32
    g = grad_hy.to(wide)
    r, z, n, state, hn = workspace.to(wide).chunk(5, 1)
    gz = g * (state - n) * z * (1 - z)
    gn = g * (1 - z) * (1 - n * n)
    gr = gn * hn * r * (1 - r)
    x, h = torch.cat([gr, gz, gn], 1), torch.cat([gr, gz, gn * r], 1)
    biases = (x.sum(0), h.sum(0)) if has_bias else (None, None)
    return tuple(t if t is None else t.to(grad_hy.dtype) for t in (x, h, g * z, *biases))


_TANH, _RELU, _LSTM, _GRU = range(4)  # the modes of rnn_layer, in csrc/kernels/rnn.h


def _times(steps: int, reverse: bool) -> list[int]:
    return list(range(steps))[::-1] if reverse else list(range(steps))


def rnn_layer_forward(x, w_ih, w_hh, b_ih, b_hh, h0, c0, mode, reverse):
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    hidden = w_hh.shape[1]
    gates = F.linear(x, w_ih, b_ih).to(wide)
    weight, bias = w_hh.to(wide), None if b_hh is None else b_hh.to(wide)
    h = h0.to(wide).reshape(-1, hidden)
    c = None if c0 is None else c0.to(wide).reshape(-1, hidden)
    y = torch.empty(*x.shape[:2], hidden, dtype=wide, device=x.device)
    cells = torch.empty_like(y) if mode in (_LSTM, _GRU) else y.new_empty(0)
    for t in _times(len(x), reverse):
        recurrent = F.linear(h, weight, bias)
        if mode == _LSTM:
            i, f, g, o = (gates[t] + recurrent).chunk(4, 1)
            i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
            c = f * c + i * g
            h = o * torch.tanh(c)
            gates[t], cells[t] = torch.cat([i, f, g, o], 1), c
        elif mode == _GRU:
            (xr, xz, xn), (hr, hz, hn) = gates[t].chunk(3, 1), recurrent.chunk(3, 1)
            r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
            n = torch.tanh(xn + r * hn)
            h = n + z * (h - n)
            gates[t], cells[t] = torch.cat([r, z, n], 1), hn
        else:
            h = torch.tanh(gates[t] + recurrent) if mode == _TANH else torch.relu(gates[t] + recurrent)
        y[t] = h
    cn = y.new_empty(0) if c0 is None else c.view_as(c0)
    return tuple(t.to(x.dtype) for t in (y, h.view_as(h0), cn, gates, cells))


def rnn_layer_backward(
    grad_y, grad_hn, grad_cn, x, w_ih, w_hh, h0, c0, y, gates, cells, has_bias, mode, reverse, mask
):  # fmt: skip
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    hidden, weight = w_hh.shape[1], w_hh.to(wide)
    first = h0.to(wide).reshape(-1, hidden)
    order = _times(len(x), reverse)
    before = torch.empty_like(y, dtype=wide)  # the state that each step started from
    before[order[0]] = first
    before[order[1:]] = y.to(wide)[order[:-1]]
    gh = torch.zeros_like(first) if grad_hn is None else grad_hn.to(wide).reshape(-1, hidden)
    gc = torch.zeros_like(first) if grad_cn is None else grad_cn.to(wide).reshape(-1, hidden)
    inner = torch.empty_like(gates, dtype=wide)  # gradients of the input's gates and of the state's
    outer = torch.empty_like(inner)
    for step, t in reversed(list(enumerate(order))):
        if grad_y is not None:
            gh = gh + grad_y[t].to(wide)
        if mode == _LSTM:
            previous = cells[order[step - 1]].to(wide) if step else c0.to(wide).reshape(-1, hidden)
            i, f, g, o = gates[t].to(wide).chunk(4, 1)
            tanh = torch.tanh(cells[t].to(wide))
            gc = gc + gh * o * (1 - tanh * tanh)
            parts = [gc * g * i * (1 - i), gc * previous * f * (1 - f), gc * i * (1 - g * g), gh * tanh * o * (1 - o)]
            inner[t] = outer[t] = torch.cat(parts, 1)
            gh, gc = outer[t] @ weight, gc * f
        elif mode == _GRU:
            r, z, n = gates[t].to(wide).chunk(3, 1)
            gn = gh * (1 - z) * (1 - n * n)
            shared = [gn * cells[t].to(wide) * r * (1 - r), gh * (before[t] - n) * z * (1 - z)]
            inner[t], outer[t] = torch.cat([*shared, gn], 1), torch.cat([*shared, gn * r], 1)
            gh = gh * z + outer[t] @ weight
        else:
            state = y[t].to(wide)
            inner[t] = outer[t] = gh * (1 - state * state) if mode == _TANH else gh * (state > 0)
            gh = outer[t] @ weight
    into, through = inner.flatten(0, 1), outer.flatten(0, 1)
    weights = [into.T @ x.to(wide).flatten(0, 1), through.T @ before.flatten(0, 1)] if mask[1] else [None, None]
    biases = [into.sum(0), through.sum(0)] if mask[1] and has_bias else [None, None]
    grads = [into @ w_ih.to(wide) if mask[0] else None, *weights, *biases, gh, None if c0 is None else gc]
    shapes = [x.shape, None, None, None, None, h0.shape, None if c0 is None else c0.shape]
    return tuple(
        None if g is None else (g if s is None else g.reshape(s)).to(x.dtype)
        for g, s in zip(grads, shapes, strict=True)
    )


# CUDA's own operators: what attention, batch norm and recurrent layers become there. Results that only their own
# backward pass reads (reserves, seeds, packed weights) come back empty.


def efficient_attention(q, k, v, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None):
    s = _scores(q, k, _bias(attn_bias, q), is_causal, scale)
    rows = -(-q.shape[2] // 32) * 32 if compute_log_sumexp else 0  # padded to the kernel's tiles
    lse = torch.full((*q.shape[:2], rows), torch.inf, dtype=s.dtype, device=q.device)
    if rows:
        lse[..., : q.shape[2]] = torch.logsumexp(s, -1)
    none = torch.zeros((), dtype=torch.int64, device=q.device)
    return (torch.softmax(s, -1) @ v.to(s.dtype)).to(q.dtype), lse, none, none


def efficient_attention_backward(
    grad_out, q, k, v, attn_bias, out, lse, seed, offset, dropout_p, grad_input_mask, is_causal=False, *, scale=None
):  # fmt: skip
    grads = attention_backward(
        grad_out, q, k, v, attn_bias, None, out, lse[..., : q.shape[2]], None, None, 0, 0, dropout_p, is_causal,
        seed, offset, scale=scale,
    )  # fmt: skip
    return (*grads[:3], None)


def flash_attention(q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    out, lse, *rest = attention_forward(q, k, v, None, dropout_p, is_causal, scale=scale)
    return out, lse, *rest


def flash_attention_backward(
    grad_out, q, k, v, out, lse, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, seed, offset, *, scale=None
):  # fmt: skip
    grads = attention_backward(
        grad_out, q, k, v, None, None, out, lse, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, seed, offset,
        scale=scale,
    )  # fmt: skip
    return grads[:3]


def cudnn_batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps):
    results = torch.native_batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps)
    return (*results, torch.empty(0, dtype=torch.uint8, device=x.device))


def cudnn_batch_norm_backward(x, grad, weight, running_mean, running_var, save_mean, save_invstd, eps, reserve):
    mask = [True, True, True]
    return torch.ops.aten.native_batch_norm_backward(
        grad, x, weight, running_mean, running_var, save_mean, save_invstd, True, eps, mask
    )


_CUDNN_MODES = (_RELU, _TANH, _LSTM, _GRU)


def _cudnn_layers(x, weights, per_layer, hx, cx, mode, layers, batch_first, dropout, train, bidirectional, batch_sizes):
    """By layer and direction, (input, weights, first states, results of rnn_layer_forward); and the last output."""
    if batch_sizes or (dropout and train and layers > 1) or per_layer not in (2, 4):
        raise NotImplementedError("packed sequences, dropout between layers and projections have no reference")
    x, mode, found = x.transpose(0, 1) if batch_first else x, _CUDNN_MODES[mode], []
    for layer in range(layers):
        directions = []
        for reverse in (False, True)[: 1 + bidirectional]:
            i = layer * (1 + bidirectional) + reverse
            w = [*weights[i * per_layer : (i + 1) * per_layer], None, None][:4]
            first = hx[i : i + 1], None if cx is None else cx[i : i + 1]
            directions.append((x, w, first, rnn_layer_forward(x, *w, *first, mode, reverse)))
        x = torch.cat([d[3][0] for d in directions], -1)
        found.append(directions)
    return found, x


def cudnn_rnn(
    x, weights, per_layer, buffer, hx, cx, mode, hidden, proj, layers, batch_first, dropout, train, bidirectional,
    batch_sizes, dropout_state,
):  # fmt: skip
    found, y = _cudnn_layers(
        x, weights, per_layer, hx, cx, mode, layers, batch_first, dropout, train, bidirectional, batch_sizes
    )
    states = [torch.cat([d[3][n] for directions in found for d in directions]) for n in (1, 2)]
    none = torch.empty(0, dtype=torch.uint8, device=x.device)
    return y.transpose(0, 1) if batch_first else y, states[0], states[1], none, x.new_empty(0)


def cudnn_rnn_backward(
    x, weights, per_layer, buffer, hx, cx, y, grad_y, grad_hy, grad_cy, mode, hidden, proj, layers, batch_first,
    dropout, train, bidirectional, batch_sizes, dropout_state, reserve, mask,
):  # fmt: skip
    found, top = _cudnn_layers(
        x, weights, per_layer, hx, cx, mode, layers, batch_first, dropout, train, bidirectional, batch_sizes
    )
    if grad_y is None:
        grad_y = torch.zeros_like(top)
    elif batch_first:
        grad_y = grad_y.transpose(0, 1)
    of_weights, of_hx, of_cx = [], [], []
    for layer in reversed(range(layers)):
        below = 0
        for reverse, part in zip(range(1 + bidirectional), grad_y.chunk(1 + bidirectional, -1), strict=True):
            i = layer * (1 + bidirectional) + reverse
            inputs, w, first, (out, _, _, gates, cells) = found[layer][reverse]
            grads = rnn_layer_backward(
                part, None if grad_hy is None else grad_hy[i : i + 1], None if grad_cy is None else grad_cy[i : i + 1],
                inputs, w[0], w[1], *first, out, gates, cells, per_layer == 4, _CUDNN_MODES[mode], bool(reverse),
                [True, True],
            )  # fmt: skip
            below = below + grads[0]
            of_weights.append((i, [g for g in grads[1:5] if g is not None]))
            of_hx.append((i, grads[5]))
            of_cx.append((i, grads[6]))
        grad_y = below
    ordered = [g for _, gs in sorted(of_weights, key=lambda e: e[0]) for g in gs]
    states = torch.cat([g for _, g in sorted(of_hx, key=lambda e: e[0])])
    cells = None if cx is None else torch.cat([g for _, g in sorted(of_cx, key=lambda e: e[0])])
    return grad_y.transpose(0, 1) if batch_first else grad_y, states, cells, ordered if mask[3] else []


#: operator: function with its arguments. Strides of the results are not compared for these.
REFERENCES = {
    "minitorch::linear_forward": linear_forward,
    "minitorch::dropout_forward": dropout_forward,
    "minitorch::dropout_backward": dropout_backward,
    "minitorch::cross_entropy_forward": cross_entropy_forward,
    "minitorch::cross_entropy_backward": cross_entropy_backward,
    "minitorch::rnn_layer_forward": rnn_layer_forward,
    "minitorch::rnn_layer_backward": rnn_layer_backward,
    "aten::_fused_rms_norm_backward": rms_norm_backward,
    "aten::_thnn_fused_lstm_cell": lstm_cell,
    "aten::_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "aten::_thnn_fused_gru_cell": gru_cell,
    "aten::_thnn_fused_gru_cell_backward": gru_cell_backward,
    "aten::_scaled_dot_product_fused_attention_overrideable": attention_forward,
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": attention_backward,
    "aten::_scaled_dot_product_efficient_attention": efficient_attention,
    "aten::_scaled_dot_product_efficient_attention_backward": efficient_attention_backward,
    "aten::_scaled_dot_product_flash_attention": flash_attention,
    "aten::_scaled_dot_product_flash_attention_backward": flash_attention_backward,
    "aten::cudnn_batch_norm": cudnn_batch_norm,
    "aten::cudnn_batch_norm_backward": cudnn_batch_norm_backward,
    "aten::_cudnn_rnn": cudnn_rnn,
    "aten::_cudnn_rnn_backward": cudnn_rnn_backward,
}
