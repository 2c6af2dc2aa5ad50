"""Tilted and adversarial training on Adult: what they cost, and the trade-offs of output perturbation as a picture.

``--cost`` times a value and a gradient of the adversarial objective in units of the plain one, on the same rows.
``--picture FILE`` trains for several epsilons, tilts and radii, prints the tables and draws the picture of
``docs/output-perturbation.md``. A few minutes; ``--seeds`` repeats. ``--tilts`` prints accuracy and tilted loss for
tilts from 1e-6 to 10: by the rule, with the tilted objective itself, and without privacy.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from _timing import best_times
from dpdescent import Adversary, DPLogisticRegression, load_dataset
from dpdescent.curator import ArraySource
from dpdescent.exact import FeatureGrid
from dpdescent.minimisers import EmpiricalRisk, RobustRisk
from dpdescent.problems import HuberisedHinge, Logistic
from dpdescent.relations import Relation

EPSILONS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
RADII = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3)
TILTS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
MANY_TILTS = (0.0, 1e-6, 1e-4, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0)
ATTACK = Adversary(0.1)
MODELS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tilt 1": {"tilt": 1.0},
    "tilt 10": {"tilt": 10.0},
    "adversary 0.1": {"adversary": ATTACK},
}


class Coded:
    """Training and test rows of a table, at most 50,000, with labels -1 and 1."""

    def __init__(self, name: str = "adult") -> None:
        data = load_dataset(name)
        X = np.asarray(data.X.toarray() if hasattr(data.X, "toarray") else data.X, dtype=np.float64)
        y = np.where(np.asarray(data.y) == data.classes[1], 1.0, -1.0)
        order = np.random.default_rng(0).permutation(y.size)[:50_000]
        self.train, self.test = np.split(order, [4 * order.size // 5])
        self.X, self.y, self.bounds = X, y, data.bounds

    def fit(self, epsilon: float, seed: int, **options: Any) -> DPLogisticRegression:
        model = DPLogisticRegression(
            epsilon,
            1e-8,
            method="outpert",
            bounds=self.bounds,
            tighten=False,  # radii of adversaries are in units of the bounds
            classes=(-1, 1),
            random_state=seed,
            **options,
        )
        return model.fit(self.X[self.train], self.y[self.train])

    def accuracy(self, model: DPLogisticRegression, radius: float) -> float:
        X, y = self.X[self.test], self.y[self.test]
        if radius:
            X = Adversary(radius).attack(X, y, model.coef_[0])
        return float(model.score(X, y))


def cost() -> dict[str, float]:
    """Return the time of an adversarial value and gradient over the plain one, for each loss and shape."""
    data = Coded()
    X = np.column_stack([data.X[data.train], np.ones(data.train.size)])
    grid = FeatureGrid(1.0, X.shape[1])
    placed = grid.place(X)
    norms = grid.squared_norms(placed)
    source = ArraySource(placed, data.y[data.train], grid)
    quadratic, linear = np.full(X.shape[1], 100.0), np.zeros(X.shape[1])
    weights = np.random.default_rng(0).normal(size=X.shape[1]) * 0.1
    ratios = {}
    for loss in (Logistic(), HuberisedHinge()):
        plain = EmpiricalRisk(loss, 3.0).objective(source, grid, norms, quadratic, linear)
        timed = {"plain": lambda plain=plain: plain.value_and_gradient(weights)}
        for norm in ("l2", "linf"):
            support = Adversary(0.1, norm).support(X.shape[1], True)  # type: ignore[arg-type]
            robust = RobustRisk(loss, 3.0, X.shape[0], 0.0, support).objective(source, grid, norms, quadratic, linear)
            timed[norm] = lambda robust=robust: robust.value_and_gradient(weights)
        tilted = RobustRisk(loss, 3.0, X.shape[0], 1.0).objective(source, grid, norms, quadratic, linear)
        timed["tilt"] = lambda tilted=tilted: tilted.value_and_gradient(weights)
        best = best_times(timed, 30)
        for name in ("l2", "linf", "tilt"):
            ratios[f"{type(loss).__name__} {name}"] = best[name] / best["plain"]
    return ratios


def measure(seeds: int) -> dict[str, Any]:
    """Train everything that the picture shows."""
    data = Coded()
    rows: list[dict[str, Any]] = []
    for name, options in MODELS.items():
        for epsilon in EPSILONS:
            for seed in range(seeds):
                start = time.perf_counter()
                model = data.fit(epsilon, seed, **options)
                seconds = time.perf_counter() - start
                clean, attacked = (data.accuracy(model, radius) for radius in (0.0, ATTACK.radius))
                rows.append(
                    {
                        "model": name,
                        "epsilon": epsilon,
                        "seed": seed,
                        "clean": clean,
                        "attacked": attacked,
                        "seconds": seconds,
                    }
                )
        of_model = [row for row in rows if row["model"] == name]
        for field in ("clean", "attacked"):
            means = [np.mean([r[field] for r in of_model if r["epsilon"] == e]) for e in EPSILONS]
            print(f"{name:14} {field:9}", " ".join(f"{mean:.3f}" for mean in means), flush=True)
    robust: dict[str, list[float]] = {}
    for name, options in (
        ("plain", {}),
        ("radius 0.1", {"adversary": ATTACK}),
        ("radius 0.3", {"adversary": Adversary(0.3)}),
    ):
        for epsilon in (0.8, 1e6):
            model = data.fit(epsilon, 0, **options)
            label = f"{name}, epsilon {'0.8' if epsilon < 1 else 'infinite'}"
            robust[label] = [data.accuracy(model, radius) for radius in RADII]
            print(f"{label:28}", " ".join(f"{value:.3f}" for value in robust[label]), flush=True)
    return {"rows": rows, "robust": robust, "tail": tail(data), "time": times(data)}


def tail(data: Coded) -> dict[str, list[float]]:
    """Return the mean and the largest hundredth of the losses, and how far one row moves the minimiser, by tilt."""
    found: dict[str, list[float]] = {"mean loss": [], "worst 1%": [], "moved by a row": []}
    X = np.column_stack([data.X[data.train], np.ones(data.train.size)])
    y, rows = data.y[data.train], data.train.size
    for tilt in TILTS:
        options = {"strong_convexity": 0.3 * rows, "row_bound": 3.9, "radius": 0.6} if tilt else {}
        options = options or {"strong_convexity": 0.3 * rows, "row_bound": 3.9}
        model = data.fit(1e9, 0, tilt=tilt, solver_options=options | {"tolerance": 1e-4})
        losses = np.sort(np.logaddexp(0, -y * (X @ np.append(model.coef_[0], model.intercept_))))
        risk = RobustRisk(Logistic(), 3.9, rows, tilt, radius=0.6)
        moved = risk.variation(rows, Relation.ZERO_OUT) / (0.3 * rows)
        for name, value in (
            ("mean loss", losses.mean()),
            ("worst 1%", losses[-rows // 100 :].mean()),
            ("moved by a row", min(moved, 1.2)),
        ):
            found[name].append(float(value))
        print(f"tilt {tilt:4g}", " ".join(f"{name} {values[-1]:.4g}" for name, values in found.items()), flush=True)
    return found


def tilts(name: str, seeds: int, epsilon: float) -> None:
    """Print test accuracy and tilted loss for many tilts."""
    data = Coded(name)
    rows = np.column_stack([data.X, np.ones(data.y.size)])
    print(f"{name}, epsilon {epsilon:g}: accuracy and tilted loss")
    print("  by the rule, of the tilted objective itself, and without privacy")
    for tilt in MANY_TILTS:
        line = f"tilt {tilt:<6g}"
        for tilting in ("length", "objective"):
            found = []
            for seed in range(seeds):
                model = data.fit(epsilon, seed, tilt=tilt, solver_options={"tilting": tilting})
                weights = np.append(model.coef_[0], model.intercept_)
                found.append((data.accuracy(model, 0.0), _tilted_loss(data, rows, data.test, tilt, weights)[0]))
            line += "  {:.4f} {:.4f}".format(*np.mean(found, axis=0))
        best = minimize(
            lambda w, tilt=tilt: _tilted_loss(data, rows, data.train, tilt, w, 1e-4),
            np.zeros(rows.shape[1]),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 2000, "maxfun": 3000},
        )
        accuracy = np.mean(data.y[data.test] * (rows[data.test] @ best.x) > 0)
        print(f"{line}  {accuracy:.4f} {_tilted_loss(data, rows, data.test, tilt, best.x)[0]:.4f}", flush=True)


def _tilted_loss(
    data: Coded, rows: np.ndarray, some: np.ndarray, tilt: float, weights: np.ndarray, penalty: float = 0.0
) -> tuple[float, np.ndarray]:
    """Return the tilted loss of some rows, with a penalty, and its gradient."""
    X, y = rows[some], data.y[some]
    margins = y * (X @ weights)
    losses = np.logaddexp(0, -margins)
    shares = np.exp(tilt * (losses - losses.max()))
    value = losses.max() + np.log(shares.mean()) / tilt if tilt else losses.mean()
    slopes = -y / (1 + np.exp(margins)) * shares / shares.sum()
    return float(value + penalty / 2 * weights @ weights), X.T @ slopes + penalty * weights


def times(data: Coded) -> dict[str, list[float]]:
    """Return the seconds of a fit by tolerance, in units of the sensitivity, for each minimiser."""
    found: dict[str, list[float]] = {}
    for minimiser in ("lbfgs", "agd"):
        found[minimiser] = []
        for tolerance in (1.0, 0.1, 0.01, 0.001):
            start = time.perf_counter()
            data.fit(0.8, 0, solver_options={"minimiser": minimiser, "tolerance": tolerance})
            found[minimiser].append(time.perf_counter() - start)
        print(f"{minimiser:10}", " ".join(f"{seconds:.2f} s" for seconds in found[minimiser]), flush=True)
    return found


def draw(result: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    colours = {"plain": "#0072B2", "tilt 1": "#E69F00", "tilt 10": "#D55E00", "adversary 0.1": "#009E73"}
    figure, axes = plt.subplots(2, 2, figsize=(11.5, 7.5), layout="constrained")
    figure.get_layout_engine().set(wspace=0.08)
    first, second, third, fourth = axes.ravel()
    for name, colour in colours.items():
        for field, dash in (("clean", "-"), ("attacked", "--")):
            chosen = [
                [r[field] for r in result["rows"] if r["model"] == name and r["epsilon"] == e] for e in EPSILONS
            ]
            means, spread = np.mean(chosen, axis=1), np.std(chosen, axis=1)
            first.plot(EPSILONS, means, dash, color=colour, label=f"{name}, {field}", marker="o", markersize=3)
            first.fill_between(EPSILONS, means - spread, means + spread, color=colour, alpha=0.1, linewidth=0)
    first.set(xscale="log", xlabel="epsilon", ylabel="test accuracy", title="privacy and accuracy (attack 0.1)")
    first.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS], minor=False)
    first.minorticks_off()
    first.set_ylim(0.75, 0.9)
    first.legend(fontsize=7, ncol=2, loc="upper left", handlelength=3)
    for (name, values), colour in zip(
        result["robust"].items(), ("#0072B2", "#0072B2", "#009E73", "#009E73", "#CC79A7", "#CC79A7"), strict=True
    ):
        second.plot(
            RADII, values, "--" if "infinite" in name else "-", color=colour, label=name, marker="o", markersize=3
        )
    second.set(xlabel="radius of the attack", ylabel="test accuracy", title="robustness and accuracy")
    second.legend(fontsize=7, handlelength=3)
    other = third.twinx()
    third.plot(TILTS, result["tail"]["mean loss"], "o-", color="#0072B2", markersize=3, label="mean loss")
    third.plot(TILTS, result["tail"]["worst 1%"], "s-", color="#D55E00", markersize=3, label="mean of the worst 1%")
    other.plot(TILTS, result["tail"]["moved by a row"], "^:", color="#555555", markersize=3, label="moved by a row")
    other.set(yscale="log", ylabel="moved by a row (log scale)")
    third.set(xlabel="tilt", ylabel="loss", title="tilt: the worst rows, and what one row may do (no noise)")
    handles = [part for axis in (third, other) for part in axis.get_legend_handles_labels()[0]]
    third.legend(handles, [str(part.get_label()) for part in handles], fontsize=7, loc="center right")
    for (name, seconds), colour in zip(result["time"].items(), ("#0072B2", "#E69F00"), strict=True):
        fourth.plot((1.0, 0.1, 0.01, 0.001), seconds, "o-", color=colour, markersize=3, label=name)
    fourth.set(
        xscale="log",
        yscale="log",
        xlabel="tolerance / sensitivity",
        ylabel="seconds of a fit",
        title="tolerance and time",
    )
    fourth.invert_xaxis()
    fourth.set_yticks((0.5, 1, 2, 5), ("0.5", "1", "2", "5"))
    fourth.minorticks_off()
    fourth.legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--picture", type=Path, metavar="FILE")
    parser.add_argument("--tilts", action="store_true")
    parser.add_argument("--dataset", default="adult", help="with --tilts")
    parser.add_argument("--epsilon", type=float, default=0.8, help="with --tilts")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements here")
    arguments = parser.parse_args()
    result: dict[str, Any] = {}
    if arguments.cost:
        result["cost"] = cost()
        for name, ratio in result["cost"].items():
            print(f"{name:22} {ratio:.2f} times the plain loss")
    if arguments.tilts:
        tilts(arguments.dataset, arguments.seeds, arguments.epsilon)
    if arguments.picture is not None:
        result |= measure(arguments.seeds)
        draw(result, arguments.picture)
        print(f"written: {arguments.picture}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
