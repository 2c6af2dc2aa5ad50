"""auto spends what it was given on what it says, finds the optimum when privacy costs nothing, and fails gently."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import log_loss
from test_agd import make_curator, optimum
from threadpoolctl import threadpool_limits

from dpdescent import DPLinearRegression, DPLinearSVC, DPLogisticRegression, InvalidParameter
from dpdescent.accounting import Composed, Cost
from dpdescent.curator import Curator
from dpdescent.curator.array_source import ArraySource
from dpdescent.curator.lattice_noise import LatticeNoise
from dpdescent.exact import FeatureGrid
from dpdescent.ledger import Ledger, spend_jointly
from dpdescent.noise import Randomness
from dpdescent.problems import (
    Hinge,
    HuberisedHinge,
    LinearProblem,
    Logistic,
    Loss,
    Multinomial,
    Poisson,
    Squared,
    Weighted,
)
from dpdescent.solvers import AutoSettings, auto
from dpdescent.solvers.auto import _Geometry, _secant, _shorten, _signs, _steeper
from dpdescent.solvers.coordinates import (
    AverageNoise,
    damping_to,
    measure_columns,
    measure_whitening,
    public_frame,
    shrink,
)
from dpdescent.solvers.rules import constant_of_same_mean, effective_rows

DELTA = 1e-6
BOUGHT_FIRST = ["mean row norm", "column moments", "mean scaled row norm", "second moments"]


def table(rows: int, columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.uniform(0, 1, (rows, columns))
    X[:, ::2] = X[:, ::2] < 0.1
    margins = (X - X.mean(0)) @ generator.normal(0, 4 / math.sqrt(columns), columns)
    return X, (generator.random(rows) < 1 / (1 + np.exp(-2 * margins - 0.5))).astype(int)


def model(epsilon: float = 1.0, **options: object) -> DPLogisticRegression:
    public = {"bounds": (0, 1), "tighten": False, "classes": [0, 1], "random_state": 0}
    return DPLogisticRegression(epsilon, DELTA, **public | options)


@pytest.mark.parametrize("loss", [Logistic(), HuberisedHinge(), Squared(), Hinge()], ids=str)
@pytest.mark.parametrize(("intercept", "relation"), [(True, "zero-out"), (False, "replace-one")])
def test_epsilon_to_infinity_recovers_the_optimum(loss: Loss, intercept: bool, relation: str) -> None:
    curator = make_curator(1e4, loss, intercept=intercept, relation=relation)
    best, value = optimum(curator)
    near = 1.003 if isinstance(loss, Hinge) else 1.001  # a kink has no curvature to go by
    assert best - 1e-6 <= value(auto(curator, AutoSettings()).weights) <= near * best


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("whitening", [True, False])
def test_a_penalty_is_minimised_too_however_stiff(alpha: float, whitening: bool) -> None:
    curator = make_curator(1e4, alpha=alpha)
    best, value = optimum(curator)
    assert best - 1e-6 <= value(auto(curator, AutoSettings(whitening=whitening)).weights) <= 1.001 * best


def test_several_classes_share_the_whitening() -> None:
    generator = np.random.default_rng(0)
    X = generator.uniform(0, 1, (4000, 4))
    scores = (X - 0.5) @ generator.normal(0, 4, (4, 3)) + generator.gumbel(size=(4000, 3))
    y = scores.argmax(1)
    private = DPLogisticRegression(1e4, DELTA, bounds=(0, 1), classes=[0, 1, 2], random_state=0).fit(X, y)
    plain = DPLogisticRegression(1.0, DELTA, bounds=(0, 1), classes=[0, 1, 2], method="nonprivate").fit(X, y)

    def objective(fitted: DPLogisticRegression) -> float:
        return -float(np.log(fitted.predict_proba(X)[np.arange(4000), y]).mean())

    assert objective(private) <= 1.001 * objective(plain)
    assert (
        DPLogisticRegression(0.5, DELTA, bounds=(0, 1), classes=[0, 1, 2], random_state=0).fit(X, y).score(X, y) > 0.5
    )


@pytest.mark.parametrize("currency", ["gdp", "zcdp"])
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 3.0])
def test_the_whole_budget_is_spent_and_the_parts_add_up(currency: str, relation: str, epsilon: float) -> None:
    curator = make_curator(epsilon, currency=currency, relation=relation, rows=500)
    result = auto(curator, AutoSettings(currency=currency))
    ledger = curator.ledger
    assert (1 - 1e-9) * ledger.budget <= ledger.spent <= ledger.budget
    assert math.fsum(entry.price for entry in ledger.entries) == pytest.approx(ledger.spent, rel=1e-12)
    assert ledger.spent_epsilon() <= epsilon
    assert np.isfinite(result.weights).all()
    labels = [entry.label for entry in ledger.entries]
    if effective_rows(curator) < 10:  # hardly a row to learn from
        assert labels == ["label counts"]
        return
    assert result.iterations == len(result.steps)
    if labels[0] == "label counts":
        assert effective_rows(curator) < 300
        assert labels == ["label counts", *BOUGHT_FIRST[:-1]] + ["gradient"] * result.iterations
    else:
        assert effective_rows(curator) >= 300
        assert labels == BOUGHT_FIRST + ["gradient and curvature"] * result.iterations + ["gradient"] * 3


def test_shares_are_what_the_settings_say() -> None:
    shares = model().fit(*table(2000, 6)).privacy_["spent_on"]
    expected = {
        "mean row norm": 0.01,
        "column moments": 0.08,
        "mean scaled row norm": 0.01,
        "second moments": 0.12,
        "gradient and curvature": 0.78,
    }
    final = shares.pop("gradient")  # the intercept
    assert 0 < final <= 0.05
    assert shares == pytest.approx({name: (1 - final) * share for name, share in expected.items()}, rel=1e-6)
    curator = make_curator(1.0)
    auto(curator, AutoSettings())
    pairs = [entry.cost.parts for entry in curator.ledger.entries if isinstance(entry.cost, Composed)]
    curvatures = sum(curvature.mu_squared() for _, curvature in pairs)
    final = sum(entry.price for entry in curator.ledger.entries if entry.label == "gradient")
    assert curvatures == pytest.approx(0.02 * (curator.budget - final), rel=1e-6)
    squared = make_curator(1.0, Squared())
    auto(squared, AutoSettings())
    labels = [entry.label for entry in squared.ledger.entries]
    assert labels[4:6] == ["label sum", "residual scale"]
    assert set(labels[6:]) == {"gradient", "residual scale"}  # its curvature is 1, and public


def _names(charged: Cost, name: str, cost: Cost) -> list[str]:
    """Return what a cost was charged for, by itself or as one of two."""
    if isinstance(charged, Composed):
        return [part for part, of in zip(("gradient", "curvature"), charged.parts, strict=True) if of == cost]
    return [name] * (charged == cost)


@pytest.mark.parametrize("label", [*BOUGHT_FIRST, "gradient", "curvature"])
def test_every_release_is_as_noisy_as_its_price(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact sums are replaced by zeros, so that what a mechanism returns is its noise.

    Its mean square, in units of what the price allows, follows a chi-square law with m degrees of freedom. The
    bounds are 6 standard deviations wide (false alarms below 1e-6 for m above 100), and a noise of half or double
    the scale is far outside for every label.
    """
    seen: list[tuple[str, float]] = []
    for seed in range(12):
        curator = make_curator(0.5, rows=400, columns=8, seed=seed)
        noise, charge = curator._noise, spend_jointly
        charged: list[tuple[object, str]] = []

        def noted(ledgers, cost, name, *about, charge=charge, charged=charged, **named):  # type: ignore[no-untyped-def]
            charged.append((cost, name))
            charge(ledgers, cost, name, *about, **named)

        monkeypatch.setattr("dpdescent.curator.release.spend_jointly", noted)

        def record(kind, total, cost, relation, noise=noise, charged=charged):  # type: ignore[no-untyped-def]
            zero = type(total)(np.zeros_like(total.values), total.unit, total.sensitivity)
            drawn = getattr(type(noise), kind)(noise, zero, cost, relation)
            scale = total.sensitivity.under(relation) * cost.noise_multiplier
            entries = drawn / scale
            if kind == "gaussian_symmetric":
                entries = np.concatenate([np.diag(entries), math.sqrt(2) * entries[np.triu_indices(len(entries), 1)]])
            name = [n for c, n in charged for n in _names(c, n, cost)][-1]  # the two norms cost the same
            seen.extend((name, float(e) ** 2) for e in np.ravel(entries))
            return getattr(type(noise), kind)(noise, total, cost, relation)

        for kind in ("gaussian", "gaussian_symmetric"):
            monkeypatch.setattr(noise, kind, lambda t, c, r, kind=kind, record=record: record(kind, t, c, r))
        auto(curator, AutoSettings(whitening=True))
    squares = [square for name, square in seen if name == label]
    spread = 6 * math.sqrt(2 / len(squares))
    if label.endswith("norm"):  # 12 numbers: chi-square quantiles at 1e-6 and 1 - 1e-6, divided by 12
        assert len(squares) == 12
        assert 0.05 < np.mean(squares) < 4.4
    else:
        assert len(squares) > 100
        assert abs(np.mean(squares) - 1) < spread < 0.75


