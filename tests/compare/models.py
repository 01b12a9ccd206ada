"""Small training runs to compare: a CNN, a GPT and an LSTM, each a function of the device that does some steps."""

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 3


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1, stride=2)
        self.norm2 = nn.BatchNorm2d(16)
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.relu(self.norm2(self.conv2(x)))
        return self.head(self.drop(x.flatten(1)))


class GPT(nn.Module):
    def __init__(self, vocabulary=23, length=12, width=24, heads=2):
        super().__init__()
        self.heads = heads
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.norm1, self.norm2, self.norm = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def attention(self, x):
        n, length, width = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(n, length, width))

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        x = x + self.attention(self.norm1(x))
        x = x + self.mlp(self.norm2(x))
        return self.head(self.norm(x))


class LSTM(nn.Module):
    def __init__(self, vocabulary=17, width=20):
        super().__init__()
        self.tokens, self.lstm = nn.Embedding(vocabulary, width), nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        y, _ = self.lstm(self.tokens(tokens))
        return self.head(torch.tanh(y[:, 1:]))


def cnn(device, steps=STEPS, nan=False):
    torch.manual_seed(0)
    model = CNN().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    images, labels = torch.randn(steps, 16, 1, 8, 8), torch.randint(10, (steps, 16))
    if nan:
        images[:, 3, 0, 2, 2] = torch.nan
    for x, y in zip(images, labels, strict=True):
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
    return model


def gpt(device, steps=STEPS):
    torch.manual_seed(0)
    model = GPT().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    text = torch.randint(23, (steps, 4, 13))
    for t in text:
        x, y = t[:, :-1].contiguous().to(device), t[:, 1:].contiguous().to(device)
        optimizer.zero_grad()
        F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


def lstm(device, steps=STEPS):
    torch.manual_seed(0)
    model = LSTM().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    text = torch.randint(17, (steps, 5, 9))
    for t in text:
        x, y = t[:, :-1].contiguous().to(device), t[:, 2:].contiguous().to(device)
        optimizer.zero_grad()
        F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()
    return model


def cnn_with_nan(device, steps=STEPS):
    return cnn(device, steps, nan=True)


RUNS = {"CNN": cnn, "CNN with a NaN": cnn_with_nan, "GPT": gpt, "LSTM": lstm}
