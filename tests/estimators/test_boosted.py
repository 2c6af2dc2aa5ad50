"""Boosted trees: what is charged, what is refused, and what they learn that an additive model cannot."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.metrics import log_loss

from dpdescent import (
    DPAdditiveClassifier,
    DPAdditiveRegressor,
    DPBoostedTreesClassifier,
    DPBoostedTreesRegressor,
    DPPoissonRegressor,
    InvalidParameter,
    Ledger,
    load,
)
from dpdescent.audit import replay
from dpdescent.estimators.binning import Binning, drawn_rows
from dpdescent.estimators.scaling import ColumnScaling
from dpdescent.evaluation.scoring import scorer_of
from dpdescent.problems import Huber, Logistic, Loss, Multinomial, Squared
from dpdescent.queries import (
    BestTree,
    ColumnHistograms,
    ColumnTables,
    LeafScores,
    LeafSums,
    LeafValues,
    Splits,
    leaf_of,
    lengthening,
)
from dpdescent.solvers.leaf_boosting import (
    Forest,
    Grown,
    Growth,
    Step,
    chance_residuals,
    column_chances,
    in_order,
)
from dpdescent.solvers.leaf_contrasts import ColumnSets, acting_together, clear_shares, contrasts, several_columns

PUBLIC = {"bounds": (-1, 1), "random_state": 0}


def crossed(rows: int = 10_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return three columns, and labels that two of them decide together and neither alone."""
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, (rows, 3))
    return X, ((X[:, 0] * X[:, 1] > 0) ^ (generator.random(rows) < 0.1)).astype(int)


def classifier(epsilon: float = 1.0, **options: object) -> DPBoostedTreesClassifier:
    return DPBoostedTreesClassifier(epsilon, 1e-6, **(PUBLIC | {"classes": (0, 1)} | options))


@pytest.fixture(scope="module")
def fitted() -> tuple[DPBoostedTreesClassifier, Ledger]:
    account = Ledger(5.0, 1e-5, currency="gdp")
    return classifier(ledger=account, tighten=False).fit(*crossed()), account


def test_trees_learn_what_two_columns_do_together(fitted) -> None:
    model, _ = fitted
    X, y = crossed(seed=1)
    assert model.score(X, y) > 0.85
    assert DPAdditiveClassifier(1.0, classes=(0, 1), **PUBLIC).fit(*crossed()).score(X, y) < 0.6
    assert next(iter(model.pair_importances_)) == ("x0", "x1")
    assert sum(model.importances_.values()) == pytest.approx(1)
    assert model.feature_importances_.sum() == pytest.approx(1)
    assert model.feature_importances_.argmin() == 2


def test_several_classes_and_numbers_are_learnt_too() -> None:
    X, y = crossed()
    three = np.where(X[:, 2] > 0.5, 2, y)
    model = classifier(3.0, classes=(0, 1, 2), trees=100).fit(X, three)
    additive = DPAdditiveClassifier(3.0, classes=(0, 1, 2), **PUBLIC).fit(X, three)
    assert model.score(X, three) > additive.score(X, three) + 0.15
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    numbers = 5 * X[:, 0] * X[:, 1] + np.random.default_rng(0).normal(0, 0.3, len(X))
    options = {"target_bounds": (-10, 10), **PUBLIC}
    for loss in ("squared", Huber(0.2)):
        regressor = DPBoostedTreesRegressor(1.0, loss=loss, **options).fit(X, numbers)
        assert regressor.score(X, numbers) > 0.6
    assert DPAdditiveRegressor(1.0, **options).fit(X, numbers).score(X, numbers) < 0.1


