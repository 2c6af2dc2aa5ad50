"""The picture and the page of a table of bounds: what is promised beside what was measured.

What was measured of a table of bounds, in numbers: means, slopes, and the paper's claims beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ...statement import guarantee
from ..drawing import Line, Panel, draw
from ..method_looks import Look, look_of
from ..report_page import Finding, Matrix, Picture, Report, write_report
from ..study import versions, versions_setting
from ..verdicts import (
    EXPLANATION,
    WRONG,
    Checked,
    Key,
    Margin,
    Sample,
    Statement,
    Verdict,
    cells_of,
    every,
    pooled,
    told,
)
from . import RiskRow, RiskTable
from .risk_runs import Measured, Point, RiskRuns, prescribed_for, public_constants

_GREY = "#8A8F98"
_CAPTION = (
    "Excess {} risk of output perturbation and its rivals beside the bounds of Lowy & Razaviyayn (2021), "
    "arXiv:2102.04704, on synthetic problems whose minimisers are known."
)
_KEYS = ("row", "reference", "rows", "dimension", "epsilon", "bound")
_MEASURES = ("empirical", "population", "evaluations", "seconds")


def write_risks(
    runs: RiskRuns, measured: Sequence[Measured], stem: Path, page: Path, json_file: Path | None, command: str
) -> tuple[tuple[Path, Path], Report]:
    """Write picture, page and rows; return the pictures and the report."""
    table = runs.table
    samples = samples_of(measured)
    found = summaries_of(runs, samples)
    pictures = draw(risk_panels(runs, samples), stem, 3, command)
    findings = tuple(risk_findings(runs, samples))
    whole = f" of {table.full_seeds}" if runs.seeds < table.full_seeds else ""
    repeated = f"{'Full' if runs.full else 'Quick'} run: {runs.seeds}{whole} repetitions, fewer of slow methods."
    bounds = {(each.row, each.point): float(f"{each.bound:.6g}") for each in found}
    rows = [
        asdict(each) | {"reference": table.rows[each.row].name, "bound": bounds.get((each.row, each.point))}
        for each in measured
    ]
    report = Report(
        table.title,
        _CAPTION.format("population" if table.population else "empirical"),
        repeated,
        (Picture(pictures[1], f"{table.title}: excess risk and bounds against n, d and epsilon"),),
        findings,
        (_risks(runs, measured), _times(runs, measured), _slopes(runs, found)),
        (
            (
                "every release",
                f"{guarantee('epsilon', 'delta', 'replace-one')}, epsilon being the one of the point. "
                f"{_delta(table)} Randomness: seeded (not for release).",
            ),
            ("excess risks", "Not private: they are computed from synthetic rows and known minimisers."),
        ),
        (
            ("problems", _problems(table)),
            ("middle", _middle(runs)),
            versions_setting(),
        ),
        tuple(_notes(runs, measured)),
        _details(table),
        cells_of(rows, _KEYS, _MEASURES),
        command,
    )
    content = {"figure": table.name, "delta": table.delta, "versions": versions(), "rows": rows}
    write_report(report, page, json_file, content)
    return pictures, report


def _details(table: RiskTable) -> tuple[str, ...]:
    price = "d/(epsilon n)" if table.delta == 0 else "sqrt(d) (c + sqrt(c^2 + epsilon))/(epsilon n)"
    if not table.mean:
        price += ", n being 1 but for the tilted rows"
    return (
        f"The price of privacy x is {price}. Bounds of the paper have their constants; those of rivals and lower "
        "bounds are printed without constants and logarithms, and their values here have a constant of 1. Every "
        "bound is to be read as the lesser of itself and L R.",
        "Minimisers are certified to lie within 1/256 of the sensitivity (1/16 to 1/128 where there is a kink) of "
        "the true ones, where the paper asks for an accuracy alpha in expectation.",
    )


def _problems(table: RiskTable) -> str:
    groups = (
        "rows of unit vectors, one for each of d groups, with labels of two values, 4 to 1 in favour of the group's "
        "typical one; minimisers are known group by group. With mu = 0.05 where it is strongly convex; Huber's loss "
        "where it is smooth, else the hinge"
    )
    if table.mean:
        return f"{groups}."
    longest = (
        "functions of the longest of 20 rows, quadratic or with a kink at a fixed point, on the ball of radius 1; "
        "mu = 1, beta = 4. Their bounds say something only where epsilon is many times d, which is no privacy"
    )
    return f"{longest}. Tilted rows: {groups.replace('Huber', 'tilt 0.25; the logistic loss, not Huber')}."


def _delta(table: RiskTable) -> str:
    return (
        "Norm-Laplace noise fails with a probability below 1e-27." if table.delta == 0 else f"delta {table.delta:g}."
    )


def _middle(runs: RiskRuns) -> str:
    middles = dict.fromkeys(runs.points(row)[0] for row in runs.table.rows if row.method)
    return "; ".join(
        f"{f'n = {point.rows:,}, ' if point.rows else ''}d = {point.dimension}, epsilon = {point.epsilon:g}"
        for point in middles
    )


def _risks(runs: RiskRuns, measured: Sequence[Measured]) -> Matrix:
    """Return bounds and measurements at the middle."""
    table, lines, samples = runs.table, [], samples_of(measured)
    for place, row in enumerate(table.rows):
        if row.timed_only:
            continue
        point = runs.points(row)[0]
        empirical = summarised(table, place, point, samples, False)
        population = summarised(table, place, point, samples, True)
        vacuous = " (no better than L R)" if row.ours and empirical.bound >= empirical.trivial else ""
        lines.append(
            (
                f"{row.kind}{', tilted' if row.tilted else ''}",
                row.reference,
                row.formula,
                f"{empirical.bound:.3g}{vacuous}",
                _spread(empirical),
                _spread(population),
            )
        )
    header = ("class", "reference", "bound", "its value", "measured, empirical", "measured, population")
    return Matrix("Excess risk, in the middle", header, tuple(lines))


def _spread(summary: RiskSummary) -> str:
    if not summary.sample.count:
        return "–"
    return f"{summary.mean:.3g}" + (f" ± {summary.error:.1g}" if summary.sample.count > 1 else "")


def _times(runs: RiskRuns, measured: Sequence[Measured]) -> Matrix:
    table, lines = runs.table, []
    for place, row in enumerate(table.rows):
        point = runs.points(row)[0]
        own = [each for each in measured if (each.row, each.point) == (place, point) and not each.error]
        if not own and not row.ours:
            continue
        accuracy = wanted = "–"
        if row.ours:
            prescribed = prescribed_for(table, row, point)
            by_row = prescribed.method in ("sgd", "katyusha") or not point.rows
            accuracy = f"{prescribed.accuracy:.2g}"
            wanted = f"{prescribed.evaluations * (1 if by_row else point.rows):.3g} ({prescribed.method})"
        lines.append(
            (
                f"{row.kind}{', tilted' if row.tilted else ''}",
                f"{row.reference}{f' ({row.minimiser})' if row.minimiser else ''}",
                row.runtime,
                accuracy,
                wanted,
                f"{np.mean([each.evaluations for each in own]):,.0f}" if own else "–",
                f"{np.mean([each.seconds for each in own]):.3f}" if own else "–",
            )
        )
    unit = "gradients of rows" if table.mean else "gradients (of rows where tilted)"
    header = ("class", "reference", "running time", "alpha", f"prescribed {unit}", f"measured {unit}", "seconds")
    return Matrix("Running time, in the middle", header, tuple(lines))


def _slopes(runs: RiskRuns, found: Sequence[RiskSummary]) -> Matrix:
    lines = []
    for place, row in enumerate(runs.table.rows):
        slopes = slopes_of(runs, found, place)
        if slopes:
            cells = [
                f"{slopes[axis][0]:.2f}; {slopes[axis][1]:.2f} ± {slopes[axis][2]:.2f}" if axis in slopes else "–"
                for axis, _ in AXES
            ]
            lines.append((f"{row.kind}{', tilted' if row.tilted else ''}", row.reference, *cells))
    header = ("class", "reference", *(f"in {name}: bound; measured" for _, name in AXES))
    return Matrix("Slopes of the logarithm of the excess risk", header, tuple(lines))


def _notes(runs: RiskRuns, measured: Sequence[Measured]) -> list[str]:
    notes = [f"{EXPLANATION} Mean ± standard error. A row of the picture is a class of functions; bounds are dotted."]
    if runs.table.mean:
        notes.append(
            "A row of a linear model has a gradient along its own features only: noise costs such a model d times "
            "less than the bound allows where the loss is smooth, and sqrt(d) times less where it has a kink."
        )
    for place, row in enumerate(runs.table.rows):
        if row.remark:
            notes.append(f"{row.kind}, {row.reference}: {row.remark}.")
        errors = dict.fromkeys(f"{each.error} (d = {each.dimension})" for each in measured if each.row == place)
        notes += [f"{row.reference}: {error}" for error in errors if not error.startswith(" ")]
    return notes


def risk_panels(runs: RiskRuns, samples: Samples) -> list[Panel]:
    """Return the panels of a table: excess risks and bounds of each class of functions against n, d and epsilon."""
    table, found = runs.table, summaries_of(runs, samples)
    panels: list[Panel] = []
    groups = dict.fromkeys((row.measured_on, row.tilted) for row in table.rows if row.method and not row.timed_only)
    for kind, tilted in groups:
        chosen = [
            (place, row) for place, row in enumerate(table.rows) if (row.measured_on, row.tilted) == (kind, tilted)
        ]
        for axis, name in AXES:
            lines = _lines(runs, found, chosen, axis)
            if lines:
                title = f"{kind}{', tilted' if tilted else ''}: in {name}"
                ticks = tuple(sorted({x for line in lines for x in line.x}))
                panels.append(Panel(title, name, "excess risk", ticks, True, tuple(lines)))
        if not table.mean and not tilted:
            panels += [_work(runs, place, samples) for place, row in chosen if row.ours]
    return panels


def _lines(
    runs: RiskRuns, found: Sequence[RiskSummary], rows: Sequence[tuple[int, RiskRow]], axis: str
) -> list[Line]:
    """Return the lines of rows along an axis, those of lower bounds last; none where nothing was varied along it."""
    lines: list[Line] = []
    for place, row in rows:
        along = line_through_middle(runs, found, place, axis)
        lines += _pair(row, axis, along) if len(along) > 1 else []
    longest = max((line.x for line in lines), key=len, default=())
    lowest = [row for _, row in rows if row.reference == "lower bound"] if lines else []
    return lines + [_lowest(runs, row, axis, longest) for row in lowest]


def _lowest(runs: RiskRuns, row: RiskRow, axis: str, x: tuple[float, ...]) -> Line:
    """Return the line of the lower bound of a class, with a constant of 1."""
    middle = runs.points(row)[0]
    points = [middle._replace(**{axis: type(getattr(middle, axis))(value)}) for value in x]
    bounds = [row.bound(public_constants(runs.table, row, point)) for point in points]
    return Line(Look("lower bound (constant 1)", _GREY, "", "--"), x, tuple(bounds), (0.0,) * len(x))


def _work(runs: RiskRuns, place: int, samples: Samples) -> Panel:
    """Return the gradients of a function that is no mean, prescribed and measured, against epsilon."""
    row = runs.table.rows[place]
    middle = runs.points(row)[0]
    points = [point for point in runs.points(row) if point.dimension == middle.dimension]
    points.sort(key=lambda point: point.epsilon)
    counts = [samples[place, point]["evaluations"].mean for point in points]
    wanted = [prescribed_for(runs.table, row, point).evaluations for point in points]
    x, still = tuple(point.epsilon for point in points), (0.0,) * len(points)
    lines = (
        Line(Look(row.minimiser, look_of(row.method).colour, "o"), x, tuple(counts), still),
        Line(Look(f"T, {row.reference}", _GREY, "", ":"), x, tuple(wanted), still),
    )
    return Panel(f"{row.kind}: running time", "epsilon", "gradient evaluations", x, True, lines)


def _pair(row: RiskRow, axis: str, along: Sequence[RiskSummary]) -> list[Line]:
    """Return the line of what was measured and the dotted one of its bound."""
    x = tuple(float(getattr(each.point, axis)) for each in along)
    look = look_of(row.method)
    name = "output perturbation" if row.ours else row.reference
    mine = Line(
        Look(name, look.colour, look.marker, "-"),
        x,
        tuple(each.mean for each in along),
        tuple(min(each.error, 0.9 * each.mean) for each in along),
    )
    if not row.ours:
        return [mine]
    bound = Line(
        Look(f"bound, {row.reference}", _GREY, "", ":"), x, tuple(each.bound for each in along), (0.0,) * len(x)
    )
    return [mine, bound]


#: What is varied, and its name.
AXES = (("rows", "n"), ("dimension", "d"), ("epsilon", "epsilon"))
#: Differences of slopes up to this count as level.
_LEVEL = 0.05


@dataclass(frozen=True)
class RiskSummary:
    """The releases of a row at a point."""

    row: int
    point: Point
    sample: Sample
    bound: float
    trivial: float

    @property
    def mean(self) -> float:
        """The mean excess risk."""
        return self.sample.mean

    @property
    def error(self) -> float:
        """The standard error of the mean; as large as the mean where there is one release only."""
        return self.sample.error if self.sample.count > 1 else self.mean


def summarised(table: RiskTable, place: int, point: Point, samples: Samples, population: bool) -> RiskSummary:
    """Return the excess risks of a row at a point, of the table or in the population, beside the bound."""
    row = table.rows[place]
    found = samples.get((place, point), {}).get("population" if population else "empirical", Sample.of({}))
    constants = public_constants(table, row, point)
    bound = prescribed_for(table, row, point).bound if row.ours else row.bound(constants)
    return RiskSummary(place, point, found, bound, constants.trivial)


#: What was measured, by row and point, and by the field of a measurement.
Samples = Mapping[tuple[int, Point], Mapping[str, Sample]]


def samples_of(measured: Sequence[Measured]) -> Samples:
    """Return what was measured, release by release."""
    found: dict[tuple[int, Point], dict[str, dict[Key, float]]] = {}
    for each in measured:
        cell = found.setdefault((each.row, each.point), {})
        for field in ("empirical", "population", "evaluations", "seconds"):
            if not each.error and (value := getattr(each, field)) is not None:
                cell.setdefault(field, {})[0, each.seed] = float(value)
    return {key: {field: Sample.of(values) for field, values in cell.items()} for key, cell in found.items()}


def summaries_of(runs: RiskRuns, samples: Samples) -> list[RiskSummary]:
    """Return the excess risks that were measured, of every row and point."""
    table = runs.table
    summaries = [
        summarised(table, place, point, samples, table.population)
        for place, row in enumerate(table.rows)
        if row.method and not row.timed_only
        for point in runs.points(row)
    ]
    return [summary for summary in summaries if summary.sample.count]


def _slope(points: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Return the slope of log y against log x through (x, y, error of y), and its standard error."""
    x, y, error = (np.array(part) for part in zip(*points, strict=True))
    centred = np.log(x) - np.log(x).mean()
    weights = centred / float(centred @ centred)
    return float(weights @ np.log(y)), float(np.sqrt(np.sum((weights * error / y) ** 2)))


