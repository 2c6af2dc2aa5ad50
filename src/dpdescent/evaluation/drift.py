r"""Whether rows of another month are scored as earlier ones were: two evaluations between the same edges.

With x and x' the estimated shares of (class, bin), and their covariances S by privacy and sampling, the statistic (x'
- x)' (S + S')^+ (x' - x) has about a chi-square law if the population is the same, with as many degrees of freedom as
the matrix has rank. Changes of measures have intervals from the errors of both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri
from scipy.stats import chi2

from ..arrays import Floats
from ..errors import InvalidParameter
from .report import Evaluation
from .score_counts import ScoreCounts


@dataclass(frozen=True)
class Change:
    """How much a measure has changed, with an interval."""

    name: str
    before: float
    after: float
    change: float
    low: float
    high: float


@dataclass(frozen=True)
class Drift:
    """What has changed between two evaluations.

    Parameters
    ----------
    statistic : float
        The chi-square statistic of all counts.
    freedom : int
        Its degrees of freedom.
    p_value : float
        How often it would be as large if nothing had changed.
    level : float
        Of the intervals.
    changes : tuple of Change
        Those of measures that both evaluations have.
    """

    statistic: float
    freedom: int
    p_value: float
    level: float
    changes: tuple[Change, ...]

    @property
    def in_words(self) -> str:
        """What was found, in a sentence."""
        seen = self.p_value < 1 - self.level
        odds = "less than 1 in 10,000" if self.p_value < 1e-4 else f"{self.p_value:.2g} of"
        found = "Scores and classes are distributed otherwise than before" if seen else "No change of scores is seen"
        return f"{found}: noise and sampling alone would differ as much in {odds} cases."

    def __str__(self) -> str:
        lines = [self.in_words]
        for each in self.changes:
            moved = "" if each.low <= 0 <= each.high else "  changed"
            lines.append(
                f"  {each.name:<24} {each.before:.4g} -> {each.after:.4g}  [{each.low:+.4g}, {each.high:+.4g}]{moved}"
            )
        return "\n".join(lines)


def drift_between(before: Evaluation, after: Evaluation) -> Drift:
    """Compare two evaluations whose bins are the same (``evaluate(..., like=before)``). It costs nothing.

    Raises
    ------
    InvalidParameter
        They are not of two classes, or their bins differ.
    """
    pairs = before.scores, after.scores
    if any(len(each) != 1 for each in pairs) or pairs[0][0].edges != pairs[1][0].edges:
        raise InvalidParameter(
            "drift compares evaluations of two classes with the same bins: pass like= the earlier one"
        )
    (first, of_first), (second, of_second) = (_shares(each[0]) for each in pairs)
    moved, spread = second - first, of_first + of_second
    values, vectors = np.linalg.eigh(spread)
    kept = values > 1e-9 * values.max()
    statistic = float(np.sum((vectors.T @ moved)[kept] ** 2 / values[kept]))
    freedom = int(kept.sum())
    level = after.level
    reach = float(ndtri((1 + level) / 2))
    changes = []
    known = {each.name: each for each in before.measures}
    for measure in after.measures:
        earlier = known.get(measure.name)
        if earlier is None or None in (earlier.value, measure.value):
            continue
        change = float(measure.value or 0.0) - float(earlier.value or 0.0)
        error = reach * float(np.hypot(measure.deviation or 0.0, earlier.deviation or 0.0))
        ends = (change - error, change + error)
        changes.append(Change(measure.name, float(earlier.value or 0.0), float(measure.value or 0.0), change, *ends))
    return Drift(statistic, freedom, float(chi2.sf(statistic, freedom)), level, tuple(changes))


def _shares(counts: ScoreCounts) -> tuple[Floats, Floats]:
    """Return shares of (class, bin), and their covariance by privacy and sampling."""
    rows = counts.rows
    shares = counts.estimates / rows
    positive = np.maximum(shares, 0.0)
    sampled = (np.diag(positive) - np.outer(positive, positive) / max(float(positive.sum()), 1e-9)) / rows
    centred = np.eye(shares.size) - np.outer(shares, np.ones(shares.size))
    noise = counts.covariance if counts.total is not None else centred @ counts.covariance @ centred.T
    return shares, noise / rows**2 + counts.clusters * sampled
