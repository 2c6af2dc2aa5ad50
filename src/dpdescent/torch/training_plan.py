"""How a training is paid for: rules of public numbers, and everything that is refused before the charge."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..accounting import AboveThreshold, Cost, Currency, FixedSchedule, Gaussian, currency_named, strongest_schedule
from ..accounting.banded import Bands, bands_for
from ..curator import Sampling
from ..errors import InvalidParameter, require_open_unit, require_positive, require_positive_integer
from ..exact import ceil_log2
from ..ledger import ONE_ROW, Ledger
from ..queries import Noised
from ..relations import Relation, Sensitivity

ROUNDING = 2.0**-9  # of the sensitivity, for the rounding of sums (the lemma of `dpdescent.torch.layers`)
SHORTEST = 0.01  # divided by less, gradients that are all rounding error would count as much as others
_SHARE_SEARCH = 0.1
_NOISE_BITS, _LOSS_BITS = 22, 34
_MOST_QUERIES = 1000
_EPOCHS = 3.0
_LARGEST_CLIP = 2.0**20
_LARGEST_EPSILON = 1000.0
_MOST_BANDS = 512
_HELD_NOISE = 2**25  # numbers of earlier noise that are kept: 256 MB
_EXACT = 2.0**53  # whole numbers below it are exact in floating point
_FARTHEST = 21.0  # deviations: no draw of noise lies beyond
_QUICK_DELTA = 9e-9  # at which schedules are priced by Renyi divergences, and quickly


@dataclass(frozen=True)
class Clipping:
    """What is made of a row's gradient, and of its loss in a search."""

    #: C, to which gradients are clipped; None divides each by its own length, or by a shortest one.
    norm: float | None
    loss: float = 3.0  # to which losses are clipped

    def __post_init__(self) -> None:
        for name, value in (("norm", self.norm), ("loss", self.loss)):
            if value is None:
                continue
            # Far beyond these, float32 would lose rows that are clipped, or the noise.
            if not 1 / _LARGEST_CLIP <= require_positive(f"clip_{name}", value) <= _LARGEST_CLIP:
                raise InvalidParameter(
                    f"clip_{name} must lie between 2^-20 and 2^20, got {value}: choose other units"
                )
            object.__setattr__(self, name, float(value))

    @property
    def bound(self) -> float:
        """The longest that a row's gradient can be after clipping."""
        return 1.0 if self.norm is None else self.norm

    def weights(self, norms: Tensor, shortest: float = SHORTEST) -> Tensor:
        """Return the factor of every row's gradient, given their lengths; without a norm at most 1/SHORTEST."""
        if self.norm is None:
            return 1 / norms.clamp_min(max(shortest, SHORTEST))
        return (self.norm / norms.clamp_min(1e-30)).clamp_max(1.0)


