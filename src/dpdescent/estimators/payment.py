"""How a fit is paid for: by its own ledger, and by the account that a caller shares among several fits.

With an account the fit's own ledger is opened in the account's currency, so that both charge the same prices and
every comparison between them is exact. The account is charged with the whole budget of the fit before a row is
touched, and afterwards with what the fit has spent. What it cannot pay for is refused before either is charged.

*Several fits are several releases.* scikit-learn searches for settings, and scores a model on folds, by copying an
estimator and fitting the copies. Each fit has the (epsilon, delta) of its own statement; all of them together have
not, and the scores are computed from rows without noise. Copies and their fits are counted, so that the second fit
of a copy, or the first of a copy whose settings were changed, can say so, once. A copy that is pickled before it is
fitted counts as fitted, because nothing is heard of it in the process to which it is sent.

**Privacy** Warnings and remarks depend on settings and on the numbers of copies and fits, and on no cell.

Floating-point noise, for researchers and very long vectors.

Its distributions are those of `dpdescent.curator.LatticeNoise`, and its guarantee is that of theorems about real
numbers only (Mironov 2012): the statement says so.

References
----------
Mironov, I. (2012). On significance of the least significant bits for differential privacy. CCS.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..accounting import (
    AboveThreshold,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    NormLaplace,
    ReportNoisyMax,
    currency_named,
)
from ..arrays import Floats
from ..curator import LatticeNoise
from ..curator.lattice_noise import deviation_of, normalised_queries, sensitivity_in, upper_triangle
from ..errors import InvalidParameter, TrialsWarning
from ..exact import LatticeSum
from ..ledger import ONE_ROW, Ledger, reserving
from ..noise import Randomness
from ..relations import Norm, Relation
from ..solvers import Facts, Method, Settings

if TYPE_CHECKING:
    from .explanation import Explanation


def open_ledger(
    name: str,
    method: Method,
    settings: Settings,
    options: Mapping[str, Any] | None,
    facts: Facts,
    account: Ledger | None,
    unit: str = ONE_ROW,
) -> Ledger:
    """Return the ledger of one fit, or raise if an account does not fit it; whether it suffices is asked later.

    A method has its name, its entry in the registry, its settings, and those of them that the caller gave. ``facts``
    are public before the run; without an ``account``, which pays as well, the method chooses the currency. ``unit``
    says what is protected.

    Raises
    ------
    UnsupportedCost
        The method depends on a mechanism that has no price in the currency of the account.
    InvalidParameter
        The account keeps another relation, or the caller asked for another currency.
    """
    if account is None:
        chosen = currency_named(settings.choose_currency(facts), facts.epsilon, facts.delta)
        return Ledger(facts.epsilon, facts.delta, currency=chosen, relation=facts.relation, unit=unit)
    if not method.private:
        raise InvalidParameter(f"method {name!r} is not private, so no ledger can pay for it: leave ledger out")
    _require_agreement(name, settings, options, facts, account)
    if account.unit != unit:
        raise InvalidParameter(
            f"the ledger protects {account.unit} and this fit {unit}: open a ledger with unit={unit!r}, since what "
            "is spent on one says nothing about the other"
        )
    try:
        own = Ledger(facts.epsilon, facts.delta, currency=account.currency, relation=facts.relation, unit=unit)
    except InvalidParameter:
        if account.currency.name != "rdp":
            raise
        least, order = account.currency.epsilon(0.0, facts.delta), account.currency.to_dict()["order"]
        raise InvalidParameter(
            f"the ledger keeps rdp at order {order:g}, which certifies no epsilon below "
            f"{least:.4g} at delta {facts.delta:g}: raise epsilon, or open the ledger with currency 'gdp' or 'zcdp'"
        ) from None
    return own


def _require_agreement(
    name: str, settings: Settings, options: Mapping[str, Any] | None, facts: Facts, account: Ledger
) -> None:
    if str(account.relation) != facts.relation:
        raise InvalidParameter(
            f"the ledger keeps the relation {account.relation} and this fit {facts.relation}: choose "
            f"adjacency {str(account.relation)!r}, or open the ledger with {facts.relation}"
        )
    kept, asked = account.currency.name, (options or {}).get("currency")
    if asked is not None and asked != kept:
        raise InvalidParameter(
            f"the settings ask for the currency {asked!r} and the ledger keeps {kept!r}: leave currency out of "
            f"them, or open the ledger with currency {asked!r}"
        )
    settings.payment.require(name, account.currency)


def paid_by(account: Ledger | None, own: Ledger, label: str) -> AbstractContextManager[None]:
    """Return a context for a fit: an account, if there is one, is charged before it and settled after it."""
    return nullcontext() if account is None else reserving(account, own, label)


@contextmanager
def charges_noted(ledger: Ledger) -> Iterator[None]:
    """Add a note to whatever ends a fit early, an interrupt included: how much had been charged, rounded up."""
    try:
        yield
    except BaseException as problem:
        if ledger.entries:
            problem.add_note(share_charged(ledger.spent, ledger.budget))
        raise


def share_charged(spent: float, budget: float) -> str:
    """Return a sentence on how much of a fit's budget was charged."""
    return f"{math.ceil(1000 * spent / budget) / 10:g}% of the privacy budget of this fit had been charged"


