"""A function of a caller's own, on two tables of the caller's own."""

from __future__ import annotations

import hashlib
import inspect
import pickle
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .scores import plain

__all__ = ["FunctionRun"]

_CHUNK = 200


@dataclass(frozen=True, eq=False)
class FunctionRun:
    """A caller's own function on a caller's own tables."""

    function: Callable[..., Any]
    tables: tuple[Any, Any]
    score: Callable[[Any], float] | None

    @property
    def fingerprint(self) -> str:
        """Text that tells it from any other."""
        names = [_code_of(function) for function in (self.function, self.score) if function is not None]
        return f"{' '.join(names)} {hashlib.sha256(pickle.dumps(self.tables)).hexdigest()}"

    @property
    def chunk(self) -> int:
        """How many runs are worth a task of their own."""
        return _CHUNK

    def draw(self, neighbour: bool, seed: int | None, runs: int) -> list[list[float] | str]:
        """Return the outcomes of independent calls, or what the caller's score makes of them."""
        table, seeded = self.tables[neighbour], _takes_seed(self.function)
        generator = np.random.default_rng(secrets.randbits(128) if seed is None else seed)
        outcomes: list[list[float] | str] = []
        for _ in range(runs):
            own = {"seed": int(generator.integers(2**62))} if seeded else {}
            outcome = self.function(table, **own)
            outcomes.append(plain(outcome if self.score is None else self.score(outcome)))
        return outcomes


def _code_of(function: Callable[..., Any]) -> str:
    """Return the name of a function with a digest of its code, or of its state: runs of another one do not count."""
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__name__)}"
    code = getattr(function, "__code__", None)
    if code is not None:
        plain_ones = [each for each in code.co_consts if isinstance(each, int | float | complex | str | bytes | None)]
        content = repr((code.co_code, code.co_names, plain_ones)).encode()
    else:
        try:
            content = pickle.dumps(function)
        except (pickle.PicklingError, AttributeError, TypeError):
            content = b""
    return f"{name} {hashlib.sha256(content).hexdigest()}"


def _takes_seed(function: Callable[..., Any]) -> bool:
    try:
        return "seed" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
