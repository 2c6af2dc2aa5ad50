"""The names of the lines of a picture: each at the end of its line, moved apart where they would overlap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.isotonic import isotonic_regression

if TYPE_CHECKING:
    from .drawing import Line, Panel

__all__ = ["STROKES", "label_lines"]

STROKES = ("_", "|", "1", "2", "3", "4", "x")  # markers that have no inside
_SIZE = 8.5


def label_lines(figure: Any, drawn: Sequence[tuple[Any, Panel]]) -> None:
    """Write the name of each line at its end, moved apart where they would overlap; else draw one legend."""
    figure.draw_without_rendering()
    points = figure.dpi / 72
    gap = 1.2 * _SIZE * points
    if any(len(panel.lines) * gap > axes.get_window_extent().height for axes, panel in drawn):
        _legend(figure, [panel for _, panel in drawn])
        return
    ending = [[line for line in panel.lines if line.look.flat or line.x[-1] == panel.ticks[-1]] for _, panel in drawn]
    texts = [[_annotate(axes, line) for line in lines] for (axes, _), lines in zip(drawn, ending, strict=True)]
    for (axes, panel), lines in zip(drawn, ending, strict=True):
        for line in panel.lines:
            if line not in lines:
                _annotate_inside(axes, line)
    figure.draw_without_rendering()  # the layout makes room for the widest name
    figure.set_layout_engine("none")
    for (axes, _), lines, labels in zip(drawn, ending, texts, strict=True):
        if not labels:
            continue
        box = axes.get_window_extent()
        ends = [axes.transData.transform((line.x[-1], _seen(axes, line)))[1] - box.y0 for line in lines]
        for label, height in zip(labels, _apart(ends, gap, box.height), strict=True):
            label.set_position((label.get_position()[0], height / box.height))


def _apart(heights: Sequence[float], gap: float, room: float) -> list[float]:
    """Return heights as near as can be to the wanted ones, ``gap`` apart and inside [0, room]."""
    order = np.argsort(heights, kind="stable")
    steps = gap * np.arange(len(heights))
    moved = isotonic_regression(np.asarray(heights)[order] - steps)
    placed = np.empty(len(heights))
    placed[order] = np.clip(moved, 0, max(0.0, room - steps[-1])) + steps
    return [float(height) for height in placed]


def _annotate(axes: Any, line: Line) -> Any:
    end = (1.0 if line.look.flat else line.x[-1], _seen(axes, line))
    outside = end[1] != line.mean[-1]
    return axes.annotate(
        f"{line.look.name} ({line.mean[-1]:.3f})" if outside else line.look.name,
        end,
        xycoords=("axes fraction", "data") if line.look.flat else "data",
        xytext=(1.035, 0.5),
        textcoords="axes fraction",
        va="center",
        ha="left",
        fontsize=_SIZE,
        color=line.look.colour,
        annotation_clip=False,
        arrowprops={
            "arrowstyle": "-",
            "color": line.look.colour,
            "lw": 0.6,
            "shrinkA": 1,
            "shrinkB": 3,
            "relpos": (0, 0.5),
        },
    )


def _annotate_inside(axes: Any, line: Line) -> None:
    """Name a line that ends early, because a method refused the rest, where it ends."""
    axes.annotate(
        line.look.name,
        (line.x[-1], line.mean[-1]),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=_SIZE,
        color=line.look.colour,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.5},
    )


def _seen(axes: Any, line: Line) -> float:
    """Return where a line ends, or the edge of the panel it has left."""
    return float(np.clip(line.mean[-1], *axes.get_ylim()))


def _legend(figure: Any, panels: Sequence[Panel]) -> None:
    from matplotlib.lines import Line2D

    looks = {line.look.name: line.look for panel in panels for line in panel.lines}
    handles = [
        Line2D(
            [],
            [],
            color=look.colour,
            marker=look.marker,
            ls=look.dash,
            lw=1.6,
            ms=5,
            mfc="white" if look.hollow else look.colour,
            mew=1.2 if look.marker in STROKES else 1.0,
            label=look.name,
        )
        for look in looks.values()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)), frameon=False)
