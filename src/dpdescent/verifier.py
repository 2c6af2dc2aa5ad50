r"""An independent check of privacy statements: ``python verifier.py PATH``.

This file imports nothing of the library that it checks. It needs Python and dp-accounting, the accountants of Google,
and can be copied to a machine that has no more. It reads a model, a statement or a release folder, and computes anew

1. the digests: of a file of ours, and of every file of a release folder;
2. what each listed mechanism costs, from closed forms and by dp-accounting where it knows the mechanism, and from
   bounds of the literature where it does not: for sparse vectors Lyu, Su & Li (2017), for selections Dong, Durfee &
   Rogers (2020);
3. whether the costs fit the stated budget, parts of rows that share no row side by side;
4. the epsilon of that budget, and of what was spent of it, by dp-accounting: a privacy loss distribution, or Renyi
   divergences; and the shares and numbers of answers that are stated beside the mechanisms;
5. where dp-accounting has a privacy loss distribution of every mechanism, that of all of them together.

A bound of the literature may be above the price that a statement has for the same mechanism. If the budget is then
exceeded, the statement is not refuted but cannot be confirmed, and that is what the answer says.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

#: What the process returns.
CONFIRMED, REFUSED, FOREIGN, NOT_PRIVATE, UNCONFIRMED = 0, 1, 3, 4, 5
MANIFEST = "MANIFEST.sha256"
MODEL, STATEMENT, VERSION = "dpdescent-model", "dpdescent-privacy-statement", 1
_ROUNDING = 1e-6  # relative: sums in floating point, and the grids of dp-accounting
_FEW = 2.0**-20  # share of delta for failures where a statement names none
_SLACK = 1 + 2.0**-12  # rounding of sums in a descent over permuted rows
#: Mechanisms whose privacy loss distribution is that of a bound.
_BOUNDED = {"exponential-mechanism", "above-threshold", "shuffled-descent", "printed-price"}
_DRAWS = 2**40  # of noise, in one run at most
_APART, _KEPT = 2.0**-240, 2.0**-30  # total variation of a draw that is proved, and the share of delta kept for all
_PLD_LARGEST = 200.0  # epsilon from which distributions take too many points


class NotOursError(Exception):
    """A file is neither a model nor a statement of this library."""


class RefusedError(Exception):
    """A file was changed, is damaged, or says what cannot be true."""


class UnknownMechanismError(Exception):
    """There is no independent price of a mechanism."""


@dataclass(frozen=True)
class Price:
    """A cost, and whether it is exact: no bound that may be above a better one."""

    amount: float
    exact: bool = True

    def __post_init__(self) -> None:
        if not self.amount >= 0:
            raise ValueError("a price is not negative")

    def __add__(self, other: Price) -> Price:
        return Price(self.amount + other.amount, self.exact and other.exact)

    def times(self, count: int) -> Price:
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ValueError("a count is a whole number of at least 1")
        return Price(count * self.amount, self.exact)


@dataclass(frozen=True)
class Verdict:
    """What a check has found: an exit code, and sentences."""

    code: int
    lines: tuple[str, ...]
    figures: Mapping[str, Any] = field(default_factory=dict)


# Files ------------------------------------------------------------------------------------------------------


def read_file(path: Path) -> dict[str, Any]:
    """Return the content of a model or statement whose digest fits."""
    try:
        data = json.loads(path.read_bytes().decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise NotOursError(f"{path} is no JSON file of dpdescent") from None
    if not isinstance(data, dict) or data.get("format") not in (MODEL, STATEMENT):
        raise NotOursError(f"{path} is neither a model nor a privacy statement of dpdescent")
    given = data.pop("digest", None)
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    if given != f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}":
        raise RefusedError(f"{path} was changed after it was written: its digest does not fit")
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def statement_in(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the privacy statement in a file."""
    found = data["privacy"] if data["format"] == MODEL else data
    if not isinstance(found, dict) or found.get("format") != STATEMENT:
        raise RefusedError("the model has no privacy statement")
    return found


