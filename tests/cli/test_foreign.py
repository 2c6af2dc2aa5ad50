"""Names of others are shown and never obeyed: by a terminal, the markup of rich, a spreadsheet or a browser."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from typer.testing import CliRunner

import dpdescent
from browser import CHROMIUM, needs_browser
from dpdescent import DPAdditiveClassifier, DPLogisticRegression, Gaussian, Ledger, PrivacyStatement
from dpdescent.cli import app, main
from dpdescent.cli.terminal import write_text
from dpdescent.display import CONTENT_POLICY, occasional, printable, safe_cell
from dpdescent.estimators.saved_models import SavedModel
from dpdescent.lab.report_page import Report, render
from dpdescent.statement import page_of, text_of
from dpdescent.tables import CategoricalColumn, Label, NumericColumn, Schema

# A sequence of colours, a bell, a carriage return, a second line, text from right to left, a C1 sequence, markup.
HOSTILE = "a\x1b[31mb\x07c\rd\ne\u202ef\x9b1mg[red]h:smile:"
SHOWN = r"a\x1b[31mb\x07c\rd\ne\u202ef\x9b1mg[red]h:smile:"

Run = Callable[..., tuple[int, str]]


def dangers(text: str) -> list[str]:
    """Return the characters that a terminal would obey, other than ends of lines."""
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return [each for each in text if each != "\n" and unicodedata.category(each) in kinds]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command line in an empty folder, and holds what it prints to the law."""
    monkeypatch.chdir(tmp_path)

    def command(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["dpdescent", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        text = printed.out + printed.err
        assert dangers(text) == []
        assert not any(line.startswith("e\\u202e") for line in text.split("\n")), "a line of its own"
        return int(ended.value.code or 0), text

    return command


def hostile_table(rows: int = 300) -> tuple[pd.DataFrame, Schema]:
    generator = np.random.default_rng(0)
    number, kind = generator.random(rows), generator.integers(0, 2, rows)
    label = (number + generator.normal(0, 0.1, rows) > 0.5).astype(int)
    names = np.array([f"={HOSTILE}", f"no {HOSTILE}"])
    frame = pd.DataFrame(
        {HOSTILE: number, f"kind {HOSTILE}": names[kind], f"label {HOSTILE}": names[label], f"id {HOSTILE}": names[0]}
    )
    columns = (NumericColumn(HOSTILE, 0, 1), CategoricalColumn(f"kind {HOSTILE}", tuple(names)))
    return frame, Schema(columns, Label(f"label {HOSTILE}", tuple(names)))


def saved_model(path: Path, **changes: Any) -> Path:
    X = np.random.default_rng(0).random((4000, 2))
    y = (X[:, 0] > 0.5).astype(int)
    fitted = DPLogisticRegression(1.0, bounds=(0, 1), classes=(0, 1), random_state=0).fit(X, y)
    said = fitted.privacy_ | {
        "remarks": [HOSTILE],
        "assumed_public": [f"public {HOSTILE}"],
        "model": f"model {HOSTILE}",
        "randomness": f"random {HOSTILE}",
        "fingerprint": f"print {HOSTILE}",
    }
    saved = SavedModel.from_estimator(fitted, [f"feature {HOSTILE}", "b"])
    known = {"coefficients": [[9.0, 0.0]], "intercepts": [-4.5]}
    replace(saved, **known | {"privacy": said, "classes": ["=1+1", HOSTILE]} | changes).save(path)
    return path


@given(st.text())
def test_printable_text_has_nothing_to_obey_and_stays_as_it_is(text: str) -> None:
    shown = printable(text)
    assert dangers(shown.replace("\u200c", "").replace("\u200d", "")) == []
    assert "\n" not in shown
    assert printable(shown) == shown
    assert printable(text, keep="\n").count("\n") == text.count("\n")


def test_ordinary_text_is_not_changed_and_others_are_spelt_as_python_spells_them() -> None:
    for text in ("income [0, 1] 'x' \\n", "Größe, 収入, ثروة, \u00a0½ ± █ 👩\u200d🔬", ""):
        assert printable(text) == text
    assert printable(HOSTILE) == SHOWN
    for character in ("\x00", "\x7f", "\x85", "\u2028", "\u2066", "\ufeff", "\udcff", "\U000e0041"):
        assert printable(character) == repr(character)[1:-1]


def test_a_table_is_drafted_checked_fitted_explained_and_predicted_without_a_name_being_obeyed(run: Run) -> None:
    frame, schema = hostile_table()
    folder = Path(f"folder {HOSTILE}")
    folder.mkdir()
    table, described, model = folder / "t.parquet", folder / "s.json", folder / "m.json"
    frame.to_parquet(table)
    code, text = run("schema", table, "--label", f"label {HOSTILE}", "--output", folder / "draft.json")
    assert code == 0
    assert SHOWN in text
    schema.dump(described)
    code, text = run("schema", "check", described, table)
    assert code == 0
    assert f"not declared, and so not used: id {SHOWN}" in text
    code, text = run("fit", table, "--schema", described, "--output", model, "--seed", 0)
    assert code == 0
    assert f"model written to folder {SHOWN}/m.json" in text
    code, text = run("explain", model, "--html", folder / "page.html")
    assert code == 0
    assert f"page written to folder {SHOWN}/page.html" in text
    code, text = run("predict", model, table, "--output", folder / "out.csv", "--keep", f"id {HOSTILE}")
    assert code == 0
    assert SHOWN in text
    code, text = run("predict", model, table, "--keep", "absent\x1b[31m")
    assert code == 1
    assert r"absent\x1b[31m" in text


def test_a_model_of_somebody_else_is_explained_without_a_word_of_it_being_obeyed(run: Run, tmp_path: Path) -> None:
    code, text = run("explain", saved_model(tmp_path / "m.json"), "--html", tmp_path / f"{HOSTILE}.html")
    assert code == 0
    for words in (
        f"  {SHOWN}",
        f"  feature {SHOWN}",
        f"  public {SHOWN}",
        f"model {SHOWN}, method",
        f"random {SHOWN}",
        f"print {SHOWN}",
    ):
        assert words in text
    assert f"page written to {tmp_path}/{SHOWN}.html" in text


def test_lines_and_pages_of_a_statement_hold_nothing_to_obey(tmp_path: Path) -> None:
    statement = PrivacyStatement.from_dict(SavedModel.load(saved_model(tmp_path / "m.json")).privacy)
    assert dangers("\n".join(text_of(statement))) == []
    assert not any("\n" in line for line in text_of(statement))
    assert dangers(page_of(statement)) == []


def test_entries_of_a_ledger_are_listed_without_being_obeyed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / f"ledger {HOSTILE}"
    code, text = run("ledger", "create", path, "--unit", HOSTILE)
    assert code == 0
    assert f"for {SHOWN}" in text
    account = Ledger.open(path, model=f"model {HOSTILE}")
    account.spend(Gaussian(30.0), f"asked {HOSTILE}")
    for command in ("show", "history", "verify", "export"):
        code, text = run("ledger", command, path)
        assert code == 0
        assert command == "show" or "asked a" in text or f"ledger {SHOWN} is whole" in text
    code, text = run("ledger", "history", path)
    assert f"asked {SHOWN}: " in text
    code, text = run("ledger", "create", path)
    assert code == 1
    assert SHOWN in text


@pytest.mark.parametrize(
    "words",
    [
        ["fit", f"{HOSTILE}.csv", "--output", "m.json"],
        ["fit", f"{HOSTILE}.npz", "--classes", "0,1", "--output", "m.json"],
        ["fit", "synthetic", "--output", "m.json", "--method", HOSTILE],
        ["fit", "synthetic", "--output", "m.json", "--model", HOSTILE],
        ["fit", "synthetic", "--output", "m.json", "--set", f"{HOSTILE}=1"],
        ["fit", "synthetic", "--output", "m.json", "--ledger", HOSTILE],
        ["fit", "synthetic", f"--{HOSTILE}"],
        ["predict", f"{HOSTILE}.json", "synthetic"],
        ["explain", f"{HOSTILE}.json"],
        ["schema", f"{HOSTILE}.csv", "--label", "y"],
        ["schema", "check", f"{HOSTILE}.json"],
        ["ledger", "show", HOSTILE],
        ["ledger", "import", HOSTILE, "new.ledger"],
        ["compare", "--data", HOSTILE],
        ["reproduce", HOSTILE],
        ["audit", HOSTILE],
        ["methods", HOSTILE],
        ["demo", "--dataset", HOSTILE],
        ["demo", "--picture", HOSTILE],
        [HOSTILE],
    ],
    ids=lambda words: "-".join(words[:2]) if words[0] != HOSTILE else "command",
)
def test_a_refusal_shows_what_was_typed_in_one_line(run: Run, words: list[str]) -> None:
    code, text = run(*words)
    assert code in (1, 2)
    assert sum(bool(line) for line in text.split("\n")) == 1 + (words[:2] == ["schema", "check"])
    assert r"\x1b[31m" in text
    assert "[red]h" in text


def test_bytes_of_a_file_name_that_are_no_text_are_shown(run: Run) -> None:
    assert run("explain", "m\udcff.json")[1].count(r"m\udcff.json") == 1


def test_data_sets_are_listed_without_their_names_being_obeyed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpdescent import datasets

    info = replace(datasets.list_datasets()[0], name=HOSTILE)
    monkeypatch.setattr(datasets, "list_datasets", lambda: [info])
    monkeypatch.setenv("COLUMNS", "400")
    assert SHOWN in run("datasets")[1]


def test_a_comparison_shows_the_name_of_a_file_without_obeying_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    frame, schema = hostile_table(60)
    frame.to_parquet(f"{HOSTILE}.parquet")
    schema.dump("s.json")
    monkeypatch.setenv("COLUMNS", "400")
    words = ("--methods", "outpert", "--epsilon", "1", "--folds", "2", "--jobs", "1")
    code, text = run("compare", "--data", f"{HOSTILE}.parquet", "--schema", "s.json", *words)
    assert code == 0
    assert f"{SHOWN}.parquet, logistic" in text


def test_predictions_reach_another_program_as_they_are_and_a_terminal_spelt_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "x.npz", X=[[0.1, 0.5], [0.9, 0.5]])
    model = saved_model(tmp_path / "m.json")
    piped = CliRunner().invoke(app, ["predict", str(model), str(tmp_path / "x.npz")], catch_exceptions=False)
    assert pd.read_csv(io.BytesIO(piped.stdout_bytes))["prediction"].tolist() == ["=1+1", HOSTILE]

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    write_text(f"prediction\n{HOSTILE}\n")
    assert dangers(screen.getvalue()) == []
    assert screen.getvalue().count("\n") == 3


def test_signs_of_life_are_spelt_out(capsys: pytest.CaptureFixture[str]) -> None:
    occasional(pause=0.0)(HOSTILE)
    assert capsys.readouterr().err == f"{SHOWN}\n"


def test_commands_print_through_the_one_door() -> None:
    """A new command cannot print by another way, which would obey names again."""
    for path in (Path(dpdescent.__file__).parent / "cli").glob("*.py"):
        source = path.read_text()
        called = {ast.unparse(each.func) for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Call)}
        allowed = {"terminal.py": {"sys.stdout.write"}, "commands.py": {"typer.echo", "sys.stderr.write"}}
        ways = {"print", "Console", "typer.echo", "typer.secho", "sys.stdout.write", "sys.stderr.write"}
        assert called & ways <= allowed.get(path.name, set()), path.name


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-cmd", "@sum", " =1", "\t1", "\rx", "\n", "\uff1d1", "-1-1", "+"])
def test_a_formula_gets_an_apostrophe(text: str) -> None:
    assert safe_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "yes", "-1", "+2.5e-3", "-7.", "a=b", " x", "'=1"])
