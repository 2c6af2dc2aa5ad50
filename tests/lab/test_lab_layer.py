"""The laboratory stands above everything but the command line: read off the syntax tree, late imports included."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpdescent
from dpdescent import old_names

PACKAGE = Path(dpdescent.__file__).parent
LAB, COMMAND_LINE = "dpdescent.lab", "dpdescent.cli"
#: Earlier names of modules, and how many names each of them had.
EARLIER = {"encoding": 10, "excess_risk": 4, "experiments": 8, "prescriptions": 6, "schema": 15, "sources": 12}
#: Who names the laboratory below it: the list of public names has one of its theorems, that of earlier names more.
NAMES_IT = {"dpdescent", "dpdescent.old_names"}
# A word that stands for the laboratory where a module is looked up by its name.
_NAMED = re.compile(r"^\.{0,2}(dpdescent\.)?lab([.:][\w.:]*)?$")


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
ROOMS = {name: path for name, path in MODULES.items() if within(name, LAB)}


def imported(node: ast.AST, package: str) -> Iterator[str]:
    """Yield what one node imports, by its whole name: a statement anywhere, or a word given to a look-up."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAMED.match(node.value):
        yield LAB


def lookups(source: str, package: str) -> list[str]:
    """Return what a source imports at all: at the top, inside functions, and for the type checker alone."""
    return [name for node in ast.walk(ast.parse(source)) for name in imported(node, package)]


def lookups_at_once(source: str, package: str) -> list[str]:
    """Return what is imported when the module is, so not inside functions and not for the type checker alone."""
    found: list[str] = []
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            waiting += node.orelse
            continue
        found += imported(node, package)
        waiting += ast.iter_child_nodes(node)
    return found


def package_of(module: str) -> str:
    return module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]


def reaches(names: list[str], package: str) -> bool:
    return any(within(name, package) for name in names)


@pytest.mark.parametrize(
    "source",
    [
        "from ..lab.study import run",
        "from .. import lab",
        "import dpdescent.lab.study",
        "from dpdescent import lab",
        "def late():\n    from ..lab import study",
        "if TYPE_CHECKING:\n    from ..lab.study import Record",
        "import_module('dpdescent.lab.study')",
        "PLACES = ('.lab.reproduction:reproduce',)",
    ],
)
def test_every_way_to_import_the_laboratory_is_seen(source: str) -> None:
    assert reaches(lookups(source, "dpdescent.solvers"), LAB)


def test_what_is_imported_late_is_told_from_what_is_imported_at_once() -> None:
    late = (
        "from ..errors import X\ndef f():\n    from ..lab import study\nif TYPE_CHECKING:\n    import dpdescent.lab"
    )
    assert lookups_at_once(late, COMMAND_LINE) == ["dpdescent.errors.X"]
    assert reaches(lookups_at_once("class A:\n    from ..lab import study", COMMAND_LINE), LAB)
    assert not reaches(lookups("from .labels import Labels\nx = 'labels'", "dpdescent"), LAB)


def test_nothing_but_the_command_line_imports_the_laboratory() -> None:
    below = {name: path for name, path in MODULES.items() if name not in ROOMS and not within(name, COMMAND_LINE)}
    found = {name for name, path in below.items() if reaches(lookups(path.read_text(), package_of(name)), LAB)}
    assert found == NAMES_IT


def test_the_command_line_looks_the_laboratory_up_only_when_asked() -> None:
    commands = {name: path.read_text() for name, path in MODULES.items() if within(name, COMMAND_LINE)}
    assert any(reaches(lookups(source, package_of(name)), LAB) for name, source in commands.items())
    for name, source in commands.items():
        assert not reaches(lookups_at_once(source, package_of(name)), LAB), name


def test_the_laboratory_does_not_import_the_command_line() -> None:
    for name, path in ROOMS.items():
        assert not reaches(lookups(path.read_text(), package_of(name)), COMMAND_LINE), name


def test_fits_audits_data_sets_and_help_run_without_the_laboratory() -> None:
    program = (
        "import sys, dpdescent, dpdescent.audit, dpdescent.datasets, dpdescent.solvers, dpdescent.cli.commands\n"
        "dpdescent.DPLogisticRegression, dpdescent.select\n"
        "print(*[name for name in sys.modules if name.startswith('dpdescent.lab')])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


@pytest.mark.parametrize("name", EARLIER)
def test_an_earlier_name_holds_the_same_things_and_no_logic(name: str) -> None:
    alias = importlib.import_module(f"dpdescent.{name}")
    assert alias is getattr(dpdescent, name)
    assert len(alias.__all__) == EARLIER[name]
    for home, names in old_names.EARLIER[name].items():
        for thing in names.split():
            assert getattr(alias, thing) is getattr(importlib.import_module(f"dpdescent.{home}"), thing)
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec(f"from dpdescent.{name} import Nothing")


def test_an_earlier_name_is_found_by_whoever_imports_it_first() -> None:
    program = "from dpdescent.schema import Schema\nimport dpdescent\nassert Schema is dpdescent.Schema"
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("dpdescent.never")
