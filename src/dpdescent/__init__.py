"""Private training with no learning rate to tune."""

from .accounting import (
    AboveThreshold,
    Composed,
    ExponentialMechanism,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NormLaplace,
    PoissonSampled,
    PureDP,
    ReportNoisyMax,
)
from .errors import BudgetExhausted, DPDescentError, InvalidParameter
from .ledger import Ledger
from .relations import Relation, Sensitivity

__version__ = "0.1.0"

__all__ = [
    "AboveThreshold",
    "BudgetExhausted",
    "Composed",
    "DPDescentError",
    "ExponentialMechanism",
    "FixedSizeSampled",
    "Gaussian",
    "InvalidParameter",
    "Laplace",
    "Ledger",
    "NormLaplace",
    "PoissonSampled",
    "PureDP",
    "Relation",
    "ReportNoisyMax",
    "Sensitivity",
    "__version__",
]
