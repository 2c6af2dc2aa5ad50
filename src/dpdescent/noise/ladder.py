r"""Norm-Laplace noise on the integers: vectors with density close to ``exp(-||z||_2 / b)``.

Rounding a floating-point sample has no provable distance to any law. Instead use the scale mixture

.. math:: e^{-r/b} = \int_0^\infty e^{-r^2/2s} \, (2\pi s b^2)^{-1/2} \, e^{-s/2b^2} \, ds,

that is, a variance ``s ~ Gamma((d+1)/2, 2 b^2)`` and then, given s, d independent Gaussians; here discrete
Gaussians, and a *finite* ladder of variances whose integer weights define the mechanism:

1. the trapezoid rule on a grid of ``u = log(s / (b^2 (d+1)))`` with step ``sqrt(2 pi^2 / (360 (d+40)))`` and
   log-density ``(d+1)/2 (u - expm1(u))``, cut where that falls below ``-200 log 2``;
2. each variance shared between the squares of the two neighbouring multiples of 16, which is what the
   lattice sampler can draw, so that its mean is kept: the error is then of second order in ``16 / sigma``;
3. no scale below ``b / 256``, where multiples of 16 would be too coarse (mass below 2e-8 for d >= 2).

**What holds.** z has ``P(z) = H(||z||)`` with a known function H, and for a shift by D

.. math:: |\log P(z) - \log P(z - D)| \le ||D|| \sup_r \left(-\frac{d \log H}{dr}\right), \qquad
          -\frac{d \log H}{dr} = r \, E\left[\sigma^{-2} \mid r\right].

Step 3 can only lower the slope: it removes the nodes with the largest ``1 / sigma^2`` from an average.
The supremum of ``-b dlogH/dr`` over a fine grid of radii is at most 1 + 1e-7 for dimensions 1 to ``2**20``
and ``b >= 2**24`` up to a radius that is exceeded with probability below 1e-27, and for another 16 b beyond it,
because a shift may lead there. This is a numerical maximum, not an interval-certified one.

The weights come from floating-point exponentials. Another machine may thus build a ladder that differs in
the last digit of a weight, with the same guarantee, and a seed may then give other norm-Laplace noise there.

References
----------
K. Chaudhuri, C. Monteleoni, A. D. Sarwate, "Differentially private empirical risk minimization", JMLR 12,
2011, arXiv:0912.0071.
D. F. Andrews, C. L. Mallows, "Scale mixtures of normal distributions", JRSS B 36(1), 1974.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import SupportsIndex

import numpy as np

from ..arrays import Integers
from ..errors import InvalidParameter, ScaleOutOfRange, require_positive_integer
from .bits import Bits
from .exponential import require_size
from .lattice import CELLS_PER_SCALE, MAXIMUM_SCALE, discrete_gaussian, discrete_laplace, laplace_scale

NORM_LAPLACE_SLACK = 1.000001
NORM_LAPLACE_DELTA = 1e-27
MINIMUM_NORM_LAPLACE_SCALE = 2**24
MAXIMUM_DIMENSION = 2**20

_LEAST_LOG_DENSITY = -200 * math.log(2)
_WEIGHT_BITS = 260
_LEAST_SCALE = 2.0**-8


@dataclass(frozen=True)
class Ladder:
    """A finite mixture of discrete Gaussians."""

    nodes: tuple[int, ...]  # scales of the discrete Gaussians, multiples of 16 in increasing order
    weights: tuple[int, ...]  # node j is chosen with probability ``weights[j] / sum(weights)``, exactly
    cumulative: tuple[int, ...]  # running sums of the weights

    def draw(self, bits: Bits) -> int:
        """Return the scale of a node chosen by its weight.

        The uniform integer below the total is found by rejection, which says nothing about the one accepted.
        """
        total = self.cumulative[-1]
        position = bits.integer(total.bit_length())
        while position >= total:
            position = bits.integer(total.bit_length())
        return self.nodes[bisect_right(self.cumulative, position)]


@lru_cache(maxsize=64)
def ladder(dimension: int, scale: int) -> Ladder:
    """Return the mixture whose vectors in ``Z^dimension`` have density close to ``exp(-||z||_2 / scale)``.

    Parameters
    ----------
    dimension : int
        Length d of the vectors, 1 to ``2**20``.
    scale : int
        The parameter b in lattice units, at least ``2**24``; the largest node, about
        ``b (17 + sqrt(d))``, must not exceed ``2**52``.

    Returns
    -------
    Ladder
        Nodes and integer weights; built once for each pair of arguments.
    """
    dimension = require_positive_integer("dimension", dimension)
    if dimension > MAXIMUM_DIMENSION:
        raise InvalidParameter(
            f"the norm-Laplace ladder is verified up to dimension 2**20, got {dimension}: "
            "use discrete_laplace with the L1 sensitivity, or a Gaussian mechanism"
        )
    scale = _require_scale(scale)
    half = (dimension + 1) / 2
    step = math.sqrt(2 * math.pi**2 / (360 * (dimension + 40)))
    grid = step * np.arange(-math.floor(60 / step), math.floor(12 / step) + 1)
    log_density = half * (grid - np.expm1(grid))
    deviations = scale * np.sqrt(dimension + 1.0) * np.exp(grid / 2)
    kept = (log_density > _LEAST_LOG_DENSITY) & (deviations >= _LEAST_SCALE * scale)
    log_density, deviations = log_density[kept], deviations[kept]
    if deviations[-1] + CELLS_PER_SCALE > MAXIMUM_SCALE:
        raise ScaleOutOfRange(
            f"norm-Laplace noise of scale {scale} in dimension {dimension} needs lattice scales up to "
            f"{deviations[-1] / MAXIMUM_SCALE:.3g} times 2**52: use a coarser lattice unit"
        )
    below = CELLS_PER_SCALE * np.floor(deviations / CELLS_PER_SCALE)
    above = below + CELLS_PER_SCALE
    share = (deviations - below) * (deviations + below) / (CELLS_PER_SCALE * (above + below))
    density = np.exp(log_density - log_density.max())
    weights: dict[int, int] = {}
    for node, weight in zip(
        np.concatenate([below, above]).tolist(),
        np.ldexp(np.concatenate([density * (1 - share), density * share]), _WEIGHT_BITS).tolist(),
        strict=True,
    ):
        weights[int(node)] = weights.get(int(node), 0) + int(weight)
    nodes = tuple(sorted(node for node, weight in weights.items() if weight))
    ordered = tuple(weights[node] for node in nodes)
    return Ladder(nodes, ordered, tuple(accumulate(ordered)))


def norm_laplace(bits: Bits, scale: int, size: int) -> Integers:
    r"""Draw one integer vector of length ``size`` with :math:`P(z) \propto \exp(-||z||_2 / b)`, nearly.

    Parameters
    ----------
    bits : Bits
        Where the random bits come from.
    scale : int
        The parameter b in lattice units, from ``2**24`` up to about ``2**52 / (17 + sqrt(size))``.
    size : int
        Length of the vector. One coordinate is drawn by `discrete_laplace` with b rounded up to a multiple
        of 16, which is the same law without any slack.

    Returns
    -------
    numpy.ndarray of int64
        The noise vector.

    Privacy
    -------
    Let one row move a vector of integers by at most Delta in the Euclidean norm. With
    ``scale >= NORM_LAPLACE_SLACK * Delta / epsilon`` and ``epsilon <= 16`` the noisy vector is
    ``(epsilon, NORM_LAPLACE_DELTA)``-DP. For delta = 0 use `discrete_laplace` with the L1 sensitivity.
    """
    dimension = require_size(size)
    if dimension == 0:
        return np.empty(0, np.int64)
    scale = _require_scale(scale)
    if dimension == 1:
        return discrete_laplace(bits, laplace_scale(scale, 1), 1)
    return discrete_gaussian(bits, ladder(dimension, scale).draw(bits), dimension)


def _require_scale(scale: SupportsIndex) -> int:
    try:
        number = operator.index(scale)
    except TypeError:
        number = -1
    if number < MINIMUM_NORM_LAPLACE_SCALE:
        raise ScaleOutOfRange(
            f"a norm-Laplace scale is an int of at least 2**24 lattice units, got {scale!r}: "
            "round up, and use a finer lattice unit if it is too small"
        )
    return number
