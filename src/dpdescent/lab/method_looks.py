"""What methods are called and look like in every table and picture, where names stand, and grids of oracles.

A method that is registered and not named here appears all the same, under its own name and in a colour of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.isotonic import isotonic_regression

from ..errors import InvalidParameter
from ..solvers import METHODS, PAPER_MODES

if TYPE_CHECKING:
    from .drawing import Line, Panel

#: How every output marks a method whose settings were chosen on the test data.
ORACLE = "oracle (not private)"
STROKES = ("_", "|", "1", "2", "3", "4", "x")  # markers that have no inside
_SIZE = 8.5  # of the names at the ends of lines
_ACROSS = 7  # names in a row of a legend


def marker_size(marker: str) -> float:
    """Return how large a marker is drawn: letters, dots and strokes are faint at the size of the others."""
    return 7.5 if marker in STROKES or marker.startswith("$") else 9.0 if marker == "." else 5.0


def marker_edge(marker: str, hollow: bool = False) -> float:
    """Return the width of a marker's edge."""
    return 1.8 if marker in STROKES else 1.0 if hollow else 0.4 if marker.startswith("$") else 0.6


@dataclass(frozen=True)
class Look:
    """How a method is drawn: the same everywhere."""

    name: str  # what it is called
    #: In the notation of matplotlib. No two methods named here share a marker, so a grey print can be read.
    colour: str
    marker: str
    dash: str = "-"
    flat: bool = False  # draw it as a dashed line across the panel: it does not depend on epsilon
    hollow: bool = False  # draw the markers as outlines: the mark of an oracle
    #: Too weak to set the scale of a panel: far below the others, its value is written at the edge instead.
    backdrop: bool = False


_LOOKS = {
    "auto": Look("auto", "#000000", "*"),
    "agd": Look("DP-AGD", "#0072B2", "o"),
    "agd-paper": Look("DP-AGD (paper)", "#56B4E9", "h", "-."),
    "agd-gaussian": Look("DP-AGD, Gaussian first budget", "#17A2B8", "$G$", "--"),
    "blsgd": Look("DP-BLSGD", "#C2003B", ">"),
    "blsgd-paper": Look("DP-BLSGD (paper)", "#F0708F", "1", "-."),
    "blgd": Look("DP-BLGD", "#5A9E00", "p"),
    "blgd-paper": Look("DP-BLGD (paper)", "#A3CF5B", "|", "-."),
    "blsgd-ac": Look("DP-BLSGD-AC", "#7A3E00", "d", "--"),
    "blsgd-ac-paper": Look("DP-BLSGD-AC (paper)", "#C08A55", "3", "-."),
    "sgd": Look("DP-SGD", "#D55E00", "s"),
    "adam": Look("DP-Adam", "#E69F00", "D", "--"),
    "sgd-adv": Look("SGD-Adv", "#CC79A7", "v", ":", backdrop=True),
    "svrg": Look("DP-SVRG", "#B8860B", "x", ":"),
    "ftrl": Look("DP-FTRL", "#4B0082", "$F$", ":"),
    "objpert": Look("ObjPert", "#009E73", "^"),
    "outpert": Look("OutPert", "#E31A1C", "4", "--"),
    "expmech": Look("ExpMech", "#6F4E37", "2", ":"),
    "outpert-gd": Look("OutPert-GD", "#882255", "P", "--"),
    "outpert-rsgd": Look("OutPert-RSGD", "#8C8300", "X", "-."),
    "privgene": Look("PrivGene", "#5B3A8C", "<", ":", backdrop=True),
    "majority": Look("majority", "#8A8F98", "_", ":", backdrop=True),
    "nonprivate": Look("no privacy", "#4A4F57", "", "--", flat=True),
    "2opt": Look("2OPT", "#0B5FA5", "+", "--"),
    "2opt-b": Look("2OPT-B", "#4FA3D9", "$b$", "--"),
    "2opt-ls": Look("2OPT-LS", "#111111", "$2$", "--"),
    "dp-gd": Look("DP-GD", "#9AA0A8", "$g$", ":"),
    "dp-tr": Look("TR", "#CC5200", "$T$"),
    "opt": Look("OPT", "#008A64", "8"),
    "opt-b": Look("OPT-B", "#7D7600", "$B$"),
    "opt-ls": Look("OPT-LS", "#B80036", "$L$"),
}
_SPARE = tuple(itertools.product(("#A6611A", "#01665E", "#7A0177", "#525252", "#B30059"), ("8", "H"), ("-", "--")))


@dataclass(frozen=True)
class Variant:
    """A registered method with options, under the name its rows carry."""

    name: str
    method: str
    options: Mapping[str, Any]

    @property
    def private(self) -> bool:
        """Whether the method has a budget at all."""
        return METHODS[self.method].private


#: How the name of a method in its paper mode ends.
_PAPER = "-paper"
#: Settings with a name of their own, beside the registered methods: every paper mode.
VARIANTS = {f"{name}{_PAPER}": Variant(f"{name}{_PAPER}", name, {"paper": True}) for name in PAPER_MODES}
# The other reading of section 6.2 of Lee & Kifer (2018), which is that of the authors' code.
_OTHER = Variant("agd-gaussian-paper", "agd", {"paper": True, "first_gradient": "gaussian"})
VARIANTS[_OTHER.name] = _OTHER

