"""Public names of a package that are imported when they are first used.

``dpdescent --help`` need not wait for scientific libraries, and a linear model need not load what trees are made of.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[list[str], Callable[[str], Any]]:
    """Return ``__all__`` and ``__getattr__`` of a package whose names, with spaces between, are in these modules."""
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def look_up(name: str) -> Any:
        if name in modules:
            return import_module(f".{name}", package)
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f".{homes[name]}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    return sorted(homes), look_up
