r"""How candidates are tried, decided by public numbers before a row is read.

**Compare all.** Each of m candidates is trained with 1/m of the budget, and one is chosen by the exponential
mechanism on hold-out rows. A fit has mu/sqrt(m).

**Random stopping.** A random number of runs, each with a candidate drawn at random; only the best is released (see
`dpdescent.accounting.searches`). A fit has a mu that hardly falls with m, and a given candidate is drawn with
probability 0.9 or more.

**Side by side.** Both train on one part of the rows and score on the other. Which rows are held out is drawn whatever
they hold and is never released, so that a row is in one part only: a training row is touched by fits, and choosing is
post-processing for it; a hold-out row is touched by scores, and for it the fits are functions of other people's rows.
Each part may therefore spend the whole budget, and the larger of the two totals counts. `dpdescent.relations` says
why that holds under zero-out too, whether or not the rows after a missing one move up.

Whichever gives a candidate more is taken: the mu of a fit times the probability that there is one. Public numbers
alone decide: epsilon, delta and the number of candidates. Random stopping wins from four candidates on, or so.

Scores on rows that trained none of the candidates: one number per row, from 0 to 1, small being good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from sklearn.base import is_classifier

from ..accounting import Cost, Currency, RandomStopping
from ..errors import InvalidParameter, require_finite
from ..estimators.base import PrivateLinearModel
from ..estimators.regressors import BoundedRegressor
from ..ledger import Ledger
from ..noise import Bits
from ..queries import Noised
from ..relations import Norm, Sensitivity

STRATEGIES = ("compare-all", "random-stopping")

_MISSED = 0.1  # probability with which a given candidate may never be drawn
_COIN_BITS = 24
_FAILING = 2.0**-8  # share of delta for runs that fail
_RELATIVE = 1e-4  # to which mu is calibrated


@dataclass(frozen=True)
class StoppingPlan:
    """Random stopping: what is charged, and the guarantee of each run in `gdp`."""

    cost: RandomStopping
    run_epsilon: float
    run_delta: float


def choose_strategy(asked: str, epsilon: float, delta: float, candidates: int, account: Ledger | None) -> str:
    """Return how to try: as asked, or whichever buys more of those that the account can pay for."""
    if asked not in ("auto", *STRATEGIES):
        raise InvalidParameter(f"unknown strategy {asked!r}: choose 'auto', {', '.join(map(repr, STRATEGIES))}")
    kept = None if account is None else account.currency.name
    possible = {None: STRATEGIES, "gdp": STRATEGIES[:1], "zcdp": STRATEGIES[:1], "approximate": STRATEGIES[1:]}.get(
        kept, ()
    )
    if not possible:
        raise InvalidParameter(
            f"a ledger in {kept!r} cannot pay for a selection: open it with 'gdp', 'zcdp' or 'approximate'"
        )
    if asked != "auto":
        if asked not in possible:
            raise InvalidParameter(f"a ledger in {kept!r} pays for {possible[0]!r} only: leave strategy out")
        return asked
    if len(possible) == 1:
        return possible[0]
    each = math.sqrt(Ledger(epsilon, delta, currency="gdp").budget / candidates)
    try:
        stopping = (1 - _MISSED) * stopping_plan(epsilon, delta, candidates).cost.mu
    except InvalidParameter:  # random stopping has no plan for an epsilon so small or so large
        return "compare-all"
    return "compare-all" if each >= stopping else "random-stopping"


def epsilon_within(amount: float, delta: float, currency: Currency) -> float:
    """Return an epsilon whose budget at ``delta`` is at most ``amount``, and hardly less."""
    epsilon = currency.epsilon(amount, delta * (1 - float(currency.uncounted)))
    shrink = 2.0**-50
    while Ledger(epsilon, delta, currency=currency).budget > amount:
        epsilon *= 1 - shrink
        shrink *= 2
    return epsilon


@lru_cache(maxsize=64)
def stopping_plan(epsilon: float, delta: float, candidates: int) -> StoppingPlan:
    """Return the plan of random stopping with the least noise in each run that (epsilon, delta) allows."""
    tails = _probability_of_tails(candidates)
    runs = RandomStopping(1.0, tails).expected_runs
    run_failure = delta * _FAILING / 2 / ((1 + math.exp(min(epsilon, 700.0))) * runs)
    gdp = Ledger(epsilon, delta, currency="gdp").currency
    run_delta = min(delta, run_failure / float(gdp.uncounted))
    run_failure = min(run_failure, run_delta * float(gdp.uncounted))

    def cost(mu: float) -> RandomStopping:
        return RandomStopping(mu, tails, delta * (1 - _FAILING), run_failure)

    def excess(log_mu: float) -> float:
        return math.log(cost(math.exp(log_mu)).pure() / epsilon)

    high = math.log(math.sqrt(Ledger(epsilon, delta, currency="gdp").budget))  # no run may cost more than all of them
    low = high - math.log(2)
    while excess(low) > 0:
        low -= math.log(2)
        if low < -60:
            raise InvalidParameter(f"epsilon={epsilon:g} is too small for {candidates} candidates: try fewer of them")
    log_mu = brentq(excess, low, high, xtol=_RELATIVE) if excess(high) > 0 else high
    while excess(log_mu) > 0:
        log_mu -= _RELATIVE
    mu = math.exp(log_mu)
    return StoppingPlan(cost(mu), epsilon_within(mu * mu, run_delta, gdp), run_delta)


def _probability_of_tails(candidates: int) -> float:
    """Return the largest multiple of 2^-24 with which a candidate is missed as seldom as it should be."""
    low, high = 1, 2**_COIN_BITS - 1
    while low < high:
        middle = (low + high + 1) // 2
        if RandomStopping(1.0, math.ldexp(middle, -_COIN_BITS)).missed(candidates) <= _MISSED:
            low = middle
        else:
            high = middle - 1
    return math.ldexp(low, -_COIN_BITS)


def draw_runs(bits: Bits, tails: float) -> int:
    """Return the number of heads before the second tail, given that there are any; exactly by that law."""
    threshold = int(math.ldexp(tails, _COIN_BITS))
    if math.ldexp(threshold, -_COIN_BITS) != tails:
        raise InvalidParameter(f"tails must be a multiple of 2^-{_COIN_BITS}: the coin is tossed exactly")
    heads = 0
    while heads == 0:
        shown = 0
        while shown < 2:
            if bits.integer(_COIN_BITS) < threshold:
                shown += 1
            else:
                heads += 1
    return heads


def uniform(bits: Bits, choices: int) -> int:
    """Return a number from 0 to ``choices`` - 1, each with the same probability."""
    while True:
        drawn = bits.integer(max(1, (choices - 1).bit_length()))
        if drawn < choices:
            return drawn


UNIT = 2.0**-20  # of a loss between 0 and 1


def require_one_task(candidates: Sequence[PrivateLinearModel]) -> None:
    """Refuse candidates whose scores cannot be compared, or would be read from unpaid data."""
    if len({is_classifier(each) for each in candidates}) > 1:
        raise InvalidParameter("candidates must be all classifiers or all regressors: their scores differ in kind")
    public = "classes" if is_classifier(candidates[0]) else "target_bounds"
    given = [getattr(each, public) for each in candidates]
    if any(each is None for each in given):
        raise InvalidParameter(f"select needs {public} in every candidate: nobody pays for reading them from y")
    if len({str(np.unique(np.asarray(each)).tolist()) for each in given}) > 1:
        raise InvalidParameter(f"candidates must have the same {public}: their scores are compared")


def held_out(rows: int, share: float, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Return which of the rows are held out, drawn by their positions alone."""
    count = round(require_finite("holdout", share) * rows)
    if not 1 <= count < rows:
        raise InvalidParameter(f"holdout={share:g} of {rows} rows leaves a part empty: give a share such as 0.2")
    mask = np.zeros(rows, dtype=np.bool_)
    mask[generator.permutation(rows)[:count]] = True
    return mask


