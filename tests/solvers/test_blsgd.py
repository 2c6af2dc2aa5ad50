"""DP-BLSGD and its kin: every path is charged for what it draws, and privacy that costs nothing finds the optimum."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from test_agd import optimum

from dpdescent import BudgetExhausted, DPLinearSVC, DPLogisticRegression, InvalidParameter, Ledger
from dpdescent.accounting import (
    AboveThreshold,
    Composed,
    Gaussian,
    PoissonSampled,
    PrintedPrice,
    currency_named,
    round_up,
)
from dpdescent.accounting.sampling import _Sampled
from dpdescent.curator import Batch, Curator, curator as batches, release as door
from dpdescent.curator.array_source import ArraySource
from dpdescent.curator.lattice_noise import LatticeNoise
from dpdescent.exact import FeatureGrid
from dpdescent.noise import Randomness
from dpdescent.problems import L2, HuberisedHinge, LinearProblem, Logistic, Loss
from dpdescent.queries import Gradient
from dpdescent.solvers import BLGDSettings, BLSGDACSettings, BLSGDSettings, Facts, blsgd
from dpdescent.solvers.backtracking import Budget, Ladder, PrintedLadder, batch_rates, printed_plan

SETTINGS = {
    "blsgd": BLSGDSettings(),
    "same batch": BLSGDSettings(same_batch=True, sampling_rate=0.3),
    "both sampled": BLSGDSettings(sampling_rate=0.2, search_rate=0.2),
    "must": BLSGDSettings(allocation="must"),
    "no": BLSGDSettings(allocation="no"),
    "blgd": BLGDSettings(),
    "blsgd-ac": BLSGDACSettings(),
    "paper": BLSGDSettings(paper=True),
    "paper gaussian": BLSGDSettings(paper=True, noise="gaussian", sampling_rate=1.0, search_rate=1.0),
    "blgd paper": BLGDSettings(paper=True),
    "blsgd-ac paper": BLSGDACSettings(paper=True),
}


class Drawn(LatticeNoise):
    """Noise that keeps the cost it was drawn for; searches whose turn is in ``failing`` find nothing."""

    def __init__(self, failing: range = range(0), seed: int = 0) -> None:
        super().__init__(Randomness(seed))
        self.costs: list[Any] = []
        self._failing, self._searches = failing, 0

    def gaussian(self, total, cost, relation):
        self.costs.append(cost)
        return super().gaussian(total, cost, relation)

    def first_above(self, queries, cost, relation):
        self.costs.append(cost)
        found = super().first_above(queries, cost, relation)
        self._searches += 1
        return None if self._searches - 1 in self._failing else found


def make_curator(
    epsilon: float, settings: BLSGDSettings, loss: Loss | None = None, *, rows: int = 2000, **options: Any
) -> Curator:
    generator = np.random.default_rng(0)
    X = np.hstack([generator.uniform(0, 1, (rows, 4)), np.ones((rows, 1))])
    scores = X @ np.linspace(-4, 4, 5)
    labels = np.where(generator.random(rows) < 1 / (1 + np.exp(-2 * (scores - scores.mean()))), 1.0, -1.0)
    grid = FeatureGrid(1.0, 5)
    relation = options.pop("relation", "zero-out")
    facts = Facts(epsilon, 1e-6, relation, rows, 5)
    currency = currency_named(settings.choose_currency(facts), epsilon, 1e-6)
    problem = LinearProblem(loss or Logistic(), grid, L2(options.pop("alpha", 0.0)), True)
    ledger = Ledger(epsilon, 1e-6, currency=currency, relation=relation)
    noise = options.pop("noise", None) or LatticeNoise(Randomness(0))
    source = ArraySource(grid.place(X), labels, grid)
    return Curator(source, problem, ledger, rows, noise=noise, **options)


def parts(cost: Any) -> list[Any]:
    if isinstance(cost, _Sampled | Composed | PrintedPrice):
        return [each for part in cost.parts for each in parts(part)]
    return [cost]


@pytest.mark.parametrize("loss", [Logistic(), HuberisedHinge()], ids=str)
@pytest.mark.parametrize("name", ["blsgd", "blgd", "same batch"])
@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_epsilon_to_infinity_recovers_the_optimum(name: str, loss: Loss, alpha: float) -> None:
    curator = make_curator(1e4, SETTINGS[name], loss, alpha=alpha)
    result = blsgd(curator, SETTINGS[name])
    best, value = optimum(curator)
    assert best - 1e-9 <= value(result.weights) <= 1.01 * best


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("failing", [range(0), range(1, 5), range(10**9)], ids=["found", "grown", "never"])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_ledger_holds_what_was_drawn_on_every_path(name: str, failing: range, relation: str) -> None:
    noise = Drawn(failing)
    settings = replace(SETTINGS[name], iterations=4.0 if "paper" in name else 12.0, start_scale=0.0)
    curator = make_curator(0.5, settings, noise=noise, relation=relation, rows=400)
    result = blsgd(curator, settings)
    ledger = curator.ledger
    assert [part for entry in ledger.entries for part in parts(entry.cost)] == noise.costs
    assert Fraction(ledger.spent) == pytest.approx(sum(Fraction(entry.price) for entry in ledger.entries))
    assert all(entry.price == ledger.currency.price(entry.cost) for entry in ledger.entries)
    assert ledger.spent <= ledger.budget
    assert ledger.spent_epsilon() <= 0.5
    searches = sum(isinstance(cost, AboveThreshold) for cost in noise.costs)
    assert result.iterations <= searches
    if failing.stop == 10**9:
        assert result.iterations == 0
        assert not result.weights.any()


@pytest.mark.parametrize("name", ["blsgd", "same batch", "blgd", "paper"])
def test_two_neighbours_are_charged_alike_for_the_same_answers(name: str) -> None:
    """The charges are a function of released answers: where all searches fail, they are the same to the last bit."""
    settings = replace(SETTINGS[name], iterations=4.0 if name == "paper" else 12.0)
    if name != "blgd":
        settings = replace(settings, allocation="no")
    charged = []
    for rows in (300, 299):
        curator = make_curator(0.5, settings, noise=Drawn(range(10**9)), rows=300)
        source = curator._source
        curator._source = ArraySource(source._features[:rows], source._labels[:rows], source.grid)
        blsgd(curator, settings)
        charged.append(curator.ledger.entries)
    kept = [[(entry.cost, entry.price) for entry in entries if "moments" not in entry.label] for entries in charged]
    assert kept[0] == kept[1]


class Journal(Drawn):
    """Noise, ledger and batches that write what happens, in order, into one list."""

    def __init__(self, failing: range = range(0)) -> None:
        super().__init__(failing)
        self.events: list[tuple[str, Any]] = []

    def gaussian(self, total, cost, relation):
        self.events.append(("answer", cost))
        return super().gaussian(total, cost, relation)

    def first_above(self, queries, cost, relation):
        self.events.append(("answer", cost))
        return super().first_above(queries, cost, relation)

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        spend, draw = door.spend_jointly, batches.draw_rows

        def charge(ledgers, cost, *about, **named):
            spend(ledgers, cost, *about, **named)
            self.events.append(("charge", cost))

        def draw_rows(bits, present, sampling):
            self.events.append(("batch", sampling.rate))
            return draw(bits, present, sampling)

        patch.setattr(door, "spend_jointly", charge)
        patch.setattr(batches, "draw_rows", draw_rows)


@pytest.mark.parametrize("neighbour", [False, True], ids=["table", "neighbour"])
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("name", SETTINGS)
def test_every_answer_follows_its_charge_and_a_batch_of_its_own(
    name: str, relation: str, neighbour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Charge, batch if one is claimed, answers; then the next charge. Nothing is answered twice or left unpaid."""
    settings = replace(SETTINGS[name], iterations=8.0)
    journal = Journal(range(1, 4))
    curator = make_curator(0.5, settings, noise=journal, relation=relation, rows=200)
    if neighbour:
        X, y = (np.array(part) for part in (curator._source._features, curator._source._labels))
        X[-1, :-1], y[-1] = 1 - X[-1, :-1], -y[-1]
        kept = 199 if relation == "zero-out" else 200
        curator._source = ArraySource(X[:kept], y[:kept], curator.problem.grid)
    journal.watch(monkeypatch)
    blsgd(curator, settings)
    owed: list[Any] = []
    total = Fraction(0)
    charged = set()
    events = iter(journal.events)
    for kind, what in events:
        if kind == "charge":
            assert not owed
            owed = parts(what)
            total += Fraction(curator.ledger.currency.price(what))
            batch = what.bought if isinstance(what, PrintedPrice) else what
            if isinstance(batch, _Sampled):
                assert next(events) == ("batch", batch.rate)
                charged.add(batch.rate)
        else:
            assert kind == "answer"
            assert what == owed.pop(0)
    assert not owed
    assert round_up(total) == curator.ledger.spent
    assert charged == {rate for rate in batch_rates(settings, Facts.of(curator)) if rate < 1}


