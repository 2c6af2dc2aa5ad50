r"""Measures of a model that predicts numbers, from noisy sums of clipped errors.

The ladders say where errors and targets lie, to a power of two: c is the end of the rung below which 99% of the
errors lie, and targets are clipped to ends of rungs, between which 98% of them lie. With u, v and d as in
`dpdescent.evaluation.row_sums`, means of u, |u|, u^2 and d over the public number n of rows are

    bias = c mean(u),  mean absolute error = c mean|u|,  mean squared error = c^2 mean(u^2),
    R^2 = 1 - c^2 mean(u^2)/(half^2 (mean(v^2) - mean(v)^2)),

each a measure *clipped* at the printed c. Intervals hold for the clipped measure. The variance of u^2 by sampling is
bounded by the ladder: the fourth moment is at most sum_j p_j min(e_j/c, 1)^4 over the upper ends e_j of rungs, and at
most that of u^2. Errors of the two parts of R^2 are added as if they were one, which is never too little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..arrays import Floats
from .measures import Measure
from .row_sums import ladder_ends

_KEPT = 0.99  # of errors, that are not clipped
_CUT = 0.01  # of targets, at either side


def _shares(counts: Floats, deviation: float) -> Floats:
    """Return shares of rungs; those whose counts are within four deviations of 0 are nothing but noise."""
    seen = np.where(counts > 4 * deviation, counts, 0.0)
    return seen / seen.sum() if seen.sum() > 0 else np.full(counts.size, 1 / counts.size)


def choose_clip(counts: Floats, deviation: float) -> float:
    """Return the end of the rung below which nearly all errors lie."""
    shares = np.cumsum(_shares(counts, deviation))
    return float(ladder_ends()[min(int(np.searchsorted(shares, _KEPT)), counts.size - 1)])


def choose_range(counts: Floats, deviation: float) -> tuple[float, float]:
    """Return ends of rungs between which nearly all targets lie."""
    ends = ladder_ends()
    lower = np.concatenate([-ends[::-1], [0.0], ends[:-1]])
    upper = np.concatenate([-ends[:-1][::-1], [0.0], ends])
    shares = np.cumsum(_shares(counts, deviation))
    first, last = np.searchsorted(shares, [_CUT, 1 - _CUT])
    return float(lower[first]), float(upper[min(int(last), upper.size - 1)])


@dataclass(frozen=True)
class NumberSums:
    """Noisy sums of clipped errors, as they were released, and the public numbers that belong to them."""

    sums: tuple[float, ...]  # of u, u^2, |u|, v, v^2, and for counts of d
    deviation: float  # of the noise in a sum
    #: As in `ErrorSums`.
    clip: float
    middle: float
    half: float
    deviance: float | None  # the clip of deviances
    rows: float  # the number of rows by which sums are divided: public, or the last of the sums
    counted: bool  # whether it was counted with noise, as for units of several rows
    ladder: tuple[float, ...]  # the released ladder of errors
    ladder_deviation: float
    clusters: int = 1  # rows of one unit at most

    @property
    def _means(self) -> Floats:
        means = np.array(self.sums) / self.rows
        means[[1, 2]] = np.maximum(means[[1, 2]], 0.0)
        return means

    def _fourth(self) -> float:
        """Return a bound on the mean of u^4, from the ladder."""
        shares = _shares(np.array(self.ladder), self.ladder_deviation)
        found = float(shares @ np.minimum(ladder_ends() / self.clip, 1.0) ** 4)
        return min(found, float(self._means[1]))

    def measures(self, level: float) -> tuple[Measure, ...]:
        """Return all measures with intervals at a level."""
        u, square, size, v, v_square = self._means[:5]
        # A mean m of at most 1, divided by a noisy count, has 1 + m^2 times the variance of its sum.
        noise = (1 + self.counted) * (self.deviation / self.rows) ** 2
        clip, draws = self.clip, self.clusters / self.rows
        said = f"errors clipped at {clip:.6g}"
        of_square = draws * max(self._fourth() - square**2, 0.0)
        absolute = (clip**2 * noise, clip**2 * draws * max(square - size**2, 0.0))
        found = [
            Measure.of("mean absolute error", clip * size, absolute, level, (0.0, clip), said),
            self._root(square, noise, of_square, level, said),
            Measure.of(
                "bias",
                clip * u,
                (clip**2 * noise, clip**2 * draws * max(square - u**2, 0.0)),
                level,
                (-clip, clip),
                said,
            ),
            self._explained(square, noise, of_square, v, v_square, level, said),
        ]
        if self.deviance is not None:
            mean = float(self._means[5])
            spread = (self.deviance**2 * noise, self.deviance**2 * draws * max(mean * (1 - mean), 0.0))
            ends, clipped = (0.0, self.deviance), f"deviances clipped at {self.deviance:.6g}"
            found.append(Measure.of("mean deviance", self.deviance * mean, spread, level, ends, clipped))
        return tuple(found)

    def _root(self, square: float, noise: float, of_square: float, level: float, said: str) -> Measure:
        """Return the root of the mean square, whose interval is that of the square, rooted."""
        inner = Measure.of("", square, (noise, of_square), level)
        if square <= math.sqrt(noise):
            return Measure.refused("root mean squared error", "it is smaller than the noise: raise epsilon")
        slope = self.clip / (2 * math.sqrt(square))
        low, high = (self.clip * math.sqrt(each or 0.0) for each in (inner.low, inner.high))
        errors = slope * math.sqrt(noise), slope * math.sqrt(of_square)
        return Measure("root mean squared error", self.clip * math.sqrt(square), *errors, low, high, said)

    def _explained(
        self, square: float, noise: float, of_square: float, v: float, v_square: float, level: float, said: str
    ) -> Measure:
        spread = v_square - v**2
        of_spread = noise * (1 + 4 * v**2)
        if spread < 6 * math.sqrt(of_spread):
            return Measure.refused("r squared", "the variance of the targets is below six deviations of the noise")
        unexplained = (self.clip / self.half) ** 2 * square / spread
        scale = (self.clip / self.half) ** 2 / spread
        privacy = scale**2 * noise + (unexplained / spread) ** 2 * of_spread
        widest = (1 + abs(v)) ** 2 * spread - spread**2
        sampling = scale * math.sqrt(of_square) + unexplained / spread * math.sqrt(
            self.clusters / self.rows * max(widest, 0.0)
        )
        low, high = self.middle - self.half, self.middle + self.half
        text = f"{said}, targets to [{low:.6g}, {high:.6g}]"
        return Measure.of("r squared", 1 - unexplained, (privacy, sampling**2), level, (-math.inf, 1.0), text)
