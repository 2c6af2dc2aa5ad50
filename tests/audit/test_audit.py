"""The auditor: its bounds hold with the confidence that is stated, and come near what they bound.

The bounds are tested exactly, by summing the probabilities of all counts. Audits of the library have fixed seeds:
with other seeds one would raise a false alarm with a probability of at most 5%, or 0.1% where a test says so.
"""

from __future__ import annotations

import json
import math
import pickle
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import dpdescent.audit
from dpdescent.accounting import epsilon_to_gdp, gdp_to_epsilon
from dpdescent.audit import (
    MECHANISMS,
    Report,
    audit,
    audit_named,
    auditor as auditor_module,
    canary_bound,
    default_runs,
)
from dpdescent.audit.audit_runs import as_outcomes, collect, plain
from dpdescent.audit.audited_queries import QueryRun, _asked, _curator, _rows
from dpdescent.audit.decision import decide
from dpdescent.audit.examples import EXAMPLES
from dpdescent.audit.findings import epsilon_of, from_errors, from_event, least, most
from dpdescent.audit.recording import Recording, Replaying
from dpdescent.audit.worst_cases import CanaryRun, MethodRun
from dpdescent.cli import app
from dpdescent.errors import DPDescentError, InvalidParameter
from dpdescent.ledger import Ledger
from dpdescent.relations import Relation

ERROR = 0.05
TRIALS = 60


# Bounds, exactly ---------------------------------------------------------------------------------------------------


def binomial(trials: int, p: float) -> np.ndarray:
    return stats.binom.pmf(np.arange(trials + 1), trials, p)


@pytest.mark.parametrize("p", [0.003, 0.05, 0.3, 0.5, 0.9, 0.999])
def test_a_probability_is_outside_its_bounds_no_more_often_than_stated_and_nearly_that_often(p: float) -> None:
    counts, law = np.arange(201), binomial(200, p)
    too_high, too_low = law[least(counts, 200, ERROR) > p].sum(), law[most(counts, 200, ERROR) < p].sum()
    assert max(too_high, too_low) <= ERROR
    if 0.05 <= p <= 0.9:
        assert min(too_high, too_low) > ERROR / 4  # bounds that are never wrong would be loose


def rates_at(claim: str, false_positive: float, epsilon: float, delta: float) -> float:
    """Return the least false negative rate that a claim allows."""
    if claim == "gdp":
        return float(stats.norm.cdf(stats.norm.isf(false_positive) - epsilon_to_gdp(epsilon, delta)))
    return max(0.0, 1 - delta - math.exp(epsilon) * false_positive, (1 - delta - false_positive) / math.exp(epsilon))


def violation(law: np.ndarray, bounds: np.ndarray, claim: str, epsilon: float, delta: float) -> float:
    limit = epsilon_to_gdp(epsilon, delta) if claim == "gdp" else epsilon
    return float(law[bounds > limit * (1 + 1e-9)].sum())


@pytest.mark.parametrize("claim", ["approximate", "gdp"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-2), (1.0, 1e-3), (3.0, 0.05)])
def test_no_test_that_a_claim_allows_refutes_it_more_often_than_stated(
    claim: Any, epsilon: float, delta: float
) -> None:
    """Every point of the trade-off curve, with unequal rates too: the sum of errors is then not binomial."""
    closest = 0.0
    equal = (
        stats.norm.cdf(-epsilon_to_gdp(epsilon, delta) / 2)
        if claim == "gdp"
        else (1 - delta) / (1 + math.exp(epsilon))
    )
    for false_positive in (equal, 0.001, 0.02, 0.1, 0.2, 0.3, 0.45, 0.6, 0.9):
        false_negative = rates_at(claim, false_positive, epsilon, delta)
        first, second = binomial(TRIALS, false_positive), binomial(TRIALS, false_negative)
        errors = np.convolve(first, second)
        bounds = from_errors(claim, delta, np.arange(2 * TRIALS + 1), TRIALS, ERROR)
        rate = violation(errors, bounds, claim, epsilon, delta)
        counts = np.arange(TRIALS + 1)
        joint = np.outer(second[::-1], first)  # how often the event happens on each table
        events = from_event(claim, delta, counts[:, None], counts[None, :], TRIALS, ERROR)
        assert rate <= ERROR
        assert violation(joint, events, claim, epsilon, delta) <= ERROR
        closest = max(closest, rate)
    assert closest > ERROR / 5


