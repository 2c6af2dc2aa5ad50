"""Elapsed seconds of queries and fits: in memory, on workers of a local Dask cluster, and in plain processes.

Each kind of work is measured in five ways: from rows in memory, with all threads; from one worker process, from two,
and from one of two threads; and by plain processes, without Dask and with one thread each, of which one has all rows
or two have half of them each. What two plain processes gain on one is what this machine allows. Answers and
coefficients must be the same to the last bit.

A busy machine changes elapsed seconds by several times, so processor seconds are counted too, those of this process
and of all workers together: if two workers take as many as one, and as rows in memory do, then there is nothing but
the latency of a query that keeps two processors from being twice as fast as one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpdescent.accounting import AboveThreshold, Gaussian
from dpdescent.curator import ArraySource, BlockSource, Curator, LatticeNoise
from dpdescent.estimators import DPLogisticRegression
from dpdescent.estimators.scaling import ColumnScaling
from dpdescent.estimators.streaming import block_source, check_all_rows, coded_block
from dpdescent.exact import FeatureGrid, one_library_thread
from dpdescent.ledger import Ledger
from dpdescent.noise import Randomness
from dpdescent.problems import LinearProblem, Logistic, Multinomial
from dpdescent.queries import FirstStep, Gradient, Query, SecondMoments

CLASSES = 10
PARTS = 8
STEP_SIZES = 4 * 0.9 ** np.arange(50)
FITS: dict[str, dict[str, Any]] = {"auto": {}, "agd": {"solver_options": {"splits": 10.0}}}


@dataclass(frozen=True)
class Kind:
    """A kind of query: the classes that it is about, and the query at some weights and a direction."""

    classes: int
    query: Callable[[Any, Any], Query[Any]]


KINDS = {
    "gradient": Kind(2, lambda weights, _: Gradient(weights, 1.0, Gaussian(1.0))),
    "search": Kind(
        2,  # no step lowers the objective so much, so all are tried
        lambda weights, direction: FirstStep(
            weights, direction, STEP_SIZES, 1e9 * STEP_SIZES, AboveThreshold(STEP_SIZES.size, 40.0, 20.0), slope=1.0
        ),
    ),
    "classes": Kind(CLASSES, lambda weights, _: Gradient(weights, 1.0, Gaussian(1.0))),
    "moments": Kind(2, lambda *_: SecondMoments(1.0, Gaussian(1.0))),
}


def asked(source: ArraySource | BlockSource, rows: int, kind: Kind) -> Callable[[], Any]:
    """Return a function that asks a query, each time at other weights."""
    problem = LinearProblem(Logistic() if kind.classes == 2 else Multinomial(kind.classes), source.grid)
    ledger = Ledger(1e9, 1e-6, currency="gdp")
    curator = Curator(source, problem, ledger, rows, noise=LatticeNoise(Randomness(0)))
    generator = np.random.default_rng(0)

    def ask() -> Any:
        with one_library_thread():
            return curator.answer(kind.query(*generator.normal(size=(2, *problem.shape)) / 8))

    return ask


def made_rows(rows: int, columns: int) -> tuple[Any, Any]:
    """Return features in [0, 1] and labels of all classes."""
    generator = np.random.default_rng(0)
    X = generator.random((rows, columns))
    return X, np.minimum(CLASSES * X[:, 0] * X[:, 1] * 2, CLASSES - 1).astype(np.int64)


def labels_of(y: Any, kind: Kind) -> Any:
    return y if kind.classes > 2 else (y > 1).astype(np.int64)


def on_grid(X: Any) -> tuple[Any, ColumnScaling, FeatureGrid]:
    columns = X.shape[1]
    scaling, grid = ColumnScaling(np.zeros(columns), np.ones(columns)), FeatureGrid(1.0, columns + 1)
    return grid.place(coded_block(X, scaling, True)), scaling, grid


def in_memory(placed: Any, y: Any, grid: FeatureGrid, kind: Kind) -> ArraySource:
    labels = labels_of(y, kind)
    return ArraySource(placed, np.where(labels > 0, 1.0, -1.0) if kind.classes == 2 else labels, grid)


def classifier(kind: Kind) -> DPLogisticRegression:
    model = DPLogisticRegression(classes=tuple(range(kind.classes)))
    model.classes_ = np.arange(kind.classes)
    return model


@dataclass
class Fit:
    """A fit by a method; it leaves its coefficients."""

    method: str
    X: Any
    y: Any
    coefficients: Any = None

    def __call__(self) -> None:
        options = {"bounds": (0, 1), "classes": (0, 1), "random_state": 0, "tighten": False} | FITS[self.method]
        self.coefficients = DPLogisticRegression(method=self.method, **options).fit(self.X, self.y).coef_


@dataclass(frozen=True)
class Seconds:
    """The least elapsed and the least processor seconds of some repetitions."""

    elapsed: float
    processor: float

    @classmethod
    def of(
        cls, function: Callable[[], object], repeats: int = 1, spent: Callable[[], float] = time.process_time
    ) -> Seconds:
        """Measure a function; ``spent`` tells the processor seconds of all processes that work on it."""
        found = []
        for _ in range(repeats):
            before, start = spent(), time.perf_counter()
            function()
            elapsed = time.perf_counter() - start
            found.append((elapsed, spent() - before))
        return cls(*(min(each) for each in zip(*found, strict=True)))


def measure_workers(rows: int, columns: int, repeats: int = 5) -> dict[str, Any]:
    """Return the elapsed seconds of every kind of work, and those of a query and a task without rows."""
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [each for each in sys.path if each != here]  # Dask takes scripts here for packages that it knows
    X, y = made_rows(rows, columns)
    placed, scaling, grid = on_grid(X)
    found: dict[str, Any] = {"load": os.getloadavg()[0]}
    answers: dict[str, Any] = {}
    for name, kind in KINDS.items():
        ask = asked(in_memory(placed, y, grid, kind), rows, kind)
        answers[name] = ask()
        found[name] = {"memory": asdict(Seconds.of(ask, repeats))}
    del placed, ask
    binary = labels_of(y, KINDS["gradient"])
    for name in FITS:
        fit = Fit(name, X, binary)
        found[name] = {"memory": asdict(Seconds.of(fit))}
        answers[name] = fit.coefficients
    for where, workers, threads in (("workers_1", 1, 1), ("workers_2", 2, 1), ("threads_2", 1, 2)):
        for name, answer, seconds in on_workers(X, y, (scaling, grid), workers, threads, repeats):
            if name in ("query", "task"):
                found[name] = seconds.elapsed
                continue
            if not np.array_equal(answer, answers[name]):
                raise SystemExit(f"{name}: what workers answer differs from what memory does")
            found[name][where] = asdict(seconds)
    for name in KINDS:
        for processes in (1, 2):
            found[name][f"plain_{processes}"] = asdict(plain_seconds(name, rows, columns, processes, repeats))
    return found


def on_workers(
    X: Any, y: Any, coding: tuple[ColumnScaling, FeatureGrid], workers: int, threads: int, repeats: int
) -> Iterator[tuple[str, Any, Seconds]]:
    """Yield the name of every kind of work, its first answer, and its seconds on a cluster."""
    from dask import array as da
    from distributed import Client, LocalCluster

    from dpdescent.tables import DaskTable

    def stored(values: Any) -> Any:
        return da.from_array(values, chunks=(-(-len(values) // PARTS), *values.shape[1:])).persist()

    with (
        LocalCluster(n_workers=workers, threads_per_worker=threads, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        features, labels = stored(X), {kind.classes: stored(labels_of(y, kind)) for kind in KINDS.values()}
        client.rebalance()

        def spent() -> float:
            return time.process_time() + sum(client.run(time.process_time).values())

        for name, kind in KINDS.items():
            source = block_source(classifier(kind), DaskTable(features, labels[kind.classes]), *coding)
            ask = asked(source, len(X), kind)
            yield name, ask(), Seconds.of(ask, repeats, spent)
            source.close()
        for name in FITS:
            fit = Fit(name, features, labels[2])
            seconds = Seconds.of(fit, 1, spent)
            yield name, fit.coefficients, seconds
        if workers == 2:
            yield "query", None, seconds_of_a_query(2, keep_rows=True)
            tasks = seconds_of_a_query(400, keep_rows=False)
            yield "task", None, Seconds(tasks.elapsed / 400, tasks.processor / 400)


def seconds_of_a_query(parts: int, keep_rows: bool) -> Seconds:
    """Return the seconds of a sum over parts of one row each, which are one task each unless they are kept."""
    from dpdescent.tables import DaskEngine, MappedArrays

    rows = MappedArrays(np.zeros((parts, 1)), np.zeros(parts), part_rows=1)
    rows.engine = DaskEngine()
    scaling, grid = ColumnScaling(np.zeros(1), np.ones(1)), FeatureGrid(1.0, 2)
    source = block_source(classifier(KINDS["gradient"]), rows, scaling, grid, keep_rows=keep_rows)
    check_all_rows(source)
    return Seconds.of(lambda: check_all_rows(source), 3)


def plain_seconds(name: str, rows: int, columns: int, processes: int, repeats: int) -> Seconds:
    """Return the seconds of some processes that start together, with an equal share of rows each.

    Elapsed seconds are those of the slowest, and processor seconds those of all.
    """
    command = [sys.executable, __file__, name, str(rows // processes), str(columns), str(repeats)]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(command, env=alone, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    for each in started:
        each.stdout.readline()  # type: ignore[union-attr]
    found = []
    for _ in range(repeats):
        for each in started:
            each.stdin.write("\n")  # type: ignore[union-attr]
            each.stdin.flush()  # type: ignore[union-attr]
        told = [each.stdout.readline().split() for each in started]  # type: ignore[union-attr]
        found.append((max(float(elapsed) for elapsed, _ in told), sum(float(processor) for _, processor in told)))
    for each in started:
        each.communicate()
    return Seconds(*(min(each) for each in zip(*found, strict=True)))


def serve(name: str, rows: int, columns: int, repeats: int) -> None:
    """Ask a query whenever a line comes in, and print the seconds that it took."""
    X, y = made_rows(rows, columns)
    placed, _, grid = on_grid(X)
    del X
    ask = asked(in_memory(placed, y, grid, KINDS[name]), rows, KINDS[name])
    ask()
    print("ready", flush=True)
    for _ in range(repeats):
        sys.stdin.readline()
        seconds = Seconds.of(ask)
        print(seconds.elapsed, seconds.processor, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], *(int(each) for each in sys.argv[2:]))
