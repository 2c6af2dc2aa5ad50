"""A selection stays within one budget: every row pays in one part, before it is used; wrong input pays nothing."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.stats import chi2, norm

from dpdescent import (
    BudgetExhausted,
    DPLinearRegression,
    DPLogisticRegression,
    DPPoissonRegressor,
    InvalidParameter,
    Ledger,
    PrivacyStatement,
    select,
)
from dpdescent.accounting import ExponentialMechanism, Gaussian
from dpdescent.choosing import choice
from dpdescent.choosing.plan import UNIT, held_out, scores_of, stopping_plan, total_losses
from dpdescent.curator import LatticeNoise
from dpdescent.errors import DPDescentError, MissingValue, UnknownLabel, UnsupportedCost, UnsupportedSource
from dpdescent.exact import LatticeSum
from dpdescent.problems import Adversary
from dpdescent.relations import Norm, Relation, Sensitivity
from dpdescent.statement.meaning import warnings_of
from dpdescent.tables import MappedArrays

DELTA = 1e-6
STRATEGIES = ("compare-all", "random-stopping")
RELATIONS = ("zero-out", "replace-one")


def table(rows: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.random((rows, 2))
    return X, (X[:, 0] + 0.1 * generator.normal(size=rows) > 0.5).astype(int)


def ridges(*alphas: float, **options: Any) -> list[DPLogisticRegression]:
    given = {"classes": (0, 1), "bounds": (0, 1), "method": "outpert"} | options
    return [DPLogisticRegression(alpha=alpha, **given) for alpha in alphas]


def chosen(strategy: str = "auto", epsilon: float = 2.0, **options: Any) -> Any:
    X, y = table()
    given = {"epsilon": epsilon, "delta": DELTA, "strategy": strategy, "random_state": 0} | options
    return select(ridges(0.01, 0.1, 1.0), X, y, **given)


# The budget ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_statement_covers_the_whole_selection(strategy: str, relation: str) -> None:
    found = chosen(strategy, adjacency=relation)
    stated = PrivacyStatement.from_dict(json.loads(json.dumps(found.privacy_)))
    assert (stated.epsilon, stated.delta, stated.relation) == (2.0, DELTA, relation)
    assert 0.99 * stated.budget < stated.spent <= stated.budget
    assert found.model.privacy_ is found.privacy_
    assert found.strategy == strategy
    assert found.model.ledger is None
    assert strategy in stated.method
    assert any("320 rows, chosen on 80 others" in each for each in stated.remarks)
    assert any("400" in each for each in stated.assumed_public)
    parts = {each.rows for each in stated.charges}
    assert parts == ({"training part", "hold-out part"} if strategy == "compare-all" else {"all"})
    assert (found.loss is None) == (strategy == "compare-all")
    assert any("noisy mean loss" in each for each in stated.released) == (strategy == "random-stopping")


@pytest.mark.parametrize("currency", ["gdp", "zcdp"])
def test_an_account_pays_what_the_dearer_part_has_spent(currency: str) -> None:
    account = Ledger(5.0, DELTA, currency=currency)
    found = chosen("auto", ledger=account)
    stated = PrivacyStatement.from_dict(found.privacy_)
    assert found.strategy == "compare-all"
    assert account.spent == stated.spent
    assert stated.account == account.identity
    shares = {
        rows: sum(stated.share(c) for c in stated.charges if c.rows == rows)
        for rows in ("training part", "hold-out part")
    }
    assert 0.99 * shares["training part"] < shares["hold-out part"] <= shares["training part"] <= 1


def test_an_account_of_pairs_pays_for_random_stopping_before_the_rows_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    account = Ledger(5.0, 1e-5, currency="approximate")
    fitted = choice._Task.fitted

    def checked(self: Any, *arguments: Any) -> Any:
        assert account.spent == stopping_plan(2.0, DELTA, 3).cost.pure()
        return fitted(self, *arguments)

    monkeypatch.setattr(choice._Task, "fitted", checked)
    assert chosen("auto", ledger=account).strategy == "random-stopping"
    assert len(account.entries) == 1


def test_a_refusal_leaves_the_account_as_it_was() -> None:
    X, y = table()
    poor = Ledger(1.0, DELTA, currency="gdp")
    with pytest.raises(BudgetExhausted):
        chosen(ledger=poor)
    pairs = Ledger(1.0, DELTA, currency="approximate")
    with pytest.raises(BudgetExhausted):
        chosen(ledger=pairs)
    hole, unknown = X.copy(), y.copy()
    hole[3, 1], unknown[5] = np.nan, 7
    broken: list[tuple[type[Exception], tuple[Any, ...], float]] = [
        (MissingValue, (ridges(0.1, 1.0), hole, y), 0.2),
        (UnknownLabel, (ridges(0.1, 1.0), X, unknown), 0.2),
        (InvalidParameter, (ridges(0.1, -1.0), X, y), 0.2),
        (UnsupportedCost, (ridges(0.1, 1.0, method="objpert"), X, y), 0.2),
        (InvalidParameter, (ridges(0.1, 1.0), X, y), 1e-9),
        (InvalidParameter, (ridges(0.1, 1.0, bounds=None, adversary=Adversary(0.1)), X, y), 0.2),
    ]
    for account in (Ledger(9.0, 1e-3, currency="gdp"), Ledger(9.0, 1e-3, currency="approximate")):
        for error, given, holdout in broken:
            with pytest.raises(error):
                select(*given, epsilon=1.0, delta=DELTA, holdout=holdout, ledger=account)
        assert account.history == ()
    assert poor.history == pairs.history == ()


@pytest.mark.parametrize(
    ("candidates", "options", "message"),
    [
        (ridges(0.1), {}, "two candidates"),
        ([object(), object()], {}, "object is none"),
        (ridges(0.1, 1.0, random_state=0), {}, "shared by all of its fits"),
        (ridges(0.1, 1.0, ledger=Ledger(1.0, DELTA)), {}, "shared by all of its fits"),
        (ridges(0.1, 1.0, classes=None), {}, "nobody pays"),
        (ridges(0.1, 1.0, unit="person"), {}, "in both parts"),
        (ridges(0.1, 1.0, rows_per_unit=2), {}, "in both parts"),
        (ridges(0.1, 1.0), {"ledger": Ledger(9.0, DELTA, currency="gdp", unit="one person")}, "protects one person"),
        (ridges(0.1) + ridges(0.1, classes=(0, 1, 2)), {}, "same classes"),
        ([*ridges(0.1), DPLinearRegression()], {}, "differ in kind"),
        ([DPLinearRegression(target_bounds=b) for b in ((0, 1), (0, 2))], {}, "same target_bounds"),
        (ridges(0.1, 1.0, method="nonprivate"), {}, "not private"),
        (ridges(0.1, 1.0), {"strategy": "guess"}, "unknown strategy"),
        (ridges(0.1, 1.0), {"epsilon": 0.0}, "epsilon"),
        (ridges(0.1, 1.0), {"delta": 0.0}, "delta"),
        (ridges(0.1, 1.0), {"adjacency": "other"}, "relation"),
        (ridges(0.1, 1.0), {"holdout": 1.0}, "leaves a part empty"),
        (ridges(0.1, 1.0), {"holdout": float("nan")}, "holdout must be"),
        (ridges(0.1, 1.0), {"ledger": "file"}, "Ledger.open"),
        (
            ridges(0.1, 1.0),
            {"ledger": Ledger(9.0, DELTA, relation="replace-one", currency="gdp")},
            "keeps the relation",
        ),
        (ridges(0.1, 1.0), {"ledger": Ledger(9.0, DELTA, currency="rdp")}, "cannot pay for a selection"),
        (
            ridges(0.1, 1.0),
            {"ledger": Ledger(9.0, DELTA, currency="gdp"), "strategy": "random-stopping"},
            "pays for 'compare-all' only",
        ),
    ],
)
def test_wrong_input_is_named(candidates: Any, options: dict[str, Any], message: str) -> None:
    X, y = table()
    with pytest.raises(DPDescentError, match=message):
        select(candidates, X, y, **{"epsilon": 1.0, "delta": DELTA} | options)


# The two parts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_row_both_trains_and_scores(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table()
    trained, scored = set(), set()
    fit, losses = DPLogisticRegression.fit, choice.total_losses

    def noted(self: Any, rows: Any, labels: Any) -> Any:
        result = fit(self, rows, labels)
        trained.update(map(tuple, rows.tolist()))  # refused fits do not come here
        return result

    def scoring(models: Any, rows: Any, labels: Any) -> Any:
        scored.update(map(tuple, rows.tolist()))
        return losses(models, rows, labels)

    monkeypatch.setattr(DPLogisticRegression, "fit", noted)
    monkeypatch.setattr(choice, "total_losses", scoring)
    select(ridges(0.1, 1.0), X, y, epsilon=2.0, delta=DELTA, strategy=strategy, random_state=0)
    assert len(scored) == 80
    assert len(trained) == 320
    assert not trained & scored


def test_which_rows_are_held_out_does_not_depend_on_them() -> None:
    masks = [held_out(50, 0.2, np.random.default_rng(7)) for _ in range(2)]
    assert (masks[0] == masks[1]).all()
    assert masks[0].sum() == 10
    counts = sum(held_out(50, 0.2, np.random.default_rng(seed)).astype(int) for seed in range(400))
    assert counts.min() > 40, "any position may be held out"


def fitted_models() -> list[Any]:
    """Return two models that never agree."""
    X, y = table(seed=5)
    models = [each.set_params(random_state=0, epsilon=5.0).fit(X, y) for each in ridges(0.01, 0.01)]
    models[1].coef_, models[1].intercept_ = -models[0].coef_, -models[0].intercept_
    return models


@pytest.mark.parametrize("relation", RELATIONS)
def test_one_row_moves_the_losses_by_no_more_than_their_sensitivity_and_by_as_much(relation: str) -> None:
    models, (X, y) = fitted_models(), table(60, seed=9)
    whole, single = total_losses(models, X, y), total_losses(models[:1], X, y)
    generator, spread, largest = np.random.default_rng(0), 0.0, 0.0
    for row in range(60):
        other = X.copy(), y.copy()
        if relation == "replace-one":
            other[0][row], other[1][row] = generator.random(2), generator.integers(0, 2)
        else:
            other = np.delete(X, row, 0), np.delete(y, row)
        moved = (total_losses(models, *other) - whole) * UNIT
        spread = max(spread, float(moved.max() - moved.min()))
        largest = max(largest, abs(float(total_losses(models[:1], *other)[0] - single[0]) * UNIT))
    several, one = (scores_of(count, Gaussian(1.0)).sensitivity for count in (len(models), 1))
    bound = several.under(Relation.parse(relation))
    assert several.norm is Norm.RANGE
    assert bound == (1.0 if relation == "zero-out" else 2.0)
    assert spread == bound, "the bound is attained, and not exceeded"
    assert largest == one.under(Relation.parse(relation)) == 1.0


def test_no_other_row_changes_sides_where_one_is_missing() -> None:
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (400, 24))
    (model,) = [each.set_params(random_state=0, bounds=(-1, 1)) for each in ridges(0.01)[:1]]
    model.fit(X, (X[:, 0] > 0).astype(int))
    for _ in range(20):
        copies = np.tile(generator.uniform(-1, 1, 24), (8, 1))
        model.intercept_ = np.zeros(1)
        every = [*model.decision_function(copies), *model.decision_function(copies[:-1])]
        model.intercept_ = np.array([-min(every)])  # rounding decides on which side of 0 the copies are
        whole, without = (
            total_losses([model], some, np.zeros(len(some)))[0] * UNIT for some in (copies, copies[:-1])
        )
        assert abs(whole - without) <= 1


def test_labels_in_a_column_count_every_row_once() -> None:
    models, (X, y) = fitted_models(), table(60, seed=9)
    whole = total_losses(models, X, y).tolist()
    assert sum(whole) == 60 / UNIT, "the two models never agree"
    for column in (y[:, None], pd.DataFrame({"label": y}), pd.Series(y)[::-1][::-1]):
        assert total_losses(models, X, column).tolist() == whole
    regressor = DPLinearRegression(bounds=(0, 1), target_bounds=(0, 4), random_state=0).fit(X, 4 * X[:, 0])
    squares = [total_losses([regressor], X, labels).tolist() for labels in (X[:, 0], X[:, :1])]
    assert squares[0] == squares[1]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_selection_is_the_same_for_labels_in_a_column(strategy: str) -> None:
    X, y = table()
    options: dict[str, Any] = {"epsilon": 2.0, "delta": DELTA, "strategy": strategy, "random_state": 0}
    plain = select(ridges(0.1, 1.0), X, y, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's own about the column
        column = select(ridges(0.1, 1.0), X, y[:, None], **options)
    assert (column.index, column.loss) == (plain.index, plain.loss)
    np.testing.assert_array_equal(column.model.coef_, plain.model.coef_)


def test_losses_are_errors_or_squares_in_units_of_the_target() -> None:
    X, y = table()
    (model,) = ridges(0.01)
    model.set_params(random_state=0, epsilon=5.0).fit(X, y)
    assert total_losses([model], X, y)[0] * UNIT == np.count_nonzero(model.predict(X) != y)
    target = 4 * X[:, 0]
    for regressor in (DPLinearRegression(target_bounds=(0, 4)), DPPoissonRegressor(target_bounds=(0, 4))):
        regressor.set_params(random_state=0).fit(X, target)
        squares = np.mean((np.clip(regressor.predict(X), 0, 4) - target) ** 2) / 16
        assert total_losses([regressor], X, target)[0] * UNIT / len(X) == pytest.approx(squares, abs=1e-6)
    assert total_losses([regressor], X, np.full(len(X), 1e9))[0] * UNIT <= len(X)


def test_the_choice_is_charged_as_it_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    least = LatticeNoise.least

    def noted(self: Any, scores: Any, cost: Any, relation: Any) -> int:
        seen.append((cost, relation, scores.sensitivity))
        return least(self, scores, cost, relation)

    monkeypatch.setattr(LatticeNoise, "least", noted)
    for relation in RELATIONS:
        seen.clear()
        stated = PrivacyStatement.from_dict(chosen("compare-all", adjacency=relation).privacy_)
        cost, drawn, sensitivity = seen[-1]
        (charge,) = (each for each in stated.charges if each.rows == "hold-out part")
        assert isinstance(cost, ExponentialMechanism)
        assert charge.mechanism == cost
        assert str(drawn) == relation
        assert sensitivity == Sensitivity.of_scores(1.0)
        assert cost.mu_squared() <= stated.spent


# Random stopping -----------------------------------------------------------------------------------------------


def test_every_run_has_its_own_noise_and_keeps_to_the_mu_that_was_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[float, int | None]] = []
    noises: list[Gaussian] = []
    fitted, gaussian = choice._Task.fitted, LatticeNoise.gaussian

    def noted(self: Any, candidate: Any, epsilon: float, delta: float, account: Ledger) -> Any:
        model = fitted(self, candidate, epsilon, delta, account)
        runs.append((account.spent, model.random_state))
        return model

    def noising(self: Any, total: LatticeSum, cost: Gaussian, relation: Relation) -> Any:
        if total.sensitivity == Sensitivity.of_bounded_sum(1.0, Norm.L2) and total.unit == UNIT:
            noises.append(cost)
        return gaussian(self, total, cost, relation)

    monkeypatch.setattr(choice._Task, "fitted", noted)
    monkeypatch.setattr(LatticeNoise, "gaussian", noising)
    chosen("random-stopping")
    mu_squared = stopping_plan(2.0, DELTA, 3).cost.mu ** 2
    assert len(runs) > 1
    assert all(0 < spent <= mu_squared for spent, _ in runs)
    assert len({seed for _, seed in runs}) == len(runs)
    assert len(noises) >= len(runs)
    assert all(0.99 * mu_squared < cost.mu_squared() <= mu_squared for cost in noises[-len(runs) :])


def test_nothing_shows_how_many_runs_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = table()
    shown: list[float] = []
    fitted = choice._Task.fitted

    def warning(self: Any, *given: Any) -> Any:
        warnings.warn("this fit is hard", RuntimeWarning, stacklevel=2)
        return fitted(self, *given)

    monkeypatch.setattr(choice._Task, "fitted", warning)
    candidates = ridges(0.1, 1.0, progress=shown.append, method="auto")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        select(candidates, X, y, epsilon=2.0, delta=DELTA, strategy="random-stopping", random_state=0)
    assert shown == []
    assert heard == []


def test_the_best_is_kept_by_the_law_of_random_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three candidates with fixed losses, 250 selections. Chi-squared; a false alarm has probability 1e-6."""
    plan = stopping_plan(2.0, DELTA, 3)
    sigma = 1 / plan.cost.mu
    losses = np.array([30.0, 30.0 + sigma, 30.0 + 2.5 * sigma])
    candidates, (X, y) = ridges(0.1, 1.0, 2.0), table(200)
    inner = chosen("compare-all").model.privacy_

    class Fake:
        def __init__(self, index: int) -> None:
            self.index, self.privacy_ = index, inner

        def set_params(self, **_: Any) -> None:
            pass

    monkeypatch.setattr(choice._Task, "require_fits", lambda *_: None)
    monkeypatch.setattr(choice._Task, "fitted", lambda self, candidate, *_: Fake(self.candidates.index(candidate)))

    def fixed(_: Any, models: Any) -> np.ndarray:
        return np.array([round(losses[models[0].index] / UNIT)], dtype=np.int64)

    monkeypatch.setattr(choice._Task, "losses", fixed)
    monkeypatch.setattr(choice.PrivacyStatement, "from_dict", classmethod(lambda cls, _: cls(**FACTS)))
    draws = 250
    counts = np.bincount(
        [
            select(candidates, X, y, epsilon=2.0, delta=DELTA, strategy="random-stopping", random_state=seed).index
            for seed in range(draws)
        ],
        minlength=3,
    )
    y_grid = np.linspace(losses.min() - 9 * sigma, losses.max() + 9 * sigma, 20_001)
    tails = plan.cost.tails
    smaller_is_better = np.mean([norm.sf(y_grid, each, sigma) for each in losses], axis=0)  # as good at most
    slope = 2 * (1 - tails) * (1 - (1 - tails) * smaller_is_better) ** -3 / (tails**-2 - 1)
    law = np.array([np.sum(slope * norm.pdf(y_grid, each, sigma)) for each in losses]) * (y_grid[1] - y_grid[0]) / 3
    assert law.sum() == pytest.approx(1, abs=1e-6)
    distance = float(np.sum((counts - draws * law) ** 2 / (draws * law)))
    assert distance < chi2.isf(1e-6, 2)
    wrong = np.array([1.0, 1.0, 1.0]) / 3
    assert float(np.sum((counts - draws * wrong) ** 2 / (draws * wrong))) > 3 * chi2.isf(1e-6, 2)


