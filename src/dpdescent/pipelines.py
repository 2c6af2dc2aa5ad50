"""What comes before a private model: which steps of a pipeline learn from the rows, unpaid.

A private model charges its ledger for what it reads. A step before it that computes a mean, a set of levels or a
component from the same rows is charged nowhere, and whatever it has learnt reaches the model, the predictions and
whoever is given the pipeline. The estimator cannot see the steps before it; `check_pipeline` can.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn import preprocessing
from sklearn.base import TransformerMixin
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer

from .display import printable
from .errors import InvalidParameter
from .estimators.payment import CountedEstimator
from .features import ImageEnergies, ImageScattering
from .tables import BoundedEncoder

_SCALING = "no step, as private models scale by their bounds, given or measured; or BoundedEncoder(bounds=...)"
_LEVELS = "BoundedEncoder(levels=...) or hashed=..., or OneHotEncoder(categories=[...]), with public levels"
_FILLING = (
    'BoundedEncoder(missing="midpoint" or "level"), or SimpleImputer(strategy="constant", fill_value=..., '
    "keep_empty_features=True), with a public constant"
)
_CHOOSING = 'a ColumnTransformer with "passthrough" for columns that are chosen from public knowledge'
_TURNING = "no step, a random projection, or FrozenEstimator(...) around one that was fitted to public rows"
_BINNING = "DPAdditiveClassifier or DPAdditiveRegressor, or SplineTransformer(knots=array) with public knots"
_WORDS = "HashingVectorizer, or vocabulary=... of public words with use_idf=False"
_OTHERWISE = "a FunctionTransformer with public constants, or FrozenEstimator(...) around one fitted to public rows"
_MODELS = "a private model of dpdescent, such as DPLogisticRegression or DPLinearRegression"

#: What transformers of scikit-learn learn, and what to use instead.
_LEARNERS: dict[str, tuple[str, str]] = {
    "StandardScaler": ("the mean and the variance of every column", _SCALING),
    "MinMaxScaler": ("the smallest and the largest cell of every column", _SCALING),
    "MaxAbsScaler": ("the largest cell of every column", _SCALING),
    "RobustScaler": ("quantiles of every column", _SCALING),
    "QuantileTransformer": ("quantiles of every column", _SCALING),
    "PowerTransformer": ("an exponent, the mean and the variance of every column", _SCALING),
    "OneHotEncoder": ("the levels that occur in every column", _LEVELS),
    "OrdinalEncoder": ("the levels that occur in every column", _LEVELS),
    "LabelEncoder": ("the labels that occur", "classes=... of the private model"),
    "LabelBinarizer": ("the labels that occur", "classes=... of the private model"),
    "MultiLabelBinarizer": ("the labels that occur", _LEVELS),
    "TargetEncoder": ("the mean of the target at every level", _LEVELS),
    "SimpleImputer": ("a mean, a median or the most frequent cell of every column", _FILLING),
    "KNNImputer": ("all rows", _FILLING),
    "IterativeImputer": ("a model of every column", _FILLING),
    "MissingIndicator": ("which columns have missing cells", 'MissingIndicator(features="all")'),
    "SelectorMixin": ("which columns it keeps", _CHOOSING),
    "PCA": ("means and principal components", _TURNING),
    "IncrementalPCA": ("means and principal components", _TURNING),
    "KernelPCA": ("rows, and components of them", _TURNING),
    "TruncatedSVD": ("components", _TURNING),
    "FastICA": ("components", _TURNING),
    "NMF": ("components", _TURNING),
    "FactorAnalysis": ("components", _TURNING),
    "LinearDiscriminantAnalysis": ("the means of the classes", _TURNING),
    "Nystroem": ("rows of the table, as they are", _TURNING),
    "RBFSampler": ('the variance of all cells, because gamma="scale"', "RBFSampler(gamma=a public number)"),
    "KMeans": ("the centres of clusters", _TURNING),
    "KBinsDiscretizer": ("the edges of bins", _BINNING),
    "SplineTransformer": ("the ends or the quantiles of every column", _BINNING),
    "CountVectorizer": ("the words that occur", _WORDS),
    "TfidfVectorizer": ("the words that occur, and how often", _WORDS),
    "TfidfTransformer": ("how many rows have each word", _WORDS),
    "DictVectorizer": ("the keys and levels that occur", "FeatureHasher"),
}


def _given_levels(encoder: Any) -> bool:
    """Return whether the levels of an encoder were given, and their counts are not asked for."""
    counts = encoder.min_frequency, encoder.max_categories
    return not isinstance(encoder.categories, str) and counts == (None, None)


#: Settings with which a transformer of scikit-learn learns nothing but the number of columns.
_HARMLESS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("OneHotEncoder", "OrdinalEncoder"), _given_levels),
    "SimpleImputer": lambda step: step.strategy == "constant" and step.keep_empty_features and not step.add_indicator,
    "MissingIndicator": lambda step: bool(step.features == "all"),
    "SplineTransformer": lambda step: not isinstance(step.knots, str),
    "CountVectorizer": lambda step: step.vocabulary is not None,
    "TfidfVectorizer": lambda step: step.vocabulary is not None and not step.use_idf,
    "TfidfTransformer": lambda step: not step.use_idf,
    "RBFSampler": lambda step: not isinstance(step.gamma, str),
    **dict.fromkeys(("PolynomialFeatures", "PolynomialCountSketch", "SkewedChi2Sampler"), lambda _: True),
    **dict.fromkeys(("GaussianRandomProjection", "SparseRandomProjection"), lambda _: True),
}
#: Functions of scikit-learn that compare rows with each other.
_ACROSS_ROWS = frozenset(
    {
        preprocessing.scale,
        preprocessing.minmax_scale,
        preprocessing.maxabs_scale,
        preprocessing.robust_scale,
        preprocessing.quantile_transform,
        preprocessing.power_transform,
    }
)
_PUBLIC_ATTRIBUTES = frozenset({"n_features_in_", "feature_names_in_"})
#: All that a ``fit`` does which only returns ``self``.
_RETURNS = frozenset({"RESUME", "NOP", "COPY_FREE_VARS", "LOAD_FAST", "LOAD_FAST_BORROW", "RETURN_VALUE"})


@dataclass(frozen=True)
class Finding:
    """A step that learns from the rows."""

    #: Its name within the pipeline, as `set_params` takes it; empty if it is what was checked.
    step: str
    transformer: str  # its class
    why: str  # what it learns
    instead: str  # what to use in its place

    def __str__(self) -> str:
        named = f"{self.step} ({self.transformer})" if self.step else self.transformer
        return f"{printable(f'{named}: {self.why}')}.\n    Instead: {printable(self.instead)}."


class Findings(tuple[Finding, ...]):
    """What `check_pipeline` has found, in the order of the steps; empty where nothing learns unpaid.

    Printed, it is a list of the steps, each with what it learns and what to use instead.
    """

    __slots__ = ()

    def __str__(self) -> str:
        if not self:
            return "No step is known to learn from the rows before the private model."
        steps = "1 step learns" if len(self) == 1 else f"{len(self)} steps learn"
        return "\n".join([f"{steps} from the rows, for which no budget pays:", *map(str, self)])

    __repr__ = __str__


def check_pipeline(pipeline: Any) -> Findings:
    """Name the steps of a pipeline that learn from the rows, so that the guarantee of a private model does not hold.

    Parameters
    ----------
    pipeline : estimator
        A `Pipeline`, `ColumnTransformer`, `FeatureUnion` or `TransformedTargetRegressor`, a search such as
        `GridSearchCV` around one, or a single step; fitted or not.

    Returns
    -------
    Findings
        A tuple with a `Finding` for every such step. It is empty for pipelines of `BoundedEncoder`,
        `FunctionTransformer`, transformers that keep nothing of the rows, and a private model.

    Notes
    -----
    A transformer is named if it is known to learn, if it has fitted attributes, or if nothing shows that its ``fit``
    keeps nothing. One of your own is not named if its ``fit`` only returns ``self``, or if its tags say
    ``requires_fit=False``. Functions of a `FunctionTransformer` are taken to treat every row by itself, a
    `FrozenEstimator` is taken to have been fitted to public rows, and bounds, levels and constants to be public: no
    program can see whether they are.

    **Privacy** No row is read; the answer depends on the steps and their settings, and on which attributes a fitted
    step has.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import MinMaxScaler
    >>> from dpdescent import DPLogisticRegression, check_pipeline
    >>> check_pipeline(make_pipeline(MinMaxScaler(), DPLogisticRegression(classes=(0, 1))))
    1 step learns from the rows, for which no budget pays:
    minmaxscaler (MinMaxScaler): it keeps the smallest and the largest cell of every column.
        Instead: no step, as private models scale by their bounds, given or measured; or BoundedEncoder(bounds=...).
    """
    if isinstance(pipeline, type) or not hasattr(pipeline, "fit"):
        given = pipeline.__name__ if isinstance(pipeline, type) else type(pipeline).__name__
        raise InvalidParameter(f"check_pipeline takes a Pipeline or another estimator, got {given}: pass an instance")
    return Findings(_found("", pipeline))


def _found(name: str, step: Any) -> Iterator[Finding]:
    """Yield what is wrong with a step and with the steps inside it."""
    if isinstance(step, str) or step is None:
        return
    if isinstance(step, CountedEstimator):
        if step.method == "nonprivate":
            why = 'method="nonprivate" reads the rows without noise'
            yield Finding(name, type(step).__name__, why, "a private method, which `dpdescent methods` lists")
    elif isinstance(step, ColumnTransformer):
        yield from _found_in_columns(name, step)
    elif isinstance(step, Pipeline | FeatureUnion):
        for inner, part in step.steps if isinstance(step, Pipeline) else step.transformer_list:
            yield from _found(_joined(name, inner), part)
    elif isinstance(step, TransformedTargetRegressor):
        yield from _found(_joined(name, "transformer"), step.transformer)
        yield from _found(_joined(name, "regressor"), step.regressor or LinearRegression())
    elif not isinstance(step, FrozenEstimator):
        inside = [] if _known(step) is not None else list(_steps_inside(step))
        learnt = _what_it_learns(step, wrapper=bool(inside))
        if learnt is not None:
            yield Finding(name, step.__name__ if isinstance(step, type) else type(step).__name__, *learnt)
        for inner, part in inside:
            yield from _found(_joined(name, inner), part)


def _found_in_columns(name: str, step: ColumnTransformer) -> Iterator[Finding]:
    for inner, part, columns in [*step.transformers, ("remainder", step.remainder, ())]:
        by_type = getattr(columns, "dtype_include", True) or getattr(columns, "dtype_exclude", True)
        if callable(columns) and by_type and not isinstance(part, str):
            why = "which columns it takes is computed from the table, and one missing cell can change a type"
            yield Finding(_joined(name, inner), type(columns).__name__, why, "the names of the columns")
        yield from _found(_joined(name, inner), part)


def _steps_inside(step: Any) -> Iterator[tuple[str, Any]]:
    """Yield the estimators among the parameters of a search or of another wrapper, with their names."""
    if not hasattr(step, "get_params") or isinstance(step, type):
        return
    for name, value in step.get_params(deep=False).items():
        if _is_step(value):
            yield name, value
        elif isinstance(value, list | tuple):
            for number, each in enumerate(value):
                if isinstance(each, Mapping):
                    yield from _steps_in_grid(name, each)
                elif isinstance(each, tuple) and len(each) == 2 and _is_step(each[1]):
                    yield str(each[0]), each[1]
                elif _is_step(each):
                    yield f"{name}[{number}]", each
        elif isinstance(value, Mapping):
            yield from _steps_in_grid(name, value)


def _steps_in_grid(name: str, grid: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the estimators that a search puts in the place of a step."""
    for replaced, values in grid.items():
        for each in values if isinstance(values, list | tuple | np.ndarray) else ():
            if _is_step(each):
                yield f"{name}[{replaced}]", each