_NO_SETTINGS = frozenset({"random_state", "progress", "ledger"})
_SHOWN = (100, 10, 5)  # numbers of fits of which a warning tells the total


@dataclass
class _Family:
    """An estimator and its copies: how many there are and were fitted, and whether anybody was told the cost."""

    copies: int = 0
    fits: int = 0
    warned: bool = False


_FAMILIES: WeakKeyDictionary[Any, _Family] = WeakKeyDictionary()
_COPIES: WeakSet[Any] = WeakSet()
_CHANGED: WeakSet[Any] = WeakSet()


class CountedEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator that knows how often it was copied, how many copies were fitted, and whether one was changed."""

    def __sklearn_clone__(self) -> Any:
        copy = super().__sklearn_clone__()
        family = _FAMILIES.setdefault(self, _Family())
        family.copies += 1
        _FAMILIES[copy] = family
        _COPIES.add(copy)
        return copy

    def set_params(self, **params: Any) -> Self:
        """Change settings by name; a search for settings changes those of copies in this way."""
        super().set_params(**params)
        if not _NO_SETTINGS.issuperset(params):
            _CHANGED.add(self)
        return self

    def explain(self) -> Explanation:
        """Say what the fitted model guarantees: what was released, what epsilon means, and where the budget went.

        It costs no privacy. ``dpdescent explain`` says the same about a model file.

        Returns
        -------
        Explanation
            Prints as text, and shows itself as a page in a notebook; its ``to_html()`` returns the page.

        Examples
        --------
        >>> from dpdescent import DPLogisticRegression, load_dataset
        >>> data = load_dataset("synthetic", n=2000)
        >>> model = DPLogisticRegression(1.0, 1e-6, bounds=data.bounds, classes=data.classes).fit(data.X, data.y)
        >>> print(str(model.explain()).splitlines()[0])
        (1, 1e-06)-differentially private for one row under zero-out.
        """
        from .explanation import Explanation

        check_is_fitted(self)
        return Explanation.of_model(self)

    def _repr_html_inner(self) -> str:
        return f"{super()._repr_html_inner()}{self._promise()}"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        return bundle | ({"text/html": bundle["text/html"] + self._promise()} if "text/html" in bundle else {})

    def _promise(self) -> str:
        """Return what a notebook shows beside the parameters of a fitted model."""
        from .explanation import promise_of

        return promise_of(self.privacy_) if hasattr(self, "privacy_") else ""

    def __copy__(self) -> Self:
        # By default a copy within this process is made from `__getstate__`, and would be counted.
        same = object.__new__(type(self))
        same.__dict__.update(self.__dict__)
        return same

    def __getstate__(self) -> Any:
        budget = (self.epsilon, self.delta)
        unfitted = not hasattr(self, "privacy_") and self.method != "nonprivate"
        if unfitted and all(isinstance(each, int | float) for each in budget):
            _count_fit(self, self._at_most, stacklevel=3)
        return super().__getstate__()

    def _at_most(self, fits: int) -> str:
        """Return what so many fits are together, whatever the method: epsilons and deltas add up."""
        return f"at most ({fits * self.epsilon:.3g}, {fits * self.delta:.3g})-differentially private"


def remarks_on_trials(estimator: Any, own: Ledger, stacklevel: int) -> tuple[str, ...]:
    """Return what a statement says of one of several copies that were changed; the first of a family warns as well.

    A second fit of copies that were not changed warns too. Its statement says nothing of it: copies may be fitted to
    different people, and no cell is compared to find that out.

    ``own`` is the ledger of this one fit, and ``stacklevel`` where the warning points, as for `warnings.warn` from
    the caller.
    """

    def together(fits: int) -> str:
        basic = own.currency.name == "approximate"
        uncounted = float(own.currency.uncounted)
        delta = fits * own.delta if basic else own.delta * (1 + (fits - 1) * uncounted)
        return f"({own.epsilon_of(fits * own.budget):.3g}, {delta:.3g})-differentially private"

    family = _count_fit(estimator, together, stacklevel + 1)
    if family is None or family.copies < 2 or estimator not in _CHANGED:
        return ()
    return (
        f"one of up to {family.copies} fits of copies with changed settings, all of which together are "
        f"{together(family.copies)}",
    )


def _count_fit(estimator: Any, together: Callable[[int], str], stacklevel: int) -> _Family | None:
    """Count the fit of a copy, warn if it is one of several, once for all of them, and return its family."""
    family = _FAMILIES.get(estimator)
    if family is None:
        return None
    family.fits += estimator in _COPIES
    several = family.fits > 1 or estimator in _CHANGED
    if family.copies > 1 and several and not family.warned:
        family.warned = True
        counts = sorted({*_SHOWN, family.copies})
        totals = [f"{fits} fits cost {together(fits).partition('-diff')[0]}" for fits in counts]
        warnings.warn(
            "several copies of one estimator are fitted, as cross_val_score and GridSearchCV do, and each fit is a "
            f"release of its own at ({estimator.epsilon:g}, {estimator.delta:g}). If all of them read the same rows, "
            f"{', '.join(totals)} together. The scores of such fits are computed from rows without noise, so no "
            "epsilon covers them. dpdescent.select tries several settings under one budget",
            TrialsWarning,
            stacklevel=stacklevel + 1,
        )
    return family


class FloatNoise(LatticeNoise):
    """Ordinary floating-point noise from a numpy generator; same distributions, no exactness.

    Without a ``seed`` one is drawn from the operating system.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(Randomness(seed))
        self._generator = np.random.default_rng(seed)

    @property
    def description(self) -> str:
        return f"floating point, {super().description}"

    @property
    def arithmetic(self) -> str:
        return "sums over rows are exact, the noise is in floating point: the guarantee is that of real numbers only"

    def gaussian(self, total: LatticeSum, cost: Gaussian, relation: Relation) -> Floats:
        sigma = deviation_of(total, cost, relation)
        return total.to_float() + self._generator.normal(0.0, sigma, total.values.shape)

    def gaussian_symmetric(self, total: LatticeSum, cost: Gaussian, relation: Relation) -> Floats:
        rows, columns = upper_triangle(total)
        spread = np.where(rows == columns, 1.0, math.sqrt(0.5)) * deviation_of(total, cost, relation)
        released = total.to_float()
        released[rows, columns] += self._generator.normal(0.0, spread)
        released[columns, rows] = released[rows, columns]
        return released

    def laplace(self, total: LatticeSum, cost: Laplace, relation: Relation) -> Floats:
        scale = sensitivity_in(total, Norm.L1, relation) / cost.epsilon
        return total.to_float() + self._generator.laplace(0.0, scale, total.values.shape)

    def norm_laplace(self, point: LatticeSum, cost: NormLaplace, relation: Relation) -> Floats:
        scale = sensitivity_in(point, Norm.L2, relation) / cost.epsilon
        direction = self._generator.normal(size=point.values.shape)
        length = self._generator.gamma(point.values.size, scale)
        return point.to_float() + direction * (length / np.linalg.norm(direction))

    def least(self, scores: LatticeSum, cost: ExponentialMechanism | ReportNoisyMax, relation: Relation) -> int:
        scale = sensitivity_in(scores, Norm.RANGE, relation) / cost.epsilon
        if isinstance(cost, ExponentialMechanism):
            noise = self._generator.gumbel(0.0, scale, scores.values.shape)
        elif cost.noise == "exponential":
            noise = self._generator.exponential(scale, scores.values.shape)
        else:
            noise = self._generator.laplace(0.0, scale, scores.values.shape)
        return int(np.argmin(scores.to_float() - noise))

    def first_above(self, queries: LatticeSum, cost: AboveThreshold, relation: Relation) -> int | None:
        draw = self._generator.normal if cost.noise == "gaussian" else self._generator.laplace
        normalised = normalised_queries(queries, cost, relation) * 2.0**-cost.lattice_bits
        threshold = draw(0.0, cost.threshold_scale) if cost.threshold_scale else 0.0
        yes = normalised + draw(0.0, cost.query_scale, cost.max_queries)[: normalised.size] >= threshold
        return int(yes.argmax()) if yes.any() else None


def make_noise(mode: str, seed: int | None) -> LatticeNoise:
    """Return exact lattice noise, or floating-point noise for ``mode="float"``."""
    if isinstance(mode, str) and mode == "exact":
        return LatticeNoise(Randomness(seed))
    if isinstance(mode, str) and mode == "float":
        return FloatNoise(seed)
    raise InvalidParameter(f"unknown noise {mode!r}: choose 'exact' or 'float'")
