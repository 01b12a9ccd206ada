"""ResNet-50: bottleneck blocks 3, 4, 6, 3 (He et al. 2015), the stride in the 3x3 convolution."""

import torch.nn.functional as F
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 with four times the width at the end, added to the input."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.reduce, self.norm1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.spatial, self.norm2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.expand, self.norm3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.reduce(x)))
        y = F.relu(self.norm2(self.spatial(y)))
        return F.relu(self.norm3(self.expand(y)) + self.shortcut(x))


class ResNet50(nn.Module):
    """(batch, 3, height, width) to (batch, classes). 25.6 million parameters with 1000 classes."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, inputs = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                blocks.append(Bottleneck(inputs, width, stride if i == 0 else 1))
                inputs = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        return self.head(self.blocks(x).mean((2, 3)))
