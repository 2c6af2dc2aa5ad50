"""Objective perturbation pays for every corner of the hull in which the gradients of a row lie."""

from __future__ import annotations

import math

import pytest

from dpdescent.accounting import ObjectivePerturbation, gdp_to_delta
from dpdescent.problems import Huber, HuberisedHinge, Logistic, Loss, Multinomial, Squared
from dpdescent.solvers import ObjPertSettings, objpert
from rival_tables import make_curator

DELTA = 1e-6
# A slope of one sign leads from 0 to one corner, of either sign to two; K classes have K - 1.
CORNERS = [(Logistic(), 1), (HuberisedHinge(), 1), (Huber(1.0), 2), (Squared(), 2), (Multinomial(4), 3)]


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize(("loss", "corners"), CORNERS, ids=str)
def test_the_noise_of_objective_perturbation_pays_for_every_corner(loss: Loss, corners: int, relation: str) -> None:
    """The delta of the theorem, from the noise that was charged and the corners counted here, is what was paid.

    At epsilon less the price J of the determinants a Gaussian profile is paid for each way a row's gradient can
    change: from 0 to a corner and, if the row is replaced, back, and from any corner to any other.
    """
    curator = make_curator(1.0, loss, rows=200, columns=3, delta=DELTA, relation=relation, currency="approximate")
    objpert(curator, ObjPertSettings(row_bound=1.0, strong_convexity=50.0))
    entry = curator.ledger.entries[-1]
    cost = entry.cost
    assert isinstance(cost, ObjectivePerturbation)

    def profile(shift: float) -> float:
        mu = math.hypot(shift / cost.noise_multiplier, 1 / cost.output_multiplier)
        return gdp_to_delta(mu, entry.price - cost.log_determinant)

    delta = profile(0.0) + corners * profile(1.0)
    if relation == "replace-one":
        delta = profile(0.0) + 2 * corners * profile(1.0) + corners**2 * profile(2.0)
    assert 0.99 * DELTA < delta <= DELTA
    assert cost.delta <= DELTA
