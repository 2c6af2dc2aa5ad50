r"""What the noise of gradients does to a weighted average of the iterates of a descent.

Near an optimum, and along one coordinate, noise moves an iterate by

.. math:: e_t = (1 - a_t) e_{t-1} + b_t \xi_t,

where a is the share of an error that a step removes, b the noise of the step, and xi are independent standard
normals. The average is :math:`\sum_t c_t e_t / \sum_t c_t`. The variances of e and of the sum, and their covariance,
follow from those of the step before, so that no history is kept.

All of it is computed from released and public quantities. It leaves out how noise in the coordinates themselves
changes a descent.

References
----------
James, W. & Stein, C. (1961). Estimation with quadratic loss. Fourth Berkeley Symposium 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..exact import one_library_thread
from ..problems import Frame, Whitening

__all__ = ["AverageNoise"]

Floats = NDArray[np.float64]

_LARGEST = 2**22  # entries of F, 32 MB: about 2,000 columns


@dataclass
class AverageNoise:
    """The noise of an average of iterates, coordinate by coordinate, step by step.

    Parameters
    ----------
    squares : ndarray
        Mean squares of the first coordinates; those of the others, an intercept's, are 1.
    divisors, stiffness : ndarray of shape (m,)
        What a step divides every coordinate by, and the curvature of the penalty along it.
    axes : ndarray of shape (m, m), optional
        Directions along which the penalty's curvatures are given instead, one per column.
    """

    squares: Floats
    divisors: Floats
    stiffness: Floats
    axes: Floats | None = None

    def __post_init__(self) -> None:
        self.squares = np.append(self.squares, np.ones(self.divisors.size - self.squares.size))
        if self.axes is not None:
            self.squares = (self.axes**2).T @ self.squares
        self._iterate, self._covariance, self._sum = (np.zeros(self.squares.size) for _ in range(3))
        self._weight = 0.0

    def step(self, rate: float, noise: float, curvature: float, mean_curvature: float, weight: float) -> None:
        """Take a step of size ``rate`` over ``curvature``, whose end enters the average with ``weight``.

        ``noise`` is the deviation of each coordinate of the gradient, ``mean_curvature`` the curvature of the loss.
        """
        scale = rate / (curvature * self.divisors + self.stiffness)
        kept = 1 - scale * (mean_curvature * self.squares + self.stiffness)
        self._iterate = kept**2 * self._iterate + (scale * noise) ** 2
        self._covariance = kept * self._covariance
        self._sum = self._sum + 2 * weight * self._covariance + weight**2 * self._iterate
        self._covariance = self._covariance + weight * self._iterate
        self._weight += weight

    def signal(self, average: Floats, features: int) -> float:
        """Return the share of the features' mean squared scores that noise does not explain (James & Stein 1961)."""
        own = np.concatenate([average[:features], np.zeros_like(average[features:])])
        along = own if self.axes is None else np.einsum("jk,j...->k...", self.axes, own)
        seen = float(np.sum(along.reshape(self.squares.size, -1) ** 2 * self.squares[:, None]))
        variances = self._sum[:features] if self.axes is None else self._sum
        noise = float(np.sum(variances * self.squares[: variances.size])) / self._weight**2
        return max(0.0, 1 - along.size / self.squares.size * noise / max(seen, 1e-300))

    def factor(self, frame: Frame | Whitening | None, features: int, shrinkage: float) -> Floats | None:
        """Return F, where F times independent standard normals is the noise of the weights, if it is not too large.

        The average is divided by ``shrinkage`` in the first coordinates, those of the features, and mapped to weights
        by the frame.
        """
        if (self.divisors.size if frame is None else frame.grid.dimension) * self.divisors.size > _LARGEST:
            return None
        deviations = np.sqrt(self._sum) / self._weight
        factor: Floats = np.diag(deviations) if self.axes is None else self.axes * deviations
        factor[:features] /= shrinkage
        if isinstance(frame, Whitening):
            with one_library_thread():  # the same digits for any number of threads
                return frame.matrix @ factor
        return factor if frame is None else frame.weights(factor)
