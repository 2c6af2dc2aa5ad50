"""The lowest curvature of a released Hessian, and the direction in which it is found."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, eigh_tridiagonal

__all__ = ["LARGEST_EXACT", "lowest_curvature"]

Floats = NDArray[np.float64]

LARGEST_EXACT = 1024  # up to this dimension the whole matrix is reduced


def lowest_curvature(
    matrix: Floats, precision: float, failure: float, generator: np.random.Generator
) -> tuple[float, Floats]:
    """Return the least eigenvalue of a symmetric matrix and a unit vector for it.

    Up to `LARGEST_EXACT` dimensions LAPACK finds both. Beyond, Lanczos with all vectors kept orthogonal starts from a
    uniformly random direction: the value is too large by at most ``precision`` but for a probability of ``failure``,
    after min(d, 1 + log(2.75 d/failure^2)/2 sqrt(|H|/(2 precision))) products (Kuczynski & Wozniakowski 1992; Carmon
    et al. 2018). All products are with the one matrix that was released, its noise included, so this is
    post-processing.

    References
    ----------
    Carmon, Y. et al. (2018). Accelerated methods for nonconvex optimization. SIAM J. Optim. arXiv:1611.00756.
    Kuczynski, J. & Wozniakowski, H. (1992). Estimating the largest eigenvalue by the power and Lanczos algorithms
    with a random start. SIAM J. Matrix Anal. Appl. 13.
    """
    dimension = matrix.shape[0]
    if dimension <= LARGEST_EXACT:
        values, vectors = eigh(matrix, subset_by_index=(0, 0))
        return float(values[0]), vectors[:, 0]
    size = float(np.abs(matrix).sum(axis=1).max())  # no eigenvalue is larger
    products = 1 + math.log(2.75 * dimension / failure**2) / 2 * math.sqrt(size / (2 * precision))
    basis = np.empty((dimension, min(dimension, math.ceil(products))), order="F")
    diagonal, beside = np.zeros(basis.shape[1]), np.zeros(basis.shape[1])
    vector = np.asarray(generator.normal(size=dimension))
    for step in range(basis.shape[1]):
        length = float(np.linalg.norm(vector))
        if step and length <= 1e-12 * size:  # an invariant subspace: what follows is of no use
            basis = basis[:, :step]
            break
        beside[step] = length
        basis[:, step] = vector / length
        vector = np.asarray(matrix @ basis[:, step])
        diagonal[step] = basis[:, step] @ vector
        known = basis[:, : step + 1]
        for _ in range(2):
            vector = np.asarray(vector - known @ (known.T @ vector))
    steps = basis.shape[1]
    _, vectors = eigh_tridiagonal(diagonal[:steps], beside[1:steps], select="i", select_range=(0, 0))
    direction = basis @ vectors[:, 0]
    direction /= np.linalg.norm(direction)
    return float(direction @ (matrix @ direction)), direction