@dataclass(frozen=True)
class Plan:
    """All that is fixed before the first step, from public numbers alone; ``parameters`` is how many are trained.

    ``sampling`` says how many rows a batch has on average. With ``bands`` they come from one of so many groups.
    """

    epsilon: float
    delta: float
    currency: Currency
    sampling: Sampling
    clipping: Clipping
    parameters: int
    steps: int
    bands: Bands
    schedule: FixedSchedule
    gradient: Gaussian
    search: AboveThreshold | None

    @property
    def group_sampling(self) -> Sampling:
        """How a batch is drawn from its group, or from all rows: as it is charged."""
        return sampling_of_groups(self.sampling, self.bands.count)

    @property
    def relation(self) -> Relation:
        """What one row may change."""
        return self.sampling.relation

    @property
    def most_rows(self) -> int:
        """How many rows a batch has at most; Poisson batches may be longer once in a million runs, and are cut."""
        size, rate = self.sampling.size, self.sampling.rate
        if self.sampling.fixed_size:
            return round(size)
        return min(self.sampling.rows, math.ceil(size + 10 * math.sqrt(size * (1 - rate)) + 10))

    @property
    def noise_multiplier(self) -> float:
        """The noise of a gradient, as a multiple of its sensitivity."""
        return self.gradient.noise_multiplier

    @property
    def relative_spread(self) -> float:
        """The noise of partial sums of gradients, relative to that of independent draws of the same deviation."""
        return self.bands.spread(self.steps) / Bands().spread(self.steps)

    @property
    def loss_unit(self) -> float:
        """The lattice of sums of losses."""
        return _lattice_unit(self.clipping.loss, _LOSS_BITS)

    def open_ledger(self) -> Ledger:
        """Return the ledger of this training alone."""
        return Ledger(self.epsilon, self.delta, currency=self.currency, relation=str(self.relation))

    @property
    def sensitivity(self) -> Sensitivity:
        """What one row can change of the sums of gradients that a batch of it is in, on the lattice: of a window.

        Rounding to the lattice moves each coordinate by half of its unit at most, in both of two tables, and so the
        difference of the sums by sqrt(d) units at most for d parameters: a 2,000th for a million of them. What a row
        adds to one sum is in as many outputs as there are bands (`dpdescent.accounting.banded`).
        """
        carried = math.sqrt((self.bands.count - 1) * self.parameters) * self.unit
        return Sensitivity.of_clipped_sum(self.bands.length * self._change + carried)

    @property
    def _change(self) -> float:
        """What one row can change of one sum of gradients."""
        return self.clipping.bound * (1 + ROUNDING) + math.sqrt(self.parameters) * self.unit

    @property
    def unit(self) -> float:
        """The lattice of sums of gradients: at most 2^-21 of their noise, and 2^-19 of what one row can change."""
        clipped = Sensitivity.of_clipped_sum(self.clipping.bound * (1 + ROUNDING))
        return _lattice_unit(min(self.noise_multiplier, 4.0) * clipped.under(self.relation), _NOISE_BITS)

    @property
    def gradients(self) -> Noised:
        """How a sum of gradients is released."""
        return Noised(self.gradient, self.unit, self.sensitivity)

    @property
    def alone(self) -> Noised:
        """How a sum is released whose noise is correlated with no other, instead of a gradient."""
        return Noised(self.gradient, self.unit, Sensitivity.of_clipped_sum(self._change))

    @property
    def searches(self) -> Noised | None:
        """How the queries of a search are released, if there are searches."""
        if self.search is None:
            return None
        return Noised(self.search, self.loss_unit, Sensitivity.of_signed_sum(self.clipping.loss + self.loss_unit))

    @property
    def released(self) -> tuple[Noised, ...]:
        """All that a step releases."""
        return (self.gradients,) if self.searches is None else (self.gradients, self.searches)


def _lattice_unit(bound: float, bits: int) -> float:
    """Return the power of two that is 2^-bits of a bound, or less than twice that."""
    return math.ldexp(1.0, ceil_log2(bound) - bits)


def batch_size_for(rows: int, epochs: float | None) -> int:
    """Return the expected number of rows in a batch, sqrt(2 n epochs): 1% of 60,000 rows for 3 epochs.

    What more epochs can read is then shared evenly between longer batches and more steps.
    """
    wanted = 2 * rows * (_EPOCHS if epochs is None else require_positive("epochs", epochs))
    return rows if wanted >= rows**2 else max(1, math.ceil(math.sqrt(wanted)))


def sampling_of_groups(sampling: Sampling, bands: int) -> Sampling:
    """Return how batches of the same expected size are drawn from one of ``bands`` groups of the rows."""
    return sampling if bands == 1 else Sampling(sampling.relation, sampling.rows, min(1.0, sampling.rate * bands))


