"""The size of the house: `python tests/house.py` prints how many rooms there are, and what is too long in them."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import dpdescent

SOURCES = Path(dpdescent.__file__).parent
BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension, ast.match_case)
QUICK = """
import sys, dpdescent
dpdescent.DPLogisticRegression
print(sum(name.startswith("dpdescent") for name in sys.modules))
"""


def modules() -> list[Path]:
    """Return the modules of the package."""
    return sorted(path for path in SOURCES.rglob("*.py") if "__pycache__" not in path.parts)


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the syntax tree of every module: the laws that read all of them share it."""
    return {path: ast.parse(path.read_text()) for path in modules()}


def lines() -> int:
    """Return the number of lines of all modules."""
    return sum(len(path.read_text().splitlines()) for path in modules())


def shared_names() -> dict[str, int]:
    """Return the names that several modules have."""
    counted = Counter(path.stem for path in modules() if not path.stem.startswith("__"))
    return {name: count for name, count in counted.items() if count > 1}


def functions() -> Iterator[tuple[str, int, int]]:
    """Yield every function by place and name, with its number of lines and its cyclomatic complexity."""
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1 - _docstring_lines(node)
                yield f"{path.relative_to(SOURCES)}:{node.name}", length, complexity(node)


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    said = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return (first.end_lineno or 0) - first.lineno + 1 if said else 0


def complexity(function: ast.AST) -> int:
    """Return the number of independent paths through a function, those of functions inside of it apart."""
    paths, waiting = 1, list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        paths += isinstance(node, BRANCHES)
        paths += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
        waiting.extend(ast.iter_child_nodes(node))
    return paths


def loaded() -> int:
    """Return how many modules of ours an estimator needs."""
    return int(subprocess.run([sys.executable, "-c", QUICK], check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    print(f"{len(modules())} modules, {lines()} lines, {loaded()} modules loaded by DPLogisticRegression")
    print("names of several modules:", ", ".join(sorted(shared_names())) or "none")
    for place, length, paths in functions():
        if length > 60 or paths > 20:
            print(f"{place}: {length} lines, complexity {paths}")
