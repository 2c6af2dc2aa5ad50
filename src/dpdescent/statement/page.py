"""A statement as one HTML page that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ..display import CONTENT_POLICY, printable
from .document import PrivacyStatement
from .effects import START, Effects, band_in_words
from .headline import headline
from .meaning import (
    FALSE_ALARMS,
    PRIORS,
    accountant_in_words,
    mechanism_in_words,
    not_covered,
    of_several_rows,
    percent,
    relation_in_words,
    side_by_side,
    trade_off,
    warnings_of,
)
from .pictures import budget_picture, effect_picture, trade_off_picture

__all__ = ["page_of"]

_DRAWN = 20  # effects

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #22262b; background: #fff; max-width: 58rem; margin: 2.5rem auto;
  padding: 0 1.25rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .5rem; border-bottom: 1px solid #d9dce1; padding-bottom: .25rem; }
.guarantee { font-size: 1.15rem; margin: .25rem 0 1rem; }
.warning { background: #fbeee8; border-left: 4px solid #b5532a; padding: .5rem .75rem; margin: .5rem 0; }
.two { display: flex; flex-wrap: wrap; gap: 1rem 2rem; align-items: flex-start; }
.two > figure { flex: 0 1 374px; margin: 0; } .two > div { flex: 1 1 20rem; }
figure { margin: 1rem 0; } svg { width: 100%; height: auto; display: block; }
svg text { font: 13px system-ui, sans-serif; fill: #444b52; }
figcaption, .note { color: #5a616b; font-size: .9rem; }
table { border-collapse: collapse; font-size: .9rem; margin: .5rem 0 1rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem .25rem 0; text-align: right; vertical-align: top; border-bottom: 1px solid #eceef1; }
th:first-child, td:first-child, td.words { text-align: left; } thead th { border-bottom: 1.5px solid #22262b; }
.scroll { overflow-x: auto; } td.words { overflow-wrap: anywhere; } li { margin: .2rem 0; }
@media print { body { margin: 0; max-width: none; } h2 { break-after: avoid; }
  figure, table { break-inside: avoid; } }
"""


def page_of(statement: PrivacyStatement, effects: Effects | None = None) -> str:
    """Return the page; everything on it follows from the statement and from effects of a released model."""
    title = f"Privacy of {statement.model}"
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="guarantee">{escape(headline(statement))}</p>']
    parts += [f'<p class="warning">{escape(each)}</p>' for each in warnings_of(statement)]
    parts += [_heading("What was released", "released"), _list(statement.released)]
    if statement.private:
        parts += [_heading("What epsilon means here", "meaning"), _meaning(statement)]
        parts += [_heading("Where the budget went", "budget"), _budget(statement)]
    if effects is not None:
        parts.append(_heading("Which effects are larger than the noise of privacy explains?", "effects"))
        parts.append(_effects(effects))
    parts += [_heading("What was assumed to be public", "public"), _list(statement.assumed_public)]
    if statement.private:
        parts += [_heading("What is not covered", "not-covered"), _list(not_covered(statement))]
    parts += [_heading("How it was computed", "how"), _table((), _origin(statement), words=(1,))]
    page = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'{CONTENT_POLICY}\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><main>\n"
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )
    return printable(page, keep="\n")


def _meaning(statement: PrivacyStatement) -> str:
    curve = trade_off(statement)
    tests = [
        (f"{alarms:.1%}", percent(1 - float(curve.false_negatives(alarms))), f"{alarms:.1%}")
        for alarms in FALSE_ALARMS
    ]
    beliefs = [
        (
            f"{prior:.0%}",
            percent(max(prior, 1 - prior)),
            percent(curve.right_guesses(prior)),
            percent(curve.belief_after(prior, 0.05)),
            percent(curve.belief_after(prior, 0.001)),
        )
        for prior in PRIORS
    ]
    unit = escape(statement.unit)
    groups = of_several_rows(statement) if statement.unit == "one row" else []
    several = ""
    if groups:
        rows = [(str(count), f"{epsilon:.3g}") for count, epsilon in groups]
        several = "<p>Somebody with several rows is protected by a larger epsilon, at the same delta:</p>" + _table(
            ("rows", "epsilon"), rows
        )
    return (
        f"<p>{escape(relation_in_words(statement))} Whoever sees the release, and knows all the rest, wants to tell "
        "which of them it was. The curve is the best that any test can do; without the release it would be the "
        "dashed line.</p>"
        f'<div class="two"><figure>{trade_off_picture(statement)}</figure><div>'
        + _table(("false alarms", "found, at most", "by blind guessing"), tests)
        + f"{several}</div></div>"
        f"<p>What somebody can reach, at most, who believes beforehand that {unit} is in the table:</p>"
        + _table(
            (
                "belief before",
                "right guesses without the release",
                "with it",
                "belief after an alarm that is false 1 in 20 times",
                "1 in 1,000 times",
            ),
            beliefs,
        )
    )


