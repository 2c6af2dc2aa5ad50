"""DP-AGD spends what it was given, reads like its paper, and finds the optimum when privacy costs nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import rival_tables
from dpdescent import DPLogisticRegression, InvalidParameter, load_dataset
from dpdescent.accounting import loose_zcdp_budget
from dpdescent.curator import Curator
from dpdescent.exact import FeatureGrid
from dpdescent.problems import Hinge, HuberisedHinge, Logistic, Loss, Squared
from dpdescent.solvers import AGDSettings, agd
from rival_tables import optimum


def make_curator(epsilon: float, loss: Loss | None = None, *, seed: int = 0, **options: Any) -> Curator:
    return rival_tables.make_curator(
        epsilon, loss, seed=seed, noise_seed=seed, **{"rows": 3000, "columns": 5} | options
    )


@pytest.mark.parametrize("loss", [Logistic(), HuberisedHinge(), Squared()], ids=str)
@pytest.mark.parametrize(("intercept", "alpha"), [(True, 0.01), (False, 0.0)])
def test_epsilon_to_infinity_recovers_the_optimum(loss: Loss, intercept: bool, alpha: float) -> None:
    curator = make_curator(1e4, loss, intercept=intercept, alpha=alpha)
    result = agd(curator, AGDSettings())
    best, value = optimum(curator)
    assert best - 1e-9 <= value(result.weights) <= 1.01 * best


@pytest.mark.parametrize("currency", ["gdp", "zcdp"])
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 3.0])
def test_the_budget_is_spent_and_never_overspent(currency: str, relation: str, epsilon: float) -> None:
    curator = make_curator(epsilon, currency=currency, relation=relation, rows=500)
    result = agd(curator, AGDSettings(currency=currency))
    ledger = curator.ledger
    assert 0.8 * ledger.budget < ledger.spent <= ledger.budget
    assert ledger.spent_epsilon() <= epsilon
    assert np.isfinite(result.weights).all()
    assert len(result.steps) == result.iterations
    labels = {entry.label for entry in ledger.entries}
    assert labels <= {"mean row norm", "column moments", "gradient", "step size"}


@pytest.mark.parametrize("paper", [True, False])
def test_margins_are_computed_along_directions_and_carried_from_point_to_point(paper: bool, monkeypatch) -> None:
    settings, margins, passes = AGDSettings(paper=paper), FeatureGrid.margins, []
    curator = make_curator(3.0, currency=settings.currency)
    monkeypatch.setattr(FeatureGrid, "margins", lambda *given: passes.append(given[2]) or margins(*given))
    assert len(set(agd(curator, settings).steps)) > 1
    assert len(passes) == 1 + sum(entry.label == "step size" for entry in curator.ledger.entries)


def test_every_iteration_pays_for_its_gradient_and_its_selection() -> None:
    curator = make_curator(1.0)
    result = agd(curator, AGDSettings())
    labels = [entry.label for entry in curator.ledger.entries]
    assert labels[:2] == ["mean row norm", "column moments"]
    assert labels[2:][::2] == ["gradient"] * labels.count("gradient")
    assert labels[2:][1::2] == ["step size"] * labels.count("step size")
    assert result.iterations <= labels.count("step size")


def test_a_failed_direction_is_measured_again_with_half_the_budget_so_far() -> None:
    """When zero wins, the next gradient costs growth times what was spent on this point."""
    curator = make_curator(0.2, rows=600)
    agd(curator, AGDSettings())
    prices = [entry.price for entry in curator.ledger.entries if entry.label == "gradient"]
    allowed = [1.0, *(0.5 * 1.5**failures for failures in range(12))]
    # The last iteration takes what is left, so its prices are scaled.
    distances = [min(abs(price / prices[0] - ratio) for ratio in allowed) for price in prices[:-6]]
    assert max(distances) < 1e-6
    assert any(abs(price / prices[0] - 0.5) < 1e-6 for price in prices[:-6])


def test_the_paper_mode_starts_with_the_published_budgets() -> None:
    curator = make_curator(0.8, currency="zcdp")
    result = agd(curator, AGDSettings(paper=True))
    entries = curator.ledger.entries
    assert {entry.label for entry in entries} == {"gradient", "step size"}
    start = (0.8 / 120) ** 2 / 2
    assert entries[0].price == pytest.approx(start, rel=1e-6)
    assert entries[1].price == pytest.approx(start, rel=1e-6)
    assert entries[1].cost.kind == "report-noisy-max"
    assert all(0 < step <= 2.0 * 1.1**20 for step in result.steps)
    allowed = loose_zcdp_budget(0.8, curator.ledger.delta)
    assert 0.9 * allowed < curator.ledger.spent <= allowed < curator.ledger.budget


def test_paper_mode_learns() -> None:
    data = load_dataset("synthetic", n=8000)
    model = DPLogisticRegression(
        1.6, 1e-6, bounds=(0, 1), method="agd", classes=(0, 1), random_state=0, solver_options={"paper": True}
    ).fit(data.X, data.y)
    assert model.score(data.X, data.y) > 0.78
    assert model.privacy_["currency"] == {"name": "zcdp"}


def test_a_batch_rate_reaches_the_curator_through_the_estimator() -> None:
    data = load_dataset("synthetic", n=8000)
    whole, half = (
        DPLogisticRegression(
            2.0,
            1e-6,
            bounds=(0, 1),
            method="agd",
            classes=(0, 1),
            random_state=0,
            solver_options={"batch_rate": rate},
        ).fit(data.X, data.y)
        for rate in (1.0, 0.5)
    )
    assert half.score(data.X, data.y) > 0.77
    assert not np.array_equal(half.coef_, whole.coef_)


@pytest.mark.parametrize("selection", ["exponential-mechanism", "laplace", "exponential"])
def test_every_selection_works(selection: str) -> None:
    curator = make_curator(2.0)
    result = agd(curator, AGDSettings(selection=selection))  # type: ignore[arg-type]
    best, value = optimum(curator)
    assert value(result.weights) < 0.5 * best + 0.5 * math.log(2)


def test_batches_cost_the_same_and_learn() -> None:
    curator = make_curator(8.0, batch_rate=0.5)
    result = agd(curator, AGDSettings())
    best, value = optimum(curator)
    assert value(result.weights) < 0.5 * best + 0.5 * math.log(2)
    assert all(entry.cost.kind in ("gaussian", "exponential-mechanism") for entry in curator.ledger.entries)


def test_hinge_learns() -> None:
    curator = make_curator(4.0, Hinge())
    _, value = optimum(make_curator(4.0, HuberisedHinge()))
    assert value(agd(curator, AGDSettings()).weights) < 0.9


def test_accuracy_does_not_fall_when_epsilon_rises() -> None:
    """Mean training loss over 3 seeds, three budgets a factor 8 apart: each at most the one before it."""
    means = []
    for epsilon in (0.05, 0.4, 3.2):
        losses = []
        for seed in range(3):
            curator = make_curator(epsilon, seed=seed, rows=1000)
            _, value = optimum(curator)
            losses.append(value(agd(curator, AGDSettings()).weights))
        means.append(np.mean(losses))
    assert means == sorted(means, reverse=True)


@pytest.mark.parametrize(
    "options",
    [
        {"splits": 0.0},
        {"splits": -3.0},
        {"growth": math.nan},
        {"clip_gradient": -1.0},
        {"clip_loss": 0.0},
        {"candidates": 1},
        {"share_selection": 1.0},
        {"memory": 1.0},
        {"window": 0},
        {"max_step": math.inf},
        {"batch_rate": 0.0},
        {"batch_rate": 1.5},
        {"currency": "rdp"},
        {"paper": True, "memory": 0.5},
    ],
)
def test_bad_settings_are_refused_by_name(options: dict[str, float]) -> None:
    with pytest.raises(InvalidParameter):
        AGDSettings(**options)  # type: ignore[arg-type]


_RANGES = {
    "splits": (1e-9, 1e9),
    "growth": (1e-9, 1e9),
    "clip_gradient": (1e-30, 1e30),
    "clip_loss": (1e-30, 1e30),
    "max_step": (1e-30, 1e30),
    "stretch": (1e-9, 1e9),
}


@pytest.mark.parametrize("name", _RANGES)
@pytest.mark.parametrize("end", [0, 1])
def test_a_setting_beyond_its_range_is_refused_by_name_and_a_run_at_its_end_ends(name: str, end: int) -> None:
    value = _RANGES[name][end]
    with pytest.raises(InvalidParameter, match=f"^{name} must lie in "):
        AGDSettings(**{name: value * (4.0 if end else 0.25)})  # type: ignore[arg-type]
    if (name, end) == ("splits", 1):  # which asks for a billion iterations
        return
    curator = make_curator(1.0, rows=40, columns=2)
    agd(curator, AGDSettings(**{"splits": 6.0, "max_step": 1.0, "window": 1} | {name: value}))  # type: ignore[arg-type]
    assert curator.ledger.entries
