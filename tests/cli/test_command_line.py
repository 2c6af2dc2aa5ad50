"""The command line is quick to help, says what matters before anything is paid, and shows signs of life."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpdescent
from dpdescent import DPLogisticRegression, Ledger, Schema, load_dataset
from dpdescent.audit import ATTACKS, MECHANISMS
from dpdescent.cli import main
from dpdescent.cli.commands import COMMANDS, DeferredCommand
from dpdescent.cli.terminal import say
from dpdescent.display import PAUSE, heartbeat
from dpdescent.errors import PrivacyWarning
from dpdescent.estimators.arguments import advice
from dpdescent.estimators.saved_models import SavedModel
from dpdescent.solvers import METHODS, Facts
from dpdescent.tables import CategoricalColumn, IgnoredColumn, Label, NumericColumn

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command in an empty folder and returns its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)

    def command(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dpdescent", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return command


def python(program: str, *arguments: str, **environment: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin", **environment},
    )
    return ended.stdout


def test_help_of_no_command_needs_a_scientific_library() -> None:
    program = (
        "import sys; from dpdescent.cli import main\n"
        "heavy, (name, *commands) = {'numpy', 'pandas', 'scipy', 'sklearn', 'pyarrow', 'matplotlib'}, sys.argv\n"
        "for command in commands:\n"
        "    sys.argv = [name, *command.split(), '--help']\n"
        "    try: main()\n"
        "    except SystemExit as ended: print(f'[{command}]', ended.code, sorted(heavy & set(sys.modules)))"
    )
    commands = ["", *(str(command.name) for command in COMMANDS), "ledger create", "schema check"]
    shown = python(program, *commands)
    assert re.findall(r"^\[.*", shown, re.MULTILINE) == [f"[{command}] 0 []" for command in commands]
    listed = shown[: shown.index("[]")]
    assert all(str(command.name) in listed for command in COMMANDS)


def test_help_of_an_audit_names_all_that_can_be_audited(run: Run) -> None:
    shown = " ".join(re.sub(r"[^\w,.: -]", " ", run("audit", "--help")[1]).split())
    assert f"{', '.join(MECHANISMS)}, a query such as Gradient, or a method." in shown
    *attacks, last = ATTACKS
    assert f"What is seen of a method: {', '.join(attacks)} or {last}." in shown


def test_the_package_is_a_command_and_knows_its_version() -> None:
    program = "import runpy, sys; sys.argv[0] = 'x'; runpy.run_module('dpdescent', run_name='__main__')"
    assert python(program, "--version") == f"dpdescent {dpdescent.__version__}\n"


def test_shells_complete_commands_and_options() -> None:
    program = "from dpdescent.cli import main; main()"
    shell = {"_DPDESCENT_COMPLETE": "complete_bash", "COMP_WORDS": "dpdescent pre", "COMP_CWORD": "1"}
    assert python(program, **shell).split() == ["predict"]
    shell |= {"COMP_WORDS": "dpdescent schema check --j", "COMP_CWORD": "3"}
    assert python(program, **shell).split() == ["--json"]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_line_of_a_command_is_the_first_of_its_own_help(command: DeferredCommand) -> None:
    assert command.load().help.splitlines()[0] == command.help


@pytest.mark.parametrize("package", ["dpdescent", "dpdescent.estimators", "dpdescent.statement", "dpdescent.tables"])
def test_every_public_name_is_there_and_known_to_type_checkers(package: str) -> None:
    room = importlib.import_module(package)
    (block,) = [node for node in ast.parse(Path(str(room.__file__)).read_text()).body if isinstance(node, ast.If)]
    declared = {(node.module, alias.name) for node in block.body for alias in node.names if node.module}
    assert {name for _, name in declared} | {"__version__", "audit"} == set(room.__all__) | {"__version__", "audit"}
    for module, name in declared:
        assert getattr(room, name) is getattr(importlib.import_module(f"{package}.{module}"), name)
    with pytest.raises(AttributeError, match="no attribute 'Ledgre'"):
        _ = room.Ledgre


def test_the_whole_package_lists_its_names_and_the_audit() -> None:
    assert set(dpdescent.__all__) <= set(dir(dpdescent))
    assert dpdescent.audit is importlib.import_module("dpdescent.audit")


def test_every_method_has_a_line(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("methods", "--json", "deep/er/methods.json")
    assert code == 0
    lines = dict(line.split(maxsplit=1) for line in out.splitlines() if line and not line.startswith("`"))
    assert set(lines) == set(METHODS)
    assert "NOT PRIVATE" in lines["nonprivate"]
    assert len(json.loads((tmp_path / "deep/er/methods.json").read_text())["methods"]) == len(METHODS)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return a table with an id, raw numbers, a missing cell and an unknown level, and a schema without bounds."""
    generator = np.random.default_rng(0)
    pay = np.exp(generator.normal(8, 0.5, 1500)).round(2)
    left = np.where(np.log(pay) + generator.normal(0, 0.3, 1500) > 8, "yes", "no")
    frame = pd.DataFrame({"id": [f"{n:05d}" for n in range(1500)], "pay": pay, "job": "clerk", "left": left})
    frame.loc[3, "pay"] = np.nan
    frame.loc[4, "job"] = "smith"
    frame.to_csv(tmp_path / "people.csv", index=False)
    columns = (NumericColumn("pay", missing="level"), CategoricalColumn("job", ("clerk", "nurse"), unknown="other"))
    Schema(columns, Label("left", ("no", "yes"))).dump(tmp_path / "s.json")
    return tmp_path


