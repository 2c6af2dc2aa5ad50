"""What a statement means: no test does better than the curve, and a person can read the page."""

from __future__ import annotations

import ast
import itertools
import json
import math
import re
import warnings
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import norm
from typer.testing import CliRunner

import dpdescent
from browser import measured, needs_browser
from dpdescent import DPAdditiveClassifier, DPLogisticRegression, Ledger, PrivacyStatement, load_dataset
from dpdescent.accounting import (
    GDP,
    RDP,
    ZCDP,
    Approximate,
    ApproximateDP,
    Gaussian,
    Laplace,
    Pure,
    TradeOff,
    gdp_to_delta,
    gdp_to_epsilon,
    sampler_delta,
)
from dpdescent.choosing.plan import stopping_plan
from dpdescent.cli import app
from dpdescent.cli.terminal import print_privacy
from dpdescent.errors import InvalidParameter, ModelFormatError, OutputNotWritable, StatementError
from dpdescent.estimators.effects import Comparisons
from dpdescent.estimators.saved_models import SavedModel
from dpdescent.statement import Charge, Effect, Effects, page_of, text_of
from dpdescent.statement.meaning import BEYOND, LEVEL, UNSEEN_LEVEL, WITHIN, of_several_rows, percent, trade_off
from dpdescent.statement.statement_page import effect_picture

DELTA = 1e-6
SHARES = expit(np.linspace(-12, 12, 400))


def curve(currency: str, epsilon: float = 1.0, delta: float = DELTA) -> TradeOff:
    ledger = Ledger(epsilon, delta, currency=currency)
    return TradeOff(epsilon, delta, ledger.currency, ledger.budget)


# The curve -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_curve_of_gdp_is_that_of_the_gaussian_it_pays_for(epsilon: float) -> None:
    bound = curve("gdp", epsilon)
    noise = GDP().gaussian(bound.total).noise_multiplier
    exact = norm.cdf(norm.ppf(1 - SHARES) - 1 / noise)
    found = bound.false_negatives(SHARES)
    assert (found <= exact + 1e-12).all(), "a real test must not be declared impossible"
    np.testing.assert_allclose(found, exact, atol=3e-6, rtol=1e-3)


@pytest.mark.parametrize("currency", ["zcdp", "rdp"])
def test_the_curve_of_renyi_guarantees_lies_below_that_of_the_gaussian_and_not_far(currency: str) -> None:
    bound = curve(currency)
    noise = bound.currency.gaussian(bound.total).noise_multiplier
    exact = norm.cdf(norm.ppf(1 - SHARES) - 1 / noise)
    found = bound.false_negatives(SHARES)
    assert (found <= exact + 1e-12).all()
    assert (found[SHARES < 0.9] > 0.5 * exact[SHARES < 0.9]).all()
    only_pair = TradeOff(1.0, DELTA, Approximate(), 1.0).false_negatives(SHARES)
    assert (found >= only_pair - 1e-12).all()
    assert found[200] > only_pair[200] + 0.05, "the whole curve says more than one pair"


