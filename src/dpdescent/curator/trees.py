r"""Running totals of gradients with the noise of a binary tree, for descents that read every row once per pass.

The rows are dealt at random to m leaves. Leaf t is read at weights that follow from the totals before it, and the
total over the first t leaves is put together from nodes of a binary tree, one for each binary digit of t that is 1:

.. math:: \tilde S_t = \sum_{v \in \text{nodes}(t)} \Big(\sum_{i \in v} g_i + z_v\Big),
          \qquad z_v \sim N(0, s^2 C^2 I).

A node ends at a leaf t and covers the last :math:`2^l` leaves, where :math:`2^l` is the largest power of 2 that
divides t. So each total has the noise of at most :math:`h = \lfloor \log_2 m \rfloor + 1` nodes, where a sum of noisy
leaves would have that of t.

References
----------
Denisov, S., McMahan, B., Rush, K., Smith, A. & Thakurta, A. (2022). Improved differential privacy for SGD via optimal
private linear operators on adaptive streams. NeurIPS. arXiv:2202.08312.
Dwork, C., Naor, M., Pitassi, T. & Rothblum, G. (2010). Differential privacy under continual observation. STOC.
Smith, A. & Thakurta, A. (2013). (Nearly) optimal algorithms for private online learning in full-information and
bandit settings. NeurIPS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..accounting import Gaussian
from ..errors import InvalidParameter, require_positive_integer
from .derivatives import Gradient
from .questions import Public, Question, Tree
from .sources import Floats, Integers

_MOST_LEAVES = 2**20  # more of them would mean as many passes over the rows


@dataclass(frozen=True, eq=False)
class TreeGradients(Question[Floats]):
    """Running totals of the mean gradients of m random leaves of the table, each at weights of its own.

    The answer is the total over all leaves: m times a mean gradient. The penalty is public, and not in it.

    Parameters
    ----------
    follow : callable
        Maps t and the noisy total over the first t leaves to the weights at which leaf t + 1 is read. Called with
        0, ..., m - 1. It sees nothing but released totals.
    leaves : int
        m; one less than a power of 2 makes the best use of the levels.
    clip : float
        C, the norm to which the gradient of each row is clipped.
    noise : Gaussian
        That of a node.

    Notes
    -----
    **Privacy** Given the leaves, a row is in at most h nodes, h being the binary digits of m, each is released once
    with noise for C (2C if the row is replaced), and all weights follow from nodes that were released before: so the
    sums of two neighbours that have released the same so far differ by the clipped gradient of that row in these h
    nodes and in no other, and h Gaussian mechanisms are charged, by adaptive composition (Smith & Thakurta 2013;
    Denisov et al. 2022 for gradients that depend on earlier answers). Every row, or unit with all of its rows, is
    dealt to a leaf by itself, so that the law of the other leaves is the same whether a row is there or not, and a
    mixture over them loses no more than its worst part; no amplification is claimed. The charge comes first.
    """

    follow: Callable[[int, Floats], Floats]
    leaves: int
    clip: float
    noise: Gaussian
    label = "gradients in a tree"

    def plan(self, public: Public) -> Tree[Floats]:
        leaves, shape = require_positive_integer("leaves", self.leaves), public.problem.shape
        if leaves > _MOST_LEAVES:
            raise InvalidParameter(f"leaves must be at most 2^20, each is a pass over the rows; got {leaves}")
        at_zero = self._leaf(np.zeros(shape)).plan(public)
        (noised,) = at_zero.parts
        noised = replace(noised, divisor=public.rows / leaves)

        def block(leaf: int, total: Floats) -> Callable[..., Integers]:
            return self._leaf(self.follow(leaf, total)).plan(public).block

        return Tree(leaves, noised, block, lambda total: total, np.zeros(shape), at_zero.per_row)

    def _leaf(self, weights: Floats) -> Gradient:
        return Gradient(weights, self.clip, self.noise)
