"""A perceptron for images of 28x28, and a small CNN."""

import itertools

from torch import Tensor, nn


class MLP(nn.Sequential):
    """(batch, inputs) to (batch, classes) through hidden layers with ReLU."""

    def __init__(self, inputs: int = 784, hidden: int = 512, layers: int = 3, classes: int = 10) -> None:
        sizes = [inputs, *[hidden] * layers]
        blocks = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
        super().__init__(*blocks, nn.Linear(hidden, classes))


class CNN(nn.Module):
    """(batch, channels, 32, 32) to (batch, classes): three stages of two convolutions with batch norm."""

    def __init__(self, channels: int = 3, width: int = 32, classes: int = 10) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        inputs = channels
        for outputs in (width, 2 * width, 4 * width):
            for source in (inputs, outputs):
                stages += [nn.Conv2d(source, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
            stages.append(nn.MaxPool2d(2))
            inputs = outputs
        self.features = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean((2, 3)))