def plan_training(
    *,
    rows: int,
    epsilon: float,
    delta: float,
    steps: int | None,
    epochs: float | None,
    batch_size: int | None,
    clipping: Clipping,
    parameters: int,
    search_steps: int,
    search_noise: str,
    adjacency: str,
    account: Ledger | None,
    bands: int | None = 1,
) -> Plan:
    """Return the plan with the least noise that (epsilon, delta) pays for, or raise what is wrong.

    ``bands`` is the number of bands of correlated noise; None is the one with the least noise of partial sums.

    Notes
    -----
    **Privacy** Without an account, or with one that adds up (epsilon, delta), a schedule is priced as one mechanism.
    With an account in another currency its steps add up in that one: amplification by batches is then worth
    something in ``rdp`` alone.
    """
    require_positive("epsilon", epsilon)
    require_open_unit("delta", delta)
    relation = Relation.parse(adjacency)
    size = batch_size_for(rows, epochs) if batch_size is None else require_positive_integer("batch_size", batch_size)
    if size > rows:
        raise InvalidParameter(f"batch_size is {size} and there are {rows} rows: take at most so many")
    planned = _step_count(steps, epochs, rows / size)
    if account is not None and account.relation is not relation:
        raise InvalidParameter(
            f"the ledger keeps the relation {account.relation} and this training {relation}: pass "
            f"adjacency={str(account.relation)!r}, or open the ledger with {relation}"
        )
    if account is not None and account.unit != ONE_ROW:
        raise InvalidParameter(
            f"the ledger protects {account.unit}, and a training protects {ONE_ROW}: open another ledger for it"
        )
    sampling = Sampling(relation, rows, size / rows)
    currency = currency_named("approximate" if account is None else account.currency, epsilon, delta)
    # A ledger of epsilons reserves all of delta, but for the samplers' share.
    failure = delta * (1 - 2.0**-29) if currency.name == "approximate" else 0.0
    amount = Ledger(epsilon, delta, currency=currency, relation=str(relation)).budget
    queries = _require_queries(search_steps, search_noise)

    def plan_of(count: int, failure: float) -> Plan:
        """Return the plan with that many bands, where a row may be in a batch once in so many steps."""
        grouped = sampling_of_groups(sampling, count)

        def parts(strength: float) -> tuple[Cost, ...]:
            return tuple(grouped.cost(each) for each in _mechanisms(strength, queries, search_noise))

        schedule = strongest_schedule(parts, math.ceil(planned / count), failure, amount, currency)
        facts = clipping, parameters, planned, bands_for(count, planned), schedule
        return Plan(epsilon, delta, currency, sampling, *facts, *_mechanisms_of(schedule))

    if bands is None and (queries or _most_bands(sampling, planned) == 1):
        bands = 1
    if bands is None:
        quick = min(failure, _QUICK_DELTA)
        bands = _least_noisy(lambda count: plan_of(count, quick), sampling, planned)
    _require_bands(bands, sampling, planned, queries)
    plan = plan_of(bands, failure)
    if bands > 1 and not _fits(plan):
        raise InvalidParameter(f"{bands} bands of noise for {parameters} parameters take too much memory: take fewer")
    return plan


def _require_bands(bands: int, sampling: Sampling, steps: int, queries: int) -> None:
    """Raise `InvalidParameter` unless there can be that many groups, whose batches have the right size."""
    count = require_positive_integer("bands", bands)
    if count == 1:
        return
    if sampling.relation is not Relation.ZERO_OUT:
        raise InvalidParameter(f"bands={count} needs adjacency='zero-out': under {sampling.relation} take bands=1")
    if queries:
        raise InvalidParameter(f"bands={count} cannot be combined with searches for step sizes: take bands=1")
    most = _most_bands(sampling, steps)
    if count > most:
        raise InvalidParameter(
            f"bands must be at most {most}, got {count}: there are {steps} steps, and the rows of a batch must be in "
            "one of so many groups; take fewer bands, smaller batches or more steps"
        )


def _most_bands(sampling: Sampling, steps: int) -> int:
    if sampling.relation is not Relation.ZERO_OUT:
        return 1
    return min(_MOST_BANDS, steps, math.floor(1 / sampling.rate * (1 + 2.0**-40)))


def _fits(plan: Plan) -> bool:
    """Return whether earlier noise can be kept, and added up exactly (`dpdescent.torch.correlated_noise`)."""
    held = (plan.bands.count - 1) * plan.parameters
    shift = plan.sensitivity.under(plan.relation) / plan.unit
    response = float(abs(plan.bands.response(plan.steps)).sum())
    largest = (_FARTHEST * (plan.noise_multiplier * shift + 20) + shift) * response
    return held <= _HELD_NOISE and sum(plan.bands.numerators) * largest < _EXACT


def _least_noisy(plan_of: Callable[[int], Plan], sampling: Sampling, steps: int) -> int:
    """Return the power of two for which partial sums of gradients have the least noise with so many bands.

    The noise of schedules is compared by Renyi divergences, which is quick and ranks them alike.
    """
    best, least, count = 1, math.inf, 1
    while count <= _most_bands(sampling, steps):
        plan = plan_of(count)
        noise = plan.noise_multiplier * plan.sensitivity.under(plan.relation) * plan.bands.spread(steps)
        if noise >= least or (count > 1 and not _fits(plan)):
            break
        best, least, count = count, noise, 2 * count
    return best