def check_manifest(folder: Path) -> list[str]:
    """Compare every file of a release folder with its manifest; return the names, or raise `RefusedError`."""
    try:
        lines = (folder / MANIFEST).read_text(encoding="utf-8").splitlines()
    except OSError:
        raise NotOursError(f"{folder} has no {MANIFEST}: it is no release of dpdescent") from None
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines) if name}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() or path.is_symlink()}
    for name in sorted(there - {*listed, MANIFEST}):
        raise RefusedError(f"{name} is in the folder and not in its manifest")
    for name, digest in listed.items():
        if name not in there:
            raise RefusedError(f"{name} is in the manifest and not in the folder")
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise RefusedError(f"{name} was changed after the release was written")
    return sorted(listed)


# Prices -----------------------------------------------------------------------------------------------------


def _parts(data: Mapping[str, Any], price: Callable[[Mapping[str, Any]], Price]) -> Price:
    if not 0 < data.get("rate", 1) <= 1 or not data["parts"]:
        raise ValueError("a batch has a rate of at most 1, and parts")
    return sum((price(each) for each in data["parts"]), Price(0.0))


def pure_of(data: Mapping[str, Any]) -> Price:
    """Return an epsilon such that a mechanism is epsilon-DP; infinite if none is known."""
    kind = data["kind"]
    if kind in ("pure", "laplace", "norm-laplace", "report-noisy-max", "exponential-mechanism"):
        return Price(float(data["epsilon"]))
    if kind == "above-threshold" and data["noise"] == "laplace":
        queries, scale, threshold = data["max_queries"], data["query_scale"], data["threshold_scale"]
        released = queries / scale
        return Price(released if threshold == 0 else min(released, 1 / threshold + 2 / scale))
    if kind in ("composed", "printed-price"):
        return _parts(data, pure_of)
    if kind in ("poisson-sampled", "fixed-size-sampled"):
        whole = _parts(data, pure_of)
        if whole.amount > 700:
            return whole
        return Price(math.log1p(data["rate"] * math.expm1(whole.amount)), whole.exact)
    if kind == "fixed-schedule" and not data["failure"]:
        return _parts(data, pure_of).times(data["steps"])
    if kind == "filtered-run" and data["currency"] in ("pure", "approximate"):
        return Price(float(data["total"]))
    return Price(math.inf)


def mu_squared_of(data: Mapping[str, Any]) -> Price:
    """Return mu^2 such that a mechanism is mu-GDP."""
    kind = data["kind"]
    if kind in ("gaussian", "thresholded-gaussian"):
        return Price(data["noise_multiplier"] ** -2)
    if kind == "shuffled-descent":
        return Price((_SLACK / data["noise_multiplier"]) ** 2)
    if kind == "exponential-mechanism":
        return Price(_mu_of_pure(data["epsilon"] / 2) ** 2)
    if kind == "above-threshold" and data["noise"] == "gaussian":
        return Price(data["max_queries"] / data["query_scale"] ** 2)
    if kind in ("composed", "printed-price"):
        return _parts(data, mu_squared_of)
    if kind in ("poisson-sampled", "fixed-size-sampled"):
        whole, pure = _parts(data, mu_squared_of), pure_of(data).amount
        return Price(min(whole.amount, _mu_of_pure(pure) ** 2 if pure <= 700 else math.inf), whole.exact)
    if kind == "fixed-schedule" and not data["failure"]:
        return _parts(data, mu_squared_of).times(data["steps"])
    if kind == "filtered-run" and data["currency"] == "gdp":
        return Price(float(data["total"]))
    known = pure_of(data)
    if math.isinf(known.amount):
        raise UnknownMechanismError(kind)
    return Price(_mu_of_pure(known.amount) ** 2, known.exact)


