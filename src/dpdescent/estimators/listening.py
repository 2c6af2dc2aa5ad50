"""A progress bar that shows only what is public: the share of the budget that is spent, and the time left.

Tables that are read block by block show how much of a pass over them is done, too, as a share and never as a number
of rows or blocks.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..display import occasional
from ..errors import InvalidParameter
from ..solvers import Progress


def require_listener(progress: Any) -> None:
    """Raise `InvalidParameter` for what cannot be told of progress: a fit would be charged before it fails."""
    if isinstance(progress, bool):
        return
    if not callable(progress):
        raise InvalidParameter(f"progress must be True, False or callable, got a {type(progress).__name__}")
    try:
        inspect.signature(progress).bind(0.0)
    except TypeError:
        raise InvalidParameter("progress is called with one number, the share of the budget that is spent") from None
    except ValueError:  # its signature is unknown, as that of some builtins is
        return


@contextmanager
def listening(progress: bool | Progress) -> Iterator[Progress | None]:
    """Yield what a solver reports to: a bar for True, a caller's own callable, or nothing."""
    require_listener(progress)
    if progress is True:
        with budget_bar() as bar:
            yield bar
    else:
        yield progress if callable(progress) else None


def over_rows(listener: Progress | None) -> Callable[[float], None] | None:
    """Return what is told about a pass over the rows: the method ``over_rows`` of a listener that has one."""
    return getattr(listener, "over_rows", None)


def time_left(elapsed: float, share: float) -> str:
    """Return about how long the rest takes if it goes on as it did; nothing before a hundredth is done.

    Examples
    --------
    >>> time_left(60.0, 0.25), time_left(0.5, 0.5), time_left(7200.0, 0.5), time_left(1.0, 0.0)
    ('3 min left', '1 s left', '2.0 h left', '')
    """
    if not 0.01 <= share < 1:
        return ""
    seconds = elapsed * (1 - share) / share
    if seconds < 60:
        return f"{max(1, round(seconds))} s left"
    return f"{round(seconds / 60)} min left" if seconds < 3600 else f"{seconds / 3600:.1f} h left"


class _Lines:
    """Says now and then in a line how far a fit is."""

    def __init__(self) -> None:
        self._speak, self._started, self._share = occasional(), time.monotonic(), 0.0

    def __call__(self, share: float) -> None:
        self._share = min(share, 1.0)
        self._speak(self._text())

    def over_rows(self, share: float) -> None:
        self._speak(f"{self._text()}; {share:.0%} of a pass over the rows is done")

    def _text(self) -> str:
        left = time_left(time.monotonic() - self._started, self._share)
        return f"{self._share:.0%} of the privacy budget is spent" + (f", about {left}" if left else "")


class _Bar:
    """Moves a bar of the budget, and beside it the share of a pass that is done."""

    def __init__(self, bar: Any, task: Any) -> None:
        self._bar, self._task, self._started = bar, task, time.monotonic()

    def __call__(self, share: float) -> None:
        spent = min(share, 1.0)
        self._bar.update(self._task, completed=spent, left=time_left(time.monotonic() - self._started, spent))

    def over_rows(self, share: float) -> None:
        self._bar.update(self._task, rows=f"{share:.0%} of a pass" if share < 1 else "")


@contextmanager
def budget_bar() -> Iterator[Progress]:
    """Yield a callback that shows the budget spent on standard error: a bar that is gone at the end, or lines."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("privacy budget"),
        BarColumn(),
        TextColumn("{task.percentage:>5.1f}% spent"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[rows]}"),
        console=Console(file=sys.stderr),
        transient=True,
    )
    task = bar.add_task("budget", total=1.0, left="", rows="")
    with bar:
        yield _Bar(bar, task)
