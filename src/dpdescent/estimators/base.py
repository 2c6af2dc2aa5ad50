"""What all estimators share: validate, build a curator, call a solver, keep what it returns."""

from __future__ import annotations

import os
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from ..arrays import Floats
from ..errors import InvalidParameter, NotInferred, require_finite, require_open_unit, require_positive
from ..exact import require_moderate
from ..ledger import Ledger
from ..problems import L2, Adversary, Loss, Penalty
from ..relations import Relation
from ..solvers import Facts, Method, Progress, SolverResult, inferring_method
from ..tables.bounds import tightening_of_target_pays, tightening_pays
from .arguments import known_method, make_settings, require_flag, require_listener, require_robust
from .curves import Curves
from .fitting import Run, fit
from .payment import CountedEstimator
from .purchases import Purchase
from .reading import read_table, without_column
from .scaling import ColumnScaling

if TYPE_CHECKING:
    from .intervals import Intervals, Reference, Summary


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
    inference: bool = False
    solver_options: Mapping[str, Any] | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags

    @abstractmethod
    def _loss_and_labels(self, y: Any) -> tuple[Loss, Floats, list[str]]:
        """Return the loss, the labels it understands and what had to be assumed public."""

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

    def _keep_noise(self, factor: Floats | None, constant: Floats | None) -> None:
        """Keep what the noise of privacy does to the coefficients and to the intercept, where it is known."""
        self._noise_factor, self._constant_noise = factor, constant

    def _deviations(self) -> Floats | None:
        """Return the standard deviation of each coefficient due to the noise of privacy, None if unknown."""
        return None if self._noise_factor is None else np.sqrt(np.sum(self._noise_factor**2, axis=1))

    def _coefficient_unit(self) -> float:
        """Return what a coefficient of 1 means in the unit of ``coef_``."""
        return 1.0

    def conf_int(self, level: float = 0.95, *, simultaneous: bool = False, reference: Reference = None) -> Any:
        """Return confidence intervals of the effects, of sampling and privacy together, as a pandas table.

        Parameters
        ----------
        level : float
            The probability with which an interval covers the effect in the population.
        simultaneous : bool
            Whether all of them cover together with that probability, rather than each by itself.
        reference : mapping, optional
            For columns of levels, by name, the level with which the others are compared. By default it is the mean
            of the levels. The effect of a number is its coefficient.

        Returns
        -------
        DataFrame
            With columns "low" and "high", and a row per effect. What noise hides has infinite ends.

        Raises
        ------
        NotInferred
            The model was fitted without ``inference=True``.
        """
        return self._inferred().effects(reference).conf_int(level, simultaneous)

    def summary(self, level: float = 0.95, *, reference: Reference = None) -> Summary:
        """Return a table of the effects with their standard errors, intervals and p-values.

        Standard errors are those of sampling, of privacy, and of both together. Parameters and errors are those of
        `conf_int`. The table prints as text, shows itself in a notebook, and `Summary.to_frame` has its numbers.
        """
        return (
            self._inferred().effects(reference).summary(level, f"{type(self).__name__}: effects on {self._scored()}")
        )

    def score_differences(self, X: Any, other: Any, level: float = 0.95) -> Summary:
        """Return how the score of each row of ``X`` differs from that of the same row of ``other``, with intervals.

        Scores are log-odds of the second class, the target of a regression, or the logarithm of a mean count. Costs
        no privacy: only released quantities are used. Parameters and errors are those of `conf_int`.
        """
        inferred = self._inferred()
        rows, others = self._read(X), self._read(other)
        return inferred.differences(rows, others).summary(
            level, f"{type(self).__name__}: differences of {self._scored()}"
        )

    def _inferred(self) -> Intervals:
        check_is_fitted(self)
        if self._sandwich is None:
            raise NotInferred(
                "this model was fitted without what intervals need: fit it with inference=True, which buys that "
                "within the same budget"
            )
        from .intervals import Intervals

        return Intervals.of_model(self)

    def _scored(self) -> str:
        """Return what the scores of the model are, in words."""
        return "the score"

    def _require_no_weights(self, parameters: Mapping[str, Any]) -> None:
        for name in parameters:
            if name == "sample_weight":
                raise InvalidParameter(
                    "sample_weight is not supported: a weight multiplies what one row can change, so it would "
                    "change the guarantee from row to row; resample the table instead"
                )
            if name in ("evaluate", "holdout"):
                raise TypeError(f"a fit has no {name}=: call dpdescent.fit_and_evaluate(model, X, y, {name}=...)")
            raise TypeError(f"fit() got an unexpected keyword argument {name!r}")

    def _sets_units(self) -> bool:
        """Return whether some parameter is in units of the bounds, which must then stay as they are."""
        return bool(self.alpha or self.adversary is not None or self.solver_options)

    def _tightens(self, own: Ledger, facts: Facts, columns: int | None = None) -> bool:
        """Return whether given bounds of so many columns, or those of a target, are tightened."""
        if self.tighten is not None or self.inference:  # narrower bounds would change what is estimated
            return bool(self.tighten) and columns != 0
        if self._sets_units() or own.currency.name in ("pure", "approximate"):
            return False
        if columns is None:
            return tightening_of_target_pays(facts.promised_rows)
        return tightening_pays(facts.promised_rows, columns)

    def _purchases(self, tightens: Callable[[], bool]) -> list[Purchase]:
        """Return what the budget of the fit has to pay for, beside bounds of columns, because nobody gave it.

        ``tightens`` tells whether given bounds of a target are made narrower.
        """
        return []

    def _kept_back(self, own: Ledger, known: Any) -> float:
        """Return what of the budget the method leaves for what comes after it, in units of the currency."""
        return 0.0

    def _buy_further(
        self, planned: Any, known: Any, rows: Any, result: SolverResult, listener: Any
    ) -> tuple[SolverResult, Sequence[str]]:
        """Learn more from the rows with what the method has left; return its result, and what was released then."""
        return result, ()

    def _read(self, X: Any) -> Any:
        """Return a table to predict as an array of numbers, by the schema that a fit has measured if there is one."""
        if hasattr(self, "schema_"):
            from ..tables import as_frame
            from .frames import coded_cells

            frame = as_frame(X)
            if frame is not None:
                return coded_cells(self.schema_, frame, len(frame))[0]
        read = read_table(self, without_column(X, self.unit), reset=False)
        packed = getattr(self, "_file_bounds", None)  # of a model that was fitted to an NPZ file
        if packed is None:
            return read
        from ..tables import scale_columns

        return scale_columns(read.toarray() if sparse.issparse(read) else read, *packed)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model with its privacy statement to one JSON file, whole or not at all.

        `dpdescent.load` reads it, and so do ``dpdescent predict``, ``evaluate``, ``explain``, ``verify`` and
        ``release``. The file holds no code, no seed and no ledger.

        Raises
        ------
        UnsupportedModel
            The model has a part that plain data cannot hold, such as a loss of your own.
        OutputNotWritable
            The file cannot be written there.
        """
        from .saved_models import save_model

        save_model(self, path)

    def to_sklearn(self) -> Any:
        """Return the fitted model as a pipeline of scikit-learn, which predicts without this library.

        Its steps clip and scale every cell, expand curves, and apply a linear model of scikit-learn; predictions and
        probabilities agree with those of this model to about 1e-9. It can be kept by joblib and skops, and converted
        to ONNX. It takes dense arrays in the order of the columns.

        Raises
        ------
        UnsupportedModel
            The model has trees, or codes a table of text by its schema, which `to_sql` can do.

        Examples
        --------
        >>> from dpdescent import DPLogisticRegression, load_dataset
        >>> data = load_dataset("synthetic", n=2000)
        >>> model = DPLogisticRegression(bounds=data.bounds, classes=data.classes).fit(data.X, data.y)
        >>> plain = model.to_sklearn()
        >>> bool(abs(plain.predict_proba(data.X) - model.predict_proba(data.X)).max() < 1e-9)
        True
        """
        from .exports import to_sklearn

        return to_sklearn(self)

    def to_sql(
        self, output: str | None = None, *, of: Any = None, columns: Sequence[str] | None = None, quote: str = '"'
    ) -> str:
        """Return one expression of SQL that scores a row of a table, clipping cells as predictions do.

        Parameters
        ----------
        output : {"probability", "score", "prediction"}, optional
            The probability of a class, the linear score, or the class, number or count that is predicted. By default
            the probability of a logistic model, the score of a support vector machine, and the prediction of others.
        of : optional
            The class of the probability; by default the second of two.
        columns : sequence of str, optional
            The names of the columns in the table, where the model was fitted to an array.
        quote : {'"', "`", "[]"}
            What the database puts around names.

        Returns
        -------
        str
            With CASE, arithmetic and EXP alone. A missing cell gives NULL, unless the schema of the model codes it. A
            level is compared as it is written, so text must be stored as the model has seen it.

        Raises
        ------
        UnsupportedModel
            The model has trees, dates or hashed text, which SQL does not read alike everywhere.

        Examples
        --------
        >>> import numpy as np
        >>> from dpdescent import DPLinearRegression
        >>> X = np.random.default_rng(0).uniform(0, 1, (5000, 1))
        >>> model = DPLinearRegression(bounds=(0, 1), target_bounds=(0, 1), random_state=0).fit(X, X[:, 0])
        >>> model.to_sql("score", columns=["age"]).count('"age"')
        4
        """
        from .exports import to_sql

        return to_sql(self, output, of, columns, quote)

    def require_settings(self) -> tuple[Method, Any]:
        """Return the method and its settings, or raise for a parameter that no table could be fitted with."""
        method, settings = known_method(self.method), make_settings(self.method, self.solver_options)
        require_flag("inference", self.inference)
        if self.inference:
            method = inferring_method(self.method)
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

    def _fit(self, X: Any, y: Any, unit: Any = None, run: Run = fit) -> Any:
        """Run `fitting.fit`, or `fitting.require_fittable`, after what an estimator sets and refuses beforehand."""
        return run(self, X, y, unit)


def _require_guarantee(epsilon: float, delta: float, adjacency: str) -> None:
    """Refuse what no ledger accepts before the table is read."""
    require_positive("epsilon", epsilon)
    if require_finite("delta", delta) != 0:
        require_open_unit("delta", delta)
    Relation.parse(adjacency)
