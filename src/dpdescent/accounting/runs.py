"""The cost of a whole run of adaptively chosen mechanisms that has a filter of its own.

A filter in one of the scalar currencies stops a run before its total exceeds a number fixed in advance. The run as a
whole is then one mechanism with the guarantee of that number, whatever it chose to ask (see `currencies`): rho-zCDP,
mu-GDP with mu^2 the total, D_a at the one order, epsilon-DP, or (epsilon, delta)-DP.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..errors import InvalidParameter, UnsupportedCost, require_nonnegative, require_order, require_positive
from .costs import Cost

__all__ = ["FilteredRun"]


@dataclass(frozen=True)
class FilteredRun(Cost):
    """A run whose own filter accepts at most ``total`` in ``currency``.

    Parameters
    ----------
    currency : {"zcdp", "gdp", "rdp", "pure", "approximate"}
        What the filter adds up.
    total : float
        The budget of the filter.
    failure : float
        The probability with which its mechanisms may fail, beyond what the currency counts.
    order : float, optional
        The Renyi order of ``currency="rdp"``.

    Notes
    -----
    **Privacy** In its own currency the run costs the total; in another it has no price.
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
        return self._total_in("rdp", order)

    def zcdp(self) -> float:
        return self._total_in("zcdp")

    def mu_squared(self) -> float:
        return self._total_in("gdp")

    def pure(self) -> float:
        return self.total if self.currency in ("pure", "approximate") else math.inf

    @property
    def delta(self) -> float:
        return self.failure

    def _total_in(self, currency: str, order: float | None = None) -> float:
        if (currency, order) != (self.currency, self.order):
            raise UnsupportedCost(f"a run that was filtered in {self.currency} has no price in {currency}")
        return self.total
