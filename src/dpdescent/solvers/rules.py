"""Rules of public and released numbers that several methods share, in units that make sense for every table."""

from __future__ import annotations

import math

from ..curator import Curator

__all__ = ["clip_multiple", "longest_step"]

_LEAST_CLIP = 0.5  # in typical row lengths: at 0 the gradient of a logistic loss is half a row long
_BEYOND_SAFE = 8.0  # a search shortens a step that is too long, and the safe one is a bound for the worst table
_FARTHEST_WALK = 2.0  # margins that noise alone may add up to


def clip_multiple(richness: float, factor: float, power: float, least: float = _LEAST_CLIP) -> float:
    """Return the clip norm in typical row lengths, given k = n mu/d effective rows per parameter.

    Clipping biases a gradient and noise grows with the clip norm, so the best norm grows with a small power of k.
    """
    return max(least, factor * math.pow(richness, power))


def longest_step(curator: Curator, row_length: float, noise: float, steps: float) -> float:
    """Return eight times the step that is always safe, unless noise alone would then carry a margin beyond 2.

    ``noise`` is the standard deviation of a coordinate of the gradient, ``steps`` their planned number.
    """
    safe = _BEYOND_SAFE / (min(curator.problem.loss.smoothness, 1.0) * row_length**2)
    return min(safe, _FARTHEST_WALK / (noise * math.sqrt(steps) * row_length))
