"""Steps in a frame: no row moves a sum by more than is declared, noise has the promised scale, charges come first.

Statistical tests run on fixed seeds, so they never alarm at random; on fresh bits each would raise a false alarm
with probability below 1e-6.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from asking import FrameSteps
from dpdescent.accounting import Gaussian
from dpdescent.curator import Curator
from dpdescent.curator.lattice_noise import LatticeNoise
from dpdescent.errors import BudgetExhausted, DPDescentError, InvalidParameter, ScaleOutOfRange
from dpdescent.estimators.payment import FloatNoise
from dpdescent.exact import FeatureGrid, LatticeSum, machine
from dpdescent.ledger import Ledger
from dpdescent.noise import Randomness
from dpdescent.problems import Frame, Hinge, Huber, HuberisedHinge, Logistic, Loss, Multinomial, Squared, Whitening
from dpdescent.solvers import AutoSettings, auto
from neighbours import (
    RICH,
    STORAGE,
    Recorder,
    assert_deviation,
    curator,
    share_of_sensitivity,
    sums,
    touches,
)

D, N = 6, 12
GRID = FeatureGrid(1.0, D)
FRAME = Frame.place(GRID, np.array([0.3, -0.2, 0.0, 0.9, -1.0, 0.0]), np.array([1.0, 0.5, 0.25, 0.0625, 0.5, 1.0]))
LOSSES = [Logistic(), HuberisedHinge(), Squared(), Huber(), Multinomial(3)]


def whitening(generator: np.random.Generator, directions: int = D) -> Whitening:
    """Return directions of lengths from 1/1000 to 1000."""
    rotation = np.linalg.qr(generator.normal(size=(max(D, directions),) * 2))[0][:D, :directions]
    return Whitening(GRID, rotation * 10.0 ** generator.uniform(-3, 3, directions))


def table(generator: np.random.Generator, loss: Loss, rows: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of all sizes, some at the bounds, some zero, and labels that are as bad as can be."""
    features = generator.uniform(-1, 1, (rows, D)) * 10.0 ** generator.uniform(-5, 0, (rows, 1))
    features[generator.random((rows, D)) < 0.2] = 0.0
    extreme = generator.random((rows, D)) < 0.3
    features[extreme] = np.sign(features[extreme])
    features[:, -1] = 1.0
    if generator.random() < 0.3:
        features[generator.integers(rows), -1] = generator.choice([0.0, -1.0, 0.5])  # a broken promise
    if loss.outputs > 1:
        labels = generator.integers(0, loss.outputs, rows) * 1.0
    else:
        labels = generator.choice([-1.0, 1.0], rows)
    if isinstance(loss, Squared | Huber):
        labels *= 10.0 ** generator.uniform(-3, 3, rows)
    labels[generator.random(rows) < 0.05] = generator.choice([np.nan, np.inf, -1e300])
    return GRID.place(features), labels


def recorded(features: Any, labels: Any, loss: Loss, frame: Any, clip: float, soft: float, weights: Any) -> list:
    asked = curator(features, labels, GRID, loss, rows=N)
    FrameSteps(asked, frame, clip, soft).at(weights, 1.0, 1.0)
    assert len(sums(asked)) == 2
    return sums(asked)


# Sensitivity ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("kind", ["none", "frame", "whitening", "few directions", "many directions"])
def test_no_row_moves_a_sum_by_more_than_is_declared(kind: str, loss: Loss) -> None:
    generator = np.random.default_rng(7)
    for _ in range(12):
        made = {
            "none": lambda: None,
            "frame": lambda: FRAME,
            "whitening": lambda: whitening(generator),
            "few directions": lambda: whitening(generator, 2),
            "many directions": lambda: whitening(generator, 9),
        }
        frame = made[kind]()
        clip, soft = 10.0 ** generator.uniform(-3, 2, 2)
        weights = generator.normal(0, 10.0 ** generator.uniform(-2, 2), (D, loss.outputs))
        weights = weights[:, 0] if loss.outputs == 1 else weights
        features, labels = table(generator, loss)
        asked = (loss, frame, clip, soft, weights)
        whole = recorded(features, labels, *asked)
        other, other_labels = table(generator, loss)
        for row in generator.choice(N, 4, replace=False):
            kept = np.arange(N) != row
            without = recorded(features[kept], labels[kept], *asked)
            replaced, relabelled = features.copy(), labels.copy()
            replaced[row], relabelled[row] = other[row], other_labels[row]
            exchanged = recorded(replaced, relabelled, *asked)
            for before, removed, changed in zip(whole, without, exchanged, strict=True):
                assert share_of_sensitivity(before, removed, "zero-out") <= 1
                assert share_of_sensitivity(before, changed, "replace-one") <= 1


