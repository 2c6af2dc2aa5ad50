"""What was measured of a table of bounds, in numbers: means, slopes, and the paper's claims beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .report import Finding
from .risk_runs import Measured, Point, RiskRuns, prescribed_for, public_constants
from .risk_tables import RiskTable

__all__ = ["AXES", "RiskSummary", "line_through_middle", "risk_findings", "slopes_of", "summarised"]

#: What is varied, and its name.
AXES = (("rows", "n"), ("dimension", "d"), ("epsilon", "epsilon"))


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
    broken = [each for each in ours if each.mean - 2 * each.error > each.bound]
    findings = [
        Finding(
            "The expected excess risk of output perturbation is at most the bound of its row.",
            f"{'Differs' if broken else 'Agrees'}: at {len(ours)} points the mean is at most "
            f"{worst.mean / worst.bound:.2g} of its bound ({rows[worst.row].reference}). At {vacuous} of them the "
            "bound is no better than L R, which any fixed point has.",
        )
    ]
    slopes: dict[str, list[str]] = {"agrees": [], "differs": [], "cannot tell": []}
    for place, row in enumerate(rows):
        for axis, (bound, slope, error) in slopes_of(runs, found, place).items() if row.ours else ():
            empty = any(each.bound >= each.trivial for each in line_through_middle(runs, found, place, axis))
            steeper = slope > bound + 2 * error + 0.05
            verdict = "cannot tell" if empty or error > 0.5 else "differs" if steeper else "agrees"
            slopes[verdict].append(
                f"{row.reference} in {dict(AXES)[axis]}: {slope:.2f} ± {error:.2f}, bound {bound:.2f}"
            )
    findings.append(
        Finding(
            "It falls with n and epsilon, and grows with d, at the rate of the bound or better.",
            f"{'Differs' if slopes['differs'] else 'Agrees' if slopes['agrees'] else 'Cannot tell'}: of "
            f"{sum(map(len, slopes.values()))} slopes {len(slopes['agrees'])} are at most that of the bound, within "
            f"two standard errors, and {len(slopes['differs'])} are not; {len(slopes['cannot tell'])} cannot be "
            "judged, because a bound on the way is no better than L R or the standard error is above 0.5."
            + "".join(f" {text}." for text in slopes["differs"]),
        )
    )
    rivals = _rivals(runs, found, measured)
    return [*findings, *([rivals] if rivals is not None else [])]


def _rivals(runs: RiskRuns, found: Sequence[RiskSummary], measured: Sequence[Measured]) -> Finding | None:
    """Compare output perturbation with its rivals in the middle, class by class."""
    rows, texts = runs.table.rows, []
    middles = {each.row: each for each in found if each.point == runs.points(rows[each.row])[0]}

    def gradients(place: int) -> float:
        own = [each for each in measured if (each.row, each.point) == (place, middles[place].point)]
        return float(np.mean([each.evaluations for each in own if each.evaluations is not None]))

    lower: list[str] = []
    faster: list[str] = []
    for kind in dict.fromkeys(row.measured_on for row in rows):
        own = [place for place in middles if rows[place].measured_on == kind and not rows[place].tilted]
        mine = next((place for place in own if rows[place].ours), None)
        if mine is None or len(own) == 1:
            continue
        for place in own:
            doubt = 2 * math.hypot(middles[place].error, middles[mine].error)
            if middles[place].mean + doubt < middles[mine].mean:
                lower.append(rows[place].reference)
            if gradients(place) < gradients(mine):
                faster.append(rows[place].reference)
        parts = [
            f"{rows[place].reference} {middles[place].mean:.2g} ± {middles[place].error:.1g} with "
            f"{gradients(place):,.0f} gradients"
            for place in own
        ]
        texts.append(f"{kind}: {', '.join(parts)}")
    if not texts:
        return None
    claim = "Output perturbation has the lowest population loss and the shortest running time of its class."
    if not runs.table.population:
        claim = "Output perturbation is the fastest of its class, and near-optimal where the loss is smooth."
    verdict = "Agrees" if not (lower or faster) else "Differs"
    if not runs.table.population:
        verdict = "Differs" if faster else "Agrees"
    told = (
        f"A lower risk by more than two standard errors: {', '.join(dict.fromkeys(lower)) or 'nobody'}. "
        f"Fewer gradients: {', '.join(dict.fromkeys(faster)) or 'nobody'}."
    )
    return Finding(claim, f"{verdict}. {told} In the middle: {'; '.join(texts)}.")
