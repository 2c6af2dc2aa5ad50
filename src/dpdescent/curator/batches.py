"""Random batches of rows: how they are drawn, what they make of a cost, and tickets for what is asked on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from ..accounting import (
    AdvancedComposition,
    Composed,
    Cost,
    Currency,
    FixedSizeSampled,
    Gaussian,
    PoissonSampled,
    PrintedPrice,
    strongest,
)
from ..arrays import Floats, Integers
from ..errors import InvalidParameter
from ..noise import Bits
from ..relations import Relation

AnyCost = TypeVar("AnyCost", bound=Cost)


@lru_cache(maxsize=256)  # a run asks for the same few again and again
def batch_cost(relation: Relation, rate: float, *parts: Cost) -> Cost:
    """Return what mechanisms cost together on one batch, of the kind that the relation can amplify."""
    if rate < 1:
        return (PoissonSampled if Relation.parse(relation) is Relation.ZERO_OUT else FixedSizeSampled)(rate, parts)
    return parts[0] if len(parts) == 1 else Composed(parts)


@final
@dataclass(frozen=True)
class Sampling:
    """How the rows of a batch are drawn.

    **Privacy** Under zero-out every row joins a batch by itself with probability ``rate``, and sums are divided by
    the public rate * n. Under replace-one an amplified batch is a uniform subset of floor(rate * n) rows, and the
    rate is made that share. What is asked on one batch is charged as one mechanism, amplified as a whole.
    """

    relation: Relation
    rows: int  # n, the public number of rows
    rate: float = 1.0  # share of the rows in a batch, in (0, 1]. At 1 a batch is the whole table.
    #: Whether the randomness of the batch is claimed for privacy. Otherwise an answer costs what it would cost on
    #: all rows (the divergence is quasi-convex), and batches save time only.
    amplified: bool = True
    #: The public number of units, if each of them joins a batch with all of its rows (`dpdescent.curator.units`).
    units: int | None = None
    #: Charge what Chen & Lee (2020) state for a batch where that is more than the true cost.
    printed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "relation", Relation.parse(self.relation))
        if not 0 < self.rate <= 1:
            raise InvalidParameter(f"sampling_rate must lie in (0, 1], got {self.rate}")
        if self.fixed_size:
            places = self.places
            object.__setattr__(self, "rate", max(1, math.floor(self.rate * places * (1 + 2.0**-50))) / places)

    @property
    def places(self) -> int:
        """The number of rows, or of units, of which some are drawn."""
        return self.rows if self.units is None else self.units

    @property
    def fixed_size(self) -> bool:
        """Whether all batches have the same number of rows, or of units."""
        return self.rate < 1 and self.amplified and self.relation is Relation.REPLACE_ONE

    @property
    def size(self) -> float:
        """The public number by which the sum of a batch is divided."""
        whole = self.fixed_size and self.units is None
        return float(round(self.rate * self.rows)) if whole else self.rate * self.rows

    def cost(self, *parts: Cost) -> Cost:
        """Return what mechanisms cost that are asked on one batch."""
        cost = batch_cost(self.relation, self.rate if self.amplified else 1.0, *parts)
        return PrintedPrice((cost,)) if self.printed else cost

    def strongest(
        self, family: Callable[[float], AnyCost], amount: float, currency: Currency, most: float = 2.0**30
    ) -> AnyCost:
        """Return the least noisy member of a family that ``amount`` pays for on a batch of its own."""
        return strongest(family, self.cost, amount, currency, most)

    def gaussian(self, amount: float, currency: Currency) -> Gaussian:
        """Return the least Gaussian noise that ``amount`` pays for on a batch of its own."""
        return self.strongest(lambda strength: Gaussian(1 / strength), amount, currency)


@final
@dataclass(frozen=True, eq=False)
class Batch:
    """A ticket for rows that are drawn afresh, and that answer each mechanism they were drawn for once.

    The curator charges for all of the mechanisms when the first of them is asked, and draws the rows then. How often
    a batch is used is thus fixed before it is drawn.
    """

    sampling: Sampling
    parts: tuple[Cost, ...]  # the mechanisms, as the queries will name them
    #: What the record of the ledger calls it; the label of the first query by default.
    label: str = ""
    #: Pays for all of the mechanisms at once, each on rows of its own; `Batch.series` makes such a ticket.
    composition: AdvancedComposition | None = None

    def __post_init__(self) -> None:
        paid = self.composition
        if paid is not None and (
            self.parts != (Gaussian(paid.noise_multiplier),) * paid.steps or self.sampling.rate > paid.rate
        ):
            raise InvalidParameter("advanced composition pays for its own Gaussian steps alone: use Batch.series")

    @classmethod
    def series(cls, sampling: Sampling, composition: AdvancedComposition, label: str) -> Batch:
        """Return a ticket for the Gaussian steps of an advanced composition, each on a fresh batch."""
        steps = (Gaussian(composition.noise_multiplier),) * composition.steps
        return cls(sampling, steps, label, composition)

    @property
    def cost(self) -> Cost:
        """What is charged for all of the mechanisms."""
        return self.sampling.cost(*self.parts) if self.composition is None else self.composition


def draw_rows(bits: Bits, present: int, sampling: Sampling) -> NDArray[np.bool_] | None:
    """Return which of the rows, or units, that are present are in a fresh batch; None stands for all of them."""
    if sampling.rate == 1:
        return None
    if not sampling.fixed_size:
        # Drawn for all places, so that a row which is absent changes nothing for those before it.
        return bernoulli(bits, max(present, sampling.places), sampling.rate)[:present]
    size = round(sampling.rate * sampling.places)
    while True:
        words = bits.words(present)
        chosen: NDArray[np.bool_] = words <= np.partition(words, size - 1)[size - 1]
        if np.count_nonzero(chosen) == size:  # no tie at the end, so every subset is equally likely
            return chosen


def draw_leaves(bits: Bits, present: int, leaves: int) -> Integers:
    """Return in which of the leaves each of the rows, or units, that are present is; drawn for each by itself.

    Privacy does not rest on how likely a leaf is, only on that no row has a say in it: the remainder of a 64-bit
    word will do.
    """
    return (bits.words(present) % np.uint64(leaves)).astype(np.int64)


def bernoulli(bits: Bits, size: int, rate: float) -> NDArray[np.bool_]:
    """Return independent choices, each with probability floor(2^64 rate)/2^64.

    A choice compares a uniform number with the rate. Its first byte decides, unless it equals that of the rate: then
    the other seven bytes do.
    """
    first, rest = divmod(int(rate * 2.0**64), 2**56)
    leading = bits.words(-(-size // 8)).astype("<u8", copy=False).view(np.uint8)[:size]
    chosen = leading < first
    undecided = np.flatnonzero(leading == first)
    chosen[undecided] = (bits.words(undecided.size) >> np.uint64(8)) < np.uint64(rest)
    return chosen


def sum_batch(
    block: Callable[..., Integers], rows: Any, labels: Floats, chosen: NDArray[np.bool_], *known: Floats
) -> Integers:
    """Return what the chosen rows of a block add up to."""
    kept = np.flatnonzero(chosen)  # of few rows their places are found faster than they are picked by a mask
    return block(rows[kept], labels[kept], *(part[kept] for part in known))


def sum_picked(
    block: Callable[..., Integers], rows: Any, labels: Floats, chosen: NDArray[np.bool_], *known: Floats
) -> Integers:
    """Return what a block adds up to that picks the rows of a batch by itself."""
    return block(chosen, rows, labels, *known)
