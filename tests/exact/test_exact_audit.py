"""The audit of plug-in losses accepts sums over rows and rejects everything else."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dpdescent.errors import InvalidParameter, RowDependence
from dpdescent.exact import (
    BoundedSum,
    ClippedSum,
    FeatureGrid,
    SecondMomentSum,
    check_row_independence,
    sigmoid,
    softplus,
)

GRID = FeatureGrid(1.0, 12)
RAW = np.random.default_rng(0).uniform(-1, 1, (57, 12))
PLACED = GRID.place(RAW)
LABELS = (RAW[:, 0] > 0).astype(float)
WEIGHTS = GRID.place_weights(np.random.default_rng(1).normal(size=12))


def logistic_gradient(X, y):
    return ClippedSum(GRID, 1.0).total(X, sigmoid(GRID.margins(X, WEIGHTS)) - y)


def logistic_loss(X, y):
    t = GRID.margins(X, WEIGHTS)
    return BoundedSum(1.0).block(softplus(t) - y * t)


def logistic_hessian(X):
    p = sigmoid(GRID.margins(X, WEIGHTS))
    coarse = GRID.coarse
    return SecondMomentSum(coarse, 0.5).total(coarse.place(X), p * (1 - p))


def test_our_sums_are_accepted():
    for rows in (PLACED, sparse.csr_array(PLACED), GRID.place(RAW, np.float32)):
        check_row_independence(logistic_gradient, rows, LABELS)
        check_row_independence(logistic_loss, rows, LABELS)
        check_row_independence(logistic_hessian, rows)


def with_batch_mean(X, y):
    residuals = sigmoid(GRID.margins(X, WEIGHTS)) - y
    return ClippedSum(GRID, 1.0).total(X, residuals - (residuals.mean() if len(residuals) else 0.0))


def with_row_count(X, y):
    return logistic_gradient(X, y).values // max(X.shape[0], 1)


def with_positions(X, y):
    residuals = (sigmoid(GRID.margins(X, WEIGHTS)) - y) * np.arange(X.shape[0]) * 1e-3
    return ClippedSum(GRID, 1.0).total(X, residuals)


def with_an_offset(X, y):
    return logistic_gradient(X, y).values + 1


def with_largest_row(X, y):
    total = logistic_gradient(X, y).values
    return total * (X.shape[0] > 0 and bool(np.max(np.abs(X)) > np.max(np.abs(PLACED)) - 1e-12))


@pytest.mark.parametrize("loss", [with_batch_mean, with_row_count, with_positions, with_an_offset, with_largest_row])
def test_a_loss_that_looks_at_other_rows_is_rejected(loss):
    with pytest.raises(RowDependence, match="from that row and public numbers only"):
        check_row_independence(loss, PLACED, LABELS)


def test_a_loss_that_draws_random_numbers_is_rejected():
    generator = np.random.default_rng(2)
    with pytest.raises(RowDependence, match="two results"):
        check_row_independence(lambda x: generator.integers(0, 2**40, 3) + len(x), PLACED)


def test_a_sum_of_floats_is_refused():
    with pytest.raises(InvalidParameter, match="int64"):
        check_row_independence(lambda x: x.sum(axis=0), PLACED)


def test_arrays_that_do_not_match_are_refused():
    for rows in ((), (PLACED, LABELS[:-1]), (PLACED[:1], LABELS[:1])):
        with pytest.raises(InvalidParameter, match="first axis"):
            check_row_independence(logistic_gradient, *rows)
    with pytest.raises(InvalidParameter, match="samples"):
        check_row_independence(logistic_gradient, PLACED, LABELS, samples=0)


def test_two_rows_are_enough():
    check_row_independence(logistic_gradient, PLACED[:2], LABELS[:2])
