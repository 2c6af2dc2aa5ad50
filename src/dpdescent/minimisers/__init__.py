"""Minimisers of strongly convex functions, with certificates: public bounds on the distance to the minimum point."""

from .candidates import METHODS, Candidate, Task
from .certified import certified_minimiser, certify, require_minimiser, who_minimises
from .general_functions import Game, GeneralObjective, LinearGame, minimax_appa
from .risks import EmpiricalRisk, Risk
from .robust import ROUNDED_KINK, RobustObjective, RobustRisk, loss_at_zero, loss_range, robust_loss
from .row_objectives import Objective, RowObjective, reachable_tolerance, smooth_loss
from .sampler import Ball, sample_point

__all__ = [
    "METHODS",
    "ROUNDED_KINK",
    "Ball",
    "Candidate",
    "EmpiricalRisk",
    "Game",
    "GeneralObjective",
    "LinearGame",
    "Objective",
    "Risk",
    "RobustObjective",
    "RobustRisk",
    "RowObjective",
    "Task",
    "certified_minimiser",
    "certify",
    "loss_at_zero",
    "loss_range",
    "minimax_appa",
    "reachable_tolerance",
    "require_minimiser",
    "robust_loss",
    "sample_point",
    "smooth_loss",
    "who_minimises",
]