FACTS: dict[str, Any] = {
    "epsilon": 2.0,
    "delta": DELTA,
    "relation": "zero-out",
    "currency": Ledger(2.0, DELTA, currency="gdp").currency,
    "charges": (),
    "model": "m",
    "method": "m",
    "randomness": "seeded",
    "arithmetic": "exact",
}


# What people see -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_better_candidate_is_found_where_the_difference_is_plain(strategy: str) -> None:
    X, y = table(1500)
    candidates = ridges(50.0, 0.001)
    found = select(candidates, X, y, epsilon=8.0, delta=DELTA, strategy=strategy, random_state=1)
    assert found.index == 1
    assert found.model.alpha == 0.001
    assert found.model.score(X, y) > 0.85
    assert candidates[1].epsilon == 1.0, "candidates stay as they were given"
    assert not hasattr(candidates[1], "coef_")
    if found.loss is not None:
        assert found.loss == pytest.approx(1 - found.model.score(X, y), abs=0.06)


def test_frames_and_sparse_tables_and_regressors_can_be_selected_among() -> None:
    X, y = table()
    frame = pd.DataFrame(X, columns=["a", "b"])
    options: dict[str, Any] = {"epsilon": 3.0, "delta": DELTA, "random_state": 0}
    plain = select(ridges(0.1, 1.0), X, y, **options)
    named = select(ridges(0.1, 1.0), frame, pd.Series(y), **options)
    np.testing.assert_array_equal(plain.model.coef_, named.model.coef_)
    assert named.model.feature_names_in_.tolist() == ["a", "b"]
    for kind in (sparse.csr_array, sparse.coo_array):
        thin = select(ridges(0.1, 1.0), kind(X), y.tolist(), **options)
        np.testing.assert_allclose(thin.model.coef_, plain.model.coef_)
    regressors = [DPLinearRegression(alpha=alpha, bounds=(0, 1), target_bounds=(0, 4)) for alpha in (0.0, 50.0)]
    assert select(regressors, X, 4 * X[:, 0], **options | {"epsilon": 20.0}).index == 0


