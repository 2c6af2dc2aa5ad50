"""Signs of life on standard error: a bar on a screen, and a line now and then in a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

__all__ = ["occasional"]

PAUSE = 10.0  # seconds between two lines, and before the first one


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
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    return speak
