"""Tables of bounds on the excess risk: prescriptions by hand, known minimisers, and pages of what is measured."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdescent import InvalidParameter
from dpdescent.accounting import gaussian_tail_constant
from dpdescent.lab.output_perturbation_paper import RISK_TABLES, risk_runs
from dpdescent.lab.output_perturbation_paper.risk_pages import risk_findings, slopes_of, summaries_of
from dpdescent.lab.output_perturbation_paper.risk_problems import (
    CONVEX,
    SMOOTH_CONVEX,
    SMOOTH_STRONG,
    STRONG,
    Groups,
    LongestRow,
)
from dpdescent.lab.output_perturbation_paper.risk_runs import Measured, Point, RiskRuns
from dpdescent.lab.output_perturbation_paper.theorems import (
    Constants,
    exponential_bound,
    lower_bound,
    prescription,
    tilted_prescription,
)
from dpdescent.lab.reproduction import FIGURES, reproduce
from dpdescent.lab.verdicts import Sample
from dpdescent.long_runs import Journal

TABLES = {table.name[-1]: table for table in RISK_TABLES}


def test_prescriptions_have_the_values_of_the_theorems() -> None:
    """By hand for L = 2, R = 3, d = 4, epsilon = 1/2, mu = 1/2, beta = 5: x = 8/n, and n = 1000 or none."""
    mean = Constants(2.0, 3.0, 4, 0.5, rows=1000)
    alone = Constants(2.0, 3.0, 4, 400.0)  # x = 0.01
    strong: dict[str, Any] = {"strong_convexity": 0.5}
    smooth: dict[str, Any] = {"smoothness": 5.0}
    unit = (5 * 4 * 81) ** (1 / 3)
    cases = [
        (replace(mean, **strong), False, 9 * 8 * 0.008, 8e-6, "sgd", 2 * 4 / (0.5 * 8e-6)),
        (replace(mean, **strong), True, 9 * 8 * 0.008 + 0.04, 8e-6, "sgd", 2 * 4 / (0.5 * 8e-6)),
        (replace(alone, **strong), False, 9 * 8 * 0.01, 0.08, "subgradient", 200),
        (replace(mean, **strong, **smooth), False, 26 * 10 * 8 * 0.008**2, 8e-6, "katyusha", None),
        (replace(mean, **strong, **smooth), True, 26 * 10 * 8 * 0.008**2 + 0.04, 8e-6, "katyusha", None),
        (
            replace(alone, **strong, **smooth),
            False,
            26 * 10 * 8 * 1e-4,
            8 * 10 * 1e-4,
            "agd",
            math.sqrt(10) * math.log(45 / 0.008),
        ),
        (mean, False, 49 * 6 * 0.008**0.5, 6 * 0.008**1.5 / 81, "sgd", None),
        (mean, True, 32 * 6 * (0.008**0.5 + 1000**-0.5), 6 * 0.008**1.5 / 81, "sgd", None),
        (alone, False, 49 * 6 * 0.1, 6e-3, "subgradient", None),
        (replace(mean, **smooth), False, 65 * unit * 0.04, 36 / (unit * 0.04 * 1e6), "katyusha", None),
        (replace(mean, **smooth), True, 128 * unit * (0.04 + 1000**-0.5), 36 / (unit * 0.04 * 1e6), "katyusha", None),
        (replace(alone, **smooth), False, 65 * unit * 0.01 ** (2 / 3), None, "agd", None),
    ]
    for constants, population, bound, accuracy, method, evaluations in cases:
        found = prescription(constants, population=population)
        assert found.bound == pytest.approx(bound, rel=1e-12), found.source
        assert found.method == method
        assert accuracy is None or found.accuracy == pytest.approx(accuracy, rel=1e-12), found.source
        assert evaluations is None or found.evaluations == pytest.approx(evaluations, rel=1e-9, abs=1)
        assert (found.regularisation > 0) == (constants.strong_convexity == 0)
    # 2 (L + lambda R)^2/(lambda alpha) steps, lambda = L/(R sqrt(1 + 1/x)): no more than the 12/x^2 of Corollary 3.5.
    added = 2 / 3 / math.sqrt(101)
    steps = prescription(alone).evaluations
    assert steps == math.ceil(2 * (2 + 3 * added) ** 2 / (added * 6e-3)) <= 12e4


def test_gaussian_noise_has_the_factors_of_the_paper() -> None:
    constant = gaussian_tail_constant(1e-6)
    known = Constants(2.0, 3.0, 4, 0.5, 1e-6, 1000, 0.5)
    x = 2 * (constant + math.sqrt(constant**2 + 0.5)) / 500
    assert known.price == pytest.approx(x)
    assert prescription(known).bound == pytest.approx(6 * 8 * x)
    assert prescription(replace(known, smoothness=5.0)).bound == pytest.approx(13.5 * 80 * x**2)
    convex = replace(known, strong_convexity=0.0)
    assert prescription(convex).bound == pytest.approx(25 * 6 * math.sqrt(x))
    assert prescription(replace(convex, smoothness=5.0)).bound == pytest.approx(
        127 * (5 * 4 * 81) ** (1 / 3) * x ** (2 / 3)
    )
    assert lower_bound(known) == pytest.approx(6 * (2 / 500) ** 2)


def test_tilted_and_exponential_bounds_and_lower_bounds() -> None:
    known = Constants(2.0, 3.0, 4, 0.5, rows=1000, strong_convexity=0.5)
    factor = math.exp(0.5 * 2.0)
    tilted = tilted_prescription(known, 0.5, 2.0)
    assert tilted.bound == pytest.approx(9 * 8 * factor * 0.008)
    assert tilted.accuracy == pytest.approx(8 * factor / 1000 * factor / 1000)
    smooth = tilted_prescription(replace(known, smoothness=5.0), 0.5, 2.0)
    assert smooth.bound == pytest.approx(26 * 14 * 8 * (factor * 0.008) ** 2)
    # A tilt of nothing is the mean loss.
    plain = replace(known, smoothness=5.0)
    assert tilted_prescription(plain, 0.0, 2.0).bound == pytest.approx(prescription(plain).bound)
    assert exponential_bound(replace(known, strong_convexity=0.0)) == pytest.approx(6 * 0.008)
    assert exponential_bound(known) == pytest.approx(8 * 0.008**2 * math.log(500**2 * 0.5 * 3 / 8))
    assert lower_bound(known) == pytest.approx(6 * 0.008**2)
    assert lower_bound(known, population=True) == pytest.approx(6 * 0.008**2 + 8 / 1000)
    assert lower_bound(replace(known, strong_convexity=0.0)) == pytest.approx(6 * 0.008)
    for wrong in (
        lambda: prescription(replace(known, rows=None), population=True),
        lambda: tilted_prescription(replace(known, rows=None), 0.5, 2.0),
    ):
        with pytest.raises(InvalidParameter, match="rows"):
            wrong()


@pytest.mark.parametrize("kind", [STRONG, SMOOTH_STRONG, CONVEX, SMOOTH_CONVEX])
def test_no_other_point_has_a_lower_risk_than_the_known_minimiser(kind: str) -> None:
    generator = np.random.default_rng(1)
    problems: list[Any] = [Groups(kind, 300, 3, 5), LongestRow(kind, 3, 5)]
    if kind == SMOOTH_STRONG:
        problems.append(Groups(kind, 300, 3, 5, tilted=True))
    for problem in problems:
        lowest, tilted = math.inf, getattr(problem, "tilted", False)
        for _ in range(10 if tilted else 300):
            direction = generator.normal(size=3)
            weights = direction * problem.radius * generator.random() / np.linalg.norm(direction)
            excess = np.atleast_1d(problem.excess(weights))
            assert (excess > -1e-9).all()
            lowest = min(lowest, float(excess.min()))
            # The loss of a row changes by at most L times the distance, and the penalty is counted in L.
            assert excess.max() <= problem.constants(1.0, 0.0).lipschitz * (np.linalg.norm(weights) + problem.radius)
        assert tilted or lowest < 0.1 * problem.constants(1.0, 0.0).trivial


def test_the_value_of_groups_is_the_mean_over_their_rows() -> None:
    for kind in (STRONG, SMOOTH_CONVEX):
        problem = Groups(kind, 200, 3, 0)
        rows, labels = problem.table
        weights = np.array([0.3, -0.8, 1.4])
        mean = float(problem.loss.values(rows @ weights, labels).mean())
        shares = np.stack([rows[labels > 0].sum(axis=0), rows[labels < 0].sum(axis=0)]) / 200
        assert problem.value(weights, shares) == pytest.approx(
            mean + problem.strong_convexity / 2 * weights @ weights
        )
        assert np.linalg.norm(problem.minimiser(shares)) <= problem.radius


def test_a_function_of_the_longest_row_has_its_gradient() -> None:
    for kind in (STRONG, SMOOTH_STRONG, CONVEX, SMOOTH_CONVEX):
        tally = [0]
        objective = LongestRow(kind, 3, 2).objective(0.3, tally)
        weights, step = np.array([0.4, -0.2, 0.5]), 1e-6
        gradient = objective.value_and_gradient(weights)[1]
        for axis in np.eye(3):
            ends = [objective.value_and_gradient(weights + sign * step * axis)[0] for sign in (1, -1)]
            assert gradient @ axis == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6)
        assert tally == [7]


def test_every_table_has_the_rows_of_the_paper() -> None:
    assert [name for name in FIGURES if name.startswith("001/")] == [f"001/table{k}" for k in range(1, 7)]
    references = {name: [row.reference for row in table.rows if not row.timed_only] for name, table in TABLES.items()}
    assert references["1"] == [
        "Proposition G.2",
        "Corollary 3.1",
        "Corollary 3.3",
        "Theorem G.1",
        "Corollary 3.5",
        "Corollary 3.7",
        "Theorem 5.1",
        "Theorem 5.2",
    ]
    assert references["2"] == [name for name in references["1"] if "G." not in name]
    assert [r for r in references["4"] if r != "lower bound"][-1] == "Corollary 4.2"
    assert references["6"][:2] == ["Kifer et al. 2012", "Bassily et al. 2014"]
    for table in RISK_TABLES:
        runs = RiskRuns(table, False)
        for row in table.rows:
            for point in runs.points(row):
                bound = row.bound(risk_runs.public_constants(table, row, point))
                assert 0 < bound < math.inf
                if row.ours and not row.tilted:
                    assert risk_runs.prescribed_for(table, row, point).source == row.reference


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a small table of two classes, twice where it was stopped."""
    folder = tmp_path_factory.mktemp("risk")
    table = TABLES["5"]
    rows = tuple(
        row for row in table.rows if row.reference in ("Corollary 3.2", "Chaudhuri et al. 2011", "lower bound")
    )
    small = replace(table, rows=(*rows[:3], rows[-1]), sizes=(60, 120, 240), dimensions=(1, 2, 3), quick_seeds=2)
    stem = folder / "001-table5.html"
    with Journal(stem, RiskRuns(small, False).fingerprint, Measured) as journal:
        first = next(iter(RiskRuns(small, False)))
        journal.add(
            json.dumps([first.row, *first.point, first.seed]),
            replace(first, empirical=77.0, evaluations=1, seconds=0.1),
        )
    heard: list[tuple[int, int]] = []
    written = reproduce(
        small, folder, json_file=folder / "rows.json", jobs=1, listener=lambda *done: heard.append(done)
    )
    assert heard[0] == (1, heard[-1][1])
    assert heard[-1][0] == heard[-1][1]
    assert written.page == stem
    assert not list(folder.glob("*.journal"))
    return folder


