"""`DPModuleClassifier`: a module behind the interface of scikit-learn."""

from __future__ import annotations

import copy
import os
import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import nn

from ..arrays import Floats
from ..errors import InvalidParameter, PrivacyWarning, UnsupportedModel
from ..estimators.arguments import given_arguments
from ..estimators.payment import CountedEstimator, remarks_on_trials
from ..estimators.reading import class_positions, read_table, sorted_classes
from ..ledger import Ledger
from ..solvers import Progress
from ..statement import Origin, exceptions_noted, public_fact
from .module_fit import fit

_ROWS_AT_ONCE = 4096


@dataclass(eq=False, repr=False)
class DPModuleClassifier(ClassifierMixin, CountedEstimator):  # type: ignore[misc]
    """A private classifier that trains any module, as a scikit-learn estimator.

    Parameters
    ----------
    module : torch.nn.Module
        Maps rows to one score for each class. It is copied, and the copy is trained.
    epsilon, delta : float
        The guarantee.
    classes : array_like, optional
        The public classes. Without it they are read from y, with a warning.
    method, batch_size, steps, epochs, learning_rate, clip_norm, bands, adjacency, ledger, random_state, noise, \
device, progress, checkpoint
        As in `dpdescent.torch.fit`.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained module.
    classes_ : ndarray
    n_features_in_ : int
    privacy_ : dict
        The privacy statement.
    history_ : tuple of StepRecord

    Notes
    -----
    **Privacy** That of `dpdescent.torch.fit`, for one row of ``X`` and its label. `dpdescent.check_pipeline` names
    the steps of a pipeline that learn from the rows before it.

    Examples
    --------
    >>> import torch
    >>> from dpdescent import load_dataset
    >>> from dpdescent.torch import DPModuleClassifier
    >>> data = load_dataset("synthetic", n=2000)
    >>> module = torch.nn.Sequential(torch.nn.Linear(data.X.shape[1], 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    >>> model = DPModuleClassifier(module, epsilon=3.0, delta=1e-5, classes=data.classes)
    >>> model.fit(data.X, data.y).predict(data.X).shape
    (2000,)
    """

    module: nn.Module
    epsilon: float = 1.0
    delta: float = 1e-6
    _: KW_ONLY
    classes: Any = None
    method: str = "auto"
    batch_size: int | None = None
    steps: int | None = None
    epochs: float | None = None
    learning_rate: float | None = None
    clip_norm: float | None = None
    bands: int | None = None
    adjacency: str = "zero-out"
    ledger: Ledger | None = None
    random_state: Any = None
    noise: str = "exact"
    device: Any = None
    progress: bool | Progress = False
    checkpoint: str | os.PathLike[str] | None = None

    def fit(self, X: Any, y: Any) -> DPModuleClassifier:
        """Train a copy of the module; the only call that touches the data."""
        if not isinstance(self.module, nn.Module):
            raise InvalidParameter(f"module must be a torch.nn.Module, got a {type(self.module).__name__}")
        X, y = read_table(self, X, y, ensure_all_finite=False, allow_nd=True)
        labels = np.asarray(y)
        assumed = self._keep_classes(labels)
        pair = Ledger(self.epsilon, self.delta, currency="approximate", relation=self.adjacency)
        tried = remarks_on_trials(self, pair, stacklevel=2)
        module = copy.deepcopy(self.module)
        targets = torch.from_numpy(class_positions(self.classes_, labels).astype(np.int64))
        result = fit(
            module,
            (self._inputs(module, X), targets),
            _Scores(self.classes_.size),
            epsilon=self.epsilon,
            delta=self.delta,
            method=self.method,
            batch_size=self.batch_size,
            steps=self.steps,
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            clip_norm=self.clip_norm,
            bands=self.bands,
            adjacency=self.adjacency,
            ledger=self.ledger,
            random_state=self.random_state,
            noise=self.noise,
            device=self.device,
            progress=self.progress,
            checkpoint=self.checkpoint,
        )
        self.module_, self.history_ = module, result.history
        stated = given_arguments(self, [*result.privacy_["assumed_public"], *assumed])
        self.privacy_ = result.privacy_ | {
            "private": exceptions_noted(True, stated),
            "assumed_public": stated,
            "remarks": [*result.privacy_["remarks"], *tried],
        }
        return self

    def _keep_classes(self, labels: NDArray[Any]) -> list[str]:
        """Keep the classes, given or read from the labels; return what a statement says of them."""
        if self.classes is None:
            check_classification_targets(labels)
            warnings.warn(
                "classes were read from y, which is not private: pass classes=(...), which are public",
                PrivacyWarning,
                stacklevel=3,
            )
            self.classes_ = np.unique(labels)
            assumed = public_fact("classes", "those of y, because they were not given", Origin.ROWS)
        else:
            self.classes_ = sorted_classes(self.classes)
            assumed = public_fact("classes", f"{self.classes_.size} of them", Origin.ARGUMENT)
        if self.classes_.size < 2:
            raise InvalidParameter("there is only one class: a classifier needs two or more; pass classes=(...)")
        return [assumed]

    def decision_function(self, X: Any) -> Floats:
        """Return the scores of the classes, in evaluation mode."""
        check_is_fitted(self)
        inputs = self._inputs(self.module_, read_table(self, X, reset=False, allow_nd=True))
        device, mode = next(self.module_.parameters()).device, self.module_.training
        try:
            self.module_.eval()
            with torch.no_grad():
                scores = [self.module_(part.to(device)).cpu() for part in inputs.split(_ROWS_AT_ONCE)]
        finally:
            self.module_.train(mode)
        return np.asarray(torch.cat(scores).double().numpy())

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of every class."""
        return np.asarray(softmax(self.decision_function(X), axis=1))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Raise `UnsupportedModel`: the code of a module is not in any file of plain data."""
        raise UnsupportedModel(
            "a DPModuleClassifier cannot be saved as JSON, which holds no code: keep the weights by "
            "torch.save(model.module_.state_dict(), path), and the statement by "
            "PrivacyStatement.from_dict(model.privacy_).save(path)"
        )

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of every row."""
        best = self.decision_function(X).argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[best]
        return predicted

    def _inputs(self, module: nn.Module, X: Any) -> torch.Tensor:
        numbers = next((each.dtype for each in module.parameters() if each.is_floating_point()), torch.float32)
        return torch.from_numpy(np.ascontiguousarray(X.toarray() if sparse.issparse(X) else X)).to(numbers)


class _Scores(nn.CrossEntropyLoss):  # type: ignore[misc]
    """Cross entropy for each row, of as many scores as there are classes."""

    def __init__(self, classes: int) -> None:
        super().__init__(reduction="none")
        self._classes = classes

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if outputs.dim() != 2 or outputs.shape[1] != self._classes:
            raise InvalidParameter(
                f"the module gives outputs of shape {tuple(outputs.shape)} for {self._classes} classes: end it with "
                f"a layer of {self._classes} scores"
            )
        return super().forward(outputs, targets)