def counted(rows: int = 8000) -> tuple[np.ndarray, np.ndarray]:
    """Return two columns, and counts whose mean they multiply together."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (rows, 2))
    return X, generator.poisson(np.exp(1 + 1.5 * X[:, 0] * X[:, 1]))


def test_counts_are_learnt_on_the_scale_of_logarithms() -> None:
    X, y = counted()
    options = {"loss": "poisson", "target_bounds": (0, 40), "bounds": (-1, 1), "random_state": 0}
    model = DPBoostedTreesRegressor(3.0, **options).fit(X, y)
    linear = DPPoissonRegressor(3.0, **{name: each for name, each in options.items() if name != "loss"}).fit(X, y)
    assert model.score(X, y) > linear.score(X, y) + 0.1  # of the deviance
    predicted = model.predict(X)
    assert predicted.min() > 0
    assert predicted.mean() == pytest.approx(y.mean(), rel=0.1)
    np.testing.assert_array_equal(model.row_scores(X[3:5]), model.row_scores(X)[3:5])
    with pytest.raises(InvalidParameter, match="must not be negative"):
        DPBoostedTreesRegressor(3.0, **options | {"target_bounds": (-1, 40)}).fit(X, y)


def test_with_few_rows_counts_are_those_of_the_linear_model_and_huber_that_of_its_loss() -> None:
    X, y = counted(1000)
    options = {"target_bounds": (0, 40), "bounds": (-1, 1), "tighten": False, "random_state": 0}
    linear = DPPoissonRegressor(0.3, **options).fit(X, y)
    trees = DPBoostedTreesRegressor(0.3, loss="poisson", pieces=0, **options).fit(X, y)
    assert trees.n_trees_ == 0
    np.testing.assert_array_equal(trees.predict(X), linear.predict(X))
    assert trees.score(X, y) == linear.score(X, y)
    np.testing.assert_allclose(trees.to_sklearn().predict(X), linear.predict(X))
    assert trees.to_sql(columns=["a", "b"]).startswith("EXP")
    assert scorer_of(trees, None, None, False).scale == "count"
    robust, own = (DPBoostedTreesRegressor(0.3, loss=loss, **options).fit(X, y) for loss in ("huber", Huber(0.2)))
    np.testing.assert_array_equal(robust.predict(X), own.predict(X))


def test_effects_and_surfaces_are_means_of_scores_and_their_noise_is_that_of_leaves(tmp_path: Path) -> None:
    X, y = crossed(2000)
    X = np.column_stack([X, np.eye(3)[np.arange(2000) % 3]])
    frame = pd.DataFrame(X, columns=["a", "b", "c", "k=x", "k=<y>", "k=z"])
    options = {"binary_features": ["k=x", "k=<y>", "k=z"], "trees": 12, "depth": 5, "tighten": False}
    model = classifier(4.0, **options).fit(frame, y)
    model.terms_html(tmp_path / "page.html")
    model.save(tmp_path / "model.json")
    load(tmp_path / "model.json").terms_html(tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text() == (tmp_path / "page.html").read_text()
    reading, rows = model._reading(), drawn_rows(model._binning, model._quantiles)

    def mean(levels: dict[int, int]) -> float:
        changed = rows.copy()
        for place, level in levels.items():
            changed[:, place] = level
        return float((model._start.scores(changed) + model._forest.scores(changed)).mean())

    for place in (0, 3):
        term, every = reading.term(place, 1.0), {level: mean({place: level}) for level in set(rows[:, place])}
        middle = np.mean([every[level] for level in rows[:, place]])
        known = {cell: level for level, cell in enumerate(reading.cells[place])}
        for cell, effect in zip(term.grid, term.effect, strict=True):
            assert effect == pytest.approx(mean({place: known[cell]}) - middle, abs=1e-9)
    assert list(reading.term(3, 1.0).grid) == ["none", "x", "<y>", "z"]
    model._forest = Forest(  # noise alone, drawn again and again
        tuple(LeafValues(tree.splits, 0 * tree.values) for tree in model._forest.trees), model._forest.noise, 1.0, 1
    )
    model._noise_factor, generator, found = None, np.random.default_rng(0), []
    for _ in range(300):
        noisy = [
            LeafValues(tree.splits, s[:, None] * generator.normal(size=tree.values.shape))
            for tree, s in zip(model._forest.trees, model._forest.noise, strict=True)
        ]
        drawn = replace(model._reading(), forest=replace(model._forest, trees=tuple(noisy)), start=flat(model._start))
        found.append(np.concatenate([drawn.term(0, 1.0).effect, drawn.surface((0, 3), 1.0).effect.ravel()]))
    stated = model._reading()
    said = np.concatenate([stated.term(0, 1.0).noise, stated.surface((0, 3), 1.0).noise.ravel()])
    np.testing.assert_allclose(np.std(found, axis=0), said, rtol=0.2, atol=1e-12)
    model.terms_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 2 + 4 + len(model.pair_surfaces_)
    assert "&lt;y&gt;" in page
    assert "<y>" not in page


def flat(start: ColumnTables) -> ColumnTables:
    return ColumnTables(start.constant, tuple((column, 0 * table) for column, table in start.tables))


def test_every_answer_about_numbers_is_charged_too(monkeypatch) -> None:
    """A bound of residuals that nobody paid for would show here."""
    asked: list[object] = []
    for kind in (LeafSums, BestTree, ColumnHistograms):
        plain = kind.plan
        monkeypatch.setattr(kind, "plan", lambda self, public, plain=plain: asked.append(self) or plain(self, public))
    X, y = counted(3000)
    options = {"loss": "poisson", "target_bounds": (0, 40), "bounds": (-1, 1), "tighten": False, "random_state": 0}
    spent = DPBoostedTreesRegressor(1.0, 1e-6, trees=5, depth=2, **options).fit(X, y).privacy_["spent_on"]
    names = Counter(type(each).__name__ for each in asked)
    assert names == {"LeafSums": 1 + 5 + 1, "BestTree": 1 + 5, "ColumnHistograms": 2}
    ledger = Ledger(1.0, 1e-6, currency="gdp")
    paid = sum(ledger.currency.price(each.mechanism) for each in asked[2:]) / ledger.budget
    own = spent["leaf sums"] + spent["column histograms"] + spent["choice of a tree"]
    assert paid == pytest.approx(own, rel=1e-6)


def test_every_answer_is_charged_with_its_own_cost_and_all_of_them_are_the_budget(monkeypatch) -> None:
    """A histogram that nobody paid for, or trees that cost less than their noise, would show here."""
    asked: list[object] = []
    for kind in (LeafSums, BestTree, ColumnHistograms):
        plain = kind.plan
        monkeypatch.setattr(kind, "plan", lambda self, public, plain=plain: asked.append(self) or plain(self, public))
    model = classifier(tighten=False, trees=20, depth=3).fit(*crossed())
    spent = model.privacy_["spent_on"]
    kept = 0.3  # of the budget: with so few effective rows the additive part has the rest
    assert spent["leaf sums"] + spent["choice of a tree"] == pytest.approx(0.97 * kept, rel=1e-6)
    assert spent["column histograms"] == pytest.approx(0.03 * kept, rel=1e-6)
    answered = Counter(type(each).__name__ for each in asked)
    assert answered["LeafSums"] == 1 + 20 + 1  # one in the rehearsal, one for each tree and one for the factor
    assert answered["BestTree"] == 1 + 20
    assert answered["ColumnHistograms"] == 1
    assert sum(spent.values()) == pytest.approx(1, abs=1e-6)
    ledger = Ledger(1.0, 1e-6, currency="gdp")
    prices = [ledger.currency.price(each.mechanism) for each in asked[2:]]  # histograms, then two for each tree
    assert sum(prices) == pytest.approx(kept * ledger.budget, rel=1e-6)
    np.testing.assert_allclose(prices[1:41:2], 0.15 * np.array(prices[2:42:2]), rtol=1e-6)


def test_an_account_is_charged_with_what_the_fit_has_spent(fitted) -> None:
    model, account = fitted
    assert account.spent == pytest.approx(model.privacy_["spent"], rel=1e-9)
    assert model.privacy_["spent"] <= model.privacy_["budget"]


def test_trees_start_from_the_scores_of_the_additive_part() -> None:
    X, y = crossed(3000)
    model = classifier(1.0, tighten=False, pieces=16, trees=2, depth=2).fit(X, y)  # curves of noise, which are shrunk
    started = model._start.scores(model._binning.levels(X))[:, 0]
    np.testing.assert_allclose(started, DPAdditiveClassifier.decision_function(model, X), atol=0.2)
    whole = started + model._tree_scores(X)[:, 0] if model.n_trees_ else started
    np.testing.assert_allclose(whole, model.decision_function(X), atol=0.2)


def test_with_few_rows_the_model_is_the_additive_one() -> None:
    X, y = crossed(500)
    model = classifier().fit(X, y)
    assert model.n_trees_ == 0
    additive = DPAdditiveClassifier(1.0, 1e-6, classes=(0, 1), **PUBLIC).fit(X, y)
    np.testing.assert_array_equal(model.decision_function(X), additive.decision_function(X))
    assert sum(model.importances_.values()) == pytest.approx(1)


def test_a_tree_of_noise_does_no_harm() -> None:
    """Labels that depend on one column alone: the factor takes back what trees of noise add."""
    generator = np.random.default_rng(3)
    X = generator.uniform(-1, 1, (8000, 12))
    y = (generator.random(8000) < 1 / (1 + np.exp(-4 * X[:, 0]))).astype(int)
    model = classifier(0.5).fit(X[:4000], y[:4000])
    additive = DPAdditiveClassifier(0.5, 1e-6, classes=(0, 1), **PUBLIC).fit(X[:4000], y[:4000])
    trees, alone = (log_loss(y[4000:], each.predict_proba(X[4000:])) for each in (model, additive))
    assert trees < alone + 0.05


@pytest.mark.parametrize("kind", [DPBoostedTreesClassifier, DPBoostedTreesRegressor])
def test_trees_that_fit_the_chance_of_their_own_rows_are_taken_back(kind: type) -> None:
    """Labels that depend on nothing: what trees explain of the rows that they were grown on is no evidence."""
    generator = np.random.default_rng(5)
    X, y = generator.uniform(-1, 1, (20_000, 12)), generator.normal(0, 1, 20_000).clip(-4, 4)
    labels = {"classes": (False, True)} if kind is DPBoostedTreesClassifier else {"target_bounds": (-4, 4)}
    model = kind(3.0, 1e-6, trees=300, **labels, **PUBLIC).fit(X, y > 0.5 if kind is DPBoostedTreesClassifier else y)
    assert model.n_trees_ == 300  # as many as were asked for
    assert model._forest.factor < 0.1


def test_trees_that_find_nothing_are_given_up_and_the_additive_model_gets_their_budget() -> None:
    """The question after them errs for one table of six.

    With all of the budget both models have the same noise on this table; plans differ, by up to 40% on others.
    """
    generator = np.random.default_rng(3)
    X = generator.uniform(-1, 1, (12_000, 8))
    y = (generator.random(12_000) < 1 / (1 + np.exp(-3 * X[:, 0]))).astype(int)
    model = classifier(1.0).fit(X, y)
    alone = DPAdditiveClassifier(1.0, 1e-6, classes=(0, 1), **PUBLIC).fit(X, y)
    assert model.n_trees_ == 0
    assert model.privacy_["spent"] == pytest.approx(model.privacy_["budget"], rel=1e-6)
    assert model.privacy_["spent_on"]["leaf sums"] < 0.13
    assert np.linalg.norm(model.coef_noise_) == pytest.approx(np.linalg.norm(alone.coef_noise_), rel=0.15)
    assert model.n_iter_ <= alone.n_iter_
    levels = model._binning.levels(X)
    np.testing.assert_allclose(model._start.scores(levels)[:, 0], model.decision_function(X), atol=0.1)


@pytest.mark.parametrize("shares", [{"share_columns": 0.7}, {"share_norm": 0.2, "share_whitening": 0.3}], ids=str)
def test_shares_that_are_allowed_are_never_refused_after_something_was_paid_for(shares: dict[str, float]) -> None:
    """What is set aside for trees may raise the shares of coordinates, but not beyond what settings may be."""
    generator = np.random.default_rng(0)
    X, y = generator.uniform(-1, 1, (150, 3)), np.arange(150) % 2
    model = classifier(200.0, solver_options=shares, random_state=0).fit(X, y)
    assert model.privacy_["spent"] <= model.privacy_["budget"]
    assert model.n_iter_ >= 20


def test_two_columns_that_act_together_among_many_are_found() -> None:
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (30_000, 24))
    y = ((X[:, 0] * X[:, 1] > 0) ^ (generator.random(30_000) < 0.1)).astype(int)
    model = classifier(2.0).fit(X[:20_000], y[:20_000])
    assert model.score(X[20_000:], y[20_000:]) > 0.75
    assert next(iter(model.pair_importances_)) == ("x0", "x1")


@pytest.mark.parametrize("together", [False, True])
def test_what_trees_find_by_chance_is_what_a_matrix_of_their_steps_says(together: bool) -> None:
    generator = np.random.default_rng(0)
    levels = generator.integers(4, size=(30, 3)).astype(np.uint8)
    sides = np.arange(4) > np.array([[0], [1], [2]])
    splits = [Splits((0, 1), sides[:2]), Splits((2,), sides[2:]), Splits((1, 2), sides[1:])]
    deviation, residuals, curvatures = 5.0, generator.normal(size=(30, 2)), generator.uniform(0.1, 1, 30)
    moved, added, private, told, first = np.zeros((60, 60)), np.zeros((60, 60)), 0.0, 0.0, 0.0
    trees, steps = [], []
    for each in splits:  # the weights of so few trees in an average are 1
        size, leaf = 2**each.depth, leaf_of(each, levels)
        place = (leaf[:, None] == np.arange(size)).astype(float)
        kept, held = generator.uniform(0, 0.01, (size, 2)), curvatures @ place
        own, known = generator.uniform(0.01, 0.1, size), 0.7 * held
        steps.append(Step(own, kept, known))
        trees.append(LeafValues(each, generator.normal(size=(size, 2))))
        own = np.minimum(own, 0.3 / (held + 1))
        told, first = told + steps[-1].leaves @ known, first + own @ held
        signs = contrasts(np.eye(size))
        alone = [member for member in range(size) if member.bit_count() <= 1]
        project = np.eye(size) - signs[:, alone] @ signs[alone] / size if together else np.eye(size)
        tree, shown = np.zeros((60, 60)), np.zeros((60, 60))
        for k in range(2):
            clear = signs @ np.diag(kept[:, k]) @ signs
            values = -clear - own[:, None] * (np.eye(size) - held[:, None] * clear)
            rows = slice(30 * k, 30 * k + 30)
            tree[rows, rows], shown[rows, rows] = place @ values @ place.T, place @ project @ values @ place.T
        before = np.eye(60) + np.tile(curvatures, 2)[:, None] * moved
        moved, added = moved + tree @ before, added + shown @ before
        alike = np.max((kept**2).sum(axis=0)) * size * deviation**2
        private += 2 * (np.mean((own[leaf] * deviation) ** 2) + alike)
    grown = Grown(tuple(trees), tuple(steps), deviation)
    long, chance = residuals.T.ravel(), grown.by_chance(residuals, curvatures, levels, together)
    ratio = min(told / first, 1.0)
    assert chance.fitted == pytest.approx(-ratio * long @ added @ long, rel=1e-12)
    whole = np.mean(np.sum(grown.forest().scores(levels) ** 2, axis=1))
    fitted = ratio * np.sum((added @ long) ** 2) / 30
    assert chance.told == pytest.approx(max(1 - (private + fitted) / whole, 0.0), rel=1e-12)
    alone_noise, alike_noise = steps[0].noise(deviation)
    np.testing.assert_allclose(grown.forest().noise[0] ** 2, alone_noise + 4 * alike_noise)


def test_what_leaves_take_back_of_curvatures_is_told_without_the_noise_of_these() -> None:
    """Stein's lemma, on 100,000 draws: steps are shorter where noise makes a curvature larger."""
    generator, held, deviation, damping = np.random.default_rng(0), np.array([0.0, 20.0, 90.0]), 30.0, 50.0
    told = np.repeat(held, 100_000)
    noisy = told + deviation * generator.normal(size=told.size)
    leaves = Growth.rate / (np.maximum(noisy, 0.0) + damping)
    step = Step(leaves, np.zeros((told.size, 1)), noisy)
    assert step.taken_back(deviation) == pytest.approx(leaves @ told, rel=0.02)
    assert step.taken_back(0.0) < 0.8 * (leaves @ told)


