"""What is minimised: the loss of one row, its derivatives, and the bounds that follow from public knowledge."""

from .class_losses import Multinomial as Multinomial, Weighted as Weighted
from .contract import (
    DifferenceLoss as DifferenceLoss,
    LabelKind as LabelKind,
    Labels as Labels,
    Loss as Loss,
    MarginLoss as MarginLoss,
    Need as Need,
    require_needs as require_needs,
)
from .linear import LinearProblem as LinearProblem, StepLosses as StepLosses, StepwiseChanges as StepwiseChanges
from .linear_maps import Frame as Frame, Whitening as Whitening, products_with_following as products_with_following
from .margin_losses import (
    Hinge as Hinge,
    Huber as Huber,
    HuberisedHinge as HuberisedHinge,
    Logistic as Logistic,
    Poisson as Poisson,
    Sigmoid as Sigmoid,
    Squared as Squared,
)
from .penalties import (
    L2 as L2,
    Adversary as Adversary,
    NonConvex as NonConvex,
    Penalty as Penalty,
    Support as Support,
)

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
