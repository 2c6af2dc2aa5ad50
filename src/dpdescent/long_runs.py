"""Long runs: tasks in worker processes, and a journal from which a killed run goes on.

Outputs that are written whole or not at all, and refused before any work if they cannot be written.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

from .errors import DPDescentError, MissingPackage, OutputNotWritable, RunInProgress, WorkerLost

#: Called with the tasks that are done and the tasks there are.
Listener = Callable[[int, int], None]
AnyRow = TypeVar("AnyRow")
AnyTask = TypeVar("AnyTask")

_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def processors() -> int:
    """Return the processors this process may use, where the system tells, else those there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_processes(
    work: Callable[[AnyTask], AnyRow], tasks: list[AnyTask], jobs: int
) -> Iterator[tuple[AnyTask, AnyRow]]:
    """Yield every task with what ``work`` makes of it, as they are finished, by ``jobs`` worker processes.

    Each worker has one thread for linear algebra, and ends with this process however that ends.
    """
    if not tasks:
        return
    # Fresh interpreters: only there do the thread variables come before numpy.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_with_parent)
    try:
        with threads_pinned(), _interrupts_ignored():
            futures = {executor.submit(work, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures.pop(future), future.result()
        executor.shutdown()
    except BrokenProcessPool:
        raise WorkerLost(
            f"one of {jobs} worker processes was killed, most often for want of memory: try fewer --jobs; with an "
            "output file what is done is kept, and the same command goes on from there"
        ) from None
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        for worker in set(multiprocessing.active_children()) - others:
            worker.terminate()
        raise


@contextmanager
def threads_pinned() -> Iterator[None]:
    """Let processes that start meanwhile use one thread each for linear algebra."""
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Let processes that start meanwhile leave an interrupt to this one, which then ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end_with_parent() -> None:
    """End this worker when the process that started it is killed, however that happens."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Journal(Generic[AnyRow]):
    """The finished tasks of one run, a line each, in a file beside its output.

    The name of the file carries the fingerprint of the study, so other settings never find these rows. A line that a
    kill tore is dropped; its cell is measured again.

    ``output`` is the file that the study will end in, ``fingerprint`` that of its settings, and ``row`` the dataclass
    of its rows.
    """

    def __init__(self, output: Path, fingerprint: str, row: type[AnyRow]) -> None:
        self.path = output.with_name(f"{output.name}.{fingerprint}.journal")
        self.rows: dict[str, AnyRow] = {}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "a+b")  # noqa: SIM115
        except OSError as problem:
            raise OutputNotWritable(f"cannot write {self.path}: {problem.strerror}; choose another place") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise RunInProgress(
                f"another process is writing {self.path}: wait for it, or choose another output"
            ) from None
        self._file.seek(0)
        *lines, torn = self._file.read().split(b"\n")
        if torn:
            self._file.truncate(sum(len(line) + 1 for line in lines))
        for line in lines:
            entry = json.loads(line)
            self.rows[entry["cell"]] = row(**entry["row"])

    def add(self, key: str, row: AnyRow) -> None:
        """Keep the row of a finished cell, on disk before this returns."""
        self.rows[key] = row
        self._file.write(json.dumps({"cell": key, "row": asdict(cast(Any, row))}).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def remove(self) -> None:
        """Forget the rows: the output holds them now."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Leave the file to a later run, unless there is nothing in it."""
        if not self.rows:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def __enter__(self) -> Journal[AnyRow]:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: Any, trace: TracebackType | None) -> None:
        self.close()


def measure_tasks(
    tasks: Sequence[AnyTask],
    key: Callable[[AnyTask], str],
    work: Callable[[AnyTask], AnyRow],
    *,
    jobs: int = 0,
    journal: Journal[AnyRow] | None = None,
    listener: Listener | None = None,
) -> list[AnyRow]:
    """Return what ``work`` makes of each task: from the journal, where it has the key of the task, or made now.

    New rows are added to the journal. With ``jobs`` they are made in so many processes, and otherwise in this one.
    """
    done = dict(journal.rows) if journal is not None else {}
    waiting = [task for task in tasks if key(task) not in done]
    tell = listener or (lambda *_: None)
    tell(len(tasks) - len(waiting), len(tasks))  # the first task may take minutes
    finished = in_processes(work, waiting, min(jobs, len(waiting))) if jobs else ((t, work(t)) for t in waiting)
    for count, (task, row) in enumerate(finished, len(tasks) - len(waiting) + 1):
        done[key(task)] = row
        if journal is not None:
            journal.add(key(task), row)
        tell(count, len(tasks))
    return [done[key(task)] for task in tasks]


_DATABASE = b"SQLite format 3\0"  # how a ledger begins


def require_outputs(outputs: Iterable[Path | None], inputs: Iterable[Path | str | None] = ()) -> None:
    """Refuse outputs that cannot be written, that are one file, or that would take the place of an input."""
    taken = {Path(each).resolve() for each in inputs if each is not None}
    for path in outputs:
        if path is None:
            continue
        _require_replaceable(require_writable(path))
        if path.resolve() in taken:
            raise OutputNotWritable(
                f"cannot write {path}: the same command reads or writes another thing there; choose another place"
            )
        taken.add(path.resolve())


def require_writable(path: Path) -> Path:
    """Return ``path`` once a file can be put there; its folder is made if need be."""
    try:
        if path.is_dir():  # which also fails for a name that is too long
            raise IsADirectoryError
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except IsADirectoryError:
        raise OutputNotWritable(f"cannot write {path}: it is a folder; give the name of a file") from None
    except (FileExistsError, NotADirectoryError):
        raise OutputNotWritable(
            f"cannot write {path}: a file is where its folder should be; choose another place"
        ) from None
    except OSError as problem:
        raise OutputNotWritable(f"cannot write {path}: {problem.strerror}; choose another place") from None
    return path


def require_matplotlib() -> Any:
    """Return matplotlib, drawing without a screen."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingPackage("pictures need matplotlib: pip install 'dpdescent[plots]'") from None
    mpl.use("Agg")
    return mpl


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a file under a passing name and then give it its own, so that no reader ever sees half of it."""
    with passing_file(path) as passing:
        passing.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@contextmanager
def passing_file(path: Path) -> Iterator[Path]:
    """Yield the name of a file in the same folder, which takes the place of ``path`` once it is written.

    If writing fails, it is removed, and what was at ``path`` stays as it was.
    """
    _require_replaceable(require_writable(path))
    descriptor, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
    os.close(descriptor)
    passing = Path(name)
    try:
        yield passing
        with passing.open("r+b") as file:
            os.fsync(file.fileno())
        # A file made by mkstemp is for its owner alone; an ordinary output follows the umask.
        mask = os.umask(0)
        os.umask(mask)
        passing.chmod(0o666 & ~mask)
        passing.replace(path)
    except BaseException as problem:
        passing.unlink(missing_ok=True)
        if not isinstance(problem, OSError) or isinstance(problem, DPDescentError):
            raise
        cause = problem.strerror or "is there room on the disk?"
        raise OutputNotWritable(f"cannot write {path}: {cause}; choose another place") from None


def _require_replaceable(path: Path) -> None:
    """Refuse to put a file in the place of a device, or of a ledger, whose charges would be forgotten."""
    try:
        if path.exists() and not path.is_file():
            raise OutputNotWritable(f"cannot write {path}: it is no ordinary file; choose another place")
        with path.open("rb") as file:
            start = file.read(len(_DATABASE))
    except OutputNotWritable:
        raise
    except OSError:  # it is not there, or may be replaced without being read
        return
    if start == _DATABASE:
        raise OutputNotWritable(f"cannot write {path}: it is a ledger or another database; choose another place")
