"""Laws that every registered method obeys, for every loss that it accepts and under both relations.

The replay runs a method on a table and keeps what went into every mechanism and what came out. Then it runs the
method on a neighbouring table, hands it the same answers, and compares every sum before noise with the recorded one:
they differ by at most the declared sensitivity, exactly, and nothing else that leaves the run differs at all.

Two methods cannot be replayed in full. Objective perturbation is private as the pair of a noisy objective and its
minimiser, so only the noise on the objective, which is noise on zeros, is compared. The exponential mechanism draws
its point instead of adding noise to one, so only its charges are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from dpdescent.errors import DPDescentError, UnsupportedCost, UnsupportedLoss
from dpdescent.problems import Adversary, Logistic, Need
from dpdescent.solvers import METHODS
from method_runs import (
    CASES,
    CLIPPED,
    LOSSES,
    PRIVATE,
    RELATIONS,
    Recording,
    Release,
    Replaying,
    Run,
    Table,
    Variant,
    accepted,
    assert_neighbours_see_the_same,
    make_table,
    run,
)

SHARES: dict[str, float] = {}


def started(case: Variant, loss: str, relation: str, **options) -> Run:
    ran = run(case, loss, relation, **options)
    assert isinstance(ran, Run), ran
    return ran


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_method_works_or_is_refused_by_name_before_anything_is_charged(case: Variant, relation: str) -> None:
    """Whatever the loss: finite weights within the budget of both ledgers, or a named error and no trace."""
    for loss in LOSSES:
        ran = run(case, loss, relation, account=2.0)
        if isinstance(ran, DPDescentError):
            continue
        if ran.refusal is not None:
            assert not ran.charged, (loss, ran.refusal)
            assert not ran.touches, loss
            continue
        assert np.isfinite(ran.result.weights).all()
        if not METHODS[case.method].private:
            continue
        assert 0 < ran.ledger.spent <= ran.ledger.budget
        assert [entry.cost for entry in ran.ledger.entries] == [entry.cost for entry in ran.account.entries]
        assert all(touch[0] == touch[1] > 0 for touch in ran.touches)
        assert all(0 <= first <= second <= 1 for first, second in zip(ran.shares, ran.shares[1:], strict=False))
        assert all(said.startswith("GuaranteeWarning") for said in ran.warned)


@pytest.mark.parametrize("case", [case for case in PRIVATE if not case.name], ids=str)
def test_a_loss_that_a_method_accepts_is_learnt_from_and_one_that_it_refuses_is_named(case: Variant) -> None:
    for loss, (kind, _) in LOSSES.items():
        if METHODS[case.method].needs <= kind.offers:
            METHODS[case.method].require(kind)
        else:
            with pytest.raises(DPDescentError, match=case.method):
                METHODS[case.method].require(kind)
            ran = run(case, loss)
            assert isinstance(ran, DPDescentError) or ran.refusal is not None
            assert isinstance(ran, DPDescentError) or not ran.charged


@pytest.mark.parametrize("case", PRIVATE, ids=str)
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(case: Variant) -> None:
    first, again, other = (started(case, "logistic", "zero-out", noise=Recording(seed)).visible for seed in (0, 0, 1))
    assert first == again
    assert first != other


@pytest.mark.parametrize("case", PRIVATE, ids=str)
@pytest.mark.parametrize("columns", [0, 1])
def test_a_table_of_few_columns_or_rows_is_learnt_from_or_refused_before_the_charge(
    case: Variant, columns: int
) -> None:
    for rows in (1, 3):
        small = replace(case, adversary=None) if case.adversary else case
        ran = run(small, "logistic", table=make_table("logistic", rows, columns), epsilon=1.0)
        assert_finished_or_refused_without_a_charge(ran)


def assert_finished_or_refused_without_a_charge(ran: Run | DPDescentError) -> None:
    """Whatever was asked for: finite weights, or a named error before the first charge."""
    if isinstance(ran, Run) and ran.refusal is not None:
        assert not ran.charged, ran.refusal
        assert not ran.touches
    elif isinstance(ran, Run):
        assert np.isfinite(ran.result.weights).all()
        assert ran.ledger.spent <= ran.ledger.budget


@pytest.mark.parametrize(("epsilon", "relation"), [(1e-12, "zero-out"), (1e6, "replace-one")])
@pytest.mark.parametrize("case", [case for case in PRIVATE if not case.name], ids=str)
def test_an_extreme_epsilon_is_refused_before_the_first_charge_or_the_run_ends(
    case: Variant, epsilon: float, relation: str
) -> None:
    ran = run(case, "logistic", relation, epsilon=epsilon, table=make_table("logistic", 20))
    assert_finished_or_refused_without_a_charge(ran)


@pytest.mark.parametrize("currency", ["gdp", "pure", "approximate"])
@pytest.mark.parametrize("case", PRIVATE, ids=str)
def test_a_ledger_of_any_currency_pays_for_the_whole_run_or_is_refused_before_the_first_charge(
    case: Variant, currency: str
) -> None:
    ran = run(case, "logistic", currency=currency, table=make_table("logistic", 20))
    assert_finished_or_refused_without_a_charge(ran)
    settings = METHODS[case.method].settings(**case.options)
    if isinstance(ran, Run) and currency not in settings.payment.currencies:
        assert isinstance(ran.refusal, UnsupportedCost)


@dataclass(frozen=True)
class Lacking(Logistic):
    """The logistic loss of somebody who declares less of it."""

    lacks: Need = Need.CONVEX

    @property
    def offers(self) -> frozenset[Need]:
        return super().offers - {self.lacks}


NEEDED = [(case, need) for case in CASES if not case.name for need in sorted(METHODS[case.method].needs)]


@pytest.mark.parametrize(("case", "need"), NEEDED, ids=str)
def test_a_loss_that_lacks_a_need_is_refused_at_the_door(
    case: Variant, need: Need, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LOSSES, "lacking", (Lacking(need), LOSSES["logistic"][1]))
    require_refused(started(case, "lacking", "zero-out"), UnsupportedLoss, f"method '{case.method}' needs ")


def test_a_need_is_asked_for_at_the_door_where_the_solver_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    needy = replace(METHODS["sgd"], needs=frozenset({Need.SMOOTH}))
    monkeypatch.setitem(METHODS, "sgd", needy)
    require_refused(started(Variant("sgd"), "hinge", "zero-out"), UnsupportedLoss, "method 'sgd' needs a smooth loss")


@pytest.mark.parametrize("asked", [{"tilt": 1.0}, {"adversary": Adversary(0.1)}], ids=str)
@pytest.mark.parametrize("case", [case for case in CASES if not (case.name or METHODS[case.method].robust)], ids=str)
def test_a_tilt_or_an_adversary_is_refused_by_methods_that_leave_it_out(case: Variant, asked: dict[str, Any]) -> None:
    for loss in ("logistic", "sigmoid"):
        ran = started(replace(case, **asked), loss, "zero-out")
        need = "knows neither tilt nor adversary" if accepted(case, loss) else "needs"
        require_refused(ran, DPDescentError, f"method '{case.method}' {need}")


def require_refused(ran: Run, kind: type[Exception], said: str) -> None:
    """Demand that a run ended by an error of this kind before it was charged or read a row."""
    assert isinstance(ran.refusal, kind)
    assert str(ran.refusal).startswith(said)
    assert not ran.charged
    assert not ran.touches


@pytest.mark.parametrize("case", PRIVATE, ids=str)
def test_an_account_that_cannot_pay_is_left_as_it_was(case: Variant) -> None:
    ran = run(case, "logistic", account=0.01)
    assert isinstance(ran, DPDescentError)


def neighbours(table: Table, relation: str, loss: str, generator: np.random.Generator) -> list[tuple[Table, Table]]:
    """Return pairs that differ in the last row: removed, or replaced; at random, and at the corners of the bounds."""
    extremes = LOSSES[loss][1].extremes
    pairs = []
    for corner in (False, True):
        first, second = (
            generator.choice([-1.0, 1.0], table.columns) if corner else generator.uniform(-1, 1, table.columns)
            for _ in range(2)
        )
        label, other = generator.choice(extremes), generator.choice(extremes)
        whole = table.with_last(first, label)
        pairs.append((whole, table if relation == "zero-out" else table.with_last(second, other)))
    return pairs


def comparable(case: Variant) -> Callable[[Release], bool]:
    """Return which releases are compared: of objective perturbation the noise on zeros alone."""
    return lambda each: case.method != "objpert" or not each.total.values.any()


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("case", PRIVATE, ids=str)
def test_a_replay_on_a_neighbour_stays_within_every_sensitivity_and_shows_nothing_else(
    case: Variant, relation: str
) -> None:
    generator = np.random.default_rng(3)
    for turn, loss in enumerate(name for name in LOSSES if accepted(case, name)):
        for table, other in neighbours(make_table(loss, 40), relation, loss, generator)[turn % 2 :: 2]:
            recorded = run(case, loss, relation, table=table, rows=41, noise=Recording())
            if isinstance(recorded, DPDescentError) or recorded.refusal is not None:
                continue
            if case.method == "expmech":
                again = started(case, loss, relation, table=other, rows=41, noise=Recording())
                assert again.ledger.entries == recorded.ledger.entries
                continue
            zeros = case.method == "objpert"
            noise = Replaying(
                recorded.noise, compare=lambda each, zeros=zeros: not (zeros and each.total.values.any())
            )
            replayed = started(case, loss, relation, table=other, rows=41, noise=noise)
            assert_neighbours_see_the_same(recorded, replayed)
            SHARES[str(case)] = max([SHARES.get(str(case), 0.0), *noise.shares])
    if case.method not in ("expmech", "objpert"):
        assert SHARES.get(str(case), 0.0) > 0


REPLAYED = [case for case in PRIVATE if not case.name and case.method not in ("expmech", "objpert")]


#: Methods whose every gradient is clipped: a row turned around moves it by all of its sensitivity.
@pytest.mark.parametrize("case", REPLAYED, ids=str)
def test_a_corner_row_attains_nearly_all_of_a_declared_sensitivity(case: Variant) -> None:
    """A sensitivity that no row comes near would hide a sum that is computed on too few rows, or not at all."""
    for relation in RELATIONS if case.method in CLIPPED else RELATIONS[:1]:
        best, table = 0.0, make_table("logistic", 40)
        for sign in (1.0, -1.0):
            row = np.full(table.columns, sign)
            other = table if relation == "zero-out" else table.with_last(row, -1.0)
            whole = table.with_last(row, 1.0)
            recorded = started(case, "logistic", relation, table=whole, rows=41, noise=Recording())
            noise = Replaying(recorded.noise)
            started(case, "logistic", relation, table=other, rows=41, noise=noise)
            best = max(best, *noise.shares)
        assert best >= (0.99 if case.method not in ("dp-gd", "opt") else 0.95)


def test_every_need_is_named_by_some_loss_or_method() -> None:
    needed = frozenset().union(*(method.needs for method in METHODS.values()))
    assert needed <= frozenset(Need)
    assert {case.method for case in CASES} == set(METHODS)
