"""Output perturbation of certified minimisers: what one row moves, the noise, and what is refused."""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from asking import noisy_minimiser
from dpdescent import BudgetExhausted, DPLinearSVC, DPLogisticRegression, InvalidParameter, Ledger, load_dataset
from dpdescent.accounting import (
    Gaussian,
    Laplace,
    NormLaplace,
    gaussian_noise_multiplier,
    gaussian_tail_constant,
    gdp_to_delta,
    loose_noise_multiplier,
)
from dpdescent.curator import Curator, perturbed_minimiser
from dpdescent.minimisers import METHODS, EmpiricalRisk, GeneralObjective
from dpdescent.problems import Hinge, Huber, HuberisedHinge, Logistic, Loss, Multinomial, Poisson, Squared
from dpdescent.relations import Relation
from dpdescent.solvers import OutPertSettings, outpert
from rival_tables import Recorder, curator_of, make_curator, optimum, recorded, replaced

RELATIONS = ["zero-out", "replace-one"]


def ask(loss: Loss, strong_convexity: float, radius: float, curator: Curator, method: str = "lbfgs") -> np.ndarray:
    risk = EmpiricalRisk(loss, 1.2)
    return noisy_minimiser(curator, risk, strong_convexity, Gaussian(50.0), radius=radius, minimiser=method)


# What one row moves --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [math.inf, 0.5])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("loss", "pairs"),
    [
        (Logistic(), 30),
        (HuberisedHinge(), 30),
        (Huber(1.0), 15),
        (Multinomial(3), 12),
        (Hinge(), 12),
        (Poisson(), 15),
        (Huber(1.0, 8.0), 12),
    ],
    ids=str,
)
def test_one_row_moves_the_certified_point_by_at_most_its_sensitivity(
    loss: Loss, pairs: int, relation: str, radius: float
) -> None:
    """500 random pairs in all; the sensitivity is V/mu, twice the tolerance, and a little rounding, no more.

    Nor is it more than the diameter of the ball that holds all minimisers.
    """
    generator = np.random.default_rng(0)
    clip = loss.lipschitz * 1.2 * (1 if relation == "zero-out" else 2)
    for trial in range(pairs):
        strong_convexity = float(10.0 ** generator.uniform(-0.5, 1))
        curator = make_curator(1e6, loss, rows=10, columns=2, seed=trial, relation=relation)
        other = replaced(curator, int(generator.integers(10)), relation, generator)
        points = [recorded(c, partial(ask, loss, strong_convexity, radius)) for c in (curator, other)]
        moved = np.linalg.norm(points[0].to_float() - points[1].to_float())
        assert moved <= points[0].sensitivity.zero_out
        share = 1 / 64 if isinstance(loss, Hinge) else 1 / 256
        across = 2 * min(radius, EmpiricalRisk(loss, 1.2).farthest(10, strong_convexity))
        bound = min(clip / strong_convexity, across) * (1 + 2 * share)
        assert points[0].sensitivity.zero_out == pytest.approx(bound, rel=1e-4)


@pytest.mark.parametrize("radius", [math.inf, 0.1])
@pytest.mark.parametrize("loss", [HuberisedHinge(), Hinge(), Logistic()], ids=str)
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_worst_row_comes_near_the_sensitivity(relation: str, loss: Loss, radius: float) -> None:
    """One short row among rows of zeros has nearly the full slope (half of it for the sigmoid)."""
    X, labels = np.zeros((10, 2)), np.ones(10)
    X[0, 0] = 0.05
    other, turned = X.copy(), labels.copy()
    if relation == "zero-out":
        other[0] = 0.0
    else:
        turned[0] = -1.0
    points = []
    for table, y in ((X, labels), (other, turned)):
        ledger = Ledger(1e6, 1e-6, currency="gdp", relation=relation)
        curator = curator_of(table, y, loss, ledger, intercept=False)
        risk = EmpiricalRisk(loss, 0.05)
        points.append(
            recorded(curator, lambda c, risk=risk: noisy_minimiser(c, risk, 1.0, Gaussian(50.0), radius=radius))
        )
    moved = np.linalg.norm(points[0].to_float() - points[1].to_float())
    share = moved / points[0].sensitivity.zero_out
    assert (0.45 if isinstance(loss, Logistic) else 0.96) < share <= 1


