"""Scores of single rows: whatever a model does with a table, what it says of a row must not depend on other rows.

The sensitivity of a histogram of scores rests on that. A function of a whole table breaks it if it ranks or centres
its rows, and nearly every one breaks it in the last digit: matrix products round the same row differently in
different company, and a score on the other side of an edge is another count. So, in this order:

- A model that has ``row_scores`` (the linear and additive models of this library) computes scores that have the same
  bits in any company, by operations that IEEE 754 rounds for each element alone.
- Any other model is asked about **one row at a time**. Its answer is then a function of that row, as long as the
  model keeps nothing from one call to the next and draws no random numbers, which the caller vouches for.
- With ``rows_separate=True`` the caller vouches that rows of a block are scored each by itself, to the last bit, and
  rows are scored block by block, which is quicker. The statement says so.

The rows that are scored (`EvaluatedRows`) are arrays, data frames and sparse tables, or tables read block by block.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ..arrays import Floats, Integers
from ..curator import Units
from ..curator.release import public_count
from ..errors import InfiniteValue, InvalidParameter, MissingValue, ModelFailure, UnsupportedSource
from ..estimators.reading import class_positions, read_numbers, require_finite_cells, sorted_classes, split_units
from ..exact import exp
from ..tables import StreamedTable, streamed
from .row_sums import RowSum, Scored

#: What a number returned by a model may be.
SCALES = ("probability", "logit", "score")


@dataclass(frozen=True, eq=False)
class Scorer:
    """How a model scores rows."""

    name: str  # of the model
    scale: str  # "probability", "logit" or "score" for classes, "number" or "count" for numbers
    classes: tuple[Any, ...] | None  # those of the model; None where it predicts numbers
    #: Maps a block of rows to an array with a row of scores, or a score, for each.
    call: Callable[[Any], Any]
    vouched: str  # what the caller vouches for, for the statement
    at_once: bool  # whether ``call`` may be given several rows
    #: Whether the model is one of this library, of which more can be checked beforehand.
    own: bool = False

    @property
    def histograms(self) -> int:
        """How many scores a row has."""
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)

    def score(self, block: Any) -> Floats:
        """Return the scores of some rows, shape (m, H): **unreleased data**."""
        count = int(block.shape[0]) if hasattr(block, "shape") else len(block)
        if self.at_once:
            return self._shaped(self._called(block), count)
        found = np.empty((count, self.histograms))
        for row in range(count):
            found[row] = self._shaped(self._called(row_of(block, row)), 1)[0]
        return found

    def _called(self, block: Any) -> Any:
        """Return what the model says; an error of its own may show a cell, and is replaced."""
        kind = ""
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # a warning would speak of rows
            try:
                return self.call(block)
            except Exception as problem:
                kind = type(problem).__name__
        raise ModelFailure(f"{self.name} could not score a row, for a {kind}: score a made-up row to see why")

    def _shaped(self, answer: Any, count: int) -> Floats:
        try:
            numbers = np.asarray(answer, dtype=np.float64)
        except (TypeError, ValueError):
            numbers = np.empty(0)
        wanted = self.histograms
        if wanted == 1 and numbers.shape in ((count, 2), (count, 1)):
            numbers = numbers[:, -1]
        if numbers.shape != ((count,) if wanted == 1 else (count, wanted)) and numbers.size != count * wanted:
            raise ModelFailure(
                f"{self.name} must return {'one number' if wanted == 1 else f'{wanted} numbers'} for each row"
            )
        return numbers.reshape(count, wanted)


def row_of(block: Any, row: int) -> Any:
    """Return one row of a block, as a block of one row."""
    return block.iloc[row : row + 1] if hasattr(block, "iloc") else block[row : row + 1]


_BY_ROWS = "the model keeps nothing between calls and draws nothing at random: it was asked about one row at a time"
_BY_BLOCKS = "rows of a block are scored each by itself, to the last bit"
_OF_COUNTS = "DPPoissonRegressor", "DPAdditivePoissonRegressor"
_OWN = "the scores of a row have the same bits beside any other rows"


def scorer_of(model: Any, classes: Any, scale: str | None, rows_separate: bool) -> Scorer:
    """Return how a model scores rows, or raise `InvalidParameter`. No row is read."""
    if scale is not None and scale not in (*SCALES, "number", "count"):
        raise InvalidParameter(f"scores must be one of {', '.join(map(repr, (*SCALES, 'number', 'count')))}")
    known = _classes_of(model, classes, scale)
    name = getattr(model, "estimator_name", type(model).__name__)
    if hasattr(model, "row_scores"):
        return _own_scorer(model, name, known)
    if _is_module(model):
        found, said = _module_scores(model, known, scale)
    else:
        found, said = _scores_of(model, name, known, scale)
        name = getattr(model, "__name__", name)
    if known is None and said in SCALES:
        raise InvalidParameter("classes are public and never read from y: pass classes=(...)")
    return Scorer(name, said, known, found, _BY_BLOCKS if rows_separate else _BY_ROWS, rows_separate)


def _classes_of(model: Any, given: Any, scale: str | None) -> tuple[Any, ...] | None:
    """Return the public classes, None for a model of numbers."""
    known = getattr(model, "classes_", None) if given is None else given
    if known is None or scale in ("number", "count"):
        return None
    found = tuple(sorted_classes(known).tolist())
    if len(found) < 2:
        raise InvalidParameter("a classifier has two classes or more: pass classes=(...), which are public")
    return found


def _scores_of(
    model: Any, name: str, known: tuple[Any, ...] | None, scale: str | None
) -> tuple[Callable[[Any], Any], str]:
    """Return what scores rows, and on which scale, for an estimator or a function."""
    for method in ("predict_proba", "decision_function"):
        if hasattr(model, method):
            usual = "probability" if method == "predict_proba" else "number" if known is None else "score"
            return getattr(model, method), scale or usual
    if hasattr(model, "predict"):
        return (model.predict, scale or "number") if known is None else (_decisions_of(model, known), "score")
    if not callable(model):
        raise InvalidParameter(f"a {name} has neither predict_proba nor predict: pass a function that returns scores")
    if scale is None:
        raise InvalidParameter(
            "what a function returns is never guessed from rows: pass scores='probability', 'logit' or 'score' "
            "with classes=(...), or scores='number' or 'count'"
        )
    return model, scale


def _decisions_of(model: Any, known: tuple[Any, ...]) -> Callable[[Any], Floats]:
    """Return scores 0 and 1 of the classes that a model decides for, which has no other scores."""

    def decided(block: Any) -> Floats:
        found: Floats = np.equal(np.asarray(model.predict(block))[:, None], np.array(known)).astype(np.float64)
        return found[:, 1] if len(known) == 2 else found

    return decided


def _module_scores(module: Any, known: tuple[Any, ...] | None, scale: str | None) -> tuple[Callable[[Any], Any], str]:
    """Return the same for a module, whose outputs are logits, or numbers where there are no classes."""
    found = _module_call(module)
    if known is not None and len(known) > 2 and scale is None:
        return _softmax_of(found), "probability"
    return found, scale or ("number" if known is None else "logit")


def _own_scorer(model: Any, name: str, known: tuple[Any, ...] | None) -> Scorer:
    if known is None:
        told = name in _OF_COUNTS or getattr(model, "loss", None) == "poisson"
        counts = hasattr(model, "row_scores") and told
        return Scorer(name, "count" if counts else "number", None, model.row_scores, _OWN, at_once=True, own=True)
    if not hasattr(model, "predict_proba"):
        return Scorer(name, "score", known, model.row_scores, _OWN, at_once=True, own=True)
    if len(known) == 2:
        return Scorer(name, "logit", known, model.row_scores, _OWN, at_once=True, own=True)
    return Scorer(name, "probability", known, _softmax_of(model.row_scores), _OWN, at_once=True, own=True)


def _softmax_of(scores: Callable[[Any], Any]) -> Callable[[Any], Floats]:
    """Return probabilities from scores of several classes, each from its own row alone."""

    def probabilities(block: Any) -> Floats:
        found = np.asarray(scores(block), dtype=np.float64)
        raised = exp(found - found.max(axis=1, keepdims=True))
        total = np.zeros((raised.shape[0], 1))
        for column in range(raised.shape[1]):  # one after the other: in an order that is the same for every row
            total += raised[:, [column]]
        return raised / total

    return probabilities


def _is_module(model: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _module_call(module: Any) -> Callable[[Any], Any]:
    """Return a call of a PyTorch module in evaluation mode; two outputs become the logit of the second class."""
    torch = sys.modules["torch"]
    first = next(module.parameters(), None)

    def call(block: Any) -> Any:
        cells = block.toarray() if sparse.issparse(block) else np.asarray(block)
        inputs: Any = torch.from_numpy(np.ascontiguousarray(cells))
        if first is not None:
            inputs = inputs.to(first.device, first.dtype if first.is_floating_point() else inputs.dtype)
        mode = module.training
        try:
            module.eval()
            with torch.no_grad():
                outputs: NDArray[Any] = module(inputs).double().cpu().numpy()
        finally:
            module.train(mode)
        return outputs[:, 1] - outputs[:, 0] if outputs.ndim == 2 and outputs.shape[1] == 2 else outputs

    return call


_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class EvaluatedRows:
    """A table and its labels, checked. **Unreleased data**."""

    scorer: Scorer
    table: Any
    #: Positions among the classes, or numbers; None where the table has its own.
    labels: NDArray[Any] | None
    units: Units | None
    protected: str  # what is protected, in words
    count: int  # the public number of rows, or of units
    _kept: dict[int, Floats] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, scorer: Scorer, X: Any, y: Any, unit: Any, rows_per_unit: int) -> EvaluatedRows:
        """Read a table, and raise what is wrong with it. Nothing is charged."""
        column = unit if isinstance(unit, str) else None
        X, identifiers, protected = split_units(X, column, None if column is not None else unit)
        if identifiers is None and rows_per_unit != 1:
            raise InvalidParameter("rows_per_unit is about units of several rows: say by unit= whose rows they are")
        stream = streamed(X, y)
        if stream is not None:
            if identifiers is not None:
                raise UnsupportedSource("units need all rows in one place: pass arrays in memory, or leave unit out")
            found = cls(scorer, stream, None, None, protected, public_count(sum(stream.lengths)))
            for _ in found._blocks():  # a label or a cell that is none is said before anything is charged
                pass
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # names are no matter to a model that was fitted without any
                found._probe(found._named(np.zeros((1, stream.columns))))
            return found
        if y is None:
            raise InvalidParameter("y is missing: an evaluation compares predictions with labels")
        table: Any = X if hasattr(X, "shape") else np.asarray(X)
        table = table.tocsr() if sparse.issparse(table) else table
        labels = _labels_of(scorer, y)
        if table.ndim < 1 or labels.shape != table.shape[:1] or not labels.size:
            raise InvalidParameter(f"X {table.shape} and y {labels.shape} must have the same rows, and at least one")
        if hasattr(X, "index") and hasattr(y, "index") and not X.index.equals(y.index):
            raise InvalidParameter("X and y have different indexes: bring both into one order, or pass y.to_numpy()")
        units = None
        if identifiers is not None:
            kept, units = Units.kept(identifiers, rows_per_unit, table.shape[0])
            table, labels = table.iloc[kept] if hasattr(table, "iloc") else table[kept], labels[kept]
        found = cls(
            scorer, table, labels, units, protected, public_count(labels.size) if units is None else units.count
        )
        found._check_cells()
        return found

    @property
    def rows_per_unit(self) -> int:
        """How many rows may change together."""
        return 1 if self.units is None else self.units.rows_per_unit

    @property
    def public_rows(self) -> int | None:
        """The number of rows, where it is public."""
        return self.count if self.units is None else None

    @property
    def most_rows(self) -> int:
        """A public number that the rows never exceed."""
        return self.count if self.units is None else self.units.places

    def add_up(self, wanted: RowSum) -> Integers:
        """Return a sum over all rows, in steps of the lattice: **unreleased data**."""
        total: Integers | int = 0
        for number, (block, labels) in enumerate(self._blocks()):
            scores = self._kept[number] if number in self._kept else self.scorer.score(block)
            if not isinstance(self.table, StreamedTable):
                self._kept[number] = scores  # scored once, and asked about twice
            decided = scores.argmax(axis=1) if scores.shape[1] > 1 else None
            total = total + wanted.add(Scored(scores, labels, decided))
        empty = Scored(np.zeros((0, self.scorer.histograms)), np.zeros(0), np.zeros(0, np.intp))
        return np.asarray(total + wanted.add(empty), dtype=np.int64)

    def _blocks(self) -> Iterator[tuple[Any, NDArray[Any]]]:
        if isinstance(self.table, StreamedTable):
            for part in self.table.parts:
                for features, labels in self.table.read_here(part):
                    if not self.table.finite:
                        require_finite_cells(features, self.table.names)
                    yield self._named(features), _labels_of(self.scorer, labels)
            return
        assert self.labels is not None
        for start in range(0, self.labels.size, _BLOCK):
            some = slice(start, start + _BLOCK)
            yield (self.table.iloc[some] if hasattr(self.table, "iloc") else self.table[some]), self.labels[some]

    def _named(self, features: Any) -> Any:
        """Return rows of a stream with the names of its columns, on which a model of this library may insist."""
        if not self.scorer.own or not self.table.names or sparse.issparse(features):
            return features
        return pd.DataFrame(features, columns=self.table.names)

    def _check_cells(self) -> None:
        """Try a made-up row of zeros, and refuse cells that a model of this library refuses."""
        table = self.table
        if isinstance(table, pd.DataFrame):
            if all(kind.kind in "biuf" for kind in table.dtypes if hasattr(kind, "kind")) and len(table.columns):
                self._probe(pd.DataFrame(np.zeros((1, table.shape[1])), columns=table.columns))
            cells = table.to_numpy() if self.scorer.own else None
            names = table.columns
        else:
            cells, names = (table if self.scorer.own else None), None
            if getattr(table, "dtype", np.dtype(object)).kind in "biuf":
                zeros = np.zeros((1, *table.shape[1:]), dtype=table.dtype)
                self._probe(sparse.csr_array(zeros) if sparse.issparse(table) else zeros)
        if cells is not None and getattr(cells, "dtype", np.dtype(object)).kind == "f":
            require_finite_cells(cells, names)

    def _probe(self, row: Any) -> None:
        """Score a made-up row, so that what does not fit is said before anything is charged."""
        if self.scorer.own:
            self.scorer.call(row)


def _labels_of(scorer: Scorer, y: Any) -> NDArray[Any]:
    """Return labels as positions among the classes, or as finite numbers."""
    given: NDArray[Any] = np.asarray(y)
    given = given[:, 0] if given.ndim == 2 and given.shape[1] == 1 else given
    if scorer.classes is not None:
        return class_positions(np.array(scorer.classes), given)
    numbers = read_numbers("y", given)
    if not np.isfinite(numbers).all():
        kind = MissingValue if np.isnan(numbers).any() else InfiniteValue
        raise kind("y has a cell that is missing or infinite: drop those rows")
    return numbers
