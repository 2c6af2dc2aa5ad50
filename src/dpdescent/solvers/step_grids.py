"""Step sizes among which `agd` chooses: grids that follow what was chosen. All of it is public."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["EvenGrid", "GeometricGrid"]

Floats = NDArray[np.float64]

_LONGEST = 1e30  # along a unit vector; losses at such weights can still be represented


class GeometricGrid:
    """Zero, and steps of ratio 2 around a centre that follows the chosen ones; it moves down if zero is chosen."""

    def __init__(self, centre: float, candidates: int) -> None:
        self._centre = centre
        self._exponents = np.arange(candidates - 1) - (candidates - 2) // 2

    def candidates(self) -> Floats:
        return np.concatenate([[0.0], self._centre * 2.0**self._exponents])

    def direction(self, gradient: Floats) -> Floats:
        return gradient

    def follow(self, chosen: int) -> None:
        vote = -1 if chosen == 0 else int(np.sign(self._exponents[chosen - 1]))
        self._centre *= 2.0 ** (0.1 * vote)


class EvenGrid:
    """The paper's grid: steps spread evenly from zero to alpha_max along a unit vector."""

    def __init__(self, max_step: float, candidates: int, window: int, stretch: float) -> None:
        self._max_step, self._candidates = max_step, candidates
        self._window, self._stretch = window, stretch
        self._recent: list[float] = []

    def candidates(self) -> Floats:
        return np.linspace(0.0, self._max_step, self._candidates)

    def direction(self, gradient: Floats) -> Floats:
        return gradient / max(float(np.linalg.norm(gradient)), 1e-300)

    def follow(self, chosen: int) -> None:
        if chosen > 0:
            self._recent.append(float(self.candidates()[chosen]))
        if len(self._recent) == self._window:
            self._max_step = min((1 + self._stretch) * max(self._recent), _LONGEST)
            self._recent.clear()