@pytest.mark.parametrize("smooth", [True, False])
@pytest.mark.parametrize("radius", [math.inf, 0.4])
def test_one_row_moves_the_minimiser_of_a_general_function_by_at_most_its_sensitivity(
    smooth: bool, radius: float
) -> None:
    """Soft and hard maxima of linear functions plus |w|^2/2, 150 pairs each; two opposite rows come near 2L/mu."""
    generator = np.random.default_rng(0)

    def released(rows: np.ndarray) -> Any:
        def function(w: np.ndarray) -> tuple[float, np.ndarray]:
            scores = rows @ w
            if not smooth:
                return float(scores.max() + w @ w / 2), rows[int(scores.argmax())] + w
            top = scores.max()
            weights = np.exp(scores - top)
            return float(top + math.log(weights.sum()) + w @ w / 2), rows.T @ (weights / weights.sum()) + w

        objective = GeneralObjective(
            function,
            2,
            strong_convexity=1.0,
            lipschitz=1.0,
            smoothness=2.0 if smooth else math.inf,
            errors=(1e-14, 1e-14),
        )
        recorder = Recorder()
        perturbed_minimiser(
            objective, Ledger(1e6, 1e-6, currency="gdp"), Gaussian(50.0), radius=radius, noise=recorder
        )
        return recorder.sums[-1]

    def distance(first: np.ndarray, second: np.ndarray) -> float:
        points = [released(rows) for rows in (first, second)]
        share = 1 / 256 if smooth else 1 / 16
        assert points[0].sensitivity.zero_out == pytest.approx(2 * (1 + 2 * share), rel=1e-6)
        moved = float(np.linalg.norm(points[0].to_float() - points[1].to_float()))
        assert moved <= points[0].sensitivity.zero_out
        return moved

    for _ in range(150):
        rows = generator.normal(size=(4, 2))
        rows /= np.maximum(np.linalg.norm(rows, axis=1), 1)[:, None]
        other = rows.copy()
        other[0] = -other[0]
        distance(rows, other)
    opposite = np.array([[1.0, 0.0]])
    assert distance(opposite, -opposite) >= min(2 / 1.2, 2 * radius * 0.97)


def test_the_regulariser_cancels() -> None:
    """The sensitivity is 2L/(lambda n), not 2(L + lambda R)/(lambda n), and a penalty's curvature counts as well."""
    risk = EmpiricalRisk(Logistic(), 2.0)
    assert risk.variation(100, Relation.REPLACE_ONE) / (0.1 * 100) == pytest.approx(2 * 2 / (0.1 * 100))
    curator = make_curator(1e6, rows=100, alpha=0.1, intercept=False, relation="replace-one")
    point = recorded(curator, lambda c: noisy_minimiser(c, risk, 0.0, Gaussian(50.0)))
    assert point.sensitivity.zero_out == pytest.approx(4 / 10 * (1 + 2 / 256), rel=1e-6)


# The noise -----------------------------------------------------------------------------------------------------


def test_the_two_gaussian_calibrations_have_their_values() -> None:
    assert gaussian_noise_multiplier(1.0, 1e-5) == pytest.approx(3.730631635, rel=1e-8)
    assert loose_noise_multiplier(1.0, 1e-5) == pytest.approx(4.608858083, rel=1e-8)
    for epsilon in (0.05, 0.5, 1.0, 5.0, 20.0):  # private for every epsilon, and never the better of the two
        for delta in (1e-10, 1e-5, 0.1):
            assert gdp_to_delta(1 / loose_noise_multiplier(epsilon, delta), epsilon) <= delta
    # The exponent of the paper's Algorithm 6 has a factor 2 too much.
    assert gdp_to_delta(math.sqrt(2) / loose_noise_multiplier(1.0, 1e-5), 1.0) == pytest.approx(7.441835e-5, rel=1e-5)
    with pytest.raises(InvalidParameter, match="1/2"):
        loose_noise_multiplier(1.0, 0.5)


