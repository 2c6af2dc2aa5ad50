"""What every touch of the data costs, and what the total amounts to as (epsilon, delta)."""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names
from .approximate import (
    AdvancedComposition as AdvancedComposition,
    ApproximateDP as ApproximateDP,
    ObjectivePerturbation as ObjectivePerturbation,
    PureObjectivePerturbation as PureObjectivePerturbation,
)
from .bellman import NoiseName as NoiseName
from .conversions import (
    best_order as best_order,
    epsilon_to_gdp as epsilon_to_gdp,
    epsilon_to_rdp as epsilon_to_rdp,
    epsilon_to_zcdp as epsilon_to_zcdp,
    gaussian_noise_multiplier as gaussian_noise_multiplier,
    gaussian_tail_constant as gaussian_tail_constant,
    gdp_to_delta as gdp_to_delta,
    gdp_to_epsilon as gdp_to_epsilon,
    loose_noise_multiplier as loose_noise_multiplier,
    loose_zcdp_budget as loose_zcdp_budget,
    rdp_to_delta as rdp_to_delta,
    rdp_to_epsilon as rdp_to_epsilon,
    zcdp_to_delta as zcdp_to_delta,
    zcdp_to_epsilon as zcdp_to_epsilon,
)
from .costs import (
    SMALLEST_LAPLACE_LATTICE as SMALLEST_LAPLACE_LATTICE,
    Composed as Composed,
    Cost as Cost,
    ExponentialMechanism as ExponentialMechanism,
    Gaussian as Gaussian,
    Laplace as Laplace,
    NormLaplace as NormLaplace,
    PureDP as PureDP,
    ReportNoisyMax as ReportNoisyMax,
    ThresholdedGaussian as ThresholdedGaussian,
    cost_from_dict as cost_from_dict,
    kinds_of as kinds_of,
)
from .currencies import (
    FAILURE_SHARE as FAILURE_SHARE,
    GDP as GDP,
    RDP as RDP,
    RUN_DRAWS as RUN_DRAWS,
    SAMPLER_SHARE as SAMPLER_SHARE,
    ZCDP as ZCDP,
    Approximate as Approximate,
    Currency as Currency,
    Pure as Pure,
    calibrate as calibrate,
    currency_from_dict as currency_from_dict,
    currency_named as currency_named,
    require_supported_delta as require_supported_delta,
    sampler_delta as sampler_delta,
    smallest_delta as smallest_delta,
    strongest as strongest,
)
from .divergences import round_up as round_up
from .printed_prices import PRINTED_ORDERS as PRINTED_ORDERS, PrintedPrice as PrintedPrice
from .sampling import (
    ALLOWANCE as ALLOWANCE,
    FixedSizeSampled as FixedSizeSampled,
    PoissonSampled as PoissonSampled,
    ShuffledDescent as ShuffledDescent,
)
from .searches import AboveThreshold as AboveThreshold, RandomStopping as RandomStopping
from .thresholds import Threshold as Threshold
from .whole_runs import (
    FilteredRun as FilteredRun,
    FixedSchedule as FixedSchedule,
    strongest_schedule as strongest_schedule,
    to_dp_event as to_dp_event,
)

if TYPE_CHECKING:
    from .tradeoff import TradeOff as TradeOff

_, __getattr__ = lazy_names(__name__, {"tradeoff": "TradeOff"})
