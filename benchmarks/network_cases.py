"""Nine networks on which `benchmarks/networks.py` measures speed: what people train.

Every module is made of layers of torch. Opacus has recurrent layers of its own; `make_for_opacus` puts these in the
places of those of torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WORDS, LENGTH = 1000, 32


def perceptron(inputs: int, *widths: int, outputs: int = 10) -> nn.Module:
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(inputs, outputs))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


class Residual(nn.Module):
    """Two convolutions with group norm, beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.GroupNorm(8, outputs), nn.GroupNorm(8, outputs)])
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else nn.Identity()

    def forward(self, values: Tensor) -> Tensor:
        inner = torch.relu(self.norms[0](self.first(values)))
        return torch.relu(self.norms[1](self.second(inner)) + self.short(values))


def resnet8() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False),
        nn.GroupNorm(8, 16),
        nn.ReLU(),
        Residual(16, 16, 1),
        Residual(16, 32, 2),
        Residual(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


class Recurrent(nn.Module):
    """A recurrent layer over embedded words, and scores from its last state."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(WORDS, 64), nn.Linear(128, 10)
        self.inner = kind(64, 128, batch_first=True)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.inner(self.embedding(words))[0][:, -1])


class Attention(nn.Module):
    """Self-attention of linear layers, with a mask."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.joined = (nn.Linear(size, size) for _ in range(4))

    def forward(self, values: Tensor, mask: Tensor | None) -> Tensor:
        rows, length, size = values.shape
        parts = [
            each(values).reshape(rows, length, self.heads, -1).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        ]
        scores = parts[0] @ parts[1].transpose(2, 3) / parts[0].shape[3] ** 0.5
        if mask is None:
            hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        else:
            hidden = (mask == 0)[:, None, None, :]
        mixed = scores.masked_fill(hidden, -1e9).softmax(3) @ parts[2]
        return self.joined(mixed.transpose(1, 2).reshape(rows, length, size))


class Block(nn.Module):
    """Attention and two linear layers, each after a layer norm and beside a shortcut."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(size, heads)
        self.first, self.second = nn.LayerNorm(size), nn.LayerNorm(size)
        self.inner = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, values: Tensor, mask: Tensor | None) -> Tensor:
        values = values + self.attention(self.first(values), mask)
        return values + self.inner(self.second(values))


class Language(nn.Module):
    """A small GPT whose head has weights of its own."""

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, size), nn.Embedding(LENGTH, size)
        self.blocks = nn.ModuleList(Block(size, 4) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, WORDS, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        values = self.words(words) + self.places(torch.arange(LENGTH).expand_as(words))
        for block in self.blocks:
            values = block(values, None)
        return self.head(self.norm(values))


class Masked(nn.Module):
    """A small BERT: an encoder with a mask of padding, and scores from its first word."""

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, size), nn.Embedding(LENGTH, size)
        self.blocks = nn.ModuleList(Block(size, 4) for _ in range(2))
        self.head = nn.Linear(size, 10)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        values = self.words(words) + self.places(torch.arange(LENGTH).expand_as(words))
        for block in self.blocks:
            values = block(values, mask)
        return self.head(values[:, 0])


def of_rows(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of each row."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def of_words(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss over the words of a row."""
    return functional.cross_entropy(outputs.transpose(1, 2), targets, reduction="none").mean(1)


@dataclass(frozen=True)
class Case:
    """A network, a number of rows, and the shape of a row."""

    make: Callable[[], nn.Module]
    size: int
    kind: str
    loss: Callable[[Tensor, Tensor], Tensor] = of_rows

    def rows(self) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return random inputs and targets."""
        generator = torch.Generator().manual_seed(0)
        labels = torch.randint(0, 7, (self.size,), generator=generator)
        if self.kind in ("words", "masked", "language"):
            words = torch.randint(0, WORDS, (self.size, LENGTH), generator=generator)
            if self.kind == "language":
                return (words,), words.roll(-1, 1)
            lengths = torch.randint(4, LENGTH + 1, (self.size, 1), generator=generator)
            mask = (torch.arange(LENGTH) < lengths).long()
            return ((words, mask) if self.kind == "masked" else (words,)), labels
        shape = {"table": (54,), "digits": (1, 28, 28), "colours": (3, 32, 32)}[self.kind]
        return (torch.rand(self.size, *shape, generator=generator),), labels


CASES: dict[str, Case] = {
    "mlp": Case(lambda: perceptron(784, 1000), 600, "digits"),
    "cnn256": Case(convolutional, 256, "digits"),
    "cnn1024": Case(convolutional, 1024, "digits"),
    "table": Case(lambda: perceptron(54, 256, 256, outputs=7), 512, "table"),
    "resnet": Case(resnet8, 128, "colours"),
    "lstm": Case(lambda: Recurrent(nn.LSTM), 128, "words"),
    "gru": Case(lambda: Recurrent(nn.GRU), 128, "words"),
    "gpt": Case(Language, 64, "language", of_words),
    "bert": Case(Masked, 64, "masked"),
}


def make_for_opacus(name: str) -> nn.Module:
    """Return the network of a case with the layers of Opacus where it needs its own."""
    module = CASES[name].make()
    if name in ("lstm", "gru"):
        from opacus.layers import DPGRU, DPLSTM

        module.inner = (DPLSTM if name == "lstm" else DPGRU)(64, 128, batch_first=True)
    return module


def all_rows(name: str) -> tuple[tuple[Tensor, ...], Tensor, Any]:
    """Return inputs, targets and the loss of a case."""
    case = CASES[name]
    return *case.rows(), case.loss
