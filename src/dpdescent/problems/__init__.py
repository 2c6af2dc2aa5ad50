"""What is minimised: the loss of one row, its derivatives, and the bounds that follow from public knowledge."""

from .class_losses import Multinomial, Weighted
from .contract import DifferenceLoss, LabelKind, Labels, Loss, MarginLoss, Need, require_needs
from .linear import LinearProblem
from .linear_maps import Frame, Whitening, products_with_following
from .margin_losses import Hinge, Huber, HuberisedHinge, Logistic, Poisson, Sigmoid, Squared
from .penalties import L2, Adversary, NonConvex, Penalty, Support
from .step_losses import StepLosses, StepwiseChanges

__all__ = [
    "L2",
    "LOSSES",
    "Adversary",
    "DifferenceLoss",
    "Frame",
    "Hinge",
    "Huber",
    "HuberisedHinge",
    "LabelKind",
    "Labels",
    "LinearProblem",
    "Logistic",
    "Loss",
    "MarginLoss",
    "Multinomial",
    "Need",
    "NonConvex",
    "Penalty",
    "Poisson",
    "Sigmoid",
    "Squared",
    "StepLosses",
    "StepwiseChanges",
    "Support",
    "Weighted",
    "Whitening",
    "products_with_following",
    "require_needs",
]

#: One of each loss, by its name: what every law of a loss is checked for.
LOSSES: dict[str, Loss] = {
    "hinge": Hinge(),
    "huber": Huber(0.25),
    "huberised-hinge": HuberisedHinge(),
    "logistic": Logistic(),
    "multinomial": Multinomial(3),
    "poisson": Poisson(),
    "sigmoid": Sigmoid(),
    "squared": Squared(),
    "weighted": Weighted(Logistic(), (0.25, 1.0)),
}
