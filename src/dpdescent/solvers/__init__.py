"""Solvers: each is a function of a curator and its own settings, and reads like the pseudo-code of its paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..curator import Curator
from .agd import AGDSettings, agd
from .result import Progress, SolverResult

__all__ = ["METHODS", "AGDSettings", "Method", "Progress", "SolverResult", "agd"]


@dataclass(frozen=True)
class Method:
    """A solver and the class of its settings."""

    solve: Callable[[Curator, Any, Progress | None], SolverResult]
    settings: Callable[..., Any]


METHODS = {"agd": Method(agd, AGDSettings)}
