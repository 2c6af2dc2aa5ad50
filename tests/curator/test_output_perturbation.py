"""Output perturbation: the distance of neighbours' points, with and without the worst row, and the noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

from asking import noisy_descent, permuted_descent
from dpdescent import DPLogisticRegression, InvalidParameter, Ledger, load_dataset
from dpdescent.accounting import RDP, Gaussian
from dpdescent.accounting.sampling import ShuffledDescent, shift_law
from dpdescent.curator import Curator
from dpdescent.errors import ScaleOutOfRange
from dpdescent.noise import Randomness
from dpdescent.problems import Hinge, Huber, HuberisedHinge, Logistic, Loss, Multinomial, Poisson
from dpdescent.queries import PermutedDescent
from dpdescent.solvers import OutPertGDSettings, OutPertRSGDSettings, outpert_gd, outpert_rsgd
from rival_tables import Recorder, curator_of, make_curator, optimum, recorded, replaced

METHODS: dict[str, tuple[Any, Any, str]] = {
    "outpert-gd": (outpert_gd, OutPertGDSettings, "gdp"),
    "outpert-rsgd": (outpert_rsgd, OutPertRSGDSettings, "rdp"),
}


def descent(loss: Loss, curator: Curator) -> None:
    noisy_descent(curator, loss, 1.2, 0.5, 20, curator.remaining)


def permuted(loss: Loss, curator: Curator) -> None:
    batches = -(-curator.rows // 4)
    curator.answer(PermutedDescent(loss, 1.2, 4, 0.5, ShuffledDescent(50.0, 3, batches)))


@pytest.mark.parametrize("ask", [descent, permuted])
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("loss", [Logistic(), HuberisedHinge(), Huber(1.0), Multinomial(3), Poisson()], ids=str)
def test_one_row_moves_the_point_by_at_most_its_sensitivity(
    ask: Callable[[Loss, Curator], None], relation: str, loss: Loss
) -> None:
    """25 random pairs a case, the same permutations for both; replaced rows keep their place, the last is removed."""
    generator = np.random.default_rng(0)
    for trial in range(25):
        curator = make_curator(1.0, loss, rows=12, columns=3, seed=trial, relation=relation)
        row = 11 if relation == "zero-out" else int(generator.integers(12))
        other = replaced(curator, row, relation, generator)
        points = [recorded(c, partial(ask, loss)) for c in (curator, other)]
        moved = np.linalg.norm(points[0].to_float() - points[1].to_float())
        assert moved <= points[0].sensitivity.zero_out


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_the_worst_row_comes_near_the_sensitivity_of_descent(relation: str) -> None:
    """A row of full slope among rows of zeros: the bound eta T C/n is reached to a few percent, so it is no guess."""
    X, labels = np.zeros((10, 2)), np.ones(10)
    X[0, 0] = 0.05
    other, turned = X.copy(), labels.copy()
    if relation == "zero-out":
        other[0] = 0.0
    else:
        turned[0] = -1.0
    loss = HuberisedHinge()
    points = [
        recorded(
            curator_of(table, y, loss, Ledger(1.0, 1e-6, currency="gdp", relation=relation), intercept=False),
            lambda c: noisy_descent(c, loss, 0.05, 1.0, 50, c.remaining),
        )
        for table, y in ((X, labels), (other, turned))
    ]
    moved = np.linalg.norm(points[0].to_float() - points[1].to_float())
    assert 0.97 * points[0].sensitivity.zero_out < moved <= points[0].sensitivity.zero_out
    assert points[0].sensitivity.zero_out == pytest.approx((1 if relation == "zero-out" else 2) * 50 * 0.05 / 10)


def test_strong_convexity_lowers_the_sensitivity() -> None:
    """With lambda = 0.5 and eta = 0.4 the sum of powers of 0.8 is at most 5 steps' worth."""
    curator = make_curator(1.0, rows=20, alpha=0.5, intercept=False)
    point = recorded(curator, lambda c: noisy_descent(c, Logistic(), 1.0, 0.4, 100, c.remaining))
    assert point.sensitivity.zero_out == pytest.approx(0.4 / 20 * 5, rel=1e-3)


def test_a_step_beyond_the_smoothness_is_refused_before_anything_is_charged() -> None:
    for ask in (
        lambda c: noisy_descent(c, Logistic(), 1.0, 4.1, 3, c.remaining),
        lambda c: permuted_descent(c, Logistic(), 1.0, 2, 5, 4.1, c.remaining),
    ):
        curator = make_curator(1.0, rows=20)
        with pytest.raises(InvalidParameter, match="smoothness"):
            ask(curator)
        assert not curator.ledger.entries


