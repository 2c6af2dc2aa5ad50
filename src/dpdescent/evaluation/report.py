"""`Evaluation`: what was released about a model, and every measure that follows from it.

The document holds the released numbers, the public ones that belong to them, and the privacy statement. All measures,
curves and thresholds are computed from these, so that a document that is read again says the same.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from ..arrays import Floats
from ..errors import InvalidParameter, StatementError, require_open_unit
from ..long_runs import write_whole
from ..statement import FileKind, PrivacyStatement, with_nulls
from . import measures as of
from .measures import Measure, NumberSums
from .score_counts import ScoreCounts

FILE = FileKind("dpdescent-evaluation", 1, "evaluation", StatementError)


@dataclass(frozen=True)
class Threshold:
    """A threshold of decisions, and what it does to rows like those that were evaluated.

    Parameters
    ----------
    value : float
        A row is decided for the class if its probability, or its score, is above it.
    precision, recall, rate : Measure
        Shares of the class among the rows above it, of the class's rows that are above it, and of all rows above it.
    between : (float, float)
        The thresholds that noise and sampling leave possible: those whose interval holds what was asked for.
    """

    value: float
    precision: Measure
    recall: Measure
    rate: Measure
    between: tuple[float, float]


@dataclass(frozen=True)
class Evaluation:
    """What a model is worth on some rows, with intervals. `dpdescent.evaluate` makes one.

    Parameters
    ----------
    model : str
        What was evaluated.
    scale : str
        "probability", "logit" or "score" for a classifier, "number" or "count" for others.
    level : float
        That of all intervals.
    classes : tuple
        The last of two is the one that curves are about.
    scores : tuple of ScoreCounts
        One for two classes, one for each of more.
    cells : tuple of tuples of float
        Noisy confusion counts, a row for each true class; none for numbers.
    cell_deviation : float
        Of the noise in each.
    numbers : NumberSums or None
        For a model that predicts numbers.
    rows : int
        The public number of rows, or of units.
    privacy : dict
        The privacy statement.

    Notes
    -----
    **Privacy** Everything in it follows from noisy answers that were paid for and from public numbers.
    """

    model: str
    scale: str
    level: float
    classes: tuple[Any, ...]
    scores: tuple[ScoreCounts, ...]
    cells: tuple[tuple[float, ...], ...]
    cell_deviation: float
    numbers: NumberSums | None
    rows: int
    privacy: dict[str, Any]

    # Measures ------------------------------------------------------------------------------------------------

    @cached_property
    def measures(self) -> tuple[Measure, ...]:
        """Every measure, with its interval."""
        if self.numbers is not None:
            return self.numbers.measures(self.level)
        return self._of_two() if len(self.classes) == 2 else self._of_several()

    def __getitem__(self, name: str) -> Measure:
        found = next((each for each in self.measures if each.name == name), None)
        if found is None:
            raise InvalidParameter(f"there is no measure {name!r}: choose {', '.join(m.name for m in self.measures)}")
        return found

    @property
    def accuracy(self) -> Measure:
        """The share of right decisions."""
        return self["accuracy"]

    @property
    def auc(self) -> Measure:
        """The area under the ROC curve; for several classes its mean over them, each against the rest."""
        return self["auc"]

    def _of_two(self) -> tuple[Measure, ...]:
        (counts,), level = self.scores, self.level
        assert counts.split is not None
        edge = counts.split
        found = [of.accuracy(counts, edge, level), of.area(counts, level)]
        found += [each(counts, edge, level) for each in (of.precision, of.recall, of.rate)]
        found.append(of.prevalence(counts, level))
        if self.scale != "score":
            found += [each(counts, level) for each in (of.brier_score, of.log_loss, of.calibration_error)]
        return tuple(found)

    def _of_several(self) -> tuple[Measure, ...]:
        areas = [of.area(each, self.level) for each in self.scores]
        named = [
            Measure(**asdict(each) | {"name": f"auc of {name}"})
            for each, name in zip(areas, self.classes, strict=True)
        ]
        known = [each for each in areas if each.value is not None]
        if len(known) < len(areas):
            mean = Measure.refused("auc", "a class has fewer rows than three deviations of the noise")
        else:
            size = len(known)
            privacy = sum((each.privacy or 0.0) ** 2 for each in known) / size**2
            sampling = (sum(each.sampling or 0.0 for each in known) / size) ** 2
            mean = Measure.of("auc", sum(each.value or 0.0 for each in known) / size, (privacy, sampling), self.level)
        return (self._accuracy_of_cells(), mean, *named)

    def _accuracy_of_cells(self) -> Measure:
        cells, size, first = self.confusion, len(self.classes), self.scores[0]
        right, total = float(np.trace(cells)), float(cells.sum())
        value = right / max(total, 1.0)
        noise = self.cell_deviation**2
        if first.total is not None:
            privacy = noise * size * (1 - 1 / size) / first.total**2
        else:
            privacy = noise * (size * (1 - value) ** 2 + (size * size - size) * value**2) / max(total, 1.0) ** 2
        inside = min(max(value, 0.0), 1.0)
        sampling = first.clusters * inside * (1 - inside) / max(total, 1.0)
        return Measure.of("accuracy", value, (privacy, sampling), self.level)

    @cached_property
    def confusion(self) -> Floats:
        """Estimated confusion counts, true classes in rows; they may be a little below 0."""
        if len(self.classes) == 2:
            (counts,) = self.scores
            assert counts.split is not None
            edge = counts.split + 1
            return np.array([[part[:edge].sum(), part[edge:].sum()] for part in (counts.negatives, counts.positives)])
        found = np.array(self.cells)
        total = self.scores[0].total if self.scores else None
        return found if total is None else found + (total - found.sum()) / found.size

    # Curves and thresholds -----------------------------------------------------------------------------------

    def _counts_of(self, which: Any) -> ScoreCounts:
        if not self.scores:
            raise InvalidParameter("curves and thresholds are about classes, and this model predicts numbers")
        if len(self.classes) == 2:
            return self.scores[0]
        if which not in self.classes:
            raise InvalidParameter(f"name one of the classes: {', '.join(map(str, self.classes))}")
        return self.scores[self.classes.index(which)]

    def _shown(self, edges: Any) -> Floats:
        """Return edges in the units of the model's scores: probabilities, unless they are scores."""
        return np.asarray(edges if self.scale == "score" else expit(np.asarray(edges, dtype=np.float64)))

    def curve(self, which: Any = None) -> tuple[Threshold, ...]:
        """Return precision, recall and rate at every edge, for one of several classes against the rest."""
        counts = self._counts_of(which)
        found = []
        for edge, value in enumerate(self._shown(counts.edges).tolist()):
            at = (of.precision, of.recall, of.rate)
            precision, recall, rate = (each(counts, edge, self.level) for each in at)
            found.append(Threshold(value, precision, recall, rate, (value, value)))
        return tuple(found)

    def roc(self, which: Any = None) -> tuple[tuple[Measure, Measure], ...]:
        """Return false positive rate and recall at every edge, from the highest threshold to the lowest."""
        counts, level = self._counts_of(which), self.level
        edges = range(len(counts.edges) - 1, -1, -1)
        return tuple((of.false_alarms(counts, edge, level), of.recall(counts, edge, level)) for edge in edges)

    def calibration(self, which: Any = None) -> tuple[tuple[float, Measure], ...]:
        """Return the mean predicted probability and the measured rate of every bin."""
        counts = self._counts_of(which)
        found = []
        for place, predicted in enumerate(counts.probabilities.tolist()):
            here = (np.arange(counts.bins) == place).astype(np.float64)
            part = np.concatenate([0 * here, here])
            found.append((predicted, of.ratio("rate", counts, part, np.tile(here, 2), self.level)))
        return tuple(found)

    def threshold_for(
        self,
        *,
        precision: float | None = None,
        recall: float | None = None,
        rate: float | None = None,
        which: Any = None,
    ) -> Threshold:
        """Return the threshold that meets a target, from the released histogram, at no further cost.

        Parameters
        ----------
        precision, recall, rate : float
            One of them: the least threshold with at least that precision, the largest with at least that recall, or
            the one whose rate of rows above it is nearest.
        which : optional
            One of several classes, against the rest.

        Raises
        ------
        InvalidParameter
            No threshold meets the target.
        """
        given = {"precision": precision, "recall": recall, "rate": rate}
        asked = {name: value for name, value in given.items() if value is not None}
        if len(asked) != 1:
            raise InvalidParameter("ask for one of precision, recall and rate")
        (name, target), points = next(iter(asked.items())), self.curve(which)
        require_open_unit(name, target)
        known = [each for each in points if getattr(each, name).value is not None]
        reached: Callable[[Threshold], bool] = lambda each: getattr(each, name).value >= target  # noqa: E731
        if name == "rate":
            best = min(known, key=lambda each: abs((each.rate.value or 0.0) - target), default=None)
        elif name == "precision":
            best = next(filter(reached, known), None)
        else:
            best = next(filter(reached, reversed(known)), None)
        if best is None:
            raise InvalidParameter(
                f"no threshold is known to reach a {name} of {target:g}: ask for less, or raise epsilon"
            )
        possible = [each.value for each in known if getattr(each, name).low <= target <= getattr(each, name).high]
        between = (min([best.value, *possible]), max([best.value, *possible]))
        return Threshold(best.value, best.precision, best.recall, best.rate, between)

    def decide(self, probabilities: Any, threshold: Threshold | float) -> NDArray[Any]:
        """Return the class of rows from their probabilities, or scores, by a threshold; for two classes."""
        if len(self.classes) != 2:
            raise InvalidParameter("a threshold decides between two classes")
        value = threshold.value if isinstance(threshold, Threshold) else float(threshold)
        above = np.asarray(probabilities, dtype=np.float64) > value
        return np.array(self.classes)[above.astype(np.intp)]

    # Files ---------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: what was released, and the measures that follow from it, for readers."""
        data = {
            "model": self.model,
            "scale": self.scale,
            "level": self.level,
            "rows": self.rows,
            "classes": list(self.classes),
            "measures": [asdict(each) for each in self.measures],
            "confusion": self.confusion.tolist() if self.scores else None,
            "released": {
                "scores": [asdict(each) for each in self.scores],
                "cells": [list(each) for each in self.cells],
                "cell_deviation": self.cell_deviation,
                "numbers": None if self.numbers is None else asdict(self.numbers),
            },
            "privacy": with_nulls(self.privacy),
        }
        plain: dict[str, Any] = _plain(data)
        return plain

    def to_json(self, more: Mapping[str, Any] | None = None) -> str:
        """Return the document as JSON text, with a digest; ``more`` is added for readers."""
        return FILE.seal(self.to_dict() | _plain(dict(more or {})))

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "the text") -> Evaluation:
        """Read what `to_json` wrote, or raise `StatementError`; the statement in it is checked as well."""
        data = FILE.unseal(text, where)
        try:
            released = data["released"]
            numbers = released["numbers"]
            found = cls(
                data["model"],
                data["scale"],
                float(data["level"]),
                tuple(data["classes"]),
                tuple(_score_counts(each) for each in released["scores"]),
                tuple(tuple(map(float, row)) for row in released["cells"]),
                float(released["cell_deviation"]),
                None if numbers is None else NumberSums(**_tuples(numbers)),
                int(data["rows"]),
                PrivacyStatement.from_dict(data["privacy"]).to_dict(),
            )
            again = _plain([asdict(each) for each in found.measures])
        except StatementError:
            raise
        except (KeyError, TypeError, ValueError, ArithmeticError):
            raise StatementError(f"{where} is no whole evaluation: a part is missing, or of another kind") from None
        if not _same(again, data["measures"]):
            raise StatementError(f"{where} contradicts itself: its measures do not follow from its released numbers")
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the document to a JSON file."""
        write_whole(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Evaluation:
        """Read a document from a file."""
        try:
            text = Path(path).read_bytes()
        except OSError as problem:
            raise StatementError(f"cannot read {path}: {problem.strerror}") from None
        return cls.from_json(text, str(path))

    def __str__(self) -> str:
        lines = [f"{self.model}, {self.level:.0%} intervals (privacy and sampling)"]
        for each in self.measures:
            lines.append(f"  {describe(each)}")
        return "\n".join(lines)

    @property
    def threshold(self) -> float | None:
        """That of the decisions of two classes, in the units of the model's scores."""
        if len(self.classes) != 2 or self.scores[0].split is None:
            return None
        return float(self._shown(self.scores[0].edges[self.scores[0].split]))


