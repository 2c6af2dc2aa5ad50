"""Private training with no learning rate to tune.

A name is imported when it is first used, so that ``dpdescent --help`` need not wait for scientific libraries.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .lazy_names import lazy_names
from .old_names import EARLIER, find_earlier_modules

if TYPE_CHECKING:
    from . import audit as audit
    from .accounting import (
        AboveThreshold as AboveThreshold,
        Composed as Composed,
        ExponentialMechanism as ExponentialMechanism,
        FixedSizeSampled as FixedSizeSampled,
        Gaussian as Gaussian,
        Laplace as Laplace,
        NormLaplace as NormLaplace,
        PoissonSampled as PoissonSampled,
        PureDP as PureDP,
        ReportNoisyMax as ReportNoisyMax,
    )
    from .choosing import Selection as Selection, select as select
    from .curator import (
        Curator as Curator,
        drawn_minimiser as drawn_minimiser,
        perturbed_minimiser as perturbed_minimiser,
        perturbed_saddle_point as perturbed_saddle_point,
        phased_minimiser as phased_minimiser,
    )
    from .datasets import list_datasets as list_datasets, load_dataset as load_dataset
    from .errors import (
        BudgetExhausted as BudgetExhausted,
        DPDescentError as DPDescentError,
        InvalidParameter as InvalidParameter,
        PrivacyWarning as PrivacyWarning,
        UnsupportedLoss as UnsupportedLoss,
    )
    from .estimators import (
        DPAdditiveClassifier as DPAdditiveClassifier,
        DPAdditiveHuberRegressor as DPAdditiveHuberRegressor,
        DPAdditivePoissonRegressor as DPAdditivePoissonRegressor,
        DPAdditiveRegressor as DPAdditiveRegressor,
        DPBoostedTreesClassifier as DPBoostedTreesClassifier,
        DPBoostedTreesRegressor as DPBoostedTreesRegressor,
        DPHuberRegressor as DPHuberRegressor,
        DPLinearRegression as DPLinearRegression,
        DPLinearSVC as DPLinearSVC,
        DPLogisticRegression as DPLogisticRegression,
        DPPoissonRegressor as DPPoissonRegressor,
    )
    from .estimators.saved_models import load as load
    from .evaluation import (
        Evaluation as Evaluation,
        drift_between as drift_between,
        evaluate as evaluate,
        fit_and_evaluate as fit_and_evaluate,
    )
    from .lab.output_perturbation_paper.theorems import excess_risk_bound as excess_risk_bound
    from .ledger import Ledger as Ledger
    from .minimisers import Game as Game, GeneralObjective as GeneralObjective, LinearGame as LinearGame
    from .pipelines import check_pipeline as check_pipeline
    from .problems import Adversary as Adversary
    from .relations import Relation as Relation, Sensitivity as Sensitivity
    from .statement import PrivacyStatement as PrivacyStatement
    from .tables import BoundedEncoder as BoundedEncoder, Schema as Schema, draft_schema as draft_schema

__version__ = "0.2.0"

#: The public names of each module.
_PUBLIC = {
    "audit": "",
    "accounting": "AboveThreshold Composed ExponentialMechanism FixedSizeSampled Gaussian Laplace NormLaplace "
    "PoissonSampled PureDP ReportNoisyMax",
    "choosing": "Selection select",
    "curator": "Curator drawn_minimiser perturbed_minimiser perturbed_saddle_point phased_minimiser",
    "datasets": "list_datasets load_dataset",
    "errors": "BudgetExhausted DPDescentError InvalidParameter PrivacyWarning UnsupportedLoss",
    "estimators": "DPAdditiveClassifier DPAdditiveHuberRegressor DPAdditivePoissonRegressor DPAdditiveRegressor "
    "DPBoostedTreesClassifier DPBoostedTreesRegressor DPHuberRegressor DPLinearRegression DPLinearSVC "
    "DPLogisticRegression DPPoissonRegressor",
    "estimators.saved_models": "load",
    "evaluation": "Evaluation drift_between evaluate fit_and_evaluate",
    "lab.output_perturbation_paper.theorems": "excess_risk_bound",
    "ledger": "Ledger",
    "minimisers": "Game GeneralObjective LinearGame",
    "pipelines": "check_pipeline",
    "problems": "Adversary",
    "relations": "Relation Sensitivity",
    "statement": "PrivacyStatement",
    "tables": "BoundedEncoder Schema draft_schema",
}
_NAMES, _look_up = lazy_names(__name__, _PUBLIC)

__all__ = ["__version__", "audit", *_NAMES]

find_earlier_modules()


def __getattr__(name: str) -> Any:
    return import_module(f".{name}", __name__) if name in EARLIER else _look_up(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
