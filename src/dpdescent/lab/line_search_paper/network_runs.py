"""Private training of networks, step by step: accuracy, objective, epsilon and step size against iterations.

Accuracies and objectives on the way are looked up without privacy: they are for public data only.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from dataclasses import dataclass, replace
from typing import Any

import dpdescent

from ...errors import InvalidParameter, MissingPackage
from ...long_runs import Journal, Listener
from ..fold_fits import Task, load_task

_MEASURED_ROWS = 5000  # of the training part, for the objective
_ADAM_RATE = 1e-3  # the default of Adam
_PIXELS = (-1, 1)


@dataclass(frozen=True)
class Network:
    """A network and its data."""

    title: str
    dataset: str
    shape: str  # "mlp" or "cnn"
    widths: tuple[int, ...]  # units of the hidden layers that are fully connected
    #: Output channels of convolutions; after each group comes a pooling layer.
    channels: tuple[tuple[int, ...], ...] = ()
    learning_rate: float = 0.2  # of DP-SGD, as tuned in the paper

    def build(self, shape: tuple[int, ...], classes: int) -> Any:
        """Return the module for images of a shape (channels, height, width)."""
        from torch import nn

        layers: list[Any] = []
        depth, side = shape[0], shape[1]
        kernel = 3 if shape[0] == 3 else 5
        for group in self.channels:
            for each in group:
                layers += [nn.Conv2d(depth, each, kernel, padding=kernel // 2), nn.ReLU()]
                depth = each
            layers.append(nn.MaxPool2d(2))
            side //= 2
        width = depth * side * side if self.channels else math.prod(shape)
        layers.append(nn.Flatten())
        for each in self.widths:
            layers += [nn.Linear(width, each), nn.ReLU()]
            width = each
        return nn.Sequential(*layers, nn.Linear(width, classes))


@dataclass(frozen=True)
class NetworkFigure:
    """What is run for a figure of networks."""

    name: str
    title: str
    caption: str
    details: tuple[str, ...]  # what differs from the paper
    networks: tuple[Network, ...]
    quick_networks: int  # how many of them a quick run takes, the first ones
    methods: tuple[str, ...] = ("blsgd-paper", "sgd", "adam", "nonprivate", "blsgd", "auto")
    #: What each run as a whole is charged.
    epsilon: float = 3.0
    delta: float = 1e-8
    batch_share: float = 1 / 200  # the expected share of the rows in a batch
    clip_norm: float = 3.0
    quick_steps: int = 300
    full_steps: int = 4000
    moments: int = 12  # how often accuracy and objective are looked up
    seeds: int = 5  # repetitions of a full run; a quick one has one


@dataclass(frozen=True)
class Course:
    """One run: what was seen after each of some steps."""

    network: str
    method: str
    steps: list[int]
    accuracy: list[float]
    objective: list[float]
    epsilon: list[float]
    step_size: list[float]
    seconds: float
    seed: int = 0


@dataclass(frozen=True)
class NetworkRuns:
    """The runs of a figure: every method on every network."""

    figure: NetworkFigure
    full: bool
    datasets: tuple[str, ...] = ()  # some of the paper's data sets, or one that stands in for them
    repetitions: int | None = None  # repetitions of a full run, in place of the paper's
    steps_asked: int | None = None  # steps of a full run, in place of those that the paper shows

    @property
    def fingerprint(self) -> str:
        """What tells these numbers, under this release, from any other; a training says itself which it is."""
        figure = self.figure
        shown = (
            figure.epsilon,
            figure.delta,
            figure.batch_share,
            figure.clip_norm,
            figure.moments,
            self.steps,
            _PIXELS,
        )
        return hashlib.sha256(f"{dpdescent.__version__} {shown} {self.networks}".encode()).hexdigest()[:16]

    @property
    def stand_in(self) -> str:
        """What stands in for the data sets of the paper, if anything does."""
        own = {network.dataset for network in self.figure.networks}
        return "" if own.issuperset(self.datasets) else self.datasets[0]

    @property
    def seeds(self) -> int:
        """How often every network is trained by every method."""
        return (self.repetitions or self.figure.seeds) if self.full else 1

    @property
    def steps(self) -> int:
        """How many steps a run has."""
        return (self.steps_asked or self.figure.full_steps) if self.full else self.figure.quick_steps

    @property
    def networks(self) -> tuple[Network, ...]:
        """The networks, on the data they are run on."""
        chosen = self.figure.networks[: None if self.full else self.figure.quick_networks]
        if not self.stand_in:
            return tuple(each for each in chosen if each.dataset in self.datasets or not self.datasets)
        name = self.stand_in
        kinds = {network.shape: network for network in reversed(chosen)}.values()
        return tuple(replace(each, title=f"{name}, {each.shape.upper()}", dataset=name) for each in kinds)


def measure_networks(
    runs: NetworkRuns, journal: Journal[Course] | None = None, listener: Listener | None = None
) -> list[Course]:
    """Train every network by every method that a journal does not hold yet, one after another."""
    _require_torch()
    done = dict(journal.rows) if journal is not None else {}
    todo = [(s, network, m) for s in range(runs.seeds) for network in runs.networks for m in runs.figure.methods]
    parts = runs.figure.moments
    for place, (seed, network, method) in enumerate(todo):
        key = _key(network, method, seed)
        if key not in done:
            images = _Images(network.dataset)
            course = _train(runs, (network, method, seed), images, listener, (place * parts, len(todo) * parts))
            done[key] = course
            if journal is not None:
                journal.add(key, course)
        if listener is not None:
            listener((place + 1) * parts, len(todo) * parts)
    return [done[_key(network, method, seed)] for seed, network, method in todo]


def _key(network: Network, method: str, seed: int) -> str:
    return json.dumps([network.title, method, *([seed] if seed else [])])


class _Images:
    """The images of a data set as tensors of numbers from -1 to 1, in the parts that it comes in or 4/5 and 1/5."""

    def __init__(self, name: str) -> None:
        import numpy as np
        import torch

        data = load_task(Task(name), download=True)
        columns = data.X.shape[1]
        depth = 3 if columns % 3 == 0 and math.isqrt(columns // 3) ** 2 == columns // 3 else 1
        side = math.isqrt(columns // depth)
        self.shape = (depth, side, side) if depth * side * side == columns else (columns, 1, 1)
        self.classes = len(data.classes)
        split = data.split if data.split is not None else np.where(np.arange(len(data.y)) % 5, "train", "test")
        labels = np.searchsorted(np.asarray(sorted(data.classes)), data.y)

        def part(which: str) -> tuple[Any, Any]:
            rows = split == which
            pixels = torch.tensor(2 * np.asarray(data.X[rows], dtype=np.float32) - 1)
            images = pixels.reshape(-1, *self.shape[1:], self.shape[0])  # row by row, the colours of a pixel together
            return images.permute(0, 3, 1, 2).contiguous(), torch.tensor(labels[rows])

        self.train, self.test = part("train"), part("test")


def _train(
    runs: NetworkRuns,
    which: tuple[Network, str, int],
    images: _Images,
    listener: Listener | None,
    progress: tuple[int, int],
) -> Course:
    import torch

    (network, method, seed), figure, steps = which, runs.figure, runs.steps
    if network.shape == "cnn" and images.shape[1] < 4:
        raise InvalidParameter(f"{figure.name} needs images, and {network.dataset!r} has none: use mnist")
    torch.manual_seed(seed)
    module = network.build(images.shape, images.classes)
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    wanted = sorted({round(steps * part / figure.moments) for part in range(1, figure.moments + 1)})
    seen: dict[int, tuple[float, float]] = {}

    def watch(step: int) -> None:
        if step not in wanted:
            return
        with torch.no_grad():
            right = module(images.test[0]).argmax(1) == images.test[1]
            losses = loss(module(images.train[0][:_MEASURED_ROWS]), images.train[1][:_MEASURED_ROWS])
        seen[step] = (float(right.double().mean()), float(losses.double().mean()))
        if listener is not None:
            listener(progress[0] + len(seen) - 1, progress[1])

    begun = time.perf_counter()
    if method == "nonprivate":
        epsilons, sizes = _train_plainly(module, images, figure, steps, seed, watch)
    else:
        epsilons, sizes = _train_privately(module, images, which, figure, steps, wanted, watch)
    accuracy, objective = zip(*(seen[step] for step in wanted), strict=True)
    return Course(
        network.title,
        method,
        wanted,
        list(accuracy),
        list(objective),
        epsilons,
        [sizes[step - 1] for step in wanted],
        time.perf_counter() - begun,
        seed,
    )


def _train_plainly(
    module: Any, images: _Images, figure: NetworkFigure, steps: int, seed: int, watch: Any
) -> tuple[list[float], list[float]]:
    """Train by Adam, as the paper does without privacy."""
    import torch

    optimiser = torch.optim.Adam(module.parameters(), lr=_ADAM_RATE)
    generator = torch.Generator().manual_seed(seed)
    rows, labels = images.train
    for step in range(1, steps + 1):
        batch = torch.rand(len(labels), generator=generator) < figure.batch_share
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(rows[batch]), labels[batch]).backward()
        optimiser.step()
        watch(step)
    return [], [_ADAM_RATE] * steps


def _train_privately(
    module: Any,
    images: _Images,
    which: tuple[Network, str, int],
    figure: NetworkFigure,
    steps: int,
    wanted: list[int],
    watch: Any,
) -> tuple[list[float], list[float]]:
    import torch

    from ...torch import fit
    from ...torch.step_rules import MOST_STEPS, PAPER_STEPS
    from ...torch.training_plan import Clipping, plan_training

    rows = len(images.train[1])
    batch_size = max(1, round(figure.batch_share * rows))
    network, method, seed = which
    rate = {"sgd": network.learning_rate, "adam": _ADAM_RATE}.get(method)
    searches = {"blsgd": (MOST_STEPS, "laplace"), "blsgd-paper": (PAPER_STEPS, "gaussian")}
    search_steps, search_noise = searches.get(method, (0, "laplace"))
    result = fit(
        module,
        torch.utils.data.TensorDataset(*images.train),
        torch.nn.CrossEntropyLoss(reduction="none"),
        epsilon=figure.epsilon,
        delta=figure.delta,
        method=method,
        batch_size=batch_size,
        steps=steps,
        random_state=seed,
        noise="float",
        progress=lambda share: watch(round(share * steps)),
        learning_rate=rate,
        clip_norm=None if rate is None else figure.clip_norm,
    )
    plan = plan_training(
        rows=rows,
        epsilon=figure.epsilon,
        delta=figure.delta,
        steps=steps,
        epochs=None,
        batch_size=batch_size,
        clipping=Clipping(figure.clip_norm),
        parameters=sum(each.numel() for each in module.parameters()),
        search_steps=search_steps,
        search_noise=search_noise,
        adjacency="zero-out",
        account=None,
    )
    spent = [replace(plan.schedule, steps=step).pure() for step in wanted]
    return spent, [record.step_size for record in result.history]


def _require_torch() -> None:
    try:
        import dpdescent.torch  # noqa: F401
    except MissingPackage as missing:
        raise MissingPackage(f"this figure trains networks: {missing}") from None