def test_the_curve_of_a_pair_is_attained_by_randomised_response_that_fails() -> None:
    epsilon, delta = 0.7, 0.02
    p = (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    laws = np.array([[delta, p, 1 - delta - p, 0], [0, 1 - delta - p, p, delta]])
    ratio_order = [3, 2, 1, 0]
    errors = [(laws[0][ratio_order[:k]].sum(), 1 - laws[1][ratio_order[:k]].sum()) for k in range(1, 5)]
    bound = TradeOff(epsilon, delta, Approximate(), epsilon)
    for false_positives, false_negatives in errors:
        assert bound.false_negatives(false_positives) == pytest.approx(false_negatives, abs=1e-12)
    smaller = TradeOff(0.99 * epsilon, delta, Approximate(), epsilon)
    assert any(smaller.false_negatives(a) > b + 1e-4 for a, b in errors), "a smaller epsilon is refuted"


def test_no_test_on_laplace_noise_beats_the_curve_of_its_epsilon() -> None:
    epsilon = Laplace(1.2).pure()
    bound = TradeOff(epsilon, 0.0, Pure(), epsilon)
    thresholds = np.linspace(-6, 7, 200)
    scale = 1 / epsilon
    false_positives = np.where(
        thresholds > 0, 0.5 * np.exp(-thresholds / scale), 1 - 0.5 * np.exp(thresholds / scale)
    )
    moved = thresholds - 1
    false_negatives = np.where(moved > 0, 1 - 0.5 * np.exp(-moved / scale), 0.5 * np.exp(moved / scale))
    assert (bound.false_negatives(false_positives) <= false_negatives + 1e-12).all()
    assert (TradeOff(0.9 * epsilon, 0.0, Pure(), 1).false_negatives(false_positives) > false_negatives + 1e-3).any()


def test_what_a_currency_does_not_count_lowers_the_curve() -> None:
    exact = norm.cdf(norm.ppf(1 - SHARES) - 0.5)
    bound = TradeOff(gdp_to_epsilon(0.5, 0.4), 0.4, GDP(), 0.25)
    slack = 0.4 * float(GDP.uncounted)
    shifted = np.maximum(0, norm.cdf(norm.ppf(1 - SHARES - slack) - 0.5) - slack)
    np.testing.assert_allclose(bound.false_negatives(SHARES), shifted, atol=1e-12)
    assert (bound.false_negatives(SHARES) < exact).all()


@pytest.mark.parametrize("prior", [0.01, 0.2, 0.5, 0.9])
def test_right_guesses_are_those_of_the_best_test_on_a_gaussian(prior: float) -> None:
    bound, mu = curve("gdp", 4.0), math.sqrt(curve("gdp", 4.0).total)
    odds = math.log((1 - prior) / prior)
    exact = (1 - prior) * norm.cdf(mu / 2 + odds / mu) + prior * norm.cdf(mu / 2 - odds / mu)
    assert bound.right_guesses(prior) == pytest.approx(exact, abs=2e-6)
    assert max(prior, 1 - prior) <= bound.right_guesses(prior) <= 1
    power = 1 - float(bound.false_negatives(0.05))
    assert bound.belief_after(prior, 0.05) == pytest.approx(prior * power / (prior * power + (1 - prior) * 0.05))
    with pytest.raises(InvalidParameter, match="prior"):
        bound.right_guesses(1.0)


def test_a_pure_guarantee_bounds_the_odds_by_e_to_the_epsilon() -> None:
    bound = TradeOff(1.0, 0.0, Pure(), 1.0)
    for prior in (0.01, 0.5):
        odds = bound.belief_after(prior, 1e-6)
        assert odds / (1 - odds) == pytest.approx(math.e * prior / (1 - prior), rel=1e-6)


@pytest.mark.parametrize("currency", ["gdp", "zcdp", "pure"])
def test_people_with_several_rows_have_the_guarantee_of_as_many_steps(currency: str) -> None:
    delta = 0.0 if currency == "pure" else DELTA
    stated = statement(currency, delta=delta)
    groups = dict(of_several_rows(stated))
    if currency == "pure":
        assert groups == {1: 1.0, 2: 2.0, 5: 5.0, 10: 10.0}
        return
    mu = math.sqrt(stated.budget if currency == "gdp" else 2 * stated.budget)
    for rows, epsilon in groups.items():
        assert gdp_to_delta(rows * mu, epsilon) <= DELTA
        assert gdp_to_delta(rows * mu, 0.8 * epsilon) > DELTA
    assert of_several_rows(statement("rdp")) == []


def test_figures_of_the_threat_model_are_those_of_the_accountant() -> None:
    """Of k rows of one person, and of random stopping whose number of fits is seen, at epsilon 1 and delta 1e-6."""
    page = (Path(__file__).parents[2] / "docs/threat-model.md").read_text()
    groups = dict(re.findall(r"^\| (\d+) \| ([\d.]+) \|$", page, re.MULTILINE))
    assert groups == {str(rows): f"{epsilon:.3g}" for rows, epsilon in of_several_rows(statement())}
    budget = GDP().budget(1.0, DELTA)
    assert list(groups) == ["1", "2", "5", "10"]
    for rows, epsilon in list(groups.items())[1:]:
        mu = int(rows) * math.sqrt(budget)
        assert gdp_to_epsilon(mu, DELTA) == pytest.approx(float(epsilon), rel=2e-3)
        assert gdp_to_epsilon(mu, DELTA) > int(rows), "more than k epsilon"
    cost = stopping_plan(1.0, DELTA, 10).cost
    seen = re.search(r"it makes (\d+) fits on average, which together have epsilon ([\d.]+)\.", page)
    assert seen is not None
    assert int(seen[1]) == round(cost.expected_runs)
    assert float(seen[2]) == pytest.approx(gdp_to_epsilon(math.sqrt(int(seen[1])) * cost.mu, DELTA), rel=2e-3)


@pytest.mark.parametrize("currency", ["gdp", "zcdp", "pure"])
def test_no_epsilon_of_several_rows_is_stated_that_failures_or_samplers_would_break(currency: str) -> None:
    cost = ApproximateDP(0.01, DELTA * 2.0**-22)
    failing = Ledger(1.0, DELTA, currency=currency)
    failing.spend(cost, "answer")
    facts = {"model": "m", "method": "auto", "randomness": "operating system generator", "arithmetic": "exact"}
    assert of_several_rows(PrivacyStatement.of_ledger(failing, **facts)) == []
    large = PrivacyStatement.of_ledger(Ledger(15.0, DELTA, currency=currency), **facts)
    groups = of_several_rows(large)
    assert [rows for rows, _ in groups] == [1, 2, 5] if currency == "pure" else groups[0] == (1, 15.0)
    assert len(groups) < 4, "ten rows have an epsilon beyond what the samplers can keep"
    assert all(sampler_delta(epsilon) <= DELTA / 1024 for _, epsilon in groups)


# Words and pages -----------------------------------------------------------------------------------------------


def statement(currency: str = "gdp", *, delta: float = DELTA, **facts: Any) -> PrivacyStatement:
    ledger = Ledger(1.0, delta, currency=currency)
    if currency in ("gdp", "zcdp", "rdp"):
        ledger.spend(Gaussian(10.0), "gradient & <b>")
    given: dict[str, Any] = {"model": "m", "method": "auto", "randomness": "operating system generator"}
    return PrivacyStatement.of_ledger(ledger, **given | {"arithmetic": "exact", "released": ("numbers",)} | facts)


def test_the_meaning_is_that_of_the_whole_budget_and_not_of_what_was_spent() -> None:
    stated = statement()
    assert stated.spent < 0.9 * stated.budget
    assert trade_off(stated) == TradeOff(1.0, DELTA, GDP(), stated.budget)


def test_percentages_never_flatter() -> None:
    assert [percent(share) for share in (0.5, 0.50001, 0.9999, 1.5)] == ["50.0%", "50.1%", "100.0%", "100.0%"]


def test_effects_pass_together_by_the_rule_of_holm() -> None:
    """Deviations just beyond and just within the thresholds of three effects, of which the second one fails."""
    share = LEVEL - UNSEEN_LEVEL
    steps = [float(norm.isf(share / left / 2)) for left in (3, 2, 1)]
    fine = Effects([Effect("x", "0", -1.001 * step, 1.0) for step in steps])
    assert [verdict for _, verdict in fine.with_verdicts()] == [BEYOND] * 3
    values = [1.001 * steps[2], -1.001 * steps[0], 0.999 * steps[1]]
    broken = Effects([Effect("x", "0", 10 * value, 10.0) for value in values])
    assert [each.value / 10 for each in broken.compared] == [values[1], values[2], values[0]]
    assert [verdict for _, verdict in broken.with_verdicts()] == [BEYOND, WITHIN, WITHIN], "one that fails ends it"
    assert Effects([Effect("x", "0", 0.1, 0.0), Effect("x", "0", 0.0, 0.0)]).beyond == 1
    assert Effects([]).beyond == 0


def test_every_line_says_what_was_compared_and_that_the_band_is_of_the_noise_of_privacy_alone() -> None:
    effects = Effects(
        [Effect("job=nurse", "job=cook", 2.0, 0.1), Effect("age at its upper bound", "its lower bound", 0.1, 0.1)],
        [Effect("constant", "0", -1.0, 0.5)],
        left_out=3,
    )
    lines, page = text_of(statement(), effects), page_of(statement(), effects)
    numbers = [line for line in lines if "±" in line]
    assert len(numbers) == 4
    assert all("noise of privacy alone" in line for line in numbers)
    assert "differ with another sample of people" in numbers[0]
    assert numbers[1].split() == f"job=nurse against job=cook +2 ± 0.1 {BEYOND}".split()
    assert "1 of 2 effects are larger than the noise of privacy explains, all tested together at 5%" in page
    for shown in (page, "\n".join(lines)):
        assert "Columns left out: 3" in shown
        assert not re.search(r"\breal\b", shown), "noise may have made what passes, once in twenty models"
    assert "left out" not in "\n".join(text_of(statement(), replace(effects, left_out=0)))


def test_effects_with_intervals_are_told_by_them(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (6000, 3))
    y = (generator.random(6000) < 1 / (1 + np.exp(-2 * X[:, 0] - 0.25 * X[:, 1]))).astype(int)
    options: dict[str, Any] = {"bounds": (-1, 1), "classes": (0, 1), "random_state": 0, "inference": True}
    fitted = DPLogisticRegression(2.0, **options).fit(X, y)
    SavedModel.from_estimator(fitted, ["x0", "x1", "x2"]).save(tmp_path / "m.json")
    output = run("explain", tmp_path / "m.json", "--html", tmp_path / "m.html")
    page = (tmp_path / "m.html").read_text()
    table = fitted.summary().to_frame()
    differ = int((table["verdict"] == "differs from 0").sum())
    for shown in (output, page):
        assert "Which effects differ from 0?" in shown
        assert f"{differ} of 4 effects differ from 0" in shown
        assert "sampling and privacy together" in shown
        assert "privacy alone" not in shown
        assert not re.search(r"\breal\b", shown)
    line = next(line for line in output.splitlines() if "x0 at its upper bound" in line)
    assert line.endswith("differs from 0")
    assert f"{2 * table.loc['x0', 'effect']:+.4g}" in line


def test_one_function_words_every_guarantee() -> None:
    """No other source forms such a sentence, so none can forget whose rows are protected, or that none are.

    What several fits of copies add up to (`estimators/payment.py`) is no statement's guarantee.
    """
    package = Path(dpdescent.__file__).parent
    found = set()
    for path in package.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        constants = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in docstrings]
        if any(re.search(r"\)-differential|\bNOT PRIVATE: the rows", str(each.value)) for each in constants):
            found.add(path.relative_to(package).as_posix())
    assert found == {"statement/meaning.py", "estimators/payment.py"}