def line_through_middle(runs: RiskRuns, found: Sequence[RiskSummary], place: int, axis: str) -> list[RiskSummary]:
    """Return the summaries of a row along one axis through the middle."""
    own = [each for each in found if each.row == place]
    if not own:
        return []
    middle = runs.points(runs.table.rows[place])[0]
    others = [name for name in Point._fields if name != axis]
    chosen = [each for each in own if all(getattr(each.point, o) == getattr(middle, o) for o in others)]
    return sorted(chosen, key=lambda each: float(getattr(each.point, axis)))


def slopes_of(runs: RiskRuns, found: Sequence[RiskSummary], place: int) -> dict[str, tuple[float, float, float]]:
    """Return for each axis the slope of the bound, the measured one and its standard error."""
    slopes = {}
    for axis, _ in AXES:
        line = line_through_middle(runs, found, place, axis)
        if len(line) < 3 or any(each.mean <= 0 for each in line):
            continue
        at = [float(getattr(each.point, axis)) for each in line]
        bound = _slope([(x, each.bound, 0.0) for x, each in zip(at, line, strict=True)])[0]
        slopes[axis] = (bound, *_slope([(x, each.mean, each.error) for x, each in zip(at, line, strict=True)]))
    return slopes


def risk_findings(runs: RiskRuns, samples: Samples) -> list[Finding]:
    """Return the claims of the paper beside what was found."""
    rows, found = runs.table.rows, summaries_of(runs, samples)
    ours = [each for each in found if rows[each.row].ours]
    if not ours:
        return []
    worst = max(ours, key=lambda each: each.mean / each.bound)
    vacuous = sum(each.bound >= each.trivial for each in ours)
    below = [Margin(each.bound - each.mean, each.sample.error, each.sample.count - 1) for each in ours]
    findings = [
        Finding(
            "The expected excess risk of output perturbation is at most the bound of its row.",
            told(
                every(below),
                f"at {len(ours)} points the mean is at most {worst.mean / worst.bound:.2g} of its bound "
                f"({rows[worst.row].reference}); at {vacuous} of them the bound is no better than L R, which any "
                "fixed point has",
            ),
        )
    ]
    margins: list[Margin] = []
    steeper, empty = [], 0
    for place, row in enumerate(rows):
        for axis, (bound, slope, error) in slopes_of(runs, found, place).items() if row.ours else ():
            line = line_through_middle(runs, found, place, axis)
            if any(each.bound >= each.trivial for each in line):
                empty += 1
                continue
            count = min(each.sample.count for each in line)
            margins.append(Margin(bound + _LEVEL - slope, error, count - 1, _LEVEL))
            if slope > bound + _LEVEL:
                steeper.append(f"{row.reference} in {dict(AXES)[axis]}: {slope:.2f} ± {error:.2f}, bound {bound:.2f}")
    text = (
        f"{len(margins) - len(steeper)} of {len(margins)} slopes are at most {_LEVEL} above that of the bound"
        f"{f' ({empty} more have a bound on the way that is no better than L R)' if empty else ''}"
        + "".join(f"; {each}" for each in steeper)
    )
    if margins:
        text += f"; on average a slope is {-pooled(margins).mean + _LEVEL:+.2f} above that of its bound"
    findings.append(
        Finding(
            "It falls with n and epsilon, and grows with d, at the rate of the bound or better.",
            told(_at_the_rate(margins), text) if margins else f"Cannot be judged: {text}.",
        )
    )
    return [*findings, *_rivals(runs, samples)]


