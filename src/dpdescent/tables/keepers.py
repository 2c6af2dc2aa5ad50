"""Workers of Dask that keep the rows of a table, and how they are asked about them.

A task costs the scheduler, the worker and this process more than twenty milliseconds of processor time together, as
long as a sum over some hundred thousand rows takes. So every worker has a keeper, an actor of Dask, which holds the
rows of some parts on their grid, and the numbers of single rows, and which answers a query by one message.

An actor is lost with its worker. Then the rows are placed anew by the workers that are left, all of them, and seals
tell whether they are the same rows. Numbers of single rows that the lost worker held are computed again in the pass
that next needs them, each from what it was computed of before.

Dask is looked up when it is needed. Errors of its tasks have names, and none shows a cell.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import isqrt
from typing import Any, TypeVar

import numpy as np

from ..arrays import Floats
from ..curator import Computed, PartWork, PlacedBlocks, new_digest
from ..curator.kept_rows import packed_blocks, unpacked
from ..errors import DatasetFormatError, DPDescentError, InvalidParameter, MissingPackage, WorkerLost
from ..exact import keep_freed_memory, on_threads, one_library_thread

_LARGEST_SHARE = 0.25  # of the memory of all workers, for rows on their grid; they can be placed again instead
_MOST_ANSWERS = 8  # that this process adds up itself
_ATTEMPTS = 3  # to have a query answered by workers of which some are lost
_UNCERTAIN = 5.0  # seconds without an answer after which to look whether a keeper is still there

# What Dask calls the loss of a worker.
_LOST = (
    "WorkerLost",
    "KilledWorker",
    "FutureCancelledError",
    "FuturesCancelledError",
    "CancelledError",
    "CommClosedError",
)

Found = TypeVar("Found")


class Keepers:
    """The keepers of all parts of a table.

    ``kind`` is the type in which the rows on their grid are kept.
    """

    def __init__(self, client: Any, blocks: PlacedBlocks, kind: Any) -> None:
        self._client, self._blocks, self._kind = client, blocks, kind
        self._shares: list[_Share] = []
        self._keys = count()
        self._held: set[int] = set()  # the keys of numbers that keepers hold
        self._wanted: set[int] = set()  # those that may be asked for again

    @classmethod
    def where_there_is_room(cls, client: Any, blocks: PlacedBlocks) -> Keepers | None:
        """Return keepers if the rows are asked about again and fill a quarter of the workers' memory at most.

        Rows take eight bytes per cell, as sums need them, or four if there is not room enough for that.
        """
        room = _LARGEST_SHARE * sum(worker["memory_limit"] or 0 for worker in workers_of(client).values())
        cells = sum(blocks.blocks.lengths) * blocks.grid.dimension
        for kind in (np.float64, np.float32):
            if blocks.keep_rows and np.dtype(kind).itemsize * cells <= room:
                return cls(client, blocks, kind)
        return None

    def ask(self, work: PartWork, known: Sequence[Any]) -> tuple[Any, list[bytes], list[Held]]:
        """Return the sum over all parts, or what is wrong, the seal of each, and the numbers that were computed."""
        for _ in range(_ATTEMPTS):
            try:
                if not self._shares:
                    self._keep()
                return self._ask_shares(work, known)
            except _Gone:
                self.release()
        raise lost()

    def release(self) -> None:
        """Let go of all rows and numbers of rows."""
        futures = [share.future for share in self._shares]
        self._shares.clear()
        if futures and self._client.status == "running":
            self._client.cancel(futures)  # handles of actors are in cycles with their calls, and not freed at once
        self._held.clear()

    def _keep(self) -> None:
        """Have rows placed on their grid where they are, and kept there unless a worker has too many."""
        from distributed import wait

        client, blocks, dask = self._client, self._blocks.blocks, dask_package()
        threads = {address: worker["nthreads"] for address, worker in workers_of(client).items()}
        asked = dask.delayed((self._blocks, self._kind), pure=False, traverse=False)
        place = partial(dask.delayed(_place, pure=False), asked)
        placed = client.compute([place(*each) for each in zip(blocks.parts, blocks.lengths, strict=True)])
        with client.as_current():
            wait(placed)
            for each in placed:
                if each.status == "error":
                    each.result()  # raises it
            holders = client.who_has(placed)
            shares = share_parts(threads, blocks.lengths, [list(holders.get(each.key, ())) for each in placed])
            for address, places in shares.items():
                rows = [placed[place] for place in places]
                options = {"actor": True, "pure": False, "workers": [address], "allow_other_workers": True}
                self._shares.append(_Share(places, client.submit(Keeper, threads[address], *rows, **options)))
            for share in self._shares:
                share.actor = _unless_gone(share.future.result)

    def _ask_shares(self, work: PartWork, known: Sequence[Any]) -> tuple[Any, list[bytes], list[Held]]:
        numbers = [each.number if isinstance(each, Held) else each for each in known]
        for each in work.computed:
            numbers.append(_Number(next(self._keys), each.function, tuple(numbers[i] for i in each.arguments)))
        fresh, wanted = numbers[len(known) :], [numbers[i] for i in work.arguments]
        computed = self._not_held([*wanted, *fresh])
        needed = {id(each): each for each in [*wanted, *(need for each in computed for need in each.needs)]}
        given = [each for each in needed.values() if each not in computed]
        places = {id(each): place for place, each in enumerate([*given, *computed])}

        def at(some: Sequence[Any]) -> tuple[int, ...]:
            return tuple(places[id(each)] for each in some)

        kept = [each.key for each in computed if each in fresh or each.key in self._wanted]
        on_the_way = tuple(Computed(each.function, at(each.needs), each.key in kept) for each in computed)
        whole = PartWork(work.function, at(wanted), on_the_way)
        total, seals = self._add_answers(whole, given, kept)
        if isinstance(total, DPDescentError):
            return total, seals, []
        self._held = self._held & self._wanted | {*kept}
        return total, seals, [Held(each, self._wanted) for each in fresh]

    def _not_held(self, wanted: list[Any]) -> list[_Number]:
        """Return the numbers that no keeper holds, also those from which they are computed, in an order to do it."""
        found: dict[int, _Number] = {}
        while wanted:
            each = wanted.pop()
            if isinstance(each, _Number) and each.key not in self._held and each.key not in found:
                found[each.key] = each
                wanted += each.needs
        return [found[key] for key in sorted(found)]

    def _add_answers(self, work: PartWork, given: list[Any], kept: list[int]) -> tuple[Any, list[bytes]]:
        """Return the sum, or what is wrong, and the seals of all parts in their order."""
        from distributed.protocol.pickle import dumps

        forgotten = self._held - self._wanted
        alike = all(isinstance(each, _Number) for each in given)
        contents: list[bytes] = []
        for share in self._shares:
            if not (alike and contents):
                of_rows = [each.key if isinstance(each, _Number) else share.its(each) for each in given]
                contents.append(dumps((work, of_rows, kept, forgotten)))
        contents = contents * len(self._shares) if alike else contents
        answer = _add_up(_unless_gone(partial(self._gather, contents)))
        if isinstance(answer, DPDescentError):
            return answer, []
        total, seals = answer
        places = [place for share in self._shares for place in share.places]
        return total, [seal for _, seal in sorted(zip(places, seals, strict=True))]

    def _gather(self, contents: list[bytes]) -> list[_Answer]:
        """Return answers: of all keepers if they are few, or else of groups, each added up by a task."""
        client, shares = self._client, self._shares
        with client.as_current():
            if len(shares) <= _MOST_ANSWERS:
                calls = [share.actor.answer(content) for share, content in zip(shares, contents, strict=True)]
                return [_await_answer(call, share.future) for call, share in zip(calls, shares, strict=True)]
            size = isqrt(len(shares) - 1) + 1
            groups = [slice(first, first + size) for first in range(0, len(shares), size)]
            tasks = [
                client.submit(_ask_actors, [share.actor for share in shares[some]], contents[some], pure=False)
                for some in groups
            ]
            found: list[_Answer] = client.gather(tasks)
            return found


class Keeper:
    """Rows of some parts on their grid, and numbers of them, in the memory of a worker.

    ``placed`` is what `_place` has made of each part; ``threads`` are how many parts are worked on at once.
    """

    def __init__(self, threads: int, *placed: Any) -> None:
        self._threads, self._placed = threads, placed
        self._numbers: dict[int, list[Floats]] = {}

    def answer(self, content: bytes) -> _Answer:
        """Return the sum over the parts and their seals, or what is wrong."""
        return attempt(partial(self._answer, content))

    def _answer(self, content: bytes) -> tuple[Any, list[bytes]]:
        from distributed.protocol.pickle import loads

        for each in self._placed:
            if isinstance(each, DPDescentError):
                raise each
        work, given, kept, forgotten = loads(content)
        for key in forgotten:
            self._numbers.pop(key, None)

        def on(part: int) -> tuple[Any, list[Floats]]:
            of_rows = [(self._numbers[each] if isinstance(each, int) else each)[part] for each in given]
            found: tuple[Any, list[Floats]] = work(unpacked(self._placed[part][0]), of_rows)
            return found

        found = on_threads(on, range(len(self._placed)), self._threads)
        self._numbers.update((key, [numbers[i] for _, numbers in found]) for i, key in enumerate(kept))
        total = sum((added for added, _ in found[1:]), start=found[0][0])
        return total, [seal for _, seal in self._placed]


class Held:
    """A number of single rows that keepers hold for as long as this object lives."""

    def __init__(self, number: _Number, wanted: set[int]) -> None:
        self.number = number
        wanted.add(number.key)
        weakref.finalize(self, wanted.discard, number.key).atexit = False


@dataclass(frozen=True, eq=False)
class _Number:
    """How a number of single rows is computed: from other numbers, or from arrays, one for each part."""

    key: int
    function: Callable[..., Floats]
    needs: tuple[Any, ...]


@dataclass
class _Share:
    """Some parts, by their places, and the actor that keeps them."""

    places: list[int]
    future: Any
    actor: Any = None

    def its(self, parts: Sequence[Any]) -> list[Any]:
        return [parts[place] for place in self.places]


class _Gone(Exception):
    """A keeper was lost."""


_Answer = tuple[Any, list[bytes]] | DPDescentError


def _place(asked: tuple[PlacedBlocks, Any], part: Any, length: int) -> Any:
    """Return the blocks of a part on the grid, with their labels, and its seal, or what is wrong with it."""
    (blocks, kind), digest = asked, new_digest()

    def place() -> Any:
        return packed_blocks(blocks(part, length, digest), blocks.grid, kind), digest.digest()

    return attempt(place)


def _ask_actors(actors: list[Any], contents: list[bytes]) -> _Answer:
    calls = [actor.answer(content) for actor, content in zip(actors, contents, strict=True)]
    return _add_up([call.result() for call in calls])


def _add_up(answers: Sequence[_Answer]) -> _Answer:
    """Return the sum of sums and all seals, or the first thing that is wrong."""
    totals, seals = [], []
    for each in answers:
        if isinstance(each, DPDescentError):
            return each
        totals.append(each[0])
        seals += each[1]
    return sum(totals[1:], start=totals[0]), seals


def _await_answer(call: Any, keeper: Any) -> _Answer:
    """Return what a keeper answers, however long it takes; Dask does not tell of every way in which one is lost."""
    while True:
        try:
            answer: _Answer = call.result(timeout=_UNCERTAIN)
        except TimeoutError:
            if keeper.status != "finished":
                raise
        else:
            return answer


def _unless_gone(function: Callable[[], Any]) -> Any:
    """Return what keepers answer. They never raise, so whatever is raised tells that one was lost."""
    try:
        return function()
    except Exception:
        raise _Gone from None


def share_parts(
    threads: dict[str, int], lengths: Sequence[int], holders: Sequence[Sequence[str]]
) -> dict[str, list[int]]:
    """Return which parts each worker keeps: those that it holds, unless it has its share of rows already.

    A share is in proportion to threads. Workers for which nothing is left are left out.
    """
    shares: dict[str, list[int]] = {address: [] for address in threads}
    loads = dict.fromkeys(threads, 0.0)  # rows per thread
    fair = sum(lengths) / sum(threads.values())
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        near = [address for address in threads if address in holders[place]]
        least = min(near or threads, key=loads.__getitem__)
        if loads[least] + lengths[place] / threads[least] / 2 > fair:
            least = min(threads, key=loads.__getitem__)
        shares[least].append(place)
        loads[least] += lengths[place] / threads[least]
    return {address: places for address, places in shares.items() if places}


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


def attempt(compute: Callable[[], Found]) -> Found | DPDescentError:
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
        return _task_failure(found)


def without_cells(compute: Callable[..., Any], *arguments: Any) -> Any:
    """Return what tasks compute; the texts of errors of a collection's own tasks show cells, and are replaced."""
    problem: DPDescentError
    try:
        return compute(*arguments)
    except Exception as found:
        problem = lost() if type(found).__name__ in _LOST else _task_failure(found)
    raise problem  # outside the handler, so that the text with the cell is not its context


def lost() -> WorkerLost:
    """Return the error of workers that are gone."""
    return WorkerLost("the workers of the cluster were lost: start them again")


def _task_failure(found: Exception) -> DPDescentError:
    if type(found) is InvalidParameter:  # of our own tasks, without the task that led to it
        return InvalidParameter(str(found))
    return DatasetFormatError(
        f"tasks of the table failed with {type(found).__name__}: compute the collection by itself to see why"
    )
