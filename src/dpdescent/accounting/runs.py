"""The cost of a whole run of adaptively chosen mechanisms that keeps behind a filter of its own.

A filter in one of the scalar currencies stops a run before its total exceeds a number fixed in advance. The run as a
whole is then one mechanism with the guarantee of that number, whatever it chose to ask (see `currencies`): rho-zCDP,
mu-GDP with mu^2 the total, D_a at the one order, epsilon-DP, or (epsilon, delta)-DP.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from ..errors import InvalidParameter, UnsupportedCost, require_nonnegative, require_order, require_positive
from .costs import Cost, PureDP
from .rounding import CLOSED_FORM, above, round_up

__all__ = ["FilteredRun"]


@dataclass(frozen=True)
class FilteredRun(Cost):
    """A run behind a filter that lets through at most ``total`` in ``currency``.

    Parameters
    ----------
    currency : {"zcdp", "gdp", "rdp", "pure", "approximate"}
        What the filter adds up.
    total : float
        The budget of the filter.
    failure : float
        What the mechanisms of the run may fail with beyond what the currency counts.
    order : float, optional
        The Renyi order of ``currency="rdp"``.

    Notes
    -----
    **Privacy** In its own currency the run costs the total. A mu-GDP run is mu^2/2-zCDP, as a Gaussian mechanism is;
    a pure one costs what `PureDP` costs. There is no other conversion.
    """

    kind: ClassVar[str] = "filtered-run"
    currency: str
    total: float
    failure: float = 0.0
    order: float | None = None

    def __post_init__(self) -> None:
        if self.currency not in ("zcdp", "gdp", "rdp", "pure", "approximate"):
            raise InvalidParameter(f"a run is filtered in a currency, and {self.currency!r} is none")
        if (self.currency == "rdp") != (self.order is not None):
            raise InvalidParameter(f"a run filtered in {self.currency} cannot have the order {self.order}")
        failure = require_nonnegative("failure", self.failure)
        if failure >= 1:
            raise InvalidParameter(f"failure must be below 1, got {failure}")
        self._settle(
            total=require_positive("total", self.total),
            failure=failure,
            order=None if self.order is None else require_order(self.order),
        )

    def rdp(self, order: float) -> float:
        if self.currency == "rdp":
            return self.total if order == self.order else self._unknown(f"rdp at order {order:g}")
        if self.currency in ("zcdp", "gdp"):
            return above(order * self.zcdp(), CLOSED_FORM)
        return PureDP(self.total).rdp(order)

    def zcdp(self) -> float:
        if self.currency == "zcdp":
            return self.total
        if self.currency == "gdp":
            return round_up(Fraction(self.total) / 2)
        return self._unknown("zcdp") if self.currency == "rdp" else PureDP(self.total).zcdp()

    def mu_squared(self) -> float:
        if self.currency == "gdp":
            return self.total
        return self._unknown("gdp") if self.currency in ("zcdp", "rdp") else PureDP(self.total).mu_squared()

    def pure(self) -> float:
        return self.total if self.currency in ("pure", "approximate") else math.inf

    @property
    def delta(self) -> float:
        return self.failure

    def _unknown(self, wanted: str) -> float:
        raise UnsupportedCost(f"a run that was filtered in {self.currency} has no price in {wanted}")