def describe(measure: Measure) -> str:
    """Return a measure as a line of text."""
    if measure.value is None:
        return f"{measure.name:<24} not released: {measure.remark}"
    said = f"  ({measure.remark})" if measure.remark else ""
    errors = f"privacy {measure.privacy:.2g}, sampling {measure.sampling:.2g}"
    return f"{measure.name:<24} {measure.value:.4g}  [{measure.low:.4g}, {measure.high:.4g}]  {errors}{said}"


def threshold_in_logits(scale: str, value: float) -> float:
    """Return a threshold of a caller, a probability or a score, in the units of edges."""
    return value if scale == "score" else float(logit(require_open_unit("threshold", value)))


def _plain(data: Any) -> Any:
    """Return plain data with null for what is infinite or no number."""
    if isinstance(data, dict):
        return {name: _plain(each) for name, each in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(each) for each in data]
    if isinstance(data, np.generic):
        return _plain(data.item())
    return None if isinstance(data, float) and not math.isfinite(data) else data


def _same(first: Any, second: Any) -> bool:
    """Return whether two plain data are the same, to the last digits of their numbers."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_same(first[name], second[name]) for name in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_same, first, second))
    if isinstance(first, float) and isinstance(second, int | float):
        return math.isclose(first, second, rel_tol=1e-6, abs_tol=1e-9)
    return bool(first == second)


def _tuples(data: Any) -> dict[str, Any]:
    return {name: _frozen(value) for name, value in data.items()}


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value


def _score_counts(data: Any) -> ScoreCounts:
    return ScoreCounts(**_tuples(data))
