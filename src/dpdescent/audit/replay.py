"""Replay a whole estimator on neighbouring tables: what it shows must follow from the answers it has paid for.

Laws of single questions cannot see what ``fit`` does between two answers, where it holds the raw table: a setting
that is chosen by counting rows, a bound that is read from a column, a remark on how many cells were clipped. Here a
fit is recorded (`dpdescent.audit.recording`), and a copy of the estimator is fitted to a neighbouring table with the
answers of the first fit. Whatever the two show must then be equal to the last bit, since answers and public numbers
are the same for both; and every exact sum must lie within its sensitivity of the recorded one.

This is the argument by which an adaptive mechanism is private, tried out: given the answers so far, the next question
and its noise are the same for both tables, and the noise is made for the distance of the sums.
"""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from sklearn.base import clone

from ..curator.release import watched_by
from ..errors import InvalidParameter, require_positive_integer
from ..ledger import Ledger
from ..relations import Relation
from .comparison import differences
from .leaks import Leak, ReplayReport
from .neighbouring import Neighbour, Pair, draw_pairs, public_number
from .recording import Comparisons, Diverged, Recorder, Replayer

__all__ = ["replay"]

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
    column, known = getattr(estimator, "unit", None), None
    seen, leaks, pairs, releases = Comparisons(), list[Leak](), 0, 0
    for pairs, pair in enumerate(_pairs(estimator, table, relation, neighbours, seed), 1):
        count = public_number(pair, relation, column if isinstance(column, str) else None)
        if known != (pair[0], count):
            recorder, randomness = Recorder(), seed + pairs
            first = _fitted(estimator, pair[0], count, randomness, recorder)
            if first.failure is not None:
                raise first.failure
            known = pair[0], count
        replayer = Replayer(recorder, seen)
        second = _fitted(estimator, pair[1], count, randomness, replayer)
        found = [*replayer.leaks, *_differences(replayer, first, second)]
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


def _fitted(estimator: Any, table: Neighbour, count: int | None, seed: int, watcher: Recorder | Replayer) -> _Shown:
    """Fit a copy of an estimator while somebody watches, and keep all that can be seen of it."""
    # A copy by clone would be counted as one of several trials, of which statements speak.
    own = estimator.get_params(deep=False)
    copied = {name: clone(each, safe=False) for name, each in own.items() if not isinstance(each, Ledger)}
    model = type(estimator)(**(own | copied))
    listener, ledgers, settings = _Listener(), [], dict[str, Any]()
    for name, value in _parameters(model):
        last = name.rpartition("__")[2]
        if last in ("random_state", "progress", "checkpoint"):
            settings[name] = {"random_state": seed, "progress": listener}.get(last)
        elif last == "ledger" and isinstance(value, Ledger):
            relation, unit = str(value.relation), value.unit
            ledgers.append(Ledger(value.epsilon, value.delta, currency=value.currency, relation=relation, unit=unit))
            settings[name] = ledgers[-1]
    model.set_params(**settings)
    given = {name: each for name, each in (("y", table.y), ("unit", table.unit)) if each is not None}
    text, failure = io.StringIO(), None
    with warnings.catch_warnings(record=True) as caught, redirect_stdout(text), redirect_stderr(text):
        warnings.simplefilter("always")
        with watched_by(watcher, count):
            try:
                model.fit(table.X, **given)
            except (Exception, Diverged) as problem:
                failure = problem
    # Ours, and no two ledgers have the same name.
    model.set_params(**{name: None for name, each in settings.items() if isinstance(each, Ledger | _Listener)})
    if ledgers and isinstance(getattr(model, "privacy_", None), dict):
        model.privacy_ = model.privacy_ | {"account": None}
    kinds = {
        "warning": [f"{each.category.__name__}: {each.message}" for each in caught],
        "message": text.getvalue(),
        "progress": listener.told,
        "ledger": [each.entries for each in ledgers],
    }
    if not isinstance(failure, Diverged):  # whose questions are reported
        notes = " ".join(getattr(failure, "__notes__", ()))
        kinds["error"] = "none" if failure is None else f"{type(failure).__name__}: {failure} {notes}"
    return _Shown(model, failure, kinds)


def _parameters(estimator: Any) -> list[tuple[str, Any]]:
    if not hasattr(estimator, "get_params"):
        raise InvalidParameter(
            f"a {type(estimator).__name__} is no estimator: derive its class from sklearn.base.BaseEstimator"
        )
    return sorted(estimator.get_params(deep=True).items())


def _differences(replayer: Replayer, first: _Shown, second: _Shown) -> Iterator[Leak]:
    """Yield what differs of two fits."""
    for kind, value in second.kinds.items():
        for place, *texts in islice(differences(first.kinds[kind], value, "in fit"), 1):
            yield Leak(kind, place, *texts)
    if second.failure is not None:
        return
    if not replayer.finished:
        yield Leak("release", f"after release {replayer.position}", "more releases", "nothing more")
    yield from _of_models(first.model, second.model)
    try:
        pickled = [pickle.dumps(each) for each in (first.model, second.model)]
    except Exception as problem:
        replayer.seen.unchecked.add(f"pickled models, which raise a {type(problem).__name__}")
        return
    if pickled[0] != pickled[1]:  # tensors are pickled under other names each time
        one, other = map(pickle.loads, pickled)
        for place, *texts in islice(differences(one, other, "pickle.loads(pickle.dumps(model))"), 1):
            yield Leak("pickle", place, *texts)


def _of_models(first: Any, second: Any) -> Iterator[Leak]:
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
