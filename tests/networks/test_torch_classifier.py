"""A module behind the interface of scikit-learn."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from sklearn.base import clone  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import cross_val_score  # noqa: E402
from torch import nn  # noqa: E402

from dpdescent.errors import (  # noqa: E402
    DPDescentError,
    InvalidParameter,
    MissingValue,
    PrivacyWarning,
    TrialsWarning,
    UnknownLabel,
)
from dpdescent.ledger import Ledger  # noqa: E402
from dpdescent.torch import DPModuleClassifier  # noqa: E402


def table(rows=400):
    X = np.random.default_rng(0).normal(size=(rows, 3))
    return X, np.where(X[:, 0] + X[:, 1] > 0, "yes", "no")


def classifier(outputs=2, **settings):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, outputs))
    given = {"epsilon": 8.0, "delta": 1e-9, "classes": ("no", "yes"), "random_state": 0} | settings
    return DPModuleClassifier(module, **given)


def test_a_classifier_learns_and_leaves_its_module_alone():
    X, y = table()
    model = classifier(epochs=10)
    before = model.module[0].weight.detach().clone()
    assert model.fit(X, y) is model
    assert torch.equal(before, model.module[0].weight)
    assert not torch.equal(before, model.module_[0].weight)
    assert model.score(X, y) > 0.85
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (400, 2)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert set(model.predict(X)) == {"no", "yes"}
    assert model.privacy_["epsilon"] == 8.0
    assert model.module_.training  # as it was given
    assert np.array_equal(model.decision_function(X), model.decision_function(X))


def test_clones_and_cross_validation_work():
    X, y = table()
    model = classifier(steps=3)
    assert clone(model).get_params()["epsilon"] == 8.0
    with pytest.warns(TrialsWarning, match="each fit is a release of its own"):
        assert cross_val_score(model, X, y, cv=2).shape == (2,)


def test_images_are_rows_of_any_shape():
    X, y = np.random.default_rng(0).normal(size=(50, 1, 3, 4)), np.arange(50) % 3
    module = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(12, 3))
    model = DPModuleClassifier(module, 2.0, 1e-9, classes=(0, 1, 2), steps=2).fit(X, y)
    assert model.predict(X).shape == (50,)


def test_classes_that_are_read_from_the_labels_are_warned_of_and_stated():
    X, y = table()
    model = classifier(classes=None, steps=1)
    with pytest.warns(PrivacyWarning, match="classes"):
        model.fit(X, y)
    assert "classes: those of y, because they were not given (read from the rows)" in model.privacy_["assumed_public"]
    assert model.privacy_["private"] == "except for classes"
    assert classifier(steps=1).fit(X, y).privacy_["private"] is True


def test_what_is_wrong_is_named_before_any_charge():
    X, y = table()
    account = Ledger(9.0, 1e-4, currency="approximate")
    holed = X.copy()
    holed[3, 1] = np.nan
    cases = [
        (classifier(ledger=account), (holed, y), MissingValue, "NaN"),
        (classifier(ledger=account, classes=("no", "maybe")), (X, y), UnknownLabel, "classes"),
        (classifier(ledger=account, classes=("no",)), (X, y), InvalidParameter, "one class"),
        (classifier(outputs=3, ledger=account), (X, y), InvalidParameter, "2 scores"),
        (DPModuleClassifier("module", ledger=account), (X, y), InvalidParameter, "torch.nn.Module"),
        (classifier(ledger=account), (X, y[:-1]), DPDescentError, "inconsistent"),
    ]
    for model, data, error, message in cases:
        with pytest.raises(error, match=message):
            model.fit(*data)
    assert account.entries == ()
    with pytest.raises(NotFittedError):
        classifier().predict(X)
