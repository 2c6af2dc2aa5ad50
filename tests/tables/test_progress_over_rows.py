"""Progress over blocks: shares alone, with the time left, and nothing that tells how many rows a block has."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pytest

from dpdescent import DPLogisticRegression
from dpdescent.estimators.arguments import budget_bar, time_left
from dpdescent.tables import MappedArrays

OPTIONS: dict[str, Any] = {"bounds": (0, 1), "classes": (0, 1), "random_state": 0, "tighten": False, "method": "agd"}


class Heard:
    def __init__(self) -> None:
        self.budget: list[float] = []
        self.rows: list[float] = []

    def __call__(self, share: float) -> None:
        self.budget.append(share)

    def over_rows(self, share: float) -> None:
        self.rows.append(share)


def test_every_pass_is_told_from_its_first_part_to_its_last() -> None:
    X = np.random.default_rng(0).random((430, 3))
    heard = Heard()
    options = OPTIONS | {"solver_options": {"splits": 3.0}, "progress": heard}
    DPLogisticRegression(**options).fit(MappedArrays(X, (X[:, 0] > 0.5).astype(int), part_rows=100))
    passes = heard.rows.count(1.0)
    assert passes >= 5  # the check before a charge, two moments, a gradient and a search
    assert sorted(heard.rows) == sorted([0.2, 0.4, 0.6, 0.8, 1.0] * passes)  # of five parts, the last of them short
    assert heard.budget == sorted(heard.budget)
    assert heard.budget[-1] == 1.0


@pytest.mark.parametrize("screen", [True, False])
def test_bars_and_lines_show_shares_and_the_time_left(screen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(said, "isatty", lambda: screen)
    monkeypatch.setattr("sys.stderr", said)
    monkeypatch.setattr("dpdescent.display.PAUSE", 0.0)
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr("dpdescent.estimators.arguments.time.monotonic", lambda: float(next(clock)))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with budget_bar() as bar:
        bar.over_rows(0.25)  # type: ignore[attr-defined]
        bar(0.5)
        bar.over_rows(0.75)  # type: ignore[attr-defined]
        if screen:
            bar._bar.refresh()  # type: ignore[attr-defined]
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.getvalue())
    assert "75% of a pass" in text
    assert re.search(r"\d+ (s|min) left", text)
    if not screen:
        assert text.splitlines()[0] == "0% of the privacy budget is spent; 25% of a pass over the rows is done"


def test_the_time_left_is_that_of_the_same_pace() -> None:
    assert time_left(100.0, 0.5) == "2 min left"
    assert time_left(90.0, 0.9) == "10 s left"
    assert time_left(3600.0, 0.1) == "9.0 h left"
    assert time_left(100.0, 0.001) == time_left(100.0, 1.0) == ""


def test_shares_of_a_pass_are_whole_percents() -> None:
    X = np.random.default_rng(0).random((70, 3))
    heard = Heard()
    options = OPTIONS | {"solver_options": {"splits": 3.0}, "progress": heard}
    DPLogisticRegression(**options).fit(MappedArrays(X, (X[:, 0] > 0.5).astype(int), part_rows=10))
    assert set(heard.rows) == {0.14, 0.28, 0.42, 0.57, 0.71, 0.85, 1.0}  # of seven parts