def draws(cost: Any, currency: str, delta: float, count: int, size: int = 3) -> tuple[np.ndarray, float]:
    """Return released minimisers of a table of zeros, which are noise, and their sensitivity."""
    found = []
    for seed in range(count):
        ledger = Ledger(16.0, delta, currency=currency, relation="replace-one")
        curator = curator_of(np.zeros((5, size)), np.ones(5), Logistic(), ledger, intercept=False, seed=seed)
        found.append(noisy_minimiser(curator, EmpiricalRisk(Logistic(), 1.0), 10.0, cost))
    curator._noise, curator.ledger = Recorder(), Ledger(16.0, delta, currency=currency, relation="replace-one")
    noisy_minimiser(curator, EmpiricalRisk(Logistic(), 1.0), 10.0, cost)
    return np.array(found), curator._noise.sums[-1].sensitivity.zero_out


def test_gaussian_noise_is_the_sensitivity_times_the_multiplier() -> None:
    """1200 draws: a Kolmogorov-Smirnov test at 1e-4, and a deviation that rejects a scale wrong by 10%."""
    cost = Gaussian(3.7306)
    noise, sensitivity = draws(cost, "gdp", 1e-5, 400)
    assert sensitivity == pytest.approx(2 / 10 * (1 + 2 / 256), rel=1e-6)
    scale = 3.7306 * sensitivity
    assert stats.kstest(noise.ravel() / scale, "norm").pvalue > 1e-4
    assert np.std(noise) == pytest.approx(scale, rel=4.5 / math.sqrt(2 * 1200))


def test_norm_laplace_noise_has_a_gamma_length_and_no_direction() -> None:
    """500 lengths and directions; tests at 1e-4, which reject a scale wrong by 15%."""
    noise, sensitivity = draws(NormLaplace(2.0), "pure", 1e-6, 500)
    lengths = np.linalg.norm(noise, axis=1) / (sensitivity / 2.0)
    law = stats.gamma(3)
    assert stats.kstest(lengths, law.cdf).pvalue > 1e-4
    assert stats.kstest(lengths / 1.15, law.cdf).pvalue < 1e-4
    directions = noise / np.linalg.norm(noise, axis=1)[:, None]
    assert stats.kstest(directions[:, 0], stats.uniform(-1, 2).cdf).pvalue > 1e-4  # Archimedes, in three dimensions


def test_laplace_noise_covers_the_sum_of_absolute_changes_where_delta_is_zero() -> None:
    """1200 draws at 1e-4, and a mean size that rejects a scale wrong by 14%; |z|_1 <= sqrt(p) |z|_2."""
    noise, sensitivity = draws(Laplace(2.0), "pure", 0.0, 400)
    assert sensitivity == pytest.approx(math.sqrt(3) * 2 / 10 * (1 + 2 / 256), rel=1e-6)
    assert stats.kstest(noise.ravel() / (sensitivity / 2.0), "laplace").pvalue > 1e-4
    assert np.abs(noise).mean() == pytest.approx(sensitivity / 2.0, rel=4.5 / math.sqrt(1200))


def test_a_tolerance_out_of_reach_of_floating_point_is_paid_for_and_not_waited_for() -> None:
    """tau is raised to what can be certified for every table, and so is the noise."""
    risk = EmpiricalRisk(Logistic(), 1.0)
    curator = make_curator(1e6, rows=50)
    point = recorded(curator, lambda c: noisy_minimiser(c, risk, 3.0, Gaussian(50.0), tolerance=1e-300))
    assert point.sensitivity.zero_out == pytest.approx(1 / 3 * (1 + 2 * 2.0**-20), rel=1e-10)
    curator = make_curator(1e6, rows=50)
    reachable = risk.reachable(50, 5, 1e-9, 1e-9)  # a minimiser of length 1e5, of which many digits are lost
    point = recorded(curator, lambda c: noisy_minimiser(c, risk, 1e-9, Gaussian(50.0), tolerance=1e-300))
    across = 2 * risk.farthest(50, 1e-9)
    assert across < 1e9
    assert point.sensitivity.zero_out == pytest.approx(across + 2 * max(reachable, across * 2.0**-20), rel=1e-10)
    assert reachable > 1e-4


