"""`select`: fit candidates and choose the best of them under one budget."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..accounting import GDP, Approximate, Currency
from ..curator import LatticeNoise
from ..curator.release import pay, public_count, release
from ..errors import BudgetExhausted, InvalidParameter, UnsupportedSource
from ..estimators.base import PrivateLinearModel
from ..estimators.payment import charges_noted, make_noise, paid_by
from ..ledger import ONE_ROW, Ledger, require_affordable, require_funds
from ..noise import Randomness
from ..relations import Relation
from ..statement import Charge, Origin, PrivacyStatement, charges_of, public_fact
from ..tables import streamed
from .plan import (
    choose_strategy,
    draw_runs,
    epsilon_within,
    held_out,
    require_one_task,
    scores_of,
    stopping_plan,
    total_losses,
    uniform,
)

_TRAINING, _HELD_OUT = "training part", "hold-out part"
_TOO_LITTLE = 1e-9  # an epsilon for which no fit is to be had


@dataclass(frozen=True)
class Selection:
    """What `select` releases.

    Parameters
    ----------
    model : estimator
        The chosen candidate, fitted to the training part; its ``privacy_`` is that of the whole selection.
    index : int
        Its position among the candidates.
    strategy : str
        "compare-all" or "random-stopping".
    loss : float or None
        With random stopping, the noisy mean loss on the hold-out part: the share of errors, or the mean squared error
        in units of the width of the target. It is the best of several, and so too good on average. None with
        "compare-all", which releases no score.
    """

    model: PrivateLinearModel
    index: int
    strategy: str
    loss: float | None

    @property
    def privacy_(self) -> dict[str, Any]:
        """The privacy statement of the whole selection."""
        found: dict[str, Any] = self.model.privacy_
        return found


def select(
    candidates: Sequence[PrivateLinearModel],
    X: Any,
    y: Any,
    *,
    epsilon: float,
    delta: float,
    adjacency: str = "zero-out",
    holdout: float = 0.2,
    strategy: str = "auto",
    ledger: Ledger | None = None,
    random_state: int | None = None,
) -> Selection:
    """Fit private candidates and choose one of them, all under one (epsilon, delta).

    Parameters
    ----------
    candidates : sequence of estimators
        Two or more private linear models, for instance one for each value of ``alpha`` or of ``method``. They are all
        classifiers with the same public ``classes``, or all regressors with the same ``target_bounds``. Their
        ``epsilon``, ``delta``, ``adjacency`` and ``progress`` are not used, and they have neither ``random_state``
        nor ``ledger``.
    X, y : array_like
        The table.
    epsilon, delta : float
        The guarantee of everything together.
    adjacency : {"zero-out", "replace-one"}
        What one row may change.
    holdout : float
        Share of the rows that train no model and score all of them.
    strategy : {"auto", "compare-all", "random-stopping"}
        "compare-all" fits every candidate once, with an equal share of the budget. "random-stopping" fits candidates
        that are drawn at random, about four times as many fits as there are candidates, each with a share that hardly
        falls with their number. "auto" takes whichever gives a candidate more: from four candidates on the latter.
    ledger : Ledger, optional
        An account that pays as well: in "gdp" or "zcdp" for "compare-all", in "approximate" for "random-stopping".
    random_state : int, optional
        Repeats a selection; not for release.

    Returns
    -------
    Selection

    Notes
    -----
    **Privacy** (epsilon, delta)-DP for one row under ``adjacency``. `dpdescent.choosing.plan` says why both parts of
    the rows may spend the whole budget, and `dpdescent.accounting.searches` what random stopping costs. With it, the
    number of fits and all of them but the best stay secret, so that fits show no progress and warn of nothing; the
    time it took is outside the guarantee. What is wrong with candidates or rows is said before anything is charged.

    Examples
    --------
    >>> from dpdescent import DPLogisticRegression, load_dataset, select
    >>> data = load_dataset("synthetic", n=5000)
    >>> public = {"bounds": data.bounds, "classes": data.classes}
    >>> ridges = [DPLogisticRegression(alpha=alpha, **public) for alpha in (0.0, 10.0)]
    >>> chosen = select(ridges, data.X, data.y, epsilon=4.0, delta=1e-6, random_state=0)
    >>> chosen.index, chosen.privacy_["epsilon"]
    (0, 4.0)
    """
    task = _Task(candidates, X, y, epsilon, delta, adjacency, ledger, random_state)
    if ledger is not None:
        _require_account(ledger, task.relation)
    chosen = choose_strategy(strategy, epsilon, delta, len(task.candidates), ledger)
    currency = ledger.currency if ledger is not None and chosen == "compare-all" else GDP()
    task.require_fits(task.opened(_TOO_LITTLE, delta, currency))
    task.split(holdout)
    return _buy_comparison(task) if chosen == "compare-all" else _buy_random_stop(task)


def _require_account(ledger: Ledger, relation: Relation) -> None:
    if not isinstance(ledger, Ledger):
        raise InvalidParameter(f"ledger must be a Ledger, got a {type(ledger).__name__}: Ledger.open(path) opens one")
    if ledger.unit != ONE_ROW:
        raise InvalidParameter(f"the ledger protects {ledger.unit} and a selection {ONE_ROW}: open another ledger")
    if ledger.relation is not relation:
        raise InvalidParameter(
            f"the ledger keeps the relation {ledger.relation} and this selection {relation}: pass adjacency="
            f"{str(ledger.relation)!r}, or open the ledger with {relation}"
        )


class _Task:
    """Candidates and rows of a selection: **unreleased data**."""

    def __init__(
        self,
        candidates: Sequence[PrivateLinearModel],
        X: Any,
        y: Any,
        epsilon: float,
        delta: float,
        adjacency: str,
        account: Ledger | None,
        seed: int | None,
    ) -> None:
        self.candidates = list(candidates)
        if len(self.candidates) < 2:
            raise InvalidParameter("there is nothing to choose from: give two candidates or more")
        for each in self.candidates:
            if not isinstance(each, PrivateLinearModel):
                raise InvalidParameter(f"candidates are private linear models, and {type(each).__name__} is none")
            if each.random_state is not None or each.ledger is not None:
                raise InvalidParameter(
                    "random_state and ledger of a candidate would be shared by all of its fits: pass them to select"
                )
            if each.unit is not None or each.rows_per_unit != 1:
                raise InvalidParameter(
                    "select holds rows out, and rows of one unit would be in both parts: leave unit out, or fit one "
                    "candidate"
                )
        require_one_task(self.candidates)
        self.epsilon, self.delta, self.relation = epsilon, delta, Relation.parse(adjacency)
        # A mapped array is read as one in memory, all of whose cells are checked before the charge.
        self._X, self._y = np.asarray(X) if isinstance(X, np.memmap) else X, y
        if streamed(self._X, y) is not None:
            raise UnsupportedSource("select draws single rows, and this table is read block by block: pass arrays")
        self._fits, self.account = 0, account
        self.randomness = Randomness(seed)
        self.noise = LatticeNoise(self.randomness)

    def opened(self, epsilon: float, delta: float, currency: Currency) -> Ledger:
        """Return a new ledger of this selection's relation."""
        return Ledger(epsilon, delta, currency=currency, relation=str(self.relation))

    def require_fits(self, poor: Ledger) -> None:
        """Raise what is wrong with candidates or rows before anything is charged: no fit can be paid by ``poor``."""
        for candidate in self.candidates:
            try:
                self._prepared(candidate, self.epsilon, self.delta, poor).fit(self._X, self._y)
            except BudgetExhausted:
                continue
            raise InvalidParameter(f"method {candidate.method!r} is charged nothing: it is no candidate")

    def split(self, share: float) -> None:
        """Draw which rows are held out."""
        rows = int(self._X.shape[0]) if hasattr(self._X, "shape") else len(self._X)
        generator = np.random.default_rng(self.randomness.stream("hold-out rows", 0).integer(128))
        places = held_out(public_count(rows), share, generator)
        self.rows = int(np.count_nonzero(~places)), int(np.count_nonzero(places))  # that train, and score: public
        mask = places[:rows]
        self._train, self._scoring = ((rows_of(self._X, part), rows_of(self._y, part)) for part in (~mask, mask))

    def fitted(self, candidate: PrivateLinearModel, epsilon: float, delta: float, account: Ledger) -> Any:
        """Return a candidate fitted to the training part, which the account pays for."""
        return self._prepared(candidate, epsilon, delta, account).fit(*self._train)

    def losses(self, models: Sequence[Any]) -> Any:
        """Return the total losses of models on the hold-out part: unreleased."""
        return total_losses(models, *self._scoring)

    def _prepared(self, candidate: PrivateLinearModel, epsilon: float, delta: float, account: Ledger) -> Any:
        seed = None
        if self.randomness.seed is not None:
            seed = self.randomness.stream("fit", self._fits).integer(31)
            self._fits += 1
        settings = candidate.get_params(deep=False) | {"epsilon": epsilon, "delta": delta, "ledger": account}
        settings |= {"adjacency": str(self.relation), "random_state": seed, "progress": False}
        return type(candidate)(**settings)

    def finished(
        self, best: tuple[int, Any], strategy: str, loss: float | None, own: Ledger, charges: tuple[Charge, ...]
    ) -> Selection:
        """Return what is released, with the statement of the whole."""
        index, model = best
        inner = PrivacyStatement.from_dict(model.privacy_)
        train, scored = self.rows
        # The choice depends on every candidate, so that noise in floating point in one of them counts for the whole.
        floating = any(each.noise == "float" for each in self.candidates)
        worst = make_noise("float" if floating else "exact", self.randomness.seed)
        stated = PrivacyStatement(
            own.epsilon,
            own.delta,
            str(own.relation),
            own.currency,
            charges,
            model=inner.model,
            method=f"{inner.method}, selected by {strategy}",
            randomness=worst.description,
            arithmetic=worst.arithmetic,
            released=(
                *inner.released,
                f"which of {len(self.candidates)} candidates was chosen",
                *(["a noisy mean loss of the chosen one"] if loss is not None else []),
            ),
            assumed_public=(
                public_fact("the number of rows", str(train + scored), Origin.RELATION),
                public_fact("candidates", "their settings, and how many rows are held out", Origin.ARGUMENT),
                *(each for each in inner.assumed_public if not each.startswith("the number of rows")),
            ),
            remarks=(
                f"trained on {train} rows, chosen on {scored} others; each row has paid in one part only",
                *inner.remarks,
            ),
            account=None if self.account is None else self.account.identity,
        )
        model.set_params(ledger=None)
        model.privacy_ = stated.to_dict()
        return Selection(model, index, strategy, loss)