FIT = ("fit", "people.csv", "--schema", "s.json", "--output", "out/m.json")


def test_a_schema_without_bounds_has_them_measured_and_the_statement_says_so(run: Run, table: Path) -> None:
    run("ledger", "create", "new/budget.ledger", "--epsilon", 5)
    code, out, err = run(*FIT, "--epsilon", 2, "--ledger", "new/budget.ledger", "--seed", 1)
    assert (code, err) == (0, "")
    assert "remark: bounds of 1 column were measured by noisy histograms, for " in out
    low, high = json.loads((table / "out/m.json").read_text())["ends"]
    assert 0 <= low[0] < 3000 < high[0] < 1e5
    code, out, _ = run("predict", "out/m.json", "people.csv", "--keep", "id,left", "--output", "deep/p.csv")
    predicted = pd.read_csv(table / "deep/p.csv", dtype={"id": str})
    assert predicted["id"].tolist() == [f"{n:05d}" for n in range(1500)]
    assert np.mean(predicted["prediction"] == predicted["left"]) > 0.8
    assert "1500 predictions written" in out
    assert run(*FIT, "--bounds", "measure")[0] == 0
    assert Ledger.open("new/budget.ledger").spent > 0


def test_a_number_without_bounds_is_predicted_within_measured_ones(run: Run, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    size = generator.uniform(20, 200, 3000)
    frame = pd.DataFrame({"size": size, "rent": 300 + 9 * size + generator.normal(0, 60, 3000)})
    frame.to_csv("flats.csv", index=False)
    Schema((NumericColumn("size"),), Label("rent")).dump("s.json")
    assert "a fit measures and pays for them: size, rent\n" in run("schema", "check", "s.json", "flats.csv")[1]
    fit = ("fit", "flats.csv", "--schema", "s.json", "--epsilon", 2, "--output", "m.json", "--seed", 0)
    code, out, err = run(*fit, "--model", "regression")
    assert (code, err) == (0, "")
    assert "remark: bounds of the label were measured by noisy histograms, for " in out
    low, high = SavedModel.load(tmp_path / "m.json").target
    assert -1000 < low < 600 < 2000 < high < 10_000, "rents are between about 400 and 2,200"
    run("predict", "m.json", "flats.csv", "--output", "p.csv")
    predicted = pd.read_csv("p.csv")["prediction"]
    assert 1 - np.mean((predicted - frame["rent"]) ** 2) / frame["rent"].var() > 0.9
    pd.DataFrame({"size": [-1e9, 1e9]}).to_csv("odd.csv", index=False)
    run("predict", "m.json", "odd.csv", "--output", "p.csv")
    assert pd.read_csv("p.csv")["prediction"].between(low, high).all()
    code, _, err = run(*fit)
    assert (code, err.partition(":")[0]) == (1, "InvalidParameter")
    assert "choose --model regression" in err


def test_trees_are_fitted_to_a_table_and_predict_classes_and_counts(run: Run) -> None:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"age": generator.uniform(20, 80, 4000), "job": generator.choice(["cook", "nurse"], 4000)})
    both = (frame["age"] > 50) ^ (frame["job"] == "cook")
    frame["left"], frame["visits"] = np.where(both, "yes", "no"), generator.poisson(np.where(both, 6.0, 1.0))
    frame.to_csv("t.csv", index=False)
    columns = NumericColumn("age", 20, 80), CategoricalColumn("job", ("cook", "nurse"))
    for label, options in ((Label("left", ("no", "yes")), ["trees"]), (Label("visits", low=0, high=30), [])):
        Schema((*columns, IgnoredColumn("visits" if options else "left")), label).dump("s.json")
        model = ["--model", *(options or ["trees-regression", "--loss", "poisson"])]
        fit = ("fit", "t.csv", "--schema", "s.json", "--epsilon", 3, "--output", "m.json", "--seed", 0, *model)
        code, _, err = run(*fit)
        assert (code, err) == (0, "")
        assert any("trees with" in each for each in SavedModel.load(Path("m.json")).privacy["released"])
        assert run("predict", "m.json", "t.csv", "--output", "p.csv")[0] == 0
        predicted = pd.read_csv("p.csv")["prediction"]
        if options:
            assert np.mean(predicted == frame["left"]) > 0.9
            assert run("explain", "m.json", "--terms", "terms.html")[0] == 0
            page = Path("terms.html").read_text()
            assert {"nurse", "job and age", "Pairs"} & {*re.findall(r">([^<>]+)<", page)}
            ends = [float(each) for each in re.findall(r'y="186" text-anchor="\w+">([^<]+)<', page)]
            assert 20 <= min(ends) < 25, "ages, and not what a schema codes them by"
            assert 75 < max(ends) <= 80
        else:
            assert np.corrcoef(predicted, both)[0, 1] > 0.9
            assert predicted.min() > 0
    assert run("fit", "t.csv", "--schema", "s.json", "--output", "l.json", "--model", "poisson")[0] == 0
    code, _, err = run("explain", "l.json", "--terms", "l.html")
    assert (code, "additive models and boosted trees" in err) == (1, True)
    assert not Path("l.html").exists()


