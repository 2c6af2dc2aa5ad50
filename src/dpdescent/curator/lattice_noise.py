"""Mechanisms: an exact sum goes in with the cost that was paid for it, a private answer comes out.

Each method takes the `Cost` that the ledger has accepted, reads the sensitivity from the sum itself, and draws
the noise that the two imply. There is no third place where a scale could be written down wrongly.

`LatticeNoise` adds integers to integers: every random decision is exact and the noise leaves no floating-point
fingerprint.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting import (
    SMALLEST_LAPLACE_LATTICE,
    AboveThreshold,
    Cost,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    NormLaplace,
    ReportNoisyMax,
    Threshold,
    ThresholdedGaussian,
)
from ..arrays import Floats, Integers
from ..errors import InvalidParameter, ScaleOutOfRange
from ..exact import LatticeSum
from ..noise import (
    MAXIMUM_SCALE,
    MINIMUM_NORM_LAPLACE_SCALE,
    NORM_LAPLACE_SLACK,
    Bits,
    Randomness,
    discrete_gaussian,
    discrete_laplace,
    ladder,
    laplace_scale,
    lattice_scale,
    norm_laplace,
    select,
)
from ..relations import Norm, Relation, Sensitivity

_ROOM = 1 + 2.0**-40  # more than the mechanisms' own rounding
_NORMS: dict[type[Cost], Norm] = {
    Gaussian: Norm.L2,
    ThresholdedGaussian: Norm.L2,
    NormLaplace: Norm.L2,
    Laplace: Norm.L1,
    ExponentialMechanism: Norm.RANGE,
    ReportNoisyMax: Norm.RANGE,
    AboveThreshold: Norm.MAX,
}

# A run asks for the same few again and again.
_lattice_scale, _laplace_scale = (lru_cache(maxsize=1024)(scale) for scale in (lattice_scale, laplace_scale))


def require_drawable(cost: Cost, unit: float, sensitivity: Sensitivity, relation: Relation, size: int = 1) -> None:
    """Raise now what a mechanism would raise when its noise is drawn, after the charge.

    The sensitivity must be measured in the norm of the mechanism, and the noise must fit the lattice of the sum.
    ``size`` is the number of values, on which the range of norm-Laplace noise depends.
    """
    norm, change = _NORMS.get(type(cost)), sensitivity.under(relation) * _ROOM
    if norm is None:
        raise InvalidParameter(f"no mechanism releases a sum for a {cost.kind!r} cost")
    if sensitivity.norm is not norm:
        raise InvalidParameter(
            f"a {cost.kind!r} mechanism needs a sensitivity in the {norm} norm, got one in {sensitivity.norm}"
        )
    if isinstance(cost, Gaussian | ThresholdedGaussian):
        _lattice_scale(change * cost.noise_multiplier, unit)
    elif isinstance(cost, NormLaplace):
        radius = sensitivity.under(relation)
        if not MINIMUM_NORM_LAPLACE_SCALE <= radius / cost.epsilon / unit <= MAXIMUM_SCALE / 2:
            raise ScaleOutOfRange("norm-Laplace noise does not fit the lattice: use another unit or epsilon")
        if size > 1:
            ladder(size, _norm_laplace_scale(radius, cost, unit))  # kept, and used when it is drawn
    elif isinstance(cost, ReportNoisyMax):
        _laplace_scale(change / cost.epsilon, unit)
    elif isinstance(cost, Laplace):
        _charged_laplace_scale(sensitivity.under(relation), cost, unit)


class LatticeNoise:
    """Exact noise on the lattice of a sum, given what was paid for it and the relation.

    Parameters
    ----------
    randomness : Randomness
        Where the bits come from; each release of each mechanism has a stream of its own. Batches, permutations and
        drawn points get theirs from here, too.
    """

    def __init__(self, randomness: Randomness | None = None) -> None:
        self.randomness = randomness or Randomness()
        self._releases: Counter[str] = Counter()

    @property
    def description(self) -> str:
        """Where the bits come from, for the privacy statement."""
        return self.randomness.description

    @property
    def arithmetic(self) -> str:
        """How sums and noise are computed, for the privacy statement."""
        return "exact: sums over rows and the noise on them are whole numbers on a lattice"

    def _bits(self, mechanism: str) -> Bits:
        release = self._releases[mechanism]
        self._releases[mechanism] += 1
        return self.randomness.stream(mechanism, release)

    def release(self, total: LatticeSum, cost: Cost, relation: Relation, *, symmetric: bool = False) -> Any:
        """Return what the mechanism that was paid for makes of a sum."""
        if isinstance(cost, Gaussian):
            return (self.gaussian_symmetric if symmetric else self.gaussian)(total, cost, relation)
        if isinstance(cost, NormLaplace):
            return self.norm_laplace(total, cost, relation)
        if isinstance(cost, Laplace):
            return self.laplace(total, cost, relation)
        if isinstance(cost, ExponentialMechanism | ReportNoisyMax):
            return self.least(total, cost, relation)
        if isinstance(cost, AboveThreshold):
            return self.first_above(total, cost, relation)
        raise InvalidParameter(f"no mechanism releases a sum for a {cost.kind!r} cost")

    def gaussian(self, total: LatticeSum, cost: Gaussian, relation: Relation) -> Floats:
        """Return the sum plus Gaussian noise on every coordinate."""
        scale = _lattice_scale(deviation_of(total, cost, relation), total.unit)
        noise = discrete_gaussian(self._bits("gaussian"), scale, total.values.size)
        return _add_noise(total, noise)

    def published(
        self, total: LatticeSum, cost: ThresholdedGaussian, relation: Relation, threshold: Threshold
    ) -> tuple[NDArray[np.intp], Floats]:
        """Return which counts are at the threshold or above it with their noise, and these noisy counts.

        Noise is drawn for every count, so that what is drawn for one does not depend on another.
        """
        scale = _lattice_scale(deviation_of(total, cost.gaussian, relation), total.unit)
        noisy = total.values + discrete_gaussian(self._bits("thresholded-gaussian"), scale, total.values.size)
        found = np.flatnonzero(noisy >= threshold.on_lattice(scale, total.unit, cost.failure))
        return found, noisy[found].astype(np.float64) * total.unit

    def gaussian_symmetric(self, total: LatticeSum, cost: Gaussian, relation: Relation) -> Floats:
        """Return a symmetric matrix sum plus symmetric Gaussian noise, from its upper triangle alone.

        The noise has variance sigma^2 on the diagonal and sigma^2/2 off it: isotropic on symmetric matrices
        with the Frobenius norm, in which the sensitivity is measured, because an off-diagonal entry counts twice.
        """
        rows, columns = upper_triangle(total)
        sigma = deviation_of(total, cost, relation)
        off_diagonal = rows != columns
        noise = np.empty(rows.size, np.int64)
        bits = self._bits("gaussian-symmetric")
        for group, spread in ((~off_diagonal, sigma), (off_diagonal, sigma / math.sqrt(2) * (1 + 2.0**-50))):
            noise[group] = discrete_gaussian(bits, lattice_scale(spread, total.unit), int(group.sum()))
        released = np.empty(total.values.shape)
        released[rows, columns] = _add_noise(total, noise, total.values[rows, columns])
        released[columns, rows] = released[rows, columns]
        return released

    def laplace(self, total: LatticeSum, cost: Laplace, relation: Relation) -> Floats:
        """Return the sum plus Laplace noise on every coordinate, for an L1 sensitivity."""
        lattice = _charged_laplace_scale(sensitivity_in(total, Norm.L1, relation), cost, total.unit)
        return _add_noise(total, discrete_laplace(self._bits("laplace"), lattice, total.values.size))

    def norm_laplace(self, point: LatticeSum, cost: NormLaplace, relation: Relation) -> Floats:
        """Return the point plus a vector with density proportional to exp(-|z|_2/b), for an L2 sensitivity."""
        scale = _norm_laplace_scale(sensitivity_in(point, Norm.L2, relation), cost, point.unit)
        return _add_noise(point, norm_laplace(self._bits("norm-laplace"), scale, point.values.size))

    def least(self, scores: LatticeSum, cost: ExponentialMechanism | ReportNoisyMax, relation: Relation) -> int:
        """Return the index of a score that is probably among the least."""
        return int(least_scores(self._bits(cost.kind), scores, cost, relation, runs=1)[0])

    def first_above(self, queries: LatticeSum, cost: AboveThreshold, relation: Relation) -> int | None:
        """Return the index of the first query that is probably not negative, or None.

        The sensitivity is that of each query by itself (`Norm.MAX`), by which they are divided.
        """
        bits = self._bits("above-threshold")
        first = first_above_threshold(bits, normalised_queries(queries, cost, relation), cost, runs=1)[0]
        return None if first < 0 else int(first)


def least_scores(
    bits: Bits, scores: LatticeSum, cost: ExponentialMechanism | ReportNoisyMax, relation: Relation, runs: int
) -> Integers:
    """Choose ``runs`` times, independently, the index of a score that is probably among the least."""
    spread = Fraction(sensitivity_in(scores, Norm.RANGE, relation)) / Fraction(scores.unit)
    if isinstance(cost, ExponentialMechanism):
        return select(bits, scores.values, Fraction(cost.epsilon) / spread, runs)
    scale = laplace_scale(float(spread) / cost.epsilon * (1 + 2.0**-50), 1.0)
    draw = _one_sided if cost.noise == "exponential" else discrete_laplace
    noise = draw(bits, scale, runs * scores.values.size).reshape(runs, -1)
    inside = np.clip(scores.values.reshape(-1), -(2**61), 2**61)  # int64 holds the difference, and none is widened
    least: Integers = np.argmin(inside - noise, axis=1).astype(np.int64)
    return least


def first_above_threshold(bits: Bits, normalised: Integers, cost: AboveThreshold, runs: int) -> Integers:
    """Run the search ``runs`` times on queries in units of 2^-b sensitivities; -1 stands for none.

    All noises are drawn whether they are needed or not, so that the work does not tell where the search stopped.
    """
    unit = 2.0**-cost.lattice_bits

    def draw(scale: float, size: int) -> Integers:
        if cost.noise == "gaussian":
            return discrete_gaussian(bits, _lattice_scale(scale, unit), size)
        return discrete_laplace(bits, _laplace_scale(scale, unit), size)

    queries = draw(cost.query_scale, runs * cost.max_queries).reshape(runs, -1)[:, : normalised.size] + normalised
    yes = queries >= draw(cost.threshold_scale, runs)[:, None] if cost.threshold_scale > 0 else queries >= 0
    if not normalised.size:
        return np.full(runs, -1, np.int64)
    return np.where(yes.any(axis=1), yes.argmax(axis=1), -1).astype(np.int64)


def normalised_queries(queries: LatticeSum, cost: AboveThreshold, relation: Relation) -> Integers:
    """Return floor(2^b q/Delta) for every query, an integer with a sensitivity of exactly 2^b.

    If a - b <= 2^b then floor(a) <= floor(b + 2^b) = floor(b) + 2^b, so rounding down costs nothing.
    """
    values: list[int] = queries.values.tolist()
    if queries.values.ndim != 1 or len(values) > cost.max_queries:
        raise InvalidParameter(f"queries {queries.values.shape} for a search that was charged for {cost.max_queries}")
    above, below = sensitivity_in(queries, Norm.MAX, relation).as_integer_ratio()
    units, of = queries.unit.as_integer_ratio()
    times, over = units * below << cost.lattice_bits, of * above
    return np.array([max(-(2**61), min(2**61, value * times // over)) for value in values], np.int64)


def _one_sided(bits: Bits, scale: int, size: int) -> Integers:
    """Return geometric noise, P(k) proportional to exp(-k/scale): two-sided noise, given that it is not negative."""
    kept = np.empty(0, np.int64)
    while kept.size < size:
        drawn = discrete_laplace(bits, scale, 2 * size + 16)
        kept = np.concatenate([kept, drawn[drawn >= 0]])
    return kept[:size]


def sensitivity_in(total: LatticeSum, norm: Norm, relation: Relation) -> float:
    """Return the sensitivity under ``relation``, checking that it is measured in the right norm."""
    measured = total.sensitivity.norm
    scalar = total.values.size == 1 and {measured, norm} <= {Norm.L1, Norm.L2, Norm.MAX}
    if measured is not norm and not scalar:
        raise InvalidParameter(
            f"this mechanism needs a sensitivity in the {norm} norm, the sum has one in {measured}"
        )
    return total.sensitivity.under(relation)


def _charged_laplace_scale(change: float, cost: Laplace, unit: float) -> int:
    """Return the scale of Laplace noise in steps of the lattice, of which its cost needs a number."""
    lattice = _laplace_scale(_quotient_up(change, cost.epsilon), unit)
    if lattice < SMALLEST_LAPLACE_LATTICE:
        raise ScaleOutOfRange(
            f"Laplace noise on a lattice of step {unit:g} is coarser than it is charged for: sum on a finer grid, "
            "or ask for a smaller epsilon"
        )
    return lattice


def _norm_laplace_scale(radius: float, cost: NormLaplace, unit: float) -> int:
    return math.ceil(NORM_LAPLACE_SLACK * _quotient_up(radius, cost.epsilon) / unit)


def _quotient_up(numerator: float, denominator: float) -> float:
    return numerator / denominator * (1 + 2.0**-50)


def deviation_of(total: LatticeSum, cost: Gaussian, relation: Relation) -> float:
    """Return the standard deviation of Gaussian noise on a sum, rounded up."""
    return cost.noise_multiplier * sensitivity_in(total, Norm.L2, relation) * (1 + 2.0**-50)


def _add_noise(total: LatticeSum, noise: Integers, values: Integers | None = None) -> Floats:
    """Return unit * (S + Z), added in the ring of 64-bit integers, where wrapping is post-processing of S + Z.

    S is the sum, or those of its ``values`` that are released.
    """
    exact = total.values if values is None else values
    noisy = exact.reshape(-1).view(np.uint64) + noise.reshape(-1).view(np.uint64)
    return noisy.view(np.int64).astype(np.float64).reshape(exact.shape) * total.unit


def upper_triangle(total: LatticeSum) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the entries of a symmetric matrix that are released; the others are their mirror image."""
    shape = total.values.shape
    if len(shape) != 2 or shape[0] != shape[1]:
        raise InvalidParameter(f"a symmetric release needs a square matrix, got the shape {shape}")
    return np.triu_indices(shape[0])