def test_more_rows_than_places_are_refused_before_anything_is_charged() -> None:
    X, labels = np.ones((5, 2)), np.ones(5)
    for ask in (partial(descent, Logistic()), partial(permuted, Logistic())):
        curator = curator_of(X, labels, Logistic(), Ledger(1.0, 1e-6, currency="gdp"), rows=4, intercept=False)
        with pytest.raises(InvalidParameter, match="more rows"):
            ask(curator)
        assert not curator.ledger.entries


def test_every_row_sits_in_one_uniform_place_of_each_pass() -> None:
    """Places of 6 of 10 rows in 2000 permutations: a permutation each, uniform within 5 standard errors."""
    from dpdescent.queries.descents import _permutation

    drawn = np.array([_permutation(Randomness(0).stream("permutation", i), 10) for i in range(2000)])
    assert (np.sort(drawn, axis=1) == np.arange(10)).all()
    counts = np.array([np.bincount(column, minlength=10) for column in drawn.T[:6]]) / 2000
    assert np.abs(counts - 0.1).max() < 5 * math.sqrt(0.09 / 2000)


def test_the_law_of_the_shift_is_that_of_random_places() -> None:
    generator = np.random.default_rng(0)
    for passes, batches in ((1, 5), (4, 7), (3, 200)):
        shares, logs = shift_law(passes, batches)
        assert np.exp(logs).sum() == pytest.approx(1.0)
        drawn = generator.integers(1, batches + 1, (20000, passes)).sum(axis=1) / (batches * passes)
        for power in (1, 2, 4):
            mean = float(np.exp(logs) @ shares**power)
            sampled = (drawn**power).mean()
            assert sampled - 5 * (drawn**power).std() / math.sqrt(20000) <= mean <= sampled * 1.06 + 0.01


@pytest.mark.parametrize("order", [2.0, 8.0, 40.0])
def test_the_cost_of_a_random_shift_is_that_of_the_mixture(order: float) -> None:
    """At least the true divergence of the mixtures, by quadrature, and less than that of the largest shift."""
    noise, passes, batches = 2.0, 2, 6
    grid = np.linspace(-60, 60, 40001)
    shifts = np.add.outer(np.arange(1, 7), np.arange(1, 7)).ravel() / 12
    logs = np.array([-((grid - s) ** 2) / (2 * noise**2) for s in shifts])
    mixture = logsumexp(logs, axis=0) - math.log(shifts.size)
    ratio = order * mixture + (1 - order) * -(grid**2) / (2 * noise**2)
    true = math.log(np.trapezoid(np.exp(ratio), grid) / (noise * math.sqrt(2 * math.pi))) / (order - 1)
    cost = ShuffledDescent(noise, passes, batches)
    assert true <= cost.rdp(order) < 0.99 * Gaussian(noise).rdp(order)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("loss", [Logistic(), HuberisedHinge(), Huber(1.0)], ids=str)
