"""Bounds from one fit are seldom too large, whatever the mechanism; and one fit shows a fault."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from dpdescent.audit import audit_one_fit, canary_bound, one_run_bound
from dpdescent.audit.findings import _flip, _least_total
from dpdescent.errors import InvalidParameter

ERROR = 0.05
SMALL_CLIP = {"clip_gradient": 0.1, "steps": 50}


def least_refuting(bound: Callable[[int], float], guesses: int, parameter: float) -> int:
    """Return the least number of right guesses whose bound is above a parameter."""
    low, high = 0, guesses + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if bound(middle) > parameter else (middle + 1, high)
    return low


@pytest.mark.parametrize(("canaries", "guesses"), [(1, 1), (20, 20), (200, 40), (1000, 100)])
@pytest.mark.parametrize("mu", [0.1, 0.8, 2.0])
def test_bounds_on_gaussian_noise_are_too_large_no_more_often_than_stated(
    canaries: int, guesses: int, mu: float
) -> None:
    """Independent canaries behind Gaussian noise, of which those that are told best are guessed: an exact law."""
    draw = np.random.default_rng(0)
    refuting = least_refuting(lambda right: one_run_bound("gdp", canaries, guesses, right, 0.0, ERROR), guesses, mu)
    if guesses == canaries:
        assert binom.sf(refuting - 1, guesses, ndtr(mu / 2)) <= ERROR
        return
    there = draw.random((1000, canaries)) < 0.5
    seen = mu * there + draw.normal(size=there.shape)
    order, half = np.argsort(seen, axis=1), guesses // 2
    sorted_there = np.take_along_axis(there, order, axis=1)
    right = sorted_there[:, -half:].sum(axis=1) + (~sorted_there[:, :half]).sum(axis=1)
    assert np.mean(right >= refuting) <= ERROR


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_bounds_on_randomised_response_are_too_large_no_more_often_than_stated(epsilon: float) -> None:
    for guesses in (10, 100, 500):
        refuting = least_refuting(
            lambda right, r=guesses: one_run_bound("approximate", r, r, right, 0.0, ERROR), guesses, epsilon
        )
        assert binom.sf(refuting - 1, guesses, 1 / (1 + math.exp(-epsilon))) <= ERROR


def test_a_mechanism_that_tells_all_with_probability_delta_is_not_refuted() -> None:
    for delta in (0.01, 0.06):
        assert one_run_bound("approximate", 100, 100, 100, delta, delta) == 0.0
        assert one_run_bound("approximate", 100, 100, 100, delta, 0.9 * delta) == 0.0


def test_one_guess_is_the_trade_off_itself() -> None:
    mu = 1.7
    chance = float(ndtr(mu / 2))  # the largest probability of guessing one coin right
    assert one_run_bound("gdp", 1, 1, 1, 0.0, 1.001 * chance) == pytest.approx(
        -2 * ndtri(1 - 1.001 * chance), abs=1e-5
    )
    assert _least_total(_flip("gdp", mu, 0.0), 1, 1, 1, chance) == pytest.approx(1.0)


@pytest.mark.parametrize(("mu", "right"), [(0.5, 5), (1.0, 6), (1.5, 4)])
def test_no_law_that_meets_the_inequalities_has_a_larger_tail(mu: float, right: int) -> None:
    """The recursion against linear programming over all laws of C, F being bounded above by its tangents."""
    canaries = guesses = 6
    chances = np.concatenate([np.geomspace(1e-6, 0.5, 60), 1 - np.geomspace(1e-6, 0.5, 60)])
    law = np.arange(guesses + 1)
    rows, limits = [], []
    for v, at in itertools.product(range(1, guesses + 1), chances):
        value, step = float(ndtr(ndtri(at) + mu)), 1e-7 * at
        slope = (float(ndtr(ndtri(at + step) + mu)) - value) / step if at + step < 1 else 0.0
        rows.append((law >= v) * law / canaries - slope * (law >= v - 1) * (guesses - law) / canaries)
        limits.append(value - slope * at)
    found = linprog(-(law >= right).astype(float), A_ub=rows, b_ub=limits, A_eq=[np.ones(guesses + 1)], b_eq=[1.0])
    largest = -found.fun
    assert _least_total(_flip("gdp", mu, 0.0), canaries, guesses, right, 1.01 * largest) > 1
    assert _least_total(_flip("gdp", mu, 0.0), canaries, guesses, right, 0.97 * largest) <= 1


def test_bounds_grow_with_right_guesses_and_are_better_than_without_the_trade_off() -> None:
    bounds = [one_run_bound("gdp", 1000, 64, right, 0.0, ERROR) for right in range(0, 65, 4)]
    assert bounds == sorted(bounds)
    assert bounds[0] == 0.0
    assert canary_bound(8192, 256, 231, 1e-6, ERROR) < 1.9


@pytest.mark.slow
def test_one_fit_stays_within_the_claim_and_finds_too_little_noise() -> None:
    asked = {"epsilon": 4.0, "delta": 1e-6, "canaries": 512, "guesses": 64, "options": SMALL_CLIP}
    report = audit_one_fit("sgd", **asked, seed=0)
    assert 0.3 < report.lower_bound < 4.0
    assert (report.runs, report.claim, report.refuted) == (1, "gdp", False)
    for broken in (0.3, 0.0):
        assert audit_one_fit("sgd", **asked, seed=0, noise_share=broken).refuted


def test_what_has_no_canaries_is_refused() -> None:
    for given, message in (
        ({"canaries": 1}, "even number of guesses"),
        ({"canaries": 64, "guesses": 3}, "even number of guesses"),
        ({"canaries": 64, "guesses": 66}, "even number of guesses"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            audit_one_fit("sgd", epsilon=1.0, delta=1e-6, **given)
    with pytest.raises(InvalidParameter, match="claims no privacy"):
        audit_one_fit("nonprivate", epsilon=1.0, delta=1e-6)
