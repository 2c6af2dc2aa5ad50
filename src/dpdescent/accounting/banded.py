r"""Correlated noise with a few bands, for batches that go round in a circle: its sensitivity, and what it is worth.

**The mechanism.** Every row is dealt to one of b groups at random. Step t draws a Poisson batch from group t mod b,
each of its rows with probability p, and has the sum :math:`x_t` of their clipped vectors. What is released amounts
to

.. math:: o_t = \sum_{k=0}^{b-1} l_k x_{t-k} + z_t, \qquad l_0 = 1, \quad z_t \sim N(0, \sigma^2 \Delta^2 I)
          \ \text{independent}, \qquad \tilde x = L^{-1} o = x + L^{-1} z,

with the lower triangular Toeplitz matrix L of the weights: :math:`\tilde x_t` are sums with noise that is
correlated from step to step (matrix factorisation with b bands, Choquette-Choo et al. 2023). The noise of a step
takes back part of that of the steps before it, so that sums over many steps, of which weights of a network consist,
have less.

**Lemma.** *Let a row change x_t by a vector of length at most C at the steps whose batch it is in, and by nothing
at others. Under zero-out the outputs of T steps cost what* :math:`\lceil T/b \rceil` *Gaussian mechanisms cost,
each on a Poisson batch of rate p, with noise of* :math:`\sigma` *times the sensitivity, if* :math:`\Delta \ge C
\sqrt{\sum_k l_k^2}`.

*Proof.* Fix the groups, the batches of all other rows, and all other randomness; all of them have the same law for
both tables, and :math:`\int p^a q^{1-a}` and hockey-stick divergences are jointly convex, so it is enough to bound
what follows for each of them. The row is in group g, say, and may take part in steps j = g, g + b, g + 2b, ...
below T, of which there are at most ceil(T/b). Split the outputs into windows: that of j holds the steps j, ..., j +
b - 1, and the windows of all j are disjoint. A vector that the row adds at step j enters :math:`o_j, \dots,
o_{j+b-1}` alone, because L has b bands; so the outputs of a window depend, beyond all that was released before it,
on whether the row takes part at its j and on nothing else of the row. Given the past of a window, let v be what the
row would add at j. If it takes part, which has probability p, independently of everything before, the mean of
:math:`o_{j+k}` moves by :math:`l_k v`, and otherwise not at all. The other terms of the mean are the same functions
of earlier outputs in both cases, so that subtracting them is a bijection of the window that turns the two cases
into N(0, s^2 I) and N((l_0 v, l_1 v, ...), s^2 I), with a shift of :math:`|v| \sqrt{\sum l_k^2} \le \Delta` at
most. A window is thus the sampled Gaussian mechanism of rate p, for a row that is removed and for one that is
added, whatever came before it. Windows compose adaptively. QED

The argument allows more. The weights may be replaced at any step by others, chosen from what was released so far,
as long as the squares that meet one v add up to no more than :math:`\sum l_k^2` (its shift is then predictable, and
the law of its likelihood ratio is at most as wide as that of a fixed shift of full length). So correlations may
begin anew at any step, and a vector that is released by itself, with fresh noise for its own length, is a window of
one step. Groups may be dealt anew at any step that is a multiple of b: the windows before and after it are
together no more than ceil(T/b) for any row. Nothing here holds under replace-one, where the two tables have
different rows in one batch.

**Whole numbers.** Sums, noise and outputs are integers on a lattice, and :math:`\hat z = L^{-1} z` is computed as
:math:`\hat z_t = z_t - \lfloor \sum_{k \ge 1} n_k \hat z_{t-k} / 2^{10} \rfloor` with weights :math:`l_k =
n_k/2^{10}`. This is the mechanism above but for rounding down, which adds to the shift of a window a vector of less
than one unit in each coordinate of its last b - 1 steps: :math:`\lfloor a - l_k v \rfloor - \lfloor a \rfloor + l_k
v` lies in (-1, 1). With d coordinates :math:`\Delta = C\sqrt{\sum l_k^2} + u\sqrt{(b-1)d}` covers it. The rounding
error depends on earlier noise, which follows from earlier outputs: the shift is predictable, as above.

**Weights.** :math:`(1-x)^{-1/2} = \sum c_k x^k` is the root of the matrix of prefix sums, and best without a limit
on the number of bands. With b of them, the weights are :math:`c_k^e`, where e minimises the noise of partial sums;
for 16 bands and 300 steps this is 6% less than with e = 1.

References
----------
Choquette-Choo, C. et al. (2023). (Amplified) banded matrix factorization: a unified approach to private training.
arXiv:2306.08153.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.signal import lfilter

from ..arrays import Floats
from ..errors import InvalidParameter, require_positive_integer
from .divergences import round_up

WEIGHT_BITS = 10
_LEAST_EXPONENT = 0.05  # at 0 all weights are 1, and noise never fades


@dataclass(frozen=True)
class Bands:
    """The weights of a banded mechanism, as whole multiples of 2^-10; the first is 1."""

    numerators: tuple[int, ...] = (2**WEIGHT_BITS,)  # n_0 = 1024, n_1, ..., n_(b-1)

    def __post_init__(self) -> None:
        if not self.numerators or self.numerators[0] != 2**WEIGHT_BITS:
            raise InvalidParameter(f"the first weight of a banded mechanism is 1, got {self.numerators!r}")
        if not all(0 <= each <= 2**WEIGHT_BITS for each in self.numerators):
            raise InvalidParameter(f"weights of a banded mechanism lie in [0, 1], got {self.numerators!r} / 1024")

    @property
    def count(self) -> int:
        """How many bands there are; with one, noise is independent."""
        return len(self.numerators)

    @property
    def length(self) -> float:
        """By how much a window's shift is longer than the vector that a row adds, rounded up."""
        squared = Fraction(sum(each**2 for each in self.numerators), 4**WEIGHT_BITS)
        return 1.0 if self.count == 1 else round_up(squared) ** 0.5 * (1 + 2.0**-50)

    def response(self, steps: int) -> Floats:
        """Return what of a draw of noise is in the noise of its own step and of each later one."""
        impulse = np.zeros(steps)
        impulse[0] = 1.0
        return np.asarray(lfilter([1.0], self.weights, impulse))

    @property
    def weights(self) -> Floats:
        """The weights as numbers."""
        return np.asarray(self.numerators, dtype=np.float64) * 2.0**-WEIGHT_BITS

    def spread(self, steps: int) -> float:
        """Return the deviation of the noise of partial sums, as a root mean square over steps, for draws of 1."""
        squares = np.cumsum(np.cumsum(self.response(steps)) ** 2)  # of a draw, over the partial sums that have it
        return math.sqrt(float(squares.mean()))


@lru_cache(maxsize=256)
def bands_for(count: int, steps: int) -> Bands:
    """Return so many bands with the weights that are best for partial sums of ``steps`` vectors."""
    require_positive_integer("bands", count)
    if count == 1:
        return Bands()
    k = np.arange(1, count)
    coefficients = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])

    def with_exponent(exponent: float) -> Bands:
        return Bands(tuple(np.floor(coefficients**exponent * 2**WEIGHT_BITS).astype(int).tolist()))

    def noise(exponent: float) -> float:
        made = with_exponent(exponent)
        return made.length * made.spread(steps)

    found = minimize_scalar(noise, bounds=(_LEAST_EXPONENT, 1.0), method="bounded", options={"maxiter": 20})
    return with_exponent(float(found.x))
