"""Private additive models: a curve for every numeric column and a weight for every level.

The parts of an additive model as plain arrays, as a picture and as a page.

The effect of a cell is what it adds to the score of its row, compared with a cell at the bound nearest to 0 (or at 0
itself), so that a score is the intercept plus an effect per column. With F the noise factor of the solver and b the
expansion of the cell, the noise of privacy gives its effect w . b a standard deviation of |F'b|.

**Privacy** Everything here is computed from weights that were released, from the law of their noise and from public
knots and bounds. No row is read.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from ..arrays import Floats
from ..display import HtmlPage
from ..errors import InvalidParameter, MissingPackage, OutputNotWritable, require_positive_integer
from ..solvers import Facts
from ..statement import headline, html_page
from .base import PrivateLinearModel
from .classifiers import DPLogisticRegression
from .curves import Curve, Curves, scaled_knots
from .effects import level_groups
from .regressors import DPHuberRegressor, DPLinearRegression, DPPoissonRegressor
from .scaling import ColumnScaling

#: Effective rows, n mu, per column that curves add and per output, by the number of pieces.
_ROWS_PER_COLUMN = {16: 64, 8: 64, 4: 64, 2: 64, 1: 45}
_LARGEST_PIECES = 1024  # that can be asked for


@dataclass(eq=False, repr=False)
class AdditiveModel(PrivateLinearModel):
    """What additive models share: the expansion of numbers into curves, and the curves that were learnt.

    Parameters
    ----------
    pieces, knots, monotonic_cst
        As `DPAdditiveClassifier` has them.
    """

    _: KW_ONLY
    pieces: int | None = None
    knots: Mapping[Any, Any] | None = None
    monotonic_cst: Any = None

    def _expansion(self, scaling: ColumnScaling, binary: NDArray[np.bool_] | None, rows: int, outputs: int) -> Curves:
        if self.adversary is not None:
            raise InvalidParameter(
                "adversary is for linear models and not for models with curves: leave it out, or use "
                "DPLogisticRegression"
            )
        if self.knots is not None and self.bounds is None:
            raise InvalidParameter(
                "knots need public bounds, and bounds=None has them measured: give both or neither"
            )
        kinds = (False,) * scaling.columns if binary is None else tuple(binary.tolist())
        names = getattr(self, "feature_names_in_", None)
        directions = self._directions(names, kinds, outputs)
        moving = ColumnScaling.with_gaps(self.bounds, scaling.columns, names)[1] | (self.tighten is True)
        knots = scaled_knots(self.knots, scaling, names, kinds, moving)
        numbers = [column for column, kind in enumerate(kinds) if not kind and column not in knots]
        if self.pieces is None:
            effective = self._effective_rows(rows) / outputs
            for pieces, needed in _ROWS_PER_COLUMN.items():
                curves = Curves.drawn(scaling, numbers, pieces, knots, directions)
                if needed * (curves.columns - scaling.columns) <= effective:
                    return curves
            return Curves.drawn(scaling, numbers, 0, knots, directions)
        none = isinstance(self.pieces, int) and self.pieces == 0
        pieces = 0 if none else require_positive_integer("pieces", self.pieces)
        if pieces > _LARGEST_PIECES:
            raise InvalidParameter(f"pieces must be at most {_LARGEST_PIECES}, got {pieces}")
        return Curves.drawn(scaling, numbers, pieces, knots, directions)

    def _directions(self, names: Any, binary: Sequence[bool], outputs: int) -> tuple[int, ...]:
        """Return the direction that each column has to keep, or raise what is wrong with `monotonic_cst`."""
        given = self.monotonic_cst
        if given is None:
            return ()
        if outputs > 1:
            raise InvalidParameter(
                "monotonic_cst is about one score, and several classes have one each: leave it out"
            )
        labels = [f"x{column}" for column in range(len(binary))] if names is None else [str(name) for name in names]
        if isinstance(given, Mapping):
            unknown = [name for name in given if name not in labels]
            if unknown:
                raise InvalidParameter(
                    f"monotonic_cst names {unknown[0]!r:.80}, which is no column: correct the name"
                )
            given = [given.get(name, 0) for name in labels]
        found = np.asarray(given)
        if found.shape != (len(binary),) or found.dtype.kind not in "iuf" or not np.isin(found, (-1, 0, 1)).all():
            raise InvalidParameter(
                f"monotonic_cst must have one of -1, 0 and 1 for each of {len(binary)} columns, or for some by name"
            )
        for column, members in level_groups(labels, binary).items():
            if len(members) > 1 and any(found[position] for position, _ in members):
                raise InvalidParameter(f"monotonic_cst is for numbers, and {column!r} has levels: leave it out there")
        return tuple(found.astype(int).tolist()) if found.any() else ()

    def _sets_units(self) -> bool:
        return self.knots is not None or super()._sets_units()

    def _effective_rows(self, rows: int) -> float:
        if self.delta == 0:
            return rows * self.epsilon / self.rows_per_unit
        return Facts(self.epsilon, self.delta, self.adjacency, rows, 1, self.rows_per_unit).promised_rows

    @property
    def terms_(self) -> tuple[Term, ...]:
        """The parts of the model, the most important one first: a score is the intercept plus an effect of each."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", [f"x{column}" for column in range(self.n_features_in_)])
        weights = np.atleast_2d(self.coef_).T
        assert isinstance(self._features, Curves), "the expansion of an additive model"
        factor = self._noise_factor if self._sandwich is None else self._inferred().factor()
        terms = read_terms(self._features, [str(name) for name in names], self._binary, weights, factor)
        return tuple(replace(each, grid=self._in_own_unit(each.column, each.grid)) for each in terms)

    def _in_own_unit(self, column: str, grid: NDArray[Any]) -> NDArray[Any]:
        """Return cells of a number as its column has them: a schema codes them from 0 to 1, and dates as days."""
        for known in getattr(getattr(self, "schema_", None), "columns", ()):
            if known.name == column and getattr(known, "bounds", None) and grid.dtype.kind == "f":
                low, high = known.bounds
                cells: NDArray[Any] = low + (high - low) * grid
                return cells.astype("datetime64[D]") if type(known).__name__ == "DateColumn" else cells
        return grid

    def plot_terms(self) -> Any:
        """Return a matplotlib figure with a panel per term and a band of two standard deviations of noise.

        With ``inference=True`` the band is of two standard errors, of sampling and privacy together.

        Raises
        ------
        MissingPackage
            matplotlib is not installed: ``pip install 'dpdescent[plots]'``.
        """
        return draw_terms(self.terms_, self._outputs(), self.privacy_)

    def terms_html(self, path: str | Path | None = None) -> HtmlPage | None:
        """Write one page that shows every term, or return it if there is no path; it loads nothing from elsewhere.

        Raises
        ------
        OutputNotWritable
            The file cannot be written there.
        """
        page = self._page()
        if path is None:
            return page
        try:
            Path(path).write_text(page, encoding="utf-8")
        except OSError as problem:
            raise OutputNotWritable(
                f"cannot write {path}: {problem.strerror}; give a file in a folder that exists"
            ) from None
        return None

    def _page(self) -> HtmlPage:
        inferred = self._sandwich is not None
        return page_of_terms(self.terms_, self._outputs(), type(self).__name__, self.privacy_, inferred)

    def _outputs(self) -> tuple[str, ...]:
        """Return what the effects of a term are effects on."""
        if not hasattr(self, "classes_"):
            return (self._scored(),)
        classes = [str(each) for each in self.classes_]
        return (f"log-odds of {classes[1]}",) if len(classes) == 2 else tuple(classes)


