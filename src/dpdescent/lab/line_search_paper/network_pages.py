"""The picture and the page of a figure of networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ...statement import guarantee
from ..drawing import Line, Panel, draw
from ..method_looks import look_of
from ..report_page import Finding, Matrix, Picture, Report, write_report
from ..study import repeated, versions, versions_setting
from ..verdicts import Margin, Sample, Statement, cells_of, every, pooled, told
from .network_runs import Course, NetworkRuns

_SIMILAR = 0.02  # differences of accuracy up to this count as similar


def write_networks(
    runs: NetworkRuns, courses: list[Course], stem: Path, page: Path, json_file: Path | None, command: str
) -> tuple[tuple[Path, Path], Report]:
    """Write picture, page and rows; return the pictures and the report."""
    figure = runs.figure
    cells = cells_of(
        _steps(courses), ("network", "method", "step"), ("accuracy", "objective", "epsilon", "step_size")
    )
    panels = network_panels(cells)
    pictures = draw(panels, stem, columns_of_networks(cells), command)
    findings = tuple(network_findings(cells))
    stand_in = f" Run on {runs.stand_in} instead of the paper's data." if runs.stand_in else ""
    missing = [each.title for each in figure.networks if each not in runs.networks and not runs.stand_in]
    left_out = f", without {' and '.join(missing)}" if missing else ""
    steps = repeated(runs.steps, figure.full_steps, "steps")
    extent = (
        f"Full run: {steps}, {repeated(runs.seeds, figure.seeds)}{left_out}.{stand_in}"
        if runs.full
        else f"Quick run: {runs.steps} steps{left_out}.{stand_in}"
    )
    report = Report(
        figure.title,
        figure.caption,
        extent,
        (Picture(pictures[1], "accuracy, objective, epsilon and step size of each method against iterations"),),
        findings,
        tuple(_matrix(courses, name) for name in dict.fromkeys(course.network for course in courses)),
        (
            (
                "private methods",
                f"Each run is {guarantee(figure.epsilon, figure.delta, 'zero-out')}, in the arithmetic of "
                "real numbers. Randomness: seeded (not for release).",
            ),
            ("accuracies, objectives", "Not private: they are shown here because the data are public."),
        ),
        (
            ("batches", f"a share of {figure.batch_share:g} of the rows, each row by itself"),
            ("gradients clipped to", f"{figure.clip_norm:g}; auto divides each by its own length"),
            (
                "learning rates",
                "DP-SGD as tuned in the paper, Adam with and without privacy 0.001; the others have none",
            ),
            versions_setting(),
        ),
        details=figure.details,
        command=command,
        cells=cells,
    )
    content = {"figure": figure.name, "versions": versions(), "rows": [asdict(each) for each in courses]}
    write_report(report, page, json_file, content)
    return pictures, report


def _steps(courses: list[Course]) -> Iterator[dict[str, Any]]:
    """Yield the measurements of every training, one for each step at which it was measured."""
    for course in courses:
        for place, step in enumerate(course.steps):
            yield {
                "network": course.network,
                "method": course.method,
                "step": step,
                "accuracy": course.accuracy[place],
                "objective": course.objective[place],
                "epsilon": course.epsilon[place] if course.epsilon else None,
                "step_size": course.step_size[place],
            }


def columns_of_networks(cells: Sequence[Mapping[str, Any]]) -> int:
    """Return how many panels of `network_panels` stand in a row: one for each network."""
    return max(2, len({cell["network"] for cell in cells}))


def network_panels(cells: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Return a row of panels for accuracy, objective and step size, a network each, and the epsilon of them all."""
    shown = (("accuracy", "test accuracy", True), ("objective", "objective (training part)", False))
    panels = []
    networks = list(dict.fromkeys(cell["network"] for cell in cells))
    for field, label, rising in (*shown, ("step_size", "step size", None)):
        panels += [_panel(cells, network, field, label, rising) for network in networks]
    return [*panels, replace(_panel(cells, networks[0], "epsilon", "epsilon so far", None), title="all networks")]


