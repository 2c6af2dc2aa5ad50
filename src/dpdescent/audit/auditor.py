"""Audits: of a function of one's own, and of the mechanisms and methods of the library by name."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidParameter, require_finite, require_open_unit, require_positive, require_positive_integer
from ..queries import QUERIES
from ..relations import Relation
from ..solvers import METHODS
from .audit_runs import FunctionRun, Listener, Subject, collect
from .audited_queries import QueryRun
from .decision import decide
from .findings import Claim, Report, canary_bound
from .worst_cases import MECHANISMS, Attack, CanaryRun, Mechanism, MethodRun

#: What an attacker of a whole fit is shown: all answers, the last weights, or the weights of many canaries.
ATTACKS = ("transcript", "model", "canaries")

FEWEST_RUNS = 40


def audit(
    function: Callable[..., Any],
    table: Any,
    neighbour: Any,
    *,
    epsilon: float,
    delta: float = 0.0,
    runs: int = 2000,
    claim: Claim = "approximate",
    score: Callable[[Any], float] | None = None,
    confidence: float = 0.95,
    seed: int | None = None,
    jobs: int = 1,
    journal: str | os.PathLike[str] | None = None,
) -> Report:
    """Return a lower bound on the epsilon of a function of your own, from runs on two neighbouring tables.

    Parameters
    ----------
    function : callable
        Maps a table to what would be published: a number, an array, a choice, anything with a representation. If it
        has a parameter ``seed`` it is given a whole number, another one in every run, and should draw all of its
        randomness from it. It must not draw from a state that several processes inherit.
    table, neighbour : any
        Two tables that differ by what one row may change. The bound is about this pair: take the worst you know.
    epsilon, delta : float
        What is claimed.
    runs : int
        How often it is run on each of the tables.
    claim : {"approximate", "gdp"}
        "gdp" if the function also claims to be mu-GDP, as one Gaussian release is: that can be refuted with fewer
        runs.
    score : callable, optional
        Maps an outcome to a number that is large where the neighbour is the more likely origin. Without it a linear
        score, a quadratic one and one of frequencies are learnt from the first quarter of the runs.
    confidence : float
        With what probability the bound is not too large.
    seed : int, optional
        Repeats the seeds that the function is given.
    jobs : int
        Processes that run it; with more than one it must be picklable, and so must the tables.
    journal : path-like, optional
        An output beside which finished runs are kept until all are done: a killed audit then goes on.

    Returns
    -------
    Report
        ``report.lower_bound`` is at most the true epsilon at ``delta`` with probability ``confidence``, and
        ``report.refuted`` tells whether it is above the claim.

    Notes
    -----
    **Privacy** An audit spends no budget and protects nothing: run it on tables that you made, not on people's.

    Examples
    --------
    >>> import numpy as np
    >>> from dpdescent.audit import audit
    >>> def noisy_sum(table, seed):  # a sensitivity of 1, and half of the noise that epsilon = 1 needs
    ...     return sum(table) + np.random.default_rng(seed).laplace(scale=0.5)
    >>> report = audit(noisy_sum, [0.0], [0.0, 1.0], epsilon=1.0, runs=2000, seed=0)
    >>> report.refuted
    True
    """
    if not callable(function):
        raise InvalidParameter("function must be callable: pass one that maps a table to what would be published")
    if jobs != 1:
        _require_picklable(function, table, neighbour, score)
    subject = FunctionRun(function, (table, neighbour), score)
    name = getattr(function, "__name__", type(function).__name__)
    return _audit(
        subject,
        name,
        claim,
        epsilon,
        delta,
        runs=runs,
        confidence=confidence,
        seed=seed,
        jobs=jobs,
        journal=None if journal is None else Path(journal),
    )


def _require_picklable(*parts: Any) -> None:
    try:
        pickle.dumps(parts)
    except Exception:
        raise InvalidParameter(
            "several processes need a function and tables that can be pickled: define the function at the top of a "
            "module, or pass jobs=1"
        ) from None


def default_runs(name: str, epsilon: float, attack: str = "transcript") -> int:
    """Return how many runs an audit makes by default: seconds for a mechanism or query, minutes for a fit."""
    if name in METHODS:
        return 100 if attack == "canaries" else 500
    if name in QUERIES:
        return 5000
    if name == "norm-laplace":  # drawn one by one
        return 10_000
    return min(2_000_000, round(200_000 * max(1.0, 0.05 / require_positive("epsilon", epsilon) ** 2)))


def audit_named(
    name: str,
    *,
    epsilon: float,
    delta: float,
    runs: int | None = None,
    relation: str = "zero-out",
    attack: str = "transcript",
    options: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
    seed: int | None = None,
    jobs: int = 1,
    journal: Path | None = None,
    listener: Listener | None = None,
) -> Report:
    """Audit a mechanism, a query or a method of the library by name, on the worst tables known for it.

    Parameters
    ----------
    name : str
        One of `MECHANISMS`, of `dpdescent.queries.QUERIES` or of `dpdescent.solvers.METHODS`.
    epsilon, delta : float
        The guarantee with which it is run.
    runs : int, optional
        See `default_runs`.
    relation : {"zero-out", "replace-one"}
    attack : {"transcript", "model", "canaries"}
        What the attacker of a method sees.
    options : mapping, optional
        Settings of a method. A query has one, ``example``: which of its examples is asked, counted from 1.
    confidence, seed, jobs, journal
        As for `audit`.
    listener : callable, optional
        Called with the runs that are done and the runs there are.
    """
    _require_guarantee(epsilon, delta)
    if attack not in ATTACKS:
        raise InvalidParameter(f"unknown attack {attack!r}: choose one of {', '.join(ATTACKS)}")
    kept, runs = Relation.parse(relation), default_runs(name, epsilon, attack) if runs is None else runs
    common: dict[str, Any] = {"confidence": confidence, "seed": seed, "jobs": jobs, "listener": listener}
    settings = dict(options or {})
    if name in METHODS and attack == "canaries":
        canaries = CanaryRun(name, epsilon, delta, kept, options=settings)
        return _audit_by_canaries(canaries, runs, journal=journal, **common)
    if name in METHODS:
        seen: Attack = "model" if attack == "model" else "transcript"
        fit = MethodRun(name, epsilon, delta, kept, options=settings, attack=seen)
        common |= {"relation": kept, "attack": attack, "journal": journal}
        return _audit(fit, name, fit.claim, epsilon, delta, runs=runs, **common)
    subject = _answer_named(name, epsilon, delta, kept, settings)
    common |= {"relation": kept, "attack": "answer"}
    return _audit(subject, name, subject.claim, epsilon, delta, runs=runs, **common)


def _answer_named(
    name: str, epsilon: float, delta: float, relation: Relation, settings: dict[str, Any]
) -> Mechanism | QueryRun:
    """Return one answer of a mechanism, or to a query, as a subject."""
    if name in QUERIES:
        example = settings.pop("example", 1)
        if settings:
            raise InvalidParameter(f"the only setting of a query is example=NUMBER, got {next(iter(settings))!r}")
        return QueryRun(name, epsilon, delta, relation, require_positive_integer("example", example))
    if name not in MECHANISMS:
        known = ", ".join([*MECHANISMS, *QUERIES, *(each for each in METHODS if METHODS[each].private)])
        raise InvalidParameter(f"nothing to audit is called {name!r}: choose one of {known}")
    if settings:
        raise InvalidParameter(f"the mechanism {name!r} has no settings: leave them out")
    return MECHANISMS[name](epsilon, delta, relation)


def _audit(
    subject: Subject,
    name: str,
    claim: Claim,
    epsilon: float,
    delta: float,
    *,
    runs: int,
    confidence: float,
    seed: int | None,
    jobs: int,
    relation: str = "",
    attack: str = "outcome",
    journal: Path | None = None,
    listener: Listener | None = None,
) -> Report:
    _require_guarantee(epsilon, delta)
    if claim not in ("approximate", "gdp"):
        raise InvalidParameter(f"unknown claim {claim!r}: choose 'approximate' or 'gdp'")
    if claim == "gdp" and delta == 0:
        raise InvalidParameter("a claim of GDP gives no epsilon at a delta of 0: pass a delta")
    error = 1 - require_open_unit("confidence", confidence)
    if require_positive_integer("runs", runs) < FEWEST_RUNS:
        raise InvalidParameter(f"runs must be at least {FEWEST_RUNS}, got {runs}: fewer can refute nothing")
    jobs, started = require_positive_integer("jobs", jobs), time.perf_counter()
    first, second = collect(subject, int(runs), seed=seed, jobs=jobs, journal=journal, listener=listener)
    known = subject.known(first) if isinstance(subject, MethodRun | QueryRun) else None
    decision = decide(first, second, claim, delta, error, known)
    test = decision.rules[claim]
    return Report(
        name,
        claim,
        float(epsilon),
        float(delta),
        decision.epsilons[claim],
        confidence,
        int(runs),
        time.perf_counter() - started,
        str(relation),
        attack,
        f"{test.kind} a score of {test.threshold:.6g}" if test.kind != "errors" else "errors of a balanced guess",
        {str(each): bound for each, bound in decision.epsilons.items()},
        decision.curve,
    )


def _audit_by_canaries(
    subject: CanaryRun,
    runs: int,
    *,
    confidence: float,
    seed: int | None,
    jobs: int,
    journal: Path | None,
    listener: Listener | None,
) -> Report:
    """Audit fits with many canaries. Coins of different fits are guessed as if they were those of one.

    A fit that depends on one coin alone is (epsilon, delta)-DP for it, and so are all fits together.
    """
    error = 1 - require_open_unit("confidence", confidence)
    runs, jobs, started = require_positive_integer("runs", runs), require_positive_integer("jobs", jobs), time.time()
    halves = collect(subject, -(-runs // 2), seed=seed, jobs=jobs, journal=journal, listener=listener)
    right = np.concatenate(halves).ravel()[:runs]
    guessed = subject.guesses * runs
    bound = canary_bound(subject.rows * runs, guessed, int(right.sum()), subject.delta, error)
    return Report(
        subject.method,
        "approximate",
        subject.epsilon,
        subject.delta,
        bound,
        confidence,
        runs,
        time.time() - started,
        str(subject.relation),
        "canaries",
        f"{int(right.sum())} of {guessed} guesses about {subject.rows * runs} canaries are right",
        {"approximate": bound},
    )


def _require_guarantee(epsilon: float, delta: float) -> None:
    require_positive("epsilon", epsilon)
    if require_finite("delta", delta) != 0:
        require_open_unit("delta", delta)
