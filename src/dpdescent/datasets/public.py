"""Public bounds and levels of the data sets, typed in from their documentation and published ranges."""

from __future__ import annotations

from ..schema import CategoricalColumn, IgnoredColumn, Label, NumericColumn, Schema

__all__ = [
    "ACS_SCHEMA",
    "ADULT_SCHEMA",
    "BANK_BOUNDS",
    "BANK_DUMMIES",
    "COVERTYPE_BOUNDS",
    "IPUMS_BR_BOUNDS",
    "KDD_COLUMNS",
    "KDD_FLAGS",
    "KDD_HEAVY_TAILED",
    "KDD_LEVELS",
    "KDD_LINEAR",
]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _codes(first: int, last: int, *extra: str) -> tuple[str, ...]:
    return (*map(str, range(first, last + 1)), *extra)


# Levels: adult.names of the UCI repository, plus "?", its published mark for an unknown cell. Ranges: those
# of the published file; 90 and 99999 are the top codes of the survey.
ADULT_SCHEMA = Schema(
    columns=(
        NumericColumn("age", 17, 90),
        CategoricalColumn(
            "workclass",
            _words(
                "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked ?"
            ),
        ),
        IgnoredColumn("fnlwgt"),
        CategoricalColumn(
            "education",
            _words(
                "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th "
                "Masters 1st-4th 10th Doctorate 5th-6th Preschool"
            ),
        ),
        NumericColumn("education-num", 1, 16),
        CategoricalColumn(
            "marital-status",
            _words(
                "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse"
            ),
        ),
        CategoricalColumn(
            "occupation",
            _words(
                "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
                "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
                "Priv-house-serv Protective-serv Armed-Forces ?"
            ),
        ),
        CategoricalColumn("relationship", _words("Wife Own-child Husband Not-in-family Other-relative Unmarried")),
        CategoricalColumn("race", _words("White Asian-Pac-Islander Amer-Indian-Eskimo Other Black")),
        CategoricalColumn("sex", ("Female", "Male")),
        NumericColumn("capital-gain", 0, 99999),
        NumericColumn("capital-loss", 0, 4356),
        NumericColumn("hours-per-week", 1, 99),
        CategoricalColumn(
            "native-country",
            _words(
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

KDD_COLUMNS: tuple[str, ...] = _words(
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
    "protocol_type": _words("icmp tcp udp"),
    "service": _words(
        "IRC X11 Z39_50 aol auth bgp courier csnet_ns ctf daytime discard domain domain_u echo eco_i ecr_i "
        "efs exec finger ftp ftp_data gopher harvest hostnames http http_2784 http_443 http_8001 imap4 "
        "iso_tsap klogin kshell ldap link login mtp name netbios_dgm netbios_ns netbios_ssn netstat nnsp "
        "nntp ntp_u other pm_dump pop_2 pop_3 printer private red_i remote_job rje shell smtp sql_net ssh "
        "sunrpc supdup systat telnet tftp_u tim_i time urh_i urp_i uucp uucp_path vmnet whois"
    ),
    "flag": _words("OTH REJ RSTO RSTOS0 RSTR S0 S1 S2 S3 SF SH"),
}

# Counters without a natural ceiling are coded log(1 + x) / log(1 + high): seconds in a day, 32-bit byte
# counts, and 1023 for counts of events within one connection.
KDD_HEAVY_TAILED: dict[str, int] = {
    "duration": 86_400,
    "src_bytes": 2**32 - 1,
    "dst_bytes": 2**32 - 1,
    **dict.fromkeys(_words("hot num_compromised num_root num_file_creations"), 1023),
}

# Windows of the published feature definition (511 connections in two seconds, 255 to one host); small counts
# are clipped at 10; rates and flags lie in [0, 1].
KDD_FLAGS = _words("land logged_in root_shell is_host_login is_guest_login")
_KDD_LINEAR_HIGH: dict[str, float] = {
    "count": 511,
    "srv_count": 511,
    "dst_host_count": 255,
    "dst_host_srv_count": 255,
    "wrong_fragment": 3,
    "su_attempted": 2,
    **dict.fromkeys(_words("urgent num_failed_logins num_shells num_access_files num_outbound_cmds"), 10),
}
KDD_LINEAR: dict[str, float] = {
    name: _KDD_LINEAR_HIGH.get(name, 1)
    for name in KDD_COLUMNS
    if name not in KDD_LEVELS and name not in KDD_HEAVY_TAILED and name != "label"
}
