"""The code of CONTRIBUTING.md does what the page says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdescent import BudgetExhausted, DPLogisticRegression, Ledger, load_dataset
from dpdescent.accounting import Gaussian
from dpdescent.curator import ArraySource, Curator
from dpdescent.errors import UnsupportedLoss
from dpdescent.exact import FeatureGrid
from dpdescent.problems import Hinge, LinearProblem, Logistic
from dpdescent.queries import QUERIES
from dpdescent.solvers import METHODS

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)

SOLVER = next(block for block in BLOCKS if "@method(" in block)


@pytest.fixture(scope="module")
def page() -> Iterator[dict[str, Any]]:
    """Run the blocks in order, as one program; what they register goes away again."""
    registered = dict(QUERIES), dict(METHODS)
    names: dict[str, Any] = {"__name__": "contributing"}
    for block in BLOCKS:
        exec(compile(block, str(PAGE), "exec", flags=0, dont_inherit=True), names)
    yield names
    for registry, before in zip((QUERIES, METHODS), registered, strict=True):
        registry.clear()
        registry.update(before)


def curator(epsilon: float) -> Curator:
    grid = FeatureGrid(1.0, 2)
    rows = grid.place(np.column_stack([np.linspace(-1, 1, 400), np.ones(400)]))
    ledger = Ledger(epsilon, 1e-6, currency="gdp")
    return Curator(ArraySource(rows, np.ones(400), grid), LinearProblem(Logistic(), grid), ledger, 400)


def test_a_query_is_registered_charged_and_answered(page: dict[str, Any]) -> None:
    assert QUERIES["RowsAbove"] is page["RowsAbove"]
    asked = curator(1e9)
    assert asked.answer(page["RowsAbove"](0.25, Gaussian(1e-3))) == pytest.approx(150, abs=0.01)
    assert [(entry.label, entry.cost) for entry in asked.ledger.entries] == [("rows above", Gaussian(1e-3))]
    poor = curator(0.1)
    with pytest.raises(BudgetExhausted):
        poor.answer(page["RowsAbove"](0.25, Gaussian(1e-3)))
    assert not poor.ledger.entries


@pytest.mark.usefixtures("page")
def test_a_solver_is_a_method_of_the_estimators() -> None:
    data = load_dataset("synthetic", n=4000)
    model = DPLogisticRegression(
        1.0, 1e-6, method="plain-descent", bounds=data.bounds, classes=data.classes, random_state=0
    )
    assert model.fit(data.X, data.y).score(data.X, data.y) > 0.7
    assert 0.99 < model.privacy_["spent"] / model.privacy_["budget"] <= 1
    with pytest.raises(UnsupportedLoss, match="plain-descent"):
        METHODS["plain-descent"].require(Hinge())


def test_a_loss_is_minimised_by_a_method_whose_needs_it_meets(page: dict[str, Any]) -> None:
    np.testing.assert_allclose(page["found"], [0.5, -0.25, 0.1], atol=0.05)
    np.testing.assert_allclose([*page["model"].coef_, page["model"].intercept_], [50, -25, 10], atol=5)
    assert "loss: LogCosh() (argument)" in page["model"].privacy_["assumed_public"]
    assert page["curator"].ledger.spent <= page["curator"].ledger.budget
    margins, labels = np.linspace(-3, 3, 61), np.full(61, 0.3)
    loss, step = page["LogCosh"](), 1e-5
    slopes = (loss.values(margins + step, labels) - loss.values(margins - step, labels)) / (2 * step)
    np.testing.assert_allclose(loss.residuals(margins, labels), slopes, atol=1e-6)


def test_the_file_of_a_solver_passes_the_linter(tmp_path: Path) -> None:
    ruff = pytest.importorskip("ruff", reason="the linter is installed with the tools of development")
    file = tmp_path / "plain_descent.py"
    file.write_text(f'"""A solver."""\n\n{SOLVER}')
    for command in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        run = [ruff.find_ruff_bin(), *command, "--config", str(PAGE.parent / "pyproject.toml"), str(file)]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_settings_class_that_lacks_something_fails_the_type_check(tmp_path: Path) -> None:
    mypy = pytest.importorskip("mypy.api")
    whole = SOLVER
    lacking = whole.replace('    def choose_currency(self, facts: Facts) -> str:\n        return "gdp"\n', "")
    assert lacking != whole
    for text, complaint in ((whole, ""), (lacking, "Only concrete class can be given")):
        file = tmp_path / "method.py"
        file.write_text(text)
        cache = PAGE.parent / ".mypy_cache" / "contributing"  # `make types` has other options, and would begin anew
        said, _, _ = mypy.run(["--strict", "--cache-dir", str(cache), "--config-file", "", str(file)])
        errors = [line for line in said.splitlines() if line.startswith(str(file)) and "error:" in line]
        assert [complaint in line for line in errors] == ([True] if complaint else [])
