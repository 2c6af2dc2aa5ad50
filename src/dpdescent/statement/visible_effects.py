r"""Which effects of a model are larger than the noise of privacy explains, and what each was compared with.

An effect is tested against noise of its own deviation, and all of them together by Holm's rule: sorted by p-value,
the i-th of m must have one of at most a/(m - i + 1), and so must all before it. If noise alone made the effects, one
or more would pass with a probability of at most a, however they depend on each other (Holm 1979).

The band is of the noise of privacy only. A model also has the error of its sample of rows, and clipping pulls the
effects of rare levels towards the commoner class; neither is in the band, and every sentence says so.

References
----------
Holm, S. (1979). A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import norm

#: The probability that noise alone makes one or more effects pass.
LEVEL = 0.05
#: The part of it that is left for columns that never vary and pass for columns that do.
UNSEEN_LEVEL = 0.005

BEYOND, WITHIN = "beyond the noise of privacy alone", "within the noise of privacy alone"
#: What a constant is the score of.
START = "the score of a row at the mean of the levels compared, with numbers at the bound nearest to 0"


@dataclass(frozen=True)
class Effect:
    """A difference of scores that a model can identify, and one standard deviation of what noise does to it.

    Parameters
    ----------
    name : str
        The column or the level.
    against : str
        What it is compared with.
    value, noise : float
        The difference, and the deviation that the noise of privacy gives it.
    """

    name: str
    against: str
    value: float
    noise: float

    @property
    def distance(self) -> float:
        """How many standard deviations of its noise the effect is away from 0."""
        if self.noise > 0:
            return abs(self.value) / self.noise
        return math.inf if self.value else 0.0


@dataclass(frozen=True)
class Effects:
    """The effects of a model, those that stand out most first.

    Parameters
    ----------
    compared : sequence of Effect
        In any order.
    constants : sequence of Effect
        The score, of each class if there are several, from which effects count. They are not tested.
    left_out : int
        The number of columns that are not spoken of, because nothing that was released shows that they vary, or that
        another level of the same column does.
    """

    compared: Sequence[Effect]
    constants: Sequence[Effect] = ()
    left_out: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "compared", tuple(sorted(self.compared, key=lambda each: -each.distance)))

    @property
    def beyond(self) -> int:
        """How many of the first effects are larger than noise explains."""
        for passed, each in enumerate(self.compared):
            p_value = 2 * float(norm.sf(each.distance))
            if p_value > (LEVEL - UNSEEN_LEVEL) / (len(self.compared) - passed):
                return passed
        return len(self.compared)

    def with_verdicts(self) -> list[tuple[Effect, str]]:
        """Return every effect with whether it is beyond what the noise of privacy explains."""
        beyond = self.beyond
        return [(each, BEYOND if place < beyond else WITHIN) for place, each in enumerate(self.compared)]

    @property
    def in_words(self) -> str:
        """What was tested, and what came out."""
        return (
            f"{self.beyond} of {len(self.compared)} effects are larger than the noise of privacy explains, all "
            f"tested together at {LEVEL:.0%} (Holm's rule)."
        )

    @property
    def left_out_in_words(self) -> str:
        """Why some columns are not spoken of; empty if there are none."""
        if not self.left_out:
            return ""
        return (
            f"Columns left out: {self.left_out}. What was released does not show that they vary, or that another "
            "level does with which to compare them."
        )


def band_in_words(deviations: str, where: str) -> str:
    """Return what a band is, and what is not in it."""
    return (
        f"{where} {deviations} of the noise of privacy alone: what clipping does, and what another sample of rows "
        "would change, is not in it."
    )
