"""Arguments of estimators: checked before anything is charged, listed in statements, and told of progress.

The settings of a method from ``solver_options``, checked by name and type before anything is charged.

What a statement says of public numbers: what a caller vouched for, and what to know before anything is paid.

An argument is listed if it was given, whatever it is. So a parameter that is added to an estimator is in its
statements without further ado, unless the statement has a place of its own for it.

A progress bar that shows only what is public: the share of the budget that is spent, and the time left.

Tables that are read block by block show how much of a pass over them is done, too, as a share and never as a number
of rows or blocks.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from importlib import import_module
from numbers import Number
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from sklearn.utils.validation import check_random_state

from ..display import occasional
from ..errors import InvalidParameter, nearest, require_nonnegative
from ..problems import Adversary
from ..solvers import METHODS, Facts, Method, Progress
from ..statement import Origin, moved, name_of, public_fact

if TYPE_CHECKING:
    from ..tables import Schema

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
        raise InvalidParameter(
            f"unknown method {name!r:.90}{nearest(name, METHODS)}: choose one of {', '.join(sorted(METHODS))}"
        )
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
                f"method {name!r} has no setting {option!r}{nearest(option, known)}: it takes "
                f"{', '.join(known) or 'no settings'}"
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
    except (TypeError, ValueError):  # of a pair, scikit-learn before 1.7 cannot say what is wrong
        raise InvalidParameter(
            f"random_state must be None, a whole number or a RandomState, got a {type(random_state).__name__}"
        ) from None


#: Parameters that a statement names elsewhere, or that say nothing about the rows.
_ELSEWHERE = {"epsilon", "delta", "adjacency", "method", "random_state", "ledger", "progress", "noise"}
_ELSEWHERE |= {"device", "checkpoint"}
_WORDS = {
    "bounds": "cells outside are clipped",
    "binary_features": "which columns are 0 or 1",
    "class_weight": "the weight of each class",
    "knots": "where curves may bend",
    "unit": "the column that says whose row it is",
}
_LONGEST = 80
_NARROWER = "narrower ones, within those that were given"


def given_arguments(model: Any, told: Iterable[str]) -> list[str]:
    """Return ``told``, and after it a sentence for every argument that was given and is not told of yet."""
    found = list(told)
    named = {name_of(each) for each in found}
    for parameter in fields(model):
        value = getattr(model, parameter.name)
        plain = isinstance(value, Number | str) and value == parameter.default
        left = value is parameter.default or plain or (isinstance(value, Mapping) and not value)
        if left or parameter.name in _ELSEWHERE | named:
            continue
        what = _WORDS.get(parameter.name) or _shown(value)
        found.append(public_fact(parameter.name, what, Origin.ARGUMENT))
    return found


def size_facts(rows: int, units: int | None, declared: int | None, counted: bool) -> list[str]:
    """Return what is public about the size of a table, and by which number of rows its sums are divided.

    ``rows`` stands for the number of rows, ``units`` is that of units where rows belong to some, and ``declared``
    what was given beside them; ``counted`` says whether the number of rows was measured.
    """
    if units is None:
        return [public_fact("the number of rows", str(rows), Origin.RELATION)]
    origin = Origin.MEASURED if counted else Origin.RELATION if declared is None else Origin.ARGUMENT
    return [
        public_fact("the number of units", str(units), Origin.RELATION),
        public_fact("rows", f"sums are divided by {rows}", origin),
    ]


def bounds_facts(given: bool, sought: bool, tightened: bool, private: bool) -> list[str]:
    """Return where the bounds of the columns came from: given, sought for want of them, or made narrower."""
    found = [public_fact("bounds", _WORDS["bounds"], Origin.ARGUMENT)] if given else []
    if sought:
        origin = Origin.MEASURED if private else Origin.ROWS
        found.append(public_fact("bounds", "those that were not given", origin))
    if tightened:
        found.append(public_fact("bounds", _NARROWER, Origin.MEASURED))
    return found


def target_facts(tightened: bool) -> list[str]:
    """Return where the bounds of the target came from, beside those that were given."""
    return [public_fact("target_bounds", _NARROWER, Origin.MEASURED)] if tightened else []


def of_schema(sentences: Sequence[str], schema: Schema, unit: str | None = None) -> list[str]:
    """Return sentences about arguments that a schema file gave; a ``unit`` that was named apart is none of them."""
    names = ["bounds", "binary_features", "classes", "target_bounds", *(["rows_per_unit"] if unit is None else [])]
    missing = [each for each in schema.facts() if each not in sentences]
    return [*missing, *moved(sentences, names, Origin.SCHEMA)]


def _shown(value: Any) -> str:
    """Return a number or a word as it is, and of anything else only what it is."""
    if isinstance(value, Number | str):
        return f"{value}" if isinstance(value, Number) else f"{value!r:.{_LONGEST}}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_shown(each)}" for key, each in value.items())
    return f"{value!r:.{_LONGEST}}" if is_dataclass(value) else f"of type {type(value).__name__}"


_LARGEST_EPSILON = 10.0  # beyond it a guarantee keeps hardly anybody from telling who was in the table
_FEWEST_ROWS = 10.0  # effective ones: with fewer, noise hides all but the frequencies of the classes
_ROWS_PER_PARAMETER = 5.0  # effective ones: with fewer, most single coefficients are noise


def advice(facts: Facts) -> list[str]:
    """Return a sentence for each number that weakens the guarantee or that leaves nothing to learn.

    The number of rows is public under both relations, and nothing else about the table enters.
    """
    found = []
    if facts.delta * facts.rows > 1:
        found.append(
            f"delta {facts.delta:g} is above 1/n for n = {facts.rows} rows, so the guarantee allows a whole row to "
            "be published: choose delta well below 1/n"
        )
    if facts.epsilon > _LARGEST_EPSILON:
        found.append(
            f"epsilon {facts.epsilon:g} is above {_LARGEST_EPSILON:g}, which protects a row very little: choose "
            "epsilon between 0.1 and 10"
        )
    effective = facts.promised_rows if facts.delta > 0 else facts.rows * facts.epsilon / facts.change
    if effective < _FEWEST_ROWS:
        found.append(
            f"epsilon {facts.epsilon:g} and n = {facts.rows} rows amount to {effective:.2g} effective rows, too few "
            "to learn anything from: raise epsilon, or collect more rows"
        )
    elif effective < _ROWS_PER_PARAMETER * facts.parameters:
        found.append(
            f"noise leaves about {effective:.0f} effective rows for {facts.parameters} parameters, "
            f"{effective / facts.parameters:.2g} for each: it hides most single coefficients, and predictions rest "
            "on what many of them have in common; raise epsilon, collect more rows, or give fewer columns"
        )
    return found


def require_listener(progress: Any) -> None:
    """Raise `InvalidParameter` for what cannot be told of progress: a fit would be charged before it fails."""
    if isinstance(progress, bool):
        return
    if not callable(progress):
        raise InvalidParameter(f"progress must be True, False or callable, got a {type(progress).__name__}")
    try:
        inspect.signature(progress).bind(0.0)
    except TypeError:
        raise InvalidParameter("progress is called with one number, the share of the budget that is spent") from None
    except ValueError:  # its signature is unknown, as that of some builtins is
        return


@contextmanager
def listening(progress: bool | Progress) -> Iterator[Progress | None]:
    """Yield what a solver reports to: a bar for True, a caller's own callable, or nothing."""
    require_listener(progress)
    if progress is True:
        with budget_bar() as bar:
            yield bar
    else:
        yield progress if callable(progress) else None


