"""The private linear support vector machine."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from ..errors import InvalidParameter
from ..problems import Hinge, HuberisedHinge, Loss
from ..solvers import Method
from .classifiers import LinearClassifier

__all__ = ["DPLinearSVC"]

_LOSSES: dict[str, type[Loss]] = {"huberised-hinge": HuberisedHinge, "hinge": Hinge}


@dataclass(eq=False, repr=False)
class DPLinearSVC(LinearClassifier):
    """Private linear support vector machine for two classes.

    Minimises the mean hinge loss plus an L2 penalty, ``alpha/2 |w|^2``.

    Parameters
    ----------
    loss : {"huberised-hinge", "hinge"}
        The huberised hinge, with half-width 0.5, is smooth, as gradient methods need it.
    **parameters
        All others are those of `DPLogisticRegression`.

    Notes
    -----
    **Privacy.** As for `DPLogisticRegression`. `dpdescent.check_pipeline` names the steps of a pipeline that learn
    from the rows before it.

    Examples
    --------
    >>> from dpdescent import DPLinearSVC, load_dataset
    >>> data = load_dataset("synthetic", n=5000)
    >>> model = DPLinearSVC(epsilon=1.0, delta=1e-6, bounds=data.bounds, classes=data.classes)
    >>> model.fit(data.X, data.y).score(data.X, data.y) > 0.7
    True
    """

    _: KW_ONLY
    loss: str = "huberised-hinge"

    _multiclass = False

    def require_settings(self) -> tuple[Method, Any]:
        """Return the method and its settings, or raise for a parameter that no table could be fitted with."""
        if not isinstance(self.loss, str) or self.loss not in _LOSSES:
            raise InvalidParameter(f"unknown loss {self.loss!r:.80}: choose {' or '.join(map(repr, _LOSSES))}")
        return super().require_settings()

    def _binary_loss(self) -> Loss:
        return _LOSSES[self.loss]()

    def _multiclass_loss(self, classes: int) -> Loss:
        raise InvalidParameter(
            f"Only binary classification is supported. The type of the target is multiclass: {classes} classes; "
            "wrap the model in sklearn.multiclass.OneVsRestClassifier and divide epsilon, or use "
            "DPLogisticRegression"
        )
