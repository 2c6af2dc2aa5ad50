"""Tables of data sets: what a paper prints stands beside what is counted here, and differences are said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dpdescent import load_dataset
from dpdescent.lab.paper_figures import DataTable, Published
from dpdescent.lab.reproduction import FIGURES, reproduce


@pytest.mark.parametrize("shift", [0, 1])
def test_the_counts_of_a_data_set_agree_or_differ_to_the_last_row(tmp_path: Path, shift: int) -> None:
    data = load_dataset("synthetic")
    ones = int(np.count_nonzero(data.y == data.classes[1]))
    rows, columns = data.X.shape
    baseline = max(ones, rows - ones) / rows
    lines = (
        Published("One", "synthetic", rows + shift, columns + 1, baseline),
        Published("Two", "synthetic", rows, columns + 1 + shift),
        Published("Three", "synthetic", rows, columns + 1, baseline + 0.0006 * shift, "On purpose."),
    )
    table = DataTable("t/table1", "A table", "A caption.", lines)
    written = reproduce(table, tmp_path, json_file=tmp_path / "rows.json")
    assert [finding.found.split(":")[0] for finding in written.findings] == 3 * [["Agrees", "Differs"][shift]]
    assert written.findings[2].found.endswith("On purpose.")
    counted = json.loads((tmp_path / "rows.json").read_text())["rows"]
    expected = {"dataset": "synthetic", "rows": rows, "columns": columns + 1, "positives": ones, "baseline": baseline}
    assert counted == 3 * [expected]
    page = written.page.read_text()
    assert f"{ones:,}" in page
    assert "Not private" in page


def test_the_tables_hold_what_the_papers_print() -> None:
    two, one = FIGURES["000/table2"], FIGURES["003/table1"]
    assert isinstance(two, DataTable)
    assert isinstance(one, DataTable)
    assert [(line.rows, line.columns) for line in two.lines] == [
        *((48_842, 124), (45_211, 33), (40_000, 58), (38_000, 53), (4_898_431, 120))
    ]
    assert [line.baseline for line in one.lines[:4]] == [0.761, 0.883, 0.507, 0.513]
    assert "log(1 + x)" in two.caption
    figure = FIGURES["000/figure4"]
    assert "log(1 + x)" in " ".join(figure.details)