def part_of(listener: Progress | None, start: float, stop: float) -> Progress | None:
    """Return what a part of a fit reports to, which goes from one share of the whole to another."""
    if listener is None or (start, stop) == (0.0, 1.0):
        return listener
    return lambda share: listener(start + (stop - start) * share)


def over_rows(listener: Progress | None) -> Callable[[float], None] | None:
    """Return what is told about a pass over the rows: the method ``over_rows`` of a listener that has one."""
    return getattr(listener, "over_rows", None)


def time_left(elapsed: float, share: float) -> str:
    """Return about how long the rest takes if it goes on as it did; nothing before a hundredth is done.

    Examples
    --------
    >>> time_left(60.0, 0.25), time_left(0.5, 0.5), time_left(7200.0, 0.5), time_left(1.0, 0.0)
    ('3 min left', '1 s left', '2.0 h left', '')
    """
    if not 0.01 <= share < 1:
        return ""
    seconds = elapsed * (1 - share) / share
    if seconds < 60:
        return f"{max(1, round(seconds))} s left"
    return f"{round(seconds / 60)} min left" if seconds < 3600 else f"{seconds / 3600:.1f} h left"


class _Lines:
    """Says now and then in a line how far a fit is."""

    def __init__(self) -> None:
        self._speak, self._started, self._share = occasional(), time.monotonic(), 0.0

    def __call__(self, share: float) -> None:
        self._share = min(share, 1.0)
        self._speak(self._text())

    def over_rows(self, share: float) -> None:
        self._speak(f"{self._text()}; {share:.0%} of a pass over the rows is done")

    def _text(self) -> str:
        left = time_left(time.monotonic() - self._started, self._share)
        return f"{self._share:.0%} of the privacy budget is spent" + (f", about {left}" if left else "")


