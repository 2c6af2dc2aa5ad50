"""The earlier name of the bounds on the excess risk of output perturbation, for code that imports them from here."""

from .lab.output_perturbation_paper.theorems import ExcessRiskBound, excess_risk_bound
from .solvers import price_of_privacy, regularisation

__all__ = ["ExcessRiskBound", "excess_risk_bound", "price_of_privacy", "regularisation"]
