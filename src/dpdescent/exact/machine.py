r"""What the machine must do for exact sums to be exact and quick: its BLAS, its threads and its memory.

**Matrix products** are exact for any order of summation, and a test says whether the BLAS of this machine obeys.

**Lemma 1 (exact accumulation).** If all terms are multiples of ``2^-k`` (k < 1000) and their absolute values
add up to at most ``2^(53-k)``, then float64 returns their exact sum for every summation order, tree, fused
multiply-add or split among threads.

*Proof.* Every partial sum, of any subset, is a multiple of ``2^-k`` of size at most ``2^(53-k)``, hence a
double; an IEEE operation whose exact result is a double returns it. QED

The lemma needs a conventional IEEE matrix product: no Strassen recursion, no emulation in fewer bits. That is a
property of the machine, so it is tested once per process (`blas_is_exact`). If the test fails, products of dense
arrays are computed in int64, which is slower and gives the same bits.

**Threads.** Those of a numerical library wait for each other by spinning, so that on a busy machine every product
takes as long as its unluckiest thread, several times over. Here a product never has more than one thread; blocks of
rows that are large enough to be worth it are worked on side by side instead, by threads that sleep while they wait.

**Memory.** A process that works on blocks of rows, or on one batch after another, needs several arrays of a megabyte
or two for each of them. The allocator of glibc gives such memory back to the system when it is freed, and to get its
pages again takes about as long as sums over them. By and by it learns to keep arrays of the length that it has seen,
but never several of them; and Dask starts its workers with ``MALLOC_TRIM_THRESHOLD_=65536``, with which it learns
nothing.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import cache, partial
from queue import SimpleQueue
from typing import Any

import numpy as np
from scipy import sparse
from threadpoolctl import ThreadpoolController

from ..arrays import Floats, Integers
from ..errors import InvalidParameter, require_positive_integer

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them
_LARGEST_LEARNED = 2**25  # bytes of the longest array that glibc learns to keep

_lock = threading.Lock()
_inside = 0
_limit: Any = None


@cache
def blas_is_exact() -> bool:
    """Compare float64 matrix products whose sums fill all 53 bits with int64 arithmetic; once per process."""
    generator = np.random.Generator(np.random.Philox(20))
    for rows, inner, columns in ((67, 512, 5), (256, 256, 64), (5, 65_536, 3)):
        # Factors just below 2^a and 2^b, with a + b = 53 - log2(inner): the first column's sums lie in
        # (2^52, 2^53] and are of either parity, so a single lost bit shows. The others mix signs.
        bits = 53 - (inner - 1).bit_length()
        half = bits // 2
        rest = bits - half
        left = generator.integers(2**half - 2 ** (half - 3), 2**half, (rows, inner), endpoint=True)
        right = generator.integers(-(2**rest), 2**rest, (inner, columns), endpoint=True)
        right[:, 0] = generator.integers(2**rest - 2 ** (rest - 3), 2**rest, inner, endpoint=True)
        expected = left @ right
        for order in ("C", "F"):
            a = np.asarray(left, dtype=np.float64, order=order)
            b = np.asarray(right, dtype=np.float64, order=order)
            products = [(a @ b, expected), (b.T @ a.T, expected.T)]
            products += [(a @ b[:, 0], expected[:, 0]), (b[:, 0] @ a.T, expected[:, 0])]
            products += [(a[:-3] @ b[:, -1], expected[:-3, -1]), (np.dot(b[:, 0], a.T), expected[:, 0])]
            if not all(np.array_equal(found, wanted) for found, wanted in products):
                return False
    return True


def row_blocks(rows: int, block_rows: int, limit: int) -> Iterator[slice]:
    """Yield consecutive slices of at most ``block_rows`` rows; a sum over more than ``limit`` would be inexact."""
    block_rows = require_positive_integer("block_rows", block_rows)
    if block_rows > limit:
        raise InvalidParameter(f"block_rows must be at most {limit} for an exact sum, got {block_rows}")
    for start in range(0, rows, block_rows):
        yield slice(start, min(start + block_rows, rows))


def as_float64(rows: Any) -> Any:
    """Return a block of rows in float64: float32 is a way to store grid values, never to multiply them."""
    return rows if rows.dtype == np.float64 else rows.astype(np.float64)


def transposed_product(rows: Any, coefficients: Floats) -> Floats:
    """Return ``rows.T @ coefficients`` for a block of rows, in float64.

    `numpy.dot` releases the interpreter lock, which the operator ``@`` does not do for a vector times a matrix.
    """
    block = as_float64(rows)
    dense = isinstance(block, np.ndarray) and coefficients.ndim == 1
    product: Floats = np.dot(coefficients, block) if dense else block.T @ coefficients
    return product


def separate_product(rows: Any, coefficients: Floats) -> Floats:
    """Return ``rows @ coefficients``, each row with the same bits in any company.

    A matrix product may round the same row differently beside other rows. Here columns are multiplied and added one
    after the other, by operations that IEEE 754 rounds for each element alone. A product with sparse rows is such a
    sum already: scipy adds up the entries of one row after those of another.
    """
    if sparse.issparse(rows):
        product: Floats = np.asarray(sparse.csr_array(rows, dtype=np.float64) @ coefficients)
        return product
    wide = coefficients.ndim == 2
    total = np.zeros((rows.shape[0], *coefficients.shape[1:]))
    for some in row_blocks(rows.shape[0], 4096, 4096):
        columns = np.ascontiguousarray(np.asarray(rows[some], dtype=np.float64).T)
        for column, weight in zip(columns, coefficients, strict=True):
            total[some] += column[:, None] * weight if wide else column * weight
    return total


def on_integers(rows: Any, exponent: int) -> Any:
    """Return grid rows, multiples of ``2^-exponent``, as the int64 multiples themselves."""
    if sparse.issparse(rows):
        integers = rows.astype(np.float64)
        data = np.ldexp(integers.data, exponent).astype(np.int64)
        return type(rows)((data, integers.indices, integers.indptr), shape=rows.shape)
    values: Integers = np.ldexp(np.asarray(rows, dtype=np.float64), exponent).astype(np.int64)
    return values


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


@cache
def keep_freed_memory() -> None:
    """Have this process keep what it frees for the next block, up to 64 megabytes for each thread.

    These are the largest limits that glibc comes to by itself. They stay for as long as the process lives. Another
    allocator is left alone, and so is one that is told by the environment how long an array is mapped on its own.
    """
    if "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST_LEARNED)
    mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_LEARNED)
