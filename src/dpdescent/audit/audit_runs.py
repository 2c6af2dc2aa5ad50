"""Run a subject many times on two neighbouring tables: in this process or in several, and with a journal or without.

The runs are cut into chunks. A chunk is drawn from randomness of its own, so the outcomes are independent however
many processes draw them, and a run that was killed goes on with the chunks that its journal does not hold.

Mechanisms, methods and queries of the library are subjects of other modules. A function of a caller's own, on two
tables of the caller's own, is the `FunctionRun` here.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

#: One row for each run: numbers, or one word where an outcome is anything else.
Outcomes = NDArray[Any]
#: Called with the runs that are done and the runs there are.
Listener = Callable[[int, int], None]


class Subject(ABC):
    """What is audited: something random that can be run on either of two neighbouring tables."""

    chunk: ClassVar[int]  # how many runs are worth a task of their own

    @property
    def fingerprint(self) -> str:
        """Text that tells its settings from any other."""
        return repr(self)

    @abstractmethod
    def draw(self, neighbour: bool, seed: int | None, runs: int) -> list[list[float] | str]:
        """Return the outcomes of independent runs; None stands for the operating system's randomness."""


@dataclass(frozen=True)
class Chunk:
    """Some of the runs on one of the tables."""

    subject: Subject
    neighbour: bool
    number: int
    runs: int
    seed: int | None

    @property
    def key(self) -> str:
        """Its name in a journal."""
        return f"{int(self.neighbour)}-{self.number}"


@dataclass(frozen=True)
class Drawn:
    """The outcomes of a chunk, as plain data."""

    outcomes: list[list[float] | str]


def collect(
    subject: Subject,
    runs: int,
    *,
    seed: int | None = None,
    jobs: int = 1,
    journal: Path | None = None,
    listener: Listener | None = None,
) -> tuple[Outcomes, Outcomes]:
    """Return the outcomes of ``runs`` runs on each table.

    A ``seed`` repeats them. With ``jobs`` above 1 so many processes draw. Beside the output named by ``journal``
    finished chunks are kept, so that a killed run can go on; ``listener`` is called after each chunk.
    """
    chunks = list(_chunks(subject, runs, seed))
    done: dict[str, Drawn] = {}
    kept = None
    if journal is not None:
        from ..long_runs import Journal  # it needs locks that only some systems have

        text = f"{subject.fingerprint} {runs} {seed}"
        kept = Journal(journal, hashlib.sha256(text.encode()).hexdigest()[:16], Drawn)
        done = dict(kept.rows)
    waiting = [chunk for chunk in chunks if chunk.key not in done]
    finished = 2 * runs - sum(chunk.runs for chunk in waiting)
    try:
        for chunk, drawn in _worked(waiting, jobs):
            done[chunk.key] = drawn
            if kept is not None:
                kept.add(chunk.key, drawn)
            finished += chunk.runs
            if listener is not None:
                listener(finished, 2 * runs)
        if kept is not None:
            kept.remove()
    finally:
        if kept is not None:
            kept.close()
    first, second = (
        [outcome for chunk in chunks if chunk.neighbour is side for outcome in done[chunk.key].outcomes]
        for side in (False, True)
    )
    return as_outcomes(first, second)


def _chunks(subject: Subject, runs: int, seed: int | None) -> Iterator[Chunk]:
    for number, start in enumerate(range(0, runs, subject.chunk)):
        for neighbour in (False, True):
            own = None if seed is None else _derived(seed, int(neighbour), number)
            yield Chunk(subject, neighbour, number, min(subject.chunk, runs - start), own)


def _derived(seed: int, *key: int) -> int:
    """Return a seed of 128 bits that belongs to one key alone."""
    words: Any = np.random.SeedSequence(seed, spawn_key=key).generate_state(2, np.uint64)
    return int(words[0]) << 64 | int(words[1])


def derived_seed(seed: int | None, number: int) -> int | None:
    """Return the seed of one run of a chunk; None stays None."""
    return None if seed is None else _derived(seed, number)


def _worked(chunks: list[Chunk], jobs: int) -> Iterator[tuple[Chunk, Drawn]]:
    if jobs == 1 or len(chunks) < 2:
        return ((chunk, _drawn(chunk)) for chunk in chunks)
    from ..long_runs import in_processes

    return in_processes(_drawn, chunks, min(jobs, len(chunks)))


def _drawn(chunk: Chunk) -> Drawn:
    return Drawn(chunk.subject.draw(chunk.neighbour, chunk.seed, chunk.runs))


def plain(outcome: Any) -> list[float] | str:
    """Return an outcome as numbers, or as the text of its representation if it is anything else."""
    try:
        numbers = np.ravel(np.asarray(outcome, dtype=np.float64))
    except (TypeError, ValueError):
        return repr(outcome)
    return numbers.tolist() if numbers.size and np.isfinite(numbers).all() else repr(outcome)


def as_outcomes(first: Sequence[list[float] | str], second: Sequence[list[float] | str]) -> tuple[Outcomes, Outcomes]:
    """Return plain outcomes of both tables as arrays of one kind.

    Outcomes of different lengths, and those that are no finite numbers, are compared by their text: a shape or a
    missing number may give a row away as well as any digit.
    """
    every = [*first, *second]
    if all(not isinstance(each, str) and len(each) == len(every[0]) for each in every):
        return np.array(first, dtype=np.float64), np.array(second, dtype=np.float64)
    words = [each if isinstance(each, str) else f"{len(each)} numbers" for each in every]
    coded = np.array(words, dtype=object)[:, None]
    return coded[: len(first)], coded[len(first) :]


@dataclass(frozen=True, eq=False)
class FunctionRun(Subject):
    """A caller's own function on a caller's own tables."""

    function: Callable[..., Any]
    tables: tuple[Any, Any]
    score: Callable[[Any], float] | None
    chunk = 200

    @property
    def fingerprint(self) -> str:
        names = [_code_of(function) for function in (self.function, self.score) if function is not None]
        return f"{' '.join(names)} {hashlib.sha256(pickle.dumps(self.tables)).hexdigest()}"

    def draw(self, neighbour: bool, seed: int | None, runs: int) -> list[list[float] | str]:
        """Return the outcomes of independent calls, or what the caller's score makes of them."""
        table, seeded = self.tables[neighbour], _takes_seed(self.function)
        generator = np.random.default_rng(secrets.randbits(128) if seed is None else seed)
        outcomes: list[list[float] | str] = []
        for _ in range(runs):
            own = {"seed": int(generator.integers(2**62))} if seeded else {}
            outcome = self.function(table, **own)
            outcomes.append(plain(outcome if self.score is None else self.score(outcome)))
        return outcomes


def _code_of(function: Callable[..., Any]) -> str:
    """Return the name of a function with a digest of its code, or of its state: runs of another one do not count."""
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__name__)}"
    code = getattr(function, "__code__", None)
    if code is not None:
        plain_ones = [each for each in code.co_consts if isinstance(each, int | float | complex | str | bytes | None)]
        content = repr((code.co_code, code.co_names, plain_ones)).encode()
    else:
        try:
            content = pickle.dumps(function)
        except (pickle.PicklingError, AttributeError, TypeError):
            content = b""
    return f"{name} {hashlib.sha256(content).hexdigest()}"


def _takes_seed(function: Callable[..., Any]) -> bool:
    try:
        return "seed" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
