"""Every public argument is in the statement by name, with where it came from."""

from __future__ import annotations

import json
import warnings
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from dpdescent import (
    Adversary,
    DPAdditiveClassifier,
    DPAdditiveRegressor,
    DPHuberRegressor,
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPPoissonRegressor,
    PrivacyStatement,
    select,
)
from dpdescent.cli.commands import app
from dpdescent.errors import StatementError
from dpdescent.estimators.arguments import given_arguments
from dpdescent.statement import Origin, exceptions_noted, headline, moved, name_of, text_of

ORIGINS = tuple(f" ({each})" for each in Origin)
CLASSIFIERS = (DPLogisticRegression, DPLinearSVC, DPAdditiveClassifier)
REGRESSORS = (DPLinearRegression, DPHuberRegressor, DPPoissonRegressor, DPAdditiveRegressor)
#: What a statement says in other places than among the assumptions.
ELSEWHERE = {"epsilon", "delta", "adjacency", "method", "random_state", "ledger", "progress", "noise"}


def rows(count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).uniform(0, 1, (count, 2))
    return X, (X[:, 0] > X[:, 1]).astype(int)


def facts(model: Any, **options: Any) -> dict[str, list[str]]:
    """Fit a model, and return the origins of each of its public facts; all of them are well-formed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = model.fit(*rows(), **options).privacy_["assumed_public"]
    assert all(each.endswith(ORIGINS) for each in said)
    found: dict[str, list[str]] = {}
    for each in said:
        found.setdefault(name_of(each), []).append(each.rpartition(" (")[2].rstrip(")"))
    assert PrivacyStatement.from_dict(model.privacy_).to_dict()["private"] == model.privacy_["private"]
    return found


@pytest.mark.parametrize("kind", [*CLASSIFIERS, *REGRESSORS])
def test_no_argument_can_be_given_that_is_not_named(kind: Any) -> None:
    """Whatever is added to an estimator: what the caller has changed is listed."""
    everything = kind(**{each.name: object() for each in fields(kind)})
    named = [name_of(each) for each in given_arguments(everything, [])]
    assert set(named) == {each.name for each in fields(kind)} - ELSEWHERE
    assert len(named) == len(set(named))
    assert given_arguments(kind(), []) == []
    assert given_arguments(kind(alpha=0.0), ["alpha: told (argument)"]) == ["alpha: told (argument)"]


PUBLIC = {"bounds": (0, 1), "classes": (0, 1)}
BY_RELATION = {"the number of rows": ["public by the relation"]}
GIVEN = ["argument"]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (DPLogisticRegression(**PUBLIC), {"bounds": ["argument", "measured"], "classes": GIVEN}),
        (DPLogisticRegression(0.5, **PUBLIC), {"bounds": GIVEN, "classes": GIVEN}),
        (
            DPLogisticRegression(alpha=0.1, class_weight={1: 2.0}, binary_features=[], fit_intercept=False, **PUBLIC),
            dict.fromkeys(("bounds", "classes", "alpha", "class_weight", "binary_features", "fit_intercept"), GIVEN),
        ),
        (
            DPLogisticRegression(class_weight="balanced"),
            {"bounds": ["measured"], "classes": ["read from the rows"], "class_weight": ["measured"]},
        ),
        (
            DPLogisticRegression(bounds=([0, np.nan], [1, np.nan]), classes=(0, 1), method="agd"),
            {"bounds": ["argument", "measured"], "classes": GIVEN},
        ),
        (
            DPLogisticRegression(bounds=(-50, 50), tighten=True, classes=(0, 1)),
            {"bounds": ["argument", "measured"], "classes": GIVEN, "tighten": GIVEN},
        ),
        (
            DPLogisticRegression(method="outpert", alpha=0.1, adversary=Adversary(0.1), **PUBLIC),
            dict.fromkeys(("bounds", "classes", "alpha", "adversary"), GIVEN),
        ),
        (
            DPLogisticRegression(method="agd", solver_options={"splits": 4.0}, **PUBLIC),
            dict.fromkeys(("bounds", "classes", "solver_options"), GIVEN),
        ),
        (
            DPAdditiveClassifier(knots={0: [0.5]}, pieces=2, **PUBLIC),
            dict.fromkeys(("bounds", "classes", "knots", "pieces"), GIVEN),
        ),
        (
            DPHuberRegressor(0.1, bounds=(0, 1), target_bounds=(0, 1), threshold=0.1),
            {"bounds": GIVEN, "target_bounds": ["argument", "measured"], "threshold": GIVEN},
        ),
        (
            DPHuberRegressor(bounds=(0, 1), target_bounds=(0, 1)),
            {name: ["argument", "measured"] for name in ("bounds", "target_bounds")},
        ),
        (DPLinearRegression(0.1, bounds=(0, 1)), {"bounds": GIVEN, "target_bounds": ["measured"]}),
        (
            DPLinearRegression(method="nonprivate"),
            {"bounds": ["read from the rows"], "target_bounds": ["read from the rows"]},
        ),
    ],
    ids=str,
)
def test_a_fit_says_where_every_public_fact_came_from(model: Any, expected: dict[str, list[str]]) -> None:
    assert facts(model) == BY_RELATION | expected


@pytest.mark.parametrize(
    ("options", "origin"),
    [({}, "measured"), ({"rows": 300}, "argument"), ({"method": "sgd-adv"}, "public by the relation")],
)
def test_the_number_of_units_and_what_stands_for_that_of_rows_are_listed(
    options: dict[str, Any], origin: str
) -> None:
    model = DPLogisticRegression(rows_per_unit=2, **PUBLIC | options)
    found = facts(model, unit=pd.Series(np.arange(400) // 3, name="patient"))
    expected = {"the number of units": ["public by the relation"], "rows": [origin], "rows_per_unit": GIVEN}
    assert found == expected | {"bounds": GIVEN, "classes": GIVEN}
    assert ("the number of rows of all units, with noise" in model.privacy_["released"]) == (origin == "measured")


def test_private_is_not_simply_true_where_classes_are_read_from_the_labels() -> None:
    model = DPLogisticRegression(bounds=(0, 1), random_state=0)
    facts(model)
    assert model.privacy_["private"] == "except for classes"
    stated = PrivacyStatement.from_dict(model.privacy_)
    assert headline(stated).endswith("under zero-out, except for classes.")
    assert headline(model.privacy_) == headline(stated) == text_of(stated)[0]
    assert any(line.startswith("! Not paid for: classes") for line in text_of(stated))
    for edited in ({"private": True}, {"private": "except for bounds"}, {"assumed_public": []}):
        with pytest.raises(StatementError, match="contradicts itself"):
            PrivacyStatement.from_dict(model.privacy_ | edited)
    assert replace(stated, assumed_public=()).to_dict()["private"] is True
    given = DPLogisticRegression(bounds=(0, 1), classes=(0, 1), random_state=0).fit(*rows())
    assert given.privacy_["private"] is True
    bare = DPLogisticRegression(method="nonprivate")
    facts(bare)
    assert bare.privacy_["private"] is False


def test_a_selection_lists_what_its_candidates_were_told() -> None:
    candidates = [DPLogisticRegression(alpha=alpha, **PUBLIC) for alpha in (0.1, 10.0)]
    said = select(candidates, *rows(), epsilon=4.0, delta=1e-5, random_state=0).privacy_["assumed_public"]
    assert all(each.endswith(ORIGINS) for each in said)
    names = [name_of(each) for each in said]
    assert names == ["the number of rows", "candidates", "bounds", "classes", "alpha"]


SCHEMA = {
    "columns": {
        "age": {"type": "numeric", "low": 0, "high": 1},
        "job": {"type": "categorical", "levels": ["clerk", "nurse"]},
    },
    "label": {"column": "ill", "classes": [0, 1]},
}


@pytest.mark.parametrize("table", ["visits.csv", "visits.parquet"])
def test_a_schema_file_is_named_as_the_origin_of_what_it_says(tmp_path: Path, table: str) -> None:
    X, y = rows()
    frame = pd.DataFrame({"age": X[:, 0], "job": np.where(X[:, 1] > 0.5, "clerk", "nurse"), "ill": y})
    frame.to_csv(tmp_path / "visits.csv", index=False)
    frame.to_parquet(tmp_path / "visits.parquet")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    words = ["fit", tmp_path / table, "--schema", tmp_path / "schema.json", "--output", tmp_path / "m.json"]
    ran = CliRunner().invoke(app, [str(word) for word in [*words, "--alpha", 0.1]])
    assert ran.exit_code == 0, ran.output
    assert json.loads((tmp_path / "m.json").read_text())["privacy"]["assumed_public"] == [
        "schema: the kinds of 2 columns, and their codes (schema file)",
        "levels: in 1 of 2 columns (schema file)",
        "the number of rows: 400 (public by the relation)",
        "bounds: cells outside are clipped (schema file)",
        "classes: 2 of them (schema file)",
        "binary_features: which columns are 0 or 1 (schema file)",
        "alpha: 0.1 (argument)",
    ]


def test_origins_are_told_by_the_end_of_a_sentence() -> None:
    said = ["a: one (argument)", "b: two (read from the rows)", "c: was read from the rows, somebody said"]
    assert exceptions_noted(True, said) == "except for b"
    assert exceptions_noted(False, said) is False
    assert exceptions_noted(True, said[::2]) is True
    assert moved(said, ["a", "b"], Origin.SCHEMA) == ["a: one (schema file)", *said[1:]]
