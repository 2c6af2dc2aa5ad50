"""Rows that are read a few at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from dpdescent import Ledger
from dpdescent.curator import marks


class Parts:
    """Rows of an array, cut into parts that are read a few rows at a time."""

    def __init__(self, features: Any, labels: np.ndarray, cuts: tuple[int, ...] = (), block: int = 7) -> None:
        self.features, self.labels, self.block = features, labels, block
        ends = [0, *cuts, len(labels)]
        self.parts = list(itertools.pairwise(ends))
        self.lengths = [stop - start for start, stop in self.parts]
        self.reads: list[Any] = []
        self.ledger: Ledger | None = None

    def read(self, part: Any) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
        self.reads.append(0 if self.ledger is None else len(self.ledger.entries))
        start, stop = part
        for first in range(start, stop, self.block):
            some = slice(first, min(first + self.block, stop))
            features, labels = self.features[some].copy(), self.labels[some]
            yield features, labels, marks(features, labels)