def _buy_comparison(task: _Task) -> Selection:
    """Fit every candidate with an equal share, and choose by the exponential mechanism on the hold-out part."""
    account = task.account
    currency = GDP() if account is None else account.currency
    own, judge = (task.opened(task.epsilon, task.delta, currency) for _ in range(2))
    if account is not None:
        require_funds(account, own)
    share = epsilon_within(own.budget / len(task.candidates), task.delta, currency)
    with paid_by(account, own, f"selection among {len(task.candidates)} candidates"), charges_noted(own):
        models = [task.fitted(each, share, task.delta, own) for each in task.candidates]
        # The account is settled with what the training part has spent, so that the hold-out part may spend no more.
        cost = currency.selection(min(judge.budget, own.spent))
        scores = scores_of(len(models), cost)
        index = release(judge, scores, "choice", lambda: task.losses(models), task.noise)
    charges = (*charges_of(own.entries, _TRAINING), *charges_of(judge.entries, _HELD_OUT))
    return task.finished((index, models[index]), "compare-all", None, own, charges)


def _buy_random_stop(task: _Task) -> Selection:
    """Make a random number of runs, each with a candidate drawn at random, and keep the best."""
    plan = stopping_plan(task.epsilon, task.delta, len(task.candidates))
    own = task.opened(task.epsilon, task.delta, Approximate())
    ledgers = (own,) if task.account is None else (own, task.account)
    require_affordable(ledgers, plan.cost)
    pay(ledgers, plan.cost, "selection by random stopping", (), task.noise)
    bits = task.randomness.stream("random stopping", 0)
    best: tuple[float, int, Any] | None = None
    with charges_noted(own), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whoever counts warnings would learn how many runs there were
        for _ in range(draw_runs(bits, plan.cost.tails)):
            index = uniform(bits, len(task.candidates))
            paying, judge = (task.opened(plan.run_epsilon, plan.run_delta, GDP()) for _ in range(2))
            model = task.fitted(task.candidates[index], plan.run_epsilon, plan.run_delta, paying)
            cost = judge.currency.gaussian(judge.budget)
            (noisy,) = release(judge, scores_of(1, cost), "score", partial(task.losses, [model]), task.noise).tolist()
            if best is None or noisy < best[0]:
                best = noisy, index, model
    assert best is not None, "there is at least one run"
    total, index, model = best
    loss = min(1.0, max(0.0, total / task.rows[1]))
    return task.finished((index, model), "random-stopping", loss, own, charges_of(own.entries))


def rows_of(table: Any, mask: NDArray[np.bool_]) -> Any:
    """Return some rows of a table, in whatever container they are."""
    if sparse.issparse(table):
        table = table.tocsr()  # not all kinds of sparse tables can be indexed
    if hasattr(table, "iloc"):
        return table.iloc[np.flatnonzero(mask)]
    return (table if hasattr(table, "shape") else np.asarray(table))[np.flatnonzero(mask)]