@pytest.mark.parametrize("length", [1e-3, 0.5, 1.0, 30.0])
@pytest.mark.parametrize("clip", [0.01, 0.7, 3.0])
def test_one_row_can_move_a_gradient_by_almost_what_is_declared(clip: float, length: float) -> None:
    # Opposite rows with huge residuals, along a direction of the given length; the bound cannot be lowered.
    frame = Whitening(GRID, np.eye(D)[:, :1] * length)
    features, soft = np.zeros((2, D)), 1e6
    features[0, 0], features[1, 0] = 1.0, -1.0
    labels, weights = np.full(2, 1e9), np.zeros(D)
    both = [recorded(features[i : i + 1], labels[:1], Squared(), frame, clip, soft, weights)[0] for i in (0, 1)]
    empty = recorded(features[:0], labels[:0], Squared(), frame, clip, soft, weights)[0]
    reached = min(length, 1.0) ** 2 / 1.01  # rows shorter than 1 are clipped as if they had that length
    assert reached <= share_of_sensitivity(both[0], empty, "zero-out") <= 1
    assert reached <= share_of_sensitivity(both[0], both[1], "replace-one") <= 1


@pytest.mark.parametrize("frame", [None, FRAME], ids=["none", "frame"])
def test_one_row_can_move_a_gradient_in_a_frame_by_almost_what_is_declared(frame: Frame | None) -> None:
    features = GRID.place([[1.0, -1.0, 1.0, 1.0, -1.0, 1.0]])
    both = [recorded(features, [label], Squared(), frame, 0.7, 1e6, np.zeros(D))[0] for label in (1e9, -1e9)]
    empty = recorded(features[:0], [], Squared(), frame, 0.7, 1e6, np.zeros(D))[0]
    assert share_of_sensitivity(both[0], empty, "zero-out") >= 1 / 1.01
    assert share_of_sensitivity(both[0], both[1], "replace-one") >= 1 / 1.01


@pytest.mark.parametrize(
    "loss", [Logistic(), HuberisedHinge(), Huber(), Multinomial(2)], ids=lambda loss: type(loss).__name__
)
def test_one_row_can_move_a_curvature_by_all_that_is_declared(loss: Loss) -> None:
    features, weights = np.zeros((1, D)), np.zeros((D, loss.outputs))
    features[0, -1], weights[-1] = 1.0, isinstance(loss, HuberisedHinge)
    labels = np.full(1, 0.5 if isinstance(loss, Huber) else 1.0)
    asked = (loss, None, 10.0, 10.0, weights[:, 0] if loss.outputs == 1 else weights)
    present, absent = recorded(features, labels, *asked)[1], recorded(features[:0], labels[:0], *asked)[1]
    for relation in ("zero-out", "replace-one"):
        assert share_of_sensitivity(present, absent, relation) == 1


@pytest.mark.parametrize("curvature", [1e9, -1e9, np.inf, np.nan])
def test_a_loss_that_breaks_its_promise_moves_a_curvature_no_farther(curvature: float) -> None:
    class Wild(Logistic):
        def typical_curvatures(self, residuals: Any, labels: Any) -> Any:
            return np.full(residuals.shape[0], curvature)

    features, labels = table(np.random.default_rng(8), Logistic())
    totals = [recorded(features[k:], labels[k:], Wild(), None, 9.0, 9.0, np.zeros(D))[1] for k in (0, 1)]
    for relation in ("zero-out", "replace-one"):
        assert share_of_sensitivity(totals[0], totals[1], relation) <= 1


