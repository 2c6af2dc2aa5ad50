"""A progress bar that shows only what is public: the share of the budget that is spent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..progress import occasional
from ..solvers.result import Progress

__all__ = ["budget_bar", "listening"]


@contextmanager
def listening(progress: bool | Progress) -> Iterator[Progress | None]:
    """Yield what a solver reports to: a bar for True, a caller's own callable, or nothing."""
    if progress is True:
        with budget_bar() as bar:
            yield bar
    else:
        yield progress if callable(progress) else None


@contextmanager
def budget_bar() -> Iterator[Progress]:
    """Yield a callback that shows the budget spent on standard error: a bar that is gone at the end, or lines."""
    if not sys.stderr.isatty():
        speak = occasional()
        yield lambda share: speak(f"{min(share, 1.0):.0%} of the privacy budget is spent")
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("privacy budget"),
        BarColumn(),
        TextColumn("{task.percentage:>5.1f}% spent"),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    )
    task = bar.add_task("budget", total=1.0)
    with bar:
        yield lambda share: bar.update(task, completed=min(share, 1.0))
