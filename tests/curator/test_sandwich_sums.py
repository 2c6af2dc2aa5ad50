"""Hessians, covariances and residual scales: brute force on small tables, and how much one row can change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpdescent.accounting import Gaussian
from dpdescent.curator import Curator
from dpdescent.errors import InvalidParameter
from dpdescent.exact import FeatureGrid
from dpdescent.problems import Logistic, Loss, Poisson, Squared, Whitening
from dpdescent.queries import ClippedHessian, GradientCovariance, LongGradients, ResidualScale
from neighbours import RICH, curator, share_of_sensitivity, sums

D = 4
GRID = FeatureGrid(1.0, D)
MATRIX = np.array([[2.0, 0.3, 0, 0], [0, 3.0, -0.5, 0], [0.4, 0, 1.5, 0], [0.1, -0.2, 0.3, 1.0]])
WHITENING = Whitening(GRID, MATRIX)
WEIGHTS = np.array([0.7, -0.4, 0.2, 0.1])
QUIET = Gaussian(1e-4)
LOSSES = (Logistic(), Squared(), Poisson())


def rows_and_labels(generator: np.random.Generator, loss: Loss, rows: int) -> tuple[np.ndarray, np.ndarray]:
    features = generator.uniform(-1, 1, (rows, D))
    features[:, -1] = 1.0
    signs = isinstance(loss, Logistic)
    labels = generator.choice([-1.0, 1.0], rows) if signs else generator.uniform(0, 1, rows)
    return GRID.place(features), labels


def asked_of(features: np.ndarray, labels: np.ndarray, loss: Loss) -> Curator:
    return curator(features, labels, GRID, loss, rows=10, epsilon=RICH)


STRETCHED = np.diag([3.0, 1.0, 0.5, 1.0]) + 0.2


def hessian(
    clip: float, noise: Gaussian = QUIET, cap: float = 0.2, reach: float = 1.5, stretched: Any = None
) -> ClippedHessian:
    return ClippedHessian(WEIGHTS, clip, cap, reach, noise, WHITENING, 2.0, stretched)


def covariance(clip: float, noise: Gaussian = QUIET) -> GradientCovariance:
    return GradientCovariance(WEIGHTS, clip, noise, WHITENING, 2.0)


def lengths(noise: Gaussian = QUIET, apart: bool = False) -> LongGradients:
    return LongGradients(WEIGHTS, np.array([0.25, 0.5, 1.0]), noise, WHITENING, 2.0, apart)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_answers_are_the_sums_that_the_formulas_say(loss: Loss) -> None:
    features, labels = rows_and_labels(np.random.default_rng(0), loss, 10)
    coordinates = features @ MATRIX
    lengths_of_rows = np.linalg.norm(coordinates, axis=1)
    soft = np.sqrt(np.minimum(1, 2.0 / lengths_of_rows))
    residuals, curvatures = (each(features @ WEIGHTS, labels) for each in (loss.residuals, loss.curvatures))
    for clip in (0.5, 1.0, 10.0):
        asked = asked_of(features, labels, loss)
        weights = soft * np.minimum(curvatures, 0.2) * (np.abs(soft * residuals) * lengths_of_rows < clip)
        weights = np.minimum(weights, 0.2 * 1.5**2 / lengths_of_rows**2)
        expected = (coordinates * weights[:, None]).T @ coordinates / 10
        assert asked.answer(hessian(clip)) == pytest.approx(expected, abs=2e-3)
        far = coordinates @ STRETCHED
        weights = soft * np.minimum(curvatures, 0.2) * (np.abs(soft * residuals) * lengths_of_rows < clip)
        weights = np.minimum(weights, 0.2 * 1.5**2 / np.sum(far**2, axis=1))
        expected = (far * weights[:, None]).T @ far / 10
        assert asked.answer(hessian(clip, stretched=STRETCHED)) == pytest.approx(expected, abs=1e-2)
        shortened = np.minimum(np.abs(soft * residuals), clip / lengths_of_rows) ** 2
        expected = (coordinates * shortened[:, None]).T @ coordinates / 10
        assert asked.answer(covariance(clip)) == pytest.approx(expected, abs=5e-3 * min(clip, 1.0))
    counted = np.histogram(soft * np.abs(residuals) * lengths_of_rows, [0.25, 0.5, 1.0, np.inf])[0] / 10
    shares, direction = asked.answer(lengths())
    assert shares == pytest.approx(counted, abs=1e-3)
    long = np.abs(soft * residuals) * lengths_of_rows >= 0.25
    pointing = np.sign(residuals)[:, None] * coordinates / lengths_of_rows[:, None]
    assert direction == pytest.approx(pointing[long].sum(axis=0, keepdims=True) / 10, abs=1e-3)
    places = np.digitize(soft * np.abs(residuals) * lengths_of_rows, [0.25, 0.5, 1.0])
    apart = [pointing[places == each].sum(axis=0) / 10 for each in (1, 2, 3)]
    assert asked.answer(lengths(apart=True))[1] == pytest.approx(np.array(apart), abs=1e-3)
    scale = asked.answer(ResidualScale(WEIGHTS, QUIET))
    assert scale == pytest.approx(np.mean(np.minimum(np.abs(residuals), 1) ** 2), abs=1e-4)


def test_rows_are_not_shortened_because_coordinates_are_stretched() -> None:
    """Where no row reaches the cap, coordinates that are 8 times as long make the Hessian 64 times as large."""
    features, labels = rows_and_labels(np.random.default_rng(0), Logistic(), 10)
    coordinates, curvatures = features @ MATRIX, Logistic().curvatures(features @ WEIGHTS, labels)
    soft = np.sqrt(np.minimum(1, 2.0 / np.linalg.norm(coordinates, axis=1)))
    expected = 64 * (coordinates * (soft * curvatures)[:, None]).T @ coordinates / 10
    asked = asked_of(features, labels, Logistic())
    found = asked.answer(hessian(100.0, cap=500.0, stretched=8 * np.eye(D)))
    assert found == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("spread", [6, 20])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_no_stretching_lets_a_row_move_a_sum_by_more_than_is_declared(loss: Loss, spread: int) -> None:
    generator = np.random.default_rng(spread)
    for _ in range(4):
        features, labels = rows_and_labels(generator, loss, 3)
        features[0], features[1] = 1.0, 10.0 ** generator.uniform(-6, 0, D)
        features = GRID.place(features)
        axes = np.linalg.qr(generator.normal(size=(D, D)))[0]
        stretched = (axes * 2.0 ** generator.uniform(-spread, spread, D)) @ axes.T
        cap, reach = 10.0 ** generator.uniform(-2, 2, 2)
        query = hessian(1e3, cap=cap, reach=reach, stretched=(stretched + stretched.T) / 2)

        def total(rows: list[int], features: Any = features, labels: Any = labels, query: Any = query) -> Any:
            found = asked_of(features[rows], labels[rows], loss)
            found.answer(query)
            return sums(found)[0]

        for one in range(3):
            assert share_of_sensitivity(total([one]), total([]), "zero-out") <= 1
            assert share_of_sensitivity(total([one]), total([(one + 1) % 3]), "replace-one") <= 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_no_row_moves_a_sum_by_more_than_is_declared(loss: Loss, seed: int) -> None:
    generator = np.random.default_rng(seed)
    features, labels = rows_and_labels(generator, loss, 10)
    others, other_labels = rows_and_labels(generator, loss, 10)
    clip, reach = 10.0 ** generator.uniform(-2, 1, 2)
    stretched = hessian(clip, reach=reach, stretched=STRETCHED)
    counts = lengths(), lengths(apart=True)
    queries = hessian(clip, reach=reach), stretched, covariance(clip), *counts, ResidualScale(WEIGHTS, QUIET)

    def totals(features: np.ndarray, labels: np.ndarray) -> list[Any]:
        asked = asked_of(features, labels, loss)
        for query in queries:
            asked.answer(query)
        return sums(asked)

    whole = totals(features, labels)
    for row in range(0, 10, 2):
        removed = totals(np.delete(features, row, axis=0), np.delete(labels, row))
        changed, changed_labels = features.copy(), labels.copy()
        changed[row], changed_labels[row] = others[row], other_labels[row]
        replaced = totals(changed, changed_labels)
        for one, without, other in zip(whole, removed, replaced, strict=True):
            assert share_of_sensitivity(one, without, "zero-out") <= 1
            assert share_of_sensitivity(one, other, "replace-one") <= 1


@pytest.mark.parametrize(
    "query",
    [*(hessian(100.0, cap=0.1, reach=0.5, stretched=each) for each in (None, 2 * np.eye(D))), covariance(0.05)],
    ids=["hessian", "stretched hessian", "covariance"],
)
def test_one_row_can_move_a_matrix_by_what_is_declared_and_a_replaced_one_by_more(query: Any) -> None:
    # Rows whose coordinates are orthogonal, each longer than the clip norm. With the square root of 2 dropped, the
    # share of replaced rows would be above 1.
    inverse = np.linalg.inv(MATRIX)
    rows = [0.2 * inverse[0] / np.abs(inverse[0]).max(), 0.2 * inverse[1] / np.abs(inverse[1]).max()]
    rows = [5 * row for row in rows]

    def total(row: np.ndarray | None) -> Any:
        features = np.zeros((0, D)) if row is None else row[None, :]
        asked = asked_of(GRID.place(features), np.ones(len(features)), Logistic())
        asked.answer(query)
        return sums(asked)[0]

    one, other, empty = total(rows[0]), total(rows[1]), total(None)
    assert 0.98 < share_of_sensitivity(one, empty, "zero-out") <= 1
    assert 0.95 < share_of_sensitivity(one, other, "replace-one") <= 1
    assert 2 * share_of_sensitivity(one, other, "replace-one") > 1.8


@pytest.mark.parametrize("apart", [False, True])
def test_a_row_that_is_replaced_by_its_opposite_moves_lengths_and_directions_by_what_is_declared(apart: bool) -> None:
    # Both gradients are long and opposite, and in counts of their own: sqrt(3 + 1/2) of 2, or, where directions are
    # apart too, sqrt(3/2 + 1/2) of 2: more than the sensitivity of a row that is removed.
    row = np.linalg.inv(MATRIX)[0]
    row /= np.abs(row).max()

    def total(label: float | None, scale: float = 1.0) -> Any:
        features = np.zeros((0, D)) if label is None else scale * row[None, :]
        asked = asked_of(GRID.place(features), np.full(len(features), label or 1.0), Logistic())
        asked.answer(LongGradients(0 * WEIGHTS, np.array([0.1, 0.8]), QUIET, WHITENING, 2.0, apart))
        return sums(asked)[0]

    assert 0.99 < share_of_sensitivity(total(1.0), total(None), "zero-out") <= 1
    moved = share_of_sensitivity(total(1.0), total(-1.0, 0.6), "replace-one")
    expected = (2 if apart else 3.5) / 4  # shares are squared
    assert float(moved) == pytest.approx(expected, abs=0.01)


def test_a_unit_of_several_rows_moves_a_sum_by_so_many_times_as_much() -> None:
    stretched = hessian(1.0, stretched=STRETCHED)
    for query in (hessian(1.0), stretched, covariance(1.0), lengths(apart=True), ResidualScale(WEIGHTS, QUIET)):
        features, labels = rows_and_labels(np.random.default_rng(0), Logistic(), 10)
        plan = query.plan(asked_of(features, labels, Logistic()).public())
        one, three = plan.parts[0].sensitivity, plan.for_units(3).parts[0].sensitivity
        for relation in ("zero-out", "replace-one"):
            assert three.under(relation) >= 3 * one.under(relation)


def test_several_margins_and_other_coordinates_are_refused() -> None:
    features, labels = rows_and_labels(np.random.default_rng(0), Logistic(), 10)
    asked = asked_of(features, labels, Logistic())
    bare = ClippedHessian(WEIGHTS, 1.0, 0.2, 1.5, QUIET, None, 2.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="pass a Whitening"):
        asked.answer(bare)
    for wrong in (np.eye(D - 1), *(np.full((D, D), each) for each in (np.nan, np.inf)), np.triu(np.ones((D, D)))):
        with pytest.raises(InvalidParameter, match="symmetric"):
            asked.answer(hessian(1.0, stretched=wrong))
    assert asked.ledger.spent == 0
