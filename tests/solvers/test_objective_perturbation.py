"""Objective perturbation: its theorem on exact small cases, its certificate, and its noise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpdescent import BudgetExhausted, DPLogisticRegression, InvalidParameter, Ledger, load_dataset
from dpdescent.accounting import (
    ApproximateDP,
    Gaussian,
    ObjectivePerturbation,
    PureObjectivePerturbation,
    gdp_to_delta,
)
from dpdescent.curator.array_source import ArraySource
from dpdescent.exact import FeatureGrid
from dpdescent.minimisers import (
    METHODS,
    Candidate,
    RowObjective,
    certified,
    certified_minimiser,
    reachable_tolerance,
    smooth_loss,
)
from dpdescent.problems import Hinge, Huber, HuberisedHinge, LabelKind, Logistic, Loss, Multinomial, Poisson, Squared
from dpdescent.solvers import ObjPertSettings, objpert
from plain_losses import PlainPoisson
from rival_tables import Recorder, curator_of, make_curator, optimum

LOSSES = [Logistic(), HuberisedHinge(), Huber(1.0), Multinomial(3), Poisson(), Huber(1.0, 8.0)]


def table(loss: Loss, rows: int, columns: int, seed: int, row_bound: float, quadratic: float) -> RowObjective:
    generator = np.random.default_rng(seed)
    grid = FeatureGrid(1.0, columns)
    X = grid.place(generator.uniform(-1, 1, (rows, columns)))
    if isinstance(loss, Multinomial):
        y = generator.integers(0, loss.classes, rows).astype(float)
        shape: tuple[int, ...] = (columns, loss.classes)
    else:
        numbers, ends = loss.labels.kind is LabelKind.NUMBERS, (loss.labels.low, loss.labels.high)
        y = generator.uniform(*ends, rows) if numbers else generator.choice(ends, rows)
        shape = (columns,)
    source = ArraySource(X, y, grid)
    linear = generator.normal(0, 1, shape)
    return RowObjective(source, grid, loss, grid.squared_norms(X), row_bound, np.full(shape, quadratic), linear)


# The theorem ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_the_exact_law_in_one_dimension_obeys_the_theorem_under_zero_out(epsilon: float, label: float) -> None:
    """One weight: the density of the minimiser is known, so the true delta is an integral; both directions."""
    strong, sigma, others = 2.0, 1.5, [(0.8, 1.0), (-0.5, -1.0)]
    row = (1.0, label)

    def density(rows: list[tuple[float, float]], w: float) -> float:
        probabilities = [1 / (1 + math.exp(y * x * w)) for x, y in rows]
        gradient = strong * w + sum(-y * x * p for (x, y), p in zip(rows, probabilities, strict=True))
        curvature = strong + sum(x * x * p * (1 - p) for (x, _), p in zip(rows, probabilities, strict=True))
        return float(norm.pdf(gradient, scale=sigma)) * curvature

    determinant = math.log1p(0.25 / strong)
    cost = ObjectivePerturbation(sigma, 1e6, determinant, 1, "zero-out", 1e-6)
    if epsilon <= determinant:
        pytest.skip("the theorem speaks of epsilon above J")
    claimed = cost.delta_at(epsilon - determinant)
    for first, second in (([*others, row], others), (others, [*others, row])):
        true, _ = quad(
            lambda w, a=first, b=second: max(density(a, w) - math.exp(epsilon) * density(b, w), 0.0),
            -12,
            12,
            limit=400,
            epsabs=1e-12,
        )
        assert true <= claimed + 1e-10
    # Without the price of the determinant the claim would be about that of a plain Gaussian, which it must exceed.
    assert claimed > gdp_to_delta(1 / sigma, epsilon)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("loss", [Logistic(), HuberisedHinge(), Huber(1.0), Poisson()], ids=str)
def test_random_tables_obey_the_theorem(relation: str, loss: Loss) -> None:
    """300 random one-dimensional neighbours, jumps of the curvature included: the integral never exceeds it."""
    generator = np.random.default_rng(loss.corners)
    grid = np.linspace(-14, 14, 4001)
    worst = 0.0
    for _ in range(300):
        strong, sigma, epsilon = generator.uniform(0.5, 4), generator.uniform(0.7, 3), generator.uniform(0.3, 2)

        def law(rows: list[tuple[float, float]], strong: float = strong, sigma: float = sigma) -> np.ndarray:
            gradient, curvature = strong * grid, np.full(grid.size, strong)
            for x, y in rows:
                margins, labels = x * grid, np.full(grid.size, y)
                gradient = gradient + x * loss.residuals(margins, labels)
                curvature = curvature + x * x * loss.curvatures(margins, labels)
            return norm.pdf(gradient, scale=sigma) * curvature

        def row() -> tuple[float, float]:
            ends = loss.labels.low, loss.labels.high
            return float(generator.choice([-1.0, 1.0])), float(generator.choice(ends))

        others = [row() for _ in range(int(generator.integers(0, 4)))]
        pair = ([*others, row()], others if relation == "zero-out" else [*others, row()])
        determinant = math.log1p(loss.smoothness / strong)
        if epsilon <= determinant:
            continue
        cost = ObjectivePerturbation(sigma, 1e6, determinant, loss.corners, relation, 1e-6)
        claimed = cost.delta_at(epsilon - determinant)
        for first, second in (pair, pair[::-1]):
            excess = np.maximum(law(first) - math.exp(epsilon) * law(second), 0.0)
            true = float(np.trapezoid(excess, grid))
            assert true <= claimed * (1 + 1e-3) + 1e-9
            worst = max(worst, true / claimed)
    assert worst > 0.1  # the claim is not vacuous


@pytest.mark.parametrize("loss", [*LOSSES, Hinge(), Squared()], ids=str)
def test_residuals_lie_in_the_hull_that_the_theorem_counts(loss: Loss) -> None:
    """One-signed losses have one corner; any other loss of one margin, a new one too, is counted with two."""
    if loss.outputs > 1:
        assert loss.corners == loss.outputs - 1
        residuals = loss.residuals(np.random.default_rng(0).normal(0, 5, (200, 3)), np.zeros(200))
        assert (residuals[:, 1:] >= 0).all()
        assert (residuals[:, 1:].sum(axis=1) <= 1 + 1e-12).all()
        return
    margins = np.linspace(-80, 80, 4001)
    every = loss.labels.every
    labels = np.linspace(loss.labels.low, loss.labels.high, 5) if every is None else every
    one_signed = all(len(set(np.sign(loss.residuals(margins, np.full(4001, y)))) - {0.0}) == 1 for y in labels)
    assert loss.corners == (1 if one_signed else 2)
    assert PlainPoisson().corners == 2


def test_the_price_inverts_the_theorem() -> None:
    for relation in ("zero-out", "replace-one"):
        cost = ObjectivePerturbation(20.0, 140.0, 0.01, 1, relation, 1e-6)
        assert cost.delta_at(cost.pure() - 0.01) <= 1e-6
        assert cost.delta_at((cost.pure() - 0.01) * 0.999) > 1e-6
    plain = ObjectivePerturbation(20.0, 1e9, 0.0, 1, "zero-out", 1e-6)
    assert gdp_to_delta(0.05, plain.pure() * 0.99) > 0.9e-6


def test_replacing_a_row_costs_about_twice_the_noise() -> None:
    zero, swap = (
        ObjectivePerturbation(s, 7 * s, 0.0, 1, r, 1e-6).pure() for s, r in ((20, "zero-out"), (40, "replace-one"))
    )
    assert swap == pytest.approx(zero, rel=0.02)


def test_costs_of_pairs_survive_a_ledger_and_refuse_the_other_relation() -> None:
    ledger = Ledger(1.0, 1e-6, currency="approximate", relation="zero-out")
    ledger.spend(ApproximateDP(0.25, 4e-7), "a")
    ledger.spend(ObjectivePerturbation(20.0, 140.0, 0.01, 1, "zero-out", 5e-7), "b")
    again = Ledger.from_json(ledger.to_json())
    assert again.entries == ledger.entries
    assert again.spent == ledger.spent
    assert not ledger.affords(ApproximateDP(0.1, 2e-7))  # delta is used up before epsilon is
    assert ledger.affords(ApproximateDP(0.1, 5e-8))
    assert not ledger.affords(ApproximateDP(0.9, 5e-8))
    with pytest.raises(InvalidParameter, match="relation"):
        ledger.affords(ObjectivePerturbation(20.0, 140.0, 0.01, 1, "replace-one", 1e-8))


def test_no_accountant_passes_over_the_delta_of_a_pair() -> None:
    accounting = pytest.importorskip("dp_accounting")
    ledger = Ledger(1.0, 1e-6, currency="approximate")
    ledger.spend(ApproximateDP(0.25, 4e-7), "a")
    (event,) = ledger.to_dp_event().events
    assert isinstance(event, accounting.UnsupportedDpEvent)


# The certificate -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_a_certified_point_is_as_near_as_it_says(loss: Loss) -> None:
    """Against the minimiser found from another start to the last digit, on random tables."""
    for seed in range(6):
        objective = table(loss, 150, 4, seed, 1.2, 3.0)
        tolerance = 2.0**-44 * 150 * loss.lipschitz * 1.2 / 3.0
        point = certified_minimiser(objective, 3.0, tolerance)
        assert np.linalg.norm(objective.accurate_gradient(point)) <= 3.0 * tolerance
        other = point + 1e-3
        for _ in range(40):
            if np.linalg.norm(objective.accurate_gradient(other)) < 1e-13:
                break
            hessian = np.array([objective.hessian(other)(e.reshape(point.shape)).ravel() for e in np.eye(point.size)])
            other = other - np.linalg.solve(hessian, objective.accurate_gradient(other).ravel()).reshape(point.shape)
        assert np.linalg.norm(point - other) <= tolerance + 1e-13


@pytest.mark.parametrize("loss", [HuberisedHinge(), Huber(1.0)], ids=str)
def test_the_error_of_a_gradient_is_within_its_bound(loss: Loss) -> None:
    """Piecewise rational losses, so the true gradient is a fraction; the plain bound n C u must not do."""
    for seed in range(5):
        objective = table(loss, 130, 3, seed, 1.2, 0.5)
        generator = np.random.default_rng(seed)
        w = generator.normal(0, 2, 3)
        X, y, factors = objective._source._features, objective._source._labels, objective._factors
        exact = [
            Fraction(float(q)) * Fraction(float(v)) + Fraction(float(b))
            for q, v, b in zip(objective.quadratic, w, objective.linear, strict=True)
        ]
        for row, label, factor in zip(X, y, factors, strict=True):
            f, t = (
                Fraction(float(factor)),
                sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(row, w, strict=True)),
            )
            t *= f
            if isinstance(loss, Huber):
                residual = max(min(t - Fraction(float(label)), Fraction(1)), Fraction(-1))
            else:
                excess = max(Fraction(3, 2) - Fraction(float(label)) * t, Fraction(0))
                residual = -Fraction(float(label)) * min(excess, Fraction(1))
            exact = [e + residual * f * Fraction(float(x)) for e, x in zip(exact, row, strict=True)]
        computed = objective.accurate_gradient(w)
        error = math.sqrt(sum(float(Fraction(float(c)) - e) ** 2 for c, e in zip(computed, exact, strict=True)))
        bound = objective.error_bound(130, float(np.linalg.norm(w)))
        assert error <= bound < 1e-10
        plain = objective.batch_gradient(w, np.ones(130, dtype=bool)) + objective.quadratic * w + objective.linear
        assert np.linalg.norm(plain - computed) <= bound + objective.batch_error_bound(130, float(np.linalg.norm(w)))


def test_a_poor_solver_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a good start, and without Newton's method, the last resort still reaches the tolerance."""
    monkeypatch.setitem(METHODS, "lbfgs", lambda _, start: iter([Candidate(np.full(start.shape, 5.0))]))
    objective = table(Logistic(), 60, 3, 0, 1.0, 5.0)
    tolerance = 2.0**-44 * 60 / 5.0
    first = certified_minimiser(objective, 5.0, tolerance)
    monkeypatch.setattr(certified, "_newton_step", lambda *_: None)
    second = certified_minimiser(objective, 5.0, tolerance)
    assert np.linalg.norm(first - second) <= 2 * tolerance
    assert np.linalg.norm(objective.accurate_gradient(second)) <= 5.0 * tolerance


