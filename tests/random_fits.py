"""Random fits, and what the independent check says of each: `python tests/random_fits.py 1000`.

Every estimator, method and way to be charged is drawn with random settings and fitted to a tiny table. Its statement
is then computed anew by `dpdescent.verifier`, which imports nothing of the library. Reported are the smallest and the
largest ratio of the independent epsilon to ours, of the whole budget and of what was spent. Where dp-accounting knows
every mechanism both ratios are 1 but for rounding; where only bounds are published it may be larger, never smaller.
Two kinds are apart, of which more is charged than need be: batches without replacement, for which dp-accounting has a
sharper price, and prices as papers print them.

Every tenth statement is then edited: each number in turn is made 1% smaller (counts by one), and each charge is left
out. What is not refused is counted by the name of the number.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

import dpdescent
from dpdescent import DPDescentError, Ledger, Schema, verifier
from method_runs import CASES, RELATIONS

Draw = np.random.Generator
Floats = np.ndarray
CLASSIFIERS = ("DPLogisticRegression", "DPLinearSVC", "DPAdditiveClassifier", "DPBoostedTreesClassifier")
COUNTS = ("DPPoissonRegressor", "DPAdditivePoissonRegressor")
NUMBERS = (
    "DPLinearRegression",
    "DPHuberRegressor",
    "DPAdditiveRegressor",
    "DPAdditiveHuberRegressor",
    "DPBoostedTreesRegressor",
)
LINEAR = ("DPLogisticRegression", "DPLinearSVC", "DPLinearRegression", "DPHuberRegressor", "DPPoissonRegressor")
#: Currencies of a shared ledger; most fits have none.
CURRENCIES = (None, None, None, None, None, "gdp", "zcdp", "rdp", "pure", "approximate")
#: Ratios that are 1 but for rounding, and mechanisms for which they may be below: more is charged than need be.
EXACT = ("epsilon of the budget", "epsilon of what was spent")
ABOVE = {"printed-price": "prices of papers", "fixed-size-sampled": "batches without replacement"}
#: Relative: the grids of privacy loss distributions, which round up.
ROUNDING = 1e-3


@dataclass(frozen=True)
class Table:
    """A tiny table, its labels, and what a caller says of it."""

    X: Any
    y: Any
    said: dict[str, Any]


def maybe(draw: Draw, share: float) -> bool:
    return bool(draw.random() < share)


def one_of(draw: Draw, choices: Any) -> Any:
    return choices[int(draw.integers(len(choices)))]


def random_table(draw: Draw, name: str) -> Table:
    """Return a table of 20 to 3,000 rows with labels for an estimator; what may be measured is sometimes given."""
    framed = maybe(draw, 0.2)
    rows, columns = int(10 ** (draw.uniform(3, 3.5) if framed else draw.uniform(1.3, 2.8))), int(draw.integers(1, 5))
    X = draw.uniform(-1, 1, (rows, columns))
    X[:, -1] = X[:, -1] > 0
    score = 2 * X[:, 0] + draw.normal(0, 0.5, rows)
    said: dict[str, Any] = {}
    if maybe(draw, 0.6):
        said["bounds"] = (-1.0, 1.0)
    if maybe(draw, 0.3):
        said["binary_features"] = [columns - 1]
    if name in CLASSIFIERS:
        labels = int(draw.integers(2, 5)) if name != "DPLinearSVC" else 2
        y: Any = np.clip(np.digitize(score, np.linspace(-1, 1, labels + 1)[1:-1]), 0, labels - 1)
        said |= {"classes": list(range(labels))} if maybe(draw, 0.8) else {}
    elif name in COUNTS or (name == "DPBoostedTreesRegressor" and maybe(draw, 0.3)):
        y = draw.poisson(np.exp(np.clip(score, -2, 2)))
        said |= {"target_bounds": (0, 20)} if name in COUNTS or maybe(draw, 0.5) else {}
    else:
        y = score
        said |= {"target_bounds": (-4, 4)} if maybe(draw, 0.6) else {}
    if framed:
        return Table(random_frame(draw, X), y, {key: said[key] for key in said.keys() & {"classes", "target_bounds"}})
    return Table(X, y, said)


def random_frame(draw: Draw, X: Floats) -> pd.DataFrame:
    """Return the numbers with columns of text, truth values and dates, and missing cells."""
    frame = pd.DataFrame(X, columns=[f"x{column}" for column in range(X.shape[1])])
    frame["town"] = draw.choice(["north", "south", "east"], len(X))
    frame["open"] = draw.random(len(X)) < 0.5
    frame["since"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(draw.integers(0, 900, len(X)), unit="D")
    frame.loc[draw.random(len(X)) < 0.05, "x0"] = np.nan
    return frame


def random_guarantee(draw: Draw) -> dict[str, Any]:
    return {
        "epsilon": float(10 ** draw.uniform(-1.3, 1.3)),
        "delta": 0.0 if maybe(draw, 0.05) else float(10 ** draw.uniform(-12, -3)),
        "adjacency": one_of(draw, RELATIONS),
    }


def random_options(draw: Draw, name: str, table: Table, epsilon: float, adjacency: str) -> dict[str, Any]:
    """Return arguments of an estimator beside its guarantee: the method, its paths, and who pays."""
    options: dict[str, Any] = dict(table.said)
    if name in LINEAR and maybe(draw, 0.6):
        case = one_of(draw, CASES)
        options |= {"method": case.method, "solver_options": dict(case.options)}
        options["alpha"] = case.penalty or (0.1 if maybe(draw, 0.3) else 0.0)
        options |= {"tilt": case.tilt, "adversary": case.adversary}
        if case.delta == 0:
            options["delta"] = 0.0
    elif maybe(draw, 0.1):
        options["alpha"] = 0.1
    if name.startswith("DPBoosted"):
        options |= {"trees": int(draw.integers(1, 6)), "depth": int(draw.integers(1, 4))}
    if name in CLASSIFIERS and maybe(draw, 0.2):
        options["class_weight"] = "balanced"
    options |= {"inference": True} if maybe(draw, 0.2) else {}
    options |= {"fit_intercept": False} if maybe(draw, 0.1) else {}
    options |= {"noise": "float"} if maybe(draw, 0.1) else {}
    options |= {"random_state": 0} if maybe(draw, 0.2) else {}
    options |= {"rows_per_unit": int(draw.integers(2, 5))} if maybe(draw, 0.15) else {}
    currency = one_of(draw, CURRENCIES)
    if currency is not None:
        paid = 1e-3 if currency in ("gdp", "zcdp", "rdp", "approximate") else 0.0
        unit = "person" if "rows_per_unit" in options else "one row"
        options["ledger"] = Ledger(4 * epsilon, paid, currency=currency, relation=adjacency, unit=unit)
    return options


def random_fit(draw: Draw) -> tuple[str, Callable[[], dict[str, Any]]]:
    """Return what is fitted, in a word, and a function that fits it and returns its statement."""
    name = str(one_of(draw, CLASSIFIERS + NUMBERS + COUNTS + LINEAR))
    table, guarantee = random_table(draw, name), random_guarantee(draw)
    way = one_of(draw, ("fit",) * 15 + ("evaluate", "fit_and_evaluate", "select", "schema", "network"))
    if way == "network":
        return "dpdescent.torch", lambda: network(draw, guarantee)
    if way == "schema":
        return "Schema.measure", lambda: measured_schema(draw, table, guarantee)
    options = random_options(draw, name, table, guarantee["epsilon"], guarantee["adjacency"])
    model = getattr(dpdescent, name)(**guarantee | options)
    units = draw.integers(0, 1 + len(table.y) // 2, len(table.y)) if "rows_per_unit" in options else None
    more = {} if units is None else {"unit": units}
    if way == "fit_and_evaluate":
        shares = {"holdout": 0.3} if maybe(draw, 0.5) else {"evaluate": 0.2}
        return way, lambda: dpdescent.fit_and_evaluate(model, table.X, table.y, **shares, **more).evaluation.privacy
    if way == "evaluate":
        return way, lambda: evaluated(model, table, guarantee, more)
    if way == "select":
        return way, lambda: selected(draw, model, table, guarantee)
    label = f"{name}, {options.get('method', 'auto')}"
    return label, lambda: model.fit(table.X, table.y, **more).privacy_


def evaluated(model: Any, table: Table, guarantee: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    fitted = model.fit(table.X, table.y, **more)
    found = dpdescent.evaluate(fitted, table.X, table.y, **guarantee)
    privacy: dict[str, Any] = found.privacy
    return privacy


def selected(draw: Draw, model: Any, table: Table, guarantee: dict[str, Any]) -> dict[str, Any]:
    from sklearn.base import clone

    model.set_params(unit=None, rows_per_unit=1, ledger=None, random_state=None)
    candidates = [clone(model).set_params(alpha=alpha) for alpha in (0.0, 0.1, 0.3)[: int(draw.integers(2, 4))]]
    strategy = one_of(draw, ("auto", "holdout", "stopping"))
    found = dpdescent.select(candidates, table.X, table.y, **guarantee, strategy=strategy)
    privacy: dict[str, Any] = found.privacy_
    return privacy


def measured_schema(draw: Draw, table: Table, guarantee: dict[str, Any]) -> dict[str, Any]:
    frame = table.X if isinstance(table.X, pd.DataFrame) else random_frame(draw, table.X)
    found = Schema.measure(frame.assign(label=np.asarray(table.y)), label="label", **guarantee)
    privacy: dict[str, Any] = found.measured["statement"]
    return privacy


def network(draw: Draw, guarantee: dict[str, Any]) -> dict[str, Any]:
    try:
        import torch

        from dpdescent.torch import fit
    except ImportError:
        raise dpdescent.InvalidParameter("torch is not installed") from None
    X, y = torch.rand(60, 3), torch.randint(0, 2, (60,))
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    method, rows = one_of(draw, ("auto", "sgd", "adam")), torch.utils.data.TensorDataset(X, y)
    more: dict[str, Any] = {"batch_size": 20, "steps": int(draw.integers(2, 9))} if maybe(draw, 0.7) else {}
    more |= {"bands": int(draw.integers(1, 4))} if method in ("auto", "sgd") and maybe(draw, 0.4) else {}
    found = fit(module, rows, "cross-entropy", method=method, classes=2, **guarantee, **more)
    privacy: dict[str, Any] = found.privacy_
    return privacy


# What the check says ----------------------------------------------------------------------------------------------


@dataclass
class Found:
    """What was found in a number of fits."""

    verdicts: Counter[str] = field(default_factory=Counter)
    fitted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    ratios: dict[str, list[float]] = field(default_factory=dict)
    edits: int = 0
    survived: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, name: str, statement: dict[str, Any], *, whole: bool) -> None:
        """Check one statement: the ``whole`` of it, and its edits, or all but the slow last step."""
        statement = json.loads(json.dumps(statement), parse_constant=lambda _: None)
        self.fitted[name] += 1
        try:
            verdict = (verifier.check_statement if whole else quick_check)(statement)
        except verifier.RefusedError as problem:
            verdict = verifier.Verdict(verifier.REFUSED, (str(problem),))
        word = verifier.WORDS[verdict.code]
        self.verdicts[word] += 1
        if verdict.code in (verifier.REFUSED, verifier.FOREIGN):
            self.problems.append(f"{name}: {verdict.lines}")
        if verdict.code not in (verifier.CONFIRMED, verifier.UNCONFIRMED) or "total" not in verdict.figures:
            return
        for kind, ratio in ratios_of(statement, dict(verdict.figures)):
            self.ratios.setdefault(kind, []).append(ratio)
            below = ratio < 1 - ROUNDING and not kind.endswith(tuple(ABOVE.values()))
            if below or (ratio > 1 + ROUNDING and kind in EXACT):
                self.problems.append(f"{name}: {kind} {ratio}")
        if whole and verdict.code == verifier.CONFIRMED:
            self._edit(name, statement)

    def _edit(self, name: str, statement: dict[str, Any]) -> None:
        for path, edited in edits_of(statement):
            self.edits += 1
            if refused(edited):
                continue
            self.survived[path] += 1
            self.examples.setdefault(path, name)


def ratios_of(statement: dict[str, Any], figures: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Return ratios of epsilons that were computed anew to those that are stated."""
    delta, _ = verifier.counted_delta(statement)
    yield EXACT[0], figures["epsilon"] / statement["epsilon"]
    if statement["spent_epsilon"] > 0:
        kept = "" if figures["exact"] else ", by published bounds"
        listed = json.dumps(statement["charges"])
        kept = next((f", {why}" for kind, why in ABOVE.items() if kind in listed), kept)
        anew = verifier.epsilon_of(statement["currency"], figures["total"], delta)
        yield EXACT[1] + kept, anew / statement["spent_epsilon"]