@dataclass(eq=False, repr=False)
class DPAdditiveClassifier(AdditiveModel, DPLogisticRegression):
    """Private additive classification: logistic regression with a curve for every numeric column.

    A score is an intercept plus a curve of each numeric column plus a weight of each 0/1 column, so that the model
    can be read (`terms_`, `plot_terms`, `terms_html`). Numbers are expanded at public knots
    (`dpdescent.estimators.curves`); with little budget there are fewer knots, down to none. Cells outside the bounds
    are clipped, in predictions too.

    Parameters
    ----------
    pieces : int, optional
        Number of linear pieces of a curve from 0 to the farther bound, and twice the number of those on a second
        scale; 0 keeps all columns linear. By default the largest of 16, 8, 4 and 2 for which there are 64 effective
        rows, n mu, per added column and output; else 1 if there are 45, or none.
    knots : mapping, optional
        Public knots of some columns, by name or position, in the unit of the column and between its bounds. An empty
        list keeps a column linear.
    monotonic_cst : array-like of int, or mapping, optional
        For each column 1 if the prediction must not fall with it, -1 if it must not rise, 0 for no constraint; or
        such numbers by the names of some columns. For two classes it is about the second one. Curves that were
        released are changed as little as their noise allows, which costs nothing.
    **parameters
        All others are those of `DPLogisticRegression`, without ``adversary``.

    Attributes
    ----------
    terms_ : tuple of Term
        The parts of the model as plain arrays, the most important one first.
    coef_ : ndarray of shape (1, m) or (K, m)
        Weights of the m columns of the expanded rows: the scaled columns first, then those of the curves. Cells are
        clipped to ``bounds_`` before they are expanded; `to_sklearn` and `to_sql` export the whole model.
    coef_noise_ : ndarray of the shape of ``coef_``, or None
        Approximate standard deviation of each weight due to the noise of privacy.
    privacy_ : dict
        The privacy statement. Further attributes are those of `DPLogisticRegression`.

    Notes
    -----
    **Privacy.** As for `DPLogisticRegression`: knots are made from public quantities, the expansion of a row depends
    on that row alone, and terms, their bands and their order are computed from released quantities.
    `dpdescent.check_pipeline` names the steps of a pipeline that learn from the rows before it.

    Pass ``binary_features``: a 0/1 column that is not declared is treated as a number, which adds noise.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(-1, 1, (20000, 2))
    >>> y = (np.abs(X[:, 0]) + generator.normal(0, 0.1, 20000) > 0.5).astype(int)
    >>> model = DPAdditiveClassifier(1.0, bounds=(-1, 1), classes=(0, 1), random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.85
    True
    >>> model.terms_[0].column
    'x0'
    """


