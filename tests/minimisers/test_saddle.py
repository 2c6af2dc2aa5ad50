"""Saddle points: certificates, closed forms, sensitivities, and noise that covers the gap."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdescent import InvalidParameter, Ledger
from dpdescent.accounting import Gaussian, NormLaplace
from dpdescent.curator import perturbed_saddle_point
from dpdescent.minimisers import Game, LinearGame, minimax_appa
from dpdescent.relations import Relation
from rival_tables import Recorder


def table(rows: int, seed: int = 0, shift: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    y = np.where(generator.random(rows) < 0.5, 1.0, -1.0)
    return 0.3 * generator.normal(size=(rows, 3)) + shift * y[:, None], y


class Quadratic(Game):
    """w'Aw/2 - b'w + w'Kv - v'Cv/2 with moves in a box: smooth, far from round, and its saddle is a linear system."""

    def __init__(self, seed: int, reach: float) -> None:
        generator = np.random.default_rng(seed)
        rotation = np.linalg.qr(generator.normal(size=(4, 4)))[0]
        self.A, self.C = rotation @ np.diag([0.5, 1.0, 2.0, 4.0]) @ rotation.T, np.diag([0.0, 0.3, 1.0])
        self.b, self.K = generator.normal(size=4), generator.normal(size=(4, 3))
        self.dimension, self.reach = 4, reach
        self.strong_convexity, self.smoothness = 0.5, 4.0
        self.coupling, self.move_smoothness = float(np.linalg.norm(self.K, 2)), 1.0
        self.diameter = 2 * reach * math.sqrt(3)

    def variation(self, relation: Relation) -> float:
        return 1.0

    def gradients(self, weights: np.ndarray, moves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.A @ weights - self.b + self.K @ moves, self.K.T @ weights - self.C @ moves

    def project(self, moves: np.ndarray) -> np.ndarray:
        return np.clip(moves, -self.reach, self.reach)

    def farthest(self, direction: np.ndarray) -> np.ndarray:
        return self.reach * np.sign(direction)

    def start(self) -> np.ndarray:
        return np.zeros(3)

    def value(self, w: np.ndarray, v: np.ndarray) -> float:
        return float(w @ self.A @ w / 2 - self.b @ w + w @ self.K @ v - v @ self.C @ v / 2)


@pytest.mark.parametrize("radius", [0.1, 5.0])
@pytest.mark.parametrize("accuracy", [1e-3, 1e-6, 1e-9])
def test_the_linear_game_ends_at_its_closed_form(accuracy: float, radius: float) -> None:
    """Weights are the shrunk mean, or zero where the adversary is stronger than it."""
    X, y = table(40)
    game = LinearGame(X, y, 40, 0.5, radius, row_bound=9.0)
    weights, moves = minimax_appa(game, accuracy)
    mean = (y[:, None] * X).mean(axis=0)
    length = float(np.linalg.norm(mean))
    best = max(length - radius, 0.0) * mean / length / 0.5
    assert game.gap(weights, moves) <= accuracy
    assert np.linalg.norm(weights - best) <= math.sqrt(2 * accuracy / 0.5)
    assert (np.linalg.norm(moves, axis=1) <= radius * (1 + 1e-12)).all()


@pytest.mark.parametrize(("seed", "reach"), [(0, 0.2), (1, 0.2), (2, 1.0)])
def test_a_certified_saddle_point_is_one(seed: int, reach: float) -> None:
    """No corner of the box gives more against the weights, and no weights give less against the moves, by the gap."""
    game = Quadratic(seed, reach)
    weights, moves = minimax_appa(game, 1e-3)
    here = game.value(weights, moves)
    answer = np.linalg.solve(game.A, game.b - game.K @ moves)
    assert here - game.value(answer, moves) <= 1e-3
    generator = np.random.default_rng(0)
    others = generator.uniform(-reach, reach, (5000, 3))
    assert max(game.value(weights, v) for v in others) - here <= 1e-3
    assert 0 <= game.gap(weights, moves) <= 1e-3


def test_the_gap_bounds_the_distance_to_the_saddle_point() -> None:
    """At points far from it too, where the gap is large."""
    X, y = table(30)
    game = LinearGame(X, y, 30, 0.5, 0.1, row_bound=9.0)
    mean = (y[:, None] * X).mean(axis=0)
    best = (1 - 0.1 / np.linalg.norm(mean)) * mean / 0.5
    generator = np.random.default_rng(0)
    for _ in range(300):
        weights = best + generator.normal(size=3) * 10.0 ** generator.uniform(-6, 1)
        moves = game.project(generator.normal(size=(30, 3)))
        assert np.linalg.norm(weights - best) <= math.sqrt(2 * game.gap(weights, moves) / 0.5)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_one_row_moves_the_released_point_by_at_most_its_sensitivity(relation: str) -> None:
    """150 neighbours; with a coarse gap, so that the tolerance counts, and with a fine one."""
    generator = np.random.default_rng(0)
    for trial in range(150):
        X, y = table(10, trial)
        other, turned = X.copy(), y.copy()
        if relation == "zero-out":
            other, turned = X[1:], y[1:]
        else:
            other[0], turned[0] = generator.normal(size=3) * 3, -y[0]
        points = []
        for features, labels in ((X, y), (other, turned)):
            noise = Recorder()
            ledger = Ledger(1e6, 1e-6, currency="gdp", relation=relation)
            game = LinearGame(features, labels, 10, 0.5, 0.1, concavity=0.3 * (trial % 2))
            accuracy = 1e-2 if trial % 3 else None
            perturbed_saddle_point(game, ledger, Gaussian(1.0), largest=3.0, accuracy=accuracy, noise=noise)
            points.append(noise.sums[0])
        moved = np.linalg.norm(points[0].to_float() - points[1].to_float())
        assert moved <= points[0].sensitivity.under(Relation(relation))


def test_the_noise_covers_the_square_root_of_the_gap() -> None:
    X, y = table(10)
    sizes = []
    for accuracy in (1e-2, 1e-4):
        noise = Recorder()
        ledger = Ledger(1e6, 1e-6, currency="gdp")
        game = LinearGame(X, y, 10, 0.5, 0.1)
        perturbed_saddle_point(game, ledger, Gaussian(1.0), largest=3.0, accuracy=accuracy, noise=noise)
        sizes.append(noise.sums[0].sensitivity.zero_out - game.variation(Relation.ZERO_OUT) / 0.5)
    assert sizes == pytest.approx([2 * math.sqrt(2 * a / 0.5) for a in (1e-2, 1e-4)], rel=1e-6)


def test_bad_games_are_refused_before_anything_is_charged() -> None:
    X, y = table(10)
    ledger = Ledger(1.0, 1e-6, currency="pure")
    for arguments in ((9, 0.5, 0.1), (10, 0.0, 0.1), (10, 0.5, 0.0), (10, 0.5, math.inf), (10, 0.5, 0.1, -1.0)):
        with pytest.raises(InvalidParameter):
            LinearGame(X, y, *arguments)
    game = LinearGame(X, y, 10, 0.5, 0.1)
    with pytest.raises(InvalidParameter, match="certified"):
        perturbed_saddle_point(game, ledger, NormLaplace(0.5), largest=3.0, accuracy=1e-15)
    tiny = LinearGame(X, y, 10, 1.0, 1e-170, row_bound=1e-170)  # the square of any gradient would be 0
    with pytest.raises(InvalidParameter, match="gradient"):
        perturbed_saddle_point(tiny, ledger, NormLaplace(0.5), largest=3.0)
    game.diameter = math.inf
    with pytest.raises(InvalidParameter, match="not bounded"):
        perturbed_saddle_point(game, ledger, NormLaplace(0.5), largest=3.0)
    assert not ledger.entries
    game.diameter = 2.0
    assert perturbed_saddle_point(game, ledger, NormLaplace(0.5), largest=3.0).shape == (3,)
    assert ledger.spent == 0.5


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e300])
def test_no_entry_keeps_a_game_from_ending(odd: float, recwarn: pytest.WarningsRecorder) -> None:
    """A row that is no number is a row like any other: neither a search without end nor a warning speaks of it."""
    rows = np.full((6, 2), 0.5)
    rows[2, 1] = odd
    rows[3] = odd
    game = LinearGame(rows, np.array([1.0, -1.0, 1.0, math.nan, 1.0, 1.0]), 6, 1.0, 0.1)
    ledger = Ledger(1.0, 1e-6, currency="gdp")
    assert np.isfinite(perturbed_saddle_point(game, ledger, Gaussian(10.0), largest=2.0)).all()
    assert not recwarn.list
