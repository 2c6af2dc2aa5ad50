"""Tables that cannot be read are refused by name, and no message, warning or context shows a cell."""

from __future__ import annotations

import traceback
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from dpdescent import DPLinearRegression, DPLinearSVC, DPLogisticRegression, InvalidParameter, Ledger
from dpdescent.errors import ColumnTypeError, UnknownLabel

MARKER = "alice@secret"
X = np.random.default_rng(0).random((60, 3))
Y = np.arange(60) % 2


def marked(value: Any = MARKER) -> np.ndarray:
    cells = X.astype(object)
    cells[7, 1] = value
    return cells


def labels(value: Any, dtype: Any = object) -> np.ndarray:
    changed = Y.astype(dtype)
    changed[3] = value
    return changed


def everything_shown(problem: BaseException) -> str:
    """Return a traceback with all contexts, suppressed or not."""
    shown, seen = "", problem
    while seen is not None:
        shown += "".join(traceback.format_exception_only(seen)) + repr(seen)
        seen = seen.__cause__ or seen.__context__
    return shown + "".join(traceback.format_exception(problem))


TABLES = [
    (marked(), Y, ColumnTypeError, "column 1"),
    (marked().tolist(), Y, ColumnTypeError, "column 1"),
    (marked().astype(str), Y, ColumnTypeError, "column 1"),
    (marked({"name": MARKER}), Y, ColumnTypeError, "column 1"),
    (marked([MARKER]), Y, ColumnTypeError, "column 1"),
    (marked(pd.Timestamp("2019-03-14")), Y, ColumnTypeError, "column 1"),
    (pd.DataFrame(marked(), columns=["age", "mail", "job"]), Y, InvalidParameter, "effective rows"),
    (pd.DataFrame(marked(), columns=["age", "mail", "job"]).astype("string"), Y, InvalidParameter, "effective"),
    (
        pd.DataFrame({"age": pd.array([1, None] * 30, "Int64"), "mail": [MARKER] * 60}),
        Y,
        InvalidParameter,
        "effective",
    ),
    (X[:, 0] + 0.123456789, Y, InvalidParameter, "Reshape your data"),
    (np.array(0.123456789), Y, InvalidParameter, "Expected 2D array|at least 1 dimension|table of numbers"),
    (X + 0.123456789j, Y, ColumnTypeError, "Complex data not supported"),
    ([[1.0, 2.0], [MARKER]] * 30, Y, InvalidParameter, "table of numbers"),
    (X[:0], Y[:0], InvalidParameter, "0 sample"),
    (X[:50], Y, InvalidParameter, "inconsistent"),
    (X, None, InvalidParameter, "requires y"),
    (X, labels(1 + 0.123456789j, complex), ColumnTypeError, "Complex data not supported"),
]


@pytest.mark.parametrize(("table", "y", "error", "message"), TABLES)
@pytest.mark.parametrize("model", [DPLogisticRegression(classes=(0, 1)), DPLinearRegression()], ids=str)
def test_a_table_that_cannot_be_read_is_refused_by_its_column_and_shows_no_cell(
    model: Any, table: Any, y: Any, error: type[Exception], message: str
) -> None:
    account = Ledger(5.0, 1e-6, currency="gdp")
    with pytest.raises(error, match=message) as caught:
        model.set_params(ledger=account).fit(table, y)
    assert account.entries == ()
    assert MARKER not in everything_shown(caught.value)
    assert "0.1234" not in everything_shown(caught.value)
    assert "2019" not in everything_shown(caught.value)


@pytest.mark.parametrize("model", [DPLogisticRegression(classes=(0, 1)), DPLinearRegression()], ids=str)
@pytest.mark.parametrize("table", [marked(), pd.DataFrame(marked()), X[0], X + 1j])
def test_predictions_refuse_what_cannot_be_read_without_showing_a_cell(model: Any, table: Any) -> None:
    fitted = model.set_params(ledger=None, random_state=0).fit(X, Y)
    with pytest.raises(InvalidParameter) as caught:
        fitted.predict(table)
    assert MARKER not in everything_shown(caught.value)
    assert f"{X[0, 0]:.4f}"[:6] not in everything_shown(caught.value)


@pytest.mark.parametrize("y", [labels(MARKER), labels(MARKER, str), labels({"name": MARKER})], ids=type)
def test_targets_that_are_no_numbers_are_refused_without_showing_one(y: Any) -> None:
    with pytest.raises(ColumnTypeError, match="y cannot be converted") as caught:
        DPLinearRegression().fit(X, y)
    assert MARKER not in everything_shown(caught.value)


@pytest.mark.parametrize(
    ("classes", "y"),
    [
        ((0, 1), labels(MARKER)),
        ((0, 1), labels(MARKER, str)),
        ((0, 1), labels(7, int)),
        ((0, 1), labels(0.123456789, float)),
        (("0", "1"), labels(MARKER, "U20")),
        (("0", "1"), Y),
        ((0, 1), Y.astype(str)),
        ((0, 1), labels((MARKER,))),
        ((0.5, 1.0, 2.0), labels(0.123456789, float)),
    ],
)
def test_a_label_outside_the_classes_is_refused_without_showing_it(classes: Any, y: Any) -> None:
    account = Ledger(5.0, 1e-6, currency="gdp")
    with pytest.raises(UnknownLabel, match="outside the") as caught:
        DPLogisticRegression(classes=classes, ledger=account).fit(X, y)
    assert account.entries == ()
    assert MARKER not in everything_shown(caught.value)
    assert "0.1234" not in everything_shown(caught.value)


@pytest.mark.parametrize("family", [DPLogisticRegression, DPLinearSVC])
def test_with_public_classes_no_row_decides_what_is_refused_or_warned_of(family: Any) -> None:
    """Fractional classes, and as many labels as rows, are what scikit-learn refuses and warns of by looking at y."""
    classes = (0.5, 1.0) if family is DPLinearSVC else (0.5, 1.0, 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for y in (np.full(60, 1.0), np.where(Y == 0, 0.5, 1.0), np.where(np.arange(60) == 9, 0.5, 1.0)):
            model = family(classes=classes, random_state=0).fit(X, y)
            np.testing.assert_array_equal(model.classes_, classes)
        many = tuple(range(40))
        if family is DPLogisticRegression:
            assert DPLogisticRegression(classes=many, random_state=0).fit(X[:40], np.arange(40)).classes_.size == 40


def test_numbers_in_any_storage_are_read_alike() -> None:
    reference = DPLogisticRegression(classes=(0, 1), random_state=0).fit(X, Y).coef_
    for table in (X.astype(object), X.astype(str).astype(object), X.tolist(), pd.DataFrame(X), sparse.coo_array(X)):
        if isinstance(table, pd.DataFrame):
            table.columns = ["a", "b", "c"]
        model = DPLogisticRegression(classes=(0, 1), random_state=0).fit(table, Y)
        np.testing.assert_array_equal(model.coef_, reference)
