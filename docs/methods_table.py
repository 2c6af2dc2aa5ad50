"""Write the tables of the manual from the registry: `python docs/methods_table.py`.

The pages hold the tables, so that they can be read in the repository; a test fails when they are out of date.
"""

from __future__ import annotations

import re
from pathlib import Path

from dpdescent.accounting import Currency
from dpdescent.errors import UnsupportedLoss
from dpdescent.problems import Hinge, Huber, HuberisedHinge, Logistic, Multinomial, Poisson, Squared
from dpdescent.solvers import METHODS, PAPER_MODES, PAPERS, Facts, Method

FOLDER = Path(__file__).parent
PAGES = ("methods.md", "papers.md", "side-by-side.md")
TYPICAL = Facts(epsilon=1.0, delta=1e-6, relation="zero-out", rows=10_000, parameters=10)
GUARANTEES = {
    "gdp": "(ε, δ), by Gaussian DP",
    "zcdp": "(ε, δ), by zCDP",
    "rdp": "(ε, δ), by Rényi DP at one order",
    "pure": "ε, pure DP",
    "approximate": "(ε, δ), directly",
}
LOSSES = {
    "logistic": Logistic(),
    "multinomial": Multinomial(3),
    "hinge": Hinge(),
    "huberised hinge": HuberisedHinge(),
    "squared": Squared(),
    "Huber": Huber(1.0, 1.0),
    "Poisson": Poisson(0.5),
}


def guarantee(method: Method) -> str:
    """Return what a run of the method promises, and in which currency its releases are added up."""
    if not method.private:
        return "**none**"
    currency = method.settings().choose_currency(TYPICAL)
    return GUARANTEES[currency.name if isinstance(currency, Currency) else currency]


def losses(method: Method) -> str:
    """Return the losses that the method can minimise."""
    able = [name for name, loss in LOSSES.items() if _accepts(method, loss)]
    return "all" if len(able) == len(LOSSES) else ", ".join(able)


def _accepts(method: Method, loss: object) -> bool:
    try:
        method.require(loss)  # type: ignore[arg-type]
    except UnsupportedLoss:
        return False
    return True


def methods_table() -> str:
    """Return a Markdown table with a line for each method."""
    lines = ["| method | what for | guarantee | passes over the rows | paper |", "| --- | --- | --- | --- | --- |"]
    for name, method in sorted(METHODS.items(), key=lambda item: (item[0] != "auto", item[0])):
        papers = ", ".join(f"[{paper}](papers.md#{anchor(paper)})" for paper in method.papers)
        lines.append(f"| `{name}` | {method.purpose} | {guarantee(method)} | {method.passes} | {papers} |")
    return "\n".join(lines)


def payments_table() -> str:
    """Return a Markdown table of the losses that each method minimises and the ledgers that can pay for it."""
    lines = ["| method | losses | currency of a shared ledger |", "| --- | --- | --- |"]
    for name, method in sorted(METHODS.items(), key=lambda item: (item[0] != "auto", item[0])):
        currencies = ", ".join(f"`{each}`" for each in method.settings().payment.currencies)
        lines.append(f"| `{name}` | {losses(method)} | {currencies if method.private else 'none'} |")
    return "\n".join(lines)


def papers_list() -> str:
    """Return a Markdown section for each paper, with the methods that come from it."""
    sections = []
    for paper, citation in sorted(PAPERS.items()):
        linked = re.sub(r"arXiv:(\d+\.\d+)", r"[arXiv:\1](https://arxiv.org/abs/\1)", citation)
        names = [name for name, method in METHODS.items() if paper in method.papers]
        sections.append(f"### {paper}\n\n{linked}\nMethods: {', '.join(f'`{each}`' for each in names)}.")
    return "\n\n".join(sections)


def modes_list() -> str:
    """Return a Markdown section for each paper mode: its settings and its differences from the paper."""
    sections = []
    for name, mode in PAPER_MODES.items():
        lines = [f"### `{name}`", f"After [{mode.paper}](papers.md#{anchor(mode.paper)})."]
        for word, values in (("Stated", mode.stated), ("Open", mode.open), ("By rule", mode.rules)):
            if values:
                lines.append(f"{word}: {', '.join(f'`{key}` {value}' for key, value in values.items())}.")
        sections.append("\n\n".join([*lines, "\n".join(f"- {each}" for each in mode.differences)]).rstrip())
    return "\n\n".join(sections)


def anchor(paper: str) -> str:
    """Return the anchor of a paper's heading."""
    return re.sub(r"[^\w -]", "", paper.lower()).replace(" ", "-")


def written(page: str) -> str:
    """Return a page with every generated part written anew."""
    parts = {"methods": methods_table, "payments": payments_table, "papers": papers_list, "modes": modes_list}
    for name, make in parts.items():
        page = re.sub(
            rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)",
            lambda found, make=make: f"{found[1]}\n{make()}\n\n{found[2]}",  # type: ignore[misc]
            page,
            flags=re.DOTALL,
        )
    return page


if __name__ == "__main__":
    for name in PAGES:
        (FOLDER / name).write_text(written((FOLDER / name).read_text()))
