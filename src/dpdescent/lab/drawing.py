"""Pictures: panels of lines with their standard errors, and the name of every line at its end."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..long_runs import require_matplotlib, write_whole
from .method_looks import Look, label_lines, look_of, marker_edge, marker_size
from .verdicts import Group, Measure

INK, GREY, FAINT = "#22262b", "#6b7280", "#d9dce1"

#: What the panels show: field, name on the axis.
SHOWN = (("accuracy", "test accuracy"), ("objective", "objective (training part)"))
_MODELS = {"logistic": "logistic regression", "svm": "SVM"}
_BACKGROUND = ("majority", "nonprivate")
_ASIDE = 0.006  # of the width of a panel, between the bars of two lines
_ARROWS = 4.0  # times that, between two arrows at the same place
_LEADING = 4.0  # an axis reaches this many times as far as from the best point to the middle one
_WIDE, _NARROW = (5.75, 3.4), (4.0, 3.1)  # inches of a panel, for up to three of them in a row and for more


@dataclass(frozen=True)
class Line:
    """A curve."""

    look: Look
    #: ``error`` is how far its bars reach to either side.
    x: tuple[float, ...]
    mean: tuple[float, ...]
    error: tuple[float, ...]
    failed: tuple[float, ...] = ()  # where some run did not end as it should: a cross there
    printed: tuple[tuple[float, float], ...] = ()  # what the paper prints: hollow marks


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    ticks: tuple[float, ...]
    log_x: bool
    lines: tuple[Line, ...]
    words: tuple[str, ...] = ()  # what stands at the ticks, where the values are no numbers
    from_zero: bool = False
    rising: bool | None = None  # whether more is better; the axis is cut where only the worst lines are


def epsilon_panels(groups: Sequence[Group]) -> list[Panel]:
    """Return the panels of each task: accuracy and objective against epsilon, a line per method.

    A row has one measure, and a task is a column, as in the papers. Where there are paper modes and others, the rows
    of paper modes come first, and those of the others below them. The majority class and no privacy stand in both.
    """
    panels = []
    tasks = list(dict.fromkeys((group.dataset, group.loss) for group in groups))
    named = len(tasks) == 1 or len({loss for _, loss in tasks}) > 1
    for kind, methods in _sides(tuple(dict.fromkeys(group.method for group in groups))):
        for field, name in SHOWN:
            for dataset, loss in tasks:
                chosen = [group for group in groups if (group.dataset, group.loss) == (dataset, loss)]
                ticks = tuple(sorted({group.epsilon for group in chosen}))
                lines = [
                    # Where all are paper modes, the panel says so, and the names need not.
                    _line(
                        look_of(method.removesuffix("-paper") if kind else method),
                        field,
                        [(g.epsilon, g) for g in chosen if g.method == method],
                    )
                    for method in methods
                ]
                shown = tuple(line for line in lines if line.x)
                title = f"{dataset}{f', {_MODELS.get(loss, loss)}' if named else ''}{kind}"
                rising = field == "accuracy"
                panels.append(Panel(title, "epsilon", name, ticks, True, shown, rising=rising))
    return panels


def columns_of(groups: Sequence[Group]) -> int:
    """Return how many panels of `epsilon_panels` stand in a row: as many as there are tasks, but not one."""
    return max(2, len({(group.dataset, group.loss) for group in groups}))


def _sides(methods: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """Return paper modes and our versions apart, with what is neither in both, or all if there is one kind only."""
    printed = [method for method in methods if method.endswith("-paper")]
    both = [method for method in methods if method in _BACKGROUND]
    ours = [method for method in methods if method not in printed and method not in both]
    if not printed or not ours:
        return [("", methods)]
    return [(", as in the paper", (*printed, *both)), (", our versions", (*ours, *both))]


def parameter_panels(groups: Sequence[Group], names: dict[str, str], measures: Sequence[Measure] = ()) -> list[Panel]:
    """Return a row of panels per parameter: accuracy and objective against its value, a line per epsilon.

    ``names`` maps each parameter to its name on the axis; other ``measures`` come first.
    """
    panels = []
    for letter, (parameter, shown) in zip("abcdefgh", names.items(), strict=False):
        chosen = [group for group in groups if group.parameter == parameter]
        title = f"{f'({letter}) ' if len(names) > 1 else ''}{chosen[0].dataset}: {shown}"
        panels += _row_of_panels(chosen, title, shown, measures, sorted({group.epsilon for group in groups}))
    return panels


def _row_of_panels(
    groups: Sequence[Group], title: str, shown: str, measures: Sequence[Measure], epsilons: Sequence[float]
) -> list[Panel]:
    numbers = sorted({group.value for group in groups if isinstance(group.value, int | float)})
    words = tuple(dict.fromkeys(group.value for group in groups if isinstance(group.value, str)))
    values = tuple(map(float, range(len(words)))) if words else tuple(numbers)
    log_x = not words and values[-1] >= 8 * values[0] > 0
    places, counted = dict(zip(words or values, values, strict=True)), {measure.field for measure in measures}
    panels = []
    for field, name in (*((measure.field, measure.name) for measure in measures), *SHOWN):
        lines = [
            _line(
                _shade(groups[0].method, epsilon, place, len(epsilons)),
                field,
                [(places.get(g.value), g) for g in groups if g.epsilon == epsilon],
            )
            for place, epsilon in enumerate(epsilons)
        ]
        drawn = tuple(line for line in lines if line.x)
        panels.append(Panel(title, shown, name, values, log_x, drawn, words, from_zero=field in counted))
    return panels


def draw(panels: Sequence[Panel], stem: Path, columns: int = 2, command: str = "") -> tuple[Path, Path]:
    """Draw the panels, ``columns`` to a row, as ``stem``.png and ``stem``.svg; return both paths.

    The command that made it is written below in small print.
    """
    mpl = require_matplotlib()
    import matplotlib.pyplot as plt

    style = {"font.size": 9.5, "svg.hashsalt": "dpdescent", "axes.edgecolor": INK, "text.color": INK}
    with mpl.rc_context(style):
        rows = -(-len(panels) // columns)
        figure: Any
        width, height = _WIDE if columns < 4 else _NARROW
        size = (width * columns, height * rows)
        figure, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_panel(axes, panel)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        if command:
            figure.supxlabel(command, x=0.995, ha="right", fontsize=7, color=GREY, family="monospace")
        label_lines(figure, list(zip(grid.flat, panels, strict=False)), at_ends=columns < 4)
        paths = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
        for path in paths:
            sink = io.BytesIO()
            metadata = {"Date": None} if path.suffix == ".svg" else None
            figure.savefig(sink, format=path.suffix[1:], dpi=160, metadata=metadata)
            write_whole(path, sink.getvalue())
        plt.close(figure)
    return paths


def _line(look: Look, field: str, points: Sequence[tuple[float | None, Group]]) -> Line:
    found = sorted(
        (x, estimate.mean, estimate.error or 0.0)
        for x, group in points
        if x is not None and (estimate := group.estimate(field)) is not None
    )
    x, mean, error = zip(*found, strict=True) if found else ((), (), ())
    return Line(look, tuple(x), tuple(mean), tuple(error))


def _shade(method: str, epsilon: float, place: int, count: int) -> Look:
    """Return the look of one epsilon among several of a single method: the darker the larger."""
    plain = look_of(method.removesuffix("-paper"))
    base = np.array([int(plain.colour[k : k + 2], 16) for k in (1, 3, 5)])
    share = 1.0 if count == 1 else place / (count - 1)
    colour = (1 - share) * (0.65 * base + 0.35 * 255) + share * 0.55 * base
    return Look(f"epsilon {epsilon:g}", "#" + "".join(f"{int(c):02x}" for c in colour), "osD^v<>hPX"[place % 10])


def _draw_panel(axes: Any, panel: Panel) -> None:
    barred = [line for line in panel.lines if any(line.error) and not line.look.flat]
    for line in panel.lines:
        if line.look.flat:
            axes.axhline(line.mean[0], color=line.look.colour, lw=1.2, ls="--", zorder=1)
            continue
        x = np.array(line.x)
        if line in barred:
            x = _aside(x, panel, barred.index(line) - (len(barred) - 1) / 2)
            axes.errorbar(
                x, line.mean, line.error, color=line.look.colour, alpha=0.7, ls="", elinewidth=1.0, capsize=1.5
            )
        _draw_line(axes, x, line, joined=not panel.words)
    _set_scales(axes, panel)
    _mark_what_is_cut(axes, panel)
    axes.set_xticks(panel.ticks, panel.words or [f"{tick:g}" for tick in panel.ticks])
    if panel.words:
        axes.margins(x=0.2)
    axes.minorticks_off()
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.set_title(panel.title, loc="left", fontsize=10, color=INK, weight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=FAINT, lw=0.6)
    axes.set_axisbelow(True)


def _draw_line(axes: Any, x: NDArray[np.float64], line: Line, *, joined: bool) -> None:
    look = line.look
    axes.plot(
        x,
        line.mean,
        color=look.colour,
        marker=look.marker,
        ls=look.dash if joined else "",
        lw=1.6,
        ms=marker_size(look.marker),
        mec=look.colour,
        mfc="white" if look.hollow else look.colour,
        mew=marker_edge(look.marker, look.hollow),
        zorder=3 if look.hollow else 2,
    )
    crossed = [(place, mean) for place, at, mean in zip(x, line.x, line.mean, strict=True) if at in line.failed]
    if crossed:
        axes.plot(*zip(*crossed, strict=True), marker="x", color=look.colour, ms=9, mew=1.4, ls="", zorder=4)
    if line.printed:
        places, values = zip(*line.printed, strict=True)
        axes.plot(places, values, marker="o", ls="", ms=8, mfc="none", mec=look.colour, mew=1.2, zorder=3)


def _set_scales(axes: Any, panel: Panel) -> None:
    """Choose linear or logarithmic axes, and what of the vertical one is shown."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    means = np.concatenate([line.mean for line in panel.lines]) if panel.lines else np.ones(1)
    if panel.rising is None and means.min() > 0 and means.max() > 4 * means.min():
        axes.set_yscale("log")
        subs = (1, 2, 5) if means.max() < 1000 * means.min() else (1,)
        axes.yaxis.set_major_locator(LogLocator(subs=subs))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    if panel.rising is None:
        _leave_backdrops_out(axes, panel)
    else:
        _show_the_leaders(axes, panel)
    if panel.from_zero:
        axes.set_yscale("linear")
        axes.set_ylim(bottom=0)
    if panel.log_x:
        axes.set_xscale("log")


