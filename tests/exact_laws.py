"""Exact output laws of small mechanisms by quadrature, written without the package they are meant to test."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp

Vector = NDArray[np.float64]
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


def log_tails(noise: str, x: Vector) -> tuple[Vector, Vector]:
    """log F and log S of noise of scale one."""
    if noise == "gaussian":
        return log_ndtr(x), log_ndtr(-x)
    small = -np.abs(x) - math.log(2)
    large = np.log1p(-np.exp(small))
    return np.where(x < 0, small, large), np.where(x < 0, large, small)


def _threshold_nodes(noise: str, threshold: float, query: float, kinks: Vector) -> tuple[Vector, Vector]:
    """Nodes and log weights of the integral over the threshold noise, with panels that end at the kinks."""
    if threshold == 0:
        return np.zeros(1), np.zeros(1)
    reach = threshold * (40 if noise == "laplace" else 9)
    ends = np.unique(np.concatenate([[-reach, 0.0, reach], kinks[np.abs(kinks) < reach]]))
    if noise == "gaussian":
        ends = np.array([-reach, reach])
    widest = 3 * min(threshold, query)
    panels = np.concatenate(
        [np.linspace(a, b, max(1, math.ceil((b - a) / widest)) + 1)[:-1] for a, b in itertools.pairwise(ends)]
        + [ends[-1:]]
    )
    half, centre = np.diff(panels)[:, None] / 2, (panels[1:] + panels[:-1])[:, None] / 2
    z = (centre + half * _NODES).ravel()
    log_weight = np.log(half * _WEIGHTS).ravel()
    if noise == "gaussian":
        return z, log_weight - (z / threshold) ** 2 / 2 - math.log(threshold * math.sqrt(2 * math.pi))
    return z, log_weight - np.abs(z) / threshold - math.log(2 * threshold)


def threshold_law(queries: Vector, noise: str, threshold: float, query: float) -> Vector:
    """Log probabilities that the search stops at each query, and last that it finds none."""
    queries = np.asarray(queries, dtype=np.float64)
    z, log_weight = _threshold_nodes(noise, threshold, query, np.unique(queries))
    below, above = log_tails(noise, (z[:, None] - queries) / query)
    before = np.concatenate([np.zeros((z.size, 1)), np.cumsum(below, axis=1)], axis=1)
    above = np.concatenate([above, np.zeros((z.size, 1))], axis=1)
    return logsumexp(before + above + log_weight[:, None], axis=0)


def renyi(log_p: Vector, log_q: Vector, order: float) -> float:
    """D_a(P || Q)."""
    return float(logsumexp(order * log_p + (1 - order) * log_q)) / (order - 1)


def both_ways(log_p: Vector, log_q: Vector, order: float) -> float:
    """The larger of D_a(P || Q) and D_a(Q || P)."""
    return max(renyi(log_p, log_q, order), renyi(log_q, log_p, order))


def poisson_mixture(rate: float, order: int, moments: list[float]) -> float:
    """D_a((1-q) Q + q P || Q) from the exact D_j(P || Q), j = 2..a."""
    total = (1 - rate) ** order + order * (1 - rate) ** (order - 1) * rate
    for j, divergence in enumerate(moments, start=2):
        total += math.comb(order, j) * (1 - rate) ** (order - j) * rate**j * math.exp((j - 1) * divergence)
    return math.log(total) / (order - 1)
