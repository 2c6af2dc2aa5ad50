r"""What audits and replays found: a bound beside a claim, as plain data and as a picture; and leaks, which print.

Lower bounds on epsilon from counts, each with a stated confidence.

A test looks at one outcome of a mechanism and says which of two neighbouring tables it came from. Whatever the test,
a claim of privacy bounds how well it can do, so a test that does better refutes the claim. Write p and q for the
probabilities of an event on the two tables, and e for the mean of the two error rates of a test.

========================  =========================================  ==============================================
claim                     from an event, p above q                   from the error rate
========================  =========================================  ==============================================
(epsilon, delta)-DP       epsilon >= log((p - delta)/q)              epsilon >= log((1 - delta - e)/e)
mu-GDP                    mu >= Phi^-1(p) - Phi^-1(q)                mu >= -2 Phi^-1(e)
========================  =========================================  ==============================================

The second column is the definition. The third is its mean over both orders of the tables: adding
FPR + e^epsilon FNR >= 1 - delta and the same with the rates exchanged gives (1 + e^epsilon) e >= 1 - delta, and the
trade-off function of mu-GDP has its least sum of rates, 2 Phi(-mu/2), where both are equal. A bound on mu is stated
as the epsilon that mu-GDP has at the claimed delta. It refutes a claim of GDP only: another mechanism may be
(epsilon, delta)-DP and have a larger mu.

Probabilities are bounded by exact binomial tails (Clopper & Pearson 1934). An event takes two of them, each at half
of the error that is allowed. The errors of a test on equally many outcomes of both tables take one: by Hoeffding
(1956, theorem 4) the lower tail of a sum of independent Bernoulli variables, below its mean less one, is at most that
of the binomial law with the same mean.

**One run with many canaries** (Steinke, Nasr & Jagielski 2023, theorem 5.2). Each of m rows is in the table or not by
the toss of a fair coin. If the run is (epsilon, delta)-DP and r of the coins are guessed from what it released, the
number of right guesses is at least v with a probability of at most

    P(W >= v) + 2 m delta max_{1 <= i <= v} P(v > W >= v - i)/i,     W ~ Binomial(r, 1/(1 + e^-epsilon)).

The same is bounded in terms of any trade-off function f, and of that of mu-GDP in particular, by an argument of
Mahloujifar, Melis & Chaudhuri (2025). Write C for the number of right guesses, and compare a table and the guess of a
coin with the table on which that coin is the other way up: a guess that is right about one, with at least v right in
all, is wrong about the other, with at least v - 1. A test of the two has P <= F(Q), with F = 1 - f, which is concave,
so with the mean over all coins, guessed or not,

    E[C; C >= v]/m <= F(E[r - C; C >= v - 1]/m)    for every v.

Let q_v = P(C >= v). The sums are E[C; C >= v] = v q_v + sum over j > v of q_j, which grows with each q_j, and
E[r - C; C >= v - 1] = (r - v + 1) q_{v-1} - sum over j >= v of q_j. So if q_c is at least some t, then q_{c-1},
q_{c-2} and so on are at least what the equations give one after the other, from q_c = t and q_j = 0 above. If that
makes q_0 more than 1, then P(C >= c) < t. With one guess it is the trade-off itself.

References
----------
Clopper, C. & Pearson, E. (1934). The use of confidence or fiducial limits illustrated in the case of the binomial.
Hoeffding, W. (1956). On the distribution of the number of successes in independent trials.
Mahloujifar, S., Melis, L. & Chaudhuri, K. (2025). Auditing f-differential privacy in one run. arXiv:2410.22235.
Nasr, M. et al. (2023). Tight auditing of differentially private machine learning. arXiv:2302.07956.
Steinke, T., Nasr, M. & Jagielski, M. (2023). Privacy auditing with one (1) training run. arXiv:2305.08846.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom

from ..accounting import epsilon_to_gdp, gdp_to_epsilon
from ..arrays import Floats

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
    from ..long_runs import require_matplotlib, write_whole

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


#: What a mechanism claims: that it is (epsilon, delta)-DP, or mu-GDP for the mu that gives (epsilon, delta).
Claim = Literal["approximate", "gdp"]

_MOST_EPSILON = 100.0


def least(count: Any, trials: int, error: float) -> Floats:
    """Return a probability that is below the true one except with probability ``error``."""
    k = np.asarray(count, dtype=np.float64)
    return np.where(k > 0, beta.ppf(error, np.maximum(k, 1), trials - k + 1), 0.0)


def most(count: Any, trials: int, error: float) -> Floats:
    """Return a probability that is above the true one except with probability ``error``."""
    k = np.asarray(count, dtype=np.float64)
    return np.where(k < trials, beta.ppf(1 - error, k + 1, np.maximum(trials - k, 1)), 1.0)


def from_event(claim: Claim, delta: float, more: Any, fewer: Any, trials: int, error: float) -> Floats:
    """Return a lower bound from how often an event happened on each table; see `epsilon_of` for its unit.

    The event happened ``more`` often, in ``trials`` runs, on the table where it is more likely than on the other.
    ``delta`` is that of the claim; the bound may be too large with probability ``error``.
    """
    p, q = least(more, trials, error / 2), most(fewer, trials, error / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = ndtri(p) - ndtri(q) if claim == "gdp" else np.log(np.maximum(p - delta, 0.0) / q)
    return np.asarray(np.maximum(np.nan_to_num(bound, nan=0.0, neginf=0.0), 0.0))


def from_errors(claim: Claim, delta: float, errors: Any, trials: int, error: float) -> Floats:
    """Return a lower bound from the errors of a test on ``trials`` outcomes of each table, in the same unit."""
    k = np.asarray(errors, dtype=np.float64)
    rate = most(k, 2 * trials, error)
    rate = np.where(2 * trials * rate >= k + 1, rate, 1.0)  # where Hoeffding's theorem speaks
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = -2 * ndtri(rate) if claim == "gdp" else np.log(np.maximum(1 - delta - rate, 0.0) / rate)
    return np.asarray(np.maximum(np.nan_to_num(bound, nan=0.0, neginf=0.0), 0.0))


def epsilon_of(claim: Claim, delta: float, bound: float) -> float:
    """Return a bound as an epsilon at ``delta``: bounds on mu are converted, others are epsilons already."""
    return gdp_to_epsilon(float(bound), delta) if claim == "gdp" else float(bound)


def canary_bound(canaries: int, guesses: int, right: int, delta: float, error: float) -> float:
    """Return the largest epsilon that so many right guesses refute, except with probability ``error``.

    Parameters
    ----------
    canaries : int
        m, the coins that were tossed.
    guesses : int
        r, how many of them were guessed; fixed before the guesses are compared with the coins.
    right : int
        v.
    delta : float
        That of the claim.
    error : float
        Probability with which the bound may be too large.
    """

    def excess(epsilon: float) -> float:
        return _canary_tail(canaries, guesses, right, epsilon, delta) - error

    if excess(0.0) >= 0:
        return 0.0
    if excess(_MOST_EPSILON) < 0:
        return _MOST_EPSILON
    found = float(brentq(excess, 0.0, _MOST_EPSILON, xtol=1e-9))
    while excess(found) > 0:
        found = max(0.0, found - 1e-9)
    return found


def one_run_bound(claim: Claim, canaries: int, guesses: int, right: int, delta: float, error: float) -> float:
    """Return the largest mu, or the largest epsilon at delta, that so many right guesses refute in terms of f.

    Parameters
    ----------
    claim : {"approximate", "gdp"}
        Whether the trade-off is that of (epsilon, delta)-DP, or that of mu-GDP.
    canaries, guesses, right, delta, error
        As for `canary_bound`; a bound on mu does not depend on delta.
    """

    def refuted(parameter: float) -> bool:
        # Rounding errors grow on the way down; what is given away here outweighs them.
        return _least_total(_flip(claim, parameter, delta), canaries, guesses, right, error * (1 - 1e-9)) > 1

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, _MOST_EPSILON
    if refuted(high):
        return high
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _flip(claim: Claim, parameter: float, delta: float) -> Callable[[float], float]:
    """Return the inverse of F: the least probability of an event on a neighbour, from its own."""
    if claim == "gdp":
        return lambda chance: float(ndtr(ndtri(min(chance, 1.0)) - parameter))
    ratio = math.exp(parameter)
    return lambda chance: max(0.0, (chance - delta) / ratio, 1 - delta - ratio * (1 - min(chance, 1.0)))


def _least_total(flip: Callable[[float], float], canaries: int, guesses: int, right: int, tail: float) -> float:
    """Return the least value of q_0 with q_right >= tail, or some value above 1 once it is."""
    if right == 0:
        return tail
    here, above = tail, 0.0  # q_v, and the sum of q_j over j > v
    for v in range(right, 0, -1):
        needed = canaries * flip((v * here + above) / canaries)
        above += here
        here = max(here, (needed + above) / (guesses - v + 1))
        if here > 1:
            break
    return here


def _canary_tail(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return the largest probability of so many right guesses under (epsilon, delta)-DP."""
    accuracy = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, accuracy))
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, accuracy))
    steepest = float(np.max(below / np.arange(1, right + 1))) if right else 0.0
    return min(1.0, tail + 2 * canaries * delta * steepest)