@pytest.mark.parametrize("claim", ["approximate", "gdp"])
def test_many_trials_give_nearly_all_of_epsilon(claim: Any) -> None:
    epsilon, delta, trials = 1.0, 1e-3, 10**7
    false_positive = 0.2
    false_negative = rates_at(claim, false_positive, epsilon, delta)
    counts = round((1 - false_negative) * trials), round(false_positive * trials)
    found = epsilon_of(claim, delta, float(from_event(claim, delta, *counts, trials, ERROR)))
    assert 0.99 * epsilon < found < epsilon
    least_error = (
        stats.norm.cdf(-epsilon_to_gdp(epsilon, delta) / 2) if claim == "gdp" else (1 - delta) / (1 + math.e)
    )
    found = epsilon_of(claim, delta, float(from_errors(claim, delta, round(2 * least_error * trials), trials, ERROR)))
    assert 0.99 * epsilon < found < epsilon


def test_a_bound_on_mu_is_stated_as_the_epsilon_of_gdp() -> None:
    assert epsilon_of("gdp", 1e-5, 0.3) == gdp_to_epsilon(0.3, 1e-5)
    assert epsilon_of("approximate", 1e-5, 0.3) == 0.3


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_guesses_about_canaries_behind_randomised_response_refute_no_more_often_than_stated(epsilon: float) -> None:
    """Each coin is shown, or its opposite with probability 1/(1 + e^epsilon): the worst of all mechanisms."""
    guesses = 200
    law = binomial(guesses, 1 / (1 + math.exp(-epsilon)))
    bounds = np.array([canary_bound(guesses, guesses, right, 0.0, ERROR) for right in range(guesses + 1)])
    refuted = law[bounds > epsilon].sum()
    assert ERROR / 4 < refuted <= ERROR
    assert (np.diff(bounds) >= 0).all()


def test_a_delta_costs_canaries_what_the_theorem_says() -> None:
    """The right guesses may be v with probability delta-ish: the value is computed by another sum of the formula."""
    canaries, guesses, right, delta = 1000, 300, 240, 1e-5
    found = canary_bound(canaries, guesses, right, delta, ERROR)
    law = stats.binom(guesses, 1 / (1 + math.exp(-found)))
    slopes = [(law.cdf(right - 1) - law.cdf(right - i - 1)) / i for i in range(1, right + 1)]
    assert law.sf(right - 1) + 2 * canaries * delta * max(slopes) == pytest.approx(ERROR, rel=1e-6)
    assert found < canary_bound(canaries, guesses, right, 0.0, ERROR)
    assert canary_bound(canaries, guesses, right, 0.01, ERROR) == 0.0


def test_canary_bounds_of_all_and_of_no_right_guesses_are_finite() -> None:
    assert canary_bound(100, 100, 0, 1e-6, ERROR) == 0.0
    assert 3 < canary_bound(100, 100, 100, 0.0, ERROR) < 4
    assert canary_bound(10**4, 10**4, 10**4, 0.0, ERROR) < 20


# Outcomes and decisions --------------------------------------------------------------------------------------------


def test_outcomes_of_any_kind_are_compared() -> None:
    assert plain(3) == plain(3.0) == plain(np.array([[3.0]])) == [3.0]
    assert plain(None) == "None"
    assert plain(math.nan) == "nan"
    assert plain([]) == "[]"
    first, second = as_outcomes([[1.0], [2.0]], [[1.0, 2.0], "None"])
    assert first.tolist() == [["1 numbers"]] * 2
    assert second.tolist() == [["2 numbers"], ["None"]]


