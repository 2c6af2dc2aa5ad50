"""How many rows have each label, or what the labels add up to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..accounting import Gaussian
from ..errors import InvalidParameter
from ..exact import SignedSum
from ..problems import LabelKind, Labels
from ..relations import Norm, Sensitivity
from .questions import Noised, Public, Question, Sum
from .sources import Floats, Integers

__all__ = ["LabelCounts", "LabelSum"]


_COUNT_UNIT = 2.0**-20  # counts are whole numbers; a finer lattice makes room for little noise


@dataclass(frozen=True)
class LabelCounts(Question[Floats]):
    """The number of rows in each class, 2 or K of them.

    **Privacy** A row adds 1 to one count: L2 sensitivity 1, and sqrt(2) when it is replaced. With two classes one
    count is measured and the other is what is left of the public n: sensitivity 1 under both relations.
    """

    noise: Gaussian
    label = "label counts"

    def plan(self, public: Public) -> Sum[Floats]:
        labels = public.problem.loss.labels
        if labels.kind is LabelKind.NUMBERS:
            raise InvalidParameter("a regression has no classes to count: ask for LabelSum")
        binary = labels.kind is LabelKind.SIGNS
        swap = 1.0 if binary else math.sqrt(2) * (1 + 2.0**-50)
        noised = Noised(self.noise, _COUNT_UNIT, Sensitivity(Norm.L2, 1.0, swap), public.rate, _in_units)

        def both(counts: Floats) -> Floats:
            return np.array([public.rows - counts[0], counts[0]]) if binary else counts

        return Sum(_positive_block if binary else partial(_counts_block, labels.number_of_classes), (noised,), both)


@dataclass(frozen=True)
class LabelSum(Question[float]):
    """The sum of labels, clipped to the public range of those that the loss is about.

    **Privacy** With labels in [low, high], sensitivity max(|low|, |high|), and twice that when a row is replaced.
    """

    noise: Gaussian
    label = "label sum"

    def plan(self, public: Public) -> Sum[float]:
        labels = public.problem.loss.labels
        bounded = SignedSum(max(-labels.low, labels.high))
        noised = Noised(self.noise, bounded.unit, Sensitivity.of_signed_sum(bounded.bound, Norm.L2), public.rate)
        return Sum(partial(_labels_block, bounded, labels), (noised,), lambda total: float(total[0]))


def _in_units(counts: Integers) -> Integers:
    return counts * int(1 / _COUNT_UNIT)


def _positive_block(rows: Any, labels: Floats) -> Integers:  # noqa: ARG001
    return np.array([np.count_nonzero(labels > 0)], dtype=np.int64)


def _counts_block(classes: int, rows: Any, labels: Floats) -> Integers:  # noqa: ARG001
    # A total function: labels outside the classes count as the nearest one.
    index = np.clip(np.nan_to_num(labels), 0, classes - 1).astype(np.intp)
    return np.bincount(index, minlength=classes).astype(np.int64)


def _labels_block(bounded: SignedSum, allowed: Labels, rows: Any, labels: Floats) -> Integers:  # noqa: ARG001
    return bounded.block(allowed.understood(labels))
