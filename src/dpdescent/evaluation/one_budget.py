r"""`fit_and_evaluate`: a model and what it is worth, under one budget, on the same rows or on rows that are held out.

**The same rows.** The fit gets 1 - s of the budget and the evaluation s of it: both are charged to one ledger. A
model looks better on rows that have trained it, and privacy bounds by how much. Let the fit be mu-GDP under
replace-one, A be the model of n rows drawn from a population, and z a further one. Its accuracy on row i has the same
mean as that on z of a model for which row i was replaced by z, and the two models are within 2 Phi(mu/2) - 1 in total
variation. So the mean accuracy on rows that have trained it is at most that much above its mean accuracy in the
population. A row that is replaced is one removed and one added: under zero-out mu doubles. In zCDP total variation is
at most sqrt(rho/2), and rho is four times as large for two changes; otherwise it is at most (e^epsilon - 1 + 2
delta)/(e^epsilon + 1), and the bound of one change is taken twice.

**A hold-out** trains on some rows and evaluates on the others. Both may spend the whole budget, because every place
of a row is in one part only (`dpdescent.relations` says why that holds if a row is removed, too), and the account is
charged once. The accuracy is then that on new rows.

What to choose: a tenth of the budget on the same rows leaves 0.32 n mu effective rows for the evaluation and 0.95 n
mu for training; a fifth of the rows 0.2 n mu and 0.8 n mu. Below an epsilon of about 1 the bound is small enough for
the same rows.

**Several candidates** are compared on rows of one's own (`compare_privately`). Each is fitted to a part of the rows
that is drawn anew and evaluated on the rest (`fit_and_evaluate`), so that a candidate costs its (epsilon, delta)
once. The costs of all candidates add up in one ledger, and nothing is begun unless it can pay for all of them. What
is shown was paid for, and may be published with the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr
from sklearn.base import is_classifier

from ..accounting import GDP
from ..choosing.choice import rows_of
from ..choosing.plan import epsilon_within, held_out
from ..curator.release import public_count
from ..errors import BudgetExhausted, DPDescentError, InvalidParameter, UnsupportedSource, require_open_unit
from ..estimators.arguments import seed_of
from ..estimators.base import PrivateLinearModel
from ..estimators.fitting import require_fittable
from ..estimators.payment import charges_noted, paid_by
from ..estimators.reading import mixed_frame, sorted_classes, split_units
from ..ledger import ONE_ROW, Ledger, require_funds
from ..noise import Randomness
from ..relations import Relation
from ..statement import Charge, Origin, PrivacyStatement, charges_of, heading, html_page, name_of, public_fact, table
from ..tables import streamed
from .evaluating import evaluate, require_evaluable
from .measures import Measure
from .report import Evaluation
from .scoring import Scorer

_TRAINING, _HELD_OUT = "training part", "hold-out part"
_OPTIONS = {"threshold", "rate", "level"}


class Fitted(NamedTuple):
    """A fitted model, and what it is worth. The statements of both are that of the whole."""

    model: Any
    evaluation: Evaluation


def optimism(own: Ledger) -> float:
    """Return a bound on how much better, in mean accuracy, a model is on the rows that have trained it.

    Parameters
    ----------
    own : Ledger
        That of the fit: what counts is its whole budget.
    """
    twice = 2.0 if own.relation is Relation.ZERO_OUT else 1.0
    failures = twice * own.delta  # what the currency does not count
    if own.currency.name == "gdp":
        return min(1.0, 2 * float(ndtr(twice * math.sqrt(own.budget) / 2)) - 1 + failures)
    if own.currency.name == "zcdp":
        return min(1.0, twice * math.sqrt(own.budget / 2) + failures)
    return min(1.0, twice * (math.tanh(own.epsilon / 2) + failures))


def fit_and_evaluate(
    model: PrivateLinearModel,
    X: Any,
    y: Any,
    *,
    evaluate: float | None = None,
    holdout: float | None = None,
    unit: Any = None,
    **options: Any,
) -> Fitted:
    """Fit a private model and evaluate it, both under the (epsilon, delta) of the model.

    Parameters
    ----------
    model : estimator
        A private linear or additive model with its settings. Its ``epsilon`` and ``delta`` are the guarantee of both
        together, and its ``ledger``, if it has one, pays for both. A copy of it is fitted.
    X, y : array_like
        The table.
    evaluate : float, optional
        This share of the budget evaluates the model on the same rows: 0.1 is a good choice, and the default.
    holdout : float, optional
        This share of the rows is held out and evaluates the model, at no cost to the budget of the others.
    unit : array_like, optional
        Whose row each is, with ``evaluate``, as for ``fit``.
    **options
        Passed on to `dpdescent.evaluate`: ``threshold``, ``rate``, ``level``.

    Returns
    -------
    Fitted
        The model and the evaluation.

    Notes
    -----
    **Privacy** (epsilon, delta)-DP for one row, or one unit, under the model's ``adjacency``: fit and evaluation are
    charged to one ledger, or to the two parts of the rows, of which the more expensive one counts
    (`dpdescent.evaluation.one_budget`).

    Examples
    --------
    >>> from dpdescent import DPLogisticRegression, fit_and_evaluate, load_dataset
    >>> data = load_dataset("synthetic", n=10000)
    >>> model = DPLogisticRegression(0.5, 1e-6, bounds=data.bounds, classes=data.classes, random_state=0)
    >>> fitted, found = fit_and_evaluate(model, data.X, data.y, evaluate=0.1)
    >>> fitted.privacy_["epsilon"], 0.7 < found.accuracy.value < 0.9
    (0.5, True)
    """
    if not isinstance(model, PrivateLinearModel):
        raise InvalidParameter(f"a {type(model).__name__} is no private linear model: call fit, then evaluate")
    if (evaluate is not None) and (holdout is not None):
        raise InvalidParameter(
            "give evaluate=, a share of the budget, or holdout=, a share of the rows, and not both"
        )
    unknown = sorted({*options} - _OPTIONS)
    if unknown:
        raise InvalidParameter(
            f"an evaluation of a fit under its own budget takes {', '.join(sorted(_OPTIONS))}, and not {unknown[0]!r}"
        )
    account = model.ledger
    if account is not None and not isinstance(account, Ledger):
        raise InvalidParameter(
            f"ledger must be a Ledger, got a {type(account).__name__}: Ledger.open(path) opens one"
        )
    mixed = mixed_frame(model, X)
    found_out = mixed is not None  # the fit measures what the columns contain
    if found_out and not isinstance(mixed, pd.DataFrame):
        raise UnsupportedSource(
            "nothing is known of the columns of this table: fit it, and evaluate the model after it"
        )
    plain = GDP().with_failures() if found_out else GDP()
    whole = Ledger(
        model.epsilon,
        model.delta,
        currency=plain if account is None else account.currency,
        relation=model.adjacency,
        unit=ONE_ROW if account is None else account.unit,
    )
    task = _Task(model, whole, seed_of(model.random_state), options, found_out)
    if holdout is not None:
        if unit is not None or model.unit is not None:
            raise InvalidParameter("rows of one unit would be in both parts: use evaluate= in place of holdout=")
        return _on_other_rows(task, X, y, holdout)
    return _on_the_same_rows(task, X, y, unit, require_open_unit("evaluate", 0.1 if evaluate is None else evaluate))


def _not_yet(_: Any) -> Any:
    raise AssertionError("a model that is not fitted was asked for scores")


class _Task:
    """A model that is to be fitted and evaluated."""

    def __init__(
        self, model: PrivateLinearModel, whole: Ledger, seed: int | None, options: dict[str, Any], found_out: bool
    ) -> None:
        self.model, self.whole, self.options, self.found_out = model, whole, options, found_out
        self.randomness = Randomness(seed)

    def seed(self, what: str) -> int | None:
        """Return a seed of its own for each of the two, where there is one."""
        return None if self.randomness.seed is None else self.randomness.stream(what, 0).integer(31)

    def require_evaluable(self, amount: float, X: Any, y: Any, unit: Any) -> None:
        """Raise what the evaluation would raise, before the fit is charged."""
        model, whole, classes = self.model, self.whole, None
        if is_classifier(model):
            given = getattr(model, "classes", None)
            if given is None and self.found_out:
                given, y = (0, 1), np.zeros(len(y), dtype=np.intp)  # two classes are the fewest that a fit may find
            if given is None:
                raise InvalidParameter(
                    "classes are public and nobody pays for reading them from y: pass classes=(...)"
                )
            classes = tuple(sorted_classes(given).tolist())
            if len(classes) < 2:
                raise InvalidParameter("a classifier has two classes or more: pass all of them as classes=(...)")
        scale = "number" if classes is None else "logit" if hasattr(model, "predict_proba") else "score"
        scorer = Scorer(type(model).__name__, scale, classes, _not_yet, "", False)
        epsilon = epsilon_within(amount, whole.delta, whole.currency)
        kept = {"currency": whole.currency, "relation": str(whole.relation), "unit": whole.unit}
        own = Ledger(epsilon, whole.delta, **kept)  # type: ignore[arg-type]
        table = X, y, model.unit if unit is None else unit, model.rows_per_unit
        require_evaluable(scorer, own, table, **self.options)

    def fit(self, amount: float, ledger: Ledger, X: Any, y: Any, unit: Any) -> Any:
        """Return a copy of the model that is fitted for so much of the budget."""
        return self._copy(amount, ledger).fit(X, y, unit=unit)

    def require_fittable(self, amount: float, ledger: Ledger, X: Any, y: Any, unit: Any) -> None:
        """Raise what the fit would raise before it is charged."""
        self._copy(amount, ledger)._fit(X, y, unit, require_fittable)
        if self.model.ledger is not None:
            require_funds(self.model.ledger, ledger)

    def _copy(self, amount: float, ledger: Ledger) -> Any:
        epsilon = epsilon_within(amount, ledger.delta, ledger.currency)
        settings = self.model.get_params(deep=False) | {"epsilon": epsilon, "ledger": ledger}
        return type(self.model)(**(settings | {"random_state": self.seed("fit")}))

    def evaluate(self, fitted: Any, amount: float, ledger: Ledger | None, X: Any, y: Any, unit: Any) -> Evaluation:
        """Return the evaluation that so much of the budget pays for."""
        epsilon = epsilon_within(amount, self.whole.delta, self.whole.currency)
        given = dict(self.options) | {"adjacency": self.model.adjacency, "rows_per_unit": self.model.rows_per_unit}
        given |= {"unit": self.model.unit if unit is None else unit, "random_state": self.seed("evaluation")}
        return evaluate(fitted, X, y, epsilon=epsilon, delta=self.whole.delta, ledger=ledger, **given)

    def finished(
        self,
        fitted: Any,
        found: Evaluation,
        charges: tuple[Charge, ...],
        remarks: tuple[str, ...],
        rows: int | None = None,
    ) -> Fitted:
        """Return both with the statement of the whole; ``rows`` is their number in both parts."""
        inner, other = (PrivacyStatement.from_dict(each) for each in (fitted.privacy_, found.privacy))
        account = self.model.ledger
        stated = replace(
            inner,
            epsilon=self.whole.epsilon,
            delta=self.whole.delta,
            currency=self.whole.currency,
            charges=charges,
            released=(*inner.released, *other.released),
            assumed_public=tuple(
                public_fact("the number of rows", str(rows), Origin.RELATION)
                if rows is not None and name_of(each) == "the number of rows"
                else each
                for each in inner.assumed_public
            ),
            remarks=(*inner.remarks, *remarks),
            account=None if account is None else account.identity,
        ).to_dict()
        fitted.set_params(ledger=account, epsilon=self.model.epsilon)
        fitted.privacy_ = stated
        return Fitted(fitted, replace(found, privacy=stated))


def _on_the_same_rows(task: _Task, X: Any, y: Any, unit: Any, share: float) -> Fitted:
    """Fit and evaluate on all rows, one after the other, by one ledger."""
    own, model = _with_unit(task, X, unit), task.model
    task.require_evaluable(share * own.budget, X, y, unit)
    task.require_fittable((1 - share) * own.budget, own, X, y, unit)
    with paid_by(model.ledger, own, f"{type(model).__name__} and its evaluation"), charges_noted(own):
        fitted = task.fit((1 - share) * own.budget, own, X, y, unit)
        bound = optimism(Ledger(fitted.epsilon, own.delta, currency=own.currency, relation=str(own.relation)))
        found = task.evaluate(fitted, min(own.remaining, share * own.budget), own, X, y, unit)
    said = (
        f"evaluated with {share:.0%} of the budget on the rows that have trained it: its mean accuracy is at most "
        f"{bound:.2g} below the one that was measured",
    )
    return task.finished(fitted, found, charges_of(own.entries), said)


def _with_unit(task: _Task, X: Any, unit: Any) -> Ledger:
    """Return the ledger of the whole, for the unit that rows are grouped by."""
    protected = split_units(X, task.model.unit, unit)[2]
    whole = task.whole
    if whole.unit == protected:
        return whole
    if task.model.ledger is not None:
        raise InvalidParameter(f"the ledger protects {whole.unit} and this fit {protected}: open another ledger")
    relation = str(whole.relation)
    task.whole = Ledger(whole.epsilon, whole.delta, currency=whole.currency, relation=relation, unit=protected)
    return task.whole


def _on_other_rows(task: _Task, X: Any, y: Any, share: float) -> Fitted:
    """Fit on some rows and evaluate on the others, side by side."""
    table = X if hasattr(X, "shape") else np.asarray(X)
    if streamed(table, y) is not None:
        raise UnsupportedSource("a hold-out draws single rows, and this table is read block by block: pass arrays")
    own, model = task.whole, task.model
    count = int(table.shape[0])
    generator = np.random.default_rng(task.randomness.stream("hold-out rows", 0).integer(128))
    places = held_out(public_count(count), share, generator)  # how many of them are in a part is public
    mask = places[:count]
    scored = rows_of(table, mask), rows_of(y, mask)
    trained = rows_of(table, ~mask), rows_of(y, ~mask)
    task.require_evaluable(own.budget, *scored, None)
    task.require_fittable(own.budget, own, *trained, None)
    with paid_by(model.ledger, own, f"{type(model).__name__} and its evaluation"), charges_noted(own):
        fitted = task.fit(own.budget, own, *trained, None)
        judge = Ledger(own.epsilon, own.delta, currency=own.currency, relation=str(own.relation))
        # The account is settled with what the training part has spent, so that the other part may spend no more.
        amount = min(own.spent, judge.budget)
        found = task.evaluate(fitted, amount, judge, *scored, None)
    charges = (*charges_of(own.entries, _TRAINING), *charges_of(judge.entries, _HELD_OUT))
    said = (
        f"trained on {np.count_nonzero(~places)} rows, evaluated on {np.count_nonzero(places)} others; each row has "
        "paid in one part only",
    )
    return task.finished(fitted, found, charges, said, places.size)


@dataclass(frozen=True)
class Candidate:
    """What was found of one candidate: its evaluation, or why it was refused."""

    name: str
    #: The guarantee of its fit and evaluation together.
    epsilon: float
    delta: float
    accuracy: Measure | None = None
    auc: Measure | None = None
    error: str = ""  # why it was refused

    def __str__(self) -> str:
        known = [each for each in (self.accuracy, self.auc) if each is not None and each.value is not None]
        found = ", ".join(f"{each.name} {each.value:.4f} [{each.low:.4f}, {each.high:.4f}]" for each in known)
        return f"{self.name:<24} {found or self.error or 'not released'}"


def compare_privately(
    candidates: Mapping[str, PrivateLinearModel], X: Any, y: Any, ledger: Ledger, *, holdout: float = 0.2
) -> Iterator[Candidate]:
    """Yield what every candidate is worth, one after the other, all paid for by one ledger.

    Parameters
    ----------
    candidates : mapping from str to estimator
        Private linear classifiers by name, each with its own epsilon and delta, and without a ledger.
    X, y : array_like
        The table.
    ledger : Ledger
        Pays for all.
    holdout : float
        Share of the rows that evaluate a candidate.

    Raises
    ------
    BudgetExhausted
        The ledger cannot pay for all of them. Nothing was charged.

    Notes
    -----
    **Privacy** Everything that is yielded follows from answers that the ledger has paid for. A candidate that is
    refused by name is not charged, or its error says how much was: refusals follow from settings, public numbers and
    released answers, or from a malformed table.
    """
    for name, each in candidates.items():
        if each.ledger is not None:
            raise InvalidParameter(
                f"the candidate {name!r} has a ledger of its own: leave it out, one ledger pays for all"
            )
    relation, currency = str(ledger.relation), ledger.currency
    wanted = [Ledger(each.epsilon, each.delta, currency=currency, relation=relation) for each in candidates.values()]
    total = sum(each.budget for each in wanted)
    if total > ledger.remaining:
        raise BudgetExhausted(
            f"{len(wanted)} fits and evaluations cost {total / ledger.budget:.1%} of the ledger, of which "
            f"{ledger.remaining / ledger.budget:.1%} is left: compare fewer methods, or lower epsilon"
        )
    return _compared(candidates, X, y, ledger, holdout)


def _compared(
    candidates: Mapping[str, PrivateLinearModel], X: Any, y: Any, ledger: Ledger, holdout: float
) -> Iterator[Candidate]:
    for name, each in candidates.items():
        model = type(each)(**each.get_params(deep=False) | {"ledger": ledger})
        known = (name, each.epsilon, each.delta)
        try:
            _, found = fit_and_evaluate(model, X, y, holdout=holdout)
        except DPDescentError as refusal:
            said = "; ".join([str(refusal), *getattr(refusal, "__notes__", [])])
            yield Candidate(*known, error=f"{type(refusal).__name__}: {said}")
            continue
        yield Candidate(*known, found.accuracy, found.auc)


def page_of_comparison(found: list[Candidate], ledger: Ledger, data: str) -> str:
    """Return a page of what was found, all of which was paid for."""
    rows = []
    for each in found:
        measures = [_cell(each.accuracy), _cell(each.auc)]
        rows.append((each.name, f"{each.epsilon:g}", f"{each.delta:g}", *measures, each.error))
    title = f"A private comparison on {data}"
    spent = f"{ledger.spent_epsilon():.4g}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="guarantee">Every fit and every evaluation was paid for by one ledger, of which epsilon {spent} '
        f"at delta {ledger.delta:g} is spent, for {escape(ledger.unit)} under {escape(str(ledger.relation))}.</p>",
        heading("What was found", "found"),
        table(("method", "epsilon", "delta", "accuracy", "AUC", ""), rows, words=(5,)),
        '<p class="note">Each method was fitted to rows that were drawn at random and evaluated on the others. '
        "Intervals (95%) cover the noise of privacy in the evaluation and the draw of its rows. They do not cover "
        "what another fit would give.</p>",
    ]
    return html_page(title, parts)


def _cell(measure: Measure | None) -> str:
    if measure is None or measure.value is None:
        return "" if measure is None else "not released"
    return f"{measure.value:.4f} ({measure.low:.4f} to {measure.high:.4f})"