def coin(table: list[float], seed: int) -> Any:
    """Return a number, or on one of the tables now and then nothing: a leak without a digit."""
    generator = np.random.default_rng(seed)
    return None if len(table) > 1 and generator.random() < 0.2 else generator.normal()


def test_an_answer_that_is_missing_now_and_then_is_found() -> None:
    report = audit(coin, [0.0], [0.0, 1.0], epsilon=1.0, delta=1e-6, runs=400, seed=0)
    assert report.refuted
    assert report.lower_bound > 1.5


def same(_: Any, seed: int) -> list[float]:
    return np.random.default_rng(seed).normal(size=20).tolist()


def test_a_score_that_is_learnt_from_noise_refutes_nothing() -> None:
    """200 audits of equal tables: a bound above 0 is a false alarm, and 26 of them have probability below 1e-5."""
    generator, alarms = np.random.default_rng(1), 0
    for _ in range(200):
        first, second = generator.normal(size=(2, 200, 20))
        alarms += max(decide(first, second, "gdp", 1e-5, ERROR).epsilons.values()) > 0
    assert alarms < stats.binom.isf(1e-5, 200, 2 * ERROR)


def test_the_runs_that_bound_are_not_those_that_choose() -> None:
    """Outcomes whose difference is in the first half alone are chosen by, and refute nothing."""
    first, second = np.random.default_rng(0).normal(size=(2, 4000, 1))
    second[:2000] += 5.0
    assert decide(first, second, "gdp", 1e-5, 1e-3).epsilons["gdp"] == 0.0
    second[2000:] += 5.0
    assert decide(first, second, "gdp", 1e-5, 1e-3).epsilons["gdp"] > 5.0


def test_a_spread_that_differs_is_found_by_a_quadratic_score() -> None:
    first, second = np.random.default_rng(0).normal(size=(2, 4000, 3))
    assert decide(first, 2 * second, "approximate", 0.0, 1e-3).epsilons["approximate"] > 1.0


def test_the_order_of_the_tables_does_not_matter() -> None:
    first, second = np.random.default_rng(0).normal(size=(2, 4000, 2)) + np.array([0.0, 1.0])[:, None, None]
    one, other = (decide(*pair, "gdp", 1e-5, ERROR).epsilons["gdp"] for pair in ((first, second), (second, first)))
    assert one == pytest.approx(other, rel=0.1)
    assert one > 3


# Functions of one's own --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoisySum:
    scale: float

    def __call__(self, table: list[float], seed: int) -> float:
        return sum(table) + float(np.random.default_rng(seed).laplace(scale=self.scale))


TABLES = [1.0], [1.0, 1.0]


def test_a_function_with_half_of_its_noise_is_refuted_and_one_with_all_of_it_is_not() -> None:
    right, wrong = (audit(NoisySum(b), *TABLES, epsilon=1.0, delta=1e-6, runs=4000, seed=0) for b in (1.0, 0.5))
    assert 0.6 < right.lower_bound < 1.0
    assert not right.refuted
    assert wrong.refuted
    assert 1.2 < wrong.lower_bound < 2.0


def test_a_seed_repeats_an_audit_and_a_score_of_ones_own_is_used() -> None:
    first, again = (audit(NoisySum(1.0), *TABLES, epsilon=1.0, runs=400, seed=3) for _ in range(2))
    assert first.lower_bounds == again.lower_bounds
    blind = audit(NoisySum(0.1), *TABLES, epsilon=1.0, runs=400, seed=3, score=lambda _: 0.0)
    assert blind.lower_bound == 0.0


def without_seed(table: list[float]) -> float:
    return sum(table) + float(np.random.default_rng().laplace(scale=0.2))


def test_a_function_may_draw_from_randomness_of_its_own() -> None:
    assert audit(without_seed, *TABLES, epsilon=1.0, runs=1000, confidence=0.999).refuted


def test_several_processes_draw_the_same_outcomes_as_one() -> None:
    one, two = (audit(NoisySum(0.5), *TABLES, epsilon=1.0, runs=200, seed=5, jobs=jobs) for jobs in (1, 2))
    assert (one.lower_bounds, one.curve) == (two.lower_bounds, two.curve)