def test_the_same_bits_for_any_storage_order_and_threads() -> None:
    X, y = table(3000, 12)
    X = X.astype(np.float32)
    reference = model(0.5).fit(X, y)
    shuffled = np.random.default_rng(1).permutation(3000)
    with threadpool_limits(1):
        alone = model(0.5).fit(X, y)
    for other in (
        alone,
        model(0.5).fit(X.astype(np.float64), y),
        model(0.5).fit(sparse.csr_array(X), y),
        model(0.5).fit(X[shuffled], y[shuffled]),
    ):
        assert other.coef_.tobytes() == reference.coef_.tobytes()
        assert other.intercept_.tobytes() == reference.intercept_.tobytes()
    assert model(0.5, random_state=1).fit(X, y).coef_.tobytes() != reference.coef_.tobytes()


def test_it_is_the_default_and_learns() -> None:
    X, y = table(20_000, 10)
    fitted = model(0.5).fit(X, y)
    assert fitted.privacy_["method"] == "auto"
    plain = model(method="nonprivate").fit(X, y)
    assert fitted.score(X, y) > plain.score(X, y) - 0.01
    assert (
        DPLinearSVC(0.5, DELTA, bounds=(0, 1), classes=[0, 1], random_state=0).fit(X, y).score(X, y)
        > plain.score(X, y) - 0.01
    )
    target = X @ np.linspace(-1, 1, 10)
    regression = DPLinearRegression(1.0, DELTA, bounds=(0, 1), target_bounds=(-5, 5), random_state=0).fit(X, target)
    assert regression.score(X, target) > 0.95


