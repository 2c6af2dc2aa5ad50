"""What was measured of a table of bounds, in numbers: means, slopes, and the paper's claims beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..report_page import Finding
from ..verdicts import Margin, Statement, every, told
from . import RiskTable
from .risk_runs import Measured, Point, RiskRuns, prescribed_for, public_constants

#: What is varied, and its name.
AXES = (("rows", "n"), ("dimension", "d"), ("epsilon", "epsilon"))
#: Differences of slopes up to this count as level.
_LEVEL = 0.05


@dataclass(frozen=True)
class RiskSummary:
    """The releases of a row at a point."""

    row: int
    point: Point
    values: tuple[float, ...]
    bound: float
    trivial: float

    @property
    def mean(self) -> float:
        """The mean excess risk."""
        return float(np.mean(self.values))

    @property
    def error(self) -> float:
        """The standard error of the mean; as large as the mean where there is one release only."""
        count = len(self.values)
        return float(np.std(self.values, ddof=1) / math.sqrt(count)) if count > 1 else self.mean


def summarised(
    table: RiskTable, place: int, point: Point, measured: Sequence[Measured], population: bool
) -> RiskSummary:
    """Return the excess risks of a row at a point, of the table or in the population, beside the bound."""
    row = table.rows[place]
    values = [
        each.population if population else each.empirical
        for each in measured
        if (each.row, each.point) == (place, point)
    ]
    constants = public_constants(table, row, point)
    bound = prescribed_for(table, row, point).bound if row.ours else row.bound(constants)
    return RiskSummary(place, point, tuple(v for v in values if v is not None), bound, constants.trivial)


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


def risk_findings(runs: RiskRuns, found: Sequence[RiskSummary], measured: Sequence[Measured]) -> list[Finding]:
    """Return the claims of the paper beside what was found."""
    rows = runs.table.rows
    ours = [each for each in found if rows[each.row].ours]
    worst = max(ours, key=lambda each: each.mean / each.bound)
    vacuous = sum(each.bound >= each.trivial for each in ours)
    findings = [
        Finding(
            "The expected excess risk of output perturbation is at most the bound of its row.",
            told(
                every([Margin.of([each.bound - value for value in each.values]) for each in ours]),
                f"at {len(ours)} points the mean is at most {worst.mean / worst.bound:.2g} of its bound "
                f"({rows[worst.row].reference}); at {vacuous} of them the bound is no better than L R, which any "
                "fixed point has",
            ),
        )
    ]
    margins: list[Statement] = []
    steeper, empty = [], 0
    for place, row in enumerate(rows):
        for axis, (bound, slope, error) in slopes_of(runs, found, place).items() if row.ours else ():
            line = line_through_middle(runs, found, place, axis)
            if any(each.bound >= each.trivial for each in line):
                empty += 1
                continue
            count = min(len(each.values) for each in line)
            margins.append(Margin(bound + _LEVEL - slope, error * math.sqrt(count), count))
            if slope > bound + _LEVEL:
                steeper.append(f"{row.reference} in {dict(AXES)[axis]}: {slope:.2f} ± {error:.2f}, bound {bound:.2f}")
    text = (
        f"{len(margins) - len(steeper)} of {len(margins)} slopes are at most {_LEVEL} above that of the bound"
        f"{f' ({empty} more have a bound on the way that is no better than L R)' if empty else ''}"
        + "".join(f"; {each}" for each in steeper)
    )
    findings.append(
        Finding(
            "It falls with n and epsilon, and grows with d, at the rate of the bound or better.",
            told(every(margins), text) if margins else f"Cannot be judged: {text}.",
        )
    )
    rivals = _rivals(runs, measured)
    return [*findings, *([rivals] if rivals is not None else [])]


def _rivals(runs: RiskRuns, measured: Sequence[Measured]) -> Finding | None:
    """Compare output perturbation with its rivals in the middle, class by class, on the same tables."""
    table, texts = runs.table, []
    field = "population" if table.population else "empirical"
    middles = _middles(runs, measured)

    def series(place: int, name: str) -> dict[tuple[int, int], float]:
        return {(0, each.seed): float(getattr(each, name)) for each in middles[place]}

    margins: dict[str, list[Statement]] = {field: [], "evaluations": []}
    for kind in dict.fromkeys(row.measured_on for row in table.rows):
        own = [place for place in middles if table.rows[place].measured_on == kind]
        mine = next((place for place in own if table.rows[place].ours), None)
        if mine is None or len(own) == 1:
            continue
        for name, parts in margins.items():
            parts += [Margin.between(series(place, name), series(mine, name)) for place in own if place != mine]
        shown = [
            f"{table.rows[place].reference} {np.mean([*series(place, field).values()]):.2g} with "
            f"{np.mean([*series(place, 'evaluations').values()]):,.0f} gradients"
            for place in own
        ]
        texts.append(f"{kind}: {', '.join(shown)}")
    if not texts:
        return None
    claim = "Output perturbation is the fastest of its class, and near-optimal where the loss is smooth."
    judged = every(margins["evaluations"])
    if table.population:
        claim = "Output perturbation has the lowest population loss and the shortest running time of its class."
        judged = every([*margins[field], *margins["evaluations"]])
    return Finding(claim, told(judged, f"in the middle, excess {field} risk of {'; '.join(texts)}"))


def _middles(runs: RiskRuns, measured: Sequence[Measured]) -> dict[int, list[Measured]]:
    """Return what was measured in the middle of each row that can be compared with others."""
    middles: dict[int, list[Measured]] = {}
    for each in measured:
        row = runs.table.rows[each.row]
        if not row.timed_only and not row.tilted and each.point == runs.points(row)[0] and not each.error:
            middles.setdefault(each.row, []).append(each)
    return middles
