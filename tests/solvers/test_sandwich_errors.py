"""Standard errors: the values of the derivation, and the laws that the formulas must obey."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from dpdescent.accounting import epsilon_to_gdp
from dpdescent.problems import Huber, Logistic, Poisson, Squared
from dpdescent.solvers.inferring import Tail, kept_gradients, longest_reach, residual_multiple
from dpdescent.solvers.sandwich_errors import ExpectedLoss, Sandwich, SandwichParts, least_share, shrink_towards

HESSIAN = np.array([[0.22, 0.03], [0.03, 0.18]])
COVARIANCE = np.array([[0.24, 0.02], [0.02, 0.20]])
PARTS = SandwichParts(
    point=np.array([1.0, -0.5]),
    gradient=np.array([0.01, -0.02]),
    hessian=HESSIAN,
    covariance=COVARIANCE,
    gradient_noise=0.01,
    hessian_noise=0.02,
    covariance_noise=0.03,
    expected=ExpectedLoss(Squared(), np.array([0.95, 1.0]), 0.2),
    rows=5000,
    to_weights=np.eye(2),
)
FOUND = Sandwich.of(PARTS)


@pytest.mark.parametrize(("epsilon", "mu"), [(0.2, 0.052663), (1, 0.236704), (8, 1.531545)])
def test_the_budget_of_an_epsilon(epsilon: float, mu: float) -> None:
    assert epsilon_to_gdp(epsilon, 1e-6) == pytest.approx(mu, abs=5e-7)


def test_the_last_seven_tenths_of_the_gradients_are_averaged() -> None:
    assert kept_gradients(32) == 22
    assert 1 / math.sqrt(kept_gradients(32)) == pytest.approx(0.2132007, abs=1e-7)


def test_noise_of_a_hessian_has_the_covariance_that_is_added() -> None:
    sigma, delta = 0.02, np.array([0.3, -0.1])
    formula = 0.5 * sigma**2 * (float(delta @ delta) * np.eye(2) + np.outer(delta, delta))
    assert formula == pytest.approx(np.array([[3.8e-5, -6e-6], [-6e-6, 2.2e-5]]))
    # 400,000 draws: entries have a relative error below 1%; an alarm at 2% has a probability below 1e-6.
    generator = np.random.default_rng(0)
    noise = generator.normal(0, sigma, (400_000, 2, 2)) / math.sqrt(2)
    noise[:, 0, 1] = noise[:, 1, 0]
    noise[:, [0, 1], [0, 1]] *= math.sqrt(2)
    assert np.cov((noise @ delta).T) == pytest.approx(formula, rel=0.02, abs=3e-7)


def test_a_hessian_is_drawn_towards_what_is_expected() -> None:
    assert FOUND.shrunk_hessian == pytest.approx(0.3870968, abs=5e-8)
    # |H - H0|^2 is .0031 = 3 sigma^2/rho, and sqrt(6) sigma^2 more is what noise may hide: rho is at least .2939.
    least = 0.0012 / (0.0031 + 0.0004 * math.sqrt(6))
    assert least_share(HESSIAN, 0.2 * np.diag([0.95, 1.0]), 0.02) == pytest.approx(least)
    assert FOUND.edge == pytest.approx(0.02 * math.sqrt(4 * (1 - least)))
    assert FOUND.hessian == pytest.approx(np.array([[0.2083871, 0.0183871], [0.0183871, 0.1877419]]), abs=5e-8)


def test_a_covariance_is_drawn_towards_that_of_a_well_specified_model() -> None:
    phi = float(np.sum(COVARIANCE * FOUND.hessian) / np.sum(FOUND.hessian**2))
    assert phi == pytest.approx(1.1127734, abs=5e-8)
    assert FOUND.shrunk_covariance == 1
    assert FOUND.sampling == pytest.approx(phi * FOUND.hessian / 5000)


def test_the_estimate_and_its_standard_errors() -> None:
    assert FOUND.estimate == pytest.approx([0.9421125, -0.3878014], abs=5e-8)
    # B has the factor 1 - .2939 in the place of 1 - rho, with which the errors were .0593734 and .0651156.
    assert np.sqrt(np.diag(FOUND.covariance)) == pytest.approx([0.0594565, 0.0652196], abs=2e-4)


def test_noise_in_a_variance_leaves_fewer_degrees_of_freedom() -> None:
    noisy = dataclasses.replace(FOUND, variance_noise=0.03 / 5000, scale_noise=0.0)
    lengths = np.sum(FOUND.influence**2, axis=1)
    assert noisy.variance_noise * lengths == pytest.approx([1.4194e-4, 1.7456e-4], abs=5e-9)
    variances = np.array([0.0593734, 0.0651156]) ** 2
    assert noisy.freedom(variances, FOUND.influence) == pytest.approx([1233.70, 1180.05], abs=0.02)


@pytest.mark.parametrize(("richness", "multiple"), [(48, 3), (789, 4.5283), (1276, 5.2308), (1e9, 8)])
def test_gradients_are_clipped_at_a_multiple_of_residuals(richness: float, multiple: float) -> None:
    assert residual_multiple(richness) == pytest.approx(multiple, abs=5e-5)


def test_without_noise_the_estimate_is_that_of_newton_and_the_sandwich_is_the_plain_one() -> None:
    quiet = dataclasses.replace(PARTS, gradient_noise=0.0, hessian_noise=1e-12, covariance_noise=1e-12)
    found = Sandwich.of(quiet)
    inverse = np.linalg.inv(HESSIAN)
    assert found.estimate == pytest.approx(PARTS.point - inverse @ PARTS.gradient)
    assert found.covariance == pytest.approx(inverse @ COVARIANCE @ inverse / 5000)
    assert found.unresolved.shape[1] == 0


def test_a_direction_along_which_no_score_changes_is_left_out_of_every_error() -> None:
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(500, 3))
    rows = np.column_stack([rows[:, 0] > 0, rows[:, 0] <= 0, rows[:, 1:], np.ones(500)]).astype(float)
    direction = np.array([1.0, 1.0, 0.0, 0.0, -1.0])
    weighed = rows * generator.uniform(0.1, 0.3, 500)[:, None]
    parts = SandwichParts(
        np.zeros(5),
        rows.T @ generator.normal(size=500) / 500,
        rows.T @ weighed / 500,
        rows.T @ rows / 500,
        0.001,
        1e-6,
        1e-6,
        ExpectedLoss(Squared(), np.ones(5), 0.2),
        500,
        np.eye(5),
    )
    found = Sandwich.of(parts, [direction])
    assert found.aliased == (True,)
    reduced = np.delete(rows, 1, axis=1)  # one of the levels as the reference
    hessian = reduced.T @ np.delete(weighed, 1, axis=1) / 500
    step = np.linalg.solve(hessian, np.delete(parts.gradient, 1))
    contrast = np.array([1.0, -1.0, 0, 0, 0])
    assert contrast @ found.weights == pytest.approx(-step[0], rel=1e-4)
    seen = dataclasses.replace(parts, hessian=parts.hessian + 0.1 * np.eye(5))
    assert Sandwich.of(seen, [direction]).aliased == (False,)


def test_what_noise_hides_is_not_resolved() -> None:
    expected = ExpectedLoss(Squared(), np.array([5e-4, 1.0]), 0.2)
    hidden = dataclasses.replace(PARTS, hessian=np.diag([0.0001, 0.2]), expected=expected, hessian_noise=0.02)
    found = Sandwich.of(hidden)
    assert found.estimate[0] == pytest.approx(PARTS.point[0]), "noise alone would decide how far to go there"
    first, second = found.unresolved_share(found.influence)
    assert first > 0.5
    assert second < 0.01
    mixed = np.array([0.02, 1.0]) @ found.influence  # it owes some of its error to the hidden direction, and says so
    assert 1.2 < float(mixed @ (found.sampling + found.privacy) @ mixed) / found.covariance[1, 1] < 9


def test_strong_effects_are_found_from_afar_and_from_a_stretched_hessian() -> None:
    # Normal rows, for which all is exact: a Newton step from (3, 0) ends at 4.05, and the population is at (5, .5).
    squares, truth, start = np.array([0.9, 1.0]), np.array([5.0, 0.5]), np.array([3.0, 0.0])
    expected = ExpectedLoss.of(Logistic(), 0.1, squares, start)
    stretched = expected.stretching(start)
    parts = dataclasses.replace(
        PARTS,
        point=start,
        gradient=expected.gradient(start) - expected.gradient(truth),
        hessian=stretched @ expected.hessian(start) @ stretched,
        expected=expected,
        stretched=stretched,
        gradient_noise=1e-3,
        hessian_noise=1e-9,
        covariance_noise=1e-9,
    )
    found = Sandwich.of(parts)
    assert found.estimate == pytest.approx(truth, abs=1e-6)
    assert np.diag(parts.hessian)[0] / np.diag(expected.hessian(start))[0] > 2
    after = np.linalg.inv(expected.hessian(truth))
    plain = start - np.linalg.solve(expected.hessian(start), parts.gradient)
    by_noise = after @ after * 1e-6 + np.outer(truth - plain, truth - plain) / 4
    assert found.influence @ found.privacy @ found.influence.T == pytest.approx(by_noise, rel=1e-3)
    carried = dataclasses.replace(parts, covariance=expected.hessian(start))  # well specified
    found = Sandwich.of(carried)
    assert found.influence @ found.sampling @ found.influence.T == pytest.approx(after / 5000, rel=1e-3)


def test_a_step_to_nowhere_has_an_error_of_its_own() -> None:
    expected = ExpectedLoss.of(Logistic(), 0.2, np.ones(2), PARTS.point)
    far = dataclasses.replace(PARTS, gradient=np.array([5.0, 0.0]), expected=expected)  # steeper than any loss
    assert expected.after(PARTS.point, np.linalg.solve(HESSIAN, far.gradient)) is None
    step = PARTS.point[0] - Sandwich.of(far).estimate[0]
    assert math.sqrt(Sandwich.of(far).covariance[0, 0]) > 0.4 * step**2
    flat = dataclasses.replace(PARTS, gradient=np.array([0.2, 0.0]))  # a squared loss has the same curvature anywhere
    assert math.sqrt(Sandwich.of(flat).covariance[0, 0]) < 0.1


def test_what_is_expected_of_normal_rows() -> None:
    point, squares, rows = np.array([1.5, -0.7, 0.4]), np.array([0.9, 0.6, 1.0]), 400_000
    generator = np.random.default_rng(0)
    drawn = np.column_stack([generator.normal(size=(rows, 2)) * np.sqrt(squares[:2]), np.ones(rows)])
    for loss in (Logistic(), Poisson()):
        at = point if isinstance(loss, Logistic) else point / 5
        curvatures = loss.curvatures(drawn @ at, np.ones(rows))
        exact = (drawn * curvatures[:, None]).T @ drawn / rows
        expected = ExpectedLoss.of(loss, float(curvatures.mean()), squares, at)
        assert expected.hessian(at) == pytest.approx(exact, abs=2e-2 * float(curvatures.mean()))
        step = np.array([1e-5, 2e-5, -1e-5])
        change = expected.gradient(at + step) - expected.gradient(at - step)
        assert change == pytest.approx(2 * expected.hessian(at) @ step, rel=1e-4)
        slopes = loss.residuals(drawn @ at, np.ones(rows))
        assert expected.gradient(at) == pytest.approx(drawn.T @ slopes / rows, abs=2e-2 * float(curvatures.mean()))
    for loss in (Squared(), Huber()):
        assert ExpectedLoss.of(loss, 0.5, squares, point).hessian(point) == pytest.approx(0.5 * np.diag(squares))
    steep = 200 * point  # far more certain than any row, and still no farther stretched than eight times
    assert np.linalg.eigvalsh(ExpectedLoss.of(Logistic(), 0.2, squares, steep).stretching(steep)).max() <= 8.001


def test_a_matrix_without_noise_is_not_shrunk() -> None:
    assert shrink_towards(HESSIAN, np.eye(2), 0.0)[1] == 0
    assert shrink_towards(HESSIAN, HESSIAN, 0.1)[1] == 1


def test_long_gradients_raise_the_clip_norm_or_the_error_of_the_estimate() -> None:
    long = np.array([0.08, 0.04, 0.02, 0.02]), np.array([[0.0, 0.12]])
    # S = .15, .07, .03, .01, 0 at 1, 2, 4, 8, 16, the last share being at most half of the one before; trapezia make
    # .33 of it beyond 1 and .04 beyond 8. Directions agree to .12/.15 = .8.
    noisy = Tail.of(long, 1e-9, 1.0, 1.0)  # a larger norm would cost more than the bias
    assert (noisy.norm, noisy.missing) == (1, 0)
    assert noisy.bias == pytest.approx(np.diag([0, (0.8 * 0.33) ** 2]))
    quiet = Tail.of(long, 1e-9, 1.0, 0.001)
    assert (quiet.norm, quiet.missing) == (8, pytest.approx(3 * 0.11 + 12 * 0.05 + 48 * 0.02))
    assert quiet.bias == pytest.approx(np.diag([0, (0.8 * 0.04) ** 2]))
    # Within noise of .02 only the first share is seen, an eighth of it follows: S = .0914, .0114, .0014, .0002.
    partly = Tail.of((np.array([0.08, 0.01, 0.02, 0.02]), long[1] / 2), 0.01, 1.0, 1.0)
    shares = 0.08 / 8.0 ** np.arange(4)
    beyond = np.append(np.cumsum(shares[::-1])[::-1], 0.0)
    excess = float(np.array([1, 2, 4, 8]) @ (beyond[1:] + beyond[:-1])) / 2
    agree = (0.06**2 - 2 * 0.01**2 / 0.75) / beyond[0] ** 2
    assert (partly.norm, np.trace(partly.bias)) == (1, pytest.approx(agree * excess**2))
    hidden = Tail.of((np.zeros(4), np.array([[0.0, 0.012]])), 0.01, 1.0, 1.0)
    assert float(np.abs(hidden.bias).max()) == 0
    biased = dataclasses.replace(PARTS, bias=np.diag([0.0, 1.0]))
    added = FOUND.influence @ np.diag([0.0, 1.0]) @ FOUND.influence.T
    assert Sandwich.of(biased).covariance - FOUND.covariance == pytest.approx(added)


def mean_length(power: float) -> float:
    """Return the mean length of gradients between 1 and 2, if the share beyond a length falls by this power of it."""
    return power / (power - 1) * (1 - 2 ** (1 - power)) / (1 - 2**-power)


def test_gradients_of_regressions_are_cut_off_where_they_point() -> None:
    # Shares .08, .04, .02 and hardly noise: half of the gradients beyond 1 are longer than 2, and so on, to a quarter
    # beyond the last norm. They point one way beyond 2 and the other way before: the mean of all directions is 0.
    shares, pointing = np.array([0.08, 0.04, 0.02]), np.array([[0, -0.06], [0, 0.04], [0, 0.02]])
    powers = np.log2([0.14 / 0.06, 0.06 / 0.02, 4])
    lengths = np.array([1, 2, 4]) * [mean_length(each) for each in powers]
    noisy, quiet = (Tail.of_regression((shares, pointing), 1e-9, 1.0, deviation, 0.5) for deviation in (1.0, 0.0001))
    assert (noisy.norm, quiet.norm) == (1, 4)
    for found in (noisy, quiet):
        cut = pointing[:, 1] @ np.maximum(lengths - found.norm, 0)
        assert found.bias == pytest.approx(np.diag([0, cut**2]))


@pytest.mark.parametrize(("before", "fall"), [(0.2, 4.0), (0.61, 10.0)])
def test_long_gradients_that_noise_hides_fall_as_those_before_them(before: float, fall: float) -> None:
    # .041 are seen between 1 and 2, with noise of .02, and ``before`` beyond 1/2.
    directions = np.array([[0.03, 0.04], [0.01, 0.0], [0.0, 0.01]])
    found = Tail.of_regression((np.array([0.041, 0.01, -0.01]), directions), 0.01, 1.0, 10.0, before)
    hidden = np.array([0.041 / fall, 0.041 / fall**2])
    beyond = np.array([0.041 + hidden.sum(), hidden.sum(), hidden[1], hidden[1] / 4])
    lengths = np.array([1, 2, 4]) * [mean_length(each) for each in np.log2(beyond[:-1] / beyond[1:])]
    noise = 0.01**2 / 0.75 * (lengths[0] - 1) ** 2
    seen = (0.05 * (lengths[0] - 1)) ** 2
    known = min(seen - 2 * noise + 2 * noise, (0.041 * (lengths[0] - 1)) ** 2)
    unseen = float(hidden @ (lengths[1:] - 1))  # the directions agree altogether
    assert (found.norm, np.trace(found.bias)) == (1, pytest.approx(known + unseen**2))
    nothing = Tail.of_regression((np.zeros(3), 0 * directions), 0.01, 1.0, 10.0, before)
    assert np.trace(nothing.bias) > 0  # what noise hides may be there
    assert nothing.bias == pytest.approx(np.trace(nothing.bias) * np.eye(2) / 2)


def test_weights_of_long_rows_begin_where_the_noise_of_the_hessian_would_be_a_tenth() -> None:
    assert longest_reach(100, 6) == 1.5
    assert longest_reach(3000, 6) == pytest.approx(math.sqrt(0.1 * math.sqrt(0.05) * 3000 / math.sqrt(12)))
