"""Paper modes have the numbers that the papers print, and what they add to the guarantee is right."""

from __future__ import annotations

import inspect
import json
import math
import re
import shlex
from dataclasses import fields, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest
from test_agd import make_curator as agd_curator
from test_blsgd import Drawn, make_curator
from typer.testing import CliRunner

import dpdescent
from dpdescent import DPLogisticRegression, InvalidParameter, Ledger, list_datasets, load_dataset
from dpdescent.accounting import (
    AboveThreshold,
    Gaussian,
    epsilon_to_zcdp,
    loose_zcdp_budget,
    zcdp_to_delta,
    zcdp_to_epsilon,
)
from dpdescent.cli import app
from dpdescent.curator import ArraySource, Curator
from dpdescent.errors import UnsupportedCost
from dpdescent.estimators.arguments import make_settings
from dpdescent.exact import FeatureGrid
from dpdescent.lab.reproduction import FIGURES
from dpdescent.problems import L2, Hinge, LinearProblem, Logistic
from dpdescent.queries import FirstStep
from dpdescent.relations import Relation
from dpdescent.solvers import METHODS, PAPER_MODES, AGDSettings, BLGDSettings, BLSGDSettings, agd, blsgd
from every_query import Silent

# Settings --------------------------------------------------------------------------------------------------------

#: What the four papers state, read from their sections on experiments.
PRINTED: dict[str, dict[str, Any]] = {
    # Lee & Kifer (2018): splits in 6.2, C_grad and C_obj in 6.2, m, tau, eta and alpha_max in a footnote of 5.
    "agd": {
        "splits": 60,
        "clip_gradient": 3,
        "clip_loss": 3,
        "candidates": 20,
        "window": 10,
        "stretch": 0.1,
        "max_step": 2,
        "currency": "zcdp",
        "conversion": "paper",
    },
    "objpert": {"row_bound": 1},
    "sgd": {"sampling_rate": "1/sqrt(n)"},
    "sgd-adv": {"sampling_rate": "1/sqrt(n)"},
    "privgene": {"generations": "n epsilon/800, at least 1"},
    # Chen & Lee (2020), 5.4: epsilon/(2 50) for each iteration, q, C_grad, C_obj, xi, alpha, beta, tau, varsigma,
    # phi_max, phi_min, psi and, for DP-BLSGD-AC, zeta.
    "blsgd": {
        "iterations": 50,
        "sampling_rate": 0.1,
        "search_rate": 0.1,
        "clip_gradient": 3,
        "clip_loss": 1,
        "growth": 0.3,
        "decrease": 0.5,
        "backtrack": 0.8,
        "window": 10,
        "stretch": 1.2,
        "clip": "losses",
        "angle_high": 1.1,
        "angle_low": 0.5,
        "angle_memory": 0.8,
        "noise": "laplace",
        "clip_decay": 0,
    },
    "blsgd-ac": {"clip_decay": 0.05, "sampling_rate": 0.1, "clip_gradient": 3, "clip_loss": 1},
    "blgd": {"sampling_rate": 1, "search_rate": 1, "allocation": "accumulate", "growth": 0.3},
    "adam": {"sampling_rate": 1 / 200, "clip_gradient": 3, "beta1": 0.9, "beta2": 0.999},
    # Gao & Wright (2023), section 4: a loose solution; three quarters of the budget for the first phase.
    "opt": {"gradient_tolerance": 0.06, "curvature_tolerance": 0.245, "noise": "paper"},
    "opt-ls": {"gradient_tolerance": 0.06, "search": True},
    "2opt": {"gradient_tolerance": 0.06, "optimistic_share": 0.75},
    "2opt-ls": {"optimistic_share": 0.75, "search": True},
    "2opt-b": {"optimistic_share": 0.75},
    "dp-tr": {"gradient_tolerance": 0.06, "curvature_tolerance": 0.245},
    # Lowy & Razaviyayn (2021): equation (5), and algorithm 11.
    "outpert": {"sigma": "paper"},
    "expmech": {"localise": True},
}