@pytest.mark.parametrize("iterations", [1.0, 3.0, 7.0])
def test_a_plan_of_some_iterations_buys_as_many_attempts(iterations: float) -> None:
    """The last attempt takes the last of the budget, and the one after it is refused."""
    noise = Drawn(range(10**9))
    settings = BLGDSettings(allocation="no", iterations=iterations)
    curator = make_curator(0.5, settings, noise=noise, rows=200)
    blsgd(curator, settings)
    assert sum(isinstance(cost, AboveThreshold) for cost in noise.costs) == iterations
    assert 0 <= curator.remaining < 1e-6 * curator.budget


@pytest.mark.parametrize("name", ["blsgd", "same batch", "paper"])
def test_a_second_ledger_ends_the_run_when_it_is_spent(name: str) -> None:
    settings = replace(SETTINGS[name], iterations=4.0 if name == "paper" else 12.0)
    curator = make_curator(0.5, settings, rows=400)
    account = Ledger(0.3, 1e-6, currency=curator.ledger.currency)
    curator = make_curator(0.5, settings, rows=400, account=account)
    assert blsgd(curator, settings).iterations > 0
    assert [entry.cost for entry in account.entries] == [entry.cost for entry in curator.ledger.entries]
    assert account.spent <= account.budget
    assert curator.remaining > 0