def _notebook_display() -> Callable[..., Any] | None:
    """Return how a notebook shows things, None where this is none."""
    shell = sys.modules.get("IPython")
    running = None if shell is None else shell.get_ipython()
    if running is None or not hasattr(running, "kernel"):
        return None
    display: Callable[..., Any] = import_module("IPython.display").display
    return display


class _NotebookBar(_Lines):
    """Shows a bar in the output of a cell, and moves it a few times a second."""

    def __init__(self, display: Callable[..., Any]) -> None:
        super().__init__()
        self._drawn, self._rows = time.monotonic(), ""
        self._handle = display({"text/html": self._html(), "text/plain": ""}, raw=True, display_id=True)

    def __call__(self, share: float) -> None:
        self._share = min(share, 1.0)
        if time.monotonic() - self._drawn > 0.2 or self._share == 1.0:
            self._drawn = time.monotonic()
            self._handle.update({"text/html": self._html(), "text/plain": ""}, raw=True)

    def over_rows(self, share: float) -> None:
        self._rows = f"; {share:.0%} of a pass over the rows is done" if share < 1 else ""
        self(self._share)

    def _html(self) -> str:
        return f'<progress max="1" value="{self._share:.3f}"></progress> {self._text()}{self._rows}'


class _Bar:
    """Moves a bar of the budget, and beside it the share of a pass that is done."""

    def __init__(self, bar: Any, task: Any) -> None:
        self._bar, self._task, self._started = bar, task, time.monotonic()

    def __call__(self, share: float) -> None:
        spent = min(share, 1.0)
        self._bar.update(self._task, completed=spent, left=time_left(time.monotonic() - self._started, spent))

    def over_rows(self, share: float) -> None:
        self._bar.update(self._task, rows=f"{share:.0%} of a pass" if share < 1 else "")


@contextmanager
def budget_bar() -> Iterator[Progress]:
    """Yield a callback that shows the budget spent on standard error: a bar that is gone at the end, or lines."""
    if not sys.stderr.isatty():
        show = _notebook_display()
        yield _Lines() if show is None else _NotebookBar(show)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("privacy budget"),
        BarColumn(),
        TextColumn("{task.percentage:>5.1f}% spent"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[rows]}"),
        console=Console(file=sys.stderr),
        transient=True,
    )
    task = bar.add_task("budget", total=1.0, left="", rows="")
    with bar:
        yield _Bar(bar, task)