def refused(statement: dict[str, Any]) -> bool:
    """Return whether an edited statement is not confirmed."""
    try:
        return quick_check(statement).code != verifier.CONFIRMED
    except verifier.RefusedError:
        return True


def quick_check(statement: dict[str, Any]) -> verifier.Verdict:
    """Return the verdict without the last step, the composition of all distributions, which takes seconds."""
    compose, verifier.composed_epsilon = verifier.composed_epsilon, lambda *_: None
    try:
        return verifier.check_statement(statement)
    finally:
        verifier.composed_epsilon = compose


def edits_of(statement: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return copies of a statement with one number 1% smaller, or one charge less, and what was edited."""
    for path in numbers_in(statement):
        edited = copy.deepcopy(statement)
        inner: Any = edited
        for step in path[:-1]:
            inner = inner[step]
        value = inner[path[-1]]
        inner[path[-1]] = value - 1 if isinstance(value, int) else 0.99 * value
        yield shown(path, statement), edited
    for number in range(len(statement["charges"])):
        edited = copy.deepcopy(statement)
        del edited["charges"][number]
        yield "a charge less", edited


def shown(path: tuple[Any, ...], statement: dict[str, Any]) -> str:
    """Return a path in words: positions left out, and a mechanism by its kind."""
    words, inner = [], statement
    for step in path:
        inner = inner[step]
        if isinstance(inner, dict) and "kind" in inner:
            words.append(inner["kind"])
        elif not isinstance(step, int) and (not words or words[-1] not in ("spent_on", "asked", "mechanisms")):
            words.append(str(step))
    return ".".join(words)


def numbers_in(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the paths of all numbers but 0 in plain data."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield from numbers_in(value, (*path, name))
    elif isinstance(data, list):
        for place, value in enumerate(data):
            yield from numbers_in(value, (*path, place))
    elif isinstance(data, int | float) and not isinstance(data, bool) and data != 0:
        yield path


def check(found: Found, count: int, seed: int, *, whole_every: int = 1, progress: bool = False) -> Found:
    """Fit until there are so many statements, and add what the independent check says of them."""
    draw, done = np.random.default_rng(seed), 0
    while done < count:
        number, began = int(draw.integers(2**63)), time.perf_counter()
        stated = attempt(found, number)
        if stated is None:
            continue
        fitted = time.perf_counter()
        found.add(*stated, whole=done % whole_every == 0)
        done += 1
        if progress:
            took = f"{fitted - began:7.2f} s {time.perf_counter() - fitted:7.2f} s"
            print(f"{done:5} {took} {stated[0]} {number}", file=sys.stderr, flush=True)
    return found


def attempt(found: Found, number: int) -> tuple[str, dict[str, Any]] | None:
    """Return the name and the statement of the fit of a number, or None and a note of what stopped it."""
    name = "?"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            name, fit = random_fit(np.random.default_rng(number))
            return name, fit()
    except DPDescentError as problem:
        found.refused[type(problem).__name__] += 1
    except Exception as problem:
        found.problems.append(f"{name}: {type(problem).__name__} in the fit {number}: {problem}")
    return None


def report(found: Found) -> None:
    """Print what was found."""
    total = sum(found.fitted.values())
    print(f"{total} fits; {sum(found.refused.values())} settings that contradict each other were refused at once")
    print("verdicts: " + ", ".join(f"{word} {times}" for word, times in found.verdicts.most_common()))
    for kind, ratios in sorted(found.ratios.items()):
        print(f"{kind}, anew / ours: {min(ratios):.7g} to {max(ratios):.7g} in {len(ratios)} statements")
    print(f"{found.edits} edits, {sum(found.survived.values())} of them not refused")
    for path, times in found.survived.most_common():
        print(f"  {path}: {times}, first in {found.examples[path]}")
    for problem in found.problems:
        print(f"PROBLEM {problem}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--whole-every", type=int, default=10, help="of how many statements one is edited, and composed"
    )
    parser.add_argument("--progress", action="store_true")
    given = parser.parse_args()
    outcome = Found()
    with suppress(KeyboardInterrupt):  # what was found until then is reported
        check(outcome, given.count, given.seed, whole_every=given.whole_every, progress=given.progress)
    report(outcome)
    sys.exit(bool(outcome.problems) or not math.isfinite(sum(map(sum, outcome.ratios.values()))))