def scores_of(models: int, mechanism: Cost) -> Noised:
    """Return how the total losses of so many models are released through a mechanism.

    **Privacy** For several models the sensitivity is that of the spread of the sums: 1 if a row is removed, because
    all of them fall, and 2 if it is replaced. For one model it is 1 either way.
    """
    sensitivity = Sensitivity.of_scores(1.0) if models > 1 else Sensitivity.of_bounded_sum(1.0, Norm.L2)
    return Noised(mechanism, UNIT, sensitivity)


def total_losses(models: Sequence[PrivateLinearModel], X: Any, y: Any) -> NDArray[np.int64]:
    """Return the loss of every model on all rows in steps of the lattice: **unreleased data**.

    A row counts as an error of 0 or 1 for a classifier, and for a regressor as the square of its error in units of
    the width of the target.

    **Privacy** A loss lies in [0, 1] and depends on its own row alone, to the last bit: a matrix product may round
    other rows differently where one is missing, and those whose score is next to 0 would change sides. Every row has
    one loss: labels in a column are read as a row of labels, because comparing all predictions with all labels would
    count a row as often as there are rows.
    """
    return np.array([int(_losses(model, X, y).sum()) for model in models], dtype=np.int64)


def _losses(model: PrivateLinearModel, X: Any, y: Any) -> NDArray[np.int64]:
    """Return the loss of every row in steps of the lattice."""
    with np.errstate(all="ignore"):  # a warning would speak of rows
        scores, labels = model.row_scores(X), np.ravel(y)
        if isinstance(model, BoundedRegressor):
            low, high = model._outer_ends()
            target = np.clip(labels.astype(np.float64), low, high)
            errors = ((np.clip(scores, low, high) - target) / (high - low)) ** 2
        else:
            decided = scores.argmax(axis=1) if scores.ndim > 1 else (scores > 0).astype(np.intp)
            errors = (model.classes_[decided] != labels).astype(np.float64)
    steps: NDArray[np.int64] = np.rint(np.clip(np.nan_to_num(errors, nan=1.0), 0.0, 1.0) / UNIT).astype(np.int64)
    return steps