@dataclass(eq=False, repr=False)
class DPAdditiveRegressor(AdditiveModel, DPLinearRegression):
    """Private additive regression: least squares with a curve for every numeric column.

    Parameters
    ----------
    pieces, knots, monotonic_cst
        As for `DPAdditiveClassifier`, where the terms and the expansion are described too.
    **parameters
        All others are those of `DPLinearRegression`, without ``adversary``.

    Notes
    -----
    **Privacy.** As for `DPAdditiveClassifier`. `dpdescent.check_pipeline` names the steps of a pipeline that learn
    from the rows before it.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(0, 10, (20000, 2))
    >>> y = np.sin(X[:, 0]) + generator.normal(0, 0.1, 20000)
    >>> model = DPAdditiveRegressor(1.0, bounds=(0, 10), random_state=0).fit(X, y)
    >>> model.score(X, np.sin(X[:, 0])) > 0.8
    True
    """


@dataclass(eq=False, repr=False)
class DPAdditivePoissonRegressor(AdditiveModel, DPPoissonRegressor):
    """Private additive regression for counts: the logarithm of the mean is a sum of curves.

    Parameters
    ----------
    pieces, knots
        As for `DPAdditiveClassifier`, where the terms and the expansion are described too.
    **parameters
        All others are those of `DPPoissonRegressor`, without ``adversary``.

    Notes
    -----
    **Privacy.** As for `DPPoissonRegressor` and `DPAdditiveClassifier`. `dpdescent.check_pipeline` names the steps of
    a pipeline that learn from the rows before it.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(0, 24, (20000, 1))
    >>> y = generator.poisson(np.exp(1 - np.cos(X[:, 0] * np.pi / 12)))
    >>> model = DPAdditivePoissonRegressor(1.0, bounds=(0, 24), target_bounds=(0, 30), random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.4
    True
    """