def test_whitening_pays_on_correlated_columns() -> None:
    """Columns that are nearly copies of each other: descent along their difference needs the covariance."""
    generator = np.random.default_rng(0)
    base = generator.uniform(0, 1, (20_000, 1))
    X = np.clip(base + generator.normal(0, 0.03, (20_000, 6)), 0, 1)
    y = (generator.random(20_000) < 1 / (1 + np.exp(-40 * (X[:, 0] - X[:, 1]) - 2 * (X[:, 2] - 0.5)))).astype(int)
    whitened, scaled = (model(1.0, solver_options={"whitening": on}).fit(X, y) for on in (True, False))
    assert whitened.score(X, y) > scaled.score(X, y) + 0.03
    assert "one by one" in scaled.privacy_["remarks"][0]
    assert whitened.privacy_["remarks"] == []


def test_wide_tables_are_scaled_column_by_column() -> None:
    generator = np.random.default_rng(0)
    X = sparse.random_array((3000, 2100), density=0.01, rng=generator, format="csr")
    X.data[:] = 1.0
    y = (np.asarray(X[:, :50].sum(axis=1)).ravel() > 0.5).astype(int)
    fitted = model(100.0).fit(X, y)
    assert "second moments" not in fitted.privacy_["spent_on"]
    assert fitted.score(X, y) > max(y.mean(), 1 - y.mean()) + 0.02


@pytest.mark.parametrize(
    ("rows", "columns", "epsilon"),
    [(1000, 10, 0.1), (2000, 150, 0.1), (10_000, 10, 0.01), (2000, 2, 0.05), (2000, 100, 0.3), (1000, 3000, 0.3)],
)
def test_where_there_is_no_signal_it_is_about_as_good_as_the_majority(
    rows: int, columns: int, epsilon: float
) -> None:
    """Labels that no feature explains, and a budget that barely tells the larger class: means of 12 seeds (wide: 4).

    Neither more errors than one rule for all rows makes, nor a loss much above its entropy.
    """
    scores: dict[str, list[float]] = {"auto": [], "majority": []}
    losses = []
    for seed in range(12 if columns < 2000 else 4):
        X, _ = table(rows, columns, seed)
        y = (np.random.default_rng(seed).random(rows) < 0.75).astype(int)
        for method, found in scores.items():
            fitted = model(epsilon, method=method, random_state=seed).fit(X, y)
            found.append(fitted.score(X, y))
            if method == "auto":
                losses.append(np.logaddexp(0, (1 - 2 * y) * fitted.decision_function(X)).mean())
    assert np.mean(scores["auto"]) > np.mean(scores["majority"]) - 0.01
    assert np.mean(losses) < 1.08 * (0.75 * math.log(4 / 3) + 0.25 * math.log(4))


def test_a_handful_of_rows_teaches_the_intercept_and_says_so() -> None:
    """Privacy leaves about 7 of the rows, from which nothing but a count can be learnt."""
    X, y = table(1000, 20)[0], (np.arange(1000) % 10 > 0).astype(int)
    fitted = model(0.03).fit(X, y)
    assert any("only the intercept" in each for each in fitted.privacy_["remarks"])
    assert (fitted.coef_ == 0).all()
    assert fitted.privacy_["spent_on"] == pytest.approx({"label counts": 1.0})
    # Features have no part in it: other ones give the same bits.
    np.testing.assert_array_equal(model(0.03).fit(X**2, y).intercept_, fitted.intercept_)
    three = DPLogisticRegression(0.03, DELTA, bounds=(0, 1), classes=[0, 1, 2], random_state=0).fit(
        X, np.arange(1000) % 3
    )
    assert (three.coef_ == 0).all()
    line = DPLinearRegression(0.03, DELTA, bounds=(0, 1), target_bounds=(0.0, 1.0), random_state=0).fit(
        X, np.full(1000, 0.8)
    )
    assert (line.coef_ == 0).all()
    assert abs(line.intercept_ - 0.8) < 0.2  # where the loss is quadratic one step leads to the mean


