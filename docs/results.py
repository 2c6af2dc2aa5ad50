"""The results of the papers' tables and figures that are kept in docs/results.

`python docs/results.py run` measures every target that has none yet and keeps its numbers and its picture; a run that
was stopped goes on where it was. `python docs/results.py renew NAME --methods A,B` measures some methods of a kept
target again, to the same extent. `python docs/results.py judge` judges the claims of kept numbers again and draws the
pictures again, `python docs/results.py pages` writes the pages from the kept numbers, and with ``--check``
it fails if they differ instead. Sentences that say why something differs are in docs/results/why.toml.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from dpdescent.display import heartbeat
from dpdescent.errors import InvalidParameter
from dpdescent.lab.agd_paper import Trace
from dpdescent.lab.drawing import Panel, columns_of, draw, epsilon_panels, parameter_panels
from dpdescent.lab.line_search_paper.network_pages import columns_of_networks, network_findings, network_panels
from dpdescent.lab.method_looks import look_of
from dpdescent.lab.output_perturbation_paper import RiskTable
from dpdescent.lab.output_perturbation_paper.risk_pages import risk_findings, risk_panels
from dpdescent.lab.output_perturbation_paper.risk_runs import Point, RiskRuns
from dpdescent.lab.paper_figures import DataTable, Figure
from dpdescent.lab.report_page import Finding, Report
from dpdescent.lab.reproduction import FIGURES, Written, command_of, figure_named, reproduce
from dpdescent.lab.second_order_paper import StationaryTable, table_findings, table_panels
from dpdescent.lab.study import versions
from dpdescent.lab.verdicts import EXPLANATION, Group, Sample, Verdict
from dpdescent.long_runs import write_whole
from dpdescent.solvers import METHODS

FOLDER = Path(__file__).parent / "results"
PAPERS = {
    "000": ("Lee & Kifer (2018)", "DP-AGD", "1808.09501"),
    "001": ("Lowy & Razaviyayn (2021)", "output perturbation", "2102.04704"),
    "002": ("Gao & Wright (2023)", "second-order points", "2302.04972"),
    "003": ("Chen & Lee (2020)", "DP-BLSGD", "2008.07978"),
}
#: What stands for a paper on the overview: the first panels of a target.
OVERVIEW = {
    "000": ("000/figure2", 4),
    "001": ("001/table5", 3),
    "002": ("002/covertype", 4),
    "003": ("003/figure3", 4),
}
#: What a table shows of a cell, in this order, and the format of its numbers.
MEASURES = {
    "accuracy": ",.4f",
    "gradient_passes": ",.0f",
    "loss_passes": ",.0f",
    "loss": ",.3f",
    "hessians": ",.1f",
    "empirical": ",.3g",
    "population": ",.3g",
    "evaluations": ",.0f",
    "seconds": ",.2f",
}


@dataclass(frozen=True)
class Extent:
    """How much of a full run is kept: so many repetitions, folds of each, steps, and data sets; None means all."""

    repetitions: int | None = None
    folds: int | None = None
    steps: int | None = None
    datasets: tuple[str, ...] = ()

    @classmethod
    def of(cls, command: str) -> Extent | None:
        """Return the extent that a command asks for; None is a quick run."""
        words = command.split()
        given = dict(pairwise(words))
        counts = {name: int(given[f"--{name}"]) for name in ("repetitions", "folds", "steps") if f"--{name}" in given}
        datasets = tuple(given["--data"].split(",")) if "--data" in given else ()
        return cls(**counts, datasets=datasets) if "--full" in words else None


#: Targets whose full runs are kept; of the others a quick run is.
FULL = {
    "000/figure1": Extent(1),
    "000/figure2": Extent(1),
    "000/figure3": Extent(1),
    "000/figure4": Extent(1, folds=2),
    **{f"001/table{k}": Extent(200) for k in (1, 2, 4)},
    "001/table5": Extent(50),
    "001/table3": Extent(),
    "001/table6": Extent(),
    "002/covertype": Extent(5, steps=200),
    "002/covertype-sigmoid": Extent(3),
    **{f"002/{name}": Extent(5, steps=500) for name in ("ijcnn1", "ijcnn1-sigmoid")},
    "003/figure1": Extent(1, folds=5),
    "003/figure2": Extent(1),
    "003/figure3": Extent(1, folds=5),
    "003/figure4": Extent(1, folds=5),
    "003/figure5": Extent(3, steps=200, datasets=("mnist", "fashion-mnist")),
}


def stem(name: str) -> str:
    """Return the name of the files of a target."""
    return name.replace("/", "-")


def command_for(name: str, extent: Extent | None) -> str:
    """Return what to type for a target: a full run of this extent, or a quick one."""
    if extent is None:
        return command_of(name)
    return command_of(name, full=True, **vars(extent))


def run(names: Sequence[str], output: Path, jobs: int | None, extent: Extent | None) -> None:
    """Measure the targets that have no result of the same command yet, one after another, and keep what is found."""
    for name in names:
        kept, asked = FOLDER / f"{stem(name)}.json", extent or FULL.get(name)
        if kept.exists() and json.loads(kept.read_text())["command"] == command_for(name, asked):
            print(f"{name}: kept already; remove {kept} to measure it again", flush=True)
        else:
            measure(name, output, jobs, asked)


def measure(name: str, output: Path, jobs: int | None, extent: Extent | None) -> None:
    """Measure a target, and keep its numbers and its picture."""
    begun = time.monotonic()
    written = reproduced(figure_named(name), output, jobs, extent)
    for path in written.pictures:
        if path.suffix == ".png":
            keep_picture(path)
    write_whole(FOLDER / f"{stem(name)}.json", numbers(name, written.report, time.monotonic() - begun))


def reproduced(figure: Any, output: Path, jobs: int | None, extent: Extent | None) -> Written:
    """Run a target, and say every half minute how far it is."""
    begun, share = time.monotonic(), "preparing"

    def listen(done: int, total: int) -> None:
        nonlocal share
        share = f"{done} of {total} cells"

    def line() -> str:
        return f"{figure.name}: {share} after {time.monotonic() - begun:.0f} s"

    with heartbeat(line, 30), threadpool_limits(1):
        written = reproduce(
            figure, output, full=extent is not None, jobs=jobs, listener=listen, **vars(extent or Extent())
        )
    print(f"{line()}, done", flush=True)
    return written


def part_of(figure: Any, methods: Sequence[str], datasets: Sequence[str] = ()) -> Any:
    """Return a target with some of its methods only, on some of its data sets."""
    if datasets:
        figure = replace(figure, tasks=tuple(task for task in figure.tasks if task.dataset in datasets))
    if isinstance(figure, RiskTable):
        return replace(
            figure, rows=tuple(row if row.method in methods else replace(row, method="") for row in figure.rows)
        )
    return replace(figure, methods=tuple(name for name in figure.methods if name in methods))


def renew(name: str, methods: Sequence[str], datasets: Sequence[str], output: Path, jobs: int | None) -> None:
    """Measure some methods of a kept target again, on some data sets or all; the rest of what is kept stays."""
    path, figure = FOLDER / f"{stem(name)}.json", figure_named(name)
    result = kept_result(path)
    report = reproduced(
        part_of(figure, methods or figure.methods, datasets), output, jobs, Extent.of(result["command"])
    ).report

    def place(cell: Mapping[str, Any]) -> str:
        return json.dumps({key: value for key, value in cell.items() if not isinstance(value, list)}, sort_keys=True)

    cells = {place(cell): cell for cell in (*result["cells"], *report.cells)}
    order = list(getattr(figure, "methods", ()))
    ranked = sorted(
        cells.values(), key=lambda cell: order.index(cell["method"]) if cell.get("method") in order else 0
    )
    first = list(dict.fromkeys(cell.get("dataset", cell.get("tolerance")) for cell in ranked))
    ranked.sort(key=lambda cell: first.index(cell.get("dataset", cell.get("tolerance"))))
    head = {key: value for key, value in result.items() if key not in ("fields", "cells")}
    head |= {"details": list(report.details), "seconds": round(fitted(ranked) or result["seconds"], 1)}
    head["notes"] = list(dict.fromkeys([*result["notes"], *report.notes]))
    write_whole(path, as_text(head, ranked))
    judge([name])


def keep_picture(path: Path) -> None:
    """Keep a picture with few colours, which is a third of its size."""
    from PIL import Image

    with Image.open(path) as image:
        few = image.convert("RGB").quantize(64, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(FOLDER / path.name, optimize=True)


def numbers(name: str, report: Report, elapsed: float) -> str:
    """Return what is kept of a target, as JSON text."""
    head = {
        "target": name,
        "title": report.title,
        "caption": report.caption,
        "extent": report.extent,
        "command": report.command,
        "seconds": round(fitted(report.cells) or elapsed, 1),
        "versions": versions(),
        "settings": {key: value for key, value in report.settings if key != "versions"},
        "findings": listed(report.findings),
        "notes": list(report.notes),
        "details": list(report.details),
    }
    return as_text(head, report.cells)


def listed(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """Return findings as they are kept."""
    return [{"claim": each.claim, "verdict": each.verdict, "found": each.found} for each in findings]


def as_text(head: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> str:
    """Return the JSON text of a kept result: what is said of it, the fields of cells, and a line for each cell."""
    fields = list(dict.fromkeys(field for cell in cells for field in cell))
    lines = [[cell.get(field) for field in fields] for cell in cells]
    shown = ",\n".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in lines)
    text = json.dumps({**head, "fields": fields, "cells": []}, indent=1, ensure_ascii=False)
    return text.replace('"cells": []', f'"cells": [\n{shown}\n ]') + "\n"


def kept_result(path: Path) -> dict[str, Any]:
    """Return what is kept of a target, with the fields that a cell has."""
    result: dict[str, Any] = json.loads(path.read_text())
    named = [dict(zip(result["fields"], line, strict=True)) for line in result["cells"]]
    return result | {"cells": [{key: value for key, value in cell.items() if value is not None} for cell in named]}


def fitted(cells: Sequence[Mapping[str, Any]]) -> float:
    """Return the processor seconds of all fits; a method without a budget is fitted once for all epsilons."""
    total, once = 0.0, set()
    for cell in (cell for cell in cells if "seconds" in cell):
        method = METHODS.get(cell.get("method", ""))
        if method is not None and not method.private:
            place = (cell["dataset"], cell["loss"], cell["method"])
            if place in once:
                continue
            once.add(place)
        total += cell["seconds"][0] * max(each[2] for each in cell.values() if isinstance(each, list))
    return total


def judge(names: Sequence[str]) -> None:
    """Judge the claims of kept results again, from the numbers that were kept, and draw their pictures again."""
    for name in names:
        path = FOLDER / f"{stem(name)}.json"
        if not path.exists() or isinstance(FIGURES[name], (DataTable, Trace)):
            continue
        result, figure = kept_result(path), figure_named(name)
        head = {key: value for key, value in result.items() if key not in ("fields", "cells")}
        head["findings"] = listed(judged(figure, result["cells"], "Full" in result["extent"]))
        write_whole(path, as_text(head, result["cells"]))
        panels, columns = panels_of(figure, result)
        picture(stem(name), panels, columns, result["command"])
        for number, (chosen, count) in OVERVIEW.items():
            if name == chosen:
                picture(f"{number}-overview", panels[:count], columns, result["command"])


def picture(name: str, panels: Sequence[Panel], columns: int, command: str = "") -> None:
    """Draw and keep a picture."""
    with tempfile.TemporaryDirectory() as folder:
        keep_picture(draw(panels, Path(folder) / name, columns, command)[0])


def panels_of(figure: Any, result: Mapping[str, Any]) -> tuple[Sequence[Panel], int]:
    """Return the panels of a kept target, and how many stand in a row."""
    cells, full = result["cells"], "Full" in result["extent"]
    if isinstance(figure, Figure):
        names = {parameter.setting: parameter.shown for parameter in figure.parameters}
        groups = kept_groups(cells)
        if names:
            return parameter_panels(groups, names, figure.measures), 4
        return epsilon_panels(groups), columns_of(groups)
    if isinstance(figure, StationaryTable):
        tolerances = figure.tolerances if full else figure.quick_tolerances
        return table_panels(figure, tolerances, table_samples(cells)), 4
    if isinstance(figure, RiskTable):
        return risk_panels(RiskRuns(figure, full), risk_samples(cells)), 3
    return network_panels(cells), columns_of_networks(cells)


def kept_groups(cells: Sequence[Mapping[str, Any]]) -> list[Group]:
    """Return the groups of a figure from its cells."""
    return [
        Group(
            *(cell.get(key, "") for key in ("dataset", "loss", "method")),
            cell["epsilon"],
            cell.get("parameter", ""),
            cell.get("value", 0.0 if "parameter" in cell else None),
            (),
            sampled(cell),
        )
        for cell in cells
    ]


def judged(figure: Any, cells: Sequence[Mapping[str, Any]], full: bool) -> list[Finding]:
    """Return what the cells of a target say of its claims."""
    if isinstance(figure, Figure):
        return [Finding(claim.text, claim.check(kept_groups(cells))) for claim in figure.claims]
    if isinstance(figure, StationaryTable):
        shown = figure.tolerances if full else figure.quick_tolerances
        return list(table_findings(figure, shown, table_samples(cells)))
    if isinstance(figure, RiskTable):
        return risk_findings(RiskRuns(figure, full), risk_samples(cells))
    return network_findings(cells)


def sampled(cell: Mapping[str, Any]) -> dict[str, Sample]:
    """Return the measures of a cell."""
    return {key: Sample.listed(each) for key, each in cell.items() if isinstance(each, list)}


def table_samples(cells: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, float], dict[str, Sample]]:
    """Return the cells of a second-order table by tolerance, method and epsilon."""
    return {(cell["tolerance"], cell["method"], cell["epsilon"]): sampled(cell) for cell in cells}


def risk_samples(cells: Sequence[Mapping[str, Any]]) -> dict[tuple[int, Point], dict[str, Sample]]:
    """Return the cells of a table of bounds by row and point."""
    return {
        (int(cell["row"]), Point(int(cell["rows"]), int(cell["dimension"]), float(cell["epsilon"]))): sampled(cell)
        for cell in cells
    }


def pages() -> dict[Path, str]:
    """Return the page of every paper."""
    why = tomllib.loads((FOLDER / "why.toml").read_text())
    kept = {name: kept_result(path) for name in FIGURES if (path := FOLDER / f"{stem(name)}.json").exists()}
    stale = [
        f"{name}: {claim}"
        for name, reasons in why.items()
        for claim in reasons
        if claim not in [each["claim"] for each in kept.get(name, {"findings": []})["findings"]]
    ]
    if stale:
        raise InvalidParameter(f"docs/results/why.toml speaks of claims that no result has: {'; '.join(stale)}")
    side = FOLDER.parent / "side-by-side.md"
    written = {FOLDER / f"{number}.md": "\n".join(page(number, kept, why)).rstrip() + "\n" for number in PAPERS}
    front = FOLDER.with_suffix(".md")
    return written | {side: with_claims(side.read_text(), kept), front: with_overview(front.read_text(), kept)}


def with_overview(text: str, kept: Mapping[str, Any]) -> str:
    """Return the first page with a picture of each paper and the count of verdicts."""
    begin, end = "<!-- begin overview -->", "<!-- end overview -->"
    lines = []
    for number, (authors, subject, _) in PAPERS.items():
        own = [name for name in FIGURES if name.startswith(number) and name in kept]
        counts = counted([(name, each) for name in own for each in kept[name]["findings"]])
        name, _ = OVERVIEW[number]
        lines += [f"## {authors}: {subject}", ""]
        lines += [
            f"[{', '.join(f'{word.lower()}: {count}' for word, count in counts.items())}](results/{number}.md)",
            "",
        ]
        if (FOLDER / f"{number}-overview.png").exists():
            lines += [f"![{kept[name]['title']}](results/{number}-overview.png)", "", f"{kept[name]['title']}.", ""]
    before, _, rest = text.partition(begin)
    return before + begin + "\n\n" + "\n".join(lines) + end + rest.partition(end)[2]


def with_claims(text: str, kept: Mapping[str, Any]) -> str:
    """Return the page with the list of all claims that are judged, and the count of verdicts of each paper."""
    begin, end = "<!-- begin claims -->", "<!-- end claims -->"
    lines = []
    for number, (authors, _, _) in PAPERS.items():
        own = [name for name in FIGURES if name.startswith(number) and name in kept]
        found = [(name, each) for name in own for each in kept[name]["findings"]]
        counts = ", ".join(f"{word.lower()}: {count}" for word, count in counted(found).items() if count)
        lines += [f"### {authors} ({counts})", ""]
        for name in own:
            lines += [f"- `{name}`: {each['claim']}" for each in kept[name]["findings"]]
        lines.append("")
    before, _, rest = text.partition(begin)
    return before + begin + "\n\n" + "\n".join(lines) + "\n" + end + rest.partition(end)[2]


def page(number: str, kept: Mapping[str, Any], why: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield the lines of the page of a paper."""
    authors, subject, arxiv = PAPERS[number]
    names = [name for name in FIGURES if name.startswith(number)]
    found = [(name, each) for name in names if name in kept for each in kept[name]["findings"]]
    spent = sum(kept[name]["seconds"] for name in names if name in kept)
    counts = ", ".join(f"{word.lower()}: {count}" for word, count in counted(found).items())
    yield f"# {authors}: {subject}\n"
    yield f"What the tables and figures of [arXiv:{arxiv}](https://arxiv.org/abs/{arxiv}) claim, in our words, and"
    yield f"what was found here ({counts}). All runs together took {duration(spent)} of one processor. {EXPLANATION}"
    yield "Verdicts of a single repetition of cross-validation rest on its folds. [Papers and code, side by"
    yield "side](../side-by-side.md) says what differs on purpose.\n"
    yield "| | claim | verdict |"
    yield "| --- | --- | --- |"
    for name, each in found:
        yield f"| [{short(name)}](#{anchor(kept[name]['title'])}) | {each['claim']} | {each['verdict'] or '–'} |"
    yield ""
    for name in names:
        yield from section(name, kept.get(name), why.get(name, {}))


