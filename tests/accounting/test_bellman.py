"""The parts of the recursion of AboveThreshold, each against the formula of its docstring in forty digits."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpdescent.accounting import bellman
from dpdescent.accounting.divergences import gaussian_rdp, laplace_rdp

mpmath.mp.dps = 40
NOISES = ("laplace", "gaussian")


def column(*values):
    return np.array(values, dtype=float)[:, None]


def tails(noise, x):
    """F(x) and S(x) of noise of scale one."""
    if noise == "gaussian":
        return mpmath.ncdf(x), mpmath.ncdf(-x)
    small = mpmath.exp(-abs(x)) / 2
    return (small, 1 - small) if x < 0 else (1 - small, small)


def bracket(order, noise, scale, shift, t, previous):
    """S(t - e)^a S(t)^(1-a) + F(t - e)^a F(t)^(1-a) V."""
    order, x, h = mpmath.mpf(order), mpmath.mpf(t) / scale, mpmath.mpf(shift) / scale
    (below, above), (below_shifted, above_shifted) = tails(noise, x), tails(noise, x - h)
    a = above_shifted**order * above ** (1 - order)
    return a + below_shifted**order * below ** (1 - order) * mpmath.exp(previous)


@pytest.mark.parametrize("noise", NOISES)
def test_tails_and_the_mass_between_two_points_keep_their_digits(noise):
    for x in (-30.0, -3.0, -0.25, 0.0, 0.125, 2.0, 13.5, 30.0):
        got = bellman._log_tails(noise, np.array([x]))
        assert [float(part[0]) for part in got] == pytest.approx(
            [float(mpmath.log(part)) for part in tails(noise, mpmath.mpf(x))], rel=4e-15, abs=1e-30
        )
    # Laplace noise is asked for between its two kinks, 0 and h; Gaussian noise wherever the noise lives.
    inside = [(share * h, h) for h in (-0.45, -1e-9, 1e-7, 0.4) for share in (0.0, 0.25, 0.5, 1.0)]
    anywhere = [(x, h) for h in (-0.049, -1e-6, 1e-10, 0.03, 0.0499) for x in (-13.9, -2.0, 0.1, 1.0, 5.0, 13.9)]
    for x, h in inside if noise == "laplace" else anywhere:
        mass, trusted = bellman._mass_between(noise, column(x), column(h))
        here, there = tails(noise, mpmath.mpf(x)), tails(noise, mpmath.mpf(x) - mpmath.mpf(h))
        exact = here[0] - there[0] if x < 0 else there[1] - here[1]  # the smaller tail keeps its digits
        assert trusted.all()
        digits = 3e-13 if abs(x * h) < 0.3 else 1e-9  # where the series ends, far out in the tails
        assert float(mass[0, 0]) == pytest.approx(float(exact), rel=digits, abs=0)


def test_a_mass_is_not_trusted_where_its_series_is_short():
    def trusted(noise, x, h):
        return bool(bellman._mass_between(noise, column(x), column(h))[1].all())

    assert trusted("gaussian", 13.99, 0.0499)
    assert trusted("gaussian", -13.99, -0.0499)
    assert not any(trusted("gaussian", *pair) for pair in ((0.0, 0.05), (0.0, -0.05), (14.0, 0.01), (-14.0, 0.01)))
    assert trusted("laplace", 0.1, 0.499)
    assert trusted("laplace", -0.1, -0.499)
    assert not any(trusted("laplace", *pair) for pair in ((0.0, 0.5), (0.0, -0.5)))


def test_the_curved_part_of_an_exponential_keeps_its_digits():
    for y in (-40.0, -0.51, -0.5, -0.499, -1e-3, -1e-9, 1e-12, 0.01, 0.499, 0.5, 0.51, 3.0, 500.0):
        for log_weight in (-3.0, 0.0):
            exact = mpmath.exp(log_weight) * (mpmath.expm1(mpmath.mpf(y)) - mpmath.mpf(y))
            got = float(bellman._curved(np.array([log_weight]), np.array([y]))[0])
            assert got == pytest.approx(float(exact), rel=1e-14, abs=0)
    assert bellman._curved(np.array([0.0]), np.array([900.0]))[0] == pytest.approx(math.exp(700))
    for step in (1e-12, 1e-6, 9e-3):
        for ratio in (-2.0, -1e-7, 1e-4, 0.3, 4.0):
            a, r = 1 + mpmath.mpf(step), mpmath.mpf(ratio)
            exact = mpmath.exp(-1) * (mpmath.expm1(a * r) - a * mpmath.expm1(r))
            got = float(bellman._excess_near_one(step, np.array([-1.0]), np.array([ratio]))[0])
            assert got == pytest.approx(float(exact), rel=1e-13, abs=0)


@pytest.mark.parametrize("noise", NOISES)
def test_brackets_are_those_of_the_recursion(noise):
    for order, scale in ((1 + 2.0**-20, 3.0), (1.5, 0.7), (8.0, 40.0), (300.0, 2.0)):
        for shift in (-1.0, 0.5, 2.0):
            for t in (0.3 * shift, shift):
                for previous in (0.0, 0.05, 40.0):
                    exact = float(mpmath.log(bracket(order, noise, scale, shift, t, previous)))
                    for precise in (False, True):
                        brackets = bellman._brackets(order, noise, scale, column(shift), column(t), precise)
                        close = {"rel": 1e-12 * order, "abs": 1e-14 * order}
                        assert float(brackets.log_value(previous)[0, 0]) == pytest.approx(exact, **close)


@pytest.mark.parametrize("noise", NOISES)
def test_brackets_of_wide_noise_keep_their_digits(noise):
    for order, scale in ((1.0001, 1e3), (1.0099, 1e6), (1.0101, 1e3), (2.0, 1e5), (64.0, 1e4), (3.0, 4.0)):
        for shift in (-1.0, 2.0):
            for t in (0.25 * shift, shift) if noise == "laplace" else (-scale, 1.5 * scale):
                for previous in (0.0, 1e-10, 0.09):
                    exact = float(mpmath.log(bracket(order, noise, scale, shift, t, previous)))
                    brackets = bellman._brackets(order, noise, scale, column(shift), column(t), True)
                    assert brackets.excess is not None
                    digits = 1e-11 if order < 1.01 else 1e-11 * order / (order - 1)
                    assert float(brackets.log_value(previous)[0, 0]) == pytest.approx(exact, rel=digits, abs=0)


def test_the_threshold_pays_for_its_own_shift():
    assert bellman.threshold_divergence(3.0, "gaussian", 2.0, 0.0) == 0
    assert bellman.threshold_divergence(3.0, "laplace", 0.0, 0.0) == 0
    assert bellman.threshold_divergence(3.0, "laplace", 0.0, 0.5) == math.inf
    assert bellman.threshold_divergence(3.0, "gaussian", 2.0, 0.5) == gaussian_rdp(4.0, 3.0)
    assert bellman.threshold_divergence(3.0, "laplace", 2.0, 0.5, 3) == laplace_rdp(0.25, 3.0, 16.0)
    assert bellman.threshold_divergence(3.0, "laplace", 2.0, 0.5) == laplace_rdp(0.25, 3.0, 2.0**31)


@pytest.mark.parametrize(
    ("threshold", "query", "bits"),
    [
        (0.0, 1.0, 30),
        (2.0**19, 3.0, 30),
        (3.0, 2.0**19, 30),
        (2.0**20, 1.0, 29),
        (1.0, 2.0**40, 9),
        (2.0**41, 1.0, 8),
    ],
)
def test_the_lattice_of_queries_leaves_room_for_their_noise(threshold, query, bits):
    assert bellman.threshold_lattice_bits(threshold, query) == bits
    assert max(threshold, query) * 2.0**bits <= 2.0**50


@pytest.mark.parametrize("noise", NOISES)
def test_drawing_on_integers_adds_what_the_distance_of_the_tails_allows(noise):
    for order, queries, scale, bits in ((2.0, 1, 1.0, 4), (1.5, 7, 0.25, 30), (90.0, 30, 3.0, 10), (5.0, 2, 50.0, 2)):
        lattice = mpmath.mpf(scale) * 2**bits
        if noise == "laplace":
            h = 1 / (8 * lattice**2)
        else:
            reach = max(8 * order / mpmath.mpf(scale), mpmath.sqrt(8 * order * mpmath.log(3 * lattice) + 400))
            h = (reach**2 / 6 + mpmath.mpf(1) / 23) / lattice**2
        excess = bellman._lattice_excess(order, queries, noise, scale, bits)
        if h >= 0.5:
            assert excess == math.inf
        else:
            exact = queries * (order * mpmath.log1p(h) - (order - 1) * mpmath.log1p(-h))
            assert exact <= excess * (1 + 1e-14)
            assert excess == pytest.approx(float(exact), rel=1e-13, abs=1e-36)
    assert bellman._lattice_excess(2.0, 1, "laplace", 0.5, 0) == math.inf  # h is a half
    assert bellman._lattice_excess(2.0, 1, "laplace", 0.51, 0) < math.inf
    assert bellman._lattice_excess(2.0, 10, noise, 2.0**20, 60) >= 10 * Fraction(1, 10**40)


def test_the_best_coupling_is_found_within_a_32nd():
    for best in (0.0, 0.06, 0.31, 0.5, 0.72, 0.99, 1.0):
        found = bellman._least_on_unit_interval(lambda s, best=best: abs(s - best))
        assert 0 <= found <= 1
        assert abs(found - best) <= 1 / 64 + 1e-12
    asked = []
    bellman._least_on_unit_interval(lambda s: asked.append(s) or (s - 0.4) ** 2)
    assert len(asked) == len(set(asked)) <= 11


@pytest.mark.parametrize(
    ("noise", "order", "scale"),
    [("laplace", 2.0, 5.0), ("laplace", 9.0, 1.5), ("gaussian", 30.0, 12.0)],
)
def test_the_recursion_takes_every_step_and_its_shortcuts_do_not_fall_below(noise, order, scale):
    """The maximum over t may be missed by a tenth of the margin of 1e-6 with which it is multiplied in the end."""
    shifts = (-0.75, 1.25)
    shift = column(*shifts)
    reach = 14 * scale + 2 * order * 1.25
    t = np.stack([np.linspace(0, e, 801) if noise == "laplace" else np.linspace(-reach, reach, 1601) for e in shifts])
    (below, above), (below_shifted, above_shifted) = (
        bellman._log_tails(noise, points / scale) for points in (t, t - shift)
    )
    log_a, log_b = (
        order * there + (1 - order) * here for here, there in ((above, above_shifted), (below, below_shifted))
    )
    plain, value = {}, 0.0
    for query in range(1, 141):
        value = plain[query] = max(value, float(np.logaddexp(log_a, log_b + value).max()))
    for queries in (1, 2, 66, 140):
        ours = bellman._log_value(order, queries, noise, scale, shifts, True)
        assert plain[queries] * (1 - 1e-7) <= ours <= plain[queries] * (1 + (1e-5 if queries <= 64 else 2e-3))
    assert 0.99 * ours <= bellman._log_value(order, queries, noise, scale, shifts, False) <= ours
    assert bellman._log_value(200.0, 10, noise, 0.1, shifts, True) == math.inf


@pytest.mark.parametrize(
    ("noise", "order", "scale", "shift"),
    [
        ("gaussian", 8.0, 1.0, 1.0),
        ("gaussian", 8.0, 1.0, -1.0),
        ("gaussian", 1.5, 0.1, 1.0),
        ("laplace", 8.0, 1.0, 1.0),
    ],
)
def test_a_narrow_peak_is_found_wherever_it_lies_between_points_of_a_coarse_grid(noise, order, scale, shift):
    def height(t, value=0.3):
        return bellman._brackets(order, noise, scale, column(shift), np.atleast_2d(t), False).log_value(value)

    fine = np.linspace(0.0, order * shift, 400_001)
    top = fine[height(fine).argmax()]
    highest = float(height(top)[0, 0])
    assert highest > 1
    width = abs(top) / 3
    for first in (-0.01, -0.4, -0.6, -1.02, -3.5, -5.98):  # the peak is beside either end, or in the middle
        grid = np.atleast_2d(top + width * (first + np.arange(7)))
        found = bellman._refined_peak(order, noise, scale, column(shift), grid, height(grid), 0.3, False)
        assert highest * (1 - 1e-7) <= found <= highest * (1 + 1e-9)


@pytest.mark.parametrize("order", [20.0, 40.0])
def test_large_orders_are_searched_on_both_sides(order):
    """Without threshold noise all queries but the last may lie far below, where each adds order/2."""
    t = np.linspace(-4 * order, 4 * order, 20_001)
    value, queries = 0.0, 3
    for _ in range(queries):
        both = [
            bellman._brackets(order, "gaussian", 1.0, column(e), t[None], False).log_value(value) for e in (-1.0, 1.0)
        ]
        value = max(value, float(np.max(both)))
    assert value > 0.98 * queries * order * (order - 1) / 2
    bound = bellman.bellman_bound(order, queries, "gaussian", 0.0, 1.0)
    assert value / (order - 1) * (1 - 1e-7) <= bound <= value / (order - 1) * (1 + 1e-5)


@pytest.mark.parametrize("noise", NOISES)
def test_the_first_step_of_very_wide_noise_keeps_its_digits(noise):
    for order, scale in ((1.001, 1e6), (2.0, 1e7), (150.0, 1e6), (1e4, 2e9)):
        exact = max(
            mpmath.log(bracket(order, noise, scale, e, t * (e if noise == "laplace" else scale), 0.0))
            for e in (-0.5, 1.5)
            for t in np.linspace(0, 1, 21)
        )
        ours = bellman._log_value(order, 1, noise, scale, (-0.5, 1.5), True)
        assert exact * (1 - mpmath.mpf(1e-7)) <= ours <= exact * (1 + mpmath.mpf(2e-2))


@pytest.mark.parametrize("noise", NOISES)
def test_a_bound_is_put_together_from_its_parts_at_the_best_coupling(noise):
    order, queries, query, coupling = 3.0, 5, 1.5, 0.375
    for threshold in (1.0, 6.0):
        bits = bellman.threshold_lattice_bits(threshold, query)

        def bound(s, threshold=threshold, bits=bits):
            value = bellman._log_value(order, queries, noise, query, (s - 1, s + 1), True) / (order - 1)
            return bellman.threshold_divergence(order, noise, threshold, s, bits) + value

        excess = bellman._lattice_excess(order, queries, noise, query, bits) / (order - 1)
        assert excess > 0
        parts = order, queries, noise, threshold, query
        assert bellman.bellman_bound(*parts, coupling) == bound(coupling) * (1 + 1e-6) + excess
        found = {k / 32: bellman.bellman_bound(*parts, k / 32) for k in range(33)}
        least = bellman.bellman_bound(*parts)
        assert min(found.values()) <= least <= min(found.values()) * (1 + 1e-3)
        assert least in found.values()
    coarse = 1.001, 1, noise, 2.0**-11, 2.0**-11  # on a lattice of 2^19 steps, whose excess can be seen
    value = bellman._log_value(1.001, 1, noise, 2.0**-11, (-0.5, 1.5), True)
    divergence = bellman.threshold_divergence(1.001, noise, 2.0**-11, 0.5, 30)
    excess = bellman._lattice_excess(1.001, 1, noise, 2.0**-11, 30) / (1.001 - 1)
    whole = (divergence + value / (1.001 - 1)) * (1 + 1e-6)
    assert bellman.bellman_bound(*coarse, 0.5) == whole + excess > whole
    assert bellman.bellman_bound(order, queries, noise, 0.0, query) == bellman.bellman_bound(
        order, queries, noise, 0.0, query, 0.0
    )
