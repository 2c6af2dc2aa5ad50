"""Private training with no learning rate to tune."""

from . import audit
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
from .choosing import Selection, select
from .curator import Curator, perturbed_minimiser, perturbed_saddle_point
from .datasets import list_datasets, load_dataset
from .encoding import BoundedEncoder
from .errors import BudgetExhausted, DPDescentError, InvalidParameter, PrivacyWarning, UnsupportedLoss
from .estimators import (
    DPAdditiveClassifier,
    DPAdditiveRegressor,
    DPHuberRegressor,
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPPoissonRegressor,
)
from .excess_risk import excess_risk_bound
from .ledger import Ledger
from .minimisers import Game, GeneralObjective, LinearGame
from .problems import Adversary
from .relations import Relation, Sensitivity
from .schema import Schema, draft_schema
from .statement import PrivacyStatement

__version__ = "0.1.0"

__all__ = [
    "AboveThreshold",
    "Adversary",
    "BoundedEncoder",
    "BudgetExhausted",
    "Composed",
    "Curator",
    "DPAdditiveClassifier",
    "DPAdditiveRegressor",
    "DPDescentError",
    "DPHuberRegressor",
    "DPLinearRegression",
    "DPLinearSVC",
    "DPLogisticRegression",
    "DPPoissonRegressor",
    "ExponentialMechanism",
    "FixedSizeSampled",
    "Game",
    "Gaussian",
    "GeneralObjective",
    "InvalidParameter",
    "Laplace",
    "Ledger",
    "LinearGame",
    "NormLaplace",
    "PoissonSampled",
    "PrivacyStatement",
    "PrivacyWarning",
    "PureDP",
    "Relation",
    "ReportNoisyMax",
    "Schema",
    "Selection",
    "Sensitivity",
    "UnsupportedLoss",
    "__version__",
    "audit",
    "draft_schema",
    "excess_risk_bound",
    "list_datasets",
    "load_dataset",
    "perturbed_minimiser",
    "perturbed_saddle_point",
    "select",
]
