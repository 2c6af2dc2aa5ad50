"""What all estimators share: validate, build a curator, call a solver, keep what it returns."""

from __future__ import annotations

import math
from abc import ABCMeta, abstractmethod
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import RegressorMixin

from ..curator import ArraySource, Curator, LatticeNoise, Source, Units, cached_blocks
from ..curator.watching import public_count
from ..errors import (
    InvalidParameter,
    require_finite,
    require_open_unit,
    require_positive,
    require_positive_integer,
)
from ..exact import FeatureGrid, on_threads, one_library_thread
from ..exact.grids import require_moderate
from ..ledger import Ledger, require_funds
from ..problems import L2, Adversary, LinearProblem, Loss, Penalty
from ..relations import Relation
from ..solvers import Facts, Method, Progress, SolverResult
from ..statement import PrivacyStatement
from .advice import advice
from .bounds import tightening_pays
from .curves import Curves
from .effects import columns_seen
from .float_noise import make_noise
from .grouping import split_units, without_column
from .measuring import Measurement, can_measure, require_measurable, seen_scaling
from .payment import charges_noted, open_ledger, paid_by
from .progress import listening, over_rows, require_listener
from .reading import compact, read_table, require_finite_cells
from .rehearsal import Bought, rehearse
from .scaling import ColumnScaling, binary_columns, declared_binary, middles
from .settings import known_method, make_settings, require_flag, require_robust, seed_of
from .streaming import FitSources, TargetColumn, check_all_rows, no_labels, streamed_table
from .trials import CountedEstimator, remarks_on_trials
from .vouched import bounds_facts, given_arguments, schema_facts, size_facts

__all__ = ["PrivateLinearModel"]

Floats = NDArray[np.float64]

_MANY = 0.35  # of the entries of an expanded table are not 0: products of dense rows take less time then


