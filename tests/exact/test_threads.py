"""Threads over blocks of rows: failures reach the caller, and an interrupt never keeps Python from ending."""

import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest

from dpdescent.exact import keep_freed_memory, machine
from dpdescent.exact.machine import on_threads


def test_results_are_in_the_order_of_the_blocks() -> None:
    assert on_threads(lambda block: block * 2, list(range(50))) == list(range(0, 100, 2))


def test_a_failure_on_any_thread_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")

    def fail(block: int) -> None:
        raise ZeroDivisionError(block)

    with pytest.raises(ZeroDivisionError):
        on_threads(fail, [1, 2, 3])
    assert on_threads(lambda block: block, [1, 2, 3]) == [1, 2, 3]


def test_python_ends_after_an_interrupt_while_a_thread_was_being_started() -> None:
    program = """
        import threading
        from dpdescent.exact.machine import on_threads

        def start_and_interrupt(thread, start=threading.Thread.start):
            threading.Thread.start = start
            start(thread)
            raise KeyboardInterrupt

        threading.Thread.start = start_and_interrupt
        try:
            on_threads(str, [1, 2, 3])
        except KeyboardInterrupt:
            print("interrupted", on_threads(str, [1, 2, 3]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"OMP_NUM_THREADS": "2"},
    )
    assert done.stdout == "interrupted ['1', '2', '3']\n"


def test_an_allocator_is_left_alone_where_it_is_another_one_or_was_told_by_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda *option: told.append(option))
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda _: library)
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "131072")
    keep_freed_memory.__wrapped__()
    assert not told
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_")
    keep_freed_memory.__wrapped__()
    assert told == [(-3, 2**25), (-1, 2**26)]
    del library.mallopt
    keep_freed_memory.__wrapped__()
