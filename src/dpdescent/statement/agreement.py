"""Whether two statements say the same, given that floating point may differ in the last digits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

from ..accounting import Composed, Cost, FixedSchedule, Gaussian
from ..errors import MissingPackage

__all__ = ["AGREEMENT", "agree", "require_priceable", "with_nulls"]

AGREEMENT = 1e-9  # relative: prices are the same to rounding on every machine
_INFINITE = ("epsilon", "budget", "spent", "spent_epsilon")


def with_nulls(data: Any) -> Any:
    """Return the plain data of a statement with null for what is infinite, as JSON has it."""
    if not isinstance(data, dict):
        return data
    return data | {name: None for name in _INFINITE if name in data and _is_infinite(data[name])}


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and value == math.inf


def agree(given: Any, computed: Any) -> bool:
    """Return whether plain data is what was computed, but for rounding."""
    if isinstance(computed, dict):
        same = isinstance(given, dict) and given.keys() == computed.keys()
        return same and all(agree(given[name], computed[name]) for name in computed)
    if isinstance(computed, list):
        same = isinstance(given, list) and len(given) == len(computed)
        return same and all(map(agree, given, computed))
    if isinstance(computed, bool) or not isinstance(computed, int | float):
        return type(given) is type(computed) and bool(given == computed)
    number = isinstance(given, int | float) and not isinstance(given, bool)
    return number and math.isclose(given, computed, rel_tol=AGREEMENT, abs_tol=1e-300)


def require_priceable(costs: Iterable[Cost]) -> None:
    """Raise `MissingPackage` if a cost has the price that was stated only where an optional package is installed."""
    for cost in costs:
        if isinstance(cost, Composed):
            require_priceable(cost.parts)
        if isinstance(cost, FixedSchedule) and cost.failure > 0 and not find_spec("dp_accounting"):
            if all(isinstance(part, Gaussian) for part in cost.parts):
                continue
            raise MissingPackage("checking this statement needs dp-accounting: pip install 'dpdescent[accounting]'")
