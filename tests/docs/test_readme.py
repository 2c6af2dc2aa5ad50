"""The README and the tutorial work for whoever installs the wheel: they are walked in an environment of its own.

The environment holds the built wheel; the packages that dpdescent depends on are those of this environment. Where the
wheel cannot be built, because hatchling is missing, the package that is tested here is walked instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

import dpdescent
from pages import ROOT, Page, command_lines, read_blocks, recipe, small

__all__ = ["small"]


@dataclass(frozen=True)
class Installation:
    """A Python with dpdescent, the folder in which that is installed, the command, and where else to look."""

    python: Path
    packages: Path
    command: list[str]
    path: str = ""

    def run(self, words: list[str], folder: Path, **variables: str) -> str:
        """Run a command without data sets, and without the packages of a checkout; return what it prints."""
        own = {"DPDESCENT_DATA": "", "DPDESCENT_INSTALLED": str(self.packages), "PYTHONPATH": self.path}
        environment = os.environ | own | variables
        result = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("installation")
    if find_spec("hatchling") is None or find_spec("pip") is None:
        packages = Path(dpdescent.__file__).parents[1]
        command = [sys.executable, "-c", "import dpdescent.cli; dpdescent.cli.main()"]
        return Installation(Path(sys.executable), packages, command, str(packages))
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install], check=True, capture_output=True)
    (packages,) = folder.glob("venv/lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installation(python, packages, [str(python.with_name("dpdescent"))])


def test_readme_and_tutorial_run_from_the_installed_wheel(installation: Installation, tmp_path: Path) -> None:
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    walks = [str(installation.python), "-m", "pytest", *options, str(ROOT / "tests" / "walks.py")]
    assert "3 passed" in installation.run(walks, tmp_path)


def test_the_installed_demo_runs_without_data_sets(installation: Installation, tmp_path: Path) -> None:
    printed = installation.run(
        [*installation.command, "demo"], tmp_path, XDG_CACHE_HOME=str(tmp_path), HOME=str(tmp_path)
    )
    assert "synthetic" in printed
    assert "differentially private" in printed
    if find_spec("matplotlib"):
        assert (tmp_path / "out" / "demo.png").stat().st_size > 10_000


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An environment as `make demo` builds it in a clone: the sources as they are, and the command beside them."""
    folder = tmp_path_factory.mktemp("clone") / "venv"
    venv.create(folder, symlinks=True)
    python, command = folder / "bin" / "python", folder / "bin" / "dpdescent"
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "clone.pth").write_text(f"{ROOT / 'src'}\n{sysconfig.get_path('purelib')}\n")
    command.write_text(f"#!{python}\nimport dpdescent.cli\ndpdescent.cli.main()\n")
    command.chmod(0o755)
    return Installation(python, ROOT / "src", [str(command)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["clone", "installation"])
def test_the_readme_can_be_typed_line_by_line(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """In a shell, in its order, but for what takes minutes: `make`, comparisons and experiments of papers."""
    where: Installation = request.getfixturevalue(kind)
    if where.path:
        pytest.skip("the wheel cannot be built here")
    (tmp_path / ".venv").symlink_to(where.python.parents[1])
    long = ("make", "dpdescent compare", "dpdescent reproduce")
    lines, programs = ["set -e"], []
    for block in read_blocks((ROOT / "README.md").read_text()):
        if block.language == "sh":
            lines += [line for line in block.code.splitlines() if not line.startswith(long)]
        elif block.language == "python":
            programs.append(block.code)
    (tmp_path / "readme.py").write_text("\n".join(programs))
    (tmp_path / "typed.sh").write_text("\n".join([*lines, "python readme.py"]))
    where.run(["bash", "typed.sh"], tmp_path)
    made = {path.name for path in tmp_path.iterdir()}
    assert {"model.json", "income.html", "worth.html", "predictions.csv", "people.html", "table.json"} <= made


def test_every_target_of_the_readme_is_in_the_makefile() -> None:
    blocks = [block for block in read_blocks((ROOT / "README.md").read_text()) if block.language == "sh"]
    targets = [words[1] for block in blocks for words in command_lines(block.code) if words[0] == "make"]
    assert targets == ["demo", "test"]
    assert recipe("demo") == [["dpdescent", "demo"]]


@pytest.mark.usefixtures("small")
def test_a_page_that_prints_something_else_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('```python\nprint("epsilon", 1.5)\n```\n\n```text\nepsilon 2.25\n```\n')
    Page(page, write=False).run()
    page.write_text('```python\nprint("epsilon", 1.5)\n```\n\n```text\ndelta 2.25\n```\n')
    with pytest.raises(AssertionError, match="prints\nepsilon"):
        Page(page, write=False).run()
    page.write_text("```perl\n1\n```\n")
    with pytest.raises(AssertionError, match="nobody knows"):
        Page(page, write=False).run()
