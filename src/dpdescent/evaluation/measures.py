r"""Measures of a model from what was released: each with its error by privacy, by sampling, and an interval.

**Classifiers**, from estimated counts. With x1 and x0 the counts of rows of the class and of the others in bins of
increasing score, N1 and N0 their totals:

**AUC** A = sum_b (x1_b/N1) c_b, where c_b = (sum of x0 below b + x0_b/2)/N0. Pairs within a bin count half, which is
too little by sum_b (t_b/n)^2 r'_b/(12 p (1 - p)), with t = x0 + x1, p = N1/n, and r' the change, from bin to bin, of
the rates r = x1/t made monotone. A bin cannot lack more than r (1 - r)/2 in the place of r'/12, where its best rows
are all of the class; half of that is the most that is added. It may be nothing or twice as much: an error as well.

**Calibration error** sum_b |d_b|/n with d = (1 - p) x1 - p x0 and p the mean predicted probability of a bin. Noise
makes |d| larger, so that the variance of d by privacy is taken from its square first.

**Brier score and log-loss** spread the rows of a bin by the coarse histogram, with a rate that is proportional to
the predicted probability there. Logits beyond the range of that histogram count as its ends. A model that is not
calibrated has other rates within a bin: the difference to what follows from the same rate everywhere in a bin is an
error, and one of privacy, which makes bins wide.

An interval is the estimate plus and minus z sqrt(V_privacy + V_sampling), within the range of the measure.

**Models that predict numbers**, from noisy sums of clipped errors. The ladders say where errors and targets lie, to
a power of two: c is the end of the rung below which 99% of the errors lie, and targets are clipped to ends of
rungs, between which 98% of them lie. With u, v and d as in `dpdescent.evaluation.row_sums`, means of u, |u|, u^2
and d over the public number n of rows are

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
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from ..arrays import Floats
from .row_sums import ladder_ends
from .score_counts import ScoreCounts

_DRAWS = 200


@dataclass(frozen=True)
class Measure:
    """One number with its errors."""

    name: str
    value: float | None  # None where noise leaves nothing to say, and ``remark`` says why
    #: Standard deviations by the noise of privacy, and by which rows were drawn.
    privacy: float | None = None
    sampling: float | None = None
    #: The interval at the level of the evaluation.
    low: float | None = None
    high: float | None = None
    remark: str = ""  # such as the clip of a clipped mean

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.name}: not released, {self.remark}"
        return f"{self.name} {self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"

    @property
    def deviation(self) -> float | None:
        """Both errors together."""
        return None if self.privacy is None or self.sampling is None else math.hypot(self.privacy, self.sampling)

    @classmethod
    def of(
        cls,
        name: str,
        value: float,
        variances: tuple[float, float],
        level: float,
        ends: tuple[float, float] = (0.0, 1.0),
        remark: str = "",
    ) -> Measure:
        """Return a measure with its interval, which stays within the ends of what it can be."""
        privacy, sampling = (math.sqrt(max(each, 0.0)) for each in variances)
        reach = float(ndtri((1 + level) / 2)) * math.hypot(privacy, sampling)
        low, high = (min(max(value + sign * reach, ends[0]), ends[1]) for sign in (-1, 1))
        return cls(name, min(max(value, ends[0]), ends[1]), privacy, sampling, low, high, remark)

    @classmethod
    def refused(cls, name: str, why: str) -> Measure:
        """Return a measure of which nothing can be said."""
        return cls(name, None, remark=why)


def auc_of_counts(positives: Floats, negatives: Floats) -> tuple[float, Floats]:
    """Return the area under the curve of binned scores, and its gradient in the counts, negatives first."""
    ones, zeros = float(positives.sum()), float(negatives.sum())
    below = (np.cumsum(negatives) - negatives / 2) / zeros
    above = (np.cumsum(positives[::-1])[::-1] - positives / 2) / ones
    found = float(positives @ below) / ones
    return found, np.concatenate([(above - found) / zeros, (below - found) / ones])


def binning_correction(positives: Floats, negatives: Floats, deviation: float = 0.0) -> float:
    """Return by how much bins make the area under the curve too small.

    The rate of a bin whose rows are fewer than three deviations of the noise is nothing but noise: it is left out.
    """
    n, share = float((positives + negatives).sum()), float(positives.sum()) / float((positives + negatives).sum())
    seen = positives + negatives > 3 * math.sqrt(2) * deviation
    positives, totals = positives[seen], (positives + negatives)[seen]
    if not 0 < share < 1 or totals.size < 2:
        return 0.0
    rates = isotonic_regression(np.clip(positives / totals, 0.0, 1.0), weights=totals).x
    lacking = np.minimum(np.gradient(rates) / 12, rates * (1 - rates) / 4)
    return float(np.sum((totals / n) ** 2 * lacking) / (share * (1 - share)))


def area(counts: ScoreCounts, level: float) -> Measure:
    """Return the area under the ROC curve."""
    if counts.too_few:
        return Measure.refused("auc", "a class has fewer rows than three deviations of the noise")
    found, gradient = auc_of_counts(counts.positives, counts.negatives)
    added = binning_correction(counts.positives, counts.negatives, counts.deviation)
    privacy, sampling = counts.variances(gradient)
    return Measure.of("auc", found + added, (max(privacy, _simulated(counts)) + added**2 / 3, sampling), level)


def _simulated(counts: ScoreCounts) -> float:
    """Return the variance by privacy of the corrected area, which is no linear function of the counts.

    Noise as that of the counts is added to them once more, by a generator that is always the same.
    """
    draws = np.random.default_rng(0).normal(size=(_DRAWS, 2 * counts.bins))
    values, vectors = np.linalg.eigh(counts.covariance)
    moved = counts.estimates + draws @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    found = []
    for each in moved:
        negatives, positives = each[: counts.bins], each[counts.bins :]
        if min(negatives.sum(), positives.sum()) > 0:
            area = auc_of_counts(positives, negatives)[0]
            found.append(area + binning_correction(positives, negatives, counts.deviation))
    return float(np.var(found)) if found else 1.0


def ratio(name: str, counts: ScoreCounts, part: Floats, whole: Floats, level: float) -> Measure:
    """Return the measure of one sum of counts divided by another."""
    above, below = float(part @ counts.estimates), float(whole @ counts.estimates)
    if below < 3 * math.sqrt(max(float(whole @ counts.covariance @ whole), 1e-300)) or below <= 0:
        return Measure.refused(name, "there are fewer rows to divide by than three deviations of the noise")
    value = above / below
    return Measure.of(name, value, counts.variances((part - value * whole) / below), level)


def _masks(counts: ScoreCounts, edge: int) -> tuple[Floats, Floats, Floats]:
    """Return which counts are positives, which are above an edge, and all of them."""
    above = np.arange(counts.bins) > edge
    return (
        np.repeat([0.0, 1.0], counts.bins),
        np.concatenate([above, above]).astype(np.float64),
        np.ones(2 * counts.bins),
    )


def accuracy(counts: ScoreCounts, edge: int, level: float) -> Measure:
    """Return the share of rows that are decided rightly, with an edge for the threshold."""
    positive, above, every = _masks(counts, edge)
    right = np.where(positive == above, 1.0, 0.0)
    if counts.total is None:
        return ratio("accuracy", counts, right, every, level)
    value = float(right @ counts.estimates) / counts.total
    return Measure.of("accuracy", value, counts.variances(right / counts.total), level)


def precision(counts: ScoreCounts, edge: int, level: float) -> Measure:
    """Return the share of rows of the class among those above an edge."""
    positive, above, _ = _masks(counts, edge)
    return ratio("precision", counts, positive * above, above, level)


def recall(counts: ScoreCounts, edge: int, level: float) -> Measure:
    """Return the share of the rows of the class that are above an edge."""
    positive, above, _ = _masks(counts, edge)
    return ratio("recall", counts, positive * above, positive, level)


def false_alarms(counts: ScoreCounts, edge: int, level: float) -> Measure:
    """Return the share of the other rows that are above an edge."""
    positive, above, _ = _masks(counts, edge)
    return ratio("false positive rate", counts, (1 - positive) * above, 1 - positive, level)


def rate(counts: ScoreCounts, edge: int, level: float) -> Measure:
    """Return the share of all rows that are above an edge."""
    _, above, every = _masks(counts, edge)
    return ratio("rate", counts, above, every, level)


def prevalence(counts: ScoreCounts, level: float) -> Measure:
    """Return the share of rows of the class."""
    positive, _, every = _masks(counts, 0)
    return ratio("prevalence", counts, positive, every, level)


def _mean(name: str, counts: ScoreCounts, costs: tuple[Floats, Floats], level: float, ceiling: float) -> Measure:
    value, other = (float(each @ counts.estimates) / counts.rows for each in costs)
    gradient = (costs[0] - value) / counts.rows if counts.total is None else costs[0] / counts.rows
    privacy, sampling = counts.variances(gradient)
    remark = f"over {counts.bins} bins"
    return Measure.of(name, value, (privacy + (value - other) ** 2, sampling), level, (0.0, ceiling), remark)


def brier_score(counts: ScoreCounts, level: float) -> Measure:
    """Return the mean squared error of the binned probabilities."""
    costs = counts.costs(lambda p: p**2, lambda p: (1 - p) ** 2)
    return _mean("brier score", counts, costs, level, 1.0)


def log_loss(counts: ScoreCounts, level: float) -> Measure:
    """Return the mean log-loss of the binned probabilities."""
    costs = counts.costs(lambda p: -np.log1p(-p), lambda p: -np.log(p))
    return _mean("log loss", counts, costs, level, math.inf)


def calibration_error(counts: ScoreCounts, level: float) -> Measure:
    """Return the mean distance between predicted and true rates over bins, less what noise adds to it."""
    p, bins = counts.probabilities, counts.bins
    apart = np.hstack([-np.diag(p), np.diag(1 - p)])
    gaps = apart @ counts.estimates
    noise = np.einsum("ij,jk,ik->i", apart, counts.covariance, apart)
    sizes = np.sqrt(np.maximum(gaps**2 - noise, 0.0))
    value = float(sizes.sum()) / counts.rows
    gradient = np.sign(gaps) @ apart / counts.rows
    return Measure.of(
        "calibration error",
        value,
        counts.variances(gradient),
        level,
        remark=f"over {bins} bins, less what noise adds",
    )


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