def _panel(cells: Sequence[Mapping[str, Any]], network: str, field: str, label: str, rising: bool | None) -> Panel:
    own = [cell for cell in cells if cell["network"] == network and field in cell]
    methods = list(dict.fromkeys(cell["method"] for cell in own))
    if field == "step_size":
        methods = [method for method in methods if method in ("auto", "blsgd", "blsgd-paper")]
    lines = []
    for method in methods:
        steps, values = zip(*((cell["step"], cell[field]) for cell in own if cell["method"] == method), strict=True)
        look = replace(look_of(method), flat=False)  # without privacy, too, training takes its time
        means, errors = [value[0] for value in values], [value[1] or 0.0 for value in values]
        lines.append(Line(look, tuple(map(float, steps)), tuple(means), tuple(errors)))
    ticks = tuple(sorted({step for line in lines for step in line.x}))[2::3]
    return Panel(network, "iteration", label, ticks, False, tuple(lines), rising=rising)


def _matrix(courses: list[Course], network: str) -> Matrix:
    own = [course for course in courses if course.network == network and course.seed == 0]
    return Matrix(
        network,
        ("method", "accuracy", "objective", "epsilon", "first step size", "last step size", "seconds"),
        tuple(
            (
                course.method,
                f"{course.accuracy[-1]:.4f}",
                f"{course.objective[-1]:.4f}",
                f"{course.epsilon[-1]:.3g}" if course.epsilon else "not private",
                f"{course.step_size[0]:.3g}",
                f"{course.step_size[-1]:.3g}",
                f"{course.seconds:.0f}",
            )
            for course in own
        ),
    )


def network_findings(cells: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Hold what was found against what the paper says; a network is a repetition where each was trained once.

    Cells have a network, a method and a step, and measures as of `cells_of`.
    """
    found = {(cell["network"], cell["method"], cell["step"]): cell for cell in cells}
    own = next((name for name in ("blsgd-paper", "blsgd") if any(key[1] == name for key in found)), "blsgd")
    margins: dict[str, dict[str, list[Margin]]] = {name: {} for name in ("early", "level", "end", "step")}
    texts: dict[str, list[str]] = {"early": [], "end": [], "step": []}
    for network in dict.fromkeys(key[0] for key in found):
        steps = sorted(step for name, method, step in found if (name, method) == (network, own))
        early, last = steps[max(0, len(steps) // 4 - 1)], steps[-1]

        def sample(method: str, step: int, field: str, network: str = network) -> Sample:
            return Sample.listed(found[network, method, step][field])

        rivals = [name for name in ("sgd", "adam") if (network, name, last) in found]
        for name in rivals:
            soon = Margin.between(sample(own, early, "accuracy"), sample(name, early, "accuracy"))
            margins["early"].setdefault(name, []).append(soon)
            if network.endswith("MLP"):
                same = Margin.between(sample(own, last, "accuracy"), sample(name, last, "accuracy"), _SIMILAR)
                margins["level"].setdefault(name, []).append(same)
            else:
                lower = Margin.between(sample(name, last, "objective"), sample(own, last, "objective"))
                margins["end"].setdefault(name, []).append(lower)
        fall = Margin.between(sample(own, steps[0], "step_size"), sample(own, last, "step_size"))
        margins["step"].setdefault(own, []).append(fall)
        mine, theirs = sample(own, early, "accuracy").mean, [sample(n, early, "accuracy").mean for n in rivals]
        texts["early"].append(f"{network}: {mine:.3f} against {max(theirs):.3f} after {early} steps")
        ends = [[sample(n, last, field).mean for n in (own, *rivals)] for field in ("accuracy", "objective")]
        texts["end"].append(
            f"{network}: accuracy {ends[0][0]:.3f} against {max(ends[0][1:]):.3f}, "
            f"objective {ends[1][0]:.3f} against {min(ends[1][1:]):.3f}"
        )
        sizes = [sample(own, step, "step_size").mean for step in (steps[0], last)]
        texts["step"].append(f"{network}: {sizes[0]:.3g} to {sizes[1]:.3g}")

    def judged(kind: str) -> Statement:
        return every([pooled(each) for each in margins[kind].values()])

    return [
        Finding(
            "DP-BLSGD reaches a high accuracy in fewer iterations than DP-SGD and DP-Adam.",
            told(judged("early"), "; ".join(texts["early"]) + " (the better of DP-SGD and DP-Adam)"),
        ),
        Finding(
            "It ends at a similar accuracy with perceptrons, and at a lower objective with convolutions.",
            told(every([judged("level"), judged("end")]), "; ".join(texts["end"])),
        ),
        Finding(
            "The step size that it selects falls during training.", told(judged("step"), "; ".join(texts["step"]))
        ),
    ]
