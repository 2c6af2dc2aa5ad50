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
from .curator import Curator
from .datasets import list_datasets, load_dataset
from .encoding import BoundedEncoder
from .errors import BudgetExhausted, DPDescentError, InvalidParameter, PrivacyWarning
from .estimators import DPLinearRegression, DPLinearSVC, DPLogisticRegression
from .excess_risk import excess_risk_bound
from .ledger import Ledger
from .minimisers import GeneralObjective
from .questions import perturbed_minimiser
from .relations import Relation, Sensitivity
from .schema import Schema, draft_schema

__version__ = "0.1.0"

__all__ = [
    "AboveThreshold",
    "BoundedEncoder",
    "BudgetExhausted",
    "Composed",
    "Curator",
    "DPDescentError",
    "DPLinearRegression",
    "DPLinearSVC",
    "DPLogisticRegression",
    "ExponentialMechanism",
    "FixedSizeSampled",
    "Gaussian",
    "GeneralObjective",
    "InvalidParameter",
    "Laplace",
    "Ledger",
    "NormLaplace",
    "PoissonSampled",
    "PrivacyWarning",
    "PureDP",
    "Relation",
    "ReportNoisyMax",
    "Schema",
    "Sensitivity",
    "__version__",
    "draft_schema",
    "excess_risk_bound",
    "list_datasets",
    "load_dataset",
    "perturbed_minimiser",
]