@dataclass(eq=False, repr=False)
class PrivateLinearModel(CountedEstimator, metaclass=ABCMeta):
    """What all private models share.

    The fields are the parameters. A subclass is a dataclass too and declares only what it adds, so the constructor
    has the explicit signature that scikit-learn reads, and stores every argument as it was given.
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    _: KW_ONLY
    method: str = "auto"
    adjacency: str = "zero-out"
    bounds: Any = None
    tighten: bool | None = None
    binary_features: Any = None
    alpha: float = 0.0
    tilt: float = 0.0
    adversary: Adversary | None = None
    fit_intercept: bool = True
    penalise_intercept: bool | None = None
    unit: str | None = None
    rows_per_unit: int = 1
    rows: int | None = None
    random_state: Any = None
    ledger: Ledger | None = None
    progress: bool | Progress = False
    noise: str = "exact"
    solver_options: Mapping[str, Any] | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags

    @abstractmethod
    def _loss_and_labels(self, y: Any) -> tuple[Loss, Floats, list[str]]:
        """Return the loss, the labels it understands and what had to be assumed public."""

    def _reweighted(self, loss: Loss, curator: Curator) -> Loss:
        """Return the loss after weights of its rows were bought, if the model asks for them."""
        return loss

    def _heaviest(self) -> float:
        """Return the largest weight of a row, by which the loss and the penalty are divided."""
        return 1.0

    def _expansion(
        self, scaling: ColumnScaling, binary: NDArray[np.bool_] | None, rows: int, outputs: int
    ) -> ColumnScaling | Curves:
        """Return how rows are coded, from public or released quantities: scaled, unless a model overrides this."""
        return scaling

    def _penalty(self, heaviest: float) -> Penalty:
        """Return the penalty beside a loss that was divided by the largest weight of a row."""
        paper = bool((self.solver_options or {}).get("paper"))
        return L2(self.alpha / heaviest, paper if self.penalise_intercept is None else self.penalise_intercept)

    def _deviations(self) -> Floats | None:
        """Return the standard deviation of each coefficient due to the noise of privacy, None if unknown."""
        return None if self._noise_factor is None else np.sqrt(np.sum(self._noise_factor**2, axis=1))

    def _require_no_weights(self, parameters: Mapping[str, Any]) -> None:
        for name in parameters:
            if name == "sample_weight":
                raise InvalidParameter(
                    "sample_weight is not supported: a weight multiplies what one row can change, so it would "
                    "change the guarantee from row to row; resample the table instead"
                )
            raise TypeError(f"fit() got an unexpected keyword argument {name!r}")

    def _sets_units(self) -> bool:
        """Return whether some parameter is in units of the bounds, which must then stay as they are."""
        return bool(self.alpha or self.adversary is not None or self.solver_options)

    def _tightens(self, own: Ledger, facts: Facts, columns: int) -> bool:
        """Return whether given bounds are tightened."""
        if self.tighten is not None:
            return self.tighten and columns > 0
        if self._sets_units() or own.currency.name in ("pure", "approximate"):
            return False
        return tightening_pays(facts.promised_rows, columns)

    def _measured_labels(
        self, y: Any, measurement: Measurement, private: bool
    ) -> tuple[Loss, Floats, list[str]] | None:
        """Buy the bounds of labels that nobody gave; return the loss, the labels and what a statement says of it."""
        return None

    def _bought(self) -> list[str]:
        """Return the parameters that nobody gave and that the budget of the fit has to pay for."""
        return ["bounds"] if self.bounds is None else ["tighter bounds"] if self.tighten else []

    def _read(self, X: Any) -> Any:
        """Return a table to predict as an array of numbers."""
        return read_table(self, without_column(X, self.unit), reset=False)

    def require_settings(self) -> tuple[Method, Any]:
        """Return the method and its settings, or raise for a parameter that no table could be fitted with."""
        method, settings = known_method(self.method), make_settings(self.method, self.solver_options)
        _require_guarantee(self.epsilon, self.delta, self.adjacency)
        require_robust(method, self.tilt, self.adversary)
        if require_finite("alpha", self.alpha) > 0:
            require_moderate("alpha", self.alpha)
        require_flag("fit_intercept", self.fit_intercept)
        for name in ("tighten", "penalise_intercept"):
            require_flag(name, getattr(self, name), optional=True)
        require_listener(self.progress)
        method.require_penalty(self._penalty(1.0))
        if self.ledger is not None and not isinstance(self.ledger, Ledger):
            raise InvalidParameter(
                f"ledger must be a Ledger, got a {type(self.ledger).__name__}: Ledger.open(path) opens a file"
            )
        return method, settings

    def _fit(self, X: Any, y: Any, unit: Any = None) -> SolverResult:
        with FitSources() as sources:
            return self._fitted(X, y, unit, sources)

    def _fitted(self, X: Any, y: Any, unit: Any, sources: FitSources) -> SolverResult:
        method, settings = self.require_settings()
        noise = make_noise(self.noise, seed_of(self.random_state))
        X, identifiers, protected = split_units(X, self.unit, unit)
        method.require_units(require_positive_integer("rows_per_unit", self.rows_per_unit))
        if identifiers is None and self.rows_per_unit != 1:
            raise InvalidParameter("rows_per_unit is about units of several rows: say by unit= whose rows they are")
        if identifiers is None and self.rows is not None:
            raise InvalidParameter("rows is about units, and the number of rows is public without them: leave it out")
        stream = streamed_table(self, X, y, method, identifiers)
        if stream is None:
            X, y = read_table(self, X, y, ensure_all_finite=False, y_numeric=isinstance(self, RegressorMixin))
            require_finite_cells(X, getattr(self, "feature_names_in_", None))
        else:
            X, y = stream, no_labels(self)
        names = getattr(self, "feature_names_in_", None)
        rows, units = public_count(X.shape[0]), None
        if identifiers is not None:
            kept, units = Units.kept(identifiers, self.rows_per_unit, X.shape[0])
            X, y = X[kept], y[kept]
            rows = X.shape[0] if self.rows is None and not method.private else units.divisor(self.rows)
        declared = declared_binary(self.binary_features, X.shape[1], names)
        scaling, gaps = ColumnScaling.with_gaps(self.bounds, X.shape[1], names=names)
        given = None if self.bounds is None else scaling
        loss, labels, assumed = self._loss_and_labels(y)
        method.require(loss, tilted=self.tilt > 0, adversarial=self.adversary is not None)

        def places() -> int:
            """Return what the number of rows never exceeds, for methods that rest on it, or else their number."""
            return units.places if units is not None and method.gathers else rows

        def penalty() -> Penalty:
            """Return the penalty that weighs as much beside all places as the given one beside the rows."""
            return self._penalty(self._heaviest() * (places() / rows))

        def problem_in(scaling: ColumnScaling, features: ColumnScaling | Curves) -> LinearProblem:
            known, added = binary_columns(declared, scaling), features.columns - scaling.columns
            return LinearProblem(
                loss,
                FeatureGrid(1.0, features.columns + bool(self.fit_intercept)),
                penalty(),
                bool(self.fit_intercept),
                self.tilt,
                self.adversary,
                (*known, *(False,) * added),
                (*middles(scaling, known), *(0.0,) * added),
            )

        # What is wrong with the problem is said before anything is charged, whatever the bounds will be.
        features = self._expansion(scaling, declared, rows, loss.outputs)
        problem = problem_in(scaling, features)
        size = int(np.prod(problem.shape))
        facts = Facts(self.epsilon, self.delta, self.adjacency, rows, size, self.rows_per_unit)
        own = open_ledger(self.method, method, settings, self.solver_options, facts, self.ledger, protected)
        binary = np.zeros(X.shape[1], dtype=np.bool_) if declared is None else declared
        tighten, gaps = False, gaps & ~binary
        bounded = self.bounds is not None and not (gaps.any() and (gaps | binary).all())
        sought = self.bounds is None or bool(gaps.any())
        if (given is None or gaps.any()) and self.adversary is not None:
            raise InvalidParameter("an adversary moves rows in units of their bounds: give bounds")
        several = units is not None and units.rows_per_unit > 1 and self.rows is None
        counting = several and method.private and can_measure(own, settings)
        if method.private:
            require_measurable(own, settings, [*(["bounds"] if gaps.any() else []), *self._bought()])
            if given is not None and not gaps.any():
                tighten = self._tightens(own, facts, int(np.count_nonzero(~binary)))
            unknown = gaps if gaps.any() else ~binary & (given is None or tighten)
            bought, widest = Bought.of(unknown, self._bought(), counting), problem
            if isinstance(features, Curves) and not tighten:  # whose number bounds decide: most, if these are wide
                wide = scaling.filled(ColumnScaling.with_gaps((-1.0, 1.0), X.shape[1])[0], unknown)
                widest = problem_in(wide, self._expansion(wide, declared, rows, loss.outputs))
            if bought.anything or self.ledger is not None:  # or else the method refuses before its own first charge
                rehearse(method, settings, widest, own, bought, places(), X.shape[0], units)
        elif given is None or gaps.any():
            given, gaps = scaling.filled(seen_scaling(X), gaps | (given is None)), np.zeros_like(gaps)
        if self.ledger is not None:
            require_funds(self.ledger, own)  # after all else that is wrong with the settings was said
        if stream is not None:
            # Bounds that were given are rarely made narrower: the rows that are read now can be kept then.
            complete = given is not None and not gaps.any() and "target_bounds" not in self._bought()
            blocks = sources.open(self, stream, features, problem.grid, keep_rows=complete)
            with listening(self.progress) as listener:
                check_all_rows(blocks, over_rows(listener))
        tried = remarks_on_trials(self, own, stacklevel=5) if method.private else ()
        with paid_by(self.ledger, own, f"{type(self).__name__}, method {self.method}"), charges_noted(own):
            with np.errstate(all="ignore"):  # a warning would speak of rows
                measurement = Measurement(own, noise, rows, units, sources.seals)
                counted: list[str] = []
                if counting:
                    measurement, counted = measurement.of_rows(X.shape[0])
                    rows = measurement.rows
                scaling, measured = measurement.of_columns(X, given, binary, tighten, gaps)
                targets = self._measured_labels(
                    y if stream is None else TargetColumn(stream), measurement, method.private
                )
                if targets is not None:
                    loss, labels = targets[:2]
                    measured += targets[2]
                features = self._expansion(scaling, declared, rows, loss.outputs)
                problem = problem_in(scaling, features)
                source: Source
                if stream is not None:
                    if not complete or scaling is not given:
                        blocks = sources.open(self, stream, features, problem.grid)
                    source = blocks
                else:
                    placed = _placed(X, features, problem.grid, bool(self.fit_intercept))
                    source = ArraySource(compact(placed) if method.passes else placed, labels, problem.grid)
                    del placed
            weighted = self._reweighted(loss, Curator(source, problem, own, rows, noise=noise, units=units))
            problem = replace(problem, loss=weighted, penalty=penalty())
            drawn = {"noise": noise, "batch_rate": settings.batch_rate}
            curator = Curator(source, problem, own, places(), units=units, **drawn)
            with one_library_thread(), listening(self.progress) as listener:
                if stream is not None:
                    blocks.listener = over_rows(listener)
                result: SolverResult = method.solve(curator, settings, listener)
        weights = result.weights
        bias = weights[-1] if self.fit_intercept else np.zeros(weights.shape[1:])
        self._features, self.bounds_ = features, (scaling.low, scaling.high)
        self._coefficients, self._bias = features.original_units(weights[: features.columns], np.asarray(bias))
        self._binary = tuple(binary.tolist())
        self._noise_factor: Floats | None = None
        self._constant_noise: Floats | None = None
        if result.noise_factor is not None:
            factor = result.noise_factor
            self._noise_factor, _ = features.original_units(factor[: features.columns], np.zeros(factor.shape[1]))
            self._constant_noise = factor[-1] if self.fit_intercept else None
        self._seen = None if result.column_evidence is None else columns_seen(result.column_evidence)
        self.n_iter_ = result.iterations
        schema = getattr(stream, "schema", None)
        sizes = size_facts(rows, None if units is None else units.count, self.rows, bool(counted))
        said: dict[str, Any] = {
            "model": type(self).__name__,
            "method": self.method,
            "released": (
                f"coefficients: {math.prod(self._coefficients.shape)} numbers, and the intercept",
                *(["the number of rows of all units, with noise"] if counted else []),
                *(["bounds of the columns"] if sought or tighten else []),
                *(["bounds of the target"] if targets is not None else []),
                *(["weights of the classes"] if weighted is not loss else []),
                *(["what the noise of privacy does to each coefficient"] if result.noise_factor is not None else []),
                *(["which columns are seen to vary"] if self._seen is not None else []),
                "the number of iterations",
            ),
            "assumed_public": (
                *([] if schema is None else schema_facts(schema)),
                *given_arguments(self, [*sizes, *bounds_facts(bounded, sought, tighten, method.private), *assumed]),
            ),
            "remarks": (*(advice(facts) if method.private else ()), *counted, *measured, *result.remarks, *tried),
        }
        if units is not None:
            said["rows_per_unit"] = units.rows_per_unit
            said["remarks"] = (
                f"at most {units.rows_per_unit} rows of {protected} were used",
                *([f"gradients of all rows of {protected} were clipped together"] if curator.clips_by_unit else []),
                *said["remarks"],
            )
        stated = _stated(own, noise, self.ledger, said) if method.private else _not_private(own, said)
        self.privacy_ = stated.to_dict()
        return result


def _stated(own: Ledger, noise: LatticeNoise, account: Ledger | None, said: Mapping[str, Any]) -> PrivacyStatement:
    """Return the statement of a fit that its own ledger has paid for."""
    paid = None if account is None else account.identity
    return PrivacyStatement.of_ledger(
        own, randomness=noise.description, arithmetic=noise.arithmetic, account=paid, **said
    )


def _not_private(own: Ledger, said: Mapping[str, Any]) -> PrivacyStatement:
    """Return what a statement says where there is no guarantee."""
    return PrivacyStatement.without_privacy(
        relation=str(own.relation),
        unit=own.unit,
        randomness="none: the rows are answered without noise",
        arithmetic="floating point",
        **said,
    )


def _require_guarantee(epsilon: float, delta: float, adjacency: str) -> None:
    """Refuse what no ledger accepts before the table is read."""
    require_positive("epsilon", epsilon)
    if require_finite("delta", delta) != 0:
        require_open_unit("delta", delta)
    Relation.parse(adjacency)


def _placed(X: Any, features: ColumnScaling | Curves, grid: FeatureGrid, constant: bool) -> Any:
    """Return the coded rows on the grid, with a constant column if there is an intercept.

    Dense rows that are only scaled go block by block, so that no second copy of the table is ever in memory.
    """
    scaling = features if isinstance(features, ColumnScaling) else features.scaling
    if sparse.issparse(X) or features.columns > scaling.columns:
        scaled = features.apply(X)
        if constant:
            scaled = sparse.hstack([scaled, sparse.csr_array(np.ones((X.shape[0], 1)))], format="csr")
        rows = grid.place(scaled)
        many = not sparse.issparse(X) and rows.nnz > _MANY * math.prod(rows.shape)
        return rows.toarray() if many else rows
    placed = np.empty((X.shape[0], grid.dimension))

    def place(rows: slice) -> None:
        block = placed[rows]
        scaling.apply(X[rows], out=block[:, : X.shape[1]])
        block[:, X.shape[1] :] = 1.0
        grid.place_in(block)

    on_threads(place, cached_blocks(*placed.shape))
    return placed