#: What an oracle tries for each method: every combination of these settings.
_GRIDS: dict[str, Mapping[str, tuple[Any, ...]]] = {
    "agd": {"clip_gradient": (1.0, 2.0, 4.0)},
    "blsgd": {"clip_gradient": (0.5, 1.0, 2.0), "iterations": (25, 100)},
    "blgd": {"clip_gradient": (0.5, 1.0, 2.0), "iterations": (25, 100)},
    "blsgd-ac": {"clip_gradient": (0.5, 1.0, 2.0), "iterations": (25, 100)},
    "sgd": {"steps": (50, 200), "step_size": (0.5, 2.0, 8.0), "clip_gradient": (0.5, 2.0)},
    "adam": {"steps": (50, 200), "step_size": (0.01, 0.04, 0.16), "clip_gradient": (0.5, 2.0)},
    "sgd-adv": {"steps": (50, 500), "step_size": (0.5, 2.0, 8.0), "clip_gradient": (0.5, 2.0)},
    "objpert": {"row_bound": (1.0, 2.0, 4.0), "strong_convexity": (10.0, 100.0, 1000.0)},
    "outpert": {"row_bound": (1.0, 2.0, 4.0), "strong_convexity": (100.0, 300.0, 1000.0)},
    "outpert-gd": {"row_bound": (1.0, 2.0, 4.0), "steps": (5, 20, 80)},
    "outpert-rsgd": {"row_bound": (1.0, 2.0, 4.0), "passes": (2, 10)},
}


def look_of(name: str) -> Look:
    """Return how a method is drawn; one without an entry gets a colour from its name alone."""
    base, _, mark = name.partition(" ")
    if base in _LOOKS:
        look = _LOOKS[base]
    elif base.endswith(_PAPER) and base.removesuffix(_PAPER) in _LOOKS:
        ours = _LOOKS[base.removesuffix(_PAPER)]
        look = replace(ours, name=f"{ours.name} (paper)", colour=_paler(ours.colour), dash="-.")
    else:
        colour, marker, dash = _SPARE[sum(map(ord, base)) % len(_SPARE)]
        look = Look(base, colour, marker, dash)
    return replace(look, name=f"{look.name}, {mark}", hollow=True) if mark else look


def _paler(colour: str) -> str:
    """Return a colour halfway to white."""
    return "#" + "".join(f"{(int(colour[k : k + 2], 16) + 255) // 2:02X}" for k in (1, 3, 5))


def paper_differences(names: Iterable[str]) -> tuple[str, ...]:
    """Return a text for each of these paper modes, a sentence for every deliberate difference from its paper."""
    said = []
    for name in names:
        method = variant(name).method
        if name in VARIANTS and name != _OTHER.name and PAPER_MODES[method].differences:
            said.append(f"{look_of(method).name}: {' '.join(PAPER_MODES[method].differences)}")
    return tuple(text.replace("`", "") for text in said)


def registered_methods() -> list[str]:
    """Return every registered method, in the order of this table."""
    order = list(_LOOKS)
    return sorted(METHODS, key=lambda name: order.index(name) if name in order else len(order))


def general_methods() -> list[str]:
    """Return the methods that suit any table, in the order of this table."""
    return [name for name in registered_methods() if METHODS[name].general]


def known_variants() -> list[str]:
    """Return every name `variant` understands."""
    return [*METHODS, *(name for name, entry in VARIANTS.items() if entry.method in METHODS)]


def variant(name: str) -> Variant:
    """Return the method and options that ``name`` stands for."""
    if name in METHODS:
        return Variant(name, name, {})
    if name in VARIANTS and VARIANTS[name].method in METHODS:
        return VARIANTS[name]
    raise InvalidParameter(f"unknown method {name!r}{nearest(name, known_variants())}")


def oracle_variants(name: str) -> list[Variant]:
    """Return the points of a method's grid; none if no grid is declared for it."""
    grid = _GRIDS.get(name, {}) if name in METHODS else {}
    if not grid:
        return []
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    return [Variant(f"{name} {ORACLE}", name, point) for point in points]


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the near match, or all there are."""
    known = list(known)
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    return f": did you mean {close[0]!r}?" if close else f": choose one of {', '.join(known)}"


def label_lines(figure: Any, drawn: Sequence[tuple[Any, Panel]], *, at_ends: bool = True) -> None:
    """Write the name of each line at its end, moved apart where they would overlap; else draw one legend."""
    figure.draw_without_rendering()
    points = figure.dpi / 72
    gap = 1.2 * _SIZE * points
    if not at_ends or any(len(panel.lines) * gap > axes.get_window_extent().height for axes, panel in drawn):
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
            ms=marker_size(look.marker),
            mfc="white" if look.hollow else look.colour,
            mew=marker_edge(look.marker, look.hollow),
            label=look.name,
        )
        for look in looks.values()
    ]
    rows = -(-len(handles) // _ACROSS)
    above = 2.0  # font sizes, for the command below the legend
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=-(-len(handles) // rows),
        frameon=False,
        borderaxespad=above,
    )
