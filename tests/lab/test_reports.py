"""Pages and pictures: everything on one page, nothing loaded, and names that never overlap."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from browser import measured, needs_browser
from dpdescent import load_dataset
from dpdescent.cli import app
from dpdescent.lab.agd_paper import Moment, Trace, _descends, follow
from dpdescent.lab.drawing import draw, epsilon_panels, parameter_panels
from dpdescent.lab.fold_fits import Row, Task
from dpdescent.lab.method_looks import _apart
from dpdescent.lab.paper_figures import Figure, Parameter, Scale
from dpdescent.lab.report_page import privacy_statements
from dpdescent.lab.reproduction import FIGURES, Written, reproduce
from dpdescent.lab.study import Record, Study, curves_of
from dpdescent.lab.verdicts import grouped, judge
from dpdescent.solvers import METHODS

TINY = Scale((0.5, 2.0), 1, 1, rows=1200)


class Page(HTMLParser):
    """Collects what a reader sees, and complains about tags that are not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: dict[str, list[dict[str, str | None]]] = {}
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.setdefault(tag, []).append(dict(attrs))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The page of Figure 2 at a small scale, measured in this process."""
    patch = pytest.MonkeyPatch()
    patch.setattr("dpdescent.long_runs.in_processes", lambda work, cells, _: ((cell, work(cell)) for cell in cells))
    patch.setattr(Figure, "missing", ("an <unknown> method",))
    figure = FIGURES["000/figure2"]
    assert isinstance(figure, Figure)
    small = replace(figure, quick=TINY, methods=("agd", "agd-paper", "majority", "nonprivate"))
    try:
        return reproduce(small, tmp_path_factory.mktemp("page"), datasets=("synthetic",))
    finally:
        patch.undo()


def row(method: str, epsilon: float, accuracy: float, **more: object) -> Row:
    return Row("bank", method, epsilon, 1e-8, 0, 0, accuracy=accuracy, objective=1 - accuracy, **more)  # type: ignore[arg-type]


def test_a_reproduced_figure_is_a_png_an_svg_and_a_page_and_nothing_else(written: Written) -> None:
    folder = written.page.parent
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["000-figure2.html", "000-figure2.png", "000-figure2.svg"]
    assert (folder / names[1]).read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (folder / names[2]).read_bytes()[:2000]


def test_the_page_holds_picture_table_claims_statement_and_settings_and_loads_nothing(written: Written) -> None:
    content = written.page.read_text()
    page = Page(content)
    (image,) = page.tags["img"]
    kind, _, data = str(image["src"]).partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(data) == written.pictures[1].read_bytes()
    assert "DP-AGD (paper)" in str(image["alt"])
    assert not {"script", "link", "iframe"} & set(page.tags)
    assert "://" not in content.replace(data, "")
    assert {"claims", "results", "privacy", "settings"} == {heading["id"] for heading in page.tags["h2"]}
    assert "(epsilon, 1e-08)-differentially private for one row under zero-out" in page.text
    assert "Not private: it reads the rows as they are." in page.text
    assert "acs-income (American Community Survey, NIST excerpts), as many as it has, stand in" in page.text
    assert "Run on synthetic instead of the paper's data." in page.text
    assert "not available here yet: an <unknown> method" in page.text
    assert "At epsilon 0.05 DP-AGD is ahead" in page.text
    assert len(page.tags["caption"]) == 3


@needs_browser
def test_a_browser_shows_the_page_without_an_error(written: Written, tmp_path: Path) -> None:
    table = "document.querySelector('#results ~ .tables table').getBoundingClientRect()"
    facts = [
        "document.querySelector('img').complete && document.querySelector('img').naturalWidth > 500",
        f"{table}.width > 200 && {table}.height > 50",
        "document.body.innerText.includes('differentially private for one row')",
        "document.documentElement.scrollWidth <= window.innerWidth",
    ]
    assert measured(written.page.read_text(), facts, tmp_path) == ["true"] * 4


def test_reproduce_without_a_figure_lists_them() -> None:
    output = CliRunner().invoke(app, ["reproduce"], catch_exceptions=False).output
    assert [line.split()[0] for line in output.splitlines()] == list(FIGURES)


def test_every_figure_declares_a_study_that_can_be_run_both_ways() -> None:
    for figure in FIGURES.values():
        if isinstance(figure, Figure):
            quick, full = figure.study(figure.quick), figure.study(figure.full)
            assert 0 < len(quick.cells()) < len(full.cells())
            paper = figure.name.split("/")[0]
            assert (full.seeds, full.folds, full.alpha) == {"000": (20, 5, 0.0), "003": (5, 10, 0.001)}[paper]
            for curve in (*quick.curves, *full.curves):
                varied = {curve.parameter: curve.value} if curve.parameter else {}
                METHODS[curve.method].settings(**{**curve.options, **varied})
            assert figure.missing == ()
    four = FIGURES["000/figure4"]
    assert isinstance(four, Figure)
    study = four.study(four.full)
    assert study.delta == 1e-12
    assert {curve.batch_size for curve in study.curves if curve.method == "agd"} == {40_000}
    assert [task.loss for task in study.tasks] == ["logistic", "svm"]


def test_the_figures_of_the_line_search_have_the_papers_settings_and_methods() -> None:
    figures = {name: figure for name, figure in FIGURES.items() if name.startswith("003/")}
    assert list(figures) == ["003/table1", *(f"003/figure{k}" for k in (1, 2, 3, 4, 5))]
    one, two, three, four = (figure for figure in figures.values() if isinstance(figure, Figure))
    assert [p.shown for p in one.parameters] == [
        *("alpha", "beta", "noise of the search", "q", "budgets after a failed search", "zeta")
    ]
    assert one.parameters[4].values == ("no", "must", "adaptive")
    assert one.full.epsilons == (0.05, 0.2)
    assert two.full.epsilons == (0.4,)
    for curve in two.study(two.full).curves:
        assert curve.options == {"paper": True, "search_rate": curve.value}
    for figure, loss in ((three, "logistic"), (four, "svm")):
        assert {task.loss for task in figure.tasks} == {loss}
        assert {"blsgd-paper", "blgd-paper", "blsgd-ac-paper", "agd-paper", "outpert-rsgd-paper"} < set(
            figure.methods
        )
        assert len(figure.claims) == 6


def test_a_figure_of_words_and_counts_is_drawn_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "dpdescent.long_runs.in_processes", lambda work, cells, _: ((cell, work(cell)) for cell in cells)
    )
    figure = FIGURES["003/figure2"]
    assert isinstance(figure, Figure)
    budgets = Parameter("allocation", "budgets", ("no", "adaptive"))
    rates = Parameter("sampling_rate", "q", (0.1, 1.0), ("search_rate",))
    small = Scale((2.0,), 1, 1, rows=600, options={"blsgd-paper": {"iterations": 6}}, remark=" Short.")
    tiny = replace(figure, quick=small, parameters=(budgets, rates))
    written = reproduce(tiny, tmp_path, datasets=("synthetic",), json_file=tmp_path / "rows.json")
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [(row["parameter"], row["value"]) for row in rows] == [
        *(("allocation", "no"), ("allocation", "adaptive"), ("sampling_rate", 0.1), ("sampling_rate", 1.0))
    ]
    for row in rows:
        asked = sum(row["mechanisms"].values())  # a gradient and a search in turn, the last one perhaps alone
        rate = row["value"] if row["parameter"] == "sampling_rate" else 0.1
        assert row["gradient_passes"] == pytest.approx(rate * ((asked + 1) // 2))
        assert row["loss_passes"] == pytest.approx(21 * rate * (asked // 2))
    page = Page(written.page.read_text())
    assert "losses evaluated, per row" in page.text
    assert "allocation = adaptive" in page.text
    assert "10-fold cross-validation 5 times. Short. Run on synthetic" in page.text
    assert len(page.tags["caption"]) == 5
    assert written.findings[0].found.startswith("Cannot tell: gradients evaluated")
    assert written.findings[0].found.endswith("One repetition has no standard error; two or more have.")
    assert "a verdict is wrong with a probability of at most 0.05" in page.text


def test_the_trace_watches_a_descent_below_its_noise() -> None:
    data = load_dataset("synthetic", n=4000)
    moments = follow(Trace("t", "", "", "", steps=4), data)
    assert len(moments) == 5
    assert moments[0].objective == pytest.approx(np.log(2), rel=1e-9)
    labels = np.where(data.y == data.classes[1], 1, -1)
    start = np.column_stack([data.X, np.ones(len(labels))]).T @ (-labels / 2) / len(labels)
    assert moments[0].gradient_norm == pytest.approx(np.linalg.norm(start), rel=1e-4)
    assert moments[0].noise_norm == pytest.approx(0.50119, rel=1e-6)
    assert moments[-1].objective < moments[0].objective
    spent = [moment.spent_epsilon for moment in moments]
    assert spent == sorted(spent)
    assert 0 < spent[0] < spent[-1] < 1


@pytest.mark.parametrize(("last", "found"), [(0.05, "Agrees"), (0.09, "Differs")])
def test_the_claim_of_a_trace_is_judged_on_all_of_its_descents(last: float, found: str) -> None:
    """Three made-up descents whose gradients end at about 0.05 or 0.09; a tenth of the first gradient is 0.07."""
    runs = [
        [Moment(0, 0.7, 0.9, 0.5, 0.69, 0.1), Moment(10, last + off, 0.5 + off, 0.5, 0.38 + off, 0.2)]
        for off in (-0.001, 0.0, 0.001)
    ]
    assert judge(_descends(runs)).value == found
    assert judge(_descends(runs[:1])).value == "Cannot tell"
    loud = [[run[0], replace(run[1], noisy_norm=1.5)] for run in runs]
    assert judge(_descends(loud)).value == "Differs"


def test_a_curve_that_overspent_would_show_in_its_statement() -> None:
    study = Study((Task("synthetic"),), curves_of(["agd"]), (0.5,), 1e-8)
    honest = row("agd", 0.5, 0.8, spent_epsilon=0.49, currency="gdp", mechanisms={"gaussian": 3}, randomness="seeded")
    text = dict(privacy_statements(Record(study, (honest, replace(honest, spent_epsilon=0.6)))))["DP-AGD"]
    assert "at most 120.00% of its epsilon, on: gaussian" in text
    assert dict(privacy_statements(Record(study, (replace(honest, error="No"),))))["DP-AGD"].startswith("No model")


def test_labels_keep_their_order_their_distance_and_the_panel() -> None:
    generator = np.random.default_rng(5)
    for count in (1, 2, 7, 12):
        wanted = generator.uniform(-20, 220, count)
        placed = np.array(_apart(list(wanted), 12.0, 200.0))
        assert (np.diff(np.sort(placed)) >= 12 - 1e-9).all()
        assert placed.min() >= 0
        assert placed.max() <= 200
        assert (np.argsort(placed) == np.argsort(wanted)).all()
    assert _apart([10.0, 100.0], 12.0, 200.0) == [10.0, 100.0]


@pytest.mark.parametrize(("methods", "legend"), [(4, False), (30, True)])
def test_names_stand_at_the_lines_unless_they_would_collide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, methods: int, legend: bool
) -> None:
    drawn = []
    monkeypatch.setattr("matplotlib.pyplot.close", drawn.append)
    rows = [row(f"m{k}", e, 0.5 + k / 100 + e / 10) for k in range(methods) for e in (0.1, 1.0)]
    png, svg = draw(epsilon_panels(grouped(rows)), tmp_path / "x")
    assert png.exists()
    assert svg.exists()
    (figure,) = drawn
    assert bool(figure.legends) == legend
    left = figure.axes[0]
    assert [tick.get_text() for tick in left.get_xticklabels()] == ["0.1", "1"]
    if not legend:
        boxes = sorted((text.get_window_extent() for text in left.texts), key=lambda box: box.y0)
        assert len(boxes) == methods
        assert all(below.y1 <= above.y0 + 2 for below, above in zip(boxes, boxes[1:], strict=False))  # noqa: RUF007
        assert max(box.x1 for box in boxes) <= figure.bbox.width


def test_panels_leave_out_what_was_refused_and_vary_one_parameter_at_a_time() -> None:
    refused = replace(row("sgd", 0.1, 0.0), accuracy=None, objective=None, error="InvalidParameter: no")
    panels = epsilon_panels(grouped([row("agd", 0.1, 0.8), refused]))
    assert [[line.look.name for line in panel.lines] for panel in panels] == [["DP-AGD"], ["DP-AGD"]]
    varied = [
        row("agd-paper", e, 0.7, parameter=p, value=v)
        for p in ("splits", "growth")
        for v in (1.0, 9.0)
        for e in (0.1, 0.8)
    ]
    panels = parameter_panels(grouped(varied), {"splits": "splits", "growth": "gamma"})
    assert [panel.x_label for panel in panels] == ["splits", "splits", "gamma", "gamma"]
    assert [line.look.name for line in panels[0].lines] == ["epsilon 0.1", "epsilon 0.8"]


def test_a_weak_baseline_does_not_squeeze_the_others_and_its_value_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    monkeypatch.setattr("matplotlib.pyplot.close", drawn.append)
    for floor in (0.5, 0.79):
        rows = [row(m, e, a + e / 100) for m, a in (("agd", 0.81), ("sgd", 0.8)) for e in (0.1, 1.0)]
        rows += [row("majority", e, floor) for e in (0.1, 1.0)]
        draw(epsilon_panels(grouped(rows)), tmp_path / "x")
    far, near = (figure.axes[0] for figure in drawn)
    assert far.get_ylim()[0] > 0.79
    assert "majority (0.500)" in [text.get_text() for text in far.texts]
    assert near.get_ylim()[0] < 0.79
    assert "majority" in [text.get_text() for text in near.texts]


def test_a_line_that_ends_early_is_named_where_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr("matplotlib.pyplot.close", drawn.append)
    rows = [row("agd", 0.1, 0.8), row("agd", 1.0, 0.85), row("sgd", 0.1, 0.7)]
    draw(epsilon_panels(grouped(rows)), tmp_path / "x")
    labels = {text.get_text(): text for text in drawn[0].axes[0].texts}
    assert labels["DP-SGD"].anncoords == "offset points"
    assert labels["DP-SGD"].xy == (0.1, 0.7)
    assert labels["DP-AGD"].anncoords == "axes fraction"
    assert labels["DP-AGD"].get_position()[0] > 1
