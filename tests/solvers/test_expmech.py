"""The exponential mechanism over points: its law, its range, its envelope, and what it refuses."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import gammainccinv
from scipy.stats import chi2

from asking import sample_point, table_of
from dpdescent import DPLinearRegression, DPLinearSVC, DPLogisticRegression, InvalidParameter, Ledger
from dpdescent.accounting import ExponentialMechanism
from dpdescent.curator import Curator
from dpdescent.curator.array_source import ArraySource
from dpdescent.minimisers import Ball, EmpiricalRisk
from dpdescent.minimisers.sampler import Envelope, Law, Sums
from dpdescent.noise import Randomness, accept
from dpdescent.problems import Huber, HuberisedHinge, Logistic, Loss, Poisson
from dpdescent.relations import Relation
from dpdescent.solvers import ExpMechSettings, expmech
from neighbours import STORAGE
from rival_tables import curator_of, replaced

ALARM = 1e-6


def make(rows: int, columns: int, seed: int = 0, relation: str = "zero-out", loss: Loss | None = None) -> Curator:
    generator = np.random.default_rng(seed)
    X = generator.integers(-1024, 1025, (rows, columns)) / 1024
    y = np.where(X[:, 0] + 0.5 * generator.normal(size=rows) > 0, 1.0, -1.0)
    ledger = Ledger(100.0, 1e-6, currency="pure", relation=relation)
    return curator_of(X, y, loss or Logistic(), ledger, intercept=False, seed=seed)


def ball_of(curator: Curator, row_bound: float, mean: float, centre: Any = None, radius: float | None = None) -> Ball:
    risk, rows = EmpiricalRisk(curator.problem.loss, row_bound), curator.rows
    size = curator.problem.grid.dimension
    quadratic = np.full(size, mean * rows)
    return Ball(
        risk,
        rows,
        quadratic,
        np.zeros(size) if centre is None else centre,
        radius or risk.farthest(rows, mean * rows),
    )


def sums_of(curator: Curator, ball: Ball, law: Law) -> Sums:
    table = table_of(curator)
    return Sums.of(table.source, table.squared_norms, curator.problem.grid, ball, law)


def envelope_of(curator: Curator, ball: Ball, cost: ExponentialMechanism) -> Envelope:
    law = Law.of(ball, cost, curator.relation)
    table = table_of(curator)
    sums = Sums.of(table.source, table.squared_norms, curator.problem.grid, ball, law)
    return Envelope.of(table.squared_norms, sums)


def draws(curator: Curator, ball: Ball, cost: ExponentialMechanism, proposals: int) -> np.ndarray:
    envelope = envelope_of(curator, ball, cost)
    bits = Randomness(7).stream("test", 0)
    points = [envelope.accepted(bits, 2**12) for _ in range(proposals // 2**12)]
    return ball.centre + envelope.sums.law.step * np.concatenate(points).astype(np.float64)


def losses_at(curator: Curator, ball: Ball, points: np.ndarray) -> np.ndarray:
    """The sum of the losses and the quadratic from their definition, for points in lines."""
    X, y = curator._source._features, curator._source._labels
    factors = np.minimum(1, ball.risk.row_bound / np.linalg.norm(X, axis=1))
    margins = (y * factors)[:, None] * (X @ points.T)
    return np.logaddexp(0, -margins).sum(axis=0) + (ball.quadratic * points**2).sum(axis=1) / 2


def assert_law(counts: np.ndarray, right: np.ndarray, wrong: np.ndarray) -> None:
    """Accept the right probabilities of the cells and reject the wrong ones; a false alarm has probability 1e-6."""
    total, free = counts.sum(), counts.size - 1
    assert (total * right > 10).all()
    assert chi2.sf(np.sum((counts - total * right) ** 2 / (total * right)), free) > ALARM
    assert chi2.sf(np.sum((counts - total * wrong) ** 2 / (total * wrong)), free) < ALARM


# The law ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize(("centre", "radius"), [(None, None), (2.5, 1.0), (0.7, 0.4)])
def test_one_weight_has_the_exact_law(relation: str, centre: float | None, radius: float | None) -> None:
    """20 cells of equal mass against the density, around zero, and around points whose ball leaves the optimum out or
    holds it; a rate 20 percent higher is rejected."""
    curator = make(40, 1, relation=relation)
    ball = ball_of(curator, 1.0, 0.02, None if centre is None else np.array([centre]), radius)
    cost = ExponentialMechanism(6.0)
    points = draws(curator, ball, cost, 2**17)[:, 0]
    # The range of one row's loss, from its definition: all of l over the ball, or its slope times the width.
    reach = ball.radius * ball.risk.row_bound
    spread = reach if centre is None else 2 * reach
    rate = cost.epsilon / (spread * (1 if relation == "zero-out" else 2))
    start = ball.centre[0] - ball.radius
    grid = start + 2 * ball.radius * (np.arange(200000) + 0.5) / 200000
    energy = losses_at(curator, ball, grid[:, None])
    laws = [np.exp(-factor * rate * (energy - energy.min())) for factor in (1.0, 1.2)]
    right, wrong = (np.cumsum(law) / law.sum() for law in laws)
    edges = np.searchsorted(right, np.arange(1, 20) / 20)
    cells = np.searchsorted(grid[edges], points)
    ends = np.concatenate([[0.0], wrong[edges], [1.0]])
    exact = np.concatenate([[0.0], right[edges], [1.0]])
    assert_law(np.bincount(cells, minlength=20), np.diff(exact), np.diff(ends))


def test_two_weights_have_the_exact_law() -> None:
    """A 5 x 5 board of cells; a rate 20 percent higher is rejected."""
    curator = make(40, 2)
    ball = ball_of(curator, 1.0, 0.05)
    cost = ExponentialMechanism(8.0)
    points = draws(curator, ball, cost, 2**17)
    rate = cost.epsilon / (ball.radius * ball.risk.row_bound)
    axis = ball.radius * ((np.arange(700) + 0.5) / 350 - 1)
    board = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    inside = (board**2).sum(axis=1) <= ball.radius**2
    energy = losses_at(curator, ball, board)
    share = energy.reshape(700, 700).min() - energy.reshape(700, 700)
    share = np.where(inside.reshape(700, 700), np.exp(rate * share), 0.0)
    marginals = [np.cumsum(share.sum(axis=1 - axis)) / share.sum() for axis in (0, 1)]
    ends = [np.searchsorted(each, [0.2, 0.4, 0.6, 0.8]) for each in marginals]
    edges = ball.radius * (np.array(ends).T / 350 - 1)  # between squares of the board

    def cells(where: np.ndarray) -> np.ndarray:
        return np.searchsorted(edges[:, 0], where[:, 0]) * 5 + np.searchsorted(edges[:, 1], where[:, 1])

    laws = []
    for factor in (1.0, 1.2):
        weight = np.where(inside, np.exp(-factor * rate * (energy - energy.min())), 0.0)
        laws.append(np.bincount(cells(board), weights=weight, minlength=25) / weight.sum())
    counts = np.bincount(cells(points), minlength=25)
    full = counts.sum() * laws[0] > 50
    merged = [np.append(each[full], each[~full].sum()) for each in (counts, *laws)]
    if merged[1][-1] * counts.sum() <= 10:
        merged = [np.append(each[:-2], each[-2:].sum()) for each in merged]
    assert_law(*merged)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("loss", [Logistic(), HuberisedHinge(), Huber(1.0), Poisson()], ids=str)
def test_one_row_changes_the_exponent_within_a_range_of_epsilon(relation: str, loss: Loss) -> None:
    """Exact numbers: the sums are integers and the rate is rational. 40 neighbours and 400 points a case."""
    generator, cost = np.random.default_rng(0), ExponentialMechanism(1.7)
    for trial in range(40):
        curator = make(8, 2, trial, relation, loss)
        other = replaced(curator, int(generator.integers(8)), relation, generator)
        centre = None if trial % 2 else np.array([0.3, -0.2])
        ball = ball_of(curator, 1.1, 0.1, centre, 1.5)
        law = Law.of(ball, cost, Relation(relation))
        points = generator.normal(size=(400, 2))
        points *= (generator.random(400) ** 0.2 / np.linalg.norm(points, axis=1))[:, None]
        places = np.rint(points * 0.999 * law.reach).astype(np.int64)
        first, second = (sums_of(each, ball, law).scores(places) for each in (curator, other))
        change = first - second
        assert law.rate * int(change.max() - change.min()) <= Fraction(cost.epsilon)
        assert law.public_exponent(ball.centre, places).shape == (400,)


def test_the_envelope_lies_above_the_law_everywhere() -> None:
    """No exponent of an acceptance is negative: exactly, near the centre, at the edge, and in between."""
    generator = np.random.default_rng(0)
    for trial in range(30):
        curator = make(25, 2, trial)
        centre = None if trial % 3 else generator.normal(size=2)
        ball = ball_of(curator, 1.2, 0.03 * (1 + trial % 4), centre, None if trial % 3 else 0.8)
        envelope = envelope_of(curator, ball, ExponentialMechanism(5.0))
        law = envelope.sums.law
        directions = generator.normal(size=(300, 2))
        directions /= np.linalg.norm(directions, axis=1)[:, None]
        far = np.rint(directions * law.reach * generator.random((300, 1)) ** 0.3 * 0.9999).astype(np.int64)
        near = envelope.centre + np.rint(directions * generator.uniform(0, 2000, (300, 1))).astype(np.int64)
        places = np.concatenate([far, near[(near**2).sum(axis=1) <= law.reach**2]])
        sums = envelope.sums.scores(places) - envelope.score
        public = law.public_exponent(ball.centre, places)
        for each, total, own in zip(places, sums, public, strict=True):
            squares = int(((each - envelope.centre) ** 2).sum())
            x = law.rate * int(total) + Fraction(float(own)) - Fraction(envelope.public) + Fraction(envelope.slack)
            assert x - Fraction(squares, 2 * envelope.scale**2) >= 0


def test_exponents_are_the_same_in_floats_and_in_long_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the error that the filter is told, and with the event that the exact one gives."""
    seen = []

    def spy(bits: Any, exponents: Any, errors: Any, exact: Any) -> Any:
        seen.extend((x, e, exact(i)) for i, (x, e) in enumerate(zip(exponents, errors, strict=True)))
        return accept(bits, exponents, errors, exact)

    monkeypatch.setattr("dpdescent.minimisers.sampler.accept", spy)
    curator = make(40, 2)
    ball = ball_of(curator, 1.0, 0.05, np.array([0.4, -0.1]), 1.0)
    envelope_of(curator, ball, ExponentialMechanism(3.0)).accepted(Randomness(0).stream("test", 0), 200)
    assert len(seen) == 200
    for x, error, exact in seen:
        assert abs(Fraction(float(x)) - exact) <= Fraction(float(error)) < Fraction(1, 2**30)


