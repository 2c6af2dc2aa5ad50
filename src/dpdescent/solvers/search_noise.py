"""The noise of a private line search: its kind, its share on the threshold, and the least that a budget pays for."""

from __future__ import annotations

from ..accounting import AboveThreshold, Currency, NoiseName
from ..curator import Sampling

__all__ = ["choose_noise", "search_noise"]

_SHARPEST = 64.0  # the noise is then 1/64 of what one row can change; more budget would not improve anything


def search_noise(
    sampling: Sampling,
    amount: float,
    currency: Currency,
    max_queries: int,
    noise: NoiseName | None = None,
    threshold: float | None = None,
) -> AboveThreshold:
    """Return the least noise for a search on a batch of its own that ``amount`` pays for.

    ``threshold`` is the noise of the threshold, as a multiple of that of the queries. By default `choose_noise`
    decides.
    """
    kind, ratio = choose_noise(currency, amount, max_queries, sampling.rate, noise)
    ratio = ratio if threshold is None else threshold
    return sampling.strongest(
        lambda s: AboveThreshold(max_queries, 1 / s, ratio / s, kind), amount, currency, _SHARPEST
    )


def choose_noise(
    currency: Currency, amount: float, max_queries: int, rate: float, noise: NoiseName | None = None
) -> tuple[NoiseName, float]:
    """Return the noise of a search and that of its threshold, as a multiple: a rule of rho and the queries k.

    On batches Laplace noise with half of it on the threshold: pure DP amplifies at every order. On all rows the
    noise of a comparison is least with Gaussian noise on the queries alone while k rho <= 0.001, with 0.4 of it on
    the threshold up to 0.1, and with Laplace noise beyond; rho is what a Gaussian of that price has.
    """
    if noise == "laplace" or (noise is None and (rate < 1 or currency.name in ("pure", "approximate"))):
        return "laplace", 0.5
    spread = max_queries * currency.gaussian(amount).zcdp()
    if noise is None and spread > 0.1:
        return "laplace", 0.5
    # In zCDP the recursion needs threshold noise to be bounded at every order.
    return "gaussian", 0.0 if spread <= 1e-3 and currency.name != "zcdp" else 0.4
