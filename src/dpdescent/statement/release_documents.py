"""What travels with a released model: a page, a card, a checklist and an entry for a registry, none with a gap.

What a statement knows is filled in. What only people know is a question with a name (`QUESTIONS`), and a release
without an answer to each is refused.

The checklist follows the parts of NIST SP 800-226: the unit and the parameters of privacy, the mechanisms and their
accounting, the trust model, side channels and arithmetic, data collection, and what else is known of the same people.
A registry entry has what Dwork, Kohli & Mulligan (2019) ask of an epsilon registry. The parameter of Gaussian DP is
first where there is one, because it tells the whole trade-off curve, and epsilon follows at several deltas (Gomez et
al. 2025).

References
----------
Dwork, C., Kohli, N. & Mulligan, D. (2019). Differential privacy in practice: expose your epsilons! Journal of Privacy
and Confidentiality 9(2).
Gomez, J. et al. (2025). Gaussian DP for reporting differential privacy guarantees in machine learning.
arXiv:2503.10945.
Near, J. et al. (2025). Guidelines for evaluating differential privacy guarantees. NIST SP 800-226.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from typing import Any

from ..display import printable
from ..errors import InvalidParameter
from .meaning import accountant_in_words, guarantee, headline, not_covered, relation_in_words, warnings_of
from .privacy_statement import Origin, PrivacyStatement
from .statement_page import heading, html_page, listing, table

#: What only people know, by name.
QUESTIONS: Mapping[str, str] = {
    "title": "What is the release called?",
    "contact": "Who answers questions about it?",
    "intended_use": "What is the model for, and what is it not for?",
    "limitations": "For whom does it predict badly, and how was that found out?",
    "trust_model": "Who held the rows, and who is trusted not to look at them?",
    "data_collection": "How and when were the rows collected, and on what legal ground or consent?",
    "side_channels": "Who could see the machine while it ran: its time, its memory, its errors?",
    "access": "Who may read the rows, and how long are they kept?",
    "other_releases": "What else was released about the same people, and at which epsilon?",
    "rationale": "Why this unit, this epsilon and this delta?",
}
#: Asked where the noise came from a seed.
SEED_QUESTION = (
    "Who knows the seed, from which the noise can be drawn again, and why is the model released all the same?"
)
_DELTAS = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)


def questions_of(statement: PrivacyStatement) -> dict[str, str]:
    """Return what must be answered for a release."""
    seeded = "seeded" in statement.randomness
    return {**QUESTIONS, **({"seed": SEED_QUESTION} if seeded else {})}


def require_answers(statement: PrivacyStatement, answers: Mapping[str, Any]) -> dict[str, str]:
    """Return the answers, or raise `InvalidParameter` with the name of every question that is open or unknown."""
    questions = questions_of(statement)
    unknown = [name for name in answers if name not in questions]
    if unknown:
        raise InvalidParameter(
            f"no question is called {', '.join(map(repr, unknown))}: they are {', '.join(questions)}"
        )
    found = {name: answers.get(name) for name in questions}
    wrong = [name for name, answer in found.items() if answer is not None and not isinstance(answer, str)]
    if wrong:
        raise InvalidParameter(f"the answer to {wrong[0]} must be a text")
    open_ones = [f"{name} ({questions[name]})" for name, answer in found.items() if not (answer or "").strip()]
    if open_ones:
        raise InvalidParameter(
            f"a release has no gaps, and these are open: {'; '.join(open_ones)} Answer each by --answer NAME=TEXT or "
            "in a JSON file by --answers FILE; --draft FILE writes one to fill in"
        )
    return {name: printable(str(answer).strip()) for name, answer in found.items()}


def mu_of(statement: PrivacyStatement) -> float | None:
    """Return mu such that the guarantee is mu-GDP but for failures (`failures_of`); None where none is known."""
    currency = statement.currency
    if currency is None or currency.name not in ("gdp", "pure"):
        return None
    if currency.name == "gdp":
        return math.sqrt(statement.budget)
    from ..accounting import PureDP

    return math.sqrt(PureDP(statement.budget).mu_squared())


def failures_of(statement: PrivacyStatement) -> float:
    """Return the probability with which mechanisms may fail to be mu-GDP: 0 if none of those listed may."""
    if statement.currency is None or not any(charge.mechanism.delta for charge in statement.charges):
        return 0.0
    return float(Fraction(statement.delta) * statement.currency.uncounted)


def epsilons_of(statement: PrivacyStatement) -> list[tuple[float, float]]:
    """Return (delta, epsilon) at the stated delta and at others that exceed what is kept for failures."""
    currency = statement.currency
    if currency is None or currency.name in ("pure", "approximate"):
        return [(statement.delta, statement.epsilon)]
    kept = float(Fraction(statement.delta) * currency.uncounted)
    others = {delta: currency.epsilon(statement.budget, delta - kept) for delta in _DELTAS if delta > 2 * kept}
    return sorted((others | {statement.delta: statement.epsilon}).items(), reverse=True)


def flavour_of(statement: PrivacyStatement) -> str:
    """Return the definition of privacy with its numbers, that of Gaussian DP first."""
    mu = mu_of(statement)
    pair = guarantee(statement.epsilon, statement.delta, statement.relation, statement.unit)
    return pair if mu is None else f"{mu:.4g}-Gaussian differential privacy{_but_for(statement)}, {pair}"


def _but_for(statement: PrivacyStatement) -> str:
    failing = failures_of(statement)
    return f" but for a probability of {failing:.3g}" if failing else ""


@dataclass(frozen=True)
class Release:
    """What the documents of a release are made of."""

    statement: PrivacyStatement
    answers: Mapping[str, str]  # one for each of `questions_of`
    facts: Mapping[str, str]  # what the model is: names and values of a table
    verified: tuple[str, ...]  # what an independent check said
    audited: tuple[str, ...]  # what an audit found, or that there was none
    date: str

    def parameters(self) -> list[tuple[str, str]]:
        """Return the parameters of privacy, mu first."""
        mu = mu_of(self.statement)
        none = "none is known: the guarantee was accounted for in another definition"
        said = [("mu of Gaussian DP", none if mu is None else f"{mu:.6g}{_but_for(self.statement)}")]
        return said + [
            (f"epsilon at delta {delta:g}", f"{epsilon:.4g}") for delta, epsilon in epsilons_of(self.statement)
        ]

    def unprotected(self) -> list[str]:
        """Return what the guarantee does not protect: what was assumed to be public, and what was read unpaid."""
        unpaid = f" ({Origin.ROWS})"
        return [
            f"NOT PAID FOR: {each}" if each.endswith(unpaid) else each for each in self.statement.assumed_public
        ] or ["nothing was assumed to be public"]

    def checklist(self) -> list[tuple[str, str, str]]:
        """Return part, item and answer of every line of the checklist."""
        stated, answers = self.statement, self.answers
        mechanisms = [f"{count} x {kind}" for kind, count in stated.mechanisms.items()]
        seed = [("Side channels", "seed", answers["seed"])] if "seed" in answers else []
        return [
            ("Guarantee", "unit of privacy", stated.unit),
            ("Guarantee", "neighbouring tables", relation_in_words(stated)),
            *(("Guarantee", name, value) for name, value in self.parameters()),
            ("Guarantee", "why these", answers["rationale"]),
            ("Guarantee", "not covered", " ".join(not_covered(stated))),
            ("Guarantee", "unprotected quantities", "; ".join(self.unprotected())),
            ("Mechanisms", "mechanisms", "; ".join([*mechanisms, "statement.json lists each with its noise"])),
            ("Mechanisms", "accounting", accountant_in_words(stated)),
            ("Mechanisms", "implementation", f"dpdescent {stated.library_version}, method {stated.method}"),
            ("Mechanisms", "independent check", "; ".join(self.verified)),
            ("Mechanisms", "audit", "; ".join(self.audited)),
            ("Trust", "trust model", answers["trust_model"]),
            ("Trust", "access to the rows", answers["access"]),
            ("Side channels", "arithmetic", stated.arithmetic),
            ("Side channels", "randomness", stated.randomness),
            *seed,
            ("Side channels", "machine", answers["side_channels"]),
            ("Data", "data collection", answers["data_collection"]),
            ("Data", "what was released", "; ".join(stated.released)),
            ("Data", "other releases about the same people", answers["other_releases"]),
            ("Use", "intended use", answers["intended_use"]),
            ("Use", "limitations", answers["limitations"]),
            ("Use", "contact", answers["contact"]),
        ]

    def registry_entry(self) -> dict[str, Any]:
        """Return an entry for a public registry of private releases."""
        stated = self.statement
        return {
            "title": self.answers["title"],
            "date": self.date,
            "contact": self.answers["contact"],
            "flavour": flavour_of(stated),
            "unit": {"protected": stated.unit, "neighbours": relation_in_words(stated)},
            "parameters": {
                "mu": mu_of(stated),
                "failure": failures_of(stated),
                "epsilon": stated.epsilon,
                "delta": stated.delta,
                "epsilon_at": [{"delta": delta, "epsilon": epsilon} for delta, epsilon in epsilons_of(stated)],
            },
            "unprotected_quantities": self.unprotected(),
            "released": list(stated.released),
            "accounting": {
                "definition": accountant_in_words(stated),
                "budget": stated.budget,
                "spent": stated.spent,
                "mechanisms": stated.mechanisms,
                "independent_check": list(self.verified),
            },
            "implementation": {
                "library": f"dpdescent {stated.library_version}",
                "model": stated.model,
                "method": stated.method,
                "randomness": stated.randomness,
                "arithmetic": stated.arithmetic,
                "audit": list(self.audited),
            },
            "trust_model": self.answers["trust_model"],
            "other_releases": self.answers["other_releases"],
            "rationale": self.answers["rationale"],
        }

    def card(self) -> str:
        """Return the model card, as Markdown."""
        stated, answers = self.statement, self.answers
        rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in [*self.facts.items(), *self.parameters()]]
        parts = [
            f"# {_cell(answers['title'])}",
            headline(stated),
            *(f"**Warning.** {each}" for each in warnings_of(stated)),
            "## Model\n\n| | |\n| --- | --- |\n" + "\n".join(rows),
            f"## Intended use\n\n{_cell(answers['intended_use'])}",
            f"## Limitations\n\n{_cell(answers['limitations'])}",
            f"## Data\n\n{_cell(answers['data_collection'])}",
            "## Not protected\n\n" + "\n".join(f"- {_cell(each)}" for each in self.unprotected()),
            f"## Why this epsilon\n\n{_cell(answers['rationale'])}",
            f"## Contact\n\n{_cell(answers['contact'])}",
        ]
        return "\n\n".join(parts) + "\n"

    def page(self, files: Sequence[tuple[str, str]], picture: str = "") -> str:
        """Return the page of the release; ``files`` are names with what is in them."""
        stated = self.statement
        parts = [
            f"<h1>{escape(self.answers['title'])}</h1>",
            f'<p class="guarantee">{escape(headline(stated))}</p>',
            *(f'<p class="warning">{escape(each)}</p>' for each in warnings_of(stated)),
            heading("How private it is", "privacy"),
            table(("parameter", "value"), self.parameters(), words=(1,)),
            heading("The model", "model"),
            table((), list(self.facts.items()), words=(1,)),
            heading("Checked by other code", "check"),
            listing(self.verified),
            heading("Audit", "audit"),
            listing(self.audited),
            picture,
            heading("Checklist, after NIST SP 800-226", "checklist"),
            *_by_part(self.checklist()),
            heading("Files", "files"),
            _files(files),
        ]
        return html_page(self.answers["title"], parts)


def _by_part(lines: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return a table for each part of the checklist."""
    parts: dict[str, list[tuple[str, str]]] = {}
    for part, item, answer in lines:
        parts.setdefault(part, []).append((item, answer))
    return [f"<h3>{escape(part)}</h3>{table((), rows, words=(1,))}" for part, rows in parts.items()]


def _files(files: Sequence[tuple[str, str]]) -> str:
    rows = "".join(
        f'<tr><td><a href="{escape(name)}">{escape(name)}</a></td><td class="words">{escape(what)}</td></tr>'
        for name, what in files
    )
    return f'<div class="scroll"><table><tbody>{rows}</tbody></table></div>'


def _cell(text: str) -> str:
    """Return a text that is no markup."""
    safe = escape(" ".join(text.split()), quote=False).replace("\\", "\\\\")
    for mark in "|*_`[]#":
        safe = safe.replace(mark, f"\\{mark}")
    return safe