@pytest.mark.parametrize("doublings", [0, -1, -10])
def test_the_longest_block_is_summed_exactly_however_short_the_rows_are_in_the_frame(doublings: int) -> None:
    # |c x| stays below the clip norm, 2^36 units, because a row counts as no shorter than 1: 2^17 rows make 53 bits.
    grid, rows = FeatureGrid(1.0, 1), 2**17
    features = np.full((rows, 1), 1 - 2.0**-20)

    def total(count: int, frame: Whitening) -> LatticeSum:
        asked = curator(
            features[:count], np.full(count, -1e9), grid, Squared(), block_rows=rows, rows=rows, intercept=False
        )
        FrameSteps(asked, frame, 0.999, 1e9).at(np.zeros(1), 1.0)
        return sums(asked)[0]

    one = total(1, Whitening(grid, np.eye(1)))  # mapped to itself
    frame = Whitening(grid, np.ldexp(np.eye(1), doublings))
    assert (
        total(rows, frame).values == frame.image(LatticeSum(rows * one.values, one.unit, one.sensitivity)).values
    ).all()


# Answers -------------------------------------------------------------------------------------------------------


def reference(
    features: np.ndarray, labels: np.ndarray, loss: Loss, frame: Any, clip: float, soft: float, weights: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return gradient and curvature sums in plain floating point."""
    if isinstance(frame, Frame):
        z = np.column_stack([frame.coordinates(features), np.ones(len(features))])
    else:
        z = features if frame is None else features @ frame.matrix
    lengths = np.linalg.norm(z, axis=1)
    if isinstance(frame, Whitening):
        lengths = np.maximum(lengths, 1.0)
    shares = np.minimum(1.0, np.sqrt(soft / lengths))
    residuals = loss.residuals(features @ weights, labels).reshape(len(features), -1) * shares[:, None]
    sizes = np.linalg.norm(residuals, axis=1) * lengths
    clipped = residuals * np.minimum(1.0, clip / np.maximum(sizes, 1e-300))[:, None]
    gradient = z.T @ clipped
    curvatures = loss.typical_curvatures(loss.residuals(features @ weights, labels), labels) * shares
    return gradient.reshape(-1, *weights.shape[1:]), float(curvatures[sizes < clip].sum())


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("kind", ["none", "frame", "whitening"])
def test_with_little_noise_an_answer_is_the_plain_one(kind: str, loss: Loss) -> None:
    generator = np.random.default_rng(3)
    rows = 200
    features = generator.uniform(-1, 1, (rows, D))
    features[:, -1] = 1.0
    features = GRID.place(features)
    labels = generator.integers(0, 3, rows) * 1.0 if loss.outputs > 1 else generator.choice([-1.0, 1.0], rows)
    matrix = generator.normal(size=(D, D))
    frame = {"none": None, "frame": FRAME, "whitening": Whitening(GRID, matrix)}[kind]
    weights = generator.normal(0, 0.5, (D, 3) if loss.outputs > 1 else D)
    for clip, soft in ((0.3, 0.5), (1.0, 1.5), (50.0, 50.0)):
        asked = curator(features, labels, GRID, loss, penalty=0.1)
        gradient, curvature = FrameSteps(asked, frame, clip, soft).at(weights, 1e10, 1e10)
        expected, expected_curvature = reference(features, labels, loss, frame, clip, soft, weights)
        public = asked.problem.penalty_gradient(weights)
        assert public.any()
        public = public if frame is None else frame.pull_back(public)
        scale = max(1.0, clip)
        np.testing.assert_allclose(gradient, expected / rows + public, rtol=1e-4, atol=1e-4 * scale)
        assert curvature == pytest.approx(expected_curvature / rows, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("kind", ["none", "frame", "whitening"])
@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=lambda loss: type(loss).__name__)
def test_sums_have_the_same_bits_for_any_layout(kind: str, loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(4)
    features, labels = table(generator, loss, 300)
    frame = {"none": None, "frame": FRAME, "whitening": whitening(generator)}[kind]
    weights = generator.normal(0, 1, (D, 3) if loss.outputs > 1 else D)
    order = generator.permutation(300)

    def bits(rows: Any, targets: np.ndarray, block_rows: int) -> list:
        asked = curator(rows, targets, GRID, loss, block_rows=block_rows)
        FrameSteps(asked, frame, 0.3, 0.5).at(weights, 1.0, 1.0)
        return [each.values.tolist() for each in sums(asked)]

    expected = bits(features, labels, 2**14)
    for exact in (True, False):
        monkeypatch.setattr(machine, "blas_is_exact", lambda exact=exact: exact)
        for store in STORAGE.values():
            assert bits(store(features), labels, 2**14) == expected
            assert bits(store(features[order]), labels[order], 37) == expected


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("kind", ["none", "frame", "whitening"])
def test_noise_has_the_scale_that_was_paid_for(kind: str, relation: str) -> None:
    generator = np.random.default_rng(5)
    features, labels = table(generator, Logistic())
    frame = {"none": None, "frame": FRAME, "whitening": whitening(generator)}[kind]
    asked = curator(features, labels, GRID, relation=relation)
    steps, clip, replacing = FrameSteps(asked, frame, 0.7, 1.0), 0.7, 1 + (relation == "replace-one")
    gradient_amount, curvature_amount = 0.04, 0.25  # squared mu: multipliers of 5 and 2
    answers = [steps.at(np.zeros(D), gradient_amount, curvature_amount) for _ in range(400)]
    totals, curvatures = sums(asked)[0].to_float(), sums(asked)[1].to_float()
    assert all((each.values == sums(asked)[0].values).all() for each in sums(asked)[::2])
    assert_deviation(np.array([each[0] * N for each in answers]) - totals, 5 * clip * replacing)
    assert_deviation(np.array([each[1] * N for each in answers]) - curvatures, 2 * 0.25)


@pytest.mark.parametrize("kind", ["none", "frame", "whitening"])
def test_gradient_and_curvature_come_from_one_batch(kind: str) -> None:
    frame = {"none": None, "frame": FRAME, "whitening": Whitening(GRID, np.eye(D))}[kind]
    features, labels = np.tile(GRID.place([[0.5, 0.25, 1.0, -1.0, 0.0, 1.0]]), (64, 1)), np.ones(64)
    single = recorded(features[:1], labels[:1], Logistic(), frame, 9.0, 9.0, np.zeros(D))
    counts = set()
    asked = curator(features, labels, GRID, batch_rate=0.5)
    for _ in range(3):
        FrameSteps(asked, frame, 9.0, 9.0).at(np.zeros(D), 1.0, 1.0)
        gradient, curvature = sums(asked)[-2:]
        count = int(curvature.values[0] // single[1].values[0])
        assert 10 < count < 54
        assert (curvature.values == count * single[1].values).all()
        assert (np.abs(gradient.values - count * single[0].values) <= 64).all()
        counts.add(count)
    assert len(counts) > 1


# Charges -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1.0, 0.5])
@pytest.mark.parametrize("kind", ["none", "frame", "whitening"])
def test_both_answers_are_charged_to_both_ledgers_before_any_row_is_touched(kind: str, rate: float) -> None:
    generator = np.random.default_rng(6)
    features, labels = table(generator, Logistic())
    account = Ledger(RICH, 1e-6, currency="gdp")
    asked = curator(features, labels, GRID, account=account, batch_rate=rate)
    frame = {"none": None, "frame": FRAME, "whitening": whitening(generator)}[kind]
    steps = FrameSteps(asked, frame, 1.0, 1.0)
    assert touches(asked) == []
    for count, curvature_amount in ((1, 0.25), (2, 0.0), (3, 0.25)):
        steps.at(np.zeros(D), 0.5, curvature_amount)
        assert set(touches(asked)) == {(count, count)}
        touches(asked).clear()
    assert asked.ledger.spent == account.spent == pytest.approx(2.0)
    assert asked.ledger.spent <= 2.0


def refusals() -> dict[str, Any]:
    def at(asked: Curator, frame: Any = None, clip: float = 1.0, soft: float = 1.0, **amounts: Any) -> None:
        request = {"weights": np.zeros(D), "gradient_amount": 1e-3, "curvature_amount": 1e-3} | amounts
        FrameSteps(asked, frame, clip, soft).at(**request)

    most = Ledger(1.0, 1e-6, currency="gdp").budget
    eye = Whitening(GRID, np.eye(D))
    return {
        "gradient too dear": lambda c: at(c, gradient_amount=2 * most),
        "curvature too dear": lambda c: at(c, curvature_amount=2 * most),
        "dear together": lambda c: at(c, gradient_amount=0.6 * most, curvature_amount=0.6 * most),
        "no amount": lambda c: at(c, gradient_amount=0.0),
        "too much noise": lambda c: at(c, gradient_amount=c.amount_of_noise(2.0**53)),
        "too much noise for an image": lambda c: at(c, eye, gradient_amount=c.amount_of_noise(0.99 * 2.0**50)),
        "too much noise on a curvature": lambda c: at(c, curvature_amount=c.amount_of_noise(2.0**29)),
        "shape": lambda c: at(c, weights=np.zeros(D + 1)),
        "not a number": lambda c: at(c, weights=np.full(D, np.nan)),
        "infinite": lambda c: at(c, weights=np.full(D, np.inf)),
        "clip": lambda c: at(c, clip=-1.0),
        "clip not a number": lambda c: at(c, clip=math.nan),
        "soft norm": lambda c: at(c, soft=0.0),
        "infinite soft norm": lambda c: at(c, soft=math.inf),
        "other grid": lambda c: at(c, Whitening(FeatureGrid(1.0, D + 1), np.eye(D + 1))),
    }


@pytest.mark.parametrize("request_name", refusals())
def test_a_refusal_charges_nothing_and_touches_nothing(request_name: str) -> None:
    features, labels = table(np.random.default_rng(0), Logistic())
    account = Ledger(2.0, 1e-6, currency="gdp")
    asked = curator(features, labels, GRID, epsilon=1.0, account=account)
    with pytest.raises(DPDescentError):
        refusals()[request_name](asked)
    assert asked.ledger.entries == account.entries == ()
    assert touches(asked) == sums(asked) == []


def test_an_account_that_cannot_pay_for_both_answers_pays_for_neither() -> None:
    features, labels = table(np.random.default_rng(0), Logistic())
    account = Ledger(1.0, 1e-6, currency="gdp")
    asked = curator(features, labels, GRID, epsilon=2.0, account=account)
    part = 0.6 * account.budget
    with pytest.raises(BudgetExhausted):
        FrameSteps(asked, None, 1.0, 1.0).at(np.zeros(D), part, part)
    assert asked.ledger.entries == account.entries == ()
    assert touches(asked) == []


def test_a_loss_without_curvature_is_refused_before_the_charge() -> None:
    class Plain(Logistic):
        def typical_curvatures(self, residuals: Any, labels: Any) -> Any:
            return Loss.typical_curvatures(self, residuals, labels)

    features, labels = table(np.random.default_rng(0), Logistic())
    for loss in (Plain(), Hinge()):
        asked = curator(features, labels, GRID, loss)
        with pytest.raises(InvalidParameter):
            FrameSteps(asked, None, 1.0, 1.0).at(np.zeros(D), 1.0, 1.0)
        assert asked.ledger.entries == ()
        assert touches(asked) == []


def test_frames_are_refused_where_sums_could_wrap_around_or_nothing_is_constant() -> None:
    features, labels = table(np.random.default_rng(0), Logistic())
    whitening = Whitening(GRID, np.eye(D))
    FrameSteps(curator(features, labels, GRID, rows=2**26), whitening, 1.0, 1.0)
    with pytest.raises(InvalidParameter):
        FrameSteps(curator(features, labels, GRID, rows=2**26 + 1), whitening, 1.0, 1.0)
    FrameSteps(curator(features, labels, GRID, rows=2**26 + 1), FRAME, 1.0, 1.0)  # mapped block by block
    with pytest.raises(InvalidParameter):
        FrameSteps(curator(features, labels, GRID, intercept=False), FRAME, 1.0, 1.0)


@pytest.mark.parametrize("soft", [1e-200, 1e-3, 1e200])
def test_soft_norms_of_any_size_leave_answers_finite_and_bounded(soft: float) -> None:
    features, labels = table(np.random.default_rng(1), Logistic())
    features[0] = 0.0
    for frame in (None, FRAME, Whitening(GRID, np.eye(D) * 2.0**400)):
        asked = curator(features, labels, GRID)
        gradient, curvature = FrameSteps(asked, frame, 0.5, soft).at(np.ones(D), 1e6, 1e6)
        assert np.linalg.norm(gradient) < 0.6
        assert -0.01 < curvature < 0.26


# The solver that asks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 1.0, RICH])
def test_auto_spends_its_budget_and_no_more(epsilon: float, intercept: bool, relation: str) -> None:
    features, labels = table(np.random.default_rng(2), Logistic(), 60)
    asked = curator(features, labels, GRID, epsilon=epsilon, relation=relation, intercept=intercept)
    assert np.isfinite(auto(asked, AutoSettings(iterations=5)).weights).all()
    assert asked.remaining <= 1e-9 * asked.budget
    assert math.fsum(entry.price for entry in asked.ledger.entries) <= asked.budget


ROWS = {
    "zeros": np.zeros,
    "ones": np.ones,
    "constant": lambda shape: np.full(shape, 0.37),
    "tiny": lambda shape: np.random.default_rng(0).uniform(-1e-5, 1e-5, shape),
    "any": lambda shape: np.random.default_rng(0).uniform(-1, 1, shape),
}
TABLES = [(1, 1, 1), (2, 2, 9), (10, 10**5, 1), (9, 2**26, 4), (4, 900, 0)]  # rows that are there, said, and columns


@pytest.mark.parametrize(
    ("kind", "intercept", "epsilon"),
    [
        (kind, place % 2 == 0, epsilon)
        for place, kind in enumerate(ROWS)
        for epsilon in ((1e-6, 1.0), (1e-3, 1e4))[place % 2]
    ],
)
def test_auto_survives_tables_and_budgets_at_the_edge(epsilon: float, intercept: bool, kind: str) -> None:
    """Few rows or many, wider than long, of no features or of one, of one class: finite weights, all spent."""
    for seed, (present, rows, columns) in enumerate(TABLES):
        dimension = max(columns + intercept, 1)
        features = ROWS[kind]((present, dimension))
        if intercept:
            features[:, -1] = 1.0
        grid, loss = FeatureGrid(1.0, dimension), (Logistic(), Hinge(), Squared(), Huber(0.3), Multinomial(3))[seed]
        options: dict[str, Any] = {
            "relation": ("zero-out", "replace-one")[seed % 2],
            "currency": ("gdp", "zcdp")[seed // 2 % 2],
        }
        options["noise"] = FloatNoise(seed) if kind == "constant" else LatticeNoise(Randomness(seed))
        placed, ones = grid.place(features), np.ones(present)
        asked = curator(placed, ones, grid, loss, epsilon=epsilon, intercept=intercept, rows=rows, **options)
        assert np.isfinite(auto(asked, AutoSettings()).weights).all()
        assert asked.remaining <= 1e-9 * asked.budget


@pytest.mark.parametrize("seed", range(5, 8))
def test_auto_takes_directions_for_equal_where_noise_covers_them_all(seed: int) -> None:
    # The one number of the matrix is negative for the second seed.
    grid = FeatureGrid(1.0, 1)
    asked = curator(np.zeros((10, 1)), np.ones(10), grid, epsilon=1.0, intercept=False, noise=Recorder(seed))
    assert np.isfinite(auto(asked, AutoSettings()).weights).all()


@pytest.mark.parametrize("rate", [1.0, 0.4])
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("loss", [Logistic(), Hinge(), Squared(), Multinomial(3)], ids=str)
@pytest.mark.parametrize("iterations", [None, 3])
def test_the_intercept_alone_depends_on_the_labels_through_releases_alone(
    loss: Loss, relation: str, rate: float, iterations: int | None
) -> None:
    """Every row moves each sum by no more than is declared, by almost that much where it pulls as hard as it can."""
    features, labels = table(np.random.default_rng(0), loss, 60)
    settings, found = AutoSettings(iterations=iterations, batch_rate=rate), []
    for present in (60, 59):
        options = {"epsilon": 0.05, "relation": relation, "batch_rate": rate, "rows": 60}
        asked = curator(features[:present], labels[:present], GRID, loss, **options)
        result = auto(asked, settings)
        assert (result.weights[:-1] == 0).all()
        bought = {entry.label for entry in asked.ledger.entries}
        # The constant that fits the mean label, or the counts of classes, is found at once.
        assert bought == {"label sum" if isinstance(loss, Squared) else "label counts"}
        assert result.iterations <= 1
        assert asked.remaining <= 1e-9 * asked.budget
        found.append(sums(asked))
    # The first query is asked at 0 of both tables, and of the same batch.
    first, second = (each[0] for each in found)
    assert first.values.size == math.prod(result.weights.shape[1:])
    assert share_of_sensitivity(first, second, "zero-out") <= 1
    one = curator(features[-1:], np.ones(1), GRID, loss, epsilon=0.05, relation=relation, rows=60)
    auto(one, AutoSettings())
    (alone,) = sums(one)
    nothing = LatticeSum(np.zeros_like(alone.values), alone.unit, alone.sensitivity)
    assert 0.99 < share_of_sensitivity(alone, nothing, "zero-out") <= 1


def test_auto_refuses_noise_that_cannot_be_drawn_before_it_pays() -> None:
    features, labels = table(np.random.default_rng(2), Logistic(), 60)
    asked = curator(features, labels, GRID, epsilon=1e-9, intercept=False)
    with pytest.raises(ScaleOutOfRange):
        auto(asked, AutoSettings(share_whitening=1e-9))
    assert asked.ledger.entries == ()
    assert touches(asked) == []


@pytest.mark.parametrize("clip", [0.0, -1.0, 1e-7, 1e7, math.inf, math.nan])
def test_auto_refuses_clips_that_rows_cannot_have(clip: float) -> None:
    with pytest.raises(InvalidParameter, match="clip"):
        AutoSettings(clip=clip)


def test_auto_depends_on_the_rows_through_releases_alone() -> None:
    # Two tables with nothing in common: where the releases are the same numbers, so is the answer.
    class Deaf(LatticeNoise):
        def gaussian(self, total, cost, relation):
            return np.random.default_rng(total.values.size).uniform(0, 1, total.values.shape)

        def gaussian_symmetric(self, total, cost, relation):
            return np.eye(total.values.shape[0])

    answers = []
    for seed in (1, 2):
        features, labels = table(np.random.default_rng(seed), Logistic(), 60)
        asked = curator(features, labels, GRID, epsilon=50.0, noise=Deaf())
        answers.append(auto(asked, AutoSettings(iterations=5)).weights.tolist())
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("grid", "rows", "settings"),
    [
        (FeatureGrid(1.0, 3), 2**26 + 1, AutoSettings()),
        (FeatureGrid(2.0, 3), 100, AutoSettings()),
        (FeatureGrid(1.0, 3, 1.0), 100, AutoSettings()),
        (FeatureGrid(1.0, 2**13 + 1), 100, AutoSettings(whitening=True)),
    ],
)
def test_auto_refuses_before_it_pays(grid: FeatureGrid, rows: int, settings: AutoSettings) -> None:
    asked = curator(grid.place(np.ones((4, grid.dimension))), np.ones(4), grid, rows=rows)
    with pytest.raises(InvalidParameter):
        auto(asked, settings)
    assert asked.ledger.entries == ()
    assert touches(asked) == []


def test_the_scale_of_an_image_is_checked_with_its_rounding() -> None:
    # Just below the limit an answer is given; the same noise for more directions is refused.
    features, labels = table(np.random.default_rng(0), Logistic())
    for directions, given in ((1, True), (D, False)):
        asked = curator(features, labels, GRID, epsilon=1.0)
        steps = FrameSteps(asked, Whitening(GRID, np.eye(D)[:, :directions]), 1.0, 1.0)
        amount = asked.ledger.currency.price(Gaussian(0.9 * 2.0**50))
        if given:
            assert np.isfinite(steps.at(np.zeros(D), amount)[0]).all()
        else:
            with pytest.raises(ScaleOutOfRange):
                steps.at(np.zeros(D), amount)
        assert len(asked.ledger.entries) == given
