"""Two models in plain torch.nn. Nothing here knows about minitorch."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DigitsCNN(nn.Module):
    """Images (n, 1, 8, 8) to scores (n, 10): three convolutions with batch norm, both kinds of pooling, dropout."""

    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AvgPool2d(2),
        )  # fmt: skip
        self.head = nn.Sequential(
            nn.Flatten(), nn.Dropout(dropout), nn.Linear(256, 128), nn.ReLU(), nn.Dropout(dropout), nn.Linear(128, 10)
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))


class Block(nn.Module):
    """A decoder block: causal self-attention and a GELU MLP, each behind a layer norm and added to its input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def attention(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(n, length, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class CharGPT(nn.Module):
    """Character indices (n, length) to scores (n, length, vocabulary); output layer and embedding share one weight."""

    def __init__(
        self, vocabulary: int, length: int = 64, width: int = 128, heads: int = 4, layers: int = 4, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.length = length
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.05 if name.startswith("blocks") else 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        place = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.tokens(tokens) + self.positions(place))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    @torch.no_grad()
    def generate(self, tokens: Tensor, count: int, temperature: float = 0.8) -> Tensor:
        """`tokens` (n, length) continued by `count` sampled characters."""
        for _ in range(count):
            scores = self(tokens[:, -self.length :])[:, -1] / temperature
            tokens = torch.cat([tokens, torch.multinomial(scores.softmax(-1), 1)], dim=1)
        return tokens
