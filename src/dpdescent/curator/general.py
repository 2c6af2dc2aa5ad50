"""Minimisers and saddle points of functions that keep their rows to themselves, with noise.

No curator holds these rows: the caller vouches for the constants of the function, and the ledger is charged before it
is evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from ..accounting import Gaussian, Laplace, NormLaplace
from ..errors import InvalidParameter, require_positive
from ..ledger import Ledger
from ..minimisers import Game, GeneralObjective, certified_minimiser, minimax_appa, require_minimiser
from .mechanisms import LatticeNoise, require_drawable
from .points import OutputNoise, PointLattice, require_constants, tolerance_share, within_ball
from .sources import Floats


def _released(
    lattice: PointLattice, find: Callable[[], Floats], ledger: Ledger, noise: LatticeNoise | None, label: str
) -> Floats:
    """Charge, find the point, and return it with noise."""
    part = lattice.noised
    require_drawable(part.cost, part.unit, part.sensitivity, ledger.relation, part.size)
    noise = noise or LatticeNoise()
    ledger.spend(part.cost, label, randomness=noise.description)
    with np.errstate(all="ignore"):
        point = part.of(lattice.place(find()))
    released: Floats = noise.release(point, part.cost, ledger.relation)
    return released


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
    return within_ball(_released(lattice, find, ledger, noise, "minimiser"), radius)


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
    return _released(lattice, lambda: minimax_appa(game, gap)[0], ledger, noise, "saddle point")
