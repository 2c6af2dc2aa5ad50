"""Whole fits: every method on a table of which one row is nearly all there is, and on tables of many canaries.

The rows of the table add nothing to a gradient, because all of their features are 0, and one row sits at a corner of
the bounds: its gradient is as long as any and always points the same way. Under zero-out it is there or not; under
replace-one it takes the place of its mirror image.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..accounting import ObjectivePerturbation, PureObjectivePerturbation
from ..curator import ArraySource, Curator, LatticeNoise
from ..errors import InvalidParameter
from ..estimators.arguments import known_method, make_settings
from ..estimators.payment import open_ledger
from ..exact import FeatureGrid
from ..ledger import Ledger
from ..noise import Randomness
from ..problems import LinearProblem, Logistic, Need
from ..relations import Relation
from ..solvers import Facts
from .bounds import Claim
from .decision import Rule
from .scores import Outcomes, plain
from .transcripts import Recording, Replaying, log_ratio

__all__ = ["Attack", "CanaryRun", "MethodRun"]

Floats = NDArray[np.float64]
#: What an attacker sees: everything that was released, or the last weights.
Attack = Literal["transcript", "model"]

_HIDDEN = (ObjectivePerturbation, PureObjectivePerturbation)  # the noise in their objective is not released
_CHUNK = 10


@dataclass(frozen=True)
class _Fit:
    """A method, its guarantee, and the public size of its table."""

    method: str
    epsilon: float
    delta: float
    relation: Relation = Relation.ZERO_OUT
    rows: int = 64
    columns: int = 2
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not known_method(self.method).private:
            raise InvalidParameter(f"method {self.method!r} claims no privacy, so there is nothing to audit")
        self._ledger()

    @property
    def fingerprint(self) -> str:
        """The settings."""
        return repr(self)

    @property
    def chunk(self) -> int:
        """How many runs are worth a task of their own."""
        return _CHUNK

    @property
    def claim(self) -> Claim:
        """What the filter of the fit promises."""
        return "gdp" if self._ledger().currency.name == "gdp" else "approximate"

    @property
    def _intercept(self) -> bool:
        """Whether there is a constant column: only for methods that are nothing without one."""
        return Need.CONSTANT in known_method(self.method).needs

    def _ledger(self) -> Ledger:
        method, settings = known_method(self.method), make_settings(self.method, self.options)
        facts = Facts(self.epsilon, self.delta, str(self.relation), self.rows, self.columns)
        return open_ledger(self.method, method, settings, self.options, facts, None)

    def _solve(self, features: Floats, labels: Floats, noise: LatticeNoise) -> tuple[Floats, Ledger]:
        """Fit a table whose public number of rows is that of the settings; return the weights and the ledger."""
        grid, ledger = FeatureGrid(1.0, self.columns), self._ledger()
        method, settings = known_method(self.method), make_settings(self.method, self.options)
        source = ArraySource(grid.place(features), labels, grid)
        problem = LinearProblem(Logistic(), grid, intercept=self._intercept)
        curator = Curator(source, problem, ledger, self.rows, noise=noise, batch_rate=settings.batch_rate)
        return method.solve(curator, settings).weights, ledger


@dataclass(frozen=True)
class MethodRun(_Fit):
    """A whole fit with and without one row.

    Parameters
    ----------
    method : str
    epsilon, delta : float
        The guarantee that the fit is run with, and claims.
    relation : Relation
    rows, columns : int
        The public size of the table.
    options : mapping
        Settings of the method.
    attack : {"transcript", "model"}
        What an attacker sees.
    """

    attack: Attack = "transcript"

    def known(self, outcomes: Outcomes) -> Rule | None:
        """Return the test that likelihood ratios come with: 0 is as likely on both tables. Weights come with none."""
        return Rule("errors", 0.0) if outcomes.shape[1] > self.columns else None

    def draw(self, neighbour: bool, seed: int | None, runs: int) -> list[list[float] | str]:
        """Return the log ratio of likelihoods and the weights of several fits, or the weights alone."""
        generator = np.random.default_rng(secrets.randbits(128) if seed is None else seed)
        return [plain(self._shown(neighbour, int(word))) for word in generator.integers(2**62, size=runs)]

    def _shown(self, neighbour: bool, seed: int) -> Floats:
        noise = Recording(seed)
        weights, ledger = self._solve(*self._table(neighbour), noise)
        if self.attack == "model" or any(isinstance(entry.cost, _HIDDEN) for entry in ledger.entries):
            return weights
        replays = [Replaying(noise), Replaying(noise)]
        for side, replay in zip((False, True), replays, strict=True):
            self._solve(*self._table(side), replay)
        return np.append(log_ratio(replays[0].released, replays[1].released), weights)

    def _table(self, neighbour: bool) -> tuple[Floats, Floats]:
        features, labels = np.zeros((self.rows, self.columns)), np.ones(self.rows)
        features[:, self.columns - self._intercept :] = 1.0
        if neighbour:
            features[0] = 1.0
        elif self.relation is Relation.ZERO_OUT:
            features, labels = features[1:], labels[1:]
        else:
            features[0, : self.columns - self._intercept], labels[0] = -1.0, 1.0 - 2.0 * self._intercept
        return features, labels


@dataclass(frozen=True)
class CanaryRun(_Fit):
    """Whole fits of tables in which each of many rows is there, or not, by the toss of a coin.

    There are as many rows as columns, each with a column of its own, and a row pushes the weight of its column up.
    The largest weights are guessed to belong to rows that are there and the smallest to rows that are not.

    Parameters
    ----------
    method, epsilon, delta, relation, options
        As for `MethodRun`.
    rows, columns : int
        The number of canaries.
    guesses : int
        How many of them are guessed in a run; an even number. Fixed beforehand, as the bound asks.
    """

    rows: int = 128
    columns: int = 128
    guesses: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._intercept:
            raise InvalidParameter(f"method {self.method!r} has no weight for a canary: use another attack")
        if self.rows != self.columns or not 0 < self.guesses <= self.rows or self.guesses % 2:
            raise InvalidParameter("canaries need a column each, and an even number of guesses that they suffice for")

    def draw(self, neighbour: bool, seed: int | None, runs: int) -> list[list[float] | str]:
        """Return the number of right guesses in each of several fits."""
        generator = np.random.default_rng(secrets.randbits(128) if seed is None else seed)
        return [[float(self._right(generator))] for _ in range(runs)]

    def _right(self, generator: np.random.Generator) -> int:
        there = generator.random(self.rows) < 0.5
        if self.relation is Relation.ZERO_OUT:
            features = np.eye(self.rows)[there]
        else:
            features = np.eye(self.rows) * np.where(there, 1.0, -1.0)[:, None]
        noise = LatticeNoise(Randomness(int(generator.integers(2**62))))
        weights, _ = self._solve(features, np.ones(len(features)), noise)
        order, half = np.argsort(weights, kind="stable"), self.guesses // 2
        return int(np.count_nonzero(there[order[-half:]]) + np.count_nonzero(~there[order[:half]]))
