"""Private training of networks on many small tasks, without a learning rate and with the best of many.

A cell is a task and an epsilon. `auto` is compared with the best of DP-SGD and DP-Adam over a grid of learning rates
(clip norm 1), chosen on the test data, which nobody could do, and with DP-SGD at each of three rates. Rules were
chosen on the development tasks alone; ``--kept-back`` runs the others::

    python benchmarks/network_tasks.py                              # development tasks, epsilon 3, two seeds
    python benchmarks/network_tasks.py --epsilons 1 3 8 --seeds 5 --json all.json
    python benchmarks/network_tasks.py --kept-back --methods auto bands=1
    python benchmarks/network_tasks.py --tasks text covertype --methods auto

``bands=1`` is `auto` with independent noise. A run takes seconds on one core, and one that the file of ``--json`` has
already is not repeated. Tables are those of $DPDESCENT_DATA and
of scikit-learn; the text is drawn here.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

DELTA = 1e-5
GRID = {"sgd": (0.3, 1.0, 3.0, 8.0), "adam": (0.003, 0.01)}  # learning rates, at clip norm 1
SHOWN = (1.0, 3.0, 8.0)  # rates of DP-SGD that are shown by themselves


@dataclass(frozen=True)
class Task:
    """Rows, of which the first ``size`` are trained on, and a network for them."""

    inputs: torch.Tensor
    targets: torch.Tensor
    size: int
    network: Callable[[], nn.Module]
    epochs: float = 3.0


def perceptron(inputs: int, *widths: int) -> nn.Module:
    layers: list[nn.Module] = []
    for width in widths[:-1]:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, widths[-1]))


def small_images(channels: int, side: int, classes: int) -> nn.Module:
    """Return two convolutions and a linear layer, without norms."""
    left = side // 4
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * left * left, classes),
    )


class Residual(nn.Module):
    """A block of two convolutions with group norms, and a way around it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.around = nn.Conv2d(inputs, outputs, 1, 2, bias=False)
        self.through = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, 2, padding=1, bias=False),
            nn.GroupNorm(4, outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.GroupNorm(4, outputs),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.around(images) + self.through(images))


def residual_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, padding=1, bias=False),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        Residual(16, 32),
        Residual(32, 64),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


