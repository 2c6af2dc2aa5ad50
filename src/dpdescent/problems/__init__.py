"""What is minimised: the loss of one row, its derivatives, and the bounds that follow from public knowledge."""

from .adversary import Adversary
from .contract import DifferenceLoss, Loss, MarginLoss
from .frame import Frame
from .inner_products import products_with_following
from .labels import LabelKind, Labels
from .linear import LinearProblem
from .losses import Hinge, Huber, HuberisedHinge, Logistic, Sigmoid, Squared
from .multinomial import Multinomial
from .needs import Need, require_needs
from .penalties import L2, NonConvex, Penalty
from .poisson import Poisson
from .scores import StepLosses, StepwiseChanges
from .weighted import Weighted
from .whitening import Whitening

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
