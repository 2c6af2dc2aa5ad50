"""Parts of fitted estimators as plain data: what noise does to the weights, and the trees of boosted models.

**Privacy** All of it was released by the fit, or follows from what was released.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import ModelFormatError
from ..queries import ColumnTables, LeafValues, Splits
from ..solvers import Sandwich
from ..solvers.leaf_boosting import Forest
from .binning import LEVELS, Binning


def _listed(value: Any) -> Any:
    return None if value is None else np.asarray(value).tolist()


def state_as_data(model: Any) -> dict[str, Any]:
    """Return what a fitted estimator knows of itself beside its weights."""
    weights, sandwich = getattr(model, "class_weight_", None), model._sandwich
    return {
        "binary": list(model._binary),
        "seen": _listed(model._seen),
        "factor": _listed(model._noise_factor),
        "constant": _listed(model._constant_noise),
        "iterations": int(model.n_iter_),
        "class_weights": None if weights is None else list(weights.values()),
        "influence": _listed(model._influence),
        "levels": [list(map(int, each)) for each in model._levels],
        "sandwich": None if sandwich is None else {name: _listed(value) for name, value in vars(sandwich).items()},
    }


def restore_state(model: Any, state: Mapping[str, Any]) -> None:
    """Give a model what `state_as_data` returned; a file of an earlier release has none of it."""
    columns, width = model.n_features_in_, model._features.columns
    model._binary = tuple(state.get("binary") or (False,) * columns)
    model._seen = _array(state.get("seen"), np.bool_)
    model._noise_factor, model._constant_noise = _array(state.get("factor")), _array(state.get("constant"))
    model._influence, model._sandwich = _array(state.get("influence")), None
    model._levels = tuple(map(tuple, state.get("levels") or ()))
    model.n_iter_ = state.get("iterations") or 0
    weights = state.get("class_weights")
    if hasattr(model, "classes_"):
        classes = model.classes_.tolist()
        model.class_weight_ = None if weights is None else dict(zip(classes, weights, strict=True))
    if state.get("sandwich") is not None:
        read = {
            name: _array(value) if isinstance(value, list) else value for name, value in state["sandwich"].items()
        }
        model._sandwich = Sandwich(**read | {"aliased": tuple(state["sandwich"]["aliased"])})
    factor = model._noise_factor
    if len(model._binary) != columns or (factor is not None and (factor.ndim != 2 or len(factor) != width)):
        raise ModelFormatError("what noise does to the weights must be given for each of them")


def _array(value: Any, kind: Any = np.float64) -> Any:
    return None if value is None else np.array(value, dtype=kind)


def trees_as_data(model: Any) -> dict[str, Any] | None:
    """Return the levels, the start and the trees of a boosted model; None for others."""
    if not hasattr(model, "_binning"):
        return None
    binning, forest = model._binning, model._forest
    trees = [
        {
            "columns": list(map(int, tree.splits.columns)),
            "sides": ["".join("01"[side] for side in sides.tolist()) for sides in tree.splits.sides],
            "values": tree.values.tolist(),
            "noise": noise.tolist(),
        }
        for tree, noise in (() if forest is None else zip(forest.trees, forest.noise, strict=True))
    ]
    return {
        "numbers": list(map(int, binning.numbers)),
        "groups": [list(map(int, group)) for group in binning.groups],
        "names": list(binning.names),
        "edges": binning.edges.tolist(),
        "constant": model._start.constant.tolist(),
        "start": [{"column": int(column), "values": table.tolist()} for column, table in model._start.tables],
        "trees": None if forest is None else trees,
        "factor": None if forest is None else float(forest.factor),
        "quantiles": _listed(model._quantiles),
    }


def restore_trees(model: Any, data: Mapping[str, Any], outputs: int) -> None:
    """Give a model what `trees_as_data` returned."""
    numbers = tuple(map(int, data["numbers"]))
    edges = np.array(data["edges"], dtype=np.float64).reshape(len(numbers), LEVELS - 1)
    groups = tuple(tuple(map(int, group)) for group in data["groups"])
    model._binning = Binning(numbers, edges, groups, tuple(data["names"]))
    tables = tuple((int(each["column"]), np.array(each["values"], np.float64)) for each in data["start"])
    model._start = ColumnTables(np.array(data["constant"], np.float64), tables)
    model._quantiles, model._forest = _array(data["quantiles"]), None
    if data["trees"] is not None:
        grown = [_tree(each) for each in data["trees"]]
        noise = tuple(np.array(each["noise"], np.float64) for each in data["trees"])
        model._forest = Forest(tuple(grown), noise, float(data["factor"]), outputs)


def _tree(data: Mapping[str, Any]) -> LeafValues:
    sides = np.array([[side == "1" for side in each] for each in data["sides"]], dtype=np.bool_)
    splits = Splits(tuple(map(int, data["columns"])), sides)
    return LeafValues(splits, np.array(data["values"], np.float64))


def misgrown(grown: Mapping[str, Any], width: int, scores: int) -> str | None:
    """Return what is wrong with the trees of a model with so many columns and scores, or None."""
    places = [*grown["numbers"], *(column for group in grown["groups"] for column in group)]
    levels = [LEVELS] * len(grown["numbers"]) + [len(group) + 1 for group in grown["groups"]]
    tables = [(len(each["values"]), {len(row) for row in each["values"]}) for each in grown["start"]]
    if not all(place < width for place in places) or len(grown["names"]) != len(levels):
        return "the levels of trees are of columns that there are not"
    if [each["column"] for each in grown["start"]] != list(range(len(levels))):
        return "trees start from one table for each column of levels"
    if tables != [(size, {scores}) for size in levels] or len(grown["constant"]) != scores:
        return "the tables from which trees start have the wrong size"
    found = (_misgrown_tree(tree, len(levels), scores) for tree in grown["trees"] or [])
    return next((each for each in found if each is not None), None)


def _misgrown_tree(tree: Mapping[str, Any], columns: int, scores: int) -> str | None:
    depth = len(tree["columns"])
    if not 1 <= depth <= 16 or len(tree["sides"]) != depth or not all(map(len, tree["sides"])):
        return "a tree has 1 to 16 questions, each with its sides"
    if not all(column < columns for column in tree["columns"]):
        return "a tree asks about a column that there is not"
    if [len(each) for each in tree["values"]] != [scores] * 2**depth:
        return "a tree has a number for each leaf and score"
    return None
