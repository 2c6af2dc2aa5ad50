"""Dask, if it is installed, and the errors of its tasks: each has a name, and none shows a cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import DatasetFormatError, DPDescentError, MissingPackage, WorkerLost
from ..exact import keep_freed_memory, one_library_thread

__all__ = ["attempted", "dask_package", "lost", "without_cells", "workers_of"]

_LOST = (
    "WorkerLost",
    "KilledWorker",
    "FutureCancelledError",
    "FuturesCancelledError",
    "CancelledError",
    "CommClosedError",
)

Found = TypeVar("Found")


def dask_package() -> Any:
    """Return Dask, or raise how to install it."""
    try:
        import dask
    except ImportError:
        raise MissingPackage("Dask is not installed: pip install 'dpdescent[scale]'") from None
    return dask


def workers_of(client: Any) -> dict[str, Any]:
    """Return what the scheduler tells of its workers, by their addresses; none where there is no scheduler."""
    if client is None:
        return {}
    workers: dict[str, Any] = client.scheduler_info(n_workers=-1).get("workers")
    if not workers:
        raise lost()
    return workers


def attempted(compute: Callable[[], Found]) -> Found | DPDescentError:
    """Return what a worker computes, or what is wrong with it.

    A worker writes the arguments of a task that raises, here rows, into its log.
    """
    keep_freed_memory()
    try:
        with one_library_thread():
            return compute()
    except DPDescentError as found:
        return type(found)(*found.args)  # without the frames in which it was raised
    except Exception as found:
        return _failed(found)


def without_cells(compute: Callable[..., Any], *arguments: Any) -> Any:
    """Return what tasks compute; the texts of errors of a collection's own tasks show cells, and are replaced."""
    problem: DPDescentError
    try:
        return compute(*arguments)
    except Exception as found:
        problem = lost() if type(found).__name__ in _LOST else _failed(found)
    raise problem  # outside the handler, so that the text with the cell is not its context


def lost() -> WorkerLost:
    """Return the error of workers that are gone."""
    return WorkerLost("the workers of the cluster were lost: start them again")


def _failed(found: Exception) -> DatasetFormatError:
    return DatasetFormatError(
        f"tasks of the table failed with {type(found).__name__}: compute the collection by itself to see why"
    )
