"""Replay a whole estimator on neighbouring tables: what it shows must follow from the answers it has paid for.

Laws of single queries cannot see what ``fit`` does between two answers, where it holds the raw table: a setting
that is chosen by counting rows, a bound that is read from a column, a remark on how many cells were clipped. Here a
fit is recorded (`dpdescent.audit.recording`), and a copy of the estimator is fitted to a neighbouring table with the
answers of the first fit. Whatever the two show must then be equal to the last bit, since answers and public numbers
are the same for both; and every exact sum must lie within its sensitivity of the recorded one.

This is the argument by which an adaptive mechanism is private, tried out: given the answers so far, the next query
and its noise are the same for both tables, and the noise is made for the distance of the sums.

`differences` finds where two values differ, to the last bit: attributes of fitted models, and whatever they hold.
"""

from __future__ import annotations

import io
import pickle
import threading
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from ..curator.release import watched_by
from ..errors import InvalidParameter, require_positive_integer
from ..ledger import Ledger
from ..relations import Relation
from .findings import Leak, ReplayReport
from .neighbouring import Neighbour, Pair, draw_pairs, public_number
from .recording import Comparisons, Diverged, Recorder, Replayer

#: A place, as Python would write it, and what is there in the one and in the other value.
Difference = tuple[str, str, str]

_LONGEST = 100
_PLAIN = (type(None), bool, int, float, str, bytes, complex, type, types.BuiltinFunctionType, types.ModuleType)
_LOCKS = (type(threading.Lock()), type(threading.RLock()))  # nothing of a row is in them
_Seen = dict[tuple[int, int], tuple[Any, Any]]  # kept alive, so that no other value gets the same identity
_PLACES = 3  # of an attribute in which it differs, that are reported


def replay(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    unit: Any = None,
    neighbours: int | Sequence[Neighbour] = 8,
    adjacency: str | None = None,
    seed: int = 0,
) -> ReplayReport:
    """Fit an estimator to a table and, with the same answers, to neighbours of it; report whatever differs.

    Use it on an estimator of your own, such as a subclass with another rule or a pipeline, and on unusual settings.

    Parameters
    ----------
    estimator : estimator
        Copied for each fit, never changed. Copies have a ``random_state`` made of ``seed``, a ``progress`` that is
        recorded, no ``checkpoint``, and for a ``ledger`` an equal one in memory, of which nothing is spent.
    X, y, unit
        What ``fit`` takes; ``y`` and ``unit`` are left out where they are None. The rows should be synthetic or
        public.
    neighbours : int or sequence of Neighbour, default 8
        How many pairs of neighbouring tables to draw, from arrays, a DataFrame or a sparse matrix; about a third of a
        second each for a few hundred rows. Or neighbours of your own, for any table that can be fitted; a row that is
        removed must be the last one.
    adjacency : {"zero-out", "replace-one"}, optional
        Which tables are neighbours; by default what the estimator says.
    seed : int
        Chooses rows, neighbours and noise.

    Returns
    -------
    ReplayReport
        It prints. ``clean`` says whether nothing was found.

    Notes
    -----
    **Privacy** None: the report shows what rows have changed. It charges no ledger.

    Compared are all attributes of the fitted model, private ones too, the privacy statement, pickled models,
    warnings, errors, what is printed, progress, and the number, order, prices and kinds of releases. Each exact sum
    may move by its declared sensitivity at most. A row that is removed leaves the number of rows as it was, because
    that is public; for units that is the number of units. Time and memory are not compared, nor is what a fit
    releases in another thread. Noise that the library does not draw is not replayed, so that what depends on it is
    reported. A clean report is evidence about the pairs that were tried, and no proof.

    Examples
    --------
    >>> import numpy as np
    >>> from dpdescent import DPLogisticRegression
    >>> from dpdescent.audit import replay
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(-1, 1, (200, 2))
    >>> y = (X[:, 0] + generator.normal(0, 0.3, 200) > 0).astype(int)
    >>> model = DPLogisticRegression(1.0, bounds=(-1, 1), classes=(0, 1))
    >>> report = replay(model, X, y, neighbours=3)
    >>> report.clean, report.pairs, 0 < report.largest_share <= 1
    (True, 3, True)
    """
    table, relation = Neighbour(X, y, unit), _relation_of(estimator, adjacency)
    return _replay_pairs(estimator, _pairs(estimator, table, relation, neighbours, seed), relation, seed)


