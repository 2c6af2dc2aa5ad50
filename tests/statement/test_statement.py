"""A statement says what its ledger charged, follows its schema, and is refused once it no longer adds up."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dpdescent import DPLinearRegression, DPLogisticRegression, Ledger, PrivacyStatement, load_dataset
from dpdescent.accounting import ExponentialMechanism, Gaussian, NormLaplace, PoissonSampled
from dpdescent.errors import InvalidParameter, MissingPackage, ModelFormatError, OutputNotWritable, StatementError
from dpdescent.estimators.saved_models import FILE as MODEL_FILE, SavedModel
from dpdescent.statement import Charge, load_schema, objection
from dpdescent.statement.privacy_statement import FILE

SCHEMA = load_schema("dpdescent.statement", "privacy-statement.schema.json")
FACTS: dict[str, Any] = {
    "model": "m",
    "method": "auto",
    "randomness": "seeded (not for release)",
    "arithmetic": "exact",
}


def ledger(currency: str = "gdp", relation: str = "zero-out") -> Ledger:
    """Return a ledger of (1, 1e-6) that has paid for three gradients and a choice."""
    found = Ledger(1.0, 1e-6, currency=currency, relation=relation)
    for noise in (20.0, 20.0, 40.0):
        found.spend(Gaussian(noise), "gradient")
    found.spend(ExponentialMechanism(0.1), "step size")
    return found


def statement(currency: str = "gdp", **facts: Any) -> PrivacyStatement:
    return PrivacyStatement.of_ledger(ledger(currency), **FACTS | facts)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("currency", ["gdp", "zcdp", "rdp"])
def test_a_statement_says_what_the_ledger_has_charged(currency: str, relation: str) -> None:
    paid = ledger(currency, relation)
    stated = PrivacyStatement.of_ledger(paid, **FACTS)
    data, expected = stated.to_dict(), paid.statement()
    assert {name: data[name] for name in expected} == expected
    assert data["asked"] == {"gradient": 3, "step size": 1}
    assert [(each["label"], each["count"]) for each in data["charges"]] == [
        *[("gradient", 2), ("gradient", 1)],
        ("step size", 1),
    ]
    assert sum(data["spent_on"].values()) == pytest.approx(paid.spent / paid.budget, rel=1e-12)
    assert sum(each["share"] for each in data["charges"]) == pytest.approx(paid.spent / paid.budget, rel=1e-12)
    assert PrivacyStatement.from_dict(json.loads(json.dumps(data))) == stated


@pytest.mark.parametrize("method", ["auto", "agd", "blsgd", "objpert", "outpert", "majority", "nonprivate"])
def test_the_statement_of_a_fit_follows_its_schema_and_can_be_built_again(method: str, tmp_path: Path) -> None:
    data = load_dataset("synthetic", n=1000)
    relation = "replace-one" if method in ("agd", "objpert") else "zero-out"
    model = DPLogisticRegression(
        1.0,
        1e-6,
        method=method,
        adjacency=relation,
        bounds=data.bounds,
        classes=data.classes,
        alpha=0.01,
        random_state=0,
    ).fit(data.X, data.y)
    stated = PrivacyStatement.from_dict(model.privacy_)
    assert stated.to_dict() == model.privacy_
    assert stated.private == (method != "nonprivate")
    assert stated.relation == relation
    assert stated.model == "DPLogisticRegression"
    assert any(f"{data.X.shape[1]} numbers" in each for each in stated.released)
    stated.save(tmp_path / "statement.json")
    text = (tmp_path / "statement.json").read_text()
    plain = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    del plain["digest"]
    assert objection(plain, SCHEMA) is None
    assert PrivacyStatement.load(tmp_path / "statement.json") == stated


def test_statements_agree_with_another_validator() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft202012Validator(SCHEMA)
    data = statement().to_dict()
    assert not list(check.iter_errors(data))
    for broken in (data | {"unit": 3}, data | {"version": 2}, data | {"more": 1}, data | {"delta": -1}):
        assert list(check.iter_errors(broken))
        assert objection(broken, SCHEMA) is not None


def test_the_schema_names_every_property_and_allows_no_other() -> None:
    options = {"account": "a", "fingerprint": "f", "rows_per_unit": 2, "steps": 3}
    whole = statement(**options, sampling_rate=0.5, noise_multiplier=1.0, clip_norm=2.0)
    assert set(whole.to_dict()) == set(SCHEMA["properties"])
    assert set(statement().to_dict()) == set(SCHEMA["required"])
    for name in SCHEMA["required"]:
        lacking = {key: value for key, value in statement().to_dict().items() if key != name}
        with pytest.raises(StatementError, match=name):
            PrivacyStatement.from_dict(lacking)


def test_a_validator_knows_its_keywords_or_says_so() -> None:
    cases: list[tuple[Any, Any, Any]] = [
        ({"type": "integer"}, 2.0, 2.5),
        ({"type": "number"}, 0, True),
        ({"type": ["string", "null"]}, None, 1),
        ({"const": 1}, 1, True),
        ({"enum": ["a"]}, "a", "b"),
        ({"minimum": 0}, 0, -1),
        ({"maximum": 1}, 1, 2),
        ({"exclusiveMinimum": 0}, 1e-300, 0),
        ({"minItems": 1}, [0], []),
        ({"minLength": 1, "maxLength": 2}, "ab", "abc"),
        ({"items": {"type": "string"}}, ["a"], ["a", 1]),
        ({"required": ["a"]}, {"a": 1}, {"b": 1}),
        ({"properties": {"a": {"type": "null"}}}, {"a": None}, {"a": 1}),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"a": 1}, {"b": 1}),
        ({"additionalProperties": {"type": "integer"}}, {"b": 1}, {"b": "x"}),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "number"}}}, 1.0, "1"),
        ({"type": "number"}, 1e308, math.inf),
    ]
    for schema, right, wrong in cases:
        assert objection(right, schema) is None
        assert objection(wrong, schema) is not None
    with pytest.raises(NotImplementedError, match="pattern"):
        objection("a", {"pattern": "b"})


EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a smaller epsilon": lambda data: data.update(epsilon=0.5),
    "a smaller delta": lambda data: data.update(delta=1e-7),
    "less spent": lambda data: data.update(spent=data["spent"] / 2),
    "a smaller spent epsilon": lambda data: data.update(spent_epsilon=data["spent_epsilon"] / 2),
    "a larger budget": lambda data: data.update(budget=2 * data["budget"]),
    "a charge taken out": lambda data: data["charges"].pop(),
    "a charge counted once": lambda data: data["charges"][0].update(count=1),
    "more noise than there was": lambda data: data["charges"][0]["mechanism"].update(noise_multiplier=30.0),
    "charges for two parts of the rows": lambda data: [data["charges"][k].update(rows=f"part {k}") for k in (0, 1)],
    "a smaller share": lambda data: data["charges"][0].update(share=0.01),
    "another currency": lambda data: data.update(currency={"name": "zcdp"}),
    "rdp without an order": lambda data: data.update(currency={"name": "rdp", "order": 1.5}),
    "other counts": lambda data: data["mechanisms"].update(gaussian=1),
    "fewer queries": lambda data: data["asked"].update(gradient=1),
    "not private after all": lambda data: data.update(private=False),
    "no accountant": lambda data: data.update(currency=None),
    "an unknown mechanism": lambda data: data["charges"][0]["mechanism"].update(kind="magic"),
    "a mechanism with a foreign field": lambda data: data["charges"][0]["mechanism"].update(free=True),
    "noise of zero": lambda data: data["charges"][0]["mechanism"].update(noise_multiplier=0.0),
    "NaN": lambda data: data.update(spent=math.nan),
    "a count of true": lambda data: data["charges"][0].update(count=True),
    "another filter": lambda data: data.update(filter="none"),
    "no sampler error": lambda data: data["sampler_error"].update(delta=0.0),
    "another relation": lambda data: data.update(relation="sometimes"),
    "more charges than any number": lambda data: data["charges"][0].update(count=10**400),
    "more charges than a float": lambda data: data["charges"][0].update(count=10**307),
    "noise beyond all floats": lambda data: data["charges"][0]["mechanism"].update(noise_multiplier=10**400),
    "noise of next to nothing": lambda data: data["charges"][0]["mechanism"].update(noise_multiplier=1e-320),
    "an enormous epsilon": lambda data: data.update(epsilon=1e308),
    "a newer version": lambda data: data.update(version=2),
    "a property of a newer version": lambda data: data.update(more=1),
    "an empty unit": lambda data: data.update(unit=""),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_statement_is_refused(name: str) -> None:
    data = copy.deepcopy(statement().to_dict())
    EDITS[name](data)
    with pytest.raises(StatementError):
        PrivacyStatement.from_dict(data)


def test_charges_beyond_the_budget_are_refused_even_if_all_numbers_agree() -> None:
    dear = replace(statement(), charges=(Charge("gradient", Gaussian(1.0)),))
    with pytest.raises(StatementError, match="exceed its budget"):
        PrivacyStatement.from_dict(dear.to_dict())
    twice = replace(statement(), charges=2 * (Charge("gradient", Gaussian(1.1 / math.sqrt(statement().budget))),))
    with pytest.raises(StatementError, match="exceed its budget"):
        PrivacyStatement.from_dict(twice.to_dict())
    failing = replace(statement(), charges=(Charge("point", NormLaplace(0.001), 10**6),))
    failing = replace(failing, epsilon=50.0, delta=1e-16)
    with pytest.raises(StatementError, match="may fail with more than its delta"):
        PrivacyStatement.from_dict(failing.to_dict())
    sampled = replace(
        statement(), relation="replace-one", charges=(Charge("g", PoissonSampled(0.1, (Gaussian(40.0),))),)
    )
    sampled = replace(sampled, currency=Ledger(1.0, 1e-6, currency="rdp").currency)
    with pytest.raises(StatementError, match="does not hold under replace-one"):
        PrivacyStatement.from_dict(sampled.to_dict())


def test_parts_that_share_no_row_pay_side_by_side_and_all_rows_pay_for_everything() -> None:
    gaussian, dearer = Gaussian(20.0), Gaussian(15.0)
    charges = (Charge("a", gaussian), Charge("b", gaussian, 2, "left"), Charge("c", dearer, 1, "right"))
    stated = replace(statement(), charges=charges)
    assert stated.spent == pytest.approx(1 / 400 + 2 / 400, rel=1e-12)
    assert PrivacyStatement.from_dict(stated.to_dict()) == stated
    again = replace(stated, charges=(*charges, Charge("c", dearer, 1, "right")))
    assert again.spent == pytest.approx(1 / 400 + 2 / 225, rel=1e-12), (
        "equal charges count as often as they are listed"
    )


def test_a_fingerprint_is_what_the_caller_gives() -> None:
    assert statement().to_dict().get("fingerprint") is None
    marked = statement().with_fingerprint("people.csv of 2026-01")
    assert PrivacyStatement.from_dict(marked.to_dict()).fingerprint == "people.csv of 2026-01"
    for wrong in ("", "x" * 201, 5):
        with pytest.raises(InvalidParameter, match="1 to 200"):
            statement().with_fingerprint(wrong)  # type: ignore[arg-type]


def test_a_fit_that_an_account_paid_for_names_it() -> None:
    data, account = load_dataset("synthetic", n=500), Ledger(2.0, 1e-6, currency="gdp")
    model = DPLogisticRegression(1.0, bounds=data.bounds, classes=data.classes, ledger=account, random_state=0)
    assert model.fit(data.X, data.y).privacy_["account"] == account.identity
    alone = DPLogisticRegression(1.0, bounds=data.bounds, classes=data.classes, noise="float", random_state=0)
    assert "account" not in alone.fit(data.X, data.y).privacy_
    assert "floating point" in alone.privacy_["arithmetic"]
    assert model.privacy_["arithmetic"].startswith("exact")


def test_the_statement_of_a_network_is_the_same_document(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from dpdescent.torch import fit

    rows = torch.utils.data.TensorDataset(torch.randn(200, 3), torch.randint(0, 2, (200,)))
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    result = fit(torch.nn.Linear(3, 2), rows, loss, epsilon=3.0, delta=1e-5, steps=4, batch_size=20, random_state=0)
    stated = PrivacyStatement.from_dict(result.privacy_)
    assert stated.steps == 4
    assert (stated.model, stated.method) == ("Linear", "auto")
    assert "8 numbers" in stated.released[0]
    assert 0.9 < stated.spent_epsilon <= 3.0
    monkeypatch.setattr("dpdescent.statement.privacy_statement.find_spec", lambda _: None)
    with pytest.raises(MissingPackage, match=r"dpdescent\[accounting\]"):
        PrivacyStatement.from_dict(result.privacy_)


# Files ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, data = tmp_path_factory.mktemp("files"), load_dataset("synthetic", n=4000)
    model = DPLogisticRegression(1.0, bounds=data.bounds, classes=data.classes, random_state=0).fit(data.X, data.y)
    SavedModel.from_estimator(model, list(data.feature_names), data.schema).save(folder / "model.json")
    PrivacyStatement.from_dict(model.privacy_).save(folder / "statement.json")
    return {"model": folder / "model.json", "statement": folder / "statement.json"}


READ: dict[str, tuple[Callable[[Path], Any], type[Exception]]] = {
    "model": (SavedModel.load, ModelFormatError),
    "statement": (PrivacyStatement.load, StatementError),
}


@pytest.mark.parametrize("kind", READ)
def test_files_that_are_cut_off_or_changed_are_refused(kind: str, saved: dict[str, Path], tmp_path: Path) -> None:
    read, error = READ[kind]
    whole, path = saved[kind].read_bytes(), tmp_path / "f.json"
    read(saved[kind])
    generator = np.random.default_rng(0)
    for length in {0, 1, len(whole) // 2, len(whole) - 2, *generator.integers(0, len(whole) - 2, 15).tolist()}:
        path.write_bytes(whole[:length])
        with pytest.raises(error):
            read(path)
    refused = 0
    for place in generator.integers(0, len(whole), 60).tolist():
        changed = bytearray(whole)
        changed[place] ^= 1 << int(generator.integers(0, 7))
        path.write_bytes(bytes(changed))
        with suppress(ValueError):
            if json.loads(changed) == json.loads(whole):
                continue  # a tab for a blank, or 1E-5 for 1e-5: the same content
        with pytest.raises(error):
            read(path)
        refused += 1
    assert refused > 40


@pytest.mark.parametrize("kind", READ)
def test_foreign_files_are_refused_by_name_and_never_unpickled(
    kind: str, saved: dict[str, Path], tmp_path: Path
) -> None:
    read, error = READ[kind]
    path = tmp_path / "f.json"

    class Payload:
        def __reduce__(self) -> Any:
            return Path(tmp_path / "ran").touch, ()

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path.write_bytes(pickle.dumps(Payload(), protocol))
        with pytest.raises(error, match="pickle" if protocol >= 2 else "JSON"):
            read(path)
    assert not (tmp_path / "ran").exists()
    data = json.loads(saved[kind].read_text())
    texts = {
        "update dpdescent": json.dumps(data | {"version": data["version"] + 1}),
        "use the release that wrote it": json.dumps(data | {"version": "1"}),
        "not a dpdescent": json.dumps(data | {"format": "another"}),
        "digest": json.dumps({name: value for name, value in data.items() if name != "digest"}),
        "nested too deeply": "[" * 100_000,
        "not a whole JSON file": json.dumps(data)[:-1] + ', "version": 1}',
    }
    for message, text in texts.items():
        path.write_text(text)
        with pytest.raises(error, match=message):
            read(path)
    path.write_text(json.dumps(data).replace('"delta": ', '"other": NaN, "delta": ', 1))
    with pytest.raises(error, match="JSON"):
        read(path)
    with pytest.raises(error, match="there is no"):
        read(tmp_path / "nowhere.json")
    with pytest.raises(error, match="cannot read"):
        read(tmp_path)


def test_a_statement_that_was_edited_and_sealed_again_still_contradicts_itself(
    saved: dict[str, Path], tmp_path: Path
) -> None:
    content = FILE.unseal(saved["statement"].read_bytes(), "x")
    (tmp_path / "s.json").write_text(FILE.seal(content | {"epsilon": 0.1}))
    with pytest.raises(StatementError, match="exceed its budget"):
        PrivacyStatement.load(tmp_path / "s.json")
    model = MODEL_FILE.unseal(saved["model"].read_bytes(), "x")
    model["privacy"]["epsilon"] = 0.1
    (tmp_path / "m.json").write_text(MODEL_FILE.seal(model))
    with pytest.raises(ModelFormatError, match="damaged: the privacy statement"):
        SavedModel.load(tmp_path / "m.json")


MODEL_EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "coefficients": lambda data: data["coefficients"][0].pop(),
    "coefficient_noise": lambda data: data["coefficient_noise"][0].pop(),
    "lists of coefficients": lambda data: data["coefficients"].append(data["coefficients"][0]),
    "as many intercepts": lambda data: data["intercepts"].append(0.0),
    "feature": lambda data: data["features"].pop(),
    "bounds": lambda data: data.update(bounds=[[0.0], [1.0]]),
    "below the high end": lambda data: data.update(bounds=[[0.0] * len(data["features"])] * 2),
    "listed twice": lambda data: data.update(classes=[0, 0]),
    "classes": lambda data: data.update(classes=None),
    "estimator": lambda data: data.update(estimator="Popen"),
    "type number": lambda data: data["coefficients"][0].__setitem__(0, "1"),
    "unknown name": lambda data: data.update(more="gASVBAAAAA=="),
    "lacks": lambda data: data.pop("intercepts"),
    "privacy": lambda data: data.update(privacy={}),
}


@pytest.mark.parametrize("message", MODEL_EDITS)
def test_a_model_whose_parts_do_not_fit_is_refused_even_with_a_digest(
    message: str, saved: dict[str, Path], tmp_path: Path
) -> None:
    data = MODEL_FILE.unseal(saved["model"].read_bytes(), "x")
    MODEL_EDITS[message](data)
    (tmp_path / "m.json").write_text(MODEL_FILE.seal(data))
    with pytest.raises(ModelFormatError, match=f"damaged: .*{message}"):
        SavedModel.load(tmp_path / "m.json")


def test_a_model_comes_back_as_it_was_saved(saved: dict[str, Path], tmp_path: Path) -> None:
    model = SavedModel.load(saved["model"])
    model.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == saved["model"].read_bytes()
    assert model.coefficient_noise is not None
    X = np.random.default_rng(0).random((200, 2))
    bare = DPLinearRegression(1.0, bounds=(0, 1), target_bounds=(-1, 1), method="nonprivate").fit(X, X[:, 0])
    SavedModel.from_estimator(bare, ["a", "b"]).save(tmp_path / "bare.json")
    assert "Infinity" not in (tmp_path / "bare.json").read_text()
    assert SavedModel.load(tmp_path / "bare.json").privacy == bare.privacy_


def test_a_statement_is_not_written_where_it_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(OutputNotWritable, match="choose another place"):
        statement().save(tmp_path)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**20) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_whatever_is_put_into_a_statement_only_a_named_error_comes_out(data: st.DataObject) -> None:
    """One to three places anywhere in the document get arbitrary values."""
    broken: Any = copy.deepcopy(statement().to_dict())
    for _ in range(data.draw(st.integers(1, 3))):
        spot: Any = broken
        while True:
            keys = sorted(spot) if isinstance(spot, dict) else list(range(len(spot)))
            key = data.draw(st.sampled_from(keys)) if keys else None
            if key is None:
                break
            if not (isinstance(spot[key], dict | list) and spot[key] and data.draw(st.booleans())):
                spot[key] = data.draw(_JSON)
                break
            spot = spot[key]
    try:
        built = PrivacyStatement.from_dict(broken)
    except StatementError:
        return
    assert built.spent <= built.budget * (1 + 1e-9)
    assert (built.epsilon, built.delta) == (1.0, 1e-6)