@pytest.mark.parametrize("loss", [Logistic(), Hinge(), Multinomial(3)], ids=str)
@pytest.mark.parametrize("rows", [1, 40])
def test_every_table_is_certified(loss: Loss, rows: int) -> None:
    """Rows of zeros, equal rows, no rows, one column, next to no regularisation, far too much: the search ends."""
    generator = np.random.default_rng(0)
    tables = [
        np.zeros((rows, 2)),
        np.ones((rows, 2)),
        np.repeat(generator.choice([-1.0, 1.0], (1, 2)), rows, axis=0),
        generator.choice([-1.0, 0.0, 1.0], (rows, 1)),
        np.empty((0, 2)),
        2.0**-18 * np.rint(generator.uniform(-3, 3, (rows, 3))),
    ]
    for X in tables:
        labels = generator.choice([-1.0, 1.0] if loss.outputs == 1 else [0.0, 1.0, 2.0], X.shape[0])
        for strong_convexity in (1e-6, 1.0, 1e6):
            for radius in (math.inf, 1e-3, 10.0):
                ledger = Ledger(1e6, 1e-6, currency="gdp")
                curator = curator_of(X, labels, loss, ledger, rows=rows, intercept=False)
                assert np.isfinite(ask(loss, strong_convexity, radius, curator)).all()


# The method ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minimiser", METHODS)
def test_every_minimiser_gives_the_same_model(minimiser: str) -> None:
    """Seeds fix the noise, so that weights differ by no more than two tolerances."""
    options = {"row_bound": 1.0, "strong_convexity": 5.0}
    curators = [make_curator(2.0, rows=80, noise_seed=4) for _ in range(2)]
    reference = outpert(curators[0], OutPertSettings(**options)).weights
    other = outpert(curators[1], OutPertSettings(minimiser=minimiser, **options)).weights
    assert np.linalg.norm(reference - other) <= 2 * (1 / 5.0) / 256


@pytest.mark.parametrize("loss", [Logistic(), HuberisedHinge(), Squared(), Multinomial(3), Hinge()], ids=str)
def test_epsilon_to_infinity_recovers_the_optimum(loss: Loss) -> None:
    curator = make_curator(1e4, loss, alpha=0.02)
    best, value = optimum(curator)
    at_zero = value(np.zeros(curator.problem.shape))
    assert best - 1e-6 <= value(outpert(curator, OutPertSettings()).weights) <= best + 0.06 * (at_zero - best)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("pure", "delta"), [(False, 1e-6), (True, 1e-6), (False, 0.0)])
@pytest.mark.parametrize("epsilon", [0.05, 2.0])
def test_the_budget_is_spent_and_never_overspent(epsilon: float, pure: bool, delta: float, relation: str) -> None:
    currency = "pure" if pure or delta == 0 else "gdp"
    curator = make_curator(epsilon, rows=300, relation=relation, currency=currency, delta=delta)
    result = outpert(curator, OutPertSettings(pure=pure))
    ledger = curator.ledger
    assert [entry.label for entry in ledger.entries] == ["mean row norm", "minimiser"]
    assert 0.999 * ledger.budget < ledger.spent <= ledger.budget
    assert np.isfinite(result.weights).all()
    kinds = {(False, 1e-6): Gaussian, (True, 1e-6): NormLaplace, (False, 0.0): Laplace}
    assert type(ledger.entries[-1].cost) is kinds[pure, delta]


def test_the_papers_sigma_is_charged_as_the_noise_it_is() -> None:
    curator = make_curator(1.0, rows=100, delta=1e-5)
    outpert(curator, OutPertSettings(sigma="paper", row_bound=1.0))
    assert curator.ledger.entries[-1].cost == Gaussian(loose_noise_multiplier(1.0, 1e-5))
    assert curator.ledger.spent < 0.7 * curator.ledger.budget
    curator = make_curator(1.0, rows=100, delta=1e-5)
    outpert(curator, OutPertSettings(row_bound=1.0))
    assert curator.ledger.entries[-1].cost.noise_multiplier == pytest.approx(3.7306, abs=1e-4)