def _at_the_rate(margins: Sequence[Margin]) -> Statement:
    """Return that slopes are on average at most those of the bounds, and that none is surely above its own."""
    surely = any(margin.verdict(WRONG, WRONG / len(margins)) is Verdict.DIFFERS for margin in margins)
    return every([pooled(margins), Checked(not surely)])


def _rivals(runs: RiskRuns, samples: Samples) -> list[Finding]:
    """Compare output perturbation with its rivals in the middle, class by class, on the same tables."""
    table, texts = runs.table, []
    field = "population" if table.population else "empirical"
    middles = _middles(runs, samples)
    margins: dict[str, list[Statement]] = {field: [], "evaluations": []}
    for kind in dict.fromkeys(row.measured_on for row in table.rows):
        own = [place for place in middles if table.rows[place].measured_on == kind]
        mine = next((place for place in own if table.rows[place].ours), None)
        if mine is None or len(own) == 1:
            continue
        for name, parts in margins.items():
            parts += [Margin.between(middles[place][name], middles[mine][name]) for place in own if place != mine]
        shown = [
            f"{table.rows[place].reference} {middles[place][field].mean:.2g} with "
            f"{middles[place]['evaluations'].mean:,.0f} gradients"
            for place in own
        ]
        texts.append(f"{kind}: {', '.join(shown)}")
    if not texts:
        return []
    text = f"in the middle, excess {field} risk of {'; '.join(texts)}"
    fastest, lowest = every(margins["evaluations"]), every(margins[field])
    if table.population:
        return [
            Finding("Output perturbation has the shortest running time of its class.", told(fastest, text)),
            Finding("Output perturbation has the lowest population loss of its class.", told(lowest, text)),
        ]
    claim = "Output perturbation is the fastest of its class, and near-optimal where the loss is smooth."
    return [Finding(claim, told(fastest, text))]


def _middles(runs: RiskRuns, samples: Samples) -> dict[int, Mapping[str, Sample]]:
    """Return what was measured in the middle of each row that can be compared with others."""
    return {
        place: found
        for place, row in enumerate(runs.table.rows)
        if not row.timed_only and not row.tilted and row.method
        if (found := samples.get((place, runs.points(row)[0]), {}))
    }