def test_cells_of_a_mapped_table_are_checked_before_the_charge_and_streams_are_refused(tmp_path: Path) -> None:
    X, y = table()
    mapped = np.memmap(tmp_path / "rows", dtype=np.float64, mode="w+", shape=X.shape)
    mapped[:] = X
    options: dict[str, Any] = {"epsilon": 2.0, "delta": DELTA, "random_state": 0}
    plain, same = (select(ridges(0.1, 1.0, method="auto"), each, y, **options) for each in (X, mapped))
    np.testing.assert_array_equal(plain.model.coef_, same.model.coef_)
    mapped[3, 1] = np.nan
    account = Ledger(9.0, 1e-3, currency="approximate")
    with pytest.raises(MissingValue):
        select(ridges(0.1, 1.0, method="auto"), mapped, y, **options, ledger=account)
    with pytest.raises(UnsupportedSource, match="pass arrays"):
        select(ridges(0.1, 1.0, method="auto"), MappedArrays(X, y), None, **options, ledger=account)
    assert account.history == ()


def test_a_selection_without_a_seed_differs_and_says_where_its_noise_comes_from() -> None:
    first, second = (chosen("compare-all", random_state=None) for _ in range(2))
    assert first.privacy_["randomness"] == "operating system generator"
    assert not np.array_equal(first.model.coef_, second.model.coef_)
    assert chosen("compare-all").privacy_["randomness"] == "seeded (not for release)"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_noise_in_floating_point_in_any_candidate_is_stated(strategy: str) -> None:
    X, y = table()
    options: dict[str, Any] = {"epsilon": 3.0, "delta": DELTA, "strategy": strategy}
    for candidates in (ridges(0.1) + ridges(1.0, noise="float"), ridges(1.0, noise="float") + ridges(0.1)):
        stated = PrivacyStatement.from_dict(select(candidates, X, y, **options).privacy_)
        assert stated.randomness.startswith("floating point")
        assert "real numbers only" in stated.arithmetic
        assert any("floating point" in each for each in warnings_of(stated))
    exact = PrivacyStatement.from_dict(select(ridges(0.1, 1.0), X, y, **options).privacy_)
    assert exact.arithmetic.startswith("exact")
    assert warnings_of(exact) == []
