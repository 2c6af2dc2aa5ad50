"""An audit from one fit: many canaries, each there or not by a coin, and all that the fit has released.

Every canary is a row with a column of its own, so that what it adds to a released sum stands in coordinates that no
other row moves. The run is repeated on the answers that it released, once without canaries and once with all of them
(`Replaying`), and the difference is what each canary would have added. The score of a canary is the log ratio of the
likelihoods of the answers in its coordinates: a function of what was released and of public rows. The canaries with
the largest scores are guessed to be there, and those with the smallest not to be. How many are guessed is fixed
beforehand, and `one_run_bound` says what so many right guesses refute.

It is a white-box audit: the attacker sees every answer, knows all other rows, and has put the canaries there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from ..accounting import Gaussian, gdp_to_epsilon
from ..arrays import Floats
from ..curator.lattice_noise import deviation_of
from ..errors import InvalidParameter, require_open_unit
from ..relations import Relation
from .findings import Report, canary_bound, one_run_bound
from .recording import Recording, Released, Replaying
from .worst_cases import AuditedFit

_CANARIES, _SHARE = 2048, 32  # by default, and of how many of them one is guessed


@dataclass(frozen=True)
class OneFit(AuditedFit):
    """One fit of a table with canaries, under zero-out."""

    canaries: int = _CANARIES
    guesses: int = _CANARIES // _SHARE  # how many are guessed; an even number
    base: Any = field(default=None, repr=False)  # (n, d): public rows beside the canaries, with cells from -1 to 1
    labels: Any = field(default=None, repr=False)  # (n,): their labels, -1 or 1
    noise_share: float = 1.0  # by what the noise is multiplied, which a broken variant has too little of

    def __post_init__(self) -> None:
        if self.relation is not Relation.ZERO_OUT:
            raise InvalidParameter("an audit from one fit adds or removes its canaries: use the relation zero-out")
        if self.canaries < 2 or not 0 < self.guesses <= self.canaries or self.guesses % 2:
            raise InvalidParameter("an even number of guesses, and canaries that suffice for it, are needed")
        rows, columns = (0, 0) if self.base is None else self.base.shape
        object.__setattr__(self, "rows", rows + self.canaries)
        object.__setattr__(self, "columns", columns + self.canaries)
        super().__post_init__()
        if self._intercept:
            raise InvalidParameter(f"method {self.method!r} needs a constant column, and canaries share none")

    def _table(self, there: Any) -> tuple[Any, Floats]:
        """Return the rows and labels of a table with some canaries."""
        own = sparse.eye_array(self.canaries, format="csr")[there]
        labels = np.ones(own.shape[0])
        if self.base is None:
            return own, labels
        public = sparse.csr_array(self.base, dtype=np.float64)
        return sparse.block_array([[public, None], [None, own]], format="csr"), np.append(self.labels, labels)

    def count_right(self, seed: int | None) -> int:
        """Return how many guesses about the canaries of one fit are right."""
        generator = np.random.default_rng(np.random.SeedSequence(seed))
        there = generator.random(self.canaries) < 0.5
        recorded = _Weakened(int(generator.integers(2**62)), self.noise_share)
        self._solve(*self._table(there), recorded)
        scores = self.scores(recorded)
        order, half = np.argsort(scores, kind="stable"), self.guesses // 2
        return int(np.count_nonzero(there[order[-half:]]) + np.count_nonzero(~there[order[:half]]))

    def scores(self, recorded: Recording) -> Floats:
        """Return for each canary how much more likely it makes the answers, from these and from public rows."""
        sides: list[list[Released]] = []
        for present in (False, True):
            replay = Replaying(recorded)
            self._solve(*self._table(np.full(self.canaries, present)), replay)
            sides.append(replay.released)
        scores = np.zeros(self.canaries)
        for without, released in zip(*sides, strict=True):
            if isinstance(released.cost, Gaussian) and released.total.values.size == self.columns:
                scale = deviation_of(released.total, released.cost, released.relation)
                before = without.total.to_float().ravel()[-self.canaries :]
                added = released.total.to_float().ravel()[-self.canaries :] - before
                seen = np.ravel(released.answer)[-self.canaries :] - before
                scores += (seen - added / 2) * added / scale**2
        return scores


class _Weakened(Recording):
    """A recording whose answers have a share of the noise."""

    def __init__(self, seed: int, share: float) -> None:
        super().__init__(seed)
        self._share = share

    def release(self, total: Any, cost: Any, relation: Relation, *, symmetric: bool = False) -> Any:
        """Return the answer with less noise, and keep it."""
        answer = super().release(total, cost, relation, symmetric=symmetric)
        if self._share != 1.0:
            exact = total.to_float()
            answer = exact + self._share * (answer - exact)
            self.released[-1] = Released(total, cost, relation, answer)
        return answer


def audit_one_fit(
    method: str,
    *,
    epsilon: float,
    delta: float,
    canaries: int = _CANARIES,
    guesses: int | None = None,
    base: Any = None,
    labels: Any = None,
    options: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
    seed: int | None = None,
    noise_share: float = 1.0,
) -> Report:
    """Return a lower bound on the epsilon of a method, from one fit.

    Parameters
    ----------
    method : str
        One that takes no constant column, such as "sgd".
    epsilon, delta : float
        What is claimed.
    canaries : int
        How many rows are there or not by a coin each. More of them show more.
    guesses : int, optional
        How many are guessed, by default one in 32.
    base, labels : array_like, optional
        Public rows beside the canaries, with cells and labels from -1 to 1.
    options : mapping, optional
        Settings of the method. A clip norm well below half the length of a canary, which is 1, lets it move a sum as
        far as any row may.
    confidence : float
        The probability that the bound is not too large.
    seed : int, optional
        Repeats the coins and the fit.
    noise_share : float
        Below 1 a broken variant is audited that adds too little noise; for tests of the audit.

    Returns
    -------
    Report
        For a claim of GDP the bound is that on mu, as an epsilon at delta.

    Notes
    -----
    **Privacy** An audit spends nothing and protects nobody: the base must be public.

    Examples
    --------
    >>> from dpdescent.audit import audit_one_fit
    >>> weak = dict(options={"clip_gradient": 0.1, "steps": 50}, noise_share=0.2)
    >>> audit_one_fit("sgd", epsilon=1.0, delta=1e-6, canaries=256, guesses=64, seed=0, **weak).refuted
    True
    """
    error, started = 1 - require_open_unit("confidence", confidence), time.time()
    asked = 2 * (canaries // (2 * _SHARE)) if guesses is None else guesses
    given = {"options": dict(options or {}), "base": base, "labels": labels, "noise_share": noise_share}
    subject = OneFit(method, epsilon, delta, canaries=canaries, guesses=asked, **given)
    right, claim = subject.count_right(seed), subject.claim
    counts = canaries, asked, right, delta, error
    bounds = {"approximate": max(canary_bound(*counts), one_run_bound("approximate", *counts))}
    if claim == "gdp":
        mu = one_run_bound("gdp", *counts)
        bounds["gdp"] = gdp_to_epsilon(mu, delta) if mu > 0 else 0.0
    return Report(
        method,
        claim,
        epsilon,
        delta,
        bounds[claim],
        confidence,
        1,
        time.time() - started,
        str(subject.relation),
        "all answers of one fit",
        f"{right} of {asked} guesses about {canaries} canaries are right",
        bounds,
    )