def _replay_pairs(estimator: Any, given: Iterable[Pair], relation: Relation, seed: int) -> ReplayReport:
    """Record a fit of the first table of each pair, unless it is known, and replay it on the second."""
    column, known = getattr(estimator, "unit", None), None
    seen, leaks, pairs, releases = Comparisons(), list[Leak](), 0, 0
    for pairs, pair in enumerate(given, 1):
        count = public_number(pair, relation, column if isinstance(column, str) else None)
        if known != (pair[0], count):
            recorder, randomness = Recorder(), seed + pairs
            first = _fit_watched(estimator, pair[0], count, randomness, recorder)
            if first.failure is not None:
                raise first.failure
            known = pair[0], count
        replayer = Replayer(recorder, seen)
        second = _fit_watched(estimator, pair[1], count, randomness, replayer)
        found = [*replayer.leaks, *_leaks_between(replayer, first, second)]
        leaks += [replace(leak, change=pair[1].change) for leak in found]
        releases += replayer.position
    facts = type(estimator).__name__, str(relation), pairs, releases, tuple(leaks)
    return ReplayReport(*facts, seen.shares, tuple(sorted(seen.unchecked)))


def _relation_of(estimator: Any, given: str | None) -> Relation:
    kept = {str(value) for name, value in _parameters(estimator) if name.rpartition("__")[2] == "adjacency"}
    if given is not None and kept <= {given}:
        return Relation.parse(given)
    if given is not None or len(kept) != 1:
        raise InvalidParameter("pass adjacency for an estimator without such a parameter, and for no other")
    return Relation.parse(kept.pop())


def _pairs(
    estimator: Any, table: Neighbour, relation: Relation, neighbours: int | Sequence[Neighbour], seed: int
) -> Iterable[Pair]:
    if isinstance(neighbours, int):
        return draw_pairs(estimator, table, relation, require_positive_integer("neighbours", neighbours), seed)
    given = list(neighbours)
    if not given or not all(isinstance(each, Neighbour) for each in given):
        raise InvalidParameter("neighbours must be a positive number, or tables: pass [Neighbour(X, y), ...]")
    return [(table, each) for each in given]


class _Listener:
    """Keeps what is reported to it as progress."""

    def __init__(self) -> None:
        self.told: list[tuple[str, float]] = []

    def __call__(self, share: float) -> None:
        self.told.append(("budget", share))

    def over_rows(self, share: float) -> None:
        self.told.append(("rows", share))


@dataclass
class _Shown:
    """What can be seen of a fit: the model, its error, and more by the kinds of a `Leak`."""

    model: Any
    failure: BaseException | None
    kinds: dict[str, Any]


class _Copy:
    """A copy of an estimator with a seed, a listener and ledgers of its own, and no file to go on from."""

    def __init__(self, estimator: Any, seed: int) -> None:
        # A copy by clone would be counted as one of several trials, of which statements speak.
        own = estimator.get_params(deep=False)
        copied = {name: clone(each, safe=False) for name, each in own.items() if not isinstance(each, Ledger)}
        self.model = type(estimator)(**(own | copied))
        self.listener, self.ledgers = _Listener(), list[Ledger]()
        self._settings: dict[str, Any] = {}
        for name, value in _parameters(self.model):
            last = name.rpartition("__")[2]
            if last in ("random_state", "progress", "checkpoint"):
                self._settings[name] = {"random_state": seed, "progress": self.listener}.get(last)
            elif last == "ledger" and isinstance(value, Ledger):
                relation, currency = str(value.relation), value.currency
                own_ledger = Ledger(value.epsilon, value.delta, currency=currency, relation=relation, unit=value.unit)
                self.ledgers.append(own_ledger)
                self._settings[name] = own_ledger
        self.model.set_params(**self._settings)

    def forget(self) -> None:
        """Take from the model what is ours, and the names of ledgers, of which no two have the same."""
        ours = (name for name, each in self._settings.items() if isinstance(each, Ledger | _Listener))
        self.model.set_params(**dict.fromkeys(ours))
        if self.ledgers and isinstance(getattr(self.model, "privacy_", None), dict):
            self.model.privacy_ = self.model.privacy_ | {"account": None}