class Interrupted(NoisySum):
    """A function that is stopped after so many calls."""

    calls = 0
    allowed = 10**9

    def __call__(self, table: list[float], seed: int) -> float:
        type(self).calls += 1
        if type(self).calls > type(self).allowed:
            raise KeyboardInterrupt
        return super().__call__(table, seed)


def test_an_audit_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    def run(allowed: int) -> Report:
        Interrupted.calls, Interrupted.allowed = 0, allowed
        return audit(Interrupted(0.5), *TABLES, epsilon=1.0, runs=1000, seed=5, journal=tmp_path / "audit.json")

    with pytest.raises(KeyboardInterrupt):
        run(allowed=1050)
    assert len(list(tmp_path.iterdir())) == 1
    report = run(allowed=10**9)
    assert Interrupted.calls == 1000  # five chunks of 200 were kept
    assert list(tmp_path.iterdir()) == []
    assert report.lower_bounds == audit(NoisySum(0.5), *TABLES, epsilon=1.0, runs=1000, seed=5).lower_bounds


def halved(outcome: float) -> float:
    return outcome / 2


def test_an_audit_that_was_stopped_does_not_go_on_with_runs_of_another_function_or_score(tmp_path: Path) -> None:
    def run(allowed: int, scale: float, score: Any = None) -> None:
        Interrupted.calls, Interrupted.allowed = 0, allowed
        output = tmp_path / "audit.json"
        audit(Interrupted(scale), *TABLES, epsilon=1.0, runs=400, score=score, seed=5, journal=output)

    for scale, score in ((1.0, None), (0.5, halved), (0.5, lambda outcome: -outcome)):
        with pytest.raises(KeyboardInterrupt):
            run(450, 0.5)
        run(10**9, scale, score)
        assert Interrupted.calls == 800, "all runs are drawn anew"
        run(10**9, 0.5)
        assert Interrupted.calls == 400, "two chunks of 200 of the first were kept"


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"delta": 1.0},
        {"delta": -0.1},
        {"runs": 39},
        {"runs": 100.5},
        {"confidence": 1.0},
        {"confidence": 0.0},
        {"claim": "renyi"},
        {"claim": "gdp"},
        {"jobs": 0},
        {"jobs": 2, "score": lambda outcome: outcome},
    ],
)
def test_bad_settings_are_refused_by_name_before_the_first_run(change: dict[str, Any]) -> None:
    Interrupted.calls, Interrupted.allowed = 0, 0
    with pytest.raises(InvalidParameter):
        audit(Interrupted(1.0), *TABLES, **({"epsilon": 1.0, "runs": 100} | change))
    assert Interrupted.calls == 0


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="callable"):
        audit(3, *TABLES, epsilon=1.0)  # type: ignore[arg-type]


# The library's own mechanisms and methods --------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "relation"), [(0.3, "zero-out"), (1.0, "replace-one"), (4.0, "zero-out")])
@pytest.mark.parametrize("name", ["gaussian", "laplace", "selection"])
def test_plain_mechanisms_are_within_their_claim_and_beyond_six_tenths_of_it(
    name: str, epsilon: float, relation: str
) -> None:
    report = audit_named(name, epsilon=epsilon, delta=1e-6, relation=relation, seed=1)
    assert 0.6 * epsilon < report.lower_bound <= epsilon
    assert report.runs == default_runs(name, epsilon)


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("name", sorted(set(MECHANISMS) - {"gaussian", "laplace", "selection"}))
def test_other_mechanisms_are_within_their_claim_and_beyond_three_tenths_of_it(name: str, relation: Relation) -> None:
    runs = 1000 if name == "norm-laplace" else 60_000
    report = audit_named(name, epsilon=1.0, delta=1e-6, relation=relation, seed=1, runs=runs)
    assert 0.3 < report.lower_bound <= 1.0


KINDS = sorted(kind.__name__ for kind in EXAMPLES if kind.__module__.startswith("dpdescent."))


