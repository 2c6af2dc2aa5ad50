"""Elementary functions: accuracy against mpmath, and the same bits whatever the layout."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dpdescent.errors import InvalidParameter
from dpdescent.exact import exp, log, quick_sigmoid, sigmoid, softplus

FUNCTIONS = {
    "exp": exp,
    "log": log,
    "sigmoid": sigmoid,
    "softplus": softplus,
    "quick_sigmoid": quick_sigmoid,
}
repeatable = settings(deadline=None, derandomize=True, max_examples=150)


def worst_relative_error(function, reference, points: np.ndarray) -> float:
    with mpmath.workprec(140):
        errors = [
            abs(mpmath.mpf(float(value)) / reference(mpmath.mpf(float(x))) - 1)
            for x, value in zip(points, function(points), strict=True)
        ]
        return float(max(errors))


def spread(seed: int, limit: float, count: int = 2500) -> np.ndarray:
    generator = np.random.default_rng(seed)
    wide = generator.uniform(-limit, limit, count)
    tiny = generator.choice([-1.0, 1.0], count // 2) * 10.0 ** generator.uniform(-17, 0, count // 2)
    return np.concatenate([wide, generator.uniform(-3, 3, count), tiny, [0.0, -0.0, limit, -limit]])


def test_exp_is_accurate_to_two_to_the_minus_52():
    assert worst_relative_error(exp, mpmath.exp, spread(0, 699.0)) < 2**-51.9


def test_softplus_is_accurate_to_two_to_the_minus_51():
    assert worst_relative_error(softplus, lambda t: mpmath.log1p(mpmath.exp(t)), spread(1, 690.0)) < 2**-51


def test_sigmoid_is_accurate_in_both_tails():
    assert worst_relative_error(sigmoid, lambda t: 1 / (1 + mpmath.exp(-t)), spread(2, 699.0)) < 2**-51


def worst_absolute_error(function, reference, points: np.ndarray) -> float:
    with mpmath.workprec(140):
        values = function(points)
        pairs = zip(points, values, strict=True)
        return float(max(abs(mpmath.mpf(float(value)) - reference(mpmath.mpf(float(x)))) for x, value in pairs))


def test_quick_sigmoid_is_within_two_to_the_minus_26():
    def reference(t):
        return 1 / (1 + mpmath.exp(-t))

    assert worst_absolute_error(quick_sigmoid, reference, spread(6, 20.0)) < 2**-26
    assert worst_absolute_error(quick_sigmoid, reference, spread(7, 2000.0)) < 2**-26
    assert quick_sigmoid(0.0) == 0.5


def test_quick_sigmoid_is_total_and_monotone():
    ends = np.array([-np.inf, -1e308, -300.0, 300.0, 1e308, np.inf])
    assert np.array_equal(quick_sigmoid(ends), quick_sigmoid(np.clip(ends, -300, 300)))
    assert quick_sigmoid(np.inf) == 1
    assert 0 < quick_sigmoid(-np.inf) < 1e-100
    assert np.all(np.diff(quick_sigmoid(np.linspace(-320, 320, 100_001))) >= 0)


def test_log_is_accurate_near_one_and_far_away():
    near = 1 + spread(3, 0.4)
    far = np.exp2(np.random.default_rng(4).uniform(-1000, 1000, 2500))
    points = np.concatenate([near[(near > 0) & (near != 1)], far])
    assert worst_relative_error(log, mpmath.log, points) < 2**-51
    assert log(1.0) == 0


def test_exp_has_known_bits():
    points = np.array([0.0, 1.0, -1.0, 0.5, 10.0, -700.0])
    expected = [1.0, math.e, 0.36787944117144233, 1.6487212707001282, 22026.465794806718, 9.859676543759770e-305]
    np.testing.assert_allclose(exp(points), expected, rtol=2**-52, atol=0)
    assert exp(0.0) == 1.0


def test_arguments_outside_the_range_are_clipped():
    ends = np.array([-np.inf, -1e308, -700.0, 700.0, 1e308, np.inf])
    assert np.array_equal(exp(ends), exp(np.clip(ends, -700, 700)))
    assert sigmoid(np.inf) == 1
    assert sigmoid(-np.inf) == exp(-700.0)
    assert softplus(np.inf) == np.inf
    assert 0 < softplus(-np.inf) < 1e-300
    tiny, largest = np.finfo(float).tiny, np.finfo(float).max
    assert np.array_equal(log([0.0, -5.0, -np.inf, np.inf]), log([tiny, tiny, tiny, largest]))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_stays_nan_and_leaves_its_neighbours_alone(name):
    values = np.linspace(0.1, 5, 101)
    with_nan = values.copy()
    with_nan[::7] = np.nan
    result = FUNCTIONS[name](with_nan)
    assert np.array_equal(np.isnan(result), np.isnan(with_nan))
    keep = ~np.isnan(with_nan)
    assert np.array_equal(result[keep], FUNCTIONS[name](values)[keep])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shape_strides_order_and_position_never_change_a_bit(name):
    function = FUNCTIONS[name]
    values = np.random.default_rng(5).normal(size=(331, 60)) * 20
    expected = np.array([[function(x) for x in row[:7]] for row in values[:9]])
    whole = function(values)
    assert np.array_equal(whole[:9, :7], expected)
    assert np.array_equal(function(np.asfortranarray(values)), whole)
    assert np.array_equal(function(values[::3, ::-2]), whole[::3, ::-2])
    assert np.array_equal(function(values.ravel()[5:]), whole.ravel()[5:])
    assert function(values[0, 0]).shape == ()
    assert function(np.empty((0, 3))).shape == (0, 3)
    in_place = values.copy()
    assert function(in_place, out=in_place) is in_place
    assert np.array_equal(in_place, whole)
    strided = np.zeros((331, 120))
    function(values, out=strided[:, ::2])
    assert np.array_equal(strided[:, ::2], whole)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_input_is_left_unchanged(name):
    values = np.linspace(-3, 3, 50)
    kept = values.copy()
    FUNCTIONS[name](values)
    assert np.array_equal(values, kept)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("bad", [np.array([1j]), np.array([object()]), np.array(["a"])])
def test_numbers_that_are_not_real_are_refused(name, bad):
    with pytest.raises(InvalidParameter, match="real numbers"):
        FUNCTIONS[name](bad)


def test_out_of_the_wrong_shape_or_type_is_refused():
    with pytest.raises(InvalidParameter, match="out must be"):
        exp(np.zeros(3), out=np.zeros(4))
    with pytest.raises(InvalidParameter, match="out must be"):
        exp(np.zeros(3), out=np.zeros(3, dtype=np.float32))


@repeatable
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), min_size=1, max_size=40))
def test_each_value_is_a_function_of_its_own_argument(values):
    for function in FUNCTIONS.values():
        together = function(np.array(values))
        alone = np.array([function(x) for x in values])
        assert np.array_equal(together, alone, equal_nan=True)


@repeatable
@given(st.floats(-700, 700), st.floats(0, 5))
def test_softplus_and_sigmoid_stay_in_their_ranges(t, more):
    assert 0 <= sigmoid(t) <= 1
    assert max(t, 0) <= softplus(t) <= max(t, 0) + math.log(2) * (1 + 2**-50)
    assert exp(min(t + more, 700)) >= exp(t) * (1 - 2**-50)
