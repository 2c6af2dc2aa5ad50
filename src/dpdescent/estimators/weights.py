"""Weights of classes: a public mapping, or the inverse of label counts that are paid for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..curator import Curator, LabelCounts, sum_without_privacy
from ..errors import InvalidParameter, require_positive
from ..problems import LabelKind, Labels

__all__ = ["balanced_weights", "share_of_counts", "weights_of_classes"]

Floats = NDArray[np.float64]

_LEAST_SHARE, _LARGEST_SHARE = 0.01, 0.1  # of the budget
_COUNTED_ROWS = 4.0  # the share over n mu, between the two
_HEAVIEST = 2.0**40


def weights_of_classes(given: Any, classes: NDArray[Any]) -> Floats | None:
    """Return the weight of each class in a public mapping; None where weights are yet to be balanced.

    Classes that are not in the mapping have the weight 1.
    """
    if isinstance(given, str) and given == "balanced":
        return None
    if not isinstance(given, Mapping):
        raise InvalidParameter(
            f"class_weight must be None, 'balanced', or a mapping from classes to weights: {given!r:.80}"
        )
    known = classes.tolist()
    unknown = [label for label in given if label not in known]
    if unknown:
        raise InvalidParameter(
            f"class_weight has a weight for {unknown[0]!r:.80}, which is none of the {len(known)} classes: correct "
            "it, or add it to classes"
        )
    weights = {label: _require_moderate(label, weight) for label, weight in given.items()}
    return np.array([weights.get(label, 1.0) for label in known])


def _require_moderate(label: Any, weight: Any) -> float:
    """Return a weight that leaves the others, and a penalty in units of it, their size in floating point."""
    name = f"class_weight[{label!r:.80}]"
    number = require_positive(name, weight)
    if not 1 / _HEAVIEST <= number <= _HEAVIEST:
        raise InvalidParameter(
            f"{name} is {number:g}, and weights must lie between 2^-40 and 2^40: bring them closer together, or "
            "multiply all of them, and alpha, by the same number"
        )
    return number


def share_of_counts(curator: Curator) -> float:
    """Return the share of the budget that counts of rows are worth: more where there are few rows."""
    rows_of_privacy = 1 / curator.deviation(1.0, curator.budget)
    return min(max(_COUNTED_ROWS / rows_of_privacy, _LEAST_SHARE), _LARGEST_SHARE)


def balanced_weights(curator: Curator, private: bool) -> Floats:
    """Return n/(K c) for each of K classes, c being its count: bought for 1% of the budget, or up to 10% of it.

    A count is taken for two standard deviations of its noise at least, so that no class gets a weight that the noise
    alone made large.
    """
    labels = curator.problem.loss.labels
    if not private:
        counts = sum_without_privacy(curator, lambda _, own: _counted(labels, own))
        counts = np.maximum(counts, 1.0)
    else:
        share = share_of_counts(curator)
        noise = curator.deviation(1.0, share * curator.budget) * curator.rows
        counts = curator.answer(LabelCounts(curator.gaussian(share * curator.budget)))
        counts = np.clip(counts, max(2 * noise, 1.0), max(2 * noise, curator.rows))
    weights: Floats = counts.sum() / (counts.size * counts)
    return weights


def _counted(labels: Labels, own: Floats) -> Floats:
    index = own > 0 if labels.kind is LabelKind.SIGNS else own
    return np.bincount(index.astype(np.intp), minlength=labels.number_of_classes).astype(np.float64)