def _is_step(value: Any) -> bool:
    return hasattr(value, "fit") and not isinstance(value, type)


def _what_it_learns(step: Any, wrapper: bool) -> tuple[str, str] | None:
    """Return what a step learns and what to use instead, or None if it learns nothing."""
    if isinstance(step, type):
        return "it is a class, and what it would learn cannot be seen", f"an instance, {step.__name__}()"
    if isinstance(step, BoundedEncoder | ImageEnergies | ImageScattering):
        return None
    kind = type(step)
    own = kind.__module__.startswith("sklearn.")
    if own and kind.__name__ in _HARMLESS and _HARMLESS[kind.__name__](step):
        return None
    known = _known(step)
    if known is not None:
        return _reason(step, known), _LEARNERS[known][1]
    if wrapper and hasattr(step, "refit"):
        return "its copies are fitted many times, and their scores are computed without noise", "dpdescent.select"
    if wrapper:
        return "it fits what is inside it, perhaps often, and may read the rows for itself", _MODELS
    if not hasattr(step, "transform") and not hasattr(step, "fit_transform"):
        return "it is fitted to the rows without noise", _MODELS
    return _what_a_transformer_learns(step, own)


def _what_a_transformer_learns(step: Any, own: bool) -> tuple[str, str] | None:
    """Return the same of a transformer of which nothing is known but whether scikit-learn has it."""
    attributes = sorted(set(getattr(step, "__dict__", ())) - _PUBLIC_ATTRIBUTES)
    learnt = [each for each in attributes if each.endswith("_") and not each.startswith("_")]
    if learnt and not own:
        return f"it has fitted attributes: {', '.join(learnt)}", _OTHERWISE
    if isinstance(step, FunctionTransformer):
        function = step.func.func if isinstance(step.func, partial) else step.func
        if any(function is each for each in _ACROSS_ROWS):
            return f"{function.__name__} compares rows with each other", _SCALING
    if not _requires_fit(step) or _keeps_nothing(type(step)):
        return None
    return ("it keeps what it computes from the rows" if own else "its fit may keep what it reads"), _OTHERWISE


