"""The way of one row: `python tests/way_of_a_row.py` fits a model and prints every module that runs, in order.

ARCHITECTURE.md tells it in words. A module counts when one of its functions is first called, in any thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import dpdescent

PACKAGE = Path(dpdescent.__file__).parent


@contextmanager
def watched() -> Iterator[list[str]]:
    """Yield the modules of ours whose functions are called, in the order of their first calls."""
    found: dict[str, None] = {}
    below = f"{PACKAGE}/"

    def note(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(below) and frame.f_code.co_name != "<module>":
            found.setdefault(file.removeprefix(below).removesuffix(".py"))

    ordered: list[str] = []
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield ordered
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        ordered.extend(found)


def rows() -> tuple[Any, Any]:
    """Return a small table."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (2000, 4))
    return X, (X[:, 0] + 0.3 * generator.normal(size=2000) > 0).astype(int)


def in_memory() -> None:
    """Fit ``auto`` to arrays."""
    dpdescent.DPLogisticRegression(classes=(0, 1), bounds=(-1, 1), random_state=0).fit(*rows())


def on_dask() -> None:
    """Fit ``auto`` to a table whose rows are kept by the workers of a cluster, which are threads here."""
    import dask.array
    from distributed import Client

    from dpdescent.tables import DaskTable

    X, y = rows()
    with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None):
        table = DaskTable(dask.array.from_array(X, chunks=(500, 4)), dask.array.from_array(y, chunks=500))
        dpdescent.DPLogisticRegression(classes=(0, 1), bounds=(-1, 1), random_state=0).fit(table)


def in_torch() -> None:
    """Train a small module."""
    import torch

    from dpdescent.torch import fit

    X, y = rows()
    data = torch.utils.data.TensorDataset(torch.tensor(X, dtype=torch.float32), torch.tensor(y))
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    fit(module, data, torch.nn.CrossEntropyLoss(reduction="none"), epsilon=3.0, delta=1e-5, random_state=0)


WAYS: dict[str, Callable[[], None]] = {"memory": in_memory, "dask": on_dask, "torch": in_torch}

if __name__ == "__main__":
    for name in sys.argv[1:] or WAYS:
        WAYS[name]()  # everything is imported, so that only what runs is seen
        with watched() as modules:
            WAYS[name]()
        print(f"{name}: {' > '.join(modules)}\n")
