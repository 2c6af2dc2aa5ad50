"""A statement as lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from ..display import printable
from .meaning import (
    FALSE_ALARMS,
    PRIORS,
    accountant_in_words,
    headline,
    mechanism_in_words,
    not_covered,
    of_several_rows,
    percent,
    relation_in_words,
    side_by_side,
    trade_off,
    warnings_of,
    where_it_went,
)
from .privacy_statement import PrivacyStatement
from .visible_effects import START, Effect, Effects, band_in_words

_WIDTH = 30  # of a bar
_SHOWN = 15  # effects, or charges


def text_of(statement: PrivacyStatement, effects: Effects | None = None) -> list[str]:
    """Return what a person should know, line by line, with control characters spelt out."""
    lines = [headline(statement), *(f"! {each}" for each in warnings_of(statement))]
    lines += _section("What was released", [f"{statement.model}, method {statement.method}", *statement.released])
    if statement.private:
        lines += ["", "What epsilon means here", f"  {relation_in_words(statement)}", *_tests(statement)]
        lines += ["", *_beliefs(statement), *_groups(statement), *_charges(statement)]
    if effects is not None:
        lines += _effects(effects)
    lines += _section("Assumed public", statement.assumed_public)
    lines += _section("Not covered", not_covered(statement) if statement.private else [])
    lines += _section("Remarks", [*statement.remarks, *_origin(statement)])
    return [printable(line) for line in lines]


def _section(title: str, sentences: Sequence[str]) -> list[str]:
    return ["", title, *(f"  {each}" for each in sentences)] if sentences else []


def _tests(statement: PrivacyStatement) -> list[str]:
    curve = trade_off(statement)
    lines = ["  Nobody who sees the release can tell them apart better than this:"]
    for alarms in FALSE_ALARMS:
        found = percent(1 - float(curve.false_negatives(alarms)))
        lines.append(
            f"    with {alarms:5.1%} false alarms at most {found:>6} are found (blind guessing: {alarms:.1%})"
        )
    return lines


def _beliefs(statement: PrivacyStatement) -> list[str]:
    curve = trade_off(statement)
    unit = statement.unit
    lines = [
        f"  What somebody can reach who believes beforehand that {unit} is in the table, at most:",
        "    belief   right guesses without the release / with it   belief after an alarm, false 1 in 20 times",
    ]
    for prior in PRIORS:
        before, after = percent(max(prior, 1 - prior)), percent(curve.right_guesses(prior))
        lines.append(f"    {prior:6.0%}   {before:>31} / {after:<7}   {percent(curve.belief_after(prior, 0.05)):>12}")
    return lines


def _groups(statement: PrivacyStatement) -> list[str]:
    groups = of_several_rows(statement)
    if not groups or statement.unit != "one row":
        return []
    parts = ", ".join(f"{rows} rows {epsilon:.3g}" for rows, epsilon in groups[1:])
    return ["", f"  Somebody with several rows has a larger epsilon, at the same delta: {parts}."]


def _charges(statement: PrivacyStatement) -> list[str]:
    spent = statement.spent / statement.budget
    lines = ["", f"Where the budget went ({spent:.1%} of it, added up by {accountant_in_words(statement)})"]
    for name, share in where_it_went(statement):
        bar = "█" * max(1, round(_WIDTH * min(share, 1.0)))
        lines.append(f"  {share:6.1%}  {bar:<{_WIDTH}}  {name}")
    lines += [f"  {each}" for each in [side_by_side(statement)] if each]
    kinds = ", ".join(f"{count} x {kind}" for kind, count in statement.mechanisms.items())
    lines.append(f"  Mechanisms, each charged before a row was touched: {kinds}.")
    if len(statement.charges) <= _SHOWN:
        lines += [
            f"    {each.count} x {each.label}: {mechanism_in_words(each.mechanism)}" for each in statement.charges
        ]
    return lines


def _effects(effects: Effects) -> list[str]:
    shown = effects.with_verdicts()[:_SHOWN]
    lines = ["", "Which effects are larger than the noise of privacy explains?", f"  {effects.in_words}"]
    lines.append("  " + band_in_words("one standard deviation", "After ± stands"))
    name, against = (max((len(getattr(each, kind)) for each, _ in shown), default=0) for kind in ("name", "against"))
    for each, verdict in shown:
        compared = f"against {each.against}"
        lines.append(f"  {each.name:<{name}}  {compared:<{against + 8}}  {_number(each)}  {verdict}")
    if len(effects.compared) > _SHOWN:
        lines.append(f"  and {len(effects.compared) - _SHOWN} more, which stand out less")
    for each in effects.constants[:_SHOWN]:
        lines.append(f"  {each.name}: {_number(each).strip()} (noise of privacy alone), {START}")
    return [*lines, *(f"  {each}" for each in [effects.left_out_in_words] if each)]


def _number(effect: Effect) -> str:
    return f"{effect.value:+10.4g} ± {effect.noise:<9.3g}"


def _origin(statement: PrivacyStatement) -> list[str]:
    lines = [f"randomness: {statement.randomness}", f"arithmetic: {statement.arithmetic}"]
    if statement.account is not None:
        lines.append(f"the ledger {statement.account} has paid as well")
    if statement.fingerprint is not None:
        lines.append(f"fingerprint of the data, given by the caller: {statement.fingerprint}")
    return [*lines, f"written by dpdescent {statement.library_version}"]