def _budget(statement: PrivacyStatement) -> str:
    rows = [
        (each.label, mechanism_in_words(each.mechanism), str(each.count), f"{statement.share(each):.2%}", each.rows)
        for each in statement.charges
    ]
    spent = statement.spent / statement.budget
    kinds = ", ".join(f"{count} x {kind}" for kind, count in statement.mechanisms.items())
    rule = escape(str(statement.to_dict()["filter"]))
    return (
        f"<p>Charges are added up by {accountant_in_words(statement)}; the accountant {rule}. "
        f"{spent:.1%} was spent. {side_by_side(statement)} Mechanisms, each charged before a row was touched: "
        f"{escape(kinds)}.</p>"
        f"<figure>{budget_picture(statement)}</figure><details><summary>Every charge</summary>"
        + _table(("asked", "mechanism, in units of the sensitivity", "times", "share", "rows"), rows, words=(1, 4))
        + "</details>"
    )


def _effects(effects: Effects) -> str:
    rows = [
        (each.name, each.against, f"{each.value:.4g}", f"{each.noise:.2g}", verdict)
        for each, verdict in effects.with_verdicts()
    ]
    starts = [
        (each.name, each.against, f"{each.value:.4g}", f"{each.noise:.2g}", START) for each in effects.constants
    ]
    drawn = f"The {_DRAWN} that stand out most are drawn. " if len(rows) > _DRAWN else ""
    picture = f"<figure>{effect_picture(effects, _DRAWN)}</figure>" if rows else ""
    band = band_in_words("two standard deviations", "To both sides of an effect, a line shows")
    return (
        f"<p>{escape(effects.in_words)} A level is compared with the mean of the levels of its column, one of two "
        f"levels with the other, and a column of numbers at its upper bound with its lower bound. {escape(band)} "
        f"{drawn}{escape(effects.left_out_in_words)}</p>"
        f"{picture}<details><summary>Every effect</summary>"
        + _table(
            ("effect", "compared with", "value", "noise of privacy alone", "which is"), rows + starts, words=(1, 4)
        )
        + "</details>"
    )


def _origin(statement: PrivacyStatement) -> list[tuple[str, str]]:
    given = {
        "method": statement.method,
        "randomness": statement.randomness,
        "arithmetic": statement.arithmetic,
        "steps": statement.steps,
        "rate of batches": statement.sampling_rate,
        "noise multiplier": statement.noise_multiplier,
        "clip norm": statement.clip_norm,
        "also paid by the ledger": statement.account,
        "fingerprint of the data": statement.fingerprint,
        "remarks": "; ".join(statement.remarks) or None,
        "written by": f"dpdescent {statement.library_version}",
    }
    return [
        (name, f"{value:.6g}" if isinstance(value, float) else str(value))
        for name, value in given.items()
        if value is not None
    ]


def _heading(title: str, anchor: str) -> str:
    return f'<h2 id="{anchor}">{escape(title)}</h2>'


def _list(sentences: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(each)}</li>" for each in sentences) + "</ul>"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int] = ()) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join(
        "<tr>"
        + "".join(f"<td{_kind(number in words)}>{escape(cell)}</td>" for number, cell in enumerate(row))
        + "</tr>\n"
        for row in rows
    )
    top = f"<thead><tr>{head}</tr></thead>" if header else ""
    return f'<div class="scroll"><table>{top}<tbody>\n{body}</tbody></table></div>'


def _kind(words: bool) -> str:
    return ' class="words"' if words else ""
