"""A fit in five steps.

1. `validate` reads the table and checks it.
2. `plan` chooses method, settings, ledger and purchases, and refuses everything that can be refused.
3. `measure` buys what nobody gave: bounds, weights, the number of rows of units.
4. `solve` codes the rows and runs the method.
5. `state` keeps the coefficients, and writes the statement of everything that was released.

Nothing is charged in the first two steps, and nothing is read from the rows after the fourth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import RegressorMixin

from ..curator import ArraySource, BlockSource, Curator, LatticeNoise, Source, Units
from ..curator.release import public_count
from ..errors import InvalidParameter
from ..exact import one_library_thread
from ..ledger import Ledger, require_funds
from ..problems import LinearProblem
from ..solvers import Facts, Method, Settings, SolverResult
from ..statement import PrivacyStatement
from .arguments import (
    advice,
    bounds_facts,
    given_arguments,
    listening,
    over_rows,
    part_of,
    seed_of,
    size_facts,
    target_facts,
)
from .curves import Curves
from .effects import columns_seen
from .knowledge import Columns, Knowledge, Table, place
from .measuring import Measurement, can_measure, require_measurable, seen_scaling
from .payment import charges_noted, make_noise, open_ledger, paid_by, remarks_on_trials
from .purchases import ColumnBounds, Purchase, Rehearsal, RowsOfUnits, Shop, TargetBounds
from .reading import compact, mixed_frame, read_table, require_finite_cells, require_units, split_units
from .scaling import ColumnScaling
from .shrinking import shrink_curves
from .streaming import FitSources, RowCode, TargetColumn, check_all_rows, no_labels, streamed_table

if TYPE_CHECKING:
    from .frames import MeasuredFit


#: `fit`, or `require_fittable`.
Run = Callable[[Any, Any, Any, Any], Any]


def fit(model: Any, X: Any, y: Any, unit: Any = None) -> SolverResult:
    """Fit a model to a table, and return what its method returned."""
    if hasattr(model, "schema_"):
        del model.schema_
    with FitSources() as sources:
        planned, bought = _prepared(model, X, y, unit, sources)
        own = planned.own if bought is None else bought.own
        tried = remarks_on_trials(model, own, stacklevel=5) if planned.method.private else ()
        label = f"{type(model).__name__}, method {model.method}"
        with paid_by(model.ledger, own, label), charges_noted(own):
            planned = replace(planned if bought is None else _planned_after(bought, planned, sources), tried=tried)
            known, rows = measure(planned, sources)
            solved = solve(planned, known, rows)
        state(planned, known, rows, solved)
        if bought is not None:
            bought.keep(planned.model)
        return solved.result


def require_fittable(model: Any, X: Any, y: Any, unit: Any = None) -> None:
    """Raise what a fit would raise before it is charged. Nothing is charged, and no fit is counted."""
    with FitSources() as sources:
        _prepared(model, X, y, unit, sources)


def _prepared(model: Any, X: Any, y: Any, unit: Any, sources: FitSources) -> tuple[Plan, MeasuredFit | None]:
    """Return what a fit will do. Where columns are measured first, that is planned on a table of zeros."""
    frame, (method, settings) = mixed_frame(model, X), model.require_settings()
    noise = make_noise(model.noise, seed_of(model.random_state))
    if frame is None:
        return plan(model, method, settings, noise, validate(model, method, X, y, unit), sources), None
    from .frames import MeasuredFit

    bought = MeasuredFit(model, method, settings, noise, frame, y, unit)
    rehearsing, zeros = bought.rehearsal()
    rehearsed = plan(rehearsing, method, settings, noise, zeros, sources)
    require_measurable(rehearsed.own, settings, ("a schema",))
    return rehearsed, bought


def _planned_after(bought: MeasuredFit, rehearsed: Plan, sources: FitSources) -> Plan:
    """Buy what the columns of a table contain with a part of the budget, and plan the fit of the coded table."""
    inner, X, y = bought.buy()
    method = inner.require_settings()[0]  # without intervals, if more than two classes were found
    table = replace(validate(inner, method, X, y, bought.unit), protected=bought.protected)
    planned = plan(inner, method, rehearsed.settings, bought.noise, table, sources, bought.own)
    told = planned.known.learnt("the types, levels and bounds of the columns", bought.remarks())
    return replace(planned, known=told)


def validate(model: Any, method: Method, X: Any, y: Any, unit: Any) -> Table:
    """Read a table, and raise what is wrong with it. Nothing is charged."""
    X, identifiers, protected = split_units(X, model.unit, unit)
    require_units(model, method, identifiers is not None)
    stream = streamed_table(model, X, y, method, identifiers)
    if stream is None:
        X, y = read_table(model, X, y, ensure_all_finite=False, y_numeric=isinstance(model, RegressorMixin))
        require_finite_cells(X, getattr(model, "feature_names_in_", None))
    else:
        X, y = stream, no_labels(model)
    names = getattr(model, "feature_names_in_", None)
    if identifiers is None:
        return Table(X, y, stream, None, names, protected, public_count(X.shape[0]))
    kept, units = Units.kept(identifiers, model.rows_per_unit, X.shape[0])
    X, y = X[kept], y[kept]
    rows = X.shape[0] if model.rows is None and not method.private else units.divisor(model.rows)
    return Table(X, y, stream, units, names, protected, rows)


@dataclass(frozen=True)
class Plan:
    """What a fit is about to do, before anything is charged."""

    #: The estimator, its method and settings, where noise comes from, and the table.
    model: Any
    method: Method
    settings: Settings
    noise: LatticeNoise
    table: Table
    facts: Facts  # what is public before the run
    own: Ledger  # the ledger of this fit
    known: Knowledge  # what is public of the table
    purchases: Sequence[Purchase] = ()  # what is bought before the method begins, in order
    #: What the labels made public, and what is said of other fits of the same estimator.
    assumed: Sequence[str] = ()
    tried: Sequence[str] = ()
    blocks: BlockSource | None = None  # the coded rows of a table that is read block by block

    @property
    def tightened(self) -> bool:
        """Whether given bounds are made narrower."""
        return any(isinstance(each, ColumnBounds) and each.tighten for each in self.purchases)

    @property
    def complete(self) -> bool:
        """Whether the coding of rows is known before anything is bought, unless bounds get narrower."""
        sought = any(isinstance(each, TargetBounds) and not each.tighten for each in self.purchases)
        return not self.known.columns.sought and not sought


def plan(
    model: Any,
    method: Method,
    settings: Settings,
    noise: LatticeNoise,
    table: Table,
    sources: FitSources,
    own: Ledger | None = None,
) -> Plan:
    """Return what a fit will do, or raise what is wrong with it. Nothing is charged.

    It opens the ledger of the fit, unless there is one that has paid for a schema already.
    """
    columns = Columns.of(model, table)
    loss, labels, assumed = model._loss_and_labels(table.y)
    method.require(loss, tilted=model.tilt > 0, adversarial=model.adversary is not None)
    known = Knowledge(model, method, columns, table.units, table.rows, columns.scaling, loss, labels)
    # What is wrong with the problem is said before anything is charged, whatever the bounds will be.
    features = known.features()
    problem = known.problem(features)
    size = int(np.prod(problem.shape))
    facts = Facts(model.epsilon, model.delta, model.adjacency, table.rows, size, model.rows_per_unit)
    own = own or open_ledger(
        model.method, method, settings, model.solver_options, facts, model.ledger, table.protected
    )
    if columns.sought and model.adversary is not None:
        raise InvalidParameter("an adversary moves rows in units of their bounds: give bounds")
    planned = Plan(model, method, settings, noise, table, facts, own, known, assumed=assumed)
    if method.private:
        planned = replace(planned, purchases=_purchases(planned))
        _rehearse(planned, features, problem)
    else:
        if columns.sought:
            seen = columns.scaling.filled(seen_scaling(table.X), columns.gaps | (not columns.given))
            known = known.learnt("bounds of the columns", scaling=seen)
        planned = replace(planned, known=known, purchases=model._purchases(lambda: False))
    if model.ledger is not None:
        require_funds(model.ledger, own)  # after all else that is wrong with the settings was said
    if table.stream is not None:
        # Bounds that were given are rarely made narrower: the rows that are read now can be kept then.
        blocks = sources.open(model, table.stream, features, problem.grid, keep_rows=planned.complete)
        with listening(model.progress) as listener:
            check_all_rows(blocks, over_rows(listener))
        planned = replace(planned, blocks=blocks)
    return planned


def _purchases(planned: Plan) -> list[Purchase]:
    """Return what a private fit buys before its method begins."""
    model, columns, found = planned.model, planned.known.columns, list[Purchase]()
    units = planned.table.units
    if units is not None and units.rows_per_unit > 1 and model.rows is None:
        found += [RowsOfUnits()] if can_measure(planned.own, planned.settings) else []
    numeric = int(np.count_nonzero(~columns.binary))
    tighten = not columns.sought and model._tightens(planned.own, planned.facts, numeric)
    if columns.sought or tighten:
        count = int(np.count_nonzero(columns.unknown(tighten)))
        found.append(ColumnBounds(count, tighten, asked="tighter bounds" if model.tighten else None))
    found += model._purchases(partial(model._tightens, planned.own, planned.facts))
    require_measurable(planned.own, planned.settings, [name for each in found if (name := each.parameter())])
    return found


def _rehearse(planned: Plan, features: ColumnScaling | Curves, problem: LinearProblem) -> None:
    """Raise what buying, and running the method after that, would raise before rows are read."""
    known, purchases = planned.known, planned.purchases
    if isinstance(features, Curves) and not planned.tightened:  # whose number bounds decide: most, if these are wide
        widest = ColumnScaling.with_gaps((-1.0, 1.0), known.scaling.columns)[0]
        unknown = known.columns.unknown(tighten=False)
        problem = known.problem(known.features(known.scaling.filled(widest, unknown)))
    rehearsal = Rehearsal(problem, planned.own, known.places, planned.table.X.shape[0], known.units)
    for purchase in purchases:
        purchase.rehearse(rehearsal)
    rehearsal.solve(planned.method, planned.settings)


class _Rows:
    """The rows of a fit as a source, coded when first asked for, by what is known then."""

    def __init__(self, planned: Plan, sources: FitSources) -> None:
        self._planned, self._sources = planned, sources
        self._source: Source | None = None
        self.features: ColumnScaling | Curves
        self.problem: LinearProblem

    def source(self, known: Knowledge) -> Source:
        """Return the source of the rows, coded."""
        if self._source is None:
            self.features = known.features()
            self.problem = known.problem(self.features)
            self._source = self._coded(known)
        return self._source

    def _coded(self, known: Knowledge) -> Source:
        planned, model, grid = self._planned, known.model, self.problem.grid
        if planned.table.stream is not None:
            same = known.scaling is planned.known.scaling and known.labels is planned.known.labels
            kept = planned.complete and same
            stream = planned.table.stream
            blocks = planned.blocks if kept else self._sources.open(model, stream, self.features, grid)
            assert blocks is not None, "a streamed table was opened when it was checked"
            return blocks
        placed = place(planned.table.X, self.features, grid, bool(model.fit_intercept))
        return ArraySource(compact(placed) if planned.method.rereads else placed, known.labels, grid)

    def as_levels(self, code: RowCode) -> Source:
        """Return the source of the rows of a stream as bytes, of which ``code`` says what they are."""
        stream = self._planned.table.stream
        assert stream is not None, "rows in memory have levels already"
        return self._sources.open_levels(self._planned.model, stream, code)

    def curator(self, known: Knowledge) -> Curator:
        """Return a curator of these rows for a purchase."""
        source, own, noise = self.source(known), self._planned.own, self._planned.noise
        return Curator(source, self.problem, own, known.rows, noise=noise, units=known.units)


def measure(planned: Plan, sources: FitSources) -> tuple[Knowledge, _Rows]:
    """Buy what is planned, and return what is known then, with the rows."""
    known, table, rows = planned.known, planned.table, _Rows(planned, sources)

    def measurement(known: Knowledge) -> Measurement:
        return Measurement(planned.own, planned.noise, known.rows, known.units, sources.seals)

    shop = Shop(table.X, table.y if table.stream is None else TargetColumn(table.stream), measurement, rows.curator)
    with np.errstate(all="ignore"):  # a warning would speak of rows
        for purchase in planned.purchases:
            known = purchase.buy(known, shop)
        rows.source(known)
    return known, rows


@dataclass(frozen=True)
class Solved:
    """What a method returned, whether rows of a unit were clipped together, and what was released after it."""

    result: SolverResult
    clips_by_unit: bool
    further: Sequence[str] = ()


def solve(planned: Plan, known: Knowledge, rows: _Rows) -> Solved:
    """Run the method on the coded rows."""
    source, problem = rows.source(known), replace(rows.problem, loss=known.loss, penalty=known.penalty)
    drawn: dict[str, Any] = {"noise": planned.noise, "batch_rate": planned.settings.batch_rate, "units": known.units}
    kept = planned.model._kept_back(planned.own, known)
    curator = Curator(source, problem, planned.own, known.places, **drawn)
    with one_library_thread(), listening(planned.model.progress) as listener:
        if isinstance(source, BlockSource):
            source.listener = over_rows(listener)
        share = 1 - kept / curator.budget
        with curator.setting_aside(kept):
            result = planned.method.solve(curator, planned.settings, part_of(listener, 0.0, share))
        result, further = planned.model._buy_further(planned, known, rows, result, part_of(listener, share, 1.0))
    return Solved(result, curator.clips_by_unit, further)


def state(planned: Plan, known: Knowledge, rows: _Rows, solved: Solved) -> None:
    """Keep the coefficients in the caller's units, and the statement."""
    model, result, features = planned.model, solved.result, rows.features
    weights, factor = result.weights, result.noise_factor
    if isinstance(features, Curves) and result.sandwich is None:  # intervals are around what was estimated
        weights, factor = shrink_curves(features, weights, factor)
    bias = weights[-1] if model.fit_intercept else np.zeros(weights.shape[1:])
    model._features, model.bounds_ = features, (known.scaling.low, known.scaling.high)
    model._coefficients, model._bias = features.original_units(weights[: features.columns], np.asarray(bias))
    model._binary = tuple(known.columns.binary.tolist())
    noise = constant = None
    if factor is not None:
        noise, _ = features.original_units(factor[: features.columns], np.zeros(factor.shape[1]))
        constant = factor[-1] if model.fit_intercept else None
    model._keep_noise(noise, constant)
    model._sandwich, model._levels = result.sandwich, rows.problem.levels
    model._influence = None
    if result.sandwich is not None:
        influence = result.sandwich.influence
        model._influence = np.vstack(features.original_units(influence[: features.columns], influence[-1]))
    model._seen = None if result.column_evidence is None else columns_seen(result.column_evidence)
    model.n_iter_ = result.iterations
    model.privacy_ = _statement(planned, known, solved).to_dict()