@pytest.mark.parametrize("kind", KINDS[::3])  # `dpdescent audit` takes the name of any of them
def test_an_answer_to_a_query_is_within_its_claim(kind: str) -> None:
    relation = tuple(Relation)[KINDS.index(kind) % 2]
    report = audit_named(kind, epsilon=4.0, delta=1e-6, relation=relation, runs=60, seed=1)
    assert 0 <= report.lower_bound <= 4.0
    assert (report.attack, report.relation) == ("answer", relation)


@pytest.mark.parametrize(("kind", "least"), [("Gradient", 2.5), ("LabelSum", 2.5), ("BestStep", 1.0)])
def test_an_answer_to_a_query_shows_most_of_its_claim(kind: str, least: float) -> None:
    report = audit_named(kind, epsilon=4.0, delta=1e-6, runs=500, seed=1)
    assert least < report.lower_bound <= 4.0


QUICK = {
    "agd": {"splits": 2.0},
    "auto": {"iterations": 2},
    "outpert": {},
    "sgd": {"steps": 2, "sampling_rate": 0.4},
}


@pytest.mark.parametrize("method", QUICK)
def test_whole_fits_are_within_their_claim(method: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = audit_named(method, epsilon=8.0, delta=1e-6, runs=40, options=QUICK[method], seed=2)
    assert 0 <= report.lower_bound <= 8.0
    assert report.attack == "transcript"


FULL = {"steps": 4, "sampling_rate": 1.0}


def test_everything_that_a_descent_releases_shows_most_of_its_claim() -> None:
    whole, last = (
        audit_named("sgd", epsilon=8.0, delta=1e-6, runs=100, options=FULL, seed=2, attack=attack).lower_bound
        for attack in ("transcript", "model")
    )
    assert 4.0 < whole <= 8.0
    assert whole > last


class HalfNoise(Recording):
    """Noise of half the deviation that was paid for."""

    def gaussian(self, total, cost, relation):
        return super().gaussian(total, type(cost)(cost.noise_multiplier / 2), relation)

    def gaussian_symmetric(self, total, cost, relation):
        return super().gaussian_symmetric(total, type(cost)(cost.noise_multiplier / 2), relation)


def test_a_descent_with_half_of_its_noise_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A false alarm has a probability of at most 0.1%."""
    monkeypatch.setattr("dpdescent.audit.worst_cases.Recording", HalfNoise)
    report = audit_named("sgd", epsilon=8.0, delta=1e-6, runs=100, options=FULL, seed=2, confidence=0.999)
    assert report.refuted


@pytest.mark.parametrize(
    "kind", ["ColumnHistograms", "Gradient", "Hessian", "LabelCounts", "MarginCounts", "SecondMoments"]
)
def test_an_answer_with_half_of_its_noise_is_refuted(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A false alarm has a probability of at most 0.1%."""
    monkeypatch.setattr("dpdescent.audit.audited_queries.Recording", HalfNoise)
    assert audit_named(kind, epsilon=4.0, delta=1e-6, runs=300, seed=2, confidence=0.999).refuted


def test_every_query_is_asked_with_the_noise_that_its_claim_pays_for() -> None:
    for kind in KINDS:
        run = QueryRun(kind, 1.0, 1e-6)
        asked = _asked(run)
        public = _curator(asked.problem, _rows([0]), Relation.ZERO_OUT, Recording(0)).public()
        costs = asked.query.plan(public).costs
        ledger = Ledger(1.0, 1e-6, currency="gdp" if asked.claim == "gdp" else "pure")
        for cost in costs:
            ledger.spend(cost)
        assert ledger.spent > 0.999 * ledger.budget


def test_canaries_of_a_fit_are_guessed_and_stay_within_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    report = audit_named("sgd", epsilon=8.0, delta=1e-6, runs=4, options=FULL, attack="canaries", seed=2)
    assert 0.5 < report.lower_bound <= 8.0
    subject = CanaryRun("sgd", 8.0, 1e-6, options=FULL)
    monkeypatch.setattr(CanaryRun, "_solve", lambda *_: (np.zeros(subject.columns), None))
    first, second = collect(subject, 50, seed=0)
    right = np.concatenate([first, second]).sum()
    assert abs(right - 1600) < 5 * math.sqrt(3200) / 2  # weights that say nothing are guessed by chance: 6e-7


def test_a_replay_sees_neither_the_batches_nor_the_permutations_of_the_run() -> None:
    streams = []
    for seed in (1, 2):
        replay = Replaying(Recording(seed)).randomness
        streams.append([replay.stream(name, 0).words(4).tolist() for name in ("batch", "permutation", "point")])
        assert (
            replay.stream("public", 0).words(4).tolist()
            == Recording(seed).randomness.stream("public", 0).words(4).tolist()
        )
    assert streams[0] == streams[1]


def test_noise_that_is_not_released_is_not_part_of_a_transcript() -> None:
    outcome = MethodRun("objpert", 4.0, 1e-6).draw(True, 0, 1)[0]
    assert len(outcome) == 2  # the weights alone: the noise in the objective stays with the curator
    assert len(MethodRun("outpert", 4.0, 1e-6).draw(True, 0, 1)[0]) == 3


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("gaussion", {}),
        ("gaussian", {"delta": 0.0}),
        ("gaussian", {"options": {"steps": 3}}),
        ("nonprivate", {}),
        ("sgd", {"attack": "guess"}),
        ("sgd", {"options": {"speed": 3}}),
        ("sgd", {"relation": "swap"}),
        ("majority", {"attack": "canaries"}),
        ("sgd", {"runs": 10}),
        ("sgd", {"epsilon": -1.0}),
        ("Gradient", {"options": {"example": 99}}),
        ("Gradient", {"options": {"example": 0}}),
        ("Gradient", {"options": {"steps": 3}}),
        ("Gradient", {"delta": 0.0}),
        ("Gradients", {}),
    ],
)
def test_names_and_settings_that_do_not_exist_are_refused(name: str, change: dict[str, Any]) -> None:
    with pytest.raises(DPDescentError):
        audit_named(name, **({"epsilon": 1.0, "delta": 1e-6} | change))


