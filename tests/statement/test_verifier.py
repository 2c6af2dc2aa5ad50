"""The independent check agrees with honest statements, refuses edited ones, and works where the library is absent."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import dpdescent
from dpdescent import Ledger, verifier
from dpdescent.accounting import RDP, Gaussian, PoissonSampled, PureDP
from dpdescent.cli.commands import app
from dpdescent.estimators.saved_models import FILE as MODEL_FILE
from dpdescent.statement import PrivacyStatement, charges_of
from dpdescent.statement.privacy_statement import FILE as STATEMENT_FILE
from random_fits import Found, check
from random_ledgers import verified

SOURCE = Path(verifier.__file__)
#: What no statement proves: by which chance a threshold fails, how many rows a unit has, the share of delta that is
#: kept for failures if a smaller one is enough, delta if all mechanisms are pure, and rates that only a bound knows.
UNPROVABLE = {"failure", "failure_share", "rows_per_unit", "delta", "rate"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "model.json"
    X = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
    fitted = dpdescent.DPLogisticRegression(1.0, 1e-6, bounds=(-1, 1), classes=(0, 1), method="agd")
    fitted.fit(X, (X[:, 0] > 0).astype(int)).save(path)
    return path


def statement(method: str, **options: Any) -> dict[str, Any]:
    X = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
    fitted = dpdescent.DPLogisticRegression(1.0, 1e-6, bounds=(-1, 1), classes=(0, 1), method=method, **options)
    found: dict[str, Any] = fitted.fit(X, (X[:, 0] > 0).astype(int)).privacy_
    return found


def test_random_statements_are_never_above_what_is_computed_anew() -> None:
    assert verified(6, 0)["confirmed"] >= 4


@pytest.mark.slow
def test_random_fits_are_confirmed_and_their_edits_are_not() -> None:
    """All estimators, methods and ways to be charged; `python tests/random_fits.py 1000` fits more of them."""
    found = Found()
    check(found, 40, 5, whole_every=8)
    assert not found.problems
    assert found.verdicts["confirmed"] >= 30
    assert found.edits > 100
    assert {path.rpartition(".")[2] for path in found.survived} <= UNPROVABLE


@pytest.mark.slow
def test_many_random_statements_are_never_above_what_is_computed_anew() -> None:
    assert verified(300, 99)["confirmed"] >= 250


def test_the_file_imports_nothing_of_the_library() -> None:
    names = set()
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(str(node.module).split(".")[0])
    assert names <= {*sys.stdlib_module_names, "dp_accounting", "scipy"}


def test_it_works_alone_and_with_its_own_exit_codes(model: Path, tmp_path: Path) -> None:
    shutil.copy(SOURCE, tmp_path / "verifier.py")
    alone = "import sys, runpy; sys.modules['dpdescent'] = None; runpy.run_path('verifier.py', run_name='__main__')"
    run = [sys.executable, "-c", alone, str(model)]
    found = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == verifier.CONFIRMED, found.stderr
    assert found.stdout.startswith("confirmed: ")
    assert "by dp-accounting the budget is (1, 1e-06)-DP" in found.stdout


VERDICTS = {"auto": 0, "svrg": 0, "nonprivate": 4, "objpert": 5, "blsgd": 5}


@pytest.mark.parametrize(("method", "code"), VERDICTS.items())
def test_methods_have_the_verdict_that_their_mechanisms_allow(method: str, code: int) -> None:
    options = {"alpha": 0.01} if method == "objpert" else {}
    assert verifier.check_statement(statement(method, **options)).code == code


@pytest.mark.parametrize("paper", [False, True])
def test_prices_above_those_of_dp_accounting_are_no_contradiction(paper: bool) -> None:
    options = {"paper": True} if paper else {"sampling_rate": 0.1, "steps": 20}
    told = statement("blsgd" if paper else "sgd", adjacency="replace-one", solver_options=options)
    assert verifier.check_statement(told).code == verifier.CONFIRMED


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a smaller epsilon": lambda data: data.update(epsilon=0.5),
    "a smaller delta": lambda data: data.update(delta=1e-9),
    "less spent": lambda data: data.update(spent=data["spent"] / 2),
    "a charge that is gone": lambda data: data["charges"].pop(),
    "a count that is lower": lambda data: max(data["charges"], key=lambda each: each["share"]).update(count=1),
    "less noise": lambda data: data["charges"][0]["mechanism"].update(noise_multiplier=0.1),
    "a larger budget": lambda data: data.update(budget=2 * data["budget"]),
    "another currency": lambda data: data["currency"].update(name="zcdp"),
    "a count below 0": lambda data: data["charges"].append(data["charges"][0] | {"count": -5}),
    "a negative cost": lambda data: data["charges"].append(
        data["charges"][0] | {"mechanism": {"kind": "composed", "parts": [{"kind": "pure", "epsilon": -1.0}]}}
    ),
    "a batch under another relation": lambda data: data.update(
        relation="replace-one",
        charges=[
            data["charges"][0]
            | {"mechanism": {"kind": "poisson-sampled", "rate": 0.1, "parts": [data["charges"][0]["mechanism"]]}}
        ],
    ),
    "less than was spent": lambda data: data.update(spent_epsilon=data["spent_epsilon"] / 2),
    "a share that is smaller": lambda data: data["charges"][0].update(share=data["charges"][0]["share"] / 2),
    "a share of a query that is smaller": lambda data: data["spent_on"].update(
        dict.fromkeys(data["spent_on"], 0.001)
    ),
    "fewer mechanisms": lambda data: data["mechanisms"].update(gaussian=1),
    "fewer answers": lambda data: data["asked"].update(dict.fromkeys(data["asked"], 1)),
    "a count that is no number": lambda data: data["charges"][0].update(count=data["charges"][0]["count"] == 1),
    "an unknown currency": lambda data: data.update(currency={"name": "epsilon"}),
    "no mechanism": lambda data: data["charges"][0].update(mechanism={}),
    "no charges": lambda data: data.pop("charges"),
    "another version": lambda data: data.update(version=2),
    "better samplers": lambda data: data["sampler_error"].update(total_variation_per_draw=1e-80),
    "exact samplers": lambda data: data["sampler_error"].update(total_variation_per_draw=0.0, delta=0.0),
    "samplers twice as good": lambda data: data["sampler_error"].update(
        total_variation_per_draw=2.0**-241, delta=data["sampler_error"]["delta"] / 2
    ),
    "more draws than delta has room for": lambda data: data["sampler_error"].update(
        draws=2**240, delta=min(1.0, data["sampler_error"]["delta"] * 2.0**200)
    ),
    "fewer draws": lambda data: data["sampler_error"].update(
        draws=2**20, delta=data["sampler_error"]["delta"] / 2**20
    ),
}


@pytest.mark.parametrize(
    "mechanism",
    [
        {"kind": "gaussian", "noise_multiplier": -10.0},
        {"kind": "gaussian", "noise_multiplier": float("inf")},
        {"kind": "gaussian", "noise_multiplier": True},
        # Its terms would cancel each other.
        {
            "kind": "above-threshold",
            "max_queries": 5,
            "query_scale": 10.0,
            "threshold_scale": -5.0,
            "noise": "laplace",
        },
        {"kind": "composed", "parts": [{"kind": "gaussian", "noise_multiplier": -10.0}]},
    ],
    ids=["negative noise", "infinite noise", "true", "a negative scale", "a negative part"],
)
def test_a_mechanism_that_cannot_be_is_refused_whatever_it_would_cost(mechanism: dict[str, Any]) -> None:
    ledger = Ledger(1.0, 1e-6, currency="gdp")
    ledger.spend(Gaussian(10.0), "counts")
    data = PrivacyStatement.of_ledger(
        ledger, model="-", method="-", randomness="a seed", arithmetic="exact"
    ).to_dict()
    cost = verifier.mu_squared_of(mechanism).amount
    data["charges"][0] |= {"mechanism": mechanism, "share": cost / data["budget"]}
    data |= {"spent": cost, "spent_epsilon": 1.0, "spent_on": {"counts": cost / data["budget"]}}
    data["mechanisms"] = dict.fromkeys(verifier._pieces(mechanism), 1)
    with pytest.raises(verifier.RefusedError, match="malformed"):
        verifier.check_statement(data)


def test_numbers_without_an_end_are_refused() -> None:
    data = statement("majority")
    for name in ("epsilon", "spent", "spent_epsilon"):
        with pytest.raises(verifier.RefusedError, match="malformed"):
            verifier.check_statement(data | {name: json.loads("1e999")})


@pytest.mark.parametrize("parts", ["all", "training part"])
@pytest.mark.parametrize("currency", ["gdp", "zcdp", "rdp", "pure"])
def test_what_was_spent_is_never_understated(currency: str, parts: str) -> None:
    ledger = Ledger(1.0, 1e-6, currency=currency)
    for _ in range(3):
        ledger.spend(PureDP(0.02), "counts")
    charges = charges_of(ledger.entries, parts)
    told = PrivacyStatement(1.0, 1e-6, "zero-out", ledger.currency, charges, *["-"] * 4).to_dict()
    assert verifier.check_statement(told).code == verifier.CONFIRMED
    with pytest.raises(verifier.RefusedError, match="what was spent gives epsilon"):
        verifier.check_statement(told | {"spent_epsilon": 0.9 * told["spent_epsilon"]})


@pytest.mark.parametrize("order", [1.7, 2.5, 6.3, 9.5])
def test_orders_between_whole_numbers_are_checked_by_a_bound(order: float) -> None:
    ledger = Ledger(40.0, 1e-3, currency=RDP(order))
    ledger.spend(PoissonSampled(0.1, (Gaussian(1.0),)), "gradient")
    told = PrivacyStatement.of_ledger(ledger, model="-", method="-", randomness="a seed", arithmetic="exact")
    found = verifier.check_statement(told.to_dict())
    assert (found.code, found.figures["exact"]) == (verifier.CONFIRMED, False)
    assert found.figures["total"] >= told.spent * (1 - 1e-9)


@pytest.mark.parametrize("name", CHANGES)
def test_an_edited_statement_is_refused_though_its_digest_fits(name: str, model: Path, tmp_path: Path) -> None:
    data = json.loads(model.read_text())
    CHANGES[name](data["privacy"])
    for added in ("format", "version", "digest"):
        del data[added]
    (tmp_path / "m.json").write_text(MODEL_FILE.seal(data))
    assert verifier.verify(tmp_path / "m.json").code == verifier.REFUSED


def test_a_file_without_its_digest_is_refused_and_a_foreign_one_is_told(model: Path, tmp_path: Path) -> None:
    (tmp_path / "edited.json").write_text(model.read_text().replace('"epsilon": 1.0', '"epsilon": 0.9'))
    assert verifier.verify(tmp_path / "edited.json").code == verifier.REFUSED
    for number, text in enumerate(("{}", "no JSON", '{"format": 1}', '{"a": NaN}', '{"a": 1, "a": 2}')):
        (tmp_path / f"{number}.json").write_text(text)
        assert verifier.verify(tmp_path / f"{number}.json").code == verifier.FOREIGN
    assert verifier.verify(tmp_path / "nowhere").code == verifier.REFUSED
    assert verifier.verify(tmp_path).code == verifier.FOREIGN


def test_mechanisms_beyond_delta_are_refused() -> None:
    data = json.loads(json.dumps(statement("majority")))
    data["charges"][0]["mechanism"] |= {"kind": "thresholded-gaussian", "failure": 1e-7}
    with pytest.raises(verifier.RefusedError, match="may fail"):
        verifier.check_statement(data)


@pytest.mark.parametrize(
    ("options", "said"), [({"random_state": 0}, "not for release"), ({"noise": "float"}, "real numbers")]
)
def test_noise_that_can_be_repeated_or_is_rounded_is_told(options: dict[str, Any], said: str) -> None:
    assert not any(said in line for line in verifier.check_statement(statement("majority")).lines)
    assert any(said in line for line in verifier.check_statement(statement("majority", **options)).lines)


def test_parts_that_share_no_row_count_once() -> None:
    part = {"mechanism": {"kind": "gaussian", "noise_multiplier": 10.0}, "count": 2, "label": "sum"}
    charges = [part | {"rows": "first"}, part | {"rows": "second", "count": 3}, part | {"rows": "all"}]
    assert verifier.total_of(charges, verifier.mu_squared_of).amount == pytest.approx(0.05)


def test_the_command_answers_with_exit_codes(model: Path, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["verify", str(model), "--json", str(tmp_path / "v.json")])
    assert found.exit_code == 0, found.output
    assert "confirmed" in found.output
    written = json.loads((tmp_path / "v.json").read_text())
    assert written["verdict"] == "confirmed"
    assert written["figures"]["epsilon"] == pytest.approx(1.0, rel=1e-4)
    PrivacyStatement.from_dict(statement("nonprivate")).save(tmp_path / "bare.json")
    assert CliRunner().invoke(app, ["verify", str(tmp_path / "bare.json")]).exit_code == verifier.NOT_PRIVATE
    assert STATEMENT_FILE.format == verifier.STATEMENT
    assert MODEL_FILE.format == verifier.MODEL
