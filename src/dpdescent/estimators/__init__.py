"""Estimators in the manner of scikit-learn: validate, build a curator, call a solver, keep what it returns.

What is public is an argument and never read from the rows: bounds, classes, the privacy parameters. The number of
rows n is public under both relations. What the caller let us assume is listed in ``privacy_["assumed_public"]``.
"""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .additive import (
        DPAdditiveClassifier as DPAdditiveClassifier,
        DPAdditiveHuberRegressor as DPAdditiveHuberRegressor,
        DPAdditivePoissonRegressor as DPAdditivePoissonRegressor,
        DPAdditiveRegressor as DPAdditiveRegressor,
        Term as Term,
    )
    from .boosted import (
        DPBoostedTreesClassifier as DPBoostedTreesClassifier,
        DPBoostedTreesRegressor as DPBoostedTreesRegressor,
    )
    from .classifiers import DPLinearSVC as DPLinearSVC, DPLogisticRegression as DPLogisticRegression
    from .regressors import (
        DPHuberRegressor as DPHuberRegressor,
        DPLinearRegression as DPLinearRegression,
        DPPoissonRegressor as DPPoissonRegressor,
    )

__all__, __getattr__ = lazy_names(
    __name__,
    {
        "additive": "DPAdditiveClassifier DPAdditiveHuberRegressor DPAdditivePoissonRegressor DPAdditiveRegressor "
        "Term",
        "boosted": "DPBoostedTreesClassifier DPBoostedTreesRegressor",
        "classifiers": "DPLinearSVC DPLogisticRegression",
        "regressors": "DPHuberRegressor DPLinearRegression DPPoissonRegressor",
    },
)
