"""Rows that are read again for each query, block by block, so that they may outgrow the memory.

Whoever reads them (`RowBlocks`) merely yields numbers. Here they are put on the grid, and a block function adds them
up in int64, so a total is the same to the last bit as that of the same rows in memory, whatever the blocks, the
order in which they arrive, and the engine that works on them.

Numbers of single rows (norms, caps, margins) stay with the part of the rows that they belong to. They are computed in
the pass that first needs them, so that one pass answers a query, and are kept from then on for as long as the
curator keeps them. `Threads` keeps them in temporary files (`dpdescent.curator.kept_rows`), eight bytes per row and
number, and the rows themselves too, so that a table is decoded and coded once. What is in memory at a time is one
block for each thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..arrays import Floats
from ..errors import DatasetFormatError, DPDescentError, InvalidParameter
from ..exact import FeatureGrid, keep_freed_memory, on_threads
from ..minimisers.risks import AnyNumber
from .array_source import cached_blocks
from .kept_rows import Digest, KeptNumbers, KeptRows, Marks, Seals, changed, new_digest

Listener = Callable[[float], None]


class RowBlocks(Protocol):
    """A table in parts that can be read again and again, in any order and by several threads or processes at once."""

    @property
    def parts(self) -> Sequence[Any]:
        """What `read` needs to be told to find each part."""
        ...

    @property
    def lengths(self) -> Sequence[int]:
        """The number of rows of every part, known without reading any."""
        ...

    def read(self, part: Any) -> Iterator[tuple[Any, Floats, Marks]]:
        """Yield the features, the labels and the marks of a part, a few rows at a time.

        Features are CSR, or float64 that may be written over. The rows and their order are always the same. Marks are
        those of `dpdescent.curator.kept_rows`.
        """
        ...


@dataclass(frozen=True, eq=False)
class PlacedBlocks:
    """Rows on the grid, and their labels, in blocks that stay in cache and are short enough for exact sums.

    ``keep_rows`` says that they are asked about again and again: an engine keeps them if there is room.
    """

    blocks: RowBlocks
    grid: FeatureGrid
    keep_rows: bool = True

    def __call__(self, part: Any, length: int, digest: Digest) -> Iterator[tuple[Any, Floats]]:
        """Yield the blocks of a part, at least one, or raise if it does not have ``length`` rows.

        The marks of all rows are added to the ``digest``.
        """
        dimension, seen = self.grid.dimension, 0
        if not length:
            yield np.empty((0, dimension)), np.empty(0)
        for features, labels, marks in self._read(part):
            seen += labels.shape[0]
            if features.shape != (*labels.shape, dimension) or marks.shape != labels.shape or seen > length:
                raise changed()
            digest.update(marks.data)
            for some in cached_blocks(labels.shape[0], dimension):
                rows = features[some]
                if sparse.issparse(rows):
                    rows = self.grid.place(rows)
                elif rows.dtype == np.float64 and rows.flags.writeable:
                    self.grid.place_in(rows)
                else:
                    raise InvalidParameter("dense blocks must be float64 arrays that may be written over")
                yield rows, np.asarray(labels[some], dtype=np.float64)
        if seen != length:
            raise changed()

    def _read(self, part: Any) -> Iterator[tuple[Any, Floats, Marks]]:
        """Yield what is read; whatever a reader raises gets a name, without its text, which may show a cell."""
        blocks = iter(self.blocks.read(part))
        while True:
            failure = ""
            try:
                block = next(blocks, None)
            except (DPDescentError, MemoryError):
                raise
            except Exception as found:
                block, failure = None, type(found).__name__
            if failure:  # outside the handler, so that the text is not its context
                raise DatasetFormatError(
                    f"a part of the table could not be read, for a {failure}: read the table by itself to see why"
                )
            if block is None:
                return
            yield block


@dataclass(frozen=True)
class Computed:
    """A number of single rows to compute: the function, and which of the numbers before it are its arguments.

    Where it is not ``kept``, it is merely what others are computed from.
    """

    function: Callable[..., Floats]
    arguments: tuple[int, ...]
    kept: bool = True


@dataclass(frozen=True)
class PartWork:
    """What one pass does with a part of the rows. It gives the same numbers in any thread or process."""

    function: Callable[..., NDArray[Any]]  # what is summed over blocks
    #: Which numbers of single rows it takes: positions among those that are known and then those computed.
    arguments: tuple[int, ...]
    computed: tuple[Computed, ...]  # numbers of single rows to compute on the way

    def __call__(
        self, blocks: Iterator[tuple[Any, Floats]], known: Sequence[NDArray[Any]]
    ) -> tuple[NDArray[Any], list[Floats]]:
        """Return the sum over the blocks of a part, and the numbers to keep that were computed for its rows."""
        totals: list[NDArray[Any]] = []
        kept: list[list[Floats]] = [[] for _ in self.computed]
        start = 0
        with np.errstate(all="ignore"):  # a warning would speak of rows
            for rows, labels in blocks:
                stop = start + labels.shape[0]
                values = [each[start:stop] for each in known]
                for each, store in zip(self.computed, kept, strict=True):
                    value = each.function(rows, labels, *(values[i] for i in each.arguments))
                    if each.kept:
                        store.append(value.copy() if np.may_share_memory(value, rows) else value)  # rows are let go
                    values.append(value)
                added = self.function(rows, labels, *(values[i] for i in self.arguments))
                totals = [totals[0] + added] if totals else [added]
                start = stop
        return totals[0], [np.concatenate(values) for values in kept if values]


class Engine(Protocol):
    """Who works on the parts."""

    def run(
        self, work: PartWork, blocks: PlacedBlocks, known: Sequence[Any], listener: Listener | None = None
    ) -> tuple[NDArray[Any], list[bytes], Sequence[Any]]:
        """Return the sum over all parts, the seal of each, and where what was computed for their rows is held.

        ``known`` holds for each number of single rows what an earlier run has returned, or a list of one array per
        part. A ``listener`` may be told which share of the parts is done, in whole percents.
        """
        ...

    def forget(self, blocks: PlacedBlocks) -> None:
        """Let go of what is kept of these rows, which are not asked about again."""
        ...


class Threads:
    """Parts are worked on by the threads of this process, and what is kept of them is in temporary files."""

    def __init__(self) -> None:
        self._kept: tuple[PlacedBlocks, KeptRows] | None = None

    def run(
        self, work: PartWork, blocks: PlacedBlocks, known: Sequence[Any], listener: Listener | None = None
    ) -> tuple[NDArray[Any], list[bytes], Sequence[Any]]:
        keep_freed_memory()
        parts, lengths = blocks.blocks.parts, blocks.blocks.lengths
        if blocks.keep_rows and (self._kept is None or self._kept[0] is not blocks):
            cells = sum(lengths) * blocks.grid.dimension
            self._kept = blocks, KeptRows(blocks, cells, blocks.grid)
        held = [KeptNumbers(len(parts)) for _ in work.computed]
        totals: list[NDArray[Any]] = []
        adding, done = threading.Lock(), 0

        def on(place: int) -> bytes:
            nonlocal done
            numbers, digest = [each[place] for each in known], new_digest()
            reads = blocks if self._kept is None else self._kept[1]
            again = None if self._kept is None else self._kept[1].again(parts[place])
            if again is None:
                added, computed = work(reads(parts[place], lengths[place], digest), numbers)
                seal = digest.digest()
            else:
                seal, rows = again
                added, computed = work(rows, numbers)
            for store, values in zip(held, computed, strict=True):
                store[place] = values
            with adding:  # integers, whose order does not matter
                totals[:] = [totals[0] + added] if totals else [added]
                done += 1
            if listener is not None:
                listener(math.floor(100 * done / len(parts)) / 100)  # whole percents do not tell how many parts
            return seal

        seals = on_threads(on, range(len(parts)))
        return totals[0], seals, held

    def forget(self, blocks: PlacedBlocks) -> None:
        if self._kept is not None and self._kept[0] is blocks:
            self._kept = None


class _RowNumbers:
    """Numbers of single rows: how to compute them and, once that is done, where the engine holds them."""

    def __init__(self, function: Callable[..., Floats], needs: tuple[Any, ...]) -> None:
        self.function = function
        self.needs = needs
        self.held: Any = None


class BlockSource:
    """Rows in parts that are read for each sum.

    Parameters
    ----------
    blocks : RowBlocks
    grid : FeatureGrid
        Rows are put on it when they are read.
    engine : Engine, optional
        Who reads and adds up; the threads of this process by default.
    seals : Seals, optional
        Shared by sources of the same table, which must all find the same rows in it.
    keep_rows : bool
        Whether the rows are asked about again and again, so that they are kept on their grid if there is room.

    Attributes
    ----------
    listener : callable or None
        Told during a sum which share of it is done.
    """

    in_one_place = False
    listener: Listener | None = None

    def __init__(
        self,
        blocks: RowBlocks,
        grid: FeatureGrid,
        engine: Engine | None = None,
        seals: Seals | None = None,
        keep_rows: bool = True,
    ) -> None:
        self.grid = grid
        self._blocks = PlacedBlocks(blocks, grid, keep_rows)
        self._engine = engine or Threads()
        if not len(blocks.parts):
            raise InvalidParameter("a table needs at least one part")
        self._ends = np.cumsum(blocks.lengths)
        self._seals = seals or Seals()
        self._numbers: WeakSet[_RowNumbers] = WeakSet()

    @property
    def rows(self) -> int:
        return int(self._ends[-1])

    def map_sum(self, function: Callable[..., NDArray[AnyNumber]], *aligned: Any) -> NDArray[AnyNumber]:
        """Return the sum over blocks, of the same rows in the same places as in every other sum.

        **Privacy** Clip factors are kept from the norms of a row, and a batch is a set of places. Other rows in these
        places would enter a sum with more than the sensitivity that was charged, so they are refused.
        """
        known: list[Any] = []
        computed: list[_RowNumbers] = []
        for each in aligned:
            self._find(each, known, computed)
        places = {id(each): place for place, each in enumerate([*known, *computed])}

        def at(wanted: tuple[Any, ...]) -> tuple[int, ...]:
            return tuple(places[id(each)] for each in wanted)

        wanted = tuple(Computed(each.function, at(each.needs)) for each in computed)
        work = PartWork(function, at(aligned), wanted)
        found = [self._by_part(each) for each in known]
        total, seals, held = self._engine.run(work, self._blocks, found, self.listener)
        self._seals.require(seals)
        for each, where in zip(computed, held, strict=True):
            each.held, each.needs = where, ()  # what it was computed from is no longer needed
        return total

    def close(self) -> None:
        """Let go of the rows and the numbers of single rows that are kept; nothing can be asked after it."""
        self._engine.forget(self._blocks)
        for each in self._numbers:
            each.held = None

    def map_rows(self, function: Callable[..., Floats], *aligned: Any) -> Any:
        """Return numbers of single rows that are computed when a sum first needs them."""
        numbers = _RowNumbers(function, aligned)
        self._numbers.add(numbers)
        return numbers

    def _find(self, wanted: Any, known: list[Any], computed: list[_RowNumbers]) -> None:
        """List what is known and what is to be computed, everything after what it needs."""
        if any(wanted is each for each in (*known, *computed)):
            return
        if not isinstance(wanted, _RowNumbers) or wanted.held is not None:
            known.append(wanted)
            return
        for each in wanted.needs:
            self._find(each, known, computed)
        computed.append(wanted)

    def _by_part(self, known: Any) -> Any:
        return known.held if isinstance(known, _RowNumbers) else np.split(known, self._ends[:-1])
