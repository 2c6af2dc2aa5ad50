"""The changes of a module that `mutants.py` tries: those of mutmut, and how one of them is switched on."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

HOME = Path(__file__).resolve().parent.parent
FOLDER = HOME / "mutants"
SOURCES = FOLDER / "src"
PACKAGE = SOURCES / "dpdescent"
KEPT = {"classmethod", "staticmethod"}


@dataclass(frozen=True)
class Mutant:
    """A changed function: the whole text of its module, and the lines that differ."""

    module: str
    function: str
    text: str
    change: str

    @property
    def path(self) -> Path:
        return PACKAGE / f"{self.module.replace('.', '/')}.py"


def mutants_of(module: str) -> Iterator[Mutant]:
    """Yield the changes that mutmut makes of a module, except for those of messages and of capitals."""
    from mutmut.mutation.file_mutation import create_mutations

    path = PACKAGE / f"{module.replace('.', '/')}.py"
    text = bare(path)
    tree, mutations, *_ = create_mutations(str(path), text)
    seen: Counter[tuple[str, str]] = Counter()
    names = {id(node): name for name, node in functions_of(tree)}
    messages = {id(node) for statement in nodes_of(tree) if is_raise(statement) for node in nodes_of(statement)}
    for mutation in mutations:
        name = names.get(id(mutation.contained_by_top_level_function))
        if name is None or id(mutation.original_node) in messages or is_other_case(mutation):
            continue
        function: Any = mutation.contained_by_top_level_function
        function = function.deep_replace(mutation.original_node, mutation.mutated_node).with_changes(leading_lines=[])
        changed = put(text, name, tree.code_for_node(function))
        change = difference(text, changed)
        seen[name, change] += 1
        if seen[name, change] > 1:  # one of several equal lines
            change += f" ({seen[name, change]})"
        if nameless(changed) != nameless(text):
            yield Mutant(module, name, changed, change)


def nodes_of(node: Any) -> Iterator[Any]:
    """Yield a node and all nodes below it."""
    yield node
    for child in node.children:
        yield from nodes_of(child)


def is_raise(node: Any) -> bool:
    """Return whether a node raises an error, whose words no guarantee depends on."""
    import libcst

    return isinstance(node, libcst.Raise)


def is_other_case(mutation: Any) -> bool:
    """Return whether a mutation writes a text in small or in capital letters; another changes the text itself."""
    import libcst

    old, new = mutation.original_node, mutation.mutated_node
    return isinstance(old, libcst.SimpleString) and old.value.lower() == getattr(new, "value", "").lower()


def nameless(text: str) -> str:
    """Return a text without the names of arguments that are only there for the words of an error."""
    return re.sub(r'(require_\w+)\((None|"\w*"),', r"\1(", text)


def put(text: str, name: str, function: str) -> str:
    """Return the text of a module with another text of one of its functions."""
    node = definition_of(ast.parse(text), name)
    indented = textwrap.indent(function.strip("\n") + "\n", " " * node.col_offset)
    lines = text.splitlines(keepends=True)
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return "".join([*lines[: first - 1], indented, *lines[node.end_lineno :]])


def definition_of(tree: ast.Module, name: str) -> ast.FunctionDef:
    """Return the definition of a function or method of a module."""
    node: Any = tree
    for part in name.split("."):
        node = next(
            child for child in node.body if isinstance(child, ast.FunctionDef | ast.ClassDef) and child.name == part
        )
    assert isinstance(node, ast.FunctionDef)
    return node


def bare(path: Path) -> str:
    """Return the text of a module without the decorators of its functions, which mutmut would pass over."""
    lines = path.read_text().splitlines(keepends=True)
    for node in ast.walk(ast.parse("".join(lines))):
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if not (isinstance(decorator, ast.Name) and decorator.id in KEPT):
                    for number in range(decorator.lineno - 1, decorator.end_lineno or decorator.lineno):
                        lines[number] = ""
    return "".join(lines)


def functions_of(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield the functions and methods of a module with their names."""
    import libcst

    for node in tree.body:
        if isinstance(node, libcst.FunctionDef):
            yield node.name.value, node
        elif isinstance(node, libcst.ClassDef):
            for method in node.body.body:
                if isinstance(method, libcst.FunctionDef):
                    yield f"{node.name.value}.{method.name.value}", method


def difference(before: str, after: str) -> str:
    """Return the lines that a mutant takes away and those that it puts in their place, without their numbers.

    Lines may move; a list of mutants that is kept beside the code stays the same then.
    """
    old, new = ([line.strip() for line in text.splitlines()] for text in (before, after))
    while old and new and old[0] == new[0]:
        del old[0], new[0]
    while old and new and old[-1] == new[-1]:
        del old[-1], new[-1]
    return f"{' '.join(old)} -> {' '.join(new)}"


def switch_on(mutant: Mutant, live: Mapping[tuple[str, str], list[FunctionType]]) -> None:
    """Put the changed code and its defaults into all functions that were made of the original."""
    text = mutant.text
    code = code_of(compile(text, str(mutant.path), "exec", dont_inherit=True), mutant.function)
    functions = live.get((str(mutant.path), mutant.function), [])
    positional: dict[int, Any] = {}
    named: dict[str, Any] = {}
    if any(function.__defaults__ or function.__kwdefaults__ for function in functions):
        positional, named = defaults_of(ast.parse(text), mutant.function)
    for function in functions:
        function.__code__ = code
        if function.__defaults__:
            old = function.__defaults__
            function.__defaults__ = tuple(positional.get(len(old) - i, value) for i, value in enumerate(old))
        if function.__kwdefaults__:
            function.__kwdefaults__ = {
                name: named.get(name, value) for name, value in function.__kwdefaults__.items()
            }
    mutant.path.write_text(text)


def code_of(module: CodeType, name: str) -> CodeType:
    """Return the code of a function in the code of its module."""
    for part in name.split("."):
        module = next(
            constant for constant in module.co_consts if isinstance(constant, CodeType) and constant.co_name == part
        )
    return module


def defaults_of(tree: ast.Module, name: str) -> tuple[dict[int, Any], dict[str, Any]]:
    """Return the constant defaults of a function: by their place from the end, and of named arguments by name."""
    node = definition_of(tree, name)
    last = len(node.args.defaults)
    positional = {
        last - i: value.value for i, value in enumerate(node.args.defaults) if isinstance(value, ast.Constant)
    }
    named = {
        argument.arg: value.value
        for argument, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        if isinstance(value, ast.Constant)
    }
    return positional, named