def test_without_whitening_few_columns_are_never_projected_to_more() -> None:
    X, y = table(500, 40)
    spent = model(0.5, solver_options={"whitening": False}).fit(X, y).privacy_
    assert "second moments" not in spent["spent_on"]
    few, scaled = spent["remarks"]
    assert "effective rows for 41 parameters" in few
    assert scaled == "columns were scaled one by one, without their covariance"


def test_projections_of_very_wide_tables_fit_into_memory() -> None:
    assert _signs(2001).shape == (2001, 500)
    for features in (10**5, 2**20):
        assert _signs(features).nbytes <= 2**27


def test_wide_tables_of_copies_are_learnt() -> None:
    """Thirty columns, each 70 times with some entries wrong: too many to whiten, and far from independent.

    The entropy of the labels is 0.676. Steps that fit independent columns would lead far beyond the valley, and their
    noise would be that of 2,100 columns. One direction is found, or, projected to 500, the 30 directions.
    """
    generator, rows = np.random.default_rng(0), 3000
    few = (generator.random((rows, 30)) < 0.3).astype(float)
    margins = (few - 0.3) @ generator.normal(0, 1.5, 30) - 1
    y = (generator.random(rows) < 1 / (1 + np.exp(-margins))).astype(int)
    X = np.hstack([np.where(generator.random(few.shape) < 0.02, 1 - few, few) for _ in range(70)])
    cases = (
        (0.01, "only the intercept", 0.7),
        (0.5, "the direction of the coefficients was learnt first", 0.42),
        (2.0, "projected", 0.38),
        (100, "one by", 0.32),
    )
    for epsilon, remark, ceiling in cases:
        for seed in range(1 if remark == "projected" else 2):  # a projection takes time
            fitted = model(epsilon, random_state=seed).fit(X, y)
            assert any(remark in each for each in fitted.privacy_["remarks"])
            assert np.logaddexp(0, (1 - 2 * y) * fitted.decision_function(X)).mean() < ceiling


def test_a_gradient_that_grows_beyond_its_noise_is_noticed() -> None:
    """Equal gradients: at most the tail of 3 deviations, 1.35 of 1000 pairs (more than 12 have a chance below 1e-8).

    A growth by a half is always seen where noise is small, and never where it is all there is.
    """
    generator = np.random.default_rng(0)
    truth = generator.normal(0, 1, 100)
    for noise, grown in ((0.01, True), (0.1, True), (3.0, False)):
        pairs = generator.normal(0, noise, (1000, 2, 100))
        assert sum(_steeper(truth + a, truth + b, noise) for a, b in pairs) <= 12
        seen = sum(_steeper(1.5 * truth + a, truth + b, noise) for a, b in pairs)
        assert seen == 1000 if grown else seen <= 12


def test_the_damping_leaves_as_many_directions_as_it_is_told_to() -> None:
    squares = np.append(np.random.default_rng(0).exponential(1, 50), np.zeros(5))
    for directions in (0.1, 3.0, 49.0):
        damping = damping_to(directions, squares, 0.0)
        assert np.sum(squares / (squares + damping)) == pytest.approx(directions, rel=1e-4)
    assert damping_to(50, squares, 0.0) == 0.001
    assert damping_to(50, squares, 0.2) == damping_to(49.999, squares, 0.2) == pytest.approx(0.6)
    assert damping_to(1.0, np.zeros(3), 0.5) == 1.5


def test_the_intercept_does_not_wait_for_steep_features() -> None:
    axes = np.linalg.qr(np.random.default_rng(0).normal(0, 1, (3, 3)))[0]
    turned = np.eye(4)
    turned[:3, :3] = axes
    gradient = np.array([1.0, -2.0, 3.0, 5.0])
    for given, stiffness in ((None, np.array([0.5, 0.5, 0.5, 0])), (turned, np.array([1.0, 2.0, 3.0, 0]))):
        geometry = _Geometry(None, 1.0, 3, np.ones(4), stiffness, np.ones(4), given)
        step = geometry.newton(gradient, 10.0, 0.25)
        assert step[-1] == 20
        hessian = 10 * np.eye(4) + (turned if given is not None else np.eye(4)) * stiffness @ (
            turned.T if given is not None else np.eye(4)
        )
        np.testing.assert_allclose((hessian @ step)[:3], gradient[:3], rtol=1e-12)


