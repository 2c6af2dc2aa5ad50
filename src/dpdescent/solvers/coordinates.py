r"""Coordinates in which descent is easy, from a few releases that are paid for, and what noise does in them.

Adaptive solvers start with them; others measure the typical length of a row alone.

**The noise of an average.** Near an optimum, and along one coordinate, noise moves an iterate of a descent by

.. math:: e_t = (1 - a_t) e_{t-1} + b_t \xi_t,

where a is the share of an error that a step removes, b the noise of the step, and xi are independent standard
normals. The average is :math:`\sum_t c_t e_t / \sum_t c_t`. The variances of e and of the sum, and their covariance,
follow from those of the step before, so that no history is kept (`AverageNoise`). All of it is computed from released
and public quantities. It leaves out how noise in the coordinates themselves changes a descent.

References
----------
Bun, J., Allez, R., Bouchaud, J.-P. & Potters, M. (2016). Rotational invariant estimator for general noisy matrices.
IEEE Transactions on Information Theory 62(12).
James, W. & Stein, C. (1961). Estimation with quadratic loss. Fourth Berkeley Symposium 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from ..accounting import Laplace
from ..arrays import Floats
from ..curator import Curator
from ..exact import one_library_thread
from ..problems import Frame, LinearProblem, Whitening
from ..queries import ColumnMoments, MeanRowNorm, SecondMoments
from ..relations import Sensitivity
from .rules import effective_rows

ROW_NORM_SHARE = 0.01  # of the budget, for the mean row norm alone
FRAME_SHARES = 0.01, 0.05  # of the budget, for the mean row norm and for the moments of the columns
_LEAST_SHARE = 0.05  # the mean norm counts as at least this share of its bound
_LEAST_SCALE = 0.15  # no column is stretched beyond a seventh of its range
ROWS_PER_DIRECTION = 45  # effective rows, n mu, that a direction needs
SOME_ROWS = 200  # with fewer effective rows, directions are damped less and there are fewer steps
_ROWS_UNSEEN = 60  # the same for directions that are hidden by noise
_UNSEEN = 3.0  # a hidden direction may be several times as long as the mean one
_LEAST_DAMPING = 0.001
_LARGEST_FACTOR = 2**22  # entries of F, 32 MB: about 2,000 columns
_FAR = 5.0  # standard deviations that noise does not move a number in practice


@dataclass(frozen=True)
class Columns:
    """Released moments of the columns."""

    norm: float  # mean norm of the rows
    #: Columns centred and of comparable scale; None for a problem without intercept, which nothing can centre.
    frame: Frame | None
    #: Second moments of the coordinates (in the frame, if there is one), the constant left out.
    variances: Floats
    energy: float  # their sum, where none counts for less than its noise
    #: By how many standard deviations of noise the moments of a column exceed those of one that never varies; None
    #: where no moments were measured.
    evidence: Floats | None = None
    #: How far from the centre of the frame, in its coordinates, a column that never varies can be.
    offsets: Floats | None = None


def measure_columns(
    curator: Curator, norm_amount: float, moments_amount: float, longest_entry: float = math.inf
) -> Columns:
    """Pay for and measure the mean row norm and two moments of every column.

    The centre is the mean, unless noise explains most of its distance from the middle of the public ranges (0 for
    those that contain 0): then it moves there, in the manner of James and Stein (1961), since rows that are centred
    at noise get long. A scale is the standard deviation, but at least 0.15
    and at least what the noise of a variance can show. Nor is a column of zeros and ones stretched until they are
    longer than ``longest_entry``. Where the problem does not say which columns are such, their moments do
    (`_typical_entries`).
    """
    grid = curator.problem.grid
    norm = min(
        max(curator.answer(MeanRowNorm(curator.gaussian(norm_amount))), _LEAST_SHARE * grid.row_bound), grid.row_bound
    )
    if not curator.problem.intercept:
        return Columns(norm, None, np.full(grid.dimension, norm**2 / grid.dimension), norm**2)
    means, squares = curator.answer(ColumnMoments(norm, curator.gaussian(moments_amount)))
    noise = curator.deviation(math.sqrt(2) * norm, moments_amount)
    variances = np.maximum(squares - means**2, 0.0)[:-1]
    scales = np.sqrt(np.maximum(variances, max(noise, _LEAST_SCALE**2)))
    middles = np.array((*(curator.problem.middles or (0.0,) * variances.size), 0.0))
    away = means - middles
    seen = float(away[:-1] @ away[:-1]) / (max(variances.size, 1) * noise**2)
    kept = min(max(seen - 1, 0.0), 1.0)
    centre = kept * means + (1 - kept) * middles
    binary = curator.problem.binary or (None,) * variances.size
    typical = _typical_entries(np.abs(means[:-1]), squares[:-1], noise).tolist()
    entries = [size if kind is None else float(kind) for kind, size in zip(binary, typical, strict=True)]
    scales = np.maximum(scales, np.array(entries) / longest_entry)
    frame = Frame.place(grid, centre, np.append(scales, 1.0))
    stretched = 4.0 ** frame.doublings[:-1]
    energy = float(np.sum(np.maximum(variances, noise) * stretched))
    evidence, constants, errors = _variation(means, squares, noise)
    offsets = (np.abs(constants - frame.centre[:-1]) + _FAR * errors) * 2.0 ** frame.doublings[:-1]
    return Columns(norm, frame, variances * stretched, energy, evidence, offsets)


def _variation(means: Floats, squares: Floats, noise: float) -> tuple[Floats, Floats, Floats]:
    """Return evidence that columns vary, where each is if it does not, and the error of that.

    Clipping shortens rows, the constant 1 with them: both of its moments are the mean factor A. A column that is
    always c has the moments cA and c^2 A, so that c is m/A, and s - m^2/A is noise alone. Errors are of first order.
    """
    factor = max(float(means[-1] + squares[-1]) / 2, noise)
    constants = means[:-1] / factor
    evidence = (squares[:-1] - factor * constants**2) / (noise * np.sqrt(1 + 4 * constants**2 + constants**4 / 2))
    return evidence, constants, noise / factor * np.sqrt(1 + constants**2 / 2)


def public_frame(problem: LinearProblem) -> Frame | None:
    """Return the frame in which ranges that lie on one side of 0 go from -1 to 1; None if there are none."""
    if not any(problem.middles):
        return None
    middles = np.array((*problem.middles, 0.0))
    return Frame.place(problem.grid, middles, 1 - np.abs(middles))


def _typical_entries(means: Floats, squares: Floats, noise: float) -> Floats:
    """Return how long the entries of each column are where they are not 0, or not 1, whichever is less.

    E x^2/E x is 1 for zeros and ones, however rare the ones are, and small for small numbers. Both means count for no
    less than their noise, so a column that is never seen passes for a rare one.
    """

    def ratio(square: Floats, mean: Floats) -> Floats:
        return (np.maximum(square, 0.0) + noise) / (np.maximum(mean, 0.0) + noise)

    either = np.minimum(ratio(squares, means), ratio(1 - 2 * means + squares, 1 - means))
    return np.minimum(either, 1.0)


def measure_whitening(
    curator: Curator,
    columns: Columns,
    norm_amount: float,
    amount: float,
    clip: float,
    projection: Floats | None = None,
) -> tuple[Whitening, Floats, Floats | None]:
    """Pay for and measure second moments; return directions of comparable length, and their mean squares.

    The third result is the evidence that columns vary, as in `Columns`, from all moments; None if nothing centred
    them.

    Rows are clipped to ``clip`` times their mean norm L, which is measured first. Small clip norms weigh rows
    equally: the trace of the sum then comes closest to its sensitivity, so the noise is least beside it, and rows
    that are long because of one unusual entry do not dominate the matrix. The matrix is scaled to the trace L^2,
    which makes up for the clipping.

    The noise of the released matrix has a known law, a semicircle of radius 2 r with r = sqrt(d/2) sigma, so its
    eigenvalues are shrunk as that law asks (`shrink`). A direction with eigenvalue x is divided by sqrt(x + damping):
    directions that rise above the damping come to length 1, the others stay short, and what is short costs little
    clip norm and little noise. The damping is 2 r, where the noise ends; but where much is below that, not more than
    leaves the unseen directions one for 60 of the rows that are theirs by length, or three times the mean eigenvalue.

    With a public ``projection``, a matrix of d rows and fewer columns that keeps lengths on average, all of this
    happens to the projected rows.
    """
    frame: Frame | Whitening | None = columns.frame
    if projection is not None and columns.frame is not None:
        onto = columns.frame.weights(np.vstack([projection, np.zeros(projection.shape[1])]))
        frame = Whitening(curator.problem.grid, onto)
    length = columns.norm if columns.frame is None else measure_mean_length(curator, columns, norm_amount)
    cut = clip * length
    matrix = curator.answer(SecondMoments(cut, curator.gaussian(amount), frame))
    noise = curator.deviation(cut**2, amount, Sensitivity.of_positive_semidefinite_sum)
    dimension = matrix.shape[0]
    radius = noise * math.sqrt(dimension / 2)
    with one_library_thread():  # the same digits for any number of threads
        values, vectors = np.linalg.eigh(matrix)
    squares, directions = _scale_directions(values, vectors, radius, length, cut, effective_rows(curator))
    if columns.frame is None:
        return Whitening(curator.problem.grid, directions), squares, None
    if projection is not None:
        with one_library_thread():
            directions = projection @ directions
    extended = np.zeros((directions.shape[0] + 1, dimension + 1))
    extended[:-1, :-1], extended[-1, -1] = directions, 1.0
    evidence = columns.evidence
    if evidence is not None and columns.offsets is not None and projection is None:
        evidence = np.maximum(evidence, (np.diagonal(matrix) - columns.offsets**2) / noise)
    return Whitening(curator.problem.grid, columns.frame.weights(extended)), squares, evidence


def _scale_directions(
    values: Floats, vectors: Floats, radius: float, length: float, cut: float, rows_of_privacy: float
) -> tuple[Floats, Floats]:
    """Return mean squares and directions of comparable length, from a noisy matrix of rows cut to that norm."""
    dimension = values.size
    shrunk = shrink(values, radius)
    if not shrunk.any():  # noise hides the matrix, so no direction is known to be longer than another
        shrunk += cut**2 / dimension
    stretch = length**2 / min(max(float(shrunk.sum()), 0.1 * cut**2), cut**2)
    scarcity = min(1.0, rows_of_privacy / SOME_ROWS)  # where there are few rows, damping costs more than it saves
    lengths, edge = stretch * shrunk, stretch * 2 * math.sqrt(scarcity) * radius
    unseen = lengths[lengths < edge]
    theirs = rows_of_privacy * float(unseen.sum()) / max(float(lengths.sum()), 1e-300)
    enough = damping_to(theirs / _ROWS_UNSEEN, unseen, length**2 / dimension)
    damped = lengths + max(min(edge, enough), _LEAST_DAMPING)
    squares, directions = lengths / damped, vectors / np.sqrt(damped)
    # With fewer than 45 effective rows per direction, all directions are shortened.
    shortening = min(1.0, rows_of_privacy / (scarcity * ROWS_PER_DIRECTION) / max(float(squares.sum()), 1e-300))
    return shortening * squares, math.sqrt(shortening) * directions


def measure_frame(curator: Curator) -> tuple[Frame | None, float]:
    """Pay for a frame and measure it; return it and the typical length of a row in it."""
    norm_share, moments_share = FRAME_SHARES
    columns = measure_columns(curator, norm_share * curator.budget, moments_share * curator.budget)
    if columns.frame is None:
        return None, columns.norm
    return columns.frame, math.sqrt(1 + float(np.sum(np.minimum(columns.variances, 1.0))))


def measure_row_norm(curator: Curator, share: float = ROW_NORM_SHARE) -> float:
    """Return the mean Euclidean norm of the rows, within [0.05, 1] of the public bound, for a share of the budget.

    Gaussian noise where the currency knows its price, Laplace noise where it counts pure epsilons.
    """
    amount, pure = share * curator.budget, curator.currency.name in ("pure", "approximate")
    mean = curator.answer(MeanRowNorm(Laplace(min(amount, 8.0)) if pure else curator.gaussian(amount)))
    bound = curator.problem.grid.row_bound
    return min(max(mean, _LEAST_SHARE * bound), bound)


def measure_mean_length(curator: Curator, columns: Columns, amount: float) -> float:
    """Measure the mean norm of rows in the frame, plus a standard deviation: steps should rather be too short."""
    assert columns.frame is not None
    ceiling = math.sqrt(columns.energy)
    noise = curator.deviation(ceiling, amount, Sensitivity.of_bounded_sum)
    mean = curator.answer(MeanRowNorm(curator.gaussian(amount), columns.frame, ceiling)) + noise
    return min(max(mean, _LEAST_SHARE * ceiling), ceiling)


def damping_to(directions: float, squares: Floats, mean: float) -> float:
    """Return the damping with which mean squares x count for so many ``directions``, the sum of x/(x + damping).

    It is at least 3 times the ``mean``, since directions that were not seen may be several times as long as that.
    """
    least = max(_UNSEEN * mean, _LEAST_DAMPING)
    if np.count_nonzero(squares) <= directions:
        return least

    def excess(logarithm: float) -> float:
        return float(np.sum(squares / (squares + math.exp(logarithm)))) - directions

    return max(least, math.exp(brentq(excess, -200.0, 200.0, xtol=1e-6)))


def shrink(values: Floats, radius: float) -> Floats:
    """Return eigenvalues with the noise of a symmetric Gaussian matrix taken out, at least 0.

    For a matrix whose eigenvectors carry no prior knowledge the best estimate is x - 2 r^2 Re G(x), G being the mean
    of 1/(x - values) smoothed over a width r/sqrt(d) (Bun, Allez, Bouchaud and Potters 2016).
    """
    gaps = values[:, None] - values[None, :]
    width = radius / math.sqrt(values.size)
    transform = np.mean(gaps / np.maximum(gaps**2 + width**2, 1e-300), axis=1)
    shrunk: Floats = np.maximum(values - 2 * radius**2 * transform, 0.0)
    return shrunk


@dataclass
class AverageNoise:
    """The noise of an average of iterates, coordinate by coordinate, step by step."""

    #: Mean squares of the first coordinates; those of the others, an intercept's, are 1.
    squares: Floats
    #: What a step divides every coordinate by, and the curvature of the penalty along it.
    divisors: Floats
    stiffness: Floats
    #: Directions along which the penalty's curvatures are given instead, one per column.
    axes: Floats | None = None

    def __post_init__(self) -> None:
        self.squares = np.append(self.squares, np.ones(self.divisors.size - self.squares.size))
        if self.axes is not None:
            self.squares = (self.axes**2).T @ self.squares
        self._iterate, self._covariance, self._sum, self._missing = (np.zeros(self.squares.size) for _ in range(4))
        self._left, self._weight, self._mean_curvature = np.ones(self.squares.size), 0.0, 1.0

    def step(self, rate: float, noise: float, curvature: float, mean_curvature: float, weight: float) -> None:
        """Take a step of size ``rate`` over ``curvature``, whose end enters the average with ``weight``.

        ``noise`` is the deviation of each coordinate of the gradient, ``mean_curvature`` the curvature of the loss.
        """
        self._mean_curvature = mean_curvature
        scale = rate / (curvature * self.divisors + self.stiffness)
        kept = 1 - scale * (mean_curvature * self.squares + self.stiffness)
        self._iterate = kept**2 * self._iterate + (scale * noise) ** 2
        self._covariance = kept * self._covariance
        self._sum = self._sum + 2 * weight * self._covariance + weight**2 * self._iterate
        self._covariance = self._covariance + weight * self._iterate
        self._left = np.maximum(kept, 0.0) * self._left
        self._missing = self._missing + weight * self._left
        self._weight += weight

    def kept(self, average: Floats, features: int, rows: float = math.inf) -> float:
        """Return what the features' part of an average is best multiplied by, at most 1.

        It is the share of their mean squared scores that noise does not explain (James & Stein 1961), over the share
        of the way to an optimum that an average without noise would have gone, from 0, where that signal is. Which
        ``rows`` were drawn is noise, too: an optimum has about the variance 1/(n h) in units of scores. It counts for
        at most what the noise of privacy does, so that nothing is shrunk where there is none of that.
        """
        squared = self._squared_scores(average, features).reshape(self.squares.size, -1)
        variances = self.squares * self._sum / self._weight**2
        gone = 1 - self._missing / self._weight
        variances = variances + np.minimum(variances, gone**2 / (rows * self._mean_curvature))
        if self.axes is None:
            variances[features:] = 0.0
        seen = float(np.sum(squared))
        signal = np.sum(squared, axis=1) - squared.shape[1] * variances
        share = max(0.0, float(np.sum(signal)) / max(seen, 1e-300))
        reached = 1 - float(signal @ self._missing) / self._weight / max(float(np.sum(signal)), 1e-300)
        return min(1.0, share / min(max(reached, share), 1.0)) if share else 0.0

    def variance_of_constant(self) -> float:
        """Return the variance of the last coordinate of the average."""
        own = self._sum if self.axes is None else self.axes**2 @ self._sum
        return float(own[-1]) / self._weight**2

    def squared_scores(self, average: Floats, features: int) -> Floats:
        """Return the mean square of what the features add to the score, or to that of each class."""
        total: Floats = np.sum(self._squared_scores(average, features), axis=0)
        return total

    def _squared_scores(self, average: Floats, features: int) -> Floats:
        own = np.concatenate([average[:features], np.zeros_like(average[features:])])
        along = own if self.axes is None else np.einsum("jk,j...->k...", self.axes, own)
        squared: Floats = along**2 * self.squares.reshape(-1, *[1] * (along.ndim - 1))
        return squared

    def factor(self, frame: Frame | Whitening | None, features: int, shrinkage: float) -> Floats | None:
        """Return F, where F times independent standard normals is the noise of the weights, if it is not too large.

        The average is divided by ``shrinkage`` in the first coordinates, those of the features, and mapped to weights
        by the frame.
        """
        if (self.divisors.size if frame is None else frame.grid.dimension) * self.divisors.size > _LARGEST_FACTOR:
            return None
        deviations = np.sqrt(self._sum) / self._weight
        factor: Floats = np.diag(deviations) if self.axes is None else self.axes * deviations
        factor[:features] /= shrinkage
        if isinstance(frame, Whitening):
            with one_library_thread():  # the same digits for any number of threads
                return frame.matrix @ factor
        return factor if frame is None else frame.weights(factor)
