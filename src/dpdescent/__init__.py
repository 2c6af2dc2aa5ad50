"""Private training with no learning rate to tune.

A name is imported when it is first used, so that ``dpdescent --help`` need not wait for scientific libraries.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .old_names import EARLIER, find_earlier_modules

if TYPE_CHECKING:
    from . import audit as audit
    from .accounting import AboveThreshold as AboveThreshold
    from .accounting import Composed as Composed
    from .accounting import ExponentialMechanism as ExponentialMechanism
    from .accounting import FixedSizeSampled as FixedSizeSampled
    from .accounting import Gaussian as Gaussian
    from .accounting import Laplace as Laplace
    from .accounting import NormLaplace as NormLaplace
    from .accounting import PoissonSampled as PoissonSampled
    from .accounting import PureDP as PureDP
    from .accounting import ReportNoisyMax as ReportNoisyMax
    from .choosing import Selection as Selection
    from .choosing import select as select
    from .curator import Curator as Curator
    from .curator import drawn_minimiser as drawn_minimiser
    from .curator import perturbed_minimiser as perturbed_minimiser
    from .curator import perturbed_saddle_point as perturbed_saddle_point
    from .curator import phased_minimiser as phased_minimiser
    from .datasets import list_datasets as list_datasets
    from .datasets import load_dataset as load_dataset
    from .errors import BudgetExhausted as BudgetExhausted
    from .errors import DPDescentError as DPDescentError
    from .errors import InvalidParameter as InvalidParameter
    from .errors import PrivacyWarning as PrivacyWarning
    from .errors import UnsupportedLoss as UnsupportedLoss
    from .estimators import DPAdditiveClassifier as DPAdditiveClassifier
    from .estimators import DPAdditiveRegressor as DPAdditiveRegressor
    from .estimators import DPHuberRegressor as DPHuberRegressor
    from .estimators import DPLinearRegression as DPLinearRegression
    from .estimators import DPLinearSVC as DPLinearSVC
    from .estimators import DPLogisticRegression as DPLogisticRegression
    from .estimators import DPPoissonRegressor as DPPoissonRegressor
    from .evaluation import Evaluation as Evaluation
    from .evaluation import evaluate as evaluate
    from .lab.output_perturbation_paper.theorems import excess_risk_bound as excess_risk_bound
    from .ledger import Ledger as Ledger
    from .minimisers import Game as Game
    from .minimisers import GeneralObjective as GeneralObjective
    from .minimisers import LinearGame as LinearGame
    from .pipelines import check_pipeline as check_pipeline
    from .problems import Adversary as Adversary
    from .relations import Relation as Relation
    from .relations import Sensitivity as Sensitivity
    from .statement import PrivacyStatement as PrivacyStatement
    from .tables import BoundedEncoder as BoundedEncoder
    from .tables import Schema as Schema
    from .tables import draft_schema as draft_schema

__version__ = "0.1.0"

#: The public names of each module.
_PUBLIC = {
    "audit": (),
    "accounting": (
        "AboveThreshold",
        "Composed",
        "ExponentialMechanism",
        "FixedSizeSampled",
        "Gaussian",
        "Laplace",
        "NormLaplace",
        "PoissonSampled",
        "PureDP",
        "ReportNoisyMax",
    ),
    "choosing": ("Selection", "select"),
    "curator": (
        "Curator",
        "drawn_minimiser",
        "perturbed_minimiser",
        "perturbed_saddle_point",
        "phased_minimiser",
    ),
    "datasets": (
        "list_datasets",
        "load_dataset",
    ),
    "errors": (
        "BudgetExhausted",
        "DPDescentError",
        "InvalidParameter",
        "PrivacyWarning",
        "UnsupportedLoss",
    ),
    "estimators": (
        "DPAdditiveClassifier",
        "DPAdditiveRegressor",
        "DPHuberRegressor",
        "DPLinearRegression",
        "DPLinearSVC",
        "DPLogisticRegression",
        "DPPoissonRegressor",
    ),
    "evaluation": ("Evaluation", "evaluate"),
    "lab.output_perturbation_paper.theorems": ("excess_risk_bound",),
    "ledger": ("Ledger",),
    "minimisers": (
        "Game",
        "GeneralObjective",
        "LinearGame",
    ),
    "pipelines": ("check_pipeline",),
    "problems": ("Adversary",),
    "relations": (
        "Relation",
        "Sensitivity",
    ),
    "statement": ("PrivacyStatement",),
    "tables": (
        "BoundedEncoder",
        "Schema",
        "draft_schema",
    ),
}
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = ["__version__", "audit", *sorted(_HOMES)]

find_earlier_modules()


def __getattr__(name: str) -> Any:
    if name in _PUBLIC or name in EARLIER:
        return import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
