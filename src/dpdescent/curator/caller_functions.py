r"""Functions of the caller: their minimisers and saddle points, with noise, drawn at random, or found in phases.

These functions keep their rows to themselves, so that no curator holds them: the caller vouches for the constants of
the function, and the ledger is charged before it is evaluated.

**A drawn point** (McSherry & Talwar 2007). A ball is covered by a public grid of points, of which one is drawn with
probability proportional to exp(-epsilon F/spread): the exponential mechanism, exactly. F need be neither convex nor a
sum over rows. With probability 1 - b the drawn point is worse than the best one of N by less than (spread/epsilon)
log(N/b). A few weights are practical: there are at most 2^16 points, 256 along each of two axes and 9 along each of
five. Scores are rounded to a unit u, a 2^-30th of the spread, and kept within public limits; one that is no number
counts as the largest. Both change a difference towards 0 or by at most u, and errors by at most 2e, so that
differences stay within an interval of length spread + 2u + 4e, by which the law divides epsilon.

**Phases** (Feldman, Koren & Talwar 2020, algorithm 3) are noisy minimisers over disjoint parts of the rows. Part i =
1, 2, ... has :math:`n_i = \lfloor n/2^i \rfloor` rows, and with :math:`\eta_i = \eta/4^i`

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
McSherry, F. & Talwar, K. (2007). Mechanism design via differential privacy. FOCS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ..accounting import ExponentialMechanism, Gaussian, Laplace, NormLaplace
from ..arrays import Floats, Integers
from ..errors import InvalidParameter, require_nonnegative, require_positive, require_positive_integer
from ..exact import ceil_log2, require_moderate
from ..ledger import ONE_ROW, Ledger
from ..minimisers import Game, GeneralObjective, certified_minimiser, minimax_appa, require_minimiser
from ..noise import MAXIMUM_SCORES
from ..queries.noisy_minimiser import OutputNoise, PointLattice, require_constants, tolerance_share, within_ball
from ..queries.query import Noised
from ..relations import Norm, Relation, Sensitivity
from .lattice_noise import LatticeNoise
from .release import Paid, pay, release

_MOST_WEIGHTS, _FEWEST_PER_AXIS = 10, 3
_SCORE_BITS = 30  # of a unit of scores below their spread
_LARGEST_SCORE = 2.0**60
_AT_ONCE = 2**12

#: The lattice of a part's point, the strong convexity and the tolerance.
_Planned = tuple[PointLattice, float, float]
#: Maps the rows of a part, a centre and a pull to the mean loss of these rows plus pull/2 |w - centre|^2.
Build = Callable[[slice, Floats, float], GeneralObjective]


def perturbed_minimiser(
    objective: GeneralObjective,
    ledger: Ledger,
    cost: OutputNoise,
    *,
    tolerance: float | None = None,
    radius: float = math.inf,
    minimiser: str | None = None,
    noise: LatticeNoise | None = None,
) -> Floats:
    """Return the minimiser of any strongly convex function of the rows, with noise, projected onto the ball B(0, R).

    Parameters
    ----------
    objective : GeneralObjective
        F with its constants. They must hold for every table, which no program can check.
    ledger : Ledger
        Charged with ``cost`` before F is evaluated.
    cost : Gaussian, NormLaplace or Laplace
    tolerance : float, optional
        tau in units of the sensitivity. By default 1/256, or 1/16 for an F with kinks; it is raised to what the
        errors of F allow to certify.
    radius : float
        R. The minimiser over B(0, R) is what is released.
    minimiser : str, optional
        "lbfgs" or "agd" for a smooth function, "subgradient" for any.
    noise : LatticeNoise, optional

    Notes
    -----
    **Privacy** One row moves the minimiser by at most V/mu, V the ``variation`` of the objective
    (`dpdescent.minimisers.risks`), under either relation if V holds for it; the computed point is certified to lie
    within tau of it, given the bounds on the errors of F that the objective promises.
    """
    smooth, mu = objective.smoothness < math.inf, objective.strong_convexity
    minimiser = minimiser or ("lbfgs" if smooth else "subgradient")
    require_minimiser(minimiser, smooth=smooth, rows=False)
    require_constants(mu, objective.lipschitz, radius)
    moved = objective.variation / mu
    distance = max(tolerance_share(tolerance, smooth, 16) * moved, objective.reachable(radius))
    largest = (radius if radius < math.inf else objective.lipschitz / mu) + distance
    lattice = PointLattice.of(objective.shape, moved + 2 * distance, largest, cost)
    find = partial(certified_minimiser, objective, mu, distance, minimiser, radius)
    point = release(ledger, lattice.noised, "minimiser", lambda: lattice.place(find()), noise)
    return within_ball(point, radius)


def perturbed_saddle_point(
    game: Game,
    ledger: Ledger,
    cost: Gaussian | NormLaplace | Laplace,
    *,
    largest: float,
    accuracy: float | None = None,
    noise: LatticeNoise | None = None,
) -> Floats:
    """Return the weights at the saddle point of a game, with noise.

    Parameters
    ----------
    game : Game
        H with its constants. They must hold for every table, which no program can check.
    ledger : Ledger
        Charged with ``cost`` before H is evaluated.
    cost : Gaussian, NormLaplace or Laplace
    largest : float
        A public bound on the norm of the weights at the saddle point of every table.
    accuracy : float, optional
        The certified gap a, at least four times the error of the game; by default what makes the tolerance 1/256 of
        the sensitivity.
    noise : LatticeNoise, optional

    Notes
    -----
    **Privacy** Let G be the largest H over the moves. It is mu-strongly convex, and G - G' is V-Lipschitz
    (`Game.variation`): one row moves the minimiser of G by at most V/mu, under the relation that V is for
    (`dpdescent.minimisers.risks`). The computed weights have a certified gap of at most a, so they are within
    sqrt(2a/mu) of it: the sensitivity is V/mu + 2 sqrt(2a/mu), plus the step of the lattice.

    References
    ----------
    Lowy, A. & Razaviyayn, M. (2021). Output perturbation for differentially private convex optimization with improved
    population loss bounds, runtimes and applications to private adversarial training, algorithm 8. arXiv:2102.04704.
    (There the tolerance is 2a/mu for Gaussian noise, which is too small.)
    """
    mu = require_positive("strong_convexity", game.strong_convexity)
    require_positive("largest", largest)
    if not game.diameter < math.inf:
        raise InvalidParameter("the set of moves is not bounded: give it a finite radius")
    require_constants(mu, game.variation(ledger.relation), largest)
    moved = game.variation(ledger.relation) / mu
    gap = max(mu / 2 * (moved / 256) ** 2, 4 * game.error)
    if accuracy is not None:
        gap = require_positive("accuracy", accuracy)
        if gap < 4 * game.error:
            raise InvalidParameter(
                f"accuracy {gap:.3g} is below what can be certified, {4 * game.error:.3g}: raise it"
            )
    tolerance = math.sqrt(2 * gap / mu) * (1 + 2.0**-40)
    lattice = PointLattice.of((game.dimension,), moved + 2 * tolerance, largest + tolerance, cost)
    find = partial(minimax_appa, game, gap)
    weights: Floats = release(ledger, lattice.noised, "saddle point", lambda: lattice.place(find()[0]), noise)
    return weights


def drawn_minimiser(
    score: Callable[[Floats], Floats],
    ledger: Ledger,
    cost: ExponentialMechanism,
    *,
    dimension: int,
    radius: float,
    spread: float,
    centre: Floats | None = None,
    box: bool = False,
    points: int = MAXIMUM_SCORES,
    error: float = 0.0,
    noise: LatticeNoise | None = None,
) -> Floats:
    r"""Return a point of a ball or a box, the likelier the smaller any function of the rows is there.

    `dpdescent.curator.caller_functions` has the proof. A second call around it, with a smaller radius, is finer.

    Parameters
    ----------
    score : callable
        F. Maps an array of m points, of shape (m, d), to m numbers.
    ledger : Ledger
        Charged with ``cost`` before F is evaluated.
    cost : ExponentialMechanism
    dimension : int
        d, at most 10.
    radius : float
        R, how far a point may be from the centre; in a box, how far along each axis.
    spread : float
        The length of an interval that contains 0 and F(w) - F'(w) at all w, for all neighbours, which no program can
        check: D if a row can only raise F, and by at most D, and 2D if it can change F by D either way.
    centre : ndarray of shape (d,), optional
        Public; zero by default.
    box : bool
        Whether the points fill a box.
    points : int
        The largest number of points of the box, 2^16 at most.
    error : float
        Bounds the rounding error of a computed F.
    noise : LatticeNoise, optional

    Examples
    --------
    >>> import numpy as np
    >>> from dpdescent import Ledger, drawn_minimiser
    >>> from dpdescent.accounting import ExponentialMechanism
    >>> rows, ledger = np.random.default_rng(0).uniform(0, 1, 500), Ledger(1.0, 0.0, currency="pure")
    >>> def distance_from_median(w):  # how many rows lie between a point and the median: a row changes it by 1/2
    ...     return np.abs((rows[None, :] < w).sum(axis=1) - rows.size / 2)
    >>> median = drawn_minimiser(
    ...     distance_from_median, ledger, ExponentialMechanism(1.0), dimension=1, radius=1.0, spread=1.0
    ... )
    >>> abs(float(median[0]) - 0.5) < 0.1
    True
    """
    grid = _covering(require_positive_integer("dimension", dimension), radius, centre, box, points)
    chosen = _choice_of_score(cost, spread, error)
    index: int = release(ledger, chosen, "point of a grid", lambda: _scores(score, grid, chosen.unit), noise)
    return np.array(grid[index], dtype=np.float64)


def _choice_of_score(cost: ExponentialMechanism, spread: float, error: float) -> Noised:
    """Return how a score is chosen, with the lattice and the range of the scores."""
    wide = require_moderate("spread", spread) + 4 * require_nonnegative("error", error)
    unit = 2.0 ** (ceil_log2(require_moderate("spread and error", wide)) - _SCORE_BITS)
    change = (wide + 2 * unit) * (1 + 2.0**-50)
    return Noised(cost, unit, Sensitivity(Norm.RANGE, change, change))


def _scores(score: Callable[[Floats], Floats], grid: Floats, unit: float) -> Integers:
    """Return the score of every point in steps of the lattice."""
    parts = [np.asarray(score(grid[i : i + _AT_ONCE]), np.float64) for i in range(0, len(grid), _AT_ONCE)]
    scores = np.concatenate([part.reshape(-1) for part in parts])
    if scores.shape != (len(grid),):
        raise InvalidParameter("score must return one number for each point: sum over rows, not over points")
    known = np.where(np.isnan(scores), np.inf, scores) / unit
    steps: Integers = np.rint(np.clip(known, -_LARGEST_SCORE, _LARGEST_SCORE)).astype(np.int64)
    return steps


def _covering(dimension: int, radius: float, centre: Floats | None, box: bool, points: int) -> Floats:
    """Return the midpoints of equal cells of a box, or those of them that lie in the ball."""
    require_positive_integer("points", points)
    if dimension > _MOST_WEIGHTS or not _FEWEST_PER_AXIS**dimension <= points <= MAXIMUM_SCORES:
        raise InvalidParameter(
            f"{points} points do not cover {dimension} weights: at most 2^16 can be drawn from, with at least "
            "3 along each axis; draw fewer weights, or use perturbed_minimiser"
        )
    middle = np.zeros(dimension) if centre is None else np.asarray(centre, dtype=np.float64)
    if middle.shape != (dimension,) or not np.isfinite(middle).all():
        raise InvalidParameter(f"centre must be {dimension} finite numbers")
    per_axis = int(points ** (1 / dimension) * (1 + 1e-12))
    axis = (2 * np.arange(per_axis) + 1.0) / per_axis - 1
    cells = np.stack(np.meshgrid(*[axis] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    if not box:
        cells = cells[(cells**2).sum(axis=1) <= 1]
    grid: Floats = middle + require_moderate("radius", radius) * cells
    return grid


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
        eta; by default the one of `dpdescent.curator.caller_functions`.
    minimiser : str, optional
        "lbfgs" or "agd" for a smooth function, "subgradient" for any.
    noise : LatticeNoise, optional

    Notes
    -----
    **Privacy** One charge pays for all points, by adaptive parallel composition. Which rows form a part depends on
    their positions alone, which only replace-one leaves as they are: if a row is missing, all rows after it may move
    up, and every later part changes (`dpdescent.relations`). The rows of one person may lie in several parts, so the
    unit is one row. Say that a row of part i is replaced. The points before part i do not depend on it. Given these,
    it moves the minimiser of part i by at most V/mu, V being the variation and mu the strong convexity, to which 2
    tau are added for the certified tolerance: point i is a Gaussian mechanism with the noise of ``cost``. The points
    after it are computed from earlier points and from other rows, so they are post-processing. All points together
    therefore lose no more than point i does.
    """
    phases = list(_phases(rows, _require_step(ledger, rows, dimension, lipschitz, radius, step, cost)))
    plan = partial(_plan, cost=cost, radius=radius, minimiser=minimiser)
    point = np.zeros(dimension)
    plans = [plan(build(part, point, pull), pull) for part, pull in phases]  # a refusal comes before the charge
    paid = pay((ledger,), cost, "phased minimiser", [each[0].noised for each in plans], noise or LatticeNoise())
    for (part, pull), planned in zip(phases, plans, strict=True):
        objective = build(part, point, pull)
        _require_same(planned, plan(objective, pull))
        point = _release_phase(paid, objective, planned, radius, _method(objective, minimiser))
    return point