def _mu_of_pure(epsilon: float) -> float:
    """Return mu of randomised response: -2 Phi^-1(1/(1 + e^epsilon))."""
    from scipy.special import ndtri_exp

    return -2.0 * float(ndtri_exp(-math.log1p(math.exp(min(epsilon, 700.0)))))


def rho_of(data: Mapping[str, Any]) -> Price:
    """Return rho such that a mechanism is rho-zCDP."""
    kind = data["kind"]
    if kind in ("gaussian", "thresholded-gaussian"):
        return Price(data["noise_multiplier"] ** -2 / 2)
    if kind == "shuffled-descent":
        return Price((_SLACK / data["noise_multiplier"]) ** 2 / 2)
    if kind == "exponential-mechanism":
        return Price(data["epsilon"] ** 2 / 8)
    if kind == "above-threshold" and data["noise"] == "gaussian":
        return Price(data["max_queries"] / data["query_scale"] ** 2 / 2, exact=False)
    if kind in ("composed", "printed-price"):
        return _parts(data, rho_of)
    if kind in ("poisson-sampled", "fixed-size-sampled"):
        whole, pure = _parts(data, rho_of), pure_of(data).amount
        return Price(min(whole.amount, _rho_of_pure(pure)), whole.exact)
    if kind == "fixed-schedule" and not data["failure"]:
        return _parts(data, rho_of).times(data["steps"])
    if kind == "filtered-run" and data["currency"] == "zcdp":
        return Price(float(data["total"]))
    known = pure_of(data)
    if math.isinf(known.amount):
        raise UnknownMechanismError(kind)
    return Price(_rho_of_pure(known.amount), known.exact and kind != "above-threshold")


def _rho_of_pure(epsilon: float) -> float:
    return epsilon * math.tanh(epsilon / 2)


def renyi_of(data: Mapping[str, Any], order: float) -> Price:
    """Return a bound on the Renyi divergence at an order, by dp-accounting where it knows the mechanism."""
    kind = data["kind"]
    if kind in ("gaussian", "thresholded-gaussian"):
        return Price(order * data["noise_multiplier"] ** -2 / 2)
    if kind == "laplace":
        return Price(_accountant(order, _events().LaplaceDpEvent(1 / data["epsilon"])), exact=False)
    if kind == "exponential-mechanism":
        epsilon = data["epsilon"]
        return Price(min(order * epsilon**2 / 8, _renyi_of_pure(epsilon, order)), exact=False)
    if kind == "above-threshold" and data["noise"] == "gaussian":
        return Price(data["max_queries"] * order * data["query_scale"] ** -2 / 2, exact=False)
    if kind == "shuffled-descent":
        return Price(order * (_SLACK / data["noise_multiplier"]) ** 2 / 2, exact=False)
    if kind == "printed-price":
        return Price(_parts(data, lambda each: renyi_of(each, order)).amount, exact=False)
    if kind == "composed":
        return _parts(data, lambda each: renyi_of(each, order))
    if kind in ("poisson-sampled", "fixed-size-sampled"):
        return _sampled_renyi(data, order)
    if kind == "fixed-schedule" and not data["failure"]:
        return _parts(data, lambda each: renyi_of(each, order)).times(data["steps"])
    if kind == "filtered-run" and (data["currency"], data["order"]) == ("rdp", order):
        return Price(float(data["total"]))
    pure = pure_of(data)
    if math.isinf(pure.amount):
        raise UnknownMechanismError(kind)
    return Price(_renyi_of_pure(pure.amount, order), pure.exact and kind != "above-threshold")


def _renyi_of_pure(epsilon: float, order: float) -> float:
    """Return the divergence of randomised response: log(p^a q^(1-a) + q^a p^(1-a))/(a - 1)."""
    log_p, log_q = -math.log1p(math.exp(-epsilon)), -epsilon - math.log1p(math.exp(-epsilon))
    first, second = order * log_p + (1 - order) * log_q, order * log_q + (1 - order) * log_p
    return max(0.0, (first + math.log1p(math.exp(min(second - first, 0.0)))) / (order - 1))


