"""Private additive models: a curve for every numeric column and a weight for every level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ..errors import InvalidParameter, require_positive_integer
from ..solvers import Facts
from .base import PrivateLinearModel
from .classifiers import DPLogisticRegression
from .curves import Curves, scaled_knots
from .regressors import DPLinearRegression
from .scaling import ColumnScaling
from .terms import Term, draw_terms, read_terms, write_terms

#: Effective rows, n mu, per column that curves add and per output, by the number of pieces.
_ROWS_PER_COLUMN = {16: 64, 8: 64, 4: 64, 2: 64, 1: 45}
_LARGEST_PIECES = 1024  # that can be asked for


@dataclass(eq=False, repr=False)
class AdditiveModel(PrivateLinearModel):
    """What additive models share: the expansion of numbers into curves, and the curves that were learnt.

    Parameters
    ----------
    pieces : int, optional
        Number of linear pieces of a curve from 0 to the farther bound, on each scale. By default the largest of 16,
        8, 4 and 2 for which there are 64 effective rows, n mu, per added column and output; else 1 if there are 45,
        or none.
    knots : mapping, optional
        Public knots of some columns, by name or position, in the unit of the column and between its bounds. An empty
        list keeps a column linear.
    """

    _: KW_ONLY
    pieces: int | None = None
    knots: Mapping[Any, Any] | None = None

    def _expansion(self, scaling: ColumnScaling, binary: NDArray[np.bool_] | None, rows: int, outputs: int) -> Curves:
        if self.adversary is not None:
            raise InvalidParameter(
                "adversary is for linear models and not for models with curves: leave it out, or use "
                "DPLogisticRegression"
            )
        if self.knots is not None and self.bounds is None:
            raise InvalidParameter(
                "knots need public bounds, and bounds=None has them measured: give both or neither"
            )
        kinds = (False,) * scaling.columns if binary is None else tuple(binary.tolist())
        names = getattr(self, "feature_names_in_", None)
        moving = ColumnScaling.with_gaps(self.bounds, scaling.columns, names)[1] | (self.tighten is True)
        knots = scaled_knots(self.knots, scaling, names, kinds, moving)
        numbers = [column for column, kind in enumerate(kinds) if not kind and column not in knots]
        if self.pieces is None:
            effective = self._effective_rows(rows) / outputs
            for pieces, needed in _ROWS_PER_COLUMN.items():
                curves = Curves.drawn(scaling, numbers, pieces, knots)
                if needed * (curves.columns - scaling.columns) <= effective:
                    return curves
            return Curves.drawn(scaling, numbers, 0, knots)
        none = isinstance(self.pieces, int) and self.pieces == 0
        pieces = 0 if none else require_positive_integer("pieces", self.pieces)
        if pieces > _LARGEST_PIECES:
            raise InvalidParameter(f"pieces must be at most {_LARGEST_PIECES}, got {pieces}")
        return Curves.drawn(scaling, numbers, pieces, knots)

    def _sets_units(self) -> bool:
        return self.knots is not None or super()._sets_units()

    def _effective_rows(self, rows: int) -> float:
        if self.delta == 0:
            return rows * self.epsilon / self.rows_per_unit
        return Facts(self.epsilon, self.delta, self.adjacency, rows, 1, self.rows_per_unit).promised_rows

    @property
    def terms_(self) -> tuple[Term, ...]:
        """The parts of the model, the most important one first: a score is the intercept plus an effect of each."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", [f"x{column}" for column in range(self.n_features_in_)])
        weights = np.atleast_2d(self.coef_).T
        assert isinstance(self._features, Curves), "the expansion of an additive model"
        return read_terms(self._features, [str(name) for name in names], self._binary, weights, self._noise_factor)

    def plot_terms(self) -> Any:
        """Return a matplotlib figure with a panel per term and a band of two standard deviations of noise.

        Raises
        ------
        MissingPackage
            matplotlib is not installed: ``pip install 'dpdescent[plots]'``.
        """
        return draw_terms(self.terms_, self._outputs(), self.privacy_)

    def terms_html(self, path: str | Path) -> None:
        """Write one page that shows every term; it loads nothing from elsewhere.

        Raises
        ------
        OutputNotWritable
            The file cannot be written there.
        """
        write_terms(path, self.terms_, self._outputs(), type(self).__name__, self.privacy_)

    def _outputs(self) -> tuple[str, ...]:
        """Return what the effects of a term are effects on."""
        classes = [str(each) for each in getattr(self, "classes_", ["the prediction"])]
        return (f"log-odds of {classes[1]}",) if len(classes) == 2 else tuple(classes)


