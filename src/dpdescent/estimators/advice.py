"""What to know about a guarantee before it is paid for, from public numbers alone."""

from __future__ import annotations

from ..solvers import Facts

__all__ = ["advice"]

_LARGEST_EPSILON = 10.0  # beyond it a guarantee keeps hardly anybody from telling who was in the table
_FEWEST_ROWS = 10.0  # effective ones: with fewer, noise hides all but the frequencies of the classes


def advice(facts: Facts) -> list[str]:
    """Return a sentence for each number that weakens the guarantee or that leaves nothing to learn.

    The number of rows is public under both relations, and nothing else about the table enters.
    """
    found = []
    if facts.delta * facts.rows > 1:
        found.append(
            f"delta {facts.delta:g} is above 1/n for n = {facts.rows} rows, so the guarantee allows a whole row to "
            "be published: choose delta well below 1/n"
        )
    if facts.epsilon > _LARGEST_EPSILON:
        found.append(
            f"epsilon {facts.epsilon:g} is above {_LARGEST_EPSILON:g}, which protects a row very little: choose "
            "epsilon between 0.1 and 10"
        )
    effective = facts.promised_rows if facts.delta > 0 else facts.rows * facts.epsilon / facts.change
    if effective < _FEWEST_ROWS:
        found.append(
            f"epsilon {facts.epsilon:g} and n = {facts.rows} rows amount to {effective:.2g} effective rows, too few "
            "to learn anything from: raise epsilon, or collect more rows"
        )
    return found
