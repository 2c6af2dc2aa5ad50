"""Census data sets: Adult in two codings, ACS income, and IPUMS Brazil.

Public bounds and levels are typed in from their documentation and published ranges.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..errors import DatasetFormatError, require_finite
from ..tables import CategoricalColumn, IgnoredColumn, Label, NumericColumn, Schema, scale_columns
from .dataset import Dataset, coded, read_delimited, read_packed, words
from .store import LIBSVM, LocalFiles, Origin, Remote, mark_parts, read_libsvm_parts

_UCI_ADULT = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
_ADULT = "Becker and Kohavi, Adult (census income 1994), UCI Machine Learning Repository 1996, doi:10.24432/C5XW20"
_A9A_COLUMNS = 123

ADULT_ORIGIN = Origin(
    citation=f"{_ADULT}; a9a coding of LIBSVM (Platt 1999; Chang and Lin).",
    packed=("a9a.npz",),
    remotes=(
        Remote("a9a", (LIBSVM + "a9a",), sha256="f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906"),
        Remote(
            "a9a.t", (LIBSVM + "a9a.t",), sha256="1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9"
        ),
    ),
)
ADULT_RAW_ORIGIN = Origin(
    citation=f"{_ADULT}.",
    packed=("adult.csv.gz",),
    remotes=(
        Remote(
            "adult.data",
            (_UCI_ADULT + "adult.data",),
            sha256="5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        ),
        Remote(
            "adult.test",
            (_UCI_ADULT + "adult.test",),
            sha256="a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        ),
    ),
)
ACS_ORIGIN = Origin(
    citation=(
        "NIST Diverse Communities Data Excerpts (American Community Survey 2018 and 2019, 31 areas), "
        "doi:10.18434/mds2-2895."
    ),
    packed=("acs_nist_excerpts.csv.gz",),
    no_download=(
        "the file joins the six CSV files of the NIST Diverse Communities Data Excerpts "
        "(doi:10.18434/mds2-2895) with the columns region and year added"
    ),
)
IPUMS_BR_ORIGIN = Origin(
    citation=(
        "IPUMS-International, Brazil; extract of Lee and Kifer, Concentrated Differentially Private "
        "Gradient Descent with Adaptive per-Iteration Privacy Budget, KDD 2018."
    ),
    packed=("ipums_br.npz",),
    no_download=(
        "the terms of IPUMS-International do not allow its microdata to be passed on; the 38,000 x 52 "
        "extract is the one used by Lee and Kifer (2018), as arrays X and y"
    ),
)


def _codes(first: int, last: int, *extra: str) -> tuple[str, ...]:
    return (*map(str, range(first, last + 1)), *extra)


# Levels: adult.names of the UCI repository, plus "?", its published mark for an unknown cell. Ranges: those
# of the published file; 90 and 99999 are the top codes of the survey.
ADULT_SCHEMA = Schema(
    columns=(
        NumericColumn("age", 17, 90),
        CategoricalColumn(
            "workclass",
            words("Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked ?"),
        ),
        IgnoredColumn("fnlwgt"),
        CategoricalColumn(
            "education",
            words(
                "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th "
                "Masters 1st-4th 10th Doctorate 5th-6th Preschool"
            ),
        ),
        NumericColumn("education-num", 1, 16),
        CategoricalColumn(
            "marital-status",
            words(
                "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse"
            ),
        ),
        CategoricalColumn(
            "occupation",
            words(
                "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
                "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
                "Priv-house-serv Protective-serv Armed-Forces ?"
            ),
        ),
        CategoricalColumn("relationship", words("Wife Own-child Husband Not-in-family Other-relative Unmarried")),
        CategoricalColumn("race", words("White Asian-Pac-Islander Amer-Indian-Eskimo Other Black")),
        CategoricalColumn("sex", ("Female", "Male")),
        NumericColumn("capital-gain", 0, 99999),
        NumericColumn("capital-loss", 0, 4356),
        NumericColumn("hours-per-week", 1, 99),
        CategoricalColumn(
            "native-country",
            words(
                "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India "
                "Japan Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico "
                "Portugal Ireland France Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary "
                "Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador Trinadad&Tobago Peru Hong "
                "Holand-Netherlands ?"
            ),
        ),
    ),
    label=Label("income", ("<=50K", ">50K")),
    rows=48_842,
)

# Levels and ranges: data dictionary of the NIST excerpts. Income is defined from age 15 on, so codes that
# mean "younger than 15" cannot occur and are left out.
ACS_SCHEMA = Schema(
    columns=(
        NumericColumn("AGEP", 15, 99),
        NumericColumn("DENSITY", 16.3, 52_864.7),
        CategoricalColumn("SEX", _codes(1, 2)),
        CategoricalColumn("MSP", _codes(1, 6)),
        CategoricalColumn("HISP", _codes(0, 4)),
        CategoricalColumn("RAC1P", _codes(1, 9)),
        CategoricalColumn("NOC", _codes(0, 19, "N")),
        CategoricalColumn("NPF", _codes(2, 20, "N")),
        CategoricalColumn("HOUSING_TYPE", _codes(1, 3)),
        CategoricalColumn("OWN_RENT", _codes(0, 2)),
        CategoricalColumn("INDP_CAT", _codes(0, 18, "N")),
        CategoricalColumn("EDU", _codes(1, 12)),
        CategoricalColumn("DVET", _codes(1, 6, "N")),
        CategoricalColumn("DREM", _codes(1, 2)),
        CategoricalColumn("DPHY", _codes(1, 2)),
        CategoricalColumn("DEYE", _codes(1, 2)),
        CategoricalColumn("DEAR", _codes(1, 2)),
    ),
    label=Label("high_income", (0, 1)),
)

# Code ranges of the published file by position; every other column is a 0/1 indicator. The source names no
# column and documents no range.
_IPUMS_BR_RANGES: dict[int, tuple[float, float]] = {
    5: (1, 2),
    6: (0, 6),
    7: (1, 2),
    8: (1, 30),
    9: (1, 27),
    10: (0, 9),
    11: (0, 4),
    12: (10, 100),
    13: (1, 2),
    18: (1, 2),
    49: (1, 140),
    50: (1, 2),
    51: (0, 88),
}
IPUMS_BR_BOUNDS: dict[str, tuple[float, float]] = {
    f"column_{position}": _IPUMS_BR_RANGES.get(position, (0, 1)) for position in range(52)
}


def load_adult(files: LocalFiles) -> Dataset:
    """Load the 123-column 0/1 coding of Adult (LIBSVM a9a), training rows before test rows."""
    X, y, split = read_libsvm_parts(files, _A9A_COLUMNS)
    return Dataset(
        name="adult",
        X=X.astype(np.float64, copy=False),
        y=y,
        feature_names=tuple(f"a9a_{position}" for position in range(1, _A9A_COLUMNS + 1)),
        bounds=(0.0, 1.0),
        binary_features=np.ones(_A9A_COLUMNS, dtype=np.bool_),
        classes=(0, 1),
        source=ADULT_ORIGIN.citation,
        notes="0/1 columns: categories, and numeric columns cut into quintiles. y is 1 for income above 50,000.",
        split=split,
    )


def load_adult_raw(files: LocalFiles) -> Dataset:
    """Load Adult as a table with a public schema, and its encoding (5 numeric and 102 level columns)."""
    names = [*(column.name for column in ADULT_SCHEMA.columns), ADULT_SCHEMA.label.column]
    if files.packed:
        table = read_delimited(files.paths[0])
        if list(table.columns) != [*names, "split"]:
            raise DatasetFormatError(f"{files.paths[0].name!r} must have the columns {', '.join(names)} and split")
        split = table.pop("split").to_numpy(dtype=np.str_)
    else:
        # adult.test opens with a line "|1x3 Cross validator" and ends its labels in a full stop.
        frames = [read_delimited(path, names=names, skipinitialspace=True, comment="|") for path in files.paths]
        split = mark_parts(*map(len, frames))
        table = pd.concat(frames, ignore_index=True)
        table["income"] = table["income"].str.rstrip(".")
    return Dataset(
        name="adult-raw",
        y=(ADULT_SCHEMA.labels(table) == ">50K").astype(np.int64),
        classes=(0, 1),
        source=ADULT_RAW_ORIGIN.citation,
        notes=(
            "Unknown cells are the level '?'. The survey weight fnlwgt is in the table and not in X. "
            "y is 1 for income '>50K'."
        ),
        split=split,
        **coded(table, ADULT_SCHEMA),
    )


def load_acs_income(files: LocalFiles, *, threshold: float = 25_000) -> Dataset:
    """Load the income task on the NIST excerpts of the American Community Survey.

    The label is 1 above a yearly income of ``threshold`` dollars.
    """
    require_finite("threshold", threshold)
    used = [*ACS_SCHEMA.features, "PINCP"]
    text = read_delimited(files.paths[0], dtype=dict.fromkeys(used, str), usecols=used)
    text = text[text["PINCP"] != "N"].reset_index(drop=True)
    try:
        income = text["PINCP"].astype(np.float64)
        table = text[list(ACS_SCHEMA.features)].astype({"AGEP": np.float64, "DENSITY": np.float64})
    except ValueError:
        raise DatasetFormatError(f"{files.paths[0].name!r}: PINCP, AGEP or DENSITY is not a number") from None
    table["high_income"] = (income > threshold).astype(np.int64)
    return Dataset(
        name="acs-income",
        y=table["high_income"].to_numpy(),
        classes=(0, 1),
        source=ACS_ORIGIN.citation,
        notes=(
            "This is ACS-NIST, not IPUMS-US: other years, areas, columns and label; name it so in any "
            "result. "
            f"Persons of age 15 or more; y is 1 for an income above {threshold:,.0f} dollars. Columns made "
            f"from "
            "income and survey weights are left out. Levels and ranges are those of the published data "
            "dictionary."
        ),
        **coded(table, ACS_SCHEMA),
    )


def load_ipums_br(files: LocalFiles) -> Dataset:
    """Load the Brazilian census extract of Lee and Kifer (2018)."""
    X, y = read_packed(files.paths[0], "X", "y")
    low, high = np.array(list(IPUMS_BR_BOUNDS.values()), dtype=np.float64).T
    return Dataset(
        name="ipums-br",
        X=scale_columns(X, low, high),
        y=y.astype(np.int64),
        feature_names=tuple(IPUMS_BR_BOUNDS),
        bounds=(0.0, 1.0),
        binary_features=high - low == 1,  # all codes are whole numbers
        classes=(0, 1),
        source=IPUMS_BR_ORIGIN.citation,
        notes="Columns are unnamed in the source; each is scaled by the code range of the published file.",
    )