@pytest.mark.parametrize("name", PAPER_MODES)
def test_the_command_prints_the_settings_of_the_papers(name: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    ran = CliRunner().invoke(app, ["methods", name, "--paper", "--json", str(file)])
    assert ran.exit_code == 0, ran.output
    shown = json.loads(file.read_text())
    for setting, value in PRINTED.get(name, {}).items():
        assert shown["settings"][setting] == value, setting
        assert shown["origins"][setting] in ("stated in the paper", "a rule")
    assert all(f"differs: {each}" in ran.output for each in PAPER_MODES[name].differences)


def test_the_command_shows_defaults_and_refuses_what_no_paper_has() -> None:
    shown = CliRunner().invoke(app, ["methods", "auto"])
    assert shown.exit_code == 0
    assert "iterations" in shown.output
    for wrong in (["methods", "auto", "--paper"], ["methods", "--paper"], ["methods", "adg"]):
        assert CliRunner().invoke(app, wrong).exit_code != 0


@pytest.mark.parametrize("name", METHODS)
def test_a_paper_mode_is_made_of_settings_that_exist_and_yields_to_given_ones(name: str) -> None:
    build, mode = METHODS[name].settings, PAPER_MODES.get(name)
    assert build.paper_mode is mode
    if mode is None:
        assert name in ("auto", "ftrl", "svrg")  # of which no paper states settings here
        with pytest.raises(InvalidParameter, match="leave the setting paper out"):
            build(paper=True)
        return
    settings, known = build(paper=True), {field.name for field in fields(build)}
    assert {*mode.values, *mode.rules} <= known
    assert not set(mode.stated) & set(mode.open)
    assert all(each in inspect.getdoc(build) for each in mode.differences)
    assert {setting: getattr(settings, setting) for setting in mode.values} == mode.values
    for setting, value in mode.values.items():
        if isinstance(value, float) and setting not in ("memory", "momentum", "clip_decay", "clip_loss"):
            other = value / 2 if setting not in ("angle_high", "stretch") else 1.05
            assert getattr(build(paper=True, **{setting: other}), setting) == other


# DP-AGD ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "rho"),
    [(0.05, 3.38832866e-5), (0.1, 1.35349889e-4), (0.2, 5.39940892e-4), (0.4, 2.14821113e-3), (1.6, 3.33119013e-2)],
)
def test_equation_5_gives_the_papers_budget(epsilon: float, rho: float) -> None:
    assert loose_zcdp_budget(epsilon, 1e-8) == pytest.approx(rho, rel=1e-8)
    assert rho + 2 * math.sqrt(rho * math.log(1e8)) == pytest.approx(epsilon, rel=1e-8)


def test_equation_5_is_never_above_the_optimal_conversion() -> None:
    for epsilon in 10.0 ** np.arange(-6, 4):
        for delta in (0.5, 1e-3, 1e-8, 1e-30):
            rho = loose_zcdp_budget(epsilon, delta)
            assert rho <= epsilon_to_zcdp(epsilon, delta)
            assert zcdp_to_delta(rho, epsilon) <= delta
            assert zcdp_to_epsilon(rho, delta) <= epsilon
    assert epsilon_to_zcdp(0.05, 1e-8) / loose_zcdp_budget(0.05, 1e-8) == pytest.approx(1.631, rel=1e-3)


def test_dp_agd_of_the_paper_spends_what_equation_5_allows_in_whole_iterations() -> None:
    curator = agd_curator(0.8, currency="zcdp")
    curator.ledger.spend(Gaussian(100.0), "something before")
    settings = AGDSettings(paper=True, splits=5.0)
    agd(curator, settings)
    allowed, whole = loose_zcdp_budget(0.8, curator.ledger.delta), (0.8 / 10) ** 2 / 2
    prices = [(entry.label, entry.price) for entry in curator.ledger.entries[1:]]
    assert curator.ledger.spent <= allowed
    assert all(price == pytest.approx(whole) for label, price in prices if label == "step size")
    assert prices[-1][0] == "step size"
    assert allowed - curator.ledger.spent < max(price for _, price in prices) + whole
    freely = agd_curator(0.8, currency="zcdp")
    agd(freely, replace(settings, conversion="optimal"))
    assert freely.ledger.spent > allowed