@pytest.mark.parametrize(
    "kind", ["constant", "duplicate", "wide", "zero rows", "one column", "one class", "two rows"]
)
def test_odd_tables_are_no_trouble(kind: str) -> None:
    X, y = table(400, 6)
    if kind == "constant":
        X[:, 2] = 0.7
        X[:, 3] = 0.0
    elif kind == "duplicate":
        X[:, 1] = X[:, 0]
    elif kind == "wide":
        X, y = table(30, 100)
    elif kind == "zero rows":
        X[:] = 0.0
    elif kind == "one column":
        X, y = X[:, :1], (X[:, 0] > 0.5).astype(int)
    elif kind == "one class":
        y[:] = 1
    else:
        X, y = X[:2], np.array([0, 1])
    for epsilon in (0.01, 1.0, 1000.0):
        fitted = model(epsilon).fit(X, y)
        assert np.isfinite(fitted.coef_).all()
        assert np.isfinite(fitted.intercept_).all()
        assert fitted.privacy_["spent_epsilon"] <= epsilon


@pytest.mark.parametrize(
    "options",
    [
        {"share_norm": 0.0},
        {"share_whitening": 0.9},
        {"share_curvature": -0.1},
        {"iterations": 0},
        {"share_norm": 1e-30},
        {"share_columns": 1e-30},
        {"clip": 0.0},
        {"clip": math.nan},
        {"batch_rate": 1.5},
        {"currency": "rdp"},
        {"unknown": 1},
    ],
    ids=str,
)
def test_bad_settings_are_refused_before_anything_is_charged(options: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter):
        model(solver_options=options).fit(*table(50, 3))


def test_shrinking_takes_the_noise_out_of_eigenvalues() -> None:
    """A spiked matrix plus noise: shrunk eigenvalues are nearer to v'Mv of the true matrix than raw ones."""
    generator, d = np.random.default_rng(0), 60
    truth = np.diag(np.concatenate([[40.0, 20.0, 10.0], np.full(d - 3, 1.0)]))
    noise = generator.normal(size=(d, d))
    noise = (np.triu(noise, 1) + np.triu(noise, 1).T) / math.sqrt(2) + np.diag(np.diag(noise))
    values, vectors = np.linalg.eigh(truth + noise)
    radius = math.sqrt(d / 2)
    oracle = np.einsum("ji,jk,ki->i", vectors, truth, vectors)
    shrunk = shrink(values, radius)
    assert np.mean((shrunk - oracle) ** 2) < 0.1 * np.mean((np.maximum(values, 0) - oracle) ** 2)
    assert shrink(values, 1e-9) == pytest.approx(np.maximum(values, 0), abs=1e-6)


def test_noise_that_a_step_shares_with_its_gradient_is_no_curvature() -> None:
    """Gradients of pure noise, steps along them, and a true curvature: the bound is three deviations below it.

    A step of gain a along a gradient e meets -e in the change of gradients, which looks like a curvature 1/a = 0.1.
    The mean of 400 draws has a standard deviation of 0.0008.
    """
    generator, noise, gain = np.random.default_rng(0), 0.02, 10.0
    deviation = math.sqrt(3 / 120) / gain
    for curvature in (0.0, 0.05):
        found = []
        for _ in range(400):
            first, second = generator.normal(0, noise, (2, 120))
            step = gain * first
            found.append(_secant(step, first - second + curvature * step, noise, gain))
        assert np.mean(found) == pytest.approx(curvature - 3 * deviation, abs=0.004)
        assert np.std(found) == pytest.approx(deviation, rel=0.2)


def test_noise_along_the_features_does_not_hold_the_intercept_back() -> None:
    step = np.append(np.random.default_rng(0).normal(0, 0.3, 120), 1.5)
    trusted = _shorten(step, 120, 0.3, 0.3)
    assert np.linalg.norm(trusted[:-1]) < 1 < 3 < np.linalg.norm(step[:-1])
    assert 1.4 < trusted[-1] <= 1.5
    assert _shorten(step[:-1], 120, 0.3, 0.3) == pytest.approx(trusted[:-1])
    # A single number of two standard deviations may be noise.
    assert _shorten(np.array([1.5]), 0, 0.75, 0.75) == pytest.approx([0.6])


