"""What a data set is, and what is known about one before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import DatasetFormatError
from ..schema import Schema

__all__ = ["Dataset", "DatasetInfo"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set, ready for an estimator.

    Parameters
    ----------
    name : str
        Its name.
    X : ndarray of shape (n, d)
        Features, every entry inside ``bounds``; images keep their shape if asked to.
    y : ndarray of shape (n,)
        Labels.
    feature_names : tuple of str
        One name per column of ``X`` (per pixel for images).
    bounds : (low, high) or None
        Public bounds of every feature, to be passed on to the estimator; None, or NaN for a column, where they are
        to be measured.
    classes : tuple
        Public classes, to be passed on to the estimator; empty where the label is a number.
    source : str
        Where the data come from, with the citation.
    notes : str
        How they are coded here.
    table : DataFrame, optional
        The columns before encoding, label included.
    split : ndarray of "train" and "test", optional
        The published parts, where there are any.
    schema : Schema, optional
        Public schema of ``table``.
    binary_features : ndarray of bool, optional
        Which columns of ``X`` are coded as 0 or 1, to be passed on to the estimator; None where the coding does not
        say.
    unit : Series, optional
        Whose row each is, to be passed on to ``fit``, where the schema declares a unit.

    Notes
    -----
    **Privacy.** Bounds, levels and classes are constants of the package or come from the caller; loading
    reads none of them from the rows.
    """

    name: str
    X: NDArray[Any]
    y: NDArray[Any]
    feature_names: tuple[str, ...]
    bounds: Any
    classes: tuple[Any, ...]
    source: str
    notes: str = ""
    table: pd.DataFrame | None = None
    split: NDArray[np.str_] | None = None
    schema: Schema | None = None
    binary_features: NDArray[np.bool_] | None = None
    unit: pd.Series | None = None

    def __post_init__(self) -> None:
        parts = {"y": self.y, "table": self.table, "split": self.split, "unit": self.unit}
        wrong = [name for name, part in parts.items() if part is not None and len(part) != len(self.X)]
        if wrong:
            raise DatasetFormatError(f"data set {self.name!r}: {' and '.join(wrong)} and X differ in length")
        if int(np.prod(self.X.shape[1:])) != len(self.feature_names):
            raise DatasetFormatError(f"data set {self.name!r}: X does not have one column per feature name")
        if self.binary_features is not None and self.binary_features.shape != (len(self.feature_names),):
            raise DatasetFormatError(f"data set {self.name!r}: binary_features does not have one entry per column")


@dataclass(frozen=True)
class DatasetInfo:
    """What is known about a data set before it is loaded.

    Parameters
    ----------
    name, title : str
        Its name and a line about it.
    rows, columns, classes : int
        Published shape after encoding.
    source : str
        Citation.
    files : tuple of str
        Names of the files that serve as an offline copy; empty if it is built in.
    urls : tuple of str
        Where it is downloaded from; empty if there is no stable public download.
    location : Path or None
        The folder in which a copy was found on this machine.
    built_in : bool
        Whether it needs no file.
    """

    name: str
    title: str
    rows: int
    columns: int
    classes: int
    source: str
    files: tuple[str, ...]
    urls: tuple[str, ...]
    location: Path | None
    built_in: bool = False