def test_weights_stay_in_the_ball() -> None:
    for seed in range(5):
        curator = make_curator(0.1, rows=60, noise_seed=seed)
        result = outpert(curator, OutPertSettings(radius=0.7))
        assert np.linalg.norm(result.weights) <= 0.7 * (1 + 1e-12)
    assert any("within 0.7" in remark for remark in result.remarks)


@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=str)
def test_a_ball_has_the_regularisation_of_the_paper_for_rows_and_population(loss: Loss) -> None:
    """Delta 1e-6, d = 5, n = 60, and a loss of slope and, where it has one, curvature 1 or 1/4."""
    constant = gaussian_tail_constant(1e-6)
    price = math.sqrt(5) * (constant + math.sqrt(constant**2 + 2)) / (2 * 60)
    sampled = 1 / math.sqrt(60)
    if loss.hinge:
        empirical, population = 1 / 0.7 / math.sqrt(1 + 1 / price), (math.sqrt(price) + sampled) / 0.7
    else:
        empirical, population = (math.cbrt(0.25 / 0.7**2) * (price ** (2 / 3) + more) for more in (0, sampled))
    for chosen, mean in ((False, empirical), (True, population)):
        curator = make_curator(2.0, loss, rows=60)
        assert curator.problem.shape == (5,)
        result = outpert(curator, OutPertSettings(radius=0.7, row_bound=1.0, population=chosen))
        added = next(remark for remark in result.remarks if "was added" in remark)
        assert float(added.split("/2")[0]) == pytest.approx(60 * mean, rel=1e-4)


@pytest.mark.parametrize(("loss", "method"), [(Hinge(), "sgd"), (Hinge(), "subgradient"), (Logistic(), "agd")])
def test_a_chosen_minimiser_is_named_with_its_successor_and_never_with_the_result(loss: Loss, method: str) -> None:
    """Who made the point depends on the rows: the remark is the same for a table it is easy on and one it is not."""
    told = set()
    for rows, tolerance in ((4, 10.0), (200, 1e-3)):
        curator = make_curator(1.0, loss, rows=rows)
        settings = OutPertSettings(minimiser=method, row_bound=1.0, strong_convexity=100.0, tolerance=tolerance)
        (remark,) = [each for each in outpert(curator, settings).remarks if "tried first" in each]
        assert f"{method!r} was tried first" in remark
        assert "Newton's method" in remark
        told.add(remark)
    assert len(told) == 1
    plain = outpert(make_curator(1.0, loss, rows=50), OutPertSettings())
    assert not any("tried first" in remark for remark in plain.remarks)


def test_nothing_is_charged_for_what_is_refused() -> None:
    for loss, options, match in (
        (Logistic(), {"radius": 0.5, "strong_convexity": 1.0}, "too small"),
        (Hinge(), {"minimiser": "katyusha"}, "kinks"),
        (Logistic(), {"pure": True}, "may fail"),
    ):
        curator = make_curator(
            1.0,
            loss,
            rows=50,
            currency="pure" if options.get("pure") else "gdp",
            delta=1e-24 if options.get("pure") else 1e-6,
        )
        with pytest.raises((InvalidParameter, BudgetExhausted), match=match):
            outpert(curator, OutPertSettings(**options))  # type: ignore[arg-type]
        assert not curator.ledger.entries
    # The ball holds every minimiser where it is as large as that: sqrt(2 n log 2/mu).
    curator = make_curator(1.0, rows=50)
    outpert(curator, OutPertSettings(radius=math.sqrt(2 * 50 * math.log(2)) * 1.001, strong_convexity=1.0))
    curator = make_curator(1.0, rows=50)
    with pytest.raises(InvalidParameter, match="strongly convex"):
        noisy_minimiser(curator, EmpiricalRisk(Logistic(), 1.0), 0.0, Gaussian(5.0))
    assert not curator.ledger.entries