def test_the_law_over_all_permutations_obeys_the_cost(
    relation: str, loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three rows, one weight, two passes: all 36 runs of either neighbour, any row missing, by quadrature."""
    from dpdescent.queries import descents as module

    generator = np.random.default_rng(0)
    runs = list(itertools.product(itertools.permutations(range(3)), repeat=2))

    def centres(X: np.ndarray, labels: np.ndarray) -> np.ndarray:
        found = []
        for run in runs:
            order = iter(run)
            monkeypatch.setattr(module, "_permutation", lambda *_, order=order: np.array(next(order)))
            ledger = Ledger(1e4, 1e-6, currency="gdp", relation=relation)
            curator = curator_of(X, labels, loss, ledger, rows=3, intercept=False)
            ask = PermutedDescent(loss, 1.0, 1, 1 / loss.smoothness, ShuffledDescent(2.0, 2, 3))
            found.append(recorded(curator, lambda c, ask=ask: c.answer(ask)))
        return np.array([point.to_float()[0] for point in found])

    for trial in range(4):
        X, labels = generator.choice([-1.0, 1.0], (3, 1)), generator.choice([-1.0, 1.0], 3)
        row = trial % 3
        if relation == "zero-out":
            other, turned = np.delete(X, row, axis=0), np.delete(labels, row)
        else:
            other, turned = X.copy(), labels.copy()
            turned[row] *= -1
        largest = 2 * (1 if relation == "zero-out" else 2) / loss.smoothness
        pair = [centres(X, labels), centres(other, turned)]
        for noise, order in itertools.product((0.3, 1.0, 4.0), (1.5, 2.0, 8.0, 24.0)):
            sigma = noise * largest
            grid = np.linspace(min(map(np.min, pair)) - 30 * sigma, max(map(np.max, pair)) + 30 * sigma, 6001)
            first, second = (
                logsumexp(-((grid - c[:, None]) ** 2) / (2 * sigma**2), axis=0) - math.log(36) for c in pair
            )
            unit = math.log((grid[1] - grid[0]) / (sigma * math.sqrt(2 * math.pi)))
            for p, q in ((first, second), (second, first)):
                true = (float(logsumexp(order * p + (1 - order) * q)) + unit) / (order - 1)
                assert true <= ShuffledDescent(noise, 2, 3).rdp(order) + 1e-9


def test_shifts_too_rare_for_a_float_are_charged_for() -> None:
    """The largest shift alone, of probability 64^-300, is more than what is left without it."""
    cost, order = ShuffledDescent(0.005, 300, 64), 2.0
    assert cost.rdp(order) >= order / (2 * 0.005**2) - 300 * math.log(64)


def test_a_lattice_too_coarse_for_the_allowance_is_refused_before_anything_is_charged() -> None:
    curator = make_curator(1.0, rows=20)
    batches = -(-curator.rows // 5)
    with pytest.raises(ScaleOutOfRange):
        curator.answer(PermutedDescent(Logistic(), 1.0, 5, 0.5, ShuffledDescent(2.0**40, 2, batches)))
    assert not curator.ledger.entries


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=str)
def test_epsilon_to_infinity_recovers_the_optimum(method: str, loss: Loss) -> None:
    solve, settings, currency = METHODS[method]
    curator = make_curator(1e4, loss, alpha=0.02, currency=currency)
    best, value = optimum(curator)
    at_zero = value(np.zeros(curator.problem.shape))
    assert best - 1e-7 <= value(solve(curator, settings()).weights) <= best + 0.06 * (at_zero - best)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("epsilon", [0.05, 2.0])
def test_the_budget_is_spent_and_never_overspent(method: str, relation: str, epsilon: float) -> None:
    solve, settings, currency = METHODS[method]
    curator = make_curator(epsilon, rows=300, relation=relation, currency=currency)
    result = solve(curator, settings())
    ledger = curator.ledger
    assert len(ledger.entries) == 2
    assert 0.999 * ledger.budget < ledger.spent <= ledger.budget
    assert 0.95 * epsilon < ledger.spent_epsilon() <= epsilon
    assert np.isfinite(result.weights).all()


@pytest.mark.parametrize("method", METHODS)
def test_the_noise_is_the_sensitivity_times_the_multiplier(method: str) -> None:
    """Rows of zeros stay at zero, so weights are noise: 300 runs of 4; a scale wrong by 12% is rejected."""
    solve, settings, currency = METHODS[method]
    options = {"row_bound": 1.0} | ({"steps": 10} if method == "outpert-gd" else {"passes": 2, "batch_rows": 10})
    draws = []
    for seed in range(300):
        ledger = Ledger(1.0, 1e-6, currency=currency if currency == "gdp" else RDP(30))
        curator = curator_of(np.zeros((40, 4)), np.ones(40), Logistic(), ledger, intercept=False, seed=seed)
        draws.append(solve(curator, settings(**options)).weights)
    curator._noise = Recorder()
    curator.ledger = Ledger(1.0, 1e-6, currency=ledger.currency)
    solve(curator, settings(**options))
    largest = curator._noise.sums[-1].sensitivity.zero_out
    assert largest == pytest.approx(4 * 10 / 40 if method == "outpert-gd" else 4 * 2 / 10, rel=1e-3)
    expected = largest * ledger.entries[-1].cost.noise_multiplier
    assert np.std(draws) == pytest.approx(expected, rel=0.12)


@pytest.mark.parametrize("method", METHODS)
def test_a_kink_is_refused_and_seeds_repeat(method: str) -> None:
    solve, settings, currency = METHODS[method]
    curator = make_curator(1.0, Hinge(), currency=currency)
    with pytest.raises(InvalidParameter, match="huberised"):
        solve(curator, settings())
    assert not curator.ledger.entries
    data = load_dataset("synthetic", n=1500)
    models = [
        DPLogisticRegression(2.0, 1e-6, bounds=(0, 1), method=method, classes=(0, 1), random_state=s).fit(
            data.X, data.y
        )
        for s in (1, 1, 2)
    ]
    assert np.array_equal(models[0].coef_, models[1].coef_)
    assert not np.array_equal(models[0].coef_, models[2].coef_)
    assert "rounding errors" in models[0].privacy_["remarks"][-1]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("options", [{"row_bound": 0.0}, {"steps": 0, "passes": 0}, {"batch_rows": 0.5}])
def test_bad_settings_are_refused_by_name(method: str, options: dict[str, float]) -> None:
    data = load_dataset("synthetic", n=50)
    with pytest.raises(InvalidParameter):
        DPLogisticRegression(1.0, 1e-6, bounds=(0, 1), method=method, classes=(0, 1), solver_options=options).fit(
            data.X, data.y
        )
