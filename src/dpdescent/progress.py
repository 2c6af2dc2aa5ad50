"""Signs of life on standard error: a bar on a screen, and a line now and then in a file."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .foreign import printable

__all__ = ["heartbeat", "occasional"]

PAUSE = 5.0  # seconds between two lines, and before the first one


def occasional(pause: float | None = None) -> Callable[[str], None]:
    """Return a function that writes its text to standard error, unless it has done so in the last ``pause`` seconds.

    The first line comes after a pause as well, so that what is done soon says nothing.
    """
    wait = PAUSE if pause is None else pause
    spoken = time.monotonic()

    def speak(text: str) -> None:
        nonlocal spoken
        now = time.monotonic()
        if now - spoken >= wait:
            spoken = now
            sys.stderr.write(f"{printable(text)}\n")
            sys.stderr.flush()

    return speak


@contextmanager
def heartbeat(text: Callable[[], str], pause: float | None = None) -> Iterator[None]:
    """Write a text to standard error every ``pause`` seconds while a block of code runs, whatever it is busy with."""
    wait, ended = PAUSE if pause is None else pause, threading.Event()

    def beat() -> None:
        while not ended.wait(wait):
            sys.stderr.write(f"{printable(text())}\n")
            sys.stderr.flush()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
