r"""What Chen & Lee (2020) charge for their answers, and never less than what is true.

Their accounting is looser than ours in most places, so that a run at their price is much shorter than one at ours. In
some places it is not sound: a theorem about searches fails for many queries, and Lemma 4 amplifies the gradient and
the search of one batch apart. `PrintedPrice` charges the larger of the two prices, which is sound wherever ours is,
and gives a run as many updates as the paper's own accounting does where that one holds.

On all rows a Gaussian answer costs :math:`a/(2s^2)`, and a search what Theorems 2 and 3 say, with threshold noise
:math:`b_1` and query noise :math:`b_2` in units of the sensitivity:

.. math:: \text{Laplace: } L_a(1/b_1) + L_a(2/b_2), \qquad
    \text{Gaussian: } \frac{a}{2}\Big(\frac1{b_1^2} + \frac4{b_2^2}\Big),

with :math:`L_a(\varepsilon)` the divergence of Laplace noise. On a batch, at whole orders, Lemma 4 makes of a curve E

.. math:: \frac{1}{a-1}\log\Big\{(1-q)^{a-1}(aq - q + 1) + \binom a2 q^2 (1-q)^{a-2} e^{E(2)}
    + 3\sum_{l=3}^{a}\binom al q^l (1-q)^{a-l} e^{(l-1)E(l)}\Big\}.

Several answers on one batch are each amplified by themselves there, and added up.

References
----------
Chen, C. & Lee, J. (2020). Stochastic adaptive line search for differentially private optimization. arXiv:2008.07978.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, logsumexp

from ..errors import InvalidParameter, UnsupportedCost, require_order
from ..relations import Relation
from .costs import Composed, Cost, Gaussian
from .divergences import LOG_SUM, above, gaussian_rdp, laplace_rdp
from .sampling import FixedSizeSampled, PoissonSampled
from .searches import AboveThreshold

#: The orders that the paper keeps track of.
PRINTED_ORDERS = range(2, 501)


@dataclass(frozen=True)
class PrintedPrice(Cost):
    """A batch's answers at the price that Chen & Lee (2020) state, or at their true one if that is higher.

    **Privacy.** Renyi divergences are the larger of both; every other currency has the true cost.
    """

    kind: ClassVar[str] = "printed-price"
    parts: tuple[Cost, ...]  # what is bought: Gaussian answers and searches, on all rows or on one batch

    def __post_init__(self) -> None:
        if len(self.parts) != 1:
            raise InvalidParameter("a printed price is that of one batch: give one cost")
        printed_rdp(self.bought, 2)

    @property
    def bought(self) -> Cost:
        """The cost of the answers as it is."""
        return self.parts[0]

    @property
    def relations(self) -> frozenset[Relation]:
        return self.bought.relations

    def rdp(self, order: float) -> float:
        return max(self.bought.rdp(order), printed_rdp(self.bought, max(2, math.ceil(require_order(order)))))

    def zcdp(self) -> float:
        return self.bought.zcdp()

    def mu_squared(self) -> float:
        return self.bought.mu_squared()

    def pure(self) -> float:
        return self.bought.pure()

    @property
    def delta(self) -> float:
        return self.bought.delta


@lru_cache(maxsize=4096)
def printed_rdp(cost: Cost, order: int) -> float:
    """Return what the paper charges for answers at a whole order."""
    if isinstance(cost, Gaussian):
        return gaussian_rdp(cost.noise_multiplier, order)
    if isinstance(cost, AboveThreshold) and cost.threshold_scale > 0:
        if cost.noise == "laplace":  # equation (4)
            return laplace_rdp(1 / cost.threshold_scale, order) + laplace_rdp(2 / cost.query_scale, order)
        return gaussian_rdp(cost.threshold_scale, order) + gaussian_rdp(cost.query_scale / 2, order)  # (5)
    if isinstance(cost, Composed):
        return sum(printed_rdp(part, order) for part in cost.parts)
    if isinstance(cost, PoissonSampled | FixedSizeSampled):
        return sum(lemma_4(cost.rate, order, part) for part in cost.parts)
    raise UnsupportedCost(
        f"the paper states no price of {cost.kind!r}: it charges for Gaussian answers and for searches that have "
        "noise on their threshold; choose the setting price of the method to be 'true'"
    )


def lemma_4(rate: float, order: int, part: Cost) -> float:
    """Return the divergence at a whole order that Lemma 4 states for one mechanism on a Poisson batch."""
    if rate == 1:
        return printed_rdp(part, order)
    overlaps = np.arange(2, order + 1)
    exponents = np.array([(j - 1) * printed_rdp(part, int(j)) for j in overlaps])
    log_binomials = gammaln(order + 1) - gammaln(overlaps + 1) - gammaln(order - overlaps + 1)
    terms = log_binomials + (order - overlaps) * math.log1p(-rate) + overlaps * math.log(rate) + exponents
    terms[1:] += math.log(3)
    none_or_one = (order - 1) * math.log1p(-rate) + math.log1p((order - 1) * rate)
    return above(float(logsumexp([none_or_one, *terms])) / (order - 1), LOG_SUM)