def test_subjects_travel_to_other_processes() -> None:
    selection = MECHANISMS["selection"](1.0, 1e-6, Relation.ZERO_OUT)
    for subject in (selection, MethodRun("outpert", 1.0, 1e-6), QueryRun("Gradient", 1.0, 1e-6)):
        assert pickle.loads(pickle.dumps(subject)) == subject
    assert dpdescent.audit.audit is audit
    assert auditor_module.FEWEST_RUNS == 40


# The command -------------------------------------------------------------------------------------------------------


def test_the_command_reports_claim_bound_confidence_runs_and_seconds(tmp_path: Path) -> None:
    result, picture = tmp_path / "report.json", tmp_path / "curve.png"
    arguments = ["audit", "laplace", "--epsilon", "1", "--delta", "1e-6", "--runs", "20000", "--seed", "1"]
    done = CliRunner().invoke(app, [*arguments, "--json", str(result), "--plot", str(picture)])
    assert done.exit_code == 0, done.output
    report = json.loads(result.read_text())
    assert report["claimed_epsilon"] == 1.0
    assert 0.6 < report["lower_bound"] <= 1.0
    assert (report["confidence"], report["runs"], report["refuted"]) == (0.95, 20000, False)
    assert report["seconds"] > 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "at least" in done.output


def test_the_command_ends_with_1_where_a_claim_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    refuted = Report("gaussian", "gdp", 1.0, 1e-6, 1.5, 0.95, 100, 0.1)
    monkeypatch.setattr("dpdescent.audit.audit_named", lambda *_, **__: refuted)
    done = CliRunner().invoke(app, ["audit", "gaussian"])
    assert done.exit_code == 1
    assert "refuted" in done.output


def test_the_command_refuses_an_output_that_cannot_be_written_before_any_run(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["audit", "gaussian", "--json", str(tmp_path)])
    assert isinstance(done.exception, DPDescentError)
