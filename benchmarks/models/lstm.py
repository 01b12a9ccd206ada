"""A language model of stacked LSTM layers."""

from torch import Tensor, nn


class LSTM(nn.Module):
    """(batch, length) of token numbers to (batch, length, vocabulary)."""

    def __init__(self, vocabulary: int = 1000, width: int = 256, layers: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.tokens(tokens))[0])
