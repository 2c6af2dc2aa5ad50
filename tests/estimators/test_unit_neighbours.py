"""Whole fits on neighbours: a unit is removed, or replaced by one with fewer or more rows, and nothing differs.

A fit is recorded with all answers that it paid for, and repeated on a neighbour with the same answers. Everything
that can be seen of the two must be equal, and all exact sums within the sensitivity that they declare.
"""

from __future__ import annotations

import pickle
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpdescent import (
    Adversary,
    DPAdditiveClassifier,
    DPBoostedTreesClassifier,
    DPHuberRegressor,
    DPLinearRegression,
    DPLogisticRegression,
    DPPoissonRegressor,
    PrivacyStatement,
)
from dpdescent.curator import Units
from dpdescent.errors import InvalidParameter
from dpdescent.estimators import fitting
from dpdescent.relations import Relation
from dpdescent.statement import text_of
from method_runs import Recording, Replaying

UNITS, EACH = 40, 3
PUBLIC = {"bounds": (-1, 1), "classes": (0, 1)}


@dataclass(frozen=True)
class Visits:
    """Rows, labels between 0 and 1, and whose row each is."""

    X: np.ndarray
    y: np.ndarray
    person: np.ndarray

    def with_rows(self, rows: int, extreme: float) -> Visits:
        """Return the table in which person 3 has so many rows, all in one corner."""
        kept = self.person != 3
        X = np.concatenate([self.X[kept], np.full((rows, self.X.shape[1]), extreme)])
        y = np.append(self.y[kept], np.full(rows, float(extreme > 0)))
        return Visits(X, y, np.append(self.person[kept], np.full(rows, 3)))


def visits() -> Visits:
    generator = np.random.default_rng(5)
    person = np.repeat(np.arange(UNITS), generator.integers(1, 6, UNITS))
    X = generator.uniform(-1, 1, (person.size, 2))
    y = (X @ [2.0, -1.0] + generator.logistic(size=person.size) > 0).astype(float)
    return Visits(X, y, person)


def logistic(**options: Any) -> DPLogisticRegression:
    return DPLogisticRegression(**{"epsilon": 5.0, "delta": 1e-5, "rows_per_unit": EACH, **PUBLIC} | options)


def regression(kind: Any = DPLinearRegression, **options: Any) -> Any:
    public = {"bounds": (-1, 1), "target_bounds": (0.0, 1.0)}
    return kind(5.0, 1e-5, rows_per_unit=EACH, **public | options)


MODELS = {
    "auto": logistic(),
    "measured bounds": logistic(bounds=None),
    "tightened bounds": logistic(bounds=(-50, 50), tighten=True, method="agd"),
    "balanced": logistic(class_weight="balanced", method="sgd"),
    "declared rows": logistic(rows=100, method="agd"),
    "no intercept": logistic(fit_intercept=False, method="blsgd"),
    "penalty": logistic(alpha=0.5, method="adam"),
    "tree": logistic(method="ftrl"),
    "majority": logistic(method="majority"),
    "no count": logistic(method="sgd-adv"),
    "advice about n": logistic(delta=0.05, method="majority"),
    "minimiser": logistic(method="outpert", alpha=0.5),
    "tilted": logistic(method="outpert", alpha=0.5, tilt=1.0),
    "adversary": logistic(method="outpert", alpha=0.5, adversary=Adversary(0.1)),
    "descent": logistic(method="outpert-gd", alpha=0.5),
    "curves": DPAdditiveClassifier(5.0, 1e-5, rows_per_unit=EACH, **PUBLIC),
    "trees": DPBoostedTreesClassifier(5.0, 1e-5, rows_per_unit=EACH, trees=3, depth=2, **PUBLIC),
    "regression": regression(),
    "measured target": regression(target_bounds=None),
    "mean": regression(method="majority"),
    "huber": regression(DPHuberRegressor, method="agd"),
    "counts": regression(DPPoissonRegressor, method="agd", target_bounds=(0.0, 4.0)),
    "no intercept, regression": regression(fit_intercept=False),
}


