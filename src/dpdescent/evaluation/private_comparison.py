"""Compare methods on rows of one's own, and pay for every fit and every evaluation.

Each candidate is fitted to a part of the rows that is drawn anew and evaluated on the rest (`fit_and_evaluate`), so
that a candidate costs its (epsilon, delta) once. The costs of all candidates add up in one ledger, and nothing is
begun unless it can pay for all of them. What is shown was paid for, and may be published with the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from ..errors import BudgetExhausted, DPDescentError, InvalidParameter
from ..estimators.base import PrivateLinearModel
from ..ledger import Ledger
from ..statement import heading, html_page, table
from .measures import Measure
from .one_budget import fit_and_evaluate


@dataclass(frozen=True)
class Candidate:
    """What was found of one candidate: its evaluation, or why it was refused."""

    name: str
    #: The guarantee of its fit and evaluation together.
    epsilon: float
    delta: float
    accuracy: Measure | None = None
    auc: Measure | None = None
    error: str = ""  # why it was refused

    def __str__(self) -> str:
        known = [each for each in (self.accuracy, self.auc) if each is not None and each.value is not None]
        found = ", ".join(f"{each.name} {each.value:.4f} [{each.low:.4f}, {each.high:.4f}]" for each in known)
        return f"{self.name:<24} {found or self.error or 'not released'}"


def compare_privately(
    candidates: Mapping[str, PrivateLinearModel], X: Any, y: Any, ledger: Ledger, *, holdout: float = 0.2
) -> Iterator[Candidate]:
    """Yield what every candidate is worth, one after the other, all paid for by one ledger.

    Parameters
    ----------
    candidates : mapping from str to estimator
        Private linear classifiers by name, each with its own epsilon and delta, and without a ledger.
    X, y : array_like
        The table.
    ledger : Ledger
        Pays for all.
    holdout : float
        Share of the rows that evaluate a candidate.

    Raises
    ------
    BudgetExhausted
        The ledger cannot pay for all of them. Nothing was charged.

    Notes
    -----
    **Privacy** Everything that is yielded follows from answers that the ledger has paid for. A candidate that is
    refused by name is not charged, or its error says how much was: refusals follow from settings, public numbers and
    released answers, or from a malformed table.
    """
    for name, each in candidates.items():
        if each.ledger is not None:
            raise InvalidParameter(
                f"the candidate {name!r} has a ledger of its own: leave it out, one ledger pays for all"
            )
    relation, currency = str(ledger.relation), ledger.currency
    wanted = [Ledger(each.epsilon, each.delta, currency=currency, relation=relation) for each in candidates.values()]
    total = sum(each.budget for each in wanted)
    if total > ledger.remaining:
        raise BudgetExhausted(
            f"{len(wanted)} fits and evaluations cost {total / ledger.budget:.1%} of the ledger, of which "
            f"{ledger.remaining / ledger.budget:.1%} is left: compare fewer methods, or lower epsilon"
        )
    return _compared(candidates, X, y, ledger, holdout)


def _compared(
    candidates: Mapping[str, PrivateLinearModel], X: Any, y: Any, ledger: Ledger, holdout: float
) -> Iterator[Candidate]:
    for name, each in candidates.items():
        model = type(each)(**each.get_params(deep=False) | {"ledger": ledger})
        known = (name, each.epsilon, each.delta)
        try:
            _, found = fit_and_evaluate(model, X, y, holdout=holdout)
        except DPDescentError as refusal:
            said = "; ".join([str(refusal), *getattr(refusal, "__notes__", [])])
            yield Candidate(*known, error=f"{type(refusal).__name__}: {said}")
            continue
        yield Candidate(*known, found.accuracy, found.auc)


def page_of_comparison(found: list[Candidate], ledger: Ledger, data: str) -> str:
    """Return a page of what was found, all of which was paid for."""
    rows = []
    for each in found:
        measures = [_cell(each.accuracy), _cell(each.auc)]
        rows.append((each.name, f"{each.epsilon:g}", f"{each.delta:g}", *measures, each.error))
    title = f"A private comparison on {data}"
    spent = f"{ledger.spent_epsilon():.4g}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="guarantee">Every fit and every evaluation was paid for by one ledger, of which epsilon {spent} '
        f"at delta {ledger.delta:g} is spent, for {escape(ledger.unit)} under {escape(str(ledger.relation))}.</p>",
        heading("What was found", "found"),
        table(("method", "epsilon", "delta", "accuracy", "AUC", ""), rows, words=(5,)),
        '<p class="note">Each method was fitted to rows that were drawn at random and evaluated on the others. '
        "Intervals (95%) cover the noise of privacy in the evaluation and the draw of its rows. They do not cover "
        "what another fit would give.</p>",
    ]
    return html_page(title, parts)


def _cell(measure: Measure | None) -> str:
    if measure is None or measure.value is None:
        return "" if measure is None else "not released"
    return f"{measure.value:.4f} ({measure.low:.4f} to {measure.high:.4f})"
