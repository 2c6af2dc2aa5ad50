"""Settings of the descents to second-order points: each method is a choice of steps, batches and phases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from ..accounting import RDP, Currency, best_order
from ..errors import InvalidParameter
from .method import Count, Fraction, Part, Settings, Share, Within
from .rules import Facts, best_currency
from .stationary import Constants, Tolerances

_Tolerance = Annotated[float, Within(1e-100, 1e100, remedy="choose other units")]
_TYPICAL_STEPS = 500  # for which the order of a filter is chosen


@dataclass(frozen=True)
class OPTSettings(Constants, Settings, paper_mode="opt"):
    """Settings of `second_order`: the constants of the analysis, those of `Constants`, and a few more.

    Parameters
    ----------
    gradient_tolerance : float, optional
        e_g. By default the least for which the guarantee holds with the rows there are. If that is above a tenth of
        the longest gradient of a row, nearly every point would do, the start included. Then it is a fiftieth of that
        length, and a `GuaranteeWarning` says for how many rows it would be guaranteed.
    curvature_tolerance : float, optional
        e_H. By default sqrt(M e_g).
    search : bool
        Search for long steps.
    sampling_rate : float
        Share of the rows in the batch of a gradient or a Hessian; searches are on all rows.
    same_batch : bool
        Gradient and Hessian from one batch, for which both are paid at once; otherwise a Hessian draws its own and is
        paid for when it is asked.
    optimistic_share : float
        Share of the budget for a first phase of sqrt(T) steps.
    start_scale : float
        Standard deviation of a random start; 0 starts at zero.
    loss_share : float
        Share of the budget that pays for an objective where it is not known.
    failure : float
        Probability with which the guarantee may fail.
    most_steps : int, optional
        The largest number of steps of a phase, however many are planned; the noise is that of the plan. Without it a
        plan of more than two million steps is refused.
    noise : {"least", "paper"}, optional
        The least that the budget pays for by default, or the paper's, which may spend less than the budget.
    """

    gradient_tolerance: _Tolerance | None = None
    curvature_tolerance: _Tolerance | None = None
    search: bool = False
    sampling_rate: Fraction = 1.0
    same_batch: bool = False
    optimistic_share: Share = 0.0
    start_scale: Annotated[float, Within(0)] = 0.0
    loss_share: Part = 0.01
    failure: Part = 0.05
    most_steps: Count | None = None
    noise: Literal["least", "paper"] | None = None

    #: Whether a number of rows is known for which the run ends at a second-order point.
    guaranteed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        super().__post_init__()
        if not self.guaranteed_share > 0:
            raise InvalidParameter(
                f"optimistic_share {self.optimistic_share} and loss_share {self.loss_share} leave no budget for the "
                "guarantee: lower them"
            )

    def choose_currency(self, facts: Facts) -> str | Currency:
        """Return Gaussian DP where all answers are Gaussian, and otherwise RDP at one order, fixed beforehand."""
        if self.sampling_rate < 1:
            return best_currency(self.sampling_rate, _TYPICAL_STEPS, facts.epsilon, facts.delta, facts.relation)
        return RDP(best_order(facts.epsilon, facts.delta)) if self.search else "gdp"

    def planned_steps(self, tolerances: Tolerances, objective: float) -> int:
        """Return how many steps may be needed from a point of that objective."""
        return tolerances.steps(objective)

    @property
    def guaranteed_share(self) -> float:
        """The share of the budget that carries the guarantee."""
        objectives = self.loss_share * ((self.start_scale > 0) + (self.optimistic_share > 0))
        return 1 - self.optimistic_share - objectives


@dataclass(frozen=True)
class OPTLSSettings(OPTSettings, paper_mode="opt-ls"):
    """Settings of `opt-ls`: those of `OPTSettings`, with searches."""

    search: bool = True


@dataclass(frozen=True)
class OPTBSettings(OPTSettings, paper_mode="opt-b"):
    """Settings of `opt-b`: those of `OPTSettings`, with batches of a tenth of the rows."""

    sampling_rate: Fraction = 0.1


@dataclass(frozen=True)
class TwoPhaseSettings(OPTSettings, paper_mode="2opt"):
    """Settings of `2opt`: those of `OPTSettings`, with an optimistic first phase."""

    optimistic_share: Share = 0.75


@dataclass(frozen=True)
class TwoPhaseLSSettings(OPTLSSettings, paper_mode="2opt-ls"):
    """Settings of `2opt-ls`: those of `OPTLSSettings`, with an optimistic first phase."""

    optimistic_share: Share = 0.75


@dataclass(frozen=True)
class TwoPhaseBSettings(OPTBSettings, paper_mode="2opt-b"):
    """Settings of `2opt-b`: those of `OPTBSettings`, with an optimistic first phase."""

    optimistic_share: Share = 0.75