def _known(step: Any) -> str | None:
    """Return the name under which a transformer, or what it is derived from, is known to learn."""
    bases = (each for each in type(step).__mro__ if each.__module__.startswith("sklearn."))
    return next((each.__name__ for each in bases if each.__name__ in _LEARNERS), None)


def _reason(step: Any, name: str) -> str:
    """Return what a known transformer keeps, also with settings of which one expects that it keeps nothing."""
    what = _LEARNERS[name][0]
    if name == "SimpleImputer" and step.strategy == "constant":
        what = "which columns have missing cells" if step.add_indicator else "which columns have no cells at all"
    elif name in ("OneHotEncoder", "OrdinalEncoder") and not isinstance(step.categories, str):
        what = "how often each level occurs"
    elif name == "TfidfVectorizer" and step.vocabulary is not None:
        what = "how many rows have each word"
    return f"it keeps {what}"


def _requires_fit(step: Any) -> bool:
    try:
        return bool(step.__sklearn_tags__().requires_fit)
    except AttributeError:  # a class that knows nothing of tags
        return True


def _keeps_nothing(kind: type) -> bool:
    """Return whether the ``fit`` of a class only returns what it was given, and nothing else fits in its place."""
    fit: Any = getattr(kind, "fit", None)
    both = getattr(kind, "fit_transform", TransformerMixin.fit_transform)
    if not hasattr(fit, "__code__") or both is not TransformerMixin.fit_transform:
        return False
    return all(each.opname in _RETURNS for each in dis.get_instructions(fit))


def _joined(name: str, inner: str) -> str:
    return f"{name}__{inner}" if name else str(inner)
