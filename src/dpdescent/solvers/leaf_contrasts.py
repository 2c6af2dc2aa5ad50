r"""Contrasts of leaves: what columns of a tree do together, told by all of its rows at once.

The leaves of a tree with D splits are the corners of a cube, and each set S of splits has a contrast of their noisy
sums of residuals G,

.. math:: c_S = \sum_l (-1)^{|S \cap l|} G_l,

in which every row counts, while a leaf has one row in 2^D of them. With noise of deviation s in every sum, that of
each contrast is :math:`\sqrt{2^D} s`, and rows whose residuals are nothing but chance add their variance. The largest
of M contrasts of nothing but noise is about :math:`\lambda = \sqrt{2 \log M}` deviations long (Donoho & Johnstone
1994), M being the number of sets of as many splits in all trees. Of one that has :math:`z` deviations, and more than
that, the share :math:`1 - \lambda^2/z^2` is kept (Gao 1998): where two columns act together, and neither alone, one
tree that splits on both shows it. The columns of such sets are drawn together more often in later trees.

**Privacy** Everything is computed from released sums and public draws.

References
----------
Donoho, D. L. & Johnstone, I. M. (1994). Ideal spatial adaptation by wavelet shrinkage. Biometrika 81.
Gao, H.-Y. (1998). Wavelet shrinkage denoising using the non-negative garrote. JCGS 7.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats

_BY_CHANCES = 0.7  # of the trees split on columns by their chances, and the others on any
_REMEMBERED = 0.9  # of the evidence of a set, in each later tree with its columns
_BESIDE = 0.5  # of the columns that are drawn together act with one that was drawn already


def contrasts(sums: Floats) -> Floats:
    """Return the contrasts of 2^D leaves, along the first axis; twice is 2^D times the leaves."""
    found: Floats = sums
    for bit in range(_depth(sums)):
        halves = found.reshape(2**bit, 2, -1)
        found = np.stack([halves[:, 0] + halves[:, 1], halves[:, 0] - halves[:, 1]], axis=1)
    return found.reshape(sums.shape)


def clear_shares(squares: Floats, trees: int) -> Floats:
    """Return which share of each contrast is kept, by its square in units of the variance of noise and chance."""
    size = _sizes(_depth(squares))
    alike = trees * np.bincount(size)[size] * (squares.size // len(squares))
    limits = 2 * np.log(np.maximum(alike, 2.0)).reshape(-1, *(1,) * (squares.ndim - 1))
    shares: Floats = np.maximum(1 - limits / np.maximum(squares, 1e-12), 0.0)
    return shares


def _depth(sums: Floats) -> int:
    return len(sums).bit_length() - 1


@cache
def _sizes(depth: int) -> NDArray[np.intp]:
    """Return the number of splits in each set."""
    return np.array([member.bit_count() for member in range(2**depth)])


def several_columns(columns: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which sets of the splits of a tree are about more than one column."""
    depth, members = len(columns), np.arange(2 ** len(columns))
    about = [columns[bit] for bit in range(depth)]
    alone = np.zeros(members.size, dtype=np.bool_)
    for column in set(about):
        own = sum(1 << (depth - 1 - bit) for bit in range(depth) if about[bit] == column)
        alone |= (members & ~own) == 0
    return ~alone


def acting_together(columns: tuple[int, ...], values: Floats) -> Floats:
    """Return the values of leaves without what a single column does, if leaves have as many rows each."""
    several = several_columns(columns)
    return contrasts(several[:, None] * contrasts(values)) / len(values)


class ColumnSets:
    """Which columns earlier trees have shown to act together, and how columns of later trees are drawn."""

    def __init__(self, chances: Floats) -> None:
        self._chances = chances
        self._found: dict[tuple[int, int], float] = {}
        self._seen: dict[tuple[int, int], float] = {}

    def at_random(self, generator: np.random.Generator, count: int) -> list[int]:
        """Return so many columns: for seven trees in ten by their chances, and for the others evenly.

        Two columns that matter together, and neither alone, meet in a tree of the latter.
        """
        chances = self._chances if generator.random() < _BY_CHANCES else np.full(self._chances.size, 1.0)
        drawn: list[int] = generator.choice(chances.size, size=count, p=chances / chances.sum()).tolist()
        return drawn

    def see(self, columns: tuple[int, ...], kept: Floats) -> None:
        """Remember what is ``kept`` of the squared contrasts of a tree with such columns, shape (2^D,)."""
        own, depth = sorted(set(columns)), len(columns)
        for pair in ((i, j) for place, i in enumerate(own) for j in own[place + 1 :]):
            self._seen[pair] = _REMEMBERED * self._seen.get(pair, 0.0) + 1
            if pair in self._found:
                self._found[pair] *= _REMEMBERED
        for member in np.flatnonzero(kept > 0).tolist():
            asked = sorted({columns[bit] for bit in range(depth) if member >> (depth - 1 - bit) & 1})
            for pair in ((i, j) for place, i in enumerate(asked) for j in asked[place + 1 :]):
                self._found[pair] = self._found.get(pair, 0.0) + float(kept[member])

    def drawn(self, generator: np.random.Generator, count: int) -> list[int]:
        """Return so many columns: half of them together by what was found, the others at random."""
        found: list[int] = []
        pairs = list(self._found)
        sizes = np.array([self._found[pair] / (self._seen[pair] + 1) for pair in pairs])
        while len(found) < count // 2 and sizes.sum() > 0:
            beside = np.array([any(column in found for column in pair) for pair in pairs])
            own = sizes * beside if beside.any() and generator.random() < _BESIDE else sizes
            chosen = pairs[int(generator.choice(len(pairs), p=own / own.sum()))]
            found += [column for column in chosen if own is sizes or column not in found]
        return found[:count] + self.at_random(generator, max(count - len(found), 0))