class BagOfWords(nn.Module):
    """The mean of the embeddings of words, and a linear layer."""

    def __init__(self, words: int, width: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.scores = nn.Linear(width, classes)

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        return self.scores(self.embedding(texts).mean(1))


class Recurrent(nn.Module):
    """A gated recurrent layer over the embeddings of words, and a linear layer on the mean of its states."""

    def __init__(self, words: int, width: int, states: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.inner = nn.GRU(width, states, batch_first=True)
        self.scores = nn.Linear(states, classes)

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        return self.scores(self.inner(self.embedding(texts))[0].mean(1))


def shuffled(inputs: Any, targets: Any, most: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    order = np.random.default_rng(0).permutation(len(targets))[:most]
    return torch.tensor(np.asarray(inputs)[order]), torch.tensor(np.asarray(targets)[order].astype(np.int64))


def digits() -> Task:
    from sklearn.datasets import load_digits

    data = load_digits()
    inputs, targets = shuffled(data.images[:, None].astype(np.float32) / 16, data.target)
    return Task(inputs, targets, 1437, lambda: small_images(1, 8, 10), epochs=10.0)


def drawn_texts(words: int, length: int, classes: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return texts of words by the law of Zipf, three in ten by that of one of several topics, and the topics."""
    generator = np.random.default_rng(0)
    common = 1 / np.arange(1, words + 1)
    laws = [common * generator.permutation(np.exp(generator.normal(0, 1.0, words))) for _ in range(classes)]
    targets = generator.integers(0, classes, rows)
    texts = np.empty((rows, length), np.int64)
    for kind, law in enumerate(laws):
        own = np.flatnonzero(targets == kind)
        texts[own] = generator.choice(words, (own.size, length), p=law / law.sum())
    noisy = generator.random(texts.shape) < 0.7
    texts[noisy] = generator.choice(words, int(noisy.sum()), p=common / common.sum())
    return shuffled(texts, targets)


def text() -> Task:
    return Task(*drawn_texts(4000, 40, 4, 17_000), 15_000, lambda: BagOfWords(4000, 32, 4))


def words() -> Task:
    """Return fewer texts of more words, where DP-SGD with a rate of 8 is ahead of `auto` at epsilon 1."""
    return Task(*drawn_texts(10_000, 40, 4, 14_000), 12_000, lambda: BagOfWords(10_000, 32, 4))


def sequences() -> Task:
    return Task(*drawn_texts(200, 20, 3, 10_000), 8000, lambda: Recurrent(200, 16, 32, 3), epochs=5.0)


def folder() -> Path:
    return Path(os.environ.get("DPDESCENT_DATA", "../shared/data"))


def covertype() -> Task:
    data = np.load(folder() / "covtype.npz")
    numbers = data["X"].astype(np.float32)
    scale = np.concatenate([np.array([4000, 360, 70, 1400, 700, 7200, 255, 255, 255, 7200]), np.ones(44)])
    inputs, targets = shuffled((numbers / scale).astype(np.float32), data["y"].astype(int) - 1, 25_000)
    return Task(inputs, targets, 20_000, lambda: perceptron(54, 64, 64, 7))


def kdd() -> Task:
    from dpdescent import load_dataset

    data = load_dataset("kddcup99")
    inputs, targets = shuffled(np.asarray(data.X, np.float32), (np.asarray(data.y) > 0).astype(int), 25_000)
    return Task(inputs, targets, 20_000, lambda: perceptron(inputs.shape[1], 64, 64, 2))


def images(name: str, size: int, network: Callable[[], nn.Module], *, flat: bool, epochs: float = 3.0) -> Task:
    data = np.load(folder() / f"{name}.npz")
    inputs, targets = shuffled(data["X_train"], data["y_train"], size)
    tests, labels = shuffled(data["X_test"], data["y_test"], 4000)
    both = torch.cat([inputs, tests]).float() / 255
    return Task(
        both.flatten(1) if flat else both[:, None], torch.cat([targets, labels]), size, network, epochs=epochs
    )


def cifar() -> Task:
    data = np.load(folder() / "cifar10_part.npz")

    def decoded(part: str, most: int) -> tuple[torch.Tensor, torch.Tensor]:
        summed = np.cumsum(np.cumsum(data[f"D_{part}"][:most], 2, dtype=np.uint8), 3, dtype=np.uint8)
        colours = np.stack([summed[:, 1] + summed[:, 0], summed[:, 0], summed[:, 2] + summed[:, 0]], 1)
        return torch.tensor(colours).float() / 127.5 - 1, torch.tensor(data[f"y_{part}"][:most].astype(np.int64))

    (inputs, targets), (tests, labels) = decoded("train", 10_000), decoded("test", 4000)
    return Task(torch.cat([inputs, tests]), torch.cat([targets, labels]), 10_000, residual_network, epochs=5.0)


def described(name: str, *widths: int, epochs: float = 3.0) -> Task:
    """Return a table by its description: numbers by their bounds to [-1, 1], levels as 0/1, targets in four parts."""
    import pandas as pd

    told = json.loads((folder() / "more" / f"{name}.json").read_text())
    with gzip.open(folder() / "more" / f"{name}.csv.gz") as file:
        raw = pd.read_csv(file)
    columns = []
    for column, (low, high) in told["num"].items():
        values = raw[column].astype(float).fillna((low + high) / 2).clip(low, high)
        columns.append(((2 * values - low - high) / (high - low)).to_numpy())
    for column, levels in told["levels"].items():
        columns += [(raw[column].astype(str) == str(level)).to_numpy(float) for level in levels]
    label = raw[told["label"]].to_numpy()
    if told["task"] == "class":
        targets = np.unique(label, return_inverse=True)[1]
    else:
        targets = np.searchsorted(np.unique(np.quantile(label, (0.25, 0.5, 0.75))), label)
    inputs, found = shuffled(np.stack(columns, 1).astype(np.float32), targets, 30_000)
    classes = int(found.max()) + 1
    return Task(
        inputs, found, len(found) * 4 // 5, lambda: perceptron(inputs.shape[1], *widths, classes), epochs=epochs
    )


DEVELOPMENT: dict[str, Callable[[], Task]] = {
    "digits": digits,
    "text": text,
    "words": words,
    "covertype": covertype,
    "fashion": lambda: images("fashion_mnist", 15_000, lambda: perceptron(784, 128, 10), flat=True),
    "mnist-mlp": lambda: images("mnist", 15_000, lambda: perceptron(784, 256, 10), flat=True),
    "diamonds": lambda: described("diamonds", 64, 64),
    "german": lambda: described("german", 32, epochs=20.0),
    "magic": lambda: described("magic", 64, 64, epochs=20.0),
    "rwm5yr": lambda: described("rwm5yr", 64, 64),
}
KEPT_BACK: dict[str, Callable[[], Task]] = {
    "kdd": kdd,
    "mnist-cnn": lambda: images("mnist", 8000, lambda: small_images(1, 28, 10), flat=False, epochs=5.0),
    "cifar": cifar,
    "sequences": sequences,
    "law": lambda: described("law_school", 64, 64),
    "credit": lambda: described("credit_default", 64, 64),
    "randhie": lambda: described("randhie", 32, 32, epochs=10.0),
}


def train(task: Task, epsilon: float, seed: int, **settings: Any) -> float:
    """Return the accuracy in percent on rows that were not trained on."""
    from dpdescent.torch import fit

    torch.manual_seed(seed)
    module = task.network()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(
            module,
            (task.inputs[: task.size], task.targets[: task.size]),
            nn.CrossEntropyLoss(reduction="none"),
            epsilon=epsilon,
            delta=DELTA,
            epochs=task.epochs,
            random_state=seed,
            noise="float",
            **settings,
        )
    with torch.no_grad():
        scores = module(task.inputs[task.size :])
    return 100 * float((scores.argmax(1) == task.targets[task.size :]).float().mean())


def settings_of(methods: list[str]) -> dict[str, dict[str, Any]]:
    """Return what `fit` is given for each method that is asked for, by name."""
    found: dict[str, dict[str, Any]] = {}
    for method in methods:
        if method == "grid":
            found |= {
                f"{rival} {rate:g}": {"method": rival, "learning_rate": rate, "clip_norm": 1.0, "bands": 1}
                for rival, rates in GRID.items()
                for rate in rates
            }
        elif method == "auto":
            found["auto"] = {}
        else:
            name, _, value = method.partition("=")
            found[method] = {name: int(value)}
    return found


def summary(rows: list[dict[str, Any]]) -> None:
    """Print a line for each cell: means over seeds, the best of the grid and DP-SGD at three rates."""
    cells = sorted({(each["task"], each["epsilon"]) for each in rows})
    behind: dict[str, list[float]] = {}
    for task, epsilon in cells:
        found: dict[str, list[float]] = {}
        for each in rows:
            if (each["task"], each["epsilon"]) == (task, epsilon):
                found.setdefault(each["method"], []).append(each["accuracy"])
        means = {method: float(np.mean(values)) for method, values in found.items()}
        grid = {method: value for method, value in means.items() if method.partition(" ")[0] in GRID}
        parts = [f"{method} {value:5.1f}" for method, value in means.items() if method not in grid]
        if grid:
            best = max(grid, key=lambda each: grid[each])
            shown = [grid[f"sgd {rate:g}"] for rate in SHOWN if f"sgd {rate:g}" in grid]
            parts += [f"best {grid[best]:5.1f} ({best})", "sgd " + " / ".join(f"{each:4.1f}" for each in shown)]
            for method in set(means) - set(grid):
                behind.setdefault(method, []).append(means[method] - grid[best])
        print(f"{task:10s} epsilon {epsilon:g}: " + "   ".join(parts))
    for method, differences in behind.items():
        least, mean = min(differences), float(np.mean(differences))
        print(f"{method}: {mean:+.2f} points beside the best of the grid on average, {least:+.2f} in the worst cell")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="names of tasks, from either half")
    parser.add_argument("--kept-back", action="store_true", help="the tasks on which no rule was chosen")
    parser.add_argument("--epsilons", nargs="+", type=float, default=[3.0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--methods", nargs="+", default=["auto", "grid"], help="auto, grid, or bands=B for auto")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every run to FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = options.tasks or list(KEPT_BACK if options.kept_back else DEVELOPMENT)
    kept: list[dict[str, Any]] = (
        json.loads(options.json.read_text()) if options.json and options.json.exists() else []
    )
    rows: list[dict[str, Any]] = []
    for name in names:
        task: Task | None = None
        for epsilon, (method, settings), seed in product(
            options.epsilons, settings_of(options.methods).items(), range(options.seeds)
        ):
            run = {"task": name, "epsilon": epsilon, "method": method, "seed": seed}
            known = next((each for each in kept if run.items() <= each.items()), None)
            if known is None:
                task = task or (DEVELOPMENT | KEPT_BACK)[name]()
                start = time.process_time()
                accuracy = train(task, epsilon, seed, **settings)
                known = run | {"accuracy": accuracy, "seconds": round(time.process_time() - start, 1)}
                kept.append(known)
                if options.json:
                    options.json.write_text(json.dumps(kept, indent=1))
            rows.append(known)
    summary(rows)


if __name__ == "__main__":
    main()