def test_contrasts_are_signed_sums_and_what_a_column_does_alone_is_taken_out() -> None:
    generator = np.random.default_rng(0)
    sums = generator.normal(size=(8, 2))
    signs = [[(-1) ** (member & leaf).bit_count() for leaf in range(8)] for member in range(8)]
    np.testing.assert_allclose(contrasts(sums), np.array(signs) @ sums, atol=1e-12)
    np.testing.assert_allclose(contrasts(contrasts(sums)), 8 * sums, atol=1e-12)
    # The first and the last split ask the same column: what they say together is still one column's.
    assert several_columns((4, 7, 4)).tolist() == [False, False, False, True, False, False, True, True]
    left = acting_together((4, 7, 4), sums)
    cube = left.reshape(2, 2, 2, 2)
    np.testing.assert_allclose(cube.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(cube.mean(axis=(0, 2)), 0, atol=1e-12)


def test_contrasts_of_noise_are_kept_less_than_once_in_a_forest_and_clear_ones_nearly_whole() -> None:
    """Of 200 forests of noise with 20 trees of 64 leaves: at most one set for each size, on average, is kept."""
    generator = np.random.default_rng(0)
    kept = clear_shares(generator.normal(size=(4000, 64)).T ** 2, 20 * 4000) > 0
    assert kept.sum() <= 7
    many = [np.sum(clear_shares(generator.normal(size=64) ** 2, 20) > 0) for _ in range(4000)]
    assert np.sum(many) / 200 < 7
    assert clear_shares(np.full((64, 1), 1000.0), 20).min() > 0.98


def test_columns_that_acted_together_are_drawn_together() -> None:
    sets, generator = ColumnSets(np.full(50, 0.02)), np.random.default_rng(0)
    kept = np.zeros(8)
    kept[0b110] = 40.0  # the first two splits
    sets.see((3, 9, 20), kept)
    drawn = [set(sets.drawn(generator, 6)) for _ in range(200)]
    assert all({3, 9} <= each for each in drawn)
    assert sum(20 in each for each in drawn) < 60
    assert all(len(sets.at_random(generator, 6)) == 6 for _ in range(5))


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3), Squared()])
def test_residuals_of_chance_have_no_mean_and_the_spread_of_their_labels(loss: Loss) -> None:
    """Of 400,000 draws: the mean is within 5 of its deviations, which fails once in a million."""
    row = np.linspace(-1, 1, loss.outputs) + 0.3
    residuals, curvatures = chance_residuals(loss, np.tile(row, (400_000, 1)), 4.0, 0.09, seed=0)
    deviation = residuals.std(axis=0)
    assert (np.abs(residuals.mean(axis=0)) < 5 * deviation / math.sqrt(400_000)).all()
    chances = np.exp(row) / np.exp(row).sum() if loss.outputs > 1 else 1 / (1 + np.exp(-row))
    spread = 0.09 if isinstance(loss, Squared) else chances * (1 - chances)
    factors = lengthening(loss, loss.lipschitz, row if loss.outputs == 1 else row[None])
    np.testing.assert_allclose(deviation, 2 * np.sqrt(spread) * (1.0 if factors is None else factors), rtol=0.01)
    assert (curvatures > 0).all()


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
@pytest.mark.parametrize("kind", [DPBoostedTreesClassifier, DPBoostedTreesRegressor])
def test_what_a_fit_shows_follows_from_what_it_paid_for(kind: type, adjacency: str) -> None:
    X, y = crossed(150)
    labels = {"classes": (0, 1)} if kind is DPBoostedTreesClassifier else {"target_bounds": (0, 1)}
    model = kind(4.0, 1e-6, adjacency=adjacency, bounds=(-1, 1), trees=4, depth=2, **labels)
    report = replay(model, X, y if kind is DPBoostedTreesClassifier else y * 1.0, neighbours=3)
    assert report.clean, str(report)
    assert report.largest_share > 0.3


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_trees_that_are_given_up_show_nothing_that_was_not_paid_for(adjacency: str) -> None:
    generator = np.random.default_rng(1)
    X = generator.uniform(-1, 1, (600, 2))
    y = (X[:, 0] > 0.3 * generator.normal(size=600)).astype(int)
    model = DPBoostedTreesClassifier(
        16.0, 1e-3, adjacency=adjacency, bounds=(-1, 1), classes=(0, 1), pieces=1, tighten=False
    )
    report = replay(model, X, y, neighbours=2)
    assert report.clean, str(report)
    fitted = DPBoostedTreesClassifier(**model.get_params() | {"random_state": 2}).fit(X, y)
    assert fitted.n_trees_ == 0
    assert fitted.privacy_["spent_on"]["leaf sums"] > 0


