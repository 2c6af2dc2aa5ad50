"""A progress bar that shows only what is public: the share of the budget that is spent."""

from __future__ import annotations

import sys

from ..solvers.result import Progress

__all__ = ["budget_bar"]


def budget_bar() -> Progress:
    """Return a callback that draws a bar of the budget spent on standard error."""
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
    bar.start()

    def update(share: float) -> None:
        bar.update(task, completed=min(share, 1.0))
        if share >= 1:
            bar.stop()

    return update
