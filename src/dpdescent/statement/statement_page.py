"""A statement as one HTML page that loads nothing, with pictures as SVG: the trade-off, the budget, the effects.

The parts of every such page come first: one style, headings, lists, tables and pictures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np
from scipy.special import expit

from ..display import CONTENT_POLICY, printable
from .meaning import (
    BEYOND,
    DIFFERS,
    FALSE_ALARMS,
    PRIORS,
    START,
    Effect,
    Effects,
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

BLUE, GREY, PALE = "#20639b", "#8a8f98", "#e3edf5"

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


def html_page(title: str, parts: Sequence[str], style: str = "") -> str:
    """Return a whole page of some parts, with rules of style beside those of every page."""
    page = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'{CONTENT_POLICY}\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head>\n<body><main>\n"
        + "\n".join(parts)
        + "\n</main></body></html>\n"
    )
    return printable(page, keep="\n")


def heading(title: str, anchor: str) -> str:
    """Return a heading that can be linked to."""
    return f'<h2 id="{anchor}">{escape(title)}</h2>'


def listing(sentences: Sequence[str]) -> str:
    """Return sentences as a list."""
    return "<ul>" + "".join(f"<li>{escape(each)}</li>" for each in sentences) + "</ul>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int] = ()) -> str:
    """Return a table; the columns named by ``words`` hold text."""
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


def picture(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    """Return a picture as SVG, as wide as the page at most."""
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" style="max-width:{width:.0f}px" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


_LETTERS = 42  # of a name
_DRAWN = 20  # effects
_NEAR = 36.0  # of two numbers below an axis


def page_of(statement: PrivacyStatement, effects: Effects | None = None) -> str:
    """Return the page; everything on it follows from the statement and from effects of a released model."""
    title = f"Privacy of {statement.model}"
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="guarantee">{escape(headline(statement))}</p>']
    parts += [f'<p class="warning">{escape(each)}</p>' for each in warnings_of(statement)]
    parts += [heading("What was released", "released"), listing(statement.released)]
    if statement.private:
        parts += [heading("What epsilon means here", "meaning"), _meaning(statement)]
        parts += [heading("Where the budget went", "budget"), _budget(statement)]
    if effects is not None:
        parts.append(heading(effects.heading, "effects"))
        parts.append(_effects(effects))
    parts += [heading("What was assumed to be public", "public"), listing(statement.assumed_public)]
    if statement.private:
        parts += [heading("What is not covered", "not-covered"), listing(not_covered(statement))]
    parts += [heading("How it was computed", "how"), table((), _origin(statement), words=(1,))]
    return html_page(title, parts)


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
        several = "<p>Somebody with several rows is protected by a larger epsilon, at the same delta:</p>" + table(
            ("rows", "epsilon"), rows
        )
    return (
        f"<p>{escape(relation_in_words(statement))} Whoever sees the release, and knows all the rest, wants to tell "
        "which of them it was. The curve is the best that any test can do; without the release it would be the "
        "dashed line.</p>"
        f'<div class="two"><figure>{trade_off_picture(statement)}</figure><div>'
        + table(("false alarms", "found, at most", "by blind guessing"), tests)
        + f"{several}</div></div>"
        f"<p>What somebody can reach, at most, who believes beforehand that {unit} is in the table:</p>"
        + table(
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
        + table(("asked", "mechanism, in units of the sensitivity", "times", "share", "rows"), rows, words=(1, 4))
        + "</details>"
    )


def _value_and_noise(effect: Effect) -> tuple[str, str]:
    if not math.isfinite(effect.noise):
        return "not known", "infinite"
    return f"{effect.value:.4g}", f"{effect.noise:.2g}"


def _effects(effects: Effects) -> str:
    rows = [(each.name, each.against, *_value_and_noise(each), verdict) for each, verdict in effects.with_verdicts()]
    starts = [
        (each.name, each.against, f"{each.value:.4g}", f"{each.noise:.2g}", START) for each in effects.constants
    ]
    drawn = f"The {_DRAWN} that stand out most are drawn. " if len(rows) > _DRAWN else ""
    known = any(math.isfinite(each.noise) for each in effects.compared)
    picture = f"<figure>{effect_picture(effects, _DRAWN)}</figure>" if known else ""
    band = effects.band("two", "To both sides of an effect, a line shows")
    return (
        f"<p>{escape(effects.in_words)} A level is compared with the mean of the levels of its column, one of two "
        f"levels with the other, and a column of numbers at its upper bound with its lower bound. {escape(band)} "
        f"{drawn}{escape(effects.left_out_in_words)}</p>"
        f"{picture}<details><summary>Every effect</summary>"
        + table(("effect", "compared with", "value", effects.of_band, "which is"), rows + starts, words=(1, 4))
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


def trade_off_picture(statement: PrivacyStatement) -> str:
    """Return the curve of false negatives over false positives, with the region that no test can reach."""
    left, top, size = 56.0, 12.0, 300.0
    curve = trade_off(statement)
    across = np.unique(np.concatenate([[0.0, 1.0], np.linspace(0, 1, 201), expit(np.linspace(-14, 14, 401))]))
    heights = curve.false_negatives(across)
    points = [f"{left + size * x:.2f},{top + size * (1 - y):.2f}" for x, y in zip(across, heights, strict=True)]
    corner = f"{left:.1f},{top + size:.1f}"
    parts = [
        f'<rect x="{left}" y="{top}" width="{size}" height="{size}" fill="none" stroke="#d9dce1"/>',
        f'<polygon points="{corner} {" ".join(points)}" fill="{PALE}"/>',
        f'<line x1="{left}" y1="{top}" x2="{left + size}" y2="{top + size}" stroke="{GREY}" stroke-dasharray="4 4"/>',
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{BLUE}" stroke-width="2.2"/>',
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = left + size * share, top + size * (1 - share)
        parts.append(f'<text x="{x:.0f}" y="{top + size + 16:.0f}" text-anchor="middle">{share:.0%}</text>')
        parts.append(f'<text x="{left - 6:.0f}" y="{y + 4:.0f}" text-anchor="end">{share:.0%}</text>')
    middle = left + size / 2
    parts.append(f'<text x="{middle}" y="{top + size + 36}" text-anchor="middle">false positives</text>')
    turned = f'transform="rotate(-90 14 {top + size / 2})"'
    parts.append(f'<text x="14" y="{top + size / 2}" text-anchor="middle" {turned}>false negatives</text>')
    parts.append(f'<text x="{left + 0.56 * size}" y="{top + 0.38 * size}" fill="{GREY}">blind guessing</text>')
    level = float(np.interp(0.25, across, heights))
    if level > 0.3:
        parts.append(f'<text x="{left + 12}" y="{top + size - 14}" fill="{BLUE}">out of reach for every test</text>')
    label = "Least share of false negatives of any test, by its share of false positives"
    return picture(left + size + 28, top + size + 46, label, parts)


def budget_picture(statement: PrivacyStatement) -> str:
    """Return a bar for each kind of query, and one for what is left."""
    left_over = max(0.0, 1 - statement.spent / statement.budget)
    bars = [(name, share, BLUE) for name, share in where_it_went(statement)]
    if left_over > 0.0005:
        bars.append(("not spent", left_over, GREY))
    return _bars(bars, "Share of the budget by kind of query")


def _bars(bars: Sequence[tuple[str, float, str]], label: str) -> str:
    start, width, step = 300.0, 300.0, 28.0
    largest = max((share for _, share, _ in bars), default=1.0)
    parts = []
    for number, (name, share, colour) in enumerate(bars):
        y = 6 + step * number
        length = max(1.0, width * share / largest)
        parts.append(_label(name, start, y + 13))
        parts.append(f'<rect x="{start}" y="{y}" width="{length:.1f}" height="18" rx="2" fill="{colour}"/>')
        parts.append(f'<text x="{start + length + 6:.1f}" y="{y + 13}">{share:.1%}</text>')
    return picture(start + width + 60, 12 + step * len(bars), label, parts)


def effect_picture(effects: Effects, most: int) -> str:
    """Return a line of two standard deviations of noise to both sides of each of the first effects."""
    start, width, step, top = 300.0, 300.0, 22.0, 8.0
    drawn = [each for each in effects.with_verdicts() if math.isfinite(each[0].noise)][:most]
    lines = [tuple(each.value + sigmas * each.noise for sigmas in (-2, 0, 2)) for each, _ in drawn]
    lowest = min(0.0, *(low for low, _, _ in lines))
    highest = max(0.0, *(high for _, _, high in lines), lowest + 1e-300)

    def across(value: float) -> float:
        return start + width * (value - lowest) / (highest - lowest)

    bottom, zero = top + step * len(drawn), across(0.0)
    parts = [f'<line x1="{zero:.1f}" x2="{zero:.1f}" y1="{top}" y2="{bottom}" stroke="{GREY}"/>']
    for number, ((each, verdict), line) in enumerate(zip(drawn, lines, strict=True)):
        y = top + step * (number + 0.5)
        colour = BLUE if verdict in (BEYOND, DIFFERS) else GREY
        low, middle, high = map(across, line)
        against = f" against {each.against}" if each.against else ""
        tip = escape(f"{each.name}{against}: {each.value:.4g} ± {each.noise:.2g}, {verdict}")
        parts.append(_label(each.name, start, y + 4))
        parts.append(
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}" '
            'stroke-width="5" stroke-linecap="round" opacity="0.35"/>'
        )
        parts.append(f'<circle cx="{middle:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{tip}</title></circle>')
    for value in (each for each in (lowest, highest) if abs(across(each) - zero) > _NEAR):
        parts.append(f'<text x="{across(value):.1f}" y="{bottom + 16}" text-anchor="middle">{value:.3g}</text>')
    parts.append(f'<text x="{zero:.1f}" y="{bottom + 16}" text-anchor="middle">0</text>')
    return picture(start + width + 40, bottom + 24, "Effects, and to both sides of each two deviations", parts)


def _label(name: str, end: float, height: float) -> str:
    """Return a name that ends left of a picture; long ones are cut, and wide ones are drawn narrower."""
    shown, room = name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…", end - 16
    wide = sum(11.0 if letter.isupper() or letter in "mw%@" else 7.2 for letter in shown) > room
    narrow = f' textLength="{room:.0f}" lengthAdjust="spacingAndGlyphs"' if wide else ""
    tip = f"<title>{escape(name)}</title>" if shown != name else ""
    return f'<text x="{end - 8}" y="{height:.1f}" text-anchor="end"{narrow}>{escape(shown)}{tip}</text>'