def test_other_cells_are_left_alone(text: str) -> None:
    assert safe_cell(text) == text


def test_predictions_in_csv_are_made_safe_for_spreadsheets_on_request(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=[[0.1, 0.5], [0.9, 0.5]])
    words = ("predict", saved_model(tmp_path / "m.json", classes=["=1+1", "-5"]), tmp_path / "x.npz")
    plain, safe = run(*words)[1], run(*words, "--safe-csv")[1]
    assert [line.split(",")[0] for line in plain.splitlines()] == ["prediction", "=1+1", "-5"]
    assert safe == plain.replace("\n=1+1", "\n'=1+1")
    assert run(*words, "--safe-csv", "--output", "out.csv")[0] == 0
    assert Path("out.csv").read_text() == safe
    assert run(*words, "--safe-csv", "--output", "out.csv", "--json", "out.json")[0] == 0
    assert json.loads(Path("out.json").read_text())["predictions"]["prediction"] == ["=1+1", "-5"]
    for other in (("--output", "out.parquet"), ("--json", "other.json")):
        code, text = run(*words, "--safe-csv", *other)
        assert code == 1
        assert "--safe-csv is about CSV" in text
        assert not Path(other[1]).exists()


def test_copied_cells_and_names_of_columns_are_made_safe_as_well(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"x": [0.1, 0.9], "=id": ["@a", "-3"], "y": ["=no", "yes"]})
    frame.to_csv("t.csv", index=False)
    Schema((NumericColumn("x", 0, 1),), Label("y", ("=no", "yes"))).dump("s.json")
    run("fit", "t.csv", "--schema", "s.json", "--output", "m.json", "--seed", 0, "--method", "outpert")
    text = run("predict", "m.json", "t.csv", "--keep", "=id", "--safe-csv")[1]
    assert [line.split(",")[0] for line in text.splitlines()] == ["'=id", "'@a", "-3"]
    monkeypatch.setattr("dpdescent.tables.is_long_text", lambda _: True)
    assert run("predict", "m.json", "t.csv", "--safe-csv", "--output", "o.csv")[0] == 0
    assert all(not line.startswith("=") for line in Path("o.csv").read_text().splitlines())