def test_the_first_gradient_of_the_authors_code_is_that_of_the_classical_gaussian_mechanism() -> None:
    curator = agd_curator(0.8, currency="zcdp", rows=50)
    agd(curator, AGDSettings(paper=True, first_gradient="gaussian"))
    first, second = curator.ledger.entries[:2]
    deviation = math.sqrt(2 * math.log(1.25 / curator.ledger.delta)) * 120 / 0.8
    assert (first.label, first.cost.noise_multiplier) == ("gradient", pytest.approx(deviation))
    assert second.price == pytest.approx((0.8 / 120) ** 2 / 2)
    assert 2 * math.log(1.25 / 1e-8) == pytest.approx(37.3, abs=0.05)  # how many times smaller than that of pure DP


def test_the_papers_conversion_is_for_zcdp_alone() -> None:
    with pytest.raises(InvalidParameter, match="'paper' with currency 'zcdp'"):
        AGDSettings(paper=True, currency="gdp", conversion="paper")
    assert AGDSettings(paper=True, currency="gdp").conversion == "optimal"
    data, account = load_dataset("synthetic", n=200), Ledger(10.0, 1e-6, currency="gdp")
    model = DPLogisticRegression(
        method="agd", bounds=(0, 1), classes=(0, 1), ledger=account, solver_options={"paper": True}
    )
    with pytest.raises(UnsupportedCost, match="conversion"):
        model.fit(data.X, data.y)
    assert not account.entries


# DP-BLSGD --------------------------------------------------------------------------------------------------------


