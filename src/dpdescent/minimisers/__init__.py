"""Minimisers of strongly convex functions, with certificates: public bounds on the distance to the minimum point."""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names
from .candidates import METHODS as METHODS, Candidate as Candidate, Task as Task
from .certified import (
    certified_minimiser as certified_minimiser,
    certify as certify,
    require_minimiser as require_minimiser,
    who_minimises as who_minimises,
)
from .risks import EmpiricalRisk as EmpiricalRisk, Risk as Risk
from .robust import (
    ROUNDED_KINK as ROUNDED_KINK,
    RobustObjective as RobustObjective,
    RobustRisk as RobustRisk,
    loss_at_zero as loss_at_zero,
    loss_range as loss_range,
    robust_loss as robust_loss,
)
from .row_objectives import (
    Objective as Objective,
    RowObjective as RowObjective,
    reachable_tolerance as reachable_tolerance,
    smooth_loss as smooth_loss,
)
from .sampler import Ball as Ball, sample_point as sample_point

if TYPE_CHECKING:
    from .general_functions import (
        Game as Game,
        GeneralObjective as GeneralObjective,
        LinearGame as LinearGame,
        minimax_appa as minimax_appa,
    )

_, __getattr__ = lazy_names(__name__, {"general_functions": "Game GeneralObjective LinearGame minimax_appa"})