def _statement(planned: Plan, known: Knowledge, solved: Solved) -> PrivacyStatement:
    """Return the statement of a fit."""
    model, own, units, result = planned.model, planned.own, known.units, solved.result
    said: dict[str, Any] = {
        "model": type(model).__name__,
        "method": model.method,
        "released": (
            f"coefficients: {math.prod(model._coefficients.shape)} numbers, and the intercept",
            *known.released,
            *solved.further,
            *(["what the noise of privacy does to each coefficient"] if result.noise_factor is not None else []),
            *(["standard errors of all coefficients and their covariance"] if result.sandwich is not None else []),
            *(["which columns are seen to vary"] if model._seen is not None else []),
            "the number of iterations",
        ),
        "assumed_public": _assumed(planned, known),
        "remarks": _remarks(planned, known, solved),
    }
    if units is not None:
        said["rows_per_unit"] = units.rows_per_unit
    if planned.method.private:
        paid = None if model.ledger is None else model.ledger.identity
        noise = planned.noise
        return PrivacyStatement.of_ledger(
            own, randomness=noise.description, arithmetic=noise.arithmetic, account=paid, **said
        )
    return PrivacyStatement.without_privacy(
        relation=str(own.relation),
        unit=own.unit,
        randomness="none: the rows are answered without noise",
        arithmetic="floating point",
        **said,
    )