@dataclass(eq=False, repr=False)
class DPAdditiveHuberRegressor(AdditiveModel, DPHuberRegressor):
    """Private additive regression that is robust to outliers in the target, by Huber's loss.

    Parameters
    ----------
    pieces, knots
        As for `DPAdditiveClassifier`, where the terms and the expansion are described too.
    **parameters
        All others are those of `DPHuberRegressor`, without ``adversary``.

    Notes
    -----
    **Privacy.** As for `DPHuberRegressor` and `DPAdditiveClassifier`. `dpdescent.check_pipeline` names the steps of a
    pipeline that learn from the rows before it.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(0, 10, (20000, 1))
    >>> y = np.sin(X[:, 0]) + generator.normal(0, 0.1, 20000)
    >>> y[::50] = 100.0  # one in fifty is an error
    >>> model = DPAdditiveHuberRegressor(
    ...     1.0, bounds=(0, 10), target_bounds=(-5, 5), threshold=0.3, random_state=0
    ... ).fit(X, y)
    >>> model.score(X, np.sin(X[:, 0])) > 0.8
    True
    """


_POINTS = 65  # of a curve on each scale
_BAND = 2.0  # standard deviations
_COLOURS = ("#20639b", "#b5532a", "#3a7d44", "#7a4fa3", "#a3781f", "#4f6d7a", "#a33b5e", "#5b5b1f")


@dataclass(frozen=True, eq=False)
class Term:
    """What one column, or the levels of one column, add to a score.

    Parameters
    ----------
    column : str
        Name of the column.
    kind : {"curve", "levels"}
        A number, or one or several 0/1 columns.
    grid : ndarray of shape (m,)
        Cells: numbers in the unit of the column, or names of levels.
    effect : ndarray of shape (m,) or (m, K)
        What each of them adds to the score, or to that of each class.
    noise : ndarray of shape (m,) or None
        One standard deviation of what the noise of privacy does to each effect; the same for all classes. With
        ``inference=True``, one standard error of sampling and privacy together.
    importance : float
        Standard deviation of the effect over the grid: a public measure, which knows nothing of how cells are spread.
    positions : ndarray of shape (m,)
        Where the cells stand in a picture, from 0 to 1.
    """

    column: str
    kind: str
    grid: NDArray[Any]
    effect: Floats
    noise: Floats | None
    importance: float
    positions: Floats


def read_terms(
    curves: Curves, names: Sequence[str], binary: Sequence[bool], weights: Floats, factor: Floats | None
) -> tuple[Term, ...]:
    """Return the terms of a model with (m, K) weights of expanded rows, the most important one first."""

    def term(column: str, kind: str, grid: NDArray[Any], rows: Any, positions: Floats) -> Term:
        effect: Floats = rows @ weights
        noise = None if factor is None else np.linalg.norm(rows @ factor, axis=1)
        seen = np.vstack([effect, np.zeros_like(effect)]) if len(effect) == 1 else effect
        importance = math.sqrt(float(np.mean(np.var(seen, axis=0))))
        return Term(
            column, kind, grid, effect[:, 0] if effect.shape[1] == 1 else effect, noise, importance, positions
        )

    terms = []
    for name, members in level_groups(names, binary).items():
        if binary[members[0][0]]:
            columns, levels = zip(*members, strict=True)
            cells = np.arange(len(columns))
            rows = sparse.csr_array((np.ones(cells.size), (cells, columns)), shape=(cells.size, curves.columns))
            terms.append(term(name, "levels", np.array(levels, dtype=object), rows, (cells + 0.5) / cells.size))
        else:
            grid, positions = _grid(curves, members[0][0])
            where = np.full(grid.size, members[0][0])
            shape = (grid.size, curves.scaling.columns)
            cells = sparse.csr_array((grid, (np.arange(grid.size), where)), shape=shape)
            terms.append(term(name, "curve", grid, curves.apply(cells), positions))
    return tuple(sorted(terms, key=lambda each: -each.importance))


def _grid(curves: Curves, column: int) -> tuple[Floats, Floats]:
    """Return cells of a numeric column, at its knots and between, and where to draw them."""
    scaling = curves.scaling
    low, high = (float(ends[column]) for ends in scaling.ends())
    own = [curve for curve in curves.curves if curve.column == column]
    finest = max(own, key=lambda curve: curve.doublings, default=Curve(column, low, high, 0, np.empty(0)))
    scaled = [np.linspace(low, high, _POINTS), np.zeros(1), *(curve.cells(curve.knots) for curve in own)]
    if finest.doublings:
        first, last = finest.positions(np.array([low, high])).tolist()
        bends = np.arange(-finest.doublings, finest.doublings + 1) / finest.doublings  # where a scale itself bends
        scaled += [finest.cells(np.linspace(first, last, _POINTS)), finest.cells(bends)]
    every = np.unique(np.clip(np.concatenate(scaled), low, high))
    positions = finest.positions(every)
    grid = scaling.shift[column] + scaling.scale[column] * every
    return grid, (positions - positions[0]) / (positions[-1] - positions[0])


