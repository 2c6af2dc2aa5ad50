r"""Phased minimisation (Feldman, Koren & Talwar 2020, algorithm 3): noisy minimisers over disjoint parts of the rows.

Part i = 1, 2, ... has :math:`n_i = \lfloor n/2^i \rfloor` rows, and with :math:`\eta_i = \eta/4^i`

.. math:: w_i = \Pi_{B(0,R)}\Big(\arg\min_{|w| \le R} \Big[\frac{1}{n_i} \sum_{j \in \text{part } i} f(w, x_j)
          + \frac{1}{\eta_i n_i} |w - w_{i-1}|^2\Big] + z_i\Big).

Every part pulls towards the point of the one before, half as many rows do so twice as strongly, and the noise falls
by a half from part to part: a rate for the population without logarithms. With L the slope of f, D the noise over
the sensitivity and d weights the step is :math:`\eta = (R/L) \min(4/\sqrt n, 1/(D \sqrt d))`. The paper's noise is
that of the classical Gaussian mechanism, which holds for epsilon up to 1; here it is the exact one.

References
----------
Feldman, V., Koren, T. & Talwar, K. (2020). Private stochastic convex optimization: optimal rates in linear time.
STOC. arXiv:2005.04763.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from ..accounting import Gaussian
from ..errors import InvalidParameter, require_positive, require_positive_integer
from ..ledger import ONE_ROW, Ledger
from ..minimisers import GeneralObjective, certified_minimiser, require_minimiser
from ..relations import Relation
from .mechanisms import LatticeNoise
from .points import PointLattice, require_constants, tolerance_share, within_ball
from .release import pay
from .sources import Floats

#: Maps the rows of a part, a centre and a pull to the mean loss of these rows plus pull/2 |w - centre|^2.
Build = Callable[[slice, Floats, float], GeneralObjective]


def phased_minimiser(
    build: Build,
    rows: int,
    ledger: Ledger,
    cost: Gaussian,
    *,
    dimension: int,
    lipschitz: float,
    radius: float,
    step: float | None = None,
    minimiser: str | None = None,
    noise: LatticeNoise | None = None,
) -> Floats:
    r"""Return the last of a series of noisy minimisers over disjoint parts of the rows.

    Parameters
    ----------
    build : callable
        Called with a slice of the rows, a centre and a pull. It returns the mean loss over the rows of the slice, and
        over no others, plus pull/2 \|w - centre\|^2, with constants that hold for every table and for every centre in
        the ball. The variation is that of the mean if one row is replaced.
    rows : int
        The public number of places for rows.
    ledger : Ledger
        Charged once with ``cost``, before any part is evaluated. Its relation must be replace-one.
    cost : Gaussian
    dimension : int
        d.
    lipschitz : float
        L, for the step.
    radius : float
        R: all points lie in B(0, R).
    step : float, optional
        eta; by default the one of the module.
    minimiser : str, optional
        "lbfgs" or "agd" for a smooth function, "subgradient" for any.
    noise : LatticeNoise, optional

    Notes
    -----
    **Privacy** One charge pays for all points, by adaptive parallel composition. Which rows form a part depends on
    their places alone, which only replace-one leaves as they are: if a row is missing, all rows after it move up by a
    place, and every later part changes. The rows of one person may lie in several parts, so the unit is one row. Say
    that a row of part i is replaced. The points before part i do not depend on it. Given these, it moves the
    minimiser of part i by at most V/mu, V being the variation and mu the strong convexity, to which 2 tau are added
    for the certified tolerance: point i is a Gaussian mechanism with the noise of ``cost``. The points after it are
    computed from earlier points and from other rows, so they are post-processing. All points together therefore lose
    no more than point i does.
    """
    if ledger.relation is not Relation.REPLACE_ONE or ledger.unit != ONE_ROW:
        raise InvalidParameter("phases protect single rows that are replaced: open a ledger with that relation")
    rows, dimension = require_positive_integer("rows", rows), require_positive_integer("dimension", dimension)
    require_constants(1.0, require_positive("lipschitz", lipschitz), require_positive("radius", radius))
    if rows < 2:
        raise InvalidParameter("phases need at least 2 rows: minimise the whole table instead")
    if step is None:
        step = radius / lipschitz * min(4 / math.sqrt(rows), 1 / (cost.noise_multiplier * math.sqrt(dimension)))
    phases = list(_phases(rows, require_positive("step", step)))
    point, plans = np.zeros(dimension), []
    for part, pull in phases:  # constants are public, so that a refusal comes before the charge
        plans.append(_plan(build(part, point, pull), pull, cost, radius, minimiser))
    points = [lattice.noised for lattice, _, _ in plans]
    paid = pay((ledger,), cost, "phased minimiser", points, noise or LatticeNoise())
    for (part, pull), (lattice, mu, distance) in zip(phases, plans, strict=True):
        objective = build(part, point, pull)
        if _plan(objective, pull, cost, radius, minimiser) != (lattice, mu, distance):
            raise InvalidParameter("the constants of a part must not depend on its centre: take ones for all of them")
        with np.errstate(all="ignore"):
            found = certified_minimiser(objective, mu, distance, _method(objective, minimiser), radius)
            placed = lattice.place(found)
        point = within_ball(paid.release(lattice.noised, placed), radius)
    return point


def _phases(rows: int, step: float) -> Iterator[tuple[slice, float]]:
    """Yield the rows of every part, and its pull 2/(eta_i n_i)."""
    start, phase = 0, 1
    while rows >> phase:
        size = rows >> phase
        yield slice(start, start + size), 2 * 4.0**phase / (step * size)
        start, phase = start + size, phase + 1


def _plan(
    objective: GeneralObjective, pull: float, cost: Gaussian, radius: float, minimiser: str | None
) -> tuple[PointLattice, float, float]:
    """Return the lattice of a part's point, the strong convexity and the tolerance; no row is read."""
    smooth, mu = objective.smoothness < math.inf, objective.strong_convexity
    if mu < pull * (1 - 2.0**-40):
        raise InvalidParameter(f"a part has a strong convexity of {mu:.6g}, less than its pull {pull:.6g}: add it")
    require_minimiser(_method(objective, minimiser), smooth=smooth, rows=False)
    require_constants(mu, objective.lipschitz, radius)
    moved = min(objective.variation / mu, 2 * radius)
    distance = max(tolerance_share(None, smooth, 16) * moved, objective.reachable(radius))
    return PointLattice.of(objective.shape, moved + 2 * distance, radius + distance, cost), mu, distance


def _method(objective: GeneralObjective, minimiser: str | None) -> str:
    return minimiser or ("lbfgs" if objective.smoothness < math.inf else "subgradient")
