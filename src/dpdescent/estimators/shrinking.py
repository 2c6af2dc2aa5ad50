r"""Curves shrunk by their own evidence: what noise explains of their bends is taken back; and kept directions.

The noise of privacy in released weights w has a known covariance :math:`\Sigma = F F'`. A block b of m columns that a
curve adds (its position on a second scale, its size, or its hats) is taken to be normal with variance
:math:`\tau_b^2`. The released weights tell the ratio of this variance to that of the noise: r is the mean of
:math:`w_j^2 - \Sigma_{jj}`, weighted by :math:`\Sigma_{jj}^{-2}`, over the mean noise. Of a few columns that is
hardly known, and the positive part of an estimate that is nothing but noise would keep half of the curves of a table
without any. So r is first reduced by its own standard deviation, :math:`\sqrt{2/m}`, and then averaged with the mean
ratio of all curves of the model, which counts as much as 4 columns: where other curves bend, a curve may bend, too.
A single ratio counts for at most 3 in that mean, and the result is at least 0. Nothing is assumed of other columns.
The posterior mean is

.. math:: w - \Sigma_{\cdot B} (\Sigma_{BB} + T)^{-1} w_B,

with B all columns of curves and T the diagonal of their variances. A curve of nothing but noise is straightened, and
the straight line beneath it moves to where it would be without the curve; one with a clear bend stays. With the gain
:math:`G = \Sigma_{\cdot B} (\Sigma_{BB} + T)^{-1}`, what is left of the noise is :math:`(I - G S_B) F`, S_B selecting
these columns, and G itself times the curves is what was taken back and may have been there. Curves that could have
been there have the variances T', with r increased by its standard deviation instead of reduced, so that

.. math:: F' = [(I - G S_B) F, \; G \sqrt{T'}]

is the factor of the error that is told. Bands are those of F'.

**A direction.** A curve that must not fall, or not rise, is made of straight pieces between public points, so that
its direction is a linear condition on the weights for every piece. Of all weights whose curves keep their directions
those are taken that the law of the error makes most likely: :math:`w + F' z` with the shortest z. Other columns move
along.

**Privacy** Post-processing of released weights and of the law of their noise.

References
----------
Efron, B. & Morris, C. (1973). Stein's estimation rule and its competitors: an empirical Bayes approach. JASA 68.
Lawson, C. L. & Hanson, R. J. (1974). Solving least squares problems. Chapter 23: least distance programming.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from ..arrays import Floats
from ..exact import one_library_thread
from .curves import Curves

_MODEL = 4.0  # columns that the mean ratio of all curves counts as much as
_DOUBT = 1.0  # standard deviations by which the ratio of a block is reduced
_LARGEST_RATIO = 3.0  # of a block in that mean: a curve with a clear bend says little of others
_LEAST_REST = 1e-12
_LEAST_VARIANCE = 1e-12  # of a weight beside its noise: a block without evidence is straight


def shrink_curves(curves: Curves, weights: Floats, factor: Floats | None) -> tuple[Floats, Floats | None]:
    """Return weights of expanded rows after curves were shrunk, and the factor of their error.

    ``weights`` has shape (d,) or (d, K), ``factor``, F, shape (d, m). None leaves the weights as they are, and so
    does a factor without noise on the curves.
    """
    first = curves.scaling.columns
    if factor is None or curves.columns == first:
        return directed(curves, weights, factor), factor
    added = slice(first, curves.columns)
    with one_library_thread():  # the same digits for any number of threads
        own = factor[added] @ factor[added].T
        if not np.diagonal(own).any():  # no curve was measured, so that none has evidence
            return directed(curves, weights, factor), factor
        noise = np.maximum(np.diagonal(own), 1e-300)
        squares = np.mean(np.square(weights[added]).reshape(noise.size, -1), axis=1)
        outputs = weights[added].size // noise.size
        blocks = [slice(block.start - first, block.stop - first) for block in blocks_of(curves)]
        likely, possible = _variances(blocks, squares, noise, outputs)
        gain = np.linalg.solve(own + np.diag(np.maximum(likely, _LEAST_VARIANCE * noise)), factor[added] @ factor.T).T
        shrunk: Floats = weights - gain @ weights[added]
        left: Floats = np.hstack([factor - gain @ factor[added], gain * np.sqrt(possible)])
    return directed(curves, shrunk, left), left


def directed(curves: Curves, weights: Floats, factor: Floats | None) -> Floats:
    """Return the most likely weights, of one output, whose curves keep the directions that they have to keep."""
    columns = [column for column, direction in enumerate(curves.directions) if direction]
    if not columns:
        return weights
    found: Floats = weights.reshape(len(weights), -1)[:, 0].copy()
    with one_library_thread():
        rises = np.zeros((0, len(found)))
        for column in columns:
            own = curves.directions[column] * np.diff(curves.bends(column), axis=0)
            rises = np.vstack([rises, np.pad(own, ((0, 0), (0, len(found) - own.shape[1])))])
        if (rises @ found < 0).any():
            found = _nearest(rises, found, np.eye(len(found)) if factor is None else factor)
        for column in columns:  # what rounding has left
            direction, rows = curves.directions[column], curves.bends(column)
            steps = np.diff(rows[:, column])
            short = np.max(-direction * np.diff(rows, axis=0) @ found[: rows.shape[1]] / steps)
            found[column] += direction * max(short, 0.0)
    return found.reshape(weights.shape)


def _nearest(rises: Floats, weights: Floats, factor: Floats) -> Floats:
    """Return w + F z with the shortest z for which all ``rises`` are at least 0."""
    edges, missing = rises @ factor, -rises @ weights
    lengths = np.maximum(np.linalg.norm(edges, axis=1), 1e-300)
    edges, missing = edges / lengths[:, None], missing / lengths
    unit = float(np.abs(missing).max())
    target = np.append(np.zeros(edges.shape[1]), 1.0)
    together = np.vstack([edges.T, missing / unit])
    rest = together @ nnls(together, target)[0] - target
    if rest[-1] > -_LEAST_REST:  # the noise has no such direction
        return (
            weights
            if np.array_equal(factor, np.eye(len(weights)))
            else _nearest(rises, weights, np.eye(len(weights)))
        )
    moved: Floats = weights + factor @ (-unit * rest[:-1] / rest[-1])
    return moved


def _variances(blocks: list[slice], squares: Floats, noise: Floats, outputs: int) -> tuple[Floats, Floats]:
    """Return the prior variance of every column, and how large it may be at most by one standard deviation.

    ``squares`` are means over so many ``outputs``, and ``noise`` holds variances.
    """
    counts = np.array([block.stop - block.start for block in blocks])
    typical = np.array([noise[block].mean() for block in blocks])
    weights = np.maximum(noise / np.repeat(typical, counts), _LEAST_VARIANCE) ** -2
    excess = np.array([np.average(squares[block] - noise[block], weights=weights[block]) for block in blocks])
    ratios = excess / typical
    of_model = max(float(np.average(np.minimum(ratios, _LARGEST_RATIO), weights=counts)), 0.0)
    doubt = _DOUBT * np.sqrt(2 / (counts * outputs))
    likely = np.maximum((counts * (ratios - doubt) + _MODEL * of_model) / (counts + _MODEL), 0.0)
    possible = np.maximum(ratios + doubt, likely)
    return np.repeat(likely * typical, counts), np.repeat(possible * typical, counts)


def blocks_of(curves: Curves) -> list[slice]:
    """Return the columns of each block: positions and sizes by themselves, all hats of a curve together."""
    found = []
    for curve, place in zip(curves.curves, curves.places, strict=True):
        alone = curve.width - curve.knots.size
        found += [slice(column, column + 1) for column in range(place.start, place.start + alone)]
        if curve.knots.size:
            found.append(slice(place.start + alone, place.stop))
    return found