def test_a_seed_repeats_a_fit_and_a_pickle_and_a_sparse_table_give_the_same_bits(fitted) -> None:
    X, y = crossed(2000)
    X[:, 2] = X[:, 2] > 0.5
    first, again, few = (classifier(trees=5, depth=3).fit(each, y) for each in (X, X, sparse.csr_array(X)))
    np.testing.assert_array_equal(first.decision_function(X), again.decision_function(X))
    np.testing.assert_array_equal(first.decision_function(X), few.decision_function(sparse.csr_array(X)))
    model, _ = fitted
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))
    np.testing.assert_allclose(model.row_scores(X), model.decision_function(X))
    np.testing.assert_array_equal(model.row_scores(X[5:9]), model.row_scores(X)[5:9])


def test_levels_of_one_category_are_one_column_and_every_row_has_its_own_levels() -> None:
    names = ["size", "colour=red", "colour=blue", "new"]
    scaling = ColumnScaling.from_bounds(([0, 0, 0, 0], [1000, 1, 1, 1]), 4)
    binning = Binning.of(scaling, names, [False, True, True, True])
    assert binning.names == ("size", "colour", "new")
    assert binning.widths == (256, 3, 2)
    X = np.array([[0.0, 1, 0, 0], [1.0, 0, 1, 1], [999.0, 0, 0, 0], [2000.0, 1, 1, 1]])
    levels = binning.levels(X)
    assert levels[:, 1].tolist() == [1, 2, 0, 1]
    assert levels[:, 2].tolist() == [0, 1, 0, 1]
    assert levels[[0, 2, 3], 0].tolist() == [0, 255, 255]
    assert 1 < levels[1, 0] < 64  # fine near 0
    for row in range(4):
        np.testing.assert_array_equal(binning.levels(X[[row]]), levels[[row]])
    np.testing.assert_array_equal(binning.levels(sparse.csr_array(X)), levels)


