"""What a module or a loss can reach that no copy of it has for itself.

A copy shares variables that its functions have closed over, those outside of functions, and what its classes hold. A
pass may write into them: a log of losses, for instance, or a moving mean. Whether it does is tried on copies of these
values, which stand in their places for as long as that takes.
"""

from __future__ import annotations

import copy
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_LIBRARIES = frozenset(["torch", "numpy", "dpdescent", *sys.stdlib_module_names]) - {"__main__"}
_DATA = (
    *(int, float, complex, list, tuple, dict, set, deque, bytearray),
    *(Tensor, np.ndarray, torch.Generator, random.Random, np.random.Generator),
)


class _Variable:
    """A place outside of an object where a function or a class keeps a value."""

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], None]) -> None:
        self.read, self.write = read, write

    def value(self) -> Any:
        """Return what is there, if anything is."""
        with suppress(ValueError, KeyError, AttributeError):
            return self.read()
        return None

    def holds_data(self) -> bool:
        """Return whether numbers are there, a collection or an object, unless it is of a library."""
        value = self.value()
        if isinstance(value, nn.Module | nn.Parameter | type | types.FunctionType):
            return False
        return isinstance(value, _DATA) or (hasattr(value, "__dict__") and not _of_library(type(value)))


@contextmanager
def copied_variables(*roots: Any) -> Iterator[Callable[[], list[Any]]]:
    """Put copies in the places of all variables that objects reach, and yield a function that returns their values.

    What cannot be copied stays. Afterwards every variable is what it was.
    """
    variables = [(each, each.value()) for each in reachable(*roots) if each.holds_data()]
    modules = [each for root in roots if isinstance(root, nn.Module) for each in root.modules()]
    memo: dict[int, Any] = {id(each): each for part in modules for each in (part, *part.parameters())}
    try:
        for variable, value in variables:
            with suppress(Exception):
                variable.write(copy.deepcopy(value, memo))
        yield lambda: [variable.value() for variable, _ in variables]
    finally:
        for variable, value in variables:
            with suppress(Exception):
                variable.write(value)


def reachable(*roots: Any) -> list[_Variable]:
    """Return the variables that the functions and the classes of objects name, without those of libraries."""
    found: list[_Variable] = []
    seen: set[int] = set()

    def visit(value: Any) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, types.FunctionType):
            for variable in _variables_of(value):
                found.append(variable)
                visit(variable.value())
        elif isinstance(value, types.MethodType):
            visit(value.__self__)
            visit(value.__func__)
        elif isinstance(value, partial):
            for each in (value.func, *value.args, *value.keywords.values()):
                visit(each)
        elif isinstance(value, nn.Module):
            for each in value.modules():
                visit_object(each)
        elif callable(value) and not isinstance(value, type) and hasattr(value, "__dict__"):
            visit_object(value)

    def visit_object(value: Any) -> None:
        for kind in type(value).__mro__:
            if id(kind) not in seen and not _of_library(kind):
                seen.add(id(kind))
                for name, each in list(vars(kind).items()):
                    if isinstance(each, types.FunctionType):
                        visit(each)
                    elif not name.startswith("__"):
                        place = partial(getattr, kind, name), partial(setattr, kind, name)
                        found.append(_Variable(*place))
        for each in list(vars(value).values()):
            if not isinstance(each, nn.Module):
                visit(each)
            if isinstance(each, dict):  # hooks
                for held in each.values():
                    if isinstance(held, types.FunctionType | types.MethodType | partial):
                        visit(held)

    for root in roots:
        visit(root)
    return found


def _of_library(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "builtins").partition(".")[0] in _LIBRARIES


def _variables_of(function: types.FunctionType) -> Iterator[_Variable]:
    if _of_library(function):
        return
    outside = function.__globals__
    for cell in function.__closure__ or ():
        yield _Variable(partial(getattr, cell, "cell_contents"), partial(setattr, cell, "cell_contents"))
    for name in _names_in(function.__code__):
        if name in outside and not isinstance(outside[name], types.ModuleType):
            value = outside[name]
            if not (isinstance(value, types.FunctionType) and value.__globals__ is not outside):  # of this file alone
                yield _Variable(partial(outside.__getitem__, name), partial(outside.__setitem__, name))
    for name in ("__defaults__", "__kwdefaults__"):
        yield _Variable(partial(getattr, function, name), partial(setattr, function, name))


def _names_in(code: types.CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return {*code.co_names, *(name for each in inner for name in _names_in(each))}