@pytest.mark.parametrize("storage", ["csr", "float32", "fortran"])
def test_scores_do_not_depend_on_how_rows_are_stored(storage: str) -> None:
    curator = make(50, 3)
    ball = ball_of(curator, 1.0, 0.05, np.array([0.4, -0.1, 0.2]), 1.0)
    law = Law.of(ball, ExponentialMechanism(1.0), "zero-out")
    places = np.random.default_rng(0).integers(-(law.reach // 2), law.reach // 2, (30, 3))
    scores = sums_of(curator, ball, law).scores(places)
    source = curator._source
    rows = STORAGE[storage](source._features)
    curator._source = ArraySource(rows, source._labels, source.grid, 16)
    assert (sums_of(curator, ball, law).scores(places) == scores).all()


def test_every_table_gives_a_point_of_the_ball() -> None:
    """Rows of zeros, equal rows, one row, none: nothing is said, and nothing fails."""
    generator = np.random.default_rng(0)
    for X in (
        np.zeros((30, 2)),
        np.ones((30, 2)),
        generator.choice([-1.0, 1.0], (30, 2)),
        np.zeros((0, 2)),
        np.ones((1, 2)),
    ):
        for y in (np.ones(len(X)), np.where(np.arange(len(X)) % 2, 1.0, -1.0)):
            ledger = Ledger(100.0, 1e-6, currency="pure")
            curator = curator_of(X, y, Logistic(), ledger, rows=30, intercept=False)
            for centre in (None, np.array([1.0, -1.0])):
                ball = ball_of(curator, 1.2, 0.05, centre, None if centre is None else 0.7)
                point = sample_point(curator, ball, ExponentialMechanism(3.0))
                assert np.linalg.norm(point - ball.centre) <= ball.radius * (1 + 1e-12)


def test_so_many_proposals_are_enough() -> None:
    """The public number is at least 27 times what is needed on average: e^-27 is 2^-40."""
    for columns, epsilon in ((1, 0.2), (1, 20.0), (2, 1.0), (3, 4.0)):
        curator = make(200, columns)
        ball = ball_of(curator, 1.0, 0.02)
        cost = ExponentialMechanism(epsilon)
        bits = Randomness(0).stream("test", 0)
        taken = len(envelope_of(curator, ball, cost).accepted(bits, 2**13)) / 2**13
        assert ball.proposals(cost, "zero-out") * taken > 27


def test_decisions_by_long_integers_and_by_floats_agree() -> None:
    exponents = np.random.default_rng(0).exponential(1.0, 3000)
    events = [
        accept(
            Randomness(1).stream("test", 0),
            exponents,
            np.zeros(3000),
            lambda i: Fraction(float(exponents[i])),
            force_exact=exact,
        )
        for exact in (False, True)
    ]
    assert (events[0] == events[1]).all()
    mean, deviation = np.exp(-exponents).sum(), math.sqrt((np.exp(-exponents) * -np.expm1(-exponents)).sum())
    assert abs(events[0].sum() - mean) < 5 * deviation


# The method ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("localise", [False, True])
def test_a_large_epsilon_recovers_the_optimum(localise: bool) -> None:
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (400, 2))
    y = np.where(X @ [1.0, -0.5] + 0.3 * generator.normal(size=400) > 0, 1, -1)
    options = {"localise": localise, "strong_convexity": 0.05, "row_bound": 1.2}
    model = DPLogisticRegression(
        2e3, 1e-6, method="expmech", bounds=(-1.0, 1.0), classes=(-1, 1), random_state=0, solver_options=options
    ).fit(X, y)
    full = np.column_stack([X, np.ones(400)])
    factors = np.minimum(1, 1.2 / np.linalg.norm(full, axis=1))

    def value(w: np.ndarray) -> float:
        return float(np.logaddexp(0, -y * factors * (full @ w)).mean() + 0.025 * w @ w)

    best = minimize(value, np.zeros(3), options={"gtol": 1e-9})
    assert np.linalg.norm(np.append(model.coef_[0], model.intercept_) - best.x) < 0.05
    assert model.privacy_["mechanisms"]["exponential-mechanism"] == 1


@pytest.mark.parametrize("localise", [False, True])
def test_a_run_needs_no_delta(localise: bool) -> None:
    curator_rows = make(500, 2)
    X, y = curator_rows._source._features, curator_rows._source._labels
    for relation in ("zero-out", "replace-one"):
        model = DPLogisticRegression(
            1.0,
            0.0,
            method="expmech",
            adjacency=relation,
            bounds=(-1.0, 1.0),
            classes=(-1, 1),
            random_state=0,
            solver_options={"localise": localise},
        ).fit(X, y)
        assert model.privacy_["epsilon"] == 1.0
        assert model.privacy_["spent_epsilon"] == pytest.approx(1.0, rel=1e-12)
        assert model.privacy_["delta"] == 0.0
        assert model.privacy_["mechanisms"] == {"exponential-mechanism": 1} | ({"laplace": 1} if localise else {})
    target = DPLinearRegression(
        1.0, 0.0, method="expmech", bounds=(-1.0, 1.0), target_bounds=(-1.0, 1.0), random_state=0
    ).fit(X, X[:, 0])
    assert target.coef_.shape == (2,)


def test_a_small_ball_holds_the_minimiser_with_pure_noise_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta is 0, p = 2, epsilon 50: 40 noisy centres are within the radius, and most within a third of it."""
    balls: list[Ball] = []

    def kept(*given: Any) -> Ball:
        balls.append(Ball(*given))
        return balls[-1]

    monkeypatch.setitem(expmech.__globals__, "Ball", kept)
    options = ExpMechSettings(localise=True, row_bound=1.0, strong_convexity=0.05)
    base = make(300, 2)
    X, y = base._source._features, base._source._labels
    drawn = []
    for seed in range(40):
        curator = curator_of(X, y, Logistic(), Ledger(50.0, 0.0, currency="pure"), intercept=False, seed=seed)
        expmech(curator, options)
        drawn.append(balls[-1])
    moved = 1 / (0.05 * 300)
    radius = math.sqrt(2) * moved / 25 * (1 + 2**-6) * gammainccinv(2, 1e-9)
    assert [ball.radius for ball in drawn] == pytest.approx([radius] * 40)
    best = minimize(lambda w: losses_at(base, drawn[0], w[None])[0], np.zeros(2), options={"gtol": 1e-6}).x
    shares = [np.linalg.norm(ball.centre - best) / radius for ball in drawn]
    assert max(shares) <= 1
    assert 0.03 < np.median(shares) < 0.3


@pytest.mark.parametrize(
    ("model", "columns", "message"),
    [
        (DPLogisticRegression(bounds=(0, 1), method="expmech"), 12, "proposals"),
        (DPLogisticRegression(bounds=(0, 1), method="expmech", solver_options={"localise": True}), 12, "proposals"),
        (
            DPLogisticRegression(bounds=(0, 1), method="expmech", solver_options={"strong_convexity": 0.0}),
            2,
            "strong_convexity",
        ),
        (
            DPLogisticRegression(bounds=(0, 1), method="expmech", solver_options={"strong_convexity": 1e-12}),
            2,
            "proposals",
        ),
        (DPLinearSVC(bounds=(0, 1), method="expmech", loss="hinge"), 2, "kink"),
        (DPLogisticRegression(bounds=(0, 1), method="expmech", classes=(-1, 0, 1)), 2, "two classes"),
        (DPLogisticRegression(bounds=(0, 1), method="expmech", tilt=1.0), 2, "neither tilt"),
    ],
)
def test_what_cannot_be_sampled_is_refused_before_anything_is_charged(model: Any, columns: int, message: str) -> None:
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (100, columns))
    account = Ledger(5.0, 1e-3, currency="pure")
    model.set_params(ledger=account, bounds=(-1.0, 1.0))
    if model.classes is None:
        model.set_params(classes=(-1, 1))
    with pytest.raises(InvalidParameter, match=message):
        model.fit(X, np.where(X[:, 0] > 0, 1, -1))
    assert not account.entries


def test_a_point_is_charged_before_a_row_is_read() -> None:
    curator = make(20, 1)
    ball, cost = ball_of(curator, 1.0, 0.05), ExponentialMechanism(200.0)
    with pytest.raises(Exception, match="left"):
        sample_point(curator, ball, cost)
    assert not curator._kept
    assert not curator.ledger.entries
