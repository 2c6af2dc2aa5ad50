"""Floating-point noise, for researchers and very long vectors.

Its distributions are those of `dpdescent.curator.LatticeNoise`, and its guarantee is that of theorems about real
numbers only (Mironov 2012): the statement says so.

References
----------
Mironov, I. (2012). On significance of the least significant bits for differential privacy. CCS.
"""

from __future__ import annotations

import math

import numpy as np

from ..accounting import AboveThreshold, ExponentialMechanism, Gaussian, Laplace, NormLaplace, ReportNoisyMax
from ..arrays import Floats
from ..curator import LatticeNoise
from ..curator.lattice_noise import deviation_of, normalised_queries, sensitivity_in, upper_triangle
from ..errors import InvalidParameter
from ..exact import LatticeSum
from ..noise import Randomness
from ..relations import Norm, Relation


class FloatNoise(LatticeNoise):
    """Ordinary floating-point noise from a numpy generator; same distributions, no exactness.

    Parameters
    ----------
    seed : int, optional
        None draws a seed from the operating system.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(Randomness(seed))
        self._generator = np.random.default_rng(seed)

    @property
    def description(self) -> str:
        return f"floating point, {super().description}"

    @property
    def arithmetic(self) -> str:
        return "sums over rows are exact, the noise is in floating point: the guarantee is that of real numbers only"

    def gaussian(self, total: LatticeSum, cost: Gaussian, relation: Relation) -> Floats:
        sigma = deviation_of(total, cost, relation)
        return total.to_float() + self._generator.normal(0.0, sigma, total.values.shape)

    def gaussian_symmetric(self, total: LatticeSum, cost: Gaussian, relation: Relation) -> Floats:
        rows, columns = upper_triangle(total)
        spread = np.where(rows == columns, 1.0, math.sqrt(0.5)) * deviation_of(total, cost, relation)
        released = total.to_float()
        released[rows, columns] += self._generator.normal(0.0, spread)
        released[columns, rows] = released[rows, columns]
        return released

    def laplace(self, total: LatticeSum, cost: Laplace, relation: Relation) -> Floats:
        scale = sensitivity_in(total, Norm.L1, relation) / cost.epsilon
        return total.to_float() + self._generator.laplace(0.0, scale, total.values.shape)

    def norm_laplace(self, point: LatticeSum, cost: NormLaplace, relation: Relation) -> Floats:
        scale = sensitivity_in(point, Norm.L2, relation) / cost.epsilon
        direction = self._generator.normal(size=point.values.shape)
        length = self._generator.gamma(point.values.size, scale)
        return point.to_float() + direction * (length / np.linalg.norm(direction))

    def least(self, scores: LatticeSum, cost: ExponentialMechanism | ReportNoisyMax, relation: Relation) -> int:
        scale = sensitivity_in(scores, Norm.RANGE, relation) / cost.epsilon
        if isinstance(cost, ExponentialMechanism):
            noise = self._generator.gumbel(0.0, scale, scores.values.shape)
        elif cost.noise == "exponential":
            noise = self._generator.exponential(scale, scores.values.shape)
        else:
            noise = self._generator.laplace(0.0, scale, scores.values.shape)
        return int(np.argmin(scores.to_float() - noise))

    def first_above(self, queries: LatticeSum, cost: AboveThreshold, relation: Relation) -> int | None:
        draw = self._generator.normal if cost.noise == "gaussian" else self._generator.laplace
        normalised = normalised_queries(queries, cost, relation) * 2.0**-cost.lattice_bits
        threshold = draw(0.0, cost.threshold_scale) if cost.threshold_scale else 0.0
        yes = normalised + draw(0.0, cost.query_scale, cost.max_queries)[: normalised.size] >= threshold
        return int(yes.argmax()) if yes.any() else None


def make_noise(mode: str, seed: int | None) -> LatticeNoise:
    """Return exact lattice noise, or floating-point noise for ``mode="float"``."""
    if isinstance(mode, str) and mode == "exact":
        return LatticeNoise(Randomness(seed))
    if isinstance(mode, str) and mode == "float":
        return FloatNoise(seed)
    raise InvalidParameter(f"unknown noise {mode!r}: choose 'exact' or 'float'")