def test_a_ledger_that_cannot_pay_for_one_iteration_is_left_as_it_was() -> None:
    account = Ledger(0.1, 1e-6, currency="gdp")
    curator = make_curator(0.5, BLSGDSettings(), account=account)
    assert account.affords(curator.ledger.currency.gaussian(0.01 * curator.budget))
    with pytest.raises(BudgetExhausted):
        blsgd(curator, BLSGDSettings())
    assert not account.entries
    assert not curator.ledger.entries


def test_empty_batches_do_not_stop_a_run() -> None:
    settings = BLSGDSettings(paper=True, sampling_rate=1e-6, search_rate=1e-6, iterations=1.0, max_steps=3)
    curator = make_curator(0.5, settings, rows=20)
    plan = printed_plan(curator, settings)
    empty = Batch(plan.gradients, (plan.budget.gradient,))
    assert curator.answer(Gradient(np.zeros(5), 1.0, plan.budget.gradient), empty).shape == (5,)
    noise = Drawn()
    curator = make_curator(0.5, replace(settings, sampling_rate=0.01), noise=noise, rows=20)
    blsgd(curator, replace(settings, sampling_rate=0.01, iterations=2.0))
    assert noise.costs
    assert [part for entry in curator.ledger.entries for part in parts(entry.cost)] == noise.costs


# The rules of the paper ----------------------------------------------------------------------------------------


def test_the_angle_decides_which_budget_grows() -> None:
    settings = BLSGDACSettings(growth=0.3)
    budget = Budget(Gaussian(10.0), AboveThreshold(4, 8.0, 4.0), 3.0, 1.0)
    noisy, grew = budget.after_failure(1.6, math.pi / 2, settings, shrink=True)
    assert grew
    assert noisy.gradient.zcdp() == pytest.approx(1.3 * budget.gradient.zcdp())
    assert (noisy.clip_gradient, noisy.clip_loss) == (0.95 * 3.0, 0.95)
    again, _ = noisy.after_failure(1.6, math.pi / 2, settings, shrink=False)
    assert again.clip_gradient == noisy.clip_gradient
    close, grew = budget.after_failure(0.7, math.pi / 2, settings, shrink=True)
    assert not grew
    assert close.search == AboveThreshold(4, 8.0 / 1.3, 4.0 / 1.3)
    assert (close.gradient, close.clip_gradient) == (budget.gradient, 3.0)
    assert budget.after_failure(1.2, math.pi / 2, settings, shrink=True) == (budget, False)
    assert budget.after_failure(1.2, 1.0, settings, shrink=True)[1]


def test_a_failed_search_on_all_rows_buys_a_part_of_what_was_bought() -> None:
    budget = Budget(Gaussian(10.0), AboveThreshold(4, 8.0, 4.0), 3.0, 1.0)
    noise = budget.next_gradient(10.0**-2, BLGDSettings(growth=0.3))
    assert noise.zcdp() == pytest.approx(0.3 * budget.gradient.zcdp())
    assert budget.next_gradient(1.0, BLSGDSettings()) == budget.gradient


def test_the_longest_step_of_the_paper_falls_after_each_window_and_never_rises() -> None:
    ladder = PrintedLadder(4.0, BLSGDSettings(paper=True, window=2, stretch=1.2))
    np.testing.assert_allclose(ladder.steps(), 4 * 0.8 ** np.arange(20))
    for chosen in (None, 5, 3):
        ladder.follow(chosen)
    assert ladder.steps()[0] == pytest.approx(1.2 * 4 * 0.8**3)
    for chosen in (0, 0):
        ladder.follow(chosen)
    assert ladder.steps()[0] == pytest.approx(1.2 * 4 * 0.8**3)