@pytest.mark.parametrize("classes", [3, 10, 40])
def test_a_step_of_noise_may_be_as_long_for_each_class_as_for_one(classes: int) -> None:
    """Ten times the noise is cut to 0.6 a class, a signal to 2 in all or, if that is more, to what noise may have."""
    direction = np.random.default_rng(0).standard_normal((50, classes))
    direction /= np.linalg.norm(direction)
    noise = 10 / math.sqrt(50 * classes)  # of a step of length 10
    assert np.linalg.norm(_shorten(10 * direction, 50, noise, 1.0)) == pytest.approx(0.6 * math.sqrt(classes))
    longest = max(2.0, 0.6 * math.sqrt(classes))
    assert np.linalg.norm(_shorten(10 * direction, 50, 1e-9, 1.0)) == pytest.approx(longest)
    assert np.linalg.norm(_shorten(10 * direction, 50, 1e-9, 1.0, 0.5)) == pytest.approx(longest / 2)


@pytest.mark.parametrize("turned", [False, True])
def test_of_an_average_that_noise_explains_nothing_is_kept(turned: bool) -> None:
    """500 x 8 standard normals: the share has a deviation of sqrt(2/4000) = 0.022, and 0.15 is 6.7 of them."""
    generator = np.random.default_rng(0)
    axes = np.linalg.qr(generator.standard_normal((501, 501)))[0] if turned else None
    noises = AverageNoise(np.full(500, 0.5), np.ones(501), np.zeros(501), axes)
    # An iterate at the optimum with noise of deviation 0.3/0.5, and an average of this one alone.
    noises.step(1.0, 0.3, 0.5, 1.0, 1.0)
    noise = 0.6 * generator.standard_normal((501, 8))
    noise[-1] = 100.0  # an intercept, which is not shrunk
    assert noises.kept(noise, 500) < 0.15
    assert noises.kept(2 * noise, 500) == pytest.approx(0.75, abs=0.04)
    assert noises.kept(1e6 * noise, 500) == pytest.approx(1.0)
    assert noises.kept(0 * noise, 500) == 0.0


def test_an_average_on_its_way_to_an_optimum_is_shrunk_less() -> None:
    """A step that goes half the way leaves weights half as long as they should be: 0.75 and 0.3 over 0.5."""
    noises = AverageNoise(np.full(500, 0.5), np.ones(501), np.zeros(501))
    noises.step(1.0, 0.3, 0.5, 0.5, 1.0)
    weights = np.append(np.full(500, 0.6), 100.0)
    assert noises.kept(2 * weights, 500) == 1.0  # and not 1.5
    assert noises.kept(weights / math.sqrt(0.7), 500) == pytest.approx(0.6)


@pytest.mark.parametrize("loss", [Logistic(), Weighted(Logistic(), (1.0, 0.5)), Multinomial(3), Poisson(0.1)])
def test_the_constant_moves_so_that_a_mean_prediction_stays(loss: Loss) -> None:
    """The mean over normal scores is computed once more by quadrature; 500 scores have an error of a few percent."""
    constant = np.array([-2.0, 0.0, 2.0]) if loss.outputs == 3 else -3.0
    before = np.array([1.5, 1.0, 0.5]) if loss.outputs == 3 else 1.5
    moved = constant_of_same_mean(loss, constant, before, before / 2)
    points, weights = np.polynomial.hermite_e.hermegauss(20)
    if loss.outputs == 3:
        points = np.stack(np.meshgrid(points, points, points), axis=-1).reshape(-1, 3)
        weights = np.einsum("i,j,k->ijk", weights, weights, weights).reshape(-1)
    plain = loss.loss if isinstance(loss, Weighted) else loss
    lowest = np.full(len(points), plain.labels.low)

    def mean(at: Any, spread: Any) -> Any:
        return np.average(plain.residuals(at + spread * points, lowest), axis=0, weights=weights)

    wanted, kept, unmoved = mean(constant, before), mean(moved, before / 2), mean(constant, before / 2)
    assert np.abs(kept - wanted).max() < 0.2 * np.abs(unmoved - wanted).max()
    assert constant_of_same_mean(loss, constant, before, before) == pytest.approx(constant)


def test_a_loss_without_a_mean_prediction_keeps_its_constant() -> None:
    assert constant_of_same_mean(Squared(), 0.3, 1.0, 0.5) == 0.3
    assert constant_of_same_mean(HuberisedHinge(), 0.3, 1.0, 0.5) == 0.3


@pytest.mark.parametrize(("rows", "columns", "epsilon"), [(8000, 150, 0.5), (8000, 10, 0.5)])
def test_classes_that_nothing_explains_are_predicted_about_evenly(rows: int, columns: int, epsilon: float) -> None:
    """The mean log-loss of four seeds is close to the entropy; without shrinking it would be 1.15 of it."""
    losses = []
    for seed in range(4):
        generator = np.random.default_rng(seed)
        X, y = generator.uniform(0, 1, (rows, columns)), generator.integers(0, 10, rows)
        fitted = model(epsilon, classes=list(range(10)), random_state=seed).fit(X, y)
        losses.append(-np.log(fitted.predict_proba(X)[np.arange(rows), y]).mean())
    assert np.mean(losses) < 1.03 * math.log(10)


