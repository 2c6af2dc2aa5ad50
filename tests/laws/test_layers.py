"""Dependencies point one way: read off the syntax tree, late imports and those for the type checker included."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import dpdescent
import house

PACKAGE = Path(dpdescent.__file__).parent
#: What a user imports: the module of the whole package, which looks up names in the others.
FRONT = "dpdescent"

#: From the lowest up. A room imports rooms of lower layers, and none beside it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "arrays", "lazy_names", "verifier"),
    ("relations", "long_runs", "display", "features"),
    ("noise",),
    ("accounting", "exact"),
    ("ledger", "problems"),
    ("minimisers", "statement"),
    ("queries",),
    ("curator",),
    ("solvers",),
    ("tables",),
    ("datasets",),
    ("estimators",),
    ("choosing", "pipelines", "torch"),
    ("evaluation",),
    ("audit",),
    ("old_names",),
    (FRONT,),
    ("lab",),
    ("cli",),
    ("__main__",),
)
LEVELS = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}

#: What looks up all the same: the room, what it imports, and why.
EXCEPTIONS = {
    ("statement", "dpdescent.__version__"): "a statement says which version has made it",
    (FRONT, "dpdescent.lab.output_perturbation_paper.theorems.excess_risk_bound"): "a public name",
}

#: Who may look modules up by names that are no literals: front and cli are above all that they name but `EXCEPTIONS`;
#: old_names gives other modules their earlier names, when somebody asks for one; solvers looks up the modules of its
#: own package alone, and lazy_names those that a package lists as its own.
LOOKS_UP = {FRONT, "old_names", "cli", "solvers", "lazy_names"}


def room_of(name: str) -> str:
    """Return the package or module right below the whole that a name belongs to; the whole for its own names."""
    _, _, rest = name.partition(".")
    room = rest.partition(".")[0]
    ours = room in LEVELS or (room and ((PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").exists()))
    return room if ours else FRONT


def whole_name(path: Path) -> str:
    """Return the whole name of a module, which ends in __init__ for a package."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def base_of(module: str, level: int, name: str | None) -> str:
    """Return where a statement of a module imports from, by its whole name."""
    above = module.split(".")[:-level] if level else []
    return ".".join([*above, *([name] if name else [])])


def looked_up(call: ast.Call, module: str) -> str | None:
    """Return what a call looks up by name, "?" if that is no literal, and None if it looks nothing up."""
    if getattr(call.func, "attr", getattr(call.func, "id", "")) not in ("import_module", "__import__"):
        return None
    first = call.args[0] if call.args else None
    if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
        return "?"
    name = first.value.lstrip(".")
    return base_of(module, len(first.value) - len(name), name)


def imports(module: str, tree: ast.AST) -> Iterator[str]:
    """Yield what a module imports, wherever in it, by the whole name of each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = base_of(module, node.level, node.module)
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and (found := looked_up(node, module)) is not None:
            yield found


def crossings(module: str, tree: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Yield the module, its room and what it imports, for all that is ours and in another room."""
    home = FRONT if module == f"{FRONT}.__init__" else module.split(".")[1]
    for name in imports(module, tree):
        ours = name == FRONT or name.startswith(f"{FRONT}.")
        if name == "?" or (ours and room_of(name) != home):
            yield module, home, name


@cache
def all_crossings() -> tuple[tuple[str, str, str], ...]:
    """Return those of all modules of the package."""
    return tuple(each for path, tree in house.trees().items() for each in crossings(whole_name(path), tree))


def violations(crossed: Iterable[tuple[str, str, str]]) -> set[tuple[str, str]]:
    """Return the modules that import what does not stand below them, and what that is."""
    wrong = set()
    for module, home, name in crossed:
        if name == "?":
            allowed = home in LOOKS_UP
        else:
            allowed = (home, name) in EXCEPTIONS or LEVELS[room_of(name)] < LEVELS[home]
        if not allowed:
            wrong.add((module, name))
    return wrong


def test_every_room_has_a_layer_and_only_one() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__"} <= set(LEVELS), "give a new package or module its place among the layers"
    assert len(LEVELS) == sum(len(rooms) for rooms in LAYERS)


def test_dependencies_point_one_way() -> None:
    assert violations(all_crossings()) == set()


def test_every_exception_is_needed() -> None:
    assert EXCEPTIONS.keys() <= {(home, name) for _, home, name in all_crossings()}


def test_nobody_imports_a_private_name_of_another_room() -> None:
    private = {name for _, _, name in all_crossings() if name.rpartition(".")[2].startswith("_")}
    assert private <= {"dpdescent.__version__"}


@pytest.mark.parametrize(
    ("module", "source", "name"),
    [
        ("dpdescent.queries.planted", "from ..curator import Curator", "dpdescent.curator.Curator"),
        ("dpdescent.queries.planted", "from ..curator.release import pay", "dpdescent.curator.release.pay"),
        ("dpdescent.queries.planted", "from .. import curator", "dpdescent.curator"),
        ("dpdescent.queries.planted", "import dpdescent.curator.release", "dpdescent.curator.release"),
        ("dpdescent.queries.__init__", "from ..curator import Curator", "dpdescent.curator.Curator"),
        ("dpdescent.solvers.deep.planted", "from ...estimators import base", "dpdescent.estimators.base"),
        ("dpdescent.noise.planted", "def f():\n    from ..ledger import Ledger", "dpdescent.ledger.Ledger"),
        ("dpdescent.exact.planted", "if TYPE_CHECKING:\n    from ..problems import Loss", "dpdescent.problems.Loss"),
        ("dpdescent.exact.planted", "from ..accounting import Cost", "dpdescent.accounting.Cost"),
        (
            "dpdescent.minimisers.planted",
            "if TYPE_CHECKING:\n    from ..curator import Source",
            "dpdescent.curator.Source",
        ),
        ("dpdescent.torch.planted", "import dpdescent", "dpdescent"),
        ("dpdescent.estimators.planted", "from .. import __version__", "dpdescent.__version__"),
        ("dpdescent.audit.planted", "import_module('dpdescent.lab')", "dpdescent.lab"),
        ("dpdescent.audit.planted", "importlib.import_module('..lab.study', __package__)", "dpdescent.lab.study"),
        ("dpdescent.audit.planted", "import_module(f'.{name}', __package__)", "?"),
        ("dpdescent.errors", "from .arrays import Floats", "dpdescent.arrays.Floats"),
        ("dpdescent.__init__", "from .cli import main", "dpdescent.cli.main"),
    ],
)
def test_an_import_that_looks_up_is_found(module: str, source: str, name: str) -> None:
    assert violations(crossings(module, ast.parse(source))) == {(module, name)}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("dpdescent.curator.planted", "from ..queries import Sum\nfrom .release import pay\nimport numpy"),
        ("dpdescent.queries.__init__", "from .query import Query\nfrom . import per_row"),
        ("dpdescent.cli.planted", "import_module(f'.{name}', __package__)\nfrom .. import __version__"),
        ("dpdescent.statement.planted", "from .. import __version__"),
        ("dpdescent.lab.deep.planted", "import dpdescent\nfrom ...torch import fit"),
    ],
)
def test_an_import_that_looks_down_is_none(module: str, source: str) -> None:
    assert violations(crossings(module, ast.parse(source))) == set()
