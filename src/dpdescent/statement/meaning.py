r"""What a statement means to a person: the guarantee, the best that an attacker can do, and what is not covered.

`headline` is the sentence with which every page, picture, print-out and statement begins. There is one so that no two
of them can differ. It says whose rows are protected, and what was read from them without being paid for, or that none
are.

All of it follows from the statement, so that nothing here touches a row or costs privacy.

Which effects of a model are larger than the noise of privacy explains, and what each was compared with.

An effect is tested against noise of its own deviation, and all of them together by Holm's rule: sorted by p-value,
the i-th of m must have one of at most a/(m - i + 1), and so must all before it. If noise alone made the effects, one
or more would pass with a probability of at most a, however they depend on each other (Holm 1979).

The band is of the noise of privacy only. A model also has the error of its sample of rows, and clipping pulls the
effects of rare levels towards the commoner class; neither is in the band, and every sentence says so.

A statement as lines for a terminal.

References
----------
Holm, S. (1979). A simple sequentially rejective multiple test procedure. Scandinavian Journal of Statistics 6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from scipy.stats import norm

from ..accounting import GDP, ZCDP, Currency, Pure, sampler_delta
from ..display import printable
from ..ledger import ONE_ROW
from ..relations import Relation
from .privacy_statement import ALL_ROWS, PrivacyStatement, exceptions_noted

if TYPE_CHECKING:
    from ..accounting import TradeOff

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
    from ..accounting import TradeOff

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


#: The probability that noise alone makes one or more effects pass.
LEVEL = 0.05
#: The part of it that is left for columns that never vary and pass for columns that do.
UNSEEN_LEVEL = 0.005

BEYOND, WITHIN = "beyond the noise of privacy alone", "within the noise of privacy alone"
#: What a constant is the score of.
START = "the score of a row at the mean of the levels compared, with numbers at the bound nearest to 0"


@dataclass(frozen=True)
class Effect:
    """A difference of scores that a model can identify, and one standard deviation of what noise does to it."""

    name: str  # the column or the level
    against: str  # what it is compared with
    #: The difference, and the deviation that the noise of privacy gives it.
    value: float
    noise: float

    @property
    def distance(self) -> float:
        """How many standard deviations of its noise the effect is away from 0."""
        if self.noise > 0:
            return abs(self.value) / self.noise
        return math.inf if self.value else 0.0


@dataclass(frozen=True)
class Effects:
    """The effects of a model, those that stand out most first."""

    compared: Sequence[Effect]  # in any order
    #: The score, of each class if there are several, from which effects count. They are not tested.
    constants: Sequence[Effect] = ()
    #: The number of columns that are not spoken of, because nothing that was released shows that they vary, or that
    #: another level of the same column does.
    left_out: int = 0

    #: What is asked about them, and what follows a number after ±.
    heading: ClassVar[str] = "Which effects are larger than the noise of privacy explains?"
    of_band: ClassVar[str] = "noise of privacy alone"

    def __post_init__(self) -> None:
        object.__setattr__(self, "compared", tuple(sorted(self.compared, key=lambda each: -each.distance)))

    def band(self, number: str, where: str) -> str:
        """Return what a band of one or two deviations is."""
        return band_in_words(f"{number} standard deviation{'' if number == 'one' else 's'}", where)

    @property
    def beyond(self) -> int:
        """How many of the first effects are larger than noise explains."""
        for passed, each in enumerate(self.compared):
            p_value = 2 * float(norm.sf(each.distance))
            if p_value > (LEVEL - UNSEEN_LEVEL) / (len(self.compared) - passed):
                return passed
        return len(self.compared)

    def with_verdicts(self) -> list[tuple[Effect, str]]:
        """Return every effect with whether it is beyond what the noise of privacy explains."""
        beyond = self.beyond
        return [(each, BEYOND if place < beyond else WITHIN) for place, each in enumerate(self.compared)]

    @property
    def in_words(self) -> str:
        """What was tested, and what came out."""
        return (
            f"{self.beyond} of {len(self.compared)} effects are larger than the noise of privacy explains, all "
            f"tested together at {LEVEL:.0%} (Holm's rule)."
        )

    @property
    def left_out_in_words(self) -> str:
        """Why some columns are not spoken of; empty if there are none."""
        if not self.left_out:
            return ""
        return (
            f"Columns left out: {self.left_out}. What was released does not show that they vary, or that another "
            "level does with which to compare them."
        )


DIFFERS, MAY_DIFFER = "differs from 0", "may differ"


@dataclass(frozen=True)
class InferredEffects(Effects):
    """Effects with intervals of sampling and privacy together; the noise of each is its standard error."""

    #: By name and comparison: "differs from 0" where the simultaneous interval leaves 0 out, "may differ" where only
    #: its own does, "not resolved" where noise hides it, or "".
    verdicts: Mapping[tuple[str, str], str] = field(default_factory=dict)
    level: float = 0.95  # that of the intervals
    remarks: Sequence[str] = ()  # what a reader should know of them

    heading: ClassVar[str] = "Which effects differ from 0?"
    of_band: ClassVar[str] = "standard error"

    def with_verdicts(self) -> list[tuple[Effect, str]]:
        return [(each, self.verdicts[each.name, each.against]) for each in self.compared]

    @property
    def beyond(self) -> int:
        return list(self.verdicts.values()).count(DIFFERS)

    @property
    def in_words(self) -> str:
        maybe = list(self.verdicts.values()).count(MAY_DIFFER)
        return (
            f"{self.beyond} of {len(self.compared)} effects differ from 0: intervals that cover all of them together "
            f"with probability {self.level:.4g} leave 0 out. {maybe} more may differ: only their own intervals do."
        )

    def band(self, number: str, where: str) -> str:
        errors = f"{number} standard error{'' if number == 'one' else 's'}"
        return " ".join([f"{where} {errors}, of sampling and privacy together.", *self.remarks])


def band_in_words(deviations: str, where: str) -> str:
    """Return what a band is, and what is not in it."""
    return (
        f"{where} {deviations} of the noise of privacy alone. It does not say how much the effects would differ with "
        "another sample of people, or what clipping does to them."
    )


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
    lines = ["", effects.heading, f"  {effects.in_words}"]
    lines.append("  " + effects.band("one", "After ± stands"))
    name, against = (max((len(getattr(each, kind)) for each, _ in shown), default=0) for kind in ("name", "against"))
    for each, verdict in shown:
        compared = f"against {each.against}" if each.against else ""
        lines.append(f"  {each.name:<{name}}  {compared:<{against + 8}}  {_number(each)}  {verdict}")
    if len(effects.compared) > _SHOWN:
        lines.append(f"  and {len(effects.compared) - _SHOWN} more, which stand out less")
    for each in effects.constants[:_SHOWN]:
        lines.append(f"  {each.name}: {_number(each).strip()} ({effects.of_band}), {START}")
    return [*lines, *(f"  {each}" for each in [effects.left_out_in_words] if each)]


def _number(effect: Effect) -> str:
    if not math.isfinite(effect.noise):
        return f"{'not known':>10} {'':<11}"
    return f"{effect.value:+10.4g} ± {effect.noise:<9.3g}"


def _origin(statement: PrivacyStatement) -> list[str]:
    lines = [f"randomness: {statement.randomness}", f"arithmetic: {statement.arithmetic}"]
    if statement.account is not None:
        lines.append(f"the ledger {statement.account} has paid as well")
    if statement.fingerprint is not None:
        lines.append(f"fingerprint of the data, given by the caller: {statement.fingerprint}")
    return [*lines, f"written by dpdescent {statement.library_version}"]
