"""The private linear support vector machine."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from ..errors import InvalidParameter
from ..problems import Hinge, HuberisedHinge, Loss
from .classifiers import LinearClassifier

__all__ = ["DPLinearSVC"]


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

    def _binary_loss(self) -> Loss:
        if self.loss == "huberised-hinge":
            return HuberisedHinge()
        if self.loss == "hinge":
            return Hinge()
        raise InvalidParameter(f"unknown loss {self.loss!r}: choose 'huberised-hinge' or 'hinge'")

    def _multiclass_loss(self, classes: int) -> Loss:
        raise InvalidParameter(
            f"Only binary classification is supported. The type of the target is multiclass: {classes} classes; "
            "wrap the model in sklearn.multiclass.OneVsRestClassifier and divide epsilon, or use "
            "DPLogisticRegression"
        )
