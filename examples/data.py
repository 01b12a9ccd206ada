"""Real data that needs no download: scikit-learn's handwritten digits, and the help texts that every CPython ships."""

import pydoc_data.topics
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Digits:
    """Images (n, 1, 8, 8) in [0, 1] and labels (n,) from 0 to 9, split into training and test images."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    def batch(self, generator: torch.Generator, size: int) -> tuple[Tensor, Tensor]:
        """Random training images and labels."""
        index = torch.randint(len(self.train_labels), (size,), generator=generator)
        return self.train_images[index], self.train_labels[index]


def load_digits(test_fraction: float = 0.2, seed: int = 0) -> Digits:
    """1,797 images of handwritten digits (UCI ML, as scikit-learn ships them)."""
    from sklearn.datasets import load_digits as load

    raw = load()
    images = torch.tensor(raw.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(raw.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    test = int(len(labels) * test_fraction)
    return Digits(images[order[test:]], labels[order[test:]], images[order[:test]], labels[order[:test]])


@dataclass
class Text:
    """A text as character indices (n,), and the characters they stand for."""

    tokens: Tensor
    characters: str

    def batch(self, generator: torch.Generator, size: int, length: int) -> tuple[Tensor, Tensor]:
        """Random passages (size, length), and the same passages one character later."""
        starts = torch.randint(len(self.tokens) - length - 1, (size,), generator=generator)
        index = starts[:, None] + torch.arange(length + 1)
        passages = self.tokens[index]
        return passages[:, :-1].contiguous(), passages[:, 1:].contiguous()

    def encode(self, text: str) -> Tensor:
        return torch.tensor([self.characters.index(c) for c in text], dtype=torch.int64)

    def decode(self, tokens: Tensor) -> str:
        return "".join(self.characters[i] for i in tokens.tolist())


def load_text() -> Text:
    """The language reference's help topics, about 700,000 characters of English and code; rare characters left out."""
    text = "\n\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    text = "".join(c for c in text if c == "\n" or " " <= c <= "~")
    characters = "".join(sorted(set(text)))
    index = {c: i for i, c in enumerate(characters)}
    return Text(torch.tensor([index[c] for c in text], dtype=torch.int64), characters)