@pytest.mark.parametrize(
    ("loss", "rows", "columns", "epsilon"),
    [(Logistic(), 20, 30, 0.01), (Multinomial(10), 30, 40, 0.05), (HuberisedHinge(), 2000, 1000, 0.05)],
    ids=str,
)
def test_every_table_is_certified_however_large_the_noise(
    loss: Loss, rows: int, columns: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows, many columns, a small epsilon: rounding errors of long points must not keep the solver for ever."""
    step, calls = certified._newton_step, []

    def counted(objective: RowObjective, weights: np.ndarray) -> np.ndarray | None:
        calls.append(1)
        assert len(calls) <= 20, "the tolerance is out of reach"
        return step(objective, weights)

    monkeypatch.setattr(certified, "_newton_step", counted)
    curator = make_curator(epsilon, loss, rows=rows, columns=columns, currency="approximate")
    assert np.isfinite(objpert(curator, ObjPertSettings()).weights).all()


@pytest.mark.parametrize("loss", [Logistic(), HuberisedHinge(), Squared()], ids=str)
def test_a_table_that_leaves_a_direction_free_is_certified_too(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two equal columns and next to no quadratic: weights of 1e8, whose last digits are coarser than 2^-44 n C."""
    calls, step = [], certified._newton_step

    def counted(objective: RowObjective, weights: np.ndarray) -> np.ndarray | None:
        calls.append(1)
        assert len(calls) <= 60, "the tolerance is out of reach"
        return step(objective, weights)

    monkeypatch.setattr(certified, "_newton_step", counted)
    X = np.random.default_rng(0).random((100, 3))
    X[:, 2] = X[:, 1]
    ledger = Ledger(100.0, 1e-6, currency="approximate")
    curator = curator_of(X, np.where(X[:, 0] > 0.5, 1.0, -1.0), loss, ledger, intercept=False)
    weights = objpert(curator, ObjPertSettings(strong_convexity=1e-9)).weights
    assert 1e6 < np.linalg.norm(weights) < 1e12


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_reachable_tolerance_exceeds_the_error_at_minimisers(loss: Loss) -> None:
    for seed in range(6):
        objective = table(loss, 40, 4, seed, 1.2, 0.01)
        size = float(np.linalg.norm(objective.linear))
        tolerance = reachable_tolerance(loss, 1.2, 4, 40, 0.01, size)
        point = certified_minimiser(objective, 0.01, tolerance / 0.01)
        length = float(np.linalg.norm(point))
        assert 2 * objective.error_bound(40, length, 0.01 * length + size) <= tolerance * (1 + 1e-6)


@pytest.mark.parametrize("columns", [1, 50, 20000])
def test_a_gradient_is_taken_near_the_point_it_is_asked_for(columns: int) -> None:
    objective = table(Logistic(), 2, columns, 0, 1.0, 1.0)
    for size in (0.7, 1 - 2.0**-40, 1.0):
        w = np.random.default_rng(columns).normal(size=columns)
        w *= size / np.linalg.norm(w)
        high = objective._grid.place_weights(w)
        low = objective._grid.place_weights(w - high)
        assert np.linalg.norm((w - high) - low) <= objective.placement_error(float(np.linalg.norm(w)))


@pytest.mark.parametrize("loss", [Logistic(), HuberisedHinge(), Huber(1.0), Poisson()], ids=str)
@pytest.mark.parametrize("label", [7.0, -1e9, math.nan, math.inf])
def test_a_label_that_is_none_moves_no_gradient_beyond_the_bound(loss: Loss, label: float) -> None:
    grid = FeatureGrid(1.0, 2)
    X = grid.place(np.array([[0.5, -0.25]]))
    source = ArraySource(X, np.array([label]), grid)
    objective = RowObjective(source, grid, loss, grid.squared_norms(X), 1.0, np.zeros(2), np.zeros(2))
    for w in (np.zeros(2), np.array([3.0, -2.0]), np.array([-3.0, 2.0])):
        for gradient in (objective.accurate_gradient(w), objective.batch_gradient(w, np.ones(1, dtype=bool))):
            assert np.linalg.norm(gradient) <= np.linalg.norm(X) * (1 + 1e-12)


def test_rows_longer_than_the_bound_are_scaled_down() -> None:
    objective = table(Logistic(), 50, 4, 1, 0.5, 1.0)
    X = objective._source._features
    lengths = objective._factors * np.linalg.norm(X, axis=1)
    assert lengths.max() <= 0.5 * (1 + 2.0**-50)
    one = objective.accurate_gradient(np.zeros(4)) - objective.linear
    expected = -0.5 * (X * (objective._factors * objective._source._labels)[:, None]).sum(axis=0)
    assert one == pytest.approx(expected, abs=1e-12)


def test_a_kink_is_refused_before_anything_is_charged() -> None:
    assert isinstance(smooth_loss(Squared(), "objpert"), Huber)

    class Sigmoid(Logistic):
        convex = False

    with pytest.raises(InvalidParameter, match="convex"):
        smooth_loss(Sigmoid(), "objpert")
    curator = make_curator(1.0, Hinge(), currency="approximate")
    with pytest.raises(InvalidParameter, match="huberised"):
        objpert(curator, ObjPertSettings())
    assert not curator.ledger.entries


# The method ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Logistic(), HuberisedHinge(), Squared(), Multinomial(3)], ids=str)
@pytest.mark.parametrize("pure", [False, True])
def test_epsilon_to_infinity_recovers_the_optimum(loss: Loss, pure: bool) -> None:
    epsilon = 16.0 if pure else 1e4
    curator = make_curator(epsilon, loss, rows=4000, alpha=0.01, currency="pure" if pure else "approximate")
    best, value = optimum(curator)
    at_zero = value(np.zeros(curator.problem.shape))
    weights = objpert(curator, ObjPertSettings(pure=pure)).weights
    assert best - 1e-7 <= value(weights) <= best + 0.05 * (at_zero - best)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("epsilon", [0.05, 2.0])
def test_the_budget_is_spent_and_never_overspent(relation: str, pure: bool, epsilon: float) -> None:
    curator = make_curator(epsilon, rows=300, relation=relation, currency="pure" if pure else "approximate")
    result = objpert(curator, ObjPertSettings(pure=pure))
    ledger = curator.ledger
    assert [entry.label for entry in ledger.entries] == ["mean row norm", "objective perturbation"]
    assert 0.999 * epsilon < ledger.spent <= epsilon
    assert sum(entry.cost.delta for entry in ledger.entries) <= 1e-6
    assert np.isfinite(result.weights).all()


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("pure", [False, True])
def test_the_two_noises_have_the_scales_of_the_cost(relation: str, pure: bool) -> None:
    """Sums that are given to the mechanisms: C for the linear term, the tolerance for the point, and nothing else."""
    curator = make_curator(1.0, rows=500, relation=relation, currency="pure" if pure else "approximate")
    curator._noise = Recorder()
    objpert(curator, ObjPertSettings(pure=pure, row_bound=1.25, strong_convexity=40.0))
    linear, output = curator._noise.sums[-2:]
    cost = curator.ledger.entries[-1].cost
    assert not linear.values.any()
    assert linear.sensitivity.zero_out == pytest.approx(1.25, rel=1e-9)
    assert linear.sensitivity.replace_one == pytest.approx(2.5 if pure else 1.25, rel=1e-9)
    assert output.sensitivity.zero_out >= 2 * 2.0**-44 * 500 * 1.25 / 40.0
    paid = curator._noise.costs[-2:]
    if pure:
        assert isinstance(cost, PureObjectivePerturbation)
        spent = cost.log_determinant + paid[0].epsilon + paid[1].epsilon
        assert 0.999 * cost.epsilon < spent <= cost.epsilon
        assert cost.log_determinant >= math.log1p(0.25 * 1.25**2 / 40.0)
    else:
        assert isinstance(cost, ObjectivePerturbation)
        assert paid == [Gaussian(cost.noise_multiplier), Gaussian(cost.output_multiplier)]
        assert cost.log_determinant >= math.log1p(0.25 * 1.25**2 / 40.0)
        assert cost.relation == relation


def test_noise_in_the_weights_is_that_of_the_linear_term() -> None:
    """Rows of zeros: the minimiser is -b/Lambda. 400 runs of 4 weights; a scale wrong by 10% is rejected."""
    draws = []
    for seed in range(400):
        ledger = Ledger(1.0, 1e-6, currency="approximate")
        curator = curator_of(np.zeros((5, 4)), np.ones(5), Logistic(), ledger, intercept=False, seed=seed)
        draws.append(objpert(curator, ObjPertSettings(row_bound=1.0, strong_convexity=10.0)).weights)
    sigma = ledger.entries[-1].cost.noise_multiplier
    assert np.std(draws) == pytest.approx(sigma / 10.0, rel=4.5 / math.sqrt(2 * 1600))


def test_a_delta_that_cannot_be_paid_is_refused_before_anything_is_charged() -> None:
    account = Ledger(10.0, 1.5e-6, currency="approximate")
    account.spend(ApproximateDP(0.5, 1e-6), "an earlier fit")
    curator = make_curator(1.0, rows=50, currency="approximate", account=account)
    with pytest.raises(BudgetExhausted, match="may fail"):
        objpert(curator, ObjPertSettings())
    assert not curator.ledger.entries
    assert len(account.entries) == 1
    curator = make_curator(1.0, rows=50, currency="pure", delta=1e-24)
    with pytest.raises(BudgetExhausted, match="may fail"):
        objpert(curator, ObjPertSettings(pure=True))
    assert not curator.ledger.entries


def test_a_weak_quadratic_is_raised_so_that_the_determinants_can_be_paid() -> None:
    curator = make_curator(0.1, rows=200, currency="approximate")
    result = objpert(curator, ObjPertSettings(strong_convexity=1e-6))
    assert curator.ledger.entries[-1].cost.log_determinant <= 0.0501
    assert any("scaled down" in remark for remark in result.remarks)


def test_the_method_works_through_the_estimator_and_repeats_with_its_seed() -> None:
    data = load_dataset("synthetic", n=4000)
    models = [
        DPLogisticRegression(1.0, 1e-6, bounds=(0, 1), method="objpert", classes=(0, 1), random_state=seed).fit(
            data.X, data.y
        )
        for seed in (3, 3, 4)
    ]
    assert models[0].score(data.X, data.y) > 0.7
    assert np.array_equal(models[0].coef_, models[1].coef_)
    assert not np.array_equal(models[0].coef_, models[2].coef_)
    assert models[0].privacy_["mechanisms"] == {"laplace": 1, "objective-perturbation": 1}
    assert "certified" in models[0].privacy_["remarks"][-1]


@pytest.mark.parametrize("options", [{"row_bound": 0.0}, {"strong_convexity": -1.0}, {"steps": 3}])
def test_bad_settings_are_refused_by_name(options: dict[str, float]) -> None:
    data = load_dataset("synthetic", n=50)
    model = DPLogisticRegression(1.0, 1e-6, bounds=(0, 1), method="objpert", classes=(0, 1), solver_options=options)
    with pytest.raises(InvalidParameter):
        model.fit(data.X, data.y)
