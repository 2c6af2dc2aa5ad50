"""What one touch of the data costs, in every currency a filter may add up.

A `Cost` is a frozen description of one mechanism in units of its sensitivity. It is both the receipt and the
order: the ledger charges ``cost.zcdp()`` (or another currency) and the mechanism draws its noise from the very
same object, so the noise that is added cannot differ from the noise that was paid for.

Sensitivities, and with them the neighbouring relation, enter when the mechanism turns units into a scale; a
cost by itself is free of both.

Every number is an upper bound: sums and products of floats are rounded up.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

from ..errors import (
    InvalidParameter,
    LedgerFormatError,
    UnsupportedCost,
    require_nonnegative,
    require_open_unit,
    require_positive,
)
from ..relations import Relation
from .divergences import (
    CLOSED_FORM,
    above,
    bounded_range_mu,
    bounded_range_rdp,
    gaussian_rdp,
    laplace_rdp,
    pure_mu,
    pure_rdp,
    pure_zcdp,
    round_up,
)

# The exact lattice sampler of Laplace noise is never run on a coarser lattice than this scale.
SMALLEST_LAPLACE_LATTICE = 2.0**20


class Cost(ABC):
    """The privacy cost of one mechanism.

    Subclasses are frozen dataclasses of plain numbers, so that a record of them is plain data.
    """

    kind: ClassVar[str]
    _kinds: ClassVar[dict[str, type[Cost]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in cls.__dict__:
            Cost._kinds[cls.kind] = cls

    def _settle(self, **values: Any) -> None:
        """Store checked fields as the plain numbers they were checked as."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def relations(self) -> frozenset[Relation]:
        """Neighbouring relations under which the cost holds; sub-sampled mechanisms know only one."""
        return frozenset(Relation)

    @abstractmethod
    def rdp(self, order: float) -> float:
        """Return a bound on the Renyi divergence at ``order``, in both directions."""

    @abstractmethod
    def zcdp(self) -> float:
        """Return rho such that the mechanism is rho-zCDP, or raise `UnsupportedCost`."""

    @abstractmethod
    def mu_squared(self) -> float:
        """Return mu^2 such that the mechanism is mu-GDP, or raise `UnsupportedCost`."""

    def pure(self) -> float:
        """Return epsilon such that the mechanism is epsilon-DP; infinite when there is none."""
        return math.inf

    @property
    def delta(self) -> float:
        """Probability, beyond what the currencies count, with which the guarantee may fail."""
        return 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data from which `cost_from_dict` builds the same cost again."""
        data: dict[str, Any] = {"kind": self.kind}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            data[field.name] = [c.to_dict() for c in value] if isinstance(value, tuple) else value
        return data

    @classmethod
    def _from_fields(cls, data: Mapping[str, Any]) -> Self:
        built = {k: tuple(cost_from_dict(c) for c in v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**built)


def cost_from_dict(data: Mapping[str, Any]) -> Cost:
    """Build a cost from the plain data of `Cost.to_dict`."""
    if not isinstance(data, Mapping):
        raise LedgerFormatError(f"the record of a mechanism must be a mapping, got {data!r}")
    arguments = dict(data)
    kind = arguments.pop("kind", None)
    family = Cost._kinds.get(kind) if isinstance(kind, str) else None
    if family is None:
        known = ", ".join(sorted(Cost._kinds))
        raise LedgerFormatError(f"unknown mechanism {kind!r} in a ledger record: this version knows {known}")
    try:
        return family._from_fields(arguments)
    except (TypeError, InvalidParameter) as problem:
        raise LedgerFormatError(f"the record of a {kind!r} mechanism does not fit: {problem}") from None


@dataclass(frozen=True)
class Gaussian(Cost):
    """The cost of Gaussian noise with standard deviation ``noise_multiplier`` times the L2 sensitivity.

    **Privacy.** rho = 1/(2 s^2), mu = 1/s, D_a = a/(2 s^2) (Bun & Steinke 2016; Dong, Roth & Su 2022). Discrete
    noise on a lattice keeps all three when its variance is raised by four lattice units; see `dpdescent.noise`.
    """

    kind: ClassVar[str] = "gaussian"
    noise_multiplier: float

    def __post_init__(self) -> None:
        self._settle(noise_multiplier=require_positive("noise_multiplier", self.noise_multiplier))

    def rdp(self, order: float) -> float:
        return above(gaussian_rdp(self.noise_multiplier, order), CLOSED_FORM)

    def zcdp(self) -> float:
        return round_up(1 / (2 * Fraction(self.noise_multiplier) ** 2))

    def mu_squared(self) -> float:
        return round_up(1 / Fraction(self.noise_multiplier) ** 2)


@dataclass(frozen=True)
class ThresholdedGaussian(Cost):
    """The cost of noisy counts of the values that occur, of which those above a threshold are published.

    **Privacy.** The keys that are counted depend on the rows, so that a key which only one unit holds may give it
    away. The threshold is such that any of these is published with a probability of at most ``failure``
    (`dpdescent.accounting.thresholds`). The noise of these keys is independent of all other noise, and given that
    none of them is published, what is published is a function of the noisy counts of the keys that both tables have:
    a Gaussian mechanism. So the price is that of `Gaussian`, and ``failure`` is charged to the part of delta that a
    ledger keeps for failures, where failures add up (`dpdescent.accounting.currencies`).
    """

    kind: ClassVar[str] = "thresholded-gaussian"
    noise_multiplier: float
    failure: float

    def __post_init__(self) -> None:
        multiplier = require_positive("noise_multiplier", self.noise_multiplier)
        self._settle(noise_multiplier=multiplier, failure=require_open_unit("failure", self.failure))

    @property
    def gaussian(self) -> Gaussian:
        """The noise on the counts."""
        return Gaussian(self.noise_multiplier)

    def rdp(self, order: float) -> float:
        return self.gaussian.rdp(order)

    def zcdp(self) -> float:
        return self.gaussian.zcdp()

    def mu_squared(self) -> float:
        return self.gaussian.mu_squared()

    @property
    def delta(self) -> float:
        return self.failure


@dataclass(frozen=True)
class PureDP(Cost):
    """The cost of any epsilon-DP mechanism: that of randomised response, which is the worst case.

    **Privacy.** rho = epsilon tanh(epsilon/2); mu = -2 Phi^-1(1/(1 + e^epsilon)).
    """

    kind: ClassVar[str] = "pure"
    epsilon: float

    def __post_init__(self) -> None:
        self._settle(epsilon=require_positive("epsilon", self.epsilon))

    def rdp(self, order: float) -> float:
        return above(pure_rdp(self.epsilon, order), CLOSED_FORM)

    def zcdp(self) -> float:
        return above(pure_zcdp(self.epsilon), CLOSED_FORM)

    def mu_squared(self) -> float:
        return above(_square(pure_mu(self.epsilon), self), CLOSED_FORM)

    def pure(self) -> float:
        return self.epsilon


@dataclass(frozen=True)
class Laplace(PureDP):
    """The cost of Laplace noise with scale (L1 sensitivity)/epsilon on every coordinate.

    **Privacy.** epsilon-DP. The Renyi curve is that of the noise itself, on a lattice no coarser than the
    sampler's; it is the curve of a one-dimensional shift, which is also the worst way to spread the shift over
    coordinates: (a - 1) D_a is a log-sum-exp of affine functions of the shift, hence convex, and zero at zero.
    """

    kind: ClassVar[str] = "laplace"

    def rdp(self, order: float) -> float:
        curve = laplace_rdp(self.epsilon, order, SMALLEST_LAPLACE_LATTICE)
        return min(super().rdp(order), above(curve, CLOSED_FORM))


@dataclass(frozen=True)
class NormLaplace(PureDP):
    """The cost of noise with density proportional to ``exp(-|z| epsilon/Delta)``, drawn as a mixture of Gaussians.

    **Privacy.** epsilon-DP, except for an event of probability below 1e-27 far in the tail, where the finite mixture
    ends; that probability is charged as delta. The mixture was checked for epsilon up to 16.
    """

    kind: ClassVar[str] = "norm-laplace"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon > 16:
            raise InvalidParameter(
                f"norm-Laplace noise covers epsilon up to 16, got {self.epsilon}: use Gaussian noise"
            )

    @property
    def delta(self) -> float:
        return 1e-27


@dataclass(frozen=True)
class ReportNoisyMax(PureDP):
    """The cost of releasing the index of the largest score after adding noise of scale (range of the scores)/epsilon.

    **Privacy.** epsilon-DP with two-sided Laplace or one-sided exponential noise. The range is C for losses clipped
    to [0, C] under zero-out, where all scores move in one direction, and 2C otherwise. Its zCDP cost is only known
    through pure DP, and is four times that of the exponential mechanism at the same epsilon, which is the better
    choice.
    """

    kind: ClassVar[str] = "report-noisy-max"
    noise: Literal["laplace", "exponential"] = "laplace"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise not in ("laplace", "exponential"):
            raise InvalidParameter(f"noise must be 'laplace' or 'exponential', got {self.noise!r}")


@dataclass(frozen=True)
class ExponentialMechanism(Cost):
    """The cost of a selection with probability proportional to exp(-epsilon score/range).

    This is report-noisy-max with Gumbel noise.

    **Privacy.** epsilon-bounded-range, hence epsilon-DP and epsilon^2/8-zCDP (Dong, Durfee & Rogers 2020;
    Cesar & Rogers 2021); mu = -2 Phi^-1(1/(1 + e^(epsilon/2))).
    """

    kind: ClassVar[str] = "exponential-mechanism"
    epsilon: float

    def __post_init__(self) -> None:
        self._settle(epsilon=require_positive("epsilon", self.epsilon))

    def rdp(self, order: float) -> float:
        return above(bounded_range_rdp(self.epsilon, order), CLOSED_FORM)

    def zcdp(self) -> float:
        return round_up(Fraction(self.epsilon) ** 2 / 8)

    def mu_squared(self) -> float:
        return above(_square(bounded_range_mu(self.epsilon), self), CLOSED_FORM)

    def pure(self) -> float:
        return self.epsilon


@dataclass(frozen=True)
class Composed(Cost):
    """The cost of several mechanisms whose settings are fixed together: the costs add up in every currency."""

    kind: ClassVar[str] = "composed"
    parts: tuple[Cost, ...]

    def __post_init__(self) -> None:
        require_parts(self.parts)

    @property
    def relations(self) -> frozenset[Relation]:
        return common_relations(self.parts)

    def rdp(self, order: float) -> float:
        return sum_up([part.rdp(order) for part in self.parts])

    def zcdp(self) -> float:
        return sum_up([part.zcdp() for part in self.parts])

    def mu_squared(self) -> float:
        return sum_up([part.mu_squared() for part in self.parts])

    def pure(self) -> float:
        return sum_up([part.pure() for part in self.parts])

    @property
    def delta(self) -> float:
        return sum_up([part.delta for part in self.parts])


def kinds_of(cost: Cost) -> list[str]:
    """Return the kind of a cost, or of each of its parts if they were only charged together."""
    if isinstance(cost, Composed):
        return [kind for part in cost.parts for kind in kinds_of(part)]
    return [cost.kind]


def sum_up(values: Sequence[float]) -> float:
    """Return the sum of non-negative numbers, rounded up; infinite if one of them is."""
    if any(math.isinf(value) for value in values):
        return math.inf
    return round_up(sum((Fraction(require_nonnegative("cost", v)) for v in values), Fraction(0)))


def require_parts(parts: tuple[Cost, ...]) -> None:
    """Raise `InvalidParameter` unless ``parts`` is a non-empty tuple of costs."""
    if not isinstance(parts, tuple) or not parts or not all(isinstance(part, Cost) for part in parts):
        raise InvalidParameter(f"parts must be a non-empty tuple of costs, got {parts!r}")
    if not common_relations(parts):
        raise InvalidParameter(f"no neighbouring relation holds for all of the parts {parts!r}: sample them alike")


def common_relations(parts: tuple[Cost, ...]) -> frozenset[Relation]:
    """Return the relations under which every part holds."""
    return frozenset.intersection(*(part.relations for part in parts))


def _square(mu: float, cost: Cost) -> float:
    if mu > 1e150:
        raise UnsupportedCost(f"{cost} has no finite cost in GDP: add more noise or use a zCDP ledger")
    return mu * mu
