"""From the scale a mechanism asks for to a scale the lattice sampler can draw, always rounded up."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import SupportsIndex

import numpy as np

from ..errors import InvalidParameter, ScaleOutOfRange, require_finite

__all__ = [
    "CELLS_PER_SCALE",
    "MAXIMUM_SCALE",
    "exact_rational",
    "laplace_scale",
    "lattice_scale",
    "require_scale",
    "require_size",
]

CELLS_PER_SCALE = 16
MAXIMUM_SCALE = 2**52


def lattice_scale(sigma: float | Fraction, unit: float | Fraction) -> int:
    r"""Return the lattice scale whose discrete Gaussian is as private as a Gaussian of deviation ``sigma``.

    The result is the least multiple of 16 with ``scale^2 >= (sigma / unit)^2 + 4``, in exact arithmetic.

    Parameters
    ----------
    sigma : float or Fraction
        Standard deviation of the real Gaussian mechanism.
    unit : float or Fraction
        Distance of neighbouring lattice points, in the units of ``sigma``.

    Returns
    -------
    int
        A scale for `discrete_gaussian`.

    Privacy
    -------
    The "+ 4" makes every theorem about Gaussian noise available (zCDP, Gaussian DP, filters, privacy loss
    distributions, subsampling), not the zCDP bound only.

    **Lemma.** Let ``s^2 = s1^2 + s2^2`` and :math:`\theta = 2\sum_{j\ge1} e^{-2\pi^2 s_2^2 j^2}`. Draw X from
    N(q, s1^2), q an integer, and then k from the discrete Gaussian of scale s2 centred at X. The law P of k
    satisfies :math:`N_Z(s^2)(k-q) / P(k) \in [(1-\theta)/(1+\theta), 1+\theta]` for every k.
    *Proof.* The product of the two exponentials is :math:`e^{-(k-q)^2/2s^2}` times a Gaussian in x. By
    Poisson summation the normaliser of the second step is :math:`\sqrt{2\pi} s_2 (1 + c(x))` with
    :math:`|c| \le \theta`, and that of the discrete Gaussian of scale s is :math:`\sqrt{2\pi} s` times a
    number in :math:`[1, 1+\theta]`. QED

    With ``s2^2 = 4``, theta is 1.03e-34: a run that releases N coordinates is a post-processing of Gaussian
    mechanisms with the real sigma, up to 3.2e-34 N in epsilon and a factor 1 + 1.1e-34 N on delta.
    """
    ratio = _require_positive("sigma", sigma) / _require_positive("unit", unit)
    least = math.ceil((ratio**2 + 4) / CELLS_PER_SCALE**2)
    return _within_range(CELLS_PER_SCALE * (math.isqrt(least - 1) + 1))


def laplace_scale(scale: float | Fraction, unit: float | Fraction) -> int:
    """Return the least multiple of 16 that is at least ``scale / unit``, in exact arithmetic.

    Parameters
    ----------
    scale : float or Fraction
        The parameter b of the real Laplace mechanism.
    unit : float or Fraction
        Distance of neighbouring lattice points, in the units of ``scale``.

    Returns
    -------
    int
        A scale for `discrete_laplace`. Rounding up only lowers the cost.
    """
    ratio = _require_positive("scale", scale) / _require_positive("unit", unit)
    return _within_range(CELLS_PER_SCALE * math.ceil(ratio / CELLS_PER_SCALE))


def exact_rational(name: str, value: float | Fraction) -> Fraction:
    """Return ``value`` without rounding, or raise `InvalidParameter` if it is NaN, infinite or no number."""
    if isinstance(value, int | np.integer):
        return Fraction(int(value))
    return value if isinstance(value, Fraction) else Fraction(require_finite(name, value))


def _require_positive(name: str, value: float | Fraction) -> Fraction:
    number = exact_rational(name, value)
    if number <= 0:
        raise InvalidParameter(f"{name} must be greater than 0, got {value}")
    return number


def _within_range(scale: int) -> int:
    if scale > MAXIMUM_SCALE:
        raise ScaleOutOfRange(
            f"the noise would be {scale / MAXIMUM_SCALE:.3g} times the largest lattice scale 2**52: "
            f"use a coarser lattice, with a unit at least 2**{(scale - 1).bit_length() - 52} times as large"
        )
    return scale


def require_scale(scale: SupportsIndex) -> int:
    """Return ``scale`` as an int, or raise `ScaleOutOfRange` unless the sampler can draw it."""
    try:
        number = operator.index(scale)
    except TypeError:
        number = -1
    if not CELLS_PER_SCALE <= number <= MAXIMUM_SCALE or number % CELLS_PER_SCALE:
        raise ScaleOutOfRange(
            f"a lattice scale is an int, a multiple of 16, from 16 to 2**52, got {scale!r}: "
            "compute it with lattice_scale or laplace_scale, which round up"
        )
    return number


def require_size(size: SupportsIndex) -> int:
    """Return ``size`` as an int, or raise `InvalidParameter` unless it is a whole number of at least 0."""
    try:
        number = operator.index(size)
    except TypeError:
        number = -1
    if number < 0:
        raise InvalidParameter(f"size must be a whole number of at least 0, got {size!r}")
    return number
