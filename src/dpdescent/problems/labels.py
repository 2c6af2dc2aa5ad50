"""What the label of a row may be, as a loss declares it, and the map that makes every number such a label."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidParameter, require_finite, require_positive_integer

__all__ = ["LabelKind", "Labels"]

Floats = NDArray[np.float64]


class LabelKind(StrEnum):
    """Two classes as -1 and 1, K classes as 0 to K - 1, or numbers in an interval."""

    SIGNS = "signs"
    CLASSES = "classes"
    NUMBERS = "numbers"


@dataclass(frozen=True)
class Labels:
    """The labels for which the constants of a loss hold: their kind and their public range.

    Use `Labels.signs`, `Labels.classes` or `Labels.numbers`.

    Parameters
    ----------
    kind : LabelKind
    low, high : float
        The least and the largest label.

    Examples
    --------
    >>> import numpy as np
    >>> Labels.numbers(0, 1).understood(np.array([0.25, 7.0, -np.inf, np.nan]))
    array([0.25, 1.  , 0.  , 0.  ])
    """

    kind: LabelKind
    low: float
    high: float

    def __post_init__(self) -> None:
        if not require_finite("the least label", self.low) < require_finite("the largest label", self.high):
            raise InvalidParameter(f"labels need a least one below the largest, got {self.low} and {self.high}")

    @classmethod
    def signs(cls) -> Labels:
        """Return the labels -1 and 1 of two classes."""
        return cls(LabelKind.SIGNS, -1.0, 1.0)

    @classmethod
    def classes(cls, count: int) -> Labels:
        """Return the labels 0, 1, ..., ``count`` - 1."""
        return cls(LabelKind.CLASSES, 0.0, require_positive_integer("classes", count) - 1.0)

    @classmethod
    def numbers(cls, low: float, high: float) -> Labels:
        """Return all numbers from ``low`` to ``high``."""
        return cls(LabelKind.NUMBERS, float(low), float(high))

    @property
    def number_of_classes(self) -> int:
        """How many classes the labels tell apart: 2, K, or 0 where they are numbers."""
        if self.kind is LabelKind.NUMBERS:
            return 0
        return 2 if self.kind is LabelKind.SIGNS else int(self.high) + 1

    @property
    def every(self) -> Floats | None:
        """Every label there is, one of each; None where they are numbers."""
        if self.kind is LabelKind.NUMBERS:
            return None
        return np.array([-1.0, 1.0]) if self.kind is LabelKind.SIGNS else np.arange(self.high + 1)

    def understood(self, labels: Floats) -> Floats:
        """Return a label of this kind and range for each number; valid labels stay the same.

        Numbers above 0 become 1 and all others -1 for two classes. For classes and numbers, what is outside the range
        becomes the nearest end, and NaN counts as 0; fractions of a class are dropped.

        **Privacy** The function is elementwise and defined for every number, so that no row can raise an error, and
        the bounds that a loss states for its labels hold whatever a row contains.
        """
        if self.kind is LabelKind.SIGNS:
            return np.where(labels > 0, 1.0, -1.0)
        inside: Floats = np.clip(np.nan_to_num(labels), self.low, self.high)
        return np.trunc(inside) if self.kind is LabelKind.CLASSES else inside
