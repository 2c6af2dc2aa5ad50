"""What a statement means: no test does better than the curve, and a person can read the page."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm
from typer.testing import CliRunner

from browser import measured, needs_browser
from dpdescent import DPLogisticRegression, Ledger, PrivacyStatement, load_dataset
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
from dpdescent.cli import app
from dpdescent.cli.explain import coefficients_of
from dpdescent.cli.models import SavedModel
from dpdescent.errors import InvalidParameter, ModelFormatError, OutputNotWritable, StatementError
from dpdescent.statement import Charge, Coefficient, page_of, text_of
from dpdescent.statement.meaning import of_several_rows, percent, trade_off, verdict
from dpdescent.statement.pictures import coefficient_picture

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


def test_a_sign_is_real_beyond_three_standard_deviations() -> None:
    found = [verdict(Coefficient("x", value, 1.0)) for value in (-3.0, 2.0, 1.99, 0.0)]
    assert found == ["real", "probably real", "may be noise", "may be noise"]
    assert verdict(Coefficient("x", 0.1, 0.0)) == "real"


def test_the_text_warns_of_what_speaks_against_publishing() -> None:
    fine = "\n".join(text_of(statement()))
    assert "!" not in fine
    assert "(1, 1e-06)-differentially private for one row, under zero-out." in fine
    seeded = replace(statement(), randomness="floating point, seeded (not for release)")
    text = "\n".join(text_of(replace(seeded, assumed_public=("classes: read from y because nobody said",))))
    assert "! Do not publish: the noise comes from a seed" in text
    assert "! The noise is in floating point" in text
    assert "! Not paid for: classes: read from y" in text
    bare = PrivacyStatement.without_privacy(
        relation="zero-out", model="m", method="nonprivate", randomness="none", arithmetic="floating point"
    )
    lines = text_of(bare)
    assert lines[0] == "This model is NOT private: the rows were used without noise."
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
    fitted = DPLogisticRegression(1.0, bounds=data.bounds, classes=data.classes, random_state=0).fit(data.X, data.y)
    SavedModel.from_estimator(fitted, list(data.feature_names), data.schema).save(path)
    return path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_explain_shows_a_model_and_writes_a_page_that_loads_nothing(model: Path, tmp_path: Path) -> None:
    output = run("explain", model, "--html", tmp_path / "p.html", "--json", tmp_path / "s.json")
    assert "Is this sign real" in output
    assert "education_years" in output
    assert "Where the budget went (100.0% of it, added up by Gaussian differential privacy)" in output
    page = (tmp_path / "p.html").read_text()
    assert Page(page).loading == []
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert json.loads((tmp_path / "s.json").read_text()) == SavedModel.load(model).privacy
    PrivacyStatement.from_dict(SavedModel.load(model).privacy).save(tmp_path / "alone.json")
    alone = run("explain", tmp_path / "alone.json")
    assert "Is this sign real" not in alone
    assert alone.splitlines()[0] == output.splitlines()[0]


def test_coefficients_of_several_classes_are_named_by_class(model: Path) -> None:
    saved = SavedModel.load(model)
    three = replace(
        saved,
        classes=["a", "b", "c"],
        coefficients=3 * saved.coefficients,
        intercepts=[0.0] * 3,
        coefficient_noise=3 * saved.coefficient_noise,  # type: ignore[operator]
    )
    found = coefficients_of(three)
    assert len(found) == 3 * len(saved.features)
    assert found[-1].name == f"{saved.features[-1]}, class c"
    assert coefficients_of(replace(saved, coefficient_noise=None)) == []


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


def test_coefficients_are_drawn_in_units_of_the_bounds_of_their_columns(model: Path) -> None:
    saved = SavedModel.load(model)
    low, high = saved.ends
    wide = replace(saved, ends=[[10 * end for end in low], [10 * end for end in high]])
    assert [each.span for each in coefficients_of(wide)] == [
        pytest.approx(10 * (b - a)) for a, b in zip(low, high, strict=True)
    ]
    small, large = Coefficient("pay", 0.001, 0.0001, span=9000.0), Coefficient("age", 3.0, 0.1)
    pay, age = (float(each) for each in re.findall(r'<circle cx="([\d.]+)"', coefficient_picture([small, large])))
    assert pay > age
