"""A release folder has no gaps, is verified by other code, and is refused as soon as a file in it is changed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import dpdescent
from browser import measured, needs_browser
from dpdescent import verifier
from dpdescent.accounting import GDP, Gaussian, ThresholdedGaussian
from dpdescent.audit import Report
from dpdescent.cli.commands import app
from dpdescent.errors import InvalidParameter, OutputNotWritable
from dpdescent.statement import PrivacyStatement
from dpdescent.statement.release_documents import QUESTIONS, Release, epsilons_of, mu_of, require_answers

ANSWERS = {name: f"The answer | to <b>{name}</b>." for name in QUESTIONS}


def fitted(folder: Path, name: str = "model.json", **options: Any) -> Path:
    X = np.random.default_rng(0).uniform(-1, 1, (3000, 2))
    given: dict[str, Any] = {"bounds": (-1, 1), "classes": ("no", "yes")} | options
    model = dpdescent.DPLogisticRegression(1.0, 1e-6, **given).fit(
        X, np.array(["no", "yes"])[(X[:, 0] > 0).astype(int)]
    )
    model.save(folder / name)
    return folder / name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("release")
    fitted(place)
    (place / "answers.json").write_text(json.dumps(ANSWERS))
    report = Report(
        "auto", "gdp", 1.0, 1e-6, 0.4, 0.95, 50, 1.0, "zero-out", "transcript", "a test", None, ((0.1, 0.5),)
    )
    (place / "audit.json").write_text(report.to_json())
    run(
        "release",
        place / "model.json",
        "--output",
        place / "out",
        "--answers",
        place / "answers.json",
        "--audit",
        place / "audit.json",
    )
    return place


def run(*arguments: object) -> str:
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.output


def test_the_folder_is_whole(folder: Path) -> None:
    out = folder / "out"
    there = {path.name for path in out.iterdir()}
    documents = {"model.json", "statement.json", "explanation.html", "card.md", "checklist.json", "registry.json"}
    assert there == documents | {"index.html", "audit.json", "audit.svg", "MANIFEST.sha256"}
    assert dpdescent.load(out / "model.json").epsilon == 1.0
    assert PrivacyStatement.load(out / "statement.json").epsilon == 1.0
    for line in (out / "MANIFEST.sha256").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
    items = json.loads((out / "checklist.json").read_text())["items"]
    assert all(each["answer"].strip() for each in items), "no gaps"
    assert {each["part"] for each in items} == {"Guarantee", "Mechanisms", "Trust", "Side channels", "Data", "Use"}


def test_mu_comes_first_and_epsilon_at_several_deltas(folder: Path) -> None:
    statement = PrivacyStatement.load(folder / "out" / "statement.json")
    entry = json.loads((folder / "out" / "registry.json").read_text())
    assert entry["flavour"].startswith(f"{mu_of(statement):.4g}-Gaussian differential privacy, (1, 1e-06)")
    assert entry["parameters"]["mu"] == pytest.approx(0.2367, abs=1e-3)
    stated = {each["delta"]: each["epsilon"] for each in entry["parameters"]["epsilon_at"]}
    assert stated[1e-6] == 1.0
    for delta, epsilon in stated.items():
        assert epsilon == pytest.approx(verifier.gaussian_epsilon(entry["parameters"]["mu"], delta), rel=1e-3)
    needed = {
        "title",
        "date",
        "contact",
        "unit",
        "unprotected_quantities",
        "accounting",
        "implementation",
        "rationale",
    }
    assert needed <= entry.keys()


def test_a_release_is_verified_and_any_changed_file_refused(folder: Path) -> None:
    out = folder / "out"
    assert "confirmed" in run("verify", out)
    for path in sorted(out.iterdir()):
        kept = path.read_bytes()
        path.write_bytes(kept + b" ")
        if path.name != "MANIFEST.sha256":
            assert verifier.verify(out).code == verifier.REFUSED, path.name
        path.unlink()
        expected = verifier.FOREIGN if path.name == "MANIFEST.sha256" else verifier.REFUSED
        assert verifier.verify(out).code == expected, path.name
        path.write_bytes(kept)
    (out / "more.txt").write_text("")
    assert verifier.verify(out).code == verifier.REFUSED
    (out / "more.txt").unlink()
    assert verifier.verify(out).code == verifier.CONFIRMED


def test_open_questions_are_asked_by_name(folder: Path, tmp_path: Path) -> None:
    model, out = folder / "model.json", tmp_path / "out"
    with pytest.raises(InvalidParameter) as refused:
        run("release", model, "--output", out, "--answer", "title=A model")
    assert all(f"{name} (" in str(refused.value) for name in QUESTIONS if name != "title")
    assert "title (" not in str(refused.value)
    with pytest.raises(InvalidParameter, match="no question is called 'colour'"):
        run("release", model, "--output", out, "--answer", "colour=red")
    run("release", model, "--draft", tmp_path / "draft.json")
    assert json.loads((tmp_path / "draft.json").read_text()) == QUESTIONS
    with pytest.raises(InvalidParameter, match="these are open: title"):
        run("release", model, "--output", out, "--answers", tmp_path / "draft.json")
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(InvalidParameter, match="no JSON object"):
        run("release", model, "--output", out, "--answers", tmp_path / "bad.json")
    assert not out.exists()


def test_what_must_not_be_released_is_refused(folder: Path, tmp_path: Path) -> None:
    answers = folder / "answers.json"
    with pytest.raises(InvalidParameter, match="nothing is guaranteed"):
        run(
            "release",
            fitted(tmp_path, "bare.json", method="nonprivate"),
            "--output",
            tmp_path / "a",
            "--answers",
            answers,
        )
    with pytest.raises(InvalidParameter, match="seed \\(Who knows the seed"):
        run("release", fitted(tmp_path, "s.json", random_state=1), "--output", tmp_path / "a", "--answers", answers)
    with pytest.raises(OutputNotWritable, match="there already"):
        run("release", folder / "model.json", "--output", folder / "out", "--answers", answers)
    audit = json.loads((folder / "audit.json").read_text())
    for change, message in (
        ({"subject": "sgd"}, "the audit is of"),
        ({"lower_bound": 2.0}, "refuted"),
        ({"runs": {}}, "no audit"),
    ):
        changed = {} if message == "no audit" else audit | change
        (tmp_path / "audit.json").write_text(json.dumps(changed))
        with pytest.raises(InvalidParameter, match=message):
            run(
                "release",
                folder / "model.json",
                "--output",
                tmp_path / "a",
                "--answers",
                answers,
                "--audit",
                tmp_path / "audit.json",
            )
    assert not [path for path in tmp_path.iterdir() if path.is_dir()], "nothing half written is left"


def test_answers_are_text_and_no_markup(folder: Path) -> None:
    page, card = ((folder / "out" / name).read_text() for name in ("index.html", "card.md"))
    assert "<b>title</b>" not in page
    assert "&lt;b&gt;title&lt;/b&gt;" in page
    assert "<b>" not in card
    assert "The answer \\| to" in card


def test_mu_is_not_claimed_of_mechanisms_that_may_fail() -> None:
    """A level of one person alone is published with a probability above 0, which no mu allows for."""
    ledger = dpdescent.Ledger(1.0, 1e-6, currency=GDP().with_failures())
    ledger.spend(Gaussian(10.0), "counts")
    told = {"model": "-", "method": "-", "randomness": "-", "arithmetic": "-"}
    sure = PrivacyStatement.of_ledger(ledger, **told)
    ledger.spend(ThresholdedGaussian(10.0, 1e-10), "levels")
    failing = PrivacyStatement.of_ledger(ledger, **told)
    but = " but for a probability of 3.91e-09"
    for statement, said, failure in ((sure, "", 0.0), (failing, but, 1e-6 * 2**-8)):
        release = Release(statement, require_answers(statement, ANSWERS), {}, ("confirmed",), ("none",), "2026-01-01")
        entry, mu = release.registry_entry(), mu_of(statement)
        assert entry["flavour"].startswith(f"{mu:.4g}-Gaussian differential privacy{said}, (1, 1e-06)")
        assert release.parameters()[0] == ("mu of Gaussian DP", f"{mu:.6g}{said}")
        assert entry["parameters"]["failure"] == pytest.approx(failure)
        assert all(delta > 2 * failure for delta, _ in epsilons_of(statement))


def test_other_currencies_say_that_there_is_no_mu() -> None:
    statement = PrivacyStatement.of_ledger(
        dpdescent.Ledger(1.0, 1e-6, currency="zcdp"), model="-", method="-", randomness="-", arithmetic="-"
    )
    assert mu_of(statement) is None
    release = Release(statement, require_answers(statement, ANSWERS), {}, ("confirmed",), ("none",), "2026-01-01")
    assert release.parameters()[0] == (
        "mu of Gaussian DP",
        "none is known: the guarantee was accounted for in another definition",
    )
    (smallest, largest) = epsilons_of(statement)[-1], epsilons_of(statement)[0]
    assert smallest[0] < 1e-6 < largest[0]
    assert smallest[1] > 1.0 > largest[1]


@needs_browser
def test_the_page_is_as_wide_as_the_window_and_links_work(folder: Path, tmp_path: Path) -> None:
    page = (folder / "out" / "index.html").read_text()
    facts = ["document.documentElement.scrollWidth <= window.innerWidth", "document.querySelectorAll('td').length"]
    fits, cells = measured(page, facts, tmp_path)
    assert fits == "true"
    assert int(cells) > 60
    for name in ("model.json", "statement.json", "explanation.html", "MANIFEST.sha256", "audit.svg"):
        assert f'href="{name}"' in page


def codes(*arguments: object) -> tuple[int, str]:
    found = CliRunner().invoke(app, [str(each) for each in arguments])
    return found.exit_code, found.output


def test_whoever_checks_what_leaves_is_answered_by_exit_codes(folder: Path, tmp_path: Path) -> None:
    text = (folder / "model.json").read_text()
    (tmp_path / "deep").mkdir()
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    assert codes("explain", tmp_path)[0] == 3, "nothing of ours"
    (tmp_path / "deep" / "results.dat").write_text(text)
    code, output = codes("explain", tmp_path, "--json", tmp_path / "deep" / "answer.json")
    assert code == 0
    assert "results.dat: a model, (1, 1e-06)-differentially private" in " ".join(output.split())
    assert "not of dpdescent" in output
    answers = json.loads((tmp_path / "deep" / "answer.json").read_text())["files"]
    assert [each["epsilon"] for each in answers if each["code"] == 0] == [1.0]
    assert codes("explain", tmp_path / "deep" / "results.dat", "--check")[0] == 0
    assert codes("explain", "--check", tmp_path / "table.csv")[0] == 3
    bare = fitted(tmp_path, "bare.json", method="nonprivate")
    assert codes("explain", bare, "--check")[0] == 4
    assert codes("explain", tmp_path)[0] == 4
    (tmp_path / "edited").write_text(text.replace('"epsilon": 1.0', '"epsilon": 0.1'))
    assert codes("explain", tmp_path)[0] == 1
    assert codes("explain", folder / "out")[0] == 0
