"""The parts of a page: one style, headings, lists, tables and pictures, in HTML that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ..display import CONTENT_POLICY, printable

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


def html_page(title: str, parts: Sequence[str]) -> str:
    """Return a whole page of some parts."""
    page = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'{CONTENT_POLICY}\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><main>\n"
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
