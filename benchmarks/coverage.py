"""Coverage of 95% intervals: how often they contain the population's coefficients, and how wide they are.

    python benchmarks/coverage.py                    # every setting, 40 fits each: a quarter of an hour
    python benchmarks/coverage.py --fits 5 --only linear
    python benchmarks/coverage.py --json coverage.json
    python benchmarks/coverage.py --errors           # of coefficients, beside `auto` with the whole budget
    python benchmarks/coverage.py --differences      # of scores, and bands of curves, instead of coefficients

Every fit has rows of its own. Coefficients of the population are those of the law that rows are drawn from, or, where
the model is mis-specified, those that minimise its loss on two million rows. The last columns are the interval of the
same model without privacy, from the sandwich of the same rows: its coverage, and the ratio of the widths. Standard
errors are those over fits. Nothing printed here is private.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import norm

from dpdescent import (
    DPAdditiveClassifier,
    DPAdditiveRegressor,
    DPHuberRegressor,
    DPLinearRegression,
    DPLogisticRegression,
    DPPoissonRegressor,
    load_dataset,
)
from dpdescent.errors import DPDescentError

DELTA = 1e-6
LEVEL = 0.95
BANDS = (("logistic", 20_000, 1.0), ("logistic", 10_000, 8.0), ("linear", 20_000, 1.0), ("linear", 10_000, 8.0))
POPULATION = 2_000_000
MODELS = {
    "logistic": DPLogisticRegression,
    "linear": DPLinearRegression,
    "poisson": DPPoissonRegressor,
    "huber": DPHuberRegressor,
}

Draw = Callable[[np.random.Generator, int], tuple[Any, np.ndarray]]


@dataclass(frozen=True)
class Setting:
    """A population, a model and a budget; ``truth`` has the coefficients and the intercept, None to find them."""

    name: str
    kind: str
    rows: int
    columns: int
    epsilon: float
    draw: Draw
    truth: np.ndarray | None = None
    parameters: dict[str, Any] = field(default_factory=dict)


def normal(generator: np.random.Generator, rows: int, columns: int, correlation: float = 0.0) -> np.ndarray:
    """Return normal columns, all pairs correlated, clipped to [-4, 4]."""
    common = generator.normal(size=(rows, 1))
    own = generator.normal(size=(rows, columns))
    return np.clip(np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own, -4, 4)


def responses(kind: str, generator: np.random.Generator, scores: np.ndarray, noise: float = 1.0) -> np.ndarray:
    """Draw labels whose mean is that of the model."""
    if kind == "logistic":
        return (generator.random(scores.size) < expit(scores)).astype(int)
    if kind == "poisson":
        return generator.poisson(np.exp(scores))
    return scores + generator.normal(0, noise, scores.size)


def glm(kind: str, columns: int, strength: float, intercept: float, correlation: float = 0.0) -> tuple[Draw, Any]:
    """Return a well specified population, and its coefficients."""
    truth = strength * np.linspace(-1, 1, columns)

    def draw(generator: np.random.Generator, rows: int) -> tuple[Any, np.ndarray]:
        X = normal(generator, rows, columns, correlation)
        return X, responses(kind, generator, X @ truth + intercept)

    return draw, np.append(truth, intercept)


def lognormal(generator: np.random.Generator, rows: int) -> tuple[Any, np.ndarray]:
    X = np.clip(np.exp(generator.normal(0, 0.8, (rows, 4))), 0, 20)
    return X, responses("logistic", generator, X @ LOGNORMAL[:-1] + LOGNORMAL[-1])


LOGNORMAL = np.array([-0.4, -0.1, 0.1, 0.4, -0.2])


def wrong_logistic(generator: np.random.Generator, rows: int) -> tuple[Any, np.ndarray]:
    X = normal(generator, rows, 5)
    scores = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.5 * X[:, 3]
    return X, responses("logistic", generator, scores)


def wrong_linear(generator: np.random.Generator, rows: int) -> tuple[Any, np.ndarray]:
    X = normal(generator, rows, 5)
    scores = X @ np.linspace(-1, 1, 5) + 0.3 * X[:, 0] ** 2 + 0.3
    return X, scores + generator.normal(size=rows) * np.exp(0.4 * X[:, 4])


def heavy_tails(generator: np.random.Generator, rows: int) -> tuple[Any, np.ndarray]:
    X = normal(generator, rows, 5)
    return X, X @ np.linspace(-1, 1, 5) + 0.3 + generator.standard_t(3, rows)


def levels(generator: np.random.Generator, rows: int) -> tuple[Any, np.ndarray]:
    cells = generator.choice(4, rows, p=[0.4, 0.3, 0.2, 0.1])
    number = normal(generator, rows, 1)[:, 0]
    frame = {f"colour={name}": (cells == code).astype(float) for code, name in enumerate("abcd")}
    frame["age"] = number
    scores = np.array([-0.5, 0.0, 0.3, 0.8])[cells] + 0.5 * number
    return pd.DataFrame(frame), responses("logistic", generator, scores)


LEVELS = np.array([0.5, *(np.array([-0.5, 0.0, 0.3, 0.8]) - 0.15)])  # as `conf_int` has them: numbers first


def samples(name: str, columns: Sequence[int]) -> Draw:
    """Return samples of some columns of a table, with replacement: the table is the population."""
    data = load_dataset(name)
    X, y = np.asarray(data.X, dtype=float)[:, list(columns)], (np.asarray(data.y) == data.classes[1]).astype(int)

    def draw(generator: np.random.Generator, rows: int) -> tuple[Any, np.ndarray]:
        some = generator.integers(0, len(y), rows)
        return X[some], y[some]

    return draw


def one_sided(generator: np.random.Generator, rows: int) -> tuple[Any, np.ndarray]:
    X = np.minimum(generator.exponential(size=(rows, 4)), 12.0)
    return X, np.minimum(X[:, 0] + X[:, 1] * generator.exponential(size=rows), 100.0)


def settings() -> Iterator[Setting]:
    """Yield every setting of the table."""

    def known(name: str, kind: str, rows: int, columns: int, epsilon: float, law: Any, **given: Any) -> Setting:
        draw, truth = law
        return Setting(name, kind, rows, columns, epsilon, draw, truth, {"bounds": (-4, 4), **given})

    plain, target = ("logistic", 5, 1.0, 0.3), {"target_bounds": (-10, 10)}
    yield known("logistic", "logistic", 5_000, 5, 1, glm(*plain))
    yield known("logistic", "logistic", 2_000, 5, 8, glm(*plain))
    yield known("logistic", "logistic", 20_000, 10, 0.2, glm("logistic", 10, 1.0, 0.3))
    yield known("logistic", "logistic", 50_000, 20, 1, glm("logistic", 20, 1.0, 0.3))
    yield known("logistic, 3% positives", "logistic", 20_000, 5, 1, glm("logistic", 5, 0.7, -4.0))
    yield known("logistic, measured bounds", "logistic", 10_000, 5, 1, glm(*plain), bounds=None)
    yield known("logistic, effects to 1.5", "logistic", 10_000, 5, 1, glm("logistic", 5, 1.5, 0.3))
    yield known("logistic, effects to 3", "logistic", 10_000, 5, 1, glm("logistic", 5, 3.0, 0.3))
    yield known("logistic, effects to 6", "logistic", 10_000, 5, 1, glm("logistic", 5, 6.0, 0.3))
    yield known("logistic, correlation .95", "logistic", 20_000, 5, 1, glm("logistic", 5, 1.0, 0.3, 0.95))
    yield Setting("logistic, lognormal", "logistic", 20_000, 4, 8, lognormal, LOGNORMAL, {"bounds": (0, 20)})
    yield Setting("logistic, lognormal, measured bounds", "logistic", 20_000, 4, 1, lognormal, LOGNORMAL)
    yield known("logistic, replace-one", "logistic", 20_000, 5, 1, glm(*plain), adjacency="replace-one")
    yield Setting("logistic, mis-specified", "logistic", 20_000, 5, 1, wrong_logistic, None, {"bounds": (-4, 4)})
    yield Setting(
        "logistic, levels of a column",
        "logistic",
        20_000,
        5,
        1,
        levels,
        LEVELS,
        {"bounds": ([0, 0, 0, 0, -4], [1, 1, 1, 1, 4]), "binary_features": [0, 1, 2, 3]},
    )
    for table, name, columns, rows in (
        ("Adult", "adult", (0, 4, 15, 19, 36), 10_000),
        ("bank marketing", "bank", (0, 18, 19, 20, 24, 25, 28), 20_000),
        ("Covertype", "covertype", range(10), 20_000),
    ):
        for epsilon in (0.2, 1, 8):
            draw = samples(name, columns)
            yield Setting(
                f"logistic, samples of {table}",
                "logistic",
                rows,
                len(columns),
                epsilon,
                draw,
                None,
                {"bounds": (0, 1)},
            )
    wide = {"bounds": (0, 12), "target_bounds": (0, 100)}
    for epsilon in (1, 8):
        yield Setting("linear, one-sided tails", "linear", 20_000, 4, epsilon, one_sided, None, wide)
    yield known("linear", "linear", 5_000, 5, 1, glm("linear", 5, 1.0, 0.3), **target)
    yield known("linear", "linear", 20_000, 10, 0.2, glm("linear", 10, 1.0, 0.3), **target)
    yield known("linear", "linear", 50_000, 20, 8, glm("linear", 20, 1.0, 0.3), **target)
    yield known("linear, measured target", "linear", 10_000, 5, 1, glm("linear", 5, 1.0, 0.3))
    yield known("linear, correlation .95", "linear", 20_000, 5, 1, glm("linear", 5, 1.0, 0.3, 0.95), **target)
    yield Setting(
        "linear, mis-specified",
        "linear",
        5_000,
        5,
        8,
        wrong_linear,
        None,
        {"bounds": (-4, 4), "target_bounds": (-20, 20)},
    )
    yield Setting(
        "linear, heavy tails",
        "linear",
        10_000,
        5,
        1,
        heavy_tails,
        None,
        {"bounds": (-4, 4), "target_bounds": (-50, 50)},
    )
    yield known("Poisson", "poisson", 2_000, 5, 8, glm("poisson", 5, 0.3, 0.5), target_bounds=(0, 20))
    yield known("Poisson", "poisson", 20_000, 5, 1, glm("poisson", 5, 0.3, 0.5), target_bounds=(0, 20))
    yield known("Poisson", "poisson", 5_000, 5, 1, glm("poisson", 5, 0.3, 0.5), target_bounds=(0, 20))
    yield known("Poisson", "poisson", 50_000, 5, 0.2, glm("poisson", 5, 0.3, 0.5), target_bounds=(0, 20))
    yield Setting(
        "Huber, heavy tails",
        "huber",
        10_000,
        5,
        1,
        heavy_tails,
        None,
        {"bounds": (-4, 4), "target_bounds": (-50, 50), "threshold": 2.0},
    )


def minimise(kind: str, X: Any, y: np.ndarray, threshold: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients without privacy, the intercept last, and their sandwich errors."""
    rows = np.column_stack([np.asarray(X, dtype=float), np.ones(len(y))])
    weights = np.zeros(rows.shape[1])
    for _ in range(50):
        residuals, curvatures = _derivatives(kind, rows @ weights, y, threshold)
        hessian = (rows * curvatures[:, None]).T @ rows
        step = np.linalg.lstsq(hessian, rows.T @ residuals, rcond=1e-10)[0]
        weights = weights - step * min(1.0, 2 / max(np.linalg.norm(step), 1e-12))
        if np.linalg.norm(step) < 1e-10:
            break
    psi = rows * residuals[:, None]
    inverse = np.linalg.pinv(hessian, rcond=1e-10)
    return weights, np.sqrt(np.diag(inverse @ (psi.T @ psi) @ inverse))