def _show_the_leaders(axes: Any, panel: Panel) -> None:
    """Cut the vertical axis where only lines far behind the best are: beyond, an arrow marks them."""
    sign = 1 if panel.rising else -1
    points = sign * np.array([mean for line in panel.lines for mean in line.mean] or [0.0])
    leading = [line for line in panel.lines if not (line.look.flat or line.look.backdrop)]
    ahead = sign * np.array([mean for line in leading for mean in line.mean])
    middle = float(np.median(ahead if ahead.size else points))
    best = float(points.max())
    lowest = float(points[points >= best - _LEADING * max(best - middle, 1e-6)].min())
    errors = [error for line in leading for error in line.error] or [0.0]
    room = max(0.06 * (best - lowest), float(np.median(errors)), 1e-9)  # so that bars are seen
    axes.set_ylim(*sorted((sign * (lowest - room), sign * (best + room))))


def _mark_what_is_cut(axes: Any, panel: Panel) -> None:
    """Draw an arrow at the edge of a panel for every point that lies beyond it; a hollow one for what is printed."""
    if panel.rising is None:
        return
    low, high = axes.get_ylim()
    style = {"ms": 6, "ls": "", "transform": axes.get_xaxis_transform(), "zorder": 5}
    beside: dict[tuple[float, str], int] = {}
    for line in panel.lines:
        found = [(x, mean, line.look.colour) for x, mean in zip(line.x, line.mean, strict=True)]
        printed = [(x, value, "none") for x, value in line.printed]
        for x, value, face in [] if line.look.flat else [*found, *printed]:
            if not low <= value <= high:
                edge, marker = (0.03, "v") if value < low else (0.97, "^")
                place = beside[x, marker] = beside.get((x, marker), -1) + 1
                moved = _aside(np.array([x]), panel, _ARROWS * place)
                axes.plot(moved, [edge], marker=marker, mfc=face, mec=line.look.colour, **style)


