"""Minimisers of strongly convex functions, with certificates: a public bound on the distance to the true one."""

from .certified import certified_minimiser, certify, require_minimiser
from .methods import METHODS, Candidate, Task
from .objectives import GeneralObjective, Objective
from .risks import EmpiricalRisk, Risk
from .rows import RowObjective, reachable_tolerance, smooth_loss

__all__ = [
    "METHODS",
    "Candidate",
    "EmpiricalRisk",
    "GeneralObjective",
    "Objective",
    "Risk",
    "RowObjective",
    "Task",
    "certified_minimiser",
    "certify",
    "reachable_tolerance",
    "require_minimiser",
    "smooth_loss",
]
