"""Other tabular data sets: Bank marketing, Covertype, IJCNN1 and KDD Cup 1999."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..encoding import BoundedEncoder, scale_columns
from ..errors import DatasetFormatError
from .census import parts
from .formats import read_delimited, read_libsvm, read_packed
from .public import (
    BANK_BOUNDS,
    BANK_DUMMIES,
    COVERTYPE_BOUNDS,
    KDD_COLUMNS,
    KDD_FLAGS,
    KDD_HEAVY_TAILED,
    KDD_LEVELS,
    KDD_LINEAR,
)
from .record import Dataset
from .store import LocalFiles, Origin, Remote

__all__ = [
    "BANK_ORIGIN",
    "COVERTYPE_ORIGIN",
    "IJCNN1_ORIGIN",
    "KDD_ORIGIN",
    "code_bank",
    "load_bank",
    "load_covertype",
    "load_ijcnn1",
    "load_kddcup99",
    "load_kddcup99_dos",
]

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
_IJCNN1_COLUMNS = 22
_BANK_MEMBERS = ("bank.zip", "bank-full.csv")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

BANK_ORIGIN = Origin(
    citation=(
        "Moro, Cortez and Rita, A data-driven approach to predict the success of bank telemarketing, "
        "Decision Support Systems 62, 2014, doi:10.24432/C5K306."
    ),
    packed=("bank_dpagd.npz",),
    remotes=(
        Remote(
            "bank+marketing.zip",
            ("https://archive.ics.uci.edu/static/public/222/bank+marketing.zip",),
            content_sha256="d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d",
            members=_BANK_MEMBERS,
        ),
    ),
)
COVERTYPE_ORIGIN = Origin(
    citation="Blackard, Covertype, UCI Machine Learning Repository 1998, doi:10.24432/C50K5N.",
    packed=("covtype.npz",),
    remotes=(
        Remote(
            "covtype.data.gz",
            (
                "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz",
                "https://ndownloader.figshare.com/files/5976039",
            ),
            content_sha256="0a9371cef7c964b5475d6053cc3e0894a5aa6f65ad1ed3ecb01c45aa96217945",
        ),
    ),
)
IJCNN1_ORIGIN = Origin(
    citation=(
        "Prokhorov, IJCNN 2001 neural network competition; coding of Chang and Lin, IJCNN 2001 challenge: "
        "generalization ability and text decoding, as published by LIBSVM."
    ),
    packed=("ijcnn1.npz",),
    remotes=(
        Remote(
            "ijcnn1.bz2",
            (_LIBSVM + "ijcnn1.bz2",),
            rows_sha256="9e999a6452dc6cf841aaab402391be8908eb2240c5bd5d394614b3ee8a89511a",
            columns=_IJCNN1_COLUMNS,
        ),
        Remote(
            "ijcnn1.t.bz2",
            (_LIBSVM + "ijcnn1.t.bz2",),
            rows_sha256="a79fae39c073bbf508fe724cd9352e1555b171552b8245a463dfb05e1023d09c",
            columns=_IJCNN1_COLUMNS,
        ),
    ),
)
KDD_ORIGIN = Origin(
    citation="KDD Cup 1999 (10 percent file), UCI KDD archive, Stolfo et al. 1999, doi:10.24432/C51C7N.",
    packed=("kddcup99_10_percent.csv.gz",),
    remotes=(
        Remote(
            "kddcup.data_10_percent.gz",
            (
                "https://kdd.ics.uci.edu/databases/kddcup99/kddcup.data_10_percent.gz",
                "https://ndownloader.figshare.com/files/5976042",
            ),
            sha256="8045aca0d84e70e622d1148d7df782496f6333bf6eb979a1b0837c42a9fd9561",
        ),
    ),
)


#: The attacks in the file that are denial of service, by the task description of the cup.
KDD_DENIAL_OF_SERVICE = ("back.", "land.", "neptune.", "pod.", "smurf.", "teardrop.")


def code_bank(table: pd.DataFrame) -> NDArray[np.float64]:
    """Code ``bank-full.csv`` as the 32 columns of Lee and Kifer (2018), before scaling.

    Reference levels (job unknown, marital divorced, education unknown, contact unknown, poutcome unknown)
    have no column; the date is ``30 * month + day`` with January as 1.
    """
    month = pd.Index(_MONTHS).get_indexer(pd.Index(table["month"])) + 1
    if (month == 0).any():
        raise DatasetFormatError("bank-full.csv: a month is none of jan to dec")
    made = {
        "30*month+day": 30 * month + table["day"].to_numpy(),
        "pdays!=-1": (table["pdays"] != -1).to_numpy(),
        "max(pdays,0)": np.maximum(table["pdays"].to_numpy(), 0),
    }
    columns = []
    for name in BANK_BOUNDS:
        if name in made:
            columns.append(made[name])
        elif name in BANK_DUMMIES:
            column, level = BANK_DUMMIES[name]
            columns.append((table[column] == level).to_numpy())
        else:
            columns.append(table[name].to_numpy())
    return np.column_stack(columns).astype(np.float64)


def load_bank(files: LocalFiles) -> Dataset:
    """Load Bank marketing in the 32-column coding of Lee and Kifer (2018)."""
    if files.packed:
        X, y = read_packed(files.paths[0], "X", "y")
    else:
        table = read_delimited(files.paths[0], members=_BANK_MEMBERS, sep=";")
        X, y = code_bank(table), (table["y"] == "yes").to_numpy()
    low, high = np.array(list(BANK_BOUNDS.values()), dtype=np.float64).T
    return Dataset(
        name="bank",
        X=scale_columns(X, low, high),
        y=y.astype(np.int64),
        feature_names=tuple(BANK_BOUNDS),
        bounds=(0.0, 1.0),
        binary_features=high - low == 1,  # all cells are whole numbers
        classes=(0, 1),
        source=BANK_ORIGIN.citation,
        notes=(
            "Coding of Lee and Kifer (KDD 2018); columns are scaled by the ranges of the published file. y "
            "is 1 where the client subscribed."
        ),
    )


def load_covertype(files: LocalFiles, *, all_classes: bool = False) -> Dataset:
    """Load Covertype: its classes 1 (spruce or fir) and 2 (lodgepole pine) alone, or all seven."""
    if files.packed:
        X, cover = read_packed(files.paths[0], "X", "y")
    else:
        names = (*COVERTYPE_BOUNDS, "Cover_Type")
        cells = read_delimited(files.paths[0], names=names, dtype=dict.fromkeys(names, np.int16)).to_numpy()
        X, cover = cells[:, :-1], cells[:, -1]
    low, high = np.array(list(COVERTYPE_BOUNDS.values()), dtype=np.float64).T
    if not all_classes:
        kept = cover <= 2
        X, cover = X[kept], cover[kept]
    chosen = "All seven classes" if all_classes else "Classes 1 and 2 of seven"
    meaning = "y is the class" if all_classes else "y is 1 for class 2"
    return Dataset(
        name="covertype",
        X=scale_columns(X, low, high),
        y=(cover if all_classes else cover == 2).astype(np.int64),
        feature_names=tuple(COVERTYPE_BOUNDS),
        bounds=(0.0, 1.0),
        binary_features=high - low == 1,  # all cells are whole numbers
        classes=tuple(range(1, 8)) if all_classes else (0, 1),
        source=COVERTYPE_ORIGIN.citation,
        notes=f"{chosen}; scaled by the ranges of the published file. {meaning}.",
    )


def load_ijcnn1(files: LocalFiles) -> Dataset:
    """Load IJCNN1, training rows before test rows, clipped to [-1, 1]."""
    if files.packed:
        X_train, y_train, X_test, y_test = read_packed(files.paths[0], "X_train", "y_train", "X_test", "y_test")
        y_train, y_test = y_train > 0, y_test > 0
    else:
        (X_train, y_train), (X_test, y_test) = (read_libsvm(path, _IJCNN1_COLUMNS) for path in files.paths)
    return Dataset(
        name="ijcnn1",
        X=np.clip(np.concatenate([X_train, X_test]), -1.0, 1.0),
        y=np.concatenate([y_train, y_test]).astype(np.int64),
        feature_names=tuple(f"ijcnn1_{position}" for position in range(1, _IJCNN1_COLUMNS + 1)),
        bounds=(-1.0, 1.0),
        classes=(0, 1),
        source=IJCNN1_ORIGIN.citation,
        notes="Clipped to [-1, 1]: the training part lies inside, some test cells do not. y is 1 for +1.",
        split=parts(len(X_train), len(X_test)),
    )


def load_kddcup99_dos(files: LocalFiles) -> Dataset:
    """Load the 10 percent file of KDD Cup 1999 as denial of service (1) against all else (0)."""
    return _load_kddcup99(files, "kddcup99-dos", KDD_DENIAL_OF_SERVICE, "y is 1 for denial of service")


def load_kddcup99(files: LocalFiles) -> Dataset:
    """Load the 10 percent file of KDD Cup 1999 as attack (1) against normal (0)."""
    return _load_kddcup99(files, "kddcup99", None, "y is 1 for any attack")


def _load_kddcup99(files: LocalFiles, dataset: str, positive: tuple[str, ...] | None, meaning: str) -> Dataset:
    """Load the file with the labels in ``positive`` as class 1, or all but the normal one."""
    text = dict.fromkeys((*KDD_LEVELS, "label"), "category")
    table = read_delimited(files.paths[0], names=KDD_COLUMNS, dtype=text)
    bounds: dict[str, tuple[float, float]] = {name: (0.0, high) for name, high in KDD_LINEAR.items()}
    for name, high in KDD_HEAVY_TAILED.items():
        table[name] = np.log1p(table[name].to_numpy(dtype=np.float64))
        bounds[name] = (0.0, float(np.log1p(high)))
    encoder = BoundedEncoder(bounds, KDD_LEVELS, ignore=("label",))
    X = encoder.fit_transform(table)
    names = tuple(encoder.get_feature_names_out())
    chosen = table["label"] != "normal." if positive is None else table["label"].isin(positive)
    return Dataset(
        name=dataset,
        X=X,
        y=chosen.to_numpy(dtype=np.int64),
        feature_names=names,
        bounds=(0.0, 1.0),
        binary_features=encoder.binary_features_ | np.isin(names, KDD_FLAGS),
        classes=(0, 1),
        source=KDD_ORIGIN.citation,
        notes=(
            "Public scaling: durations, byte counts and event counts x become log(1 + x) / log(1 + high) "
            "with high fixed by their unit; other numbers are divided by a fixed maximum and clipped. "
            f"Categories are one-hot with the levels of the whole published training file. {meaning}."
        ),
    )