def test_the_paper_starts_with_a_hundredth_of_epsilon() -> None:
    plan = printed_plan(make_curator(0.5, SETTINGS["paper"]), SETTINGS["paper"])
    each = 0.5 / 100
    assert plan.budget.gradient.zcdp() == pytest.approx(each**2 / 2)
    assert plan.budget.search.pure() == pytest.approx(each)
    assert (plan.budget.clip_gradient, plan.budget.clip_loss) == (3.0, 1.0)
    assert (plan.gradients.rate, plan.searches.rate) == (0.1, 0.1)


@pytest.mark.parametrize(("epsilon", "iterations"), [(0.05, 22098), (0.4, 18641), (1.6, 16382)])
def test_the_budgets_of_the_paper_last_for_many_iterations_at_their_true_price(
    epsilon: float, iterations: int
) -> None:
    """Against a count made without this package, for separate batches and no failed search."""
    facts = Facts(epsilon, 1e-8, "zero-out", 1000, 5)
    currency = currency_named(BLSGDSettings(paper=True, price="true").choose_currency(facts), epsilon, 1e-8)
    each = epsilon / 100
    search, gradient = AboveThreshold(20, 4 / each, 2 / each), Gaussian(1 / each)
    price = sum(currency.price(PoissonSampled(0.1, (part,))) for part in (search, gradient))
    assert currency.budget(epsilon, 1e-8) / price == pytest.approx(iterations, rel=2e-3)


def test_long_runs_of_failures_leave_the_ladder_and_the_search_within_what_can_be_drawn() -> None:
    settings = BLSGDSettings()
    ladder = Ladder(1.0, settings)
    budget = Budget(Gaussian(10.0), AboveThreshold(6, 1.0, 0.4, "gaussian"), 3.0, math.inf)
    for _ in range(1000):
        ladder.follow(None)
        budget, _ = budget.after_failure(0.1, math.pi / 2, settings, shrink=True)
    assert ladder.steps()[0] == 2.0**-20
    assert budget.search.query_scale == pytest.approx(2.0**-8)
    leap, _ = budget.after_failure(0.1, math.pi / 2, BLSGDSettings(growth=1e6), shrink=True)
    assert leap.search.query_scale == pytest.approx(2.0**-8)
    for _ in range(1000):
        ladder.follow(0)
    assert ladder.steps()[0] == 2.0**20


@pytest.mark.parametrize(
    "options",
    [
        {"sampling_rate": 0.0},
        {"sampling_rate": 1.5},
        {"search_rate": -1.0},
        {"max_steps": 0},
        {"decrease": 1.0},
        {"decrease": 0.0},
        {"backtrack": 1.0},
        {"backtrack": 0.0},
        {"growth": 0.0},
        {"allocation": "sometimes"},
        {"angle_high": 0.9},
        {"angle_low": 1.0},
        {"clip_decay": 1.0},
        {"memory": 1.0},
        {"noise": "uniform"},
        {"share_search": 1.0},
        {"clip_gradient": -1.0},
        {"window": 0},
        {"sampling_rate": 1e-300},
        {"search_rate": math.nan},
        {"backtrack": 1e-60},
        {"max_steps": 10**6},
        {"first_step": 1e60},
        {"clip_gradient": 1e300},
        {"clip_loss": 1e-300},
        {"growth": 1e300},
        {"iterations": 1e30},
        {"share_search": 1e-40},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["blsgd", "blgd", "blsgd-ac"])
def test_bad_settings_are_refused_before_anything_is_charged(method: str, options: dict[str, Any]) -> None:
    X, y = np.random.default_rng(0).uniform(0, 1, (50, 2)), np.arange(50) % 2
    account = Ledger(1.0, 1e-6)
    model = DPLogisticRegression(
        epsilon=1.0, delta=1e-6, method=method, bounds=(0, 1), classes=(0, 1), solver_options=options, ledger=account
    )
    with pytest.raises(InvalidParameter):
        model.fit(X, y)
    assert not account.entries


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
@pytest.mark.parametrize("method", ["blsgd", "blgd", "blsgd-ac"])
@pytest.mark.parametrize("family", [DPLogisticRegression, DPLinearSVC])
def test_estimators_know_the_methods(family: Any, method: str, adjacency: str) -> None:
    generator = np.random.default_rng(0)
    X = generator.uniform(0, 1, (3000, 3))
    y = (X[:, 0] > 0.5).astype(int)
    model = family(
        epsilon=2.0,
        delta=1e-6,
        method=method,
        adjacency=adjacency,
        bounds=(0, 1),
        classes=(0, 1),
        random_state=0,
        solver_options={"iterations": 40},
    ).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.privacy_["spent_epsilon"] <= 2.0
    assert {"gradient", "step size"} <= set(model.privacy_["spent_on"])
