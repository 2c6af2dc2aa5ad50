"""Noisy SVRG: what it charges, that batches are charged for both gradients, and where it goes without noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdescent.accounting import RDP, Composed, FixedSizeSampled, Gaussian, PoissonSampled
from dpdescent.problems import Logistic
from dpdescent.solvers import Facts, SVRGSettings, svrg
from dpdescent.solvers.sgd import GradientSeries
from rival_tables import Recorder, make_curator, optimum


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("rate", [None, 1.0])
def test_every_snapshot_and_every_pair_on_a_batch_is_charged(relation: str, rate: float | None) -> None:
    settings = SVRGSettings(steps=3, epochs=2, sampling_rate=rate)
    facts = Facts(1.0, 1e-6, relation, 400, 5)
    curator = make_curator(1.0, rows=400, relation=relation, currency=settings.choose_currency(facts))
    result = svrg(curator, settings)
    costs = [entry.cost for entry in curator.ledger.entries]
    length, *rest = costs
    assert isinstance(length, Gaussian)
    kind = Composed if rate == 1 else PoissonSampled if relation == "zero-out" else FixedSizeSampled
    assert [type(cost) for cost in rest] == ([Gaussian] + [kind] * 3) * 2
    for cost in rest:
        if not isinstance(cost, Gaussian):
            first, second = cost.parts  # type: ignore[attr-defined]
            assert first == second
            assert isinstance(first, Gaussian)
    assert 0.98 * curator.ledger.budget < curator.ledger.spent <= curator.ledger.budget
    assert result.iterations == 6


def test_a_pair_has_the_noise_of_one_difference_with_twice_the_clip_norm() -> None:
    """All rows, so that nothing is amplified: 2 s^2 is the square of 2 s', s' being what the same price buys."""
    settings = SVRGSettings(steps=1, epochs=1, sampling_rate=1.0)
    curator = make_curator(1.0, rows=400)
    svrg(curator, settings)
    pair = curator.ledger.entries[-1].cost
    assert isinstance(pair, Composed)
    (noise, _) = pair.parts
    assert isinstance(noise, Gaussian)
    single = curator.gaussian(curator.currency.price(pair))
    assert math.sqrt(2) * noise.noise_multiplier == pytest.approx(2 * single.noise_multiplier, rel=1e-6)


def test_sampling_errors_cancel_near_the_snapshot() -> None:
    """Without noise, batches of 20 of 400 rows lead to the optimum; the same steps without a snapshot do not."""
    settings = SVRGSettings(steps=25, epochs=12, clip_gradient=10.0, step_size=2.0, sampling_rate=0.05)
    facts = Facts(1.0, 1e-6, "zero-out", 400, 4)
    curator = make_curator(
        1.0, Logistic(), rows=400, alpha=0.1, intercept=False, currency=settings.choose_currency(facts)
    )
    curator._noise = Recorder()
    best, value = optimum(curator)
    at_zero = value(np.zeros(4))
    assert value(svrg(curator, settings).weights) - best < 1e-4 * (at_zero - best)
    other = make_curator(1e6, Logistic(), rows=400, alpha=0.1, intercept=False, currency=RDP(2))
    other._noise = Recorder()
    gradients = GradientSeries.costing(other, 10.0, 0.05, 300, 0.5 * other.remaining)
    weights = np.zeros(4)
    for _ in range(300):
        weights = weights - 2.0 * gradients.measure(weights)
    assert value(weights) - best > 1e-3 * (at_zero - best)