def test_a_frequent_class_among_many_is_predicted_as_often_as_it_is() -> None:
    """Without much noise: a step for all intercepts by one curvature would overshoot, and predict it never."""
    generator = np.random.default_rng(0)
    y = generator.choice(30, 10_000, p=np.r_[0.9, np.full(29, 0.1 / 29)])
    X = generator.normal(size=(10_000, 6)) + 3 * (y[:, None] % 7 == np.arange(6))
    model = DPLogisticRegression(1e4, 1e-6, bounds=(-8, 8), classes=range(30), random_state=0).fit(X, y)
    assert abs(model.predict_proba(X)[:, 0].mean() - np.mean(y == 0)) < 0.02


def test_rare_classes_are_predicted_as_often_as_they_are() -> None:
    """Clipping shortens gradients of rare classes: without a final measurement 10.5% are predicted for 15%.

    Means of four seeds, with standard deviations of 1% each.
    """
    generator = np.random.default_rng(0)
    X, y = (generator.random((4000, 10)) < 0.03).astype(float), (generator.random(4000) < 0.15).astype(int)

    def predicted(seed: int) -> float:
        known = {"bounds": (0, 1), "binary_features": range(10), "classes": [0, 1]}
        model = DPLogisticRegression(0.5, 1e-6, random_state=seed, **known).fit(X, y)
        return float(model.predict_proba(X)[:, 1].mean())

    assert abs(np.mean([predicted(seed) for seed in range(4)]) - y.mean()) < 0.02


def test_rare_ones_are_stretched_less_than_small_numbers() -> None:
    """Two columns of the same variance: ones in 1% of the rows, and numbers near 0.15. A third is always near 1."""
    generator, rows = np.random.default_rng(0), 4000
    X = np.column_stack(
        [generator.random(rows) < 0.01, generator.uniform(0, 0.34, rows), 1 - generator.uniform(0, 0.34, rows)]
    )
    problem = LinearProblem(Logistic(), FeatureGrid(1.0, 4))
    source = ArraySource(problem.grid.place(np.column_stack([X, np.ones(rows)])), np.ones(rows), problem.grid)

    def doublings(*longest: float, binary: tuple[bool | None, ...] = ()) -> list[int]:
        declared = replace(problem, binary=binary)
        curator = Curator(source, declared, Ledger(1e4, DELTA), rows, noise=LatticeNoise(Randomness(0)))
        frame = measure_columns(curator, 0.01 * curator.budget, 0.1 * curator.budget, *longest).frame
        assert frame is not None
        return frame.doublings.tolist()[:3]

    assert doublings() == [3, 3, 3]
    assert doublings(4.0) == [2, 3, 3]
    assert doublings(2.0) == [1, 3, 3]
    # What is declared need not be guessed.
    assert doublings(2.0, binary=(True, True, False)) == [1, 1, 3]
    assert doublings(2.0, binary=(False, None, True)) == [3, 3, 1]
    with pytest.raises(InvalidParameter, match="there are 3"):
        doublings(2.0, binary=(True, False))


def test_columns_are_centred_at_their_means_or_where_noise_hides_these_at_the_middles_of_their_ranges() -> None:
    generator, rows = np.random.default_rng(0), 4000
    X = generator.uniform(0.2, 0.6, (rows, 3))
    problem = LinearProblem(Logistic(), FeatureGrid(1.0, 4), middles=(0.5, 0.0, -0.5))
    source = ArraySource(problem.grid.place(np.column_stack([X, np.ones(rows)])), np.ones(rows), problem.grid)

    def centre(epsilon: float) -> np.ndarray:
        curator = Curator(source, problem, Ledger(epsilon, DELTA), rows, noise=LatticeNoise(Randomness(0)))
        frame = measure_columns(curator, 0.01 * curator.budget, 0.1 * curator.budget).frame
        assert frame is not None
        return frame.centre

    np.testing.assert_allclose(centre(1e4), [*X.mean(0), 0.0], atol=0.01)
    assert centre(1e-3).tolist() == [0.5, 0.0, -0.5, 0.0]
    frame = public_frame(problem)
    assert frame is not None
    assert frame.centre.tolist() == [0.5, 0.0, -0.5, 0.0]
    assert frame.doublings.tolist() == [1, 0, 1, 0]
    assert public_frame(replace(problem, middles=(0.0,) * 3)) is public_frame(replace(problem, middles=())) is None
    with pytest.raises(InvalidParameter, match="middles says something of 2 features"):
        replace(problem, middles=(0.0, 0.5))