def test_given_bounds_of_a_number_may_be_measured_all_the_same(run: Run) -> None:
    generator = np.random.default_rng(0)
    X = generator.normal(50, 20, (3000, 2))
    y = X @ [2.0, -1.0] + generator.normal(0, 5, 3000)
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y}).to_csv("t.csv", index=False)
    Schema((NumericColumn("a"), NumericColumn("b")), Label("y", low=-1e9, high=1e9)).dump("s.json")
    fit = ("fit", "t.csv", "--schema", "s.json", "--model", "regression", "--output", "m.json", "--seed", 0)
    assert "bounds of the label were measured" not in run(*fit)[1]
    assert "bounds of the label were measured" in run(*fit, "--target-bounds", "measure")[1]
    np.savez("t.npz", X=X, y=y)
    arrays = ("fit", "t.npz", "--model", "regression", "--output", "m.json", "--seed", 0)
    out = run(*arrays)[1]
    assert "bounds of the label were measured" in out
    assert "remark: bounds were measured by noisy histograms" in out
    assert run(*arrays, "--bounds", "measure", "--target-bounds", "measure")[1] == out
    model = SavedModel.load(Path("m.json"))
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.9


def test_a_saved_model_predicts_what_the_estimator_does_beyond_the_measured_bounds_too(table: Path) -> None:
    data = load_dataset(table / "people.csv", schema=table / "s.json")
    model = DPLogisticRegression(
        2.0, bounds=data.bounds, classes=data.classes, binary_features=data.binary_features, random_state=0
    ).fit(data.X, data.y)
    SavedModel.from_estimator(model, list(data.feature_names), data.schema).save(table / "m.json")
    X = data.X[:9].copy()
    X[:3, 0] = [-1e6, 1e9, 0.0]
    probabilities = SavedModel.load(table / "m.json").probabilities(X)
    np.testing.assert_allclose(probabilities, model.predict_proba(X), rtol=1e-9)
    assert probabilities[1, 1] < 1, "a cell far beyond the bounds counts as the bound"


