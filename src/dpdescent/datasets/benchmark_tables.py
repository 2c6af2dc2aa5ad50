"""Tables other than those of a census: Bank marketing, Covertype, IJCNN1 and KDD Cup 1999.

Public bounds and levels are typed in from their documentation and published ranges.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..arrays import Floats
from ..errors import DatasetFormatError
from ..tables import BoundedEncoder, scale_columns
from .dataset import Dataset, read_delimited, read_packed, words
from .store import LIBSVM, LocalFiles, Origin, Remote, read_libsvm_parts

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
            (LIBSVM + "ijcnn1.bz2",),
            rows_sha256="9e999a6452dc6cf841aaab402391be8908eb2240c5bd5d394614b3ee8a89511a",
            columns=_IJCNN1_COLUMNS,
        ),
        Remote(
            "ijcnn1.t.bz2",
            (LIBSVM + "ijcnn1.t.bz2",),
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


# Each 0/1 column of the bank coding: the raw column and the level it stands for.
BANK_DUMMIES: dict[str, tuple[str, str]] = {
    f"{column}={level}": (column, level)
    for column, levels in (
        (
            "job",
            "admin. unemployed management housemaid entrepreneur student blue-collar self-employed retired "
            "technician services",
        ),
        ("marital", "single married"),
        ("education", "primary secondary tertiary"),
        ("default", "yes"),
        ("housing", "yes"),
        ("loan", "yes"),
        ("contact", "telephone cellular"),
        ("poutcome", "other failure success"),
    )
    for level in levels.split()
}

_BANK_ORDER = [
    "age",
    *[name for name, (column, _) in BANK_DUMMIES.items() if column in ("job", "marital", "education", "default")],
    *("balance", "housing=yes", "loan=yes", "contact=telephone", "contact=cellular"),
    *("30*month+day", "duration", "campaign", "pdays!=-1", "max(pdays,0)", "previous"),
    *("poutcome=other", "poutcome=failure", "poutcome=success"),
]

# Ranges of the published bank-full.csv (Moro, Cortez and Rita 2014): years, euros, days, seconds, counts.
# The date is 30 * month + day, so 31 is 1 January and 391 is 31 December.
_BANK_RANGES: dict[str, tuple[float, float]] = {
    "age": (18, 95),
    "balance": (-8019, 102_127),
    "30*month+day": (31, 391),
    "duration": (0, 4918),
    "campaign": (1, 63),
    "max(pdays,0)": (0, 871),
    "previous": (0, 275),
}
BANK_BOUNDS: dict[str, tuple[float, float]] = {name: _BANK_RANGES.get(name, (0, 1)) for name in _BANK_ORDER}

# Ranges of the published covtype.data: metres, degrees, and hillshade from 0 to 254.
COVERTYPE_BOUNDS: dict[str, tuple[float, float]] = {
    "Elevation": (1859, 3858),
    "Aspect": (0, 360),
    "Slope": (0, 66),
    "Horizontal_Distance_To_Hydrology": (0, 1397),
    "Vertical_Distance_To_Hydrology": (-173, 601),
    "Horizontal_Distance_To_Roadways": (0, 7117),
    "Hillshade_9am": (0, 254),
    "Hillshade_Noon": (0, 254),
    "Hillshade_3pm": (0, 254),
    "Horizontal_Distance_To_Fire_Points": (0, 7173),
    **{f"Wilderness_Area{area}": (0.0, 1.0) for area in range(1, 5)},
    **{f"Soil_Type{soil}": (0.0, 1.0) for soil in range(1, 41)},
}

KDD_COLUMNS: tuple[str, ...] = words(
    "duration protocol_type service flag src_bytes dst_bytes land wrong_fragment urgent hot "
    "num_failed_logins logged_in num_compromised root_shell su_attempted num_root num_file_creations "
    "num_shells num_access_files num_outbound_cmds is_host_login is_guest_login count srv_count serror_rate "
    "srv_serror_rate rerror_rate srv_rerror_rate same_srv_rate diff_srv_rate srv_diff_host_rate "
    "dst_host_count dst_host_srv_count dst_host_same_srv_rate dst_host_diff_srv_rate "
    "dst_host_same_src_port_rate dst_host_srv_diff_host_rate dst_host_serror_rate dst_host_srv_serror_rate "
    "dst_host_rerror_rate dst_host_srv_rerror_rate label"
)

# Services of the whole published training file, of which the 10 percent file shows 66.
KDD_LEVELS: dict[str, tuple[str, ...]] = {
    "protocol_type": words("icmp tcp udp"),
    "service": words(
        "IRC X11 Z39_50 aol auth bgp courier csnet_ns ctf daytime discard domain domain_u echo eco_i ecr_i "
        "efs exec finger ftp ftp_data gopher harvest hostnames http http_2784 http_443 http_8001 imap4 "
        "iso_tsap klogin kshell ldap link login mtp name netbios_dgm netbios_ns netbios_ssn netstat nnsp "
        "nntp ntp_u other pm_dump pop_2 pop_3 printer private red_i remote_job rje shell smtp sql_net ssh "
        "sunrpc supdup systat telnet tftp_u tim_i time urh_i urp_i uucp uucp_path vmnet whois"
    ),
    "flag": words("OTH REJ RSTO RSTOS0 RSTR S0 S1 S2 S3 SF SH"),
}

# Counters without a natural ceiling are coded log(1 + x) / log(1 + high): seconds in a day, 32-bit byte
# counts, and 1023 for counts of events within one connection.
KDD_HEAVY_TAILED: dict[str, int] = {
    "duration": 86_400,
    "src_bytes": 2**32 - 1,
    "dst_bytes": 2**32 - 1,
    **dict.fromkeys(words("hot num_compromised num_root num_file_creations"), 1023),
}

# Windows of the published feature definition (511 connections in two seconds, 255 to one host); small counts
# are clipped at 10; rates and flags lie in [0, 1].
KDD_FLAGS = words("land logged_in root_shell is_host_login is_guest_login")
_KDD_LINEAR_HIGH: dict[str, float] = {
    "count": 511,
    "srv_count": 511,
    "dst_host_count": 255,
    "dst_host_srv_count": 255,
    "wrong_fragment": 3,
    "su_attempted": 2,
    **dict.fromkeys(words("urgent num_failed_logins num_shells num_access_files num_outbound_cmds"), 10),
}
KDD_LINEAR: dict[str, float] = {
    name: _KDD_LINEAR_HIGH.get(name, 1)
    for name in KDD_COLUMNS
    if name not in KDD_LEVELS and name not in KDD_HEAVY_TAILED and name != "label"
}

#: The attacks in the file that are denial of service, by the task description of the cup.
KDD_DENIAL_OF_SERVICE = ("back.", "land.", "neptune.", "pod.", "smurf.", "teardrop.")


def code_bank(table: pd.DataFrame) -> Floats:
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
    X, y, split = read_libsvm_parts(files, _IJCNN1_COLUMNS)
    return Dataset(
        name="ijcnn1",
        X=np.clip(X, -1.0, 1.0),
        y=y,
        feature_names=tuple(f"ijcnn1_{position}" for position in range(1, _IJCNN1_COLUMNS + 1)),
        bounds=(-1.0, 1.0),
        classes=(0, 1),
        source=IJCNN1_ORIGIN.citation,
        notes="Clipped to [-1, 1]: the training part lies inside, some test cells do not. y is 1 for +1.",
        split=split,
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