def cell_text(cell: Any) -> str:
    """Return a cell in words: a number with six digits, and a date or a level as it is."""
    return f"{cell:.6g}" if isinstance(cell, float | np.floating) else str(cell)


def draw_terms(terms: Sequence[Term], outputs: Sequence[str], privacy: Mapping[str, Any]) -> Any:
    """Return a matplotlib figure with a panel per term, under the guarantee."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingPackage("pictures need matplotlib: pip install 'dpdescent[plots]'") from None
    across = min(3, len(terms))

    class Shown(Figure):
        """A figure that shows itself in a notebook, whatever backend is chosen there."""

        def _repr_png_(self) -> bytes:
            drawn = io.BytesIO()
            self.savefig(drawn, format="png")
            return drawn.getvalue()

    figure = Shown(figsize=(5 * across, 3.2 * math.ceil(len(terms) / across)), layout="constrained")
    for number, term in enumerate(terms, 1):
        axes = figure.add_subplot(math.ceil(len(terms) / across), across, number)
        axes.set_title(term.column)
        axes.axhline(0, color="#999999", linewidth=0.8)
        places = term.positions if term.kind == "levels" else term.grid
        for effect, output, colour in _effects(term, outputs):
            band = np.zeros_like(effect) if term.noise is None else _BAND * term.noise
            if term.kind == "levels":
                axes.errorbar(places, effect, yerr=band, fmt="o", color=colour, label=output)
            else:
                axes.fill_between(places, effect - band, effect + band, color=colour, alpha=0.2, linewidth=0)
                axes.plot(places, effect, color=colour, label=output)
        if term.kind == "levels":
            axes.set_xticks(places, [str(level) for level in term.grid], rotation=60, ha="right", fontsize="x-small")
    figure.axes[0].legend(fontsize="small")
    figure.suptitle("\n".join(wrap(headline(privacy), 55 * across)), fontsize="small")
    return figure


def _effects(term: Term, outputs: Sequence[str]) -> Iterator[tuple[Floats, str, str]]:
    """Yield effects on each output, its name and a colour."""
    columns = term.effect.reshape(term.effect.shape[0], -1).T
    for number, (effect, output) in enumerate(zip(columns, outputs, strict=True)):
        yield effect, output, _COLOURS[number % len(_COLOURS)]


_STYLE = """
body { max-width: 72rem; } figure { margin: 0; } figcaption { color: inherit; font-weight: 600; }
.terms { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); gap: 1.5rem; }
svg text { font-size: 11px; }
"""


def page_of_terms(
    terms: Sequence[Term], outputs: Sequence[str], title: str, privacy: Mapping[str, Any], inferred: bool = False
) -> HtmlPage:
    """Return a page with a picture per term; it loads nothing."""
    band = (
        "bands show two standard errors, of sampling and privacy together"
        if inferred
        else "bands show two standard deviations of the noise of privacy alone, and do not say how much curves would "
        "differ with another sample of people"
    )
    known = all(term.noise is not None for term in terms)
    legend = f"Effects on {key_of(outputs)}; {band if known else 'the method does not say what noise did to them'}."
    if any(term.kind == "levels" for term in terms):
        legend += (
            " Compare levels of one column with each other: a number may move from all of them to the intercept."
        )
    return whole_page(title, privacy, f"<p>{legend}</p>{figures_of(terms, outputs)}")


def key_of(outputs: Sequence[str]) -> str:
    """Return which colour stands for which output."""
    return ", ".join(
        f'<span style="color:{_COLOURS[number % len(_COLOURS)]}">&#9632;</span> {escape(output)}'
        for number, output in enumerate(outputs)
    )


def figures_of(terms: Sequence[Term], outputs: Sequence[str]) -> str:
    """Return a picture per term."""
    return in_grid(_figure(term, outputs) for term in terms)


def in_grid(pictures: Iterable[str]) -> str:
    """Return pictures side by side, as many in a row as there is room for."""
    return '<div class="terms">\n' + "\n".join(pictures) + "\n</div>"


def whole_page(title: str, privacy: Mapping[str, Any], body: str) -> HtmlPage:
    """Return a page under its guarantee; it loads nothing."""
    statement = f"{headline(privacy)} Pictures and their order follow from released and public quantities."
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="guarantee">{escape(statement)}</p>', body]
    return HtmlPage(html_page(f"{title}: terms", parts, _STYLE))


def _figure(term: Term, outputs: Sequence[str]) -> str:
    """Return a picture of a term with its caption."""
    left, right, top, bottom = 44.0, 312.0, 8.0, 170.0
    noise = np.zeros(term.positions.size) if term.noise is None else _BAND * term.noise
    bands = term.effect.reshape(term.positions.size, -1)
    low, high = min(0.0, float(bands.min())), max(0.0, float(bands.max()))
    beyond = 2 * max(high - low, float(np.median(noise)))  # bands of ends with hardly any rows are cut off there
    lowest = max(float((bands - noise[:, None]).min()), low - beyond)
    highest = max(min(float((bands + noise[:, None]).max()), high + beyond), lowest + 1e-9)
    lowest, highest = min(lowest, 0.0), max(highest, 0.0)
    across = left + (right - left) * term.positions

    def up(values: Any) -> Any:
        return bottom - (bottom - top) * (np.clip(values, lowest, highest) - lowest) / (highest - lowest)

    def points(values: Floats) -> str:
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, up(values), strict=True))

    zero = float(up(0.0))
    parts = [f'<line x1="{left}" x2="{right}" y1="{zero:.1f}" y2="{zero:.1f}" stroke="#999"/>']
    for value in (lowest, highest):
        parts.append(f'<text x="{left - 4}" y="{float(up(value)) + 4:.1f}" text-anchor="end">{value:.2g}</text>')
    for effect, output, colour in _effects(term, outputs):
        if term.kind == "curve":
            there, back = points(effect + noise), points(effect - noise).split(" ")[::-1]
            parts.append(f'<polygon points="{there} {" ".join(back)}" fill="{colour}" opacity="0.2"/>')
            parts.append(f'<polyline points="{points(effect)}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
            continue
        for level, x, value, width in zip(term.grid, across, effect, noise, strict=True):
            ends = f'y1="{float(up(value - width)):.1f}" y2="{float(up(value + width)):.1f}"'
            tip = f"<title>{escape(f'{term.column} = {level}: {value:.3g} on {output}')}</title>"
            parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" {ends} stroke="{colour}" stroke-width="5" opacity="0.25"/>'
            )
            parts.append(f'<circle cx="{x:.1f}" cy="{float(up(value)):.1f}" r="3" fill="{colour}">{tip}</circle>')
    marks = np.unique(np.searchsorted(term.positions, [0.0, 0.5, 1.0]).clip(0, term.positions.size - 1))
    height = 190.0
    if term.kind == "curve":
        for mark in marks.tolist():
            anchor = {0: "start", marks[-1]: "end"}.get(mark, "middle")
            parts.append(
                f'<text x="{across[mark]:.1f}" y="186" text-anchor="{anchor}">{cell_text(term.grid[mark])}</text>'
            )
    else:
        height = bottom + 14 + 7.0 * max(len(str(level)) for level in term.grid)
        for level, x in zip(term.grid, across, strict=True):
            turn = f'transform="rotate(-90 {x:.1f} {bottom + 4})"'
            parts.append(f'<text x="{x:.1f}" y="{bottom + 8}" text-anchor="end" {turn}>{escape(str(level))}</text>')
    caption = f"{escape(term.column)} <small>(importance {term.importance:.2g})</small>"
    described = escape(f"Effect of {term.column}")
    picture = f'<svg viewBox="0 0 320 {height:.0f}" role="img" aria-label="{described}">{"".join(parts)}</svg>'
    return f"<figure><figcaption>{caption}</figcaption>{picture}</figure>"