def _assumed(planned: Plan, known: Knowledge) -> list[str]:
    """Return what is public, and where it came from."""
    model, columns, units = planned.model, known.columns, known.units
    bought = hasattr(model, "_coded_names")  # the schema, by this fit
    schema = None if bought else getattr(planned.table.stream, "schema", None)
    counted = any(isinstance(each, RowsOfUnits) for each in planned.purchases)
    sizes = size_facts(known.rows, None if units is None else units.count, model.rows, counted)
    bounds = bounds_facts(columns.bounded, columns.sought, planned.tightened, planned.method.private)
    target = target_facts(any(isinstance(each, TargetBounds) and each.tighten for each in planned.purchases))
    told = given_arguments(model, [*sizes, *bounds, *planned.assumed, *target])
    return [*([] if schema is None else schema.facts()), *told]


def _remarks(planned: Plan, known: Knowledge, solved: Solved) -> list[str]:
    """Return what a reader should know of the guarantee, the units, the purchases and the run."""
    units, protected = known.units, planned.table.protected
    found = [] if units is None else [f"at most {units.rows_per_unit} rows of {protected} were used"]
    if units is not None and solved.clips_by_unit:
        found.append(f"gradients of all rows of {protected} were clipped together")
    found += advice(planned.facts) if planned.method.private else []
    return [*found, *known.remarks, *solved.result.remarks, *planned.tried]
