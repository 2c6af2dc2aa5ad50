r"""Counts of scores by class, with what noise does to them, from which every measure of a classifier follows.

Released are noisy counts y of (class, bin), and noisy sums c of some of them: the confusion counts of two classes, or
the number of rows of one class among several. All noise is Gaussian and independent, of known deviation. Where the
number n of rows is public, all counts add up to it. The best linear unbiased estimate x of the counts, given all
that, is that of generalised least squares: with G the matrix of sums,

    P = I/s_y^2 + G'G/s_c^2,  z = P^-1 (y/s_y^2 + G'c/s_c^2),  x = z + P^-1 1 (n - 1'z)/(1'P^-1 1),

and its covariance is S = P^-1 - P^-1 11' P^-1/(1'P^-1 1). A measure f has the variance g'Sg by privacy, g being its
gradient, and that of a multinomial sample, sum_j x_j g_j^2 - (sum_j x_j g_j)^2/n, by sampling. Counts are not made
positive: that would bias sums of them.

**Bins** of equal shares come from a coarse histogram whose cumulative counts are made monotone. There are
B = 0.6 (n mu)^0.4 of them, between 4 and 64, and the threshold of decisions is one of their edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import expit

from ..arrays import Floats

_COARSE = 32
_FINE = 20  # points for each coarse bin


def coarse_edges(ends: tuple[float, float]) -> Floats:
    """Return the public edges of the coarse histogram: those between 32 equal bins, the outer ones open."""
    return np.linspace(*ends, _COARSE + 1)[1:-1]


def number_of_bins(effective_rows: float) -> int:
    """Return how many bins a histogram by class has, for n mu effective rows."""
    return int(np.clip(round(0.6 * effective_rows**0.4), 4, 64))


def _cumulated(coarse: Floats, total: float | None) -> Floats:
    """Return the cumulative shares at all ends of coarse bins, monotone, from 0 to 1."""
    counts = coarse if total is None else coarse + (total - coarse.sum()) / coarse.size
    whole = max(float(counts.sum()), 1.0)
    shares = np.clip(isotonic_regression(np.cumsum(counts) / whole).x, 0.0, 1.0)
    return np.concatenate([[0.0], shares[:-1], [1.0]])


def quantile_edges(
    coarse: Floats, ends: tuple[float, float], total: float | None, bins: int, threshold: float | None
) -> tuple[tuple[float, ...], int | None]:
    """Return edges between bins of about equal shares, and which of them is the threshold.

    Parameters
    ----------
    coarse : ndarray
        Released counts between `coarse_edges`.
    ends : (low, high)
        Of the range that these edges divide.
    total : float or None
        The public number of rows, if it is one.
    bins : int
    threshold : float or None
        An edge; the bins are divided among its two sides by their shares, at least one on either.
    """
    shares = _cumulated(coarse, total) + np.linspace(0, 1e-9, coarse.size + 1)
    places = np.linspace(*ends, coarse.size + 1)
    if threshold is None:
        wanted = np.arange(1, bins) / bins
        return tuple(np.unique(np.round(np.interp(wanted, shares, places), 6)).tolist()), None
    below = float(np.interp(threshold, places, shares))
    lower = int(np.clip(round(bins * below), 1, bins - 1))
    wanted = np.concatenate(
        [below * np.arange(1, lower) / lower, below + (1 - below) * np.arange(1, bins - lower) / (bins - lower)]
    )
    found = np.round(np.interp(wanted, shares, places), 6)
    merged = np.unique(np.append(found[np.abs(found - threshold) > 1e-6], threshold))
    return tuple(merged.tolist()), int(np.searchsorted(merged, threshold))


def score_above(coarse: Floats, ends: tuple[float, float], total: float | None, share: float) -> float:
    """Return the score above which about this share of the rows lies, by released coarse counts."""
    shares = _cumulated(coarse, total) + np.linspace(0, 1e-9, coarse.size + 1)
    return float(np.interp(1 - share, shares, np.linspace(*ends, coarse.size + 1)))


@dataclass(frozen=True)
class ScoreCounts:
    """Noisy counts of scores by class, as they were released, and the public numbers that belong to them."""

    edges: tuple[float, ...]  # between bins, in increasing order
    #: Noisy counts in the bins, of rows that are not of the class, and of those that are.
    counts: tuple[tuple[float, ...], tuple[float, ...]]
    deviation: float  # of the noise in a count
    #: Further noisy sums. With a ``split``: rows not of the class below and above the threshold, then rows of the
    #: class below and above it. Without: the number of rows of the class.
    sums: tuple[float, ...]
    sum_deviation: float  # of the noise in such a sum
    split: int | None  # which edge is the threshold
    total: int | None  # the public number of rows, where it is public
    coarse: tuple[float, ...]  # the coarse histogram, by which scores are spread within bins
    ends: tuple[float, float]  # of the range that it divides
    #: Rows of one unit at most, which may all be alike: by so much the variance of sampling is raised.
    clusters: int = 1

    @property
    def bins(self) -> int:
        """The number of bins."""
        return len(self.edges) + 1

    @cached_property
    def _groups(self) -> Floats:
        """Return which counts each of the further sums adds up, shape (sums, 2 bins)."""
        first = np.arange(self.bins) <= (-1 if self.split is None else self.split)
        none = np.zeros(self.bins)
        if self.split is None:
            return np.concatenate([none, np.ones(self.bins)])[None, :]
        halves = [first.astype(float), (~first).astype(float)]
        return np.array(
            [np.concatenate([each, none]) for each in halves] + [np.concatenate([none, each]) for each in halves]
        )

    @cached_property
    def _free(self) -> Floats:
        """The covariance of the estimates before they add up to a public total."""
        precision = np.eye(2 * self.bins) / self.deviation**2
        precision += self._groups.T @ self._groups / self.sum_deviation**2
        return np.asarray(np.linalg.inv(precision), dtype=np.float64)

    @cached_property
    def covariance(self) -> Floats:
        """The covariance of the estimates by privacy, shape (2 bins, 2 bins)."""
        free = self._free
        if self.total is None:
            return free
        moved = free.sum(axis=1)
        return np.asarray(free - np.outer(moved, moved) / moved.sum())

    @cached_property
    def estimates(self) -> Floats:
        """The estimated counts, first of rows that are not of the class; some may be negative."""
        free, sums = self._free, np.array(self.sums) / self.sum_deviation**2
        weighed = np.ravel(self.counts) / self.deviation**2 + self._groups.T @ sums
        found: Floats = free @ weighed
        if self.total is None:
            return found
        moved = free.sum(axis=1)
        return np.asarray(found + moved * (self.total - found.sum()) / moved.sum())

    @property
    def negatives(self) -> Floats:
        """Estimated counts of rows that are not of the class."""
        return self.estimates[: self.bins]

    @property
    def positives(self) -> Floats:
        """Estimated counts of rows of the class."""
        return self.estimates[self.bins :]

    @property
    def rows(self) -> float:
        """The number of rows: public, or estimated."""
        return max(float(self.estimates.sum()), 1.0)

    def variances(self, gradient: Floats) -> tuple[float, float]:
        """Return the variance by privacy, and by sampling, of a measure with this gradient in the counts."""
        privacy = float(gradient @ self.covariance @ gradient)
        counts = np.maximum(self.estimates, 0.0)
        mean = float(counts @ gradient) / max(float(counts.sum()), 1.0)
        sampling = float(counts @ (gradient - mean) ** 2) if self.total is not None else float(counts @ gradient**2)
        return max(privacy, 0.0), self.clusters * sampling

    @property
    def class_deviation(self) -> float:
        """The deviation, by privacy, of the number of rows of the class."""
        mask = np.repeat([0.0, 1.0], self.bins)
        return math.sqrt(float(mask @ self.covariance @ mask))

    @property
    def too_few(self) -> bool:
        """Whether the rows of one of the two classes are fewer than three deviations of noise."""
        mask = np.repeat([1.0, 0.0], self.bins)
        other = math.sqrt(float(mask @ self.covariance @ mask))
        return bool(self.positives.sum() < 3 * self.class_deviation or self.negatives.sum() < 3 * other)

    @cached_property
    def _spread(self) -> tuple[Floats, Floats, NDArray[np.intp]]:
        """Return probabilities on a fine grid, their shares by the coarse histogram, and the bin of each."""
        shares = _cumulated(np.array(self.coarse), self.total)
        fine = np.linspace(*self.ends, _FINE * len(self.coarse) + 1)
        middles = (fine[1:] + fine[:-1]) / 2
        weights = np.repeat(np.diff(shares), _FINE) + 1e-9
        return np.asarray(expit(middles)), weights, np.searchsorted(np.array(self.edges), middles, side="left")

    def mean_within(self, values: Floats, weights: Floats) -> Floats:
        """Return the mean in each bin of a function of the probability, on the fine grid, by further weights."""
        p, shares, bins = self._spread
        above = np.bincount(bins, shares * weights * values, minlength=self.bins)
        below = np.bincount(bins, shares * weights, minlength=self.bins)
        ends = np.searchsorted(p, expit(np.concatenate([[self.ends[0]], self.edges]))).clip(0, p.size - 1)
        return np.where(below > 0, above / np.where(below > 0, below, 1.0), values[ends])

    def costs(
        self, of_negative: Callable[[Floats], Floats], of_positive: Callable[[Floats], Floats]
    ) -> tuple[Floats, Floats]:
        """Return the mean cost of a row in each bin, of rows that are not of the class, then of those that are.

        Within a bin the rate is taken to be proportional to the predicted probability; or, second, to be the same.
        """
        p, _, _ = self._spread
        weights = ((1 - p, p), (np.ones_like(p),) * 2)
        proportional, same = (
            np.concatenate([self.mean_within(of_negative(p), first), self.mean_within(of_positive(p), second)])
            for first, second in weights
        )
        return proportional, same

    @property
    def probabilities(self) -> Floats:
        """The mean predicted probability in each bin, for scores that are logits, by the coarse histogram."""
        p, _, _ = self._spread
        return self.mean_within(p, np.ones_like(p))
