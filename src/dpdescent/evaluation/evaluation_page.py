"""An evaluation as one HTML page that loads nothing: measures, curves with bands, calibration and thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from ..statement import BLUE, GREY, PALE, PrivacyStatement, heading, headline, html_page, listing, picture, table
from .drift import Drift
from .measures import Measure
from .report import Evaluation

_SIZE, _LEFT, _TOP = 300.0, 56.0, 12.0
_CLASSES = 6  # whose curves are drawn

#: A point of a curve: across and up, and the ends of its interval upwards.
Point = tuple[float, float, float, float]


def page_of_evaluation(found: Evaluation, drift: Drift | None = None) -> str:
    """Return the page; everything on it follows from what was released."""
    statement = PrivacyStatement.from_dict(found.privacy)
    title = f"What {found.model} is worth"
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="guarantee">{escape(headline(statement))}</p>']
    parts += [heading("Measures", "measures"), _measures(found)]
    if found.scores:
        parts += [heading("Curves", "curves"), *_curves(found)]
        parts += [heading("Confusion counts", "confusion"), _confusion(found)]
    if drift is not None:
        parts += [heading("Against an earlier evaluation", "drift"), _drift(drift, found.level)]
    parts += [heading("What was released", "released"), listing(statement.released)]
    parts += [heading("What was assumed to be public", "public"), listing(statement.assumed_public)]
    spent = [(each.label, f"{statement.share(each):.1%}") for each in statement.charges]
    parts += [heading("Where the budget went", "budget"), table(("asked", "share of the budget"), spent)]
    return html_page(title, parts)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _measures(found: Evaluation) -> str:
    rows = []
    for each in found.measures:
        interval = each.remark if each.value is None else f"{_number(each.low)} to {_number(each.high)}"
        remark = "" if each.value is None else each.remark
        value = "not released" if each.value is None else _number(each.value)
        rows.append((each.name, value, interval, _number(each.privacy), _number(each.sampling), remark))
    note = (
        f'<p class="note">Intervals hold in {found.level:.0%} of cases. They cover the noise of privacy and the draw '
        "of the rows from a population; two columns have the standard deviation of either. They do not cover rows "
        "that come from another population, nor that rows which have trained a model make it look better.</p>"
    )
    header = ("measure", "value", f"{found.level:.0%} interval", "by privacy", "by sampling", "")
    return table(header, rows, words=(5,)) + note


def _curves(found: Evaluation) -> list[str]:
    parts = []
    several = len(found.classes) > 2
    for name in found.classes[:_CLASSES] if several else [None]:
        said = f"<p>{escape(str(name))} against the rest:</p>" if several else ""
        drawn = [
            _figure(_roc(found, name), "ROC curve with its band"),
            _figure(_pr(found, name), "precision and recall"),
        ]
        if found.scale != "score":
            drawn.append(_figure(_calibration(found, name), "calibration"))
        parts.append(f'{said}<div class="two">{"".join(drawn)}</div>')
    if not several:
        parts.append(_thresholds(found))
    elif len(found.classes) > _CLASSES:
        parts.append(f'<p class="note">The first {_CLASSES} of {len(found.classes)} classes are drawn.</p>')
    return parts


def _figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def _known(*measures: Measure) -> bool:
    return all(each.value is not None for each in measures)


def _point(across: float, up: Measure) -> Point:
    return across, up.value or 0.0, up.low or 0.0, up.high or 0.0


def _roc(found: Evaluation, name: object) -> str:
    points: list[Point] = [(0.0, 0.0, 0.0, 0.0)]
    points += [_point(alarms.value or 0.0, up) for alarms, up in found.roc(name) if _known(alarms, up)]
    points.append((1.0, 1.0, 1.0, 1.0))
    return _plot(_monotone(points), "false positive rate", "recall", diagonal=True)


def _monotone(points: list[Point]) -> list[Point]:
    """Return a curve that never falls or turns back, as the true one does not."""
    across, middle, low, high = (np.maximum.accumulate(each) for each in zip(*points, strict=True))
    return list(zip(across.tolist(), middle.tolist(), low.tolist(), high.tolist(), strict=True))


def _pr(found: Evaluation, name: object) -> str:
    curve = [each for each in found.curve(name) if _known(each.precision, each.recall)]
    points = [_point(each.recall.value or 0.0, each.precision) for each in curve]
    return _plot(sorted(points), "recall", "precision")


def _calibration(found: Evaluation, name: object) -> str:
    points = [_point(predicted, rate) for predicted, rate in found.calibration(name) if _known(rate)]
    return _plot(points, "predicted probability", "measured rate", diagonal=True, dots=True)


def _plot(points: Sequence[Point], across: str, up: str, *, diagonal: bool = False, dots: bool = False) -> str:
    """Return a curve in the unit square with a band, or dots with whiskers."""

    def place(x: float, y: float) -> str:
        return f"{_LEFT + _SIZE * x:.1f},{_TOP + _SIZE * (1 - y):.1f}"

    bottom = _TOP + _SIZE
    parts = [f'<rect x="{_LEFT}" y="{_TOP}" width="{_SIZE}" height="{_SIZE}" fill="none" stroke="#d9dce1"/>']
    if points and not dots:
        band = [place(x, high) for x, _, _, high in points] + [place(x, low) for x, _, low, _ in reversed(points)]
        parts.append(f'<polygon points="{" ".join(band)}" fill="{PALE}"/>')
    if diagonal:
        line = f'x1="{_LEFT}" y1="{bottom}" x2="{_LEFT + _SIZE}" y2="{_TOP}"'
        parts.append(f'<line {line} stroke="{GREY}" stroke-dasharray="4 4"/>')
    if points and not dots:
        curve = " ".join(place(x, y) for x, y, _, _ in points)
        parts.append(f'<polyline points="{curve}" fill="none" stroke="{BLUE}" stroke-width="2.2"/>')
    for x, y, low, high in points if dots else ():
        (centre, level), (_, bottom_end), (_, top_end) = (place(x, each).split(",") for each in (y, low, high))
        parts.append(
            f'<line x1="{centre}" x2="{centre}" y1="{bottom_end}" y2="{top_end}" stroke="{BLUE}" stroke-width="4" '
            f'opacity="0.35"/><circle cx="{centre}" cy="{level}" r="4" fill="{BLUE}"/>'
        )
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        right, height = place(share, share).split(",")
        parts.append(f'<text x="{right}" y="{bottom + 16:.0f}" text-anchor="middle">{share:g}</text>')
        parts.append(f'<text x="{_LEFT - 6:.0f}" y="{float(height) + 4:.0f}" text-anchor="end">{share:g}</text>')
    parts.append(f'<text x="{_LEFT + _SIZE / 2}" y="{bottom + 36}" text-anchor="middle">{escape(across)}</text>')
    turned = f'transform="rotate(-90 14 {_TOP + _SIZE / 2})"'
    parts.append(f'<text x="14" y="{_TOP + _SIZE / 2}" text-anchor="middle" {turned}>{escape(up)}</text>')
    return picture(_LEFT + _SIZE + 28, bottom + 46, f"{up} by {across}", parts)


def _thresholds(found: Evaluation) -> str:
    def cell(measure: Measure) -> str:
        return "" if measure.value is None else f"{measure.value:.3f} ({measure.low:.3f} to {measure.high:.3f})"

    rows = [
        (f"{each.value:.4g}", *(cell(m) for m in (each.precision, each.recall, each.rate))) for each in found.curve()
    ]
    kind = "score" if found.scale == "score" else "probability"
    return (
        f"<p>Decisions are for {escape(str(found.classes[-1]))} above a {kind} of {found.threshold:.4g}.</p>"
        "<details><summary>Every threshold</summary>"
        + table((f"{kind} above", "precision", "recall", "share of rows above"), rows)
        + "</details>"
    )


def _confusion(found: Evaluation) -> str:
    names = [str(each) for each in found.classes]
    rows = [(name, *(f"{cell:.0f}" for cell in row)) for name, row in zip(names, found.confusion, strict=True)]
    note = '<p class="note">Counts with noise: a small one may be below 0. True classes are in rows.</p>'
    return table(("", *(f"decided {name}" for name in names)), rows) + note


def _drift(drift: Drift, level: float) -> str:
    rows = [
        (each.name, *(_number(value) for value in (each.before, each.after, each.change, each.low, each.high)))
        for each in drift.changes
    ]
    header = ("measure", "before", "after", "change", f"{level:.0%} from", "to")
    return f"<p>{escape(drift.in_words)}</p>" + table(header, rows)
