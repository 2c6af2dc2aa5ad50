"""Models show themselves: as text, in a notebook, and while they are fitted."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdescent import DPAdditiveClassifier, DPLinearRegression, DPLogisticRegression
from dpdescent.display import HtmlPage

PROMISE = "(1, 1e-06)-differentially private for one row under zero-out."


def fitted(kind: type = DPLogisticRegression, **options: Any) -> Any:
    generator = np.random.default_rng(0)
    X = generator.random((3000, 2))
    target = X[:, 0] + generator.normal(0, 0.2, 3000)
    known = {"target_bounds": (0, 1)} if kind is DPLinearRegression else {"classes": [False, True]}
    y = target if kind is DPLinearRegression else target > 0.5
    return kind(1.0, 1e-6, bounds=(0, 1), random_state=0, **known, **options).fit(X, y)


@pytest.mark.parametrize("kind", [DPLogisticRegression, DPLinearRegression, DPAdditiveClassifier])
def test_a_model_explains_itself(kind: type) -> None:
    explained = fitted(kind).explain()
    text = str(explained)
    assert text.startswith(PROMISE)
    assert "What epsilon means here" in text
    assert "Where the budget went" in text
    page = explained.to_html()
    assert page.startswith("<!DOCTYPE html>")
    assert PROMISE in page
    assert "<script" not in page
    assert page.count("<") == explained._repr_html_().count("&lt;"), "a frame holds the page as it is"


def test_a_fitted_model_shows_its_promise_beside_its_parameters() -> None:
    model = DPLogisticRegression(1.0, 1e-6)
    assert PROMISE not in model._repr_html_()
    shown = fitted()
    for html in (shown._repr_html_(), shown._repr_mimebundle_()["text/html"]):
        assert PROMISE in html
        assert "of the budget" not in html.split(PROMISE)[0]
        assert "gradient and curvature" in html
    assert shown._repr_mimebundle_()["text/plain"] == repr(shown)


def test_terms_are_a_page_and_a_picture_that_show_themselves(tmp_path: Path) -> None:
    model = fitted(DPAdditiveClassifier)
    page = model.terms_html()
    assert isinstance(page, HtmlPage)
    model.terms_html(tmp_path / "terms.html")
    assert (tmp_path / "terms.html").read_text() == page
    assert page._repr_html_().startswith("<iframe srcdoc=")
    pytest.importorskip("matplotlib")
    assert model.plot_terms()._repr_png_().startswith(b"\x89PNG")


def test_progress_is_a_bar_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    class Handle:
        def update(self, bundle: dict[str, str], raw: bool) -> None:
            drawn.append(bundle["text/html"])

    def display(bundle: dict[str, str], **options: Any) -> Handle:
        assert options == {"raw": True, "display_id": True}
        drawn.append(bundle["text/html"])
        return Handle()

    shell = types.ModuleType("IPython")
    monkeypatch.setattr(shell, "get_ipython", lambda: types.SimpleNamespace(kernel=1), raising=False)
    output = types.ModuleType("IPython.display")
    monkeypatch.setattr(output, "display", display, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", output)
    fitted(progress=True)
    assert drawn[0].startswith('<progress max="1" value="0.000">')
    assert "100% of the privacy budget is spent" in drawn[-1]


CELLS = (
    "import numpy as np\n"
    "from dpdescent import DPAdditiveClassifier\n"
    "rows = np.random.default_rng(0).random((3000, 2))\n"
    "model = DPAdditiveClassifier(1.0, 1e-6, bounds=(0, 1), classes=[False, True], progress=True)\n"
    "model.fit(rows, rows[:, 0] > 0.5)",
    "model.explain()",
    "model.plot_terms()",
    "model.terms_html()",
)


@pytest.mark.slow
def test_a_notebook_shows_the_bar_the_promise_the_page_and_the_picture(tmp_path: Path) -> None:
    """Where nbclient and ipykernel are installed, a kernel runs the cells as Jupyter does."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CELLS])
    nbclient.NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [[each.get("data", {}) for each in cell.outputs] for cell in book.cells]
    assert any("<progress" in data.get("text/html", "") for data in shown[0])
    assert any(PROMISE in data.get("text/html", "") for data in shown[0])
    assert all("<iframe srcdoc=" in shown[number][0]["text/html"] for number in (1, 3))
    assert len(shown[2][0]["image/png"]) > 10_000
