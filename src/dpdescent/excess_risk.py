r"""What output perturbation is promised to cost: bounds on the expected excess risk (Lowy & Razaviyayn 2021).

F is convex and L-Lipschitz on B(0, R), which holds a minimiser; d weights. With the price of privacy

.. math:: x = \frac{d}{\varepsilon n} \quad(\delta = 0), \qquad
          x = \frac{\sqrt d\,(c_\delta + \sqrt{c_\delta^2 + \varepsilon})}{\varepsilon n} \quad (0 < \delta < 1/2),

where n = 1 for a function that is not a mean over rows, the bounds on E F(released) - min F are

=====================================  ==================================================  ===========================
F                                      empirical                                           population adds, replaces
=====================================  ==================================================  ===========================
mu-strongly convex                     2 L^2 x/mu (sqrt 2 for Gaussian noise)              2 L^2/(mu n); 2 L^2 x/mu
mu-strongly convex, beta-smooth        4 (beta/mu) L^2 x^2/mu, or the line above           2 L^2/(mu n)
convex                                 8.5 L R sqrt(x)                                     L R/(2 sqrt n); 127 or 19
convex, beta-smooth                    48.5 (beta L^2 R^4)^(1/3) x^(2/3), or the above     11 /sqrt n; 83 or 43
=====================================  ==================================================  ===========================

in the order of the paper: Corollaries 2.1 and 2.2 and Propositions 2.5 and 2.8 for tables 1, 2, 5 and 6, and
Propositions 4.1 to 4.4, for losses whose rows are drawn independently, for tables 3 and 4. They are about exact
minimisers and noise for replace-one neighbours; a tolerance tau makes the noise longer by the factor 1 + 2 tau/Delta.
Without strong convexity the objective is minimised with lambda/2 |w|^2 more, `regularisation`. Where F is not smooth
the released point must be projected onto B(0, R).

**Vacuous bounds.** Any fixed point of B(0, R) has an excess risk of at most L R, for nothing. A bound that is not
below it says nothing, and the conditions of the theorems fail about there: that is so wherever x is not well below 1.
For means over rows n epsilon must exceed d (or sqrt(d) times some 5 to 9); without the mean, epsilon itself must,
which is no privacy: bounds for general losses hold at every epsilon and say nothing at small ones.

References
----------
Lowy, A. & Razaviyayn, M. (2021). Output perturbation for differentially private convex optimization with improved
population loss bounds, runtimes and applications to private adversarial training. arXiv:2102.04704.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .accounting import gaussian_tail_constant
from .errors import InvalidParameter, require_nonnegative, require_positive, require_positive_integer

__all__ = ["ExcessRiskBound", "excess_risk_bound", "price_of_privacy", "regularisation"]


@dataclass(frozen=True)
class ExcessRiskBound:
    """A bound on the expected excess risk of output perturbation.

    Attributes
    ----------
    value : float
        The bound, which holds whether it is vacuous or not; infinite where its theorem does not apply.
    trivial : float
        L R: the excess risk of doing nothing.
    regularisation : float
        lambda, what is added to the objective as lambda/2 |w|^2; 0 where it is strongly convex itself.
    projected : bool
        Whether the bound is about the point projected onto B(0, R).
    source : str
        Where the paper states it.
    """

    value: float
    trivial: float
    regularisation: float
    projected: bool
    source: str

    @property
    def vacuous(self) -> bool:
        """Whether doing nothing has as good a bound."""
        return self.value >= self.trivial


def excess_risk_bound(
    *,
    lipschitz: float,
    radius: float,
    dimension: int,
    epsilon: float,
    delta: float = 0.0,
    rows: int | None = None,
    strong_convexity: float = 0.0,
    smoothness: float = math.inf,
    population: bool = False,
) -> ExcessRiskBound:
    """Return the smallest of the bounds of Lowy & Razaviyayn (2021) on the expected excess risk that apply.

    Parameters
    ----------
    lipschitz, radius : float
        L and R: every table's objective (for a population, every row's loss) is L-Lipschitz on B(0, R).
    dimension : int
        d, the number of weights.
    epsilon, delta : float
        The guarantee, 0 <= delta < 1/2.
    rows : int, optional
        n, for a mean over rows; leave it out for a function that is not a mean.
    strong_convexity, smoothness : float
        mu (0: merely convex) and beta (infinite: not smooth).
    population : bool
        The bound on the population risk, of a mean over independent rows.

    Examples
    --------
    >>> bound = excess_risk_bound(lipschitz=1, radius=10, dimension=20, epsilon=1, rows=100_000, strong_convexity=0.1)
    >>> bound.source, round(bound.value, 6), bound.vacuous
    ('Corollary 2.1', 0.004, False)
    """
    price = price_of_privacy(dimension, epsilon, delta, rows)
    slope, reach = require_positive("lipschitz", lipschitz), require_positive("radius", radius)
    mu, trivial = require_nonnegative("strong_convexity", strong_convexity), slope * reach
    smooth = smoothness != math.inf and bool(require_positive("smoothness", smoothness))
    if population and rows is None:
        raise InvalidParameter("a population bound is about a mean over rows: give rows")
    sample = float(rows or 1)
    bounds = []
    if mu > 0:
        scale = slope**2 / mu
        if population:
            kink = 2 * scale * (1 / sample + price) if price <= 1 else math.inf
            bounds.append(ExcessRiskBound(kink, trivial, 0.0, True, "Proposition 4.1"))
        else:
            factor = 2.0 if delta == 0 else math.sqrt(2)
            bounds.append(ExcessRiskBound(factor * scale * price, trivial, 0.0, True, "Corollary 2.1"))
        if smooth:
            even = 4 * smoothness / mu * scale * price**2
            if population:
                even = even + 2 * scale / sample if price <= 1 else math.inf
            name = "Proposition 4.2" if population else "Corollary 2.2"
            bounds.append(ExcessRiskBound(even, trivial, 0.0, False, name))
        return min(bounds, key=lambda bound: bound.value)
    common = {"lipschitz": slope, "radius": reach, "dimension": dimension, "epsilon": epsilon, "delta": delta}
    weight = regularisation(**common, rows=rows, population=population)  # type: ignore[arg-type]
    if price > 1:
        kink = math.inf
    elif population:
        kink = trivial * ((127 if delta == 0 else 19) * math.sqrt(price) + 0.5 / math.sqrt(sample))
    else:
        kink = 8.5 * trivial * math.sqrt(price)
    bounds.append(
        ExcessRiskBound(kink, trivial, weight, True, "Proposition 4.3" if population else "Proposition 2.5")
    )
    if smooth:
        weight = regularisation(**common, rows=rows, smoothness=smoothness, population=population)  # type: ignore[arg-type]
        unit = math.cbrt(smoothness * slope**2 * reach**4)
        even = (48.5 if not population else 83 if delta == 0 else 43) * unit * price ** (2 / 3)
        even += 11 * unit / math.sqrt(sample) if population else 0.0
        if price**2 > slope / (reach * smoothness):
            even = math.inf
        name = "Proposition 4.4" if population else "Proposition 2.8"
        bounds.append(ExcessRiskBound(even, trivial, weight, False, name))
    return min(bounds, key=lambda bound: bound.value)


def regularisation(
    *,
    lipschitz: float,
    radius: float,
    dimension: int,
    epsilon: float,
    delta: float = 0.0,
    rows: int | None = None,
    smoothness: float = math.inf,
    population: bool = False,
) -> float:
    """Return the lambda that the paper adds to a merely convex objective (Theorems 3.4 and 3.5, Section 4)."""
    price = price_of_privacy(dimension, epsilon, delta, rows)
    statistical = 1 / math.sqrt(rows) if population and rows is not None else 0.0
    if smoothness == math.inf:
        if population:
            return lipschitz / radius * (math.sqrt(price) + statistical)
        return lipschitz / radius / math.sqrt(1 + 1 / price)
    return math.cbrt(smoothness * (lipschitz / radius) ** 2) * (math.cbrt(price**2) + statistical)


def price_of_privacy(dimension: int, epsilon: float, delta: float, rows: int | None) -> float:
    """Return x, the price of privacy, for a mean over ``rows`` rows or a function that is no mean."""
    epsilon = require_positive("epsilon", epsilon) * (1 if rows is None else require_positive_integer("rows", rows))
    weights = require_positive_integer("dimension", dimension)
    if delta == 0:
        return weights / epsilon
    constant = gaussian_tail_constant(delta)
    alone = epsilon / (rows or 1)
    return math.sqrt(weights) * (constant + math.sqrt(constant**2 + alone)) / epsilon