def test_splits_are_rather_about_columns_that_matter_alone_and_about_every_other_too() -> None:
    quantiles = np.minimum(np.arange(1, 257) / np.array([[256], [2], [3]]), 1.0)
    tables = ((0, np.zeros((256, 1))), (1, np.array([[-1.0], [1.0]])), (2, np.full((3, 1), 7.0)))
    chances = column_chances(quantiles, ColumnTables(np.zeros(1), tables))
    np.testing.assert_allclose(chances, [0.1, 0.8, 0.1])
    np.testing.assert_allclose(column_chances(quantiles, ColumnTables(np.zeros(1))), 1 / 3)


def test_a_table_with_text_is_measured_and_a_category_is_one_column() -> None:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"age": generator.uniform(20, 80, 4000), "job": generator.choice(["cook", "nurse"], 4000)})
    y = ((frame["age"] > 50) ^ (frame["job"] == "cook")).to_numpy(int)
    model = DPBoostedTreesClassifier(3.0, 1e-6, classes=(0, 1), trees=60, random_state=0).fit(frame, y)
    assert set(model.importances_) == {"age", "job"}
    assert model.score(frame, y) > 0.9
    model.set_params(bounds=(-1, 1)).fit(*crossed(300))  # nothing of the other table is left
    assert list(model._binning.names) == ["x0", "x1", "x2"]


