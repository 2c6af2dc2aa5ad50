"""What audits and replays found: a bound beside a claim, as plain data and as a picture; and leaks, which print."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from ..accounting import epsilon_to_gdp
from .epsilon_bounds import Claim

BLUE, GREY, DARK = "#1f5fa8", "#8a8f98", "#22262b"


@dataclass(frozen=True)
class Report:
    """A lower bound on epsilon beside the epsilon that is claimed.

    Parameters
    ----------
    subject : str
        What was audited.
    claim : {"approximate", "gdp"}
        What is claimed: (epsilon, delta)-DP, or mu-GDP for the mu that gives (epsilon, delta).
    claimed_epsilon, delta : float
    lower_bound : float
        An epsilon at delta below which the claim cannot be true, except with probability 1 - confidence.
    confidence : float
    runs : int
        Runs on each of the two tables, or runs with canaries.
    seconds : float
    relation : str
    attack : str
        What the attacker was shown.
    test : str
        The test that the bound rests on, in words.
    lower_bounds : dict
        The bound for each claim that was tested. A claim of GDP is the stronger one: a bound for it says nothing
        about mechanisms that claim (epsilon, delta)-DP alone.
    curve : tuple of pairs
        Error rates of the best test, as they were counted: false positives and false negatives.
    """

    subject: str
    claim: Claim
    claimed_epsilon: float
    delta: float
    lower_bound: float
    confidence: float
    runs: int
    seconds: float
    relation: str = ""
    attack: str = ""
    test: str = ""
    lower_bounds: dict[str, float] | None = None
    curve: tuple[tuple[float, float], ...] = ()

    @property
    def refuted(self) -> bool:
        """Whether the claim is found to be false."""
        return self.lower_bound > self.claimed_epsilon

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self) | {"refuted": self.refuted}

    def to_json(self) -> str:
        """Return the plain data as JSON."""
        return json.dumps(self.to_dict(), indent=1) + "\n"


def draw_report(report: Report, path: Path) -> Path:
    """Draw the error rates that were counted beside the least that the claim allows; return where it is written."""
    from ..outputs import require_matplotlib, write_whole

    require_matplotlib()
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5.2, 5), layout="constrained")
    rates = np.linspace(0, 1, 400)
    if report.claim == "gdp":
        allowed = ndtr(ndtri(1 - rates) - epsilon_to_gdp(report.claimed_epsilon, report.delta))
    else:
        scale = np.exp(report.claimed_epsilon)
        allowed = np.maximum(0, np.maximum(1 - report.delta - scale * rates, (1 - report.delta - rates) / scale))
    axes.plot(rates, 1 - rates, color=GREY, lw=1, ls="--", label="guessing")
    axes.fill_between(rates, allowed, color=BLUE, alpha=0.12, lw=0)
    axes.plot(rates, allowed, color=BLUE, lw=1.5, label=f"least that epsilon {report.claimed_epsilon:g} allows")
    if report.curve:
        axes.plot(*zip(*report.curve, strict=True), color=DARK, lw=1.5, label=f"counted in {report.runs:,} runs")
    axes.set(xlabel="false positives", ylabel="false negatives", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set_title(
        f"{report.subject}: epsilon is at least {report.lower_bound:.3g} ({report.confidence:.0%})",
        loc="left",
        fontsize=11,
        color=DARK,
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right")
    content = io.BytesIO()
    figure.savefig(content, dpi=150, format=path.suffix.lstrip(".") or "png")
    plt.close(figure)
    return write_whole(path, content.getvalue())


@dataclass(frozen=True)
class Leak:
    """One thing by which a fit tells two neighbouring tables apart, beyond what it has paid for.

    Parameters
    ----------
    kind : str
        What differs: an "attribute", the "statement", a "warning", a printed "message", an "error", "progress", a
        "pickle", the record of the "ledger", or a "release"; or "sensitivity", if a sum moved farther than that.
    where : str
        Which one it is: the name of an attribute, or the number of a release.
    recorded, replayed : str
        What was found on the table, and on its neighbour.
    change : str
        How the neighbour differs from the table.
    """

    kind: str
    where: str
    recorded: str
    replayed: str
    change: str = ""

    def __str__(self) -> str:
        told = f"    recorded: {self.recorded}\n    replayed: {self.replayed}\n    neighbour: {self.change}"
        return f"{self.kind}, {self.where}\n{told}"


@dataclass(frozen=True)
class ReplayReport:
    """What a replay of an estimator on neighbouring tables has found.

    Parameters
    ----------
    subject : str
        The estimator.
    relation : str
        Which tables are neighbours.
    pairs, releases : int
        How many pairs of tables, and over all pairs how many releases, were compared.
    leaks : tuple of Leak
        By what the fits told neighbours apart; empty if there was nothing.
    shares : dict
        For each charge, by its label, how far an exact sum was moved at most: in the norm of its declared
        sensitivity, and as a share of it. Above 1 is a leak. Far below 1 means that no neighbour was a hard one.
    unchecked : tuple of str
        What the replay could not compare.
    """

    subject: str
    relation: str
    pairs: int
    releases: int
    leaks: tuple[Leak, ...]
    shares: dict[str, float]
    unchecked: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether no leak was found."""
        return not self.leaks

    @property
    def largest_share(self) -> float:
        """The largest share of its declared sensitivity by which an exact sum was moved."""
        return max(self.shares.values(), default=0.0)

    def __str__(self) -> str:
        first: dict[tuple[str, str], list[Leak]] = {}
        for leak in self.leaks:
            first.setdefault((leak.kind, leak.where), []).append(leak)
        found = {0: "no leak was found", 1: "1 leak was found"}.get(len(first), f"{len(first)} leaks were found")
        lines = [
            f"{self.subject}, {self.relation}: {found} in {self.pairs} pairs of neighbouring tables",
            f"{self.releases} releases were compared; the largest changes, as shares of the sensitivities:",
            *(f"  {ascii(label)[1:-1]}: {share:.1%}" for label, share in self.shares.items()),
            *(f"not checked: {each}" for each in self.unchecked),
        ]
        for alike in first.values():
            lines.append(f"- {alike[0]}" + (f"\n    and in {len(alike) - 1} more pairs" if len(alike) > 1 else ""))
        return "\n".join(lines)
