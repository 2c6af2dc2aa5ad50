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
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..arrays import Floats
from ..errors import InvalidParameter, ModelFailure
from ..estimators.reading import sorted_classes
from ..exact import exp

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