def section(name: str, result: Mapping[str, Any] | None, why: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines about a target."""
    if result is None:
        yield f"## {figure_named(name).title}\n"
        yield f"There is no result yet: it has not been run. `{command_for(name, FULL.get(name))}` measures it.\n"
        return
    yield f"## {result['title']}\n"
    yield f"{result['caption']} {result['extent']}\n"
    took = f"{duration(result['seconds'])} of one processor"
    yield f"`{result['command']}` took {took}. [All numbers]({stem(name)}.json)\n"
    if (FOLDER / f"{stem(name)}.png").exists():
        yield f"![{result['title']}]({stem(name)}.png)\n"
    for each in result["findings"]:
        yield f"- *{each['claim']}* {bold(each)}"
        if each["claim"] in why:
            yield f"  **Why:** {why[each['claim']].strip()}"
    yield ""
    for title, header, rows in tables(result["cells"], figure_named(name)):
        yield f"<details><summary>{title}</summary>\n"
        yield f"| {' | '.join(header)} |"
        yield f"|{' --- |' * len(header)}"
        for row in rows:
            yield f"| {' | '.join(row)} |"
        yield "\n</details>\n"
    folded = [*result["details"], *result["notes"]]
    if folded:
        yield "<details><summary>What differs from the paper, and notes</summary>\n"
        for text in folded:
            yield f"- {text}"
        yield "\n</details>\n"


def tables(cells: Sequence[Mapping[str, Any]], figure: Any) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield tables of the cells: by epsilon where a method is followed over them, else a line for each cell.

    What the paper prints of a cell stands behind it in brackets.
    """
    measures = [field for field in MEASURES if any(isinstance(cell.get(field), list) for cell in cells)]
    if not any("method" in cell and "epsilon" in cell and "step" not in cell for cell in cells):
        yield flat(cells)
        return
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        named = [cell.get(key) for key in ("dataset", "loss", "tolerance")]
        groups.setdefault(", ".join(each for each in named if isinstance(each, str)), []).append(cell)
    for where, own in groups.items():
        epsilons = sorted({cell["epsilon"] for cell in own})
        for field in measures:
            if field == "seconds" and "accuracy" in measures:
                continue
            lines: dict[str, dict[float, str]] = {}
            for cell in own:
                changed = f"{cell['parameter']} = {cell['value']}" if "parameter" in cell else ""
                line = lines.setdefault(changed or look_of(cell["method"]).name, {})
                line[cell["epsilon"]] = shown(cell.get(field), MEASURES[field]) + printed(figure, cell, field)
            yield (
                f"{where}: {field.replace('_', ' ')}",
                ["", *(f"epsilon {epsilon:g}" for epsilon in epsilons)],
                [[line, *(values.get(epsilon, "–") for epsilon in epsilons)] for line, values in lines.items()],
            )


def printed(figure: Any, cell: Mapping[str, Any], field: str) -> str:
    """Return what the paper prints of a cell, in brackets, where its text can be read."""
    if not isinstance(figure, StationaryTable) or field != "loss":
        return ""
    value = figure.printed_at(cell["tolerance"], cell["method"], cell["epsilon"])
    return "" if value is None else f" ({value:g})"


def flat(cells: Sequence[Mapping[str, Any]]) -> tuple[str, list[str], list[list[str]]]:
    """Return one table with a line for each cell; of runs that were followed, only their ends."""
    last = max((cell["step"] for cell in cells if "step" in cell), default=None)
    chosen = [cell for cell in cells if cell.get("step") == last]
    fields = [field for field in dict.fromkeys(key for cell in chosen for key in cell) if field != "row"]
    rows = [
        [
            shown(cell.get(field), MEASURES.get(field, ".4f"))
            if isinstance(cell.get(field), list)
            else text(cell.get(field))
            for field in fields
        ]
        for cell in chosen
    ]
    return "All numbers", [field.replace("_", " ") for field in fields], rows


def shown(value: Any, form: str) -> str:
    """Return mean and standard error as text."""
    if value is None:
        return "–"
    mean, error, *_ = value
    if float(mean).is_integer() and error is None:
        form = ",.0f"
    return f"{mean:{form}}" + ("" if error is None else f" ± {error:{form}}")


def text(value: Any) -> str:
    """Return a key of a cell as text."""
    return "–" if value is None else value if isinstance(value, str) else f"{value:,g}"


def bold(finding: Mapping[str, str]) -> str:
    """Return what was found, with its verdict in bold."""
    verdict, found = finding["verdict"], finding["found"]
    return f"**{verdict}**{found[len(verdict) :]}" if verdict else found


def counted(found: Sequence[tuple[str, Mapping[str, str]]]) -> dict[str, int]:
    """Return how many claims have each verdict."""
    verdicts = [each["verdict"] for _, each in found]
    return {verdict.value: verdicts.count(verdict.value) for verdict in Verdict}


def short(name: str) -> str:
    """Return a name such as `Figure 2`."""
    return name[4:].replace("figure", "Figure ").replace("table", "Table ")


def anchor(title: str) -> str:
    """Return the anchor of a heading, as GitHub and the manual make it."""
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def duration(seconds: float) -> str:
    """Return a time as text."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def main(words: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    actions = parser.add_subparsers(dest="action", required=True)
    runner = actions.add_parser("run", help="measure every target that has no result yet")
    runner.add_argument("names", nargs="*", help="targets; default: all")
    runner.add_argument(
        "--output", type=Path, default=Path("out/full"), help="where to write whole pages and journals"
    )
    runner.add_argument(
        "--repetitions", type=int, help="full runs of so many repetitions; default: as much as is kept"
    )
    runner.add_argument("--folds", type=int, help="only the first folds of each repetition of a full run")
    runner.add_argument("--steps", type=int, help="give descents to second-order points up after so many steps")
    runner.add_argument("--data", default="", help="only these data sets of a figure of networks")
    runner.add_argument("--jobs", type=int, help="worker processes, one thread each; default: all processors")
    renewing = actions.add_parser("renew", help="measure some methods of a kept target again")
    renewing.add_argument("name")
    renewing.add_argument("--methods", default="", help="their names, separated by commas; default: all")
    renewing.add_argument("--data", default="", help="only on these data sets of a figure; default: all")
    renewing.add_argument("--output", type=Path, default=Path("out/part"), help="where to write pages and journals")
    renewing.add_argument("--jobs", type=int, help="worker processes, one thread each; default: all processors")
    judging = actions.add_parser("judge", help="judge the claims of kept results again")
    judging.add_argument("names", nargs="*", help="targets; default: all")
    writer = actions.add_parser("pages", help="write the pages from the kept results")
    writer.add_argument("--check", action="store_true", help="only compare, and fail where they differ")
    given = parser.parse_args(words)
    if given.action == "judge":
        judge([figure_named(name).name for name in given.names] or list(FIGURES))
        return
    if given.action == "renew":
        chosen = [[each for each in text.split(",") if each] for text in (given.methods, given.data)]
        renew(figure_named(given.name).name, *chosen, given.output, given.jobs)
        return
    if given.action == "run":
        names = [figure_named(name).name for name in given.names] or list(FIGURES)
        datasets = tuple(each for each in given.data.split(",") if each)
        asked = Extent(given.repetitions, given.folds, given.steps, datasets)
        run(names, given.output, given.jobs, None if asked == Extent() else asked)
        return
    differing = {
        path: content for path, content in pages().items() if not path.exists() or path.read_text() != content
    }
    if given.check and differing:
        sys.exit(f"not made from the kept results: {', '.join(map(str, differing))}; python docs/results.py pages")
    for path, content in differing.items():
        write_whole(path, content)
        print(f"written: {path}")


if __name__ == "__main__":
    main()
