"""The weights at a saddle point, with noise: adversarial training where no closed form is at hand."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..accounting import Gaussian, Laplace, NormLaplace
from ..errors import InvalidParameter, require_positive
from ..ledger import Ledger
from ..mechanisms import LatticeNoise, Noise
from ..minimisers import Game, minimax_appa
from .points import _Lattice, _require_moderate

__all__ = ["perturbed_saddle_point"]

Floats = NDArray[np.float64]


def perturbed_saddle_point(
    game: Game,
    ledger: Ledger,
    cost: Gaussian | NormLaplace | Laplace,
    *,
    largest: float,
    accuracy: float | None = None,
    noise: Noise | None = None,
) -> Floats:
    """Return the weights at the saddle point of a game, with noise.

    Parameters
    ----------
    game : Game
        H with its constants, which must hold for every table: nothing here can check them.
    ledger : Ledger
        Charged with ``cost`` before H is evaluated.
    cost : Gaussian, NormLaplace or Laplace
    largest : float
        A public bound on the norm of the weights at the saddle point of every table.
    accuracy : float, optional
        The certified gap a, at least four times the error of the game; by default what makes the tolerance 1/256 of
        the sensitivity.
    noise : Noise, optional

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
    _require_moderate(mu, game.variation(ledger.relation), largest)
    moved = game.variation(ledger.relation) / mu
    gap = max(mu / 2 * (moved / 256) ** 2, 4 * game.error)
    if accuracy is not None:
        gap = require_positive("accuracy", accuracy)
        if gap < 4 * game.error:
            raise InvalidParameter(
                f"accuracy {gap:.3g} is below what can be certified, {4 * game.error:.3g}: raise it"
            )
    tolerance = math.sqrt(2 * gap / mu) * (1 + 2.0**-40)
    output = _Lattice.of((game.dimension,), moved + 2 * tolerance, largest + tolerance, cost)
    ledger.spend(cost, "saddle point")
    with np.errstate(all="ignore"):
        weights, _ = minimax_appa(game, gap)
    return output.release(noise or LatticeNoise(), weights, cost, ledger.relation)
