"""Workers of Dask that add up the rows of any table.

Rows stay with the workers, and so do the numbers of single rows, as the results of tasks. The rows on their grid are
kept too, where that takes up at most a quarter of the workers' memory: at eight bytes per cell, as sums need them, or
else at four. Every thread of a worker then answers a question by one task, about all the parts that are kept beside
it. A worker that is lost takes its part of all this along, and the scheduler has it computed again from the rows by
another; each is a function of its row and of public numbers, and seals tell whether the rows are the same. Sums are
int64. The noise, the ledger and all decisions stay in this process, which sees sums alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..curator import PartWork, PlacedBlocks, new_digest
from ..curator.seals import changed
from ..curator.spill import pack, unpacked
from ..errors import DatasetFormatError, DPDescentError, InvalidParameter, MissingPackage, WorkerLost
from ..exact import keep_freed_memory, one_library_thread

__all__ = ["DaskEngine", "dask_package", "without_cells"]

_LOST = ("KilledWorker", "FutureCancelledError", "FuturesCancelledError", "CancelledError", "CommClosedError")
_PATIENCE = 10.0  # seconds in which a scheduler must answer
_TREE = 8  # sums that are added up by one task, and sums that this process adds up itself
_LARGEST_SHARE = 0.25  # of the memory of all workers, for rows on their grid; they can be placed again instead

Floats = NDArray[np.float64]


def dask_package() -> Any:
    """Return Dask, or raise how to install it."""
    try:
        import dask
    except ImportError:
        raise MissingPackage("Dask is not installed: pip install 'dpdescent[scale]'") from None
    return dask


class DaskEngine:
    """Works on the parts of a table by Dask tasks.

    Parameters
    ----------
    address : str, optional
        That of a scheduler to connect to. Without it tasks go where Dask sends them: to the current client if there
        is one, or to threads of this process.

    Notes
    -----
    **Privacy** Tasks and their results are unreleased data: workers, the scheduler and its dashboard belong to those
    who may see the rows.
    """

    def __init__(self, address: str | None = None) -> None:
        self._client: Any = None
        self._shares: WeakKeyDictionary[PlacedBlocks, list[_Share]] = WeakKeyDictionary()
        if address is not None:
            dask_package()
            try:
                from distributed import Client

                self._client = Client(address, timeout=_PATIENCE, set_as_default=False)
            except ImportError:
                raise MissingPackage("distributed is not installed: pip install 'dpdescent[scale]'") from None
            except (OSError, ValueError, TimeoutError):
                raise InvalidParameter(f"no Dask scheduler answers at {address!r}: correct the address") from None

    def close(self) -> None:
        """Let go of what workers keep, and end the connection to the scheduler at the address."""
        for blocks in list(self._shares):
            self.forget(blocks)
        if self._client is not None:
            self._client.close()

    def forget(self, blocks: PlacedBlocks) -> None:
        for share in self._shares.pop(blocks, []):
            for kept in share.kept:
                kept.release()

    def run(
        self,
        work: PartWork,
        blocks: PlacedBlocks,
        known: Sequence[Any],
        listener: Callable[[float], None] | None = None,
    ) -> tuple[NDArray[Any], list[bytes], Sequence[Any]]:
        client = self._connected()
        shares = self._shares.get(blocks)  # another thread may fit with this engine
        if shares is None:
            workers = _workers(client)
            shares = self._shares[blocks] = without_cells(_shared, client, workers, blocks)
        total, seals, results = without_cells(_asked, client, shares, work, blocks, known)
        if isinstance(total, DPDescentError):
            raise type(total)(*total.args)  # without the task that led to it
        if listener is not None:
            listener(1.0)  # the scheduler's own dashboard shows what the workers do meanwhile
        places = [place for share in shares for place in share.places]
        ordered = [seal for _, seal in sorted(zip(places, seals, strict=True))]
        return total, ordered, [_Held(results, number) for number in range(len(work.computed))]

    def _connected(self) -> Any:
        """Return the client that tasks go to, or None for threads of this process."""
        if self._client is not None:
            return self._client
        if dask_package().config.get("scheduler", None) not in (None, "distributed", "dask.distributed"):
            return None
        try:
            from distributed import default_client

            return default_client()
        except (ImportError, ValueError):
            return None


@dataclass(frozen=True)
class _Share:
    """What one task works on: some parts of a table, by their places.

    ``kept`` stands for their rows on the grid, which the worker at ``address`` keeps. Without it the rows of the one
    part are read for each question.
    """

    places: list[int]
    kept: list[Any] = field(default_factory=list)
    address: str = ""


@dataclass(frozen=True)
class _Held:
    """A number of single rows: the results of all shares, and its own position in them."""

    results: list[Any]
    number: int


@dataclass(frozen=True)
class _Result:
    """What a task returns; the numbers of single rows, one list for each part, stay where they are."""

    total: Any
    seals: list[bytes]
    computed: list[list[Floats]]


def _workers(client: Any) -> dict[str, Any]:
    """Return what the scheduler tells of its workers, by their addresses; none where there is no scheduler."""
    if client is None:
        return {}
    workers: dict[str, Any] = client.scheduler_info(n_workers=-1).get("workers")
    if not workers:
        raise _lost()
    return workers


def _shared(client: Any, workers: dict[str, Any], blocks: PlacedBlocks) -> list[_Share]:
    """Have the workers keep the rows on the grid if there is room, and return one share for each of their threads."""
    parts, lengths = blocks.blocks.parts, blocks.blocks.lengths
    room = _LARGEST_SHARE * sum(worker["memory_limit"] or 0 for worker in workers.values())
    cells = sum(lengths) * blocks.grid.dimension
    fitting = [kind for kind in (np.float64, np.float32) if np.dtype(kind).itemsize * cells <= room]
    if not (fitting and blocks.keep_rows):
        return [_Share([place]) for place in range(len(parts))]
    from distributed import wait

    dask = dask_package()
    asked = dask.delayed((blocks, fitting[0]), pure=False, traverse=False)
    placing = [dask.delayed(_place, pure=False)(asked, *each) for each in zip(parts, lengths, strict=True)]
    kept = client.compute(placing)
    with client.as_current():
        wait(kept)
    holders = client.who_has(kept)
    threads = {address: worker["nthreads"] for address, worker in workers.items()}
    shares = _balanced(threads, lengths, [list(holders.get(each.key, ())) for each in kept])
    return [_Share(places, [kept[place] for place in places], address) for address, places in shares]


def _balanced(
    threads: dict[str, int], lengths: Sequence[int], holders: Sequence[Sequence[str]]
) -> list[tuple[str, list[int]]]:
    """Return which parts each thread works on: those that its worker holds, unless it has its share of rows already.

    Threads that have nothing to do are left out.
    """
    shares: list[tuple[str, list[int]]] = [(address, []) for address, count in threads.items() for _ in range(count)]
    loads = [0] * len(shares)
    fair = sum(lengths) / len(shares)
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        near = [number for number, (address, _) in enumerate(shares) if address in holders[place]]
        least = min(near or range(len(shares)), key=loads.__getitem__)
        if loads[least] + lengths[place] / 2 > fair:
            least = min(range(len(shares)), key=loads.__getitem__)
        shares[least][1].append(place)
        loads[least] += lengths[place]
    return [(address, places) for address, places in shares if places]


def _asked(
    client: Any, shares: list[_Share], work: PartWork, blocks: PlacedBlocks, known: Sequence[Any]
) -> tuple[Any, list[bytes], list[Any]]:
    """Return the sum, the seals share by share, and what stands for the results where they are."""
    dask = dask_package()
    parts, lengths = blocks.blocks.parts, blocks.blocks.lengths
    numbers = tuple(each.number if isinstance(each, _Held) else None for each in known)
    together = None if shares[0].kept else dask.delayed((work, blocks), pure=False, traverse=False)
    results: list[Any] = []
    for position, share in enumerate(shares):
        of_rows = [
            each.results[position] if isinstance(each, _Held) else [each[place] for place in share.places]
            for each in known
        ]
        if together is None:
            with dask.annotate(workers=[share.address], allow_other_workers=True):
                results.append(dask.delayed(partial(_on_kept, work, numbers), pure=False)(share.kept, of_rows))
        else:
            place = share.places[0]
            read = dask.delayed(partial(_on_part, numbers), pure=False)
            results.append(read(together, parts[place], lengths[place], of_rows))
    sums = [dask.delayed(_without_rows, pure=False)(each) for each in results] if work.computed else results
    while len(sums) > _TREE:
        sums = [dask.delayed(_added, pure=False)(sums[i : i + _TREE]) for i in range(0, len(sums), _TREE)]
    if client is not None:
        futures = client.compute([*sums, *(results if work.computed else ())])
        found, results = client.gather(futures[: len(sums)]), futures[len(sums) :]
    else:
        held = dask.persist(*sums, *(results if work.computed else ()))
        found, results = dask.compute(*held[: len(sums)]), list(held[len(sums) :])
    answer = _added(found)
    return answer.total, answer.seals, results


def _on_part(
    numbers: tuple[int | None, ...], asked: tuple[PartWork, PlacedBlocks], part: Any, length: int, known: list[Any]
) -> _Result:
    """Return the sum over a part, its seal and the numbers of its rows, or in place of the sum what is wrong.

    A worker writes the arguments of a task that raises, here rows, into its log.
    """
    (work, blocks), digest = asked, new_digest()
    rows = partial(blocks, part, length, digest)
    return _answered(partial(_each, work, numbers, [(rows, digest.digest)], known), 1)


def _place(asked: tuple[PlacedBlocks, Any], part: Any, length: int) -> Any:
    """Return the rows of a part on the grid, with their labels and their seal, or what is wrong with them."""
    (blocks, kind), digest = asked, new_digest()
    keep_freed_memory()
    try:
        with one_library_thread():
            placed = blocks(part, length, digest)
            kept = [(rows.shape, pack(rows, blocks.grid, kind), labels) for rows, labels in placed]
            return kept, digest.digest()
    except DPDescentError as found:
        return type(found)(*found.args)
    except Exception as found:
        return _failed(found)


def _on_kept(work: PartWork, numbers: tuple[int | None, ...], placed: list[Any], known: list[Any]) -> _Result:
    """Return what `_on_part` does, for the rows of some parts that are on the grid already."""
    wrong = [each for each in placed if isinstance(each, DPDescentError)]
    if wrong:
        return _Result(wrong[0], [b""] * len(placed), [])
    parts = [(partial(unpacked, kept), partial(bytes, seal)) for kept, seal in placed]
    return _answered(partial(_each, work, numbers, parts, known), len(placed))


def _each(
    work: PartWork,
    numbers: tuple[int | None, ...],
    parts: Sequence[tuple[Callable[[], Iterator[tuple[Any, Floats]]], Callable[[], bytes]]],
    known: list[Any],
) -> _Result:
    """Return the sum over parts, each given by what yields its blocks and by what then tells its seal."""
    totals, seals, computed = [], [], []
    for position, (blocks, seal) in enumerate(parts):
        of_rows = [
            each[position] if number is None else each.computed[position][number]
            for number, each in zip(numbers, known, strict=True)
        ]
        added, numbers_of_rows = work(blocks(), of_rows)
        totals.append(added)
        seals.append(seal())
        computed.append(numbers_of_rows)
        held = [each for number, each in zip(numbers, known, strict=True) if number is not None]
        if any(each.seals[position] != seals[-1] for each in held):
            raise changed()  # these numbers belong to other rows
    return _Result(sum(totals[1:], start=totals[0]), seals, computed)


def _answered(answer: Callable[[], _Result], parts: int) -> _Result:
    """Return an answer about some parts, or in place of its sum what is wrong."""
    problem: DPDescentError
    keep_freed_memory()
    try:
        with one_library_thread():
            return answer()
    except DPDescentError as found:
        problem = type(found)(*found.args)
    except Exception as found:
        problem = _failed(found)
    return _Result(problem, [b""] * parts, [])


def _without_rows(result: _Result) -> _Result:
    return _Result(result.total, result.seals, [])


def _added(results: Sequence[_Result]) -> _Result:
    """Return the sum of sums, or the first that is none, and all seals."""
    seals = [seal for each in results for seal in each.seals]
    wrong = [each.total for each in results if isinstance(each.total, DPDescentError)]
    total = wrong[0] if wrong else sum((each.total for each in results[1:]), start=results[0].total)
    return _Result(total, seals, [])


def without_cells(compute: Callable[..., Any], *arguments: Any) -> Any:
    """Return what tasks compute; the texts of errors of a collection's own tasks show cells, and are replaced."""
    problem: DPDescentError
    try:
        return compute(*arguments)
    except Exception as found:
        lost = type(found).__name__ in _LOST
        problem = _lost() if lost else _failed(found)
    raise problem  # outside the handler, so that the text with the cell is not its context


def _lost() -> WorkerLost:
    return WorkerLost("the workers of the cluster were lost: start them again")


def _failed(found: Exception) -> DatasetFormatError:
    return DatasetFormatError(
        f"tasks of the table failed with {type(found).__name__}: compute the collection by itself to see why"
    )