def _aside(x: NDArray[np.float64], panel: Panel, places: float) -> NDArray[np.float64]:
    """Return where a line is drawn: moved a little to the side, so that no bar hides another."""
    first, last = panel.ticks[0], panel.ticks[-1]
    if panel.log_x:
        return np.asarray(x * (last / first) ** (_ASIDE * places))
    return np.asarray(x + (last - first) * _ASIDE * places)


def _leave_backdrops_out(axes: Any, panel: Panel) -> None:
    """Let the other lines set the scale, unless a backdrop lies near them anyway."""
    warp = np.log if axes.get_yscale() == "log" else np.asarray
    others = [
        part
        for line in panel.lines
        if not line.look.backdrop
        for part in (np.subtract(line.mean, line.error), np.add(line.mean, line.error))
    ]
    values = np.concatenate(others) if others else np.empty(0)
    if not values.size or (axes.get_yscale() == "log" and values.min() <= 0):
        return
    low, high = float(warp(values.min())), float(warp(values.max()))
    room = 0.6 * (high - low)
    behind = [float(warp(mean)) for line in panel.lines if line.look.backdrop for mean in line.mean]
    if any(not low - room <= value <= high + room for value in behind):
        ends = np.array([low, high]) + 0.06 * (high - low) * np.array([-1, 1])
        axes.set_ylim(*(np.exp(ends) if axes.get_yscale() == "log" else ends))
