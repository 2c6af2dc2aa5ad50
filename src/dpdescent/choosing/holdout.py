"""Scores on rows that trained none of the candidates: one number per row, from 0 to 1, small being good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier

from ..accounting import Cost
from ..curator import Noised
from ..errors import InvalidParameter, require_finite
from ..estimators.base import PrivateLinearModel
from ..estimators.regressors import BoundedRegressor
from ..relations import Norm, Sensitivity

UNIT = 2.0**-20  # of a loss between 0 and 1


def require_one_task(candidates: Sequence[PrivateLinearModel]) -> None:
    """Refuse candidates whose scores cannot be compared, or would be read from unpaid data."""
    if len({is_classifier(each) for each in candidates}) > 1:
        raise InvalidParameter("candidates must be all classifiers or all regressors: their scores differ in kind")
    public = "classes" if is_classifier(candidates[0]) else "target_bounds"
    given = [getattr(each, public) for each in candidates]
    if any(each is None for each in given):
        raise InvalidParameter(f"select needs {public} in every candidate: nobody pays for reading them from y")
    if len({str(np.unique(np.asarray(each)).tolist()) for each in given}) > 1:
        raise InvalidParameter(f"candidates must have the same {public}: their scores are compared")


def held_out(rows: int, share: float, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Return which of the rows are held out, drawn by their positions alone."""
    count = round(require_finite("holdout", share) * rows)
    if not 1 <= count < rows:
        raise InvalidParameter(f"holdout={share:g} of {rows} rows leaves a part empty: give a share such as 0.2")
    mask = np.zeros(rows, dtype=np.bool_)
    mask[generator.permutation(rows)[:count]] = True
    return mask


def scores_of(models: int, mechanism: Cost) -> Noised:
    """Return how the total losses of so many models are released through a mechanism.

    **Privacy** For several models the sensitivity is that of the spread of the sums: 1 if a row is removed, because
    all of them fall, and 2 if it is replaced. For one model it is 1 either way.
    """
    sensitivity = Sensitivity.of_scores(1.0) if models > 1 else Sensitivity.of_bounded_sum(1.0, Norm.L2)
    return Noised(mechanism, UNIT, sensitivity)


def total_losses(models: Sequence[PrivateLinearModel], X: Any, y: Any) -> NDArray[np.int64]:
    """Return the loss of every model on all rows in steps of the lattice: **unreleased data**.

    A row counts as an error of 0 or 1 for a classifier, and for a regressor as the square of its error in units of
    the width of the target. Each row of a table of public shape is scored by itself.

    **Privacy** A loss lies in [0, 1], and every row has one: labels in a column are read as a row of labels, because
    comparing all predictions with all labels would count a row as often as there are rows.
    """
    return np.array([int(_losses(model, X, y).sum()) for model in models], dtype=np.int64)


def _losses(model: PrivateLinearModel, X: Any, y: Any) -> NDArray[np.int64]:
    """Return the loss of every row in steps of the lattice."""
    with np.errstate(all="ignore"):  # a warning would speak of rows
        predicted, labels = model.predict(X), np.ravel(y)
        if isinstance(model, BoundedRegressor):
            low, high = model._target_ends()
            target = np.clip(labels.astype(np.float64), low, high)
            errors = ((np.clip(predicted, low, high) - target) / (high - low)) ** 2
        else:
            errors = (predicted != labels).astype(np.float64)
    steps: NDArray[np.int64] = np.rint(np.clip(np.nan_to_num(errors, nan=1.0), 0.0, 1.0) / UNIT).astype(np.int64)
    return steps