def _derivatives(kind: str, scores: np.ndarray, y: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    if kind == "logistic":
        means = expit(scores)
        return means - y, means * (1 - means)
    if kind == "poisson":
        means = np.exp(np.minimum(scores, 30))
        return means - y, means
    apart = scores - y
    if kind == "linear":
        return apart, np.ones_like(apart)
    return np.clip(apart, -threshold, threshold), (np.abs(apart) <= threshold).astype(float)


def measure(setting: Setting, fits: int, seed: int) -> dict[str, Any]:
    """Return the coverage and the width of a setting, over fits with rows of their own."""
    generator = np.random.default_rng(seed)
    threshold = setting.parameters.get("threshold", 1.0)
    truth = setting.truth
    if truth is None:
        truth = minimise(setting.kind, *setting.draw(np.random.default_rng(12345), POPULATION), threshold)[0]
    given = {"classes": (0, 1)} if setting.kind == "logistic" else {}
    covered, together, widths, plain, refused, start = [], [], [], [], 0, time.perf_counter()
    open_covered = []
    for _ in range(fits):
        X, y = setting.draw(generator, setting.rows)
        model = MODELS[setting.kind](
            setting.epsilon,
            DELTA,
            inference=True,
            random_state=int(generator.integers(2**31)),
            **given,
            **setting.parameters,
        )
        try:
            model.fit(X, y)
        except DPDescentError as problem:
            print(f"{setting.name}: {problem}")
            refused += 1
            continue
        low, high = model.conf_int(LEVEL).to_numpy().T
        covered.append(((low <= truth) & (truth <= high)).mean())
        ends = model.conf_int(LEVEL, simultaneous=True).to_numpy().T
        together.append(float(((ends[0] <= truth) & (truth <= ends[1])).all()))
        if isinstance(X, pd.DataFrame):  # levels of a column: no plain interval
            continue
        weights, errors = minimise(setting.kind, X, y, threshold)
        half = norm.ppf((1 + LEVEL) / 2) * errors
        resolved = np.isfinite(high - low)
        widths.append(float(np.median(((high - low) / (2 * half))[resolved])) if resolved.any() else np.inf)
        plain.append((np.abs(weights - truth) <= half).mean())
        open_covered.append(float(resolved.mean()))

    def mean(values: list[Any]) -> tuple[float, float]:
        if not values:
            return float("nan"), float("nan")
        return float(np.mean(values)), float(np.std(values) / np.sqrt(len(values)))

    return {
        "setting": setting.name,
        "n": setting.rows,
        "d": setting.columns,
        "epsilon": setting.epsilon,
        "fits": fits - refused,
        "coverage": mean(covered),
        "all": mean(together),
        "width": mean(widths)[0],
        "without privacy": mean(plain),
        "resolved": mean(open_covered)[0],
        "seconds": time.perf_counter() - start,
    }


def line(found: dict[str, Any]) -> str:
    """Return a row of the table."""
    size = f"{found['n']:,} x {found['d']}, {found['epsilon']:g}"
    coverage, every, plain = (
        f"{found[key][0]:.3f} ({found[key][1]:.3f})" for key in ("coverage", "all", "without privacy")
    )
    if not np.isfinite(found["width"]):
        return f"| {found['setting']} | {size} | {found['fits']} | {coverage} | {every} | | |"
    return (
        f"| {found['setting']} | {size} | {found['fits']} | {coverage} | {every} | {found['width']:.2f} | {plain} |"
    )


def errors(setting: Setting, fits: int, seed: int) -> str:
    """Return a row with the root mean square errors of the coefficients, with and without what intervals need."""
    generator, found = np.random.default_rng(seed), {True: [], False: []}
    given = {"classes": (0, 1)} if setting.kind == "logistic" else {}
    for _ in range(fits):
        X, y = setting.draw(generator, setting.rows)
        noise = int(generator.integers(2**31))
        for inference, apart in found.items():
            options = {"inference": inference, "random_state": noise, **given, **setting.parameters}
            model = MODELS[setting.kind](setting.epsilon, DELTA, **options).fit(X, y)
            apart.append(np.append(model.coef_, model.intercept_) - setting.truth)
    with_, without = (float(np.sqrt(np.mean(np.square(each)))) for each in found.values())
    size = f"{setting.rows:,} x {setting.columns}, {setting.epsilon:g}"
    return f"| {setting.name} | {size} | {fits} | {with_:.4f} | {without:.4f} |"


def differences(setting: Setting, fits: int, seed: int) -> str:
    """Return a row with the coverage of differences between the scores of 20 pairs of rows, and all of them."""
    generator, pairs = np.random.default_rng(seed), setting.draw(np.random.default_rng(0), 40)[0]
    given = {"classes": (0, 1)} if setting.kind == "logistic" else {}
    truth, covered, together = (pairs[:20] - pairs[20:]) @ setting.truth[:-1], [], []
    for _ in range(fits):
        options = {"inference": True, "random_state": int(generator.integers(2**31)), **given, **setting.parameters}
        model = MODELS[setting.kind](setting.epsilon, DELTA, **options).fit(*setting.draw(generator, setting.rows))
        found = model.score_differences(pairs[:20], pairs[20:], LEVEL).to_frame()
        covered.append(((found["low"] <= truth) & (truth <= found["high"])).mean())
        together.append(float(((found["low of all"] <= truth) & (truth <= found["high of all"])).all()))
    return _pair(f"{setting.name}, differences of scores", setting, covered, together)


def _pair(name: str, setting: Setting, covered: list[Any], together: list[Any]) -> str:
    shown = [f"{np.mean(each):.3f} ({np.std(each) / np.sqrt(len(each)):.3f})" for each in (covered, together) if each]
    size = f"{setting.rows:,} x {setting.columns}, {setting.epsilon:g}"
    return " | ".join([f"| {name}", size, str(len(covered)), *shown, *[""] * (2 - len(shown))]) + " |"


def curved(generator: np.random.Generator, rows: int) -> tuple[Any, np.ndarray]:
    X = generator.uniform(-1, 1, (rows, 3))
    scores = np.sin(3 * X[:, 0]) + 2 * np.abs(X[:, 1]) - 1 + X[:, 2]
    return X, scores


def bands(kind: str, rows: int, epsilon: float, fits: int, seed: int) -> str:
    """Return a row with the coverage of bands of curves, which are 1.96 of their standard errors wide.

    The population's curves are those with the model's knots that minimise the loss on many rows.
    """
    generator, covered, truth = np.random.default_rng(seed), [], None
    given = {"classes": (0, 1)} if kind == "logistic" else {"target_bounds": (-8, 8)}
    of_kind = DPAdditiveClassifier if kind == "logistic" else DPAdditiveRegressor
    for _ in range(fits):
        X, scores = curved(generator, rows)
        options = {"inference": True, "bounds": (-1, 1), "pieces": 2, "random_state": int(generator.integers(2**31))}
        model = of_kind(epsilon, DELTA, **options, **given).fit(X, responses(kind, generator, scores))
        if truth is None:
            many, scores = curved(np.random.default_rng(12345), POPULATION // 5)
            y = responses(kind, np.random.default_rng(12346), scores)
            truth = minimise(kind, np.asarray(model._features.apply(many).toarray()), y)[0]
        inside = []
        for term in model.terms_:
            at = np.zeros((term.grid.size, 3))
            at[:, int(term.column[1:])] = term.grid
            value = model._features.apply(at) @ truth[:-1]
            inside.append(
                np.abs(term.effect.ravel() - value) <= norm.ppf((1 + LEVEL) / 2) * term.noise.ravel() + 1e-9
            )
        covered.append(np.concatenate(inside).mean())
    setting = Setting("", kind, rows, 3, epsilon, curved)
    return _pair(f"{kind}, bands of curves", setting, covered, [])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=40, help="fits of each setting")
    parser.add_argument("--only", help="settings whose names contain this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--errors", action="store_true", help="errors of coefficients beside those of `auto` instead")
    parser.add_argument(
        "--differences", action="store_true", help="differences of scores and bands of curves instead"
    )
    arguments = parser.parse_args()
    if arguments.differences:
        print("| of what | n x d, epsilon | fits | coverage (se) | all together (se) |")
        print("| --- | --- | --- | --- | --- |")
        names = ("logistic", "logistic, 3% positives", "linear", "linear, correlation .95", "Poisson")
        for number, setting in enumerate(settings()):
            if setting.name in names:
                print(differences(setting, arguments.fits, arguments.seed + 1000 * number), flush=True)
        for number, (kind, rows, epsilon) in enumerate(BANDS):
            print(bands(kind, rows, epsilon, arguments.fits, arguments.seed + 1000 * number), flush=True)
        return
    if arguments.errors:
        print("| setting | n x d, epsilon | fits | error with inference=True | error of auto |")
        print("| --- | --- | --- | --- | --- |")
        for number, setting in enumerate(settings()):
            plain = setting.name in ("logistic", "linear", "Poisson") and setting.rows == 5_000
            if plain:
                print(errors(setting, arguments.fits, arguments.seed + 1000 * number), flush=True)
        return
    print("| setting | n x d, epsilon | fits | coverage (se) | all together (se) | width | without privacy (se) |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    every = []
    for number, setting in enumerate(settings()):
        if arguments.only is None or arguments.only in setting.name:
            every.append(measure(setting, arguments.fits, arguments.seed + 1000 * number))
            print(line(every[-1]), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(every, indent=1))


if __name__ == "__main__":
    main()