def _fit_watched(
    estimator: Any, table: Neighbour, count: int | None, seed: int, watcher: Recorder | Replayer
) -> _Shown:
    """Fit a copy of an estimator while somebody watches, and keep all that can be seen of it."""
    copy = _Copy(estimator, seed)
    given = {name: each for name, each in (("y", table.y), ("unit", table.unit)) if each is not None}
    text, failure = io.StringIO(), None
    with warnings.catch_warnings(record=True) as caught, redirect_stdout(text), redirect_stderr(text):
        warnings.simplefilter("always")
        with watched_by(watcher, count):
            try:
                copy.model.fit(table.X, **given)
            except (Exception, Diverged) as problem:
                failure = problem
    copy.forget()
    kinds = {
        "warning": [f"{each.category.__name__}: {each.message}" for each in caught],
        "message": text.getvalue(),
        "progress": copy.listener.told,
        "ledger": [each.entries for each in copy.ledgers],
    }
    if not isinstance(failure, Diverged):  # whose queries are reported
        notes = " ".join(getattr(failure, "__notes__", ()))
        kinds["error"] = "none" if failure is None else f"{type(failure).__name__}: {failure} {notes}"
    return _Shown(copy.model, failure, kinds)


def _parameters(estimator: Any) -> list[tuple[str, Any]]:
    if not hasattr(estimator, "get_params"):
        raise InvalidParameter(
            f"a {type(estimator).__name__} is no estimator: derive its class from sklearn.base.BaseEstimator"
        )
    return sorted(estimator.get_params(deep=True).items())


def _leaks_between(replayer: Replayer, first: _Shown, second: _Shown) -> Iterator[Leak]:
    """Yield what differs of two fits."""
    for kind, value in second.kinds.items():
        for place, *texts in islice(differences(first.kinds[kind], value, "in fit"), 1):
            yield Leak(kind, place, *texts)
    if second.failure is not None:
        return
    if not replayer.finished:
        yield Leak("release", f"after release {replayer.position}", "more releases", "nothing more")
    yield from _leaks_of_models(first.model, second.model)
    try:
        pickled = [pickle.dumps(each) for each in (first.model, second.model)]
    except Exception as problem:
        replayer.seen.unchecked.add(f"pickled models, which raise a {type(problem).__name__}")
        return
    if pickled[0] != pickled[1]:  # tensors are pickled under other names each time
        one, other = map(pickle.loads, pickled)
        for place, *texts in islice(differences(one, other, "pickle.loads(pickle.dumps(model))"), 1):
            yield Leak("pickle", place, *texts)


def _leaks_of_models(first: Any, second: Any) -> Iterator[Leak]:
    """Yield where two fitted models differ: in what they hold, and in properties that end with an underscore."""
    held = [dict(vars(each)) for each in (first, second)]
    for name in dir(type(first)):
        if name.endswith("_") and not name.startswith("_") and isinstance(getattr(type(first), name), property):
            for model, values in zip((first, second), held, strict=True):
                values[name] = getattr(model, name, None)
    for name in sorted({*held[0], *held[1]}):
        kind = "statement" if name == "privacy_" else "attribute"
        one, other = (values.get(name, "missing") for values in held)
        for place, *texts in islice(differences(one, other, name), _PLACES):
            yield Leak(kind, place, *texts)


