"""A vision transformer (Dosovitskiy et al. 2020): patches by a convolution, a class token, pre-norm encoder layers."""

import torch
from torch import Tensor, nn


class ViT(nn.Module):
    """(batch, 3, size, size) to (batch, classes). The defaults are ViT-S/16 for 224x224."""

    def __init__(
        self, size: int = 224, patch: int = 16, width: int = 384, layers: int = 12, heads: int = 6, classes: int = 1000
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])