def test_predictions_keep_the_directions_that_they_have_to_keep() -> None:
    """Noise is large enough that without the constraint the direction is lost."""
    generator = np.random.default_rng(0)
    X = np.column_stack([generator.uniform(-1, 1, (4000, 3)), generator.integers(2, size=4000)])
    y = (generator.random(4000) < 1 / (1 + np.exp(-X[:, 0] * (1 + X[:, 2]) + 2 * X[:, 1] ** 2))).astype(int)
    cells = np.linspace(-1, 1, 301)
    directions = {"monotonic_cst": [1, 0, -1, 1], "binary_features": [3], "trees": 40, "depth": 6}
    free = directions | {"monotonic_cst": None}
    least = []
    for options in (directions, free):
        model = classifier(0.7, **options).fit(X, y)
        rises = []
        for column, direction in ((0, 1), (2, -1), (3, 1)):
            rows = np.repeat(X[:20], cells.size, axis=0)
            rows[:, column] = np.tile(cells if column < 3 else np.arange(cells.size) >= 150, 20)
            rises.append((direction * np.diff(model.row_scores(rows).reshape(20, -1), axis=1)).min())
        least.append(min(rises))
    assert least[0] >= -1e-12
    assert least[1] < -0.01


@pytest.mark.parametrize("direction", [-1, 1])
def test_leaves_are_put_in_order_and_those_in_order_stay(direction: int) -> None:
    generator = np.random.default_rng(1)
    sides = np.arange(256) > np.array([[100], [30], [100], [200], [5]])  # the same cut twice: some leaves are empty
    splits, directions = Splits((0, 1, 0, 0, 1), sides), (direction, 1)
    values = generator.normal(size=(32, 1))
    kept = in_order(splits, directions, values)
    levels = np.array([(i, j) for i in (0, 50, 150, 255) for j in (0, 20, 255)], dtype=np.uint8)
    table = kept[leaf_of(splits, levels)].reshape(4, 3)
    assert (direction * np.diff(table, axis=0)).min() >= -1e-15
    assert np.diff(table, axis=1).min() >= -1e-15
    np.testing.assert_allclose(in_order(splits, directions, kept), kept, rtol=1e-12)
    np.testing.assert_array_equal(in_order(splits, (), values), values)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"monotonic_cst": [1, 0]}, "monotonic_cst must have"),
        ({"monotonic_cst": [1, 0, 2]}, "monotonic_cst must have"),
        ({"monotonic_cst": {"size": 1}}, "monotonic_cst names 'size'"),
        ({"monotonic_cst": [1, 0, 0], "classes": (0, 1, 2)}, "several classes"),
        ({"method": "agd"}, "method"),
        ({"delta": 0.0}, "delta"),
        ({"inference": True}, "inference"),
        ({"trees": 0}, "trees"),
        ({"trees": 10**6}, "trees"),
        ({"depth": 13}, "depth"),
        ({"depth": 2.5}, "depth"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_charged(options: dict, match: str) -> None:
    account = Ledger(5.0, 1e-5, currency="gdp")
    model = classifier(ledger=account).set_params(**options)
    with pytest.raises(InvalidParameter, match=match):
        model.fit(*crossed(200))
    assert account.entries == ()


@pytest.mark.parametrize("counts", [False, True])
def test_a_table_that_is_read_block_by_block_gives_the_same_bits(tmp_path: Path, counts: bool) -> None:
    da = pytest.importorskip("dask.array")
    X, y = crossed(3000)
    X = np.column_stack([X, X[:, 0] > 0.3])
    model: DPBoostedTreesClassifier | DPBoostedTreesRegressor = classifier(
        1.0, binary_features=[3], trees=12, depth=3
    )
    if counts:
        y = 3.0 * y
        options = {"loss": "poisson", "target_bounds": (0, 9), "bounds": (-1, 1), "random_state": 0}
        model = DPBoostedTreesRegressor(1.0, 1e-6, trees=12, depth=3, **options)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    mapped = [np.load(tmp_path / name, mmap_mode="r") for name in ("X.npy", "y.npy")]
    blocks = [da.from_array(each, chunks=(700, *each.shape[1:])) for each in (X, y)]
    fitted = []
    for pair in ((X, y), mapped, blocks):
        once = model.fit(*pair)
        fitted.append((once._scores(X) if counts else once.decision_function(X), once.privacy_["spent_on"]))
    for scores, spent in fitted[1:]:
        np.testing.assert_array_equal(scores, fitted[0][0])
        assert spent == fitted[0][1]


def test_parquet_files_are_read_block_by_block_and_a_category_is_one_column(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from dpdescent.tables import CategoricalColumn, Label, NumericColumn, Schema, open_parquet

    X, y = crossed(3000)
    frame = pd.DataFrame({"a": X[:, 0], "kind": np.array(["p", "q", "r"])[np.arange(3000) % 3], "y": y})
    for part in range(3):
        frame.iloc[part::3].to_parquet(tmp_path / f"{part}.parquet")
    columns = NumericColumn("a", -1, 1), CategoricalColumn("kind", ("p", "q", "r"))
    schema = Schema(columns, Label("y", classes=(0, 1)))
    table = open_parquet(str(tmp_path / "*.parquet"), schema)
    model = DPBoostedTreesClassifier(
        1.0, 1e-6, classes=(0, 1), bounds=table.bounds, binary_features=table.binary_features, trees=8, random_state=0
    ).fit(table)
    assert set(model.importances_) == {"a", "kind"}
    rows = np.concatenate([cells for part in table.parts for cells, _ in table.read(part)])
    labels = np.concatenate([own for part in table.parts for _, own in table.read(part)])
    scores = model.row_scores(rows)
    inside = model.fit(pd.DataFrame(rows, columns=list(table.feature_names)), labels)
    np.testing.assert_array_equal(inside.row_scores(pd.DataFrame(rows, columns=list(table.feature_names))), scores)


def test_a_worker_is_sent_the_last_tree_alone() -> None:
    """The scores of four hundred trees, one inside the other, could not be pickled."""
    tree = LeafValues(Splits((0,), np.array([[False, True]])), np.zeros((2, 1)))
    scores = LeafScores(ColumnTables(np.zeros(1)))
    for _ in range(2000):
        scores = scores.grown(tree)
    assert len(pickle.dumps(scores.block)) < 10_000