@dataclass(eq=False, repr=False)
class DPAdditiveClassifier(AdditiveModel, DPLogisticRegression):
    """Private additive classification: logistic regression with a curve for every numeric column.

    A score is an intercept plus a curve of each numeric column plus a weight of each 0/1 column, so that the model
    can be read (`terms_`, `plot_terms`, `terms_html`). Numbers are expanded at public knots
    (`dpdescent.estimators.curves`); with little budget there are fewer knots, down to none. Cells outside the bounds
    are clipped, in predictions too.

    Parameters
    ----------
    pieces : int, optional
        Number of linear pieces of a curve from 0 to the farther bound, on each scale; 0 keeps all columns linear. By
        default the largest of 16, 8, 4 and 2 for which there are 64 effective rows, n mu, per added column and
        output; else 1 if there are 45, or none.
    knots : mapping, optional
        Public knots of some columns, by name or position, in the unit of the column and between its bounds. An empty
        list keeps a column linear.
    **parameters
        All others are those of `DPLogisticRegression`, without ``adversary``.

    Attributes
    ----------
    terms_ : tuple of Term
        The parts of the model as plain arrays, the most important one first.
    coef_ : ndarray of shape (1, m) or (K, m)
        Weights of the m columns of the expanded rows: the scaled columns first, then those of the curves.
    coef_noise_ : ndarray of the shape of ``coef_``, or None
        Approximate standard deviation of each weight due to the noise of privacy.
    privacy_ : dict
        The privacy statement. Further attributes are those of `DPLogisticRegression`.

    Notes
    -----
    **Privacy.** As for `DPLogisticRegression`: knots are made from public quantities, the expansion of a row depends
    on that row alone, and terms, their bands and their order are computed from released quantities.
    `dpdescent.check_pipeline` names the steps of a pipeline that learn from the rows before it.

    Pass ``binary_features``: a 0/1 column that is not declared is treated as a number, which adds noise.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(-1, 1, (20000, 2))
    >>> y = (np.abs(X[:, 0]) + generator.normal(0, 0.1, 20000) > 0.5).astype(int)
    >>> model = DPAdditiveClassifier(1.0, bounds=(-1, 1), classes=(0, 1), random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.85
    True
    >>> model.terms_[0].column
    'x0'
    """


@dataclass(eq=False, repr=False)
class DPAdditiveRegressor(AdditiveModel, DPLinearRegression):
    """Private additive regression: least squares with a curve for every numeric column.

    Parameters
    ----------
    pieces, knots
        As for `DPAdditiveClassifier`, where the terms and the expansion are described too.
    **parameters
        All others are those of `DPLinearRegression`, without ``adversary``.

    Notes
    -----
    **Privacy.** As for `DPAdditiveClassifier`. `dpdescent.check_pipeline` names the steps of a pipeline that learn
    from the rows before it.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(0, 10, (20000, 2))
    >>> y = np.sin(X[:, 0]) + generator.normal(0, 0.1, 20000)
    >>> model = DPAdditiveRegressor(1.0, bounds=(0, 10), random_state=0).fit(X, y)
    >>> model.score(X, np.sin(X[:, 0])) > 0.8
    True
    """
