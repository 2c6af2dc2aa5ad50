"""A file and an epsilon: ten messy files, none of which anybody has described."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from dpdescent import Ledger
from dpdescent.cli import main
from dpdescent.tables import Schema

ROWS = 6000
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)

    def command(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["dpdescent", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out + printed.err

    return command


def plain(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    age = generator.integers(18, 80, rows)
    job = generator.choice(["clerk", "nurse", "smith"], rows)
    score = (age - 50) / 10 + 2.0 * (job == "nurse") + generator.normal(0, 1, rows)
    return pd.DataFrame({"age": age, "job": job, "paid": np.where(score > 0.5, "yes", "no")})


def three_forms(table: pd.DataFrame) -> pd.DataFrame:
    """Add dates, each of which is written in one of three forms."""
    generator = np.random.default_rng(1)
    days = pd.Series(pd.Timestamp("2019-03-01") + pd.to_timedelta(generator.integers(0, 700, len(table)), unit="D"))
    form = generator.choice(["%d.%m.%Y", "%Y-%m-%d", "%d/%m/%Y"], len(table))
    return table.assign(since=[day.strftime(each) for day, each in zip(days, form, strict=True)])


def blanks(table: pd.DataFrame) -> pd.DataFrame:
    generator = np.random.default_rng(2)
    holes = table.astype(object)
    for name, blank in (("age", "?"), ("job", "  ")):
        holes.loc[generator.random(len(table)) < 0.15, name] = blank
    return holes


def wide(table: pd.DataFrame) -> pd.DataFrame:
    generator = np.random.default_rng(3)
    more = {f"x{number}": np.round(generator.normal(size=len(table)), 3) for number in range(200)}
    return pd.concat([table, pd.DataFrame(more)], axis=1)


def coded(table: pd.DataFrame) -> pd.DataFrame:
    codes = table["job"].map({"clerk": 3, "nurse": 1, "smith": 7})
    return table.assign(job=codes, zip=np.random.default_rng(4).integers(10_000, 99_999, len(table)))


def many_levels(table: pd.DataFrame) -> pd.DataFrame:
    towns = np.random.default_rng(5).integers(0, 5000, len(table))
    return table.assign(town=[f"town {number}" for number in towns], id=[f"A-{n:07}" for n in range(len(table))])


def odd_cells(table: pd.DataFrame) -> pd.DataFrame:
    odd = table.assign(same="x", gone="", note="word " * 40).astype(object)
    odd.loc[5, "note"] = "y" * 100_000
    odd.loc[7, "age"] = "not a number"
    odd.loc[9, "job"] = 'line\none, "two"'
    return odd


def comma(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(age=[f"{each},5" for each in table["age"]])


FILES = {
    "as it is": (plain, {}, "utf-8", 1.0),
    "semicolons and decimal commas": (lambda: comma(plain()), {"sep": ";"}, "utf-8", 1.0),
    "latin-1": (lambda: plain().assign(job=plain()["job"].replace("smith", "Bäcker")), {}, "latin-1", 1.0),
    "blanks": (lambda: blanks(plain()), {}, "utf-8", 1.0),
    "dates in three forms": (lambda: three_forms(plain()), {}, "utf-8", 1.0),
    "codes": (lambda: coded(plain()), {"sep": "\t"}, "utf-8", 1.0),
    "identifiers and 5,000 levels": (lambda: many_levels(plain()), {}, "utf-8", 1.0),
    "200 columns": (lambda: wide(plain()), {"sep": "|"}, "utf-8", 3.0),
    "odd cells": (lambda: odd_cells(plain()), {}, "utf-8", 1.0),
    "names twice": (lambda: plain().assign(again=1.5).rename(columns={"again": "age"}), {}, "utf-8-sig", 1.0),
}


@pytest.mark.parametrize("name", FILES)
def test_one_command_fits_a_messy_file(run: Run, name: str) -> None:
    made, options, coding, epsilon = FILES[name]
    table = made()
    table.to_csv("people.csv", index=False, encoding=coding, **options)
    code, text = run("fit", "people.csv", "--label", "paid", "--epsilon", epsilon, "--seed", 0, "--output", "m.json")
    assert code == 0, text
    assert run("predict", "m.json", "people.csv", "--output", "p.csv")[0] == 0
    Path("s.json").write_text(json.dumps(json.loads(Path("m.json").read_text())["schema"]))
    assert run("schema", "check", "s.json", "people.csv")[0] == 0
    predicted = pd.read_csv("p.csv")
    assert roc_auc_score(table["paid"] == "yes", predicted["probability_yes"]) > 0.85
    saved = json.loads(Path("m.json").read_text())
    assert saved["privacy"]["private"] is True
    for secret in ("A-0000", "town 1", "not a number", "yyyy", "line\\none"):
        assert secret not in Path("m.json").read_text()
        assert secret not in text


def test_a_schema_is_measured_once_and_serves_later_fits(run: Run) -> None:
    with gzip.open("people.csv.gz", "wt") as file:
        plain().to_csv(file, index=False)
    assert run("ledger", "create", "b.ledger", "--epsilon", 3, "--currency", "gdp")[0] == 0
    code, text = run(
        "schema", "people.csv.gz", "--label", "paid", "--measure", "--epsilon", 1, "--ledger", "b.ledger"
    )
    assert code == 0, text
    assert "3 levels that cover" in text
    schema = Schema.load("people.schema.json")
    assert schema.categorical[0].levels == ("clerk", "nurse", "smith")
    again, words = run(
        "fit", "people.csv.gz", "--schema", "people.schema.json", "--ledger", "b.ledger", "--output", "m"
    )
    assert again == 0, words
    privacy = json.loads(Path("m").read_text())["privacy"]
    assert not {"levels of the columns", "column histograms"} & set(privacy["spent_on"])
    assert any("the schema was measured with a budget of its own" in each for each in privacy["remarks"])
    lines = [line.entry.label for line in Ledger.open("b.ledger").history]
    assert lines == ["measured schema", "DPLogisticRegression, method auto"]


def test_a_table_is_described_in_the_terminal_and_as_a_page(run: Run) -> None:
    many_levels(plain()).assign(age=plain()["age"] + 0.5).to_csv("people.csv", index=False)
    code, text = run("describe", "people.csv", "--label", "paid", "--epsilon", 1, "--seed", 0)
    assert code == 0, text
    page = Path("people.html").read_text()
    for shown in (text, page):
        assert "nurse" in shown
        assert "town 1" not in shown
        assert "identifiers" in shown
    assert "<script" not in page
    assert Schema.load("people.schema.json").label.classes == ("no", "yes")


def test_a_look_shows_what_no_fit_can_use(run: Run) -> None:
    """It is paid for: one class alone, or no column at all, is an answer, too."""
    plain().assign(paid="yes").to_csv("one.csv", index=False)
    code, text = run("describe", "one.csv", "--label", "paid", "--epsilon", 1)
    assert code == 0, text
    assert re.search(r"job +text +0\.0% +(clerk|nurse|smith) 3\d%", text)
    assert "no schema was written: one class alone of the label 'paid' was found" in text
    assert not Path("one.schema.json").exists()
    pd.DataFrame({"gone": [""] * ROWS, "half": np.resize(["x", ""], ROWS)}).to_csv("gone.csv", index=False)
    code, text = run("describe", "gone.csv", "--epsilon", 1, "--seed", 0)
    assert code == 0, text
    assert re.search(r"gone +missing +100\.0% +ignored", text)
    Path("none.csv").write_text("a,b\n")
    code, text = run("describe", "none.csv", "--epsilon", 1)
    assert code == 1
    assert "the table has no rows" in text


def test_shares_are_of_the_cells_that_are_there(run: Run) -> None:
    """And not of the levels that are found, which are all of those that are shown."""
    table = plain().assign(code=["rare " + str(n) if n % 2 else "often" for n in range(ROWS)])
    table.to_csv("t.csv", index=False)
    code, text = run("describe", "t.csv", "--label", "paid", "--epsilon", 1, "--classes", "no,yes")
    assert code == 0, text
    assert re.search(r"code +text +0\.0% +often (49|50|51)%\n", text)
    assert re.search(r"paid +classes +0\.0% +(no|yes) 5\d%, (no|yes) [45]\d%", text)


def test_all_other_labels_are_one_class_if_a_person_says_so(run: Run) -> None:
    table = plain()
    table.loc[table.index % 500 == 0, "paid"] = "perhaps"
    table.to_csv("t.csv", index=False)
    options = ("--label", "paid", "--epsilon", 1, "--seed", 0, "--output", "m.json")
    code, text = run("fit", "t.csv", *options, "--classes", "yes,rest", "--rest", "rest")
    assert code == 0, text
    code, text = run("evaluate", "m.json", "t.csv", "--epsilon", 1)
    assert code == 0, text
    code, text = run("fit", "t.csv", *options, "--classes", "yes,no", "--rest", "rest")
    assert code == 1
    assert "--rest must be one of --classes" in text


def test_a_folder_is_measured_fitted_and_evaluated(run: Run) -> None:
    Path("people").mkdir()
    for number in range(2):
        plain(seed=number).to_parquet(f"people/{number}.parquet")
    told = ("fit", "people", "--label", "paid", "--seed", 0, "--ledger", "b.ledger", "--output", "m.json")
    assert run("ledger", "create", "b.ledger", "--epsilon", 1, "--delta", 1e-6, "--currency", "gdp")[0] == 0
    for wrong, said in ((("--unit", "job"), "UnsupportedSource"), (("--classes", "no,maybe"), "UnknownLevel")):
        code, text = run(*told, *wrong)
        assert (code, said in text, Ledger.open("b.ledger").entries) == (1, True, ()), text
    code, text = run(*told)
    assert code == 0, text
    saved = json.loads(Path("m.json").read_text())
    assert {"types of cells", "classes of the label", "levels of the columns"} < set(saved["privacy"]["spent_on"])
    assert any(each.startswith("column 'job': text, 3 levels") for each in saved["privacy"]["remarks"])
    assert len(Ledger.open("b.ledger").history) == 1
    assert run("predict", "m.json", "people/0.parquet", "--output", "p.csv")[0] == 0
    assert roc_auc_score(plain()["paid"] == "yes", pd.read_csv("p.csv")["probability_yes"]) > 0.85
    code, text = run("evaluate", "m.json", "people", "--epsilon", 1, "--json", "worth.json")
    assert code == 0, text
    assert json.loads(Path("worth.json").read_text())["privacy"]["epsilon"] == 1


def test_what_a_draft_says_is_not_measured(run: Run) -> None:
    plain().assign(more=range(ROWS)).to_csv("people.csv", index=False)
    assert run("schema", "people.csv", "--label", "paid", "--output", "draft.json")[0] == 0
    draft = json.loads(Path("draft.json").read_text())
    draft["columns"]["age"] = {"type": "numeric", "low": 0, "high": 120}
    draft["columns"]["more"] = {"type": "ignore"}
    draft["label"]["classes"] = ["no", "yes"]
    Path("draft.json").write_text(json.dumps(draft))
    options = ("--label", "paid", "--measure", "--epsilon", 1, "--declared", "draft.json", "--output", "s.json")
    code, text = run("schema", "people.csv", *options)
    assert code == 0, text
    found = Schema.load("s.json")
    assert (found.numeric[0].bounds, found.numeric[0].missing) == ((0, 120), "midpoint")
    assert found.categorical[0].levels == ("clerk", "nurse", "smith")
    assert (found.label.classes, found.features) == (("no", "yes"), ("age", "job"))
    assert list(found.measured["columns"]) == ["job"]
    assert "declared: what age, more contain (argument)" in found.measured["statement"]["assumed_public"]
    draft["columns"]["age"]["low"] = "young"
    Path("draft.json").write_text(json.dumps(draft))
    code, text = run("schema", "people.csv", *options, "--force")
    assert code == 1
    assert "columns.age.low: must be a finite number" in text


def test_a_label_is_not_needed_to_look(run: Run) -> None:
    plain().to_csv("people.csv", index=False)
    code, text = run("describe", "people.csv", "--epsilon", 1)
    assert code == 0, text
    assert "yes 4" in text or "yes 5" in text
    assert not Path("people.schema.json").exists()


REFUSED = [
    (("--epsilon", 0.05), "InvalidParameter: .*effective rows"),
    (("--label", "income"), "MissingColumn: the label column 'income'"),
    (("--schema", "s.json"), "InvalidParameter: --label is for a table without a schema"),
    (("--bounds", "0,1"), "InvalidParameter: --bounds does not go with --label"),
    (("--method", "nonprivate"), "InvalidParameter: .*not private"),
    (("--unit", "nobody"), "MissingColumn: unit names the column 'nobody'"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_does_not_fit_is_refused_and_nothing_is_charged(run: Run, words: tuple, message: str) -> None:
    plain(800).to_csv("people.csv", index=False)
    assert run("ledger", "create", "b.ledger", "--epsilon", 3, "--currency", "gdp")[0] == 0
    asked = ["fit", "people.csv", "--label", "paid", "--epsilon", 3, "--ledger", "b.ledger", "--output", "m.json"]
    code, text = run(*asked, *words)
    assert code != 0
    assert re.search(message, " ".join(text.split())), text
    assert "nurse" not in text
    assert "0%" in run("ledger", "show", "b.ledger")[1]
    assert not Path("m.json").exists()


def test_bytes_that_are_no_text_and_labels_that_are_no_numbers_are_named(run: Run) -> None:
    Path("noise.csv").write_bytes(bytes(np.random.default_rng(0).integers(0, 256, 5000, dtype=np.uint8)))
    asked = ("--epsilon", 1, "--output", "m.json")
    assert "has bytes that are no text" in run("fit", "noise.csv", "--label", "y", *asked)[1]
    comma(plain(500)).to_csv("people.csv", index=False, sep=";")
    text = run("fit", "people.csv", "--label", "age", "--model", "regression", *asked)[1]
    assert "or no numbers with a decimal point" in text
    assert not Path("m.json").exists()


def test_one_class_is_named(run: Run) -> None:
    plain().assign(paid="secret").to_csv("people.csv", index=False)
    code, text = run("fit", "people.csv", "--label", "paid", "--epsilon", 1, "--output", "m.json")
    assert code != 0
    assert "OneClass" in text
    assert "secret" not in text
