"""What an audit found, as plain data and as a picture."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from ..accounting import epsilon_to_gdp
from .bounds import Claim

__all__ = ["Report", "draw_report"]

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