def epsilon_of_noise(
    noise_multiplier: float,
    *,
    rows: int,
    delta: float,
    steps: int | None,
    epochs: float | None,
    batch_size: int | None,
    adjacency: str,
) -> float:
    """Return the epsilon of steps whose gradients have independent noise of this multiplier.

    Notes
    -----
    **Privacy** The price of the very schedule that `plan_training` looks for, so that the noise it finds for this
    epsilon is the same to within 0.1%, which the statement shows.
    """
    if noise_multiplier == 0:
        raise InvalidParameter("noise_multiplier must be greater than 0: a run without noise is epsilon=inf")
    multiplier = require_positive("noise_multiplier", noise_multiplier)
    require_open_unit("delta", delta)
    size = batch_size_for(rows, epochs) if batch_size is None else require_positive_integer("batch_size", batch_size)
    sampling = Sampling(Relation.parse(adjacency), rows, min(1.0, size / rows))
    planned = _step_count(steps, epochs, rows / size)
    schedule = FixedSchedule((sampling.cost(Gaussian(multiplier)),), planned, delta * (1 - 2.0**-29))
    price = float(currency_named("approximate", 1.0, delta).price(schedule))
    if not price < _LARGEST_EPSILON:
        raise InvalidParameter(
            f"noise_multiplier={multiplier:g} guarantees nothing worth the name: take more noise, or epsilon=inf for "
            "a run without any that is marked as not private"
        )
    return price * (1 + 2.0**-40)


def _step_count(steps: int | None, epochs: float | None, steps_per_epoch: float) -> int:
    if steps is not None and epochs is not None:
        raise InvalidParameter("give steps or epochs, not both")
    if steps is not None:
        return require_positive_integer("steps", steps)
    wanted = _EPOCHS if epochs is None else require_positive("epochs", epochs)
    return max(1, math.ceil(wanted * steps_per_epoch))


def _require_queries(search_steps: int, noise: str) -> int:
    if noise not in ("laplace", "gaussian"):
        raise InvalidParameter(f"search_noise must be 'laplace' or 'gaussian', got {noise!r}")
    if search_steps == 0:
        return 0
    queries = require_positive_integer("search_steps", search_steps)
    if queries > _MOST_QUERIES:
        raise InvalidParameter(f"search_steps must be at most {_MOST_QUERIES}, got {queries}")
    return queries


def _mechanisms(strength: float, queries: int, search_noise: str) -> tuple[Gaussian | AboveThreshold, ...]:
    """Return what a step asks at a strength: a gradient, and a search if it may ask queries."""
    if not queries:
        return (Gaussian(1 / strength),)
    return Gaussian(1 / (math.sqrt(1 - _SHARE_SEARCH) * strength)), _make_search(queries, search_noise, strength)


def _make_search(queries: int, noise: Any, strength: float) -> AboveThreshold:
    """Return a search with a tenth of what a step may spend: a tenth of strength^2/2 in zCDP.

    Laplace noise with half of it on the threshold is e-DP, which is charged as e^2/2 on batches. Gaussian noise with
    0.4 of it on the threshold has about 2/s^2 (1 + log(k)/4) for queries of deviation s.
    """
    if noise == "laplace":
        pure = math.sqrt(_SHARE_SEARCH) * strength
        query, threshold = 4 / pure, 2 / pure
    else:
        query = 2 * math.sqrt((1 + math.log(queries) / 4) / _SHARE_SEARCH) / strength
        threshold = 0.4 * query
    query, threshold = (min(max(each, 2.0**-9), 2.0**39) for each in (query, threshold))
    return AboveThreshold(queries, query, threshold, noise)


def _mechanisms_of(schedule: FixedSchedule) -> tuple[Gaussian, AboveThreshold | None]:
    """Return the mechanisms of a step out of the very schedule that is charged."""
    found: list[Cost] = []
    for part in schedule.parts:
        found += getattr(part, "parts", (part,))
    gradient = next(each for each in found if isinstance(each, Gaussian))
    return gradient, next((each for each in found if isinstance(each, AboveThreshold)), None)
