"""Minimisers that err as far as they may: the noise covers an error of tau for each of two neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from asking import noisy_minimiser
from dpdescent import Ledger
from dpdescent.accounting import Gaussian
from dpdescent.curator import perturbed_minimiser
from dpdescent.minimisers import METHODS, EmpiricalRisk, GeneralObjective
from dpdescent.minimisers.candidates import Candidate
from dpdescent.problems import HuberisedHinge, Multinomial
from dpdescent.relations import Relation
from dpdescent.solvers import ObjPertSettings, objpert
from rival_tables import Recorder, curator_of, make_curator, recorded

SHARE = 0.25  # tau in units of the sensitivity of the exact minimiser
ERRING = 1 - 1e-3  # of tau, so that the certificate accepts it, rounding included


def proposing(monkeypatch: pytest.MonkeyPatch, point: np.ndarray) -> None:
    """Let the first method that is tried return ``point``, which is released only if its certificate accepts it."""

    def method(*_: Any) -> Iterator[Candidate]:
        yield Candidate(point)

    monkeypatch.setitem(METHODS, "lbfgs", method)


def assert_covered(first: Any, second: Any, exact: float, relation: str) -> None:
    """Both errors show in the distance of the released points, and the sensitivity covers it."""
    apart = float(np.linalg.norm(first.to_float() - second.to_float()))
    assert apart > exact * (1 + 1.9 * SHARE)
    assert apart <= first.sensitivity.under(Relation(relation)) <= exact * (1 + 2 * SHARE) * (1 + 1e-3)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_errors_in_opposite_directions_are_covered_for_the_worst_row(
    relation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One short row of full slope: its minimiser is the row itself, that of the neighbour 0 or minus the row."""
    length, curvature = 0.05, 1.0
    X, labels = np.zeros((10, 2)), np.ones(10)
    X[0, 0] = length
    other, turned = X.copy(), labels.copy()
    if relation == "zero-out":
        other[0] = 0.0
    else:
        turned[0] = -1.0
    exact = length / curvature * (1 if relation == "zero-out" else 2)
    centres = (length / curvature, length / curvature - exact)
    points = []
    for table, y, centre, side in zip((X, other), (labels, turned), centres, (1, -1), strict=True):
        proposing(monkeypatch, np.array([centre + side * ERRING * SHARE * exact, 0.0]))
        ledger = Ledger(10.0, 1e-6, currency="gdp", relation=relation)
        curator = curator_of(table, y, HuberisedHinge(), ledger, intercept=False)
        risk = EmpiricalRisk(HuberisedHinge(), length)
        points.append(
            recorded(
                curator,
                lambda c, risk=risk: noisy_minimiser(c, risk, curvature, Gaussian(50.0), tolerance=SHARE),
            )
        )
    assert_covered(*points, exact, relation)


def test_errors_in_opposite_directions_are_covered_for_a_general_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """F(w) = |w|^2/2 - r.w for a row r of length 1 and its opposite: the minimisers are r and -r, 2 apart."""
    points = []
    for side in (1.0, -1.0):
        row = np.array([side, 0.0])
        objective = GeneralObjective(
            lambda w, row=row: (float(w @ w / 2 - row @ w), w - row),
            2,
            strong_convexity=1.0,
            lipschitz=1.0,
            smoothness=1.0,
            errors=(1e-14, 1e-14),
        )
        proposing(monkeypatch, row * (1 + ERRING * SHARE * 2.0))
        noise = Recorder()
        ledger = Ledger(10.0, 1e-6, currency="gdp", relation="replace-one")
        perturbed_minimiser(objective, ledger, Gaussian(50.0), tolerance=SHARE, noise=noise)
        points.append(noise.sums[-1])
    assert_covered(*points, 2.0, "replace-one")


@pytest.mark.parametrize("loss", [HuberisedHinge(), Multinomial(3)], ids=str)
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_noise_on_a_perturbed_minimiser_covers_every_error_twice(relation: str, loss: Any) -> None:
    """The errors are tau, at least 2^-44 n C/mu, and what 40 lattice steps in each coordinate of b move over mu."""
    rows, bound, curvature = 500, 1.25, 40.0
    curator = make_curator(1.0, loss, rows=rows, relation=relation, currency="approximate")
    curator._noise = Recorder()
    objpert(curator, ObjPertSettings(row_bound=bound, strong_convexity=curvature))
    linear, output = curator._noise.sums[-2:]
    reach = 2.0**-44 * rows * loss.lipschitz * bound + 40 * math.sqrt(output.values.size) * linear.unit
    assert 2 * reach / curvature <= output.sensitivity.under(Relation(relation)) <= 2.2 * reach / curvature
