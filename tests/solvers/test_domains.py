"""The types of settings are their domains, for every registered method."""

from __future__ import annotations

import math
import types
from dataclasses import fields
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from dpdescent.errors import InvalidParameter
from dpdescent.solvers import METHODS
from dpdescent.solvers.method import Within

CLASSES = {method.settings.__name__: method.settings for method in METHODS.values()}


def parts_of(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def hints_of(name: str) -> dict[str, Any]:
    hints = get_type_hints(CLASSES[name], include_extras=True)
    return {each.name: hints[each.name] for each in fields(CLASSES[name])}


@pytest.mark.parametrize("name", CLASSES)
def test_every_number_declares_its_domain(name: str) -> None:
    """Those of the second-order analysis whose domain depends on other settings are the only exceptions."""
    free = {"gradient_decrease", "curvature_decrease"}
    for field, hint in hints_of(name).items():
        bare = {part for part in parts_of(hint) if part in (int, float)}
        assert not bare or field in free, f"{name}.{field} is {hint}: annotate it with its domain"


@pytest.mark.parametrize("name", CLASSES)
def test_a_value_beyond_its_domain_is_refused_by_name(name: str) -> None:
    tried = 0
    for field, hint in hints_of(name).items():
        for part in parts_of(hint):
            wrong: list[Any] = []
            if get_origin(part) is Literal:
                wrong = ["another word", 3]
            elif get_origin(part) is Annotated:
                base, interval = get_args(part)[:2]
                assert isinstance(interval, Within)
                wrong = [math.nan, math.inf, "text", interval.low - 1]
                wrong += [interval.low] if interval.closed in ("high", "neither") else []
                wrong += [interval.high] if interval.closed in ("low", "neither") else []
                wrong += [2 * interval.high + 1] if math.isfinite(interval.high) else []
                wrong += [interval.low + 0.5] if base is int else []
            for value in wrong:
                tried += 1
                with pytest.raises(InvalidParameter, match=rf"^{field} must "):
                    CLASSES[name](**{field: value})
    assert tried or name == "MajoritySettings" or name == "ExpMechSettings"


def test_the_ends_of_an_interval() -> None:
    inside = {"both": (1, 1.5, 2), "low": (1, 1.5), "high": (1.5, 2), "neither": (1.5,)}
    for closed, values in inside.items():
        for value in (1, 1.5, 2):
            if value in values:
                Within(1, 2, closed).require("x", value)  # type: ignore[arg-type]
            else:
                with pytest.raises(InvalidParameter, match="x must lie in"):
                    Within(1, 2, closed).require("x", value)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match=r"x must be above 0, got 0"):
        Within(0, closed="neither").require("x", 0)
    with pytest.raises(InvalidParameter, match=r"x must be at least 2, got 1: zero is one"):
        Within(2, remedy="zero is one").require("x", 1)