def _sampled_renyi(data: Mapping[str, Any], order: float) -> Price:
    """Return the divergence of mechanisms on one random batch: dp-accounting knows Gaussian ones."""
    whole = max(2, math.ceil(order))
    gaussian = all(each["kind"] == "gaussian" for each in data["parts"])
    if gaussian:
        multiplier = sum(each["noise_multiplier"] ** -2 for each in data["parts"]) ** -0.5
        event, poisson = _events().GaussianDpEvent(multiplier), data["kind"] == "poisson-sampled"
        if poisson:  # between whole orders, what the next one costs is a bound
            return Price(_accountant(whole, _events().PoissonSampledDpEvent(data["rate"], event)), whole == order)
        drawn = _events().SampledWithoutReplacementDpEvent(10**9, max(1, round(data["rate"] * 10**9)), event)
        return Price(_accountant(whole, drawn, replace=True), exact=False)
    bounds = [_parts(data, lambda each: renyi_of(each, order)).amount]
    pure = pure_of(data).amount
    if math.isfinite(pure):
        bounds.append(_renyi_of_pure(pure, order))
    return Price(min(bounds), exact=False)


def _events() -> Any:
    import dp_accounting

    return dp_accounting


def _accountant(order: float, event: Any, *, replace: bool = False) -> float:
    """Return the divergence of an event at one order, by the Renyi accountant of dp-accounting."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    relation = NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = RdpAccountant([order], relation)
    accountant.compose(event)
    return float(accountant._rdp[0])


def pair_of(data: Mapping[str, Any]) -> tuple[Price, float]:
    """Return (epsilon, delta) of a mechanism that is priced as such a pair."""
    kind = data["kind"]
    if kind == "approximate":
        return Price(float(data["epsilon"])), float(data["delta"])
    if kind == "fixed-schedule" and data["failure"]:
        steps = [dict(each) for each in data["parts"]]
        return Price(_schedule_epsilon(steps, data["steps"], data["failure"]), exact=False), float(data["failure"])
    pure = pure_of(data)
    if math.isinf(pure.amount):
        raise UnknownMechanismError(kind)
    return pure, failure_of(data)


def _schedule_epsilon(parts: list[dict[str, Any]], steps: int, delta: float) -> float:
    charges = [{"mechanism": each, "count": steps} for each in parts]
    found = composed_epsilon(charges, delta)
    if found is None:
        raise UnknownMechanismError("fixed-schedule")
    return found[0]


def failure_of(data: Mapping[str, Any]) -> float:
    """Return the probability with which a mechanism may fail, beyond its price."""
    kind = data["kind"]
    if not all(0 <= data.get(name, 0) < 1 for name in ("failure", "delta")):
        raise ValueError("a failure is a probability")
    if kind == "norm-laplace":
        return 1e-27
    if kind == "approximate":
        return float(data["delta"])
    if kind in ("composed", "printed-price", "poisson-sampled", "fixed-size-sampled"):
        return math.fsum(failure_of(each) for each in data["parts"])
    if kind == "fixed-schedule":
        steps: int = data["steps"]
        return float(data["failure"]) + steps * math.fsum(failure_of(each) for each in data["parts"])
    if kind in ("objective-perturbation", "advanced-composition", "random-stopping"):
        raise UnknownMechanismError(kind)
    failure: float = data.get("failure", 0.0)
    return failure


# Conversions by dp-accounting -------------------------------------------------------------------------------


def epsilon_of(currency: Mapping[str, Any], total: float, delta: float) -> float:
    """Return the epsilon of a total, at the part of delta that the currency counts."""
    name = currency["name"]
    if name in ("pure", "approximate") or total == 0:
        return total
    if name == "gdp":
        return gaussian_epsilon(math.sqrt(total), delta)
    from dp_accounting.rdp import rdp_privacy_accountant as renyi

    orders = [currency["order"]] if name == "rdp" else _orders(total, delta)
    divergences = [total] if name == "rdp" else [order * total for order in orders]
    found: float = renyi.compute_epsilon(orders, divergences, delta)[0]
    return found


def _orders(rho: float, delta: float) -> list[float]:
    """Return orders around the best one for rho-zCDP, which is about 1 + sqrt(log(1/delta)/rho)."""
    best = math.sqrt(max(math.log(1 / delta), 1e-9) / rho)
    return [1 + best * 2 ** (step / 500) for step in range(-3000, 3000)]


@lru_cache(maxsize=256)
def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return epsilon of mu-GDP at delta, by a privacy loss distribution."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    interval = min(1e-3, max(mu * mu, mu) / 500)
    if mu * mu / 2 + 12 * mu > 2e6 * interval:
        interval = (mu * mu / 2 + 12 * mu) / 2e6
    losses = pld.from_gaussian_mechanism(
        1 / mu, value_discretization_interval=interval, log_mass_truncation_bound=math.log(delta) - 30
    )
    return float(losses.get_epsilon_for_delta(delta))


def composed_epsilon(charges: list[Any], delta: float) -> tuple[float, float] | None:
    """Return epsilon of mechanisms that run one after the other, by privacy loss distributions, and its error.

    None if one of them has no distribution. Gaussian mechanisms together are one, and so are selections, by mu-GDP.
    The error is that of a grid, by whose width every other mechanism is rounded up at most.
    """
    from dp_accounting.pld import common, privacy_loss_distribution as pld

    squared, pure, batches = 0.0, dict[float, int](), dict[tuple[float, float], int]()
    for charge in charges:
        data = charge["mechanism"]
        for each in data["parts"] if data["kind"] == "composed" else [data]:
            if each["kind"] in ("gaussian", "thresholded-gaussian", "exponential-mechanism", "shuffled-descent"):
                squared += charge["count"] * mu_squared_of(each).amount
            elif each["kind"] == "poisson-sampled" and all(part["kind"] == "gaussian" for part in each["parts"]):
                multiplier = sum(part["noise_multiplier"] ** -2 for part in each["parts"]) ** -0.5
                batches[multiplier, each["rate"]] = batches.get((multiplier, each["rate"]), 0) + charge["count"]
            else:
                epsilon = pure_of(each).amount
                pure[epsilon] = pure.get(epsilon, 0) + charge["count"]
    reach = sum(epsilon * count for epsilon, count in pure.items())
    if reach + squared > _PLD_LARGEST or any(multiplier < 0.3 for multiplier, _ in batches):
        return None
    if not pure and not batches:
        return (gaussian_epsilon(math.sqrt(squared), delta) if squared else 0.0), 0.0
    width = max(min(1e-3, min(pure, default=1.0) / 20), (reach + squared) / 2e5, 1e-5)
    found = [
        pld.from_privacy_parameters(
            common.DifferentialPrivacyParameters(epsilon), value_discretization_interval=width
        ).self_compose(count)
        for epsilon, count in pure.items()
    ]
    for (multiplier, rate), count in batches.items():
        one = pld.from_gaussian_mechanism(multiplier, sampling_prob=rate, value_discretization_interval=width)
        found.append(one.self_compose(count))
    if squared:
        found.append(pld.from_gaussian_mechanism(squared**-0.5, value_discretization_interval=width))
    together = found[0]
    for losses in found[1:]:
        together = together.compose(losses)
    rounded = sum(pure.values()) + sum(batches.values()) + 1
    return float(together.get_epsilon_for_delta(delta)), rounded * width


# The check --------------------------------------------------------------------------------------------------


def price_in(currency: Mapping[str, Any], data: Mapping[str, Any]) -> Price:
    """Return what a mechanism adds to the total of a currency."""
    name = currency["name"]
    if name == "gdp":
        return mu_squared_of(data)
    if name == "zcdp":
        return rho_of(data)
    if name == "rdp":
        return renyi_of(data, currency["order"])
    if name == "approximate":
        return pair_of(data)[0]
    return pure_of(data)


def total_of(charges: list[Any], amount: Callable[[Mapping[str, Any]], Price]) -> Price:
    """Return the sum over charges for the rows that paid most: all of them, and the dearest part that shares none."""
    parts: dict[str, Price] = {"all": Price(0.0)}
    for charge in charges:
        own = amount(charge["mechanism"]).times(charge["count"])
        parts[charge["rows"]] = parts.get(charge["rows"], Price(0.0)) + own
    everybody = parts.pop("all")
    dearest = max(parts.values(), key=lambda each: each.amount, default=Price(0.0))
    exact = all(each.exact for each in parts.values())
    return Price(everybody.amount + dearest.amount, everybody.exact and exact)


def counted_delta(statement: Mapping[str, Any]) -> tuple[float, float]:
    """Return the part of delta that the currency counts, and that for mechanisms that may fail."""
    currency, delta = statement["currency"], statement["delta"]
    if currency["name"] == "approximate":
        return 0.0, delta
    share = Fraction(currency.get("failure_share", _FEW))
    if not 0 <= delta < 1 or not 0 < share <= Fraction(1, 2):
        raise ValueError("delta is a probability")
    return float(Fraction(delta) * (1 - share)), float(Fraction(delta) * share)


def check_statement(statement: Mapping[str, Any]) -> Verdict:
    """Compute a statement anew."""
    try:
        if statement["currency"] is None:
            return Verdict(NOT_PRIVATE, ("nothing is guaranteed: the rows were answered without noise",))
        return _check_private(statement)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError) as problem:
        raise RefusedError(f"the statement is malformed ({type(problem).__name__})") from None


def _check_private(statement: Mapping[str, Any]) -> Verdict:
    currency, charges = statement["currency"], statement["charges"]
    if statement["version"] != VERSION:
        raise RefusedError(f"the statement is of version {statement['version']!r:.20}: only {VERSION} is known")
    if currency["name"] not in ("gdp", "zcdp", "rdp", "pure", "approximate"):
        raise ValueError("an unknown currency")
    delta, reserve = counted_delta(statement)
    _require_finite([statement[name] for name in ("epsilon", "budget", "spent", "spent_epsilon")])
    for charge in charges:
        _require_finite(charge["mechanism"])
        _require_relation(charge["mechanism"], statement["relation"])
    try:
        total = total_of(charges, lambda data: price_in(currency, data))
        failures = total_of(charges, lambda data: Price(failure_of(data))).amount
    except UnknownMechanismError as unknown:
        return Verdict(UNCONFIRMED, (f"there is no independent price of the mechanism {unknown}",))
    figures: dict[str, Any] = {"currency": currency["name"], "total": total.amount, "exact": total.exact}
    _require_epsilon(statement, delta, figures)
    if failures > reserve * (1 + _ROUNDING):
        raise RefusedError("the mechanisms may fail with a larger probability than delta allows")
    if total.exact and abs(total.amount - statement["spent"]) > _ROUNDING * max(total.amount, statement["spent"]):
        raise RefusedError(f"the listed mechanisms cost {total.amount:.6g}, and {statement['spent']:.6g} is stated")
    _require_listing(statement)
    _require_sampler_error(statement)
    if total.amount > statement["budget"] * (1 + _ROUNDING):
        if total.exact:
            raise RefusedError("the listed mechanisms cost more than the budget")
        line = (
            f"by published bounds the listed mechanisms cost up to {total.amount:.4g}, more than the budget "
            f"{statement['budget']:.4g}: a better bound is needed to confirm it"
        )
        return Verdict(UNCONFIRMED, (line,), figures)
    return Verdict(CONFIRMED, tuple(_confirmed(statement, total, delta, figures)), figures)


def _require_relation(data: Mapping[str, Any], relation: str) -> None:
    """Raise where a mechanism on random batches is used under the relation for which it is not amplified."""
    wanted = {"poisson-sampled": "zero-out", "fixed-size-sampled": "replace-one"}.get(data["kind"], relation)
    if wanted != relation or relation not in ("zero-out", "replace-one"):
        raise RefusedError(f"the price of {data['kind']} does not hold under {relation}")
    for part in data.get("parts", ()):
        _require_relation(part, relation)


def _require_finite(data: Any) -> None:
    """Raise unless all numbers are finite and none is negative, as those of every mechanism are."""
    inner = data.values() if isinstance(data, Mapping) else data if isinstance(data, list) else ()
    for each in inner:
        _require_finite(each)
    if isinstance(data, bool) or (isinstance(data, int | float) and not 0 <= data < math.inf):
        raise ValueError("a number is negative, infinite or none")


def _require_epsilon(statement: Mapping[str, Any], delta: float, figures: dict[str, Any]) -> None:
    """Raise unless dp-accounting gives the budget at most the stated epsilon, and what was spent that of its own."""
    found = epsilon_of(statement["currency"], statement["budget"], delta)
    figures["epsilon"] = found
    if found > statement["epsilon"] * (1 + 1e-4) + 1e-9:
        raise RefusedError(f"the stated budget gives epsilon {found:.6g}, and {statement['epsilon']:.6g} is stated")
    spent = min(found, epsilon_of(statement["currency"], statement["spent"], delta))
    if spent > statement["spent_epsilon"] * (1 + 1e-3) + 1e-9:
        raise RefusedError(
            f"what was spent gives epsilon {spent:.6g}, and {statement['spent_epsilon']:.6g} is stated"
        )


def _require_listing(statement: Mapping[str, Any]) -> None:
    """Raise unless the stated shares, and the numbers of answers, are those of the charges."""
    asked, kinds, shares = dict[str, int](), dict[str, int](), dict[str, float]()
    for charge in statement["charges"]:
        label, count = charge["label"], charge["count"]
        price = price_in(statement["currency"], charge["mechanism"]).times(count)
        share, stated = price.amount / statement["budget"], charge["share"]
        if price.exact and not math.isclose(stated, share, rel_tol=_ROUNDING):
            raise RefusedError(f"the share of the budget that is stated for {label!r} is not that of its mechanism")
        asked[label] = asked.get(label, 0) + count
        shares[label] = shares.get(label, 0.0) + stated
        for kind in _pieces(charge["mechanism"]):
            kinds[kind] = kinds.get(kind, 0) + count
    same = shares.keys() == statement["spent_on"].keys() and all(
        math.isclose(share, statement["spent_on"][label], rel_tol=_ROUNDING) for label, share in shares.items()
    )
    if (asked, kinds) != (statement["asked"], statement["mechanisms"]) or not same:
        raise RefusedError("what is stated of the answers together does not follow from the listed charges")


def _require_sampler_error(statement: Mapping[str, Any]) -> None:
    """Raise unless what inexact samplers add to delta follows from the distance of a draw from its law."""
    stated = statement["sampler_error"]
    draws, apart, epsilon = stated["draws"], stated["total_variation_per_draw"], min(statement["epsilon"], 700.0)
    adds = min(1.0, (1 + math.exp(epsilon)) * draws * apart)
    if draws < _DRAWS or apart < _APART or not math.isclose(stated["delta"], adds, rel_tol=_ROUNDING):
        raise RefusedError("what the samplers add to delta does not follow from their distance from the exact laws")
    if stated["within_delta"] and adds > statement["delta"] * _KEPT * (1 + _ROUNDING):
        raise RefusedError("what the samplers add to delta is not within it")


def _pieces(data: Mapping[str, Any]) -> list[str]:
    """Return the kind of a mechanism, or of those that were only charged together."""
    if data["kind"] != "composed":
        return [data["kind"]]
    return [kind for each in data["parts"] for kind in _pieces(each)]


def _kinds_in(charges: list[Any]) -> Iterator[str]:
    for charge in charges:
        data = charge.get("mechanism", charge)
        yield data["kind"]
        yield from _kinds_in(data.get("parts", []))


def _confirmed(statement: Mapping[str, Any], total: Price, delta: float, figures: dict[str, Any]) -> Iterator[str]:
    kinds = sorted({charge["mechanism"]["kind"] for charge in statement["charges"]})
    count = sum(charge["count"] for charge in statement["charges"])
    yield f"{count} mechanisms ({', '.join(kinds) or 'none'}) under {statement['relation']}, for {statement['unit']}"
    name = {"gdp": "mu^2", "zcdp": "rho", "rdp": "Renyi divergence"}.get(statement["currency"]["name"], "epsilon")
    kept = "" if total.exact else ", partly by published bounds that may be larger"
    yield f"they cost {total.amount:.6g} of {statement['budget']:.6g} in {name}{kept}"
    yield f"by dp-accounting the budget is ({figures['epsilon']:.6g}, {statement['delta']:g})-DP"
    divergence = statement["currency"]["name"] in ("gdp", "zcdp", "rdp")
    if divergence and all(charge["rows"] == "all" for charge in statement["charges"]):
        together = composed_epsilon(statement["charges"], delta)
        if together is not None and math.isfinite(together[0]):
            figures["composed"], error = together
            known = not _BOUNDED & set(_kinds_in(statement["charges"]))
            if known and figures["composed"] > statement["spent_epsilon"] * (1 + 1e-3) + error:
                raise RefusedError("privacy loss distributions give the mechanisms more than was stated as spent")
            pair = f"({figures['composed']:.6g}, {statement['delta']:g})-DP"
            yield f"by privacy loss distributions these mechanisms, had they been fixed before the run, are {pair}"
    for name in ("randomness", "arithmetic"):
        if "not for release" in statement[name] or "floating point" in statement[name]:
            yield f"whoever relies on it must know that the {name} of the noise was: {statement[name]}"
    private = statement.get("private")
    if isinstance(private, str):
        yield f"the guarantee holds {private}, which was read from the rows and not paid for"


def verify(path: Path) -> Verdict:
    """Check a model, a statement or a release folder, and return the verdict."""
    try:
        if not path.is_dir():
            return check_statement(statement_in(read_file(path)))
        names = check_manifest(path)
        statements = {name: statement_in(read_file(path / name)) for name in ("statement.json", "model.json")}
        if statements["statement.json"] != statements["model.json"]:
            raise RefusedError("statement.json is not the statement of model.json")
        verdict = check_statement(statements["statement.json"])
        whole = (f"{len(names)} files are those of the manifest",)
        return Verdict(verdict.code, whole + verdict.lines, verdict.figures)
    except NotOursError as problem:
        return Verdict(FOREIGN, (str(problem),))
    except RefusedError as problem:
        return Verdict(REFUSED, (str(problem),))
    except OSError as problem:
        return Verdict(REFUSED, (f"cannot read {path}: {problem.strerror}",))


WORDS = {
    CONFIRMED: "confirmed",
    REFUSED: "refused",
    FOREIGN: "not ours",
    NOT_PRIVATE: "not private",
    UNCONFIRMED: "not confirmed",
}


def main(arguments: list[str] | None = None) -> int:
    """Check what was named, print the verdict, and return the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 1:
        print("usage: python verifier.py MODEL|STATEMENT|FOLDER", file=sys.stderr)
        return 2
    try:
        found = verify(Path(given[0]))
    except ImportError:
        print("the check needs dp-accounting: pip install dp-accounting", file=sys.stderr)
        return 2
    for line in (f"{WORDS[found.code]}: {given[0]}", *found.lines):
        print("".join(each if each.isprintable() else "?" for each in line))
    return found.code


if __name__ == "__main__":
    sys.exit(main())
