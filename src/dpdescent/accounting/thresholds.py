r"""How high a noisy count must be before its key may be published.

Values that occur are counted in each of C columns, Gaussian noise of deviation s is added to every count, and keys
whose noisy count exceeds a threshold t are published. *A private key* is one that a single unit holds: without that
unit nobody would know it. The threshold is chosen so that no private key is published, except with a probability
of at most ``failure``, whatever the unit holds. Q is the upper tail of the normal law.

*A unit of one row* has at most one private key in each column, with a count of 1. The C events are independent, so
:math:`1 - (1 - Q((t - 1)/s))^C` is the probability that any is published.

*A unit of up to k rows, of which each adds 1*, may hold several private keys. With j of them in a column the worst is
j - 1 keys of one row and one of the k - j + 1 others, since Q((t - c)/s) is convex in c below t:

.. math:: f = \max_{1 \le j \le k} (j - 1) Q((t - 1)/s) + Q((t - k + j - 1)/s).

That a unit has one key alone, :math:`t = k + s\,z(failure/C)`, is not enough: it is too low.

*A unit whose counts in a column are scaled to a Euclidean norm of at most 1*, so that the sensitivity does not grow
with k: a pattern of counts :math:`c_1, \dots, c_j` with :math:`\sum c_i \le k` becomes :math:`c_i/|c|`, and f is
the largest :math:`\sum_i Q((t - c_i/|c|)/s)` over all patterns. They are tried one by one for k up to 12. For more
rows the i-th largest of scaled counts is at most :math:`i^{-1/2}`, and f at most
:math:`\sum_{i \le k} Q((t - i^{-1/2})/s)`. Keys that others hold as well only make the scaled counts smaller.

In each case no private key is published with a probability of at least :math:`(1 - f)^C`, and the threshold makes
that at least 1 - failure. Under both relations each table of a pair has the private keys of one unit, so the
threshold depends on the relation through s alone.

**On a lattice.** A count is an integer V in steps of the lattice and its noise Z a discrete Gaussian of scale s. Its
key is published if V + Z >= T. For an integer m >= 1, :math:`P(Z \ge m) \le Q((m - 1)/s)`: each term
:math:`e^{-x^2/2s^2}` is at most its integral over [x - 1, x], and all terms add up to at least
:math:`\sqrt{2\pi} s` by Poisson's summation. So T is the threshold t of the continuous law in steps, rounded up,
plus 1.

References
----------
Korolova, A. et al. (2009). Releasing search queries and clicks privately.
Gopi, S. et al. (2020). Differentially private set union. arXiv:2002.09745.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from ..arrays import Floats
from ..errors import require_open_unit, require_positive, require_positive_integer

_PATTERNS = 12  # rows of a unit up to which all patterns of counts are tried
_ROOM = 1e-9  # relative: more than the error of the normal tail and of the search


@dataclass(frozen=True)
class Threshold:
    """Which noisy counts may be published with their keys.

    Parameters
    ----------
    columns : int
        C, the number of columns in which a unit has keys.
    rows_per_unit : int
        k, the most rows that a unit has.
    scaled : bool
        Whether the counts of a unit in a column were scaled to a Euclidean norm of at most 1; with one row of a unit
        they are what they are.

    Examples
    --------
    >>> round(Threshold(10).of(100.0, 1e-7), 2)
    562.2
    """

    columns: int
    rows_per_unit: int = 1
    scaled: bool = True

    def __post_init__(self) -> None:
        require_positive_integer("columns", self.columns)
        require_positive_integer("rows_per_unit", self.rows_per_unit)

    def failure_at(self, threshold: float, deviation: float) -> float:
        """Return the largest probability that a private key is published."""
        one_column = self._in_a_column(threshold, deviation)
        return -math.expm1(self.columns * math.log1p(-one_column)) if one_column < 1 else 1.0

    def of(self, deviation: float, failure: float) -> float:
        """Return the least threshold that keeps ``failure`` with Gaussian noise of a deviation, rounded up."""
        require_positive("deviation", deviation)
        allowed = require_open_unit("failure", failure) * (1 - _ROOM)
        low = high = float(self.rows_per_unit)
        while self.failure_at(high, deviation) > allowed:
            low, high = high, high + 8 * deviation
        for _ in range(100):
            middle = (low + high) / 2
            if self.failure_at(middle, deviation) > allowed:
                low = middle
            else:
                high = middle
        return high

    def on_lattice(self, scale: int, unit: float, failure: float) -> int:
        """Return the least noisy count that is published, in steps of the lattice, for noise of that scale.

        ``scale`` is that of the discrete Gaussian noise, in steps, and ``unit`` the step as a share of the count of
        one row.
        """
        steps = self.of(float(scale) * unit, failure) / unit
        return math.ceil(steps * (1 + 2.0**-50)) + 1

    def _in_a_column(self, threshold: float, deviation: float) -> float:
        """Return the largest sum of the probabilities of one unit's private keys in a column."""
        k = self.rows_per_unit
        if k == 1:
            return float(ndtr((1 - threshold) / deviation))
        if not self.scaled:
            several = np.arange(1, k + 1)
            single = ndtr((1 - threshold) / deviation)
            return float(np.max((several - 1) * single + ndtr((k - several + 1 - threshold) / deviation)))
        return max(float(np.sum(ndtr((held - threshold) / deviation))) for held in _patterns(k))


@lru_cache(maxsize=16)
def _patterns(rows: int) -> tuple[Floats, ...]:
    """Return the scaled counts of a unit with up to so many rows, or one vector that is above each of them."""
    if rows > _PATTERNS:
        return (1 / np.sqrt(np.arange(1, rows + 1)),)
    counts = [np.array(each, dtype=np.float64) for total in range(1, rows + 1) for each in _partitions(total, total)]
    return tuple(each / np.linalg.norm(each) for each in counts)


def _partitions(total: int, largest: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write a number as a sum of positive integers, none above ``largest``, in falling order."""
    if total == 0:
        yield ()
    for first in range(min(total, largest), 0, -1):
        for rest in _partitions(total - first, first):
            yield (first, *rest)