@pytest.mark.parametrize("kind", ["rows", "people", "nonprivate", "classes unpaid"])
def test_pages_pictures_print_outs_and_statements_begin_with_the_same_sentence(kind: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    table, y = pd.DataFrame({"x": generator.random(400)}), np.arange(400) % 2
    options: dict[str, Any] = {"bounds": (0, 1), "classes": None if kind == "classes unpaid" else (0, 1), "pieces": 2}
    options |= {"method": "nonprivate"} if kind == "nonprivate" else {"random_state": 0}
    if kind == "people":
        table["person"], options = np.arange(400) // 2, options | {"unit": "person", "rows_per_unit": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = DPAdditiveClassifier(1.0, **options).fit(table, y)
    expected = {
        "rows": "(1, 1e-06)-differentially private for one row under zero-out.",
        "people": "(1, 1e-06)-differentially private for one person under zero-out.",
        "nonprivate": "NOT PRIVATE: the rows were used without noise, so the model may disclose any of them.",
        "classes unpaid": "(1, 1e-06)-differentially private for one row under zero-out, except for classes.",
    }[kind]
    stated = PrivacyStatement.from_dict(fitted.privacy_)
    stated.save(tmp_path / "s.json")
    fitted.terms_html(tmp_path / "terms.html")
    for page in ((tmp_path / "terms.html").read_text(), page_of(stated)):
        assert re.search(r"<h1>[^<]*</h1>\s*<p[^>]*>([^<]*)", page)[1].startswith(expected)  # type: ignore[index]
    assert fitted.plot_terms().get_suptitle().replace("\n", " ") == expected
    assert run("explain", tmp_path / "s.json").splitlines()[0] == text_of(stated)[0] == expected
    printed = StringIO()
    with redirect_stdout(printed):
        print_privacy(fitted.privacy_)
    assert printed.getvalue().splitlines()[0] == expected


def test_the_text_warns_of_what_speaks_against_publishing() -> None:
    fine = "\n".join(text_of(statement()))
    assert "!" not in fine
    assert "(1, 1e-06)-differentially private for one row under zero-out." in fine
    seeded = replace(statement(), randomness="floating point, seeded (not for release)")
    text = "\n".join(text_of(replace(seeded, assumed_public=("classes: read from y because nobody said",))))
    assert "! Do not publish: the noise comes from a seed" in text
    assert "! The noise is in floating point" in text
    assert "! Not paid for: classes: read from y" in text
    bare = PrivacyStatement.without_privacy(
        relation="zero-out", model="m", method="nonprivate", randomness="none", arithmetic="floating point"
    )
    lines = text_of(bare)
    assert lines[0].startswith("NOT PRIVATE: the rows were used without noise")
    assert "! Do not publish: nothing is guaranteed." in lines
    assert "What epsilon means here" not in lines
    assert "What epsilon means" not in page_of(bare)
    assert "Delta is large" in "\n".join(text_of(statement(delta=0.01)))
    assert "samplers' own error adds" in "\n".join(text_of(statement("pure", delta=0.0)))


def test_parts_that_share_no_row_are_told_apart() -> None:
    gaussian = Gaussian(20.0)
    parts = (Charge("fit", gaussian, 2, "training part"), Charge("choice", gaussian, 1, "hold-out part"))
    stated = replace(statement(), charges=parts)
    for shown in (page_of(stated), "\n".join(text_of(stated))):
        assert "fit (2 x, training part)" in shown
        assert "choice (1 x, hold-out part)" in shown
        assert "only the most expensive one counts" in shown
    assert "most expensive" not in page_of(statement())


def test_shares_and_counts_on_the_page_are_those_of_the_statement() -> None:
    stated = statement(account="abc", fingerprint="people <2026>", steps=7, noise_multiplier=1.5)
    page, text = page_of(stated), "\n".join(text_of(stated))
    share = stated.spent / stated.budget
    for shown in (page, text):
        assert f"{share:.1%}" in shown
        assert "abc" in shown
    assert "gradient &amp; &lt;b&gt; (1 x)" in page
    assert "people &lt;2026&gt;" in page
    assert "gaussian (noise multiplier 10)" in page
    assert "not spent" in page


class Page(HTMLParser):
    """Complains about tags that are not closed, and collects those that could load something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loading: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "iframe", "img") or any(name in ("src", "href") for name, _ in attrs):
            self.loading.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data, path = load_dataset("synthetic", n=4000), tmp_path_factory.mktemp("model") / "m.json"
    fitted = DPLogisticRegression(1.0, bounds=data.bounds, tighten=False, classes=data.classes, random_state=0).fit(
        data.X, data.y
    )
    SavedModel.from_estimator(fitted, list(data.feature_names), data.schema).save(path)
    return path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_explain_shows_a_model_and_writes_a_page_that_loads_nothing(model: Path, tmp_path: Path) -> None:
    output = run("explain", model, "--html", tmp_path / "p.html", "--json", tmp_path / "s.json")
    assert "Which effects are larger than the noise of privacy explains?" in output
    assert "education_years" in output
    assert "Where the budget went (100.0% of it, added up by Gaussian differential privacy)" in output
    page = (tmp_path / "p.html").read_text()
    assert Page(page).loading == []
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert json.loads((tmp_path / "s.json").read_text()) == SavedModel.load(model).privacy
    PrivacyStatement.from_dict(SavedModel.load(model).privacy).save(tmp_path / "alone.json")
    alone = run("explain", tmp_path / "alone.json")
    assert "Which effects" not in alone
    assert alone.splitlines()[0] == output.splitlines()[0]


def test_effects_are_those_that_rows_can_tell(model: Path) -> None:
    """A number that moves from the levels of a column to the intercept, or to all classes, changes no effect."""
    saved = SavedModel.load(model)
    levels = [number for number, name in enumerate(saved.features) if name.startswith("workclass=")]
    told = saved.effects()
    assert told is not None
    moved = [[weight + 5 * (number in levels) for number, weight in enumerate(saved.coefficients[0])]]
    same = replace(saved, coefficients=moved, intercepts=[saved.intercepts[0] - 5]).effects()
    three = replace(saved, classes=["a", "b", "c"], intercepts=3 * saved.intercepts)
    rows = [[scale * weight for weight in saved.coefficients[0]] for scale in (1, 2, 6)]
    shifted = [[weight - 7 for weight in row] for row in rows]
    several, again = (replace(three, coefficients=each).effects() for each in (rows, shifted))
    for ours, others in ((told, same), (several, again)):
        assert ours is not None
        assert others is not None
        for own, other in zip(ours.compared, others.compared, strict=True):
            assert (own.name, own.against) == (other.name, other.against)
            assert other.value == pytest.approx(own.value, abs=1e-9)
            assert other.noise == pytest.approx(own.noise, rel=1e-9)
    assert same is not None
    assert same.constants[0].value == pytest.approx(told.constants[0].value)
    assert several is not None
    one, noise = ({each.name: each for each in found.compared} for found in (told, several))
    name = next(iter(one))
    assert noise[f"{name}, class c"].noise == pytest.approx(one[name].noise * math.sqrt(2 / 3))
    assert noise[f"{name}, class c"].value == pytest.approx(3 * one[name].value), "6 against the mean of 1, 2 and 6"


def test_noise_of_effects_is_that_of_refits_and_columns_without_variation_are_not_spoken_of() -> None:
    """Labels are independent of a full table, so noise makes every effect; 17 of 20 levels have no row.

    Effects in units of their noise have root mean squares from 0.49 to 0.84 over 12 fixed seeds: claims are cautious
    here. If they were exact, a mean of 12 squares would pass the lower limit with a probability of 5e-4.
    """
    cells = [(a, b, x, y) for a in range(3) for b in (0, 0, 0, 1) for x in (0.2, 0.5, 0.8) for y in (0, 0, 0, 1)]
    a, b, x, y = np.tile(np.array(cells), (60, 1)).T
    empty = np.zeros((y.size, 17))
    names = [*(f"a={level}" for level in range(20)), "b=0", "b=1", "x", "fixed", "always"]
    columns = [*(a == level for level in range(3)), empty, b == 0, b == 1, x, np.full(y.size, 0.7), np.ones(y.size)]
    X, binary = np.column_stack(columns), [name[0] in "ab" for name in names]
    found: dict[str, list[float]] = {}
    for seed in range(12):
        fitted = DPLogisticRegression(1.0, bounds=(0, 1), classes=(0, 1), binary_features=binary, random_state=seed)
        told = SavedModel.from_estimator(fitted.fit(X, y.astype(int)), names).effects()
        assert told is not None
        assert told.left_out == 19
        for each in told.compared:
            found.setdefault(f"{each.name} against {each.against}", []).append(each.value / each.noise)
    assert set(found) == {
        *(f"a={level} against the mean of 3 levels" for level in range(3)),
        "b=0 against b=1",
        "x at its upper bound against its lower bound",
    }
    for own in found.values():
        assert 0.4 < float(np.sqrt(np.mean(np.square(own)))) < 1.2


@pytest.mark.parametrize("classes", [1, 3])
def test_noise_of_effects_follows_from_the_noise_factor(classes: int) -> None:
    """Effects are linear in the weights, so their variance is the sum of squares over independent parts of noise."""
    generator = np.random.default_rng(0)
    names = ["age", "job=a", "job=b", "job=c", "job=d", "sex=f", "sex=m", "pet#0", "pet#1", "pet (missing)", "lone=x"]
    factor, constant = generator.normal(size=(len(names), 5)), generator.normal(size=5)
    seen = np.array([name not in ("job=d", "pet#1") for name in names])
    compared = Comparisons.of(names, [name != "age" for name in names], seen, factor, constant)
    assert compared.columns == ((0,), (1, 2, 3), (5, 6), (7, 9), (10,))
    assert compared.left_out == 2
    assert Comparisons.from_dict(json.loads(json.dumps(compared.to_dict()))) == compared
    ends = np.full(len(names), -1.0), np.full(len(names), 2.0)
    variances: Counter[str] = Counter()
    for part, output in itertools.product(range(5), range(classes)):
        weights, intercepts = np.zeros((classes, len(names))), np.zeros(classes)
        weights[output], intercepts[output] = factor[:, part], constant[part]
        told = compared.effects(names, weights, intercepts, ends, [str(each) for each in range(classes)])
        variances.update({each.name: each.value**2 for each in (*told.compared, *told.constants)})
    assert len(variances) == 8 * classes
    for each in (*told.compared, *told.constants):
        assert each.noise**2 == pytest.approx(variances[each.name])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"columns": [[0], [0]], "noise": [[1.0], [1.0]]}, "compared twice"),
        ({"columns": [[99]], "noise": [[1.0]]}, "none of the features"),
        ({"left_out": 0, "columns": [], "noise": []}, "compared or left out"),
        ({"noise": []}, "has a noise"),
        ({"constant": "1"}, "constant"),
    ],
)
def test_a_file_with_comparisons_that_cannot_be_is_refused(
    model: Path, tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    saved = SavedModel.load(model)
    replace(saved, comparisons={**saved.comparisons, **change}).save(tmp_path / "m.json")  # type: ignore[dict-item]
    with pytest.raises(ModelFormatError, match=complaint):
        SavedModel.load(tmp_path / "m.json")
    replace(saved, comparisons=None).save(tmp_path / "m.json")
    assert SavedModel.load(tmp_path / "m.json").effects() is None, "a file of an earlier release"


def test_explain_refuses_damaged_files_and_places_before_it_says_anything(model: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_bytes(model.read_bytes()[:-20])
    (tmp_path / "pickle.json").write_bytes(b"\x80\x04N.")
    for name in ("cut", "pickle", "nowhere"):
        with pytest.raises(ModelFormatError):
            run("explain", tmp_path / f"{name}.json")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(StatementError):
        run("explain", tmp_path / "other.json")
    with pytest.raises(OutputNotWritable):
        run("explain", model, "--html", tmp_path)


@needs_browser
def test_a_browser_shows_the_pictures_and_the_curve_where_it_belongs(model: Path, tmp_path: Path) -> None:
    run("explain", model, "--html", tmp_path / "p.html")
    facts = [
        "document.querySelectorAll('svg').length",
        "[...document.querySelectorAll('svg')].every(s => s.getBoundingClientRect().height > 100)",
        "document.querySelector('svg polyline').points.length > 300",
        "document.body.innerText.includes('What is not covered')",
        "document.documentElement.scrollWidth <= window.innerWidth",
        "[...document.querySelectorAll('svg')].every(s => [...s.querySelectorAll('text')].every(t => {"
        "const a = t.getBoundingClientRect(), b = s.getBoundingClientRect();"
        "return a.left >= b.left - 1 && a.right <= b.right + 1 && a.bottom <= b.bottom + 1; }))",
    ]
    assert measured((tmp_path / "p.html").read_text(), facts, tmp_path) == ["3", *["true"] * 5]
    wide = (Charge("THE MEAN OF SCALED ROW NORMS", Gaussian(30.0), 64, "training part"),)
    page = page_of(replace(statement(), charges=wide))
    assert measured(page, facts[-1:], tmp_path) == ["true"]


def test_every_currency_has_a_curve_and_a_page() -> None:
    for currency in ("gdp", "zcdp", "rdp", "pure", "approximate"):
        stated = statement(currency)
        Page(page_of(stated))
        assert isinstance(stated.currency, GDP | ZCDP | RDP | Pure | Approximate)
        assert "at most" in "\n".join(text_of(stated))


def test_numbers_are_compared_between_their_bounds(model: Path) -> None:
    saved = SavedModel.load(model)
    low, high = saved.ends  # type: ignore[misc]
    wide = replace(saved, ends=[[10 * end for end in low], [10 * end for end in high]])
    of = "age at its upper bound"
    narrow, told = ({each.name: each for each in one.effects().compared}[of] for one in (saved, wide))
    assert told.value == pytest.approx(10 * narrow.value)
    assert told.noise == pytest.approx(10 * narrow.noise)
    drawn = effect_picture(Effects([Effect("pay", "0", 9.0, 0.9), Effect("age", "0", 3.0, 0.1)]), 1)
    assert re.findall(r"<title>(.*?)</title>", drawn) == [f"age against 0: 3 ± 0.1, {BEYOND}"]
