r"""Effects that a linear model can identify, with what the noise of privacy does to each.

The levels of a column add up to 1, as the constant does, so a number can move from the levels to the intercept and no
score changes: the weight of a level says nothing by itself. The differences between levels are what rows can tell. A
level is compared with the mean of the levels of its column, one of two levels with the other, and the upper bound of
a column that stands alone with its lower bound. Among K > 2 classes, a number can move from one class to all, so an
effect on the score of a class is compared with its mean over the classes. With F the noise factor of the solver, and
c the coefficients of a comparison, noise gives it the deviation :math:`|F'c|`, times :math:`\sqrt{1 - 1/K}` with
several classes, whose noise is independent.

A column that never varies, such as a level that no row has, cannot be told from the constant either. The solver
releases noisy moments of every column; a column in which they show no variation is left out, also from the mean of
the levels. One or more columns that never vary pass with a probability of at most
`dpdescent.statement.meaning.UNSEEN_LEVEL`.

**Privacy** Everything here is computed from released weights, from released moments and from the law of noise.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from ..arrays import Floats
from ..statement import UNSEEN_LEVEL, Effect, Effects

# How `BoundedEncoder` names the columns of a level, of a bucket, and of what is neither.
_LEVEL = re.compile(r"(?P<column>[^=]*)=(?P<level>.*)|(?P<rest>.*)(?P<kind>#\d+| \((?:other|missing)\))", re.DOTALL)


def columns_seen(evidence: Floats) -> NDArray[np.bool_]:
    """Return which columns vary, from `SolverResult.column_evidence`.

    The evidence of a column that never varies is noise alone, the larger one of at most two numbers: two tails for
    each column share the probability of an error.
    """
    return np.asarray(evidence > norm.isf(UNSEEN_LEVEL / (2 * max(evidence.size, 1))))


def level_groups(names: Sequence[str], binary: Sequence[bool]) -> dict[str, list[tuple[int, str]]]:
    """Return positions and levels by the name of their column, all levels of one column together.

    Levels are told by the names that `BoundedEncoder` gives, in columns that are 0 or 1. Any other column stands
    alone, under its own name and with the level "1".
    """
    groups: dict[str, list[tuple[int, str]]] = {}
    taken = set(names)
    for position, name in enumerate(names):
        found = _LEVEL.fullmatch(name) if binary[position] else None
        column = found and (found["column"] if found["level"] is not None else found["rest"])
        if found and column and column not in taken:
            level = found["level"] if found["level"] is not None else found["kind"].strip(" ()")
            groups.setdefault(column, []).append((position, level))
        else:
            groups.setdefault(name, []).append((position, "1"))
    return groups


@dataclass(frozen=True)
class Comparisons:
    """Which coefficients are compared with each other, and the noise of every comparison."""

    #: Positions: of a column that stands alone, or of the levels of one column, as far as they are seen to vary.
    columns: tuple[tuple[int, ...], ...]
    #: One standard deviation for each of them, in the unit of the coefficients; a single one for the difference of
    #: two levels.
    noise: tuple[tuple[float, ...], ...]
    #: That of the constant, the score of a row at the mean of the levels and with numbers at the bound nearest to 0.
    constant: float
    left_out: int  # the number of columns that are in no comparison

    @classmethod
    def of(
        cls, names: Sequence[str], binary: Sequence[bool], seen: NDArray[np.bool_], factor: Floats, constant: Floats
    ) -> Comparisons:
        """Return the comparisons of columns that vary, from the noise factor and its row of the constant."""
        columns: list[tuple[int, ...]] = []
        noise: list[tuple[float, ...]] = []
        for members in level_groups(names, binary).values():
            there = tuple(position for position, _ in members if seen[position])
            if not there or (len(members) > 1 and len(there) == 1):
                continue
            rows = factor[list(there)]
            if len(there) == 1:
                compared = rows
            elif len(there) == 2:
                compared = rows[:1] - rows[1:]
            else:
                compared = rows - rows.mean(axis=0)
            if len(there) > 1:
                constant = constant + rows.mean(axis=0)
            columns.append(there)
            noise.append(tuple(np.linalg.norm(compared, axis=1).tolist()))
        left_out = len(names) - sum(map(len, columns))
        return cls(tuple(columns), tuple(noise), float(np.linalg.norm(constant)), left_out)

    @classmethod
    def of_model(cls, model: Any, names: Sequence[str]) -> Comparisons | None:
        """Return the comparisons of a fitted linear model, None if its method does not tell what they need."""
        seen, factor, constant = model._seen, model._noise_factor, model._constant_noise
        if seen is None or factor is None or constant is None:
            return None
        low, high = model.bounds_
        levels = np.array(model._binary) | ((low == 0) & (high == 1))
        return cls.of(names, levels.tolist(), seen, factor, constant)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Comparisons:
        """Build from what `to_dict` returned."""
        return cls(
            tuple(map(tuple, data["columns"])), tuple(map(tuple, data["noise"])), data["constant"], data["left_out"]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "columns": [list(each) for each in self.columns],
            "noise": [list(each) for each in self.noise],
            "constant": self.constant,
            "left_out": self.left_out,
        }

    def misfit(self, features: int) -> str | None:
        """Return what cannot be true of a model with so many features, or None."""
        positions = [position for each in self.columns for position in each]
        if len(set(positions)) < len(positions) or not all(0 <= each < features for each in positions):
            return "a column is compared twice, or is none of the features"
        if len(positions) + self.left_out != features:
            return "every feature is compared or left out"
        expected = [1 if len(each) == 2 else len(each) for each in self.columns]
        if [len(each) for each in self.noise] != expected or not all(expected):
            return "every comparison has a noise"
        return None

    def effects(
        self,
        names: Sequence[str],
        coefficients: Floats,
        intercepts: Floats,
        ends: tuple[Floats, Floats],
        outputs: Sequence[str],
    ) -> Effects:
        """Return the effects of a model with (K, d) coefficients; ``outputs`` names K scores if there are several."""
        low, high = ends
        several = len(coefficients) > 1
        constants = intercepts + coefficients @ np.clip(0.0, low, high)
        if several:
            coefficients, constants = coefficients - coefficients.mean(axis=0), constants - constants.mean()
        shrink = math.sqrt(1 - 1 / len(coefficients)) if several else 1.0
        compared, starts = [], []
        for row, start, output in zip(coefficients, constants, outputs, strict=True):
            of = f", class {output}" if several else ""
            for positions, noises in zip(self.columns, self.noise, strict=True):
                weights, first = row[list(positions)], names[positions[0]]
                if len(positions) == 1:
                    span = float((high - low)[positions[0]])
                    told = [(f"{first} at its upper bound", "its lower bound", span * weights[0], span * noises[0])]
                elif len(positions) == 2:
                    told = [(first, names[positions[1]], weights[0] - weights[1], noises[0])]
                else:
                    against, values = f"the mean of {len(positions)} levels", weights - weights.mean()
                    told = [
                        (names[position], against, value, noise)
                        for position, value, noise in zip(positions, values, noises, strict=True)
                    ]
                start += weights.mean() if len(positions) > 1 else 0.0
                compared += [
                    Effect(f"{name}{of}", against, float(value), shrink * noise)
                    for name, against, value, noise in told
                ]
            starts.append(Effect(f"constant{of}", "0", float(start), shrink * self.constant))
        return Effects(compared, starts, self.left_out)
