"""Costs as events of the ``dp_accounting`` library, for a second opinion on a run."""

from __future__ import annotations

from typing import Any

from ..errors import LedgerError
from .costs import Composed, Cost, Gaussian, Laplace
from .runs import FilteredRun
from .sampling import PoissonSampled
from .schedules import FixedSchedule

__all__ = ["to_dp_event"]

_NEVER = 1e-26  # smaller values of delta are left out of events


def to_dp_event(cost: Cost) -> Any:
    """Return a ``dp_accounting.DpEvent`` whose accounting is never below that of the mechanism.

    Gaussian, Laplace and Poisson-sampled Gaussian mechanisms have events of their own. The exponential mechanism,
    AboveThreshold and pure mechanisms do not: they are exported as zCDP events of what was charged. A sub-sampled
    mixture of kinds is exported unamplified, and so is a random shift, as its largest. Mechanisms that are
    (epsilon, delta)-DP and no better have no event of a divergence, and a run that was reserved and not settled has
    none at all: they are exported as unsupported, so that no accountant ignores them. The events hold for the
    relation for which the noise multiplier was computed, so give the accountant the relation of the ledger.
    """
    try:
        import dp_accounting
    except ImportError:
        raise LedgerError(
            "dp_accounting is not installed: pip install 'dpdescent[accounting]' to export events"
        ) from None
    if isinstance(cost, Gaussian):
        return dp_accounting.GaussianDpEvent(cost.noise_multiplier)
    if isinstance(cost, Laplace):
        return dp_accounting.LaplaceDpEvent(1 / cost.epsilon)
    if isinstance(cost, Composed):
        return dp_accounting.ComposedDpEvent([to_dp_event(part) for part in cost.parts])
    if isinstance(cost, FixedSchedule):
        return dp_accounting.SelfComposedDpEvent(to_dp_event(cost.step), cost.steps)
    if isinstance(cost, PoissonSampled) and all(isinstance(part, Gaussian) for part in cost.parts):
        return dp_accounting.PoissonSampledDpEvent(cost.rate, to_dp_event(_one_gaussian(cost.parts)))
    if cost.delta > _NEVER or isinstance(cost, FilteredRun):
        return dp_accounting.UnsupportedDpEvent()
    return dp_accounting.ZCDpEvent(cost.zcdp())


def _one_gaussian(parts: tuple[Cost, ...]) -> Gaussian:
    """Return the one Gaussian that several on the same batch amount to: 1/s^2 = sum 1/s_i^2."""
    return Gaussian(sum(part.mu_squared() for part in parts) ** -0.5)