def seen(model: Any, table: Visits, noise: Recording, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Fit a model with given noise, and return all that can be seen of it."""
    monkeypatch.setattr(fitting, "make_noise", lambda *_: noise)
    progress: list[float] = []
    fitted = type(model)(**model.get_params() | {"progress": progress.append})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted.fit(table.X, table.y, unit=pd.Series(table.person, name="patient"))
    fitted.progress = False
    return {
        "bytes": pickle.dumps(fitted),
        "statement": fitted.privacy_,
        "text": text_of(PrivacyStatement.from_dict(fitted.privacy_)),
        "progress": progress,
        "warnings": [str(each.message) for each in caught],
        "choices": noise.choices,
    }


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("name", MODELS)
def test_a_fit_on_a_neighbour_that_is_given_the_same_answers_shows_nothing_else(
    name: str, relation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MODELS[name].set_params(adjacency=str(relation))
    table = visits()
    recorded = Recording()
    first = seen(model, table.with_rows(EACH, 1.0), recorded, monkeypatch)
    assert recorded.releases
    if relation == Relation.REPLACE_ONE:
        neighbours = [table.with_rows(1, -1.0), table.with_rows(2 * EACH, -1.0)]
    else:
        neighbours = [table.with_rows(EACH, 1.0)]
        monkeypatch.setattr(Units, "kept", classmethod(without_person_3(Units.kept.__func__)))
    for neighbour in neighbours:
        replaying = Replaying(recorded)
        assert seen(model, neighbour, replaying, monkeypatch) == first
        assert replaying.finished
        assert max(replaying.shares) <= 1


def without_person_3(kept: Any) -> Any:
    """Return `Units.kept` of a table from which all rows of a person are missing; the number of units is public."""

    def fewer(cls: type[Units], identifiers: Any, rows_per_unit: int, rows: int) -> tuple[np.ndarray, Units]:
        places, units = kept(cls, identifiers, rows_per_unit, rows)
        others = np.asarray(identifiers)[places] != 3
        return places[others], Units(units.owners[others], units.count, rows_per_unit)

    return fewer


def test_points_rest_on_a_number_that_no_neighbour_exceeds() -> None:
    units = Units(np.array([0, 0, 1]), 2, 2)
    units.require_places(4, "minimiser")
    with pytest.raises(InvalidParameter, match="rows=4"):
        units.require_places(3, "minimiser")
    with pytest.raises(InvalidParameter, match="2\\^26"):
        Units(np.array([0, 1]), 2, 2**25 + 1)
    assert Units(np.array([0, 1]), 2, 2**25).places == 2**26


@pytest.mark.parametrize("relation", list(Relation))
def test_a_statement_and_the_pages_say_the_same_of_neighbours(relation: Relation) -> None:
    """There is one text of what neighbours are, and it is on the pages that explain them."""
    table = visits()
    fitted = logistic(adjacency=str(relation), method="majority")
    fitted.fit(table.X, table.y, unit=pd.Series(table.person, name="patient"))
    said = relation.neighbours("one patient", EACH)
    assert "fewer or more" in said or relation is Relation.ZERO_OUT
    assert any(said in line for line in text_of(PrivacyStatement.from_dict(fitted.privacy_)))
    for page in ("choosing.md", "threat-model.md"):
        text = (Path(__file__).parents[2] / "docs" / page).read_text()
        assert said in re.sub(r"\s+", " ", text), page


def test_the_number_of_rows_is_bought_where_units_have_several_and_nobody_declares_it() -> None:
    table = visits()
    bought = logistic(random_state=0).fit(table.X, table.y, unit=table.person)
    assert bought.privacy_["asked"]["number of rows"] == 1
    declared = logistic(random_state=0, rows=100).fit(table.X, table.y, unit=table.person)
    alone = logistic(random_state=0).set_params(rows_per_unit=1).fit(table.X, table.y, unit=table.person)
    without = logistic(random_state=0).set_params(rows_per_unit=1).fit(table.X, table.y)
    for fitted in (declared, alone, without):
        assert "number of rows" not in fitted.privacy_["asked"]