def clipped_queries(loss: Any, ceiling: float, relation: str) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return what a search of clipped losses releases, and the same sums by numpy, and what each row adds."""
    generator = np.random.default_rng(1)
    grid, rows = FeatureGrid(1.0, 3), 200
    X, y = grid.place(generator.uniform(-1, 1, (rows, 3))), generator.choice([-1.0, 1.0], rows)
    weights, direction = generator.normal(size=3) * 2, generator.normal(size=3)
    steps, demands = np.array([4.0, 1.0, 0.25]), np.array([0.1, 0.02, 0.0])
    noise = Silent()
    problem = LinearProblem(loss, grid, L2(0.1, intercept=True))
    ledger = Ledger(1e9, 1e-6, relation=relation, currency="gdp")
    curator = Curator(ArraySource(X, y, grid), problem, ledger, rows, noise=noise)
    search = AboveThreshold(3, 4.0, 2.0)
    curator.answer(FirstStep(weights, direction, steps, demands, search, ceiling=ceiling, clip_losses=True))
    ends = [weights - step * direction for step in steps]
    placed = [grid.place_weights(each) for each in (weights, direction)]
    before = np.minimum(loss.values(X @ placed[0], y), ceiling)
    each = np.array(
        [before - np.minimum(loss.values(X @ placed[0] - a * (X @ placed[1]), y), ceiling) for a in steps]
    )
    rises = [problem.penalty_value(end) - problem.penalty_value(weights) for end in ends]
    return noise.calls[0][0], each.sum(axis=1) - rows * (demands + rises), each


@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=str)
@pytest.mark.parametrize("ceiling", [0.3, 1.0])
def test_a_search_of_clipped_losses_is_the_sum_that_the_paper_prints(loss: Any, ceiling: float) -> None:
    released, expected, each = clipped_queries(loss, ceiling, "replace-one")
    np.testing.assert_allclose(released.to_float() * ceiling, expected, rtol=0, atol=1e-6)
    assert (released.sensitivity.under(Relation.ZERO_OUT), released.sensitivity.under(Relation.REPLACE_ONE)) == (1, 2)
    assert 0.9 * ceiling < np.abs(each).max() <= ceiling  # one row attains the sensitivity


def test_a_measurement_after_a_failed_search_counts_half_in_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """The direction of a search is the mean of the last gradient and of the direction before, whatever they cost."""
    gradients: list[np.ndarray] = []
    directions: list[np.ndarray] = []
    answer = Curator.answer

    def watched(self: Curator, query: Any, batch: Any = None) -> Any:
        given = answer(self, query, batch)
        if isinstance(query, FirstStep):
            directions.append(query.direction)
        else:
            gradients.append(given)
        return given

    monkeypatch.setattr(Curator, "answer", watched)
    options = {"sampling_rate": 1.0, "search_rate": 1.0, "allocation": "must"}
    settings = BLSGDSettings(paper=True, iterations=40.0, **options)  # type: ignore[arg-type]
    blsgd(make_curator(2.0, settings, noise=Drawn(range(2)), rows=400), settings)
    first, second, third = gradients[:3]
    np.testing.assert_allclose(directions[0], first, rtol=1e-12)
    np.testing.assert_allclose(directions[1], (first + second) / 2, rtol=1e-12)
    np.testing.assert_allclose(directions[2], (first + second) / 4 + third / 2, rtol=1e-12)


@pytest.mark.parametrize("paper", [True, False])
def test_the_grown_budget_of_dp_blgd_persists_in_the_paper_alone(paper: bool) -> None:
    noise = Drawn(range(2))
    settings = BLGDSettings(paper=paper, iterations=12.0 if paper else 6.0, first_step=0.5)
    blsgd(make_curator(2.0, settings, noise=noise, rows=400), settings)
    costs = [cost for cost in noise.costs if isinstance(cost, Gaussian)]
    start = 0 if paper else len(costs) - len([c for c in noise.costs if isinstance(c, AboveThreshold)])
    first, second, third, fourth = (cost.noise_multiplier**-2 for cost in costs[start : start + 4])
    assert (second, third) == pytest.approx((0.3 * first, 0.3 * 1.3 * first))
    assert fourth == pytest.approx(1.3**2 * first if paper else first)


def test_the_paper_starts_at_random_from_public_randomness() -> None:
    starts = []
    for seed in (0, 0, 1):
        settings = BLSGDSettings(paper=True, iterations=2.0)
        noise = Drawn(range(10**9), seed)
        starts.append(blsgd(make_curator(0.5, settings, noise=noise, rows=50), settings).weights)
    assert np.array_equal(starts[0], starts[1])
    assert not np.array_equal(starts[0], starts[2])
    assert 0.01 < np.std(starts) < 0.3


# Intercepts ------------------------------------------------------------------------------------------------------


def test_a_penalty_on_the_intercept_is_that_of_any_other_weight() -> None:
    weights = np.array([1.0, -2.0, 3.0])
    spared, penalised = (
        LinearProblem(Logistic(), FeatureGrid(1.0, 3), L2(0.5, intercept=included)) for included in (False, True)
    )
    assert (spared.penalty_value(weights), penalised.penalty_value(weights)) == (1.25, 3.5)
    assert penalised.penalty_gradient(weights).tolist() == [0.5, -1.0, 1.5]
    assert spared.penalty_gradient(weights).tolist() == [0.5, -1.0, 0.0]
    assert penalised.penalty_curvature(weights).tolist() == [0.5] * 3
    assert spared.penalty_curvature(weights).tolist() == [0.5, 0.5, 0.0]
    with pytest.raises(InvalidParameter, match="True or False"):
        L2(0.5, intercept="no")  # type: ignore[arg-type]


def test_paper_modes_penalise_the_intercept_unless_told_otherwise() -> None:
    data = load_dataset("synthetic", n=500)

    def intercept(**options: Any) -> float:
        model = DPLogisticRegression(method="nonprivate", bounds=(0, 1), classes=(0, 1), alpha=10.0, **options)
        return float(model.fit(data.X, data.y).intercept_[0])

    free, paper = intercept(), intercept(solver_options={"paper": True})
    assert intercept(penalise_intercept=True) == paper
    assert intercept(solver_options={"paper": True}, penalise_intercept=False) == free
    assert abs(paper) < 0.1 * abs(free)


def test_the_default_method_refuses_a_penalised_intercept_before_anything_is_charged() -> None:
    data, account = load_dataset("synthetic", n=200), Ledger(10.0, 1e-6, currency="gdp")
    model = DPLogisticRegression(classes=(0, 1), alpha=0.1, penalise_intercept=True, ledger=account)
    with pytest.raises(InvalidParameter, match="'auto' does not penalise the intercept"):
        model.fit(data.X, data.y)
    assert not account.entries


# Rivals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "epsilon", "iterations", "queries"),
    [
        ("objpert", 1.0, 1, {"objective perturbation"}),
        ("outpert-gd", 1.0, 50, {"gradient descent"}),
        ("outpert", 1.0, 1, {"minimiser"}),
        ("privgene", 1.6, 4, {"mean row norm", "candidate"}),
        ("sgd-adv", 1.0, 4, {"gradients"}),
        ("sgd", 1.0, 20, {"gradient"}),
    ],
)
def test_rivals_ask_what_the_paper_asks_and_nothing_else(
    name: str, epsilon: float, iterations: int, queries: set[str]
) -> None:
    data = load_dataset("synthetic", n=2000)
    options = {"paper": True, **({"steps": iterations} if name == "sgd" else {})}
    model = DPLogisticRegression(
        epsilon, 1e-6, method=name, bounds=(0, 1), classes=(0, 1), random_state=0, solver_options=options
    ).fit(data.X, data.y)
    assert model.n_iter_ == iterations
    assert {label for label, count in model.privacy_["asked"].items() if count} == queries


def test_a_step_size_of_output_perturbation_is_shortened_to_where_its_sensitivity_holds() -> None:
    data = load_dataset("synthetic", n=400)

    def fit(**options: Any) -> np.ndarray:
        model = DPLogisticRegression(
            1e3, 1e-6, method="outpert-gd", bounds=(0, 1), classes=(0, 1), random_state=0, alpha=0.0,
            solver_options={"row_bound": 1.0, "steps": 20, **options},
        )  # fmt: skip
        return model.fit(data.X, data.y).coef_

    longest = fit()
    assert np.array_equal(fit(step_size=1e6), longest)
    assert np.linalg.norm(fit(step_size=0.01)) < 0.2 * np.linalg.norm(longest)
    with pytest.raises(InvalidParameter, match="step_size"):
        fit(step_size=-1.0)


# The page --------------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
TABLE = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs/side-by-side.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| in the paper"))
]


def assert_exists(name: str) -> None:
    """Assert that a name is a method, a figure, a data set, a setting, a parameter, or an object of the package."""
    owner, colon, setting = name.partition(": ")
    if colon and owner in METHODS:
        assert setting in {field.name for field in fields(METHODS[owner].settings)}, name
    elif colon:
        assert setting in inspect.signature(getattr(dpdescent, owner)).parameters, name
    elif name.startswith("dpdescent."):
        resolve_name(name)
    else:
        assert name in {*METHODS, *FIGURES, *(info.name for info in list_datasets())}, name


def assert_runs(command: str) -> None:
    """Assert that a command exists, and that what it is given does."""
    program, name, *arguments = shlex.split(command)
    if program == "python":
        assert (ROOT / name).is_file(), command
        return
    assert program == "dpdescent"
    if name == "reproduce":
        assert arguments in [[figure] for figure in FIGURES], command
        return
    asked = [*arguments, "--help"] if name == "fit" else arguments
    assert CliRunner().invoke(app, [name, *asked]).exit_code == 0, command
    if name == "fit":
        options = dict(zip(arguments[1::2], arguments[2::2], strict=True))
        known = CliRunner().invoke(app, ["fit", "--help"], env={"COLUMNS": "300"}).output
        assert all(option in known for option in options), command
        make_settings(options["--method"], {"paper": options.get("--set") == "paper=true"})


def test_every_name_and_command_of_the_side_by_side_page_exists() -> None:
    assert len(TABLE) == 87
    for _, here, differs, _ in TABLE:
        names = re.findall("`(.*?)`", here)
        assert names, here
        for name in (*names, *re.findall("`(.*?)`", differs)):
            assert_exists(name)
    for command in sorted({row[3].strip("`") for row in TABLE}):
        assert_runs(command)


def test_every_method_figure_and_paper_mode_is_on_the_side_by_side_page() -> None:
    named = {name for row in TABLE for name in re.findall("`(.*?)`", row[1])}
    assert set(FIGURES) <= named
    assert set(PAPER_MODES) <= named
    commands = {row[3].strip("`") for row in TABLE}
    assert {f"dpdescent reproduce {name}" for name in FIGURES if not name.endswith("-sigmoid")} <= commands


@pytest.mark.parametrize("name", sorted(METHODS))
def test_numbers_that_would_overflow_in_the_middle_of_a_run_are_refused_by_their_names(name: str) -> None:
    """Settings are made before the first charge."""
    settings = METHODS[name].settings
    for each in fields(settings):
        if "float" in str(each.type):
            for value in (1e300, -1e300, 1e-300, 5e-324):
                with pytest.raises(InvalidParameter, match=each.name):
                    settings(**{each.name: value})