def test_a_run_goes_on_and_its_page_holds_bound_risk_and_time(page: Path) -> None:
    content = json.loads((page / "rows.json").read_text())
    assert content["figure"] == "001/table5"
    rows = content["rows"]
    assert [row["empirical"] for row in rows].count(77.0) == 1  # what was there already is not measured again
    assert all(row["spent_epsilon"] <= row["epsilon"] * (1 + 1e-9) for row in rows if row["spent_epsilon"])
    assert all(row["evaluations"] > row["rows"] for row in rows if row["empirical"] != 77.0)
    html = (page / "001-table5.html").read_text()
    for text in ("Excess risk, in the middle", "Running time, in the middle", "Slopes of the logarithm", "9 L²x/μ"):
        assert text in html
    assert (page / "001-table5.png").stat().st_size > 10_000


def test_findings_tell_broken_bounds_and_wrong_slopes() -> None:
    table = replace(TABLES["6"], rows=tuple(row for row in TABLES["6"].rows if row.reference == "Corollary 3.4"))
    runs = RiskRuns(table, True)
    row = table.rows[0]

    def samples(share: float, slope: float) -> dict[tuple[int, Point], dict[str, Sample]]:
        found = {}
        for point in runs.points(row):
            mean = share * risk_runs.prescribed_for(table, row, point).bound * (point.rows / 4000) ** slope
            values = {(0, seed): (0.99 if seed % 2 else 1.01) * mean for seed in range(40)}
            found[0, point] = {"empirical": Sample.of(values)}
        return found

    fine = risk_findings(runs, samples(0.1, -0.2))
    assert [finding.found.split(":")[0] for finding in fine] == ["Agrees", "Agrees"]
    broken = risk_findings(runs, samples(1.2, 0.0))
    assert broken[0].found.startswith("Differs")
    slow = risk_findings(runs, samples(0.1, 0.5))
    assert slow[1].found.startswith("Differs")
    assert "in n: -1.50" in slow[1].found
    slope = slopes_of(runs, summaries_of(runs, samples(0.1, 0.5)), 0)["rows"]
    assert slope[:2] == pytest.approx((-2.0, -1.5))
    assert slope[2] == pytest.approx(0.01 / math.sqrt(39) * math.sqrt(2) / math.log(16), rel=1e-6)


