"""The rooms of the laboratory are few, have names of their own, and hold functions that can be read at once."""

from __future__ import annotations

import ast
from collections import Counter

from test_lab_layer import MODULES, ROOMS

LONGEST_FUNCTION, MOST_BRANCHES = 60, 20


def branches(function: ast.AST) -> int:
    """Return the cyclomatic complexity: one, and one more for every decision inside."""
    decisions = (ast.If, ast.IfExp, ast.For, ast.While, ast.ExceptHandler, ast.match_case)
    count = 1
    for node in ast.walk(function):
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        else:
            count += isinstance(node, decisions)
    return count


def test_no_room_shares_its_name_with_a_module_elsewhere() -> None:
    stems = Counter(path.stem for path in MODULES.values())
    assert [name for name, path in ROOMS.items() if path.stem != "__init__" and stems[path.stem] > 1] == []


def test_rooms_are_few() -> None:
    assert len(ROOMS) <= 24
    assert sum(len(path.read_text().splitlines()) for path in ROOMS.values()) <= 10_500


def test_no_function_of_the_laboratory_is_long_or_tangled() -> None:
    assert branches(ast.parse("def f(x):\n    return [y for y in x if y and x or x] if x else 0")) == 6
    for path in ROOMS.values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                length = node.end_lineno - node.lineno + 1
                assert length <= LONGEST_FUNCTION, f"{path.name}: {node.name} has {length} lines"
                assert branches(node) <= MOST_BRANCHES, f"{path.name}: {node.name} has {branches(node)} branches"
