r"""What boosted trees say of a column, and of a pair of columns: effects, what noise did to them, and one page.

**Effects.** The effect of a cell is the mean score of rows in which that cell stands, less the mean over all cells of
the column; the rows are drawn independently from released histograms, or evenly from the levels of a category. What
two columns do together is the mean score with both cells, less what each of them does alone.

**Noise.** Trees split these rows into leaves, so that an effect is a sum over leaves with public weights. With s the
deviation of what noise adds to a leaf, the squares of the weights times :math:`s^2` add up to the variance of the
effect; what later trees take back is not counted. The noise of the additive part is added to it.

**Privacy** Everything here is computed from released numbers and public draws. No row is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats
from ..display import HtmlPage
from ..queries import ColumnTables, LeafValues
from ..solvers.leaf_boosting import Forest
from .additive import Term, cell_text, figures_of, in_grid, key_of, whole_page
from .binning import Binning, drawn_rows

_SHOWN, _STRIPS = 25, 12  # cells of a number that are shown, alone and in a pair
_BAND = 2.0  # standard deviations


@dataclass(frozen=True, eq=False)
class Surface:
    """What two columns add to a score together, and neither alone."""

    columns: tuple[str, str]
    #: Cells of the first and of the second: numbers in the unit of the column, or names of levels.
    grids: tuple[NDArray[Any], NDArray[Any]]
    effect: Floats
    noise: Floats  # one standard deviation of what the noise of privacy does to each
    importance: float  # as ``pair_importances_`` has it


@dataclass(frozen=True)
class Reading:
    """A released model, as it is read."""

    #: The levels of cells, the additive part, the trees, and how numbers are spread.
    binning: Binning
    start: ColumnTables
    forest: Forest
    quantiles: Floats
    cells: tuple[NDArray[Any], ...]  # what the levels of each column stand for
    #: What noise did to the additive part, for each level of each column: a row per level; empty if not known.
    expanded: tuple[Floats, ...]
    unit: float  # of the scores

    def shown(self, place: int, count: int) -> NDArray[np.intp]:
        """Return the levels of a column that are shown: evenly spread over rows for a number, else all."""
        if place >= len(self.binning.numbers):
            return np.arange(self.binning.widths[place])
        even = (np.arange(count) + 0.5) / count
        return np.unique(np.searchsorted(self.quantiles[place], even).clip(0, self.binning.widths[place] - 1))

    def term(self, place: int, importance: float) -> Term:
        """Return the effect of a column as a term."""
        rows = drawn_rows(self.binning, self.quantiles)
        levels, drawn = self.shown(place, _SHOWN), rows[:, place].astype(np.intp)
        number = place < len(self.binning.numbers)
        levels = np.unique(np.concatenate([[0], levels, [self.binning.widths[place] - 1]])) if number else levels
        table = dict(self.start.tables).get(place, np.zeros((self.binning.widths[place], self.forest.outputs)))
        effect = table[levels] - table[drawn].mean(axis=0)
        variance = np.zeros(levels.size)
        if self.expanded:
            own = self.expanded[place]
            variance += np.sum((own[levels] - own[drawn].mean(axis=0)) ** 2, axis=1) / self.unit**2
        for tree, noise in zip(self.forest.trees, self.forest.noise, strict=True):
            if place in tree.splits.columns:
                (at,), means, variances, (chances,) = _patterns(tree, noise, rows, (place,))
                centred = np.eye(chances.size) - chances
                effect += (centred @ means)[at[levels]]
                variance += (centred**2 @ variances)[at[levels]]
        grid = self.cells[place][levels]
        positions = levels / (self.binning.widths[place] - 1) if number else (levels + 0.5) / levels.size
        kind, sizes = "curve" if number else "levels", self.unit * effect
        shaped = sizes[:, 0] if sizes.shape[1] == 1 else sizes
        noises = self.unit * np.sqrt(variance)
        return Term(self.binning.names[place], kind, grid, shaped, noises, importance, positions)

    def surface(self, places: tuple[int, int], importance: float) -> Surface:
        """Return what two columns do together."""
        rows = drawn_rows(self.binning, self.quantiles)
        first, second = (self.shown(place, _STRIPS) for place in places)
        effect = np.zeros((first.size, second.size, self.forest.outputs))
        variance = np.zeros(effect.shape[:2])
        for tree, noise in zip(self.forest.trees, self.forest.noise, strict=True):
            if set(places) <= set(tree.splits.columns):
                at, means, variances, chances = _patterns(tree, noise, rows, places)
                one, two = (np.eye(each.size) - each for each in chances)
                together = np.einsum("ap,pqk,bq->abk", one, means, two)
                spread = one**2 @ variances @ (two**2).T
                where = np.ix_(at[0][first], at[1][second])
                effect, variance = effect + together[where], variance + spread[where]
        i, j = places
        names, grids = (self.binning.names[i], self.binning.names[j]), (self.cells[i][first], self.cells[j][second])
        shaped = effect[:, :, 0] if effect.shape[2] == 1 else effect
        return Surface(names, grids, self.unit * shaped, self.unit * np.sqrt(variance), importance)


def _patterns(
    tree: LeafValues, noise: Floats, rows: NDArray[np.uint8], places: Sequence[int]
) -> tuple[list[NDArray[np.intp]], Floats, Floats, list[Floats]]:
    """Return which answers each level of some columns gives, and of all combinations of answers the mean value.

    Also the variance of that mean, which is one over the other cells of the rows, and how likely the answers are.
    """
    depth = tree.splits.depth
    rest, steps, chances, places_of = np.zeros(len(rows), dtype=np.intp), [], [], []
    for bit, (column, sides) in enumerate(zip(tree.splits.columns, tree.splits.sides, strict=True)):
        if column not in places:
            rest += sides[rows[:, column]].astype(np.intp) << (depth - 1 - bit)
    for place in places:
        step = np.zeros(tree.splits.sides.shape[1], dtype=np.intp)
        for bit, (column, sides) in enumerate(zip(tree.splits.columns, tree.splits.sides, strict=True)):
            if column == place:
                step += sides.astype(np.intp) << (depth - 1 - bit)
        found, at = np.unique(step, return_inverse=True)
        steps.append(found)
        places_of.append(at)
        chances.append(np.bincount(at[rows[:, place]], minlength=found.size) / len(rows))
    leaves, counts = np.unique(rest, return_counts=True)
    shares = counts / len(rows)
    together = steps[0] if len(steps) == 1 else steps[0][:, None] + steps[1]
    where = together[..., None] + leaves
    means = np.einsum("...lk,l->...k", tree.values[where], shares)
    return places_of, means, noise[where] ** 2 @ shares**2, chances


_SECTION = "<h2>{title}</h2><p>{words}</p>"


def page_of_forest(
    terms: Sequence[Term],
    surfaces: Sequence[Surface],
    shares: tuple[Mapping[str, float], Mapping[tuple[str, str], float]],
    outputs: Sequence[str],
    title: str,
    privacy: Mapping[str, Any],
) -> HtmlPage:
    """Return a page with importances, effects of columns and surfaces of pairs."""
    columns, pairs = shares
    band = (
        "bands show two standard deviations of the noise of privacy alone, and do not say how much effects would "
        "differ with another sample of people"
    )
    parts = [
        _SECTION.format(
            title="Importance",
            words="How much of the scores each column explains, in percent, and what pairs explain together and not "
            "alone.",
        ),
        in_grid([_bars({(name,): share for name, share in columns.items()}), _bars(pairs)]),
        _SECTION.format(
            title="Columns",
            words=f"The mean score with a cell, less the mean over the column: effects on {key_of(outputs)}; {band}. "
            "Other cells are drawn independently from released histograms.",
        ),
        figures_of(terms, outputs),
        _SECTION.format(
            title="Pairs",
            words=f"What two columns add to {escape(outputs[0])} together and neither alone: orange adds, blue takes "
            "away. Cells are pale where two standard deviations of the noise of privacy exceed the effect; hold the "
            "pointer over a cell to see both.",
        ),
        in_grid(map(_heat, surfaces)),
    ]
    return whole_page(title, privacy, "\n".join(parts))


def _bars(shares: Mapping[Any, float]) -> str:
    """Return a picture of the largest shares of columns, or of several columns together."""
    shown = [(name, share) for name, share in shares.items() if share > 0][:12]
    longest = max((share for _, share in shown), default=1.0)
    parts = []
    for number, (names, share) in enumerate(shown):
        y, width, name, parties = 20 * number, 150 * share / longest, " and ".join(names), len(names)
        label = escape(
            " and ".join(
                each if len(each) <= 26 // parties else each[: 26 // parties - 1] + "\u2026" for each in names
            )
        )
        parts.append(f'<text x="200" y="{y + 14}" text-anchor="end">{label}<title>{escape(name)}</title></text>')
        parts.append(f'<rect x="206" y="{y + 4}" width="{width:.1f}" height="12" fill="#20639b"/>')
        parts.append(f'<text x="{210 + width:.1f}" y="{y + 14}">{100 * share:.2g}</text>')
    height = 20 * max(len(shown), 1)
    return f'<svg viewBox="0 0 400 {height}" role="img" aria-label="Importances">{"".join(parts)}</svg>'


def _heat(surface: Surface) -> str:
    """Return a picture of a surface, of its first output."""
    left, top, side = 70.0, 6.0, 180.0
    effect = surface.effect if surface.effect.ndim == 2 else surface.effect[:, :, 0]
    largest = max(float(np.abs(effect).max()), 1e-9)
    rows, columns = effect.shape
    high, wide = side / rows, 240.0 / columns
    one, other = surface.columns
    parts = []
    for i in range(rows):
        for j in range(columns):
            value, noise = float(effect[i, j]), float(surface.noise[i, j])
            faint = 0.35 if abs(value) < _BAND * noise else 1.0
            colour, depth = "#c8611c" if value > 0 else "#20639b", faint * abs(value) / largest
            cells = f"{one} = {cell_text(surface.grids[0][i])}, {other} = {cell_text(surface.grids[1][j])}"
            tip = escape(f"{cells}: {value:.2g}, noise {_BAND * noise:.2g}")
            place = f'x="{left + j * wide:.1f}" y="{top + (rows - 1 - i) * high:.1f}"'
            shape = f'width="{wide:.1f}" height="{high:.1f}"'
            parts.append(
                f'<rect {place} {shape} fill="{colour}" fill-opacity="{depth:.2f}"><title>{tip}</title></rect>'
            )
    parts.append(f'<rect x="{left}" y="{top}" width="240" height="{side}" fill="none" stroke="#999"/>')
    for i in {0, rows - 1}:
        y = top + (rows - 1 - i + 0.5) * high + 4
        text = escape(cell_text(surface.grids[0][i])[:10])
        parts.append(f'<text x="{left - 4}" y="{y:.1f}" text-anchor="end">{text}</text>')
    for j, anchor in {0: "start", columns - 1: "end"}.items():
        x = left + (0.0 if anchor == "start" else 240.0)
        text = escape(cell_text(surface.grids[1][j])[:16])
        parts.append(f'<text x="{x:.1f}" y="{top + side + 14}" text-anchor="{anchor}">{text}</text>')
    middle = f'x="{left + 120}" y="{top + side + 28}" text-anchor="middle"'
    parts.append(f"<text {middle}>{escape(other)} (up: {escape(one)})</text>")
    caption = f"{escape(one)} and {escape(other)} <small>(up to {largest:.2g})</small>"
    described = escape(f"What {one} and {other} do together")
    picture = f'<svg viewBox="0 0 320 225" role="img" aria-label="{described}">{"".join(parts)}</svg>'
    return f"<figure><figcaption>{caption}</figcaption>{picture}</figure>"