@pytest.mark.usefixtures("table")
def test_a_model_without_privacy_says_so_in_words(run: Run) -> None:
    np.savez("a.npz", X=np.random.default_rng(0).random((300, 2)), y=np.arange(300) % 2)
    arrays = ("fit", "a.npz", "--classes", "0,1", "--output", "n.json", "--method", "nonprivate")
    code, out, err = run(*arrays, "--bounds", "0,1")
    assert (code, err) == (0, "")
    assert "NOT PRIVATE: the rows were used without noise" in out
    assert not re.search(r"differential|nan|inf\b", out)
    assert "NOT PRIVATE" in run(*arrays, "--bounds", "measure")[1]


def test_weak_guarantees_are_warned_of_before_they_are_paid_for(run: Run, table: Path) -> None:
    code, out, err = run(*FIT, "--epsilon", 20, "--delta", 0.01)
    assert code == 0
    assert re.findall(r"^GuaranteeWarning: (\w+)", err, re.MULTILINE) == ["delta", "epsilon"]
    assert "above 1/n" not in out, "said once"
    assert "above 1/n" in str(json.loads((table / "out/m.json").read_text())["privacy"]["remarks"])
    run("ledger", "create", "b.ledger", "--epsilon", 0.001)
    code, _, err = run(*FIT, "--epsilon", 0.002, "--ledger", "b.ledger")
    assert code == 1
    first, second = err.splitlines()
    assert re.match(r"GuaranteeWarning: epsilon 0.002 and n = 1500 rows amount to .* too few to learn", first)
    assert second.startswith("BudgetExhausted: ")


def test_advice_is_a_function_of_public_numbers() -> None:
    assert advice(Facts(1.0, 1e-6, "zero-out", 10_000, 5)) == []
    assert advice(Facts(10.0, 1e-4, "zero-out", 10_000, 5)) == []
    (delta,) = advice(Facts(1.0, 1.01e-4, "replace-one", 10_000, 5))
    assert "delta 0.000101 is above 1/n for n = 10000 rows" in delta
    (epsilon,) = advice(Facts(10.5, 1e-6, "zero-out", 10_000, 5))
    assert "epsilon 10.5 is above 10" in epsilon
    (few,) = advice(Facts(1e-4, 1e-6, "zero-out", 10_000, 5))
    assert "effective rows" in few
    assert len(advice(Facts(1.0, 0.0, "replace-one", 19, 5))) == 1
    (some,) = advice(Facts(1.0, 0.0, "replace-one", 21, 5))
    assert "about 10 effective rows for 5 parameters, 2.1 for each" in some
    assert advice(Facts(1.0, 0.0, "replace-one", 51, 5)) == []


