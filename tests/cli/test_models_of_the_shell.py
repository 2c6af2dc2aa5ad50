"""Every estimator can be fitted, explained, evaluated and used from the shell."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpdescent import load
from dpdescent.cli import main
from dpdescent.cli.fit_command import MODELS, REGRESSORS

ROWS = 6000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = np.random.default_rng(0)
    age, pay = generator.integers(18, 80, ROWS), generator.lognormal(0, 0.5, ROWS).round(3)
    job = generator.choice(["clerk", "nurse", "smith"], ROWS)
    score = (age - 50) / 12 + (job == "nurse")
    table = pd.DataFrame({"age": age, "pay": pay, "job": job})
    table["sick"] = np.where(score + generator.logistic(0, 0.5, ROWS) > 0, "yes", "no")
    table["days"] = generator.poisson(np.exp(0.3 + score / 3))
    path = tmp_path_factory.mktemp("models")
    table.to_csv(path / "people.csv", index=False)
    return path


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    monkeypatch.chdir(folder)

    def command(*words: object, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["dpdescent", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert int(ended.value.code or 0) == code, printed
        return " ".join((printed.out + printed.err).split())

    return command


QUICK = ("logistic", "additive", "huber", "poisson", "additive-poisson")
KINDS = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MODELS]


@pytest.mark.parametrize("model", KINDS)
def test_a_model_of_every_kind_goes_from_a_file_to_its_worth(run: Callable[..., str], model: str) -> None:
    label = "days" if model in REGRESSORS else "sick"
    asked = ("--label", label, "--model", model, "--epsilon", 4, "--seed", 0)
    run("fit", "people.csv", *asked, "--output", f"{model}.json")
    kept = json.loads(Path(f"{model}.json").read_text())
    assert kept["estimator"] == MODELS[model]
    assert "(4, 1e-06)-differentially private" in run("explain", f"{model}.json")
    run("predict", f"{model}.json", "people.csv", "--output", f"{model}.csv")
    predicted, table = pd.read_csv(f"{model}.csv")["prediction"], pd.read_csv("people.csv")
    if model in REGRESSORS:
        assert np.corrcoef(predicted, table["days"])[0, 1] > 0.5
    else:
        assert (predicted == table["sick"]).mean() > 0.75
    worth = run("evaluate", f"{model}.json", "people.csv", "--epsilon", 1, "--seed", 0)
    assert ("mean absolute error" if model in REGRESSORS else "accuracy") in worth.replace("_", " ")
    assert np.array_equal(load(f"{model}.json").predict(table.drop(columns=label)), predicted)


GIVEN = [
    ("logistic", "class_weight=balanced", "class_weight", "balanced"),
    ("logistic", "fit_intercept=false", "fit_intercept", False),
    ("additive", "pieces=2", "pieces", 2),
    ("huber", "threshold=2", "threshold", 2),
]


@pytest.mark.parametrize(("model", "argument", "name", "value"), GIVEN)
def test_every_argument_of_python_can_be_given(
    run: Callable[..., str], model: str, argument: str, name: str, value: object
) -> None:
    label = "days" if model in REGRESSORS else "sick"
    asked = ("--label", label, "--model", model, "--argument", argument, "--output", "given.json")
    run("fit", "people.csv", *asked)
    assert json.loads(Path("given.json").read_text())["parameters"][name] == value


WRONG = [
    ("pices=2", "--model additive has no argument 'pices' (did you mean 'pieces'?)"),
    ("threshold=2", "has no argument 'threshold'"),
    ("epsilon=2", "--argument epsilon: say it by the option for it"),
    ("pieces", "--argument must be NAME=VALUE"),
]


@pytest.mark.parametrize(("argument", "message"), WRONG)
def test_arguments_that_a_model_has_not_are_refused(run: Callable[..., str], argument: str, message: str) -> None:
    asked = ("--label", "sick", "--model", "additive", "--argument", argument, "--output", "wrong.json")
    assert message in run("fit", "people.csv", *asked, code=1)
