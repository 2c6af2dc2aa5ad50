"""Every block of code of the manual runs, and prints what the page shows."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import dpdescent
from dpdescent.lab.report_page import Report
from pages import ROOT, Page, read_blocks, small

__all__ = ["small"]

WALKED = {"tutorial.md"}  # by test_readme.py
PAGES = sorted(
    path for path in (ROOT / "docs").glob("*.md") if path.name not in WALKED and read_blocks(path.read_text())
)
NEEDS_TORCH = {"coming-from-opacus.md", "networks.md"}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_block_of_a_page_runs_and_prints_what_the_page_shows(path: Path) -> None:
    if path.name in NEEDS_TORCH and not find_spec("torch"):
        pytest.skip("torch is not installed")
    Page(path).run()


def test_the_tables_of_methods_and_papers_are_those_of_the_registry() -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    from methods_table import PAGES, written

    for name in PAGES:
        page = (ROOT / "docs" / name).read_text()
        assert written(page) == page, f"docs/{name} is out of date: python docs/methods_table.py"


def test_the_pages_of_results_are_made_from_the_results_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    import results

    results.main(["pages", "--check"])
    assert {path.suffix for path in results.FOLDER.iterdir()} == {".json", ".md", ".png", ".toml"}
    assert sum(path.stat().st_size for path in results.FOLDER.iterdir()) < 3_200_000
    monkeypatch.setattr(results, "duration", lambda seconds: f"{seconds + 1:.0f} s")
    with pytest.raises(SystemExit, match=r"results/000\.md"):
        results.main(["pages", "--check"])


def test_a_kept_result_is_read_as_it_was_measured(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    from results import kept_result, numbers

    cells = ({"method": "agd", "accuracy": [0.8, None, 1]}, {"method": "sgd", "value": 0.0, "seconds": [1.5, 0.1, 2]})
    (tmp_path / "kept.json").write_text(
        numbers("000/figure1", Report("", "", "", (), (), (), (), (), cells=cells), 1)
    )
    assert kept_result(tmp_path / "kept.json")["cells"] == list(cells)


def test_a_fit_without_a_budget_is_counted_once_in_the_time_of_a_result() -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    from results import fitted

    seconds = {"nonprivate": 10.0, "agd-paper": 2.0}
    cells = [
        {"dataset": name, "loss": "logistic", "method": method, "epsilon": epsilon, "seconds": [mean, None, 3]}
        for name in ("adult", "bank")
        for method, mean in seconds.items()
        for epsilon in (0.1, 0.2)
    ]
    assert fitted([*cells, {"iteration": 1}]) == 2 * 3 * (10.0 + 2 * 2.0)


def test_every_page_is_in_the_contents_of_the_manual() -> None:
    docs = ROOT / "docs"
    found = [*docs.glob("*.md"), *docs.glob("results/*.md")]
    pages = {str(path.relative_to(docs).with_suffix("")): path.read_text() for path in found}
    trees = re.findall(r"^```{toctree}$(.*?)^```$", "".join(pages.values()), re.MULTILINE | re.DOTALL)
    listed = re.findall(r"^(?:.+ <)?([\w/-]+)>?$", "".join(trees), re.MULTILINE)
    assert sorted({*pages, "pictures/index"} - {"index"}) == sorted(listed)


def test_every_public_name_is_in_the_reference() -> None:
    listed = set(re.findall(r"^   ([\w.]+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE))
    assert set(dpdescent.__all__) - {"__version__"} <= {name.split(".")[0] for name in listed}


def test_every_link_between_pages_leads_somewhere() -> None:
    docs = ROOT / "docs"
    pages = [*docs.glob("*.md"), *docs.glob("results/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", page.read_text()):
            generated = target.startswith(("pictures/", "api/"))
            assert generated or (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_file_that_a_page_names_is_there() -> None:
    for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]:
        for named in re.findall(r"`(?:python )?([\w/]+/[\w]*\.?(?:py)?)[^`\n]*`", page.read_text()):
            if named.endswith(".py"):
                places = (ROOT / "src" / "dpdescent" / named, ROOT / named)
                assert any(place.exists() for place in places), f"{page.name} names {named}"


def test_the_citation_names_this_release() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {dpdescent.__version__}\n" in citation