@pytest.mark.parametrize("clip", [0.1, 1.0, 3.0])
def test_second_moments_are_those_of_rows_cut_alike_and_add_up_to_the_mean_length(clip: float) -> None:
    """Without noise, against the plain computation; a tenth of the rows is long in a column of its own."""
    generator, rows = np.random.default_rng(0), 5000
    X = np.clip(0.5 + generator.normal(0, 0.1, (rows, 5)) @ generator.normal(0, 0.6, (5, 5)), 0, 1)
    X[:, 4] = generator.random(rows) < 0.1
    problem = LinearProblem(Logistic(), FeatureGrid(1.0, 6), binary=(False,) * 4 + (True,))
    placed = problem.grid.place(np.column_stack([X, np.ones(rows)]))
    source = ArraySource(placed, np.ones(rows), problem.grid)
    curator = Curator(source, problem, Ledger(1e9, DELTA), rows, noise=LatticeNoise(Randomness(0)))
    amount = 0.1 * curator.budget
    columns = measure_columns(curator, amount, amount)
    found, squares, _ = measure_whitening(curator, columns, amount, amount, clip)
    assert columns.frame is not None
    scaled = columns.frame.coordinates(placed)
    norms = np.linalg.norm(scaled, axis=1)
    length = np.minimum(norms, math.sqrt(columns.energy)).mean()
    cut = scaled * np.minimum(1, clip * length / norms)[:, None]
    moments = cut.T @ cut
    moments *= length**2 / np.trace(moments)
    directions = found.matrix[:5, :5] / 2.0 ** columns.frame.doublings[:5, None]  # of the scaled rows
    np.testing.assert_allclose(directions.T @ moments @ directions, np.diag(squares), atol=2e-4)
    values = np.linalg.eigvalsh(moments)
    np.testing.assert_allclose(np.sort(squares), values / (values + 0.001), atol=2e-4)


def test_rare_columns_do_not_hide_what_separates_the_classes() -> None:
    """Four groups of rows tell the label, 150 columns are set in one row of a thousand: nearly separable.

    The mean of 6 seeds is 0.059, with a standard deviation of 0.001; 0.069 if rare columns are stretched like others.
    """
    generator, rows = np.random.default_rng(1), 40_000
    kind = generator.choice(4, rows, p=[0.5, 0.25, 0.15, 0.1])
    X = np.hstack([np.eye(4)[kind], generator.random((rows, 150)) < 0.001])
    y = np.where(generator.random(rows) < 0.01, kind >= 2, kind < 2).astype(int)
    found = []
    for seed in range(6):
        fitted = DPLogisticRegression(0.1, 1e-8, classes=[0, 1], bounds=(0, 1), random_state=seed).fit(X, y)
        found.append(float(np.logaddexp(0, (1 - 2 * y) * fitted.decision_function(X)).mean()))
    assert np.mean(found) < 0.063


def test_declared_zeros_and_ones_help_where_noise_hides_them() -> None:
    """At so small a budget two moments cannot tell a small number that matters from ones that do not.

    The label hangs on a number near 0.05; there are 30 columns of rare ones. Means of 8 seeds: 0.415 if that is
    declared and 0.430 if not, with standard deviations of 0.006 and 0.022.
    """
    generator, rows = np.random.default_rng(0), 20_000
    number = generator.uniform(0, 0.1, rows)
    X = np.column_stack([number, generator.random((rows, 30)) < 0.02])
    y = (generator.random(rows) < 1 / (1 + np.exp(-80 * (number - 0.05)))).astype(int)

    def objective(binary: object) -> float:
        found = []
        for seed in range(8):
            known = {"bounds": (0, 1), "tighten": False, "classes": [0, 1], "binary_features": binary}
            model = DPLogisticRegression(0.1, 1e-6, random_state=seed, **known)
            scores = model.fit(X, y).decision_function(X)
            found.append(float(np.logaddexp(0, (1 - 2 * y) * scores).mean()))
        return float(np.mean(found))

    assert objective(range(1, 31)) < 0.42 < 0.425 < objective(None)


def test_many_classes_converge_as_epsilon_grows() -> None:
    """Steps by the curvature of a typical row left 26 classes unfinished, with scores that were far too small."""
    generator = np.random.default_rng(0)
    y = generator.integers(26, size=6000)
    X = np.clip(generator.normal(size=(26, 10))[y] + generator.normal(size=(6000, 10)), -4, 4)
    options = {"bounds": (-4, 4), "tighten": False, "classes": range(26), "random_state": 0}
    best = log_loss(y, DPLogisticRegression(method="nonprivate", **options).fit(X, y).predict_proba(X))
    for epsilon, slack in ((1e6, 0.02), (10.0, 0.15)):
        chances = DPLogisticRegression(epsilon, 1e-6, **options).fit(X, y).predict_proba(X)
        assert log_loss(y, chances) < best + slack
        assert abs(chances.max(axis=1).mean() - np.mean(chances.argmax(axis=1) == y)) < slack / 2
