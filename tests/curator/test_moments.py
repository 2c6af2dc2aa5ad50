"""Second moments: no row moves the matrix by more than is declared, and noise has the promised symmetric law.

Statistical tests run on fixed seeds, so they never alarm at random; on fresh bits each would raise a false alarm
with probability below 1e-6.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from asking import second_moments
from dpdescent.errors import DPDescentError
from dpdescent.exact import FeatureGrid, LatticeSum, machine
from dpdescent.ledger import Ledger
from dpdescent.problems import Frame, Whitening
from dpdescent.relations import Norm
from neighbours import RICH, STORAGE, assert_deviation, curator, share_of_sensitivity, sums, touches

D, N = 5, 10
GRID = FeatureGrid(1.0, D)
FRAME = Frame.place(GRID, np.array([0.3, -0.2, 0.9, -1.0, 0.0]), np.array([1.0, 0.5, 0.0625, 0.25, 1.0]))
WHITENING = Whitening(GRID, [[2, 0, 0], [0, 3, 0], [0.3, -0.7, 0.1], [1e-3, 0.2, -9], [0.11, -0.5, 0.6]])
FRAMES = pytest.mark.parametrize("frame", [None, FRAME, WHITENING], ids=["rows", "frame", "whitening"])
AnyFrame = Frame | Whitening | None


def table(generator: np.random.Generator, rows: int = N) -> np.ndarray:
    """Return rows of all sizes, some of them zero and some at the bounds."""
    features = generator.uniform(-1, 1, (rows, D)) * 10.0 ** generator.uniform(-4, 0, (rows, 1))
    extreme = generator.random((rows, D)) < 0.3
    features[extreme] = np.sign(features[extreme])
    features[generator.random((rows, D)) < 0.2] = 0.0
    features[:, -1] = generator.choice([1.0, 1.0, 1.0, 0.0, -0.5], rows)
    return GRID.place(features)


def recorded(features: Any, clip: float, frame: AnyFrame, block_rows: int = 2**14, amount: float = 1.0) -> LatticeSum:
    asked = curator(features, np.ones(features.shape[0]), GRID, rows=N, block_rows=block_rows)
    second_moments(asked, clip, amount, frame)
    (total,) = sums(asked)
    assert total.sensitivity.norm is Norm.L2
    assert total.sensitivity.zero_out <= clip**2 * (1 + 1e-12)
    assert total.sensitivity.replace_one <= math.sqrt(2) * clip**2 * (1 + 1e-12)
    assert (total.values == total.values.T).all()
    return total


@FRAMES
@pytest.mark.parametrize("seed", range(5))
def test_no_row_moves_the_matrix_by_more_than_is_declared(seed: int, frame: AnyFrame) -> None:
    generator = np.random.default_rng(seed)
    for amount in (1.0, 1.0, 1.0, 2.0**-34, 2.0**-40, 2.0**-45):  # great noise makes the lattice coarse
        clip = 10.0 ** generator.uniform(-3, 2)
        features, other = table(generator), table(generator)
        whole = recorded(features, clip, frame, amount=amount)
        for row in range(0, N, 3):
            replaced = features.copy()
            replaced[row] = other[row]
            removed = recorded(np.delete(features, row, axis=0), clip, frame, amount=amount)
            assert share_of_sensitivity(whole, removed, "zero-out") <= 1
            assert share_of_sensitivity(whole, recorded(replaced, clip, frame, amount=amount), "replace-one") <= 1


@FRAMES
@pytest.mark.parametrize("clip", [0.01, 0.5, 0.99])
def test_one_row_can_move_the_matrix_by_almost_what_is_declared(clip: float, frame: AnyFrame) -> None:
    # Two orthogonal rows, both longer than the clip norm.
    centre = frame.centre if isinstance(frame, Frame) else np.zeros(D)
    doublings = frame.doublings if isinstance(frame, Frame) else np.zeros(D, np.int64)
    rows = [centre - np.ldexp(np.eye(D)[j], -doublings) for j in (0, 1)]
    one, other = (recorded(GRID.place(row[None, :]), clip, frame) for row in rows)
    empty = recorded(GRID.place(np.zeros((0, D))), clip, frame)
    assert 1 / 1.1 < share_of_sensitivity(one, empty, "zero-out") <= 1
    assert 1 / 1.1 < share_of_sensitivity(one, other, "replace-one") <= 1


@FRAMES
@pytest.mark.parametrize("clip", [0.2, 2.0, 100.0])
def test_with_little_noise_the_matrix_is_the_plain_one(clip: float, frame: AnyFrame) -> None:
    features = table(np.random.default_rng(1), 200)
    asked = curator(features, np.ones(200), GRID)
    answer = second_moments(asked, clip, 1e12, frame)
    rows = features if frame is None else frame.coordinates(features)
    if frame is WHITENING:
        rows = np.clip(rows, -2 * clip, 2 * clip)
    lengths = np.linalg.norm(rows, axis=1)
    rows = rows * np.minimum(1.0, clip / np.maximum(lengths, 1e-300))[:, None]
    expected = rows.T @ rows / 200
    np.testing.assert_allclose(answer, expected, atol=4e-3 * min(clip, lengths.max()) ** 2)


@FRAMES
def test_sums_have_the_same_bits_for_any_layout(frame: AnyFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(2)
    features = table(generator, 150)
    expected = recorded(features, 0.8, frame).values
    order = generator.permutation(150)
    for exact in (True, False):
        monkeypatch.setattr(machine, "blas_is_exact", lambda exact=exact: exact)
        for store in STORAGE.values():
            assert (recorded(store(features), 0.8, frame).values == expected).all()
            assert (recorded(store(features[order]), 0.8, frame, block_rows=23).values == expected).all()
    monkeypatch.setattr("dpdescent.exact.loss_sums.PART_BYTES", 8 * D * 7)
    assert (recorded(features, 0.8, frame).values == expected).all()


@FRAMES
@pytest.mark.parametrize("multiplier", [5.0, 2.0**20])
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_noise_is_isotropic_on_symmetric_matrices_and_has_the_scale_that_was_paid_for(
    relation: str, multiplier: float, frame: AnyFrame
) -> None:
    features, clip = table(np.random.default_rng(3)), 0.5
    asked = curator(features, np.ones(N), GRID, relation=relation)
    answers = np.array([second_moments(asked, clip, multiplier**-2, frame) for _ in range(400)])
    noise = answers * N - sums(asked)[0].to_float()
    assert (noise == noise.transpose(0, 2, 1)).all()
    sigma = multiplier * clip**2 * (math.sqrt(2) if relation == "replace-one" else 1)
    diagonal, above = np.diag_indices(noise.shape[1]), np.triu_indices(noise.shape[1], 1)
    assert_deviation(noise[:, *diagonal], sigma)
    assert_deviation(noise[:, *above], sigma / math.sqrt(2))


@FRAMES
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_the_matrix_is_charged_to_both_ledgers_before_any_row_is_touched(rate: float, frame: AnyFrame) -> None:
    account = Ledger(RICH, 1e-6, currency="gdp")
    asked = curator(table(np.random.default_rng(4)), np.ones(N), GRID, account=account, batch_rate=rate)
    for count in (1, 2):
        second_moments(asked, 0.5, 0.25, frame)
        assert set(touches(asked)) == {(count, count)}
        touches(asked).clear()
    assert asked.ledger.spent == account.spent == pytest.approx(0.5)


OTHER = Frame.place(FeatureGrid(1.0, D + 1), np.zeros(D + 1), np.ones(D + 1))
REFUSALS = {
    "too dear": (0.5, 1.0, None),
    "no amount": (0.5, 0.0, None),
    "too much noise": (0.5, 2.0**-47, None),
    "clip": (0.0, 1e-3, None),
    "clip not a number": (math.nan, 1e-3, None),
    "tiny clip": (2.0**-150, 1e-3, None),
    "frame of another grid": (0.5, 1e-3, OTHER),
    "whitening of another grid": (0.5, 1e-3, Whitening(FeatureGrid(1.0, D + 1), np.ones((D + 1, 2)))),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_charges_nothing_and_touches_nothing(name: str) -> None:
    account = Ledger(2.0, 1e-6, currency="gdp")
    asked = curator(table(np.random.default_rng(0)), np.ones(N), GRID, epsilon=1.0, account=account)
    with pytest.raises(DPDescentError):
        second_moments(asked, *REFUSALS[name])
    assert asked.ledger.entries == account.entries == ()
    assert touches(asked) == sums(asked) == []


def test_features_beyond_one_are_refused_before_the_charge() -> None:
    grid = FeatureGrid(2.0, D)
    asked = curator(grid.place(np.ones((N, D))), np.ones(N), grid)
    with pytest.raises(DPDescentError):
        second_moments(asked, 0.5, 1.0)
    assert asked.ledger.entries == ()
    assert touches(asked) == []