@pytest.mark.parametrize(
    "options",
    [
        {"row_bound": 0.0},
        {"strong_convexity": 0.0},
        {"tolerance": 0.0},
        {"tolerance": -1e-3},
        {"radius": -1.0},
        {"minimiser": "newton"},
        {"sigma": "classical"},
        {"pure": True, "sigma": "paper"},
        {"population": True},
        {"population": True, "radius": 1.0, "strong_convexity": 1.0},
        {"steps": 3},
    ],
)
def test_bad_settings_are_refused_by_name(options: dict[str, Any]) -> None:
    data = load_dataset("synthetic", n=50)
    with pytest.raises(InvalidParameter, match=list(options)[-1]):
        DPLogisticRegression(1.0, 1e-6, bounds=(0, 1), method="outpert", classes=(0, 1), solver_options=options).fit(
            data.X, data.y
        )


def test_the_method_works_through_the_estimators_and_repeats_with_its_seed() -> None:
    data = load_dataset("synthetic", n=4000)
    models = [
        DPLogisticRegression(2.0, 1e-6, bounds=(0, 1), method="outpert", classes=(0, 1), random_state=seed).fit(
            data.X, data.y
        )
        for seed in (3, 3, 4)
    ]
    assert models[0].score(data.X, data.y) > 0.7
    assert np.array_equal(models[0].coef_, models[1].coef_)
    assert not np.array_equal(models[0].coef_, models[2].coef_)
    assert "certified" in models[0].privacy_["remarks"][-1]
    machine = DPLinearSVC(2.0, 0.0, bounds=(0, 1), loss="hinge", method="outpert", classes=(0, 1), random_state=0)
    machine.fit(data.X, data.y)
    assert machine.privacy_["delta"] == 0
    assert machine.privacy_["mechanisms"] == {"laplace": 2}


@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=str)
def test_nothing_warns_whatever_the_rows_are(loss: Loss, recwarn: pytest.WarningsRecorder) -> None:
    X = np.vstack([np.eye(3), -np.eye(3)] * 2)
    curator = curator_of(X, np.tile([1.0, -1.0], 6), loss, Ledger(1.0, 1e-6, currency="gdp"), intercept=False)
    outpert(curator, OutPertSettings(strong_convexity=1e-9, row_bound=1.0))
    assert not recwarn.list


def test_constants_whose_squares_are_no_numbers_are_refused_before_anything_is_charged() -> None:
    """A gradient of length 1e-170 has the computed norm 0, which would certify any point."""
    for bound, strong_convexity, radius in ((1e-163, 1.0, math.inf), (1.0, 1e200, math.inf), (1.0, 1.0, 1e-170)):
        curator = make_curator(1.0, rows=20)
        with pytest.raises(InvalidParameter, match=r"2\^-200"):
            noisy_minimiser(
                curator, EmpiricalRisk(Logistic(), bound), strong_convexity, Gaussian(50.0), radius=radius
            )
        assert not curator.ledger.entries
    for options in ({"row_bound": 1e-170}, {"strong_convexity": 1e-190}, {"radius": 1e-200}):
        with pytest.raises(InvalidParameter, match=r"2\^-200"):
            OutPertSettings(**options)


def test_a_minimiser_is_charged_before_a_row_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both queries pay first, and what the ledger refuses is never computed."""
    seen: list[int] = []

    def watched(*_: Any) -> np.ndarray:
        seen.append(len(ledger.entries))
        return np.zeros(5)

    for module in ("queries.noisy_minimiser", "curator.caller_functions"):
        monkeypatch.setattr(f"dpdescent.{module}.certified_minimiser", watched)
    for cost, charged in ((Gaussian(50.0), [1]), (Gaussian(1e-3), [])):
        curator = make_curator(1.0, rows=20)
        ledger = curator.ledger
        seen.clear()
        with nullcontext() if charged else pytest.raises(BudgetExhausted):
            noisy_minimiser(curator, EmpiricalRisk(Logistic(), 1.0), 3.0, cost)
        assert seen == charged
        ledger = Ledger(1.0, 1e-6, currency="gdp")
        seen.clear()
        objective = GeneralObjective(watched, 5, strong_convexity=1.0, lipschitz=1.0)  # type: ignore[arg-type]
        with nullcontext() if charged else pytest.raises(BudgetExhausted):
            perturbed_minimiser(objective, ledger, cost)
        assert seen == charged
