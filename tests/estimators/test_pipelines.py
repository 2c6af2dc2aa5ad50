"""`check_pipeline` names the steps that learn from the rows, and no others."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import preprocessing
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.experimental import enable_iterative_imputer
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.feature_selection import SelectFromModel, SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.impute import IterativeImputer, MissingIndicator, SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)
from sklearn.utils import all_estimators

import dpdescent
from dpdescent import (
    BoundedEncoder,
    DPHuberRegressor,
    DPLinearRegression,
    DPLogisticRegression,
    InvalidParameter,
    check_pipeline,
)
from dpdescent.features import ImageEnergies, ImageScattering
from dpdescent.pipelines import Finding

assert enable_iterative_imputer is not None


def model(**options: Any) -> DPLogisticRegression:
    return DPLogisticRegression(1.0, 1e-6, classes=(0, 1), bounds=(0, 1), random_state=0, **options)


def named(pipeline: Any) -> list[tuple[str, str]]:
    return [(each.step, each.transformer) for each in check_pipeline(pipeline)]


class ReturnsSelf(TransformerMixin, BaseEstimator):
    """Learns nothing, and shows it."""

    def fit(self, X: Any, y: Any = None) -> Any:
        """Return self."""
        return self

    def transform(self, X: Any) -> Any:
        return X


class Declared(ReturnsSelf):
    """Checks its input when it is fitted, and says that it keeps nothing."""

    def fit(self, X: Any, y: Any = None) -> Any:
        np.asarray(X)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


class Centred(ReturnsSelf):
    """Learns the means."""

    def fit(self, X: Any, y: Any = None) -> Any:
        self.means_ = X.mean(0)
        return self


class Liar(Declared):
    """Learns the means, and says that it keeps nothing."""

    def fit(self, X: Any, y: Any = None) -> Any:
        self.means_ = X.mean(0)
        return self


class Hidden(ReturnsSelf):
    """Learns in `fit_transform` alone."""

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        return X - X.mean(0)


class Indirect(ReturnsSelf):
    def fit(self, X: Any, y: Any = None) -> Any:
        return self._learn(X)

    def _learn(self, X: Any) -> Any:
        self.means_ = X.mean(0)
        return self


class InPlace(ReturnsSelf):
    def __init__(self, store: Any = None) -> None:
        self.store = store

    def fit(self, X: Any, y: Any = None) -> Any:
        store = self.store
        store += X
        return self


class Plain:
    """Knows nothing of scikit-learn."""

    def fit(self, X: Any, y: Any = None) -> Any:
        self.top = X.max()
        return self

    def transform(self, X: Any) -> Any:
        return X / self.top


class OwnEncoder(OneHotEncoder):
    """Learns the levels, whatever was given."""

    def fit(self, X: Any, y: Any = None) -> Any:
        return super().fit(X, y)


@pytest.mark.parametrize(
    "step",
    [
        StandardScaler(),
        OneHotEncoder(),
        SimpleImputer(),
        SelectKBest(),
        PCA(),
        KBinsDiscretizer(),
        IterativeImputer(),
        SelectFromModel(LogisticRegression()),
        OneHotEncoder(categories=[["a"]], min_frequency=2),
        OrdinalEncoder(categories=[["a"]], max_categories=2),
        SimpleImputer(strategy="constant", fill_value=0),
        SimpleImputer(strategy="constant", fill_value=0, keep_empty_features=True, add_indicator=True),
        MissingIndicator(),
        SplineTransformer(),
        RBFSampler(gamma="scale"),
        CountVectorizer(),
        TfidfVectorizer(vocabulary=["a"]),
        TfidfTransformer(),
        FunctionTransformer(preprocessing.scale),
        FunctionTransformer(partial(preprocessing.minmax_scale, axis=0)),
        Centred(),
        Hidden(),
        Indirect(),
        InPlace(),
        Plain(),
        OwnEncoder(),
        Liar().fit(np.eye(2)),
    ],
    ids=lambda step: type(step).__name__,
)
def test_steps_that_learn_are_named_with_what_to_use_instead(step: Any) -> None:
    (finding,) = check_pipeline(Pipeline([("before", step), ("model", model())]))
    assert (finding.step, finding.transformer) == ("before", type(step).__name__)
    assert finding.why
    assert finding.instead
    assert check_pipeline(step)[0].step == ""


@pytest.mark.parametrize(
    "step",
    [
        "passthrough",
        None,
        BoundedEncoder(bounds={"x": (0, 1)}),
        ImageEnergies(),
        ImageScattering(),
        FunctionTransformer(),
        FunctionTransformer(np.log1p),
        Normalizer(),
        HashingVectorizer(),
        PolynomialFeatures(),
        OneHotEncoder(categories=[["a", "b"]]),
        OrdinalEncoder(categories=[["a", "b"]]),
        SimpleImputer(strategy="constant", fill_value=0, keep_empty_features=True),
        MissingIndicator(features="all"),
        SplineTransformer(knots=np.array([[0.0], [1.0]])),
        RBFSampler(),
        CountVectorizer(vocabulary=["a"]),
        TfidfVectorizer(vocabulary=["a"], use_idf=False),
        ReturnsSelf(),
        ReturnsSelf().fit(None),
        Declared(),
        FrozenEstimator(StandardScaler().fit(np.eye(3))),
    ],
    ids=lambda step: type(step).__name__,
)
def test_steps_that_learn_nothing_are_not_named(step: Any) -> None:
    found = check_pipeline(Pipeline([("before", step), ("model", model())]))
    assert found == ()
    assert not found
    assert str(found) == "No step is known to learn from the rows before the private model."


TABLES = [np.random.default_rng(seed).random((40, 3)) + 0.1 * seed for seed in range(3)]


WRAPPERS = ("RFE", "RFECV", "FeatureUnion", "ColumnTransformer", "SelectFromModel", "SequentialFeatureSelector")
WRAPPERS += ("SparseCoder", "StackingClassifier", "StackingRegressor", "VotingClassifier", "VotingRegressor")
TRANSFORMERS = [kind for name, kind in all_estimators(type_filter="transformer") if name not in WRAPPERS]


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_no_transformer_of_scikit_learn_is_passed_over_that_depends_on_the_rows_it_was_fitted_to(kind: Any) -> None:
    """Fitted to two tables of one shape, what was not named transforms a third in the same way."""
    step = kind()
    if "random_state" in step.get_params():
        step.set_params(random_state=0)
    if check_pipeline(step) or kind.__name__ in ("FeatureHasher", "PatchExtractor", "HashingVectorizer"):
        return
    if "n_components" in step.get_params():
        step.set_params(n_components=2)
    outputs = [clone(step).fit(table).transform(TABLES[2]) for table in TABLES[:2]]
    first, second = (each.toarray() if hasattr(each, "toarray") else np.asarray(each) for each in outputs)
    assert np.array_equal(first, second)


@pytest.mark.parametrize(
    ("step", "tables"),
    [
        (SimpleImputer(strategy="constant", fill_value=0.0, keep_empty_features=True), "numbers"),
        (MissingIndicator(features="all"), "numbers"),
        (SplineTransformer(knots=np.linspace(0, 2, 4)[:, None].repeat(2, 1)), "numbers"),
        (OneHotEncoder(categories=[["a", "b", "c"]] * 2, drop="first"), "levels"),
        (OrdinalEncoder(categories=[["a", "b", "c"]] * 2), "levels"),
        (CountVectorizer(vocabulary=["aa", "bb"]), "texts"),
        (TfidfVectorizer(vocabulary=["aa", "bb"], use_idf=False), "texts"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
def test_settings_that_are_passed_over_learn_nothing(step: Any, tables: str) -> None:
    generator = np.random.default_rng(0)
    drawn = [generator.integers(0, scale, (30, 2)) for scale in (1, 3, 3)]
    made = {
        "numbers": [np.where(each == 2, np.nan, each + generator.random((30, 2)) / 9) for each in drawn],
        "levels": [np.array(["a", "b", "c"], dtype=object)[each] for each in drawn],
        "texts": [[" ".join(["aa", "bb", "cc"][word] for word in row) for row in each] for each in drawn],
    }[tables]
    if tables == "numbers":
        made[0][:, 0] = np.nan if not isinstance(step, SplineTransformer) else made[0][:, 0]
        made = [np.nan_to_num(each) if isinstance(step, SplineTransformer) else each for each in made]
    assert check_pipeline(step) == ()
    outputs = [clone(step).fit(table).transform(made[2]) for table in made[:2]]
    first, second = (each.toarray() if hasattr(each, "toarray") else np.asarray(each) for each in outputs)
    assert np.array_equal(first, second)


def test_nested_steps_are_named_as_set_params_names_them() -> None:
    columns = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["age"]),
            ("levels", OneHotEncoder(), ["kind"]),
            ("kept", "passthrough", ["a"]),
            ("left", "drop", ["b"]),
            ("fine", FunctionTransformer(), ["c"]),
        ],
        remainder=MinMaxScaler(),
    )
    union = FeatureUnion([("parts", PCA()), ("same", "passthrough"), ("gone", "drop")])
    pipeline = Pipeline([("columns", columns), ("inner", Pipeline([("union", union)])), ("model", model())])
    assert named(pipeline) == [
        ("columns__numbers__simpleimputer", "SimpleImputer"),
        ("columns__numbers__standardscaler", "StandardScaler"),
        ("columns__levels", "OneHotEncoder"),
        ("columns__remainder", "MinMaxScaler"),
        ("inner__union__parts", "PCA"),
    ]
    for step, _ in named(pipeline):
        assert step in pipeline.get_params()


def test_columns_that_are_chosen_by_the_table_are_named() -> None:
    def chosen(columns: Any) -> list[tuple[str, str]]:
        return named(ColumnTransformer([("a", FunctionTransformer(), columns)]))

    assert chosen(make_column_selector(dtype_include="number")) == [("a", "make_column_selector")]
    assert chosen(lambda table: table.columns[table.mean() > 0]) == [("a", "function")]
    assert chosen(make_column_selector(pattern="^x")) == []
    assert chosen(["x"]) == chosen(slice(0, 2)) == chosen("x") == []


def test_a_transformed_target_is_looked_into() -> None:
    regressor = DPLinearRegression(target_bounds=(0, 1))
    assert named(TransformedTargetRegressor(regressor, func=np.log1p, inverse_func=np.expm1)) == []
    assert named(TransformedTargetRegressor(regressor, transformer=StandardScaler())) == [
        ("transformer", "StandardScaler")
    ]
    inner = TransformedTargetRegressor(make_pipeline(PCA(), DPHuberRegressor()))
    assert named(inner) == [("regressor__pca", "PCA")]
    assert named(TransformedTargetRegressor()) == [("regressor", "LinearRegression")]


@pytest.mark.parametrize("grid", [dict, lambda **each: [each], lambda **each: [{}, each]])
def test_a_search_is_named_with_the_steps_that_it_tries(grid: Any) -> None:
    pipeline = Pipeline([("scale", StandardScaler()), ("model", model())])
    tried = grid(scale=["passthrough", MinMaxScaler(), FunctionTransformer()], model__alpha=[0.1])
    assert sorted(named(GridSearchCV(pipeline, tried))) == [
        ("", "GridSearchCV"),
        ("estimator__scale", "StandardScaler"),
        ("param_grid[scale]", "MinMaxScaler"),
    ]
    values = {"scale": np.array([PCA(), None], dtype=object)}
    assert ("search__param_distributions[scale]", "PCA") in named(
        Pipeline([("search", RandomizedSearchCV(pipeline, values))])
    )
    assert "dpdescent.select" in check_pipeline(GridSearchCV(model(), {"alpha": [1.0]}))[0].instead


def test_models_that_are_not_private_and_wrappers_are_named() -> None:
    assert named(make_pipeline(Normalizer(), LogisticRegression())) == [("logisticregression", "LogisticRegression")]
    assert named(LinearRegression()) == [("", "LinearRegression")]
    for wrapper in (BaggingClassifier, OneVsRestClassifier, CalibratedClassifierCV):
        assert named(wrapper(make_pipeline(StandardScaler(), model()))) == [
            ("", wrapper.__name__),
            ("estimator__standardscaler", "StandardScaler"),
        ]
    assert named(VotingClassifier([("a", model()), ("b", LogisticRegression())])) == [
        ("", "VotingClassifier"),
        ("b", "LogisticRegression"),
    ]
    assert named(model(method="nonprivate")) == [("", "DPLogisticRegression")]
    assert named(model()) == []


def test_a_classifier_of_networks_is_a_private_model() -> None:
    torch = pytest.importorskip("torch")
    from dpdescent.torch import DPModuleClassifier

    classifier = DPModuleClassifier(torch.nn.Linear(3, 2), 2.0, 1e-5, classes=(0, 1))
    assert named(make_pipeline(StandardScaler(), classifier)) == [("standardscaler", "StandardScaler")]


def test_nothing_is_read_or_fitted_and_fitted_steps_give_the_same_answer() -> None:
    X = np.random.default_rng(0).random((60, 2))
    pipeline = make_pipeline(StandardScaler(), Centred(), ReturnsSelf(), model())
    before = named(pipeline)
    assert not hasattr(pipeline[0], "mean_")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipeline.fit(X, np.arange(60) % 2)
    assert named(pipeline) == before == [("standardscaler", "StandardScaler"), ("centred", "Centred")]
    assert "it has fitted attributes: means_" in check_pipeline(pipeline)[1].why


def test_findings_are_printed_in_two_lines_each_and_names_are_not_obeyed() -> None:
    found = check_pipeline(Pipeline([("a\x1b[31m\nb", StandardScaler()), ("pca", PCA()), ("model", model())]))
    first, *rest = str(found).split("\n")
    assert first == "2 steps learn from the rows, for which no budget pays:"
    assert len(rest) == 4
    assert rest[0] == r"a\x1b[31m\nb (StandardScaler): it keeps the mean and the variance of every column."
    assert rest[1].startswith("    Instead: no step, as private models scale by their bounds")
    assert repr(found) == str(found)
    assert found[1] == Finding("pca", "PCA", "it keeps means and principal components", found[1].instead)


@pytest.mark.parametrize("wrong", [StandardScaler, 3, "pipeline", None, pd.DataFrame(), [StandardScaler()]])
def test_what_is_no_estimator_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidParameter, match="check_pipeline takes a Pipeline or another estimator"):
        check_pipeline(wrong)


def test_the_docstring_of_every_estimator_points_to_the_check() -> None:
    public = [getattr(dpdescent, name) for name in dpdescent.__all__]
    estimators = [each for each in public if hasattr(each, "set_params") and hasattr(each, "predict")]
    assert len(estimators) == 11
    for estimator in estimators:
        assert "`dpdescent.check_pipeline`" in estimator.__doc__, estimator.__name__


def test_a_class_in_the_place_of_a_step_is_named() -> None:
    assert named(Pipeline([("scale", StandardScaler), ("model", model())])) == [("scale", "StandardScaler")]
