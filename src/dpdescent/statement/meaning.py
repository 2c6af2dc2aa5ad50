"""What a statement means to a person: the guarantee, the best that an attacker can do, and what is not covered.

`headline` is the sentence with which every page, picture, print-out and statement begins. There is one so that no two
of them can differ. It says whose rows are protected, and what was read from them without being paid for, or that none
are.

All of it follows from the statement, so that nothing here touches a row or costs privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..accounting import GDP, ZCDP, Currency, Pure, TradeOff, sampler_delta
from ..ledger import ONE_ROW
from ..relations import Relation
from .privacy_statement import PrivacyStatement
from .statement_parts import ALL_ROWS, exceptions_noted

PRIORS = (0.01, 0.1, 0.5, 0.9)
FALSE_ALARMS = (0.001, 0.01, 0.05, 0.1)
GROUPS = (1, 2, 5, 10)

_NONE = "NOT PRIVATE: the rows were used without noise, so the model may disclose any of them."
_SAMPLED = 2.0**-10  # share of delta for the samplers' own error, where several rows are one step each

_ACCOUNTANTS = {
    "gdp": "Gaussian differential privacy",
    "zcdp": "zero-concentrated differential privacy",
    "rdp": "Rényi differential privacy",
    "pure": "pure differential privacy",
    "approximate": "basic composition",
}


def guarantee(epsilon: float | str, delta: float | str, relation: str, unit: str = ONE_ROW) -> str:
    """Return the words for a guarantee; a text in place of a number names one that differs from fit to fit."""
    pair = ", ".join(each if isinstance(each, str) else f"{each:g}" for each in (epsilon, delta))
    return f"({pair})-differentially private for {unit} under {relation}"


def headline(stated: PrivacyStatement | Mapping[str, Any]) -> str:
    """Return the guarantee of a statement, typed or as the plain data of ``privacy_``, or of that of a ledger."""
    if isinstance(stated, PrivacyStatement):
        facts = {name: getattr(stated, name) for name in ("epsilon", "delta", "relation", "unit")}
        return headline(facts | {"private": exceptions_noted(stated.private, stated.assumed_public)})
    private = stated.get("private", True)
    if not private:
        return _NONE
    words = guarantee(stated["epsilon"], stated["delta"], stated["relation"], stated["unit"])
    return f"{words}, {private}." if isinstance(private, str) else f"{words}."


def trade_off(statement: PrivacyStatement) -> TradeOff:
    """Return the trade-off of a statement's whole budget; what was spent is no guarantee."""
    assert statement.currency is not None, "there is a guarantee"
    return TradeOff(statement.epsilon, statement.delta, statement.currency, statement.budget)


def relation_in_words(statement: PrivacyStatement) -> str:
    """Return what neighbouring tables are."""
    return Relation.parse(statement.relation).neighbours(statement.unit, statement.rows_per_unit)


def warnings_of(statement: PrivacyStatement) -> list[str]:
    """Return the reasons not to publish."""
    found = []
    if not statement.private:
        found.append("Do not publish: nothing is guaranteed.")
    if "seeded" in statement.randomness:
        found.append("Do not publish: the noise comes from a seed, and whoever knows the seed can subtract it.")
    if "floating point" in statement.randomness:
        found.append("The noise is in floating point, and its last digits may reveal more than the guarantee allows.")
    read = [each for each in statement.assumed_public if "read from" in each and statement.private]
    found += [f"Not paid for: {each}." for each in read]
    sampled = statement.sampler_error
    if sampled is not None and not sampled["within_delta"]:
        found.append(f"The samplers' own error adds up to {sampled['delta']:.3g} to delta.")
    if statement.delta > 1e-3 and statement.private:
        found.append(f"Delta is large: with {statement.delta:g} nothing may be protected; take it well below 1/n.")
    return found


def of_several_rows(statement: PrivacyStatement) -> list[tuple[int, float]]:
    """Return, for people with several rows, how many and the epsilon that protects them all, at the same delta.

    **Privacy** k rows are k steps from neighbour to neighbour: mu becomes k mu, rho becomes k^2 rho, and a pure
    epsilon k epsilon. The samplers' own error, which an epsilon multiplies by 1 + e^epsilon, must not count beside
    delta; groups for which it would are left out. In the other currencies there is no such rule at one delta, nor is
    there one for mechanisms that may fail, because a failure of one step is multiplied by those after it: nothing is
    returned.
    """
    currency: Currency | None = statement.currency
    fails = any(charge.mechanism.delta for charge in statement.charges)
    if fails or not isinstance(currency, GDP | ZCDP | Pure):
        return []
    power = 1 if isinstance(currency, Pure) else 2
    counted = statement.delta * (1 - _SAMPLED) or 0.5
    found = [(rows, currency.epsilon(rows**power * statement.budget, counted)) for rows in GROUPS[1:]]
    room = statement.delta * _SAMPLED or 1.0  # a delta of 0 is that of the laws
    held = [(rows, epsilon) for rows, epsilon in found if sampler_delta(epsilon) <= room]
    return [(1, statement.epsilon), *held] if held else []


def where_it_went(statement: PrivacyStatement) -> list[tuple[str, float]]:
    """Return what was asked, how often and of which rows, with its share of the budget, the largest first."""
    shares: dict[tuple[str, str], tuple[float, int]] = {}
    for charge in statement.charges:
        share, count = shares.get((charge.label, charge.rows), (0.0, 0))
        shares[charge.label, charge.rows] = share + statement.share(charge), count + charge.count
    found = [
        (f"{label} ({count} x{'' if rows == ALL_ROWS else f', {rows}'})", share)
        for (label, rows), (share, count) in shares.items()
    ]
    return sorted(found, key=lambda each: -each[1])


def accountant_in_words(statement: PrivacyStatement) -> str:
    """Return the name of the definition of privacy in which the charges are added up."""
    assert statement.currency is not None, "there is a guarantee"
    return _ACCOUNTANTS[statement.currency.name]


def side_by_side(statement: PrivacyStatement) -> str:
    """Return why shares may add up to more than the whole, or nothing if they do not."""
    parts = {charge.rows for charge in statement.charges} - {ALL_ROWS}
    return (
        "The parts share no row, so only the most expensive one counts, and not their sum." if len(parts) > 1 else ""
    )


def not_covered(statement: PrivacyStatement) -> list[str]:
    """Return what the guarantee does not cover."""
    several = "" if statement.unit != ONE_ROW else ": somebody with several rows has less"
    return [
        "What the rows have in common. A model that finds smoking harmful says so of people who are not in it, too.",
        f"More than {statement.unit}{several}.",
        "Other releases from the same rows: their costs add up. A shared ledger keeps count.",
        "What the caller did before and after: cleaning, choosing columns, trying settings, scoring on these rows.",
        "What was said to be public, if it was read from the rows.",
        "Errors about malformed input, how long the run took, and the memory of the machine.",
    ]


def percent(share: float) -> str:
    """Return a share as a percentage, rounded up to a tenth, so that it never flatters."""
    return f"{math.ceil(1000 * min(share, 1.0) - 1e-6) / 10:.1f}%"


def mechanism_in_words(mechanism: Any) -> str:
    """Return the kind of a mechanism with its parameters."""
    data = mechanism.to_dict()
    named = ", ".join(
        f"{name.replace('_', ' ')} {value:.4g}"
        for name, value in data.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    )
    parts = [mechanism_in_words(part) for part in getattr(mechanism, "parts", ())]
    inside = "; ".join([*([named] if named else []), *parts])
    return f"{data['kind']} ({inside})" if inside else str(data["kind"])