def differences(first: Any, second: Any, where: str) -> Iterator[Difference]:
    """Yield the places in which two values differ; ``where`` is what the place of the values themselves is called.

    Numbers are compared by their bits, so that 0.0 differs from -0.0 and NaN is itself. Objects are compared by their
    type and by all that they hold, private attributes and what functions have closed over included.
    """
    return _differences(first, second, where, {})


def shown(value: Any) -> str:
    """Return a short text for a value, in which control characters are escaped."""
    large = getattr(value, "size", 0) if hasattr(value, "shape") else 0
    text = f"{type(value).__name__} of shape {value.shape}" if large > 8 else ascii(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _differences(first: Any, second: Any, where: str, seen: _Seen) -> Iterator[Difference]:
    if isinstance(first, _LOCKS) or (id(first), id(second)) in seen:
        return
    if type(first) is not type(second):
        yield where, shown(first), shown(second)
    elif isinstance(first, np.ndarray | np.generic):  # numbers of numpy that are Python's as well
        yield from _array_differences(np.asarray(first), np.asarray(second), where, seen)
    elif isinstance(first, _PLAIN):
        same = first.hex() == second.hex() if isinstance(first, float) else first == second
        if not same:
            yield where, shown(first), shown(second)
    else:
        seen[id(first), id(second)] = first, second
        one, other = dict(_parts(first)), dict(_parts(second))
        if list(one) != list(other):
            yield where, shown(list(one)), shown(list(other))
        for name in (name for name in one if name in other):
            yield from _differences(one[name], other[name], where + name, seen)


def _array_differences(first: Any, second: Any, where: str, seen: _Seen) -> Iterator[Difference]:
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        yield where, f"{first.dtype} of shape {first.shape}", f"{second.dtype} of shape {second.shape}"
    elif first.dtype.hasobject:
        yield from _differences(first.tolist(), second.tolist(), where, seen)
    elif first.tobytes() != second.tobytes():
        places = zip(np.ndindex(first.shape), first.ravel(), second.ravel(), strict=True)
        place, one, other = next(each for each in places if each[1].tobytes() != each[2].tobytes())
        index = ", ".join(map(str, place))
        yield f"{where}[{index}]" if index else where, shown(one.item()), shown(other.item())


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object consists of: how each part is reached, and the part."""
    if isinstance(value, pd.DataFrame | pd.Series | pd.Index):
        yield ".to_numpy()", value.to_numpy()
        yield ".axes", [] if isinstance(value, pd.Index) else [each.to_numpy() for each in value.axes]
        return
    if isinstance(value, types.FunctionType):
        yield ".__code__", value.__code__.co_code
        yield ".__defaults__", (value.__defaults__, value.__kwdefaults__)
        yield ".__closure__", [cell.cell_contents for cell in value.__closure__ or ()]
        return
    yield from _items(value)
    held = dict(getattr(value, "__dict__", {}))
    for name in (name for kind in type(value).__mro__ for name in kind.__dict__.get("__slots__", ())):
        if hasattr(value, name) and not name.startswith("__"):
            held[name] = getattr(value, name)
    yield from ((f".{name}", held[name]) for name in sorted(held))
    if hasattr(value, "detach"):  # a tensor
        yield ".numpy()", value.detach().cpu().numpy()
    elif not held and not isinstance(value, Mapping | list | tuple | set | frozenset):
        yield ".__reduce__()", _reduce(value)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a container holds, in an order of its own if it has none."""
    if isinstance(value, Mapping):
        yield from ((f"[{shown(name)}]", each) for name, each in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        ordered = value if isinstance(value, list | tuple) else sorted(value, key=ascii)
        yield from ((f"[{place}]", each) for place, each in enumerate(ordered))


def _reduce(value: Any) -> Any:
    """Return what a pickle would hold of an object without attributes."""
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:
        return None
    return reduced if isinstance(reduced, str) else list(reduced[1:3])
