"""How many rows have each label."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..curator import Curator
from ..errors import InvalidParameter
from ..exact import LatticeSum, SignedSum
from ..noise import lattice_scale
from ..problems import Multinomial, Squared
from ..relations import Norm, Sensitivity

__all__ = ["label_counts", "label_sum"]

Floats = NDArray[np.float64]

_COUNT_UNIT = 2.0**-20  # counts are whole numbers; a finer lattice makes room for little noise
_ROOM = 1 + 2.0**-40


def label_counts(curator: Curator, amount: float) -> Floats:
    """Return the noisy number of rows in each class, 2 or K of them.

    **Privacy** A row adds 1 to one count: L2 sensitivity 1, and sqrt(2) when it is replaced. With two classes one
    count is measured and the other is what is left of the public n: sensitivity 1 under both relations.
    """
    loss = curator.problem.loss
    classes = loss.classes if isinstance(loss, Multinomial) else 2
    if isinstance(loss, Squared):
        raise InvalidParameter("a regression has no classes to count: ask for label_sum")
    binary = classes == 2 and not isinstance(loss, Multinomial)
    swap = 1.0 if binary else math.sqrt(2) * (1 + 2.0**-50)
    cost = curator.ledger.currency.gaussian(amount)
    lattice_scale(_ROOM * swap * cost.noise_multiplier, _COUNT_UNIT)  # raises before the charge
    curator._charge(cost, "label counts")
    values = curator._sum(_positive_block if binary else partial(_counts_block, classes))
    total = LatticeSum(values * int(1 / _COUNT_UNIT), _COUNT_UNIT, Sensitivity(Norm.L2, 1.0, swap))
    counts = curator._noise.gaussian(total, cost, curator.relation) / curator.batch_rate
    return np.array([curator.rows - counts[0], counts[0]]) if binary else counts


def label_sum(curator: Curator, amount: float) -> float:
    """Return the noisy sum of labels clipped to [-1, 1].

    **Privacy** Sensitivity 1, and 2 when a row is replaced.
    """
    bounded = SignedSum(1.0)
    cost = curator.ledger.currency.gaussian(amount)
    lattice_scale(_ROOM * 2 * cost.noise_multiplier, bounded.unit)  # raises before the charge
    curator._charge(cost, "label sum")
    values = curator._sum(partial(_labels_block, bounded))
    total = LatticeSum(values, bounded.unit, Sensitivity.of_signed_sum(bounded.bound))
    return float(curator._noise.gaussian(total, cost, curator.relation)[0]) / curator.batch_rate


def _positive_block(rows: Any, labels: Floats) -> NDArray[np.int64]:  # noqa: ARG001
    return np.array([np.count_nonzero(labels > 0)], dtype=np.int64)


def _counts_block(classes: int, rows: Any, labels: Floats) -> NDArray[np.int64]:  # noqa: ARG001
    # A total function: labels outside the classes count as the nearest one.
    index = np.clip(np.nan_to_num(labels), 0, classes - 1).astype(np.intp)
    return np.bincount(index, minlength=classes).astype(np.int64)


def _labels_block(bounded: SignedSum, rows: Any, labels: Floats) -> NDArray[np.int64]:  # noqa: ARG001
    return bounded.block(labels)