class Policy(HTMLParser):
    """The content security policy of a page, and whatever of the page comes before it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.before: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("http-equiv") == "Content-Security-Policy":
            parts = str(given["content"]).split("; ")
            self.found = {name: value for name, _, value in (part.partition(" ") for part in parts)}
        elif not self.found:
            self.before.append(tag)


def pages(folder: Path) -> dict[str, str]:
    statement = PrivacyStatement.from_dict(SavedModel.load(saved_model(folder / "m.json")).privacy)
    X = np.random.default_rng(0).random((200, 1))
    additive = DPAdditiveClassifier(1.0, bounds=(0, 1), classes=(0, 1), random_state=0)
    frame = pd.DataFrame(X, columns=[f"column \u202e{HOSTILE}"])
    additive.fit(frame, (X[:, 0] > 0.5).astype(int)).terms_html(folder / "terms.html")
    report = Report(HOSTILE, "", "", (), (), (), (), ())
    return {
        "statement": page_of(statement),
        "terms": (folder / "terms.html").read_text(),
        "report": render(report),
    }


def test_every_page_forbids_scripts_and_whatever_is_loaded(tmp_path: Path) -> None:
    for name, page in pages(tmp_path).items():
        policy = Policy(page)
        assert policy.before == ["html", "head", "meta"], name
        assert policy.found["default-src"] == "'none'"
        assert policy.found["base-uri"] == policy.found["form-action"] == "'none'"
        assert "script-src" not in policy.found
        assert dangers(page) == [], name


def test_every_page_in_the_source_carries_the_policy() -> None:
    for path in Path(dpdescent.__file__).parent.rglob("*.py"):
        source = path.read_text()
        assert "<!DOCTYPE" not in source or "CONTENT_POLICY" in source, path.name


@needs_browser
def test_a_browser_runs_no_script_of_a_page(tmp_path: Path) -> None:
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    page = pages(tmp_path)["statement"].replace("</main>", "<script>document.title = 'ran'</script></main>")
    for policy, title in ((CONTENT_POLICY, "Privacy of"), ("", "ran")):
        (tmp_path / "p.html").write_text(page.replace(CONTENT_POLICY, policy))
        words = [str(CHROMIUM), *options, (tmp_path / "p.html").as_uri()]
        shown = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
        assert f"<title>{title}" in shown
