"""The settings of a method from ``solver_options``, checked by name and type before anything is charged."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from sklearn.utils.validation import check_random_state

from ..errors import InvalidParameter, require_nonnegative
from ..problems import Adversary
from ..solvers import METHODS, Method

_TYPES: dict[Any, tuple[str, Any]] = {
    bool: ("true or false", bool | np.bool_),
    int: ("a whole number", int | np.integer),
    float: ("a number", int | float | np.integer | np.floating),
    str: ("text", str),
    NoneType: ("nothing", NoneType),
}


def known_method(name: str) -> Method:
    """Return a method by name, or raise `InvalidParameter` with the names there are."""
    if not isinstance(name, str) or name not in METHODS:
        raise InvalidParameter(f"unknown method {name!r}: choose one of {', '.join(sorted(METHODS))}")
    return METHODS[name]


def make_settings(name: str, options: Mapping[str, Any] | None) -> Any:
    """Return the settings of the method ``name``, with ``options`` in place of the defaults."""
    build, given = known_method(name).settings, {} if options is None else options
    if not isinstance(given, Mapping):
        raise InvalidParameter(f"solver_options must map names to values, got a {type(given).__name__}")
    known, hints = list(inspect.signature(build).parameters), get_type_hints(build)
    for option, value in given.items():
        if option not in known:
            raise InvalidParameter(
                f"method {name!r} has no setting {option!r}: it takes {', '.join(known) or 'no settings'}"
            )
        if not _fits(value, hints.get(option, Any)):
            raise InvalidParameter(
                f"the setting {option!r} of method {name!r} must be {_described(hints[option])}, got {value!r:.80}"
            )
    try:
        return build(**given)
    except TypeError as problem:
        raise InvalidParameter(f"solver_options of {name!r} do not fit: {problem}") from None


def require_flag(name: str, value: Any, *, optional: bool = False) -> None:
    """Raise `InvalidParameter` unless a value is True or False, or None where it is optional."""
    if not isinstance(value, bool | np.bool_) and not (optional and value is None):
        can = "True, False or None" if optional else "True or False"
        raise InvalidParameter(f"{name} must be {can}, got a {type(value).__name__}")


def require_robust(method: Method, tilt: float, adversary: Adversary | None) -> None:
    """Refuse a tilt or an adversary that is none, or that a method would leave out of account."""
    if adversary is not None and not isinstance(adversary, Adversary):
        raise InvalidParameter(f"adversary must be an Adversary(radius, norm), got {adversary!r}")
    method.require_robust(require_nonnegative("tilt", tilt) > 0 or adversary is not None)


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if hint not in _TYPES:
        return True
    # A bool is an int to Python, and no number to anybody else.
    return isinstance(value, _TYPES[hint][1]) and (hint is bool or not isinstance(value, bool | np.bool_))


def _described(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_described(each) for each in get_args(hint) if each is not NoneType)
    if get_origin(hint) is Literal:
        return " or ".join(repr(each) for each in get_args(hint))
    return _TYPES[hint][0] if hint in _TYPES else str(hint)


def seed_of(random_state: Any) -> int | None:
    """Return the seed of a fit, None where the noise comes from the operating system."""
    if random_state is None:
        return None
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        raise InvalidParameter(
            f"random_state must be None, a whole number or a RandomState, got a {type(random_state).__name__}"
        ) from None