@pytest.mark.usefixtures("table")
def test_a_redirected_fit_writes_a_line_now_and_then(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(*FIT)[2] == ""
    monkeypatch.setattr("dpdescent.display.PAUSE", 0.0)
    lines = run(*FIT)[2].splitlines()
    assert all(re.fullmatch(r"\d+% of the privacy budget is spent(, about \d+ s left)?", line) for line in lines)
    shares = [int(line.partition("%")[0]) for line in lines]
    assert len(shares) > 5
    assert shares == sorted(shares)


def test_a_long_piece_of_work_gives_a_sign_of_life_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert PAUSE <= 5
    with heartbeat(lambda: "working", pause=0.01):
        time.sleep(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert set(lines) == {"working"}
    assert len(lines) >= 3
    time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_warnings_are_lines_of_ours_and_silence_of_others(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn() -> list[object]:
        warnings.warn("the cell is alice@secret", RuntimeWarning, stacklevel=1)
        warnings.warn("classes were read from y", PrivacyWarning, stacklevel=1)
        return []

    monkeypatch.setattr("dpdescent.datasets.list_datasets", warn)
    code, out, err = run("datasets")
    assert (code, err) == (0, "PrivacyWarning: classes were read from y\n")
    assert "alice" not in out


def test_text_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("pip install 'dpdescent[plots]'", "[bold]x[/]", "\\[x] :smile:", f"{'wide ' * 60}end"):
        say(text)
        assert capsys.readouterr().out == f"{text}\n"


def test_a_demonstration_without_matplotlib_names_the_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("dpdescent.cli.demo_command.LADDER", (0.4,))
    monkeypatch.setattr("dpdescent.cli.demo_command._demo_data", lambda _: load_dataset("synthetic", n=600))
    code, out, err = run("demo")
    assert (code, err) == (0, "")
    assert "no picture: pip install 'dpdescent[plots]' to draw one\n" in out


@pytest.mark.usefixtures("table")
def test_schema_check_lists_all_problems_and_what_will_be_measured(run: Run) -> None:
    code, out, _ = run("schema", "check", "s.json")
    assert code == 0
    assert "that a fit measures and pays for them: pay" in out
    code, out, err = run("schema", "check", "s.json", "people.csv")
    assert code == 0
    assert "not declared, and so not used: id\n" in out
    document = json.loads(Path("s.json").read_text())
    document["columns"]["pay"] |= {"lo": 1}
    document["rowz"] = 3
    Path("s.json").write_text(json.dumps(document))
    code, out, err = run("schema", "check", "s.json", "people.csv", "--json", "c.json")
    assert (code, err) == (1, "SchemaError: s.json has 2 problems: see above\n")
    assert len(out.splitlines()) == len(json.loads(Path("c.json").read_text())["problems"]) == 2
    code, out, _ = run("schema", "format")
    assert json.loads(out)["title"] == "Public schema of a table"


@pytest.mark.usefixtures("table")
def test_a_comparison_on_rows_of_ones_own_is_marked_not_private_everywhere(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "dpdescent.long_runs.in_processes", lambda work, cells, _: ((cell, work(cell)) for cell in cells)
    )
    code, out, _ = run(
        *("compare", "--data", "people.csv", "--schema", "s.json", "--methods", "auto,majority", "--folds", 2),
        *("--epsilon", 1, "--json", "c.json", "--html", "c.html", "--parquet", "c.parquet"),
    )
    assert code == 0
    record = json.loads(Path("c.json").read_text())
    assert record["private"] is False
    for text in (
        out,
        record["warning"],
        Path("c.html").read_text(),
        Path("c.parquet").read_bytes().decode("latin-1"),
    ):
        assert "NOT PRIVATE" in text
    accuracy = {row["method"]: row["accuracy"] for row in record["rows"]}
    assert accuracy["auto"] > accuracy["majority"] + 0.1
    code, out, _ = run(*("compare", "--data", "synthetic", "--methods", "majority", "--rows", 200, "--epsilon", 1))
    assert "NOT PRIVATE" not in out