def test_data_sets_and_unknown_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="synthetic"):
        reproduce(TABLES["1"], tmp_path, datasets=("adult",))
    assert Point(0, 2, 1.0) in RiskRuns(replace(TABLES["1"], general_epsilons=(0.5, 1.0, 2.0)), False).points(
        TABLES["1"].rows[1]
    )


def test_points_are_drawn_within_their_budget_and_near_the_minimiser_of_a_kink() -> None:
    """With 4,000 rows at epsilon 64 the finest cell of the minimiser is drawn but for a chance below 1e-9."""
    table = TABLES["5"]
    row = next(each for each in table.rows if each.method == "drawn")
    for dimension in (2, 4, 8):
        found = risk_runs._measure((table, Measured(table.rows.index(row), 4000, dimension, 64.0, 0)))
        assert found.error == ""
        assert found.spent_epsilon is not None
        assert 64 * (1 - 1e-9) < found.spent_epsilon <= 64
        assert found.empirical is not None
        assert 0 <= found.empirical < 2e-3


def test_tables_of_gaussian_noise_have_that_of_the_paper() -> None:
    """Equation (5) has more noise than the exact mechanism, so a ledger has epsilon left; pure noise leaves none."""
    for number, dimension in (("2", 2), ("6", 4)):
        table = TABLES[number]
        place = next(k for k, row in enumerate(table.rows) if row.method == "outpert" and not row.tilted)
        point = RiskRuns(table, True).points(table.rows[place])[0]
        found = risk_runs._measure((table, Measured(place, *point, 0)))
        assert found.spent_epsilon is not None
        assert 0.7 * point.epsilon < found.spent_epsilon < 0.99 * point.epsilon
        assert point.dimension == dimension
    place = next(k for k, row in enumerate(TABLES["5"].rows) if row.method == "outpert-gd")
    found = risk_runs._measure((TABLES["5"], Measured(place, 1000, 2, 1.0, 0)))
    assert found.spent_epsilon == 1.0