def _require_same(planned: _Planned, found: _Planned) -> None:
    if found != planned:
        raise InvalidParameter("the constants of a part must not depend on its centre: take ones for all of them")


def _release_phase(paid: Paid, objective: GeneralObjective, planned: _Planned, radius: float, method: str) -> Floats:
    """Return the point of a part, with the noise that was paid for."""
    lattice, mu, distance = planned
    with np.errstate(all="ignore"):
        placed = lattice.place(certified_minimiser(objective, mu, distance, method, radius))
    return within_ball(paid.release(lattice.noised, placed), radius)


def _require_step(
    ledger: Ledger, rows: int, dimension: int, lipschitz: float, radius: float, step: float | None, cost: Gaussian
) -> float:
    """Return eta, or raise what keeps phases from being paid for."""
    if ledger.relation is not Relation.REPLACE_ONE or ledger.unit != ONE_ROW:
        raise InvalidParameter("phases protect single rows that are replaced: open a ledger with that relation")
    rows, dimension = require_positive_integer("rows", rows), require_positive_integer("dimension", dimension)
    require_constants(1.0, require_positive("lipschitz", lipschitz), require_positive("radius", radius))
    if rows < 2:
        raise InvalidParameter("phases need at least 2 rows: minimise the whole table instead")
    if step is None:
        step = radius / lipschitz * min(4 / math.sqrt(rows), 1 / (cost.noise_multiplier * math.sqrt(dimension)))
    return require_positive("step", step)


def _phases(rows: int, step: float) -> Iterator[tuple[slice, float]]:
    """Yield the rows of every part, and its pull 2/(eta_i n_i)."""
    start, phase = 0, 1
    while rows >> phase:
        size = rows >> phase
        yield slice(start, start + size), 2 * 4.0**phase / (step * size)
        start, phase = start + size, phase + 1


def _plan(objective: GeneralObjective, pull: float, cost: Gaussian, radius: float, minimiser: str | None) -> _Planned:
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
