"""Threads over blocks of rows, each with one thread of the numerical library.

Threads of a numerical library wait for each other by spinning, so that on a busy machine every product takes as long
as its unluckiest thread, several times over. Here a product never has more than one thread; blocks of rows that are
large enough to be worth it are worked on side by side instead, by threads that sleep while they wait.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import cache, partial
from queue import SimpleQueue
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["on_threads", "one_library_thread"]

_lock = threading.Lock()
_inside = 0
_limit: Any = None


def on_threads(function: Callable[[Any], Any], blocks: Sequence[Any], threads: int | None = None) -> list[Any]:
    """Return the results of all blocks, computed by some threads; by default as many as there are processors.

    ``function`` must not call `on_threads` itself: it would wait for its own thread.
    """
    results: list[Any] = [None] * len(blocks)
    waiting = deque(enumerate(blocks))

    def work() -> None:
        while True:
            try:
                place, block = waiting.popleft()
            except IndexError:  # none is left
                return
            results[place] = function(block)

    helpers = min(len(blocks), threads or _processors()) - 1
    outcomes: SimpleQueue[BaseException | None] = SimpleQueue()
    with one_library_thread():
        # The caller works too. One that slept at once would leave its processor to the thread that it has woken,
        # and both threads on one processor. numpy's error handling goes with the caller's context.
        for _ in range(helpers):
            _tasks(helpers, os.getpid()).put(partial(_report, copy_context(), work, outcomes))
        try:
            work()
        finally:
            failures = [failure for failure in (outcomes.get() for _ in range(helpers)) if failure is not None]
        for failure in failures:
            raise failure
    return results


@contextmanager
def one_library_thread() -> Iterator[None]:
    """Limit numerical libraries to one thread, so that results have the same digits for any number of processors.

    There is one limit for the whole process: the first caller to enter sets it, and the last one to leave lifts it.
    """
    global _inside, _limit
    with _lock:
        _inside += 1
        if _inside == 1:
            _limit = _libraries().limit(limits=1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _limit.restore_original_limits()


@cache
def _tasks(threads: int, process: int) -> SimpleQueue[Callable[[], None]]:  # noqa: ARG001
    """Return the queue of the threads of this process, which are kept. A forked child starts without threads.

    They are daemons. The executor of the standard library joins its threads when Python ends, and waits for ever for
    one that was being started when the keyboard interrupted it.
    """
    tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
    for _ in range(threads):
        threading.Thread(target=_serve, args=(tasks,), daemon=True).start()
    return tasks


def _serve(tasks: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        tasks.get()()


def _report(context: Context, work: Callable[[], None], outcomes: SimpleQueue[BaseException | None]) -> None:
    try:
        context.run(work)
    except BaseException as failure:
        outcomes.put(failure)
    else:
        outcomes.put(None)


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def _processors() -> int:
    """Return how many threads to use: OMP_NUM_THREADS where it is set, as for other numerical work."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    if told.isdigit() and int(told) > 0:
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
